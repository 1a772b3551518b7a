//! The queues of readers that wait at the edge of a shard. A reader holds its position until it is admitted.

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
pub(crate) struct Queues {
    readers: [BTreeMap<u64, WaitingReader>; 4],
    numbers: u64,
}

impl Queues {
    /// True if a reader with this position, or without one, would pass nobody in a queue.
    pub(super) fn is_first(&self, queue: Queue, position: Option<QueuePosition>) -> bool {
        let first = self.readers[queue as usize].first_key_value().map(|(number, _)| *number);
        first.is_none_or(|first| position.is_some_and(|position| position.queue == queue && position.number <= first))
    }

    pub(super) fn is_empty(&self, queue: Queue) -> bool {
        self.readers[queue as usize].is_empty()
    }

    /// Puts a reader into a queue, or renews it there. True if it leaves another queue, in which others wait.
    pub(super) fn enter(&mut self, position: &mut Option<QueuePosition>, queue: Queue, reader: WaitingReader) -> bool {
        let has_left = position.is_some_and(|position| position.queue != queue) && self.leave(position);
        let number = position.map_or(self.numbers, |position| position.number);
        self.numbers += u64::from(position.is_none());
        self.readers[queue as usize].insert(number, reader);
        *position = Some(QueuePosition { queue, number });
        has_left
    }

    /// Removes a reader. True if others wait in its queue.
    pub(super) fn leave(&mut self, position: &mut Option<QueuePosition>) -> bool {
        let Some(QueuePosition { queue, number }) = position.take() else { return false };
        let readers = &mut self.readers[queue as usize];
        readers.remove(&number);
        !readers.is_empty()
    }

    /// Wakes the readers in front: as many as may go on together, not all at once.
    pub(super) fn wake(&self, queue: Queue) {
        let mut bytes = 0;
        for reader in self.readers[queue as usize].values().take(WOKEN_AT_ONCE) {
            reader.waker.wake_by_ref();
            bytes += reader.bytes;
            if bytes > WOKEN_BYTES {
                break;
            }
        }
    }

    /// Calls a function with each waiting reader.
    pub(super) fn each(&self, mut each: impl FnMut(Reader)) {
        self.readers.iter().flat_map(BTreeMap::values).for_each(|waiting| each(waiting.reader));
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
        let mut queues = Queues::default();
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
