//! Where the server is, from `--target`.

use crate::problem::Problem;

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name or address, an IPv6 address without brackets.
    pub host: String,
    /// Its port; 80 where the URL has none.
    pub port: u16,
    /// Path and query; empty where the URL has none.
    pub path: String,
}

impl Target {
    /// Takes `http://host[:port][/path]` or the same with `ws://`.
    ///
    /// # Errors
    /// The URL is none of these.
    pub fn parse(url: &str) -> Result<Target, Problem> {
        let fail = |wanted: &str| Problem::Usage(format!("--target {url}: {wanted}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| fail(SCHEMES))?;
        match scheme.to_ascii_lowercase().as_str() {
            "http" | "ws" => {}
            "https" | "wss" => return Err(fail("TLS is not spoken here, only http:// and ws://")),
            _ => return Err(fail(SCHEMES)),
        }
        if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(fail("it has no spaces"));
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(|| fail("a bracket is open"))?,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port != 0),
            None => port.is_empty().then_some(80),
        };
        let port = port.ok_or_else(|| fail("the port is a number from 1 to 65535"))?;
        if host.is_empty() || host.contains('@') {
            return Err(fail("it names a host, and no user"));
        }
        let path = path.split('#').next().unwrap_or_default();
        Ok(Target { host: host.into(), port, path: path.into() })
    }
}

/// `host:port`, as in a URL.
impl std::fmt::Display for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

const SCHEMES: &str = "it begins with http:// or ws://";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let parse = |url| Target::parse(url).map(|target| (target.host, target.port, target.path)).expect(url);
        assert_eq!(parse("http://127.0.0.1:8080"), ("127.0.0.1".into(), 8080, String::new()));
        assert_eq!(parse("ws://a/cometd?x=1#y"), ("a".into(), 80, "/cometd?x=1".into()));
        assert_eq!(parse("HTTP://[::1]:99/"), ("::1".into(), 99, "/".into()));
        assert_eq!(Target::parse("http://[::1]:99/").expect("IPv6").to_string(), "[::1]:99");
    }

    #[test]
    fn what_is_no_url_gets_one_line() {
        for url in
            ["", "a:1", "ftp://a", "https://a", "http://", "http://a:0", "http://a:x", "http://a b", "http://[::1"]
        {
            let Err(Problem::Usage(text)) = Target::parse(url) else { panic!("{url} is taken") };
            assert!(text.starts_with("--target ") && text.lines().count() == 1, "{text}");
        }
    }
}
