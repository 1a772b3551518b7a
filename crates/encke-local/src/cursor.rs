//! The position of a subscription in the history of a channel.

use std::sync::Arc;

use encke_core::history::RingKey;

/// The next message of a channel.
#[derive(Clone, PartialEq)]
pub(crate) struct Cursor {
    pub(crate) channel: Arc<str>,
    pub(crate) ring: RingKey,
    pub(crate) epoch: Arc<str>,
    /// The offset of the next message.
    pub(crate) next: u64,
    /// True while messages come from the history.
    pub(crate) is_behind: bool,
}
