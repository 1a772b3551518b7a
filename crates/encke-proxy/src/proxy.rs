//! One request, from the client to the backend and back.

use std::convert::Infallible;
use std::error::Error;
use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use encke::{
    Fallback, FallbackResponse, Handle, Hold, Metric, Release, RequestBody, RequestClient, ResponseBody, TakeOver,
};
use encke_fetch::{FetchError, Fetcher, HasRoom, Upgrade};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body;
use tokio::io::{AsyncWriteExt, copy_bidirectional};

use crate::body::ProxyBody;
use crate::headers::{forward, remove_hop_by_hop, switch, upgrade_of};
use crate::instruct::{self, Mode};
use crate::item;
use crate::path::has_dot_segments;
use crate::room::{Owner, Room, Taken};
use crate::settings::{ProxyError, ProxySettings};

/// A reverse proxy in front of a backend. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Proxy {
    shared: Arc<Backend>,
    fetcher: Fetcher,
}

#[derive(Debug)]
struct Backend {
    settings: ProxySettings,
    /// The URL of the backend, without a slash at its end.
    backend: String,
    handle: Handle,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    /// Held responses with their bytes.
    held: Arc<Room>,
    /// Bodies of requests.
    request_bytes: Arc<Room>,
    /// Bodies of answers that arrive.
    answer_bytes: Arc<Room>,
    /// Connections that speak another protocol, or ask for it.
    upgraded: Arc<Room>,
    /// Requests to the backend.
    under_way: Arc<Room>,
    requests: AtomicU64,
    failures: AtomicU64,
    holds_refused: AtomicU64,
    /// True while the backend does not answer, which is logged once.
    is_failing: AtomicBool,
    /// True after its first instructions that cannot be followed.
    was_misled: AtomicBool,
}

impl Counts {
    fn new(settings: &ProxySettings) -> Counts {
        Counts {
            held: Room::new(settings.held_max, settings.held_bytes_max),
            request_bytes: Room::new(usize::MAX, settings.requests_bytes_max),
            answer_bytes: Room::new(usize::MAX, settings.responses_bytes_max),
            upgraded: Room::new(settings.upgraded_connections_max, usize::MAX),
            under_way: Room::new(settings.requests_max, usize::MAX),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            holds_refused: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
            was_misled: AtomicBool::new(false),
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let rooms = [&self.held, &self.request_bytes, &self.answer_bytes, &self.under_way, &self.upgraded];
        let [held, request, answer, under_way, upgraded] = rooms.map(|room| room.used());
        let gauge = |name, help, value| Metric::gauge(name, help).with(&[], value as u64);
        let counter =
            |name, help, value: &AtomicU64| Metric::counter(name, help).with(&[], value.load(Ordering::Relaxed));
        vec![
            gauge("encke_proxy_held", "Responses of the backend that are held.", held.count),
            gauge("encke_proxy_held_bytes", "The bytes of these responses.", held.bytes),
            gauge("encke_proxy_request_bytes", "Bytes of bodies on their way to the backend.", request.bytes),
            gauge("encke_proxy_answer_bytes", "Bytes of answers that arrive from the backend.", answer.bytes),
            gauge("encke_proxy_under_way", "Requests that the backend has not answered yet.", under_way.count),
            gauge("encke_proxy_upgraded", "Connections that speak another protocol with the backend.", upgraded.count),
            counter("encke_proxy_requests", "Requests passed to the backend.", &self.requests),
            counter(
                "encke_proxy_failures",
                "Requests that the backend did not answer, or not in time.",
                &self.failures,
            ),
            counter(
                "encke_proxy_holds_refused",
                "Responses that were not held: too many, or invalid instructions.",
                &self.holds_refused,
            ),
        ]
    }
}

impl Proxy {
    /// A proxy for a running server, whose publications release what is held.
    ///
    /// # Errors
    /// A setting that cannot work.
    pub fn new(settings: ProxySettings, handle: Handle) -> Result<Proxy, ProxyError> {
        let backend = settings.check()?;
        let fetcher = Fetcher::new(settings.limits(), None)?;
        let counts = Arc::new(Counts::new(&settings));
        let read = counts.clone();
        handle.add_metrics(move || read.metrics());
        Ok(Proxy { shared: Arc::new(Backend { settings, backend, handle, counts }), fetcher })
    }

    /// True if a path goes to the backend.
    pub fn takes(&self, path: &str) -> bool {
        let below = |prefix: &String| {
            let prefix = prefix.trim_end_matches('/');
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.shared.settings.paths.iter().any(below)
    }

    /// Passes a request to the backend, and answers when the backend has answered or the response is released.
    pub async fn answer<B>(&self, request: Request<B>, client: RequestClient) -> Response<ProxyBody>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let Backend { settings, counts, .. } = &*self.shared;
        let is_head = *request.method() == Method::HEAD;
        let protocols = &settings.upgrade_protocols;
        let protocol = upgrade_of(request.headers(), protocols).filter(|_| request.body().is_end_stream());
        let owner = client.address.map(encke::network);
        let (forwarded, body) = match self.forwarded(request, &client, owner).await {
            Ok(forwarded) => forwarded,
            Err((status, reason)) => return text(status, reason),
        };
        let timeout = Duration::from_millis(settings.timeout_ms);
        let Ok(turn) = tokio::time::timeout(timeout, counts.under_way.wait(owner)).await else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "the backend is busy\n");
        };
        counts.requests.fetch_add(1, Ordering::Relaxed);
        let mut answer_bytes = counts.answer_bytes.begin();
        let mut has_room = |bytes| answer_bytes.grow(owner, bytes) || bytes <= SMALL_BODY_BYTES;
        let answered = match protocol {
            None => self.exchanged(self.fetcher.send_once(forwarded, &mut has_room).await),
            Some(protocol) => self.upgrade(forwarded, protocol, owner, &mut has_room).await,
        };
        let mut answer = match answered {
            Ok(answer) => answer,
            Err(answered) => return *answered,
        };
        drop((turn, body, answer_bytes));
        remove_hop_by_hop(answer.headers_mut());
        let hold = instruct::of(&mut answer);
        if !is_head {
            answer.headers_mut().remove(CONTENT_LENGTH);
        }
        match hold {
            Ok(None) => answer.map(ProxyBody::whole),
            Ok(Some(hold)) => self.hold(answer, hold, owner).await,
            Err(reason) => {
                self.misled(&reason);
                text(StatusCode::BAD_GATEWAY, "the backend's instructions are invalid\n")
            }
        }
    }

    /// The backend's answer. An error is counted, and becomes a response.
    fn exchanged<T>(&self, outcome: Result<T, FetchError>) -> Result<T, Box<Response<ProxyBody>>> {
        let counts = &self.shared.counts;
        match outcome {
            Ok(answer) => {
                counts.is_failing.store(false, Ordering::Relaxed);
                Ok(answer)
            }
            Err(FetchError::NoRoom) => {
                let reason = "too many large answers are under way\n";
                Err(Box::new(text(StatusCode::SERVICE_UNAVAILABLE, reason)))
            }
            Err(error) => {
                counts.failures.fetch_add(1, Ordering::Relaxed);
                if !counts.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the backend did not answer (further failures are counted only)");
                }
                Err(Box::new(failed(&error)))
            }
        }
    }

    /// Passes a request for another protocol, such as a WebSocket, and then the bytes of both sides as they are. Returns the answer
    /// of a backend that does not switch, or else the response.
    async fn upgrade(
        &self,
        mut request: Request<Bytes>,
        protocol: HeaderValue,
        owner: Owner,
        has_room: &mut HasRoom<'_>,
    ) -> Result<Response<Bytes>, Box<Response<ProxyBody>>> {
        let Backend { settings, counts, .. } = &*self.shared;
        let Some(taken) = counts.upgraded.take(owner, 0) else {
            let reason = "too many connections speak another protocol\n";
            return Err(Box::new(text(StatusCode::SERVICE_UNAVAILABLE, reason)));
        };
        switch(request.headers_mut(), protocol);
        let switched = match self.exchanged(self.fetcher.upgrade(request, has_room).await)? {
            Upgrade::Response(answer) => return Ok(answer),
            Upgrade::Switched(switched) => switched,
        };
        let (mut head, mut backend) = switched.into_parts();
        let Some(protocol) = upgrade_of(&head.headers, &settings.upgrade_protocols) else {
            return Err(Box::new(text(StatusCode::BAD_GATEWAY, "the backend switches to another protocol\n")));
        };
        remove_hop_by_hop(&mut head.headers);
        switch(&mut head.headers, protocol);
        head.extensions.insert(TakeOver::new(|mut client, rest| async move {
            let _taken = taken;
            if backend.write_all(&rest).await.is_ok() {
                // Whichever side ends or breaks, the other one gets its bytes and its end.
                let _ended = copy_bidirectional(&mut client, &mut backend).await;
            }
        }));
        Err(Box::new(Response::from_parts(head, ProxyBody::whole(""))))
    }

    async fn answer_boxed(self, request: Request<RequestBody>, client: RequestClient) -> Response<ResponseBody> {
        let never = |never: Infallible| match never {};
        self.answer(request, client).await.map(|body| body.map_err(never).boxed_unsync())
    }

    /// The request for the backend, and the bytes of its body.
    async fn forwarded<B>(
        &self,
        request: Request<B>,
        client: &RequestClient,
        owner: Owner,
    ) -> Result<(Request<Bytes>, Taken), (StatusCode, &'static str)>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        if *request.method() == Method::CONNECT {
            return Err((StatusCode::NOT_IMPLEMENTED, "the backend is no tunnel\n"));
        }
        if has_dot_segments(request.uri().path()) {
            return Err((StatusCode::BAD_REQUEST, "a path for the backend has no dot segments\n"));
        }
        let (mut parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let url = format!("{}{target}", self.shared.backend);
        parts.uri = url.parse().map_err(|_| (StatusCode::BAD_REQUEST, "this is no target for the backend\n"))?;
        parts.version = http::Version::HTTP_11;
        forward(&mut parts.headers, client);
        let timeout = Duration::from_millis(self.shared.settings.timeout_ms);
        match tokio::time::timeout(timeout, self.collect(body, owner)).await {
            Ok(Ok((body, taken))) => Ok((Request::from_parts(parts, body), taken)),
            Ok(Err(refusal)) => Err(refusal),
            Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body took too long\n")),
        }
    }

    /// A whole body. A small one has room in any case, so that clients with large bodies do not keep others out.
    async fn collect<B>(&self, body: B, owner: Owner) -> Result<(Bytes, Taken), (StatusCode, &'static str)>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let Backend { settings, counts, .. } = &*self.shared;
        let mut taken = counts.request_bytes.begin();
        let (mut body, mut whole) = (pin!(Limited::new(body, settings.request_bytes_max)), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                true => (StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than request_bytes_max\n"),
                false => (StatusCode::BAD_REQUEST, "the body did not arrive whole\n"),
            })?;
            whole.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if !taken.grow(owner, whole.capacity()) && whole.len() > SMALL_BODY_BYTES {
                return Err((StatusCode::SERVICE_UNAVAILABLE, "too many large requests are under way\n"));
            }
        }
        Ok((whole.freeze(), taken))
    }

    /// Holds the answer of the backend, as it has instructed.
    async fn hold(&self, answer: Response<Bytes>, instruct: instruct::Hold, owner: Owner) -> Response<ProxyBody> {
        let Backend { settings, counts, .. } = &*self.shared;
        let keep_alive_bytes = instruct.keep_alive.as_ref().map_or(0, |keep| keep.content.len());
        let headers: usize = answer.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        let bytes = answer.body().len() + headers + keep_alive_bytes;
        let Some(taken) = counts.held.take(owner, bytes) else {
            counts.holds_refused.fetch_add(1, Ordering::Relaxed);
            return text(StatusCode::SERVICE_UNAVAILABLE, "too many responses are held\n");
        };
        let hold = match self.on_channels(instruct.channels) {
            Ok(hold) => hold,
            Err(reason) => {
                self.misled(&reason);
                return text(StatusCode::BAD_GATEWAY, "the backend names no valid channel, or too many\n");
            }
        };
        if instruct.mode == Mode::Stream {
            return answer.map(|first| ProxyBody::stream(first, hold, instruct.keep_alive, taken));
        }
        let longest = Duration::from_millis(settings.hold_timeout_max_ms);
        let timeout = instruct.timeout.unwrap_or(Duration::from_millis(settings.hold_timeout_ms)).min(longest);
        let mut hold = hold.timeout(timeout);
        match hold.next().await {
            Release::Message(message) => item::response(message.data(), message.side()).map(ProxyBody::whole),
            // The client asks again, and the backend sees what is there.
            _ => answer.map(ProxyBody::whole),
        }
    }

    fn on_channels(&self, channels: Vec<(String, encke::Start)>) -> Result<Hold, String> {
        if channels.len() > self.shared.settings.hold_channels_max {
            return Err(format!("{} channels, more than hold_channels_max", channels.len()));
        }
        let hold = self.shared.handle.hold();
        let held = channels.iter().try_fold(hold, |hold, (channel, start)| hold.on_from(channel, start));
        held.map_err(|error| error.to_string())
    }

    /// Counts instructions that cannot be followed. The first reason is a warning in the log.
    fn misled(&self, reason: &dyn Display) {
        let counts = &self.shared.counts;
        counts.holds_refused.fetch_add(1, Ordering::Relaxed);
        if !counts.was_misled.swap(true, Ordering::Relaxed) {
            tracing::warn!("the backend's instructions are invalid (further ones are counted only): {reason}");
        }
    }
}

impl Fallback for Proxy {
    fn takes(&self, path: &str) -> bool {
        Proxy::takes(self, path)
    }

    fn answer(&self, request: Request<RequestBody>, client: RequestClient) -> FallbackResponse {
        Box::pin(self.clone().answer_boxed(request, client))
    }
}

/// Bytes of a body that has room in any case.
const SMALL_BODY_BYTES: usize = 16 * 1024;

/// The response to a request that the backend did not answer.
fn failed(error: &FetchError) -> Response<ProxyBody> {
    match error {
        FetchError::HostBusy { .. } => text(StatusCode::SERVICE_UNAVAILABLE, "the backend is busy\n"),
        error if error.is_timeout() => text(StatusCode::GATEWAY_TIMEOUT, "the backend did not answer in time\n"),
        FetchError::ResponseTooLarge { .. } => text(StatusCode::BAD_GATEWAY, "the backend's answer is too large\n"),
        FetchError::Connect(_) => text(StatusCode::BAD_GATEWAY, "the backend cannot be reached\n"),
        _ => text(StatusCode::BAD_GATEWAY, "the backend's answer is invalid\n"),
    }
}

fn text(status: StatusCode, text: &'static str) -> Response<ProxyBody> {
    let mut response = Response::new(ProxyBody::whole(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
