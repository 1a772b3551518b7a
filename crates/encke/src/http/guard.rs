//! The checks that a request passes before a part of the server answers it: its host, the page that it comes from, its
//! method. Every part that answers HTTP requests has a [`Guard`]. A refusal is counted, logged and written only here.

use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{ALLOW, ORIGIN};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Body as HttpBody;
use websocket::handshake;

use super::connection::Connection;
use super::host::{self, Named};
use super::origin::{self, Origin};
use super::{Body, closing, text, unread, with};
use crate::request_client::RequestClient;
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

/// The guard of a path from which pages of allowed origins, and programs, read.
pub(super) const READ_BY_PAGES: Guard =
    Guard { pages: Pages::Allowed, methods: "GET, OPTIONS", not_allowed: methods_as_text };

/// The rest of a path below a prefix of the settings, which is still encoded. An empty prefix has none.
pub(super) fn below<'a>(prefix: &str, path: &'a str) -> Option<&'a str> {
    let path = path.strip_prefix(prefix).filter(|_| !prefix.is_empty())?;
    path.starts_with('/').then_some(path)
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
        let client = connection.client(headers);
        let origin = match self.pages {
            Pages::All => Origin::None,
            Pages::AllowedAndScripts if is_script => origin::of_script(headers, request.uri(), settings, &client),
            Pages::Allowed | Pages::AllowedAndScripts => origin::of(headers, request.uri(), settings, &client),
        };
        let mut response = if origin == Origin::Foreign {
            connection.node.shard().metrics().origins_refused.add(1);
            static IS_LOGGED: AtomicBool = AtomicBool::new(false);
            let origin = request.headers().get(ORIGIN).map(|origin| origin.as_bytes().escape_ascii().to_string());
            let advice = "; allowed_origins lets pages of other origins in (further ones: log level debug)";
            log_refusal(&IS_LOGGED, &client, request, "origin", origin.as_deref(), advice);
            unread(text(StatusCode::FORBIDDEN, "this origin is not allowed\n"), request)
        } else if method == Method::OPTIONS && self.pages != Pages::All {
            let fields = if origin == Origin::None { &[] } else { origin::PREFLIGHT };
            with(unread(text(StatusCode::OK, ""), request), fields)
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
        with(unread((self.not_allowed)(methods), request), &[(ALLOW, methods)])
    }
}

/// The plain text for a method that is not allowed: `POST, GET or OPTIONS`.
pub(super) fn methods_as_text(methods: &'static str) -> Response<Body> {
    let named = methods.rsplit_once(", ").map(|(first, last)| format!("{first} or {last}\n"));
    text(StatusCode::METHOD_NOT_ALLOWED, named.unwrap_or_else(|| format!("{methods}\n")))
}

/// The response to a request without a valid host, or with one that is not allowed. Health probes may use any name.
pub(super) fn refuse_host<B>(
    connection: &Connection,
    settings: &Settings,
    request: &Request<B>,
) -> Option<Response<Body>> {
    let client = connection.client(request.headers());
    match host::of(request, settings, client.forwarded_host.as_deref()) {
        Named::Allowed => None,
        Named::Invalid => Some(closing(text(StatusCode::BAD_REQUEST, "a request names one host\n"))),
        Named::Foreign(_) if matches!(request.uri().path(), "/healthz" | "/readyz") => None,
        Named::Foreign(host) => {
            connection.node.shard().metrics().hosts_refused.add(1);
            static IS_LOGGED: AtomicBool = AtomicBool::new(false);
            let advice = ": if it is a name of this server, add it to the setting allowed_hosts";
            log_refusal(&IS_LOGGED, &client, request, "host", Some(host), advice);
            let reason = "this host is not allowed (setting allowed_hosts)\n";
            Some(closing(text(StatusCode::MISDIRECTED_REQUEST, reason)))
        }
    }
}

/// Logs a refused origin or host. The first line of each names the setting that would allow it.
fn log_refusal<B>(
    is_logged: &AtomicBool,
    client: &RequestClient,
    request: &Request<B>,
    what: &str,
    value: Option<&str>,
    advice: &str,
) {
    let (address, path) = (client.address.map(|address| address.to_string()), request.uri().path());
    let (origin, host) = if what == "origin" { (value, None) } else { (None, value) };
    if is_logged.swap(true, Ordering::Relaxed) {
        tracing::debug!(address, path, origin, host, "{what} refused");
    } else {
        tracing::warn!(address, path, origin, host, "{what} refused{advice}");
    }
}
