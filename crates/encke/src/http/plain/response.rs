//! The response to a plain request, written as hyper writes it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, DATE};
use http::response::Parts;

use crate::byte_stream::ByteStream;
use crate::http::connection::Connection;
use crate::net::stall::Stall;

/// A response, as far as it is not written.
pub(super) struct Output<'a> {
    connection: &'a Connection,
    stream: &'a ByteStream,
    /// The head, and a small body with it: one slice costs the kernel less than two.
    head: Bytes,
    body: Bytes,
    /// A body that was copied, until all is written.
    _copied: Bytes,
}

impl<'a> Output<'a> {
    pub(super) fn new(connection: &'a Connection, stream: &'a ByteStream, head: &Parts, body: Bytes) -> Output<'a> {
        let mut head = head_of(head, body.len(), connection.node.now().wall_ms);
        let (body, copied) = if body.len() <= COPIED_BYTES_MAX {
            head.extend_from_slice(&body);
            (Bytes::new(), body)
        } else {
            (body, Bytes::new())
        };
        Output { connection, stream, head: head.into(), body, _copied: copied }
    }

    /// Writes it. An error if the client is gone or takes nothing for too long.
    pub(super) async fn write(mut self) -> io::Result<()> {
        if self.send()? {
            return Ok(());
        }
        // Boxed: few responses wait.
        Box::pin(async move {
            let mut stall = Stall::default();
            poll_fn(|cx| self.poll(&mut stall, cx)).await
        })
        .await
    }

    /// The bytes that wait.
    fn rest(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Writes as much as there is room for. True if that is all.
    fn send(&mut self) -> io::Result<bool> {
        while self.rest() > 0 {
            let slices = [IoSlice::new(&self.head), IoSlice::new(&self.body)];
            match self.stream.try_write(if self.body.is_empty() { &slices[..1] } else { &slices }) {
                Ok(written) => {
                    let of_head = written.min(self.head.len());
                    self.head.advance(of_head);
                    self.body.advance(written - of_head);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn poll(&mut self, stall: &mut Stall, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Connection { node, health, .. } = self.connection;
        loop {
            if self.stream.poll_write_ready(cx)?.is_pending() {
                let wait = Duration::from_millis(node.shard().settings().response_timeout_ms);
                ready!(stall.poll(node, wait, cx));
                health.timed_out.set(true);
                self.stream.reset();
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let before = self.rest();
            if self.send()? {
                return Poll::Ready(Ok(()));
            }
            if self.rest() < before {
                stall.end();
            }
        }
    }
}

impl Drop for Output<'_> {
    /// The messages of a response that was not sent are reported as lost when its body is dropped, which is after this.
    fn drop(&mut self) {
        if self.rest() > 0 {
            self.connection.health.broken.set(true);
        }
    }
}

/// The head of a response with a body of this length, at this time in milliseconds since 1970.
fn head_of(parts: &Parts, body_bytes: usize, wall_ms: u64) -> Vec<u8> {
    let Parts { status, headers, .. } = parts;
    let copied_bytes = if body_bytes <= COPIED_BYTES_MAX { body_bytes } else { 0 };
    let mut head = Vec::with_capacity(HEAD_BYTES + copied_bytes);
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| head.extend_from_slice(part));
    let reason = status.canonical_reason().unwrap_or("<none>");
    put(&[b"HTTP/1.1 ", status.as_str().as_bytes(), b" ", reason.as_bytes(), b"\r\n"]);
    for (name, value) in headers {
        put(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }
    let has_length = *status != StatusCode::SWITCHING_PROTOCOLS && !headers.contains_key(CONTENT_LENGTH);
    if has_length {
        put(&[b"content-length: ", body_bytes.to_string().as_bytes(), b"\r\n"]);
    }
    if !headers.contains_key(DATE) {
        DATES.with_borrow_mut(|(of_ms, date)| {
            let second_ms = wall_ms - wall_ms % 1_000;
            if *of_ms != second_ms {
                *of_ms = second_ms;
                *date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_millis(second_ms));
            }
            put(&[b"date: ", date.as_bytes(), b"\r\n"]);
        });
    }
    put(&[b"\r\n"]);
    head
}

thread_local! {
    /// The last second, in milliseconds since 1970, and its date in a head.
    static DATES: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
}

/// The room for a head.
const HEAD_BYTES: usize = 256;
/// The bytes up to which a body is copied behind its head.
const COPIED_BYTES_MAX: usize = 4 * 1024;
