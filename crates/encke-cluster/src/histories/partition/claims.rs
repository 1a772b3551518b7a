//! The claim of a partition as a node knows it, and the write of the next one.
//!
//! A write is never given up: the engine may have executed it though its answer was lost. Until the claim shows the outcome, both the
//! claim before it and the written one may hold.

use bytes::Bytes;

use crate::command::{Expected, KeyAnswer, KeyFailure, KeyReply};
use crate::histories::claim::Claim;
use crate::histories::context::Context;
use crate::histories::entry::NodeId;
use crate::histories::members::GONE_MS;

/// The claim of one partition.
#[derive(Default)]
pub(crate) struct Claims {
    known: Option<Known>,
    /// The last one, if the engine has none any more.
    lost: Option<Claim>,
    /// An older revision than the known one: a stale value, unless it stays.
    older: Option<(Known, u64)>,
    write: Option<Write>,
    /// True if the running watch has reported the key.
    is_reported: bool,
}

struct Known {
    claim: Claim,
    revision: u64,
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
    /// Another revision is there, which may be this write: the watch brings it.
    Refused,
}

impl Claims {
    /// The claim that holds, as far as it is known.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        self.known.as_ref().map(|known| &known.claim)
    }

    /// The last claim, if the engine has lost it.
    pub(crate) fn lost(&self) -> Option<&Claim> {
        self.lost.as_ref()
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

    /// Begins to write a claim over the known one. Nothing is done while another write has no outcome.
    pub(crate) fn write(&mut self, cx: &mut Context<'_>, partition: u16, claim: Claim) {
        if self.write.is_some() || !cx.wire.is_connected {
            return;
        }
        let expected = self.known.as_ref().map_or(Expected::Absent, |known| Expected::Revision(known.revision));
        let number = cx.write_claim(partition, &claim, expected);
        self.write = Some(Write { claim, expected, number, phase: Phase::Sent });
    }

    /// Sends a failed write again, and believes an older revision that stays.
    pub(crate) fn turn(&mut self, cx: &mut Context<'_>, partition: u16) {
        if let Some((older, _)) = self.older.take_if(|(_, since_ms)| cx.now.ms >= *since_ms + GONE_MS) {
            // The engine has lost its keys, and the claim was made again. An owner does not go back in its own.
            let own = self.claim().filter(|claim| claim.owner == cx.own());
            if own.is_none_or(|own| own.lineage != older.claim.lineage) {
                (self.known, self.write) = (Some(older), None);
            }
        }
        if let Some(write) = self.write.as_mut()
            && let Phase::Again(due_ms) = write.phase
            && due_ms <= cx.now.ms
            && cx.wire.is_connected
        {
            write.phase = Phase::Sent;
            write.number = cx.write_claim(partition, &write.claim, write.expected);
        }
    }

    /// A command for a write has ended.
    pub(crate) fn answered(&mut self, now_ms: u64, number: u64, answer: &KeyReply) {
        let Some(write) = self.write.as_mut().filter(|write| write.number == number) else { return };
        match answer {
            Ok(KeyAnswer::Written(revision)) => {
                let claim = write.claim.clone();
                self.learn(now_ms, claim, *revision);
            }
            Err(KeyFailure::Conflict) => write.phase = Phase::Refused,
            _ => write.phase = Phase::Again(now_ms + RETRY_MS),
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
        let is_stale = |known: &Known| {
            // The numbers of a lineage only grow, though revisions begin again when the engine loses its keys.
            let is_later = claim.lineage == known.claim.lineage && claim.number > known.claim.number;
            revision < known.revision && !is_later
        };
        if self.known.as_ref().is_some_and(is_stale) {
            self.older = Some((Known { claim, revision }, now_ms));
            return;
        }
        self.older = None;
        // A revision stands for one claim. If it is another one, the engine has lost its keys, and has come to the same revision again.
        if self.known.as_ref().is_none_or(|known| revision != known.revision || claim != known.claim) {
            self.known = Some(Known { claim, revision });
            self.lost = None;
            // Any later revision is the outcome: this write, or one that has excluded it.
            self.write = None;
        }
    }

    /// The key is gone.
    pub(crate) fn gone(&mut self) {
        self.is_reported = false;
        if let Some(known) = self.known.take() {
            self.lost = Some(known.claim);
        }
        (self.older, self.write) = (None, None);
    }

    /// A watch begins.
    pub(crate) fn watch_begins(&mut self) {
        self.is_reported = false;
    }

    /// A watch has reported all keys.
    pub(crate) fn watch_is_complete(&mut self) {
        if !self.is_reported {
            self.gone();
        }
    }
}

/// The time before a failed write is sent again, in milliseconds.
const RETRY_MS: u64 = 300;

#[cfg(test)]
mod tests {
    use encke_core::history::Lineage;

    use super::*;

    fn claim(owner: u64, number: u64, in_sync: &[u64]) -> Claim {
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
    }
}
