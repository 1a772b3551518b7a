//! Authorizers: who may create, subscribe to and publish to a channel.

use std::borrow::Cow;

use super::caller::Caller;
use super::filter::Publishing;
use super::hook::{Hook, HookAnswer, Subject};
use super::reply::Failure;

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
    /// The message. That of a subscribe has no data.
    pub(crate) message: Publishing<'a>,
}

/// The answer of an authorizer (CometD's `Authorizer.Result`).
///
/// Once any authorizer is registered for a channel, an operation on it is allowed if at least one of them grants it and
/// none denies it. A channel without authorizers is open. A pattern needs the grant of each name that it reaches, too.
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
        let message = Publishing { data: None, ..Publishing::new(session, channel, "") };
        Access { operation, message }
    }

    /// The operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The session that wants it.
    pub fn caller(&self) -> &Caller<'a> {
        self.message.caller()
    }

    /// The user of the session, empty for an anonymous one.
    pub fn user(&self) -> &str {
        self.message.user()
    }

    /// The channel or pattern.
    pub fn channel(&self) -> &str {
        self.message.channel()
    }

    /// The `data` of a publish, as raw JSON.
    pub fn data(&self) -> Option<&str> {
        self.message.data()
    }

    /// The `ext` of a publish, as raw JSON.
    pub fn ext(&self) -> Option<&str> {
        self.message.ext()
    }

    /// The same, without references.
    pub fn into_owned(self) -> Access<'static> {
        Access { operation: self.operation, message: self.message.into_owned() }
    }
}

impl Subject for Access<'static> {
    type View<'a> = Access<'a>;
}

impl HookAnswer for Grant {
    fn without(failure: &Failure) -> Grant {
        Grant::deny(failure.class())
    }
}

/// A registered authorizer.
pub(crate) type Authorizer = Hook<Access<'static>, Grant>;
