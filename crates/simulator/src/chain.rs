//! Held requests that follow one another.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use encke_core::Identity;
use encke_local::{Hold, Subscription};

/// A client whose held requests follow one another.
pub(crate) struct Chain {
    /// The channel or pattern.
    pub(crate) name: &'static str,
    /// The address from which its requests come.
    pub(crate) address: IpAddr,
    /// The answers that come late, of 1,000: messages wait in its queue.
    pub(crate) lateness: usize,
    /// The `after` of its next request.
    pub(crate) after: String,
    /// The request that is held.
    pub(crate) held: Option<Held>,
    /// The offset of the last message of each history that it has, or of the message before the first one.
    pub(crate) reached: BTreeMap<String, u64>,
    /// The histories of which messages are reported as missing before the next one.
    pub(crate) gaps: BTreeSet<String>,
}

/// A held request.
pub(crate) struct Held {
    pub(crate) subscription: Subscription,
    /// The time at which it is answered without a message, in milliseconds.
    pub(crate) until_ms: u64,
    pub(crate) identity: Arc<Identity>,
    pub(crate) messages_max: usize,
    pub(crate) is_revoked: bool,
    /// Until it is answered, or its client leaves.
    pub(crate) hold: Hold,
}
