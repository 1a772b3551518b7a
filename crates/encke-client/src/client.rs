//! The handle of a client, which programs clone and share.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bayeux::RawJson;
use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use crate::builder::{ClientBuilder, Options};
use crate::session::ConnectionType;
use crate::subscription::{Buffer, Subscription};
use crate::unread::Unread;
use crate::{Error, LostReason, Message, ReplayFrom};

/// A session with a Bayeux server.
///
/// It is a handle: clones are cheap and share one session, which a task keeps open. The session ends with
/// [`Client::disconnect`], or when all clients and [`Subscription`]s are dropped.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
}

/// The state of a client's connection; see [`Client::state`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum State {
    /// The first connection is being opened.
    Connecting,
    /// The session can be used.
    Connected(Connected),
    /// The connection broke; another one is being opened. Publishing and subscribing wait for it.
    Reconnecting(LostReason),
    /// The session has ended: with an error, or because the program disconnected.
    Closed(Option<Error>),
}

/// An open session.
#[derive(Clone)]
#[non_exhaustive]
pub struct Connected {
    /// True if the session from before a break continues. In a new session, messages that came meanwhile are missing, unless the
    /// client replays.
    pub resumed: bool,
    /// The transport in use.
    pub connection_type: ConnectionType,
    /// The session's id. It is a secret: anybody who knows it can act for the session.
    pub client_id: Box<str>,
}

/// Publications that are sent together, in one frame or request; see [`Client::batch`].
#[derive(Debug)]
#[must_use = "a batch is sent by `send`"]
pub struct Batch {
    client: Client,
    publications: Vec<Publication>,
}

/// A future for the reply to a publication; see [`Client::start_publish`].
#[derive(Debug)]
#[must_use = "a refusal is reported here and nowhere else"]
pub struct PendingPublish {
    client: Client,
    reply: oneshot::Receiver<Result<(), Error>>,
}

/// The state that all handles of a client share with its task.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) state: watch::Sender<State>,
    /// Wakes the task.
    pub(crate) wake: Arc<Notify>,
    /// The room for publications that the task has not taken yet, in bytes.
    pub(crate) unsent: Arc<Semaphore>,
    /// The memory that the buffers of subscriptions share.
    unread: Arc<Unread>,
    /// True after the program has requested to disconnect.
    pub(crate) is_disconnecting: AtomicBool,
    /// The names of dropped subscriptions; never more than there were subscriptions.
    pub(crate) dropped: Mutex<Vec<Arc<Buffer>>>,
}

/// A message to publish.
#[derive(Debug)]
pub(crate) struct Publication {
    pub(crate) channel: Box<str>,
    pub(crate) data: Box<str>,
}

/// An order to the task of a client, with the channel for its outcome.
#[derive(Debug)]
pub(crate) enum Command {
    Publish {
        publication: Publication,
        reply: oneshot::Sender<Result<(), Error>>,
        _room: Room,
    },
    Batch {
        publications: Vec<Publication>,
        reply: oneshot::Sender<Result<(), Error>>,
        _room: Room,
    },
    Request {
        publication: Publication,
        reply: oneshot::Sender<Result<Message, Error>>,
        _room: Room,
    },
    /// To one of the buffer's names.
    Subscribe {
        name: Box<str>,
        buffer: Arc<Buffer>,
        kind: Kind,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    Unsubscribe(Arc<Buffer>, oneshot::Sender<Result<(), Error>>),
}

/// The room of a command among those that wait for the task, given back with it.
pub(crate) type Room = OwnedSemaphorePermit;

/// The kind of a subscription.
#[derive(Debug)]
pub(crate) enum Kind {
    /// From where all others begin.
    Default,
    /// From another point.
    From(ReplayFrom),
    /// Without a subscribe to the server.
    Listen,
}

impl Client {
    /// Opens a session with the default options. If the URL has no path, the path is `/cometd`. `http://` and `ws://` have the
    /// same meaning.
    ///
    /// # Errors
    /// The URL is invalid, no Bayeux server answers there, or the server refuses.
    pub async fn connect(url: &str) -> Result<Client, Error> {
        Client::builder().connect(url).await
    }

    /// A builder, for all options.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    pub(crate) fn new(options: Options, commands: mpsc::Sender<Command>) -> Client {
        let (state, _) = watch::channel(State::Connecting);
        let wake = Arc::<Notify>::default();
        let unread = Arc::new(Unread::new(options.unread_bytes_max, wake.clone()));
        let unsent = Arc::new(Semaphore::new(room_of(options.unsent_bytes_max) as usize));
        let (is_disconnecting, dropped) = (AtomicBool::new(false), Mutex::default());
        Client {
            shared: Arc::new(Shared { options, state, wake, unsent, unread, is_disconnecting, dropped }),
            commands,
        }
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
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

    /// As [`Client::subscribe`], from another point than that of [`ClientBuilder::replay`], for example after a position that the
    /// program has stored. Without that option it is a plain subscribe.
    ///
    /// # Errors
    /// As [`Client::subscribe`]; and [`Error::AlreadySubscribed`] if this client has a subscription to the channel.
    pub async fn subscribe_from(&self, channel: &str, from: ReplayFrom) -> Result<Subscription, Error> {
        self.add_subscription([(channel.into(), Kind::From(from))].into()).await
    }

    /// Receives the messages of a channel without a subscribe to the server, for a service that sends messages to this session
    /// by itself.
    ///
    /// # Errors
    /// The session is closed.
    pub async fn listen(&self, channel: &str) -> Result<Subscription, Error> {
        self.add_subscription([(channel.into(), Kind::Listen)].into()).await
    }

    /// Publishes data, written as JSON by serde, and waits for the server's reply. While the client reconnects, it waits for the
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
    pub async fn publish<T: Serialize + ?Sized>(&self, channel: &str, data: &T) -> Result<(), Error> {
        self.start_publish(channel, data).await?.await
    }

    /// As [`Client::publish`], with data that is JSON already.
    ///
    /// # Errors
    /// As [`Client::publish`].
    pub async fn publish_raw(&self, channel: &str, data: RawJson<'_>) -> Result<(), Error> {
        self.start(Publication { channel: channel.into(), data: data.as_str().into() }).await?.await
    }

    /// Publishes without waiting for the reply, so that many messages can be on their way. It returns when the client's task has the
    /// message, and its result is a future for the reply. It waits while too many messages are on their way
    /// ([`ClientBuilder::pending_replies_max`], [`ClientBuilder::unsent_bytes_max`]). Messages leave in the order of these calls.
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
        self.start(Publication::new(channel, data)?).await
    }

    /// A batch of publications, which are sent together in one frame or request.
    pub fn batch(&self) -> Batch {
        Batch { client: self.clone(), publications: Vec::new() }
    }

    /// Sends data to a service channel and waits for the answer of the service: the message that comes back with the same id.
    ///
    /// # Errors
    /// The server refuses, or the service reports that it failed ([`Error::Refused`]); no answer came in time
    /// ([`Error::ReplyTimeout`]); or the connection breaks.
    pub async fn request<T: Serialize + ?Sized>(&self, channel: &str, data: &T) -> Result<Message, Error> {
        let (reply, answer) = oneshot::channel();
        let publication = Publication::new(channel, data)?;
        let room = self.room(publication.bytes()).await?;
        self.command(Command::Request { publication, reply, _room: room }).await?;
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

    async fn start(&self, publication: Publication) -> Result<PendingPublish, Error> {
        let (sender, reply) = oneshot::channel();
        let room = self.room(publication.bytes()).await?;
        self.command(Command::Publish { publication, reply: sender, _room: room }).await?;
        Ok(PendingPublish { client: self.clone(), reply })
    }

    async fn add_subscription(&self, channels: Vec<(Box<str>, Kind)>) -> Result<Subscription, Error> {
        let items_max = self.shared.options.subscription_messages_max;
        let names = channels.iter().map(|(name, _)| name.clone()).collect();
        let buffer = Buffer::new(names, items_max, self.shared.unread.clone());
        // Dropped half-way, it ends the subscription.
        let subscription = Subscription { buffer: buffer.clone(), client: self.clone() };
        let mut outcomes = Vec::with_capacity(channels.len());
        for (name, kind) in channels {
            let (reply, outcome) = oneshot::channel();
            self.command(Command::Subscribe { name, buffer: buffer.clone(), kind, reply }).await?;
            outcomes.push(outcome);
        }
        for outcome in outcomes {
            outcome.await.unwrap_or_else(|_| Err(self.closed_error()))?;
        }
        Ok(subscription)
    }

    pub(crate) async fn unsubscribe(&self, buffer: &Arc<Buffer>) -> Result<(), Error> {
        let (reply, outcome) = oneshot::channel();
        self.command(Command::Unsubscribe(buffer.clone(), reply)).await?;
        outcome.await.unwrap_or_else(|_| Err(self.closed_error()))
    }

    /// A subscription was dropped.
    pub(crate) fn dropped(&self, buffer: &Arc<Buffer>) {
        self.shared.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(buffer.clone());
        self.shared.wake.notify_one();
    }

    /// Waits for room for so many bytes, in the order of the calls. More than all of it take all of it.
    async fn room(&self, bytes: usize) -> Result<Room, Error> {
        let room = room_of(bytes.min(self.shared.options.unsent_bytes_max));
        self.shared.unsent.clone().acquire_many_owned(room).await.map_err(|_| self.closed_error())
    }

    async fn command(&self, command: Command) -> Result<(), Error> {
        self.commands.send(command).await.map_err(|_| self.closed_error())
    }

    /// The reason why the task has ended.
    fn closed_error(&self) -> Error {
        match &*self.shared.state.borrow() {
            State::Closed(Some(error)) => error.clone(),
            _ => Error::Closed,
        }
    }
}

impl Batch {
    /// Adds a publication.
    ///
    /// # Errors
    /// The data cannot be written as JSON.
    pub fn publish<T: Serialize + ?Sized>(mut self, channel: &str, data: &T) -> Result<Batch, Error> {
        self.publications.push(Publication::new(channel, data)?);
        Ok(self)
    }

    /// Sends all publications in one frame or request, and waits for all replies.
    ///
    /// # Errors
    /// The first refusal, although the server may have accepted the other messages; or the connection breaks.
    pub async fn send(self) -> Result<(), Error> {
        if self.publications.is_empty() {
            return Ok(());
        }
        let (reply, outcome) = oneshot::channel();
        let room = self.client.room(self.publications.iter().map(Publication::bytes).sum()).await?;
        self.client.command(Command::Batch { publications: self.publications, reply, _room: room }).await?;
        outcome.await.unwrap_or_else(|_| Err(self.client.closed_error()))
    }
}

impl Publication {
    fn new<T: Serialize + ?Sized>(channel: &str, data: &T) -> Result<Publication, Error> {
        Ok(Publication { channel: channel.into(), data: serde_json::to_string(data)?.into() })
    }

    fn bytes(&self) -> usize {
        self.channel.len() + self.data.len()
    }
}

impl Command {
    /// True if the program does not wait for its outcome any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            Command::Publish { reply, .. } | Command::Batch { reply, .. } => reply.is_closed(),
            Command::Request { reply, .. } => reply.is_closed(),
            Command::Unsubscribe(_, reply) | Command::Subscribe { reply, .. } => reply.is_closed(),
        }
    }
}

/// A number of bytes as a semaphore counts them.
fn room_of(bytes: usize) -> u32 {
    u32::try_from(bytes.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX)
}

impl Future for PendingPublish {
    type Output = Result<(), Error>;

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

impl fmt::Debug for Connected {
    /// Without the id, which is a secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Connected { resumed, connection_type, .. } = self;
        let mut fields = formatter.debug_struct("Connected");
        fields.field("resumed", resumed).field("connection_type", connection_type).finish_non_exhaustive()
    }
}
