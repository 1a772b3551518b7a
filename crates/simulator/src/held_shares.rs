//! The limit for held requests, in shares of addresses, as the threads of the server apply it. A request that gets no share
//! is not held, and comes again.

use std::cell::RefCell;
use std::rc::Rc;

use encke_core::{Amount, Budget, Over, Settings, Share, Shares, Urgency};

use crate::Sabotage;
use crate::checker::Invariant;
use crate::world::World;

/// The held requests of a process, by address.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldShares(Rc<RefCell<Shares<Address>>>);

/// The share of one request, while it is held.
#[derive(Debug)]
pub(crate) struct HeldShare {
    all: HeldShares,
    share: Option<Share<Address>>,
}

/// The number of an address.
pub(crate) type Address = u128;

impl HeldShares {
    /// A share for a request, if the limits allow it.
    fn take(&self, address: Address, settings: &Settings) -> Result<HeldShare, Over> {
        let mut shares = self.0.borrow_mut();
        if shares.of(&address).count >= settings.held_requests_per_address_max {
            return Err(Over::Part);
        }
        let budget = Budget::new(settings.held_requests_max, usize::MAX);
        let share = shares.take(&budget, address, Amount::of(1), Urgency::Common)?;
        Ok(HeldShare { all: self.clone(), share: Some(share) })
    }

    /// A share beyond all limits: a sabotage.
    fn overdraw(&self, address: Address) -> HeldShare {
        let share = self.0.borrow_mut().take_regardless(address, None, Amount::of(1), Urgency::Common);
        HeldShare { all: self.clone(), share: Some(share) }
    }

    /// The numbers of held requests, and of addresses that have some.
    pub(crate) fn sizes(&self) -> [usize; 2] {
        let shares = self.0.borrow();
        [shares.used().count, shares.owners()]
    }

    fn of(&self, address: Address) -> usize {
        self.0.borrow().of(&address).count
    }
}

impl HeldShare {
    /// It is never given back: a sabotage.
    pub(crate) fn forget(&mut self) {
        self.share = None;
    }
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        if let Some(share) = self.share.take() {
            self.all.0.borrow_mut().give_back(share);
        }
    }
}

impl World {
    /// A share for a request of an address. None if it is refused, with 503 if nothing is left, and with 429 if the address
    /// has its part.
    pub(crate) fn take_share(&mut self, address: Address, settings: &Settings) -> Option<HeldShare> {
        let taken = match self.sabotage {
            Sabotage::GreedyAddress => Ok(self.held_shares.overdraw(address)),
            Sabotage::RefusedRequest if self.held_requests(None) > 0 => Err(Over::All),
            _ => self.held_shares.take(address, settings),
        };
        let (all, own) = (self.held_requests(None), self.held_requests(Some(address)));
        let (max, own_max) = (settings.held_requests_max, settings.held_requests_per_address_max);
        let wrong = match &taken {
            Ok(_) if all >= max => Some("is held above the limit"),
            Ok(_) if own >= own_max => Some("is held above the limit of its address"),
            Ok(_) if own > 0 && all + 1 + max / NEW > max => Some("is held in the part of those that have none"),
            Err(Over::All) if all < max => Some("is refused below the limit"),
            Err(Over::Part) if own == 0 && own_max > 0 => Some("is refused as if its address had its part"),
            Err(Over::Part) if own == all && own < (max / 2).min(own_max) => Some("is refused half of the limit"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            let detail = format!(
                "a request of address {address} {wrong}: {own} of {all} are its own; the limits are {max} and {own_max}"
            );
            self.checker.fail(Invariant::SharesHold, detail);
        }
        self.note(|_| format!("a request of address {address}, over a limit: {:?}", taken.as_ref().err()));
        self.checker.tally.held_over_limit += u64::from(taken.is_err());
        taken.ok()
    }

    /// Checks that the numbers of held requests are right.
    pub(crate) fn check_held_shares(&mut self) {
        let addresses: Vec<Address> = self.chains.iter().map(|chain| chain.address).collect();
        let [taken, _] = self.held_shares.sizes();
        self.agree("held requests", taken, self.held_requests(None));
        for address in addresses {
            self.agree("held requests of an address", self.held_shares.of(address), self.held_requests(Some(address)));
        }
    }
}

/// One of so many parts is for addresses that have no held request.
const NEW: usize = 8;
