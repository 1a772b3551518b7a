//! The bounded buffer of a subscription, between the client's task and the reader.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Message;
use crate::message::{Gap, GapCause, MESSAGE_BYTES};
use crate::unread::{Charge, Taken, Unread};

/// An item of a subscription.
pub(crate) type Item = Result<Message, Gap>;

/// The items that wait for a reader, between the client's task and the reader's.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// The channels and patterns.
    pub(crate) names: Vec<Box<str>>,
    items_max: usize,
    /// The memory that it shares with the other subscriptions.
    unread: Arc<Unread>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    items: VecDeque<(Item, Charge)>,
    taken: Taken,
    /// The number of messages that were discarded after those that wait.
    discarded: u64,
    /// Present until the reader has emptied half of the full buffer.
    full: Option<Full>,
    /// True if the client's task waits for room.
    is_awaited: bool,
    /// No items come any more.
    is_closed: bool,
    /// Nobody reads any more.
    is_dropped: bool,
    reader: Option<Waker>,
}

/// The moment at which a buffer had no room.
#[derive(Clone, Copy, Debug)]
struct Full {
    since: Instant,
    /// The memory of its items.
    bytes: usize,
}

/// The result of an attempt to put an item into a buffer.
#[derive(Debug)]
pub(crate) enum Pushed {
    Taken,
    /// The buffer is full; try again when there is room, or at this time.
    Full(Item, Instant),
}

impl Buffer {
    pub(crate) fn new(names: Vec<Box<str>>, items_max: usize, unread: Arc<Unread>) -> Arc<Buffer> {
        Arc::new(Buffer { names, items_max, unread, inner: Mutex::default() })
    }

    /// The next item, for the reader.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Item>> {
        let mut inner = self.inner.lock();
        let item = match inner.items.pop_front() {
            Some((item, charge)) => {
                self.unread.release(&mut inner.taken, charge);
                Some(item)
            }
            None => inner.take_gap(&self.names),
        };
        if inner.items.is_empty() {
            // Most subscriptions are idle most of the time.
            inner.items = VecDeque::new();
        }
        if inner.is_relieved(self.items_max) {
            inner.full = None;
            if std::mem::take(&mut inner.is_awaited) {
                self.unread.wake();
            }
        }
        match item {
            Some(item) => Poll::Ready(Some(item)),
            None if inner.is_closed => Poll::Ready(None),
            None => {
                inner.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Adds an item at the end. A full buffer refuses it until its reader has not emptied half of it for the time-out; then it
    /// discards items until the reader has done so.
    pub(crate) fn push(&self, item: Item, now: Instant, slow_reader_timeout: Duration) -> Pushed {
        let mut inner = self.inner.lock();
        if inner.is_dropped {
            return Pushed::Taken;
        }
        let is_discarding = inner.discarded > 0;
        // While items are discarded, the reader has to empty half first.
        let charge = if is_discarding && inner.full.is_some() { None } else { self.charge(&mut inner, &item) };
        match charge {
            Some(charge) => {
                if let Some(gap) = inner.take_gap(&self.names) {
                    inner.items.push_back((gap, Charge::NONE));
                }
                inner.items.push_back((item, charge));
                inner.wake_reader();
            }
            None if is_discarding => inner.discarded += 1,
            None => {
                let bytes = inner.taken.bytes();
                let deadline = inner.full.get_or_insert(Full { since: now, bytes }).since + slow_reader_timeout;
                if now < deadline {
                    inner.is_awaited = true;
                    return Pushed::Full(item, deadline);
                }
                tracing::warn!(channels = ?self.names, "a subscription is read too slowly, messages are discarded");
                (inner.discarded, inner.is_awaited) = (1, false);
            }
        }
        Pushed::Taken
    }

    /// Finds room for an item, in number and in memory.
    fn charge(&self, inner: &mut Inner, item: &Item) -> Option<Charge> {
        if inner.items.len() >= self.items_max {
            return None;
        }
        let bytes = item.as_ref().map_or_else(|gap| MESSAGE_BYTES + gap.channel.len(), Message::bytes);
        self.unread.charge(&mut inner.taken, bytes)
    }

    /// No items come any more.
    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.is_closed = true;
        inner.wake_reader();
    }

    /// Nobody reads any more. False if that was known.
    pub(crate) fn leave(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.items = VecDeque::new();
        self.unread.release_all(&mut inner.taken);
        if std::mem::take(&mut inner.is_awaited) {
            self.unread.wake();
        }
        !std::mem::replace(&mut inner.is_dropped, true)
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.inner.lock().is_dropped
    }
}

impl Inner {
    /// True if the buffer is not full, or half of what it had then has been read.
    fn is_relieved(&self, items_max: usize) -> bool {
        let has_room = |full: Full| self.items.len() <= items_max / 2 && self.taken.bytes() <= full.bytes / 2;
        self.full.is_none_or(has_room)
    }

    /// The report of discarded messages, if there are any.
    fn take_gap(&mut self, names: &[Box<str>]) -> Option<Item> {
        let messages = std::mem::take(&mut self.discarded);
        (messages > 0).then(|| Err(Gap { channel: names.join(","), cause: GapCause::SlowReader { messages } }))
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(1);

    fn message(number: usize) -> Item {
        Ok(Message::sample("/a", &number.to_string()))
    }

    fn buffer(items_max: usize) -> Arc<Buffer> {
        Buffer::new(vec!["/a".into()], items_max, Arc::new(Unread::new(1024 * 1024, Arc::default())))
    }

    fn read(buffer: &Buffer) -> Option<String> {
        match buffer.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(message))) => Some(message.data().to_string()),
            Poll::Ready(Some(Err(gap))) => Some(gap.to_string()),
            Poll::Ready(None) => Some("end".into()),
            Poll::Pending => None,
        }
    }

    fn push(buffer: &Buffer, number: usize, now: Instant) -> bool {
        matches!(buffer.push(message(number), now, TIMEOUT), Pushed::Taken)
    }

    #[test]
    fn a_full_buffer_waits_for_its_reader_and_loses_nothing() {
        let (buffer, now) = (buffer(4), Instant::now());
        (0..4).for_each(|number| assert!(push(&buffer, number, now)));
        assert!(!push(&buffer, 4, now), "full");
        assert_eq!(read(&buffer).as_deref(), Some("0"));
        assert!(push(&buffer, 4, now));
        for expected in ["1", "2", "3", "4"] {
            assert_eq!(read(&buffer).as_deref(), Some(expected));
        }
        assert_eq!(read(&buffer), None);
    }

    #[test]
    fn a_reader_that_stays_slow_gets_a_gap_where_messages_are_missing() {
        let (buffer, now) = (buffer(4), Instant::now());
        (0..4).for_each(|number| assert!(push(&buffer, number, now)));
        assert!(!push(&buffer, 4, now));
        let late = now + TIMEOUT;
        (4..7).for_each(|number| assert!(push(&buffer, number, late), "discarded"));
        assert_eq!(read(&buffer).as_deref(), Some("0"));
        assert!(push(&buffer, 7, late), "still discarded: half of the buffer is not empty");
        assert_eq!(read(&buffer).as_deref(), Some("1"));
        assert!(push(&buffer, 8, late), "and now it goes on");
        for expected in ["2", "3", "/a: 4 messages came faster than they were read", "8"] {
            assert_eq!(read(&buffer).as_deref(), Some(expected));
        }
    }

    #[test]
    fn memory_is_a_limit_as_the_number_of_items_is() {
        let long = || Ok(Message::sample("/a", &format!("\"{}\"", "x".repeat(100_000))));
        let (buffer, now) = (buffer(1000), Instant::now());
        let push = |now| matches!(buffer.push(long(), now, TIMEOUT), Pushed::Taken);
        let fits = (0..1000).take_while(|_| push(now)).count();
        // Half of 1 MiB.
        assert_eq!(fits, 5);
        assert!(push(now + TIMEOUT) && push(now + TIMEOUT), "discarded");
        for _ in 0..2 {
            read(&buffer).expect("a message");
            assert!(push(now + TIMEOUT), "still discarded: half of it is not read");
        }
        read(&buffer).expect("a message");
        assert!(push(now + TIMEOUT), "taken");
        let items: Vec<String> = std::iter::from_fn(|| read(&buffer)).collect();
        assert_eq!(items.len(), 4);
        assert_eq!(items[2], "/a: 4 messages came faster than they were read");
    }

    #[test]
    fn a_gap_is_reported_even_if_no_message_follows_and_the_end_comes_last() {
        let (buffer, now) = (buffer(1), Instant::now());
        assert!(push(&buffer, 0, now) && !push(&buffer, 1, now) && push(&buffer, 1, now + TIMEOUT));
        buffer.close();
        for expected in ["0", "/a: 1 messages came faster than they were read", "end", "end"] {
            assert_eq!(read(&buffer).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_reader_that_takes_a_message_now_and_then_does_not_hold_up_the_client_again_and_again() {
        let (buffer, mut now) = (buffer(10), Instant::now());
        (0..10).for_each(|number| assert!(push(&buffer, number, now)));
        let (mut waits, mut number) = (0, 10);
        for _ in 0..20 {
            while !push(&buffer, number, now) {
                now += TIMEOUT / 2;
                waits += 1;
            }
            number += 1;
            read(&buffer);
        }
        assert_eq!(waits, 2, "one time-out in all");
    }
}
