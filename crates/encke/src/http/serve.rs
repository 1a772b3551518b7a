//! The task of one HTTP connection, until it ends or becomes a WebSocket.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONNECTION;
use http::{Request, Response, StatusCode};
use http_body_util::Either;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use websocket::handshake::names;

use super::connection::{Connection, Upgrade};
use super::held::InHyper;
use super::{Body, closing, held, http2, plain, routes, stream};
use crate::byte_stream::{ByteStream, Remote};
use crate::fallback::TakeOver;
use crate::net::arrival;
use crate::net::connections::{Arrival, Counted};
use crate::net::handshake;
use crate::net::health::Health;
use crate::net::io::Io;
use crate::net::node::Node;
use crate::net::{socket, stream as net_stream};
use crate::tls;

/// Serves a connection, after its PROXY head if it has one.
pub(crate) fn open(node: &Rc<Node>, stream: ByteStream, arrival: Arrival) {
    let send_buffer_bytes = node.shard().settings().socket_send_buffer_bytes;
    if let Err(error) = stream.prepare(send_buffer_bytes) {
        return tracing::debug!(%error, "a connection was gone before it was served");
    }
    if !arrival.has_proxy_head {
        return start(node, stream, arrival.remote, arrival.counted);
    }
    let node = node.clone();
    tokio::task::spawn_local(async move {
        let Arrival { remote, counted: _until_then, .. } = arrival;
        if let Some((remote, counted)) = arrival::read_proxy_head(&node, &stream, remote).await {
            start(&node, stream, remote, counted);
        }
    });
}

fn start(node: &Rc<Node>, stream: ByteStream, remote: Remote, counted: Counted) {
    let connection = Rc::new(Connection::new(node, remote, stream.is_tls()));
    tokio::task::spawn_local(serve(connection, stream, counted));
}

async fn serve(connection: Rc<Connection>, mut stream: ByteStream, mut counted: Counted) {
    let node = &connection.node;
    if !Box::pin(handshake::complete(node, &stream)).await {
        stream.close_writing();
        return Box::pin(stream.linger()).await;
    }
    let kind = node.shard().settings().tls_client_user;
    if let Some(user) = stream.client_certificate().and_then(|certificate| tls::user_of(&certificate, kind)) {
        let _first = connection.certificate.set(user);
    }
    if stream.agreed_on_http2() {
        return http2::open(connection, stream, Bytes::new(), counted);
    }
    let mut ahead = Vec::new();
    loop {
        let read = match plain::serve(&connection, &stream, ahead).await {
            plain::Left::Other(read) => read,
            plain::Left::Upgraded(upgrade, rest) => {
                return Box::pin(upgraded(node.clone(), upgrade, stream, counted, rest)).await;
            }
            plain::Left::Done => return Box::pin(stream.linger()).await,
            plain::Left::Broken => return stream.release(),
        };
        // Boxed: nothing of it stays when the connection is back.
        match Box::pin(by_hyper(connection.clone(), stream, read, counted)).await {
            Some(back) => (stream, ahead, counted) = back,
            None => return,
        }
    }
}

/// Serves requests with hyper, until the connection awaits one. Returns it then, with bytes that were read. None if it has ended, or has
/// become something else.
async fn by_hyper(
    connection: Rc<Connection>,
    mut stream: ByteStream,
    mut read: Bytes,
    counted: Counted,
) -> Option<(ByteStream, Vec<u8>, Counted)> {
    let Connection { node, current, .. } = &*connection;
    loop {
        // Boxed: nothing of hyper stays while a request is held.
        match Box::pin(in_hyper(&connection, stream, read)).await {
            Left::Held(held, read_by_hyper) => {
                let front = match current.is_stream() {
                    true => Some(Bytes::new()),
                    false => held::wait(node, current, &held, read_by_hyper).await,
                };
                let Some(front) = front else {
                    connection.health.broken.set(true);
                    held.release();
                    return None;
                };
                if let Some(Upgrade::Stream(request)) = connection.upgrade.take() {
                    let head = current.take_ready().map(|response| stream::head_of(&response)).unwrap_or_default();
                    net_stream::open(node, held, Some(counted), *request, head);
                    return None;
                }
                (stream, read) = (held, front);
            }
            Left::Idle(stream, read) => return Some((stream, read, counted)),
            Left::Upgraded(stream, upgrade, rest) => {
                Box::pin(upgraded(node.clone(), upgrade, stream, counted, rest)).await;
                return None;
            }
            Left::Http2(stream, front) => {
                http2::open(connection.clone(), stream, front, counted);
                return None;
            }
            Left::Done(stream) => {
                Box::pin(stream.linger()).await;
                return None;
            }
            Left::Broken(stream) => {
                stream.release();
                return None;
            }
        }
    }
}

/// Lets a connection speak another protocol. `rest` are the bytes after the request.
async fn upgraded(node: Rc<Node>, upgrade: Upgrade, stream: ByteStream, counted: Counted, rest: Vec<u8>) {
    match upgrade {
        Upgrade::WebSocket(opener) => socket::open(&node, stream, Some(counted), *opener, rest),
        Upgrade::TakenOver(task) => taken_over(&node, task, stream, rest).await,
        // It leaves hyper before its head is written.
        Upgrade::Stream(_) => stream.release(),
    }
}

/// Lets a fallback use a connection until it is done, or the server drains.
pub(super) async fn taken_over(node: &Node, task: TakeOver, stream: ByteStream, rest: Vec<u8>) {
    let mut leaving = pin!(node.leaving());
    leaving.as_mut().enable();
    if !node.shard().is_draining() {
        tokio::select! {
            () = task.run(stream, rest) => {}
            () = leaving => {}
        }
    }
}

/// The state in which a connection has left hyper.
enum Left {
    /// Its request waits for long; with the bytes that hyper has read after the request.
    Held(ByteStream, Vec<u8>),
    /// It waits for the next request, of which these bytes were read.
    Idle(ByteStream, Vec<u8>),
    /// It speaks another protocol, with the bytes after the request.
    Upgraded(ByteStream, Upgrade, Vec<u8>),
    /// It speaks HTTP/2, with the bytes that were read.
    Http2(ByteStream, Bytes),
    /// It is complete: the rest of the bytes may still arrive at the client.
    Done(ByteStream),
    /// It is of no more use.
    Broken(ByteStream),
}

/// The reason for which a connection leaves hyper.
enum Why {
    Http2,
    Held,
    Idle,
    Ended(hyper::Result<()>),
}

/// Serves requests with hyper until the connection ends, becomes a WebSocket, has a request that waits for long, or awaits
/// the next one.
async fn in_hyper(connection: &Rc<Connection>, stream: ByteStream, read: Bytes) -> Left {
    let Connection { node, health, current, .. } = &**connection;
    let settings = node.shard().settings().clone();
    let io = Io::new(node.clone(), stream, read, health.clone());
    let service = service_fn(|request| {
        let connection = connection.clone();
        // Boxed: an idle connection reserves no room for a request, and hyper returns the socket only from an `Unpin`
        // service.
        Box::pin(async move { Ok::<_, Infallible>(answer(connection, request).await) })
    });
    let mut served = http1::Builder::new()
        .max_buf_size(settings.header_bytes_max)
        .max_headers(plain::HEADERS_MAX)
        .serve_connection(io, service);
    let mut leaving = pin!(node.leaving());
    let (mut is_leaving, mut noted) = (false, 0);
    // Polled to its end, not only to its last response: only then has hyper flushed its buffers.
    let why = poll_fn(|cx| {
        loop {
            if let Poll::Ready(ended) = Pin::new(&mut served).poll(cx) {
                return Poll::Ready(Why::Ended(ended));
            }
            if health.speaks_http2.is_set() {
                return Poll::Ready(Why::Http2);
            }
            if current.leaves(node, health, cx) {
                return Poll::Ready(Why::Held);
            }
            if health.awaits_request() && has_waited(node, health, &mut noted, cx) {
                return Poll::Ready(Why::Idle);
            }
            if is_leaving || leaving.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            is_leaving = true;
            // A connection without a request so far is about to send one: it is closed after the response.
            if health.was_used() {
                Pin::new(&mut served).graceful_shutdown();
            }
        }
    })
    .await;
    if matches!(why, Why::Ended(Err(_))) {
        // Set before hyper's buffers are dropped with the bytes that the client did not take.
        health.broken.set(true);
    }
    let parts = served.into_parts();
    let (stream, front) = parts.io.detach();
    // hyper may have had the first letters of the preface, which `front` has again.
    let read = |read_by_hyper: Bytes| [read_by_hyper, front.clone()].concat();
    let ended = match why {
        Why::Http2 => return Left::Http2(stream, front),
        Why::Held => return Left::Held(stream, read(parts.read_buf)),
        Why::Idle => return Left::Idle(stream, read(parts.read_buf)),
        Why::Ended(ended) => ended,
    };
    let metrics = node.shard().metrics().clone();
    metrics.timeouts.add(usize::from(health.timed_out.is_set()));
    // The connection writes no more: bytes that hyper still had are lost.
    health.broken.set(true);
    match (ended, connection.upgrade.borrow_mut().take()) {
        (Ok(()), Some(upgrade)) => Left::Upgraded(stream, upgrade, [parts.read_buf, front].concat()),
        (Ok(()), None) => Left::Done(stream),
        (Err(error), _) => {
            tracing::debug!(%error, "a connection ended");
            if !error.is_parse() {
                return Left::Broken(stream);
            }
            // hyper has answered these requests itself: 400, 414 or 431.
            metrics.requests_refused.add(1);
            Left::Done(stream)
        }
    }
}

/// True if a connection has awaited a request for some time. It leaves hyper then, and not at once: another hyper for each of many requests
/// would cost more than this one. `noted` is the last request after which it was noted.
fn has_waited(node: &Node, health: &Arc<Health>, noted: &mut u32, cx: &Context<'_>) -> bool {
    if *noted != health.requests() {
        *noted = health.requests();
        node.young().note(health, cx.waker());
    }
    health.waits_long.is_set()
}

/// Answers a request, or a head that stands for one whose answer is there.
async fn answer(connection: Rc<Connection>, request: Request<Incoming>) -> Response<Sent> {
    let current = connection.current.clone();
    if let Some(response) = current.take_ready() {
        connection.health.set_busy(false);
        return sent(&connection, response);
    }
    connection.health.begin_request();
    current.begin(&request);
    let of_answer = connection.clone();
    let answer = async move {
        let connection = of_answer;
        connection.health.set_busy(true);
        let response = routes::answer(&connection, request.map(Either::Left)).await;
        connection.health.set_busy(false);
        if connection.node.shard().is_draining() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return closing(response);
        }
        response
    };
    let response = InHyper::new(&current, Box::pin(answer)).await;
    sent(&connection, response)
}

/// A response as hyper gets it: the connection awaits no request before hyper has its whole body, and none after the last one.
fn sent(connection: &Connection, response: Response<Body>) -> Response<Sent> {
    let health = connection.health.clone();
    let closes = connection.current.closes() || names(response.headers(), CONNECTION, "close");
    health.is_last.set(closes || response.status() == StatusCode::SWITCHING_PROTOCOLS);
    health.set_sending(!response.body().is_end_stream());
    response.map(|body| Sent { body, health })
}

/// The body of a response, until hyper has it. Its connection is not idle until then.
struct Sent {
    body: Body,
    health: Arc<Health>,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) || self.body.is_end_stream() {
            self.health.set_sending(false);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.health.set_sending(false);
    }
}
