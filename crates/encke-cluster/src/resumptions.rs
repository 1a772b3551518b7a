//! Sessions that are taken on this node and wait for the messages of histories that they have missed. Their owners take turns, and a turn of the
//! node looks at so many channels only: one with many sessions, or with patterns that reach many channels, does not delay others.

use encke_core::{SessionOwner, Turns};

use crate::sessions::Resumption;

/// Sessions that wait, by their users or addresses.
#[derive(Default)]
pub(crate) struct Resumptions {
    waiting: Turns<SessionOwner, Resumption>,
}

impl Resumptions {
    /// Adds one.
    pub(crate) fn add(&mut self, resumption: Resumption) {
        self.waiting.push(resumption.owner, resumption);
    }

    /// Takes as many as a turn has time for. `has_room`: there is room for another answer. `find` answers what one has missed, and returns the
    /// steps that this has cost.
    pub(crate) fn go_on(&mut self, mut has_room: impl FnMut() -> bool, mut find: impl FnMut(Resumption) -> usize) {
        let mut steps = 0;
        while steps < STEPS_MAX
            && has_room()
            && let Some(resumption) = self.waiting.pop(|_| 1)
        {
            let owner = resumption.owner;
            let cost = find(resumption);
            self.waiting.add_weight(owner, cost as u64);
            steps += 1 + cost;
        }
    }

    /// The time at which the next ones are found, in milliseconds. All else that has come goes first.
    pub(crate) fn next_ms(&self, now_ms: u64) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(now_ms + EVERY_MS)
    }
}

/// The steps in one turn of the node after which no further session is begun with: some milliseconds. A session costs some 10,000 at most, for its
/// channels.
const STEPS_MAX: usize = 16 * 1_024;
/// The time between two turns while sessions wait, in milliseconds.
const EVERY_MS: u64 = 1;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::sessions::tests::id;

    fn resumption(owner: u64, number: u64) -> Resumption {
        let (session, owner) = (id(number, 1), SessionOwner::of(owner));
        Resumption { session, shard: 0, owner, names: Vec::new(), mark: Bytes::new(), room: (0, 0) }
    }

    #[test]
    fn a_turn_has_a_bound_and_the_session_of_another_owner_is_found_in_the_next_one() {
        let mut resumptions = Resumptions::default();
        (0..350).for_each(|number| resumptions.add(resumption(1, number)));
        let turn = |resumptions: &mut Resumptions, cost: usize| {
            let mut found = Vec::new();
            let find = |resumption: Resumption| {
                found.push(resumption.session);
                if resumption.owner == SessionOwner::of(1) { cost } else { 2 }
            };
            resumptions.go_on(|| true, find);
            found
        };
        assert_eq!(turn(&mut resumptions, 9_900), [id(0, 1), id(1, 1)]);
        (350..353).for_each(|number| resumptions.add(resumption(2, number)));
        assert_eq!(turn(&mut resumptions, 9_900)[..3], [id(350, 1), id(351, 1), id(352, 1)]);
        let mut rest = Vec::new();
        while resumptions.next_ms(7).is_some_and(|next_ms| next_ms == 8) {
            rest.extend(turn(&mut resumptions, 1));
        }
        assert_eq!(rest, (4..350).map(|number| id(number, 1)).collect::<Vec<_>>(), "each once, in order");
    }

    #[test]
    fn without_room_they_wait() {
        let mut resumptions = Resumptions::default();
        resumptions.add(resumption(1, 1));
        resumptions.go_on(|| false, |_| panic!("there is no room"));
        assert!(resumptions.next_ms(7).is_some());
        let mut found = 0;
        resumptions.go_on(|| true, |_| std::mem::replace(&mut found, 1));
        assert_eq!((found, resumptions.next_ms(7)), (1, None));
    }
}
