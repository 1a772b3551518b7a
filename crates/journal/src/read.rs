//! Reading a segment front to back.

use std::io;

use crate::disk::Disk;
use crate::format::{FRAME_BYTES, Frame, HEADER_BYTES, Header, RECORD_BYTES_MAX};

/// What stands at the reader's place.
pub(crate) enum Found {
    /// A whole record, of whatever sequence.
    Record(Frame),
    /// No more bytes.
    End,
    /// Something else.
    Rubbish,
}

/// A place in a file and the bytes that follow, as far as they are read.
pub(crate) struct Reader<'a, D: Disk> {
    disk: &'a D,
    file: &'a D::File,
    buffer: Vec<u8>,
    /// Where in `buffer` the reader stands.
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

    /// Where in the file it stands.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the header and goes on behind it. The inner error says what is there instead.
    pub fn header(&mut self) -> io::Result<Result<Header, String>> {
        let header = Header::decode(self.peek(HEADER_BYTES)?);
        self.skip(HEADER_BYTES);
        Ok(header)
    }

    /// Looks at what is here, without going on.
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

    /// The bytes of the record that was found here, its frame and its payload; goes on behind it.
    pub fn take(&mut self, frame: &Frame) -> (&[u8], &[u8]) {
        let start = self.start;
        self.skip(FRAME_BYTES + frame.length);
        self.buffer[start..start + FRAME_BYTES + frame.length].split_at(FRAME_BYTES)
    }

    /// Goes to the end of the file, and says where that is.
    pub fn end(&mut self) -> io::Result<u64> {
        while !self.peek(1)?.is_empty() {
            self.skip(usize::MAX);
        }
        Ok(self.offset)
    }

    /// Whether the rest of the file has a record that was appended when `sequence` was known to be synced.
    pub fn proves_synced(mut self, sequence: u64, salt: u64) -> io::Result<bool> {
        loop {
            let bytes = self.peek(FRAME_BYTES)?;
            if bytes.len() < FRAME_BYTES {
                return Ok(false);
            }
            // The salt hides the sequence, so a payload cannot make this search look at more than it must.
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

/// How much is read at once, in bytes, beyond what is wanted.
const READ_BYTES: usize = 256 << 10;
