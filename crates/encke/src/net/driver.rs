//! The life of one shard's thread: its runtime, its clock, its mailbox, its flusher.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::LocalRuntime;
use tokio::sync::mpsc;

use super::node::{Node, ServerShared, Streams, ThreadMessage};
use super::store_thread::Inbox;
use super::{accept, ending, socket};
use crate::http;
use encke_core::{Saved, Shard, ShardMessage};

/// What a shard's thread runs on.
///
/// # Errors
/// When the system refuses, mostly for want of files.
pub(crate) fn runtime() -> io::Result<LocalRuntime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(FILE_THREADS_MAX).build_local(Default::default())
}

/// Runs a shard on this thread until it is told to stop. The first shard also accepts, and hands connections out. Returns the
/// shard's sessions where they are kept over a restart.
pub(crate) fn run(
    runtime: LocalRuntime,
    shard: Shard,
    server_shared: Arc<ServerShared>,
    mut mailbox: mpsc::UnboundedReceiver<ThreadMessage>,
    listener: Option<std::net::TcpListener>,
    history_store: Option<Inbox>,
) -> Option<Saved> {
    let node = Rc::new(Node::new(shard, server_shared, history_store.clone()));
    let frozen = runtime.block_on(async {
        tokio::task::spawn_local(flush(node.clone()));
        tokio::task::spawn_local(tick(node.clone()));
        if let Some(listener) = listener {
            tokio::task::spawn_local(accept::run(node.clone(), listener));
        }
        receive(&node, &mut mailbox).await
    });
    // Tasks run inside `block_on` only: from here on nothing reads or writes.
    let saved = frozen.map(|thread_messages| ending::finish(&node, thread_messages, &mut mailbox));
    // Nobody is left who could have something kept.
    drop((runtime, node));
    history_store.into_iter().for_each(Inbox::leave);
    saved
}

/// Takes parcels until the shard stops, or is frozen: then with the parcels that were not looked at yet.
async fn receive(node: &Rc<Node>, mailbox: &mut mpsc::UnboundedReceiver<ThreadMessage>) -> Option<Vec<ThreadMessage>> {
    let mut received = Vec::new();
    loop {
        mailbox.recv_many(&mut received, THREAD_MESSAGES_AT_ONCE).await;
        let mut thread_messages = received.drain(..);
        while let Some(thread_message) = thread_messages.next() {
            match thread_message {
                ThreadMessage::FromShard(envelope) => {
                    let drains = matches!(envelope.message, ShardMessage::Drain);
                    node.shard.borrow_mut().receive(node.now(), envelope);
                    if drains {
                        node.leave();
                    }
                }
                ThreadMessage::Published => {
                    let now = node.now();
                    node.take_published(|shard, envelope| shard.receive(now, envelope));
                }
                ThreadMessage::Connection(tcp) => match tokio::net::TcpStream::from_std(tcp) {
                    Ok(tcp) => http::connection::open(node, tcp),
                    Err(error) => tracing::warn!(%error, "a connection was lost on its way to its shard"),
                },
                ThreadMessage::Socket(moving) => socket::go_on(node, *moving),
                // Only a frozen shard is asked that.
                ThreadMessage::Settle(_) => {}
                ThreadMessage::Freeze => return Some(thread_messages.collect()),
                ThreadMessage::Stop => return None,
            }
        }
        drop(thread_messages);
        if received.capacity() > RECEIVED_KEPT {
            received = Vec::new();
        }
        node.settle();
        // A full mailbox must not starve the sockets.
        tokio::task::yield_now().await;
    }
}

/// Writes what waits, whenever something does: behind every task that was ready, so that one write takes it all.
async fn flush(node: Rc<Node>) {
    loop {
        node.confirmations.wake.notified().await;
        loop {
            node.confirm();
            let more = {
                let mut shard = node.shard.borrow_mut();
                let budget = Duration::from_micros(shard.settings().fairness_budget_us);
                let started = Instant::now();
                let streams = node.streams.borrow();
                shard.flush(node.now(), &mut Streams(&streams), &mut || started.elapsed() > budget)
            };
            node.settle();
            node.set_behind(more);
            node.wake_readers();
            if !more && node.shard.borrow().is_settled() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Lets time pass for the shard.
async fn tick(node: Rc<Node>) {
    let mut alive_ms = 0;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let now = node.now();
        // Before time passes for them.
        if now.ms >= alive_ms {
            node.keep_waiting_alive();
            alive_ms = now.ms + ALIVE_EVERY_MS;
        }
        node.shard.borrow_mut().advance(now);
        node.settle();
        // Nobody tells that the disk has caught up.
        node.wake_readers();
    }
}

/// Threads of one shard that read files; what more is asked for meanwhile waits, at most one file per connection.
const FILE_THREADS_MAX: usize = 8;

/// Parcels taken from a mailbox before others go on: all that the account of bytes between shards lets in. What has to wait for its turn is
/// sorted into fair queues then; in the mailbox it would be in front of what need not wait.
const THREAD_MESSAGES_AT_ONCE: usize = 65_536;
/// Parcels that room is kept for.
const RECEIVED_KEPT: usize = 1_024;
/// How often time passes for a shard: deadlines are kept to about this.
const TICK: Duration = Duration::from_millis(32);
/// How often it is said of those who wait to be read that they are not silent, in milliseconds.
const ALIVE_EVERY_MS: u64 = 256;
