//! The response to a plain request, written as hyper writes it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_LENGTH, DATE};
use http::{Response, StatusCode};

use crate::byte_stream::ByteStream;
use crate::http::connection::Connection;
use crate::net::stall::Stall;

/// Writes a response. An error if the client is gone or takes nothing for too long.
pub(super) async fn write(connection: &Connection, stream: &ByteStream, response: Response<Bytes>) -> io::Result<()> {
    let head = head_of(&response, connection.node.now().wall_ms);
    let (mut head, mut body) = (&head[..], response.into_body());
    // Dropped before the body, whose messages are then reported as lost.
    let mut lost = LostOnDrop(Some(connection));
    let mut stall = Stall::default();
    let written = poll_fn(|cx| {
        while !head.is_empty() || !body.is_empty() {
            match stream.try_write(&[IoSlice::new(head), IoSlice::new(&body)]) {
                Ok(written) => {
                    stall.end();
                    let of_head = written.min(head.len());
                    head = &head[of_head..];
                    body.advance(written - of_head);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match stream.poll_write_ready(cx) {
                    Poll::Ready(ready) => ready?,
                    Poll::Pending => {
                        let shard = connection.node.shard();
                        let wait = Duration::from_millis(shard.settings().response_timeout_ms);
                        drop(shard);
                        ready!(stall.poll(&connection.node, wait, cx));
                        connection.health.timed_out.set(true);
                        stream.reset();
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                },
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    });
    written.await?;
    lost.0 = None;
    Ok(())
}

/// Marks the connection as broken when it is dropped.
struct LostOnDrop<'a>(Option<&'a Connection>);

impl Drop for LostOnDrop<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|connection| connection.health.broken.set(true));
    }
}

/// The head of a response, at this time in milliseconds since 1970.
fn head_of(response: &Response<Bytes>, wall_ms: u64) -> Vec<u8> {
    let (status, headers) = (response.status(), response.headers());
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| head.extend_from_slice(part));
    let reason = status.canonical_reason().unwrap_or("<none>");
    put(&[b"HTTP/1.1 ", status.as_str().as_bytes(), b" ", reason.as_bytes(), b"\r\n"]);
    for (name, value) in headers {
        put(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }
    let has_length = status != StatusCode::SWITCHING_PROTOCOLS && !headers.contains_key(CONTENT_LENGTH);
    if has_length {
        put(&[b"content-length: ", response.body().len().to_string().as_bytes(), b"\r\n"]);
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
