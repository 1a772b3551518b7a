//! Plain requests of HTTP/1.1 to the Bayeux endpoint, read and written without hyper.
//!
//! ```text
//!   a connection ── a plain request ──▶ the same handlers as behind hyper ──▶ its response ──┐
//!        ▲       └─ anything else ────▶ hyper, with the bytes that were read                 │
//!        └───────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A connection without a request keeps no parser and no buffer, and one whose request is held keeps only the future of
//! the answer.

mod body;
mod head;
mod response;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{Instant, Sleep, sleep_until};
use websocket::handshake;

use self::body::PlainBody;
pub(super) use self::head::HEADERS_MAX;
use self::head::Plain;
use super::connection::{Connection, Upgrade};
use super::held::{self, Held};
use super::{closing, routes};
use crate::byte_stream::ByteStream;
use crate::net::node::Node;
use encke_core::Settings;

/// The state in which a connection leaves.
pub(super) enum Left {
    /// A request that is not plain begins with these bytes.
    Other(Bytes),
    /// It speaks another protocol, with the bytes after the request.
    Upgraded(Upgrade, Vec<u8>),
    /// It is complete: the rest of the bytes may still arrive at the client.
    Done,
    /// It is of no more use.
    Broken,
}

/// Answers plain requests until there is another one, or the connection ends. `ahead` was read before.
pub(super) async fn serve(connection: &Rc<Connection>, stream: &ByteStream, mut ahead: Vec<u8>) -> Left {
    let Connection { node, health, .. } = &**connection;
    let mut leaving = pin!(node.leaving());
    let mut idle = Idle::default();
    loop {
        let settings = node.shard().settings().clone();
        if ahead.is_empty() {
            if node.shard().is_draining() && health.was_used() {
                return done(stream);
            }
            idle.begin(Duration::from_millis(settings.keep_alive_timeout_ms));
            let event = poll_fn(|cx| {
                if let Poll::Ready(ready) = stream.poll_read_ready(cx) {
                    return Poll::Ready(if ready.is_ok() { Event::Input } else { Event::Broken });
                }
                // A connection without a request so far is about to send one: it is closed after the response.
                if leaving.as_mut().poll(cx).is_ready() && health.was_used() {
                    return Poll::Ready(Event::Leaving);
                }
                idle.poll(cx).map(|()| Event::Late)
            });
            match event.await {
                Event::Input => {}
                Event::Leaving => return done(stream),
                Event::Broken => return broken(connection),
                Event::Late => {
                    node.shard().metrics().timeouts.add(1);
                    return broken(connection);
                }
            }
        }
        let next = match next(node, stream, &settings, &mut ahead) {
            Ok(next) => next,
            Err(Read::Nothing) => continue,
            Err(Read::End) => return done(stream),
            Err(Read::Broken) => return broken(connection),
            Err(Read::Other(bytes)) => return Left::Other(bytes),
        };
        drop(settings);
        let Some((response, is_last)) = answer(connection, stream, next, &mut ahead, &mut idle).await else {
            return broken(connection);
        };
        let is_switch = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let written = response::write(connection, stream, response).await;
        health.set_busy(false);
        if written.is_err() {
            node.shard().metrics().timeouts.add(usize::from(health.timed_out.is_set()));
            return broken(connection);
        }
        if is_switch && let Some(upgrade) = connection.upgrade.take() {
            return Left::Upgraded(upgrade, ahead);
        }
        if is_last {
            return done(stream);
        }
    }
}

/// The reason for which the wait for a request ends.
enum Event {
    Input,
    Leaving,
    Late,
    Broken,
}

/// The bytes that were read are no plain request.
enum Read {
    Nothing,
    End,
    Broken,
    Other(Bytes),
}

/// A plain request, and the part of its body that came with its head.
struct Next {
    plain: Plain,
    arrived: Bytes,
}

/// Takes a request from the bytes ahead, or reads. Bytes behind the request are ahead then.
fn next(node: &Node, stream: &ByteStream, settings: &Settings, ahead: &mut Vec<u8>) -> Result<Next, Read> {
    if !ahead.is_empty() {
        let bytes = std::mem::take(ahead);
        return take(&bytes, settings, ahead).ok_or_else(|| Read::Other(bytes.into()));
    }
    let mut buffer = node.read_buffer();
    let bytes = match stream.try_read(&mut buffer) {
        Ok(0) => return Err(Read::End),
        Ok(count) => &buffer[..count],
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Read::Nothing),
        Err(_) => return Err(Read::Broken),
    };
    take(bytes, settings, ahead).ok_or_else(|| Read::Other(Bytes::copy_from_slice(bytes)))
}

/// The plain request that begins with these bytes. The bytes behind it are ahead then.
fn take(bytes: &[u8], settings: &Settings, ahead: &mut Vec<u8>) -> Option<Next> {
    let plain = Plain::parse(bytes, settings)?;
    let behind = &bytes[plain.head_bytes..];
    let (arrived, rest) = behind.split_at(behind.len().min(plain.body_bytes));
    ahead.extend_from_slice(rest);
    Some(Next { arrived: Bytes::copy_from_slice(arrived), plain })
}

/// Answers a request. True if its response is the last one. None if the client has left.
async fn answer(
    connection: &Rc<Connection>,
    stream: &ByteStream,
    next: Next,
    ahead: &mut Vec<u8>,
    idle: &mut Idle,
) -> Option<(Response<Bytes>, bool)> {
    let Connection { node, health, .. } = &**connection;
    let Next { plain: Plain { request, body_bytes, .. }, arrived } = next;
    let rest = Cell::new(body_bytes - arrived.len());
    let request = request.map(|()| PlainBody::new(node, stream, arrived, &rest));
    health.begin_request();
    health.set_busy(true);
    let mut answer = Box::pin(routes::answer_bayeux(connection, request));
    let mut held = None;
    let response = poll_fn(|cx| {
        if let Poll::Ready(response) = answer.as_mut().poll(cx) {
            return Poll::Ready(Some(response));
        }
        if rest.get() > 0 {
            // The body reads the connection.
            return Poll::Pending;
        }
        held.get_or_insert_with(|| {
            idle.end();
            Held::new(node)
        });
        held::poll_left(stream, ahead, cx).map(|()| None)
    });
    let mut response = response.await?;
    drop(answer);
    // The rest of a body that was not read would be taken for a request.
    if rest.get() > 0 || (node.shard().is_draining() && response.status() != StatusCode::SWITCHING_PROTOCOLS) {
        response = closing(response);
    }
    let is_last = handshake::names(response.headers(), CONNECTION, "close");
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.ok()?.to_bytes();
    Some((Response::from_parts(head, bytes), is_last))
}

fn done(stream: &ByteStream) -> Left {
    stream.close_writing();
    Left::Done
}

fn broken(connection: &Connection) -> Left {
    connection.health.broken.set(true);
    Left::Broken
}

/// The time for the next request to begin. Its timer is set once for many requests.
struct Idle {
    until: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Default for Idle {
    fn default() -> Idle {
        Idle { until: Instant::now(), timer: None }
    }
}

impl Idle {
    fn begin(&mut self, wait: Duration) {
        self.until = Instant::now() + wait;
    }

    /// A held request needs no timer.
    fn end(&mut self) {
        self.timer = None;
    }

    /// Ready when the time is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = self.until;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= until {
                return Poll::Ready(());
            }
            timer.as_mut().reset(until);
        }
    }
}
