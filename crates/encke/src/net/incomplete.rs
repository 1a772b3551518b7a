//! Incomplete messages: WebSocket messages and request bodies that have begun to arrive and are not complete.
//!
//! Clients decide how many there are and how long they stay. Each shard therefore limits their bytes:
//! `incomplete_bytes_max`. Over the limit the shard gives up the messages that have not grown for the longest time:
//! it closes the WebSocket with code 1013, or answers the request with 503. A message that arrives complete in one
//! read never counts. A message that the server itself is not reading at the moment is given up only when there are
//! no others.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use foldhash::fast::RandomState;
use hyper::body::{Body, Frame, SizeHint};

use super::node::Node;
use encke_core::SocketKey;

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

/// The incomplete messages of a node.
pub(crate) type SharedIncomplete = RefCell<Incomplete>;

impl Incomplete {
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
    pub(crate) fn excuse(&mut self, sender: Sender) {
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

impl Node {
    /// Sets the bytes that an incomplete message holds now: 0 for one that is complete or gone. Over the limit it
    /// gives up others, or this one.
    pub(crate) fn note_incomplete(&self, sender: Sender, bytes: usize, waker: Option<&Waker>) {
        let mut incomplete = self.incomplete.borrow_mut();
        incomplete.set(sender, bytes, waker.cloned());
        let shard = self.shard.borrow();
        let settings = shard.settings();
        let bytes_max = settings.incomplete_bytes_max.max(MESSAGES_LEAST * settings.message_bytes_max);
        while let Some(Entry { sender, waker, .. }) = incomplete.give_up(bytes_max) {
            shard.metrics().incomplete_given_up.add(1);
            match sender {
                Sender::Socket(key) => {
                    let streams = self.streams.borrow();
                    let stream = streams.get(key.index as usize).and_then(Option::as_ref);
                    if let Some(stream) = stream.filter(|stream| stream.key == key) {
                        stream.given_up.set(true);
                        stream.wake();
                    }
                }
                Sender::Request(_) => waker.into_iter().for_each(Waker::wake),
            }
        }
        shard.metrics().incomplete_bytes.set(incomplete.bytes);
    }
}

/// The body of a request, counted until it is complete.
pub(crate) struct Watched<'a, B> {
    body: B,
    node: &'a Node,
    sender: Sender,
    bytes: usize,
}

/// The body was given up.
#[derive(Debug)]
pub(crate) struct GivenUp;

impl std::fmt::Display for GivenUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("too many incomplete messages")
    }
}

impl std::error::Error for GivenUp {}

impl<'a, B> Watched<'a, B> {
    pub(crate) fn new(node: &'a Node, body: B) -> Watched<'a, B> {
        Watched { body, node, sender: Sender::Request(node.connection_number()), bytes: 0 }
    }
}

impl<B> Body for Watched<'_, B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.bytes > 0 && !self.node.incomplete.borrow().senders.contains_key(&self.sender) {
            return Poll::Ready(Some(Err(GivenUp.into())));
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && !self.body.is_end_stream()
        {
            self.bytes += PIECE_BYTES + frame.data_ref().map_or(0, Bytes::len);
            self.node.note_incomplete(self.sender, self.bytes, Some(cx.waker()));
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Watched<'_, B> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.node.note_incomplete(self.sender, 0, None);
        }
    }
}

/// The number of messages of the greatest size that a shard always admits, whatever the limit is.
const MESSAGES_LEAST: usize = 2;
/// The cost of each piece of a body beside its bytes, in bytes.
const PIECE_BYTES: usize = 64;

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
