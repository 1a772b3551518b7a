//! The limit for held requests, in shares of addresses, as the threads of the server apply it. A request that gets no share
//! is not held, and comes again.

use std::cell::RefCell;
use std::rc::Rc;

use encke_core::{Amount, Budget, Over, Settings, Share, Shares, Urgency};

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
    pub(crate) fn take(&self, address: Address, settings: &Settings) -> Result<HeldShare, Over> {
        let mut shares = self.0.borrow_mut();
        if shares.of(&address).count >= settings.held_requests_per_address_max {
            return Err(Over::Part);
        }
        let budget = Budget::new(settings.held_requests_max, usize::MAX);
        let share = shares.take(&budget, address, Amount::of(1), Urgency::Common)?;
        Ok(HeldShare { all: self.clone(), share: Some(share) })
    }

    /// A share beyond all limits: a sabotage.
    pub(crate) fn overdraw(&self, address: Address) -> HeldShare {
        let share = self.0.borrow_mut().take_regardless(address, None, Amount::of(1), Urgency::Common);
        HeldShare { all: self.clone(), share: Some(share) }
    }

    /// The numbers of held requests, and of addresses that have some.
    pub(crate) fn sizes(&self) -> [usize; 2] {
        let shares = self.0.borrow();
        [shares.used().count, shares.owners()]
    }

    pub(crate) fn of(&self, address: Address) -> usize {
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
