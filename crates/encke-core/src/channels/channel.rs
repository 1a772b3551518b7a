//! A channel with its list of subscribers, and a subscription.

use std::sync::Arc;

use crate::interval::Interval;

/// A subscriber in the list of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subscriber {
    /// The session, as its index in the shard.
    pub(crate) session: u32,
    /// The index of this channel among the session's subscriptions.
    pub(crate) slot: u32,
}

/// A subscription of a session: the channel, and the session's index in the channel's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    /// The index of the channel.
    pub(super) channel: u32,
    /// The session's index in the channel's list.
    pub(super) position: u32,
}

/// A channel or a pattern with those of its subscribers that have the same interval. A group is one whose subscribers have an interval.
#[derive(Debug)]
pub(super) struct Channel {
    /// Its name.
    pub(super) name: Box<str>,
    pub(super) interval: Interval,
    pub(super) subscribers: Vec<Subscriber>,
    /// The number of subscribers that asked for positions.
    pub(super) position_subscribers: u32,
    pub(super) received: Option<Box<LastReceived>>,
    /// For each owner of histories, the number of bursts older than this channel's first subscriber.
    pub(super) older: Option<Box<[u64]>>,
}

/// The newest position that this shard has fanned out of a channel with a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastReceived {
    /// The serial of the ring.
    pub(crate) serial: u64,
    /// Its epoch.
    pub(crate) epoch: Arc<str>,
    /// The offset of the last message.
    pub(crate) offset: u64,
}
