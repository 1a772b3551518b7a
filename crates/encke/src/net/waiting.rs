//! Readers that wait at the edge of a shard: WebSockets with a message, requests with a batch.
//!
//! The shard decides which of them may continue ([`Shard::admits`](encke_core::Shard::admits)). The readers wait here in three
//! queues: light messages, heavy messages, and publications that wait for the disk. A fourth has WebSockets whose last
//! message waits for the application: they go on when the shard says so. A reader that leaves its queue, and
//! every flush that wrote everything, wakes the next ones to try again. While readers wait, neither they nor their
//! sessions count as silent.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use super::incomplete::Sender;
use super::node::Node;
use super::queues::{Queue, QueuePosition, Reader, WaitingReader};
use super::waiting_bodies::BodyShare;
use encke_core::{Id, Now, Over, Peer, Usage, Weight};

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
        let is_first = self.queues.borrow().is_first(Queue::of(weight), *position);
        if is_first && self.admits(now, weight) {
            self.leave_queue(position);
            return true;
        }
        self.wait_in_queue(position, Queue::of(weight), reader, bytes, waker);
        false
    }

    /// True if a message behind others that were processed may go on. It is in no queue, so it may not pass
    /// readers that wait.
    pub(crate) fn admits_next(&self, now: Now, weight: Weight, admitted: Option<Weight>) -> bool {
        let is_its_turn = admitted == Some(weight) || self.queues.borrow().is_empty(Queue::of(weight));
        is_its_turn && self.admits(now, weight)
    }

    fn admits(&self, now: Now, weight: Weight) -> bool {
        let mut shard = self.shard_mut();
        let admits = shard.admits(now, weight);
        if !admits {
            let metrics = shard.metrics();
            if self.server().mailboxes.account().has_room(weight) {
                &metrics.flush_waits
            } else {
                &metrics.mailbox_waits
            }
            .add(1);
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
        self.shard().metrics().history_store_waits.add(1);
        self.wait_in_queue(position, Queue::Disk, reader, 0, waker);
        false
    }

    /// Lets a reader wait while its last message waits for the application.
    pub(crate) fn wait_for_decision(&self, position: &mut Option<QueuePosition>, reader: Reader, waker: &Waker) {
        self.wait_in_queue(position, Queue::Decision, reader, 0, waker);
    }

    /// Waits until a request with a body of so many bytes may be processed. `client` finds the session that it names, if it names one.
    ///
    /// # Errors
    /// [`Over`]: the bodies of requests that wait leave no room for this one (`waiting_requests_bytes_max`).
    pub(crate) async fn wait_for_turn(
        &self,
        usage: &Usage,
        bytes: usize,
        peer: Peer,
        client: impl FnOnce() -> Option<Id>,
    ) -> Result<(), Over> {
        let now = self.now();
        if self.admits_next(now, usage.weigh(now, bytes), None) {
            return Ok(());
        }
        let share = Some(self.take_room(bytes, peer)?);
        let reader = Reader::Request(client());
        let mut queued = QueuedRequest { node: self, position: None, share };
        poll_fn(|cx| {
            let now = self.now();
            let weight = usage.weigh(now, bytes);
            let admitted = self.admit(now, &mut queued.position, weight, bytes, reader, cx.waker());
            if admitted { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        Ok(())
    }

    /// Takes room for the body of a request that waits.
    fn take_room(&self, bytes: usize, peer: Peer) -> Result<BodyShare, Over> {
        let (shard, mut bodies) = (self.shard(), self.waiting_bodies.borrow_mut());
        let share = bodies.take(bytes, peer, shard.settings());
        shard.metrics().waiting_requests_refused.add(share.is_err().into());
        shard.metrics().waiting_requests_bytes.set(bodies.bytes());
        share
    }

    fn wait_in_queue(
        &self,
        position: &mut Option<QueuePosition>,
        queue: Queue,
        reader: Reader,
        bytes: usize,
        waker: &Waker,
    ) {
        let reader = WaitingReader { reader, bytes, waker: waker.clone() };
        if self.queues.borrow_mut().enter(position, queue, reader) {
            self.wake();
        }
    }

    /// Removes a reader from its queue, and wakes the next readers.
    pub(crate) fn leave_queue(&self, position: &mut Option<QueuePosition>) {
        if self.queues.borrow_mut().leave(position) {
            self.wake();
        }
    }

    /// Wakes the readers in front whose turn it is: as many as may go on together, not all at once.
    pub(crate) fn wake_readers(&self) {
        for weight in [Weight::Light, Weight::Heavy] {
            let queue = Queue::of(weight);
            if !self.queues.borrow().is_empty(queue) && self.shard_mut().admits(self.now(), weight) {
                self.queues.borrow().wake(queue);
            }
        }
        if !self.is_disk_behind() {
            self.queues.borrow().wake(Queue::Disk);
        }
    }

    /// Marks the waiting readers as not silent.
    pub(crate) fn keep_waiting_alive(&self) {
        let now = self.now();
        let mut shard = self.shard_mut();
        self.queues.borrow().each(|reader| match reader {
            Reader::Socket(key) => {
                shard.socket_waits(now, key);
                self.incomplete.borrow_mut().excuse(Sender::Socket(key));
            }
            Reader::Request(Some(client)) => shard.request_waits(now, client),
            Reader::Request(None) => {}
        });
    }
}

/// A request in a queue, with the room for its body. Dropping it removes it from the queue.
struct QueuedRequest<'a> {
    node: &'a Node,
    position: Option<QueuePosition>,
    share: Option<BodyShare>,
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        self.node.leave_queue(&mut self.position);
        let mut bodies = self.node.waiting_bodies.borrow_mut();
        self.share.take().into_iter().for_each(|share| bodies.give_back(share));
        self.node.shard().metrics().waiting_requests_bytes.set(bodies.bytes());
    }
}
