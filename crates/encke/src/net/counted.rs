//! The counts of open connections: of the server, and of each address.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::node::ServerShared;
use encke_core::network;

/// Counts a connection while it lives.
pub(crate) struct Counted {
    server_shared: Arc<ServerShared>,
    /// The key of its address, if it counts among the connections of the address.
    address: Option<NonZeroU64>,
}

impl Counted {
    /// Counts a connection of this address. None if the address already has as many as allowed.
    pub(crate) fn new(server_shared: &Arc<ServerShared>, address: IpAddr, address_max: usize) -> Option<Counted> {
        let counts = &server_shared.address_connections;
        // A key of 0 stands for another one.
        let key = |address| NonZeroU64::new(counts.key(network(address))).unwrap_or(NonZeroU64::MAX);
        let address = (address_max > 0).then(|| key(address));
        if address.is_some_and(|address| !counts.try_add(address.get(), address_max)) {
            return None;
        }
        server_shared.connections.fetch_add(1, Ordering::Relaxed);
        Some(Counted { server_shared: server_shared.clone(), address })
    }

    /// Counts a connection that another HTTP server has accepted, and limits.
    pub(crate) fn elsewhere(server_shared: &Arc<ServerShared>) -> Counted {
        server_shared.connections.fetch_add(1, Ordering::Relaxed);
        Counted { server_shared: server_shared.clone(), address: None }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.server_shared.connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(address) = self.address {
            self.server_shared.address_connections.remove(address.get(), 1);
        }
    }
}
