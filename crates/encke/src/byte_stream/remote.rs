//! The other end of a connection.

use std::net::IpAddr;

use encke_core::Settings;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remote {
    /// A client, or a proxy, at this address.
    Tcp(IpAddr),
    /// A program on this machine, by a Unix socket.
    Unix,
    /// The client that a trusted proxy has named by the PROXY protocol.
    Named {
        /// Its address.
        address: IpAddr,
        /// True if it speaks TLS with the proxy.
        is_tls: bool,
    },
    /// Somebody whom a trusted proxy, at this address, has not named in its PROXY head: the proxy itself, or a client that it does not know.
    Unnamed(Option<IpAddr>),
    /// A client of another HTTP server, at this address if that server knows it.
    Elsewhere(Option<IpAddr>),
}

impl Remote {
    /// Its address, if it has one.
    pub(crate) fn address(self) -> Option<IpAddr> {
        match self {
            Remote::Tcp(address) | Remote::Named { address, .. } => Some(address),
            Remote::Unix => None,
            Remote::Unnamed(address) | Remote::Elsewhere(address) => address,
        }
    }

    /// True if it is a proxy that is believed about its clients.
    pub(crate) fn is_trusted(self, settings: &Settings) -> bool {
        match self {
            Remote::Unix => settings.trusts_unix_sockets(),
            Remote::Unnamed(_) => false,
            _ => self.address().is_some_and(|address| settings.trusts_address(address)),
        }
    }

    /// True if it connects from an address of loopback, without a PROXY head. It may still be a proxy.
    pub(crate) fn is_loopback(self) -> bool {
        matches!(self, Remote::Tcp(address) if address.to_canonical().is_loopback())
    }

    /// True if its client speaks TLS with a proxy that says so.
    pub(crate) fn is_tls(self) -> bool {
        matches!(self, Remote::Named { is_tls: true, .. })
    }
}
