//! The proxies in front of Encke that are trusted with headers about their clients.

use std::net::IpAddr;

use http::header::HeaderMap;
use ipnet::IpNet;

/// Reads an address, or a network in the notation of RFC 4632 §3.1, such as `10.0.0.0/8`.
pub(crate) fn network(text: &str) -> Option<IpNet> {
    text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok()
}

/// True if an address is in one of these networks.
pub(crate) fn is_trusted(networks: &[IpNet], address: Option<IpAddr>) -> bool {
    address.is_some_and(|address| networks.iter().any(|network| network.contains(&address.to_canonical())))
}

/// The address of the client: that of the peer, or the last one in `X-Forwarded-For` that is no trusted proxy itself.
pub(crate) fn client(networks: &[IpNet], peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
    if !is_trusted(networks, peer) {
        return peer;
    }
    let lists = headers.get_all("x-forwarded-for").iter().rev().filter_map(|value| value.to_str().ok());
    let addresses = lists.flat_map(|list| list.rsplit(',')).map(|text| text.trim().parse::<IpAddr>().ok());
    let mut client = peer;
    for address in addresses {
        // A text that is no address is not the proxy's word on anybody.
        let Some(address) = address else { return client };
        client = Some(address);
        if !is_trusted(networks, client) {
            break;
        }
    }
    client
}

#[cfg(test)]
mod tests {
    use http::header::HeaderValue;

    use super::*;

    #[test]
    fn a_network_has_the_addresses_with_its_first_bits() {
        let has = |network: &str, address: &str| {
            is_trusted(&[super::network(network).expect("a network")], address.parse().ok())
        };
        assert!(has("10.0.0.0/8", "10.9.8.7") && has("0.0.0.0/0", "192.0.2.1") && has("192.0.2.1", "192.0.2.1"));
        assert!(has("10.0.0.0/8", "::ffff:10.1.1.1") && has("fd00::/8", "fd12::1") && has("::/0", "2001:db8::1"));
        assert!(!has("10.0.0.0/8", "11.0.0.1") && !has("192.0.2.1", "192.0.2.2") && !has("fd00::/8", "fe00::1"));
        assert!(!has("0.0.0.0/0", "::1"));
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "a/8", "10.0.0.0/"] {
            assert_eq!(network(text), None, "{text}");
        }
    }

    #[test]
    fn a_trusted_proxy_names_the_client_and_nobody_else_does() {
        let networks = [network("10.0.0.0/8").expect("a network")];
        let client = |peer: [u8; 4], line: &'static str| {
            let headers =
                HeaderMap::from_iter([("x-forwarded-for".parse().expect("a name"), HeaderValue::from_static(line))]);
            client(&networks, Some(peer.into()), &headers).expect("an address").to_string()
        };
        assert_eq!(client([10, 0, 0, 1], "1.1.1.1, 192.0.2.7, 10.0.0.2"), "192.0.2.7");
        assert_eq!(client([10, 0, 0, 1], "192.0.2.7, x"), "10.0.0.1");
        assert_eq!(client([10, 0, 0, 1], ""), "10.0.0.1");
        assert_eq!(client([192, 0, 2, 1], "192.0.2.7"), "192.0.2.1");
    }
}
