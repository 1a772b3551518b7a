//! The counts of open connections: of the server, and of each address.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::byte_stream::Remote;
use encke_core::{Counts, network};

/// The open connections of a server.
#[derive(Default)]
pub(crate) struct Connections {
    open: AtomicUsize,
    /// By address, while `address_connections_max` is set.
    by_address: Counts,
}

/// Counts a connection while it lives.
pub(crate) struct Counted {
    connections: Arc<Connections>,
    /// The key of its address, if it counts among the connections of the address.
    address: Option<NonZeroU64>,
}

/// A new connection, as far as the thread that accepted it knows it.
pub(crate) struct Arrival {
    pub(crate) remote: Remote,
    pub(crate) counted: Counted,
    /// True if it begins with a PROXY head.
    pub(crate) has_proxy_head: bool,
}

impl Connections {
    /// The number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a connection of this address. None if the address already has as many as allowed.
    pub(crate) fn count(self: &Arc<Connections>, address: IpAddr, address_max: usize) -> Option<Counted> {
        // A key of 0 stands for another one.
        let key = |address| NonZeroU64::new(self.by_address.key(network(address))).unwrap_or(NonZeroU64::MAX);
        let address = (address_max > 0).then(|| key(address));
        if address.is_some_and(|address| !self.by_address.try_add(address.get(), address_max)) {
            return None;
        }
        Some(self.counted(address))
    }

    /// Counts a connection that another HTTP server has accepted, and limits.
    pub(crate) fn count_elsewhere(self: &Arc<Connections>) -> Counted {
        self.counted(None)
    }

    fn counted(self: &Arc<Connections>, address: Option<NonZeroU64>) -> Counted {
        self.open.fetch_add(1, Ordering::Relaxed);
        Counted { connections: self.clone(), address }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(address) = self.address {
            self.connections.by_address.remove(address.get(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_its_limit_and_connections_elsewhere_have_none() {
        let connections = Arc::<Connections>::default();
        let address = |last| IpAddr::from([10, 0, 0, last]);
        let first = connections.count(address(1), 1);
        assert!(first.is_some() && connections.count(address(1), 1).is_none());
        let others = [connections.count(address(2), 1), Some(connections.count_elsewhere())];
        assert_eq!(connections.open(), 3);
        drop((first, others));
        assert_eq!(connections.open(), 0);
        assert!(connections.count(address(1), 1).is_some(), "its connection has ended");
    }
}
