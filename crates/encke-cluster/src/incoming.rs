//! Envelopes that wait for room between shards, within a bound of bytes: an engine that is not read ends the connection, with
//! all that waits for it.
//!
//! They wait in parts by their channels, as the account of the room has them. The parts take turns and have shares, so a flood on one channel
//! neither delays nor drops those of other parts.

use std::collections::VecDeque;

use encke_core::history::{PARTITIONS, partition_of};
use encke_core::{Amount, Budget, Share, Shares, Urgency};

/// Envelopes in the order in which they have arrived in each part.
pub(crate) struct Incoming {
    parts: Vec<VecDeque<Waiting>>,
    /// Parts with envelopes, the next one in turn first.
    turns: VecDeque<usize>,
    shares: Shares<usize>,
    budget: Budget,
}

struct Waiting {
    envelope: Box<[u8]>,
    share: Share<usize>,
}

impl Incoming {
    /// Nothing waits. `bytes_max`: the bound of what waits.
    pub(crate) fn new(bytes_max: usize) -> Incoming {
        let (parts, turns) = ((0..PARTITIONS).map(|_| VecDeque::new()).collect(), VecDeque::new());
        Incoming { parts, turns, shares: Shares::default(), budget: Budget::new(usize::MAX, bytes_max) }
    }

    /// Adds an envelope of a channel. False if there is no room for it.
    pub(crate) fn add(&mut self, channel: &str, envelope: &[u8]) -> bool {
        let (number, amount) = (partition_of(channel), Amount::one(envelope.len() + ENTRY_BYTES));
        let Ok(share) = self.shares.take(&self.budget, number, amount, Urgency::Common) else { return false };
        let part = &mut self.parts[number];
        if part.is_empty() {
            self.turns.push_back(number);
        }
        // A copy, because the engine's buffer may be much larger.
        part.push_back(Waiting { envelope: envelope.into(), share });
        true
    }

    /// Takes the next envelope of a part that has room.
    pub(crate) fn next(&mut self, has_room: impl Fn(usize) -> bool) -> Option<Box<[u8]>> {
        for _ in 0..self.turns.len() {
            let number = self.turns.pop_front()?;
            let part = &mut self.parts[number];
            let next = if has_room(number) { part.pop_front() } else { None };
            if part.is_empty() {
                // Returns the memory that many envelopes needed at once.
                *part = VecDeque::new();
            } else {
                self.turns.push_back(number);
            }
            if let Some(Waiting { envelope, share }) = next {
                self.shares.give_back(share);
                return Some(envelope);
            }
        }
        None
    }

    /// True if nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.shares.used().bytes
    }
}

/// The bytes of an entry beside its envelope.
const ENTRY_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn next(incoming: &mut Incoming) -> Option<u8> {
        incoming.next(|_| true).map(|envelope| envelope[0])
    }

    #[test]
    fn what_waits_has_a_bound_and_each_channel_has_its_order() {
        let mut incoming = Incoming::new(10 * (ENTRY_BYTES + 10));
        let taken = (0..20_u8).filter(|number| incoming.add("/a", &[*number; 10])).count();
        assert!((5..10).contains(&taken), "{taken}: there is room for others");
        assert!(incoming.add("/b", &[100; 10]) && !incoming.is_empty());
        assert_eq!((next(&mut incoming), next(&mut incoming), next(&mut incoming)), (Some(0), Some(100), Some(1)));
        let rest: Vec<u8> = std::iter::from_fn(|| next(&mut incoming)).collect();
        assert!(rest.is_sorted() && rest.len() == taken - 2);
        assert!(incoming.is_empty() && incoming.bytes() == 0);
    }

    #[test]
    fn a_part_without_room_delays_no_other() {
        let mut incoming = Incoming::new(100_000);
        assert_ne!(partition_of("/a"), partition_of("/b"));
        (0..9_u8).for_each(|number| assert!(incoming.add("/a", &[number])));
        assert!(incoming.add("/b", &[100]));
        let has_room = |part| part != partition_of("/a");
        assert_eq!(incoming.next(has_room).map(|envelope| envelope[0]), Some(100));
        assert!(incoming.next(has_room).is_none() && !incoming.is_empty());
        assert_eq!(std::iter::from_fn(|| next(&mut incoming)).collect::<Vec<_>>(), (0..9).collect::<Vec<_>>());
    }
}
