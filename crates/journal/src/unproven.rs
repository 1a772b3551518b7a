//! Records that a crash may have held back from the disk.

use std::collections::VecDeque;

use crate::format::Frame;

/// The records at the end of the last segment that no later record proves to be synced.
///
/// The system may hold them while the disk does not: a failed sync marks them as clean, and the next one succeeds. So
/// they stay in memory as they were read and checked: a second read may come from the disk.
#[derive(Default)]
pub(crate) struct Unproven {
    /// The sequence and the length of each record.
    records: VecDeque<(u64, usize)>,
    /// The bytes of all records, concatenated.
    bytes: Vec<u8>,
}

impl Unproven {
    /// The number of records, and their bytes.
    pub fn into_parts(self) -> (u64, Vec<u8>) {
        (self.records.len() as u64, self.bytes)
    }

    /// The length of all records.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Adds a record, and drops those that it proves.
    pub fn push(&mut self, frame: &Frame, parts: [&[u8]; 2]) {
        let mut proven = 0;
        while let Some((_, bytes)) = self.records.pop_front_if(|first| first.0 <= frame.synced_before()) {
            proven += bytes;
        }
        self.bytes.drain(..proven);
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.records.push_back((frame.sequence, parts[0].len() + parts[1].len()));
    }
}
