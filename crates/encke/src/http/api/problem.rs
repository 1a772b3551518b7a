//! Errors of the HTTP API as problem details (RFC 9457).

use std::borrow::Cow;

use http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use crate::http::{Body, closing, typed, with};

/// An error of the HTTP API.
#[derive(Debug)]
pub(super) struct Problem {
    kind: Kind,
    detail: Cow<'static, str>,
    errors: Vec<InputError>,
    /// The methods of a path, for [`Kind::METHOD`].
    allow: &'static str,
    /// True if the connection closes: the rest of the body was not read.
    closes: bool,
}

/// The kind of an error: the last part of its type, its title, and its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(&'static str, &'static str, StatusCode);

impl Kind {
    pub(super) const NOT_JSON: Kind = Kind("not-json", "The body is not JSON", StatusCode::BAD_REQUEST);
    pub(super) const INVALID: Kind = Kind("invalid-request", "The request is not valid", StatusCode::BAD_REQUEST);
    pub(super) const UNAUTHORIZED: Kind = Kind("unauthorized", "A valid API key is needed", StatusCode::UNAUTHORIZED);
    pub(super) const FORBIDDEN: Kind = Kind("forbidden", "The API key may not do this", StatusCode::FORBIDDEN);
    pub(super) const NOT_FOUND: Kind = Kind("not-found", "There is nothing here", StatusCode::NOT_FOUND);
    pub(super) const METHOD: Kind =
        Kind("method-not-allowed", "Another method is needed", StatusCode::METHOD_NOT_ALLOWED);
    pub(super) const TIMEOUT: Kind = Kind("timeout", "The request took too long", StatusCode::REQUEST_TIMEOUT);
    pub(super) const IN_PROGRESS: Kind =
        Kind("in-progress", "The first request is still in progress", StatusCode::CONFLICT);
    pub(super) const CHANGED: Kind = Kind("changed", "Another change came first", StatusCode::CONFLICT);
    pub(super) const FULL: Kind = Kind("full", "A limit is reached", StatusCode::CONFLICT);
    pub(super) const TOO_LARGE: Kind = Kind("too-large", "The body is too large", StatusCode::PAYLOAD_TOO_LARGE);
    pub(super) const MEDIA_TYPE: Kind =
        Kind("media-type", "The body must be JSON in UTF-8", StatusCode::UNSUPPORTED_MEDIA_TYPE);
    pub(super) const KEY_REUSED: Kind =
        Kind("idempotency-key-reused", "The key belongs to another request", StatusCode::UNPROCESSABLE_ENTITY);
    pub(super) const BUSY: Kind = Kind("busy", "The server is busy", StatusCode::SERVICE_UNAVAILABLE);
    pub(super) const PARTLY: Kind =
        Kind("partly-published", "Not all messages were published", StatusCode::SERVICE_UNAVAILABLE);
    pub(super) const NOT_STORED: Kind =
        Kind("not-stored", "Delivered, but not stored", StatusCode::INSUFFICIENT_STORAGE);
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
        Problem { errors: vec![error], ..Problem::new(Kind::INVALID, "a field of the body is wrong: see errors") }
    }

    /// An error in a parameter of the query.
    pub(super) fn parameter(name: &str, detail: impl Into<String>) -> Problem {
        let error = InputError { pointer: None, parameter: Some(shortened(name)), detail: shortened(detail) };
        Problem { errors: vec![error], ..Problem::new(Kind::INVALID, "a parameter of the query is wrong: see errors") }
    }

    /// A method that the path does not have.
    pub(super) fn method(allow: &'static str) -> Problem {
        Problem { allow, ..Problem::new(Kind::METHOD, format!("the methods of this path: {allow}")) }
    }

    /// True if nothing was done, and a later request may succeed.
    pub(super) fn is_busy(&self) -> bool {
        self.kind == Kind::BUSY
    }

    /// The connection closes after the response.
    pub(super) fn and_close(self) -> Problem {
        Problem { closes: true, ..self }
    }

    /// The status of the response.
    pub(super) fn status(&self) -> StatusCode {
        self.kind.2
    }

    /// The body of the response.
    pub(super) fn body(&self) -> Vec<u8> {
        let Kind(name, title, status) = self.kind;
        let (kind, status) = (format!("urn:encke:problem:{name}"), status.as_u16());
        let details = Details { kind, title, status, detail: &self.detail, errors: &self.errors };
        // A struct of texts and numbers always has a JSON form.
        serde_json::to_vec(&details).unwrap_or_default()
    }

    /// The response.
    pub(super) fn response(&self) -> Response<Body> {
        let field = match self.kind {
            Kind::UNAUTHORIZED => Some((WWW_AUTHENTICATE, "Bearer")),
            Kind::BUSY | Kind::IN_PROGRESS => Some((RETRY_AFTER, RETRY_AFTER_S)),
            Kind::METHOD => Some((ALLOW, self.allow)),
            _ => None,
        };
        let response = with(typed(self.status(), "application/problem+json", self.body()), field.as_slice());
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
