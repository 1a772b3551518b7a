//! The numbers of held requests: of all, in shares of addresses, and of each address.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use encke_core::{Amount, Budget, Over, Settings, Share, Shares, Urgency, network};

/// The held requests of a server, by [`network`].
#[derive(Debug, Default)]
pub struct Holds(Mutex<Shares<u128>>);

/// Counts a request while it is held.
#[derive(Debug)]
pub struct Hold {
    holds: Arc<Holds>,
    share: Option<Share<u128>>,
}

impl Holds {
    /// Counts one more request, if the limits allow it. Requests without an address are those of one owner.
    ///
    /// # Errors
    /// The limit that it would exceed: `held_requests_max`, or the part of an address.
    pub fn begin(self: &Arc<Holds>, address: Option<IpAddr>, settings: &Settings) -> Result<Hold, Over> {
        let owner = address.map_or(0, network);
        let budget = Budget::new(settings.held_requests_max, usize::MAX);
        let mut shares = self.0.lock();
        if address.is_some() && shares.of(&owner).count >= settings.held_requests_per_address_max {
            return Err(Over::Part);
        }
        let share = shares.take(&budget, owner, Amount::of(1), Urgency::Common)?;
        Ok(Hold { holds: self.clone(), share: Some(share) })
    }

    /// The number of requests that an address holds.
    pub fn of(&self, address: IpAddr) -> usize {
        self.0.lock().of(&network(address)).count
    }

    /// The numbers of held requests, and of owners that hold some.
    pub fn sizes(&self) -> [usize; 2] {
        let shares = self.0.lock();
        [shares.used().count, shares.owners()]
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(share) = self.share.take() {
            self.holds.0.lock().give_back(share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_room_for_others() {
        let holds = Arc::<Holds>::default();
        let settings = Settings { held_requests_max: 800, ..Settings::default() };
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let of = |last: u8| holds.begin(Some(address(last)), &settings);
        let mut held: Vec<_> = std::iter::from_fn(|| of(1).ok()).collect();
        assert!((600..650).contains(&held.len()), "{}", held.len());
        assert_eq!(of(1).err(), Some(Over::Part));
        held.extend((2..100).map(|last| of(last).expect("room for others")));
        assert_eq!((holds.sizes(), holds.of(address(2))), ([held.len(), 99], 1));
        drop(held);
        assert_eq!(holds.sizes(), [0, 0]);
        let nobody = Settings { held_requests_max: 0, ..settings };
        assert_eq!(holds.begin(None, &nobody).err(), Some(Over::All));
    }
}
