//! Sessions across a clean restart: the data that a stopping shard saves and the next process restores.
//!
//! ```text
//!   outboxes, unacked, cursors ── save ──▶ Saved (plain data) ── restore ──▶ outboxes, unacked, cursors
//! ```
//!
//! A message that is queued for many sessions is stored once; sessions refer to it by its index. The server reads and
//! writes the file.

use serde::{Deserialize, Serialize};

use crate::attributes::Attributes;
use crate::id::Id;
use crate::identity::Identity;
use crate::rights::policy::Policy;
use crate::session_terms::SessionTerms;

/// The sessions of one shard, or of all shards, to be restored by the next process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The policy by which the sessions were admitted that name no other.
    pub policy: Policy,
    /// Queued messages: JSON objects.
    pub messages: Vec<Box<str>>,
    /// The sessions.
    pub sessions: Vec<SavedSession>,
}

/// A saved session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSession {
    /// Its client id, which names its shard.
    pub id: Id,
    /// The browser that opened it, if it has a cookie.
    pub browser: Option<Id>,
    /// Its owner, if its handshake was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The policy by which it was admitted, if another has come into force since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// The terms that the application has given it since its handshake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<SessionTerms>,
    /// Its attributes, if it has had some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Attributes>,
    /// The times until the buckets of its rates are full, in milliseconds: of messages, of their bytes, and of refreshes. Only on its
    /// way to another node.
    #[serde(default, skip_serializing_if = "are_full")]
    pub buckets_ms: [u64; 3],
    /// The stage of its life.
    pub stage: Stage,
    /// The interval that its client asked for last, in milliseconds.
    pub interval_ms: Option<u32>,
    /// The `maxInterval` that its client asked for, in milliseconds.
    pub max_interval_ms: Option<u32>,
    /// Channels and patterns.
    pub subscriptions: Vec<Box<str>>,
    /// The intervals of the subscriptions that have one: the index of each, and milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<(u32, u32)>,
    /// The indexes of the subscriptions that the server's side has made, in order: they need no right of the client. Saved forms of older versions
    /// name none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_server: Vec<u32>,
    /// The messages queued for it, oldest first.
    pub waiting: Vec<Span>,
    /// Its unconfirmed messages, if it acknowledges.
    pub ack: Option<SavedUnacked>,
    /// Its replay state, if it replays.
    pub replay: Option<SavedReplay>,
}

fn are_full(buckets_ms: &[u64; 3]) -> bool {
    *buckets_ms == [0; 3]
}

/// A run of [`Saved::messages`]: the index of the first one, and the number of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span(pub u32, pub u32);

/// The stage of a session's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It has completed its handshake and has not connected yet.
    New,
    /// It has connected.
    Connected,
    /// The server has ended it, and its client has not been notified yet.
    Ending,
}

/// Messages that a session was sent and has not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedUnacked {
    /// The number of the last batch that was closed.
    pub closed: u64,
    /// Oldest first.
    pub batches: Vec<SavedBatch>,
}

/// Messages that a client has not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedBatch {
    /// The batches that held them, as ranges: the number of the first batch, and of the first later batch without them,
    /// if any.
    pub numbers: Vec<(u64, Option<u64>)>,
    /// The messages.
    pub messages: Vec<Span>,
}

/// The replay state of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedReplay {
    /// True if its positions are mixed into the data of messages, as Salesforce's clients read them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_mixed: bool,
    /// Its cursors.
    pub cursors: Vec<SavedCursor>,
    /// Its patterns of which not all channels have begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<SavedPattern>,
    /// Losses of whole histories that were not reported, or not confirmed.
    pub losses: Vec<SavedLoss>,
}

/// A channel whose history a session was reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedCursor {
    /// The channel.
    pub channel: Box<str>,
    /// The epoch of the history.
    pub epoch: Box<str>,
    /// The offset of the next message.
    pub next: u64,
    /// The offsets, first and last, that the session lost before that.
    pub lost: Option<(u64, u64)>,
}

/// A pattern whose channels a session has not all begun to replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPattern {
    /// The pattern.
    pub pattern: Box<str>,
    /// The number of messages with which each channel begins; `u64::MAX` for all. None while the client names further positions.
    pub messages: Option<u64>,
    /// The last channel that has begun, in the order of names.
    pub behind: Option<Box<str>>,
    /// The digests of channels that the client has named with a position, each as its halves.
    #[serde(default)]
    pub names: Vec<(u64, u64)>,
    /// Patterns by which the session got channels already when it asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Box<str>>,
}

/// Messages that are lost with their history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedLoss {
    /// The channel.
    pub channel: Box<str>,
    /// The epoch of the history.
    pub epoch: Box<str>,
    /// The offset of the first one.
    pub from: u64,
    /// The offset of the last one, if known.
    pub to: Option<u64>,
    /// The number of the first batch that reported the loss.
    pub reported: Option<u64>,
}

impl Saved {
    /// Adds the sessions of another shard.
    pub fn append(&mut self, other: Saved) {
        self.policy = other.policy;
        let by = self.messages.len() as u32;
        self.messages.extend(other.messages);
        self.sessions.extend(other.sessions.into_iter().map(|mut session| {
            session.spans_mut().for_each(|span| span.0 += by);
            session
        }));
    }

    /// The bytes of its messages, and roughly those of its sessions.
    pub fn bytes(&self) -> usize {
        let of_session = |session: &SavedSession| {
            let names: usize = session.subscriptions.iter().map(|name| name.len() + size_of::<Box<str>>()).sum();
            let attributes = session.attributes.as_ref().map_or(0, Attributes::bytes);
            size_of::<SavedSession>() + names + attributes
        };
        let messages: usize = self.messages.iter().map(|message| message.len() + size_of::<Box<str>>()).sum();
        messages + self.sessions.iter().map(of_session).sum::<usize>()
    }

    /// True if every index refers to an existing message.
    pub fn is_whole(&self) -> bool {
        let count = self.messages.len() as u64;
        let spans = || self.sessions.iter().flat_map(SavedSession::spans);
        spans().all(|Span(first, messages)| u64::from(*first) + u64::from(*messages) <= count)
    }
}

impl SavedSession {
    /// The interval of the subscription with this index, in milliseconds; 0 for none.
    pub(crate) fn interval_ms(&self, subscription: usize) -> u32 {
        let own = self.intervals.iter().find(|(index, _)| *index as usize == subscription);
        own.map_or(0, |(_, ms)| *ms)
    }

    /// True if the server's side has made the subscription with this index.
    pub(crate) fn is_by_server(&self, subscription: usize) -> bool {
        self.by_server.binary_search(&(subscription as u32)).is_ok()
    }

    fn spans(&self) -> impl Iterator<Item = &Span> {
        let batches = self.ack.iter().flat_map(|ack| &ack.batches);
        batches.flat_map(|batch| &batch.messages).chain(&self.waiting)
    }

    fn spans_mut(&mut self) -> impl Iterator<Item = &mut Span> {
        let batches = self.ack.iter_mut().flat_map(|ack| &mut ack.batches);
        batches.flat_map(|batch| &mut batch.messages).chain(&mut self.waiting)
    }
}
