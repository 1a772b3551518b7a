//! State shared by the tasks of one shard: the shard itself, its sockets, and the requests that wait.
//!
//! Tasks run on one thread. Each borrows the shard for one event only. [`Node::settle`] runs the effects of an event
//! at once, and leaves writing to the flusher of the driver, which runs after all tasks that are ready, so
//! that they all add to the same write.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::Waker;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bayeux::Publication;
use foldhash::fast::RandomState;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use super::confirm::{Confirmations, Receipt};
use super::counted::Counted;
use super::holds::Holds;
use super::incomplete::SharedIncomplete;
use super::io::Health;
use super::outcomes::Outcomes;
use super::published::{Added, Positions, Published};
use super::socket::Moving;
use super::store_thread::Inbox;
use super::waiting::SharedQueues;
use crate::api_keys::ApiKeys;
use crate::asset::Asset;
use crate::byte_stream::{ByteStream, Detached};
use crate::fallback::Installed;
use crate::idempotency::Idempotency;
use crate::local::Local;
use crate::metric::AddedMetrics;
use crate::presence::Presence;
use crate::revocations::Revocations;
use crate::session_names::SessionNames;
use encke_core::{
    Counts, Effect, Envelope, ExchangeId, Granted, MailboxAccount, Metrics, Now, PersistRequest, Persisted,
    PresenceEvent, PublishToken, Response, Right, Shard, ShardMessage, SocketKey, WaitKey, Wire,
};

/// A message from thread to thread.
pub(crate) enum ThreadMessage {
    /// A message for the shard.
    FromShard(Envelope),
    /// Handles have published something.
    Published,
    /// A new connection.
    Connection(Detached, Counted),
    /// A WebSocket whose session lives on the receiving shard.
    Socket(Box<Moving>),
    /// Work for the thread, such as a request that another HTTP server has read.
    Run(Box<Work>),
    /// From now on the thread reads and writes no sockets; only messages between shards are processed.
    Freeze,
    /// Asks whether the shard had messages since the last `Settle`. It answers once everything it sends is in other
    /// mailboxes.
    Settle(std::sync::mpsc::Sender<bool>),
    /// Calls this function with the shard, for reading. It is dropped uncalled if the server stops first.
    Inspect(Box<dyn FnOnce(&Shard) + Send>),
    /// Nothing more follows: the shard's thread ends.
    Stop,
}

/// Work for the thread of a shard.
pub(crate) type Work = dyn FnOnce(&Rc<Node>) + Send;

/// A response and, where it carries messages, their receipt.
pub(crate) type Answer = (Response, Option<Receipt>);

/// Data shared by all shards of a server.
pub(crate) struct ServerShared {
    pub(crate) mailboxes: Vec<mpsc::UnboundedSender<ThreadMessage>>,
    /// The subscribers in the process: the virtual shard after the last one.
    pub(crate) local: Local,
    /// Answers the requests that are not the server's own.
    pub(crate) fallback: Installed,
    /// The numbers of held requests.
    pub(crate) holds: Arc<Holds>,
    /// One for each shard, with its wake-up.
    pub(crate) confirmations: Vec<Arc<Confirmations>>,
    /// Publications of handles, for each shard.
    pub(crate) published: Vec<Published>,
    /// Requests of handles that wait for their outcome.
    pub(crate) outcomes: Arc<Outcomes>,
    /// The keys of the HTTP API.
    pub(crate) api_keys: RwLock<Arc<ApiKeys>>,
    pub(crate) session_names: SessionNames,
    /// The journal of revoked tokens.
    pub(crate) revocations: Arc<Revocations>,
    /// Answers of the HTTP API that are remembered.
    pub(crate) idempotency: Arc<Idempotency>,
    /// The account of bytes in the mailboxes.
    pub(crate) mailbox: Arc<MailboxAccount>,
    /// The threads on which the application waits.
    pub(crate) application: tokio::runtime::Handle,
    /// The members of channels.
    pub(crate) presence: Presence,
    /// One for each shard; then the store thread's, that of the subscribers in the process, and that of presence.
    pub(crate) metrics: Vec<Arc<Metrics>>,
    /// The metrics of the program around the server.
    pub(crate) added_metrics: AddedMetrics,
    pub(crate) assets: &'static [Asset],
    pub(crate) connections: AtomicUsize,
    /// Open connections by address, while `address_connections_max` is set.
    pub(crate) address_connections: Counts,
    /// Echoes every WebSocket message, for conformance suites.
    pub(crate) echo: bool,
    /// Returns the thread's free memory to the system.
    pub(crate) reclaim_memory: Option<fn()>,
    /// The instant at which the clock starts.
    pub(crate) start: Instant,
    /// True while new connections are accepted.
    pub(crate) accepting: watch::Sender<bool>,
}

impl ServerShared {
    /// The current time on the clock that started at `start`.
    pub(crate) fn now(start: Instant) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { ms: CLOCK_START_MS + start.elapsed().as_millis() as u64, wall_ms: wall.as_millis() as u64 }
    }

    /// Passes a publication to the shard that owns its channel. False if the server has stopped.
    pub(crate) fn publish(
        &self,
        owner: usize,
        message: &Publication<'_>,
        wanted: Option<(&mut Positions<'_>, usize)>,
        granted: Granted,
    ) -> bool {
        granted.use_for(Right::Publish);
        let Some(published) = self.published.get(owner) else { return false };
        match published.add(&self.mailbox, message, wanted) {
            Added::Noted => {}
            Added::First => _ = self.mailboxes[owner].send(ThreadMessage::Published),
            Added::Closed => return false,
        }
        true
    }

    /// The keys of the HTTP API.
    pub(crate) fn api_keys(&self) -> Arc<ApiKeys> {
        self.api_keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Passes a message of a shard to the handle that waits for it.
    fn report(&self, message: ShardMessage) {
        match message {
            ShardMessage::Report(report) => self.outcomes.note(report),
            ShardMessage::Persisted(persisted) => self.outcomes.settle(&persisted),
            // Shards send handles nothing else.
            _ => {}
        }
    }

    /// Reads a shard. None if there is no such shard, or the server stops.
    pub(crate) async fn inspect<T: Send + 'static>(
        &self,
        shard: usize,
        look: impl FnOnce(&Shard) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let look = move |shard: &Shard| _ = sender.send(look(shard));
        self.mailboxes.get(shard)?.send(ThreadMessage::Inspect(Box::new(look))).ok()?;
        receiver.await.ok()
    }

    /// True if the store thread has panicked and answers every request as not persisted.
    pub(crate) fn history_store_has_panicked(&self) -> bool {
        self.metrics.iter().any(|metrics| metrics.history_store_panicked.get() > 0)
    }
}

/// One shard with its I/O.
pub(crate) struct Node {
    pub(crate) shard: RefCell<Shard>,
    pub(crate) server_shared: Arc<ServerShared>,
    pub(crate) mailbox: Arc<MailboxAccount>,
    pub(crate) confirmations: Arc<Confirmations>,
    pub(crate) streams: RefCell<Vec<Option<Rc<Stream>>>>,
    /// The buffer that every socket of the shard reads into.
    pub(crate) read_buffer: RefCell<Vec<u8>>,
    /// The inbox of the store thread, where histories are persisted.
    history_store: Option<Inbox>,
    exchanges: RefCell<HashMap<ExchangeId, oneshot::Sender<Answer>, RandomState>>,
    exchanges_made: Cell<u64>,
    /// The futures of the application for which the shard waits.
    pub(super) futures: RefCell<HashMap<WaitKey, AbortHandle, RandomState>>,
    /// True if writing takes longer than its budget.
    behind: Cell<bool>,
    /// The readers that wait to be read.
    pub(crate) queues: SharedQueues,
    /// Incomplete messages.
    pub(crate) incomplete: SharedIncomplete,
    /// Wakes the tasks of HTTP connections when the server drains.
    pub(crate) leaving: Notify,
    /// Requests that wait inside hyper.
    young: RefCell<Vec<Young>>,
    /// The number of requests that wait outside hyper.
    pub(crate) held: Cell<usize>,
}

/// A request that waits for its answer inside hyper: its connection, its number there, and the task of the connection.
struct Young {
    connection: Arc<Health>,
    request: u32,
    task: Waker,
}

/// The connection of a WebSocket, shared by the task that reads it and the flusher that writes it.
pub(crate) struct Stream {
    /// The key of the socket in the shard. An index may be reused.
    pub(crate) key: SocketKey,
    pub(crate) connection: ByteStream,
    /// The task that reads.
    pub(crate) reader: Cell<Option<Waker>>,
    /// True if the kernel took nothing at the last attempt.
    pub(crate) blocked: Cell<bool>,
    /// Set when the shard has closed it.
    pub(crate) closed: Cell<Option<Closed>>,
    /// True while its last message waits for the application: nothing more is read.
    pub(crate) suspended: Cell<bool>,
    /// True if its incomplete message was given up.
    pub(crate) given_up: Cell<bool>,
}

/// The way in which a shard closes a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Bytes already written are to arrive.
    Orderly,
    /// Its client does not read: it is reset.
    GivenUp,
}

impl Stream {
    pub(crate) fn wake(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Node {
    pub(crate) fn new(shard: Shard, server_shared: Arc<ServerShared>, history_store: Option<Inbox>) -> Node {
        Node {
            confirmations: server_shared.confirmations[shard.index()].clone(),
            mailbox: server_shared.mailbox.clone(),
            shard: RefCell::new(shard),
            server_shared,
            streams: RefCell::default(),
            read_buffer: RefCell::new(vec![0; READ_BYTES]),
            history_store,
            exchanges: RefCell::default(),
            exchanges_made: Cell::new(0),
            futures: RefCell::default(),
            behind: Cell::new(false),
            queues: RefCell::default(),
            incomplete: RefCell::default(),
            leaving: Notify::new(),
            young: RefCell::default(),
            held: Cell::new(0),
        }
    }

    /// The current time.
    pub(crate) fn now(&self) -> Now {
        ServerShared::now(self.server_shared.start)
    }

    /// The server drains: idle connections end.
    pub(crate) fn leave(&self) {
        self.leaving.notify_waiters();
    }

    /// Runs the effects of the last events. Call it after every event.
    pub(crate) fn settle(&self) {
        if self.shard.borrow().is_settled() {
            return;
        }
        let effects = self.shard.borrow_mut().take_effects();
        for effect in effects {
            match effect {
                Effect::Respond(exchange, response) => self.answer(exchange, response),
                Effect::Close(socket) => self.shut(socket, Closed::Orderly),
                Effect::Reset(socket) => self.shut(socket, Closed::GivenUp),
                Effect::SendToShard(shard, message) => self.send_to_shard(shard, message),
                Effect::Persist(keep) => self.keep(keep),
                Effect::Await(key, awaited) => self.run_later(key, awaited),
                Effect::Cancel(key) => self.forget_future(key).into_iter().for_each(|future| future.abort()),
                Effect::Continue(socket) => self.read_on(socket),
                Effect::Presence(event) => self.take_presence(*event),
            }
        }
        self.confirmations.wake.notify_one();
    }

    /// Notes a request that waits inside hyper.
    pub(crate) fn note_young(&self, connection: &Arc<Health>, task: &Waker) {
        let (connection, request) = (connection.clone(), connection.requests());
        self.young.borrow_mut().push(Young { connection, request, task: task.clone() });
    }

    /// Lets the requests leave hyper that have waited since the last call.
    pub(crate) fn release_young(&self) {
        let young = std::mem::take(&mut *self.young.borrow_mut());
        for Young { connection, request, task } in young {
            if connection.requests() == request && connection.is_busy() {
                connection.set_waits_long();
                task.wake();
            }
        }
    }

    /// A number that is unique among the connections of the server.
    pub(crate) fn connection_number(&self) -> u64 {
        let number = self.exchanges_made.get() + 1;
        self.exchanges_made.set(number);
        ((self.shard.borrow().index() as u64) << 48) | number
    }

    /// Registers a request: returns its number and the receiver of its answer.
    pub(crate) fn exchange(&self) -> (ExchangeId, oneshot::Receiver<Answer>) {
        let number = self.exchanges_made.get();
        self.exchanges_made.set(number + 1);
        let exchange = ExchangeId { shard: self.shard.borrow().index() as u16, number };
        let (sender, receiver) = oneshot::channel();
        self.exchanges.borrow_mut().insert(exchange, sender);
        (exchange, receiver)
    }

    /// Drops a request whose response is no longer awaited.
    pub(crate) fn abandon(&self, exchange: ExchangeId) {
        if self.exchanges.borrow_mut().remove(&exchange).is_some() {
            self.shard.borrow_mut().abandoned(self.now(), exchange);
            self.settle();
        }
    }

    /// Notes who is on a channel, or answers who is.
    fn take_presence(&self, event: PresenceEvent) {
        let settings = self.shard.borrow().settings().clone();
        if let Some((session, answer)) = self.server_shared.presence.take(event, self.now(), &settings) {
            self.send_to_shard(session.shard(), answer);
        }
    }

    /// Passes a request to the store thread. A message that the inbox has no room for is answered as not persisted.
    fn keep(&self, keep: PersistRequest) {
        let refused = match &self.history_store {
            Some(history_store) => history_store.put(keep).err(),
            None => Some(keep),
        };
        let Some(PersistRequest { token, .. }) = refused else { return };
        self.shard.borrow().metrics().history_store_refused.add(1);
        if let Some(token) = token {
            let stored = Persisted { number: token.number, is_persisted: false };
            self.send_to_shard(usize::from(token.shard), ShardMessage::Persisted(vec![stored]));
        }
    }

    fn answer(&self, exchange: ExchangeId, response: Response) {
        let receipt = response.confirm.map(|shard| Receipt::new(exchange, shard, self.confirmations.clone()));
        // If nobody waits, the dropped receipt reports the messages as lost, and they are queued again.
        if let Some(sender) = self.exchanges.borrow_mut().remove(&exchange) {
            let _gone = sender.send((response, receipt));
        }
    }

    fn shut(&self, socket: SocketKey, how: Closed) {
        let stream = self.streams.borrow().get(socket.index as usize).cloned().flatten();
        if let Some(stream) = stream.filter(|stream| stream.key == socket) {
            stream.closed.set(Some(how));
            match how {
                Closed::Orderly => stream.connection.close_writing(),
                Closed::GivenUp => stream.connection.reset(),
            }
            stream.wake();
        }
    }

    /// Sends to another shard. A shard that has ended ignores it.
    pub(crate) fn send(&self, shard: usize, thread_message: ThreadMessage) {
        if let Some(mailbox) = self.server_shared.mailboxes.get(shard) {
            let _ended = mailbox.send(thread_message);
        }
    }

    /// Takes the publications of handles.
    pub(crate) fn take_published(&self, mut each: impl FnMut(&mut Shard, Envelope)) -> bool {
        let mut shard = self.shard.borrow_mut();
        let Some(published) = self.server_shared.published.get(shard.index()) else { return false };
        let (envelopes, messages) = published.take(&self.mailbox);
        shard.metrics().publications.add(messages);
        envelopes.into_iter().for_each(|envelope| each(&mut shard, envelope));
        messages > 0
    }

    pub(crate) fn send_to_shard(&self, shard: usize, message: ShardMessage) {
        if shard == usize::from(PublishToken::HANDLES) {
            return self.server_shared.report(message);
        }
        let envelope = Envelope::new(&self.mailbox, message);
        if shard == self.server_shared.mailboxes.len() {
            return self.server_shared.local.send(envelope);
        }
        self.send(shard, ThreadMessage::FromShard(envelope));
    }

    /// Reports to shards which responses with their messages were taken.
    pub(crate) fn confirm(&self) {
        for confirmed in self.confirmations.take() {
            let home = usize::from(confirmed.shard);
            let message = ShardMessage::Delivered(confirmed.exchange, confirmed.taken);
            if home == self.shard.borrow().index() {
                self.shard.borrow_mut().message(self.now(), message);
            } else {
                self.send_to_shard(home, message);
            }
        }
    }

    /// True if too many bytes for histories wait for the disk.
    pub(crate) fn is_disk_behind(&self) -> bool {
        self.history_store.as_ref().is_some_and(Inbox::is_full)
    }

    /// True if writing takes longer than its budget.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.get()
    }

    /// Sets whether writing takes longer than its budget.
    pub(crate) fn set_behind(&self, behind: bool) {
        self.behind.set(behind);
    }

    /// Adds a socket's connection at the index the shard gave it.
    pub(crate) fn add_stream(&self, key: SocketKey, stream: Rc<Stream>) {
        let mut streams = self.streams.borrow_mut();
        let index = key.index as usize;
        if streams.len() <= index {
            streams.resize_with(index + 1, || None);
        }
        streams[index] = Some(stream);
    }

    /// Removes a socket's connection.
    pub(crate) fn remove_stream(&self, key: SocketKey) -> Option<Rc<Stream>> {
        self.streams.borrow_mut().get_mut(key.index as usize)?.take()
    }
}

/// The sockets, as the shard's flush sees them.
pub(crate) struct Streams<'a>(pub(crate) &'a [Option<Rc<Stream>>]);

impl Wire for Streams<'_> {
    fn write(&mut self, socket: SocketKey, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(stream) = self.0.get(socket.index as usize).and_then(Option::as_ref) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let result = stream.connection.try_write(slices);
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::WouldBlock
        {
            stream.blocked.set(true);
            stream.wake();
        }
        result
    }
}

/// The reading of the clock at its start, in milliseconds: high enough to give messages of an earlier life of the
/// process a time on it.
const CLOCK_START_MS: u64 = 1 << 42;
/// Bytes read from a socket at once. The decoder assembles larger messages.
const READ_BYTES: usize = 64 * 1024;
