//! Reads of records for searches: so many at once, and the owners of the searches take turns. Anybody can name a session that is not here, and
//! each such name costs a read.

use encke_core::Turns;

/// The reads of one node.
#[derive(Default)]
pub(super) struct Reads {
    on_way: usize,
    /// Searches that wait for their turn, by the hash of their client.
    waiting: Turns<u64, u64>,
}

impl Reads {
    /// True if this search of a client may read now. Otherwise it waits.
    pub(super) fn begin(&mut self, owner: u64, search: u64) -> bool {
        let has_room = self.on_way < ON_WAY_MAX;
        if has_room {
            self.on_way += 1;
        } else {
            self.waiting.push(owner, search);
        }
        has_room
    }

    /// A read has ended.
    pub(super) fn has_ended(&mut self) {
        self.on_way = self.on_way.saturating_sub(1);
    }

    /// The engine is there again. Reads of before may have no answer.
    pub(super) fn begin_again(&mut self) {
        self.on_way = 0;
    }

    /// The next search that waits, if it may read, or if nothing can be read.
    pub(super) fn next(&mut self, is_connected: bool) -> Option<u64> {
        let may = !is_connected || self.on_way < ON_WAY_MAX;
        if may { self.waiting.pop(|_| 1) } else { None }
    }
}

/// Reads on their way.
const ON_WAY_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_read_at_once_and_then_clients_take_turns() {
        let mut reads = Reads::default();
        let begun = (0..1_000).filter(|search| reads.begin(1, *search)).count();
        assert_eq!((begun, reads.begin(2, 2_000), reads.next(true)), (ON_WAY_MAX, false, None));
        reads.has_ended();
        let first = reads.next(true).expect("its turn");
        assert!(first < 1_000 && reads.begin(1, first) && reads.next(true).is_none());
        reads.has_ended();
        assert_eq!(reads.next(true), Some(2_000), "behind one of the other client");
        assert!((0..900).all(|_| reads.next(false).is_some()), "without an engine nobody waits");
    }
}
