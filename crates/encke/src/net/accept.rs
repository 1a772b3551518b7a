//! New connections: accepted no faster than the connected can bear, and handed out to the shards in turn.
//!
//! Who is not accepted yet waits in the system's backlog, where it costs the shards nothing. So a stampede takes its time, and
//! those who are connected go on as if nothing were.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;

use super::node::{Node, ThreadMessage};
use crate::http;

/// Accepts until the server takes no more connections.
pub(crate) async fn run(node: Rc<Node>, listener: std::net::TcpListener) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the listening socket is of no use"),
    };
    let mut accepting = node.server_shared.accepting.subscribe();
    tokio::select! {
        // Who has connected and was not accepted is for the next to hold the socket.
        _ = accepting.wait_for(|accepting| !accepting) => tracing::debug!("no more connections are accepted"),
        () = accept(&node, &listener) => {}
    }
}

async fn accept(node: &Rc<Node>, listener: &TcpListener) {
    let mut next = 0;
    let mut troubled = false;
    let mut pace = Pace::new(Instant::now());
    let mut at_once = 0;
    loop {
        match listener.accept().await {
            Ok((tcp, peer)) => {
                troubled = false;
                welcome(node, tcp, peer, &mut next);
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
        at_once += 1;
        if at_once == ACCEPTS_AT_ONCE {
            at_once = 0;
            // Behind every task that is ready, those that write among them.
            tokio::task::yield_now().await;
        }
        let per_second_max = node.shard.borrow().settings().connections_per_second_max;
        let wait = pace.step(Instant::now(), per_second_max.saturating_mul(node.server_shared.mailboxes.len()));
        if wait.is_some() || node.is_behind() {
            node.shard.borrow().metrics().accepts_delayed.add(1);
        }
        if let Some(wait) = wait {
            tokio::time::sleep(wait).await;
        }
        while node.is_behind() {
            tokio::task::yield_now().await;
        }
    }
}

fn welcome(node: &Rc<Node>, tcp: tokio::net::TcpStream, peer: SocketAddr, next: &mut usize) {
    let connections_max = node.shard.borrow().settings().connections_max;
    if node.server_shared.connections.load(Ordering::Relaxed) >= connections_max {
        node.shard.borrow().metrics().connections_refused.add(1);
        tracing::debug!(%peer, "connection refused: connections_max reached");
        let _gone = tcp.try_write(FULL);
        return;
    }
    let shards = node.server_shared.mailboxes.len();
    let shard = *next % shards;
    *next = next.wrapping_add(1);
    if shard == node.shard.borrow().index() {
        return http::connection::open(node, tcp);
    }
    match tcp.into_std() {
        Ok(tcp) => node.send(shard, ThreadMessage::Connection(tcp)),
        Err(error) => tracing::warn!(%error, "a connection could not be handed out"),
    }
}

/// Spreads connections over each second, with a little room for those that come together.
struct Pace {
    /// When the next one would be due if they came at even distances.
    due: Instant,
}

impl Pace {
    fn new(now: Instant) -> Pace {
        Pace { due: now }
    }

    /// A connection was accepted: how long to wait before the next, if at all. A rate of 0 is none.
    fn step(&mut self, now: Instant, per_second_max: usize) -> Option<Duration> {
        let distance = Duration::from_secs(1).checked_div(u32::try_from(per_second_max).unwrap_or(u32::MAX))?;
        self.due = self.due.max(now) + distance;
        let early = self.due - now;
        // Shorter waits are not worth a timer.
        (early > PACE_SLACK).then_some(early)
    }
}

/// Binds the listening socket.
///
/// # Errors
/// What the kernel says, for example that the address is in use.
pub(crate) fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    adopt(socket.into())
}

/// Makes a bound socket, whoever bound it, one to accept from.
///
/// # Errors
/// What the kernel says.
pub(crate) fn adopt(listener: std::net::TcpListener) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::from(listener);
    socket.set_nonblocking(true)?;
    // Allowed on one that listens already: it changes the length of its backlog.
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Connections accepted before everybody else has had a turn: a millisecond's work, with their handshakes.
const ACCEPTS_AT_ONCE: usize = 16;
/// So much may come together without a pause: 10 ms worth of connections.
const PACE_SLACK: Duration = Duration::from_millis(10);
/// Pause after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Connections that wait to be accepted, where the system allows as many (`net.core.somaxconn`).
const BACKLOG: i32 = 65_535;
/// What a connection above the limit is told.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 5\r\nconnection: close\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_come_together_are_spread_to_the_rate() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        // 1,000 a second: ten fit into the slack.
        let waits: Vec<_> = (0..12).map(|_| pace.step(now, 1_000).map(|wait| wait.as_millis())).collect();
        assert_eq!(waits, [[None; 10].as_slice(), &[Some(11), Some(12)]].concat());
        let later = now + Duration::from_secs(60);
        assert_eq!(pace.step(later, 1_000), None, "what was not used is not saved up");
        assert_eq!(pace.step(later, 0), None, "no limit");
    }
}
