//! Plain data that lists show of a shard. It leaves the thread of the shard.

use crate::id::Id;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Its id.
    pub id: Id,
    /// Its user. Empty: anonymous.
    pub user: Box<str>,
    /// True if it has a connection now: a WebSocket, or a request with a held connect.
    pub is_connected: bool,
    /// The number of its subscriptions.
    pub subscriptions: usize,
    /// Messages that wait in its outbox.
    pub waiting_messages: usize,
    /// Bytes that wait in its outbox.
    pub waiting_bytes: usize,
}

/// The owner of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A user.
    User(Box<str>),
    /// The token with this id.
    Token(Box<str>),
}

/// A channel or a pattern with subscribers on one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelView {
    /// Its name.
    pub name: Box<str>,
    /// The number of its subscribers on this shard.
    pub subscribers: usize,
}

/// A part of a table, read slot by slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items, in the order of their slots.
    pub items: Vec<T>,
    /// The slot with which the next page begins. None after the last slot.
    pub next: Option<usize>,
}

impl<T> Page<T> {
    /// Reads the slots from `first` on, of `slots` in all, until it has `max` items or has visited
    /// [`SLOTS_VISITED_MAX`] slots.
    pub(crate) fn read(first: usize, slots: usize, max: usize, mut item: impl FnMut(usize) -> Option<T>) -> Page<T> {
        let (mut items, mut slot) = (Vec::new(), first);
        let end = slots.min(first.saturating_add(SLOTS_VISITED_MAX));
        while slot < end && items.len() < max {
            items.extend(item(slot));
            slot += 1;
        }
        Page { items, next: (slot < slots).then_some(slot) }
    }
}

/// The maximum number of slots that one page visits: a shard must not search a large empty table for long.
pub const SLOTS_VISITED_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_contain_each_occupied_slot_once() {
        let item = |slot: usize| slot.is_multiple_of(3).then_some(slot);
        let (mut found, mut next) = (Vec::new(), Some(0));
        while let Some(first) = next {
            let page = Page::read(first, 10, 2, item);
            assert!(page.items.len() <= 2);
            found.extend(page.items);
            next = page.next;
        }
        assert_eq!(found, [0, 3, 6, 9]);
    }

    #[test]
    fn a_page_of_an_empty_table_ends_at_the_limit_of_visited_slots() {
        let page = Page::read(7, 10 * SLOTS_VISITED_MAX, 5, |_| None::<()>);
        assert_eq!((page.items.len(), page.next), (0, Some(7 + SLOTS_VISITED_MAX)));
        assert_eq!(Page::read(usize::MAX, 10, 5, Some), Page { items: vec![], next: None });
    }
}
