//! Futures of the application for which a shard waits. They run on the application's threads.

use std::cell::RefCell;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use tokio::task::AbortHandle;

use encke_core::WaitKey;

/// The futures of one shard.
#[derive(Default)]
pub(crate) struct Futures(RefCell<HashMap<WaitKey, AbortHandle, RandomState>>);

impl Futures {
    pub(super) fn add(&self, key: WaitKey, future: AbortHandle) {
        self.0.borrow_mut().insert(key, future);
    }

    /// Forgets a future that is done.
    pub(super) fn forget(&self, key: WaitKey) {
        self.0.borrow_mut().remove(&key);
    }

    /// Drops a future whose result nobody needs.
    pub(super) fn cancel(&self, key: WaitKey) {
        if let Some(future) = self.0.borrow_mut().remove(&key) {
            future.abort();
        }
    }
}
