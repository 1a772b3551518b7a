//! Streams of the Bayeux endpoint: `GET MOUNT/CLIENT_ID` with `Accept: text/event-stream`, as Faye's client asks, or with
//! `application/x-ndjson`.
//!
//! ```text
//!   hyper ── 200 ──▶ the connection leaves HTTP ──▶ net::stream writes the head, and all that follows
//!                    (or a pair of sockets, where the connection has more requests than this)
//! ```
//!
//! The response has no length and no chunks, and ends with its connection (RFC 9112 §6.3): so clients of HTTP/1.0 and 1.1
//! get the same bytes, which are shared by all streams.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, ORIGIN, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::Either;
use hyper::body::{Body as HttpBody, Frame};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::UnixStream;

use super::connection::{Connection, Upgrade};
use super::guard::{Guard, Pages, methods_as_text};
use super::{Body, closing, cookie, origin, text, typed, whole, with};
use crate::byte_stream::ByteStream;
use crate::fallback::{BoxError, ResponseBody};
use crate::net::stream;
use crate::net::stream_request::{Served, StreamRequest};
use encke_cluster::{Visited, Visitor};
use encke_core::{Format, Id, Peer, Settings, StreamOpener, StreamOpening};

/// Its requests come from pages of allowed origins, and from programs.
const GUARD: Guard = Guard { pages: Pages::Allowed, methods: "POST, GET, OPTIONS", not_allowed: methods_as_text };

/// The format in which a client wants a stream. None if it wants none.
pub(super) fn wanted(headers: &HeaderMap) -> Option<Format> {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    accepted.flat_map(|accept| accept.split(',')).find_map(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        FORMATS.iter().find(|(_, name)| kind.eq_ignore_ascii_case(name)).map(|(format, _)| *format)
    })
}

/// The media type of a format.
fn kind_of(format: Format) -> &'static str {
    FORMATS.iter().find(|(known, _)| *known == format).map_or("application/json", |(_, kind)| kind)
}

/// Answers a request for the stream of the session that its path names.
pub(super) async fn answer<B: HttpBody>(
    connection: &Rc<Connection>,
    settings: &Settings,
    request: &Request<B>,
    format: Format,
) -> Response<Body> {
    let origin = match GUARD.check(connection, settings, request) {
        Ok(origin) => origin,
        Err(response) => return *response,
    };
    let mut response = open(connection, settings, request, format).await;
    origin::allow(&origin, response.headers_mut());
    response
}

async fn open<B: HttpBody>(
    connection: &Rc<Connection>,
    settings: &Settings,
    request: &Request<B>,
    format: Format,
) -> Response<Body> {
    if format.transport().is_none_or(|transport| !settings.transports.contains(&transport)) {
        return text(StatusCode::BAD_REQUEST, "this transport is off\n");
    }
    if !request.body().is_end_stream() {
        return closing(text(StatusCode::BAD_REQUEST, "a GET has no body\n"));
    }
    let headers = request.headers();
    let browser = cookie::browser(headers, settings);
    let is_of_page =
        headers.contains_key(ORIGIN) || headers.contains_key(SEC_FETCH_SITE) || cookie::is_sent(headers, settings);
    let opener = StreamOpener { browser, is_of_page, peer: connection.peer(&connection.client(headers)) };
    let client = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let served = match find(connection, &client, opener, format).await {
        Ok(served) => served,
        Err(refusal) => return refused(connection, settings, format, refusal),
    };
    let introduction = introduction(format).to_owned();
    begin(connection, StreamRequest { client, opener, format, introduction, reached: None, served })
}

/// The response to a request that gets no stream.
fn refused(connection: &Connection, settings: &Settings, format: Format, refusal: StreamOpening) -> Response<Body> {
    match refusal {
        StreamOpening::Draining => come_back(connection, settings, format),
        StreamOpening::TooMany => {
            let reason = "this browser has as many streams as it may (setting browser_sessions_max)\n";
            with(text(StatusCode::TOO_MANY_REQUESTS, reason), &[(RETRY_AFTER, "5")])
        }
        StreamOpening::Unknown | StreamOpening::Elsewhere(_) | StreamOpening::Here(_) => {
            text(StatusCode::NOT_FOUND, "there is no such session\n")
        }
    }
}

/// Finds the node that serves a stream. Otherwise the reason against it.
async fn find(
    connection: &Connection,
    client: &str,
    opener: StreamOpener,
    format: Format,
) -> Result<Served, StreamOpening> {
    let here = |refusal: Option<StreamOpening>| refusal.map_or(Ok(Served::Here), Err);
    let refusal = refusal_of(connection, client, opener).await;
    let (Some(StreamOpening::Unknown), Some(cluster)) = (refusal, &connection.node.server().cluster) else {
        return here(refusal);
    };
    let Some(session) = Id::parse(client) else { return here(refusal) };
    let origins = connection.node.server().shared().origins_of(opener.peer);
    // Another node may have it. Without an answer its client comes back as after a drain.
    match cluster.search(session, opener.opener(), origins).await {
        Visited::Searched => here(refusal_of(connection, client, opener).await),
        Visited::Later => Err(StreamOpening::Draining),
        Visited::Stays(home) => {
            let Peer { address, is_multiplexed, .. } = opener.peer;
            let visitor = Visitor { session, opener: opener.opener(), address, is_multiplexed };
            cluster.open_stream(home, visitor, format).await.map(Served::ByNode)
        }
    }
}

/// The reason why the shard of a session would not open a stream.
async fn refusal_of(connection: &Connection, client: &str, opener: StreamOpener) -> Option<StreamOpening> {
    let refusal = connection.node.shard().stream_refusal(client, &opener);
    let Some(StreamOpening::Elsewhere(home)) = refusal else { return refusal };
    let client = client.to_owned();
    let look = move |shard: &encke_core::Shard| shard.stream_refusal(&client, &opener);
    connection.node.server().inspect(home, look).await.unwrap_or(Some(StreamOpening::Draining))
}

/// The response to which the messages belong.
pub(super) fn begin(connection: &Rc<Connection>, request: StreamRequest) -> Response<Body> {
    let fields = [
        (CONTENT_TYPE, kind_of(request.format)),
        (CACHE_CONTROL, "no-store, no-transform"),
        // nginx buffers responses otherwise.
        (X_ACCEL_BUFFERING, "no"),
    ];
    if connection.current.become_stream() {
        connection.health.waits_long.set(true);
        *connection.upgrade.borrow_mut() = Some(Upgrade::Stream(Box::new(request)));
        return with(Response::new(whole("")), &[fields.as_slice(), &[(CONNECTION, "close")]].concat());
    }
    match piped(connection, request) {
        Ok(body) => with(Response::new(body), &fields),
        Err(error) => {
            tracing::warn!(%error, "a stream has no pair of sockets");
            with(text(StatusCode::SERVICE_UNAVAILABLE, "too many streams\n"), &[(RETRY_AFTER, "5")])
        }
    }
}

/// The bytes before the first message.
pub(super) fn introduction(format: Format) -> &'static str {
    if matches!(format, Format::Events | Format::Messages) { "retry: 1000\n\n" } else { "" }
}

/// A stream on a pair of sockets, whose other end is the body of a response.
fn piped(connection: &Connection, request: StreamRequest) -> io::Result<Body> {
    let (near, far) = ByteStream::pair()?;
    near.prepare(connection.node.shard().settings().socket_send_buffer_bytes)?;
    let counted = connection.node.server().connections.count_elsewhere();
    stream::open(&connection.node, near, Some(counted), request, Vec::new());
    Ok(Either::Right(Either::Right(ResponseBody::new(Piped(far)))))
}

/// The body that reads one end of a pair of sockets.
struct Piped(UnixStream);

impl HttpBody for Piped {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut bytes = [0; PIPED_BYTES];
        let mut read = ReadBuf::new(&mut bytes);
        if let Err(error) = ready!(Pin::new(&mut self.0).poll_read(cx, &mut read)) {
            return Poll::Ready(Some(Err(error.into())));
        }
        let part = Bytes::copy_from_slice(read.filled());
        Poll::Ready((!part.is_empty()).then(|| Ok(Frame::data(part))))
    }
}

/// The response of a draining server: an `EventSource` takes a status for the end of all, so it gets a time instead.
pub(super) fn come_back(connection: &Connection, settings: &Settings, format: Format) -> Response<Body> {
    if !matches!(format, Format::Events | Format::Messages) {
        return with(text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"), &[(RETRY_AFTER, "5")]);
    }
    let spread_ms = connection.number() % settings.drain_spread_ms.max(1);
    closing(typed(StatusCode::OK, kind_of(format), format!("retry: {}\n\n", 1_000 + spread_ms)))
}

/// The head of a response whose body follows until the connection ends.
pub(super) fn head_of(response: &Response<Body>) -> Vec<u8> {
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    for (name, value) in response.headers() {
        [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]
            .iter()
            .for_each(|part| head.extend_from_slice(part));
    }
    head.extend_from_slice(
        format!("date: {}\r\n\r\n", httpdate::fmt_http_date(std::time::SystemTime::now())).as_bytes(),
    );
    head
}

const FORMATS: [(Format, &str); 4] =
    [(Format::Events, EVENTS), (Format::Lines, LINES), (Format::Messages, EVENTS), (Format::MessageLines, LINES)];
const EVENTS: &str = "text/event-stream";
const LINES: &str = "application/x-ndjson";
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The bytes that the body of a piped stream reads at once.
const PIPED_BYTES: usize = 16 * 1024;
