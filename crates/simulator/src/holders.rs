//! The identities of sessions, as the application has given them.

use std::collections::BTreeMap;

/// The identity of a session, and the end of its rights.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holder {
    pub(crate) user: Box<str>,
    pub(crate) token_id: Box<str>,
    pub(crate) expires_ms: Option<u64>,
    /// The number of the first publication that the session must not get.
    pub(crate) ends: Option<usize>,
    /// True if the server was asked to end it.
    pub(crate) is_kicked: bool,
}

/// The holders of identities, by client id.
pub(crate) type Holders = BTreeMap<String, Holder>;
