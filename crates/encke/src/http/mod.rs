//! HTTP around the Bayeux endpoint: routes, hosts, origins, cookies, files.

pub(crate) mod api;
pub(crate) mod bayeux;
pub(crate) mod callback;
pub(crate) mod coding;
pub(crate) mod connection;
pub(crate) mod cookie;
pub(crate) mod embedded;
pub(crate) mod files;
pub(crate) mod form;
pub(crate) mod guard;
mod held;
mod history;
pub(crate) mod hold;
pub(crate) mod host;
mod http2;
pub(crate) mod metrics;
pub(crate) mod origin;
mod plain;
pub(crate) mod routes;
pub(crate) mod serve;
mod sessionless;
mod stream;
pub(crate) mod subscription;

use crate::fallback::ResponseBody;
use crate::files::FileBody;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{Either, Full};

/// The body of a response: complete in memory, a file, or that of a fallback.
pub(crate) type Body = Either<Full<Bytes>, Either<FileBody, ResponseBody>>;

/// A body in memory.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Either::Left(Full::new(bytes.into()))
}

/// A response with a body in memory, of this media type.
pub(crate) fn typed(status: StatusCode, kind: &'static str, bytes: impl Into<Bytes>) -> Response<Body> {
    let response = with(Response::new(whole(bytes)), &[(CONTENT_TYPE, kind)]);
    of_status(status, response)
}

/// A response of plain text: a status and a short neutral sentence.
pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    typed(status, "text/plain; charset=utf-8", text)
}

/// The same response with these fields.
pub(crate) fn with(mut response: Response<Body>, fields: &[(HeaderName, &'static str)]) -> Response<Body> {
    for (name, value) in fields {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The same response with this status.
pub(crate) fn of_status<B>(status: StatusCode, mut response: Response<B>) -> Response<B> {
    *response.status_mut() = status;
    response
}

/// A response after which the connection closes: the unread rest of a body blocks further requests.
pub(crate) fn closing(response: Response<Body>) -> Response<Body> {
    with(response, &[(CONNECTION, "close")])
}

/// A response to a request whose body, if any, is not read.
pub(crate) fn unread<B: hyper::body::Body>(response: Response<Body>, request: &Request<B>) -> Response<Body> {
    if request.body().is_end_stream() { response } else { closing(response) }
}
