//! The nodes that have sessions which other nodes have opened, as far as they are known: a session that has moved is found
//! without the engine's keys. The oldest notes give way to new ones.

use std::collections::{HashMap, VecDeque};

use encke_core::NodeTag;
use foldhash::fast::RandomState;

use super::record::Key;

/// The known nodes of sessions.
#[derive(Default)]
pub(super) struct Homes {
    nodes: HashMap<Key, NodeTag, RandomState>,
    /// Oldest first. A key may be here several times.
    order: VecDeque<Key>,
}

impl Homes {
    /// The node of a session, if it is known.
    pub(super) fn of(&self, key: &Key) -> Option<NodeTag> {
        self.nodes.get(key).copied()
    }

    /// Notes the node of a session.
    pub(super) fn note(&mut self, key: Key, node: NodeTag) {
        if self.nodes.insert(key, node).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > HOMES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.nodes.remove(&oldest);
        }
    }

    /// Forgets a note that was wrong.
    pub(super) fn forget(&mut self, key: &Key, node: NodeTag) {
        if self.of(key) == Some(node) {
            self.nodes.remove(key);
        }
    }
}

/// Sessions whose nodes are noted: some 10 MB.
const HOMES_MAX: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::tests::{id, tag};

    #[test]
    fn the_oldest_notes_give_way() {
        let mut homes = Homes::default();
        let key = |number| Key::of(&id(number, 0));
        (0..HOMES_MAX as u64 + 10).for_each(|number| homes.note(key(number), tag(1)));
        assert_eq!((homes.of(&key(9)), homes.of(&key(10))), (None, Some(tag(1))));
        homes.note(key(10), tag(2));
        homes.forget(&key(10), tag(1));
        assert_eq!(homes.of(&key(10)), Some(tag(2)));
        homes.forget(&key(10), tag(2));
        assert!(homes.of(&key(10)).is_none() && homes.nodes.len() < HOMES_MAX && homes.order.len() <= HOMES_MAX);
    }
}
