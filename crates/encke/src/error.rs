//! The errors of a server, by what failed.

use std::io;
use std::path::PathBuf;

use encke_core::{AttributeError, SessionTermsError};
use encke_store::StoreError;

/// A setting that cannot work: its name, its value and a description of valid values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} = {value}: {wanted}", self.path())]
#[non_exhaustive]
pub struct SettingsError {
    /// The name of the setting. A field of an entry of a list follows the list after a dot: `channels.pattern`.
    pub name: &'static str,
    /// The index of the entry, if it is about one.
    pub entry: Option<usize>,
    /// Its value.
    pub value: String,
    /// A description of valid values.
    pub wanted: &'static str,
}

impl SettingsError {
    pub(crate) fn new(name: &'static str, value: impl Into<String>, wanted: &'static str) -> SettingsError {
        SettingsError { name, entry: None, value: value.into(), wanted }
    }

    /// The name with the index of the entry: `channels[1].pattern`.
    pub fn path(&self) -> String {
        let Some(entry) = self.entry else { return self.name.into() };
        match self.name.split_once('.') {
            Some((list, field)) => format!("{list}[{entry}].{field}"),
            None => format!("{}[{entry}]", self.name),
        }
    }
}

/// A hook that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HookError {
    /// The name is neither a channel nor a pattern.
    #[error("{0:?} is not a channel or a pattern such as /orders/* or /orders/**")]
    Pattern(String),
    /// The name of a service is not below `/service/`.
    #[error("{0:?} is not the name of a service: it must begin with /service/")]
    NotAService(String),
    /// Two services have the same name.
    #[error("there are two services {0}")]
    TwoServices(String),
    /// The name has braces, and is not a template.
    #[error("{0:?} is no template: a parameter is a whole segment such as {{id}}, and each has another name")]
    Template(String),
    /// Two templates cover the same channels, with other names of their parameters.
    #[error("the templates {0} and {1} stand for the same channels: name their parameters alike")]
    TwoTemplates(String, String),
    /// A hook takes parameters, and its name has none.
    #[error("{hook} takes Params, but has no parameter such as {{id}}")]
    #[non_exhaustive]
    NoParameters {
        /// The kind of the hook and its channel, such as `the service /service/x`.
        hook: String,
    },
    /// The path of a route is neither a path nor a pattern of paths.
    #[error("{0:?} is not a path such as /orders/wait, nor a pattern such as /orders/* or /orders/**")]
    Path(String),
    /// Two routes have the same path.
    #[error("there are two routes {0}")]
    TwoRoutes(String),
    /// A hook takes a state that the builder was not given.
    #[error("{hook} takes AppState<{state}>, but Builder::state got none")]
    StateMissing {
        /// The kind of the hook and its channel, such as `the service /service/x`.
        hook: String,
        /// The type of the state.
        state: &'static str,
    },
    /// Two authenticators are registered.
    #[error("authenticate was called twice")]
    TwoAuthenticators,
}

/// The reason why [`Builder::start`](crate::Builder::start) or [`Builder::check`](crate::Builder::check) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting has an invalid value.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A hook given to the builder cannot work.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// The server cannot listen on the address: another program has it, or it is not an address of this machine.
    #[error("cannot listen on {address}: {source}")]
    #[non_exhaustive]
    Listen {
        /// The address.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The data directory is not a directory, or cannot be created.
    #[error("cannot use {} as the data directory: {source}", path.display())]
    #[non_exhaustive]
    Data {
        /// The directory, or that of the histories in it.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The saved sessions in the data directory cannot be read or removed.
    #[error("cannot restore the sessions in {}: {source}", path.display())]
    #[non_exhaustive]
    Sessions {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The revoked tokens in the data directory are damaged, another process has them, or the disk fails.
    #[error("cannot read the revoked tokens: {0}")]
    Revocations(#[source] StoreError),
    /// The histories in the data directory are damaged, another process has them, or the disk fails.
    #[error("cannot recover histories: {0}")]
    History(#[from] StoreError),
    /// The system cannot start a thread or its runtime, usually because it has no memory or no free file descriptors.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// A shard's thread panicked while it restored its sessions.
    #[error("a shard ended with a panic")]
    ShardPanicked,
}

/// The reason why [`Handle::publish`](crate::Handle::publish) did not take a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// Not a channel for broadcasts: an invalid name (Bayeux 1.0 "Channels"), or one below `/meta/` or
    /// `/service/`.
    #[error("{0} is no channel to publish to")]
    Channel(String),
    /// The data is not JSON (RFC 8259), or deeper than `json_depth_max`.
    #[error("the data is not JSON")]
    Data,
    /// The server is too busy, or it is stopping. The caller may try again.
    #[error("the server takes no messages at the moment")]
    Busy,
}

/// The reason why [`Handle::publish_stored`](crate::Handle::publish_stored) returned no position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreMessageError {
    /// The message was not published.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The message was delivered. Its channel has no history: no rule gives it one, or as many channels as may have one.
    #[error("{0} has no history; the message was delivered")]
    NoHistory(String),
    /// The message was delivered and is in the history, but the disk did not take it: it may be lost with the process.
    #[error("the message was delivered, but could not be stored")]
    NotStored,
    /// The server has stopped before it knew.
    #[error("the server has stopped")]
    Stopped,
}

/// The reason why [`Handle::subscribe_session`](crate::Handle::subscribe_session) or
/// [`Handle::unsubscribe_session`](crate::Handle::unsubscribe_session) changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscriptionError {
    /// Not a channel or pattern for broadcasts.
    #[error("{0} is no channel or pattern to subscribe to")]
    Channel(String),
    /// No session has this id.
    #[error("there is no such session")]
    SessionUnknown,
    /// The session has `subscriptions_max` subscriptions, or its shard `channels_max` channels.
    #[error("the session has subscriptions_max subscriptions, or its shard channels_max channels")]
    Full,
    /// The server has stopped.
    #[error("the server has stopped")]
    Stopped,
}

/// The reason why [`Handle::set_session_terms`](crate::Handle::set_session_terms) changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionTermsChangeError {
    /// A number is out of its range.
    #[error(transparent)]
    Terms(#[from] SessionTermsError),
    /// No session has this id.
    #[error("there is no such session")]
    SessionUnknown,
    /// The server has stopped, or the node of the session cannot do it now.
    #[error("the server has stopped")]
    Stopped,
}

/// The reason why [`Handle::change_session_attribute`](crate::Handle::change_session_attribute) changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttributeChangeError {
    /// The name or the value is not valid.
    #[error(transparent)]
    Attribute(#[from] AttributeError),
    /// The attributes have this version now, and not the one that the change expects.
    #[error("another change came first: the attributes have version {0}")]
    Conflict(u64),
    /// The session has `session_attributes_max` attributes, or `session_attributes_bytes_max` bytes of them.
    #[error("the session has session_attributes_max attributes, or session_attributes_bytes_max bytes of them")]
    Full,
    /// No session has this id.
    #[error("there is no such session")]
    SessionUnknown,
    /// The server has stopped, or the node of the session cannot do it now.
    #[error("the server has stopped")]
    Stopped,
}

/// The reason why [`Handle::remove_history`](crate::Handle::remove_history) failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemovalError {
    /// No rule gives the channel a history, or it was never used.
    #[error("{0} has no history")]
    NoHistory(String),
    /// The messages are removed, but may return with the next start: the disk did not take the removal.
    #[error("the removal could not be stored; the messages may return with the next start")]
    NotStored,
    /// The server has stopped.
    #[error("the server has stopped")]
    Stopped,
}

/// The reason why [`Handle::revoke`](crate::Handle::revoke) did not revoke a token, or only until the process ends. Its sessions end all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RevocationError {
    /// `revoked_tokens_max` tokens are revoked already: this one still opens sessions.
    #[error("revoked_tokens_max tokens are revoked already")]
    Full,
    /// The disk did not take it: the token is revoked until this process ends.
    #[error("the revocation could not be stored; it holds until the server ends")]
    NotStored,
    /// The engine of the cluster did not take it: the token is revoked on this node, and on those that have answered. It is tried again.
    #[error("the engine of the cluster did not take the revocation; it holds on this node, which tries again")]
    NotShared,
    /// The server has stopped.
    #[error("the server has stopped")]
    Stopped,
}

/// The reason why [`Handle::publish_many`](crate::Handle::publish_many) did not take all messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message {published} was not published: {error}")]
#[non_exhaustive]
pub struct PublishManyError {
    /// The number of messages before it, which are published.
    pub published: usize,
    /// The reason for this one.
    #[source]
    pub error: PublishError,
}
