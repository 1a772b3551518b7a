//! The room that the rings of an owner have, and what they take of it.

use crate::Settings;

/// The limits for what one owner may retain.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Bytes.
    pub bytes_max: usize,
    /// Channels.
    pub channels_max: usize,
}

impl Room {
    /// One owner's share of the server's limits, for this number of owners.
    pub fn of(settings: &Settings, owners: usize) -> Room {
        let share = |all: usize| (all / owners.max(1)).max(1);
        Room { bytes_max: share(settings.history_bytes_max), channels_max: share(settings.history_channels_max) }
    }
}

/// The amounts that one owner retains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Messages.
    pub messages: usize,
    /// Bytes.
    pub bytes: usize,
    /// Channels, including those with empty rings.
    pub channels: usize,
    /// Messages evicted for lack of room, since the start.
    pub evicted: usize,
}
