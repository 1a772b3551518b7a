//! HTTP around the Bayeux endpoint: routes, hosts, origins, cookies, files.

mod answer_body;
pub(crate) mod api;
pub(crate) mod assets;
pub(crate) mod bayeux;
pub(crate) mod callback;
pub(crate) mod connection;
pub(crate) mod cookie;
pub(crate) mod embedded;
pub(crate) mod files;
pub(crate) mod form;
pub(crate) mod guard;
mod held;
pub(crate) mod hold;
pub(crate) mod host;
pub(crate) mod metrics;
pub(crate) mod origin;
pub(crate) mod routes;
pub(crate) mod serve;

use crate::fallback::ResponseBody;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{Either, Full};
use tower_http::services::fs::ServeFileSystemResponseBody;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response: complete in memory, a file that is read while it is sent, or that of a fallback.
pub(crate) type Body = Either<Full<Bytes>, Either<ServeFileSystemResponseBody, ResponseBody>>;

/// A body in memory.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Either::Left(Full::new(bytes.into()))
}

/// A response of plain text: a status and a short neutral sentence.
pub(crate) fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(whole(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// A response after which the connection closes: the unread rest of a body blocks further requests.
pub(crate) fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A response to a request whose body, if any, is not read.
pub(crate) fn unread<B: hyper::body::Body>(response: Response<Body>, request: &Request<B>) -> Response<Body> {
    if request.body().is_end_stream() { response } else { closing(response) }
}
