//! A connection for hyper: it enforces deadlines for requests that do not come, and records when the connection
//! breaks.

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::time::Sleep;

use super::health::Health;
use super::node::Node;
use super::stall::Stall;
use super::two_lengths::TwoLengths;
use crate::byte_stream::ByteStream;

/// The connection.
pub(crate) struct Io {
    stream: TokioIo<ByteStream>,
    /// Bytes to read before those of the connection.
    front: Bytes,
    health: BrokenOnDrop,
    node: Rc<Node>,
    /// The time for the rest of a request whose first byte has arrived.
    head_timeout: Duration,
    /// The time for the next request to begin.
    idle_timeout: Duration,
    /// The time for the client to take any byte of a response.
    write_timeout: Duration,
    /// Set while waiting for a request. It is allocated only then, so that held requests cost nothing.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Set while the kernel takes no bytes of a response.
    stall: Stall,
    two_lengths: TwoLengths,
    /// The bytes of `PRI` that have arrived at the beginning of the connection. None if it does not speak HTTP/2.
    preface: Option<usize>,
}

struct BrokenOnDrop(Arc<Health>);

impl Drop for BrokenOnDrop {
    fn drop(&mut self) {
        self.0.broken.set(true);
    }
}

impl Io {
    /// `front` was read before.
    pub(crate) fn new(node: Rc<Node>, stream: ByteStream, front: Bytes, health: Arc<Health>) -> Io {
        let settings = node.shard().settings().clone();
        health.has_begun.set(false);
        // Its first bytes show whether a connection does.
        let may_speak_http2 = settings.http2 && !health.was_used();
        Io {
            stream: TokioIo::new(stream),
            front,
            health: BrokenOnDrop(health),
            node,
            head_timeout: Duration::from_millis(settings.request_timeout_ms),
            idle_timeout: Duration::from_millis(settings.keep_alive_timeout_ms),
            write_timeout: Duration::from_millis(settings.response_timeout_ms),
            deadline: None,
            stall: Stall::default(),
            two_lengths: TwoLengths::default(),
            preface: may_speak_http2.then_some(0),
        }
    }

    /// The connection, and the bytes to read before those of the connection. It goes on without this value.
    pub(crate) fn detach(mut self) -> (ByteStream, Bytes) {
        self.health.0 = Arc::default();
        (self.stream.into_inner(), self.front)
    }

    /// Ready when the client took too long to send or to read.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.look_again();
        if self.health.0.is_busy() || self.health.0.is_sending() || self.stall.is_on() {
            return Poll::Pending;
        }
        let wait = if self.health.0.has_begun.is_set() { self.head_timeout } else { self.idle_timeout };
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
        deadline.as_mut().poll(cx).map(|()| self.time_out())
    }

    fn time_out(&self) -> io::Error {
        self.health.0.timed_out.set(true);
        self.health.0.broken.set(true);
        io::ErrorKind::TimedOut.into()
    }

    /// Ready when the client has taken nothing for too long.
    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        ready!(self.stall.poll(&self.node, self.write_timeout, cx));
        self.stream.inner().reset();
        Poll::Ready(self.time_out())
    }

    /// True if these bytes, the next ones of the connection, show that it speaks HTTP/2. Then `front` has all that was read. No method
    /// of HTTP/1 is `PRI`.
    fn speaks_http2(&mut self, bytes: &[u8]) -> bool {
        let Some(seen) = self.preface else { return false };
        let part = bytes.len().min(HTTP2_METHOD.len() - seen);
        let is_like = bytes[..part] == HTTP2_METHOD[seen..seen + part];
        self.preface = is_like.then_some(seen + part);
        let is_it = self.preface == Some(HTTP2_METHOD.len());
        if is_it {
            self.front = [&HTTP2_METHOD[..seen], bytes].concat().into();
            self.health.0.speaks_http2.set(true);
        }
        is_it
    }

    /// Restarts the wait after a request.
    fn look_again(&mut self) {
        if self.health.0.take_served() {
            self.deadline = None;
            self.health.0.has_begun.set(false);
            self.two_lengths = TwoLengths::default();
        }
    }

    /// Restarts the stall timer when the client takes bytes; gives up the connection of a client that takes none for
    /// too long.
    fn wrote(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.deadline = None;
        self.health.0.stalled.set(result.is_pending());
        if result.is_pending() {
            return self.poll_stall(cx).map(Err);
        }
        self.stall.end();
        // hyper does not read again after a response: the wait for the next request starts here.
        let _in_time = self.poll_deadline(cx);
        self.note(result)
    }

    /// Reads. Bytes that may be part of a head go through a buffer here, because hyper's buffer cannot be searched.
    fn poll_look(&mut self, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if !self.front.is_empty() {
            if self.preface.is_some() {
                let front = self.front.clone();
                if self.speaks_http2(&front) {
                    return Poll::Pending;
                }
            }
            let bytes = self.front.len().min(buf.remaining());
            let has_two = self.two_lengths.look(&self.front[..bytes]);
            self.health.0.has_two_lengths.set(has_two);
            buf.put_slice(&self.front[..bytes]);
            self.front.advance(bytes);
            return Poll::Ready(Ok(()));
        }
        if self.health.0.is_busy() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let mut bytes = [const { MaybeUninit::<u8>::uninit() }; LOOK_BYTES];
        let room = LOOK_BYTES.min(buf.remaining());
        let mut read = ReadBuf::uninit(&mut bytes[..room]);
        let result = Pin::new(&mut self.stream).poll_read(cx, read.unfilled());
        if self.preface.is_some() && result.is_ready() && self.speaks_http2(read.filled()) {
            return Poll::Pending;
        }
        let has_two = self.two_lengths.look(read.filled());
        self.health.0.has_two_lengths.set(has_two);
        buf.put_slice(read.filled());
        result
    }

    fn note<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = &result {
            self.health.0.broken.set(true);
        }
        result
    }
}

impl Read for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let result = self.poll_look(cx, buf);
        if result.is_ready() {
            self.look_again();
            // The first bytes of a request have arrived: the head deadline begins.
            if !self.health.0.has_begun.is_set() && !self.health.0.is_busy() {
                self.health.0.has_begun.set(true);
                self.deadline = None;
            }
            return self.note(result);
        }
        self.poll_deadline(cx).map(Err)
    }
}

impl Write for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.note(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(cx, result)
    }
}

/// Bytes of a head read at once: the size of hyper's first buffer.
const LOOK_BYTES: usize = 8 * 1024;
/// The method in the preface of a connection that speaks HTTP/2 (RFC 9113 §3.4).
const HTTP2_METHOD: &[u8] = b"PRI";
