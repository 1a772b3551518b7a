//! Where the server is.

use std::net::{SocketAddr, ToSocketAddrs};

use crate::problem::Problem;

/// A server's place, from its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Host and port as in the URL and in the `Host` header.
    pub authority: String,
    /// Path and query, beginning with a slash.
    pub path: String,
    /// The address that connections go to: the first that the host's name stands for.
    pub address: SocketAddr,
}

impl Target {
    /// Takes `http://host[:port][/path]` or the same with `ws://`, and looks the host's name up. Where the URL has no path,
    /// or only a slash, it is `default_path`.
    ///
    /// # Errors
    /// [`Problem::Usage`] for what is not such a URL, [`Problem::Unreachable`] for a name that nobody knows.
    pub fn resolve(url: &str, default_path: &str) -> Result<Target, Problem> {
        let fail = |wanted: &str| Problem::Usage(format!("{url} is not a URL to measure: {wanted}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| fail("it begins with http:// or ws://"))?;
        match scheme.to_ascii_lowercase().as_str() {
            "http" | "ws" => {}
            "https" | "wss" => return Err(fail("TLS is not spoken here yet, only http:// and ws://")),
            _ => return Err(fail("it begins with http:// or ws://")),
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        // What goes into the head of a request must not end it.
        if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) || authority.contains('@') {
            return Err(fail("it has no spaces and no user name"));
        }
        let (host, port) = split_port(authority).ok_or_else(|| fail("the port is a number from 1 to 65535"))?;
        if host.is_empty() {
            return Err(fail("it names a host"));
        }
        let path = match path {
            "" | "/" => default_path.into(),
            query if query.starts_with('?') => format!("{default_path}{query}"),
            path => path.into(),
        };
        Ok(Target { authority: authority.into(), path, address: look_up(host, port, authority)? })
    }
}

fn look_up(host: &str, port: u16, authority: &str) -> Result<SocketAddr, Problem> {
    let unreachable = |reason: String| Problem::Unreachable { address: authority.into(), reason };
    let mut addresses = (host, port).to_socket_addrs().map_err(|error| unreachable(error.to_string()))?;
    addresses.next().ok_or_else(|| unreachable("the name has no address".into()))
}

/// Splits `host:port`, `[::1]:port` or a host alone.
fn split_port(authority: &str) -> Option<(&str, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port != 0).map(|port| (host, port)),
        None => port.is_empty().then_some((host, DEFAULT_PORT)),
    }
}

/// The port of `http` and `ws`.
const DEFAULT_PORT: u16 = 80;

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
        for url in ["", "example.com", "https://127.0.0.1", "wss://127.0.0.1", "http://", "http://:80", "http://a:0"] {
            assert!(matches!(Target::resolve(url, "/"), Err(Problem::Usage(_))), "{url}");
        }
        for url in ["http://a/b c", "http://a/\r\nX: y", "http://user@a/", "ftp://a", "http://[::1", "http://::1"] {
            assert!(matches!(Target::resolve(url, "/"), Err(Problem::Usage(_))), "{url}");
        }
    }
}
