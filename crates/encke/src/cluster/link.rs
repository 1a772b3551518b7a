//! The mailbox of the cluster's thread, and what the thread last said of itself.
//!
//! The first message wakes the thread. The thread then looks again before it sleeps, so shards that publish without a pause
//! wake it once. The account of the bytes between shards bounds the publications in it.

use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use encke_cluster::{
    Answers, CallKind, Callee, Counts, HistoryCounts, KeyFailure, Ordered, RelayRequest, RemoteCallCounts,
    RevocationCounts, SessionCounts, UserLimitCounts, Visited, Visitor,
};
use encke_core::{
    Elsewhere, EncodedPublications, Envelope, Format, Id, NodeTag, Opener, PublishToken, Settings, StreamOpening,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use super::commands::{NodeCommand, NodeReply};
use super::store_numbers::StoreNumbers;
use super::{command_metrics, history_metrics, session_metrics};
use crate::byte_stream::Detached;
use crate::metric::Metric;

/// The mailbox of the cluster's thread.
#[derive(Default)]
pub(crate) struct Link {
    queue: Mutex<Queue>,
    wake: Notify,
    is_frozen: AtomicBool,
    status: Mutex<Status>,
    /// True while it reads the histories of other nodes for the first time, as in its status.
    is_reading: AtomicBool,
    /// The numbers of the nodes that are there, in their order, and that of this one.
    nodes: Mutex<(u64, Arc<[u64]>)>,
    /// True if the node has the revoked tokens of the cluster, or cannot have them.
    has_revocations: AtomicBool,
    /// True if the node knows which of its saved sessions have ended or moved.
    has_records: AtomicBool,
    /// The numbers of the store of sessions, if there is one beside the keys of the engine.
    store: OnceLock<Arc<StoreNumbers>>,
}

#[derive(Default)]
struct Queue {
    messages: Vec<ToCluster>,
    /// True if the thread looks again before it sleeps.
    is_watched: bool,
    is_stopped: bool,
}

/// A message for the cluster's thread.
pub(crate) enum ToCluster {
    /// Publications of this node.
    Publications(Arc<EncodedPublications>),
    /// A reply waits until publications of other nodes on these names arrive.
    Ask(Vec<Box<str>>, PublishToken),
    /// A message about a session that another node has, or may have, or about a history.
    Message(Envelope),
    /// New settings.
    Settings(Arc<Settings>),
    /// Another node is to serve this connection.
    Relay(Box<Relayed>),
    /// A client with these origins wants a stream of a session that is not here.
    Search { session: Id, opener: Opener, origins: [u64; 2], done: oneshot::Sender<Visited> },
    /// A command or a question for other nodes.
    Command { callee: Callee, kind: CallKind, content: Bytes, done: oneshot::Sender<Answers> },
    /// An action of the application for sessions of other nodes.
    Act(Elsewhere),
    /// A session is to end, also for those who would go on with it later. True: a node has had it.
    OrderEnd(Id, bool, oneshot::Sender<Ordered>),
    /// A session has ended by an order: it ends if it is on its way to this node.
    EndIfItComes(Id),
    /// All sessions of a user are to end by the order with this mark. The sender learns if the engine has it.
    EndUser(Box<str>, u64, oneshot::Sender<bool>),
    /// Another node has ordered that, and this one does it.
    UserEnded(Box<str>, u64),
    /// The engine has the mark of a user.
    MarkFound(Box<str>, u64),
    /// These sessions of a user of this node end if they were opened before this mark.
    EndOlder(Vec<Id>, u64),
    /// A part of the program wants the lease with this name, and learns until when this node holds it.
    Lease(Box<str>, watch::Sender<Option<Instant>>),
    /// A request about the store of sessions.
    Store(StoreTask),
    /// The reply to the command of another node with this number.
    Reply(u64, Vec<u8>),
    /// A token that all nodes have to know of.
    Revoke(ToRevoke),
}

/// A token that all nodes have to know of, and that goes to the engine then.
#[derive(Debug)]
pub(crate) struct ToRevoke {
    pub(crate) token_id: Box<str>,
    /// Its end, in milliseconds since 1970.
    pub(crate) until_ms: u64,
    /// The answers of the other nodes. True: the engine has it.
    pub(crate) done: oneshot::Sender<(Answers, bool)>,
}

/// A request about the store of sessions, and who waits for its outcome.
#[derive(Debug)]
pub(crate) enum StoreTask {
    /// End the sessions whose node has been gone for too long: their number.
    Scavenge(oneshot::Sender<Result<u64, KeyFailure>>),
    /// Delete old sessions: their number.
    Purge(oneshot::Sender<Result<u64, KeyFailure>>),
    /// Count.
    Count(oneshot::Sender<Result<StoreReport, KeyFailure>>),
}

impl StoreTask {
    /// True if nobody waits for its outcome any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            StoreTask::Scavenge(done) | StoreTask::Purge(done) => done.is_closed(),
            StoreTask::Count(done) => done.is_closed(),
        }
    }

    /// Answers that it is not done, for this reason.
    pub(crate) fn fail(self, why: &str) {
        let failure = KeyFailure::Failed(why.into());
        // The request may have ended.
        match self {
            StoreTask::Scavenge(done) | StoreTask::Purge(done) => _ = done.send(Err(failure)),
            StoreTask::Count(done) => _ = done.send(Err(failure)),
        }
    }
}

/// The numbers of sessions in a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreReport {
    pub(crate) valid: u64,
    /// Those that have ended.
    pub(crate) invalid: u64,
}

/// The replies of other nodes.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    /// The number of nodes that were asked.
    pub(crate) nodes: usize,
    /// Those that have answered, with their replies.
    pub(crate) replies: Vec<(u64, NodeReply)>,
}

/// A connection that another node is to serve.
pub(crate) struct Relayed {
    pub(crate) home: NodeTag,
    pub(crate) request: RelayRequest,
    pub(crate) connection: oneshot::Receiver<(Detached, Box<dyn Send>)>,
    /// Bytes that were read after the request.
    pub(crate) rest: Vec<u8>,
    /// Learns that the other node serves it, or the reason why it does not.
    pub(crate) opened: Option<oneshot::Sender<Option<StreamOpening>>>,
}

/// Takes the connection of a relay, and its count, which lives as long as it. Dropping it ends the relay.
pub(crate) type RelaySeat = oneshot::Sender<(Detached, Box<dyn Send>)>;

/// The state of the node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Status {
    pub(crate) is_connected: bool,
    /// True if another node has the name of this one, which therefore takes no part in the cluster.
    pub(crate) name_is_taken: bool,
    pub(crate) counts: Counts,
    pub(crate) subscriptions: usize,
    pub(crate) origins: usize,
    /// Bytes that wait for the engine, and those that wait for the shards.
    pub(crate) waiting_bytes: (usize, usize),
    pub(crate) sessions: SessionCounts,
    pub(crate) histories: HistoryCounts,
    /// The partitions of histories that the node has, while it reads those of other nodes for the first time.
    pub(crate) reading: Option<usize>,
    pub(crate) remote_calls: RemoteCallCounts,
    pub(crate) revocations: RevocationCounts,
    /// Leases that this node holds.
    pub(crate) leases: usize,
    pub(crate) users: UserLimitCounts,
}

impl Replies {
    fn of(Answers { nodes, answers }: &Answers) -> Replies {
        let replies = answers.iter().map(|(node, bytes)| (*node, NodeReply::read(bytes)));
        Replies { nodes: *nodes, replies: replies.filter(|(_, reply)| *reply != NodeReply::Failed).collect() }
    }
}

impl Link {
    /// Sends to the thread.
    pub(crate) fn send(&self, message: ToCluster) {
        let mut queue = self.queue.lock();
        // Nobody reads any more.
        if queue.is_stopped {
            return;
        }
        queue.messages.push(message);
        let is_watched = std::mem::replace(&mut queue.is_watched, true);
        drop(queue);
        if !is_watched {
            self.wake.notify_one();
        }
    }

    /// Asks the other nodes for a session of which a client wants a stream.
    pub(crate) async fn search(&self, session: Id, opener: Opener, origins: [u64; 2]) -> Visited {
        let (done, outcome) = oneshot::channel();
        self.send(ToCluster::Search { session, opener, origins, done });
        outcome.await.unwrap_or(Visited::Later)
    }

    /// Ends a session in its record, so that nobody goes on with it. `is_known`: a node has had it. None if the thread has ended.
    pub(crate) async fn order_end(&self, session: Id, is_known: bool) -> Option<Ordered> {
        let (done, outcome) = oneshot::channel();
        self.send(ToCluster::OrderEnd(session, is_known, done));
        outcome.await.ok()
    }

    /// Writes that all sessions of a user have ended by the order with this mark. False if that fails. None if the thread has ended.
    pub(crate) async fn end_user(&self, user: &str, mark: u64) -> Option<bool> {
        let (done, outcome) = oneshot::channel();
        self.send(ToCluster::EndUser(user.into(), mark, done));
        outcome.await.ok()
    }

    /// Opens a stream on another node, which then awaits its connection. Otherwise the reason why it is not open.
    pub(crate) async fn open_stream(
        &self,
        home: NodeTag,
        visitor: Visitor,
        format: Format,
    ) -> Result<RelaySeat, StreamOpening> {
        let ((seat, connection), (done, refusal)) = (oneshot::channel(), oneshot::channel());
        let request = RelayRequest::Stream(visitor, format);
        let relayed = Relayed { home, request, connection, rest: Vec::new(), opened: Some(done) };
        self.send(ToCluster::Relay(Box::new(relayed)));
        refusal.await.unwrap_or(Some(StreamOpening::Draining)).map_or(Ok(seat), Err)
    }

    /// Sends a command to other nodes, and waits for their replies. None if the thread has ended.
    pub(crate) async fn command(&self, callee: Callee, command: &NodeCommand) -> Option<Replies> {
        let (done, answers) = oneshot::channel();
        let (kind, content) = (command.kind(), command.write());
        self.send(ToCluster::Command { callee, kind, content, done });
        Some(Replies::of(&answers.await.ok()?))
    }

    /// Lets all nodes know of a revoked token, also if the caller leaves. Returns their replies, and true if the engine has it. None if the
    /// thread has ended.
    pub(crate) async fn revoke(&self, token_id: &str, until_ms: u64) -> Option<(Replies, bool)> {
        let (done, outcome) = oneshot::channel();
        self.send(ToCluster::Revoke(ToRevoke { token_id: token_id.into(), until_ms, done }));
        let (answers, is_written) = outcome.await.ok()?;
        Some((Replies::of(&answers), is_written))
    }

    /// The numbers of the store of sessions, if there is one beside the keys of the engine.
    pub(crate) fn store(&self) -> Option<&Arc<StoreNumbers>> {
        self.store.get()
    }

    /// Notes the store of sessions.
    pub(crate) fn set_store(&self, numbers: Arc<StoreNumbers>) {
        // A node has one.
        _ = self.store.set(numbers);
    }

    /// Asks the thread about the store of sessions. None if the thread has ended.
    pub(crate) async fn ask_store<T>(
        &self,
        task: fn(oneshot::Sender<Result<T, KeyFailure>>) -> StoreTask,
    ) -> Option<Result<T, KeyFailure>> {
        let (done, outcome) = oneshot::channel();
        self.send(ToCluster::Store(task(done)));
        outcome.await.ok()
    }

    /// The number of this node, and those of all nodes that are there, in their order.
    pub(crate) fn nodes(&self) -> (u64, Arc<[u64]>) {
        self.nodes.lock().clone()
    }

    /// The numbers of the other nodes that are there. None: the engine is away.
    pub(crate) fn others(&self) -> Option<Vec<u64>> {
        let (own, all) = self.nodes();
        self.status().is_connected.then(|| all.iter().copied().filter(|node| *node != own).collect())
    }

    /// Notes the nodes that are there.
    pub(crate) fn set_nodes(&self, own: u64, others: impl Iterator<Item = u64>) {
        let mut all: Vec<u64> = others.chain([own]).collect();
        all.sort_unstable();
        *self.nodes.lock() = (own, all.into());
    }

    /// True if the node has the revoked tokens of the cluster, or cannot have them.
    pub(crate) fn has_revocations(&self) -> bool {
        self.has_revocations.load(Ordering::Acquire)
    }

    /// Notes that it has them.
    pub(crate) fn set_has_revocations(&self) {
        self.has_revocations.store(true, Ordering::Release);
    }

    /// Waits until the node knows which of its saved sessions have ended or moved. While the engine is away, nobody can know.
    pub(crate) async fn await_records(&self) {
        let until = Instant::now() + RECORDS_MAX;
        while !self.has_records.load(Ordering::Acquire) && self.status().is_connected && Instant::now() < until {
            tokio::time::sleep(RECORDS_PAUSE).await;
        }
    }

    /// Notes that it knows them.
    pub(crate) fn set_has_records(&self) {
        self.has_records.store(true, Ordering::Release);
    }

    /// Wakes the thread: the interest of the shards has changed, or there is room between them.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Lets nothing more of other nodes come to the shards, which come to rest.
    pub(crate) fn freeze(&self) {
        self.is_frozen.store(true, Ordering::Release);
    }

    /// True if nothing more of other nodes comes to the shards.
    pub(crate) fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Acquire)
    }

    /// Ends the thread, after what was sent before.
    pub(crate) fn stop(&self) {
        self.queue.lock().is_stopped = true;
        self.wake.notify_one();
    }

    /// Ready when there may be something to do.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Takes all messages. If there are none, the next one wakes the thread. True: no more follow.
    pub(crate) fn take(&self) -> (Vec<ToCluster>, bool) {
        let mut queue = self.queue.lock();
        queue.is_watched = !queue.messages.is_empty();
        if queue.is_watched {
            // It looks again, even if nothing comes of these messages.
            self.wake.notify_one();
        }
        (take(&mut queue.messages), queue.is_stopped)
    }

    /// The last state of the node.
    pub(crate) fn status(&self) -> Status {
        *self.status.lock()
    }

    /// Notes the state of the node.
    pub(crate) fn set_status(&self, status: Status) {
        self.is_reading.store(status.reading.is_some(), Ordering::Release);
        *self.status.lock() = status;
    }

    /// True while the node reads the histories of other nodes for the first time.
    pub(crate) fn is_reading(&self) -> bool {
        self.is_reading.load(Ordering::Acquire)
    }

    /// The metrics of the node.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let Status { sessions, histories, remote_calls, revocations, leases, users, .. } = self.status();
        let of_sessions = session_metrics::of(&sessions).into_iter().chain(session_metrics::of_records(&sessions));
        let of_sessions = of_sessions.chain(session_metrics::of_orders(&sessions));
        let of_parts = of_sessions.chain(history_metrics::of(&histories));
        let held = "Leases of the cluster that this node holds: work that runs once.";
        let held = Metric::gauge_of("encke_cluster_leases_held", held, leases);
        let of_parts = of_parts
            .chain(command_metrics::of(&remote_calls, &revocations))
            .chain(command_metrics::of_users(&users))
            .chain([held]);
        let of_store = self.store().into_iter().flat_map(|numbers| numbers.metrics());
        self.node_metrics().into_iter().chain(of_parts).chain(of_store).collect()
    }

    fn node_metrics(&self) -> Vec<Metric> {
        let Status { is_connected, counts, subscriptions, origins, waiting_bytes: (pending, incoming), .. } =
            self.status();
        let (gauge, counter) = (Metric::gauge_of, Metric::counter_of);
        vec![
            gauge(
                "encke_cluster_connected",
                "1 while the node is connected to the engine of the cluster.",
                is_connected.into(),
            ),
            gauge("encke_cluster_subscriptions", "Subscriptions at the engine of the cluster.", subscriptions),
            gauge(
                "encke_cluster_origins",
                "Other nodes whose publications have arrived; each start of a node counts as one.",
                origins,
            ),
            gauge(
                "encke_cluster_pending_bytes",
                "Bytes of publications that wait for the engine of the cluster.",
                pending,
            ),
            gauge(
                "encke_cluster_incoming_bytes",
                "Bytes of publications of other nodes that wait for room between shards.",
                incoming,
            ),
            counter(
                "encke_cluster_envelopes_out",
                "Envelopes sent to the engine of the cluster.",
                counts.envelopes_out,
            ),
            counter(
                "encke_cluster_publications_out",
                "Messages sent to the engine of the cluster.",
                counts.publications_out,
            ),
            counter("encke_cluster_envelopes_in", "Envelopes of other nodes passed to shards.", counts.envelopes_in),
            counter(
                "encke_cluster_publications_in",
                "Messages of other nodes passed to shards.",
                counts.publications_in,
            ),
            counter("encke_cluster_unwanted", "Envelopes of other nodes that no shard wanted.", counts.unwanted),
            counter(
                "encke_cluster_doubled",
                "Second copies of envelopes, dropped while subscriptions changed.",
                counts.doubled,
            ),
            counter(
                "encke_cluster_rejected",
                "Bytes on subjects of the cluster that are no valid envelope.",
                counts.rejected,
            ),
            counter(
                "encke_cluster_lost_out",
                "Messages not sent to other nodes: pending_bytes_max was reached, or they are too large for the engine.",
                counts.lost_out,
            ),
            counter(
                "encke_cluster_lost_in",
                "Messages of other nodes lost here: incoming_bytes_max was reached, or the engine dropped them.",
                counts.lost_in,
            ),
            counter(
                "encke_cluster_replies_unconfirmed",
                "Replies to subscribes that left before the engine had confirmed, because of reply_delay_max_ms.",
                counts.replies_unconfirmed,
            ),
        ]
    }
}

/// The longest time that a node waits for the records of its sessions before it takes clients.
const RECORDS_MAX: Duration = Duration::from_secs(60);
/// The time after which it looks again.
const RECORDS_PAUSE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_is_woken_once_until_it_finds_the_mailbox_empty() {
        let link = Link::default();
        let is_woken = || {
            let mut woken = Box::pin(link.woken());
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            woken.as_mut().poll(&mut cx).is_ready()
        };
        let send = || link.send(ToCluster::Ask(Vec::new(), PublishToken { shard: 0, number: 1 }));
        send();
        assert!(is_woken());
        send();
        assert!(!is_woken(), "it looks again");
        assert_eq!((link.take().0.len(), link.take().0.len()), (2, 0));
        send();
        assert!(is_woken());
        link.stop();
        send();
        let (messages, is_stopped) = link.take();
        assert_eq!((messages.len(), is_stopped), (1, true));
    }
}
