//! Checks the limit for held requests: an address leaves a part to others, and nobody is refused below the limit.

use std::net::IpAddr;

use encke_core::{Over, Settings};
use encke_local::Hold;

use crate::chain::Chain;
use crate::checker::Invariant;
use crate::sabotage::Sabotage;
use crate::world::World;

impl World {
    /// Counts a request of an address. None if it is refused, with 503 if nothing is left, and with 429 if the address has its
    /// part.
    pub(super) fn begin_hold(&mut self, address: IpAddr, settings: &Settings) -> Option<Hold> {
        let boundless = || Settings {
            held_requests_max: usize::MAX,
            held_requests_per_address_max: usize::MAX,
            ..Settings::default()
        };
        let taken = match self.sabotage {
            Sabotage::GreedyAddress => self.holds.begin(Some(address), &boundless()),
            Sabotage::RefusedRequest if self.held_requests(None) > 0 => Err(Over::All),
            _ => self.holds.begin(Some(address), settings),
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
    pub(super) fn check_held_shares(&mut self) {
        let addresses: Vec<IpAddr> = self.chains.iter().map(|chain| chain.address).collect();
        let [taken, _] = self.holds.sizes();
        self.checker.agree("held requests", taken, self.held_requests(None));
        for address in addresses {
            self.checker.agree(
                "held requests of an address",
                self.holds.of(address),
                self.held_requests(Some(address)),
            );
        }
    }

    /// The number of requests that are held, of all addresses or of one.
    pub(super) fn held_requests(&self, address: Option<IpAddr>) -> usize {
        let is_of = |chain: &&Chain| chain.held.is_some() && address.is_none_or(|address| chain.address == address);
        self.chains.iter().filter(is_of).count()
    }
}

/// One of so many parts is for addresses that have no held request.
const NEW: usize = 8;
