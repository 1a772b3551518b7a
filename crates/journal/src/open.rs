//! Opening a journal: it reads all records, cuts torn ones, and refuses damage.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::disk::{Disk, LOCK};
use crate::error::Error;
use crate::format::{Header, List, PROBE, UNFINISHED, VERSION, file_name, list_name, listed, noted, number_of};
use crate::journal::{ActiveSegment, Journal, Options, Position, Segment};
use crate::read::{Found, Reader};
use crate::unproven::Unproven;

/// The result of opening a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Opened {
    /// The number of records read.
    pub records: u64,
    /// The first record; if there is none, the next to be appended.
    pub first: Position,
    /// The last record; if there is none, the one before `first`.
    pub last: Position,
    /// The parts cut because they were not known to be synced: the torn end of the last segment, or the end of one
    /// that was given up.
    pub cut: Vec<Cut>,
    /// The notes: see [`Journal::note`].
    pub notes: Vec<u64>,
    /// Foreign files in the directory. They were not touched.
    pub strangers: Vec<PathBuf>,
}

/// A part cut off a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cut {
    /// The segment.
    pub file: PathBuf,
    /// The end of the last whole record.
    pub offset: u64,
    /// The number of bytes after it.
    pub bytes: u64,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cut {} bytes that were never known to be synced off {} at offset {}",
            self.bytes,
            self.file.display(),
            self.offset
        )
    }
}

impl<D: Disk> Journal<D> {
    /// Opens the journal in `disk`, or creates one. It passes each record to `on_record`, in order, with its
    /// position.
    ///
    /// A torn end of the last segment is cut; damage anywhere else is an error. [The crate's
    /// documentation](crate#opening) defines the border. The end of the last segment that no record proves to be
    /// synced is written again, so all records are on the disk when this returns. Only a full disk may leave that end
    /// to a later [`Journal::sync`], as [`Journal::synced`] shows.
    pub fn open(
        disk: D,
        options: Options,
        on_record: &mut dyn FnMut(Position, &[u8]),
    ) -> Result<(Journal<D>, Opened), Error> {
        let options = options.within_bounds();
        let Some(lock) = disk.lock().map_err(|error| failed(&disk, "lock", LOCK, error))? else {
            return Err(Error::Locked { path: disk.path(LOCK) });
        };
        let mut opened = Opened::default();
        // A killed process may have created or renamed files without syncing the directory. What is removed below is
        // judged by these names, so they are made durable first.
        disk.sync_directory().map_err(|error| failed(&disk, "sync the directory of", LOCK, error))?;
        let (headers, listed) = read_headers(&disk, &mut opened)?;

        let mut segments = VecDeque::new();
        let (mut active, mut unproven) = (ActiveSegment::Closed, Unproven::default());
        let mut next = headers.first().map_or(1, |header| header.first);
        opened.first = Position(next);
        for (index, header) in headers.iter().enumerate() {
            let until = headers.get(index + 1).map(|following| following.first);
            let (bytes, file, end) = read_segment(&disk, header, until, &mut next, &mut opened.cut, on_record)?;
            segments.push_back(Segment { number: header.number, first: Position(header.first), bytes });
            (active, unproven) = (ActiveSegment::Open(file), end);
        }
        opened.last = Position(next - 1);
        opened.records = next - opened.first.0;
        let salt = headers.last().map_or(options.salt, |header| header.salt);
        let mut journal = Journal::start(disk, lock, options, segments, active, (salt, opened.last), unproven);
        journal.adopt_list(listed)?;
        journal.write_again()?;
        Ok((journal, opened))
    }
}

/// Reads the headers of all segments, in order, and the lists of segments. Removes a segment that was never finished,
/// and segments that the list no longer has.
fn read_headers<D: Disk>(disk: &D, opened: &mut Opened) -> Result<(Vec<Header>, Vec<List>), Error> {
    let (mut numbers, mut lists) = (Vec::new(), Vec::new());
    for name in disk.list().map_err(|error| failed(disk, "list the directory of", LOCK, error))? {
        match number_of(&name) {
            Some(number) => numbers.push(number),
            None if name == LOCK || name == PROBE => {}
            // Its records were in the memory of a process that is gone, or are in another segment, too.
            None if name == UNFINISHED => disk.remove(&name).map_err(|error| failed(disk, "remove", &name, error))?,
            None => match (noted(&name), listed(&name)) {
                (Some(number), _) => opened.notes.push(number),
                (_, Some(list)) => lists.push(list),
                _ => opened.strangers.push(disk.path(&name)),
            },
        }
    }
    numbers.sort_unstable();
    lists.sort_unstable();
    opened.strangers.sort_unstable();
    // If a crash has left two lists, the older one precedes a new segment or a removal.
    let first = lists.iter().map(|list| list.0).max().unwrap_or(0);
    let last = lists.iter().map(|list| list.1).max().unwrap_or(0);
    if let Some(list) = lists.last()
        && let Some(missing) = (first..=last).find(|number| numbers.binary_search(number).is_err())
    {
        return Err(Error::Missing { file: disk.path(&file_name(missing)), list: disk.path(&list_name(*list)) });
    }
    let (gone, numbers): (Vec<u64>, Vec<u64>) = numbers.into_iter().partition(|number| *number < first);
    for name in gone.into_iter().map(file_name) {
        disk.remove(&name).map_err(|error| failed(disk, "remove", &name, error))?;
    }

    let mut headers: Vec<Header> = Vec::new();
    for (index, &number) in numbers.iter().enumerate() {
        if index > 0 && numbers[index - 1] + 1 != number {
            let missing = file_name(numbers[index - 1] + 1);
            return Err(damaged(disk, &missing, 0, "this segment", "no such file"));
        }
        headers.push(read_header(disk, number)?);
    }
    if let Some(pair) = headers.windows(2).find(|pair| pair[0].first > pair[1].first) {
        let expected = format!("a first record not before {}", pair[0].first);
        return Err(damaged(disk, &file_name(pair[1].number), 0, &expected, pair[1].first.to_string()));
    }
    Ok((headers, lists))
}

/// The header of a segment. It was on the disk before the segment had its name.
pub(crate) fn read_header<D: Disk>(disk: &D, number: u64) -> Result<Header, Error> {
    let name = file_name(number);
    let file = disk.open(&name).map_err(|error| failed(disk, "open", &name, error))?;
    match Reader::new(disk, &file).header().map_err(|error| failed(disk, "read", &name, error))? {
        Ok(header) if header.version != VERSION => {
            let expected = format!("version {VERSION} of the format");
            Err(damaged(disk, &name, 0, &expected, format!("version {}", header.version)))
        }
        Ok(header) if header.number != number => {
            let found = format!("the one of segment {}", header.number);
            Err(damaged(disk, &name, 0, "the header of this segment", found))
        }
        Ok(header) => Ok(header),
        Err(found) => Err(damaged(disk, &name, 0, "the header of a segment", found)),
    }
}

/// Reads the records of a segment from `next` on, and advances `next`. Returns its length without the unproven
/// records, the file, and those records, if it is the last segment.
///
/// `until` is the beginning of the next segment. Records of this one from there on were given up, and are cut.
fn read_segment<D: Disk>(
    disk: &D,
    header: &Header,
    until: Option<u64>,
    next: &mut u64,
    cut: &mut Vec<Cut>,
    on_record: &mut dyn FnMut(Position, &[u8]),
) -> Result<(u64, D::File, Unproven), Error> {
    let name = file_name(header.number);
    let unread = |error| failed(disk, "read", &name, error);
    let file = disk.open(&name).map_err(|error| failed(disk, "open", &name, error))?;
    let mut reader = Reader::new(disk, &file);
    // The header was checked before; this skips it.
    let _ = reader.header().map_err(unread)?;
    let mut unproven = Unproven::default();
    while until != Some(*next) {
        let found = match reader.record(header.salt).map_err(unread)? {
            Found::Record(frame) if frame.sequence == *next => {
                let (head, payload) = reader.take(&frame);
                if until.is_none() {
                    unproven.push(&frame, [head, payload]);
                }
                on_record(Position(*next), payload);
                *next += 1;
                continue;
            }
            Found::Record(frame) => format!("record {}", frame.sequence),
            Found::End => "the end of the file".into(),
            Found::Rubbish => "bytes that are no whole record".into(),
        };
        let offset = reader.offset();
        if until.is_some() {
            return Err(damaged(disk, &name, offset, &format!("record {next}"), found));
        }
        if Reader::new_at(disk, &file, offset).proves_synced(*next, header.salt).map_err(unread)? {
            let expected = format!("record {next}, which was synced before a later one was appended");
            return Err(damaged(disk, &name, offset, &expected, found));
        }
        break;
    }
    let offset = reader.offset();
    let end = reader.end().map_err(unread)?;
    if end > offset {
        // Also in a segment that was given up: if the next one is lost in turn, its records must not reappear in
        // instead of newer ones.
        disk.truncate(&file, offset).map_err(|error| failed(disk, "cut", &name, error))?;
        cut.push(Cut { file: disk.path(&name), offset, bytes: end - offset });
    }
    Ok((offset - unproven.bytes(), file, unproven))
}

pub(crate) fn failed<D: Disk>(disk: &D, doing: &'static str, name: &str, source: io::Error) -> Error {
    Error::Io { doing, path: disk.path(name), source }
}

fn damaged<D: Disk>(disk: &D, name: &str, offset: u64, expected: &str, found: impl Into<String>) -> Error {
    Error::Damaged { file: disk.path(name), offset, expected: expected.into(), found: found.into() }
}
