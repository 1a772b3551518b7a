//! Confirms whether the kernel took a response. hyper does not report it, so the bytes of the body report it when
//! they are dropped.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::health::Health;
use encke_core::ExchangeId;

/// A response that the kernel took or that was lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmed {
    pub(crate) exchange: ExchangeId,
    /// The shard of its session.
    pub(crate) shard: u16,
    pub(crate) taken: bool,
}

/// The confirmations from the connections of one shard.
#[derive(Debug, Default)]
pub(crate) struct Confirmations {
    queue: Mutex<Vec<Confirmed>>,
    /// Wakes the shard's driver.
    pub(crate) wake: Notify,
}

impl Confirmations {
    pub(crate) fn take(&self) -> Vec<Confirmed> {
        std::mem::take(&mut *self.queue.lock())
    }

    fn put(&self, confirmed: Confirmed) {
        self.queue.lock().push(confirmed);
        self.wake.notify_one();
    }
}

/// Reports when it is dropped: taken, if it was given to a connection that is not broken; otherwise lost.
pub(crate) struct Receipt {
    confirmed: Confirmed,
    to: Arc<Confirmations>,
    connection: Option<Arc<Health>>,
}

impl Receipt {
    pub(crate) fn new(exchange: ExchangeId, shard: u16, to: Arc<Confirmations>) -> Receipt {
        Receipt { confirmed: Confirmed { exchange, shard, taken: false }, to, connection: None }
    }

    /// Ties the receipt to the bytes given to a connection. hyper drops them when they are written or when the
    /// connection ends.
    pub(crate) fn attach(mut self, connection: Arc<Health>, bytes: Bytes) -> Bytes {
        self.connection = Some(connection);
        Bytes::from_owner(Tracked { bytes, _receipt: self })
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        let taken = self.connection.as_ref().is_some_and(|connection| !connection.is_broken());
        self.to.put(Confirmed { taken, ..self.confirmed });
    }
}

struct Tracked {
    bytes: Bytes,
    _receipt: Receipt,
}

impl AsRef<[u8]> for Tracked {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
