//! The claim of a partition as a node knows it, and the write of the next one.
//!
//! A write is never given up: the engine may have executed it though its answer was lost. Until the claim shows the outcome, both the
//! claim before it and the written one may hold.
//!
//! When the engine has lost its keys, or has older ones again, the owner writes its claim again, and others may come back to the engine before
//! the owner of a later claim. So a claim that is behind the last one that this node knows is never followed.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::command::{Expected, KeyAnswer, KeyFailure, KeyReply};
use crate::histories::claim::Claim;
use crate::histories::context::Context;
#[cfg(test)]
use crate::histories::context::Sabotage;
use crate::histories::entry::NodeId;
use crate::histories::members::GONE_MS;

/// The claim of one partition.
#[derive(Default)]
pub(crate) struct Claims {
    known: Option<Known>,
    /// The last claim that this node has known, if the engine has lost it.
    lost: Option<Known>,
    /// A value of the key that is not believed.
    other: Option<Other>,
    /// The seeds that others have followed, as far as this node knows; the latest is the last one.
    past: VecDeque<u64>,
    /// True if the running watch has brought the known claim as a new one.
    is_new: bool,
    /// True if a claim after the known one may have held, which the engine has lost.
    is_suspect: bool,
    write: Option<Write>,
    /// True if the running watch has reported the key.
    is_reported: bool,
}

struct Known {
    claim: Claim,
    revision: u64,
}

/// A stale value, unless it stays; or the claim of an owner that does not know of the last one.
struct Other {
    known: Known,
    /// The time when it was reported, in milliseconds.
    since_ms: u64,
}

struct Write {
    claim: Claim,
    expected: Expected,
    /// The number of the last command for it.
    number: u64,
    phase: Phase,
}

/// The state of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It is on its way.
    Sent,
    /// It has failed and may have been done: it is sent again at this time, in milliseconds.
    Again(u64),
    /// Another revision is there since this time, in milliseconds. It may be this write: the watch brings it.
    Refused(u64),
    /// The watch has not, so the key is read.
    Reads,
}

impl Claims {
    /// The claim that holds, as far as it is known.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        self.known.as_ref().map(|known| &known.claim)
    }

    /// The last claim, if the engine has lost it.
    pub(crate) fn lost(&self) -> Option<&Claim> {
        self.lost.as_ref().map(|known| &known.claim)
    }

    /// True if a claim after this one may have held, which the engine has lost: its owner has to write it again.
    pub(crate) fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// A later owner is there, whose claim is not.
    pub(crate) fn suspect(&mut self) {
        self.is_suspect = self.known.is_some();
    }

    /// The engine has lost its last writes.
    pub(crate) fn rolled_back(&mut self) {
        if !self.is_new {
            self.suspect();
        }
    }

    /// True if the key may have another value than the known claim: nothing is done by it.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.known.is_some() && self.other.is_some()
    }

    /// True if the key has a value, as far as it is known.
    pub(crate) fn has_value(&self) -> bool {
        self.known.is_some() || self.other.is_some()
    }

    /// The last number that this node knows; 0 if there is none.
    pub(crate) fn last_number(&self) -> u64 {
        let other = self.other.as_ref().map(|other| other.known.claim.number);
        [self.last().map(|last| last.number), other].into_iter().flatten().max().unwrap_or_default()
    }

    fn last(&self) -> Option<&Claim> {
        self.claim().or(self.lost())
    }

    /// The claim that is being written.
    pub(crate) fn written(&self) -> Option<&Claim> {
        self.write.as_ref().map(|write| &write.claim)
    }

    /// The nodes without whose acknowledgement nothing is committed: those of all claims that may hold.
    pub(crate) fn required(&self) -> impl Iterator<Item = NodeId> {
        let claims = self.claim().into_iter().chain(self.written());
        claims.flat_map(|claim| claim.in_sync.iter().copied())
    }

    /// Begins to write a claim over the value of the key. Nothing is done while another write has no outcome.
    pub(crate) fn write(&mut self, cx: &mut Context<'_>, partition: u16, claim: Claim) {
        if self.write.is_some() || !cx.wire.is_connected {
            return;
        }
        let value = self.known.as_ref().or(self.other.as_ref().map(|other| &other.known));
        let expected = value.map_or(Expected::Absent, |known| Expected::Revision(known.revision));
        let number = cx.write_claim(partition, &claim, expected);
        self.write = Some(Write { claim, expected, number, phase: Phase::Sent });
    }

    /// Sends a failed write again, and believes an older revision that stays.
    pub(crate) fn turn(&mut self, cx: &mut Context<'_>, partition: u16) {
        self.compare(cx);
        if let Some(write) = self.write.as_mut()
            && let Phase::Again(due_ms) = write.phase
            && due_ms <= cx.now.ms
            && cx.wire.is_connected
            // Before, the watch of this connection may show that the engine has lost its keys.
            && cx.knows_all
        {
            write.phase = Phase::Sent;
            write.number = cx.write_claim(partition, &write.claim, write.expected);
        }
        if let Some(write) = self.write.as_mut()
            && let Phase::Refused(since_ms) = write.phase
            && since_ms + GONE_MS <= cx.now.ms
            && cx.wire.is_connected
        {
            write.phase = Phase::Reads;
            write.number = cx.read_claim(partition);
        }
    }

    /// Finds out if the engine has lost the known claim, when the key has another value.
    fn compare(&mut self, cx: &Context<'_>) {
        let (Some(known), Some(other)) = (&self.known, &self.other) else { return };
        let stays = cx.now.ms >= other.since_ms + GONE_MS;
        let of = &other.known.claim;
        let is_behind = of.is_restored() && self.is_behind(of);
        let is_older = is_behind || of.lineage == known.claim.lineage || self.past.contains(&of.lineage.seed);
        let is_followed = of.in_sync.iter().any(|node| cx.is_alive(*node));
        #[cfg(test)]
        let (is_older, is_followed) =
            if cx.is_broken(Sabotage::BelievesOlder) { (is_behind, true) } else { (is_older, is_followed) };
        // To write over a stale value fails, but a write on its way would be given up. Others wait for the owner.
        let is_own = is_older && known.claim.owner == cx.own();
        if (is_behind || is_own) && self.write.is_none() || stays && (is_older || !is_followed) {
            self.lose();
        } else if stays {
            self.believe_other();
        }
    }

    fn believe_other(&mut self) {
        if let Some(Other { known, .. }) = self.other.take() {
            (self.known, self.lost, self.write) = (Some(known), None, None);
            (self.is_new, self.is_suspect) = (true, false);
        }
    }

    /// Follows a claim of another lineage that goes on, because nobody has come who has the messages of the lost one. True if it does.
    pub(crate) fn follow_other(&mut self, cx: &Context<'_>) -> bool {
        let (None, Some(lost), Some(other)) = (&self.known, &self.lost, &self.other) else { return false };
        let claim = &other.known.claim;
        let goes_on = claim.lineage != lost.claim.lineage && !claim.is_restored() && cx.is_alive(claim.owner);
        if goes_on {
            self.believe_other();
        }
        goes_on
    }

    /// A command for a write has ended.
    pub(crate) fn answered(&mut self, now_ms: u64, number: u64, answer: &KeyReply) {
        let Some(write) = self.write.as_mut().filter(|write| write.number == number) else { return };
        match answer {
            Ok(KeyAnswer::Written(revision)) => {
                let claim = write.claim.clone();
                self.learn(now_ms, claim, *revision);
            }
            Ok(KeyAnswer::Found(found)) => {
                let found = found.as_ref().and_then(|(revision, value)| Some((*revision, Claim::read(value)?)));
                self.found(now_ms, found);
            }
            Err(KeyFailure::Conflict) => write.phase = Phase::Refused(now_ms),
            _ if write.phase == Phase::Reads => write.phase = Phase::Refused(now_ms),
            _ => write.phase = Phase::Again(now_ms + RETRY_MS),
        }
    }

    /// The key has this value, if any, after a write over another one was refused.
    fn found(&mut self, now_ms: u64, found: Option<(u64, Claim)>) {
        let Some(write) = &mut self.write else { return };
        match (found, &mut self.known) {
            // The engine has lost the last writes of its owner, but none of another one.
            (Some((revision, claim)), Some(known))
                if revision < known.revision && claim.term() == known.claim.term() && !self.is_suspect =>
            {
                (known.revision, write.expected) = (revision, Expected::Revision(revision));
                write.phase = Phase::Again(now_ms);
            }
            (Some((revision, claim)), known)
                if known.as_ref().is_none_or(|known| (revision, &claim) != (known.revision, &known.claim)) =>
            {
                write.phase = Phase::Refused(now_ms);
                self.learn(now_ms, claim, revision);
            }
            _ => write.phase = Phase::Again(now_ms),
        }
    }

    /// The key has this value.
    pub(crate) fn changed(&mut self, now_ms: u64, value: &Bytes, revision: u64) {
        self.is_reported = true;
        // Another program, or a later version, has written it: nothing is done until that changes.
        if let Some(claim) = Claim::read(value) {
            self.learn(now_ms, claim, revision);
        }
    }

    fn learn(&mut self, now_ms: u64, claim: Claim, revision: u64) {
        if self.is_behind(&claim) || self.is_stale(&claim, revision) {
            let since_ms = self.other.as_ref().map_or(now_ms, |other| other.since_ms);
            self.other = Some(Other { known: Known { claim, revision }, since_ms });
            if self.known.is_none() {
                // It expects that there is no key, or another value.
                self.write = None;
            }
            return;
        }
        self.other = None;
        // A revision stands for one claim. If it is another one, the engine has lost its keys, and has come to the same revision again.
        if self.known.as_ref().is_none_or(|known| revision != known.revision || claim != known.claim) {
            self.note_past(&claim, revision);
            self.known = Some(Known { claim, revision });
            self.lost = None;
            (self.is_new, self.is_suspect) = (true, false);
            // Any later revision is the outcome: this write, or one that has excluded it.
            self.write = None;
        }
    }

    /// True if the owner of a claim does not know of the last one that this node knows.
    fn is_behind(&self, claim: &Claim) -> bool {
        let Some(last) = self.last() else { return false };
        if claim.lineage != last.lineage {
            let is_past = self.past.contains(&claim.lineage.seed);
            return claim.is_restored() && (is_past || claim.number < last.number);
        }
        claim.number < last.number || (claim.number == last.number && claim.owner != last.owner)
    }

    /// True if a value may be older than the last one.
    fn is_stale(&self, claim: &Claim, revision: u64) -> bool {
        let is_past = self.past.contains(&claim.lineage.seed);
        match (&self.known, &self.lost) {
            // Numbers only grow, though revisions begin again when the engine loses its keys.
            (Some(known), _) => revision < known.revision && (is_past || claim.number <= known.claim.number),
            (None, Some(lost)) if claim.lineage == lost.claim.lineage => {
                claim.number == lost.claim.number && revision < lost.revision
            }
            (None, _) => is_past,
        }
    }

    /// This claim follows the last one.
    fn note_past(&mut self, claim: &Claim, revision: u64) {
        let is_next = |known: &&Known| known.claim.lineage != claim.lineage && revision > known.revision;
        let lost = self.lost.as_ref().filter(|lost| lost.claim.lineage != claim.lineage && !claim.is_restored());
        if let Some(Known { claim: before, .. }) = self.known.as_ref().filter(is_next).or(lost) {
            self.past.push_back(before.lineage.seed);
            self.past.retain(|seed| *seed != claim.lineage.seed);
            if self.past.len() > PAST_MAX {
                self.past.pop_front();
            }
        }
    }

    /// The key is gone.
    pub(crate) fn gone(&mut self) {
        (self.is_reported, self.other) = (false, None);
        self.lose();
    }

    /// The engine does not have the last claim any more. A write of which nobody knows the outcome may have held, too, with its list.
    fn lose(&mut self) {
        let written = self.write.take().map(|write| write.claim);
        if let Some(Known { claim, revision }) = self.known.take() {
            let written = written.filter(|written| written.lineage == claim.lineage);
            let in_sync = written.into_iter().flat_map(|written| written.in_sync).chain(claim.in_sync.iter().copied());
            self.lost = Some(Known { claim: claim.with(in_sync.collect()), revision });
            self.is_suspect = false;
        }
    }

    /// A watch begins.
    pub(crate) fn watch_begins(&mut self) {
        (self.is_reported, self.is_new) = (false, false);
    }

    /// A watch has reported all keys.
    pub(crate) fn watch_is_complete(&mut self) {
        if !self.is_reported {
            self.gone();
        }
    }
}

/// The seeds of before that are remembered, for each partition.
const PAST_MAX: usize = 16;
/// The time before a failed write is sent again, in milliseconds.
const RETRY_MS: u64 = 300;

#[cfg(test)]
mod tests {
    use encke_core::history::Lineage;

    use super::*;
    use crate::histories::claim::next_number;

    /// A claim of the owner with this number.
    fn claim(owner: u64, number: u64, in_sync: &[u64]) -> Claim {
        let number = (0..number).fold(0, |number, _| next_number(number));
        let in_sync = in_sync.iter().copied().map(NodeId).collect();
        Claim { owner: NodeId(owner), number, lineage: Lineage { seed: 7, first: 100 }, in_sync }
    }

    /// The claims of a node that was cut off while the engine lost its keys: `before` was there then, and `after` is there now.
    fn known(before: (Claim, u64), after: (Claim, u64)) -> Claims {
        let mut claims = Claims::default();
        claims.changed(0, &before.0.write(), before.1);
        claims.watch_begins();
        claims.changed(1_000, &after.0.write(), after.1);
        claims.watch_is_complete();
        claims
    }

    #[test]
    fn another_claim_at_a_known_revision_holds_because_the_engine_has_lost_its_keys() {
        let claims = known((claim(1, 1, &[1, 2]), 9), (claim(1, 1, &[1]), 9));
        assert_eq!(claims.claim(), Some(&claim(1, 1, &[1])), "node 2 is not in sync any more");
    }

    #[test]
    fn a_later_claim_of_a_lineage_holds_though_its_revision_is_lower() {
        let claims = known((claim(1, 1, &[1, 2]), 318), (claim(2, 2, &[2]), 108));
        assert_eq!(claims.claim(), Some(&claim(2, 2, &[2])), "node 1 owns it no more");
        let claims = known((claim(1, 1, &[1, 2]), 318), (claim(1, 1, &[1]), 108));
        assert_eq!(claims.claim(), Some(&claim(1, 1, &[1, 2])), "it may be a stale value");
        assert!(claims.is_doubtful());
    }

    #[test]
    fn a_restored_claim_of_an_owner_that_was_succeeded_is_never_followed() {
        let (last, restored) = (claim(2, 2, &[2, 3]), claim(1, 1, &[1, 2, 3]).restored());
        let claims = known((last.clone(), 318), (restored.clone(), 5));
        assert_eq!((claims.claim(), claims.is_doubtful()), (Some(&last), true));
        let claims = known((claim(1, 1, &[1, 2, 3]), 318), (restored.clone(), 5));
        assert_eq!(claims.claim(), Some(&restored), "it is the last one");
        let mut claims = known((last.clone(), 318), (last.clone(), 318));
        claims.gone();
        claims.changed(2_000, &restored.write(), 5);
        assert_eq!((claims.claim(), claims.lost()), (None, Some(&last)), "the key is gone before");
        claims.changed(3_000, &last.restored().write(), 6);
        assert_eq!(claims.claim(), Some(&last.restored()));
    }
}
