//! Further addresses of the server.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{Settings, TlsClient};

/// A further address at which the server accepts connections, written as `ListenerSettings { address: …,
/// ..ListenerSettings::default() }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerSettings {
    /// An address and a port such as `0.0.0.0:8443`, or `unix:` and the path of a Unix socket.
    pub address: String,
    /// True: it speaks TLS, with the certificates of the server.
    #[serde(default)]
    pub tls: bool,
    /// True: each connection begins with a head of the PROXY protocol (version 1 or 2), which names the client. Only trusted proxies may
    /// connect: see [`Settings::trusted_proxies`].
    #[serde(default)]
    pub proxy_protocol: bool,
    /// As the setting `tls_client`, for clients of this address. None: as that says.
    #[serde(default)]
    pub tls_client: Option<TlsClient>,
}

impl ListenerSettings {
    /// The path of a Unix socket, if it is one.
    pub fn unix_path(&self) -> Option<&str> {
        self.address.strip_prefix("unix:")
    }

    /// The address and port, if it is no Unix socket.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        self.address.parse().ok()
    }
}

impl Settings {
    /// The addresses and ports of `listen` and of `listeners`.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        std::iter::once(self.listen).chain(self.listeners.iter().filter_map(ListenerSettings::socket_address))
    }

    /// True if there is a certificate for `listen`.
    pub fn has_tls(&self) -> bool {
        self.dev_tls || !self.tls_cert.is_empty() || !self.acme.is_empty()
    }

    /// True if only this machine reaches the server: all its addresses are of loopback. A Unix socket is local. The checks of hosts and
    /// of origins and the demo depend on this.
    pub fn is_on_loopback(&self) -> bool {
        self.addresses().all(|address| address.ip().to_canonical().is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_public_address_makes_a_server_public() {
        let is_on_loopback = |listen: &str, further: &[&str]| {
            let at = |address: &&str| ListenerSettings { address: address.to_string(), ..ListenerSettings::default() };
            let listeners = further.iter().map(at).collect();
            Settings { listen: listen.parse().expect("an address"), listeners, ..Settings::default() }.is_on_loopback()
        };
        assert!(is_on_loopback("127.0.0.1:80", &[]));
        assert!(is_on_loopback("[::1]:80", &["127.0.0.2:443", "[::ffff:127.0.0.1]:443", "unix:/run/encke.sock"]));
        assert!(!is_on_loopback("0.0.0.0:80", &["127.0.0.1:443"]));
        for public in ["0.0.0.0:443", "[::]:443", "192.0.2.7:443"] {
            assert!(!is_on_loopback("127.0.0.1:80", &["unix:/run/encke.sock", public]), "{public}");
        }
    }
}
