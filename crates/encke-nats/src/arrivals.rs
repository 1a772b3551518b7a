//! The subscriptions of a connection, read as one stream: the older ones first.
//!
//! The client has a queue for each subscription, so envelopes of two subscriptions have no order there. While a wide one replaces a narrow
//! one, the server sends an envelope by the old one only, and the next one by both: even after the new one is confirmed, as
//! another connection of the server may still be sending. The client puts both copies into their queues before it is read again.
//! So all that is there is read at once, in a *batch*: of older subscriptions first. No envelope overtakes one before it, and none waits for more than
//! the batch before its own, however much comes by another subscription. Nothing comes while a batch is read: the client's tasks are on the same thread.
//!
//! Subscriptions that bring requests are a class apart, which goes first: the nodes ask each other there if they are alive. They have no order with envelopes.
//!
//! A subscription with something in its queue is among the *ready* ones: its waker puts it there.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem::take;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use async_nats::{Message, Subscriber};
use futures_util::stream::Stream;
use futures_util::task::AtomicWaker;

/// The subscriptions by their keys, which grow.
pub(crate) struct Arrivals<S = Subscriber> {
    requests: Class<S>,
    envelopes: Class<S>,
    /// Requests in a row that were taken while envelopes may have waited.
    row: u32,
}

/// Subscriptions that are read with each other.
struct Class<S> {
    streams: HashMap<u64, (S, Waker)>,
    ready: Arc<Ready>,
    /// The messages that were read at once and not taken yet, with the keys of their subscriptions.
    batch: VecDeque<(u64, Message)>,
}

/// The keys of subscriptions that may have something.
#[derive(Default)]
struct Ready {
    keys: Mutex<BTreeSet<u64>>,
    /// Wakes the reader.
    reader: AtomicWaker,
}

impl Ready {
    fn keys(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the reader for one subscription.
struct OfKey {
    key: u64,
    ready: Arc<Ready>,
}

impl Wake for OfKey {
    fn wake(self: Arc<Self>) {
        self.ready.keys().insert(self.key);
        self.ready.reader.wake();
    }
}

impl<S: Stream<Item = Message> + Unpin> Arrivals<S> {
    /// No subscriptions.
    pub(crate) fn new() -> Arrivals<S> {
        Arrivals { requests: Class::new(), envelopes: Class::new(), row: 0 }
    }

    /// Adds a subscription.
    pub(crate) fn add(&mut self, key: u64, stream: S, brings_requests: bool) {
        let class = if brings_requests { &mut self.requests } else { &mut self.envelopes };
        class.add(key, stream);
    }

    /// Removes a subscription, which ends it. Returns what has come by it and was not taken.
    pub(crate) async fn remove(&mut self, key: u64) -> Vec<Message> {
        let class = if self.requests.has(key) { &mut self.requests } else { &mut self.envelopes };
        // Without the budget of tokio, which would hide what is there.
        tokio::task::unconstrained(std::future::poll_fn(|_| Poll::Ready(class.remove(key)))).await
    }

    /// The next message, and the key of its subscription.
    pub(crate) async fn next(&mut self) -> (u64, Message) {
        // Without the budget of tokio: an older subscription that is out of it would look empty.
        tokio::task::unconstrained(std::future::poll_fn(|cx| self.poll(cx))).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(u64, Message)> {
        if self.row < REQUESTS_IN_A_ROW_MAX
            && let Poll::Ready(request) = self.requests.poll(cx)
        {
            self.row += 1;
            return Poll::Ready(request);
        }
        let envelope = self.envelopes.poll(cx);
        if take(&mut self.row) > 0 && envelope.is_pending() {
            return self.requests.poll(cx);
        }
        envelope
    }
}

impl<S: Stream<Item = Message> + Unpin> Class<S> {
    fn new() -> Class<S> {
        Class { streams: HashMap::new(), ready: Arc::default(), batch: VecDeque::new() }
    }

    fn add(&mut self, key: u64, stream: S) {
        let waker = Waker::from(Arc::new(OfKey { key, ready: self.ready.clone() }));
        self.streams.insert(key, (stream, waker));
        self.ready.keys().insert(key);
    }

    fn has(&self, key: u64) -> bool {
        self.streams.contains_key(&key)
    }

    fn remove(&mut self, key: u64) -> Vec<Message> {
        let (own, others): (VecDeque<_>, VecDeque<_>) =
            take(&mut self.batch).into_iter().partition(|(of, _)| *of == key);
        self.batch = others;
        let mut rest: Vec<Message> = own.into_iter().map(|(_, message)| message).collect();
        rest.extend(std::iter::from_fn(|| self.take(key)));
        self.streams.remove(&key);
        rest
    }

    /// The next message of the batch. After the last one all that has come meanwhile is the next batch.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(u64, Message)> {
        if self.batch.is_empty() {
            self.ready.reader.register(cx.waker());
            let ready = take(&mut *self.ready.keys());
            for key in ready {
                while let Some(message) = self.take(key) {
                    self.batch.push_back((key, message));
                }
            }
        }
        self.batch.pop_front().map_or(Poll::Pending, Poll::Ready)
    }

    /// Takes a message of a subscription. Without one its waker waits for the next.
    fn take(&mut self, key: u64) -> Option<Message> {
        let (stream, waker) = self.streams.get_mut(&key)?;
        match Pin::new(stream).poll_next(&mut Context::from_waker(waker)) {
            Poll::Ready(Some(message)) => Some(message),
            Poll::Ready(None) => {
                self.streams.remove(&key);
                None
            }
            Poll::Pending => None,
        }
    }
}

/// Requests after which an envelope has its turn.
const REQUESTS_IN_A_ROW_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    struct Queue(mpsc::UnboundedReceiver<Message>);

    impl Stream for Queue {
        type Item = Message;

        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message>> {
            self.0.poll_recv(cx)
        }
    }

    fn message(text: String) -> Message {
        Message {
            subject: "a".into(),
            reply: None,
            payload: text.into(),
            headers: None,
            status: None,
            description: None,
            length: 0,
        }
    }

    #[tokio::test]
    async fn older_subscriptions_are_read_first_and_none_is_forgotten() {
        let mut arrivals = Arrivals::new();
        let mut senders = Vec::new();
        for key in 0..100 {
            let (sender, receiver) = mpsc::unbounded_channel();
            arrivals.add(key, Queue(receiver), false);
            senders.push(sender);
        }
        for round in 0..3 {
            for (key, sender) in senders.iter().enumerate().rev() {
                // More than tokio lets a task take in one turn.
                (0..20).for_each(|number| sender.send(message(format!("{round} {key} {number}"))).expect("open"));
            }
            for key in 0..100 {
                for number in 0..20 {
                    assert_eq!(arrivals.next().await.1.payload, format!("{round} {key} {number}"));
                }
            }
        }
    }

    #[tokio::test]
    async fn a_subscription_ends_with_what_it_has() {
        let mut arrivals = Arrivals::new();
        let (sender, receiver) = mpsc::unbounded_channel();
        arrivals.add(1, Queue(receiver), false);
        (0..5_000).for_each(|number| sender.send(message(number.to_string())).expect("open"));
        assert_eq!(arrivals.next().await.1.payload, "0");
        assert_eq!(arrivals.remove(1).await.len(), 4_999);
        assert!(sender.send(message("gone".into())).is_err());
    }

    /// Adds a subscription with this many messages.
    fn with(
        arrivals: &mut Arrivals<Queue>,
        key: u64,
        brings_requests: bool,
        count: usize,
    ) -> mpsc::UnboundedSender<Message> {
        let (sender, receiver) = mpsc::unbounded_channel();
        arrivals.add(key, Queue(receiver), brings_requests);
        (0..count).for_each(|number| sender.send(message(number.to_string())).expect("open"));
        sender
    }

    /// The keys of the next messages. By the flooded one another comes for each that is read.
    async fn keys(
        arrivals: &mut Arrivals<Queue>,
        (flooded, sender): (u64, &mpsc::UnboundedSender<Message>),
        count: usize,
    ) -> Vec<u64> {
        let mut keys = Vec::new();
        while keys.len() < count {
            let (key, _) = arrivals.next().await;
            if key == flooded {
                sender.send(message("more".into())).expect("open");
            }
            keys.push(key);
        }
        keys
    }

    #[tokio::test]
    async fn a_flood_by_one_subscription_delays_others_by_one_batch_and_requests_not_at_all() {
        let mut arrivals = Arrivals::new();
        let flood = with(&mut arrivals, 1, false, 10);
        let _later = with(&mut arrivals, 2, false, 1);
        let read = keys(&mut arrivals, (1, &flood), 5).await;
        assert_eq!(read, [1; 5]);
        let _requests = with(&mut arrivals, 3, true, 2);
        let read = keys(&mut arrivals, (1, &flood), 8).await;
        assert_eq!(read, [3, 3, 1, 1, 1, 1, 1, 2]);
    }

    #[tokio::test]
    async fn a_flood_of_requests_leaves_a_part_to_envelopes_and_to_other_requests() {
        let mut arrivals = Arrivals::new();
        let flood = with(&mut arrivals, 1, true, 100);
        let _others = with(&mut arrivals, 2, true, 1);
        let _envelopes = with(&mut arrivals, 3, false, 10);
        let read = keys(&mut arrivals, (1, &flood), 200).await;
        assert_eq!([2, 3].map(|key: u64| read.iter().filter(|of| **of == key).count()), [1, 10]);
    }

    #[tokio::test]
    async fn a_subscription_that_ends_takes_what_was_read_of_it_out_of_the_batch() {
        let mut arrivals = Arrivals::new();
        let (_one, two) = (with(&mut arrivals, 1, false, 3), with(&mut arrivals, 2, false, 3));
        assert_eq!(arrivals.next().await.0, 1);
        two.send(message("last".into())).expect("open");
        let rest: Vec<_> = arrivals.remove(2).await.into_iter().map(|message| message.payload).collect();
        assert_eq!(rest, ["0", "1", "2", "last"]);
        assert_eq!([arrivals.next().await.0, arrivals.next().await.0], [1, 1]);
    }
}
