//! Lines of several owners, who take turns: one with many things that wait does not delay those of the others.
//!
//! ```text
//!   turn   7       8       9            20
//!          │ ann   │ bob   │ carol …    │ ann again, after a thing as heavy as 13
//! ```
//!
//! The rule is self-clocked fair queueing (Golestani, 1994): the turn that is served is the time, and an owner's next turn is as much later
//! as its last thing was heavy. Who has nothing waiting comes at the next turn. A heavy thing counts also when it was the owner's last one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

use foldhash::fast::RandomState;

/// Things that wait, by their owners.
#[derive(Debug)]
pub struct Turns<Owner, Item> {
    lines: HashMap<Owner, Line<Item>, RandomState>,
    order: BTreeMap<Turn, Owner>,
    /// The turn that was served last.
    now: u64,
    /// Distinguishes owners with the same turn.
    last: u64,
    waiting: usize,
}

/// The line of one owner. An empty line is removed when its turn comes.
#[derive(Debug)]
struct Line<Item> {
    turn: Turn,
    items: VecDeque<Item>,
}

/// A turn, and the order among those that have the same.
type Turn = (u64, u64);

impl<Owner: Hash + Eq + Copy, Item> Turns<Owner, Item> {
    /// The number of things that wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Adds a thing to the line of an owner.
    pub fn push(&mut self, owner: Owner, item: Item) {
        let Turns { lines, order, now, last, waiting } = self;
        let line = lines.entry(owner).or_insert_with(|| {
            *last += 1;
            let turn = (*now + 1, *last);
            order.insert(turn, owner);
            Line { turn, items: VecDeque::new() }
        });
        line.items.push_back(item);
        *waiting += 1;
    }

    /// Takes the next thing. `weight`: how heavy it is; 0 if it is nothing any more.
    pub fn pop(&mut self, weight: impl FnOnce(&Item) -> u64) -> Option<Item> {
        while let Some((turn, owner)) = self.order.pop_first() {
            self.now = turn.0;
            let Some(line) = self.lines.get_mut(&owner) else { continue };
            let Some(item) = line.items.pop_front() else {
                self.lines.remove(&owner);
                continue;
            };
            self.waiting -= 1;
            self.last += 1;
            line.turn = (self.now + weight(&item), self.last);
            self.order.insert(line.turn, owner);
            return Some(item);
        }
        // Returns the memory that many owners needed at once.
        self.lines = HashMap::default();
        None
    }

    /// The last thing of an owner was heavier by so much than it had seemed.
    pub fn add_weight(&mut self, owner: Owner, weight: u64) {
        if let Some(line) = self.lines.get_mut(&owner) {
            self.order.remove(&line.turn);
            line.turn.0 += weight;
            self.order.insert(line.turn, owner);
        }
    }

    /// Removes the things for which `keep` is false, and the owners that have nothing waiting then.
    pub fn retain(&mut self, mut keep: impl FnMut(&Item) -> bool) {
        self.lines.retain(|_, line| {
            line.items.retain(&mut keep);
            !line.items.is_empty()
        });
        self.order.retain(|_, owner| self.lines.contains_key(owner));
        self.waiting = self.lines.values().map(|line| line.items.len()).sum();
    }
}

impl<Owner, Item> Default for Turns<Owner, Item> {
    fn default() -> Turns<Owner, Item> {
        Turns { lines: HashMap::default(), order: BTreeMap::new(), now: 0, last: 0, waiting: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn popped(turns: &mut Turns<char, (char, u64)>, count: usize) -> String {
        let next = || turns.pop(|(_, weight)| *weight).map(|(owner, _)| owner);
        std::iter::from_fn(next).take(count).collect()
    }

    #[test]
    fn owners_take_turns_and_each_has_its_order() {
        let mut turns = Turns::default();
        (0..4).for_each(|number| turns.push('a', number));
        turns.push('b', 10);
        (20..22).for_each(|number| turns.push('c', number));
        let all: Vec<i32> = std::iter::from_fn(|| turns.pop(|_| 1)).collect();
        assert_eq!(all, [0, 10, 20, 1, 21, 2, 3]);
        assert!(turns.is_empty() && turns.lines.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn who_has_nothing_waiting_comes_after_one_thing_of_each_at_most() {
        let mut turns = Turns::default();
        (0..1_000).for_each(|_| turns.push('a', ('a', 1)));
        (0..1_000).for_each(|_| turns.push('b', ('b', 1)));
        popped(&mut turns, 500);
        turns.push('c', ('c', 1));
        assert!(popped(&mut turns, 3).contains('c'));
        // One that adds a thing after each of its turns takes no other's.
        let mut taken = String::new();
        for _ in 0..30 {
            turns.push('d', ('d', 1));
            taken += &popped(&mut turns, 3);
        }
        assert!(taken.matches('a').count() >= 29 && taken.matches('b').count() >= 29, "{taken}");
    }

    #[test]
    fn heavy_things_cost_turns_also_if_they_were_the_last() {
        let mut turns = Turns::default();
        turns.push('a', ('a', 10));
        (0..40).for_each(|_| turns.push('b', ('b', 1)));
        assert_eq!(popped(&mut turns, 2), "ab");
        turns.push('a', ('a', 10));
        assert_eq!(popped(&mut turns, 10), "bbbbbbbbba");
        turns.add_weight('a', 5);
        turns.push('a', ('a', 1));
        assert_eq!(popped(&mut turns, 16), "bbbbbbbbbbbbbbba");
    }

    #[test]
    fn what_is_removed_does_not_wait() {
        let mut turns = Turns::default();
        (0..10).for_each(|number| turns.push(number % 2, number));
        turns.retain(|number| number % 2 == 0);
        assert_eq!(turns.len(), 5);
        let all: Vec<i32> = std::iter::from_fn(|| turns.pop(|_| 1)).collect();
        assert_eq!(all, [0, 2, 4, 6, 8]);
    }
}
