//! The numbers of held requests: of all, and of each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

use encke_core::{Settings, network};

/// The held requests of a server.
#[derive(Default)]
pub(crate) struct Holds(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    all: usize,
    /// By [`network`].
    addresses: HashMap<u128, usize, RandomState>,
}

/// The limit that a request would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooMany {
    /// `held_requests_max`.
    InAll,
    /// `held_requests_per_address_max`.
    OfAddress,
}

/// Counts a request while it is held.
pub(crate) struct Hold {
    holds: Arc<Holds>,
    address: Option<u128>,
}

impl Holds {
    /// Counts one more request, if the limits allow it.
    pub(crate) fn begin(self: &Arc<Holds>, address: Option<IpAddr>, settings: &Settings) -> Result<Hold, TooMany> {
        let address = address.map(network);
        let mut counts = self.lock();
        if counts.all >= settings.held_requests_max {
            return Err(TooMany::InAll);
        }
        if let Some(address) = address {
            let count = counts.addresses.entry(address).or_default();
            if *count >= settings.held_requests_per_address_max {
                return Err(TooMany::OfAddress);
            }
            *count += 1;
        }
        counts.all += 1;
        Ok(Hold { holds: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut counts = self.holds.lock();
        counts.all -= 1;
        if let Some(address) = self.address
            && let Some(count) = counts.addresses.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                counts.addresses.remove(&address);
            }
        }
    }
}
