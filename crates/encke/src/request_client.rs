//! The client of a request: its address, and the scheme and host by which it calls the server. Everything that depends on them asks here:
//! limits, logs, cookies, origins, the application, the backend behind the server.
//!
//! A trusted proxy is believed about its clients. Each proxy adds itself at the end of the lists in `X-Forwarded-For` or `Forwarded`
//! (RFC 7239 §4), so they are read from the end, up to the first address that is no trusted proxy. What stands before it is the word of a
//! stranger.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{FORWARDED, HeaderName};

use crate::byte_stream::Remote;
use encke_core::Settings;

/// The client of a request, as its connection shows it, or as a trusted proxy names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestClient {
    /// Its address. None if nobody knows it.
    pub address: Option<IpAddr>,
    /// True if it speaks TLS, with the server or with the proxy that it calls.
    pub is_https: bool,
    /// The host by which it calls the server, if a trusted proxy names it.
    pub forwarded_host: Option<String>,
    /// The address at the other end of the connection: its own, or that of the last proxy.
    pub peer: Option<IpAddr>,
    /// True if that is a trusted proxy, whose headers about the client are believed.
    pub is_behind_proxy: bool,
}

/// A client that calls the server itself.
impl From<IpAddr> for RequestClient {
    fn from(address: IpAddr) -> RequestClient {
        RequestClient { address: Some(address), peer: Some(address), ..RequestClient::default() }
    }
}

impl RequestClient {
    /// The client of a request with these headers.
    pub(crate) fn of(remote: Remote, is_tls: bool, headers: &HeaderMap, settings: &Settings) -> RequestClient {
        let (address, is_https) = (remote.address(), is_tls || remote.is_tls());
        let is_behind_proxy = remote.is_trusted(settings);
        let mut client = RequestClient { address, is_https, forwarded_host: None, peer: address, is_behind_proxy };
        if !is_behind_proxy {
            return client;
        }
        if X_FORWARDED.iter().any(|name| headers.contains_key(name)) {
            let [mut nodes, mut protos, mut hosts] = X_FORWARDED.map(|name| from_the_end(headers, &name));
            let hop = || Some(Hop { node: nodes.next(), proto: protos.next(), host: hosts.next() });
            client.follow(std::iter::from_fn(hop), settings);
        } else {
            client.follow(from_the_end(headers, &FORWARDED).map(Hop::of_element), settings);
        }
        client
    }

    /// Follows the proxies, the nearest one first, to the client.
    fn follow<'a>(&mut self, hops: impl Iterator<Item = Hop<'a>>, settings: &Settings) {
        for hop in hops {
            match hop.proto.map(str::to_ascii_lowercase).as_deref() {
                Some("https" | "wss") => self.is_https = true,
                Some("http" | "ws") => self.is_https = false,
                _ => {}
            }
            if let Some(host) = hop.host.filter(|host| !host.is_empty()) {
                self.forwarded_host = Some(host.into());
            }
            // A proxy that hides the address (`unknown`, `_name`), or writes something else, stands for its client.
            let Some(address) = hop.node.and_then(address_of) else { return };
            self.address = Some(address);
            if !settings.trusts_address(address) {
                return;
            }
        }
    }
}

/// A proxy's word on the client, or the other proxy, that it got the request from.
#[derive(Default)]
struct Hop<'a> {
    node: Option<&'a str>,
    proto: Option<&'a str>,
    host: Option<&'a str>,
}

impl<'a> Hop<'a> {
    /// Reads an element of `Forwarded`. No address, scheme or host has a comma or a semicolon, so quotes do not matter.
    fn of_element(element: &'a str) -> Hop<'a> {
        let mut hop = Hop::default();
        for (name, value) in element.split(';').filter_map(|pair| pair.split_once('=')) {
            let value = Some(value.trim().trim_matches('"'));
            match name.trim().to_ascii_lowercase().as_str() {
                "for" => hop.node = value,
                "proto" => hop.proto = value,
                "host" => hop.host = value,
                _ => {}
            }
        }
        hop
    }
}

/// The address in a node (RFC 7239 §6): with a port or without, an IPv6 address with brackets or, as in `X-Forwarded-For`, without.
fn address_of(node: &str) -> Option<IpAddr> {
    let inner = node.strip_prefix('[').and_then(|node| node.strip_suffix(']')).unwrap_or(node);
    let with_port = || node.parse().map(|address: SocketAddr| address.ip());
    inner.parse().or_else(|_| with_port()).ok().map(|address: IpAddr| address.to_canonical())
}

/// The elements of all fields of this name as one list, from its end. One that is no text is empty.
fn from_the_end<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> + use<'a> {
    let fields = headers.get_all(name).iter().rev();
    let elements = fields.flat_map(|field| field.as_bytes().rsplit(|byte| *byte == b','));
    elements.map(|element| str::from_utf8(element).unwrap_or_default().trim())
}

/// The address of the client, the scheme and the host, in lists of the same order.
const X_FORWARDED: [HeaderName; 3] = [
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-host"),
];

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const PROXY: [u8; 4] = [10, 0, 0, 1];

    /// The client of a request from this address, where `10.0.0.0/8` and `fd00::/8` are proxies.
    fn client(peer: impl Into<IpAddr>, fields: &[(&'static str, &str)]) -> RequestClient {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
        }
        let trusted_proxies = ["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().expect("a network")).into();
        let settings = Settings { trusted_proxies, ..Settings::default() };
        RequestClient::of(Remote::Tcp(peer.into()), false, &headers, &settings)
    }

    fn address(fields: &[(&'static str, &str)]) -> String {
        client(PROXY, fields).address.expect("an address").to_string()
    }

    #[test]
    fn a_trusted_proxy_names_the_client_and_nobody_else_does() {
        let said =
            [("x-forwarded-for", "198.51.100.9"), ("x-forwarded-proto", "https"), ("forwarded", "for=198.51.100.9")];
        assert_eq!(client([192, 0, 2, 1], &said), RequestClient::from(IpAddr::from([192, 0, 2, 1])));
        let named = client(PROXY, &said);
        assert_eq!((named.address, named.is_https), (Some([198, 51, 100, 9].into()), true));
        assert_eq!((named.peer, named.is_behind_proxy), (Some(PROXY.into()), true));
        assert_eq!(client(PROXY, &[]).address, Some(PROXY.into()), "the proxy itself");
    }

    #[test]
    fn the_client_is_the_last_address_that_is_no_trusted_proxy() {
        for (list, found) in [
            ("1.1.1.1, 192.0.2.7, 10.0.0.2", "192.0.2.7"),
            ("1.1.1.1,192.0.2.7", "192.0.2.7"),
            ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
            ("192.0.2.7:5000", "192.0.2.7"),
            ("2001:db8::7", "2001:db8::7"),
            ("[2001:db8::7]", "2001:db8::7"),
            ("[2001:db8::7]:5000, fd00::1", "2001:db8::7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            // A proxy that does not say whom it serves stands for its client.
            ("192.0.2.7, x", "10.0.0.1"),
            ("192.0.2.7, unknown, 10.0.0.2", "10.0.0.2"),
            ("192.0.2.7,", "10.0.0.1"),
            ("192.0.2.7, \u{e9}", "10.0.0.1"),
            ("", "10.0.0.1"),
        ] {
            assert_eq!(address(&[("x-forwarded-for", list)]), found, "{list}");
        }
        let joined =
            [("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "192.0.2.7"), ("x-forwarded-for", "10.0.0.2")];
        assert_eq!(address(&joined), "192.0.2.7");
    }

    #[test]
    fn forwarded_names_the_client_in_each_of_its_forms() {
        for (list, found) in [
            ("for=192.0.2.7", "192.0.2.7"),
            ("For=\"192.0.2.7:5000\";proto=https", "192.0.2.7"),
            ("for=1.1.1.1, for=192.0.2.7 ; by=10.0.0.9, for=10.0.0.2", "192.0.2.7"),
            ("for=\"[2001:db8::7]\"", "2001:db8::7"),
            ("for=\"[2001:db8::7]:5000\", for=\"[fd00::1]:_port\"", "10.0.0.1"),
            ("for=1.1.1.1, for=_hidden", "10.0.0.1"),
            ("for=1.1.1.1, for=unknown, for=10.0.0.2", "10.0.0.2"),
            ("for=1.1.1.1, proto=https", "10.0.0.1"),
            // A stranger does not get what a proxy adds into its quotes.
            ("for=\"1.1.1.1, for=192.0.2.7", "192.0.2.7"),
        ] {
            assert_eq!(address(&[("forwarded", list)]), found, "{list}");
        }
        assert_eq!(address(&[("forwarded", "for=1.1.1.1"), ("forwarded", "for=192.0.2.7")]), "192.0.2.7");
    }

    #[test]
    fn scheme_and_host_are_those_that_the_proxy_nearest_to_the_client_says() {
        let shown = |fields: &[(&'static str, &str)]| {
            let client = client(PROXY, fields);
            (client.is_https, client.forwarded_host.unwrap_or_default())
        };
        let of_forwarded = |list| shown(&[("forwarded", list)]);
        assert_eq!(
            of_forwarded("for=192.0.2.7;proto=HTTPS;host=\"push.example:8443\""),
            (true, "push.example:8443".into())
        );
        let two = "for=192.0.2.7;proto=https;host=a.example, for=10.0.0.2;proto=http;host=inner";
        assert_eq!(of_forwarded(two), (true, "a.example".into()));
        assert_eq!(of_forwarded("for=1.1.1.1;proto=https;host=evil.example, for=192.0.2.7"), (false, String::new()));

        let of_lists = |nodes, protos, hosts| {
            shown(&[("x-forwarded-for", nodes), ("x-forwarded-proto", protos), ("x-forwarded-host", hosts)])
        };
        assert_eq!(of_lists("192.0.2.7", "wss", "a.example"), (true, "a.example".into()));
        assert_eq!(of_lists("192.0.2.7, 10.0.0.2", "https, http", "a.example, inner"), (true, "a.example".into()));
        assert_eq!(
            of_lists("192.0.2.7, 10.0.0.2", "https", "a.example"),
            (true, "a.example".into()),
            "passed on as it was"
        );
        assert_eq!(
            of_lists("1.1.1.1, 192.0.2.7", "https, http", "evil.example, a.example"),
            (false, "a.example".into())
        );
        assert_eq!(shown(&[("x-forwarded-proto", "https")]), (true, String::new()), "without an address");
    }

    /// Most proxies write only one of the two, and pass the other on as the client sent it.
    #[test]
    fn forwarded_does_not_count_beside_x_forwarded() {
        for name in ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"] {
            let client = client(PROXY, &[("forwarded", "for=1.1.1.1;proto=https;host=evil.example"), (name, "")]);
            assert_eq!((client.address, client.is_https), (Some(PROXY.into()), false), "{name}");
            assert_ne!(client.forwarded_host.as_deref(), Some("evil.example"), "{name}");
        }
    }

    proptest! {
        /// Whatever a client sends in these fields: if a proxy adds its address, that is the client.
        #[test]
        fn no_client_can_name_another_one(junk in "[ -~]{0,80}", other in "[ -~]{0,80}") {
            for (name, added) in [("x-forwarded-for", "192.0.2.7"), ("forwarded", "for=192.0.2.7")] {
                prop_assert_eq!(address(&[(name, &format!("{junk}, {added}"))]), "192.0.2.7");
                prop_assert_eq!(address(&[(name, &junk), (name, added)]), "192.0.2.7");
                if name == "x-forwarded-for" {
                    prop_assert_eq!(address(&[("forwarded", &other), (name, &junk), (name, added)]), "192.0.2.7");
                }
            }
        }
    }
}
