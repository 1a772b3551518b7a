//! A budget that several owners share, in shares: no owner can take it from the others.
//!
//! The rule is the dynamic threshold of shared buffers in switches (Choudhury and Hahne, 1998): an owner may hold up to
//! `alpha` times what is free. An owner that is alone gets most of the budget, and each further one finds room without
//! any queue. Two parts of the budget are apart:
//!
//! ```text
//!   0 ─────────────────────────────────────────────── max
//!   │ owners, each up to alpha × what is free │ new    │ urgent │
//!                                             │ owners │ things │
//! ```
//!
//! - An owner that holds nothing may use the part of new owners as well, so it gets its first one while others stand at
//!   their part. The less is free there, the smaller its first one has to be.
//! - Urgent things may use everything. An owner's urgent things count apart, so that it can still do them when it stands
//!   at its part.
//!
//! An owner can be inside another one, such as a session inside its user. It shares what the outer one may still take. One
//! inside itself counts once.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;

/// The use of one budget. An owner that holds nothing has no entry, so the table is as large as the number of shares.
#[derive(Debug)]
pub struct Shares<Owner> {
    used: Amount,
    urgent: Amount,
    owners: HashMap<Owner, Held, RandomState>,
}

/// A number of things, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Their number.
    pub count: usize,
    /// Bytes.
    pub bytes: usize,
}

/// The size of a budget and of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    max: Amount,
    alpha: usize,
    urgent_part: usize,
}

/// The weight of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Like most.
    Common,
    /// It is small, and others lose much if it fails, such as the refresh of a token.
    Urgent,
}

/// The reason why an owner gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Over {
    /// The budget has no room for this amount, whoever asks.
    #[error("nothing is left")]
    All,
    /// The owner has its part.
    #[error("this owner has its part")]
    Part,
}

/// An amount that an owner has taken. It goes back to the same [`Shares`] with [`Shares::give_back`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the budget has this amount less until it is given back"]
pub struct Share<Owner> {
    owner: Owner,
    inner: Option<Owner>,
    amount: Amount,
    urgency: Urgency,
}

/// The amounts of one owner.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    common: Amount,
    urgent: Amount,
}

impl Amount {
    /// One thing with these bytes.
    pub const fn one(bytes: usize) -> Amount {
        Amount { count: 1, bytes }
    }

    /// This many things without bytes.
    pub const fn of(count: usize) -> Amount {
        Amount { count, bytes: 0 }
    }

    fn add(&mut self, other: Amount) {
        self.count += other.count;
        self.bytes += other.bytes;
    }

    fn remove(&mut self, other: Amount) {
        self.count -= other.count;
        self.bytes -= other.bytes;
    }

    fn is_none(self) -> bool {
        self == Amount::default()
    }
}

impl Budget {
    /// A budget of `count` things with `bytes` bytes; `usize::MAX` is no limit. An owner that is alone may have 7 of 8
    /// parts of what is for all owners. Urgent things have no reserve.
    pub const fn new(count: usize, bytes: usize) -> Budget {
        Budget { max: Amount { count, bytes }, alpha: 7, urgent_part: 0 }
    }

    /// An owner may hold up to `alpha` times what is free: alone `alpha` of `alpha + 1` parts. At least 1.
    #[must_use]
    pub const fn with_alpha(self, alpha: usize) -> Budget {
        Budget { alpha: if alpha == 0 { 1 } else { alpha }, ..self }
    }

    /// Reserves one of eight parts for urgent things.
    #[must_use]
    pub const fn with_urgent(self) -> Budget {
        Budget { urgent_part: PART, ..self }
    }
}

impl<Owner: Hash + Eq + Clone> Shares<Owner> {
    /// Takes an amount for an owner. A single thing of any size is admitted while nobody holds anything, so that a limit
    /// below the size of one thing does not block it for ever.
    ///
    /// # Errors
    /// [`Over`]: the owner gets nothing.
    pub fn take(
        &mut self,
        budget: &Budget,
        owner: Owner,
        amount: Amount,
        urgency: Urgency,
    ) -> Result<Share<Owner>, Over> {
        self.admit(budget, &owner, None, amount, urgency)?;
        Ok(self.take_regardless(owner, None, amount, urgency))
    }

    /// Takes an amount whatever the budget says, for what was admitted before, or exists already.
    pub fn take_regardless(
        &mut self,
        owner: Owner,
        inner: Option<Owner>,
        amount: Amount,
        urgency: Urgency,
    ) -> Share<Owner> {
        self.used.add(amount);
        if urgency == Urgency::Urgent {
            self.urgent.add(amount);
        }
        let inner = inner.filter(|inner| *inner != owner);
        for owner in std::iter::once(&owner).chain(&inner) {
            self.owners.entry(owner.clone()).or_default().of(urgency).add(amount);
        }
        Share { owner, inner, amount, urgency }
    }

    /// Checks if an owner, or an owner inside it, would get an amount now.
    ///
    /// # Errors
    /// [`Over`]: it would not.
    pub fn admit(
        &self,
        budget: &Budget,
        owner: &Owner,
        inner: Option<&Owner>,
        amount: Amount,
        urgency: Urgency,
    ) -> Result<(), Over> {
        if self.used.is_none() {
            return if budget.max.count == 0 { Err(Over::All) } else { Ok(()) };
        }
        let held = |owner: &Owner| self.owners.get(owner).copied().unwrap_or_default();
        let (outer, inner) = (held(owner), inner.filter(|inner| *inner != owner).map(held));
        for unit in [|amount: Amount| amount.count, |amount: Amount| amount.bytes] {
            let (max, wanted, used) = (unit(budget.max), unit(amount), unit(self.used));
            if max == usize::MAX || wanted == 0 {
                continue;
            }
            match urgency {
                Urgency::Common => {
                    let reserve = part(max, budget.urgent_part).saturating_sub(unit(self.urgent));
                    let level = Level { free: max.saturating_sub(used).saturating_sub(reserve), size: max - reserve };
                    let left = level.admit(outer.common.is_none(), unit(outer.common), wanted, budget.alpha)?;
                    if let Some(inner) = inner
                        && !outer.common.is_none()
                    {
                        let level = Level { free: left, size: unit(outer.common) + left };
                        level
                            .admit(inner.common.is_none(), unit(inner.common), wanted, budget.alpha)
                            .map_err(|_| Over::Part)?;
                    }
                }
                Urgency::Urgent => {
                    let free = max.saturating_sub(used);
                    let level = Level { free, size: 0 };
                    level.admit(outer.urgent.is_none(), unit(outer.urgent), wanted, budget.alpha)?;
                }
            }
        }
        Ok(())
    }

    /// Returns what an owner has taken.
    pub fn give_back(&mut self, share: Share<Owner>) {
        let Share { owner, inner, amount, urgency } = share;
        self.used.remove(amount);
        if urgency == Urgency::Urgent {
            self.urgent.remove(amount);
        }
        for owner in std::iter::once(owner).chain(inner) {
            let Some(held) = self.owners.get_mut(&owner) else { continue };
            held.of(urgency).remove(amount);
            if held.common.is_none() && held.urgent.is_none() {
                self.owners.remove(&owner);
            }
        }
        // Returns the memory that many owners needed at once.
        if self.owners.is_empty() && self.owners.capacity() > RETAINED {
            self.owners.shrink_to_fit();
        }
    }

    /// The sum of all shares.
    pub fn used(&self) -> Amount {
        self.used
    }

    /// The amount that an owner holds.
    pub fn of(&self, owner: &Owner) -> Amount {
        let mut held = self.owners.get(owner).copied().unwrap_or_default();
        held.common.add(held.urgent);
        held.common
    }

    /// The amount of urgent things that an owner holds.
    pub fn urgent_of(&self, owner: &Owner) -> Amount {
        self.owners.get(owner).map_or(Amount::default(), |held| held.urgent)
    }

    /// The number of owners that hold anything.
    pub fn owners(&self) -> usize {
        self.owners.len()
    }
}

impl<Owner> Default for Shares<Owner> {
    fn default() -> Shares<Owner> {
        Shares { used: Amount::default(), urgent: Amount::default(), owners: HashMap::default() }
    }
}

impl<Owner> Share<Owner> {
    /// The share of one common thing without bytes, which was taken before. Where there are many, the owner is all that
    /// each keeps.
    pub(crate) fn of_one(owner: Owner) -> Share<Owner> {
        Share { owner, inner: None, amount: Amount::of(1), urgency: Urgency::Common }
    }

    /// The amount.
    pub fn amount(&self) -> Amount {
        self.amount
    }

    /// The owner; of an owner inside another one the outer one.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }
}

impl Held {
    fn of(&mut self, urgency: Urgency) -> &mut Amount {
        match urgency {
            Urgency::Common => &mut self.common,
            Urgency::Urgent => &mut self.urgent,
        }
    }
}

/// The room that owners share: a whole budget, or the part of an outer owner.
struct Level {
    free: usize,
    /// Its size: one of eight parts is for new owners. 0: all of it is for everybody.
    size: usize,
}

impl Level {
    /// Admits an amount of an owner. Returns what the owner may take at most now.
    fn admit(&self, is_new: bool, held: usize, wanted: usize, alpha: usize) -> Result<usize, Over> {
        if wanted > self.free {
            return Err(Over::All);
        }
        let common = self.free.saturating_sub(part(self.size, PART));
        if is_new {
            let small = (self.free / SMALL).max(1);
            return if wanted <= common || wanted <= small { Ok(self.free) } else { Err(Over::Part) };
        }
        // The most for which `held + more <= alpha * (common - more)`.
        let more = alpha.saturating_mul(common).saturating_sub(held) / alpha.saturating_add(1);
        if wanted <= more { Ok(more) } else { Err(Over::Part) }
    }
}

/// One of `parts` parts; 0: none.
fn part(size: usize, parts: usize) -> usize {
    size.checked_div(parts).unwrap_or(0)
}

/// New owners, and urgent things, have one of eight parts each.
const PART: usize = 8;
/// The first thing of an owner may take a quarter of what is free in the part of new owners.
const SMALL: usize = 4;
/// A table of at most this capacity keeps its memory.
const RETAINED: usize = 1_024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COMMON: Urgency = Urgency::Common;

    /// Takes one by one until the owner gets no more. Returns the shares.
    fn take_within<Owner: Hash + Eq + Clone>(
        shares: &mut Shares<Owner>,
        budget: &Budget,
        [outer, inner]: [Owner; 2],
        amount: Amount,
        urgency: Urgency,
    ) -> Result<Share<Owner>, Over> {
        shares.admit(budget, &outer, Some(&inner), amount, urgency)?;
        Ok(shares.take_regardless(outer, Some(inner), amount, urgency))
    }

    fn fill(shares: &mut Shares<u32>, budget: &Budget, owner: u32, urgency: Urgency) -> Vec<Share<u32>> {
        std::iter::from_fn(|| shares.take(budget, owner, Amount::of(1), urgency).ok()).collect()
    }

    #[test]
    fn an_owner_that_is_alone_has_most_and_greedy_ones_leave_room_for_new_ones() {
        let (mut shares, budget) = (Shares::default(), Budget::new(1_000, usize::MAX));
        let mut taken = fill(&mut shares, &budget, 0, COMMON);
        assert_eq!(taken.len(), 765, "7/8 of 7/8");
        for owner in 1..100 {
            let more = fill(&mut shares, &budget, owner, COMMON);
            assert!(!more.is_empty(), "{owner} finds no room");
            taken.extend(more);
        }
        assert_eq!(shares.take(&budget, 0, Amount::of(1), COMMON), Err(Over::Part));
        taken.into_iter().for_each(|share| shares.give_back(share));
        assert_eq!((shares.used(), shares.owners()), (Amount::default(), 0));
    }

    #[test]
    fn many_small_alphas_share_more_evenly() {
        let (mut shares, budget) = (Shares::default(), Budget::new(800, usize::MAX).with_alpha(1));
        let parts: Vec<_> = (0..3).map(|owner| fill(&mut shares, &budget, owner, COMMON).len()).collect();
        assert_eq!(parts, [350, 175, 87]);
    }

    #[test]
    fn urgent_things_have_room_when_nothing_else_has() {
        let (mut shares, budget) = (Shares::default(), Budget::new(80, usize::MAX).with_urgent());
        let mut taken: Vec<_> = (0..80).flat_map(|owner| fill(&mut shares, &budget, owner, COMMON)).collect();
        assert_eq!((taken.len(), shares.take(&budget, 999, Amount::of(1), COMMON)), (70, Err(Over::All)));
        // An owner that stands at its part has urgent things, too, but does not take the reserve of the others.
        let own = fill(&mut shares, &budget, 0, Urgency::Urgent);
        assert_eq!(own.len(), 8);
        let other = shares.take(&budget, 7, Amount::of(1), Urgency::Urgent).expect("room");
        assert_eq!(shares.take(&budget, 7, Amount::of(1), COMMON), Err(Over::All));
        taken.extend(own);
        taken.push(other);
        taken.into_iter().for_each(|share| shares.give_back(share));
        assert_eq!((shares.used(), shares.urgent, shares.owners()), (Amount::default(), Amount::default(), 0));
    }

    #[test]
    fn bytes_are_shared_as_well_and_one_of_any_size_is_admitted_alone() {
        let (mut shares, budget) = (Shares::default(), Budget::new(usize::MAX, 8_000));
        let large = shares.take(&budget, 1, Amount::one(50_000), COMMON).expect("nobody holds anything");
        assert_eq!(shares.take(&budget, 2, Amount::one(1), COMMON), Err(Over::All));
        shares.give_back(large);
        let first = shares.take(&budget, 1, Amount::one(1_000), COMMON).expect("room");
        assert_eq!(shares.take(&budget, 1, Amount::one(6_000), COMMON), Err(Over::Part));
        let more = shares.take(&budget, 1, Amount::one(5_000), COMMON).expect("room");
        // The rest is for small things of those who have nothing.
        assert_eq!(shares.take(&budget, 2, Amount::one(1_500), COMMON), Err(Over::Part));
        let small = shares.take(&budget, 2, Amount::one(500), COMMON).expect("room");
        [first, more, small].into_iter().for_each(|share| shares.give_back(share));
        assert_eq!(shares.owners(), 0);
    }

    #[test]
    fn sessions_share_what_their_user_may_have() {
        let (mut shares, budget) = (Shares::<&str>::default(), Budget::new(1_000, usize::MAX));
        let mut fill = |owners: [&'static str; 2]| {
            std::iter::from_fn(|| take_within(&mut shares, &budget, owners, Amount::of(1), COMMON).ok()).count()
        };
        let first = fill(["ann", "ann 1"]);
        assert!((550..765).contains(&first), "{first}");
        let others: Vec<_> = ["ann 2", "ann 3", "ann 4"].map(|session| fill(["ann", session])).into();
        assert!(others.iter().all(|count| *count > 0), "{others:?}");
        let bob = fill(["bob", "bob 1"]);
        assert!(bob > 50, "{bob}");
    }

    #[test]
    fn a_budget_of_nothing_admits_nothing() {
        assert_eq!(Shares::default().take(&Budget::new(0, 0), 1, Amount::one(0), COMMON), Err(Over::All));
    }

    proptest! {
        /// Whatever owners take and return: the sum is exact and never above the budget, an owner with nothing gets one while
        /// the part of new owners has room, and tables are empty at the end.
        #[test]
        fn sums_are_exact_and_new_owners_find_room(
            count in 1_usize..400,
            bytes in 1_000_usize..100_000,
            alpha in 1_usize..9,
            steps in prop::collection::vec((0_u32..12, 0_u32..3, 1_usize..3_000, any::<bool>(), 0_u8..4), 1..400),
        ) {
            let budget = Budget::new(count, bytes).with_alpha(alpha).with_urgent();
            let mut shares = Shares::default();
            let mut taken: Vec<Share<(u32, u32)>> = Vec::new();
            for (user, session, size, is_urgent, action) in steps {
                let urgency = if is_urgent { Urgency::Urgent } else { COMMON };
                let (owner, inner) = ((user, u32::MAX), (user, session));
                match action {
                    0 if !taken.is_empty() => {
                        let share = taken.swap_remove(size % taken.len());
                        shares.give_back(share);
                    }
                    1 => taken.extend(shares.take(&budget, owner, Amount::one(size), urgency)),
                    _ => taken.extend(take_within(&mut shares, &budget, [owner, inner], Amount::one(size), urgency)),
                }
                let sum = |unit: fn(Amount) -> usize| taken.iter().map(|share| unit(share.amount())).sum::<usize>();
                let used = shares.used();
                prop_assert_eq!((sum(|it| it.count), sum(|it| it.bytes)), (used.count, used.bytes));
                prop_assert!(used.count <= count && (used.bytes <= bytes || taken.len() == 1), "{:?}", used);
            }
            taken.into_iter().for_each(|share| shares.give_back(share));
            prop_assert_eq!((shares.used(), shares.urgent, shares.owners()), Default::default());
        }

        /// Greedy owners that come one after the other and give nothing back leave room for as many new ones as the part
        /// of new owners has.
        #[test]
        fn new_owners_get_in_while_greedy_ones_stand_at_their_part(
            count in 16_usize..5_000,
            alpha in 1_usize..20,
            greedy in 1_u32..20,
        ) {
            let (budget, mut shares) = (Budget::new(count, usize::MAX).with_alpha(alpha), Shares::default());
            let _all: Vec<_> = (0..greedy).flat_map(|owner| fill(&mut shares, &budget, owner, COMMON)).collect();
            let expected = (count / PART).saturating_sub(greedy as usize) as u32;
            for owner in greedy..greedy + expected {
                prop_assert!(shares.take(&budget, owner, Amount::of(1), COMMON).is_ok(), "{}", owner);
            }
        }
    }
}
