//! The server's address.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};

use encke_client::{Endpoint, Error};
use websocket::Compression;

use crate::engine::tls::{Tls, TlsTarget};
use crate::order::Trust;
use crate::problem::Problem;

/// A server's address, from its URL.
#[derive(Clone, Debug)]
pub struct Target {
    /// Host and port as in the URL and in the `Host` header.
    pub authority: String,
    /// Path and query, beginning with a slash.
    pub path: String,
    /// The socket address: the first one of the host's name.
    pub address: SocketAddr,
    tls: Option<TlsTarget>,
}

/// A connection that waits.
pub(crate) trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

impl Target {
    /// Parses `http://host[:port][/path]` or the same with `https://`, `ws://` or `wss://`, and resolves the host's name. A URL without a
    /// path, or with only a slash, gets `default_path`.
    ///
    /// # Errors
    /// [`Problem::Usage`] for an invalid URL or file of certificates, [`Problem::Unreachable`] for an unknown name.
    pub fn resolve(url: &str, default_path: &str, trust: &Trust) -> Result<Target, Problem> {
        let endpoint = Endpoint::parse(url, default_path).map_err(|error| match error {
            Error::Url { url, reason, .. } => Problem::Usage(format!("{url} is not a URL to measure: {reason}")),
            other => Problem::Usage(other.to_string()),
        })?;
        let address = look_up(&endpoint)?;
        let tickets = trust.tls_tickets;
        let trust = encke_client::Trust {
            accepts_any: trust.insecure || trust.ca.is_none() && address.ip().is_loopback(),
            ca_file: trust.ca.clone(),
        };
        let tls = endpoint.is_tls.then(|| TlsTarget::new(&endpoint, &trust, tickets)).transpose()?;
        Ok(Target { authority: endpoint.authority, path: endpoint.path, address, tls })
    }

    /// A server without TLS, at its root.
    pub(crate) fn plain(address: SocketAddr) -> Target {
        Target { authority: address.to_string(), path: "/".into(), address, tls: None }
    }

    /// Clients that speak TLS offer HTTP/2, and nothing else (RFC 7301).
    pub(crate) fn require_http2(&mut self) {
        self.tls.iter_mut().for_each(TlsTarget::require_http2);
    }

    /// Returns true if clients speak TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The number of TLS handshakes that have resumed a session.
    pub(super) fn resumed(&self) -> u64 {
        self.tls.as_ref().map_or(0, TlsTarget::resumed)
    }

    /// TLS of a new connection; none without.
    pub(super) fn open_tls(&self) -> io::Result<Option<Tls>> {
        self.tls.as_ref().map(TlsTarget::open).transpose()
    }

    /// A new connection as its bytes are read and written, with TLS or without.
    ///
    /// # Errors
    /// There are no random numbers.
    pub(crate) fn stream(&self, tcp: TcpStream) -> io::Result<Box<dyn Stream>> {
        Ok(match self.open_tls()? {
            Some(tls) => Box::new(tls.over(tcp)),
            None => Box::new(tcp),
        })
    }

    /// The request that asks for a WebSocket, with this `Sec-WebSocket-Key` (RFC 6455 §4.1).
    pub(crate) fn upgrade_request(&self, key: &str, compress: bool) -> String {
        let Target { authority, path, .. } = self;
        let extensions = match compress {
            true => format!("Sec-WebSocket-Extensions: {}\r\n", Compression::OFFER),
            false => String::new(),
        };
        format!(
            "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n{extensions}\r\n"
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
        let target = Target::resolve(url, "/cometd", &Trust::default()).expect(url);
        (target.address.to_string(), target.path)
    }

    #[test]
    fn a_url_without_a_path_gets_the_default_one() {
        assert_eq!(resolved("http://127.0.0.1:8080"), ("127.0.0.1:8080".into(), "/cometd".into()));
        assert_eq!(resolved("wss://127.0.0.1"), ("127.0.0.1:443".into(), "/cometd".into()));
        assert_eq!(resolved("ws://127.0.0.1/"), ("127.0.0.1:80".into(), "/cometd".into()));
        assert_eq!(resolved("http://[::1]:9000/bayeux?a=1#x"), ("[::1]:9000".into(), "/bayeux?a=1".into()));
        assert_eq!(resolved("http://127.0.0.1?a=1"), ("127.0.0.1:80".into(), "/cometd?a=1".into()));
    }

    #[test]
    fn a_name_is_looked_up() {
        let target = Target::resolve("http://localhost:8080/", "/", &Trust::default()).expect("localhost is known");
        assert!(target.address.ip().is_loopback());
        assert_eq!(target.authority, "localhost:8080");
    }

    #[test]
    fn a_url_that_cannot_be_used_is_the_callers_fault() {
        let refused = |url, trust| matches!(Target::resolve(url, "/", &trust), Err(Problem::Usage(_)));
        for url in ["", "example.com", "http://a:0", "http://a/b c"] {
            assert!(refused(url, Trust::default()), "{url}");
        }
        assert!(refused("https://127.0.0.1", Trust { ca: Some("/no/file".into()), ..Trust::default() }));
    }
}
