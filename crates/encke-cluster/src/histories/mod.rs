//! Histories of a cluster: a channel has one order, one epoch and one sequence of offsets on all nodes, and each node has all its messages.
//! [`Histories`] is a deterministic machine like [`Node`](crate::Node), on the same engine.
//!
//! The channels are dealt out to *partitions*. Each has an owner, named by its claim in the engine's keys, and a log. The node of a publisher
//! (the *source*) sends publications to the owner, which gives them their positions and sends them to all nodes. An entry is *committed* when
//! all nodes *in sync*, which the claim lists, have acknowledged it. Nobody sees an entry before, on no node. So what anybody has seen is
//! on every node in sync, and any of these may become the next owner.
//!
//! ```text
//!   publisher ─▶ source ── Submit ──▶ owner ── Log ──▶ mirrors
//!       ▲                               ▲ └─ Ack ◀───────┘
//!       └─ reply ◀─ commit              └ committed ──▶ rings of each node ──▶ subscribers
//! ```
//!
//! The contract:
//!
//! - Messages of the engine may be lost, doubled and delayed. A key is written only if it has the expected revision; reads may be old.
//! - A node that is gone has lost all it had. A node that comes back after others took it for gone does nothing by its old claim: its
//!   entries are not acknowledged any more, and it commits nothing without a recent write of its key.
//! - If nobody in sync is left, a partition begins again with another seed, from which all epochs follow. So no offset ever stands for two
//!   messages.

mod claim;
mod context;
mod entry;
mod marks;
mod members;
mod message;
mod partition;
mod rings;
mod sources;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bayeux::Limits;
use bytes::Bytes;
use encke_core::history::{PARTITIONS, hash_of_name, partition_of};
use encke_core::{Amount, Budget, NodeTag, Now, PublishToken, SessionOwner, Shares, Urgency};

use crate::command::{Command, Expected, KeyAnswer, KeyFailure, KeyReply};
use crate::outgoing::fitting;
use crate::subject::Subjects;
pub use context::Output as HistoryOutput;
use context::{CLAIMS, Context, Purpose, Wire};
use entry::NodeId;
pub use entry::{Content, Entry, Submission};
pub(crate) use marks::{MARK_BYTES, TICKS_MAX};
use marks::{Marks, Points, read_beat, write_beat};
pub use marks::{Report, SinceMs};
use members::{BEAT_MS, Members};
use message::{HEAD_BYTES, Message};
use partition::Partition;
pub use rings::{Copied, Cursor, Rings};
use sources::{Payer, Waiting};

/// The settings of [`Histories`].
#[derive(Clone, Debug)]
pub struct HistoriesSettings {
    /// A random number that no other node and start has.
    pub node: u64,
    /// The name of this node in the ids of its sessions.
    pub tag: NodeTag,
    /// The subjects of the cluster.
    pub subjects: Subjects,
    /// The bucket of the claims.
    pub bucket: String,
    /// True if the engine keeps a journal of each partition, without which nothing is committed.
    pub has_journal: bool,
    /// The limits of channel names of other nodes.
    pub names: Limits,
    /// Bytes of publications of this node that are not committed.
    pub pending_bytes_max: usize,
}

/// The counts of [`Histories`] since its start, and its sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryCounts {
    /// Partitions that this node owns.
    pub owned: usize,
    /// Partitions whose messages this node has.
    pub level: usize,
    /// Partitions whose messages this node has for certain, so that it may own them.
    pub in_sync: usize,
    /// The fewest nodes in sync of a partition that this node owns; 0 if it owns none.
    pub in_sync_least: usize,
    /// Times that this node has read a partition from another one or from its journal, because it was new or behind.
    pub reads: u64,
    /// Values that this node has added to journals.
    pub journal_writes: u64,
    /// Commands about journals that have failed.
    pub journal_failures: u64,
    /// Bytes of publications of this node that are not committed.
    pub pending_bytes: usize,
    /// Messages of this node that were refused.
    pub refused: u64,
    /// Messages that are no message of a node.
    pub rejected: u64,
}

/// The histories of one node, as far as other nodes are concerned.
pub struct Histories {
    settings: HistoriesSettings,
    members: Members,
    partitions: Vec<Partition>,
    marks: Marks,
    wire: Wire,
    shares: Shares<Payer>,
    /// Messages of other nodes that have not been processed.
    arrived: Vec<Message>,
    listens: bool,
    /// The time when the running watch had reported all keys, in milliseconds.
    complete_ms: Option<u64>,
    /// The highest revision that this node has seen, and the same before the last write of its key.
    last_revision: u64,
    before_beat: u64,
    /// The time of the last turn, in milliseconds.
    turned_ms: u64,
    /// The partition that is the first one in this turn.
    first: usize,
    /// The time of the next look at the balance of partitions, and of the last beginning of a pass, in milliseconds.
    balance_ms: u64,
    given_ms: u64,
    is_ending: bool,
    counts: HistoryCounts,
}

impl Histories {
    /// The number from which on commands are those of [`Histories`], up to those of [`Sessions`](crate::Sessions).
    pub const NUMBERS_FROM: u64 = 1 << 62;
    /// The keys of its subscriptions: what comes to all nodes, and to this one.
    pub const LISTENS_BY: [u64; 2] = [1, 2];

    /// The histories of a node whose engine is away.
    pub fn new(settings: HistoriesSettings) -> Histories {
        Histories::with(settings, PARTITIONS)
    }

    fn with(settings: HistoriesSettings, partitions: usize) -> Histories {
        let own = NodeId(settings.node);
        let (subjects, bucket) = (settings.subjects.clone(), settings.bucket.clone());
        Histories {
            members: Members::new(own),
            partitions: (0..partitions as u16).map(Partition::new).collect(),
            marks: Marks::default(),
            wire: Wire::new(own, subjects, bucket, settings.has_journal, Histories::NUMBERS_FROM),
            shares: Shares::default(),
            arrived: Vec::new(),
            listens: false,
            complete_ms: None,
            last_revision: 0,
            before_beat: 0,
            turned_ms: 0,
            first: 0,
            balance_ms: 0,
            given_ms: 0,
            is_ending: false,
            counts: HistoryCounts::default(),
            settings,
        }
    }

    /// True if a command with this number is one of [`Histories`].
    pub fn has_sent(number: u64) -> bool {
        (Histories::NUMBERS_FROM..Histories::NUMBERS_FROM * 2).contains(&number)
    }

    /// The bucket of its keys.
    pub fn bucket(&self) -> &str {
        &self.settings.bucket
    }

    /// The engine is there, and takes messages of at most so many bytes.
    pub fn connected(&mut self, bytes_max: usize) {
        self.wire.bytes_max = bytes_max;
        self.wire.is_connected = true;
        if !std::mem::replace(&mut self.listens, true) {
            let subjects = &self.settings.subjects;
            let subjects = [subjects.of_histories_log(), subjects.of_histories_node(self.settings.node)];
            for (key, subject) in Histories::LISTENS_BY.into_iter().zip(subjects) {
                self.wire.push(HistoryOutput::Engine(Command::Listen { key, subject }));
            }
            let watch = Command::Watch { bucket: self.settings.bucket.clone(), prefix: String::new() };
            self.wire.push(HistoryOutput::Engine(watch));
        }
    }

    /// The engine is away.
    pub fn disconnected(&mut self) {
        self.wire.is_connected = false;
    }

    /// A publication of this node, or the removal of a history. The token is settled when it is committed, or refused. `publisher`: the user
    /// or address whose share of [`HistoriesSettings::pending_bytes_max`] it takes; None for the program.
    pub fn publish(&mut self, submission: Submission, token: Option<PublishToken>, publisher: Option<SessionOwner>) {
        let (messages, bytes) = (submission.messages().max(1), submission.bytes());
        let (channel, number) = (hash_of_name(&submission.channel), partition_of(&submission.channel));
        let (owner, inner) = (Payer::Publisher(publisher), Payer::Channel(publisher, channel));
        let parts = if self.fits(&submission) { vec![submission] } else { split(submission) };
        let fits = parts.iter().all(|part| self.fits(part));
        let budget = Budget::new(usize::MAX, self.settings.pending_bytes_max);
        let (amount, urgency) = (Amount::one(bytes), Urgency::Common);
        if !fits || self.shares.admit(&budget, &owner, Some(&inner), amount, urgency).is_err() {
            self.counts.refused += messages;
            return token.into_iter().for_each(|token| self.wire.push(HistoryOutput::Settled(token, false)));
        }
        let share = self.shares.take_regardless(owner, Some(inner), amount, urgency);
        let is_whole = parts.len() == 1;
        let (mut parts, mut share) = (parts.into_iter().peekable(), Some(share));
        while let Some(part) = parts.next() {
            // The whole is settled, and its bytes are free, with the last part.
            let is_last = parts.peek().is_none();
            let (token, share) = (token.filter(|_| is_last), if is_last { share.take() } else { None });
            self.partitions[number].publish(publisher, Waiting { submission: Arc::new(part), token, is_whole, share });
        }
    }

    /// True if one message has room for a publication.
    fn fits(&self, submission: &Submission) -> bool {
        submission.bytes() + HEAD_BYTES <= self.wire.bytes_max
    }

    /// A message of another node has come.
    pub fn received(&mut self, body: &[u8]) {
        match Message::read(body, &self.settings.names) {
            Some(message) if usize::from(message.partition) < self.partitions.len() => self.arrived.push(message),
            _ => self.counts.rejected += 1,
        }
    }

    /// A command about a key or a journal has its result.
    pub fn key_answered(&mut self, now_ms: u64, number: u64, answer: &KeyReply) {
        match self.wire.ended(number) {
            Some(Purpose::Beat) => {
                self.members.beaten(answer.is_ok());
                if let Ok(KeyAnswer::Written(revision)) = answer {
                    self.has_written(*revision);
                }
            }
            Some(Purpose::Claim(partition)) => {
                self.partitions[usize::from(partition)].claim_written(now_ms, number, answer);
            }
            Some(Purpose::Journal(partition)) => {
                let [written, failed] = &mut self.wire.journal_counts;
                match answer {
                    Ok(KeyAnswer::Written(_)) => *written += 1,
                    Err(KeyFailure::TooLarge | KeyFailure::Failed(_)) => *failed += 1,
                    _ => {}
                }
                let partition = &mut self.partitions[usize::from(partition)];
                self.counts.rejected += partition.journal_answered(now_ms, number, answer, &self.settings.names);
            }
            None => {}
        }
    }

    /// The key of this node has this revision. One that was there before means that the engine has lost its last writes.
    fn has_written(&mut self, revision: u64) {
        if revision <= self.before_beat {
            self.last_revision = revision;
            self.partitions.iter_mut().for_each(Partition::rolled_back);
        }
    }

    /// A watch of the keys begins, or begins again.
    pub fn watch_begins(&mut self) {
        self.complete_ms = None;
        self.members.watch_begins();
        self.partitions.iter_mut().for_each(Partition::watch_begins);
    }

    /// A watch has reported all keys that are there.
    pub fn watch_is_complete(&mut self, now_ms: u64) {
        self.complete_ms = Some(now_ms);
        self.members.watch_is_complete();
        // They could not be seen during a break.
        self.members.resume(now_ms);
        self.partitions.iter_mut().for_each(Partition::watch_is_complete);
    }

    /// A key is there, has changed, or is gone.
    pub fn key_changed(&mut self, now_ms: u64, key: &str, revision: u64, value: Option<&Bytes>) {
        self.last_revision = self.last_revision.max(revision);
        if let Some(node) = key.strip_prefix(MEMBERS).and_then(|node| u64::from_str_radix(node, 16).ok()) {
            match value {
                Some(value) => {
                    let report = read_beat(value).filter(|_| node != self.settings.node);
                    report.into_iter().for_each(|report| self.wire.push(HistoryOutput::Report(report)));
                    self.members.seen(now_ms, NodeId(node), revision);
                }
                None => self.members.left(NodeId(node)),
            }
        }
        let number = key.strip_prefix(CLAIMS).and_then(|number| number.parse::<usize>().ok());
        if let Some(partition) = number.and_then(|number| self.partitions.get_mut(number)) {
            match value {
                Some(value) => partition.claim_changed(now_ms, value, revision),
                None => partition.claim_gone(),
            }
        }
    }

    /// Does what has to be done after events, or at a time. Call it after events, before [`Histories::take_outputs`].
    /// `unrecorded`: the sessions that others must not go on with, for the key of this node.
    pub fn turn(&mut self, now: Now, rings: &mut dyn Rings, unrecorded: &mut dyn FnMut() -> Bytes) {
        if now.ms >= self.turned_ms + PAUSE_MS {
            self.members.resume(now.ms);
            self.partitions.iter_mut().for_each(|partition| partition.resume(now.ms));
        }
        self.turned_ms = now.ms;
        self.beat(now.ms, unrecorded);
        let arrived = std::mem::take(&mut self.arrived);
        let Histories { members, partitions, wire, complete_ms, .. } = self;
        let knows_all = complete_ms.is_some();
        let mut cx = Context { now, members, rings: &mut *rings, wire, knows_all };
        for Message { from, partition, term, body } in arrived {
            partitions[usize::from(partition)].received(&mut cx, from, term, body);
        }
        // One with much to commit takes the room of the turn: each is the first one in turn.
        self.first = (self.first + 1) % partitions.len().max(1);
        let (later, earlier) = partitions.split_at_mut(self.first);
        earlier.iter_mut().chain(later).for_each(|partition| partition.turn(&mut cx));
        self.balance(now, rings);
        self.tick(now.ms);
        for share in std::mem::take(&mut self.wire.freed) {
            self.shares.give_back(share);
        }
    }

    /// Takes a mark, if it is time.
    fn tick(&mut self, now_ms: u64) {
        if now_ms < self.marks.due_ms() {
            return;
        }
        let points = self.points();
        if self.marks.are_due(&points) {
            let (tick, mark) = self.marks.take(now_ms, &points);
            self.wire.push(HistoryOutput::Tick(tick, mark));
        }
    }

    /// The points up to which this node has delivered the logs. One that reads the rings of a partition has delivered what it had before.
    fn points(&self) -> Points {
        let point = |partition: usize| {
            let point = self.partitions.get(partition).and_then(Partition::point);
            point.or_else(|| self.marks.last(partition))
        };
        std::array::from_fn(point)
    }

    /// The sessions of this node have confirmed all that was committed before a [`HistoryOutput::Tick`], but for those whose record says
    /// otherwise. `has_late`: there are some.
    pub fn confirmed(&mut self, tick: u64, has_late: bool) {
        self.marks.confirmed(tick, has_late);
    }

    /// For each partition the time since which all messages behind a mark have come to this node. None if this is no mark.
    pub fn since(&self, mark: &[u8]) -> Option<SinceMs> {
        let of = |partition: usize| self.partitions.get(partition);
        let points = std::array::from_fn(|partition| of(partition).and_then(Partition::point));
        let known_from: [u64; PARTITIONS] =
            std::array::from_fn(|partition| of(partition).map_or(0, Partition::known_from));
        #[cfg(test)]
        let known_from = match self.wire.sabotage {
            Some(context::Sabotage::TrustsTimes) => [0; PARTITIONS],
            _ => known_from,
        };
        self.marks.since(mark, &points, &known_from)
    }

    /// Writes the key of this node.
    fn beat(&mut self, now_ms: u64, unrecorded: &mut dyn FnMut() -> Bytes) {
        if self.wire.is_connected && !self.is_ending && self.members.beat(now_ms) {
            self.before_beat = self.last_revision;
            let key = format!("{MEMBERS}{:016x}", self.settings.node);
            let value = write_beat(self.settings.tag, self.marks.common(), &unrecorded());
            self.wire.put(Purpose::Beat, key, value, Expected::Any, Some(MEMBER_TTL_MS));
        }
    }

    /// Passes partitions on: one at a time to the nodes that they belong to, or all of them at the end.
    fn balance(&mut self, now: Now, rings: &mut dyn Rings) {
        if now.ms < self.balance_ms {
            return;
        }
        let Histories { members, partitions, wire, .. } = self;
        let cx = Context { now, members, rings, wire, knows_all: true };
        if self.is_ending {
            return partitions.iter_mut().for_each(|partition| partition.give_away(&cx));
        }
        self.balance_ms = now.ms + BALANCE_EVERY_MS;
        if partitions.iter().any(Partition::is_given) {
            if now.ms >= self.given_ms + GIVEN_MAX_MS {
                partitions.iter_mut().for_each(Partition::stay);
            }
            return;
        }
        if partitions.iter_mut().any(|partition| partition.give_to_rightful(&cx)) {
            self.given_ms = now.ms;
        }
    }

    /// Passes all partitions on to other nodes, because this one ends.
    pub fn end(&mut self) {
        self.is_ending = true;
        self.balance_ms = 0;
    }

    /// True if the node owns nothing that another node could own, and its publications are committed. Its key is removed then.
    pub fn has_ended(&mut self) -> bool {
        let own = self.wire.own;
        let has_ended = !self.partitions.iter().any(|partition| partition.may_be_given(own) || partition.has_pending());
        if has_ended && self.wire.is_connected {
            self.wire.remove(format!("{MEMBERS}{:016x}", self.settings.node));
        }
        has_ended || !self.wire.is_connected
    }

    /// The time at which [`Histories::turn`] has something to do, if nothing happens before.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        if !self.wire.is_connected {
            return None;
        }
        let is_busy = self.is_ending || self.partitions.iter().any(|partition| partition.is_busy(self.wire.own));
        let next_ms = if is_busy { now_ms + BUSY_MS } else { self.members.next_ms().clamp(now_ms, now_ms + BEAT_MS) };
        let tick_ms = self.marks.are_due(&self.points()).then(|| self.marks.due_ms().max(now_ms));
        Some(tick_ms.map_or(next_ms, |tick_ms| tick_ms.min(next_ms)))
    }

    /// Takes what has to be done, in order.
    pub fn take_outputs(&mut self) -> Vec<HistoryOutput> {
        self.wire.take_outputs()
    }

    /// Its counts and sizes.
    pub fn counts(&self) -> HistoryCounts {
        let [journal_writes, journal_failures] = self.wire.journal_counts;
        let pending_bytes = self.shares.used().bytes;
        let mut counts = HistoryCounts { pending_bytes, journal_writes, journal_failures, ..self.counts };
        for partition in &self.partitions {
            let state = partition.state(self.wire.own);
            counts.owned += usize::from(state.is_owned);
            counts.level += usize::from(state.is_level);
            counts.in_sync += usize::from(state.is_in_sync);
            counts.reads += state.reads;
            if state.is_owned {
                let least = if counts.in_sync_least == 0 { usize::MAX } else { counts.in_sync_least };
                counts.in_sync_least = least.min(state.in_sync);
            }
        }
        counts
    }
}

/// Divides publications that are too large for one message with others.
fn split(submission: Submission) -> Vec<Submission> {
    let Submission { channel, content } = submission;
    let Content::Publications { side, except, frames, messages } = content else {
        return vec![Submission { channel, content }];
    };
    let (mut rest, mut left, mut parts) = (frames, messages, Vec::new());
    while left > 0 {
        let (count, bytes) = fitting(&channel, &rest);
        // Frames that are not what they should be stay together.
        let (count, bytes) = if count == 0 || count >= left { (left, rest.len()) } else { (count, bytes) };
        let content = Content::Publications { side, except, messages: count, frames: rest.split_to(bytes) };
        parts.push(Submission { channel: channel.clone(), content });
        left -= count;
    }
    parts
}

/// The prefix of the keys of nodes.
const MEMBERS: &str = "m.";
/// The time after which the key of a node goes that is gone, in milliseconds.
const MEMBER_TTL_MS: u64 = 60_000;
/// A node that has not looked for so long does not know who is there, in milliseconds.
const PAUSE_MS: u64 = 2_500;
/// The time between two turns while something is to be done, in milliseconds.
const BUSY_MS: u64 = 50;
/// The time between two looks at the balance of partitions, in milliseconds.
const BALANCE_EVERY_MS: u64 = 1_000;
/// The time after which a partition stays that could not be passed on, in milliseconds.
const GIVEN_MAX_MS: u64 = 5_000;
