//! Events of sessions and channels, for listeners.

use std::sync::Arc;

use encke_core::{Actions, EndReason};

use super::call::Calling;
use super::caller::Caller;
use super::reply::Failure;

/// The beginning or the end of a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SessionEvent<'a> {
    /// A handshake has opened it. A session that a restart restores is not opened again.
    Opened {
        /// The session.
        caller: Caller<'a>,
    },
    /// It has ended. A session that is saved at a stop has not.
    Ended {
        /// The session.
        caller: Caller<'a>,
        /// The reason.
        reason: EndReason,
    },
}

/// A change of the subscribers of a channel or pattern, over all shards. The events of one channel alternate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelEvent<'a> {
    /// It has its first subscriber.
    FirstSubscribed {
        /// The channel, or the pattern if the subscription is to one.
        channel: &'a str,
    },
    /// Its last subscriber is gone.
    LastUnsubscribed {
        /// The channel, or the pattern if the subscription was to one.
        channel: &'a str,
    },
}

/// A change of the subscriptions of one session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SubscriptionEvent<'a> {
    /// It has subscribed, or a restart has restored its subscription.
    Subscribed {
        /// The session.
        caller: Caller<'a>,
        /// The channel or pattern.
        channel: &'a str,
    },
    /// Its subscription has ended, possibly with the session.
    Unsubscribed {
        /// The session.
        caller: Caller<'a>,
        /// The channel or pattern.
        channel: &'a str,
    },
}

/// A registered listener for sessions.
pub(crate) type OnSession = Box<dyn Fn(&SessionEvent<'_>, &mut Actions, &Calling<'_>) -> Noted + Send + Sync>;

/// A registered listener for channels.
pub(crate) type OnChannel = Arc<dyn Fn(&ChannelEvent<'_>, &mut Actions, &Calling<'_>) -> Noted + Send + Sync>;

/// A registered listener for subscriptions.
pub(crate) type OnSubscription = Arc<dyn Fn(&SubscriptionEvent<'_>, &mut Actions, &Calling<'_>) -> Noted + Send + Sync>;

/// A failure is that of a value that the listener takes.
type Noted = Result<(), Failure>;
