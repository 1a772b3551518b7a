//! The table of rights: every way into the server that asks for one, and the right that it needs.

/// A right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// Opens or keeps a session, or sends a request without one.
    Handshake,
    /// Gets what is published on a channel or pattern from now on.
    Subscribe,
    /// Publishes on a channel.
    Publish,
    /// Calls a service.
    Call,
    /// Reads the messages that the history of a channel, or of the channels of a pattern, retains.
    History,
    /// Sees who is on a channel.
    Presence,
}

/// A way in for clients. `Rights::may` decides about each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// `/meta/handshake`.
    Handshake,
    /// The authentication of a request without a session: `GET /hold/CHANNEL`.
    HoldHandshake,
    /// The authentication of a client without Bayeux: `GET /stream/CHANNEL`.
    StreamHandshake,
    /// The new identity of a session that shows fresh credentials.
    Refresh,
    /// A session that an earlier process has saved.
    RestoredSession,
    /// `/meta/subscribe`, with or without a position in the history.
    Subscribe,
    /// `/meta/subscribe` with a position, for a subscription that the session has.
    Replay,
    /// `GET /hold/CHANNEL`.
    Hold,
    /// `GET /hold/CHANNEL?after=POSITION`.
    HoldAfter,
    /// `GET /stream/CHANNEL`, with or without a position in the history.
    Stream,
    /// A subscription of a session that has a new identity.
    RefreshedSubscription,
    /// A subscription of a session that an earlier process has saved.
    RestoredSubscription,
    /// A message on a channel for broadcasts.
    Publish,
    /// A message on a channel below `/service/`.
    Call,
    /// A call to `/service/auth/refresh`, or the member `auth` of a connect's `ext`: it concerns the own session only.
    RefreshCall,
    /// A call to `/service/presence`.
    PresenceService,
}

impl Entry {
    /// All of them.
    pub const ALL: [Entry; 16] = [
        Entry::Handshake,
        Entry::HoldHandshake,
        Entry::StreamHandshake,
        Entry::Refresh,
        Entry::RestoredSession,
        Entry::Subscribe,
        Entry::Replay,
        Entry::Hold,
        Entry::HoldAfter,
        Entry::Stream,
        Entry::RefreshedSubscription,
        Entry::RestoredSubscription,
        Entry::Publish,
        Entry::Call,
        Entry::RefreshCall,
        Entry::PresenceService,
    ];

    /// The right that it needs.
    pub const fn right(self) -> Right {
        match self {
            Entry::Handshake
            | Entry::HoldHandshake
            | Entry::StreamHandshake
            | Entry::Refresh
            | Entry::RestoredSession => Right::Handshake,
            Entry::Subscribe
            | Entry::Hold
            | Entry::Stream
            | Entry::RefreshedSubscription
            | Entry::RestoredSubscription => Right::Subscribe,
            Entry::Replay | Entry::HoldAfter => Right::History,
            Entry::Publish => Right::Publish,
            Entry::Call | Entry::RefreshCall => Right::Call,
            Entry::PresenceService => Right::Presence,
        }
    }
}

/// A way in for the server's side: the program, its hooks and sources, and those who have a key of the HTTP API. They have
/// all rights: a key is checked for its scope where the request is routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerEntry {
    /// A publication that a hook, a service or a webhook requests.
    Action,
    /// A publication of a handle: the program itself, a source, an announcement of presence.
    HandlePublish,
    /// A subscription in the process, also of a route, a hold or a held request of a backend.
    HandleSubscribe,
    /// The members of a channel, for a handle.
    HandlePresence,
    /// A history, read by a handle.
    HandleHistory,
    /// A subscription that a handle or the HTTP API makes for a session.
    SessionSubscribe,
    /// Publications by the HTTP API.
    ApiPublish,
    /// A history, read by the HTTP API.
    ApiHistory,
    /// The members of a channel, listed by the HTTP API.
    ApiPresence,
}

impl ServerEntry {
    /// All of them.
    pub const ALL: [ServerEntry; 9] = [
        ServerEntry::Action,
        ServerEntry::HandlePublish,
        ServerEntry::HandleSubscribe,
        ServerEntry::HandlePresence,
        ServerEntry::HandleHistory,
        ServerEntry::SessionSubscribe,
        ServerEntry::ApiPublish,
        ServerEntry::ApiHistory,
        ServerEntry::ApiPresence,
    ];

    /// The right that it needs.
    pub const fn right(self) -> Right {
        match self {
            ServerEntry::Action | ServerEntry::HandlePublish | ServerEntry::ApiPublish => Right::Publish,
            ServerEntry::HandleSubscribe | ServerEntry::SessionSubscribe => Right::Subscribe,
            ServerEntry::HandleHistory | ServerEntry::ApiHistory => Right::History,
            ServerEntry::HandlePresence | ServerEntry::ApiPresence => Right::Presence,
        }
    }

    /// Grants what comes this way.
    pub const fn may(self) -> Granted {
        Granted { right: self.right(), data: None, ext: None }
    }
}

/// The permission for one action. What opens a session, subscribes, publishes, calls, reads a history or lists members takes
/// one, so that no way in can leave out the question.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Granted {
    right: Right,
    /// The `data` that the application puts in place of that of a publication.
    data: Option<String>,
    /// The `ext`, likewise.
    ext: Option<String>,
}

impl Granted {
    /// Only for [`Rights::may`](super::Rights::may).
    pub(super) fn new(entry: Entry) -> Granted {
        Granted { right: entry.right(), data: None, ext: None }
    }

    /// The same, with other `data` and another `ext` for a publication.
    pub(super) fn with(mut self, data: Option<String>, ext: Option<String>) -> Granted {
        (self.data, self.ext) = (data, ext);
        self
    }

    /// The right that it is about.
    pub fn right(&self) -> Right {
        self.right
    }

    /// The `data` that the application puts in place of that of a publication.
    pub(crate) fn take_data(&mut self) -> Option<String> {
        self.data.take()
    }

    /// The `ext`, likewise.
    pub(crate) fn take_ext(&mut self) -> Option<String> {
        self.ext.take()
    }

    /// Uses it up for an action that needs this right.
    pub fn use_for(self, right: Right) {
        let is_right = self.right == right || (self.right == Right::History && right == Right::Subscribe);
        debug_assert!(is_right, "{:?} does not allow {right:?}", self.right);
    }
}
