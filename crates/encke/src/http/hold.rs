//! `GET /hold/CHANNEL`: a request that is held until a message comes on a channel or a pattern. It is decided about like
//! a subscribe, and needs no session.
//!
//! ```text
//!   GET /hold/chat/*?after=POSITION&timeout=30
//!   200  [{"channel":"/chat/a","data":"hello","position":"k3jd9a2f-17"}]     a message came
//!   200  []                                                                 the time is over
//!        link: </hold/chat/*?after=/chat/a:k3jd9a2f-17>; rel="next"          continues without a loss
//! ```

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, HeaderValue, LINK, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use hyper::body::Body as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::connection::Connection;
use super::origin::{self, Origin};
use super::sessionless::{check_credentials, decide};
use super::{Body, closing, form, guard, text, typed, with};
use crate::fallback::RequestBody;
use encke_core::{Entry, Granted, Identity, Over, Settings};
use encke_local::{Gap, Message, Start, SubscribeError, Subscription, held_body};

/// The channel in a path below `hold_path`, which is still encoded.
pub(crate) fn channel_in<'a>(settings: &Settings, path: &'a str) -> Option<&'a str> {
    guard::below(&settings.hold_path, path)
}

/// Answers a request below `hold_path`.
pub(crate) async fn answer(
    connection: &Rc<Connection>,
    settings: &Settings,
    request: Request<RequestBody>,
) -> Response<Body> {
    let origin = match guard::READ_BY_PAGES.check(connection, settings, &request) {
        Ok(origin) => origin,
        Err(response) => return *response,
    };
    let mut response = if request.body().is_end_stream() {
        match Wanted::of(settings, &request) {
            Ok(wanted) => match decide(connection, &request, wanted.entry(), &wanted.channel).await {
                Ok((identity, granted)) => {
                    let address = connection.client(request.headers()).address;
                    // Its headers are not needed while it is held.
                    drop(request);
                    hold(connection, settings, &wanted, address, identity.as_deref(), granted).await
                }
                Err(StatusCode::TOO_MANY_REQUESTS) => refused(connection, TOO_MANY, "too many requests\n"),
                Err(status) => text(status, "not allowed\n"),
            },
            Err(refusal) => text(StatusCode::BAD_REQUEST, refusal),
        }
    } else {
        closing(text(StatusCode::BAD_REQUEST, "a GET has no body\n"))
    };
    origin::allow(&origin, response.headers_mut());
    if matches!(origin, Origin::Allowed(_) | Origin::Anybody) {
        response.headers_mut().insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("link"));
    }
    response
}

/// The parts of a valid request.
struct Wanted {
    channel: String,
    start: Start,
    timeout: Duration,
    /// The time as the client gave it, for the next request.
    timeout_s: Option<u64>,
}

impl Wanted {
    fn of<B>(settings: &Settings, request: &Request<B>) -> Result<Wanted, &'static str> {
        let path = channel_in(settings, request.uri().path()).unwrap_or_default();
        let channel = form::decode(path.as_bytes()).ok_or("the path is not UTF-8\n")?;
        let (mut start, mut timeout_s) = (Start::Latest, None);
        for field in form::fields(request.uri().query().unwrap_or_default().as_bytes()) {
            let (name, value) = field.ok_or("the query is not UTF-8\n")?;
            match name.as_str() {
                "after" => start = value.parse().map_err(|_| "after is not a position\n")?,
                "timeout" => timeout_s = Some(value.parse().map_err(|_| "timeout is not a number of seconds\n")?),
                _ => {}
            }
        }
        let timeout_ms = timeout_s.map_or(TIMEOUT_MS, |seconds: u64| seconds.saturating_mul(1_000));
        let timeout = Duration::from_millis(timeout_ms.min(settings.hold_timeout_max_ms));
        Ok(Wanted { channel, start, timeout, timeout_s })
    }

    /// The way in.
    fn entry(&self) -> Entry {
        if self.start == Start::Latest { Entry::Hold } else { Entry::HoldAfter }
    }
}

/// Holds a request until a message comes, its time is over, or the server drains.
async fn hold(
    connection: &Connection,
    settings: &Settings,
    wanted: &Wanted,
    address: Option<IpAddr>,
    identity: Option<&Identity>,
    granted: Granted,
) -> Response<Body> {
    let node = &connection.node;
    if node.shard().is_draining() {
        return refused(connection, StatusCode::SERVICE_UNAVAILABLE, "draining\n");
    }
    let _held = match node.server().holds.begin(address, settings) {
        Ok(held) => held,
        Err(Over::All) => {
            return refused(connection, StatusCode::SERVICE_UNAVAILABLE, "too many requests are held\n");
        }
        Err(Over::Part) => {
            return refused(connection, TOO_MANY, "too many requests of this address are held\n");
        }
    };
    let mut subscription =
        match node.server().local.registry.subscribe(settings, &wanted.channel, &wanted.start, granted) {
            Ok(subscription) => subscription,
            Err(error) => {
                let reason = match error {
                    SubscribeError::Channel(_) => "this is no channel or pattern\n",
                    SubscribeError::Positions => "after is not a position of this channel or pattern\n",
                    SubscribeError::TooManyChannels => "the pattern matches too many channels with a history\n",
                    _ => "this cannot be waited for\n",
                };
                return text(StatusCode::BAD_REQUEST, reason);
            }
        };
    let no_room =
        || refused(connection, StatusCode::SERVICE_UNAVAILABLE, "too many responses are not read by their clients\n");
    // Messages of a history are copied when they are read.
    if subscription.is_behind() && !connection.room_for_response(settings).await {
        return no_room();
    }
    let item = first(connection, &mut subscription, wanted.timeout).await;
    let bytes = item.as_ref().map_or(0, |item| item.as_ref().map_or(0, |message| message.json().len()));
    if !node.shard().has_room_for(bytes) && !connection.room_for_response(settings).await {
        return no_room();
    }
    if let Err(status) = check_credentials(connection, identity) {
        return text(status, "not allowed\n");
    }
    let body = held_body(item, &mut subscription, |bytes| {
        bytes < settings.response_bytes_max && node.shard().has_room_for(bytes)
    });
    let mut response = typed(StatusCode::OK, "application/json", connection.counted(body.into()));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(link) = next_link(settings, wanted, &subscription) {
        response.headers_mut().insert(LINK, link);
    }
    response
}

/// The response to a request for which there is no room now.
fn refused(connection: &Connection, status: StatusCode, reason: &'static str) -> Response<Body> {
    connection.node.shard().metrics().holds_refused.add(1);
    with(text(status, reason), &[(RETRY_AFTER, "5")])
}

/// The first item; None if the time is over or the server ends.
async fn first(
    connection: &Connection,
    subscription: &mut Subscription,
    timeout: Duration,
) -> Option<Result<Message, Gap>> {
    connection.health.waits_long.set(true);
    tokio::select! {
        biased;
        item = subscription.next() => item,
        () = connection.node.leaving() => None,
        () = tokio::time::sleep(timeout) => None,
    }
}

/// The request that continues after the last message. None if more channels have positions than a request can name.
fn next_link(settings: &Settings, wanted: &Wanted, subscription: &Subscription) -> Option<HeaderValue> {
    let positions = subscription.positions()?.to_string();
    let (path, timeout) = (&settings.hold_path, wanted.timeout_s.map(|seconds| format!("&timeout={seconds}")));
    let [channel, after] = [&wanted.channel, &positions].map(|text| utf8_percent_encode(text, ENCODED));
    let link = format!("<{path}{channel}?after={after}{}>; rel=\"next\"", timeout.unwrap_or_default());
    HeaderValue::try_from(link).ok()
}

/// Every byte but those that may stand in a path and in a query (RFC 3986 §3.3, §3.4).
const ENCODED: &AsciiSet = &{
    let (mut set, mut plain) = (NON_ALPHANUMERIC.remove(b'-'), b"._~/:,*!$()@".as_slice());
    while let [byte, rest @ ..] = plain {
        (set, plain) = (set.remove(*byte), rest);
    }
    set
};

const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;
/// The time for which a request is held if it names none, in milliseconds.
const TIMEOUT_MS: u64 = 30_000;
