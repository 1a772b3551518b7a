//! The address of a server, from its URL.

use http::Uri;
use http::uri::Authority;

use crate::error::{Error, UrlError};

/// Host, port and path of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Endpoint {
    /// Name or address, an IPv6 address without brackets.
    pub host: String,
    /// Host and port as in a URL and in the `Host` header.
    pub authority: String,
    /// As in the URL; 80 where it has none, with TLS 443.
    pub port: u16,
    /// Path and query, beginning with a slash.
    pub path: String,
    /// True for `https` and `wss`.
    pub is_tls: bool,
}

impl Endpoint {
    /// Takes `http://host[:port][/path]`, or the same with `https://`, `ws://` or `wss://`. Where the URL has no path, or only a slash, it is `default_path`.
    ///
    /// # Errors
    /// [`Error::Url`] for any other URL.
    pub fn parse(url: &str, default_path: &str) -> Result<Endpoint, Error> {
        let fail = |reason| Error::Url { url: url.into(), reason };
        let uri: Uri = url.parse().map_err(|_| fail(UrlError::Malformed))?;
        let (is_tls, default_port) = match uri.scheme_str().map(str::to_ascii_lowercase).as_deref() {
            Some("http" | "ws") => (false, 80),
            Some("https" | "wss") => (true, 443),
            _ => return Err(fail(UrlError::Scheme)),
        };
        let (authority, host) = (uri.authority().map_or("", Authority::as_str), uri.host().unwrap_or_default());
        // A host without a port, or with an invalid one, has no `port_u16`.
        let port = if authority == host { Some(default_port) } else { uri.port_u16().filter(|port| *port != 0) };
        if host.is_empty() {
            return Err(fail(UrlError::Host));
        }
        if authority.contains('@') {
            return Err(fail(UrlError::User));
        }
        let path = if uri.path() == "/" { default_path } else { uri.path() };
        Ok(Endpoint {
            host: host.trim_matches(['[', ']']).into(),
            authority: authority.into(),
            port: port.ok_or_else(|| fail(UrlError::Port))?,
            path: uri.query().map_or(path.into(), |query| format!("{path}?{query}")),
            is_tls,
        })
    }

    /// Host, port and path, for errors.
    pub(crate) fn address(&self) -> String {
        format!("{}{}", self.authority, self.path)
    }
}

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
        assert_eq!(parsed("WS://example.com/"), ("example.com".into(), 80, "/cometd".into()));
        assert_eq!(parsed("http://[::1]:9000/bayeux?a=1#x"), ("::1".into(), 9000, "/bayeux?a=1".into()));
        assert_eq!(parsed("https://example.com"), ("example.com".into(), 443, "/cometd".into()));
        assert_eq!(parsed("wss://[::1]:8443/bayeux"), ("::1".into(), 8443, "/bayeux".into()));
        assert_eq!(parsed("http://example.com?a=1"), ("example.com".into(), 80, "/cometd?a=1".into()));
    }

    #[test]
    fn a_url_that_cannot_be_used_is_the_callers_fault() {
        use UrlError::{Host, Malformed, Port, Scheme, User};
        for (url, wanted) in [
            ("", Malformed),
            ("example.com", Scheme),
            ("ftp://a", Scheme),
            ("http://", Malformed),
            ("http://:80", Host),
            ("http://a:0", Port),
            ("http://a:70000", Port),
            ("http://a:x/", Port),
            ("http://a/b c", Malformed),
            ("http://a/\r\nX: y", Malformed),
            ("http://user@a/", User),
            ("http://user:secret@a:80/", User),
            ("http://[::1", Malformed),
            ("http://::1", Malformed),
        ] {
            let refused = Endpoint::parse(url, "/cometd").expect_err(url);
            assert!(matches!(refused, Error::Url { reason, .. } if reason == wanted), "{url}: {refused}");
        }
    }
}
