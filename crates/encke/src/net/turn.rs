//! The turns that tasks of one thread take.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

/// Lets a task go on after all others that are ready, and after the runtime has asked the system for new input. A task that wakes itself
/// is ready at once, and while any task is, the runtime asks only before every 61st turn.
pub(crate) fn yield_turn<T>(cx: &mut Context<'_>) -> Poll<T> {
    // The runtime keeps the waker when the future is gone.
    let _pending = pin!(tokio::task::yield_now()).poll(cx);
    Poll::Pending
}
