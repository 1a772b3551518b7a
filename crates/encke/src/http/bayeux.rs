//! The Bayeux endpoint. POST is long-polling, GET is callback-polling, a WebSocket or a stream, OPTIONS is a browser's
//! preflight.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    ORIGIN, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_PROTOCOL, SET_COOKIE, UPGRADE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as HttpBody, Frame};
use websocket::{Compression, handshake};

use super::callback::is_callback;
use super::coding;
use super::connection::{Connection, Upgrade};
use super::guard::{Guard, Pages, methods_as_text};
use super::{Body, closing, cookie, form, of_status, text, unread, whole, with};
use super::{origin, stream};
use crate::fallback::BoxError;
use crate::net::exchanges::Answer;
use crate::net::socket;
use crate::net::watched::{GivenUp, Watched};
use encke_core::{ExchangeId, Head, HttpTransport, Id, Peer, Request as Exchange, Settings, TransportName};

/// The body of a request, from hyper or another HTTP server.
pub(crate) trait RequestBody: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin {}

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin> RequestBody for B {}

/// Its requests come from pages of allowed origins, and from programs.
const GUARD: Guard =
    Guard { pages: Pages::AllowedAndScripts, methods: "POST, GET, OPTIONS", not_allowed: methods_as_text };

/// The response to a request.
pub(crate) enum BayeuxResponse {
    /// Messages whose response has the usual fields alone ([`USUAL_FIELDS`]), as most responses have.
    Messages(Bytes),
    /// Any other response.
    Other(Response<Body>),
}

impl BayeuxResponse {
    /// The response of any kind.
    pub(crate) fn into_response(self) -> Response<Body> {
        match self {
            BayeuxResponse::Messages(body) => with(Response::new(whole(body)), &USUAL_FIELDS),
            BayeuxResponse::Other(response) => response,
        }
    }
}

impl From<Response<Body>> for BayeuxResponse {
    fn from(response: Response<Body>) -> BayeuxResponse {
        BayeuxResponse::Other(response)
    }
}

/// The fields of a response with messages.
pub(super) const USUAL_FIELDS: [(HeaderName, &str); 3] =
    [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];

/// Answers a request to the endpoint. It is boxed, as are all that is done before it is held: a held request needs little room.
pub(crate) async fn answer(
    connection: &Rc<Connection>,
    settings: &Settings,
    request: Box<Request<impl RequestBody>>,
) -> BayeuxResponse {
    if *request.method() == Method::GET
        && let Some(format) = stream::wanted(request.headers())
    {
        return Box::pin(stream::answer(connection, settings, &*request, format)).await.into();
    }
    let origin = match GUARD.check(connection, settings, &*request) {
        Ok(origin) => origin,
        Err(response) => return (*response).into(),
    };
    let answered = match *request.method() {
        Method::POST if !settings.transports.contains(&TransportName::LongPolling) => {
            unread(text(StatusCode::BAD_REQUEST, "long-polling is off\n"), &*request).into()
        }
        Method::POST => long_polling(connection, settings, request).await,
        Method::GET if handshake::wants_upgrade(request.headers()) => upgrade(connection, settings, &*request).into(),
        _ => callback_polling(connection, settings, &*request).await,
    };
    if !origin::is_named(&origin) {
        return answered;
    }
    let mut response = answered.into_response();
    origin::allow(&origin, response.headers_mut());
    response.into()
}

async fn long_polling(
    connection: &Rc<Connection>,
    settings: &Settings,
    request: Box<Request<impl RequestBody>>,
) -> BayeuxResponse {
    match Box::pin(asked(connection, settings, request)).await {
        Ok((asking, batch)) => exchange(connection, settings, HttpTransport::LongPolling, asking, batch).await,
        Err(refusal) => {
            let late = usize::from(refusal.status == StatusCode::REQUEST_TIMEOUT);
            connection.node.shard().metrics().timeouts.add(late);
            refusal.response().into()
        }
    }
}

/// The batch of a request, and its part that the shard gets with it.
async fn asked(
    connection: &Connection,
    settings: &Settings,
    request: Box<Request<impl RequestBody>>,
) -> Result<(Box<Asking>, String), Refusal> {
    check_content(request.headers())?;
    let (parts, body) = request.into_parts();
    let body = collect(connection, body, settings).await?;
    connection.current.set_body_read();
    let batch = batch_of(body)?;
    let request = Request::from_parts(parts, ());
    Ok((Box::new(Asking::of(connection, settings, &request)), batch))
}

async fn callback_polling<B>(connection: &Rc<Connection>, settings: &Settings, request: &Request<B>) -> BayeuxResponse {
    if !settings.transports.contains(&TransportName::CallbackPolling) {
        return text(StatusCode::BAD_REQUEST, "unknown Bayeux transport\n").into();
    }
    let (mut callbacks, mut messages) = (Vec::new(), Vec::new());
    let query = request.uri().query().unwrap_or_default();
    for field in form::fields(query.as_bytes()) {
        let Some((name, value)) = field else {
            return text(StatusCode::BAD_REQUEST, "the query is not UTF-8\n").into();
        };
        if name == settings.callback_parameter {
            callbacks.push(value);
        } else if name == "message" {
            messages.push(value);
        }
    }
    let [callback] = &callbacks[..] else {
        return text(StatusCode::BAD_REQUEST, "unknown Bayeux transport\n").into();
    };
    if !is_callback(callback, settings.callback_bytes_max) {
        return text(StatusCode::BAD_REQUEST, "this is no name of a callback\n").into();
    }
    let Some(batch) = batch_of_fields(&messages) else {
        return text(StatusCode::BAD_REQUEST, "there is no message\n").into();
    };
    let transport = HttpTransport::CallbackPolling(callback.as_str().into());
    let asking = Box::new(Asking::of(connection, settings, request));
    exchange(connection, settings, transport, asking, batch).await
}

/// The part of a request, beside its batch, that the shard gets.
pub(super) struct Asking {
    pub(super) browser: Option<Id>,
    pub(super) head: Option<Arc<Head>>,
    pub(super) peer: Peer,
    pub(super) is_https: bool,
    pub(super) takes_gzip: bool,
}

impl Asking {
    fn of<B>(connection: &Connection, settings: &Settings, request: &Request<B>) -> Asking {
        let client = connection.client(request.headers());
        Asking {
            browser: cookie::browser(request.headers(), settings),
            head: connection.head(request, &client),
            peer: connection.peer(&client),
            is_https: client.is_https,
            takes_gzip: settings.compresses() && coding::takes_gzip(request.headers()),
        }
    }
}

/// Passes a batch to the shard and answers with the result, which takes as long as a connect may be held.
async fn exchange(
    connection: &Rc<Connection>,
    settings: &Settings,
    transport: HttpTransport,
    // Boxed: nothing of it stays while the request is held.
    asking: Box<Asking>,
    body: String,
) -> BayeuxResponse {
    let script = matches!(transport, HttpTransport::CallbackPolling(_));
    let (is_https, takes_gzip) = (asking.is_https, asking.takes_gzip);
    let (answer, receipt) = match ask(connection, transport, asking, body).await {
        Ok(answer) => answer,
        Err(unanswered) => return unanswered.response().into(),
    };
    let (body, is_gzip) = match takes_gzip && answer.compresses {
        true => coding::form(connection, answer.body).await,
        false => (answer.body, false),
    };
    let body = match receipt {
        Some(receipt) => receipt.attach(connection.health.clone(), body),
        None => body,
    };
    if !script && answer.status == 200 && !answer.compresses && answer.set_browser.is_none() {
        return BayeuxResponse::Messages(body);
    }
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_REQUEST);
    let kind = if script && answer.status == 200 { "text/javascript; charset=utf-8" } else { "application/json" };
    let fields = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        // An old plug-in that loads a script as a document gets a file instead (CVE-2014-4671).
        (CONTENT_DISPOSITION, "attachment; filename=f.txt"),
    ];
    let mut response = with(of_status(status, Response::new(whole(body))), if script { &fields } else { &fields[..2] });
    if answer.compresses {
        response = coding::with_fields(response, is_gzip);
    }
    if let Some(cookie) = answer.set_browser.and_then(|browser| cookie::set(&browser, settings, is_https)) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response.into()
}

/// The reason why a batch has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// The server stops.
    GoingAway,
    /// Too much waits: the batch was not processed.
    Busy,
}

impl Unanswered {
    fn response(self) -> Response<Body> {
        let (reason, fields): (_, &[_]) = match self {
            Unanswered::GoingAway => ("the server is going away\n", &[]),
            Unanswered::Busy => ("too many requests wait\n", &[(RETRY_AFTER, "5")]),
        };
        with(text(StatusCode::SERVICE_UNAVAILABLE, reason), fields)
    }
}

/// Passes a batch to the shard and waits for its answer.
///
/// # Errors
/// [`Unanswered`]: there is none.
pub(super) async fn ask(
    connection: &Connection,
    transport: HttpTransport,
    // Boxed: nothing of it stays while the request is held.
    asking: Box<Asking>,
    body: String,
) -> Result<Answer, Unanswered> {
    let node = &connection.node;
    let mut usage = connection.usage().get();
    let turn = node.wait_for_turn(&usage, body.len(), asking.peer, || node.shard().client_of_request(&body));
    turn.await.map_err(|_| Unanswered::Busy)?;
    let (exchange, answer) = node.exchange();
    let _waiting = WaitingExchange { connection, exchange };
    let before = node.shard().work();
    let bytes = body.len() as u64;
    let Asking { browser, head, peer, .. } = {
        // The box is freed at the end of this block, not of the function.
        let boxed = asking;
        *boxed
    };
    let now = node.now();
    node.shard_mut()
        .request(now, Exchange { exchange, transport, browser, peer, head, body, searched: Default::default() });
    node.settle();
    // The shard of the session does the work.
    usage.add(now, bytes.max(node.shard().work() - before));
    connection.usage().set(usage);
    answer.await.map_err(|_| Unanswered::GoingAway)
}

/// Abandons the exchange if the client leaves before the answer.
struct WaitingExchange<'a> {
    connection: &'a Connection,
    exchange: ExchangeId,
}

impl Drop for WaitingExchange<'_> {
    fn drop(&mut self) {
        self.connection.node.abandon(self.exchange);
    }
}

/// Accepts a WebSocket upgrade, or answers why the request is invalid (RFC 6455 §4.2).
fn upgrade<B: HttpBody>(connection: &Connection, settings: &Settings, request: &Request<B>) -> Response<Body> {
    if !settings.transports.contains(&TransportName::Websocket) {
        return text(StatusCode::BAD_REQUEST, "websocket is off\n");
    }
    // Bytes of a body would be read as frames.
    if !request.body().is_end_stream() {
        return closing(text(StatusCode::BAD_REQUEST, "an upgrade has no body\n"));
    }
    let accept = match handshake::check(request.method(), request.version(), request.headers()) {
        Ok(accept) => accept,
        Err(error) => {
            let response = text(error.status(), "this is no WebSocket handshake\n");
            // RFC 9110 §7.8: whoever sends `Upgrade` names it in `Connection`.
            let upgrades = error.status() == StatusCode::UPGRADE_REQUIRED;
            let connection: &[_] = if upgrades { &[(CONNECTION, "upgrade")] } else { &[] };
            return with(with(response, error.headers()), connection);
        }
    };
    let protocol = &settings.websocket_protocol;
    if !protocol.is_empty() && !handshake::offers_protocol(request.headers(), protocol) {
        return text(StatusCode::BAD_REQUEST, "the sub-protocol of this server is not offered\n");
    }
    let Ok(accept) = HeaderValue::try_from(accept) else {
        return text(StatusCode::BAD_REQUEST, "this is no WebSocket handshake\n");
    };
    let Asking { browser, head, peer, .. } = Asking::of(connection, settings, request);
    let is_of_page = request.headers().contains_key(ORIGIN) || cookie::is_sent(request.headers(), settings);
    let compression = settings.compresses().then(|| Compression::accept(request.headers())).flatten();
    let from = socket::Opener { browser, is_of_page, peer, head, compression };
    *connection.upgrade.borrow_mut() = Some(Upgrade::WebSocket(Box::new(from)));
    let response = of_status(StatusCode::SWITCHING_PROTOCOLS, Response::new(whole("")));
    let mut response = with(response, &[(CONNECTION, "upgrade"), (UPGRADE, "websocket")]);
    response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(answer) = compression.and_then(|compression| HeaderValue::try_from(compression.answer()).ok()) {
        response.headers_mut().insert(SEC_WEBSOCKET_EXTENSIONS, answer);
    }
    if let Some(protocol) = HeaderValue::try_from(protocol).ok().filter(|protocol| !protocol.is_empty()) {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    response
}

/// The reason for refusing a body.
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) text: &'static str,
    /// True if the connection must close: after part of a body no further request can be read.
    close: bool,
}

impl Refusal {
    fn response(&self) -> Response<Body> {
        let busy: &[_] = if self.status == StatusCode::SERVICE_UNAVAILABLE { &[(RETRY_AFTER, "5")] } else { &[] };
        let response = with(text(self.status, self.text), busy);
        if self.close { closing(response) } else { response }
    }
}

/// Accepts JSON in UTF-8, whatever its declared type. Other declared character sets and content codings are refused
/// rather than misread.
fn check_content(headers: &HeaderMap) -> Result<(), Refusal> {
    let charset = headers.get(CONTENT_TYPE).and_then(|kind| charset_of(kind.to_str().unwrap_or_default()));
    let coded = headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
    let is_known =
        |charset: &str| ["utf-8", "utf8", "us-ascii"].iter().any(|known| known.eq_ignore_ascii_case(charset));
    if coded || charset.is_some_and(|charset| !is_known(charset)) {
        return Err(Refusal {
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            text: "only UTF-8 without a coding is understood\n",
            close: true,
        });
    }
    Ok(())
}

/// The character set that a media type names.
fn charset_of(kind: &str) -> Option<&str> {
    let is_it = |at: &usize| {
        let name = kind.as_bytes()[..*at].last_chunk::<{ CHARSET.len() }>();
        name.is_some_and(|name| name.eq_ignore_ascii_case(CHARSET))
    };
    let at = memchr::memchr_iter(b'=', kind.as_bytes()).find(is_it)?;
    Some(kind[at + 1..].split(';').next()?.trim().trim_matches('"'))
}

/// Reads the whole body, within its limit and its time. A declared length over the limit is refused unread: the first
/// read would make hyper ask for the body (`100 Continue`).
pub(super) async fn collect(
    connection: &Connection,
    mut body: impl RequestBody,
    settings: &Settings,
) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > settings.message_bytes_max as u64 {
        return Err(Refusal { status: StatusCode::PAYLOAD_TOO_LARGE, text: TOO_LARGE, close: true });
    }
    // Most bodies have arrived with their head: they need no time and no account.
    let first = match poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx))).await {
        Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
            Ok(whole) if body.is_end_stream() && whole.len() <= settings.message_bytes_max => return Ok(whole),
            Ok(part) => Some(Frame::data(part)),
            Err(trailers) => Some(trailers),
        },
        Poll::Ready(Some(Err(_))) => {
            let (status, text) = (StatusCode::BAD_REQUEST, NOT_WHOLE);
            return Err(Refusal { status, text, close: true });
        }
        Poll::Ready(None) => return Ok(Bytes::new()),
        Poll::Pending => None,
    };
    let limited = Limited::new(Watched::new(&connection.node, first, body), settings.message_bytes_max);
    let timeout = Duration::from_millis(settings.request_timeout_ms);
    let (status, text) = match tokio::time::timeout(timeout, limited.collect()).await {
        Ok(Ok(body)) => return Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => (StatusCode::PAYLOAD_TOO_LARGE, TOO_LARGE),
        Ok(Err(error)) if error.is::<GivenUp>() => (StatusCode::SERVICE_UNAVAILABLE, "too many incomplete requests\n"),
        Ok(Err(_)) => (StatusCode::BAD_REQUEST, NOT_WHOLE),
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the body took too long\n"),
    };
    Err(Refusal { status, text, close: true })
}

/// Extracts the batch from a body: JSON, or the `message` fields of a form (Bayeux 1.0 §1.7). The first byte decides,
/// not the declared type: Faye's cross-origin transport sends forms without declaring them, and tools like curl
/// declare JSON as a form.
fn batch_of(body: Bytes) -> Result<String, Refusal> {
    let refusal = Refusal { status: StatusCode::BAD_REQUEST, text: "the body is not UTF-8\n", close: false };
    if !body.starts_with(b"message=") {
        return String::from_utf8(body.into()).map_err(|_| refusal);
    }
    let fields: Option<Vec<_>> = form::fields(&body).collect();
    let messages = fields.ok_or(refusal)?.into_iter().filter(|(name, _)| name == "message").map(|(_, value)| value);
    Ok(batch_of_fields(&messages.collect::<Vec<_>>()).unwrap_or_default())
}

/// Several `message` fields, each an object or an array, as one batch. None if there is no field.
fn batch_of_fields(fields: &[String]) -> Option<String> {
    let inner = |field: &String| {
        let field = field.trim();
        field.strip_prefix('[').and_then(|field| field.strip_suffix(']')).unwrap_or(field).to_owned()
    };
    (!fields.is_empty()).then(|| format!("[{}]", fields.iter().map(inner).collect::<Vec<_>>().join(",")))
}

const CHARSET: &[u8; 7] = b"charset";
const NOT_WHOLE: &str = "the body did not arrive whole\n";
const TOO_LARGE: &str = "the body is larger than message_bytes_max\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_and_plain_bodies_give_the_same_batch() {
        let two = Bytes::from_static(b"message=%5B%7B%22a%22%3A1%7D%5D&x=1&message=%7B%22b%22%3A2%7D");
        assert_eq!(batch_of(two).ok().as_deref(), Some(r#"[{"a":1},{"b":2}]"#));
        assert_eq!(batch_of(Bytes::from_static(b"[1]")).ok().as_deref(), Some("[1]"));
        assert!(batch_of(Bytes::from_static(b"[\"\xff\"]")).is_err());
        assert!(batch_of(Bytes::from_static(b"message=%22%ff%22")).is_err());
    }

    #[test]
    fn other_character_sets_and_codings_are_refused() {
        let check = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            check_content(&headers).is_ok()
        };
        assert!(check("content-type", "application/json;charset=UTF-8"));
        assert!(check("content-type", "text/plain"));
        assert!(check("content-type", "text/plain; x=y;Charset=\"utf-8\"; z=1"));
        assert!(check("content-type", "mycharset=UTF8") && check("content-type", "charset"));
        assert!(!check("content-type", "application/json; charset=utf-16"));
        assert!(!check("content-type", "a; charset=; charset=utf-8"));
        assert!(!check("content-encoding", "gzip"));
    }
}
