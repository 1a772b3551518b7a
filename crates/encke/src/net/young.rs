//! Requests that wait for their answer, and connections in hyper that await a request. Those that wait for some time leave hyper; over
//! HTTP/2 they count as held.

use std::cell::RefCell;
use std::sync::Arc;
use std::task::Waker;

use super::health::Health;

/// The requests that have waited since the last release.
#[derive(Default)]
pub(crate) struct YoungRequests(RefCell<Vec<Young>>);

/// A request: its connection, its number there, and the task of the connection.
struct Young {
    connection: Arc<Health>,
    request: u32,
    task: Waker,
}

impl YoungRequests {
    /// Notes a request that waits, or that its connection awaits the next one.
    pub(crate) fn note(&self, connection: &Arc<Health>, task: &Waker) {
        let (connection, request) = (connection.clone(), connection.requests());
        self.0.borrow_mut().push(Young { connection, request, task: task.clone() });
    }

    /// Marks and wakes the requests that have waited since the last call.
    pub(crate) fn release(&self) {
        let young = std::mem::take(&mut *self.0.borrow_mut());
        for Young { connection, request, task } in young {
            if connection.requests() == request && (connection.is_busy() || connection.awaits_request()) {
                connection.waits_long.set(true);
                task.wake();
            }
        }
    }
}
