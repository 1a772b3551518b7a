//! The messages of histories that the clients of this node have confirmed, as far as other nodes have to know: one mark for all sessions of
//! the node, and one in the record of each session that is late.
//!
//! ```text
//!   histories ── tick 7, its mark ──▶ shards ── Changed(late, since 4), Confirmed(6) ──▶ records
//!   histories ◀── confirmed 6 ── when all shards have confirmed it, and the records of those that were late are written
//! ```
//!
//! A mark never passes a session that has not confirmed it and whose record does not say so. A node takes a session with the mark that it
//! knew when it read the record, and writes it into the record: if that is still the same, the mark holds for the session.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;
use encke_core::{FromNodes, Id, NodeTag, Saved, SessionOwner, ShardMessage, Since};
use foldhash::fast::RandomState;

use super::record::{Content, Key};
use super::unrecorded::Unrecorded;
use super::{Output, Sessions};
use crate::histories::TICKS_MAX;

/// The marks of this node and of others.
#[derive(Default)]
pub(super) struct Confirming {
    /// Those of this node, by tick.
    marks: VecDeque<(u64, Bytes)>,
    /// The last report of each other node.
    of_nodes: HashMap<NodeTag, Report, RandomState>,
    /// For each shard the last tick that it has confirmed, and true if it has late sessions.
    shards: Vec<(u64, bool)>,
    /// Late sessions whose record does not say so yet.
    unwritten: HashSet<Key, RandomState>,
    /// The next tick to pass, and the sessions whose record has to be written before.
    next: Option<(u64, HashSet<Key, RandomState>)>,
    /// The last tick that was passed, and true if a shard had late sessions then.
    passed: (u64, bool),
    #[cfg(test)]
    pub(super) sabotage: Option<Sabotage>,
}

/// The report of a node about its sessions.
struct Report {
    mark: Bytes,
    unrecorded: Unrecorded,
}

/// A session that is taken here, and needs the messages of histories behind a mark.
#[derive(Debug)]
pub struct Resumption {
    /// It.
    pub session: Id,
    /// Its shard.
    pub shard: usize,
    /// Its user or address.
    pub owner: SessionOwner,
    /// Its channels and patterns.
    pub names: Vec<Box<str>>,
    /// The mark.
    pub mark: Bytes,
    /// The most messages, and their bytes.
    pub room: (usize, usize),
}

/// A rule that is broken, to show that the tests find it.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    /// A tick is passed before the records of late sessions are written.
    WaitsForNoRecord,
}

impl Confirming {
    pub(super) fn new(shards: usize) -> Confirming {
        Confirming { shards: vec![(0, false); shards], ..Confirming::default() }
    }

    /// The mark of a node that was reported last.
    pub(super) fn mark_of(&self, node: NodeTag) -> Option<Bytes> {
        self.of_nodes.get(&node).map(|report| report.mark.clone())
    }

    /// True if the record of a session of a node may not be as its client relies on.
    pub(super) fn is_unrecorded(&self, node: NodeTag, key: &Key) -> bool {
        self.of_nodes.get(&node).is_some_and(|report| report.unrecorded.may_have(key))
    }

    /// The mark of a tick. One that is too old is no mark: no node can go on from it.
    fn mark(&self, tick: u64) -> Bytes {
        let found = self.marks.iter().find(|(of, _)| *of == tick);
        found.map(|(_, mark)| mark.clone()).unwrap_or_default()
    }

    /// The record of a session is as it has to be, or needs not be any more.
    pub(super) fn written(&mut self, key: &Key) {
        self.unwritten.remove(key);
        self.next.iter_mut().for_each(|(_, waits)| _ = waits.remove(key));
    }

    /// A tick that has been passed now, and true if there are late sessions; None if nothing has changed.
    fn pass(&mut self) -> Option<(u64, bool)> {
        let (mut tick, before) = (self.passed.0, self.passed);
        let common = self.shards.iter().map(|(tick, _)| *tick).min().unwrap_or(0);
        if let Some((next, _)) = self.next.take_if(|(_, waits)| waits.is_empty()) {
            tick = next;
        }
        #[cfg(test)]
        if self.sabotage == Some(Sabotage::WaitsForNoRecord) {
            self.unwritten.clear();
        }
        if self.next.is_none() && common > tick {
            match self.unwritten.is_empty() {
                true => tick = common,
                false => self.next = Some((common, self.unwritten.clone())),
            }
        }
        self.passed = (tick, self.shards.iter().any(|(_, has_late)| *has_late));
        Some(self.passed).filter(|passed| *passed != before)
    }
}

impl Sessions {
    /// All that was committed before this tick, which has this mark, was sent to the shards.
    pub fn ticked(&mut self, tick: u64, mark: Bytes) {
        self.confirming.marks.push_back((tick, mark));
        while self.confirming.marks.len() > TICKS_MAX {
            self.confirming.marks.pop_front();
        }
        for shard in 0..self.settings.shards {
            self.outputs.push(Output::Shard(shard, ShardMessage::FromNodes(FromNodes::Tick(tick))));
        }
    }

    /// The sessions of this node that another one must not go on with, should this one be gone: for its heartbeat.
    pub fn unrecorded(&mut self, now_ms: u64) -> Bytes {
        self.records.unrecorded(now_ms).write()
    }

    /// Another node has reported its mark, and what it has from [`Sessions::unrecorded`].
    pub fn note_report(&mut self, node: NodeTag, mark: Bytes, unrecorded: &[u8]) {
        let of_nodes = &mut self.confirming.of_nodes;
        if of_nodes.len() >= NODES_MAX && !of_nodes.contains_key(&node) {
            // Those that are there report theirs again within a second.
            of_nodes.clear();
        }
        let unrecorded = Unrecorded::read(unrecorded);
        self.counts.marks += 1;
        of_nodes.insert(node, Report { mark, unrecorded });
    }

    /// The state of a session has changed that has to outlive this node.
    pub(super) fn changed(
        &mut self,
        (id, owner): (Id, SessionOwner),
        saved: &Saved,
        since: Since,
        subscribed_ms: Option<u64>,
    ) {
        let key = Key::of(&id);
        let mark = match since {
            Since::Common => None,
            Since::Tick(tick) => Some(self.confirming.mark(tick)),
            Since::Taken => Some(self.records.mark(&key).unwrap_or_default()),
        };
        let past = self.past_of(&key, saved);
        self.records.opened(id, past);
        let content = Content { mark, state: (self.settings.encode)(saved, past).into() };
        self.records.changed((id, owner), content, subscribed_ms);
        match since {
            Since::Common => self.confirming.written(&key),
            // With the mark of its record it goes on from further back.
            _ if self.records.is_written(&key) || self.records.has_mark(&key) => self.confirming.written(&key),
            _ => _ = self.confirming.unwritten.insert(key),
        }
    }

    /// The sessions of a shard have confirmed a tick.
    pub(super) fn shard_confirmed(&mut self, shard: usize, tick: u64, has_late: bool) {
        if let Some(of_shard) = self.confirming.shards.get_mut(shard) {
            *of_shard = (tick.max(of_shard.0), has_late);
        }
    }

    /// A session that is taken here needs the messages that it has missed.
    pub(super) fn resumes(&mut self, (session, owner): (Id, SessionOwner), names: Vec<Box<str>>, room: (usize, usize)) {
        let shard = self.shard_of(&session);
        // Its record has a mark until its client has confirmed them.
        self.confirming.shards.get_mut(shard).into_iter().for_each(|(_, has_late)| *has_late = true);
        let mark = self.records.mark(&Key::of(&session)).unwrap_or_default();
        self.outputs.push(Output::Missed(Resumption { session, shard, owner, names, mark, room }));
    }

    /// The mark from which a session goes on whose node is gone: that of its record, or the last one of the node. None for a session that was
    /// promised no messages.
    pub(super) fn mark_for(&self, node: NodeTag, content: &Content) -> Option<Bytes> {
        let (saved, _) = (self.settings.decode)(&content.state)?;
        let is_promised =
            saved.sessions.iter().any(|session| session.ack.is_some() && !session.subscriptions.is_empty());
        content.mark.clone().or_else(|| self.confirming.mark_of(node)).filter(|_| is_promised)
    }

    /// Reports ticks that are confirmed.
    pub(super) fn pass_ticks(&mut self) {
        while let Some((tick, has_late)) = self.confirming.pass() {
            self.outputs.push(Output::Confirmed(tick, has_late));
        }
    }
}

/// Nodes whose reports are known: each has 1 KB, and 16 KB more at most for sessions whose records are late.
const NODES_MAX: usize = 1_024;
