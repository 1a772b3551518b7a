//! One partition on one node: its claim, its log, and what this node does for it.
//!
//! ```text
//!              claim of another node                its owner is gone, and this node is in sync
//!   idle ──────────────────────────▶ mirror ────────────────────────────────────────────────────▶ owner
//!                                      ▲                    claim of another node                     │
//!                                      └─────────────────────────────────────────────────────────────┘
//! ```

mod claims;
mod journal;
mod log;
mod mirror;
mod owner;
mod rebuild;
mod succession;

use std::collections::VecDeque;

use bayeux::Limits;
use bytes::Bytes;
use encke_core::SessionOwner;
use encke_core::history::Lineage;

use super::claim::{Claim, first_of};
use super::context::{Context, Output};
use super::entry::{Entry, NodeId, Term};
use super::marks::Point;
use super::message::{Body, Part};
use super::sources::{Outbox, Waiting};
use crate::command::KeyReply;
use claims::Claims;
use log::Log;
use mirror::{Mirror, Read};
use owner::Owner;

/// One partition on one node.
pub(super) struct Partition {
    number: u16,
    claims: Claims,
    log: Log,
    /// The lineage of the log.
    lineage: Option<Lineage>,
    /// True until this node has had all rings for the first time: its channels have no history yet.
    is_young: bool,
    /// The entries of the log up to this number may have come with rings, which do not say when.
    known_from: u64,
    /// Times that rings have come from another node.
    reads: u64,
    role: Role,
    outbox: Outbox,
    /// The time since when nobody in sync is there, or since when there is no claim, in milliseconds.
    orphan_ms: Option<u64>,
    /// The term that this node begins with the journal.
    rebuilt: Option<Term>,
    /// True if the messages of the journal are new to the subscribers of this node.
    is_live: bool,
    /// True if the rings have messages of the log before what is read next of the journal.
    has_some: bool,
    /// The times at which the staged entries of the journal came, in milliseconds.
    came_ms: VecDeque<u64>,
    /// The owner that has written its claim again, and the number of the first entry that it has added since then. Nobody else goes on from it.
    restored: Option<(NodeId, u64)>,
}

/// The work of this node.
enum Role {
    Idle,
    Mirror(Mirror),
    Owner(Box<Owner>),
}

/// The state of a partition, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) is_owned: bool,
    pub(super) is_level: bool,
    pub(super) is_in_sync: bool,
    pub(super) in_sync: usize,
    pub(super) reads: u64,
}

impl Partition {
    pub(super) fn new(number: u16) -> Partition {
        Partition {
            number,
            claims: Claims::default(),
            log: Log::default(),
            lineage: None,
            is_young: true,
            known_from: 0,
            reads: 0,
            role: Role::Idle,
            outbox: Outbox::default(),
            orphan_ms: None,
            rebuilt: None,
            is_live: false,
            has_some: false,
            came_ms: VecDeque::new(),
            restored: None,
        }
    }

    /// The claim, for changes that the engine reports.
    pub(super) fn claim_changed(&mut self, now_ms: u64, value: &Bytes, revision: u64) {
        self.claims.changed(now_ms, value, revision);
    }

    /// The engine has no claim any more.
    pub(super) fn claim_gone(&mut self) {
        self.claims.gone();
    }

    pub(super) fn claim_written(&mut self, now_ms: u64, number: u64, answer: &KeyReply) {
        self.claims.answered(now_ms, number, answer);
    }

    /// A command about the journal has its result. Returns the number of values that are none.
    pub(super) fn journal_answered(&mut self, now_ms: u64, number: u64, answer: &KeyReply, names: &Limits) -> u64 {
        let Role::Owner(owner) = &mut self.role else { return 0 };
        owner.journal_mut().map_or(0, |journal| journal.answered(now_ms, number, answer, names))
    }

    pub(super) fn watch_begins(&mut self) {
        self.claims.watch_begins();
        // The time of a break does not count: owners could not come back in it.
        self.orphan_ms = None;
    }

    pub(super) fn watch_is_complete(&mut self) {
        self.claims.watch_is_complete();
    }

    /// The engine has lost its last writes.
    pub(super) fn rolled_back(&mut self) {
        self.claims.rolled_back();
    }

    /// A publication of this node. `publisher`: its user or address; None: the program.
    pub(super) fn publish(&mut self, publisher: Option<SessionOwner>, waiting: Waiting) {
        self.outbox.add(publisher, waiting);
    }

    /// This node has not looked for a while.
    pub(super) fn resume(&mut self, now_ms: u64) {
        if let Role::Owner(owner) = &mut self.role {
            owner.resume(now_ms);
        }
    }

    fn is_complete(&self) -> bool {
        match &self.role {
            Role::Idle => false,
            Role::Mirror(mirror) => mirror.is_complete(),
            Role::Owner(owner) => !owner.is_reading(),
        }
    }

    fn term(&self) -> Option<Term> {
        match &self.role {
            Role::Idle => None,
            Role::Mirror(mirror) => Some(mirror.term()),
            Role::Owner(owner) => Some(owner.term()),
        }
    }

    /// Takes a message of another node.
    pub(super) fn received(&mut self, cx: &mut Context<'_>, from: NodeId, term: Term, body: Body) {
        self.follow_claim(cx);
        if self.term() != Some(term) {
            return self.compare_terms(cx, from, term, &body);
        }
        match (&mut self.role, body) {
            (Role::Mirror(mirror), Body::Log { first, entries, committed }) if mirror.owner() == from => {
                mirror.received(&mut self.log, first, entries, committed);
            }
            (Role::Mirror(mirror), Body::Rings(part)) if mirror.owner() == from => {
                let read = mirror.read(&self.log, &part);
                self.read_rings(cx, &part, &read);
            }
            (Role::Mirror(mirror), Body::Expect(number)) if mirror.owner() == from => self.outbox.expects(number),
            (Role::Owner(owner), Body::Ack { staged, committed }) => {
                owner.acknowledged(cx.now.ms, from, (staged, committed), self.log.last());
            }
            (Role::Owner(owner), Body::Fetch(wanted)) => owner.answer(cx, &self.log, from, wanted),
            (Role::Owner(owner), Body::Submit { done, first, submissions }) => {
                if let Err(expected) = owner.submit(cx, &mut self.log, from, (done, first), submissions.into_iter()) {
                    cx.wire.send(from, self.number, term, Body::Expect(expected));
                }
            }
            _ => {}
        }
    }

    /// A node knows another term. The later one holds: an owner that gets to know of it stops.
    fn compare_terms(&mut self, cx: &mut Context<'_>, from: NodeId, term: Term, body: &Body) {
        let Some(own) = self.term() else { return };
        if own.is_later_than(term) && matches!(body, Body::Log { .. }) {
            let body = Body::Log { first: self.log.last() + 1, entries: Vec::new(), committed: 0 };
            cx.wire.send(from, self.number, own, body);
        } else if term.is_later_than(own) && matches!(self.role, Role::Owner(_)) {
            self.claims.suspect();
        }
    }

    /// Adds rings of the owner to those of this node.
    fn read_rings(&mut self, cx: &mut Context<'_>, part: &Part, read: &Read) {
        let Some(lineage) = self.lineage else { return };
        match read {
            Read::Other => return,
            Read::Begins => {
                self.reads += 1;
                self.known_from = 0;
                self.log = Log::at(part.committed, &part.sources);
                self.settle_done(cx);
            }
            Read::Continues => {}
        }
        self.known_from = self.known_from.max(part.committed);
        for record in &part.records {
            cx.rings.restore(lineage, record, !self.is_young);
        }
        cx.rings.raise_floor(self.number.into(), lineage, part.floor);
        if self.is_complete() && std::mem::take(&mut self.is_young) {
            cx.rings.begin(self.number.into(), lineage);
        }
    }

    /// The log has publications of this node that it has not seen there.
    fn settle_done(&mut self, cx: &mut Context<'_>) {
        let done = self.log.committed_of(cx.own());
        while self.outbox.done() < done
            && let Some(waiting) = self.outbox.committed(cx.now.ms, self.outbox.done() + 1)
        {
            settle(cx, waiting);
        }
    }

    /// Does what the claim says.
    fn follow_claim(&mut self, cx: &mut Context<'_>) {
        let Some(claim) = self.claims.claim() else { return };
        let (term, is_owner) = (claim.term(), claim.owner == cx.own());
        // Two nodes may have had the same number, if the engine has lost its keys.
        let is_same = match &self.role {
            Role::Idle => false,
            Role::Mirror(mirror) => mirror.owner() == claim.owner,
            Role::Owner(_) => is_owner,
        };
        if is_same && self.term() == Some(term) {
            return;
        }
        let mut is_complete = self.is_complete();
        match self.restored.take() {
            Some((owner, from)) if owner == claim.owner => self.restored = Some((owner, from)),
            Some((_, from)) => self.log.truncate_from(from),
            None => {}
        }
        let from = self.restored.map_or(self.log.last() + 1, |(_, from)| from);
        self.restored = claim.is_restored().then_some((claim.owner, from));
        let is_rebuilt = is_owner && self.rebuilt == Some(term);
        self.came_ms.clear();
        self.has_some = self.log.committed() > 0;
        self.is_live = !self.is_young;
        if self.lineage != Some(claim.lineage) {
            self.lineage = Some(claim.lineage);
            (self.log, self.known_from) = (Log::default(), 0);
            // A log begins with empty rings. But a node that has just come would pass all messages to its subscribers as new ones.
            is_complete = is_owner || !self.is_young;
            if is_complete {
                self.is_young = false;
                cx.rings.begin(self.number.into(), claim.lineage);
            }
        } else if is_rebuilt && !is_complete {
            // Its rings get all that the journal has.
            self.log = Log::default();
            if std::mem::take(&mut self.is_young) {
                cx.rings.begin(self.number.into(), claim.lineage);
                // That which it has read of another node before is not all.
                cx.rings.clear(self.number.into());
                self.has_some = false;
            }
        } else if is_rebuilt || !claim.has(cx.own()) {
            // The new owner, or the journal, may not have them.
            self.log.truncate();
        }
        self.role = if is_owner {
            Role::Owner(Box::new(Owner::new(cx, self.number, claim, &self.log, is_rebuilt)))
        } else {
            Role::Mirror(Mirror::new(self.number, term, claim.owner, is_complete))
        };
    }

    /// Does what has to be done.
    pub(super) fn turn(&mut self, cx: &mut Context<'_>) {
        self.claims.turn(cx, self.number);
        self.follow_claim(cx);
        self.care_for_claim(cx);
        if self.is_rebuilding(cx) {
            return;
        }
        self.submit(cx);
        if let Role::Owner(owner) = &mut self.role {
            // Entries that were sent before are committed first, so that one message has both.
            let limit = owner.committable(cx, &self.claims, &self.log).min(owner.sent());
            self.commit(cx, limit);
        }
        if let Role::Owner(owner) = &mut self.role {
            owner.send(cx, &self.log);
            owner.turn_journal(cx, &self.claims, &self.log);
            let limit = owner.committable(cx, &self.claims, &self.log);
            self.commit(cx, limit);
        }
        match &mut self.role {
            Role::Owner(owner) => owner.send(cx, &self.log),
            Role::Mirror(mirror) => {
                let limit = mirror.committable();
                self.commit(cx, limit);
            }
            Role::Idle => {}
        }
        if let Role::Mirror(mirror) = &mut self.role {
            let is_in_sync = self.claims.claim().is_none_or(|claim| claim.has(cx.own()));
            mirror.send(cx, &self.log, is_in_sync);
        }
    }

    /// Applies entries up to this number.
    fn commit(&mut self, cx: &mut Context<'_>, limit: u64) {
        while self.log.committed() < limit
            && cx.rings.has_room(self.number.into())
            && let Some(entry) = self.log.commit()
        {
            let Entry { source, sequence, .. } = entry;
            let own = if source == cx.own() { self.outbox.committed(cx.now.ms, sequence) } else { None };
            cx.rings.commit(&entry, own.as_ref().filter(|own| own.is_whole).and_then(|own| own.token));
            own.into_iter().for_each(|own| settle(cx, own));
        }
    }

    /// Sends publications of this node to the owner.
    fn submit(&mut self, cx: &mut Context<'_>) {
        if self.outbox.is_empty() {
            return;
        }
        match &mut self.role {
            Role::Owner(owner) => {
                while let Some((first, next)) = self.outbox.next(cx.now.ms, owner.term(), usize::MAX) {
                    let done = self.outbox.done();
                    let own = cx.own();
                    if let Err(expected) = owner.submit(cx, &mut self.log, own, (done, first), next.into_iter()) {
                        self.outbox.expects(expected);
                        break;
                    }
                }
            }
            Role::Mirror(mirror) if cx.wire.is_connected => {
                let (owner, term) = (mirror.owner(), mirror.term());
                while let Some((first, submissions)) = self.outbox.next(cx.now.ms, term, cx.wire.room()) {
                    let body = Body::Submit { done: self.outbox.done(), first, submissions };
                    cx.wire.send(owner, self.number, term, body);
                }
            }
            Role::Mirror(_) | Role::Idle => {}
        }
    }

    /// Passes the partition on to the node that it belongs to, if this is another one and it is in sync. True if that begins.
    pub(super) fn give_to_rightful(&mut self, cx: &Context<'_>) -> bool {
        let rightful = first_of(cx.members.settled(cx.now.ms), self.number);
        rightful.is_some_and(|rightful| self.give(cx, rightful))
    }

    /// Passes the partition on to another node in sync, because this one ends.
    pub(super) fn give_away(&mut self, cx: &Context<'_>) {
        let in_sync = self.claims.claim().map_or(&[][..], |claim| &claim.in_sync);
        let others = in_sync.iter().copied().filter(|node| *node != cx.own() && cx.is_alive(*node));
        if let Some(other) = first_of(others, self.number) {
            self.give(cx, other);
        }
    }

    fn give(&mut self, cx: &Context<'_>, to: NodeId) -> bool {
        let (Role::Owner(owner), Some(claim)) = (&mut self.role, self.claims.claim()) else { return false };
        if to == cx.own() || !claim.has(to) || owner.next().is_some() {
            return false;
        }
        owner.leave_to(to);
        true
    }

    /// True if the partition is to be passed on.
    pub(super) fn is_given(&self) -> bool {
        matches!(&self.role, Role::Owner(owner) if owner.next().is_some())
    }

    /// Gives up passing it on, unless the claim of the next owner may hold already.
    pub(super) fn stay(&mut self) {
        if let (Role::Owner(owner), None) = (&mut self.role, self.claims.written()) {
            owner.stay();
        }
    }

    /// True if another node in sync could own the partition, which this one does.
    pub(super) fn may_be_given(&self, own: NodeId) -> bool {
        let has_other = |claim: &Claim| claim.nodes().any(|node| node != own);
        matches!(self.role, Role::Owner(_)) && self.claims.claim().is_some_and(has_other)
    }

    /// True if publications of this node are not committed.
    pub(super) fn has_pending(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// True if something has to be done soon.
    pub(super) fn is_busy(&self, own: NodeId) -> bool {
        let has_claim = self.claims.claim().is_some_and(|claim| claim.has(own) && !claim.is_restored());
        let rests = match &self.role {
            Role::Idle => false,
            Role::Mirror(mirror) => mirror.is_level(),
            Role::Owner(owner) => owner.rests(&self.log),
        };
        !rests
            || !has_claim
            || self.claims.written().is_some()
            || self.claims.is_doubtful()
            || self.claims.is_suspect()
            || !self.outbox.is_empty()
            || self.log.staged_bytes() > 0
    }

    /// The point up to which this node has delivered the log. None while it does not have all before it.
    pub(super) fn point(&self) -> Option<Point> {
        let lineage = self.lineage.filter(|_| self.is_complete() && !self.is_young)?;
        Some(Point { seed: lineage.seed, number: self.log.committed() })
    }

    /// The number in the log from which on entries have come one by one.
    pub(super) fn known_from(&self) -> u64 {
        self.known_from
    }

    /// The state, for metrics.
    pub(super) fn state(&self, own: NodeId) -> State {
        let claim = self.claims.claim();
        State {
            is_owned: matches!(self.role, Role::Owner(_)),
            is_level: self.is_complete(),
            reads: self.reads,
            is_in_sync: claim.is_some_and(|claim| claim.has(own) && !claim.is_restored()),
            in_sync: claim.map_or(0, |claim| claim.nodes().count()),
        }
    }
}

/// The publisher gets its reply.
fn settle(cx: &mut Context<'_>, waiting: Waiting) {
    let Waiting { token, share, .. } = waiting;
    cx.wire.freed.extend(share);
    token.into_iter().for_each(|token| cx.wire.push(Output::Settled(token, true)));
}
