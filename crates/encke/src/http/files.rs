//! Requests for files: those of the directory (setting `files`), those of the program, and the files that a page needs.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, LINK, LOCATION, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::Either;

use super::connection::Connection;
use super::{Body, text, typed, with};
use crate::files::{Directory, FileBody, Found, Room};
use encke_core::Settings;

/// Answers with the file of the request's path. The program's own files come first, except for the start page.
pub(super) async fn answer<B>(
    connection: &Connection,
    settings: &Arc<Settings>,
    request: &Request<B>,
) -> Option<Response<Body>> {
    let is_start = request.uri().path() == "/";
    if is_start && let Some(found) = of_directory(connection, settings, request).await {
        return Some(found);
    }
    if let Some(found) = of_program(connection, settings, request) {
        return Some(found);
    }
    if is_start { None } else { of_directory(connection, settings, request).await }
}

/// The links to the files that the page at this path needs. They leave at once, where the protocol has Early Hints.
pub(super) async fn hint(connection: &Connection, settings: &Settings, path: &str) -> Option<HeaderValue> {
    let node = &connection.node;
    let links = node.server().directory.links(settings, path, node.now().ms).await?;
    connection.hint(&links);
    Some(links)
}

/// The same response with the links, if it is the page, or says that the client has it.
pub(super) fn with_links<B>(mut response: Response<B>, links: Option<HeaderValue>) -> Response<B> {
    if let Some(links) = links.filter(|_| {
        let status = response.status();
        status.is_success() || status == StatusCode::NOT_MODIFIED
    }) {
        response.headers_mut().append(LINK, links);
    }
    response
}

fn of_program<B>(connection: &Connection, settings: &Settings, request: &Request<B>) -> Option<Response<Body>> {
    let path = request.uri().path();
    let resource = connection.node.server().pages.asset(path)?;
    let mut response = resource.respond(request, &room(connection, settings));
    if let Some(cache_control) = Directory::cache_control(settings, path).filter(|_| response.status().as_u16() < 400) {
        response.headers_mut().insert(CACHE_CONTROL, cache_control);
    }
    Some(response.map(body))
}

async fn of_directory<B>(
    connection: &Connection,
    settings: &Arc<Settings>,
    request: &Request<B>,
) -> Option<Response<Body>> {
    let (node, path) = (&connection.node, request.uri().path());
    let found = match node.server().directory.find(settings, path, node.now().ms).await {
        Ok(found) => found?,
        Err(error) => {
            tracing::warn!(%error, path, "a file cannot be read");
            Found::Busy
        }
    };
    Some(match found {
        Found::File(entry) => entry.resource.respond(request, &room(connection, settings)).map(body),
        Found::Folder => {
            let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
            let mut response = text(StatusCode::TEMPORARY_REDIRECT, "");
            let location = HeaderValue::try_from(format!("{path}/{query}")).ok()?;
            response.headers_mut().insert(LOCATION, location);
            response
        }
        Found::List(page) => {
            let fields = [(CACHE_CONTROL, "no-cache"), (CONTENT_SECURITY_POLICY, NO_FILES)];
            with(typed(StatusCode::OK, "text/html; charset=utf-8", page), &fields)
        }
        Found::Busy => {
            let refusal = text(StatusCode::SERVICE_UNAVAILABLE, "this cannot be read at the moment\n");
            with(refusal, &[(RETRY_AFTER, "5")])
        }
    })
}

fn body(body: FileBody) -> Body {
    Either::Right(Either::Left(body))
}

/// The memory that the pieces of a file share with other responses: half of it.
fn room(connection: &Connection, settings: &Settings) -> Room {
    let memory = connection.node.shard().shared().memory.clone();
    Room { memory, bytes_max: settings.responses_bytes_max / 2 }
}

/// The policy of a page that consists of text and links.
const NO_FILES: &str = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
