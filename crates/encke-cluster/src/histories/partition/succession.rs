//! The claims that a node makes: of a partition that it owns, and of one whose owner is gone.

use encke_core::history::{Lineage, first_offset};

use super::{Partition, Role};
use crate::histories::claim::{Claim, first_of, next_number};
use crate::histories::context::Context;
#[cfg(test)]
use crate::histories::context::Sabotage;
use crate::histories::entry::NodeId;

impl Partition {
    /// Writes the claim if it has to change.
    pub(super) fn care_for_claim(&mut self, cx: &mut Context<'_>) {
        if self.claims.written().is_some() || self.claims.is_doubtful() || !cx.has_lease() || !cx.sees_others() {
            return;
        }
        let next = match self.claims.claim() {
            Some(claim) if claim.owner == cx.own() && claim.is_restored() => {
                let claim = claim.clone();
                self.go_on(cx, &claim)
            }
            Some(claim) if self.claims.is_suspect() && (claim.owner == cx.own() || !cx.is_alive(claim.owner)) => {
                let claim = claim.clone();
                self.claim_after(cx, Some(&claim))
            }
            Some(claim) if claim.owner == cx.own() => {
                self.orphan_ms = None;
                let Role::Owner(owner) = &mut self.role else { return };
                if owner.has_lost_journal() {
                    Some(self.new_claim(cx))
                } else if owner.is_reading() {
                    None
                } else {
                    owner.forget_gone(cx, claim);
                    let list = owner.changed_list(cx, claim, &self.log).map(|list| claim.with(list));
                    list.or_else(|| owner.passed(cx, claim, &self.log))
                }
            }
            Some(claim) if cx.is_alive(claim.owner) => {
                self.orphan_ms = None;
                None
            }
            Some(claim) => {
                let claim = claim.clone();
                self.succeed(cx, &claim)
            }
            None => {
                let lost = self.claims.lost().cloned();
                self.claim_after(cx, lost.as_ref())
            }
        };
        if let Some(next) = next {
            self.claims.write(cx, self.number, next);
        }
    }

    /// The claim of this node after one that it has written again: when all nodes in sync follow it, none of them has owned the partition
    /// before the engine has lost its keys, and nobody else could.
    fn go_on(&mut self, cx: &mut Context<'_>, claim: &Claim) -> Option<Claim> {
        let Role::Owner(owner) = &self.role else { return None };
        let is_followed = owner.is_followed_by(&claim.in_sync, cx.own());
        #[cfg(test)]
        let is_followed = is_followed || cx.is_broken(Sabotage::GoesOnAlone);
        // A node that has begun the partition again meanwhile comes back at about the same time.
        if is_followed && cx.now.ms >= *self.orphan_ms.get_or_insert(cx.now.ms) + SETTLE_MS {
            self.orphan_ms = None;
            return Some(claim.passed_to(cx.own(), claim.in_sync.clone()));
        }
        self.begin_again(cx, ORPHAN_MS)
    }

    /// The claim of this node after an owner that is gone, if it is for this node to make.
    fn succeed(&mut self, cx: &mut Context<'_>, claim: &Claim) -> Option<Claim> {
        let own = cx.own();
        if claim.is_restored() {
            return self.begin_again_as_first(cx, ORPHAN_MS);
        }
        let candidates = claim.in_sync.iter().copied().filter(|node| cx.is_alive(*node));
        if let Some(first) = first_of(candidates, self.number) {
            self.orphan_ms = None;
            let may_succeed = first == own && self.is_complete() && self.term() == Some(claim.term());
            return may_succeed.then(|| claim.passed_to_one(own, cx.wire.has_journal));
        }
        #[cfg(test)]
        if cx.is_broken(Sabotage::SucceedsFromOutside) && self.is_complete() {
            return Some(claim.passed_to_one(own, cx.wire.has_journal));
        }
        let wait_ms = if claim.in_sync.iter().any(|node| cx.members.is_known(*node)) { ORPHAN_MS } else { SETTLE_MS };
        if claim.has(NodeId::JOURNAL) && cx.wire.has_journal {
            return self.rebuild_as_first(cx, claim, wait_ms);
        }
        self.begin_again_as_first(cx, wait_ms)
    }

    /// The claim of this node for a partition without one that it can follow, if it is for this node to make. `lost`: the last one, which the
    /// engine has lost, or after which it may have lost others.
    fn claim_after(&mut self, cx: &mut Context<'_>, lost: Option<&Claim>) -> Option<Claim> {
        let wait_ms = match lost {
            // This node has all, unless another one was the owner meanwhile.
            Some(lost)
                if lost.owner == cx.own()
                    && self.term() == Some(lost.term())
                    && self.is_complete()
                    && !may_be_rebuilt(cx, lost) =>
            {
                self.orphan_ms = None;
                return Some(lost.restored());
            }
            // Its owner has all, too, and may come back to the engine later than this node.
            Some(_) => ORPHAN_MS,
            None => SETTLE_MS,
        };
        // The first one may follow a claim that this one does not.
        let is_alone = self.claims.has_value() && !self.is_first(cx);
        if !is_alone {
            return self.begin_again_as_first(cx, wait_ms);
        }
        self.begin_again(cx, 2 * wait_ms)
    }

    /// As [`Partition::begin_again`], if that is for this node to do.
    fn begin_again_as_first(&mut self, cx: &mut Context<'_>, wait_ms: u64) -> Option<Claim> {
        self.orphan_ms.get_or_insert(cx.now.ms);
        if self.is_first(cx) { self.begin_again(cx, wait_ms) } else { None }
    }

    /// A claim with a new lineage, when nobody who has the messages for certain has been there for so long.
    fn begin_again(&mut self, cx: &mut Context<'_>, wait_ms: u64) -> Option<Claim> {
        (self.has_waited(cx, wait_ms) && !self.claims.follow_other(cx)).then(|| self.new_claim(cx))
    }

    /// The claim of this node that goes on with what the journal has, if that is for this node to do, when nobody else who has the messages
    /// for certain has been there for so long.
    fn rebuild_as_first(&mut self, cx: &mut Context<'_>, claim: &Claim, wait_ms: u64) -> Option<Claim> {
        self.orphan_ms.get_or_insert(cx.now.ms);
        if !self.is_first(cx) || !self.has_waited(cx, wait_ms) {
            return None;
        }
        let next = claim.passed_to_one(cx.own(), true);
        self.rebuilt = Some(next.term());
        Some(next)
    }

    /// True if of all nodes that are there this one has to begin.
    fn is_first(&self, cx: &Context<'_>) -> bool {
        first_of(cx.members.alive(cx.now.ms), self.number) == Some(cx.own())
    }

    fn has_waited(&mut self, cx: &Context<'_>, wait_ms: u64) -> bool {
        let has_waited = cx.now.ms >= *self.orphan_ms.get_or_insert(cx.now.ms) + wait_ms;
        if has_waited {
            self.orphan_ms = None;
        }
        has_waited
    }

    /// A claim with a new lineage.
    fn new_claim(&self, cx: &mut Context<'_>) -> Claim {
        let (own, number) = (cx.own(), next_number(self.claims.last_number()));
        let lineage = Lineage { seed: cx.wire.new_seed(), first: first_offset(cx.now.wall_ms) };
        Claim { owner: own, number, lineage, in_sync: vec![own] }
    }
}

/// True if another node may have gone on with the journal meanwhile, which nobody knows if the engine has lost its keys.
fn may_be_rebuilt(cx: &Context<'_>, lost: &Claim) -> bool {
    let was_away = cx.members.was_away(cx.now.ms);
    #[cfg(test)]
    let was_away = was_away && !cx.is_broken(Sabotage::ForgetsAbsence);
    lost.has(NodeId::JOURNAL) && was_away
}

/// The time that nobody in sync is there after which a partition begins again without messages, in milliseconds.
const ORPHAN_MS: u64 = 10_000;
/// The same when those in sync have left, or there are no claims yet: the nodes have to learn of each other. So long an owner waits, too, before
/// it goes on when the engine has lost its claim.
const SETTLE_MS: u64 = 1_000;
