//! `GET /history/CHANNEL`: a page of a channel's history, with the rights of a subscriber and without a session.
//!
//! ```text
//!   GET /history/chat/a?limit=50                        the latest messages, oldest first
//!   GET /history/chat/a?limit=50&before=k3jd9a2f-17     those before a position
//!   GET /history/chat/a?limit=50&after=k3jd9a2f-17      those after it
//! ```

use std::rc::Rc;

use bayeux::{ChannelKind, ChannelName};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use hyper::body::Body as _;

use super::connection::Connection;
use super::sessionless::decide;
use super::{Body, closing, coding, form, guard, origin, text, typed, with};
use crate::fallback::RequestBody;
use encke_core::history::HistoryQuery;
use encke_core::{Entry, Granted, Settings};

/// The channel in a path below `history_path`, which is still encoded.
pub(super) fn channel_in<'a>(settings: &Settings, path: &'a str) -> Option<&'a str> {
    guard::below(&settings.history_path, path)
}

/// Answers a request below `history_path`.
pub(super) async fn answer(
    connection: &Rc<Connection>,
    settings: &Settings,
    request: Request<RequestBody>,
) -> Response<Body> {
    let origin = match guard::READ_BY_PAGES.check(connection, settings, &request) {
        Ok(origin) => origin,
        Err(response) => return *response,
    };
    let mut response = if request.body().is_end_stream() {
        match Wanted::of(connection, settings, &request) {
            Ok(wanted) => match decide(connection, &request, Entry::HistoryRequest, &wanted.channel).await {
                Ok((_, granted)) => {
                    let takes_gzip = coding::takes_gzip(request.headers());
                    drop(request);
                    page(connection, settings, &wanted, granted, takes_gzip).await
                }
                Err(status @ StatusCode::TOO_MANY_REQUESTS) => later(status, "too many requests\n"),
                Err(status) => text(status, "not allowed\n"),
            },
            Err(refusal) => text(StatusCode::BAD_REQUEST, refusal),
        }
    } else {
        closing(text(StatusCode::BAD_REQUEST, "a GET has no body\n"))
    };
    origin::allow(&origin, response.headers_mut());
    response
}

/// The parts of a valid request.
struct Wanted {
    channel: String,
    query: HistoryQuery,
}

impl Wanted {
    fn of<B>(connection: &Connection, settings: &Settings, request: &Request<B>) -> Result<Wanted, &'static str> {
        let path = channel_in(settings, request.uri().path()).unwrap_or_default();
        let channel = form::decode(path.as_bytes()).ok_or("the path is not UTF-8\n")?;
        let is_channel = ChannelName::parse(&channel, connection.node.shard().limits())
            .is_ok_and(|name| name.kind() == ChannelKind::Broadcast && !name.is_pattern());
        if !is_channel {
            return Err("this is no channel\n");
        }
        let (mut before, mut after, mut limit) = (None, None, None);
        for field in form::fields(request.uri().query().unwrap_or_default().as_bytes()) {
            let (name, value) = field.ok_or("the query is not UTF-8\n")?;
            match name.as_str() {
                "before" => before = Some(value),
                "after" => after = Some(value),
                "limit" => limit = Some(value.parse::<u32>().map_err(|_| "limit is not a number\n")?.into()),
                _ => {}
            }
        }
        let query = HistoryQuery::new(before.as_deref(), after.as_deref(), limit);
        Ok(Wanted { channel, query: query.ok_or("before or after is not a position\n")? })
    }
}

/// The response with a page.
async fn page(
    connection: &Connection,
    settings: &Settings,
    wanted: &Wanted,
    granted: Granted,
    takes_gzip: bool,
) -> Response<Body> {
    let node = &connection.node;
    if node.shard().is_short_of_responses() && !connection.room_for_response(settings).await {
        return later(StatusCode::SERVICE_UNAVAILABLE, "too many responses are not read by their clients\n");
    }
    let page = node.server().shared().history_page(&wanted.channel, granted, &wanted.query);
    let body = connection.counted(Bytes::from(page.json));
    let is_taken = page.compresses && takes_gzip;
    let (body, is_gzip) = if is_taken { coding::form(connection, body).await } else { (body, false) };
    let mut response = typed(StatusCode::OK, "application/json", body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if page.compresses { coding::with_fields(response, is_gzip) } else { response }
}

/// The response to a request that may be repeated soon.
fn later(status: StatusCode, reason: &'static str) -> Response<Body> {
    with(text(status, reason), &[(RETRY_AFTER, "5")])
}
