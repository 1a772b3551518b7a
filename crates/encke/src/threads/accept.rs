//! Accepts new connections and deals them out to the shards in turn, no faster than connected clients can bear.
//!
//! A connection that is not accepted yet waits in the system's backlog, where it costs the shards nothing. A stampede
//! of new connections is therefore paced, and does not disturb connected clients.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::listeners::Bound;
use crate::byte_stream::{self, Accepted, ByteStream, Listener, Remote};
use crate::http;
use crate::net::arrival;
use crate::net::connections::Arrival;
use crate::net::node::Node;
use crate::net::thread_message::ThreadMessage;

/// Accepts until the server stops accepting connections.
pub(crate) async fn run(node: Rc<Node>, bound: Arc<[Bound]>) {
    let listeners = bound.iter().map(|(socket, speaks)| Listener::new(socket.try_clone()?, *speaks));
    let listeners: Vec<Listener> = match listeners.collect::<io::Result<_>>() {
        Ok(listeners) => listeners,
        Err(error) => return tracing::error!(%error, "a listening socket is of no use"),
    };
    let mut accepting = node.server().accepting.subscribe();
    tokio::select! {
        // The process that takes over the listening socket accepts the connections left in the backlog.
        _ = accepting.wait_for(|accepting| !accepting) => tracing::debug!("no more connections are accepted"),
        () = accept(&node, &listeners) => {}
    }
}

async fn accept(node: &Rc<Node>, listeners: &[Listener]) {
    let (mut next, mut turn) = (0, 0);
    let mut troubled = false;
    let mut pace = Pace::new(Instant::now());
    let mut at_once = 0;
    loop {
        match byte_stream::accept(listeners, &mut turn).await {
            Ok(Accepted { stream, remote, speaks }) => {
                troubled = false;
                let tls = node.server().tls.as_ref().zip(speaks.tls).map(|(tls, client)| tls.config(client));
                let memory = || node.shard().shared().memory.clone();
                match tls.into_iter().try_fold(stream, |stream, tls| stream.with_tls(tls, memory())) {
                    Ok(stream) => welcome(node, stream, remote, speaks.proxy_protocol, &mut next),
                    Err(error) => tracing::error!(%error, "TLS cannot begin"),
                }
            }
            Err(error) => {
                // Mostly out of file descriptors: a pause lets some be closed, spinning does not.
                node.shard().metrics().accept_failures.add(1);
                if !std::mem::replace(&mut troubled, true) {
                    tracing::error!(%error, "no connections can be accepted at the moment");
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
        at_once += 1;
        if at_once == ACCEPTS_AT_ONCE {
            at_once = 0;
            // Runs after every task that is ready, including those that write.
            tokio::task::yield_now().await;
        }
        let per_second_max = node.shard().settings().connections_per_second_max;
        let wait = pace.step(Instant::now(), per_second_max.saturating_mul(node.server().mailboxes.shards()));
        if wait.is_some() || node.is_behind() {
            node.shard().metrics().accepts_delayed.add(1);
        }
        if let Some(wait) = wait {
            tokio::time::sleep(wait).await;
        }
        while node.is_behind() {
            tokio::task::yield_now().await;
        }
    }
}

fn welcome(node: &Rc<Node>, stream: ByteStream, remote: Remote, has_proxy_head: bool, next: &mut usize) {
    let settings = node.shard().settings().clone();
    if node.server().connections.open() >= settings.connections_max {
        node.shard().metrics().connections_refused.add(1);
        tracing::debug!(address = ?remote.address(), "connection refused: connections_max reached");
        return stream.refuse(FULL);
    }
    let Some(counted) = arrival::count(node, &stream, remote) else { return };
    let arrival = Arrival { remote, counted, has_proxy_head };
    let shards = node.server().mailboxes.shards();
    let shard = *next % shards;
    *next = next.wrapping_add(1);
    if shard == node.shard().index() {
        return http::serve::open(node, stream, arrival);
    }
    match stream.detach() {
        Ok(stream) => node.send(shard, ThreadMessage::Connection(stream, arrival)),
        Err(error) => tracing::warn!(%error, "a connection could not be passed to its shard"),
    }
}

/// Paces connections over each second, and lets a small burst pass without a pause.
struct Pace {
    /// The time at which the next connection would be due at even intervals.
    due: Instant,
}

impl Pace {
    fn new(now: Instant) -> Pace {
        Pace { due: now }
    }

    /// Notes an accepted connection. Returns the pause before the next accept, if any. A rate of 0 means no limit.
    fn step(&mut self, now: Instant, per_second_max: usize) -> Option<Duration> {
        let distance = Duration::from_secs(1).checked_div(u32::try_from(per_second_max).unwrap_or(u32::MAX))?;
        self.due = self.due.max(now) + distance;
        let early = self.due - now;
        // A shorter pause is not worth a timer.
        (early > PACE_SLACK).then_some(early)
    }
}

/// Connections accepted before all other tasks get a turn: about a millisecond of work, including their handshakes.
const ACCEPTS_AT_ONCE: usize = 16;
/// The burst accepted without a pause: connections worth 10 ms.
const PACE_SLACK: Duration = Duration::from_millis(10);
/// Pause after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// The response to a connection above the limit.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 5\r\nconnection: close\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simultaneous_connections_are_accepted_at_the_rate() {
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
