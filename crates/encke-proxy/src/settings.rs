//! The section `[proxy]` of the configuration file.

use encke::Declared as _;
use encke_fetch::{FetchError, Limits, SecretUrl};
use http::Uri;
use serde::{Deserialize, Serialize};

encke::settings! {
    /// The backend, and the limits of requests to it.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct ProxySettings;

    "The backend" {
        /// The URL of the backend, such as `http://127.0.0.1:3000`. The path of a request is appended to it.
        backend: String = String::new();
        /// The paths that go to the backend, with everything below them. `/` is everything that Encke does not answer itself.
        paths: Vec<String> = vec!["/".into()];
        /// The protocols that a request may switch to. An `Upgrade` to another one, such as `h2c`, is ignored.
        upgrade_protocols: Vec<String> = vec!["websocket".into()];
        /// Longest time to connect to the backend, in milliseconds.
        connect_timeout_ms: u64 = 3_000, positive();
        /// Longest time for the whole answer of the backend, in milliseconds.
        timeout_ms: u64 = 30_000, positive();
        /// Bytes of the body of one request.
        request_bytes_max: usize = 1024 * 1024;
        /// Bytes of all bodies of requests that arrive or are on their way to the backend. A body of up to 16 KiB has room
        /// in any case. One address has at most a part of them.
        requests_bytes_max: usize = 64 * 1024 * 1024;
        /// Bytes of the body of one answer of the backend.
        response_bytes_max: usize = 8 * 1024 * 1024, positive();
        /// Bytes of all answers that arrive from the backend. One of up to 16 KiB has room in any case. One address has at most a part of
        /// them.
        responses_bytes_max: usize = 64 * 1024 * 1024, positive();
        /// Requests to the backend at the same time, with those for another protocol until they are answered; more wait. One address
        /// has at most a part of them, and the one with the fewest is next.
        requests_max: usize = 256, positive();
        /// Connections at the same time that speak another protocol with the backend, such as WebSockets, or ask for it. One address has
        /// at most a part of them.
        upgraded_connections_max: usize = 10_000;
        /// Time after which an unused connection to the backend is closed, in milliseconds.
        keep_alive_ms: u64 = 60_000;
        /// Responses and streams that are held at the same time; further ones are refused. One address has at most a part of them.
        held_max: usize = 100_000;
        /// Bytes of these responses, which are sent at the end of their time; further ones are refused. One address has at most a part of
        /// them.
        held_bytes_max: usize = 256 * 1024 * 1024;
        /// Time for which a response is held if the backend names none, in milliseconds.
        hold_timeout_ms: u64 = 55_000;
        /// Longest time for which a response is held, in milliseconds.
        hold_timeout_max_ms: u64 = 600_000;
        /// Channels that one response is held on.
        hold_channels_max: usize = 16, positive();
    }
}

/// The reason why a proxy cannot work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// A setting has an invalid value.
    #[error("proxy.{name}: {value:?} is not {wanted}")]
    Setting {
        /// The name of the setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// The values that it may have.
        wanted: &'static str,
    },
    /// The client for requests to the backend cannot be made.
    #[error(transparent)]
    Client(#[from] FetchError),
}

impl ProxySettings {
    /// Checks the settings. Returns the URL of the backend, without a slash at its end.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn check(&self) -> Result<String, ProxyError> {
        let fail = |name, value: &str, wanted| Err(ProxyError::Setting { name, value: value.into(), wanted });
        let base = self.backend.trim_end_matches('/');
        let uri = base.parse::<Uri>().ok().filter(|uri| uri.authority().is_some() && uri.query().is_none());
        let shown = SecretUrl::from(base).to_string();
        if !uri.as_ref().is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https"))) {
            return fail("backend", &shown, "a URL such as http://127.0.0.1:3000");
        }
        if uri.and_then(|uri| uri.into_parts().authority).is_some_and(|it| it.as_str().contains('@')) {
            return fail("backend", &shown, "a URL without name and password");
        }
        if let Some(path) = self.paths.iter().find(|path| !path.starts_with('/')) {
            return fail("paths", path, "a path such as /app, or /");
        }
        let is_token =
            |name: &&String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._/+".contains(&byte));
        if let Some(name) = self.upgrade_protocols.iter().find(|name| name.is_empty() || !is_token(name)) {
            return fail("upgrade_protocols", name, "the name of a protocol, such as websocket");
        }
        if let Some((setting, value, wanted)) = self.out_of_range().first().copied() {
            return fail(setting.name, &value.to_string(), wanted);
        }
        Ok(base.to_owned())
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            connect_timeout_ms: self.connect_timeout_ms,
            total_timeout_ms: self.timeout_ms,
            response_bytes_max: self.response_bytes_max,
            redirects_max: 0,
            requests_per_host_max: self.requests_max,
            idle_timeout_ms: self.keep_alive_ms,
        }
    }
}
