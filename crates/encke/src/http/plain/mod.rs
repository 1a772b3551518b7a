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
#[cfg(test)]
mod differential;
mod head;
mod response;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::StatusCode;
use http::header::CONNECTION;
use hyper::body::Body as HttpBody;
use tokio::sync::futures::Notified;
use websocket::handshake;

use self::body::PlainBody;
pub(super) use self::head::HEADERS_MAX;
use self::head::Plain;
use self::response::Output;
use super::bayeux::BayeuxResponse;
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
    loop {
        let settings = node.shard().settings().clone();
        if ahead.is_empty() {
            if node.shard().is_draining() && health.was_used() {
                return done(stream);
            }
            match input(connection, stream, settings.keep_alive_timeout_ms, leaving.as_mut()).await {
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
        // While it is held, nothing large stays: that lives in functions that return before.
        let rest = Cell::new(next.plain.body_bytes - next.arrived.len());
        let mut answer = begin(connection, stream, next, &rest);
        let mut held = None;
        let response = poll_fn(|cx| {
            if let Poll::Ready(response) = answer.as_mut().poll(cx) {
                return Poll::Ready(Some(response));
            }
            if rest.get() > 0 {
                // The body reads the connection.
                return Poll::Pending;
            }
            held.get_or_insert_with(|| Held::new(node));
            held::poll_left(stream, &mut ahead, cx).map(|()| None)
        });
        let response = response.await;
        drop((answer, held));
        let Some(Last { output, is_last, is_switch }) = response.and_then(|it| end(connection, stream, it, rest.get()))
        else {
            return broken(connection);
        };
        let written = output.write().await;
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

/// Waits for the next request to begin, for a limited time.
async fn input(
    connection: &Connection,
    stream: &ByteStream,
    timeout_ms: u64,
    mut leaving: Pin<&mut Notified<'_>>,
) -> Event {
    let Connection { node, health, .. } = connection;
    let until_ms = node.now().ms + timeout_ms;
    let mut parked = None;
    poll_fn(|cx| {
        if let Poll::Ready(ready) = stream.poll_read_ready(cx) {
            return Poll::Ready(if ready.is_ok() { Event::Input } else { Event::Broken });
        }
        // A connection without a request so far is about to send one: it is closed after the response.
        if leaving.as_mut().poll(cx).is_ready() && health.was_used() {
            return Poll::Ready(Event::Leaving);
        }
        if parked.is_some() && node.now().ms >= until_ms {
            return Poll::Ready(Event::Late);
        }
        parked.get_or_insert_with(|| node.parked().park(until_ms, connection.number(), cx.waker()));
        Poll::Pending
    })
    .await
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
    let bytes = match stream.try_read(&mut buffer[..READ_BYTES]) {
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

/// The answer to a request, which may take long.
type Answer<'a> = Pin<Box<dyn Future<Output = BayeuxResponse> + 'a>>;

/// Begins to answer a request. `rest` is the number of bytes of the body that have not arrived.
fn begin<'a>(connection: &'a Rc<Connection>, stream: &'a ByteStream, next: Next, rest: &'a Cell<usize>) -> Answer<'a> {
    let Next { plain: Plain { request, .. }, arrived } = next;
    let request = request.map(|()| PlainBody::new(&connection.node, stream, arrived, rest));
    connection.health.begin_request();
    connection.health.set_busy(true);
    Box::pin(routes::answer_bayeux(connection, Box::new(request)))
}

/// A response that is to be written.
struct Last<'a> {
    output: Output<'a>,
    /// True if no request follows.
    is_last: bool,
    /// True if another protocol follows.
    is_switch: bool,
}

/// The response to a request of whose body so many bytes have not been read. None if it is not whole: none of the endpoint is.
fn end<'a>(
    connection: &'a Connection,
    stream: &'a ByteStream,
    answered: BayeuxResponse,
    rest: usize,
) -> Option<Last<'a>> {
    let is_draining = connection.node.shard().is_draining();
    if let BayeuxResponse::Messages(body) = answered {
        if rest == 0 && !is_draining {
            let output = Output::of_messages(connection, stream, body);
            return Some(Last { output, is_last: false, is_switch: false });
        }
        return end(connection, stream, BayeuxResponse::Messages(body).into_response().into(), rest);
    }
    let mut response = answered.into_response();
    let is_switch = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    // The rest of a body that was not read would be taken for a request.
    if rest > 0 || (is_draining && !is_switch) {
        response = closing(response);
    }
    let is_last = handshake::names(response.headers(), CONNECTION, "close");
    let (head, mut body) = response.into_parts();
    let body = match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(frame)) => frame.ok()?.into_data().ok()?,
        Poll::Ready(None) => Bytes::new(),
        Poll::Pending => return None,
    };
    Some(Last { output: Output::new(connection, stream, &head, body), is_last, is_switch })
}

fn done(stream: &ByteStream) -> Left {
    stream.close_writing();
    Left::Done
}

fn broken(connection: &Connection) -> Left {
    connection.health.broken.set(true);
    Left::Broken
}

/// The bytes that are read at once before the length of a body is known. Those behind a request stay with the connection while it is held.
const READ_BYTES: usize = 8 * 1024;
