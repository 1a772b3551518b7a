//! The promises of a cluster, and the records to check them.

use std::collections::{BTreeMap, BTreeSet};

use encke_core::Id;

use super::client::Track;

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// A client with `replay` gets each message of a channel with a history, or a report that it is lost; one with `ack` alone gets each
    /// message as long as its session goes on.
    NothingLost,
    /// No message comes twice: with `ack` alone those may that were confirmed shortly before a failure.
    NotTwice,
    /// All get the messages of a channel with a history in one order, and those of a publisher in the order in which they were sent.
    InOrder,
    /// An epoch never gives an offset twice.
    OneOffset,
    /// A client with `replay` that goes on at its position has missed nothing.
    LossIsReported,
    /// A publication that was confirmed is in the history, once.
    ConfirmedStays,
    /// All nodes have the same histories.
    OneHistory,
    /// A message comes behind the reply to the subscribe that wants it.
    ReplyFirst,
    /// Without faults a message reaches each subscriber within seconds.
    InTime,
    /// Two nodes that are there do not have one session.
    OneNode,
    /// A session that has ended does not come back.
    EndedStays,
    /// Without faults sessions go on.
    SessionsGoOn,
    /// A message arrives as it was sent, and nothing else does.
    ExactData,
    /// Each request gets its reply.
    OneReply,
    /// The machines do not panic.
    NoPanic,
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub(super) struct Broken {
    pub(super) promise: Promise,
    pub(super) detail: String,
}

/// A publication.
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    pub(super) channel: &'static str,
    /// Its client, and a number that grows when the client does not know if its last request was processed.
    pub(super) stream: (usize, u64),
    pub(super) sent_ms: u64,
    /// The time at which its publisher knew that it was accepted, in milliseconds.
    pub(super) confirmed_ms: Option<u64>,
    pub(super) is_refused: bool,
    /// The epochs that the nodes had for its channel when it was confirmed.
    pub(super) epochs: BTreeSet<String>,
}

/// A session.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    pub(super) client: usize,
    pub(super) opened_ms: u64,
    /// Its client uses it no more.
    pub(super) is_over: bool,
    /// The time at which its client knew that it had ended by a disconnect, in milliseconds.
    pub(super) ended_ms: Option<u64>,
    /// Each subscription with the time from which on it holds for certain, and to which it may hold, in milliseconds.
    pub(super) names: BTreeMap<&'static str, (u64, Option<u64>)>,
    pub(super) seen: BTreeMap<usize, Seen>,
    /// The last message of each stream and channel without a history.
    pub(super) last: BTreeMap<(usize, u64, String), usize>,
}

/// A message that a session has got.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) count: u32,
    /// True if a connect with the batch of the message was answered.
    is_armed: bool,
    /// The time at which that was, in milliseconds.
    pub(super) confirmed_ms: Option<u64>,
}

impl Session {
    /// A subscription is granted.
    pub(super) fn begins(&mut self, name: &'static str, now_ms: u64) {
        let entry = self.names.entry(name).or_insert((now_ms, None));
        if entry.1.is_some() {
            *entry = (now_ms, None);
        }
    }

    /// A subscription has ended.
    pub(super) fn ends(&mut self, name: &str, now_ms: u64) {
        self.names.get_mut(name).into_iter().for_each(|entry| entry.1 = Some(now_ms));
    }

    /// True if the client has sent a connect since it has had a message.
    pub(super) fn is_confirmable(&self, number: usize) -> bool {
        self.seen.get(&number).is_some_and(|seen| seen.is_armed)
    }

    pub(super) fn arm(&mut self, number: usize) {
        self.seen.entry(number).or_default().is_armed = true;
    }

    pub(super) fn confirm(&mut self, number: usize, now_ms: u64) {
        self.seen.entry(number).or_default().confirmed_ms.get_or_insert(now_ms);
    }
}

/// The records of a run.
#[derive(Default)]
pub(super) struct Checker {
    pub(super) publications: Vec<Published>,
    pub(super) sessions: BTreeMap<Id, Session>,
    /// The stream of each client.
    pub(super) streams: Vec<u64>,
    /// The publication at each offset, by channel and epoch.
    pub(super) truth: BTreeMap<(String, String), BTreeMap<u64, usize>>,
    /// Positions in epochs that are over.
    pub(super) old_tracks: Vec<(usize, String, Track)>,
    /// The times of all disruptions, in milliseconds.
    pub(super) disturbed_ms: Vec<u64>,
    /// For each session that two nodes have, the time since when, in milliseconds.
    pub(super) on_two: BTreeMap<Id, u64>,
    pub(super) broken: Option<Broken>,
}

impl Checker {
    /// Records that a promise is broken; only the first counts.
    pub(super) fn fail(&mut self, promise: Promise, detail: String) {
        self.broken.get_or_insert(Broken { promise, detail });
    }

    /// Notes the publication at an offset.
    pub(super) fn note_offset(&mut self, channel: &str, epoch: &str, offset: u64, number: usize) {
        let known = self.truth.entry((channel.into(), epoch.into())).or_default();
        let before = *known.entry(offset).or_insert(number);
        if before != number {
            let detail = format!("{channel} {epoch} {offset} is message {number}, and was message {before}");
            self.fail(Promise::OneOffset, detail);
        }
    }

    /// True if something went wrong between these times, in milliseconds.
    pub(super) fn was_disturbed(&self, from_ms: u64, to_ms: u64) -> bool {
        self.disturbed_ms.iter().any(|at_ms| (from_ms..=to_ms).contains(at_ms))
    }
}
