//! Connections that speak HTTP/2 (RFC 9113), by h2.
//!
//! ```text
//!   socket ── io: limits of a turn, rates, stalls ── h2: one task for each connection
//!                                                     ├── exchange: a task for each request
//!                                                     └── a stream of bytes for each WebSocket (RFC 8441), on any shard
//! ```
//!
//! A request is translated into one of HTTP/1.1, and its response back ([`translate`]), so everything above sees one protocol.

mod exchange;
mod frames;
mod io;
mod translate;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::{self, Builder};
use tokio::time::Sleep;

use super::connection::Connection;
use crate::byte_stream::ByteStream;
use crate::net::connections::Counted;
use io::{Io, Shared};

/// Serves a connection that speaks HTTP/2, in a task that is smaller than the one of HTTP/1.1. `front` was read before.
pub(super) fn open(connection: Rc<Connection>, stream: ByteStream, front: Bytes, counted: Counted) {
    tokio::task::spawn_local(async move {
        let _counted = counted;
        serve(&connection, stream, front).await;
    });
}

async fn serve(connection: &Rc<Connection>, stream: ByteStream, front: Bytes) {
    let Connection { node, health, .. } = &**connection;
    let settings = node.shard().settings().clone();
    let metrics = node.shard().metrics().clone();
    let shared = Shared::new(connection);
    let count =
        |by: i64| metrics.http2_connections.set(metrics.http2_connections.get().saturating_add_signed(by) as usize);
    count(1);
    let opened = Builder::new()
        .max_concurrent_streams(settings.http2_streams_max as u32)
        .max_header_list_size(settings.header_bytes_max as u32)
        .initial_connection_window_size(RECEIVE_BYTES)
        .max_send_buffer_size(SEND_BYTES)
        .data_frame_budget(SMALL_FRAMES_BYTES)
        .enable_connect_protocol()
        .handshake(Io::new(stream, front, &settings, &shared));
    let head_timeout = Duration::from_millis(settings.request_timeout_ms);
    // Boxed, so that an idle connection reserves no room for it.
    let ended = match Box::pin(tokio::time::timeout(head_timeout, opened)).await {
        Ok(Ok(mut served)) => {
            let idle_timeout = Duration::from_millis(settings.keep_alive_timeout_ms);
            let mut idle = Idle { head_timeout, idle_timeout, wait: None };
            let ended = run(connection, &mut served, &shared, &mut idle).await;
            // Set before h2's buffers are dropped with the bytes that the client did not take.
            health.broken.set(true);
            ended
        }
        Ok(Err(error)) => Err(error),
        Err(_) => {
            health.timed_out.set(true);
            Ok(())
        }
    };
    count(-1);
    metrics.timeouts.add(usize::from(health.timed_out.is_set()));
    metrics.http2_floods.add(usize::from(shared.is_flooded.get()));
    let Some(stream) = shared.returned.take() else { return };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP/2 connection ended");
        metrics.http2_errors.add(usize::from(error.is_library()));
        if error.is_io() {
            return stream.release();
        }
    }
    Box::pin(stream.linger()).await;
}

/// Drives a connection: takes its requests, ends it when it is idle or floods, and lets it finish when the server drains.
async fn run(
    connection: &Rc<Connection>,
    served: &mut server::Connection<Io, Bytes>,
    shared: &Shared,
    idle: &mut Idle,
) -> Result<(), h2::Error> {
    let node = &connection.node;
    let mut leaving = pin!(node.leaving());
    let mut is_leaving = false;
    leaving.as_mut().enable();
    if node.shard().is_draining() {
        is_leaving = true;
        served.graceful_shutdown();
    }
    let mut is_ending = false;
    poll_fn(|cx| {
        shared.begin_turn();
        loop {
            match served.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    node.shard().metrics().http2_streams.add(1);
                    exchange::begin(connection, request, respond);
                    continue;
                }
                Poll::Ready(ended) => return Poll::Ready(ended.map_or(Ok(()), |error| error.map(drop))),
                Poll::Pending => {}
            }
            // Each change of the state is sent by the next turn of this loop.
            if is_ending {
                return Poll::Pending;
            } else if shared.is_flooded.get() {
                is_ending = true;
                connection.health.broken.set(true);
                served.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            } else if !is_leaving && leaving.as_mut().poll(cx).is_ready() {
                is_leaving = true;
                served.graceful_shutdown();
            } else if idle.poll(served.has_streams(), shared.is_within.get(), cx).is_ready() {
                is_ending = true;
                connection.health.timed_out.set(true);
                served.abrupt_shutdown(Reason::NO_ERROR);
            } else {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// The wait of a connection without requests.
struct Idle {
    /// The time for the rest of a request whose first byte has arrived.
    head_timeout: Duration,
    /// The time for the next request to begin.
    idle_timeout: Duration,
    /// The timer, and whether a request has begun.
    wait: Option<(Pin<Box<Sleep>>, bool)>,
}

impl Idle {
    /// Ready when the client has sent no request in time.
    fn poll(&mut self, has_streams: bool, has_begun: bool, cx: &mut Context<'_>) -> Poll<()> {
        if has_streams {
            self.wait = None;
            return Poll::Pending;
        }
        if self.wait.as_ref().is_none_or(|(_, begun)| *begun != has_begun) {
            let wait = if has_begun { self.head_timeout } else { self.idle_timeout };
            self.wait = Some((Box::pin(tokio::time::sleep(wait)), has_begun));
        }
        self.wait.as_mut().map_or(Poll::Pending, |(sleep, _)| sleep.as_mut().poll(cx))
    }
}

/// The bytes that the client of one connection may send before the server has processed them; of one stream it may send a quarter.
const RECEIVE_BYTES: u32 = 256 * 1024;
/// The overhead of small frames that wait: h2 ends a connection beyond this, and counts for each frame the bytes that it lacks to 256. All
/// windows may be full of the smallest messages of Bayeux, which have some 64 bytes, while the server lets them wait.
const SMALL_FRAMES_BYTES: usize = RECEIVE_BYTES as usize / 64 * (256 - 64);
/// The bytes of one stream that h2 takes before they have left.
const SEND_BYTES: usize = 64 * 1024;
