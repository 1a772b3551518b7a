//! Envelopes that wait for room between shards, within a bound of bytes: an engine that is not read ends the connection, with
//! all that waits for it.

use std::collections::VecDeque;

/// Envelopes in the order in which they have arrived.
pub(crate) struct Incoming {
    waiting: VecDeque<Box<[u8]>>,
    bytes: usize,
    bytes_max: usize,
}

impl Incoming {
    /// Nothing waits. `bytes_max`: the bound of what waits.
    pub(crate) fn new(bytes_max: usize) -> Incoming {
        Incoming { waiting: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Adds an envelope. False if there is no room for it.
    pub(crate) fn add(&mut self, envelope: &[u8]) -> bool {
        let more = envelope.len() + ENTRY_BYTES;
        if self.bytes + more > self.bytes_max {
            return false;
        }
        self.bytes += more;
        // A copy, because the engine's buffer may be much larger.
        self.waiting.push_back(envelope.into());
        true
    }

    /// Takes the next envelope.
    pub(crate) fn next(&mut self) -> Option<Box<[u8]>> {
        let envelope = self.waiting.pop_front()?;
        self.bytes -= envelope.len() + ENTRY_BYTES;
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
        Some(envelope)
    }

    /// True if nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The bytes of an entry beside its envelope.
const ENTRY_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_has_a_bound_and_keeps_its_order() {
        let mut incoming = Incoming::new(3 * (ENTRY_BYTES + 10));
        let taken: Vec<bool> = (0..4_u8).map(|number| incoming.add(&[number; 10])).collect();
        assert_eq!(taken, [true, true, true, false]);
        assert_eq!(incoming.next().map(|envelope| envelope[0]), Some(0));
        assert!(incoming.add(&[9; 10]) && !incoming.is_empty());
        let rest: Vec<u8> = std::iter::from_fn(|| incoming.next()).map(|envelope| envelope[0]).collect();
        assert_eq!((rest, incoming.bytes()), (vec![1, 2, 9], 0));
    }
}
