//! The host that a request names (RFC 9110 §7.2, RFC 9112 §3.2), checked before the rest of the request.
//!
//! A page of `http://evil.example:8080` may read all responses of that name. Its owner can make the name point to this machine
//! after the page has loaded (DNS rebinding). Then every request of the page is same-origin, and the page can leave out `Origin`
//! and `Referer`. Only the `Host` field shows the difference. Programs leave out those fields, too, so the check holds for every
//! request. Addresses and `localhost` always pass: no DNS server decides where they point.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::HOST;
use http::{Request, StatusCode, Version};

use super::{Body, closing, text};
use encke_core::Metrics;
use encke_core::Settings;

/// A host and port from a `Host` field or the authority of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host<'a> {
    /// The name or address, an IPv6 address without its brackets.
    name: &'a str,
}

impl<'a> Host<'a> {
    /// Reads `uri-host [ ":" port ]` (RFC 3986 §3.2), without user information. None for anything else.
    pub(crate) fn parse(authority: &'a str) -> Option<Host<'a>> {
        let (name, rest) = match authority.strip_prefix('[') {
            Some(inner) => inner.split_once(']').filter(|(name, _)| name.parse::<Ipv6Addr>().is_ok())?,
            None => {
                let end = authority.find(':').unwrap_or(authority.len());
                let (name, rest) = authority.split_at(end);
                (1..=NAME_BYTES_MAX).contains(&name.len()).then_some(())?;
                name.bytes().all(is_of_name).then_some((name, rest))?
            }
        };
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
        let fits = rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.is_empty() || is_port(port));
        fits.then_some(Host { name })
    }

    /// The name or address, an IPv6 address without its brackets.
    pub(crate) fn name(self) -> &'a str {
        self.name
    }

    fn address(self) -> Option<IpAddr> {
        self.name.parse().ok()
    }

    /// True for the usual names of loopback: `localhost`, `127.0.0.1` and `[::1]`.
    pub(crate) fn is_this_machine(self) -> bool {
        let usual = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        self.name.eq_ignore_ascii_case("localhost") || self.address().is_some_and(|address| usual.contains(&address))
    }

    /// True for `localhost`, names below it, and addresses of loopback.
    pub(crate) fn is_loopback(self) -> bool {
        let is_name =
            self.name.eq_ignore_ascii_case("localhost") || self.name.to_ascii_lowercase().ends_with(".localhost");
        is_name || self.address().is_some_and(|address| address.to_canonical().is_loopback())
    }

    /// True if a page of this host is a page of this server. The host is in `allowed_hosts`; or a name of loopback, where the server
    /// listens on loopback; or any name, where it listens elsewhere and the list is empty.
    pub(crate) fn is_ours(self, settings: &Settings) -> bool {
        let is_listed = |listed: &String| listed.trim_matches(['[', ']']).eq_ignore_ascii_case(self.name);
        if settings.allowed_hosts.iter().any(is_listed) {
            return true;
        }
        if settings.listen.ip().is_loopback() { self.is_loopback() } else { settings.allowed_hosts.is_empty() }
    }

    /// True if no DNS server decides where the host points.
    fn is_fixed(self) -> bool {
        self.is_loopback() || self.address().is_some()
    }
}

/// The port of a valid authority, that of `http` where it names none.
pub(crate) fn port_of(authority: &str) -> u16 {
    authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(80)
}

/// True for the bytes of a registered name (RFC 3986 §3.2.2).
fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=".contains(&byte)
}

/// True if a request names this machine, and nothing else: an absolute target and the `Host` field may differ.
pub(crate) fn is_loopback<B>(request: &Request<B>) -> bool {
    let fields = request.headers().get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let mut named = fields.chain(request.uri().authority().map(|authority| authority.as_str())).peekable();
    named.peek().is_some() && named.all(|named| Host::parse(named).is_some_and(Host::is_loopback))
}

/// The response to a request without a valid host, or with one that is not allowed. Health probes may use any name.
pub(crate) fn refusal<B>(request: &Request<B>, settings: &Settings, metrics: &Metrics) -> Option<http::Response<Body>> {
    let mut fields = request.headers().get_all(HOST).iter();
    let field = match (fields.next(), fields.next()) {
        (Some(only), None) => Some(only.to_str().unwrap_or_default()),
        // A browser never speaks HTTP/1.0.
        (None, _) if request.version() == Version::HTTP_10 => None,
        _ => Some(""),
    };
    let authority = request.uri().authority().map(|authority| authority.as_str());
    for named in field.into_iter().chain(authority) {
        let Some(host) = Host::parse(named) else {
            return Some(closing(text(StatusCode::BAD_REQUEST, "a request names one host\n")));
        };
        if !host.is_fixed() && !host.is_ours(settings) && !matches!(request.uri().path(), "/healthz" | "/readyz") {
            metrics.hosts_refused.add(1);
            log(host);
            let reason = "this host is not allowed (setting allowed_hosts)\n";
            return Some(closing(text(StatusCode::MISDIRECTED_REQUEST, reason)));
        }
    }
    None
}

/// Logs a refused host. The first line names the setting that would allow it.
fn log(host: Host<'_>) {
    static IS_LOGGED: AtomicBool = AtomicBool::new(false);
    let host = host.name;
    if IS_LOGGED.swap(true, Ordering::Relaxed) {
        tracing::debug!(host, "host refused");
    } else {
        tracing::warn!(host, "host refused: if it is a name of this server, add it to the setting allowed_hosts");
    }
}

/// The greatest length of a DNS name.
const NAME_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
        for (authority, name) in [
            ("example.com", "example.com"),
            ("example.com:8080", "example.com"),
            ("example.com:", "example.com"),
            ("a_b-c.example", "a_b-c.example"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[::1]:80", "::1"),
            ("[::ffff:127.0.0.1]", "::ffff:127.0.0.1"),
        ] {
            assert_eq!(Host::parse(authority), Some(Host { name }), "{authority}");
        }
        for authority in ["", ":80", "a:b", "a:65536", "a:+1", "a@b", "a/b", "a b", "::1", "[::1", "[a]", "[::1]80"] {
            assert_eq!(Host::parse(authority), None, "{authority}");
        }
    }

    #[test]
    fn a_loopback_server_has_only_the_names_of_loopback_and_listed_ones() {
        let settings =
            Settings { allowed_hosts: vec!["push.example".into(), "[fe80::1]".into()], ..Settings::default() };
        let is_ours = |authority| Host::parse(authority).expect(authority).is_ours(&settings);
        for authority in [
            "localhost:8080",
            "a.LOCALHOST",
            "127.0.0.1",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "PUSH.example:1",
            "[fe80::1]:1",
        ] {
            assert!(is_ours(authority), "{authority}");
        }
        for authority in ["evil.example", "localhost.evil.example", "push.example.evil.example", "0.0.0.0", "192.0.2.7"]
        {
            assert!(!is_ours(authority), "{authority}");
        }
    }

    #[test]
    fn a_public_server_has_any_name_until_they_are_listed() {
        let mut settings = Settings { listen: ([0, 0, 0, 0], 80).into(), ..Settings::default() };
        let is_ours = |settings: &Settings, authority| Host::parse(authority).expect(authority).is_ours(settings);
        assert!(is_ours(&settings, "any.example"));
        settings.allowed_hosts = vec!["push.example".into()];
        assert!(is_ours(&settings, "push.example") && !is_ours(&settings, "any.example"));
    }
}
