//! The server's address.

use std::net::{SocketAddr, ToSocketAddrs};

use encke_client::{Endpoint, Error};

use crate::problem::Problem;

/// A server's address, from its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Host and port as in the URL and in the `Host` header.
    pub authority: String,
    /// Path and query, beginning with a slash.
    pub path: String,
    /// The socket address: the first one of the host's name.
    pub address: SocketAddr,
}

impl Target {
    /// Parses `http://host[:port][/path]` or the same with `ws://`, and resolves the host's name. A URL without a path,
    /// or with only a slash, gets `default_path`.
    ///
    /// # Errors
    /// [`Problem::Usage`] for an invalid URL, [`Problem::Unreachable`] for an unknown name.
    pub fn resolve(url: &str, default_path: &str) -> Result<Target, Problem> {
        let endpoint = Endpoint::parse(url, default_path).map_err(|error| match error {
            Error::Url { url, reason, .. } => Problem::Usage(format!("{url} is not a URL to measure: {reason}")),
            other => Problem::Usage(other.to_string()),
        })?;
        if endpoint.is_tls {
            return Err(Problem::Usage(format!("{url} is not a URL to measure: the load has no TLS")));
        }
        let address = look_up(&endpoint)?;
        Ok(Target { authority: endpoint.authority, path: endpoint.path, address })
    }

    /// The request that asks for a WebSocket, with this `Sec-WebSocket-Key` (RFC 6455 §4.1).
    pub(crate) fn upgrade_request(&self, key: &str) -> String {
        let Target { authority, path, .. } = self;
        format!(
            "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
    }
}

fn look_up(endpoint: &Endpoint) -> Result<SocketAddr, Problem> {
    let unreachable = |reason: String| Problem::Unreachable { address: endpoint.authority.clone(), reason };
    let mut addresses =
        (endpoint.host.as_str(), endpoint.port).to_socket_addrs().map_err(|error| unreachable(error.to_string()))?;
    addresses.next().ok_or_else(|| unreachable("the name has no address".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(url: &str) -> (String, String) {
        let target = Target::resolve(url, "/cometd").expect(url);
        (target.address.to_string(), target.path)
    }

    #[test]
    fn a_url_without_a_path_gets_the_default_one() {
        assert_eq!(resolved("http://127.0.0.1:8080"), ("127.0.0.1:8080".into(), "/cometd".into()));
        assert_eq!(resolved("ws://127.0.0.1/"), ("127.0.0.1:80".into(), "/cometd".into()));
        assert_eq!(resolved("http://[::1]:9000/bayeux?a=1#x"), ("[::1]:9000".into(), "/bayeux?a=1".into()));
        assert_eq!(resolved("http://127.0.0.1?a=1"), ("127.0.0.1:80".into(), "/cometd?a=1".into()));
    }

    #[test]
    fn a_name_is_looked_up() {
        let target = Target::resolve("http://localhost:8080/", "/").expect("localhost is known everywhere");
        assert!(target.address.ip().is_loopback());
        assert_eq!(target.authority, "localhost:8080");
    }

    #[test]
    fn a_url_that_cannot_be_used_is_the_callers_fault() {
        for url in ["", "example.com", "https://127.0.0.1", "http://a:0", "http://a/b c"] {
            assert!(matches!(Target::resolve(url, "/"), Err(Problem::Usage(_))), "{url}");
        }
    }
}
