//! `GET /stream/CHANNEL`: the messages of channels and patterns, for clients without Bayeux. Such a client gets a session that
//! is opened, subscribed and ended for it, so all limits and rights of sessions hold.
//!
//! ```text
//!   GET /stream/stock/GOOG           one channel; the id of each event is its position
//!   GET /stream/stock/*,/news        several; the id names the positions of all
//!   Last-Event-ID: k3jd9a2f-17       goes on behind this position; ?after=… does the same
//! ```

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use bayeux::channel::covers;
use bayeux::ext::{ExtWriter, Recovery, ReplayFrom};
use bayeux::limits::INTERVAL_MS_MAX;
use bayeux::{ChannelName, RawJson, escape_into};
use http::header::{HeaderName, ORIGIN, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use hyper::body::Body as _;

use super::bayeux::{Asking, Unanswered, ask};
use super::connection::Connection;
use super::{Body, closing, form, guard, origin, stream, text, with};
use crate::fallback::RequestBody;
use crate::net::stream_request::{Served, StreamRequest};
use encke_core::history::Ring;
use encke_core::{Format, Head, HttpTransport, Peer, Reached, Settings, StreamOpener};
use encke_local::{Positions, Start};

/// The channels in a path below `stream_path`, which are still encoded.
pub(super) fn channels_in<'a>(settings: &Settings, path: &'a str) -> Option<&'a str> {
    guard::below(&settings.stream_path, path)
}

/// Answers a request below `stream_path`.
pub(super) async fn answer(
    connection: &Rc<Connection>,
    settings: &Settings,
    request: Request<RequestBody>,
) -> Response<Body> {
    let origin = match guard::READ_BY_PAGES.check(connection, settings, &request) {
        Ok(origin) => origin,
        Err(response) => return *response,
    };
    let mut response = if !request.body().is_end_stream() {
        closing(text(StatusCode::BAD_REQUEST, "a GET has no body\n"))
    } else {
        match Wanted::of(settings, &request) {
            Err(refusal) => text(StatusCode::BAD_REQUEST, refusal),
            Ok(wanted) if connection.node.shard().is_draining() => {
                stream::come_back(connection, settings, wanted.format)
            }
            Ok(wanted) => {
                let client = connection.client(request.headers());
                let (head, peer) = (connection.head(&request, &client), connection.peer(&client));
                let is_of_page = request.headers().contains_key(ORIGIN);
                // Its headers are not needed while it waits for decisions.
                drop(request);
                let subscribed = subscribe(connection, head, peer, &wanted).await;
                subscribed.map_or_else(Refusal::response, |subscribed| {
                    let opener = StreamOpener { browser: None, is_of_page, peer };
                    let Subscribed { client, introduction, reached } = subscribed;
                    let introduction =
                        format!("{}{}{introduction}", stream::introduction(wanted.format), wanted.padding());
                    stream::begin(
                        connection,
                        StreamRequest {
                            client,
                            opener,
                            format: wanted.format,
                            introduction,
                            reached,
                            served: Served::Here,
                        },
                    )
                })
            }
        }
    };
    origin::allow(&origin, response.headers_mut());
    response
}

/// The parts of a valid request.
struct Wanted {
    /// Channels and patterns.
    names: Vec<String>,
    format: Format,
    start: Start,
    /// The client comes back with an id that names no positions.
    has_lost_position: bool,
    padding_bytes: usize,
    /// The least time between two messages of a channel, in milliseconds.
    min_interval_ms: u32,
}

impl Wanted {
    fn of<B>(settings: &Settings, request: &Request<B>) -> Result<Wanted, &'static str> {
        let path = channels_in(settings, request.uri().path()).unwrap_or_default();
        let path = form::decode(path.as_bytes()).ok_or("the path is not UTF-8\n")?;
        let names =
            path.split(",/").enumerate().map(|(at, name)| if at == 0 { name.into() } else { format!("/{name}") });
        let mut names: Vec<String> = names.collect();
        if names.len() > NAMES_MAX {
            return Err("too many channels\n");
        }
        let mut known = HashSet::new();
        names.retain(|name| known.insert(name.clone()));
        let mut format = match stream::wanted(request.headers()) {
            Some(Format::Lines) => Format::MessageLines,
            _ => Format::Messages,
        };
        let (mut after, mut padding_bytes, mut min_interval_ms) = (None, 0, 0);
        for field in form::fields(request.uri().query().unwrap_or_default().as_bytes()) {
            let (name, value) = field.ok_or("the query is not UTF-8\n")?;
            match (name.as_str(), value.as_str()) {
                ("after" | "last_event_id", _) => after = Some(value),
                ("format", "ndjson") => format = Format::MessageLines,
                ("format", "events") => format = Format::Messages,
                ("format", _) => return Err("format is events or ndjson\n"),
                ("min_interval_ms", _) => {
                    min_interval_ms = value.parse().ok().filter(|ms| *ms <= INTERVAL_MS_MAX).ok_or(NO_INTERVAL)?
                }
                ("padding", _) => padding_bytes = value.parse().map_err(|_| "padding is not a number of bytes\n")?,
                _ => {}
            }
        }
        // An `EventSource` that comes back has the address of its first request.
        if let Some(id) = request.headers().get(LAST_EVENT_ID).filter(|id| !id.is_empty()) {
            after = Some(id.to_str().map_err(|_| NO_POSITION)?.to_owned());
        }
        let has_lost_position = after.as_deref() == Some(Reached::UNKNOWN);
        let after = after.filter(|after| !has_lost_position && !after.is_empty());
        let start = after.map_or(Ok(Start::Latest), |after| after.parse()).map_err(|_| NO_POSITION)?;
        if padding_bytes > PADDING_BYTES_MAX {
            return Err("padding is at most 65536 bytes\n");
        }
        let wanted = Wanted { names, format, start, has_lost_position, padding_bytes, min_interval_ms };
        match &wanted.start {
            Start::After(_) | Start::Earliest if min_interval_ms > 0 => Err(NO_POSITION_WITH_INTERVAL),
            Start::After(positions) if wanted.has_several() && !positions.are_named() => Err(NO_POSITION),
            _ => Ok(wanted),
        }
    }

    /// True if ids name the positions of several channels.
    fn has_several(&self) -> bool {
        self.names.len() > 1 || self.names.iter().any(|name| name.ends_with('*'))
    }

    /// A comment that fills the buffers of proxies.
    fn padding(&self) -> String {
        match self.padding_bytes {
            0 => String::new(),
            bytes if self.format == Format::Messages => format!(":{}\n\n", " ".repeat(bytes)),
            bytes => format!("{}\n", " ".repeat(bytes)),
        }
    }
}

/// A session with its subscriptions.
struct Subscribed {
    client: String,
    introduction: String,
    reached: Option<Reached>,
}

/// The reason why there is none.
struct Refusal(String);

impl Refusal {
    /// A Bayeux error as an HTTP response.
    fn response(self) -> Response<Body> {
        let status = match self.0.split(':').next() {
            Some("401") => StatusCode::UNAUTHORIZED,
            Some("403") => StatusCode::FORBIDDEN,
            Some("429") => StatusCode::TOO_MANY_REQUESTS,
            Some("503") => StatusCode::SERVICE_UNAVAILABLE,
            // No room for one more, which may change.
            Some("413") if self.0.ends_with("::sessions_max") || self.0.ends_with("channels_max") => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::BAD_REQUEST,
        };
        let again = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        with(text(status, format!("{}\n", self.0)), if again { &[(RETRY_AFTER, "5")] } else { &[] })
    }
}

/// Opens a session for the sender of a request and subscribes it.
async fn subscribe(
    connection: &Connection,
    head: Option<Arc<Head>>,
    peer: Peer,
    wanted: &Wanted,
) -> Result<Subscribed, Refusal> {
    let handshake = r#"[{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["eventsource"]}]"#;
    let reply = call(connection, head, peer, handshake.into()).await?;
    let member = |name: &str| RawJson::trusted(&reply).member(name).and_then(RawJson::text);
    let client = member("clientId").unwrap_or_default().into_owned();
    // Before the subscription, so that nothing is missed.
    let has_positions = wanted.min_interval_ms == 0;
    let latest = if has_positions && wanted.start == Start::Latest && wanted.has_several() {
        latest(connection, wanted)
    } else {
        None
    };
    let mut subscribe = br#"[{"channel":"/meta/subscribe","clientId":""#.to_vec();
    subscribe.extend_from_slice(client.as_bytes());
    subscribe.extend_from_slice(br#"","subscription":["#);
    for (at, name) in wanted.names.iter().enumerate() {
        subscribe.extend_from_slice(if at > 0 { b"," } else { b"" });
        escape_into(name, &mut subscribe);
    }
    let mut ext = ExtWriter::default();
    match wanted.min_interval_ms {
        0 => ext.positions(&positions(wanted, latest.as_ref())),
        ms => ext.min_interval(ms),
    }
    subscribe.extend_from_slice(b"],\"ext\":");
    subscribe.extend_from_slice(ext.finish().unwrap_or_else(|| "{}".into()).as_bytes());
    subscribe.extend_from_slice(b"}]");
    match call(connection, None, peer, String::from_utf8(subscribe).unwrap_or_default()).await {
        Ok(reply) => Ok(introduce(client, &reply, wanted, latest.is_some())),
        Err(refusal) => {
            let disconnect = format!("[{{\"channel\":\"/meta/disconnect\",\"clientId\":\"{client}\"}}]");
            call(connection, None, peer, disconnect).await?;
            Err(refusal)
        }
    }
}

/// The successful reply to a batch of one message.
async fn call(connection: &Connection, head: Option<Arc<Head>>, peer: Peer, batch: String) -> Result<String, Refusal> {
    let asking = Box::new(Asking { browser: None, head, peer, is_https: false, takes_gzip: false });
    let answer = ask(connection, HttpTransport::Subscription, asking, batch).await;
    let (answer, _receipt) = answer.map_err(|unanswered| {
        let error = if unanswered == Unanswered::Busy { "503::server_busy" } else { "503::server_draining" };
        Refusal(error.into())
    })?;
    let reply = String::from_utf8_lossy(&answer.body);
    let reply = reply.trim_start_matches('[').trim_end_matches(']').to_owned();
    let raw = RawJson::trusted(&reply);
    if raw.member("successful").is_some_and(|successful| successful.as_str() == "true") {
        return Ok(reply);
    }
    Err(Refusal(raw.member("error").and_then(RawJson::text).map_or_else(|| "400::bad_request".into(), String::from)))
}

/// The positions at which all channels begin that have a history now: with new messages, or with the latest one where their rule retains
/// it. None if they are too many to name.
fn latest(connection: &Connection, wanted: &Wanted) -> Option<Positions> {
    let shard = connection.node.shard();
    let histories = &shard.shared().histories;
    let mut positions = Positions::default();
    let mut count = 0;
    for name in &wanted.names {
        let name = ChannelName::parse(name, &bayeux::Limits::from(&**shard.settings())).ok()?;
        let channels = histories.matching(name, None, POSITIONS_MAX + 1, |_| true);
        if channels.len() > POSITIONS_MAX {
            return None;
        }
        for channel in channels {
            // Several patterns may match it.
            if positions.of(&channel).is_some() {
                continue;
            }
            count += 1;
            if count > POSITIONS_MAX {
                return None;
            }
            let ring = histories.find(&channel, 0).map(|position| position.ring);
            let rule = shard.settings().channels.iter().find(|rule| covers(&rule.pattern, &channel));
            let is_retained = rule.is_some_and(|rule| rule.retain_last);
            let first = |ring: &Ring| if is_retained { ring.last(1) } else { ring.next() };
            let begin = |ring: &Ring| (ring.epoch().clone(), first(ring).saturating_sub(1));
            let position = ring.and_then(|ring| histories.with(ring, begin));
            if let Some((epoch, offset)) = position {
                positions.insert(&channel, encke_local::Position { epoch, offset });
            }
        }
    }
    Some(positions)
}

/// The positions as a subscribe names them.
fn positions<'a>(wanted: &'a Wanted, latest: Option<&'a Positions>) -> BTreeMap<String, ReplayFrom<'a>> {
    let after = |position: &'a encke_local::Position| ReplayFrom::After {
        offset: position.offset,
        epoch: Some((*position.epoch).into()),
    };
    let all = |from: &ReplayFrom<'a>| wanted.names.iter().map(|name| (name.clone(), from.clone())).collect();
    let known = match (&wanted.start, latest) {
        (Start::Latest, None) => return BTreeMap::new(),
        (Start::Earliest, _) => return all(&ReplayFrom::Earliest),
        (Start::Latest, Some(known)) | (Start::After(known), _) => known,
    };
    if let [name] = &wanted.names[..]
        && !wanted.has_several()
    {
        // It had no history when there is no position.
        return [(name.clone(), known.of(name).map_or(ReplayFrom::Earliest, after))].into();
    }
    let mut positions: BTreeMap<_, _> = all(&ReplayFrom::Earliest);
    positions.extend(known.named().map(|(channel, position)| (channel.to_owned(), after(position))));
    positions
}

/// The text before the first message: the position at which the stream begins, and what is missing before.
fn introduce(client: String, reply: &str, wanted: &Wanted, knows_all: bool) -> Subscribed {
    let ext = RawJson::trusted(reply).member("ext").and_then(|ext| ext.member("replay"));
    let (mut introduction, mut reached) = (String::new(), Reached::default());
    let mut lone = None;
    let mut gap = |gap: String| {
        let event = if wanted.format == Format::Messages { "event: gap\ndata: " } else { "" };
        let end = if wanted.format == Format::Messages { "\n\n" } else { "\n" };
        introduction.push_str(&format!("{event}{{\"gap\":\"gone\"{gap}}}{end}"));
    };
    if wanted.has_lost_position {
        gap(String::new());
    }
    for (channel, answer) in ext.into_iter().flat_map(RawJson::members) {
        let (Some(channel), Some(recovery)) = (channel.decode(), Recovery::read(answer)) else { continue };
        if let Some(from) = &recovery.from {
            let position = format!("{}-{}", from.epoch, from.offset.saturating_sub(1));
            reached.insert(&channel, &position);
            lone = Some(position);
        }
        if !recovery.recovered {
            gap(format!(",\"channel\":\"{channel}\""));
        }
    }
    let knows_all = knows_all || wanted.start != Start::Latest;
    let (id, reached) = match wanted.has_several() {
        false => (lone, None),
        true if knows_all => (Some(reached.id()).filter(|id| !id.is_empty()), Some(reached)),
        true => (Some(Reached::UNKNOWN.into()), Some(Reached::unknown())),
    };
    if let Some(id) = id.filter(|_| wanted.format == Format::Messages) {
        introduction.push_str(&format!("id: {id}\n\n"));
    }
    Subscribed { client, introduction, reached: reached.filter(|_| wanted.format == Format::Messages) }
}

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const NO_INTERVAL: &str = "min_interval_ms is from 0 to 60000\n";
const NO_POSITION_WITH_INTERVAL: &str = "min_interval_ms and a position exclude each other\n";
const NO_POSITION: &str = "Last-Event-ID or after is not a position\n";
/// The most channels and patterns in one path.
const NAMES_MAX: usize = 64;
/// The most channels with a history that one name may match, so that ids name their positions.
const POSITIONS_MAX: usize = 64;
/// The most bytes of padding.
const PADDING_BYTES_MAX: usize = 64 * 1024;
