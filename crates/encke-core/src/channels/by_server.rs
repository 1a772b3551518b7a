//! Subscriptions that the server's side has made for sessions, which need no right of the client. Only a session that has one has an
//! entry, so all others cost nothing.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

type Names = HashSet<Box<str>, RandomState>;

/// The channels and patterns of these subscriptions, by the index of their session.
#[derive(Debug, Default)]
pub(super) struct ByServer {
    names: HashMap<u32, Names, RandomState>,
    /// The memory that they take.
    bytes: usize,
}

impl ByServer {
    /// True if there is none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The memory that all of them take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if the server's side has made this subscription.
    pub(super) fn has(&self, session: u32, name: &str) -> bool {
        self.names.get(&session).is_some_and(|names| names.contains(name))
    }

    /// Adds a subscription.
    pub(super) fn add(&mut self, session: u32, name: &str) {
        if self.names.entry(session).or_default().insert(name.into()) {
            self.bytes += bytes_of(name);
        }
    }

    /// Removes a subscription that has ended.
    pub(super) fn remove(&mut self, session: u32, name: &str) {
        let Some(names) = self.names.get_mut(&session) else { return };
        if names.remove(name) {
            self.bytes -= bytes_of(name);
        }
        if names.is_empty() {
            self.names.remove(&session);
        }
        if self.names.is_empty() {
            self.names = HashMap::default();
        }
    }
}

/// The memory of a name, as if it were the only one of its session. Up to half of each table is empty.
fn bytes_of(name: &str) -> usize {
    name.len() + 2 * size_of::<Box<str>>() + 2 * size_of::<(u32, Names)>()
}
