//! The HTTP API below `/api/v1/`: applications that run beside the server publish, deliver, list and manage.
//!
//! ```text
//!   request ─▶ routes (path, method) ─▶ access (key, scope) ─▶ input (query, body) ─▶ operation ─▶ JSON, or a problem
//! ```
//!
//! [`routes`] is the one table of operations, [`types`] has their requests and responses; [`openapi`] makes the document
//! from both.

mod access;
mod added;
mod attributes;
mod call;
mod channels;
mod info;
mod input;
mod openapi;
mod problem;
mod publish;
mod routes;
mod session_store;
mod sessions;
mod types;

pub(crate) use access::{is_from_here, may_read_metrics};

use std::rc::Rc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderName};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};

use self::call::{Answer, Call};
use self::input::Query;
use self::problem::{Kind, Problem};
use self::routes::Route;
use super::connection::Connection;
use super::guard::{Guard, Pages};
use super::{Body, bayeux, coding, typed, unread, with};
use crate::fallback::RequestBody;
use encke_core::Settings;

/// Keys decide about its requests, and the table of routes about their methods.
const GUARD: Guard = Guard {
    pages: Pages::All,
    methods: "GET, HEAD, POST, DELETE",
    not_allowed: |methods| Problem::method(methods).response(),
};

/// True if a path belongs to the API.
pub(crate) fn is_of_api(path: &str) -> bool {
    path.strip_prefix(routes::ROOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request for the API.
pub(crate) async fn answer(
    connection: &Rc<Connection>,
    settings: &Settings,
    request: Request<RequestBody>,
) -> Response<Body> {
    let metrics = connection.node.shard().metrics().clone();
    metrics.api_requests.add(1);
    let path = request.uri().path().strip_prefix(routes::ROOT).unwrap_or_default();
    // hyper leaves out the body of the response to HEAD.
    let method = if request.method() == Method::HEAD { "GET" } else { request.method().as_str() };
    let operations = &connection.node.server().api.added_operations;
    let added = operations.all();
    if path == routes::DOCUMENT {
        let response = match method {
            "GET" => typed(StatusCode::OK, "application/json", operations.document(openapi::text)),
            _ => GUARD.refuse_method("GET, HEAD", &request),
        };
        return unread(response, &request);
    }
    let (route, id) = match routes::find(path, method, &added) {
        Some(Ok((route, id))) => (route, id.to_owned()),
        Some(Err(allow)) => return GUARD.refuse_method(allow, &request),
        None => {
            let problem = Problem::new(Kind::NOT_FOUND, "there is no such operation: see /api/v1/openapi.json");
            return unread(problem.response(), &request);
        }
    };
    let keys = connection.node.server().api.keys.read().clone();
    let key_name = match access::check(connection, settings, &keys, &request, route.scope) {
        Ok(key_name) => key_name,
        Err(problem) => {
            metrics.api_keys_refused.add(1);
            return unread(problem.response(), &request);
        }
    };
    let (parts, body) = request.into_parts();
    let outcome = match read(connection, settings, &route, &parts, body).await {
        Ok((query, body)) => {
            let (headers, id, key_name) = (&parts.headers, &*id, &*key_name);
            let (path, added) = (route.path, &added);
            let call = Call { connection, settings, path, added, headers, query, id, key_name, body: &body };
            run(&route, &call).await
        }
        Err(problem) => Err(problem),
    };
    match outcome {
        Ok(Answer { status, body, is_repeated, compresses }) => {
            let is_problem = status.is_client_error() || status.is_server_error();
            let kind = if is_problem { "application/problem+json" } else { "application/json" };
            let fields = [(CACHE_CONTROL, "no-store"), (HeaderName::from_static("idempotency-replayed"), "true")];
            let is_taken = compresses && coding::takes_gzip(&parts.headers);
            let body = connection.counted(body);
            let (body, is_gzip) = if is_taken { coding::form(connection, body).await } else { (body, false) };
            let response = with(typed(status, kind, body), &fields[..1 + usize::from(is_repeated)]);
            if compresses { coding::with_fields(response, is_gzip) } else { response }
        }
        Err(problem) => problem.response(),
    }
}

/// Reads the query and the body of a request. An operation without a body leaves it unread.
async fn read(
    connection: &Connection,
    settings: &Settings,
    route: &Route,
    parts: &Parts,
    body: RequestBody,
) -> Result<(Query, Bytes), Problem> {
    let known: Vec<&str> = route.parameters.iter().filter(|known| !known.is_in_path).map(|known| known.name).collect();
    let has_body = !hyper::body::Body::is_end_stream(&body);
    let query = Query::parse(parts.uri.query().unwrap_or_default(), &known);
    if route.body.is_none() {
        let refused = || Problem::new(Kind::INVALID, "this operation has no body").and_close();
        return if has_body { Err(refused()) } else { query.map(|query| (query, Bytes::new())) };
    }
    let close = |problem: Problem| if has_body { problem.and_close() } else { problem };
    let query = query.map_err(close)?;
    input::check_media_type(&parts.headers)?;
    let body = bayeux::collect(connection, body, settings).await.map_err(|refusal| {
        let kind = match refusal.status {
            StatusCode::PAYLOAD_TOO_LARGE => Kind::TOO_LARGE,
            StatusCode::REQUEST_TIMEOUT => Kind::TIMEOUT,
            StatusCode::SERVICE_UNAVAILABLE => Kind::BUSY,
            _ => Kind::INVALID,
        };
        Problem::new(kind, refusal.text.trim_end()).and_close()
    })?;
    Ok((query, body))
}

async fn run(route: &Route, call: &Call<'_>) -> Result<Answer, Problem> {
    let (connection, reads) = (call.connection, route.method == "GET");
    let busy = || Problem::new(Kind::BUSY, "responses that their clients do not read fill the room for responses");
    if reads && !connection.room_for_response(call.settings).await {
        return Err(busy());
    }
    let answer = (route.run)(call).await?;
    // Others may have been answered meanwhile.
    let has_room = !reads || connection.node.shard().has_room_for(answer.body.len());
    if has_room { Ok(answer) } else { Err(busy()) }
}
