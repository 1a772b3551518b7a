//! Runs the futures of an application for which a shard waits, on the application's threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use encke_core::{Awaited, Resolved};

/// Runs a future, and passes its result on. A panic is a result, too.
pub(crate) fn run(runtime: &Handle, awaited: Awaited, then: impl FnOnce(Resolved) + Send + 'static) -> AbortHandle {
    runtime.spawn(async move { then(Guarded(awaited).await) }).abort_handle()
}

/// A future whose panic is a result.
struct Guarded(Awaited);

impl Future for Guarded {
    type Output = Resolved;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Resolved> {
        // After a panic the future is not polled again.
        catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.0).poll(cx))).unwrap_or_else(|_| {
            tracing::error!(what = ?self.0, "a future of the application has panicked");
            Poll::Ready(Resolved::Failed)
        })
    }
}
