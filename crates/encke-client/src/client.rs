//! The handle of a client, which programs clone and share.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bayeux::RawJson;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};

use crate::command::{ClientCommand, ClientPublication, ClientShared, Connected, Room, State};
use crate::options::ClientOptions;
use crate::unread::Unread;
use crate::{Error, Message, Published};

/// A session with a Bayeux server.
///
/// It is a handle: clones are cheap and share one session, which a task keeps open. The session ends with
/// [`Client::disconnect`], or when all clients and [`Subscription`](crate::Subscription)s are dropped.
#[derive(Clone)]
pub struct Client {
    shared: Arc<ClientShared>,
    commands: mpsc::Sender<ClientCommand>,
}

/// Publications that are sent together, in one frame or request; see [`Client::batch`].
#[derive(Debug)]
#[must_use = "a batch is sent by `send`"]
pub struct PublishBatch {
    client: Client,
    publications: Vec<ClientPublication>,
}

/// A future for the reply to a publication; see [`Client::start_publish`].
#[derive(Debug)]
#[must_use = "a refusal is reported here and nowhere else"]
pub struct PendingPublish {
    client: Client,
    reply: oneshot::Receiver<Result<Published, Error>>,
}

impl Client {
    pub(crate) fn new(options: ClientOptions, commands: mpsc::Sender<ClientCommand>) -> Client {
        let (state, _) = watch::channel(State::Connecting);
        let wake = Arc::<Notify>::default();
        let unread = Arc::new(Unread::new(options.unread_bytes_max, wake.clone()));
        let unsent = Arc::new(Semaphore::new(room_of(options.unsent_bytes_max) as usize));
        let (is_disconnecting, dropped) = (AtomicBool::new(false), Mutex::default());
        Client {
            shared: Arc::new(ClientShared { options, state, wake, unsent, unread, is_disconnecting, dropped }),
            commands,
        }
    }

    pub(crate) fn shared(&self) -> Arc<ClientShared> {
        self.shared.clone()
    }

    /// Waits until the session can be used for the first time.
    pub(crate) async fn opened(&self) -> Result<(), Error> {
        let mut state = self.state();
        let opened = state.wait_for(|state| matches!(state, State::Connected(_) | State::Closed(_))).await;
        match opened.as_deref() {
            Ok(State::Closed(error)) => Err(error.clone().unwrap_or(Error::Closed)),
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Closed),
        }
    }

    /// Publishes data, written as JSON by serde, and waits for the server's reply, which has the position of the message in the history
    /// of its channel. While the client reconnects, it waits for the
    /// connection first.
    ///
    /// ```no_run
    /// # async fn example(client: &encke_client::Client) -> Result<(), encke_client::Error> {
    /// #[derive(serde::Serialize)]
    /// struct Price {
    ///     symbol: &'static str,
    ///     cents: u64,
    /// }
    ///
    /// client.publish("/stock/GOOG", &Price { symbol: "GOOG", cents: 19_900 }).await?;
    /// client.publish("/stock/news", "a text").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The server refuses; or the connection breaks, and it is unknown if the message arrived.
    pub async fn publish<T: Serialize + ?Sized>(&self, channel: &str, data: &T) -> Result<Published, Error> {
        self.start_publish(channel, data).await?.await
    }

    /// As [`Client::publish`], with data that is JSON already.
    ///
    /// # Errors
    /// As [`Client::publish`].
    pub async fn publish_raw(&self, channel: &str, data: RawJson<'_>) -> Result<Published, Error> {
        self.start_publish_raw(channel, data).await?.await
    }

    /// Publishes without waiting for the reply, so that many messages can be on their way. It returns when the client's task has the
    /// message, and its result is a future for the reply. It waits while too many messages are on their way
    /// ([`ClientBuilder::pending_replies_max`](crate::ClientBuilder::pending_replies_max),
    /// [`ClientBuilder::unsent_bytes_max`](crate::ClientBuilder::unsent_bytes_max)). Messages leave in the order of these calls.
    ///
    /// ```no_run
    /// # async fn example(client: &encke_client::Client) -> Result<(), encke_client::Error> {
    /// let mut pending = Vec::new();
    /// for number in 0..1000 {
    ///     pending.push(client.start_publish("/numbers", &number).await?);
    /// }
    /// for reply in pending {
    ///     reply.await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The data cannot be written as JSON, or the session is closed.
    pub async fn start_publish<T: Serialize + ?Sized>(&self, channel: &str, data: &T) -> Result<PendingPublish, Error> {
        self.start(ClientPublication::new(channel, data)?).await
    }

    /// As [`Client::start_publish`], with data that is JSON already.
    ///
    /// # Errors
    /// The session is closed.
    pub async fn start_publish_raw(&self, channel: &str, data: RawJson<'_>) -> Result<PendingPublish, Error> {
        self.start(ClientPublication { channel: channel.into(), data: data.as_str().into() }).await
    }

    /// Publishes and declines the reply: the server replies only if it refuses the message, and the client logs that. So the program
    /// does not learn if the message arrived, nor if a channel with a history on disk has stored it. It returns when the client's
    /// task has the message.
    ///
    /// It costs the server half as many writes as a message with a reply, and the client nothing that waits. Servers other than
    /// Encke reply all the same.
    ///
    /// # Errors
    /// The data cannot be written as JSON, or the session is closed.
    pub async fn publish_without_reply<T: Serialize + ?Sized>(&self, channel: &str, data: &T) -> Result<(), Error> {
        let publication = ClientPublication::new(channel, data)?;
        let room = self.room(publication.bytes()).await?;
        self.command(ClientCommand::Send { publication, _room: room }).await
    }

    /// A batch of publications, which are sent together in one frame or request.
    pub fn batch(&self) -> PublishBatch {
        PublishBatch { client: self.clone(), publications: Vec::new() }
    }

    /// Sends data to a service channel and waits for the answer of the service: the message that comes back with the same id.
    ///
    /// # Errors
    /// The server refuses, or the service reports that it failed ([`Error::Refused`]); no answer came in time
    /// ([`Error::ReplyTimeout`]); or the connection breaks.
    pub async fn request<T: Serialize + ?Sized>(&self, channel: &str, data: &T) -> Result<Message, Error> {
        self.request_within(self.shared.options.reply_timeout, channel, data).await
    }

    /// As [`Client::request`], with another longest time until the answer than
    /// [`ClientBuilder::reply_timeout`](crate::ClientBuilder::reply_timeout). It begins when the request leaves.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub async fn request_within<T: Serialize + ?Sized>(
        &self,
        timeout: Duration,
        channel: &str,
        data: &T,
    ) -> Result<Message, Error> {
        let (reply, answer) = oneshot::channel();
        let publication = ClientPublication::new(channel, data)?;
        let room = self.room(publication.bytes()).await?;
        self.command(ClientCommand::Request { publication, timeout, reply, _room: room }).await?;
        answer.await.unwrap_or_else(|_| Err(self.closed_error()))
    }

    /// Ends the session, for all clones of this client, and closes the connection.
    ///
    /// # Errors
    /// The connection broke before the server replied; the session then ends by itself a little later.
    pub async fn disconnect(&self) -> Result<(), Error> {
        self.shared.is_disconnecting.store(true, Ordering::Release);
        self.shared.wake.notify_one();
        self.closed().await
    }

    /// Waits until the session is closed.
    ///
    /// # Errors
    /// The reason of the close, unless the program disconnected.
    pub async fn closed(&self) -> Result<(), Error> {
        let mut state = self.state();
        match state.wait_for(|state| matches!(state, State::Closed(_))).await.as_deref() {
            Ok(State::Closed(Some(error))) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// The state of the connection, as a value that can be watched: `borrow()` is the latest one, `changed().await` waits for
    /// another.
    ///
    /// ```no_run
    /// # async fn example(client: &encke_client::Client) {
    /// let mut state = client.state();
    /// while state.changed().await.is_ok() {
    ///     println!("{:?}", *state.borrow());
    /// }
    /// # }
    /// ```
    pub fn state(&self) -> watch::Receiver<State> {
        self.shared.state.subscribe()
    }

    /// The open session, if there is one.
    pub fn connected(&self) -> Option<Connected> {
        match &*self.shared.state.borrow() {
            State::Connected(connected) => Some(connected.clone()),
            _ => None,
        }
    }

    async fn start(&self, publication: ClientPublication) -> Result<PendingPublish, Error> {
        let (sender, reply) = oneshot::channel();
        let room = self.room(publication.bytes()).await?;
        self.command(ClientCommand::Publish { publication, reply: sender, _room: room }).await?;
        Ok(PendingPublish { client: self.clone(), reply })
    }

    /// Waits for room for so many bytes, in the order of the calls. More than all of it take all of it.
    async fn room(&self, bytes: usize) -> Result<Room, Error> {
        let room = room_of(bytes.min(self.shared.options.unsent_bytes_max));
        self.shared.unsent.clone().acquire_many_owned(room).await.map_err(|_| self.closed_error())
    }

    /// Passes an order to the task.
    pub(crate) async fn command(&self, command: ClientCommand) -> Result<(), Error> {
        self.commands.send(command).await.map_err(|_| self.closed_error())
    }

    /// The reason why the task has ended.
    pub(crate) fn closed_error(&self) -> Error {
        match &*self.shared.state.borrow() {
            State::Closed(Some(error)) => error.clone(),
            _ => Error::Closed,
        }
    }
}

impl PublishBatch {
    /// Adds a publication.
    ///
    /// # Errors
    /// The data cannot be written as JSON.
    pub fn publish<T: Serialize + ?Sized>(mut self, channel: &str, data: &T) -> Result<PublishBatch, Error> {
        self.publications.push(ClientPublication::new(channel, data)?);
        Ok(self)
    }

    /// Sends all publications in one frame or request, and waits for all replies. They are returned in the order of the publications.
    ///
    /// # Errors
    /// The first refusal, although the server may have accepted the other messages; or the connection breaks.
    pub async fn send(self) -> Result<Vec<Published>, Error> {
        if self.publications.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, outcome) = oneshot::channel();
        let room = self.client.room(self.publications.iter().map(ClientPublication::bytes).sum()).await?;
        self.client.command(ClientCommand::Batch { publications: self.publications, reply, _room: room }).await?;
        outcome.await.unwrap_or_else(|_| Err(self.client.closed_error()))
    }
}

/// A number of bytes as a semaphore counts them.
fn room_of(bytes: usize) -> u32 {
    u32::try_from(bytes.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX)
}

impl Future for PendingPublish {
    type Output = Result<Published, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = Pin::new(&mut self.reply).poll(context);
        reply.map(|reply| reply.unwrap_or_else(|_| Err(self.client.closed_error())))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").field("state", &*self.shared.state.borrow()).finish_non_exhaustive()
    }
}
