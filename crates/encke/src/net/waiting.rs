//! Readers that wait at the edge of a shard: WebSockets with a message, requests with a batch.
//!
//! The shard decides which of them may continue ([`Shard::admits`](encke_core::Shard::admits)). The readers wait here in three
//! queues: light messages, heavy messages, and publications that wait for the disk. A fourth has WebSockets whose last
//! message waits for the application: they go on when the shard says so. A reader that leaves its queue, and
//! every flush that wrote everything, wakes the next ones to try again. While readers wait, neither they nor their
//! sessions count as silent.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use super::incomplete::Sender;
use super::node::Node;
use encke_core::{Id, Now, SocketKey, Usage, Weight};

/// A waiting reader.
#[derive(Clone, Copy)]
pub(crate) enum Reader {
    Socket(SocketKey),
    /// A request of this session's client, if it names one.
    Request(Option<Id>),
}

/// The queue in which a reader waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Light,
    Heavy,
    Disk,
    /// Behind a message that waits for the application. The shard wakes each by itself.
    Decision,
}

/// A position in a queue. The reader holds it until it is admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePosition {
    queue: Queue,
    number: u64,
}

struct Waiter {
    reader: Reader,
    /// The size of its message, as far as it is known.
    bytes: usize,
    waker: Waker,
}

/// The queues of one shard.
#[derive(Default)]
pub(crate) struct Queues {
    waiters: [BTreeMap<u64, Waiter>; 4],
    numbers: u64,
}

impl Queue {
    fn of(weight: Weight) -> Queue {
        match weight {
            Weight::Light => Queue::Light,
            Weight::Heavy => Queue::Heavy,
        }
    }
}

impl Node {
    /// True if a reader whose next message has this weight and size may go on. If not, it has a position in a queue and is
    /// woken at its turn.
    pub(crate) fn admit(
        &self,
        now: Now,
        position: &mut Option<QueuePosition>,
        weight: Weight,
        bytes: usize,
        reader: Reader,
        waker: &Waker,
    ) -> bool {
        let is_first = {
            let queues = self.queues.borrow();
            let first = queues.waiters[Queue::of(weight) as usize].first_key_value().map(|(number, _)| *number);
            first.is_none_or(|first| {
                position.is_some_and(|position| position.queue == Queue::of(weight) && position.number <= first)
            })
        };
        if is_first && self.admits(now, weight) {
            self.leave_queue(position);
            return true;
        }
        self.wait_in_queue(position, Queue::of(weight), Waiter { reader, bytes, waker: waker.clone() });
        false
    }

    /// True if a message behind others that were processed may go on. It is in no queue, so it may not pass
    /// readers that wait.
    pub(crate) fn admits_next(&self, now: Now, weight: Weight, admitted: Option<Weight>) -> bool {
        let is_its_turn =
            admitted == Some(weight) || self.queues.borrow().waiters[Queue::of(weight) as usize].is_empty();
        is_its_turn && self.admits(now, weight)
    }

    fn admits(&self, now: Now, weight: Weight) -> bool {
        let mut shard = self.shard.borrow_mut();
        let admits = shard.admits(now, weight);
        if !admits {
            let metrics = shard.metrics();
            if self.mailbox.has_room(weight) { &metrics.flush_waits } else { &metrics.mailbox_waits }.add(1);
        }
        admits
    }

    /// True if a socket whose last messages were for histories may be read: not while too much of them waits for the
    /// disk.
    pub(crate) fn may_publish_to_disk(
        &self,
        position: &mut Option<QueuePosition>,
        reader: Reader,
        waker: &Waker,
    ) -> bool {
        if !self.is_disk_behind() {
            return true;
        }
        self.shard.borrow().metrics().history_store_waits.add(1);
        self.wait_in_queue(position, Queue::Disk, Waiter { reader, bytes: 0, waker: waker.clone() });
        false
    }

    /// Lets a reader wait while its last message waits for the application.
    pub(crate) fn wait_for_decision(&self, position: &mut Option<QueuePosition>, reader: Reader, waker: &Waker) {
        self.wait_in_queue(position, Queue::Decision, Waiter { reader, bytes: 0, waker: waker.clone() });
    }

    /// Waits until a request may be processed.
    pub(crate) async fn wait_for_admission(&self, usage: &Usage, body: &str) {
        let now = self.now();
        if self.admits_next(now, usage.weigh(now, body.len()), None) {
            return;
        }
        let reader = Reader::Request(self.shard.borrow().client_of_request(body));
        self.wait_in_line(usage, body.len(), reader).await;
    }

    /// Waits until a request of no session may be processed.
    pub(crate) async fn wait_for_turn(&self, usage: &Usage, bytes: usize) {
        let now = self.now();
        if !self.admits_next(now, usage.weigh(now, bytes), None) {
            self.wait_in_line(usage, bytes, Reader::Request(None)).await;
        }
    }

    async fn wait_in_line(&self, usage: &Usage, bytes: usize, reader: Reader) {
        let mut queued = QueuedRequest { node: self, position: None };
        poll_fn(|cx| {
            let now = self.now();
            let weight = usage.weigh(now, bytes);
            let admitted = self.admit(now, &mut queued.position, weight, bytes, reader, cx.waker());
            if admitted { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn wait_in_queue(&self, position: &mut Option<QueuePosition>, queue: Queue, waiter: Waiter) {
        let mut queues = self.queues.borrow_mut();
        let known = position.filter(|position| position.queue == queue);
        let number = known.map_or(queues.numbers, |position| position.number);
        if known.is_none() {
            drop(queues);
            self.leave_queue(position);
            queues = self.queues.borrow_mut();
            queues.numbers += 1;
        }
        queues.waiters[queue as usize].insert(number, waiter);
        *position = Some(QueuePosition { queue, number });
    }

    /// Removes a reader from its queue, and wakes the next readers.
    pub(crate) fn leave_queue(&self, position: &mut Option<QueuePosition>) {
        let Some(QueuePosition { queue, number }) = position.take() else { return };
        let mut queues = self.queues.borrow_mut();
        queues.waiters[queue as usize].remove(&number);
        if !queues.waiters[queue as usize].is_empty() {
            self.confirmations.wake.notify_one();
        }
    }

    /// Wakes the readers in front whose turn it is: as many as may go on together, not all at once.
    pub(crate) fn wake_readers(&self) {
        let queues = self.queues.borrow();
        for weight in [Weight::Light, Weight::Heavy] {
            let queue = &queues.waiters[Queue::of(weight) as usize];
            if !queue.is_empty() && self.shard.borrow_mut().admits(self.now(), weight) {
                let mut bytes = 0;
                for waiter in queue.values().take(WOKEN_AT_ONCE) {
                    waiter.waker.wake_by_ref();
                    bytes += waiter.bytes;
                    if bytes > WOKEN_BYTES {
                        break;
                    }
                }
            }
        }
        if !self.is_disk_behind() {
            queues.waiters[Queue::Disk as usize]
                .values()
                .take(WOKEN_AT_ONCE)
                .for_each(|waiter| waiter.waker.wake_by_ref());
        }
    }

    /// Marks the waiting readers as not silent.
    pub(crate) fn keep_waiting_alive(&self) {
        let now = self.now();
        let queues = self.queues.borrow();
        let mut shard = self.shard.borrow_mut();
        for waiter in queues.waiters.iter().flat_map(BTreeMap::values) {
            match waiter.reader {
                Reader::Socket(key) => {
                    shard.socket_waits(now, key);
                    self.incomplete.borrow_mut().excuse(Sender::Socket(key));
                }
                Reader::Request(Some(client)) => shard.request_waits(now, client),
                Reader::Request(None) => {}
            }
        }
    }
}

/// A request in a queue. Dropping it removes it from the queue.
struct QueuedRequest<'a> {
    node: &'a Node,
    position: Option<QueuePosition>,
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        self.node.leave_queue(&mut self.position);
    }
}

/// The queues, as a node has them.
pub(crate) type SharedQueues = RefCell<Queues>;

/// The number of readers woken together, and the bytes of their messages after which no more are woken.
const WOKEN_AT_ONCE: usize = 16;
const WOKEN_BYTES: usize = 64 * 1024;
