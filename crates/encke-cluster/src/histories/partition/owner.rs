//! The owner of a partition: it gives each publication its position, and commits it when all nodes in sync have it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::claims::Claims;
use super::journal::Journal;
use super::log::Log;
use crate::histories::claim::Claim;
use crate::histories::context::Context;
#[cfg(test)]
use crate::histories::context::Sabotage;
use crate::histories::entry::{Entry, NodeId, Submission, Term};
use crate::histories::message::{Body, HEAD_BYTES, Part, SOURCE_BYTES, Wanted};
use crate::histories::rings::Cursor;

/// The work of an owner in one term.
pub(crate) struct Owner {
    partition: u16,
    term: Term,
    followers: BTreeMap<NodeId, Follower>,
    /// None if there is none.
    journal: Option<Journal>,
    /// The next offsets of channels with staged entries, and of others.
    offsets: HashMap<Box<str>, u64, RandomState>,
    /// The number of the last entry that was sent to all.
    sent: u64,
    /// The committed number that was sent last.
    notified: u64,
    /// The time of the last message to all, in milliseconds.
    sent_ms: u64,
    /// The node that is to own the partition next: nothing more is taken.
    next: Option<NodeId>,
}

/// Another node that follows the log.
#[derive(Clone, Copy, Default)]
struct Follower {
    staged: u64,
    committed: u64,
    /// The time of its last acknowledgement, in milliseconds.
    at_ms: u64,
    /// The time since when it has acknowledged nothing more though there is more, in milliseconds.
    behind_ms: Option<u64>,
    /// True if it has acknowledged something in this term.
    has_acknowledged: bool,
}

impl Follower {
    /// True if it has not acknowledged all.
    fn misses(&self, log: &Log) -> bool {
        self.staged < log.last() || self.committed < log.committed()
    }
}

impl Owner {
    /// The owner of a new term. `is_read`: the log is what the journal has.
    pub(crate) fn new(cx: &Context<'_>, partition: u16, claim: &Claim, log: &Log, is_read: bool) -> Owner {
        let (now_ms, own) = (cx.now.ms, cx.own());
        let behind_ms = (log.last() > 0).then_some(now_ms);
        let follower = Follower { at_ms: now_ms, behind_ms, ..Follower::default() };
        let followers = claim.nodes().filter(|node| *node != own).map(|node| (node, follower)).collect();
        let term = claim.term();
        let journal = cx.wire.has_journal.then(|| Journal::new(partition, claim, log, is_read));
        let (sent, notified) = (log.last(), log.committed());
        // Later messages follow those that are not in the rings yet.
        let staged = log.from(log.committed() + 1).into_iter().flatten();
        let next = |entry: &Entry| (entry.submission.channel.clone(), entry.first + entry.submission.messages());
        let offsets = staged.map(next).collect();
        Owner { partition, term, followers, journal, offsets, sent, notified, sent_ms: 0, next: None }
    }

    /// Adds publications of a source to the log. The error is the sequence that has to come before them.
    pub(crate) fn submit(
        &mut self,
        cx: &mut Context<'_>,
        log: &mut Log,
        source: NodeId,
        (done, first): (u64, u64),
        submissions: impl Iterator<Item = Arc<Submission>>,
    ) -> Result<(), u64> {
        if self.next.is_some() || self.is_reading() {
            return Ok(());
        }
        for (sequence, submission) in (first..).zip(submissions) {
            // All up to `done` are certain, though this node may not remember the source.
            let expected = log.last_of(source).max(done) + 1;
            #[cfg(test)]
            let expected = if cx.is_broken(Sabotage::TakesAllNumbers) { sequence } else { expected };
            if sequence > expected {
                return Err(expected);
            }
            if sequence == expected {
                let first = self.take_offsets(cx, &submission);
                log.stage(Entry { source, sequence, first, wall_ms: cx.now.wall_ms, submission });
            }
        }
        self.note_behind(cx.now.ms, log.last());
        Ok(())
    }

    /// The offset of the first message.
    fn take_offsets(&mut self, cx: &mut Context<'_>, submission: &Submission) -> u64 {
        let channel = &*submission.channel;
        if let Some(next) = self.offsets.get_mut(channel) {
            let first = *next;
            *next += submission.messages();
            return first;
        }
        let first = cx.rings.next_of(channel);
        self.offsets.insert(channel.into(), first + submission.messages());
        first
    }

    fn note_behind(&mut self, now_ms: u64, last: u64) {
        for follower in self.followers.values_mut().filter(|follower| follower.staged < last) {
            follower.behind_ms.get_or_insert(now_ms);
        }
    }

    /// A follower has acknowledged.
    pub(crate) fn acknowledged(&mut self, now_ms: u64, node: NodeId, (staged, committed): (u64, u64), last: u64) {
        let follower = self.followers.entry(node).or_default();
        (follower.at_ms, follower.has_acknowledged) = (now_ms, true);
        if staged > follower.staged {
            (follower.staged, follower.behind_ms) = (staged, Some(now_ms));
        }
        if follower.staged >= last {
            follower.behind_ms = None;
        }
        follower.committed = follower.committed.max(committed);
    }

    /// True if all these nodes follow this term.
    pub(crate) fn is_followed_by(&self, nodes: &[NodeId], own: NodeId) -> bool {
        let has_acknowledged =
            |node: &NodeId| self.followers.get(node).is_some_and(|follower| follower.has_acknowledged);
        // The engine may have lost the journal with its keys.
        nodes.iter().filter(|node| **node != own && **node != NodeId::JOURNAL).all(has_acknowledged)
    }

    /// Adds to the journal what it does not have, or reads it.
    pub(crate) fn turn_journal(&mut self, cx: &mut Context<'_>, claims: &Claims, log: &Log) {
        let is_certain = self.is_certain(cx, claims);
        self.journal.iter_mut().for_each(|journal| journal.turn(cx, log, is_certain));
    }

    /// The journal of the partition.
    pub(crate) fn journal_mut(&mut self) -> Option<&mut Journal> {
        self.journal.as_mut()
    }

    /// True if the log is not what the journal has yet: nothing is done before.
    pub(crate) fn is_reading(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::is_reading)
    }

    /// True if the journal does not have what the claim says.
    pub(crate) fn has_lost_journal(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::is_lost)
    }

    /// The log is what the journal has.
    pub(crate) fn has_read(&mut self, log: &Log) {
        (self.sent, self.notified) = (log.last(), log.committed());
        // The rings have them all, and have leapt.
        self.offsets = HashMap::default();
    }

    /// Forgets followers that are gone.
    pub(crate) fn forget_gone(&mut self, cx: &Context<'_>, claim: &Claim) {
        self.followers.retain(|node, _| claim.has(*node) || cx.is_alive(*node));
    }

    /// This node has not looked for a while: nobody is to blame for it.
    pub(crate) fn resume(&mut self, now_ms: u64) {
        for follower in self.followers.values_mut().filter(|follower| follower.behind_ms.is_some()) {
            follower.behind_ms = Some(now_ms);
        }
    }

    /// The number up to which all nodes of this list have the log.
    fn common(&self, nodes: impl Iterator<Item = NodeId>, own: NodeId, last: u64) -> u64 {
        let staged = |node| match node {
            NodeId::JOURNAL => self.journal.as_ref().map_or(0, Journal::stored),
            _ => self.followers.get(&node).map_or(0, |follower: &Follower| follower.staged),
        };
        nodes.filter(|node| *node != own).map(staged).min().map_or(last, |least| least.min(last))
    }

    /// True if no other node can own the partition, as far as this one knows.
    fn is_certain(&self, cx: &Context<'_>, claims: &Claims) -> bool {
        // A claim that passes the partition on may hold already.
        let is_other = |claim: &Claim| claim.term() != self.term;
        let is_own =
            |claim: &Claim| !is_other(claim) && !claim.is_restored() && !claims.is_doubtful() && !claims.is_suspect();
        claims.claim().is_some_and(is_own) && !claims.written().is_some_and(is_other) && cx.has_lease()
    }

    /// The number up to which the log may be committed.
    pub(crate) fn committable(&self, cx: &Context<'_>, claims: &Claims, log: &Log) -> u64 {
        if !self.is_certain(cx, claims) {
            return log.committed();
        }
        #[cfg(test)]
        if cx.is_broken(Sabotage::CommitsEarly) {
            return log.last();
        }
        #[cfg(test)]
        if cx.is_broken(Sabotage::AddsLate) {
            let in_sync = claims.claim().map_or(&[][..], |claim| &claim.in_sync);
            return self.common(in_sync.iter().copied(), cx.own(), log.last());
        }
        // Before a claim says so, too.
        let journal = self.journal.as_ref().map(|_| NodeId::JOURNAL);
        let required = claims.required().chain(journal);
        #[cfg(test)]
        let required =
            required.filter(|node| *node != NodeId::JOURNAL || !cx.is_broken(Sabotage::CommitsWithoutJournal));
        self.common(required, cx.own(), log.last())
    }

    pub(crate) fn term(&self) -> Term {
        self.term
    }

    /// True if nothing has to be sent, and the partition stays.
    pub(crate) fn rests(&self, log: &Log) -> bool {
        let are_level = self.followers.values().all(|follower| !follower.misses(log));
        self.next.is_none() && are_level && self.journal.as_ref().is_none_or(|journal| journal.rests(log))
    }

    /// The number of the last entry that was sent to all.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// True if a follower that is there has not acknowledged all.
    fn is_behind(&self, cx: &Context<'_>, log: &Log) -> bool {
        self.followers.iter().any(|(node, follower)| follower.misses(log) && cx.is_alive(*node))
    }

    /// Sends what is new to all, and again what some have missed.
    pub(crate) fn send(&mut self, cx: &mut Context<'_>, log: &Log) {
        if log.last() == log.committed() && self.offsets.len() > OFFSETS_RETAINED {
            self.offsets = HashMap::default();
        }
        let (now_ms, last, committed) = (cx.now.ms, log.last(), log.committed());
        let is_repeated = now_ms >= self.sent_ms + REPEAT_MS && self.is_behind(cx, log);
        if self.sent == last && self.notified == committed && !is_repeated || !cx.wire.is_connected {
            return;
        }
        let first = self.sent + 1;
        let entries = log.from(first).into_iter().flatten();
        cx.wire.send_log(None, (self.partition, self.term), first, entries, committed);
        (self.sent, self.notified, self.sent_ms) = (last, committed, now_ms);
    }

    /// Sends a node what it asks for.
    pub(crate) fn answer(&mut self, cx: &mut Context<'_>, log: &Log, to: NodeId, from: Wanted) {
        if self.is_reading() {
            return;
        }
        let named = (self.partition, self.term);
        match from {
            Wanted::Number(number) => {
                if let Some(entries) = log.from(number) {
                    let mut bytes = 0;
                    let fits = |entry: &&Entry| {
                        bytes += entry.submission.bytes();
                        bytes <= ANSWER_BYTES_MAX || bytes == entry.submission.bytes()
                    };
                    let entries: Vec<&Entry> = entries.take_while(fits).collect();
                    cx.wire.send_log(Some(to), named, number, entries.into_iter(), log.committed());
                    // It asks for the rest.
                    let body = Body::Log { first: log.last() + 1, entries: Vec::new(), committed: log.committed() };
                    return cx.wire.send(to, self.partition, self.term, body);
                }
                self.answer_rings(cx, log, to, None);
            }
            Wanted::Beginning => self.answer_rings(cx, log, to, None),
            Wanted::Cursor(cursor) => self.answer_rings(cx, log, to, Some(cursor)),
        }
    }

    fn answer_rings(&self, cx: &mut Context<'_>, log: &Log, to: NodeId, at: Option<Cursor>) {
        let sources = if at.is_none() { log.sources() } else { Vec::new() };
        let room = cx.wire.room().saturating_sub(HEAD_BYTES + sources.len() * SOURCE_BYTES);
        let copied = cx.rings.copy(self.partition.into(), at, room);
        let (next, floor, records) = (copied.next, copied.floor, copied.records);
        let part = Part { at, next, committed: log.committed(), sources, floor, records };
        cx.wire.send(to, self.partition, self.term, Body::Rings(part));
    }

    /// The list of nodes in sync, if it has to change.
    pub(crate) fn changed_list(&self, cx: &Context<'_>, claim: &Claim, log: &Log) -> Option<Vec<NodeId>> {
        let now_ms = cx.now.ms;
        let is_slow = |node: &NodeId| {
            let behind_ms = self.followers.get(node).and_then(|follower| follower.behind_ms);
            behind_ms.is_some_and(|since_ms| now_ms >= since_ms + BEHIND_MAX_MS)
        };
        let stays = |node: &NodeId| match *node {
            NodeId::JOURNAL => self.journal.is_some(),
            node if node == cx.own() => true,
            other => cx.is_alive(other) && !is_slow(node),
        };
        let mut list: Vec<NodeId> = claim.in_sync.iter().copied().filter(stays).collect();
        let is_level = |(node, follower): &(&NodeId, &Follower)| {
            let is_close = follower.staged >= log.committed() && now_ms < follower.at_ms + BEHIND_MAX_MS;
            is_close && !claim.has(**node) && cx.is_alive(**node) && !is_slow(node)
        };
        list.extend(self.followers.iter().filter(is_level).map(|(node, _)| *node));
        let is_new = |journal: &&Journal| journal.is_open() && !claim.has(NodeId::JOURNAL);
        list.extend(self.journal.as_ref().filter(is_new).map(|_| NodeId::JOURNAL));
        list.sort_unstable();
        (list != claim.in_sync).then_some(list)
    }

    /// Takes nothing more, so that another node can own the partition.
    pub(crate) fn leave_to(&mut self, node: NodeId) {
        self.next.get_or_insert(node);
    }

    /// The node that is to own the partition next.
    pub(crate) fn next(&self) -> Option<NodeId> {
        self.next
    }

    /// Takes publications again.
    pub(crate) fn stay(&mut self) {
        self.next = None;
    }

    /// The claim of the next owner, when all nodes in sync have the same log.
    pub(crate) fn passed(&self, cx: &Context<'_>, claim: &Claim, log: &Log) -> Option<Claim> {
        let next = self.next.filter(|next| claim.has(*next))?;
        let is_same = self.common(claim.in_sync.iter().copied(), cx.own(), log.last()) == log.last();
        (is_same && log.committed() == log.last()).then(|| claim.passed_to(next, claim.in_sync.clone()))
    }
}

/// The time in which a node in sync has to acknowledge something new, in milliseconds; otherwise it is in sync no more.
const BEHIND_MAX_MS: u64 = 1_000;
/// The time after which the state of the log is sent again, in milliseconds.
const REPEAT_MS: u64 = 200;
/// The bytes of entries that are sent for one request.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// The most offsets that are remembered while nothing is staged.
const OFFSETS_RETAINED: usize = 64;
