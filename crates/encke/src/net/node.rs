//! State shared by the tasks of one shard: the shard itself, its sockets, and the requests that wait.
//!
//! Tasks run on one thread. Each borrows the shard for one event only. [`Node::settle`] runs the effects of an event
//! at once, and leaves writing to the flusher of the driver, which runs after all tasks that are ready, so
//! that they all add to the same write.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Waker};

use foldhash::fast::RandomState;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::AbortHandle;
use websocket::deflate::Inflater;

use super::confirm::Confirmations;
use super::exchanges::{Answer, Exchanges};
use super::incomplete::{Incomplete, Sender};
use super::open_sockets::{Closed, OpenSocket, OpenSockets};
use super::parked::ParkedConnections;
use super::queues::Queues;
use super::server_shared::ServerShared;
use super::store_thread::Inbox;
use super::thread_message::ThreadMessage;
use super::waiting_bodies::WaitingBodies;
use super::young::YoungRequests;
use crate::caught::Caught;
use crate::cluster::link::ToCluster;
use crate::gzip::Gzip;
use encke_core::{
    Awaited, Effect, Envelope, ExchangeId, Now, OTHER_NODES, PersistRequest, Persisted, PresenceEvent, PublishToken,
    Resolved, Shard, ShardMessage, SocketKey, WaitKey,
};

/// One shard with its I/O.
pub(crate) struct Node {
    shard: RefCell<Shard>,
    server: Arc<ServerShared>,
    confirmations: Arc<Confirmations>,
    /// The connections of its WebSockets.
    sockets: OpenSockets,
    /// The buffer that every socket of the shard reads into.
    read_buffer: RefCell<Vec<u8>>,
    /// Decompresses the messages of every WebSocket of the shard.
    inflater: RefCell<Inflater>,
    /// Compresses the responses of the shard.
    gzip: RefCell<Gzip>,
    /// The inbox of the store thread, where histories are persisted.
    history_store: Option<Inbox>,
    exchanges: Exchanges,
    /// The futures of the application for which the shard waits. They run on the application's threads.
    futures: RefCell<HashMap<WaitKey, AbortHandle, RandomState>>,
    /// True if writing takes longer than its budget.
    behind: Cell<bool>,
    /// The readers that wait to be read.
    pub(super) queues: RefCell<Queues>,
    pub(super) incomplete: RefCell<Incomplete>,
    pub(super) waiting_bodies: RefCell<WaitingBodies>,
    /// Wakes the tasks of HTTP connections when the server drains.
    leaving: Notify,
    /// Requests that wait for their answer.
    young: YoungRequests,
    /// Connections that await a request.
    parked: ParkedConnections,
    /// The turns of TLS handshakes.
    pub(super) handshake_turns: Semaphore,
}

impl Node {
    pub(crate) fn new(shard: Shard, server: Arc<ServerShared>, history_store: Option<Inbox>) -> Node {
        let confirmations = server.confirmations[shard.index()].clone();
        Node {
            exchanges: Exchanges::new(shard.index(), confirmations.clone()),
            confirmations,
            shard: RefCell::new(shard),
            server,
            sockets: OpenSockets::default(),
            read_buffer: RefCell::new(vec![0; READ_BYTES]),
            inflater: RefCell::default(),
            gzip: RefCell::default(),
            history_store,
            futures: RefCell::default(),
            behind: Cell::new(false),
            queues: RefCell::default(),
            incomplete: RefCell::default(),
            waiting_bodies: RefCell::default(),
            leaving: Notify::new(),
            young: YoungRequests::default(),
            parked: ParkedConnections::default(),
            handshake_turns: Semaphore::new(HANDSHAKES_AT_ONCE),
        }
    }

    /// The shard, for reading.
    pub(crate) fn shard(&self) -> Ref<'_, Shard> {
        self.shard.borrow()
    }

    /// The shard, for one event.
    pub(crate) fn shard_mut(&self) -> RefMut<'_, Shard> {
        self.shard.borrow_mut()
    }

    /// The state that all shards share.
    pub(crate) fn server(&self) -> &Arc<ServerShared> {
        &self.server
    }

    /// The connections of its WebSockets.
    pub(crate) fn sockets(&self) -> &OpenSockets {
        &self.sockets
    }

    /// Lets the shard write to a socket again if the kernel takes more. Otherwise the task is woken when it does.
    #[inline]
    pub(super) fn write_when_ready(&self, socket: &OpenSocket, cx: &mut Context<'_>) {
        if socket.blocked.get() && socket.connection.poll_write_ready(cx).is_ready() {
            socket.blocked.set(false);
            self.shard_mut().socket_writable(self.now(), socket.key);
            self.settle();
        }
    }

    /// Tells the shard that a socket is closed.
    pub(super) fn forget_socket(&self, key: SocketKey) {
        self.sockets.remove(key);
        self.shard_mut().socket_closed(self.now(), key);
        self.settle();
    }

    /// The buffer that every socket of the shard reads into.
    pub(crate) fn read_buffer(&self) -> RefMut<'_, Vec<u8>> {
        self.read_buffer.borrow_mut()
    }

    /// Decompresses the messages of every WebSocket of the shard.
    pub(super) fn inflater(&self) -> RefMut<'_, Inflater> {
        self.inflater.borrow_mut()
    }

    /// Compresses the responses of the shard.
    pub(crate) fn gzip(&self) -> RefMut<'_, Gzip> {
        self.gzip.borrow_mut()
    }

    /// The requests that wait for their answer.
    pub(crate) fn young(&self) -> &YoungRequests {
        &self.young
    }

    /// The connections that await a request.
    pub(crate) fn parked(&self) -> &ParkedConnections {
        &self.parked
    }

    /// Ready when the server drains.
    pub(crate) fn leaving(&self) -> Notified<'_> {
        self.leaving.notified()
    }

    /// Ready when there may be something to write.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.confirmations.wake.notified()
    }

    /// The current time.
    pub(crate) fn now(&self) -> Now {
        self.server.clock.now()
    }

    /// Runs the effects of the last events. Call it after every event.
    pub(crate) fn settle(&self) {
        if self.shard().is_settled() {
            return;
        }
        let effects = self.shard_mut().take_effects();
        for effect in effects {
            match effect {
                Effect::Respond(exchange, response) => self.exchanges.answer(exchange, response),
                Effect::Close(socket) => self.sockets.close(socket, Closed::Orderly),
                Effect::Reset(socket) => self.sockets.close(socket, Closed::GivenUp),
                Effect::SendToShard(shard, message) => self.send_to_shard(shard, message),
                Effect::Persist(keep) => self.keep(keep),
                Effect::Await(key, awaited) => self.run_later(key, awaited),
                Effect::Cancel(key) => {
                    if let Some(future) = self.futures.borrow_mut().remove(&key) {
                        future.abort();
                    }
                }
                Effect::Continue(socket) => self.sockets.read_on(socket),
                Effect::Relay(socket, node) => self.sockets.close(socket, Closed::Relayed(node)),
                Effect::Presence(event) => self.take_presence(*event),
                Effect::SendToNodes(publications) => self.send_to_cluster(ToCluster::Publications(publications)),
                Effect::AwaitInterest(names, token) => self.send_to_cluster(ToCluster::Ask(names, token)),
            }
        }
        self.wake();
    }

    /// Wakes the flusher, and through it the readers that wait.
    pub(super) fn wake(&self) {
        self.confirmations.wake.notify_one();
    }

    /// A number that is unique among the connections of the server.
    pub(crate) fn connection_number(&self) -> u64 {
        self.exchanges.number()
    }

    /// Registers a request: returns its number and its answer.
    pub(crate) fn exchange(&self) -> (ExchangeId, oneshot::Receiver<Answer>) {
        self.exchanges.open()
    }

    /// Drops a request whose response is no longer awaited.
    pub(crate) fn abandon(&self, exchange: ExchangeId) {
        if self.exchanges.abandon(exchange) {
            self.shard_mut().abandoned(self.now(), exchange);
            self.settle();
        }
    }

    /// Sends to the thread of the cluster. Shards of a server that is no node of one have nothing for it.
    fn send_to_cluster(&self, message: ToCluster) {
        if let Some(cluster) = &self.server.cluster {
            cluster.send(message);
        }
    }

    /// Notes who is on a channel, or answers who is.
    fn take_presence(&self, event: PresenceEvent) {
        if let PresenceEvent::Asked { .. } = event {
            match self.server.cluster.is_some() {
                true => self.server.answer_presence_everywhere(event),
                false => self.server.answer_presence(event),
            }
            return;
        }
        let settings = self.shard().settings().clone();
        self.server.presence.take(&event, self.now(), &settings);
    }

    /// Passes a request to the store thread. A message that the inbox has no room for is answered as not persisted.
    fn keep(&self, keep: PersistRequest) {
        let refused = match &self.history_store {
            Some(history_store) => history_store.put(keep).err(),
            None => Some(keep),
        };
        let Some(PersistRequest { token, .. }) = refused else { return };
        self.shard().metrics().history_store_refused.add(1);
        if let Some(token) = token {
            let stored = Persisted { number: token.number, is_persisted: false };
            self.send_to_shard(usize::from(token.shard), ShardMessage::Persisted(vec![stored]));
        }
    }

    /// Runs a future of the application on its threads. The result comes back as a message.
    fn run_later(&self, key: WaitKey, awaited: Awaited) {
        let (mailboxes, shard) = (self.server.mailboxes.clone(), self.shard().index());
        let future = self.server.application.spawn(async move {
            let mut caught = Caught(awaited);
            let resolved = (&mut caught).await.unwrap_or_else(|_| {
                tracing::error!(what = ?caught.0, "a future of the application has panicked");
                Resolved::Failed
            });
            // A shard that has ended needs no result.
            let _ended = mailboxes.send_to_shard(shard, ShardMessage::Resolved(key, resolved));
        });
        self.futures.borrow_mut().insert(key, future.abort_handle());
    }

    /// Passes a message of another thread to the shard.
    pub(crate) fn receive(&self, envelope: Envelope) {
        let drains = matches!(envelope.message, ShardMessage::Drain);
        if let ShardMessage::Resolved(key, _) = envelope.message {
            self.futures.borrow_mut().remove(&key);
        }
        self.shard_mut().receive(self.now(), envelope);
        if drains {
            // Idle connections end.
            self.leaving.notify_waiters();
        }
    }

    /// Sets the bytes that an incomplete message holds now: 0 for one that is complete or gone. Over the limit it
    /// gives up others, or this one.
    pub(crate) fn note_incomplete(&self, sender: Sender, bytes: usize, waker: Option<&Waker>) {
        let shard = self.shard();
        let bytes = self.incomplete.borrow_mut().note(sender, bytes, waker, shard.settings(), |sender, waker| {
            shard.metrics().incomplete_given_up.add(1);
            match sender {
                Sender::Socket(key) => self.sockets.give_up(key),
                Sender::Request(_) => waker.into_iter().for_each(Waker::wake),
            }
        });
        shard.metrics().incomplete_bytes.set(bytes);
    }

    /// Sends to another shard. A shard that has ended ignores it.
    pub(crate) fn send(&self, shard: usize, thread_message: ThreadMessage) {
        let _ended = self.server.mailboxes.send(shard, thread_message);
    }

    /// Takes the publications of handles.
    pub(crate) fn take_published(&self, mut each: impl FnMut(&mut Shard, Envelope)) -> bool {
        let mut shard = self.shard_mut();
        let Some(published) = self.server.published.get(shard.index()) else { return false };
        let (envelopes, messages) = published.take(self.server.mailboxes.account());
        shard.metrics().publications.add(messages);
        envelopes.into_iter().for_each(|envelope| each(&mut shard, envelope));
        messages > 0
    }

    pub(crate) fn send_to_shard(&self, shard: usize, message: ShardMessage) {
        if shard == usize::from(PublishToken::HANDLES) {
            return self.server.report(message);
        }
        if shard == usize::from(OTHER_NODES) {
            let envelope = Envelope::new(self.server.mailboxes.account(), message);
            return self.send_to_cluster(ToCluster::Message(envelope));
        }
        let envelope = Envelope::new(self.server.mailboxes.account(), message);
        if shard == self.server.mailboxes.shards() {
            return self.server.local.send(envelope);
        }
        self.send(shard, ThreadMessage::FromShard(envelope));
    }

    /// Reports to shards which responses with their messages were taken.
    pub(crate) fn confirm(&self) {
        for confirmed in self.confirmations.take() {
            let home = usize::from(confirmed.shard);
            let message = ShardMessage::Delivered(confirmed.exchange, confirmed.taken);
            if home == self.shard().index() {
                self.shard_mut().message(self.now(), message);
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
}

/// Steps of TLS handshakes before all other tasks get a turn: less than a millisecond of work.
const HANDSHAKES_AT_ONCE: usize = 4;
/// Bytes read from a socket at once. The decoder assembles larger messages.
const READ_BYTES: usize = 64 * 1024;
