//! The life of one shard's thread: its runtime, its clock, its mailbox, its flusher.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::keeper::Inbox;
use super::node::{Common, Node, Parcel, Streams};
use super::socket;
use crate::http;
use crate::shard::Shard;

/// Runs a shard on this thread until it is told to stop. The first shard also accepts, and hands connections out.
pub(crate) fn run(
    shard: Shard,
    common: Arc<Common>,
    mailbox: mpsc::Receiver<Parcel>,
    listener: Option<std::net::TcpListener>,
    keeper: Option<Inbox>,
) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match builder.enable_all().max_blocking_threads(FILE_THREADS_MAX).build_local(Default::default()) {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "a shard could not start"),
    };
    let node = Rc::new(Node::new(shard, common, keeper.clone()));
    runtime.block_on(async {
        tokio::task::spawn_local(flush(node.clone()));
        tokio::task::spawn_local(tick(node.clone()));
        if let Some(listener) = listener {
            tokio::task::spawn_local(accept(node.clone(), listener));
        }
        receive(&node, mailbox).await;
    });
    // Nobody is left who could have something kept.
    drop((runtime, node));
    keeper.into_iter().for_each(Inbox::leave);
}

/// Takes parcels until the shard stops.
async fn receive(node: &Rc<Node>, mut mailbox: mpsc::Receiver<Parcel>) {
    let mut parcels = Vec::new();
    loop {
        mailbox.recv_many(&mut parcels, PARCELS_AT_ONCE).await;
        for parcel in parcels.drain(..) {
            match parcel {
                Parcel::Mail(mail) => node.shard.borrow_mut().mail(node.now(), mail),
                Parcel::Connection(tcp) => match tokio::net::TcpStream::from_std(tcp) {
                    Ok(tcp) => http::connection::open(node, tcp),
                    Err(error) => tracing::warn!(%error, "a connection was lost on its way to its shard"),
                },
                Parcel::Socket(moving) => socket::go_on(node, *moving),
                Parcel::Stop => return,
            }
        }
        node.settle();
        node.look_at_keeper();
        // A full mailbox must not starve the sockets; and while writing is behind, what others publish waits in it, so that
        // they wait, too, once it is full.
        tokio::task::yield_now().await;
        while node.is_behind() {
            tokio::task::yield_now().await;
        }
    }
}

/// Writes what waits, whenever something does: behind every task that was ready, so that one write takes it all.
async fn flush(node: Rc<Node>) {
    loop {
        node.confirmations.wake.notified().await;
        loop {
            for confirmed in node.confirmations.take() {
                let home = usize::from(confirmed.shard);
                let mail = crate::shard::Mail::Delivered(confirmed.exchange, confirmed.taken);
                if home == node.shard.borrow().index() {
                    node.shard.borrow_mut().mail(node.now(), mail);
                } else {
                    node.send(home, Parcel::Mail(mail));
                }
            }
            let more = {
                let mut shard = node.shard.borrow_mut();
                let budget = Duration::from_micros(shard.settings().fairness_budget_us);
                let started = Instant::now();
                let streams = node.streams.borrow();
                shard.flush(node.now(), &mut Streams(&streams), &mut || started.elapsed() > budget)
            };
            node.settle();
            node.set_behind(more);
            // Those who catch up make nobody wait.
            if !more && !node.shard.borrow().is_catching_up() {
                break;
            }
            tokio::task::yield_now().await;
        }
        if node.send_late() {
            tokio::time::sleep(LATE_RETRY).await;
            node.confirmations.wake.notify_one();
        }
    }
}

/// Lets time pass for the shard.
async fn tick(node: Rc<Node>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let now = node.now();
        node.shard.borrow_mut().advance(now);
        node.settle();
        node.look_at_keeper();
    }
}

/// Accepts connections and hands them to the shards in turn.
async fn accept(node: Rc<Node>, listener: std::net::TcpListener) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the listening socket is of no use"),
    };
    let mut next = 0;
    let mut troubled = false;
    loop {
        match listener.accept().await {
            Ok((tcp, peer)) => {
                troubled = false;
                welcome(&node, tcp, peer, &mut next);
            }
            Err(error) => {
                // Out of files, mostly: waiting lets some be closed, spinning does not.
                node.shard.borrow().metrics().accept_failures.add(1);
                if !std::mem::replace(&mut troubled, true) {
                    tracing::error!(%error, "no connections can be accepted at the moment");
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

fn welcome(node: &Rc<Node>, tcp: tokio::net::TcpStream, peer: SocketAddr, next: &mut usize) {
    let connections_max = node.shard.borrow().settings().connections_max;
    if node.common.connections.load(Ordering::Relaxed) >= connections_max {
        node.shard.borrow().metrics().connections_refused.add(1);
        tracing::debug!(%peer, "connection refused: connections_max reached");
        let _gone = tcp.try_write(FULL);
        return;
    }
    let shards = node.common.mailboxes.len();
    let shard = *next % shards;
    *next = next.wrapping_add(1);
    if shard == node.shard.borrow().index() {
        return http::connection::open(node, tcp);
    }
    match tcp.into_std() {
        Ok(tcp) => node.send(shard, Parcel::Connection(tcp)),
        Err(error) => tracing::warn!(%error, "a connection could not be handed out"),
    }
}

/// Binds the listening socket.
///
/// # Errors
/// What the kernel says, for example that the address is in use.
pub(crate) fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Threads of one shard that read files; what more is asked for meanwhile waits, at most one file per connection.
const FILE_THREADS_MAX: usize = 8;

/// Parcels taken from a mailbox before others go on: each may hold a burst of some hundred publications, and all of them
/// together must not fill an outbox.
const PARCELS_AT_ONCE: usize = 32;
/// How often time passes for a shard: deadlines are kept to about this.
const TICK: Duration = Duration::from_millis(32);
/// Pause before a full mailbox is tried again.
const LATE_RETRY: Duration = Duration::from_micros(500);
/// Pause after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// What a connection above the limit is told.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 5\r\nconnection: close\r\n\r\n";
