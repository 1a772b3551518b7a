//! The response to a plain request, written as hyper writes it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, DATE, HeaderName};
use http::response::Parts;

use crate::byte_stream::ByteStream;
use crate::http::bayeux::USUAL_FIELDS;
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
    /// Any response.
    pub(super) fn new(connection: &'a Connection, stream: &'a ByteStream, parts: &Parts, body: Bytes) -> Output<'a> {
        let mut head = head_for(&body);
        put_parts(parts, &mut head);
        let has_length = parts.status != StatusCode::SWITCHING_PROTOCOLS && !parts.headers.contains_key(CONTENT_LENGTH);
        if has_length {
            put_length(body.len(), &mut head);
        }
        if !parts.headers.contains_key(DATE) {
            put_date(connection.node.now().wall_ms, &mut head);
        }
        Output::of(connection, stream, head, body)
    }

    /// A response with messages.
    pub(super) fn of_messages(connection: &'a Connection, stream: &'a ByteStream, body: Bytes) -> Output<'a> {
        let mut head = head_for(&body);
        head.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        for (name, value) in &USUAL_FIELDS {
            put_field(name, value.as_bytes(), &mut head);
        }
        put_length(body.len(), &mut head);
        put_date(connection.node.now().wall_ms, &mut head);
        Output::of(connection, stream, head, body)
    }

    /// A response with these lines before its body.
    fn of(connection: &'a Connection, stream: &'a ByteStream, mut head: Vec<u8>, body: Bytes) -> Output<'a> {
        head.extend_from_slice(b"\r\n");
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

/// The room for a head, and for a body that is copied behind it.
fn head_for(body: &Bytes) -> Vec<u8> {
    let copied_bytes = if body.len() <= COPIED_BYTES_MAX { body.len() } else { 0 };
    Vec::with_capacity(HEAD_BYTES + copied_bytes)
}

/// Appends the status line and the fields.
fn put_parts(Parts { status, headers, .. }: &Parts, head: &mut Vec<u8>) {
    let reason = status.canonical_reason().unwrap_or("<none>");
    for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
    headers.iter().for_each(|(name, value)| put_field(name, value.as_bytes(), head));
}

fn put_field(name: &HeaderName, value: &[u8], head: &mut Vec<u8>) {
    for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
        head.extend_from_slice(part);
    }
}

fn put_length(body_bytes: usize, head: &mut Vec<u8>) {
    put_field(&CONTENT_LENGTH, body_bytes.to_string().as_bytes(), head);
}

/// Appends the time of day, in milliseconds since 1970.
fn put_date(wall_ms: u64, head: &mut Vec<u8>) {
    DATES.with_borrow_mut(|(of_ms, date)| {
        let second_ms = wall_ms - wall_ms % 1_000;
        if *of_ms != second_ms {
            *of_ms = second_ms;
            *date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_millis(second_ms));
        }
        put_field(&DATE, date.as_bytes(), head);
    });
}

thread_local! {
    /// The last second, in milliseconds since 1970, and its date in a head.
    static DATES: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
}

/// The room for a head.
const HEAD_BYTES: usize = 256;
/// The bytes up to which a body is copied behind its head.
const COPIED_BYTES_MAX: usize = 4 * 1024;
