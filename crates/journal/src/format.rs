//! The encoding of headers and records. The crate's documentation describes the layout.

/// Bytes of a segment's header.
pub(crate) const HEADER_BYTES: usize = 40;
/// Bytes in front of each record's payload.
pub(crate) const FRAME_BYTES: usize = 20;
/// The version of the format that this code writes and reads.
pub(crate) const VERSION: u32 = 1;
/// The greatest length of a record, in bytes, whatever the options are. A greater length is invalid.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The version of the format; [`VERSION`] is the only one so far.
    pub version: u32,
    pub number: u64,
    /// The sequence of its first record.
    pub first: u64,
    pub salt: u64,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.number.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.first.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.salt.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header. The error describes the bytes found instead.
    pub fn decode(bytes: &[u8]) -> Result<Header, String> {
        if bytes.len() < HEADER_BYTES {
            return Err(format!("{} bytes", bytes.len()));
        }
        if &bytes[..8] != MAGIC {
            return Err("other first bytes".into());
        }
        if crc32c::crc32c(&bytes[..36]) != u32_at(bytes, 36) {
            return Err("another checksum".into());
        }
        Ok(Header {
            version: u32_at(bytes, 8),
            number: u64_at(bytes, 12),
            first: u64_at(bytes, 20),
            salt: u64_at(bytes, 28),
        })
    }
}

/// The frame in front of a record's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub checksum: u32,
    /// Bytes of the payload.
    pub length: usize,
    /// The number of earlier records that were not known to be synced when this one was appended.
    pub unsynced: u32,
    pub sequence: u64,
}

impl Frame {
    /// Decodes a frame. Only [`Frame::fits`] decides whether it is valid.
    pub fn decode(bytes: &[u8], salt: u64) -> Frame {
        Frame {
            checksum: u32_at(bytes, 0),
            length: u32_at(bytes, 4) as usize,
            unsynced: u32_at(bytes, 8),
            sequence: u64_at(bytes, 12) ^ salt,
        }
    }

    /// True if `bytes`, the frame and its payload, are unchanged since they were written.
    pub fn fits(&self, bytes: &[u8]) -> bool {
        bytes.len() == FRAME_BYTES + self.length && crc32c::crc32c(&bytes[4..]) == self.checksum
    }

    /// The last sequence that was known to be synced when this record was appended.
    pub fn synced_before(&self) -> u64 {
        (self.sequence - 1).saturating_sub(u64::from(self.unsynced))
    }
}

/// Appends a record to `out`: frame, then payload.
pub(crate) fn encode_record(out: &mut Vec<u8>, parts: &[&[u8]], sequence: u64, synced: u64, salt: u64) {
    let start = out.len();
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let unsynced = u32::try_from(sequence - 1 - synced).unwrap_or(u32::MAX);
    let mut frame = [0; FRAME_BYTES];
    frame[4..8].copy_from_slice(&(length as u32).to_le_bytes());
    frame[8..12].copy_from_slice(&unsynced.to_le_bytes());
    frame[12..].copy_from_slice(&(sequence ^ salt).to_le_bytes());
    out.extend_from_slice(&frame);
    for part in parts {
        out.extend_from_slice(part);
    }
    let checksum = crc32c::crc32c(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// The file name of a segment: its number in 20 digits, so that names sort as numbers do.
pub(crate) fn file_name(number: u64) -> String {
    format!("{number:020}{SUFFIX}")
}

/// The number of the segment with this file name; none for other files.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

/// The file name of a note.
pub(crate) fn note_name(number: u64) -> String {
    format!("{number:020}{NOTE_SUFFIX}")
}

/// The number in the file name of a note; none for other files.
pub(crate) fn noted(name: &str) -> Option<u64> {
    let number = name.strip_suffix(NOTE_SUFFIX)?.parse().ok()?;
    (note_name(number) == name).then_some(number)
}

/// A list of segments: the numbers of the first and the last.
pub(crate) type List = (u64, u64);

/// The file name of a list of segments.
pub(crate) fn list_name((first, last): List) -> String {
    format!("{first:020}-{last:020}{LIST_SUFFIX}")
}

/// The numbers of the first and the last segment in the file name of a list; none for other files.
pub(crate) fn listed(name: &str) -> Option<List> {
    let (first, last) = name.strip_suffix(LIST_SUFFIX)?.split_once('-')?;
    let range = (first.parse().ok()?, last.parse().ok()?);
    (list_name(range) == name && range.0 <= range.1).then_some(range)
}

/// The name of a segment under construction. It gets its own name when its header and its first records are on the
/// disk.
pub(crate) const UNFINISHED: &str = "unfinished.journal";
/// The file that tests whether the disk takes a file.
pub(crate) const PROBE: &str = "probe";

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

const MAGIC: &[u8; 8] = b"enckejnl";
const SUFFIX: &str = ".journal";
const LIST_SUFFIX: &str = ".segments";
const NOTE_SUFFIX: &str = ".note";
