//! The address of a server, from its URL.

use crate::error::{Error, UrlError};

/// Host, port and path of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Name or address, an IPv6 address without brackets.
    pub host: String,
    /// Host and port as in a URL and in the `Host` header.
    pub authority: String,
    /// As in the URL; 80 where it has none.
    pub port: u16,
    /// Path and query, beginning with a slash.
    pub path: String,
}

impl Endpoint {
    /// Takes `http://host[:port][/path]` or the same with `ws://`. Where the URL has no path, or only a slash, it is `default_path`.
    ///
    /// # Errors
    /// [`Error::Url`] for any other URL.
    pub fn parse(url: &str, default_path: &str) -> Result<Endpoint, Error> {
        let fail = |reason| Error::Url { url: url.into(), reason };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| fail(UrlError::Scheme))?;
        match scheme.to_ascii_lowercase().as_str() {
            "http" | "ws" => {}
            "https" | "wss" => return Err(fail(UrlError::Tls)),
            _ => return Err(fail(UrlError::Scheme)),
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        // It goes into the head of a request and must not end it.
        if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) || authority.contains('@') {
            return Err(fail(UrlError::Characters));
        }
        let (host, port) = split_port(authority).ok_or_else(|| fail(UrlError::Port))?;
        if host.is_empty() {
            return Err(fail(UrlError::Host));
        }
        let path = match path {
            "" | "/" => default_path.into(),
            query if query.starts_with('?') => format!("{default_path}{query}"),
            path => path.into(),
        };
        Ok(Endpoint { host: host.into(), authority: authority.into(), port, path })
    }

    /// Host, port and path, for errors.
    pub(crate) fn address(&self) -> String {
        format!("{}{}", self.authority, self.path)
    }
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

    fn parsed(url: &str) -> (String, u16, String) {
        let endpoint = Endpoint::parse(url, "/cometd").expect(url);
        (endpoint.host, endpoint.port, endpoint.path)
    }

    #[test]
    fn a_url_without_a_path_gets_the_default_one() {
        assert_eq!(parsed("http://127.0.0.1:8080"), ("127.0.0.1".into(), 8080, "/cometd".into()));
        assert_eq!(parsed("ws://example.com/"), ("example.com".into(), 80, "/cometd".into()));
        assert_eq!(parsed("http://[::1]:9000/bayeux?a=1#x"), ("::1".into(), 9000, "/bayeux?a=1".into()));
        assert_eq!(parsed("http://example.com?a=1"), ("example.com".into(), 80, "/cometd?a=1".into()));
    }

    #[test]
    fn a_url_that_cannot_be_used_is_the_callers_fault() {
        for url in [
            "",
            "example.com",
            "https://example.com",
            "wss://example.com",
            "http://",
            "http://:80",
            "http://a:0",
            "http://a:70000",
        ] {
            assert!(matches!(Endpoint::parse(url, "/cometd"), Err(Error::Url { .. })), "{url}");
        }
        for url in ["http://a/b c", "http://a/\r\nX: y", "http://user@a/", "ftp://a", "http://[::1", "http://::1"] {
            assert!(matches!(Endpoint::parse(url, "/cometd"), Err(Error::Url { .. })), "{url}");
        }
    }
}
