//! The numbers of held requests: of all, in shares of addresses, and of each address.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use encke_core::{Amount, Budget, Over, Settings, Share, Shares, Urgency, network};

/// The held requests of a server, by [`network`].
#[derive(Default)]
pub(crate) struct Holds(Mutex<Shares<u128>>);

/// The limit that a request would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooMany {
    /// `held_requests_max`.
    InAll,
    /// `held_requests_per_address_max`, or the part of an address of `held_requests_max`.
    OfAddress,
}

/// Counts a request while it is held.
pub(crate) struct Hold {
    holds: Arc<Holds>,
    share: Option<Share<u128>>,
}

impl Holds {
    /// Counts one more request, if the limits allow it. Requests without an address are those of one owner.
    pub(crate) fn begin(self: &Arc<Holds>, address: Option<IpAddr>, settings: &Settings) -> Result<Hold, TooMany> {
        let owner = address.map_or(0, network);
        let budget = Budget::new(settings.held_requests_max, usize::MAX);
        let mut shares = self.lock();
        if address.is_some() && shares.of(&owner).count >= settings.held_requests_per_address_max {
            return Err(TooMany::OfAddress);
        }
        let share = shares.take(&budget, owner, Amount::of(1), Urgency::Common).map_err(|over| match over {
            Over::All => TooMany::InAll,
            Over::Part => TooMany::OfAddress,
        })?;
        Ok(Hold { holds: self.clone(), share: Some(share) })
    }

    fn lock(&self) -> MutexGuard<'_, Shares<u128>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(share) = self.share.take() {
            self.holds.lock().give_back(share);
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
        let of = |last: u8| holds.begin(Some(IpAddr::from([10, 0, 0, last])), &settings);
        let mut held: Vec<_> = std::iter::from_fn(|| of(1).ok()).collect();
        assert!((600..650).contains(&held.len()), "{}", held.len());
        assert_eq!(of(1).err(), Some(TooMany::OfAddress));
        held.extend((2..100).map(|last| of(last).expect("room for others")));
        drop(held);
        assert_eq!(holds.lock().owners(), 0);
        let nobody = Settings { held_requests_max: 0, ..settings };
        assert_eq!(holds.begin(None, &nobody).err(), Some(TooMany::InAll));
    }
}
