//! Subscriptions: the stream that a program reads.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::oneshot;

use crate::buffer::Buffer;
use crate::client::Client;
use crate::command::{ClientCommand, Kind};
use crate::message::Gap;
use crate::{Error, Message, Position, ReplayFrom};

/// The messages of a channel or pattern, or of several, as a stream; see [`Client::subscribe`].
///
/// Its items are messages. If messages are missing, an item is a [`Gap`] as the error, so nothing is lost silently. It ends when the
/// session is closed; [`Client::closed`] returns the reason.
///
/// A reader that is too slow fills its buffer; see
/// [`ClientBuilder::subscription_messages_max`](crate::ClientBuilder::subscription_messages_max). Dropping it ends the subscription,
/// unless another one of the same client has the same channel.
#[derive(Debug)]
pub struct Subscription {
    pub(crate) buffer: Arc<Buffer>,
    /// A subscription keeps the session open, like a client.
    pub(crate) client: Client,
}

impl Subscription {
    /// The next item; `None` when the session is closed. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<Message, Gap>> {
        poll_fn(|context| self.buffer.poll(context)).await
    }

    /// The channels and patterns, in the order of the call that made it.
    pub fn channels(&self) -> impl Iterator<Item = &str> {
        self.buffer.names.iter().map(|name| &**name)
    }

    /// The client that it belongs to.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The positions in the histories of its channels, if the client replays. Messages up to them have been read, or wait in the
    /// stream; so a program that stores them reads those first. A later client goes on there with
    /// [`Client::subscribe_from_positions`], or with [`ClientBuilder::resume_at`](crate::ClientBuilder::resume_at). A position can be
    /// stored with serde.
    ///
    /// # Errors
    /// The session is closed.
    pub async fn positions(&self) -> Result<Vec<(String, Position)>, Error> {
        let (reply, positions) = oneshot::channel();
        self.client.command(ClientCommand::Positions(self.buffer.clone(), reply)).await?;
        positions.await.map_err(|_| self.client.closed_error())
    }

    /// Ends the subscription and waits for the server's reply. Dropping it does the same without waiting.
    ///
    /// # Errors
    /// The server refuses, or the session is closed.
    pub async fn unsubscribe(self) -> Result<(), Error> {
        self.client.clone().unsubscribe(&self.buffer).await
    }
}

impl Stream for Subscription {
    type Item = Result<Message, Gap>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.buffer.poll(context)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if self.buffer.leave() {
            self.client.dropped(&self.buffer);
        }
    }
}

impl Client {
    /// Subscribes to a channel or pattern. The stream has all messages that are published there after this returns. After a break
    /// the client subscribes again.
    ///
    /// If the client has a subscription to the channel already, both get the messages from then on.
    ///
    /// # Errors
    /// The server refuses, or the session is closed.
    pub async fn subscribe(&self, channel: &str) -> Result<Subscription, Error> {
        self.add_subscription([(channel.into(), Kind::Default)].into()).await
    }

    /// As [`Client::subscribe`], to several channels and patterns: all their messages are in one stream, in the order in which they
    /// come, each of them once.
    ///
    /// # Errors
    /// As [`Client::subscribe`]; then none of them is subscribed to.
    pub async fn subscribe_all<C: AsRef<str>>(&self, channels: &[C]) -> Result<Subscription, Error> {
        self.add_subscription(channels.iter().map(|channel| (channel.as_ref().into(), Kind::Default)).collect()).await
    }

    /// As [`Client::subscribe`], from another point than that of
    /// [`ClientBuilder::replay`](crate::ClientBuilder::replay), for example after a position that the
    /// program has stored. Without that option it is a plain subscribe.
    ///
    /// # Errors
    /// As [`Client::subscribe`]; and [`Error::AlreadySubscribed`] if this client has a subscription to the channel.
    pub async fn subscribe_from(&self, channel: &str, from: ReplayFrom) -> Result<Subscription, Error> {
        self.add_subscription([(channel.into(), Kind::From(from))].into()).await
    }

    /// As [`Client::subscribe_from`], to a pattern whose channels begin after the positions that [`Subscription::positions`] has
    /// returned earlier, and the others at `default`. Positions of channels that the pattern does not cover are ignored.
    ///
    /// ```no_run
    /// # use encke_client::{Client, Error, Position, ReplayFrom};
    /// # async fn example(client: &Client, stored: Vec<(String, Position)>) -> Result<(), Error> {
    /// let mut prices = client.subscribe_from_positions("/stock/*", stored, ReplayFrom::Earliest).await?;
    /// # drop(prices);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::subscribe_from`].
    pub async fn subscribe_from_positions(
        &self,
        pattern: &str,
        positions: impl IntoIterator<Item = (String, Position)>,
        default: ReplayFrom,
    ) -> Result<Subscription, Error> {
        let kind = Kind::FromPositions(positions.into_iter().collect(), default);
        self.add_subscription([(pattern.into(), kind)].into()).await
    }

    /// As [`Client::subscribe`], with at most one message of each channel in this time: the first one at once, then the latest when the
    /// time is over. For a board of quotes that nobody could read otherwise. Encke rounds the time up to one of few steps, of 50 ms to one
    /// minute; other servers send all messages. The messages have no positions, and what was published during a break is missed.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(client: &encke_client::Client) -> Result<(), encke_client::Error> {
    /// let mut board = client.subscribe_with_interval("/stock/*", Duration::from_millis(500)).await?;
    /// # drop(board);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::subscribe_from`]; and the server's refusal of a time above one minute.
    pub async fn subscribe_with_interval(&self, channel: &str, min_interval: Duration) -> Result<Subscription, Error> {
        let ms = u32::try_from(min_interval.as_millis()).unwrap_or(u32::MAX);
        self.add_subscription([(channel.into(), Kind::Interval(ms))].into()).await
    }

    /// Receives the messages of a channel without a subscribe to the server, for a service that sends messages to this session
    /// by itself.
    ///
    /// # Errors
    /// The session is closed.
    pub async fn listen(&self, channel: &str) -> Result<Subscription, Error> {
        self.add_subscription([(channel.into(), Kind::Listen)].into()).await
    }

    async fn add_subscription(&self, channels: Vec<(Box<str>, Kind)>) -> Result<Subscription, Error> {
        let shared = self.shared();
        let names = channels.iter().map(|(name, _)| name.clone()).collect();
        let buffer = Buffer::new(names, shared.options.subscription_messages_max, shared.unread.clone());
        // Dropped half-way, it ends the subscription.
        let subscription = Subscription { buffer: buffer.clone(), client: self.clone() };
        let mut outcomes = Vec::with_capacity(channels.len());
        for (name, kind) in channels {
            let (reply, outcome) = oneshot::channel();
            self.command(ClientCommand::Subscribe { name, buffer: buffer.clone(), kind, reply }).await?;
            outcomes.push(outcome);
        }
        for outcome in outcomes {
            outcome.await.unwrap_or_else(|_| Err(self.closed_error()))?;
        }
        Ok(subscription)
    }

    async fn unsubscribe(&self, buffer: &Arc<Buffer>) -> Result<(), Error> {
        let (reply, outcome) = oneshot::channel();
        self.command(ClientCommand::Unsubscribe(buffer.clone(), reply)).await?;
        outcome.await.unwrap_or_else(|_| Err(self.closed_error()))
    }

    /// A subscription was dropped.
    fn dropped(&self, buffer: &Arc<Buffer>) {
        let shared = self.shared();
        shared.dropped.lock().push(buffer.clone());
        shared.wake.notify_one();
    }
}
