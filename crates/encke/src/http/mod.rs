//! HTTP around the Bayeux endpoint: routes, origins, cookies, files.

pub(crate) mod assets;
pub(crate) mod bayeux;
pub(crate) mod callback;
pub(crate) mod connection;
pub(crate) mod cookie;
pub(crate) mod metrics;
pub(crate) mod origin;
pub(crate) mod routes;

pub use assets::Asset;
pub use callback::is_callback;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;

/// The body of a response: whole and in memory.
pub(crate) type Body = Full<Bytes>;

/// A response of plain text: a status and a short neutral sentence.
pub(crate) fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
