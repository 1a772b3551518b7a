//! The queues of readers that wait at the edge of a shard. A reader holds its position until it is admitted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::task::Waker;

use encke_core::{Id, SocketKey, Weight};

/// A waiting reader.
#[derive(Clone, Copy)]
pub(crate) enum Reader {
    Socket(SocketKey),
    /// A request of this session's client, if it names one.
    Request(Option<Id>),
}

/// The queue in which a reader waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    Light,
    Heavy,
    Disk,
    /// Behind a message that waits for the application. The shard wakes each by itself.
    Decision,
}

impl Queue {
    pub(super) fn of(weight: Weight) -> Queue {
        match weight {
            Weight::Light => Queue::Light,
            Weight::Heavy => Queue::Heavy,
        }
    }
}

/// A position in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePosition {
    queue: Queue,
    number: u64,
}

/// A reader in a queue.
pub(super) struct WaitingReader {
    pub(super) reader: Reader,
    /// The size of its message, as far as it is known.
    pub(super) bytes: usize,
    pub(super) waker: Waker,
}

/// The queues of one shard.
#[derive(Default)]
pub(crate) struct Queues(RefCell<ReadersInQueues>);

#[derive(Default)]
struct ReadersInQueues {
    readers: [BTreeMap<u64, WaitingReader>; 4],
    numbers: u64,
}

impl Queues {
    /// True if a reader with this position, or without one, would pass nobody in a queue.
    pub(super) fn is_first(&self, queue: Queue, position: Option<QueuePosition>) -> bool {
        let waiting = self.0.borrow();
        let first = waiting.readers[queue as usize].first_key_value().map(|(number, _)| *number);
        first.is_none_or(|first| position.is_some_and(|position| position.queue == queue && position.number <= first))
    }

    pub(super) fn is_empty(&self, queue: Queue) -> bool {
        self.0.borrow().readers[queue as usize].is_empty()
    }

    /// Puts a reader into a queue, or renews it there. It must have left any other.
    pub(super) fn enter(&self, position: &mut Option<QueuePosition>, queue: Queue, reader: WaitingReader) {
        let mut waiting = self.0.borrow_mut();
        let number = position.map_or(waiting.numbers, |position| position.number);
        if position.is_none() {
            waiting.numbers += 1;
        }
        waiting.readers[queue as usize].insert(number, reader);
        *position = Some(QueuePosition { queue, number });
    }

    /// True if a position is in this queue.
    pub(super) fn is_in(position: Option<QueuePosition>, queue: Queue) -> bool {
        position.is_some_and(|position| position.queue == queue)
    }

    /// Removes a reader. True if others wait in its queue.
    pub(super) fn leave(&self, position: &mut Option<QueuePosition>) -> bool {
        let Some(QueuePosition { queue, number }) = position.take() else { return false };
        let mut waiting = self.0.borrow_mut();
        waiting.readers[queue as usize].remove(&number);
        !waiting.readers[queue as usize].is_empty()
    }

    /// Wakes the readers in front: as many as may go on together, not all at once.
    pub(super) fn wake(&self, queue: Queue) {
        let mut bytes = 0;
        for reader in self.0.borrow().readers[queue as usize].values().take(WOKEN_AT_ONCE) {
            reader.waker.wake_by_ref();
            bytes += reader.bytes;
            if bytes > WOKEN_BYTES {
                break;
            }
        }
    }

    /// Calls a function with each waiting reader.
    pub(super) fn each(&self, mut each: impl FnMut(Reader)) {
        self.0.borrow().readers.iter().flat_map(BTreeMap::values).for_each(|waiting| each(waiting.reader));
    }
}

/// The number of readers woken together, and the bytes of their messages after which no more are woken.
const WOKEN_AT_ONCE: usize = 16;
const WOKEN_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: usize) -> WaitingReader {
        WaitingReader { reader: Reader::Request(None), bytes, waker: Waker::noop().clone() }
    }

    #[test]
    fn readers_go_on_in_the_order_in_which_they_came() {
        let queues = Queues::default();
        let (mut one, mut two) = (None, None);
        assert!(queues.is_first(Queue::Light, one), "nobody waits");
        queues.enter(&mut one, Queue::Light, reader(1));
        queues.enter(&mut two, Queue::Light, reader(1));
        queues.enter(&mut one, Queue::Light, reader(2));
        assert!(queues.is_first(Queue::Light, one) && !queues.is_first(Queue::Light, two));
        assert!(!queues.is_first(Queue::Light, None) && queues.is_first(Queue::Heavy, None));
        assert!(queues.leave(&mut one), "another one waits");
        assert!(queues.is_first(Queue::Light, two) && !queues.leave(&mut two));
        assert!(queues.is_empty(Queue::Light) && !queues.leave(&mut two));
    }
}
