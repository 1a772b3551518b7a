//! The checks that a request passes before a part of the server answers it: its host, the page that it comes from, its
//! method. Every part that answers HTTP requests has a [`Guard`]. A refusal is counted, logged and written only here.

use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{ALLOW, HeaderValue, ORIGIN};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Body as HttpBody;
use websocket::handshake;

use super::connection::Connection;
use super::host::{self, Named};
use super::origin::{self, Origin};
use super::{Body, closing, text, unread, whole};
use encke_core::Settings;

/// The rules of one part of the server.
pub(crate) struct Guard {
    pub(super) pages: Pages,
    /// The methods that it answers, as `Allow` lists them.
    pub(super) methods: &'static str,
    /// The response to another method.
    pub(super) not_allowed: fn(&'static str) -> Response<Body>,
}

/// The pages of browsers that may use a part of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Those of the server and of allowed origins. Preflights are answered.
    Allowed,
    /// As `Allowed`. A plain GET is the request of a script element, which names no origin (JSONP).
    AllowedAndScripts,
    /// All: a key decides, or everybody may read. Browsers show the response to no page of another origin.
    All,
}

impl Guard {
    /// Checks the origin and the method of a request. Returns the origin, whose pages may read the response.
    ///
    /// # Errors
    /// The response to a preflight, or to a request that is refused.
    pub(super) fn check<B: HttpBody>(
        &self,
        connection: &Connection,
        settings: &Settings,
        request: &Request<B>,
    ) -> Result<Origin, Box<Response<Body>>> {
        let (method, headers) = (request.method(), request.headers());
        let is_script = method == Method::GET && !handshake::wants_upgrade(headers);
        let origin = match self.pages {
            Pages::All => Origin::None,
            Pages::AllowedAndScripts if is_script => origin::of_script(headers, request.uri(), settings),
            Pages::Allowed | Pages::AllowedAndScripts => origin::of(headers, request.uri(), settings),
        };
        let mut response = if origin == Origin::Foreign {
            connection.node.shard.borrow().metrics().origins_refused.add(1);
            log_origin(connection, request);
            unread(text(StatusCode::FORBIDDEN, "this origin is not allowed\n"), request)
        } else if method == Method::OPTIONS && self.pages != Pages::All {
            let mut response = unread(text(StatusCode::OK, ""), request);
            if origin != Origin::None {
                origin::preflight(response.headers_mut());
            }
            response
        } else if self.methods.split(", ").any(|allowed| allowed == method.as_str()) {
            return Ok(origin);
        } else {
            self.refuse_method(self.methods, request)
        };
        origin::allow(&origin, response.headers_mut());
        Err(Box::new(response))
    }

    /// The response to a request whose path has only these methods.
    pub(super) fn refuse_method<B: HttpBody>(&self, methods: &'static str, request: &Request<B>) -> Response<Body> {
        let mut response = unread((self.not_allowed)(methods), request);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
        response
    }
}

/// The plain text for a method that is not allowed: `POST, GET or OPTIONS`.
pub(super) fn methods_as_text(methods: &'static str) -> Response<Body> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "");
    let (first, last) = methods.rsplit_once(", ").unwrap_or(("", methods));
    let or = if first.is_empty() { "" } else { " or " };
    *response.body_mut() = whole(format!("{first}{or}{last}\n"));
    response
}

/// The response to a request without a valid host, or with one that is not allowed. Health probes may use any name.
pub(super) fn refuse_host<B>(
    connection: &Connection,
    settings: &Settings,
    request: &Request<B>,
) -> Option<Response<Body>> {
    match host::of(request, settings) {
        Named::Allowed => None,
        Named::Invalid => Some(closing(text(StatusCode::BAD_REQUEST, "a request names one host\n"))),
        Named::Foreign(_) if matches!(request.uri().path(), "/healthz" | "/readyz") => None,
        Named::Foreign(host) => {
            connection.node.shard.borrow().metrics().hosts_refused.add(1);
            log_host(connection, request, host);
            let reason = "this host is not allowed (setting allowed_hosts)\n";
            Some(closing(text(StatusCode::MISDIRECTED_REQUEST, reason)))
        }
    }
}

/// Logs a refused origin. The first line names the setting that would allow it.
fn log_origin<B>(connection: &Connection, request: &Request<B>) {
    static IS_LOGGED: AtomicBool = AtomicBool::new(false);
    let (address, path) = (connection.peer.map(|address| address.to_string()), request.uri().path());
    let origin = request.headers().get(ORIGIN).map(|origin| origin.as_bytes().escape_ascii().to_string());
    if IS_LOGGED.swap(true, Ordering::Relaxed) {
        tracing::debug!(address, path, origin, "origin refused");
    } else {
        tracing::warn!(
            address,
            path,
            origin,
            "origin refused; allowed_origins lets pages of other origins in (further ones: log level debug)"
        );
    }
}

/// Logs a refused host. The first line names the setting that would allow it.
fn log_host<B>(connection: &Connection, request: &Request<B>, host: &str) {
    static IS_LOGGED: AtomicBool = AtomicBool::new(false);
    let (address, path) = (connection.peer.map(|address| address.to_string()), request.uri().path());
    if IS_LOGGED.swap(true, Ordering::Relaxed) {
        tracing::debug!(address, path, host, "host refused");
    } else {
        tracing::warn!(
            address,
            path,
            host,
            "host refused: if it is a name of this server, add it to the setting allowed_hosts"
        );
    }
}
