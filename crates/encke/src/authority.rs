//! The authority of a URI and of a `Host` field (RFC 3986 §3.2): the name of a server, and its port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use encke_core::Settings;

/// A host and port from a `Host` field or the authority of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host<'a>(&'a str);

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
        fits.then_some(Host(name))
    }

    /// The name or address, an IPv6 address without its brackets.
    pub(crate) fn name(self) -> &'a str {
        self.0
    }

    fn address(self) -> Option<IpAddr> {
        self.0.parse().ok()
    }

    /// True for the usual names of loopback: `localhost`, `127.0.0.1` and `[::1]`.
    pub(crate) fn is_this_machine(self) -> bool {
        let usual = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        self.0.eq_ignore_ascii_case("localhost") || self.address().is_some_and(|address| usual.contains(&address))
    }

    /// True for `localhost`, names below it, and addresses of loopback.
    pub(crate) fn is_loopback(self) -> bool {
        let below = self.0.as_bytes().last_chunk::<{ BELOW_LOCALHOST.len() }>();
        let is_name = self.0.eq_ignore_ascii_case("localhost")
            || below.is_some_and(|below| below.eq_ignore_ascii_case(BELOW_LOCALHOST));
        is_name || self.address().is_some_and(|address| address.to_canonical().is_loopback())
    }

    /// True if a page of this host is a page of this server. The host is in `allowed_hosts`; or a name of loopback, where the server
    /// listens on loopback alone; or any name, where it listens elsewhere, too, and the list is empty.
    pub(crate) fn is_ours(self, settings: &Settings) -> bool {
        let is_listed = |listed: &String| listed.trim_matches(['[', ']']).eq_ignore_ascii_case(self.0);
        if settings.allowed_hosts.iter().any(is_listed) {
            return true;
        }
        if settings.is_on_loopback() { self.is_loopback() } else { settings.allowed_hosts.is_empty() }
    }

    /// True if no DNS server decides where the host points.
    pub(crate) fn is_fixed(self) -> bool {
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

const BELOW_LOCALHOST: &[u8; 10] = b".localhost";
/// The greatest length of a DNS name.
const NAME_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use encke_core::ListenerSettings;

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
            assert_eq!(Host::parse(authority), Some(Host(name)), "{authority}");
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
        let is_ours = |settings: &Settings, authority| Host::parse(authority).expect(authority).is_ours(settings);
        let public = Settings { listen: ([0, 0, 0, 0], 80).into(), ..Settings::default() };
        let address = "0.0.0.0:443".into();
        let further = Settings {
            listeners: vec![ListenerSettings { address, tls: true, ..ListenerSettings::default() }],
            ..Settings::default()
        };
        for mut settings in [public, further] {
            assert!(is_ours(&settings, "any.example"));
            settings.allowed_hosts = vec!["push.example".into()];
            assert!(is_ours(&settings, "push.example") && !is_ours(&settings, "any.example"));
        }
    }
}
