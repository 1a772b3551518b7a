//! Connections that await a request, by the time at which they have waited for too long. A tick wakes those, so no connection
//! has a timer.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::task::Waker;

/// The connections that await a request.
#[derive(Default)]
pub(crate) struct ParkedConnections(RefCell<BTreeMap<(u64, u64), Waker>>);

/// A connection that awaits a request, until it is dropped.
pub(crate) struct Parked<'a> {
    connections: &'a ParkedConnections,
    key: (u64, u64),
}

impl ParkedConnections {
    /// Notes that a connection with this number awaits a request until this time, in milliseconds.
    pub(crate) fn park(&self, until_ms: u64, number: u64, task: &Waker) -> Parked<'_> {
        let key = (until_ms, number);
        self.0.borrow_mut().insert(key, task.clone());
        Parked { connections: self, key }
    }

    /// Wakes the connections that have waited for too long.
    pub(crate) fn wake_late(&self, now_ms: u64) {
        while let Some(late) = self.0.borrow_mut().first_entry().filter(|first| first.key().0 <= now_ms) {
            late.remove().wake();
        }
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.connections.0.borrow_mut().remove(&self.key);
    }
}
