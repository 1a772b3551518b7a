//! The proxies in front of the server that are believed about their clients.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::Settings;

/// A trusted proxy, or a network of them. Its text is an address, a network such as `10.0.0.0/8` (RFC 4632 §3.1), or `unix:`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TrustedProxy {
    /// Those with an address of this network.
    Network(IpNet),
    /// Those that come through a Unix socket.
    Unix,
}

/// The text names no trusted proxy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address, a network such as 10.0.0.0/8, or unix:")]
pub struct TrustedProxyError(String);

impl FromStr for TrustedProxy {
    type Err = TrustedProxyError;

    fn from_str(text: &str) -> Result<TrustedProxy, TrustedProxyError> {
        if text == UNIX {
            return Ok(TrustedProxy::Unix);
        }
        let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map(TrustedProxy::Network).map_err(|_| TrustedProxyError(text.into()))
    }
}

impl TryFrom<String> for TrustedProxy {
    type Error = TrustedProxyError;

    fn try_from(text: String) -> Result<TrustedProxy, TrustedProxyError> {
        text.parse()
    }
}

impl From<TrustedProxy> for String {
    fn from(proxy: TrustedProxy) -> String {
        match proxy {
            TrustedProxy::Network(network) if network.prefix_len() == network.max_prefix_len() => {
                network.addr().to_string()
            }
            TrustedProxy::Network(network) => network.to_string(),
            TrustedProxy::Unix => UNIX.into(),
        }
    }
}

impl Settings {
    /// True if a proxy at this address is trusted.
    pub fn trusts_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted_proxies
            .iter()
            .any(|proxy| matches!(proxy, TrustedProxy::Network(network) if network.contains(&address)))
    }

    /// True if a proxy that comes through a Unix socket is trusted.
    pub fn trusts_unix_sockets(&self) -> bool {
        self.trusted_proxies.contains(&TrustedProxy::Unix)
    }
}

const UNIX: &str = "unix:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_with_its_first_bits() {
        let has = |network: &str, address: &str| {
            let trusted_proxies = vec![network.parse().expect("a network")];
            let settings = Settings { trusted_proxies, ..Settings::default() };
            settings.trusts_address(address.parse().expect("an address"))
        };
        assert!(has("10.0.0.0/8", "10.9.8.7") && has("0.0.0.0/0", "192.0.2.1") && has("192.0.2.1", "192.0.2.1"));
        assert!(has("10.0.0.0/8", "::ffff:10.1.1.1") && has("fd00::/8", "fd12::1") && has("::/0", "2001:db8::1"));
        assert!(!has("10.0.0.0/8", "11.0.0.1") && !has("192.0.2.1", "192.0.2.2") && !has("fd00::/8", "fe00::1"));
        assert!(!has("0.0.0.0/0", "::1") && !has("unix:", "127.0.0.1"));
    }

    #[test]
    fn other_texts_name_no_proxy_and_valid_ones_are_shown_as_written() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "a/8", "10.0.0.0/", "unix", "localhost"] {
            assert!(text.parse::<TrustedProxy>().is_err(), "{text}");
        }
        for text in ["10.0.0.0/8", "192.0.2.1", "fd00::/8", "::1", "unix:"] {
            assert_eq!(String::from(text.parse::<TrustedProxy>().expect(text)), text);
        }
    }
}
