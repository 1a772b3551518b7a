//! The journal, open for writing.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::disk::Disk;
use crate::error::Error;
use crate::format::{
    FRAME_BYTES, HEADER_BYTES, Header, List, RECORD_BYTES_MAX, UNFINISHED, VERSION, encode_record, file_name,
    list_name, note_name,
};
use crate::unproven::Unproven;

/// The position of a record: 1 for the first one ever appended, then 2, … without gaps. 0 precedes all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// The position of the next record.
    pub fn next(self) -> Position {
        Position(self.0 + 1)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The limits of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The longest record, in bytes; never above 16 MiB. Default 1 MiB.
    pub record_bytes: usize,
    /// The greatest memory for unsynced records, in bytes; at least two of the longest records. [`Journal::write`]
    /// syncs by itself when half of it is full. Default 32 MiB: half of it holds 76,000 records of 200 bytes.
    pub memory_bytes: usize,
    /// The length in bytes at which a segment ends and the next begins. Default 64 MiB.
    pub segment_bytes: u64,
    /// Random bits, used if the journal is new. They prevent a payload from imitating a record.
    pub salt: u64,
}

impl Options {
    /// The defaults. The salt should come from the kernel's random bytes; a fixed one is enough for tests.
    pub fn new(salt: u64) -> Options {
        Options { record_bytes: 1 << 20, memory_bytes: 32 << 20, segment_bytes: 64 << 20, salt }
    }

    pub(crate) fn within_bounds(mut self) -> Options {
        self.record_bytes = self.record_bytes.min(RECORD_BYTES_MAX);
        self.memory_bytes = self.memory_bytes.max(2 * (self.record_bytes + FRAME_BYTES));
        self
    }
}

/// A segment of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number, which is also its file name.
    pub number: u64,
    /// Its first record. It ends where the next segment begins.
    pub first: Position,
    /// Its length, in bytes.
    pub bytes: u64,
}

/// An open journal: the only writer of its directory. See the [crate's documentation](crate).
///
/// ```text
/// append ──▶ memory ──write──▶ the system's cache ──sync──▶ the disk
///          appended()          written()                  synced()
/// ```
///
/// Records stay in memory until they are synced. Dropping the journal writes nothing: call [`Journal::sync`] before.
pub struct Journal<D: Disk> {
    disk: D,
    _lock: D::Lock,
    options: Options,
    segments: VecDeque<Segment>,
    active: ActiveSegment<D::File>,
    salt: u64,
    /// All records after `synced`, framed.
    unsynced: Vec<u8>,
    /// The number of bytes at the end of the active segment that are also in `unsynced`.
    written_bytes: usize,
    synced: Position,
    written: Position,
    appended: Position,
    given_up: u64,
    /// The numbers of the first and the last segment in the current list file, if there is one.
    listed: Option<List>,
    /// True if that file name survives a loss of power.
    is_list_safe: bool,
}

/// The destination of the next write.
pub(crate) enum ActiveSegment<F> {
    /// To the end of the last segment.
    Open(F),
    /// To a new segment: there is none yet, the last one is long enough, or its sync failed.
    Closed,
}

impl<D: Disk> Journal<D> {
    pub(crate) fn start(
        disk: D,
        lock: D::Lock,
        options: Options,
        segments: VecDeque<Segment>,
        active: ActiveSegment<D::File>,
        (salt, last): (u64, Position),
        unproven: Unproven,
    ) -> Journal<D> {
        let (records, unsynced) = unproven.into_parts();
        let proven = Position(last.0 - records);
        Journal {
            disk,
            _lock: lock,
            options,
            segments,
            active,
            salt,
            unsynced,
            written_bytes: 0,
            synced: proven,
            written: proven,
            appended: last,
            given_up: 0,
            listed: None,
            is_list_safe: false,
        }
    }

    /// Rewrites the records that are not known to be on the disk in place, and syncs them, so that the system cannot
    /// treat them as clean. At every moment each sector of the disk holds its old contents or these same bytes. If
    /// that sync fails, a new segment holds the records, as after any other failure.
    ///
    /// A full disk may refuse: then the records stay in memory together with new ones, until it has room.
    pub(crate) fn write_again(&mut self) -> Result<(), Error> {
        match self.sync() {
            Err(error) if error.is_full() => {
                self.options.memory_bytes += self.unsynced.len();
                Ok(())
            }
            synced => synced.map(|_| ()),
        }
    }

    /// Adopts the lists of segments that were found, and replaces them by one correct list.
    pub(crate) fn adopt_list(&mut self, lists: Vec<List>) -> Result<(), Error> {
        self.listed = lists.last().copied();
        for list in lists.iter().filter(|list| Some(**list) != self.listed) {
            self.remove(&list_name(*list))?;
        }
        match (self.segments.front(), self.segments.back()) {
            (Some(first), Some(last)) => self.list((first.number, last.number)),
            _ => Ok(()),
        }
    }

    /// Lists the segments in the name of an empty file: that needs no room and is never half written.
    fn list(&mut self, range: List) -> Result<(), Error> {
        let name = list_name(range);

        if self.listed != Some(range) {
            // Only durable names are listed.
            self.sync_names(&name)?;
            let named = match self.listed {
                Some(before) => self.disk.rename(&list_name(before), &name),
                None => self.disk.create(&name).map(|_| ()),
            };
            named.map_err(|error| self.failed("list the segments in", &name, error))?;
            (self.listed, self.is_list_safe) = (Some(range), false);
        }
        if !self.is_list_safe {
            self.sync_names(&name)?;
            self.is_list_safe = true;
        }
        Ok(())
    }

    fn sync_names(&self, name: &str) -> Result<(), Error> {
        self.disk.sync_directory().map_err(|error| self.failed("sync the directory of", name, error))
    }

    /// Appends a record in memory. A refused record uses no position.
    pub fn append(&mut self, record: &[u8]) -> Result<Position, Error> {
        self.append_parts(&[record])
    }

    /// The same for a record in several parts.
    pub fn append_parts(&mut self, parts: &[&[u8]]) -> Result<Position, Error> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes > self.options.record_bytes {
            return Err(Error::TooLong { bytes, limit_bytes: self.options.record_bytes });
        }
        if self.unsynced.len() + FRAME_BYTES + bytes > self.options.memory_bytes {
            return Err(Error::Full { limit_bytes: self.options.memory_bytes });
        }
        self.appended = self.appended.next();
        encode_record(&mut self.unsynced, parts, self.appended.0, self.synced.0, self.salt);
        Ok(self.appended)
    }

    /// Passes the appended records to the system in one write (group commit). They then survive the end of this
    /// process, not of the machine.
    ///
    /// After an error the records wait in memory: call it again from time to time until the disk takes them.
    pub fn write(&mut self) -> Result<Position, Error> {
        self.hand_over()?;
        if self.unsynced.len() > self.options.memory_bytes / 2 {
            self.sync()?;
        }
        Ok(self.written)
    }

    /// Writes the appended records and waits until they are on the disk.
    ///
    /// If the sync fails, the fate of the bytes is unknown, and repeating the sync proves nothing: Linux marks the
    /// pages as clean ("fsyncgate", 2018). So the journal gives that segment up from its last synced record on, and
    /// writes a new one that begins there from memory, syncs it, and puts it in its place. Only if that fails, too,
    /// it returns the error; the next call tries the same again.
    pub fn sync(&mut self) -> Result<Position, Error> {
        if self.synced < self.appended {
            self.hand_over()?;
            if self.flush().is_err() {
                self.hand_over()?;
                self.flush()?;
            }
        }
        Ok(self.synced)
    }

    /// Deletes the segments whose records all precede `position`, oldest first. The last segment always stays.
    /// Returns the number of deleted segments.
    pub fn remove_before(&mut self, position: Position) -> Result<usize, Error> {
        let mut removed = 0;
        // The list is updated first: segments that it no longer has may exist or not.
        let stay = self.segments.iter().rev().find(|segment| segment.first <= position).or(self.segments.front());
        if let Some((stay, last)) = stay.zip(self.segments.back()) {
            self.list((stay.number, last.number))?;
        }
        while self.segments.len() > 1 && self.segments[1].first <= position {
            let name = file_name(self.segments[0].number);
            self.remove(&name)?;
            // It is gone, durably or not: no later list may have it.
            self.segments.pop_front();
            // One by one, so that a crash cannot leave a gap. If this sync fails, the next call begins with one.
            self.is_list_safe = false;
            self.sync_names(&name)?;
            self.is_list_safe = true;
            removed += 1;
        }
        Ok(removed)
    }

    /// The last appended record.
    pub fn appended(&self) -> Position {
        self.appended
    }

    /// Notes a number where a record cannot be written for want of room, in the name of an empty file, which needs
    /// none. The note is durable at once, and stays until it is [removed](Journal::remove_note).
    pub fn note(&self, number: u64) -> Result<(), Error> {
        let name = note_name(number);
        match self.disk.create(&name) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(self.failed("create", &name, error));
            }
            _ => {}
        }
        self.disk.sync_directory().map_err(|error| self.failed("sync the directory of", &name, error))
    }

    /// Removes a note.
    pub fn remove_note(&self, number: u64) -> Result<(), Error> {
        self.remove(&note_name(number))
    }

    /// The last record the system has. It goes back to [`Journal::synced`] while a segment that was given up waits to
    /// be replaced.
    pub fn written(&self) -> Position {
        self.written
    }

    /// The last record that survives a loss of power. It never goes back.
    pub fn synced(&self) -> Position {
        self.synced
    }

    /// The segments, oldest first.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = Segment> + '_ {
        self.segments.iter().copied()
    }

    /// The file of the segment with this record.
    pub fn file_of(&self, position: Position) -> PathBuf {
        let segment = self.segments.iter().rev().find(|segment| segment.first <= position);
        self.disk.path(&file_name(segment.map_or(1, |segment| segment.number)))
    }

    /// The bytes in memory that are not synced.
    pub fn unsynced_bytes(&self) -> usize {
        self.unsynced.len()
    }

    /// The number of segments given up because their sync failed, since the journal was opened. Above 0, check the
    /// disk.
    pub fn given_up_segments(&self) -> u64 {
        self.given_up
    }

    fn hand_over(&mut self) -> Result<(), Error> {
        if self.written == self.appended {
            return Ok(());
        }
        self.close_full_segment();
        match self.active {
            ActiveSegment::Closed => self.begin_segment(),
            ActiveSegment::Open(_) => self.write_out(),
        }
    }

    /// Ends the last segment: the next record begins another one. So [`Journal::remove_before`] can remove everything before it.
    pub fn end_segment(&mut self) -> Result<(), Error> {
        self.sync()?;
        self.active = ActiveSegment::Closed;
        Ok(())
    }

    fn close_full_segment(&mut self) {
        if self.segments.back().is_some_and(|last| last.bytes >= self.options.segment_bytes) {
            // Synced first: damage in any segment but the last is never mistaken for a torn end. If the sync fails,
            // the segment is given up, and the next one holds its records.
            if self.flush().is_ok() {
                self.active = ActiveSegment::Closed;
            }
        }
    }

    /// Begins the next segment with all records in memory, and syncs it.
    ///
    /// It is created under another name. A segment that was given up retains the system's version of the unsynced
    /// records until the last moment: they survive the end of this process at any time.
    fn begin_segment(&mut self) -> Result<(), Error> {
        let first = self.synced.next();
        // If nothing in the last segment was ever synced, the new one replaces it, so that a disk that keeps
        // refusing is not filled with remains.
        let number = match self.segments.back() {
            Some(last) if last.first == first => last.number,
            last => last.map_or(1, |last| last.number + 1),
        };
        let name = file_name(number);
        // Always a new file, never one that was written before: a crash could mix the two.
        self.remove(UNFINISHED)?;
        let file = self.disk.create(UNFINISHED).map_err(|error| self.failed("create", UNFINISHED, error))?;
        let header = Header { version: VERSION, number, first: first.0, salt: self.salt }.encode();
        let made = write_all(&self.disk, &file, &header, 0)
            .and_then(|()| write_all(&self.disk, &file, &self.unsynced, HEADER_BYTES as u64))
            .and_then(|()| self.disk.sync(&file))
            .and_then(|()| self.disk.rename(UNFINISHED, &name));
        if let Err(error) = made {
            // If it stays, the next attempt or the next start removes it.
            let _ = self.disk.remove(UNFINISHED);
            return Err(self.failed("begin", &name, error));
        }
        let _ = self.segments.pop_back_if(|last| last.number == number);
        let bytes = (HEADER_BYTES + self.unsynced.len()) as u64;
        self.segments.push_back(Segment { number, first, bytes });
        self.active = ActiveSegment::Open(file);
        if let Err(error) = self.disk.sync_directory() {
            self.give_up();
            return Err(self.failed("sync the directory of", &name, error));
        }
        self.written = self.appended;
        self.written_bytes = self.unsynced.len();
        self.has_synced();
        // The segment exists and is durable. If the list does not get it, its loss would not be noticed: the next
        // segment, or the next start, lists it.
        let first = self.segments.front().map_or(number, |first| first.number);
        let _unlisted = self.list((first, number));
        Ok(())
    }

    /// Writes the records in memory after `written` to the end of the active segment. After a failure the next attempt
    /// overwrites a half-written record with the same bytes: no half record ever precedes a good one.
    fn write_out(&mut self) -> Result<(), Error> {
        let (ActiveSegment::Open(file), Some(last)) = (&self.active, self.segments.back_mut()) else { return Ok(()) };
        let bytes = &self.unsynced[self.written_bytes..];
        if let Err(error) = write_all(&self.disk, file, bytes, last.bytes) {
            let name = file_name(last.number);
            return Err(self.failed("write", &name, error));
        }
        last.bytes += bytes.len() as u64;
        self.written_bytes = self.unsynced.len();
        self.written = self.appended;
        Ok(())
    }

    /// Syncs the written records. If that fails, the segment is given up.
    fn flush(&mut self) -> Result<(), Error> {
        let (ActiveSegment::Open(file), Some(last)) = (&self.active, self.segments.back()) else { return Ok(()) };
        if self.synced == self.written {
            return Ok(());
        }
        if let Err(error) = self.disk.sync(file) {
            let name = file_name(last.number);
            self.give_up();
            return Err(self.failed("sync", &name, error));
        }
        self.has_synced();
        Ok(())
    }

    /// Drops the written records from memory: they are on the disk.
    fn has_synced(&mut self) {
        self.unsynced.drain(..self.written_bytes);
        self.written_bytes = 0;
        self.synced = self.written;
    }

    /// Stops writing to the last segment: the next one replaces everything in it that was not synced.
    fn give_up(&mut self) {
        self.active = ActiveSegment::Closed;
        self.written_bytes = 0;
        self.written = self.synced;
        self.given_up += 1;
    }

    /// Removes a file, which may be gone already.
    fn remove(&self, name: &str) -> Result<(), Error> {
        match self.disk.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed("remove", name, error)),
            _ => Ok(()),
        }
    }

    fn failed(&self, doing: &'static str, name: &str, source: io::Error) -> Error {
        Error::Io { doing, path: self.disk.path(name), source }
    }
}

/// Writes all bytes, however few the disk takes at once.
pub(crate) fn write_all<D: Disk>(disk: &D, file: &D::File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match disk.write_at(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => {
                bytes = &bytes[taken..];
                offset += taken as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
