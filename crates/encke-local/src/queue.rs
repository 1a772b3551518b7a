//! The queue of one subscriber: bounded, with the number of messages that it had no room for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use websocket::frame;

use crate::message::{Gap, Message};
use crate::positions::Position;
use encke_core::history::RingKey;
use encke_core::{EncodedPublications, Side};

/// Publications of one channel, shared by all queues.
pub(crate) struct Burst {
    channel: Arc<str>,
    /// WebSocket text frames, each with one message in an array.
    frames: Bytes,
    messages: usize,
    side: Side,
    /// The ring, its epoch, and the offset of the first message.
    position: Option<(RingKey, Arc<str>, u64)>,
    waiting: Arc<QueuedBytes>,
}

/// The bytes of all bursts that wait for a subscriber. Each counts once.
#[derive(Default)]
pub(crate) struct QueuedBytes {
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

impl QueuedBytes {
    /// Sets the limit of one queue. All together may hold some times as much.
    pub(crate) fn limit(&self, queue_bytes_max: usize) {
        self.bytes_max.store(queue_bytes_max.saturating_mul(QUEUES), Ordering::Relaxed);
    }

    /// The bytes that one queue may hold while little room is left for all of them.
    pub(crate) fn room(&self) -> usize {
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        let left = bytes_max.saturating_sub(self.bytes.load(Ordering::Relaxed));
        if left < bytes_max / 4 { left / QUEUES } else { usize::MAX }
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.waiting.bytes.fetch_sub(self.frames.len(), Ordering::Relaxed);
    }
}

/// The queue of a subscriber.
pub(crate) struct Queue {
    messages_max: usize,
    bytes_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    bursts: VecDeque<Arc<Burst>>,
    /// The number of messages of the first burst that were read, and their bytes.
    read: (usize, usize),
    messages: usize,
    bytes: usize,
    /// Messages discarded before those that wait.
    discarded: u64,
    is_closed: bool,
    reader: Option<Waker>,
}

impl Burst {
    /// Copies a publication: its own bytes are charged to the mailboxes of the server, which slow subscribers must not
    /// fill.
    pub(crate) fn new(publication: &EncodedPublications, waiting: &Arc<QueuedBytes>) -> Burst {
        waiting.bytes.fetch_add(publication.frames.len(), Ordering::Relaxed);
        let position = publication.position.as_ref();
        Burst {
            channel: (&*publication.channel).into(),
            frames: Bytes::copy_from_slice(&publication.frames),
            messages: publication.messages as usize,
            side: publication.side,
            position: position.map(|position| (position.ring, position.epoch.clone(), position.first)),
            waiting: waiting.clone(),
        }
    }

    /// The message after the first ones, of which the number and the bytes are given; and the bytes up to its end. None
    /// if there is none.
    fn message(&self, read: usize, start: usize) -> Option<(Message, usize)> {
        let (header, length) = frame::split(self.frames.get(start..)?)?;
        let end = start + header + length;
        let position = self
            .position
            .as_ref()
            .map(|(ring, epoch, first)| (Position { epoch: epoch.clone(), offset: first + read as u64 }, *ring));
        // The payload is an array of one message.
        let json = self.frames.slice((start + header + 1).min(end)..(end - 1).max(start));
        Some((Message::new(self.channel.clone(), json, self.side, position), end))
    }
}

impl Queue {
    pub(crate) fn new(messages_max: usize, bytes_max: usize) -> Queue {
        Queue { messages_max, bytes_max, inner: Mutex::default() }
    }

    /// Adds a burst. Discards the oldest messages if there are too many; those of this burst only if it is large and there
    /// is no room for it. Returns their number.
    pub(crate) fn push(&self, burst: &Arc<Burst>, room: usize) -> u64 {
        let bytes_max = self.bytes_max.min(room);
        let least = usize::from(burst.frames.len() <= room.max(SMALL_BYTES));
        let (reader, discarded) = {
            let mut inner = self.inner.lock();
            inner.messages += burst.messages;
            inner.bytes += burst.frames.len();
            inner.bursts.push_back(burst.clone());
            let mut discarded = 0;
            while inner.bursts.len() > least && (inner.messages > self.messages_max || inner.bytes > bytes_max) {
                discarded += inner.drop_first() as u64;
            }
            inner.discarded += discarded;
            (inner.reader.take(), discarded)
        };
        reader.into_iter().for_each(Waker::wake);
        discarded
    }

    /// No messages come any more. Those that wait can still be read.
    pub(crate) fn close(&self) {
        let reader = {
            let mut inner = self.inner.lock();
            inner.is_closed = true;
            inner.reader.take()
        };
        reader.into_iter().for_each(Waker::wake);
    }

    /// The next message, or a gap if some were discarded. None if the queue is closed and empty.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Result<Message, Gap>>> {
        let mut inner = self.inner.lock();
        if inner.discarded > 0 {
            return Poll::Ready(Some(Err(Gap::Slow { messages: std::mem::take(&mut inner.discarded) })));
        }
        while let Some(burst) = inner.bursts.front().cloned() {
            let (read, start) = inner.read;
            let Some((message, end)) = burst.message(read, start) else {
                inner.drop_first();
                continue;
            };
            inner.read = (read + 1, end);
            if end == burst.frames.len() {
                inner.drop_first();
            }
            return Poll::Ready(Some(Ok(message)));
        }
        if inner.is_closed {
            return Poll::Ready(None);
        }
        if !inner.reader.as_ref().is_some_and(|reader| reader.will_wake(context.waker())) {
            inner.reader = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Inner {
    /// Drops the first burst. Returns the number of its messages that were not read.
    fn drop_first(&mut self) -> usize {
        let Some(burst) = self.bursts.pop_front() else { return 0 };
        let (read, _) = std::mem::take(&mut self.read);
        self.messages -= burst.messages;
        self.bytes -= burst.frames.len();
        if self.bursts.is_empty() && self.bursts.capacity() > ROOM_RETAINED {
            self.bursts = VecDeque::new();
        }
        burst.messages.saturating_sub(read)
    }
}

/// All queues together may hold this many times what one may hold.
const QUEUES: usize = 16;
/// The bytes of a burst that always has room in an empty queue.
const SMALL_BYTES: usize = 4 * 1024;
/// A queue with at most this capacity is not shrunk.
const ROOM_RETAINED: usize = 64;
