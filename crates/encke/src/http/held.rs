//! Requests in hyper that wait for their answer for long. hyper needs about 20 KiB for a connection whose request waits: its
//! buffers stay while the request does. So such a connection leaves hyper, and waits with its socket and the future of
//! its answer only.
//!
//! ```text
//!   hyper ── a request waits for long ──▶ socket, answer ── the answer is there ──▶ another hyper
//!            (into_parts)                  │                 a head for it, then the bytes that came meanwhile
//!                                          └── the client leaves: the answer is dropped
//! ```
//!
//! The other hyper reads a head that stands for the request and writes the answer to it. So hyper writes the responses to
//! all that it has read: their dates, their lengths, their receipts.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{Method, Request, Response, Version};
use websocket::handshake;

use super::Body;
use crate::byte_stream::ByteStream;
use crate::net::health::Health;
use crate::net::node::Node;

/// The answer to a request, which may take long.
pub(super) type Answer = Pin<Box<dyn Future<Output = Response<Body>>>>;

/// The request of a connection, while it is being answered.
#[derive(Default)]
pub(super) struct Current {
    answer: RefCell<Option<Answer>>,
    /// The answer of a request that has waited outside hyper, for the other hyper.
    ready: RefCell<Option<Box<Response<Body>>>>,
    head: Cell<Head>,
    /// True if nothing of the request is unread.
    is_read: Cell<bool>,
    /// True if the node knows that the request waits inside hyper.
    is_noted: Cell<bool>,
    /// True while the answer does not belong to hyper.
    is_outside: Cell<bool>,
    /// True if the answer is the beginning of a stream, which hyper does not write.
    is_stream: Cell<bool>,
    /// True if the connection is one of HTTP/1.1, which may leave hyper.
    is_own: Cell<bool>,
}

/// The properties of a request that decide how its response is written.
#[derive(Clone, Copy, Default)]
struct Head {
    is_head: bool,
    is_http_10: bool,
    /// The client asks for another connection, or for the same.
    close: bool,
    keep_alive: bool,
    /// The request may become another protocol.
    upgrades: bool,
}

impl Head {
    fn of<B>(request: &Request<B>) -> Head {
        let has = |token: &str| handshake::names(request.headers(), CONNECTION, token);
        Head {
            is_head: *request.method() == Method::HEAD,
            is_http_10: request.version() == Version::HTTP_10,
            close: has("close"),
            keep_alive: has("keep-alive"),
            upgrades: request.headers().contains_key(UPGRADE) || *request.method() == Method::CONNECT,
        }
    }

    /// A head that stands for the request.
    fn write(self, out: &mut Vec<u8>) {
        let method: &[u8] = if self.is_head { b"HEAD" } else { b"GET" };
        let version: &[u8] = if self.is_http_10 { b" / HTTP/1.0\r\n" } else { b" / HTTP/1.1\r\n" };
        let connection: &[u8] = match (self.close, self.keep_alive) {
            (true, _) => b"connection: close\r\n\r\n",
            (_, true) => b"connection: keep-alive\r\n\r\n",
            _ => b"\r\n",
        };
        [method, version, connection].into_iter().for_each(|part| out.extend_from_slice(part));
    }
}

impl Current {
    /// The answer of a request that has waited outside hyper.
    pub(super) fn take_ready(&self) -> Option<Response<Body>> {
        self.ready.borrow_mut().take().map(|response| *response)
    }

    /// Notes a request before it is answered.
    pub(super) fn begin<B: hyper::body::Body>(&self, request: &Request<B>) {
        self.head.set(Head::of(request));
        self.is_read.set(request.body().is_end_stream());
        self.is_noted.set(false);
        self.is_own.set(true);
    }

    /// Lets the connection become a stream when the answer is there. False if it has more requests than this.
    pub(super) fn become_stream(&self) -> bool {
        self.is_stream.set(self.is_own.get());
        self.is_own.get()
    }

    /// True if the answer that is there begins a stream.
    pub(super) fn is_stream(&self) -> bool {
        self.is_stream.get() && self.ready.borrow().is_some()
    }

    /// True if the client sends no other request on this connection.
    pub(super) fn closes(&self) -> bool {
        let head = self.head.get();
        head.close || head.is_http_10
    }

    /// The body of the request was read.
    pub(super) fn set_body_read(&self) {
        self.is_read.set(true);
    }

    /// Polls the answer inside hyper.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        // Taken out while it is polled: it knows the connection.
        let Some(mut answer) = self.answer.borrow_mut().take() else { return Poll::Pending };
        match answer.as_mut().poll(cx) {
            Poll::Ready(response) if self.is_stream.get() => *self.ready.borrow_mut() = Some(Box::new(response)),
            Poll::Ready(response) => return Poll::Ready(response),
            Poll::Pending => *self.answer.borrow_mut() = Some(answer),
        }
        Poll::Pending
    }

    /// True if the request may leave hyper now. Notes a request that waits, so that it leaves later.
    pub(super) fn leaves(&self, node: &Node, health: &Arc<Health>, cx: &Context<'_>) -> bool {
        if self.is_stream() {
            return health.may_leave_hyper();
        }
        if !self.is_read.get() || self.head.get().upgrades || self.answer.borrow().is_none() {
            return false;
        }
        if health.may_leave_hyper() {
            self.is_outside.set(true);
            return true;
        }
        if !self.is_noted.replace(true) {
            node.young().note(health, cx.waker());
        }
        false
    }
}

/// The answer to a request, as hyper gets it. hyper drops it if the client leaves.
pub(super) struct InHyper(Rc<Current>);

impl InHyper {
    pub(super) fn new(current: &Rc<Current>, answer: Answer) -> InHyper {
        *current.answer.borrow_mut() = Some(answer);
        InHyper(current.clone())
    }
}

impl Future for InHyper {
    type Output = Response<Body>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        self.0.poll(cx)
    }
}

impl Drop for InHyper {
    fn drop(&mut self) {
        if !self.0.is_outside.get() {
            let answer = self.0.answer.borrow_mut().take();
            drop(answer);
        }
    }
}

/// Waits outside hyper until the answer is there. Returns the bytes for another hyper: a head that stands for the
/// request, and those that the client has sent. None if the client has left.
pub(super) async fn wait(node: &Rc<Node>, current: &Current, stream: &ByteStream, mut ahead: Vec<u8>) -> Option<Bytes> {
    current.is_outside.set(false);
    let mut answer = current.answer.borrow_mut().take()?;
    let _counted = Held::new(node);
    let response = poll_fn(|cx| {
        if let Poll::Ready(response) = answer.as_mut().poll(cx) {
            return Poll::Ready(Some(response));
        }
        poll_left(stream, &mut ahead, cx).map(|()| None)
    });
    let response = response.await?;
    let mut front = Vec::with_capacity(HEAD_BYTES + ahead.len());
    current.head.get().write(&mut front);
    front.extend_from_slice(&ahead);
    *current.ready.borrow_mut() = Some(Box::new(response));
    Some(front.into())
}

/// Ready when the client has left. Reads what it sends, up to a limit: beyond it, the kernel makes the client wait.
pub(super) fn poll_left(stream: &ByteStream, ahead: &mut Vec<u8>, cx: &mut Context<'_>) -> Poll<()> {
    while ahead.len() < AHEAD_BYTES_MAX {
        match stream.poll_read_ready(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(_)) => return Poll::Ready(()),
            Poll::Ready(Ok(())) => {}
        }
        let mut bytes = [0; AHEAD_BYTES_MAX];
        let room = AHEAD_BYTES_MAX - ahead.len();
        match stream.try_read(&mut bytes[..room]) {
            Ok(0) => return Poll::Ready(()),
            Ok(count) => ahead.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Poll::Ready(()),
        }
    }
    Poll::Pending
}

/// Counts a held request while it waits.
pub(super) struct Held(Rc<Node>);

impl Held {
    pub(super) fn new(node: &Rc<Node>) -> Held {
        node.shard().metrics().held_requests.add(1);
        Held(node.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let shard = self.0.shard();
        let held = &shard.metrics().held_requests;
        held.set(held.get() as usize - 1);
    }
}

/// The bytes that a client may send while its request waits. More stay in the kernel.
const AHEAD_BYTES_MAX: usize = 2 * 1024;
/// The longest head that stands for a request.
const HEAD_BYTES: usize = 48;
