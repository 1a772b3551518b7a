//! Sequential reading of a segment.

use std::io;

use crate::disk::Disk;
use crate::format::{FRAME_BYTES, Frame, HEADER_BYTES, Header, RECORD_BYTES_MAX};

/// The item at the reader's offset.
pub(crate) enum Found {
    /// A whole record, of any sequence.
    Record(Frame),
    /// The end of the file.
    End,
    /// Any other bytes.
    Rubbish,
}

/// An offset in a file, and the bytes read from there.
pub(crate) struct Reader<'a, D: Disk> {
    disk: &'a D,
    file: &'a D::File,
    buffer: Vec<u8>,
    /// The reader's offset in `buffer`.
    start: usize,
    offset: u64,
}

impl<'a, D: Disk> Reader<'a, D> {
    pub fn new(disk: &'a D, file: &'a D::File) -> Reader<'a, D> {
        Reader::new_at(disk, file, 0)
    }

    pub fn new_at(disk: &'a D, file: &'a D::File, offset: u64) -> Reader<'a, D> {
        Reader { disk, file, buffer: Vec::new(), start: 0, offset }
    }

    /// The reader's offset in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the header and moves behind it. The inner error describes the bytes found instead.
    pub fn header(&mut self) -> io::Result<Result<Header, String>> {
        let header = Header::decode(self.peek(HEADER_BYTES)?);
        self.skip(HEADER_BYTES);
        Ok(header)
    }

    /// Looks at the item here, without moving.
    pub fn record(&mut self, salt: u64) -> io::Result<Found> {
        let bytes = self.peek(FRAME_BYTES)?;
        if bytes.len() < FRAME_BYTES {
            return Ok(if bytes.is_empty() { Found::End } else { Found::Rubbish });
        }
        let frame = Frame::decode(bytes, salt);
        if frame.sequence == 0 || frame.length > RECORD_BYTES_MAX {
            return Ok(Found::Rubbish);
        }
        let whole = self.peek(FRAME_BYTES + frame.length)?;
        Ok(if frame.fits(whole) { Found::Record(frame) } else { Found::Rubbish })
    }

    /// The bytes of the record found here, its frame and its payload; moves behind it.
    pub fn take(&mut self, frame: &Frame) -> (&[u8], &[u8]) {
        let start = self.start;
        self.skip(FRAME_BYTES + frame.length);
        self.buffer[start..start + FRAME_BYTES + frame.length].split_at(FRAME_BYTES)
    }

    /// Moves to the end of the file, and returns its offset.
    pub fn end(&mut self) -> io::Result<u64> {
        while !self.peek(1)?.is_empty() {
            self.skip(usize::MAX);
        }
        Ok(self.offset)
    }

    /// True if the rest of the file has a record that was appended when `sequence` was known to be synced.
    pub fn proves_synced(mut self, sequence: u64, salt: u64) -> io::Result<bool> {
        loop {
            let bytes = self.peek(FRAME_BYTES)?;
            if bytes.len() < FRAME_BYTES {
                return Ok(false);
            }
            // The salt hides the sequence, so a payload cannot prolong this search.
            let frame = Frame::decode(bytes, salt);
            let near = frame.sequence > sequence && frame.sequence - sequence <= u64::from(u32::MAX);
            if near
                && frame.synced_before() >= sequence
                && let Found::Record(_) = self.record(salt)?
            {
                return Ok(true);
            }
            self.skip(1);
        }
    }

    fn skip(&mut self, bytes: usize) {
        let bytes = bytes.min(self.buffer.len() - self.start);
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// The next `wanted` bytes; fewer at the end of the file.
    fn peek(&mut self, wanted: usize) -> io::Result<&[u8]> {
        if self.buffer.len() - self.start < wanted {
            self.buffer.drain(..self.start);
            self.start = 0;
            self.fill(wanted)?;
        }
        let end = self.buffer.len().min(self.start + wanted);
        Ok(&self.buffer[self.start..end])
    }

    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        let mut filled = self.buffer.len();
        self.buffer.resize(filled.max(wanted) + READ_BYTES, 0);
        while filled < wanted {
            match self.disk.read_at(self.file, &mut self.buffer[filled..], self.offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.truncate(filled);
        Ok(())
    }
}

/// The bytes read at once beyond those requested.
const READ_BYTES: usize = 256 << 10;
