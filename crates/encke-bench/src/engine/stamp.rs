//! The data that is published: a mark, room, worker, sequence number, planned time, filler.

/// Shortest data that holds a stamp, in bytes.
pub const DATA_BYTES_MIN: usize = 32;
