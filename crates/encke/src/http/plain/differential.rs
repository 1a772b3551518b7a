//! Each request that is read here is one that hyper would read: with the same method, target, fields and body, and the same bytes
//! behind it.
//!
//! `PLAIN_REQUESTS=10000000 cargo test --release -p encke --lib differential -- --nocapture` tries as many.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use fastrand::Rng;
use http::{HeaderMap, Method, Request, Response, Uri, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;

use super::head::{HEADERS_MAX, Plain};
use encke_core::Settings;

/// A request as somebody has read it. None in place of a body that is not whole.
type Seen = (Method, Uri, Version, HeaderMap, Option<Bytes>);

/// The first request that hyper reads in these bytes.
fn by_hyper(bytes: &[u8], settings: &Settings) -> Option<Seen> {
    let seen = Rc::new(RefCell::new(None));
    let service = service_fn(|request: Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let (parts, body) = request.into_parts();
            let is_first = seen.borrow().is_none();
            if is_first {
                *seen.borrow_mut() = Some((parts.method, parts.uri, parts.version, parts.headers, None));
            }
            let body = body.collect().await.ok().map(|body| body.to_bytes());
            if is_first && let Some(seen) = &mut *seen.borrow_mut() {
                seen.4 = body;
            }
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
        }
    });
    let io = Input { bytes: Bytes::copy_from_slice(bytes) };
    let mut builder = http1::Builder::new();
    builder.max_buf_size(settings.header_bytes_max).max_headers(HEADERS_MAX);
    let served = pin!(builder.serve_connection(io, service));
    // It waits for nothing but input, which has an end.
    let _ended = served.poll(&mut Context::from_waker(Waker::noop()));
    seen.take()
}

/// A connection on which these bytes have come, and nothing more comes.
struct Input {
    bytes: Bytes,
}

impl Read for Input {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            return Poll::Pending;
        }
        let length = self.bytes.len().min(buf.remaining());
        let part = self.bytes.split_to(length);
        buf.put_slice(&part);
        Poll::Ready(Ok(()))
    }
}

impl Write for Input {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A request that is nearly right: parts of requests, chosen at random, and a few bytes changed.
fn nearly_right(rng: &mut Rng) -> Vec<u8> {
    let usual = |rng: &mut Rng| rng.u8(..) < 200;
    let mut pick = |choices: &[&'static str]| {
        let at = if usual(rng) { 0 } else { rng.usize(..choices.len()) };
        choices[at]
    };
    let end = pick(&["\r\n", "\n", "\r", "\r\r\n"]);
    let method = pick(&["POST", "GET", "PUT", "post", "PRI", "HEAD", "OPTIONS", "POST\t", ""]);
    let target = pick(&[
        "/cometd",
        "/cometd/connect",
        "/cometd?jsonp=cb&message=[]",
        "//cometd",
        "/cometd#x",
        "/cometd/../x",
        "/cometd\u{e9}",
        "/cometd%00",
        "http://a/cometd",
        "*",
        "/api/v1/publish",
        "/",
        "/cometd x",
        "",
    ]);
    let version = pick(&["HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 ", "HTTP/01.1", ""]);
    let mut text = String::from(if pick(&["", "\r\n", " ", "\n"]).is_empty() { "" } else { "\r\n" });
    text += &format!("{method} {target} {version}{end}");
    for _ in 0..rng.usize(..6) {
        let pick = |rng: &mut Rng, choices: &[&'static str]| choices[rng.usize(..choices.len())];
        if usual(rng) {
            text +=
                pick(rng, &["Host: localhost\r\n", "Connection: keep-alive\r\n", "cookie: a=b\r\n", "Accept:*/*\r\n"]);
            continue;
        }
        let name = pick(
            rng,
            &[
                "Host",
                "Content-Length",
                "content-length",
                "Transfer-Encoding",
                "Connection",
                "Upgrade",
                "Expect",
                "Accept",
                "Cookie",
                "Trailer",
                "X",
                "Content-Length ",
                " Content-Length",
                "Content_Length",
                "",
                "X\u{e9}",
            ],
        );
        let value = pick(
            rng,
            &[
                "5",
                "0",
                "05",
                "5, 5",
                "+5",
                "-1",
                "0x5",
                "5 ",
                "\t5",
                "5\u{b}",
                "18446744073709551616",
                "",
                "chunked",
                "identity",
                "close",
                "keep-alive",
                "Keep-Alive, Upgrade",
                "upgrade",
                "websocket",
                "h2c",
                "100-continue",
                "text/event-stream",
                "localhost",
                "a\0b",
                "a\rb",
                "\u{e9}",
            ],
        );
        let colon = pick(rng, &[":", ": ", ": ", ":\t", " : ", "", ":\r\n "]);
        let end = if usual(rng) { "\r\n" } else { pick(rng, &["\n", "\r", "\r\n\t", "\r\n "]) };
        text += &format!("{name}{colon}{value}{end}");
    }
    if usual(rng) {
        text += "Content-Length: 5\r\n";
    }
    text += if usual(rng) { "\r\n" } else { "\n" };
    text += ["[{}]\nGET / HTTP/1.1\r\n\r\n", "5\r\nabcde\r\n0\r\n\r\n", "abc", ""][rng.usize(..4)];
    let mut bytes = text.into_bytes();
    let changes = if usual(rng) { 0 } else { rng.usize(..3) };
    for _ in 0..changes {
        let at = rng.usize(..bytes.len());
        match rng.u8(..3) {
            0 => bytes[at] = rng.u8(..),
            1 => bytes.insert(at, b"\r\n :,\t0\0;"[rng.usize(..9)]),
            _ => _ = bytes.remove(at),
        }
    }
    bytes
}

#[test]
fn hyper_reads_the_same_request() {
    let wanted = std::env::var("PLAIN_REQUESTS").map_or(30_000, |count| count.parse().expect("a number of requests"));
    let settings = Settings::default();
    let seed = std::env::var("PLAIN_SEED").map_or(1, |seed| seed.parse().expect("a seed"));
    let mut rng = Rng::with_seed(seed);
    let mut plain_ones = 0;
    for _ in 0..wanted {
        let bytes = nearly_right(&mut rng);
        let Some(Plain { request, head_bytes, body_bytes }) = Plain::parse(&bytes, &settings) else { continue };
        plain_ones += 1;
        let (parts, ()) = request.into_parts();
        let body = bytes.get(head_bytes..head_bytes + body_bytes).map(Bytes::copy_from_slice);
        let read = Some((parts.method, parts.uri, parts.version, parts.headers, body));
        assert_eq!(by_hyper(&bytes, &settings), read, "{}", bytes.escape_ascii());
    }
    println!("{plain_ones} of {wanted} requests were plain, and hyper read the same");
    assert!(plain_ones * 20 > wanted, "only {plain_ones} of {wanted} requests were plain");
}
