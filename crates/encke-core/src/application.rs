//! The hooks of an application: permissions, services, filters.

/// The part of a program that decides what clients may do, and serves their remote calls. The default of each method
/// allows everything and does nothing.
///
/// The methods run on the shards' own threads, several at once, between reading and writing: they must be short and never
/// block. They request work through [`Actions`]; the shard performs it after they have returned. Sessions that are
/// restored after a restart are not decided about again.
pub trait Application: Send + Sync {
    /// Decides if a client may open a session (Bayeux 1.0 §4.1). `ext` is the raw JSON of its handshake, which may contain
    /// credentials.
    fn handshake(&self, ext: Option<&str>) -> Decision {
        let _ = ext;
        Decision::Allow
    }

    /// Decides if a session, named by its client id, may subscribe to a channel or pattern (Bayeux 1.0 §4.5). A
    /// right to channels does not include a pattern that matches them: each is decided about by its own name.
    fn subscribe(&self, session: &str, channel: &str) -> Decision {
        let _ = (session, channel);
        Decision::Allow
    }

    /// Decides about a client's publication (Bayeux 1.0 "Publish") before it is delivered. It may change its `data`.
    /// Publications of the program itself do not come here.
    fn publish(&self, publishing: &Publishing<'_>) -> Verdict {
        let _ = publishing;
        Verdict::Forward
    }

    /// Handles a message on a channel below `/service/` (Bayeux 1.0 "Service Channels"). Such a message is for the
    /// application only and is never broadcast. The client's reply says that it was received, whatever this does.
    fn service(&self, message: &Service<'_>, actions: &mut Actions) {
        let _ = (message, actions);
    }

    /// Called when a session has ended: by a disconnect, by expiry, by the server, or because it was too slow; not when
    /// the server stops. The actions run after the publication in progress.
    fn ended(&self, session: &str, actions: &mut Actions) {
        let _ = (session, actions);
    }
}

/// The decision on a handshake or a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// It is allowed.
    Allow,
    /// It is denied. The reason is the argument of the Bayeux error (`403:reason:handshake_denied`,
    /// `403:reason:subscribe_denied`): letters, digits, space, `_`, `-` and `.`. Any other character becomes `_`.
    Deny(&'static str),
}

/// The verdict on a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is broadcast unchanged.
    Forward,
    /// It is broadcast with this as its `data`, which must be valid JSON.
    Replace(String),
    /// It is dropped. The publisher gets `404::message_deleted`.
    Delete,
    /// It is refused. The publisher gets `403:reason:publish_denied`, with the reason as in [`Decision::Deny`].
    Deny(&'static str),
}

/// A message about to be broadcast.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Publishing<'a> {
    /// The publisher's client id.
    pub session: &'a str,
    /// The channel of the message.
    pub channel: &'a str,
    /// The `data` of the message, as raw JSON.
    pub data: Option<&'a str>,
    /// The `ext` of the message, as raw JSON.
    pub ext: Option<&'a str>,
}

/// A message to a service.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Service<'a> {
    /// The caller's client id.
    pub session: &'a str,
    /// The channel of the service, below `/service/`.
    pub channel: &'a str,
    /// The id of the message. A reply carries it.
    pub id: Option<&'a str>,
    /// The `data` of the message, as raw JSON.
    pub data: Option<&'a str>,
}

impl<'a> Publishing<'a> {
    /// A message with this `data` (valid JSON), for tests of an application; without `ext`.
    pub fn new(session: &'a str, channel: &'a str, data: &'a str) -> Publishing<'a> {
        Publishing { session, channel, data: Some(data), ext: None }
    }
}

impl<'a> Service<'a> {
    /// A message with this `data` (valid JSON), for tests of an application; without an id.
    pub fn new(session: &'a str, channel: &'a str, data: &'a str) -> Service<'a> {
        Service { session, channel, data: Some(data), id: None }
    }
}

/// The actions that an application requests, in order. They go into messages as they are, so their data has to be valid
/// JSON: `serde_json::to_string` makes it, for example.
#[derive(Debug, Default)]
pub struct Actions(pub(crate) Vec<Action>);

/// One action that an application requests. [`Actions`] creates them; tests of an application read them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Broadcast a message.
    Publish {
        /// The channel.
        channel: String,
        /// Valid JSON.
        data: String,
    },
    /// Send a message to one session.
    Deliver {
        /// The receiver's client id.
        session: String,
        /// The channel that the message names.
        channel: String,
        /// Valid JSON.
        data: String,
        /// The id of the call that it answers.
        id: Option<String>,
    },
    /// Answer the current remote call.
    Reply {
        /// Valid JSON.
        data: String,
        /// The value of the reply's `successful` field.
        successful: bool,
    },
    /// End a session.
    Disconnect {
        /// The session's client id.
        session: String,
    },
}

impl Actions {
    /// Broadcasts `data` (valid JSON) on a channel.
    pub fn publish(&mut self, channel: &str, data: &str) {
        self.0.push(Action::Publish { channel: channel.into(), data: data.into() });
    }

    /// Sends `data` (valid JSON) to one session, wherever it lives, as a message of `channel`, with an id if it answers one.
    pub fn deliver(&mut self, session: &str, channel: &str, data: &str, id: Option<&str>) {
        let (session, channel, data) = (session.into(), channel.into(), data.into());
        self.0.push(Action::Deliver { session, channel, data, id: id.map(String::from) });
    }

    /// Answers the current remote call with `data` (valid JSON): same channel, same id, `successful: true`.
    pub fn reply(&mut self, data: &str) {
        self.0.push(Action::Reply { data: data.into(), successful: true });
    }

    /// Answers the current remote call as failed.
    pub fn fail(&mut self, data: &str) {
        self.0.push(Action::Reply { data: data.into(), successful: false });
    }

    /// The actions so far, in order.
    pub fn as_slice(&self) -> &[Action] {
        &self.0
    }

    /// Ends a session. Its client gets a disconnect message.
    pub fn disconnect(&mut self, session: &str) {
        self.0.push(Action::Disconnect { session: session.into() });
    }
}

/// The application of a server that has none: everything is allowed, and services do not answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoApplication;

impl Application for NoApplication {}
