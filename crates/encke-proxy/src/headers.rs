//! Headers that end at a proxy (RFC 9110 §7.6.1), and those that it adds.

use encke::RequestClient;
use http::header::{
    CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
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

/// Prepares the headers of a request for the backend: its host and length are those of the new request, and the host, scheme and
/// address of the client follow in other headers. What strangers say themselves in such headers is removed.
pub(crate) fn forward(headers: &mut HeaderMap, client: &RequestClient) {
    remove_hop_by_hop(headers);
    if !client.is_behind_proxy {
        let names: Vec<HeaderName> = headers.keys().filter(|name| is_of_proxy(name.as_str())).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }
    headers.remove(CONTENT_LENGTH);
    headers.remove("expect");
    // The backend gets the same in the other headers, and two ways to say it could differ.
    headers.remove(FORWARDED);
    let named = headers.remove(HOST);
    let forwarded_host = client.forwarded_host.as_deref().and_then(|host| HeaderValue::try_from(host).ok());
    if let Some(host) = forwarded_host.or(named) {
        headers.insert("x-forwarded-host", host);
    }
    let scheme = if client.is_https { "https" } else { "http" };
    headers.insert("x-forwarded-proto", HeaderValue::from_static(scheme));
    if let Some(address) = client.address.and_then(|address| HeaderValue::try_from(address.to_string()).ok()) {
        headers.insert("x-real-ip", address);
    }
    let before = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let mut chain: Vec<String> = before.map(String::from).collect();
    if chain.is_empty() && client.address != client.peer {
        chain.extend(client.address.map(|address| address.to_string()));
    }
    chain.extend(client.peer.map(|peer| peer.to_string()));
    if let Some(chain) = HeaderValue::try_from(chain.join(", ")).ok().filter(|chain| !chain.is_empty()) {
        headers.insert("x-forwarded-for", chain);
    }
}

/// True for a header by which a proxy speaks to its backend about a client. Programs behind a gateway interface cannot tell `_`
/// from `-` (RFC 3875 §4.1.18).
fn is_of_proxy(name: &str) -> bool {
    let name = name.replace('_', "-");
    PREFIXES_OF_PROXIES.iter().any(|prefix| name.starts_with(prefix)) || NAMES_OF_PROXIES.contains(&name.as_str())
}

const PREFIXES_OF_PROXIES: [&str; 5] = ["x-forwarded", "x-original-", "x-envoy-", "x-ssl-", "grip-"];
const NAMES_OF_PROXIES: [&str; 18] = [
    "forwarded",
    "x-real-ip",
    "x-client-ip",
    "client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
    "x-cluster-client-ip",
    "x-proxyuser-ip",
    "x-rewrite-url",
    "x-host",
    "x-scheme",
    "x-url-scheme",
    "front-end-https",
    "remote-user",
    "x-remote-user",
    // It would become the variable HTTP_PROXY.
    "proxy",
    "via",
];

/// The protocols among these that a request wants to switch to, or that a response switches to (RFC 9110 §7.8). Others are ignored,
/// as the standard allows.
pub(crate) fn upgrade_of(headers: &HeaderMap, protocols: &[String]) -> Option<HeaderValue> {
    let mut lists = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let is_named = lists.any(|list| list.split(',').any(|name| name.trim().eq_ignore_ascii_case("upgrade")));
    let values = headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    let is_known = |name: &&str| protocols.iter().any(|known| known.eq_ignore_ascii_case(name));
    let wanted: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).filter(is_known).collect();
    HeaderValue::try_from(wanted.join(", ")).ok().filter(|value| is_named && !value.is_empty())
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
    use std::net::IpAddr;

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
        let said = [
            ("host", "a.example"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-proto", "https"),
            ("x_forwarded_host", "admin.example"),
            ("forwarded", "for=192.0.2.1"),
            ("x-real-ip", "192.0.2.1"),
            ("grip-sig", "forged"),
            ("x-original-url", "/admin"),
            ("content-length", "3"),
        ];
        let mut headers = of(&said);
        let peer = IpAddr::from([192, 0, 2, 2]);
        forward(&mut headers, &peer.into());
        let wanted = of(&[
            ("x-forwarded-host", "a.example"),
            ("x-forwarded-for", "192.0.2.2"),
            ("x-forwarded-proto", "http"),
            ("x-real-ip", "192.0.2.2"),
        ]);
        assert_eq!(headers, wanted);

        let mut headers = of(&said);
        let mut client = RequestClient::from(peer);
        (client.address, client.is_behind_proxy, client.is_https) = (Some([192, 0, 2, 1].into()), true, true);
        forward(&mut headers, &client);
        assert_eq!(headers["x-forwarded-for"], "192.0.2.1, 192.0.2.2");
        assert_eq!(headers.get("forwarded"), None, "one way to say it");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-real-ip"], "192.0.2.1");
        assert_eq!(headers["grip-sig"], "forged");

        let mut headers = of(&[("host", "inner"), ("forwarded", "for=192.0.2.1;host=a.example")]);
        client.forwarded_host = Some("a.example".into());
        forward(&mut headers, &client);
        assert_eq!(headers["x-forwarded-for"], "192.0.2.1, 192.0.2.2");
        assert_eq!(headers["x-forwarded-host"], "a.example");
    }

    #[test]
    fn only_listed_protocols_are_wanted() {
        let upgrade = |value: &'static str, connection: &'static str| {
            let headers = of(&[("connection", connection), ("upgrade", value)]);
            upgrade_of(&headers, &["websocket".into()]).map(|value| value.to_str().expect("text").to_owned())
        };
        assert_eq!(upgrade("WebSocket", "keep-alive, Upgrade").as_deref(), Some("WebSocket"));
        assert_eq!(upgrade("h2c, websocket", "upgrade").as_deref(), Some("websocket"));
        assert_eq!(upgrade("h2c", "Upgrade, HTTP2-Settings"), None);
        assert_eq!(upgrade("websocket", "keep-alive"), None);
    }
}
