//! Headers that end at a proxy (RFC 9110 §7.6.1), and those that it adds.

use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};

/// Removes the headers that are for one connection only: those that are always, and those that `Connection` names.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let lists = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        lists.flat_map(|list| list.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    for name in named {
        headers.remove(name);
    }
    for name in [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection"] {
        headers.remove(name);
    }
}

/// Prepares the headers of a request for the backend: its host and length are those of the new request, and the original
/// host and address follow in other headers.
pub(crate) fn forward(headers: &mut HeaderMap, peer: Option<IpAddr>) {
    remove_hop_by_hop(headers);
    headers.remove(CONTENT_LENGTH);
    headers.remove("expect");
    if let Some(host) = headers.remove(HOST) {
        headers.insert("x-forwarded-host", host);
    }
    headers.entry("x-forwarded-proto").or_insert(HeaderValue::from_static("http"));
    let Some(peer) = peer else { return };
    let before = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let chain: Vec<String> = before.map(String::from).chain([peer.to_string()]).collect();
    if let Ok(chain) = HeaderValue::try_from(chain.join(", ")) {
        headers.insert("x-forwarded-for", chain);
    }
}

/// The protocol that a request wants to switch to, or that a response switches to (RFC 9110 §7.8).
pub(crate) fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut lists = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let is_named = lists.any(|list| list.split(',').any(|name| name.trim().eq_ignore_ascii_case("upgrade")));
    headers.get(UPGRADE).filter(|_| is_named).cloned()
}

/// Adds the headers that switch a connection to a protocol.
pub(crate) fn switch(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Removes the instructions for the proxy.
pub(crate) fn remove_instructions(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with("grip-")).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn headers_of_one_connection_end_at_the_proxy() {
        let mut headers = of(&[
            ("connection", "close, X-Own"),
            ("x-own", "1"),
            ("keep-alive", "1"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "secret"),
            ("transfer-encoding", "chunked"),
            ("x-other", "stays"),
        ]);
        remove_hop_by_hop(&mut headers);
        assert_eq!(headers, of(&[("x-other", "stays")]));
    }

    #[test]
    fn the_backend_learns_the_address_and_the_host_of_the_client() {
        let mut headers = of(&[("host", "a.example"), ("x-forwarded-for", "192.0.2.1"), ("content-length", "3")]);
        forward(&mut headers, Some([192, 0, 2, 2].into()));
        let wanted = of(&[
            ("x-forwarded-host", "a.example"),
            ("x-forwarded-for", "192.0.2.1, 192.0.2.2"),
            ("x-forwarded-proto", "http"),
        ]);
        assert_eq!(headers, wanted);
    }
}
