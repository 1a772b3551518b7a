//! Messages that are offered to a group, and those that wait or go.

use crate::events::SessionKey;

/// The receivers of messages: the index of a group in the table of channels, or [`Conflation::EVERYBODY`](crate::conflation::Conflation::EVERYBODY).
pub(crate) type Group = u32;

/// A message that is offered to a group.
pub(crate) struct Offer<'a> {
    pub(crate) group: Group,
    pub(crate) channel: &'a str,
    /// The interval in milliseconds.
    pub(crate) interval_ms: u32,
    /// Its frame.
    pub(crate) frame: &'a [u8],
    /// The session that must not get it.
    pub(crate) except: Option<SessionKey>,
    /// True if its delivery may wait for other messages.
    pub(crate) is_lazy: bool,
}

/// A message that has waited.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Its frame.
    pub(crate) frame: Vec<u8>,
    pub(crate) except: Option<SessionKey>,
    pub(crate) is_lazy: bool,
    /// The number of the publication.
    pub(crate) number: u64,
}

/// A message that goes now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) group: Group,
    pub(crate) channel: Box<str>,
    pub(crate) message: Waiting,
}

/// The outcome of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// The message goes now.
    Goes,
    /// There is no room for it to wait: it goes now.
    HasNoRoom,
    /// It waits.
    Waits,
    /// It waits in place of an older one.
    Replaces,
}

/// The most channels, one for each group, and the most bytes of messages that wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) channels_max: usize,
    pub(crate) bytes_max: usize,
}
