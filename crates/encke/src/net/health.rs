//! The state of a connection, shared by its I/O, its requests and the receipts of its responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The state of a connection, for code that has access to its requests only.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// A write failed, or the connection ended: bytes that the kernel has not taken by now are lost.
    pub(crate) broken: Flag,
    /// The client exceeded a time-out.
    pub(crate) timed_out: Flag,
    /// The kernel took no bytes at the last attempt, so hyper still holds some.
    pub(super) stalled: Flag,
    /// Bytes of the awaited request have arrived.
    pub(super) has_begun: Flag,
    /// No request follows the last response.
    pub(crate) is_last: Flag,
    /// The request will wait for its answer, or it, or the wait for the next one, has lasted for some time.
    pub(crate) waits_long: Flag,
    /// The request has a length beside chunks.
    pub(crate) has_two_lengths: Flag,
    /// A request is being answered, so no read deadline applies.
    busy: Flag,
    /// hyper has yet to take a part of a response, so no read deadline applies, however long that takes.
    sending: Flag,
    /// A request was taken since the last check.
    served: Flag,
    /// At least one request was taken.
    used: Flag,
    /// The number of requests so far.
    requests: AtomicU32,
    /// The connection speaks HTTP/2.
    pub(crate) speaks_http2: Flag,
    /// The state of the HTTP/2 connection, if this is the one of a stream.
    parent: Option<Arc<Health>>,
}

/// A fact that changes.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: bool) {
        self.0.store(value, Ordering::Relaxed);
    }
}

impl Health {
    /// The state of a stream of an HTTP/2 connection.
    pub(crate) fn of_stream(parent: &Arc<Health>) -> Health {
        Health { parent: Some(parent.clone()), ..Health::default() }
    }

    /// True if bytes that have not left are lost.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_set() || self.parent.as_ref().is_some_and(|parent| parent.broken.is_set())
    }

    /// True while a request is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.is_set()
    }

    /// Marks whether a request is being answered.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.set(busy);
        self.served.set(true);
        self.used.set(true);
    }

    /// True while hyper has yet to take a part of a response.
    pub(super) fn is_sending(&self) -> bool {
        self.sending.is_set()
    }

    /// Marks whether hyper has yet to take a part of a response.
    pub(crate) fn set_sending(&self, sending: bool) {
        self.sending.set(sending);
        self.served.set(true);
    }

    /// True if a request was taken since the last call.
    pub(super) fn take_served(&self) -> bool {
        self.served.0.swap(false, Ordering::Relaxed)
    }

    /// True if the connection has taken at least one request.
    pub(crate) fn was_used(&self) -> bool {
        self.used.is_set()
    }

    /// Counts a request that is about to be answered.
    pub(crate) fn begin_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.waits_long.set(false);
    }

    /// The number of requests so far.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// True if all responses were written, and nothing of the next request has arrived since.
    pub(crate) fn awaits_request(&self) -> bool {
        let at_work = [&self.busy, &self.has_begun, &self.sending, &self.stalled, &self.is_last];
        self.was_used() && !at_work.into_iter().any(Flag::is_set)
    }

    /// True if the request waits for long, and all responses before it were written.
    pub(crate) fn may_leave_hyper(&self) -> bool {
        self.waits_long.is_set() && !self.stalled.is_set()
    }
}
