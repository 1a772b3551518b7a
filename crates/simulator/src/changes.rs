//! The changes that handles of the server have requested.

use std::collections::BTreeMap;

/// The changes of subscriptions that are under way, by the number of their token.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) under_way: BTreeMap<u64, Change>,
    pub(crate) tokens: u64,
}

/// A change of a subscription.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) session: usize,
    pub(crate) name: String,
    pub(crate) subscribes: bool,
}

impl Changes {
    /// True if a handle is changing this subscription.
    pub(crate) fn is_changing(&self, session: usize, name: &str) -> bool {
        self.under_way.values().any(|change| change.session == session && change.name == name)
    }
}
