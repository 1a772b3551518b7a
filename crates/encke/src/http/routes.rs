//! The paths, and the handler of each.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Either;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use websocket::handshake;

use super::bayeux::BayeuxResponse;
use super::connection::{Connection, Upgrade};
use super::guard::{self, Guard, Pages, methods_as_text};
use super::{
    Body, api, bayeux, closing, files, form, history, hold, metrics, of_status, stream, subscription, text, unread,
    with,
};
use crate::cluster::link::Status;
use crate::fallback::{BoxError, RequestBody, ResponseBody, TakeOver};
use crate::settings::OWN_PATHS;
use encke_core::history::PARTITIONS;
use encke_core::{Settings, Shared};

/// Answers a request for the Bayeux endpoint, whose path was compared ([`is_bayeux`]).
pub(super) async fn answer_bayeux(
    connection: &Rc<Connection>,
    request: Box<Request<impl bayeux::RequestBody>>,
) -> BayeuxResponse {
    let settings = connection.node.shard().settings().clone();
    let refusal = refuse(connection, &settings, &request);
    let answered = match refusal.or_else(|| refuse_early(connection, &settings, request.headers())) {
        Some(refusal) => refusal.into(),
        None => bayeux::answer(connection, &settings, request).await,
    };
    match answered {
        BayeuxResponse::Messages(_) => answered,
        BayeuxResponse::Other(response) => finish(connection, response).into(),
    }
}

/// The response to a request that is refused whatever its path is.
fn refuse<B>(connection: &Connection, settings: &Settings, request: &Request<B>) -> Option<Response<Body>> {
    if let Some(refusal) = guard::refuse_host(connection, settings, request) {
        Some(refusal)
    } else if connection.health.has_two_lengths.is_set() {
        Some(closing(text(StatusCode::BAD_REQUEST, "a body has one length, or it has chunks\n")))
    } else if has_other_coding(request.headers()) {
        Some(closing(text(StatusCode::NOT_IMPLEMENTED, "chunked is the one transfer coding\n")))
    } else {
        None
    }
}

/// The response of a node that reads the histories of the cluster: its clients would take the histories for lost, and miss what is
/// published meanwhile. They come again, or to another node.
fn refuse_early(connection: &Connection, settings: &Settings, headers: &HeaderMap) -> Option<Response<Body>> {
    let cluster = connection.node.server().cluster.as_ref()?;
    cluster.is_reading().then(|| match stream::wanted(headers) {
        Some(format) => stream::come_back(connection, settings, format),
        None => {
            let early = text(StatusCode::SERVICE_UNAVAILABLE, "this node reads the histories of the cluster\n");
            closing(with(early, &[(RETRY_AFTER, "1")]))
        }
    })
}

/// True if the path is for clients that receive messages.
fn is_for_clients<B>(connection: &Connection, settings: &Settings, request: &Request<B>) -> bool {
    let path = request.uri().path();
    connection.node.server().echo
        || is_mount(settings, path)
        || is_for_root_mount(settings, request)
        || hold::channel_in(settings, path).is_some()
        || history::channel_in(settings, path).is_some()
        || subscription::channels_in(settings, path).is_some()
}

/// Counts a refusal, and adds the field that all responses have.
fn finish(connection: &Connection, response: Response<Body>) -> Response<Body> {
    if response.status().as_u16() >= 400 {
        connection.node.shard().metrics().requests_refused.add(1);
    }
    with(response, &[(X_CONTENT_TYPE_OPTIONS, "nosniff")])
}

/// Answers one request.
pub(crate) async fn answer(connection: &Rc<Connection>, request: Request<RequestBody>) -> Response<Body> {
    let settings = connection.node.shard().settings().clone();
    let path = request.uri().path();
    let response = if let Some(refusal) = refuse(connection, &settings, &request) {
        refusal
    } else if api::is_of_api(path) && !connection.node.server().echo {
        Box::pin(api::answer(connection, &settings, request)).await
    } else if let Some(early) = refuse_early(connection, &settings, request.headers())
        && is_for_clients(connection, &settings, &request)
    {
        early
    } else if connection.node.server().echo || is_mount(&settings, path) || is_for_root_mount(&settings, &request) {
        bayeux::answer(connection, &settings, Box::new(request)).await.into_response()
    } else if hold::channel_in(&settings, path).is_some() {
        Box::pin(hold::answer(connection, &settings, request)).await
    } else if history::channel_in(&settings, path).is_some() {
        Box::pin(history::answer(connection, &settings, request)).await
    } else if subscription::channels_in(&settings, path).is_some() {
        Box::pin(subscription::answer(connection, &settings, request)).await
    } else if let Some(fallback) = connection.node.server().pages.of(path).filter(|_| !OWN_PATHS.contains(&path)) {
        let client = connection.client(request.headers());
        let links = files::hint(connection, &settings, path).await;
        let mut response = files::with_links(fallback.answer(request, client).await, links);
        let body_bytes = response.body().size_hint().lower() as usize;
        if !connection.node.shard().has_room_for(body_bytes) {
            response = of_status(StatusCode::SERVICE_UNAVAILABLE, Response::default());
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let task = response.extensions_mut().remove::<TakeOver>();
            *connection.upgrade.borrow_mut() = task.map(Upgrade::TakenOver);
        }
        let shared = connection.node.shard().shared().clone();
        response.map(|body| Either::Right(Either::Right(ResponseBody::new(CountedBody { body, shared }))))
    } else {
        let found = match path {
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" if connection.node.shard().is_draining() => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            "/readyz" if connection.node.server().metrics.of_store().history_store_panicked.get() > 0 => {
                text(StatusCode::SERVICE_UNAVAILABLE, "histories are not stored\n")
            }
            "/readyz" => readiness_in_cluster(connection),
            "/metrics" => metrics::answer(connection, &request),
            _ => Box::pin(page(connection, &settings, &request)).await,
        };
        let found = if found.status() == StatusCode::NOT_FOUND {
            found
        } else {
            READERS.check(connection, &settings, &request).err().map_or(found, |refusal| *refusal)
        };
        unread(found, &request)
    };
    finish(connection, response)
}

/// The answer of a server that serves its clients. A node that has just started would tell them that its histories are gone, and
/// waits until it has those of the other nodes. Without the engine all nodes are alone: a balancer must not give up all of them.
fn readiness_in_cluster(connection: &Connection) -> Response<Body> {
    let status = connection.node.server().cluster.as_ref().map(|cluster| cluster.status());
    match status {
        Some(Status { reading: Some(count), .. }) => text(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("reads the histories of the cluster: {count} of {PARTITIONS} partitions\n"),
        ),
        Some(Status { name_is_taken: true, .. }) => {
            text(StatusCode::SERVICE_UNAVAILABLE, "another node of the cluster has the name of this one\n")
        }
        Some(Status { is_connected: false, .. }) => {
            text(StatusCode::OK, "ready, but the engine of the cluster is away\n")
        }
        Some(_) if store_is_away(connection) => text(StatusCode::OK, "ready, but the store of sessions is away\n"),
        _ => text(StatusCode::OK, "ready\n"),
    }
}

/// True if there is a store of sessions that does not answer.
fn store_is_away(connection: &Connection) -> bool {
    let store = connection.node.server().cluster.as_ref().and_then(|cluster| cluster.store());
    store.is_some_and(|numbers| !numbers.is_there.load(Relaxed))
}

/// The body of a fallback. Its parts count until the client has read them.
struct CountedBody {
    body: ResponseBody,
    shared: Arc<Shared>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        polled.map_ok(|frame| frame.map_data(|part| self.shared.memory.counted_part(part)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Answers with a file.
async fn page(connection: &Connection, settings: &Arc<Settings>, request: &Request<RequestBody>) -> Response<Body> {
    let links = files::hint(connection, settings, request.uri().path()).await;
    match files::answer(connection, settings, request).await {
        Some(found) => files::with_links(found, links),
        None => text(StatusCode::NOT_FOUND, "there is nothing here\n"),
    }
}

/// Pages, files, probes and metrics are for all who may read them.
const READERS: Guard = Guard { pages: Pages::All, methods: "GET, HEAD", not_allowed: methods_as_text };

/// True if the Bayeux endpoint answers all requests for a path.
pub(super) fn is_bayeux(settings: &Settings, path: &str) -> bool {
    !api::is_of_api(path) && is_mount(settings, path)
}

/// True if a path is the Bayeux endpoint or below it. Paths are compared as they arrived, without decoding or
/// normalising, so no spelling of another path matches.
fn is_mount(settings: &Settings, path: &str) -> bool {
    let mut mounts = settings.mounts.iter().filter(|mount| *mount != ROOT);
    mounts.any(|mount| path.strip_prefix(mount.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// True where the mount `/` takes a request. It takes only requests that no page receives.
fn is_for_root_mount<B>(settings: &Settings, request: &Request<B>) -> bool {
    let names_callback = || {
        let query = request.uri().query().unwrap_or_default();
        form::fields(query.as_bytes()).flatten().any(|(name, _)| name == settings.callback_parameter)
    };
    settings.mounts.iter().any(|mount| mount == ROOT)
        && match *request.method() {
            Method::POST | Method::OPTIONS => true,
            Method::GET => handshake::wants_upgrade(request.headers()) || names_callback(),
            _ => false,
        }
}

const ROOT: &str = "/";

/// True for transfer codings other than one `chunked` (RFC 9112 §6.1). hyper accepts any that end in `chunked` and decodes only that.
fn has_other_coding(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    codings.next().is_some_and(|coding| !is_chunked(coding) || codings.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_serves_its_path_and_those_below_it_only() {
        let settings = Settings::default();
        for path in ["/cometd", "/cometd/", "/cometd/handshake", "/cometd/cometd", "/bayeux", "/faye/x/y"] {
            assert!(is_mount(&settings, path), "{path}");
        }
        for path in ["/", "//cometd", "/cometd2", "/x/cometd", "/%63ometd", "/COMETD"] {
            assert!(!is_mount(&settings, path), "{path}");
        }
    }
}
