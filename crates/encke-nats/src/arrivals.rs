//! The subscriptions of a connection, read as one stream: the older ones first.
//!
//! The client has a queue for each subscription, so envelopes of two subscriptions have no order there. While a wide one replaces a narrow
//! one, the server sends an envelope by the old one only, and the next one by both: even after the new one is confirmed, as
//! another connection of the server may still be sending. The client puts both copies into their queues before it is read again.
//! So nothing is read from a subscription while an older one has something, and no envelope overtakes one before it.
//!
//! A subscription with something in its queue is among the *ready* ones: its waker puts it there.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use async_nats::{Message, Subscriber};
use futures_util::stream::Stream;
use futures_util::task::AtomicWaker;

/// The subscriptions by their keys, which grow.
pub(crate) struct Arrivals<S = Subscriber> {
    streams: HashMap<u64, (S, Waker)>,
    ready: Arc<Ready>,
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
        Arrivals { streams: HashMap::new(), ready: Arc::default() }
    }

    /// Adds a subscription.
    pub(crate) fn add(&mut self, key: u64, stream: S) {
        let waker = Waker::from(Arc::new(OfKey { key, ready: self.ready.clone() }));
        self.streams.insert(key, (stream, waker));
        self.ready.keys().insert(key);
    }

    /// Removes a subscription, which ends it. Returns what is in its queue.
    pub(crate) async fn remove(&mut self, key: u64) -> Vec<Message> {
        let rest = std::future::poll_fn(|_| Poll::Ready(std::iter::from_fn(|| self.take(key)).collect()));
        // Without the budget of tokio, which would hide what is there.
        let rest = tokio::task::unconstrained(rest).await;
        self.streams.remove(&key);
        rest
    }

    /// The next message of the oldest subscription that has one, and that one's key.
    pub(crate) async fn next(&mut self) -> (u64, Message) {
        // Without the budget of tokio: an older subscription that is out of it would look empty.
        tokio::task::unconstrained(std::future::poll_fn(|cx| self.poll(cx))).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(u64, Message)> {
        self.ready.reader.register(cx.waker());
        loop {
            let first = self.ready.keys().pop_first();
            let Some(key) = first else { return Poll::Pending };
            if let Some(message) = self.take(key) {
                return Poll::Ready((key, message));
            }
        }
    }

    /// Takes a message of a subscription, which is then ready again.
    fn take(&mut self, key: u64) -> Option<Message> {
        let (stream, waker) = self.streams.get_mut(&key)?;
        match Pin::new(stream).poll_next(&mut Context::from_waker(waker)) {
            Poll::Ready(Some(message)) => {
                self.ready.keys().insert(key);
                Some(message)
            }
            Poll::Ready(None) => {
                self.streams.remove(&key);
                None
            }
            Poll::Pending => None,
        }
    }
}

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
            arrivals.add(key, Queue(receiver));
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
        arrivals.add(1, Queue(receiver));
        (0..5_000).for_each(|number| sender.send(message(number.to_string())).expect("open"));
        assert_eq!(arrivals.next().await.1.payload, "0");
        assert_eq!(arrivals.remove(1).await.len(), 4_999);
        assert!(sender.send(message("gone".into())).is_err());
    }
}
