//! Incomplete messages: WebSocket messages and request bodies that have begun to arrive and are not complete.
//!
//! Clients decide how many there are and how long they stay. Each shard therefore limits their bytes:
//! `incomplete_bytes_max`. Over the limit the shard gives up the messages that have not grown for the longest time:
//! it closes the WebSocket with code 1013, or answers the request with 503. A message that arrives complete in one
//! read never counts. A message that the server itself is not reading at the moment is given up only when there are
//! no others.

use std::collections::{BTreeMap, HashMap};
use std::task::Waker;

use foldhash::fast::RandomState;

use encke_core::{Settings, SocketKey};

/// The sender of an incomplete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sender {
    /// A WebSocket.
    Socket(SocketKey),
    /// A request.
    Request(u64),
}

/// All incomplete messages of one shard.
#[derive(Default)]
pub(crate) struct Incomplete {
    bytes: usize,
    numbers: u64,
    /// Ordered by the time of the last growth, oldest first.
    order: BTreeMap<u64, Entry>,
    senders: HashMap<Sender, u64, RandomState>,
}

struct Entry {
    sender: Sender,
    bytes: usize,
    /// The waker of a request's task.
    waker: Option<Waker>,
}

impl Incomplete {
    /// Sets the bytes that a message holds: 0 for one that is complete or gone. Over the limit it gives up others, or this
    /// one: it passes their senders on, with the waker of a request's task. Returns the bytes of all.
    pub(super) fn note(
        &mut self,
        sender: Sender,
        bytes: usize,
        waker: Option<&Waker>,
        settings: &Settings,
        mut give_up: impl FnMut(Sender, Option<Waker>),
    ) -> usize {
        self.set(sender, bytes, waker.cloned());
        let bytes_max = settings.incomplete_bytes_max.max(MESSAGES_LEAST * settings.message_bytes_max);
        while let Some(Entry { sender, waker, .. }) = self.give_up(bytes_max) {
            give_up(sender, waker);
        }
        self.bytes
    }

    /// True if a sender has an incomplete message that was not given up.
    pub(super) fn has(&self, sender: Sender) -> bool {
        self.senders.contains_key(&sender)
    }

    /// Sets the size of a message: 0 for one that is complete or gone.
    fn set(&mut self, sender: Sender, bytes: usize, waker: Option<Waker>) {
        if let Some(entry) = self.senders.remove(&sender).and_then(|number| self.order.remove(&number)) {
            self.bytes -= entry.bytes;
        }
        if bytes > 0 {
            self.bytes += bytes;
            self.numbers += 1;
            self.order.insert(self.numbers, Entry { sender, bytes, waker });
            self.senders.insert(sender, self.numbers);
        }
    }

    /// Counts the message as just grown: the server is not reading its sender.
    pub(super) fn excuse(&mut self, sender: Sender) {
        if let Some(entry) = self.senders.get(&sender).and_then(|number| self.order.remove(number)) {
            self.numbers += 1;
            self.order.insert(self.numbers, entry);
            self.senders.insert(sender, self.numbers);
        }
    }

    /// Gives up the message that has not grown for the longest time, if all together exceed the limit.
    fn give_up(&mut self, bytes_max: usize) -> Option<Entry> {
        if self.bytes <= bytes_max {
            return None;
        }
        let (_, entry) = self.order.pop_first()?;
        self.senders.remove(&entry.sender);
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

/// The number of messages of the greatest size that a shard always admits, whatever the limit is.
const MESSAGES_LEAST: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_stalled_sender_is_given_up_unless_it_is_not_being_read() {
        let mut incomplete = Incomplete::default();
        let given_up = |incomplete: &mut Incomplete| incomplete.give_up(100).map(|entry| entry.sender);
        for number in 0..4 {
            incomplete.set(Sender::Request(number), 25, None);
        }
        assert_eq!(given_up(&mut incomplete), None);
        incomplete.set(Sender::Request(0), 26, None);
        incomplete.excuse(Sender::Request(1));
        assert_eq!(given_up(&mut incomplete), Some(Sender::Request(2)));
        assert_eq!(given_up(&mut incomplete), None);
        incomplete.set(Sender::Request(3), 0, None);
        incomplete.set(Sender::Request(0), 90, None);
        assert_eq!(given_up(&mut incomplete), Some(Sender::Request(1)));
        assert_eq!((incomplete.bytes, incomplete.order.len(), incomplete.senders.len()), (90, 1, 1));
        incomplete.set(Sender::Request(0), 101, None);
        assert_eq!(given_up(&mut incomplete), Some(Sender::Request(0)));
        assert_eq!((incomplete.bytes, given_up(&mut incomplete)), (0, None));
    }
}
