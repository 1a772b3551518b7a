//! The thread of one shard: its runtime, clock, mailbox and flusher.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::LocalRuntime;
use tokio::sync::mpsc;

use super::listeners::Bound;
use super::reclaim::{Load, Reclaim};
use super::{accept, ending};
use crate::http;
use crate::http::embedded::{self, Visit};
use crate::net::node::Node;
use crate::net::server_shared::ServerShared;
use crate::net::socket;
use crate::net::store_thread::Inbox;
use crate::net::stream;
use crate::net::thread_message::ThreadMessage;
use encke_core::{Saved, Shard};

/// Builds the runtime of a shard's thread.
///
/// # Errors
/// The system's error, usually too few file descriptors.
pub(crate) fn runtime() -> io::Result<LocalRuntime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(FILE_THREADS_MAX).build_local(Default::default())
}

/// The messages of other threads for a shard, and the requests that other HTTP servers have read for it.
pub(crate) type Inputs = (mpsc::UnboundedReceiver<ThreadMessage>, mpsc::UnboundedReceiver<Visit>);

/// Runs a shard on this thread until it receives `Stop`. The first shard also accepts connections and deals them out.
/// Returns the shard's sessions where they survive a restart.
pub(crate) fn run(
    runtime: LocalRuntime,
    shard: Shard,
    server_shared: Arc<ServerShared>,
    (mut mailbox, visits): Inputs,
    listeners: Arc<[Bound]>,
    history_store: Option<Inbox>,
) -> Option<Saved> {
    let node = Rc::new(Node::new(shard, server_shared, history_store.clone()));
    let frozen = runtime.block_on(async {
        tokio::task::spawn_local(flush(node.clone()));
        tokio::task::spawn_local(tick(node.clone()));
        tokio::task::spawn_local(admit(node.clone(), visits, listeners));
        receive(&node, &mut mailbox).await
    });
    // Tasks run only inside `block_on`: from here on nothing reads or writes.
    let saved = frozen.map(|thread_messages| ending::finish(&node, thread_messages, &mut mailbox));
    // From here on nobody can send the store a request.
    drop((runtime, node));
    history_store.into_iter().for_each(Inbox::leave);
    saved
}

/// Takes clients, as soon as the node knows its sessions.
async fn admit(node: Rc<Node>, visits: mpsc::UnboundedReceiver<Visit>, listeners: Arc<[Bound]>) {
    if let Some(cluster) = &node.server().cluster {
        cluster.await_records().await;
    }
    tokio::task::spawn_local(embedded::receive(node.clone(), visits));
    if !listeners.is_empty() {
        accept::run(node, listeners).await;
    }
}

/// Processes the mailbox until the shard stops, or until it is frozen: then it returns the messages it has not
/// processed yet.
async fn receive(node: &Rc<Node>, mailbox: &mut mpsc::UnboundedReceiver<ThreadMessage>) -> Option<Vec<ThreadMessage>> {
    let mut received = Vec::new();
    let mut is_published_to = false;
    loop {
        if is_published_to {
            received.extend(std::iter::from_fn(|| mailbox.try_recv().ok()).take(THREAD_MESSAGES_AT_ONCE));
        } else {
            mailbox.recv_many(&mut received, THREAD_MESSAGES_AT_ONCE).await;
        }
        // Taken before the messages: a handle may have published first, and sent a message after that.
        let now = node.now();
        is_published_to = node.take_published(|shard, envelope| shard.receive(now, envelope));
        let mut thread_messages = received.drain(..);
        while let Some(thread_message) = thread_messages.next() {
            match thread_message {
                ThreadMessage::FromShard(envelope) => node.receive(envelope),
                ThreadMessage::Connection(stream, arrival) => match stream.attach() {
                    Ok(stream) => http::serve::open(node, stream, arrival),
                    Err(error) => tracing::warn!(%error, "a connection was lost on its way to its shard"),
                },
                ThreadMessage::Socket(moving) => socket::go_on(node, *moving),
                ThreadMessage::Stream(moving) => stream::go_on(node, *moving),
                // The publications are taken already. Only a frozen shard gets a request to settle.
                ThreadMessage::Published | ThreadMessage::Settle(_) => {}
                ThreadMessage::Inspect(look) => look(&node.shard()),
                ThreadMessage::Freeze => return Some(thread_messages.collect()),
                ThreadMessage::Stop => return None,
            }
        }
        drop(thread_messages);
        if received.capacity() > RECEIVED_RETAINED {
            received = Vec::new();
        }
        node.settle();
        // A full mailbox must not starve the sockets.
        tokio::task::yield_now().await;
    }
}

/// Writes pending output whenever there is any. It runs after every task that was ready, so that one write takes
/// everything.
async fn flush(node: Rc<Node>) {
    loop {
        node.woken().await;
        loop {
            node.confirm();
            let more = {
                let mut shard = node.shard_mut();
                let budget = Duration::from_micros(shard.settings().fairness_budget_us);
                let started = Instant::now();
                shard.flush(node.now(), &mut node.sockets().wire(), &mut || started.elapsed() > budget)
            };
            node.settle();
            node.set_behind(more);
            node.wake_readers();
            if !more && node.shard().is_settled() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Advances the shard's time.
async fn tick(node: Rc<Node>) {
    let mut alive_ms = 0;
    let mut reclaim = Reclaim::default();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        node.server().clock.tick();
        let now = node.now();
        // Before the shard's tick checks time-outs.
        if now.ms >= alive_ms {
            node.keep_waiting_alive();
            node.young().release();
            alive_ms = now.ms + ALIVE_EVERY_MS;
        }
        node.parked().wake_late(now.ms);
        node.shard_mut().advance(now);
        node.settle();
        if let Some(reclaim_memory) = node.server().reclaim_memory
            && reclaim.is_due(now.ms, || load(&node))
        {
            reclaim_memory();
        }
        // The store does not notify shards when its backlog has drained.
        node.wake_readers();
    }
}

fn load(node: &Node) -> Load {
    let shard = node.shard();
    let received = shard.metrics().messages.get() * MESSAGE_BYTES;
    Load { work: shard.work() + received, held_bytes: shard.held_bytes() + shard.sessions() * SESSION_BYTES }
}

/// The bytes that one received message allocates, roughly.
const MESSAGE_BYTES: u64 = 512;
/// The bytes of an idle session, roughly.
const SESSION_BYTES: usize = 2_048;
/// Threads of one shard that read files. Further reads wait, at most one file per connection.
const FILE_THREADS_MAX: usize = 8;

/// Messages taken from a mailbox before other tasks get a turn: everything that the account of bytes between shards
/// admits. Messages that must wait are then sorted into fair queues; in the mailbox they would block messages that
/// need not wait.
const THREAD_MESSAGES_AT_ONCE: usize = 65_536;
/// The capacity that the buffer of received messages retains.
const RECEIVED_RETAINED: usize = 1_024;
/// The interval of the shard's tick, and so the precision of deadlines.
const TICK: Duration = Duration::from_millis(32);
/// The interval, in milliseconds, at which clients that wait to be read are marked as not silent.
const ALIVE_EVERY_MS: u64 = 256;
