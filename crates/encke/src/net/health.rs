//! The state of a connection, shared by its I/O, its requests and the receipts of its responses.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The state of a connection, for code that has access to its requests only.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// A write failed, or the connection ended: bytes that the kernel had not taken are lost.
    broken: AtomicBool,
    /// A request is being answered, so no read deadline applies.
    busy: AtomicBool,
    /// A request was taken since the last check.
    served: AtomicBool,
    /// At least one request was taken.
    used: AtomicBool,
    /// The client exceeded a time-out.
    timed_out: AtomicBool,
    /// The kernel took no bytes at the last attempt, so hyper still holds some.
    stalled: AtomicBool,
    /// The number of requests so far.
    requests: AtomicU32,
    /// The request has waited for its answer for some time.
    waits_long: AtomicBool,
    /// The request has a length beside chunks.
    has_two_lengths: AtomicBool,
}

impl Health {
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Marks the connection as broken: bytes that the kernel has not taken by now are lost.
    pub(crate) fn set_broken(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// True while a request is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// True if the connection ended because its client exceeded a time-out.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.timed_out.load(Ordering::Relaxed)
    }

    /// Marks that its client exceeded a time-out.
    pub(super) fn set_timed_out(&self) {
        self.timed_out.store(true, Ordering::Relaxed);
        self.set_broken();
    }

    /// Marks whether the kernel took no bytes at the last attempt.
    pub(super) fn set_stalled(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::Relaxed);
    }

    /// Marks whether the request has a length beside chunks.
    pub(super) fn set_two_lengths(&self, has_two: bool) {
        self.has_two_lengths.store(has_two, Ordering::Relaxed);
    }

    /// True if a request was taken since the last call.
    pub(super) fn take_served(&self) -> bool {
        self.served.swap(false, Ordering::Relaxed)
    }

    /// Marks whether a request is being answered.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
        self.served.store(true, Ordering::Relaxed);
        self.used.store(true, Ordering::Relaxed);
    }

    /// Counts a request that is about to be answered.
    pub(crate) fn begin_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.waits_long.store(false, Ordering::Relaxed);
    }

    /// The number of requests so far.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Marks that the request will wait for its answer, or has waited for some time.
    pub(crate) fn set_waits_long(&self) {
        self.waits_long.store(true, Ordering::Relaxed);
    }

    /// True if the request waits for long, and all responses before it were written.
    pub(crate) fn may_leave_hyper(&self) -> bool {
        self.waits_long.load(Ordering::Relaxed) && !self.stalled.load(Ordering::Relaxed)
    }

    /// True if the request has a length beside chunks.
    pub(crate) fn has_two_lengths(&self) -> bool {
        self.has_two_lengths.load(Ordering::Relaxed)
    }

    /// True if the connection has taken at least one request.
    pub(crate) fn was_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }
}
