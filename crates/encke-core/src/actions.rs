//! The actions that an application requests.

use crate::attributes::AttributeChange;

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
        /// A JSON object.
        ext: Option<String>,
        /// True if its delivery may wait: see [`Actions::publish_lazily`].
        is_lazy: bool,
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
        /// A JSON object.
        ext: Option<String>,
    },
    /// Answer the current remote call.
    Reply {
        /// Valid JSON.
        data: String,
        /// The value of the reply's `successful` field.
        successful: bool,
    },
    /// Send a message to all sessions of a user.
    DeliverToUser {
        /// The user.
        user: String,
        /// The channel that the message names.
        channel: String,
        /// Valid JSON.
        data: String,
    },
    /// End all sessions of a user.
    DisconnectUser {
        /// The user.
        user: String,
    },
    /// Change an attribute of a session.
    ChangeAttribute {
        /// The session's client id.
        session: String,
        /// The change.
        change: AttributeChange,
    },
    /// End a session.
    Disconnect {
        /// The session's client id.
        session: String,
    },
}

impl Action {
    /// The bytes of its texts.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Action::Publish { channel, data, ext, .. } => {
                channel.len() + data.len() + ext.as_ref().map_or(0, String::len)
            }
            Action::Deliver { session, channel, data, ext, .. } => {
                session.len() + channel.len() + data.len() + ext.as_ref().map_or(0, String::len)
            }
            Action::Reply { data, .. } => data.len(),
            Action::DeliverToUser { user, channel, data } => user.len() + channel.len() + data.len(),
            Action::DisconnectUser { user } => user.len(),
            Action::ChangeAttribute { session, change } => session.len() + change.bytes(),
            Action::Disconnect { session } => session.len(),
        }
    }
}

impl Actions {
    /// Broadcasts `data` (valid JSON) on a channel.
    pub fn publish(&mut self, channel: &str, data: &str) {
        self.0.push(Action::Publish { channel: channel.into(), data: data.into(), ext: None, is_lazy: false });
    }

    /// The same with an `ext`, a JSON object.
    pub fn publish_with_ext(&mut self, channel: &str, data: &str, ext: &str) {
        let (channel, data, ext) = (channel.into(), data.into(), Some(ext.into()));
        self.0.push(Action::Publish { channel, data, ext, is_lazy: false });
    }

    /// Broadcasts a lazy message, with or without an `ext`: it waits until its subscribers get another message, at most
    /// `lazy_timeout_ms` of the channel's rule. A history has it at once.
    pub fn publish_lazily(&mut self, channel: &str, data: &str, ext: Option<&str>) {
        let (channel, data, ext) = (channel.into(), data.into(), ext.map(String::from));
        self.0.push(Action::Publish { channel, data, ext, is_lazy: true });
    }

    /// Sends `data` (valid JSON) to one session, wherever it lives, as a message of `channel`, with an id if it answers one.
    pub fn deliver(&mut self, session: &str, channel: &str, data: &str, id: Option<&str>) {
        let (session, channel, data) = (session.into(), channel.into(), data.into());
        self.0.push(Action::Deliver { session, channel, data, id: id.map(String::from), ext: None });
    }

    /// The same with an `ext`, a JSON object, and without an id.
    pub fn deliver_with_ext(&mut self, session: &str, channel: &str, data: &str, ext: &str) {
        let (session, channel, data) = (session.into(), channel.into(), data.into());
        self.0.push(Action::Deliver { session, channel, data, id: None, ext: Some(ext.into()) });
    }

    /// Sends `data` (valid JSON) to all sessions of a user, as a message of `channel`.
    pub fn deliver_to_user(&mut self, user: &str, channel: &str, data: &str) {
        self.0.push(Action::DeliverToUser { user: user.into(), channel: channel.into(), data: data.into() });
    }

    /// Ends all sessions of a user. Their clients get a disconnect message.
    pub fn disconnect_user(&mut self, user: &str) {
        self.0.push(Action::DisconnectUser { user: user.into() });
    }

    /// Answers the current remote call with `data` (valid JSON): same channel, same id, `successful: true`.
    pub fn reply(&mut self, data: impl Into<String>) {
        self.0.push(Action::Reply { data: data.into(), successful: true });
    }

    /// Answers the current remote call as failed.
    pub fn fail(&mut self, data: impl Into<String>) {
        self.0.push(Action::Reply { data: data.into(), successful: false });
    }

    /// Sets an attribute of a session, wherever it lives, to this value (valid JSON). It is there for the next message of the session, if
    /// the hook is about a message of it. Beyond `session_attributes_max` or `session_attributes_bytes_max` it stays as it was, which a
    /// metric counts.
    pub fn set_attribute(&mut self, session: &str, name: &str, value: &str) {
        self.change_attribute(session, AttributeChange::set(name, value));
    }

    /// Removes an attribute of a session, if there is one with this name.
    pub fn remove_attribute(&mut self, session: &str, name: &str) {
        self.change_attribute(session, AttributeChange::remove(name));
    }

    /// Changes an attribute of a session. A change that expects another version than that of the attributes does nothing.
    pub fn change_attribute(&mut self, session: &str, change: AttributeChange) {
        self.0.push(Action::ChangeAttribute { session: session.into(), change });
    }

    /// Adds other actions after these.
    pub fn append(&mut self, other: Actions) {
        self.0.extend(other.0);
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

impl IntoIterator for Actions {
    type Item = Action;
    type IntoIter = std::vec::IntoIter<Action>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
