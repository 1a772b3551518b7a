//! The whole bodies of requests that wait for their turn, in shares of addresses (`waiting_requests_bytes_max`).

use encke_core::{Amount, Budget, Over, Peer, Settings, Share, Shares, Urgency, network};

/// The bodies that wait on one shard.
#[derive(Default)]
pub(crate) struct WaitingBodies(Shares<u128>);

/// The room of one body.
pub(crate) type BodyShare = Share<u128>;

impl WaitingBodies {
    /// Takes room for a body of a client. Addresses share it, or connections without a known address.
    ///
    /// # Errors
    /// [`Over`]: there is none.
    pub(crate) fn take(&mut self, bytes: usize, peer: Peer, settings: &Settings) -> Result<BodyShare, Over> {
        let budget = Budget::new(usize::MAX, settings.waiting_requests_bytes_max).with_urgent();
        let owner = peer.address.map_or(u128::from(peer.connection), network);
        let urgency = if bytes <= SMALL_BYTES { Urgency::Urgent } else { Urgency::Common };
        self.0.take(&budget, owner, Amount { count: 1, bytes }, urgency)
    }

    /// A body waits no longer.
    pub(crate) fn give_back(&mut self, share: BodyShare) {
        self.0.give_back(share);
    }

    /// The bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.0.used().bytes
    }
}

/// A body up to this size may use the reserve.
const SMALL_BYTES: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_requests_bytes_max_leaves_room_for_other_addresses_and_for_small_bodies() {
        let mut bodies = WaitingBodies::default();
        let settings = Settings { waiting_requests_bytes_max: 8_000_000, ..Settings::default() };
        let peer = |last: u8| Peer { address: Some([10, 0, 0, last].into()), ..Peer::default() };
        let mut held: Vec<_> = std::iter::from_fn(|| bodies.take(100_000, peer(1), &settings).ok()).collect();
        assert!((40..70).contains(&held.len()), "{}", held.len());
        held.push(bodies.take(100_000, peer(2), &settings).expect("room for another address"));
        held.extend((0..10).map(|_| bodies.take(SMALL_BYTES, peer(1), &settings).expect("the reserve")));
        held.into_iter().for_each(|share| bodies.give_back(share));
        assert_eq!(bodies.bytes(), 0);
    }
}
