//! Authorizers: who may create, subscribe to and publish to a channel.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;

use encke_core::Pending;

use super::caller::Caller;

/// The operation that an authorizer decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A subscribe or a publish that names a channel that does not exist: nobody subscribes to it, it has no history,
    /// and no rule of [`Settings::channels`](crate::Settings::channels) names it. It is asked about before the subscribe
    /// or the publish itself.
    Create,
    /// A subscribe to the channel or pattern.
    Subscribe,
    /// A publish to the channel, or a call of the service.
    Publish,
}

/// An operation of a client, as an authorizer sees it.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    pub(crate) operation: Operation,
    pub(crate) caller: Caller<'a>,
    pub(crate) channel: Cow<'a, str>,
    pub(crate) data: Option<Cow<'a, str>>,
    pub(crate) ext: Option<Cow<'a, str>>,
}

/// The answer of an authorizer (CometD's `Authorizer.Result`).
///
/// Once any authorizer is registered for a channel, an operation on it is allowed if at least one of them grants it and
/// none denies it. A channel without authorizers is open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Grant {
    /// It is allowed, unless another authorizer denies it.
    Grant,
    /// This authorizer has no opinion.
    Ignore,
    /// It is refused, whatever others say. The reason goes to the client inside the Bayeux error
    /// (`403:reason:subscribe_denied`): letters, digits, space, `_`, `-` and `.`; any other character becomes `_`.
    Deny(Cow<'static, str>),
}

impl Grant {
    /// A refusal with a reason.
    pub fn deny(reason: impl Into<Cow<'static, str>>) -> Grant {
        Grant::Deny(reason.into())
    }
}

impl<'a> Access<'a> {
    /// An operation of an anonymous session, for tests of an authorizer.
    pub fn new(operation: Operation, session: &'a str, channel: &'a str) -> Access<'a> {
        Access { operation, caller: Caller::anonymous(session), channel: channel.into(), data: None, ext: None }
    }

    /// The operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The session that wants it.
    pub fn caller(&self) -> &Caller<'a> {
        &self.caller
    }

    /// The user of the session, empty for an anonymous one.
    pub fn user(&self) -> &str {
        self.caller.user()
    }

    /// The channel or pattern.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// The `data` of a publish, as raw JSON.
    pub fn data(&self) -> Option<&str> {
        self.data.as_deref()
    }

    /// The `ext` of a publish, as raw JSON.
    pub fn ext(&self) -> Option<&str> {
        self.ext.as_deref()
    }

    /// The same, without references.
    pub fn into_owned(self) -> Access<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Access {
            operation: self.operation,
            caller: self.caller.into_owned(),
            channel: owned(self.channel),
            data: self.data.map(owned),
            ext: self.ext.map(owned),
        }
    }
}

/// A registered authorizer.
pub(crate) enum Authorizer {
    /// It answers at once.
    Now(Box<dyn Fn(&Access<'_>) -> Grant + Send + Sync>),
    /// It may wait.
    Later(Box<dyn Fn(Access<'static>) -> Pending<Grant> + Send + Sync>),
}

impl Authorizer {
    pub(crate) fn later<F, Fut>(authorizer: F) -> Authorizer
    where
        F: Fn(Access<'static>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Grant> + Send + 'static,
    {
        Authorizer::Later(Box::new(move |access| Box::pin(authorizer(access))))
    }

    pub(crate) fn waits(&self) -> bool {
        matches!(self, Authorizer::Later(_))
    }
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.waits() { "Authorizer::Later" } else { "Authorizer::Now" })
    }
}
