//! Errors of the HTTP API as problem details (RFC 9457).

use std::borrow::Cow;

use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use crate::http::{Body, closing, whole};

/// An error of the HTTP API.
#[derive(Debug)]
pub(super) struct Problem {
    kind: Kind,
    detail: Cow<'static, str>,
    errors: Vec<InputError>,
    /// The methods of a path, for [`Kind::Method`].
    allow: &'static str,
    /// True if the connection closes: the rest of the body was not read.
    closes: bool,
}

/// The kind of an error: its type, its title and its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    NotJson,
    Invalid,
    Unauthorized,
    Forbidden,
    NotFound,
    Method,
    Timeout,
    InProgress,
    Full,
    TooLarge,
    MediaType,
    KeyReused,
    Busy,
    NotStored,
}

impl Kind {
    /// The last part of its type, its title, and its status.
    fn parts(self) -> (&'static str, &'static str, StatusCode) {
        match self {
            Kind::NotJson => ("not-json", "The body is not JSON", StatusCode::BAD_REQUEST),
            Kind::Invalid => ("invalid-request", "The request is not valid", StatusCode::BAD_REQUEST),
            Kind::Unauthorized => ("unauthorized", "A valid API key is needed", StatusCode::UNAUTHORIZED),
            Kind::Forbidden => ("forbidden", "The API key may not do this", StatusCode::FORBIDDEN),
            Kind::NotFound => ("not-found", "There is nothing here", StatusCode::NOT_FOUND),
            Kind::Method => ("method-not-allowed", "Another method is needed", StatusCode::METHOD_NOT_ALLOWED),
            Kind::Timeout => ("timeout", "The request took too long", StatusCode::REQUEST_TIMEOUT),
            Kind::InProgress => ("in-progress", "The first request is still in progress", StatusCode::CONFLICT),
            Kind::Full => ("full", "A limit is reached", StatusCode::CONFLICT),
            Kind::TooLarge => ("too-large", "The body is too large", StatusCode::PAYLOAD_TOO_LARGE),
            Kind::MediaType => ("media-type", "The body must be JSON in UTF-8", StatusCode::UNSUPPORTED_MEDIA_TYPE),
            Kind::KeyReused => {
                ("idempotency-key-reused", "The key belongs to another request", StatusCode::UNPROCESSABLE_ENTITY)
            }
            Kind::Busy => ("busy", "The server is busy", StatusCode::SERVICE_UNAVAILABLE),
            Kind::NotStored => ("not-stored", "Delivered, but not stored", StatusCode::INSUFFICIENT_STORAGE),
        }
    }
}

/// An error in a field of the body, or in a parameter of the query.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "InputError")]
pub(super) struct InputError {
    /// The field of the body, as a JSON Pointer in a fragment (RFC 6901).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pointer: Option<String>,
    /// The parameter of the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parameter: Option<String>,
    /// The error, and a description of what would be right.
    pub(super) detail: String,
}

/// Problem details (RFC 9457).
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(super) struct Details<'a> {
    /// The kind of the error. Programs compare it.
    #[serde(rename = "type")]
    kind: String,
    /// The kind in words.
    title: &'a str,
    /// The status of the response.
    status: u16,
    /// This error in words.
    detail: &'a str,
    /// The fields and parameters that are wrong.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schemars(with = "Option<Vec<InputError>>")]
    errors: &'a [InputError],
}

impl Problem {
    pub(super) fn new(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem { kind, detail: detail.into(), errors: Vec::new(), allow: "", closes: false }
    }

    /// An error in a field of the body, named by its JSON Pointer.
    pub(super) fn field(pointer: &str, detail: impl Into<String>) -> Problem {
        let error = InputError { pointer: Some(format!("#{pointer}")), parameter: None, detail: shortened(detail) };
        Problem { errors: vec![error], ..Problem::new(Kind::Invalid, "a field of the body is wrong: see errors") }
    }

    /// An error in a parameter of the query.
    pub(super) fn parameter(name: &str, detail: impl Into<String>) -> Problem {
        let error = InputError { pointer: None, parameter: Some(shortened(name)), detail: shortened(detail) };
        Problem { errors: vec![error], ..Problem::new(Kind::Invalid, "a parameter of the query is wrong: see errors") }
    }

    /// A method that the path does not have.
    pub(super) fn method(allow: &'static str) -> Problem {
        Problem { allow, ..Problem::new(Kind::Method, format!("the methods of this path: {allow}")) }
    }

    /// The connection closes after the response.
    pub(super) fn and_close(self) -> Problem {
        Problem { closes: true, ..self }
    }

    /// The status of the response.
    pub(super) fn status(&self) -> StatusCode {
        self.kind.parts().2
    }

    /// The body of the response.
    pub(super) fn body(&self) -> Vec<u8> {
        let (name, title, status) = self.kind.parts();
        let (kind, status) = (format!("urn:encke:problem:{name}"), status.as_u16());
        let details = Details { kind, title, status, detail: &self.detail, errors: &self.errors };
        // A struct of texts and numbers always has a JSON form.
        serde_json::to_vec(&details).unwrap_or_default()
    }

    /// The response.
    pub(super) fn response(&self) -> Response<Body> {
        let mut response = Response::new(whole(self.body()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.kind {
            Kind::Unauthorized => _ = headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
            Kind::Busy | Kind::InProgress => _ = headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S)),
            Kind::Method => _ = headers.insert(ALLOW, HeaderValue::from_static(self.allow)),
            _ => {}
        }
        if self.closes { closing(response) } else { response }
    }
}

/// A text that may repeat a part of the input, within a limit.
fn shortened(text: impl Into<String>) -> String {
    let mut text = text.into();
    if let Some((end, _)) = text.char_indices().nth(DETAIL_CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Characters of an error text about a field.
const DETAIL_CHARS_MAX: usize = 300;
/// The pause before a client tries again, in seconds.
const RETRY_AFTER_S: &str = "1";
