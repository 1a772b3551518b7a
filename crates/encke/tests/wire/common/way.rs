//! The way of a test to its servers, where it is not that of all tests.

/// With TLS or without, over HTTP/2 or HTTP/1.1.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub tls: bool,
    pub http2: bool,
}

tokio::task_local! {
    static WAY: Way;
}

/// The way that this test has chosen.
pub fn way() -> Option<Way> {
    WAY.try_get().ok()
}

/// Runs a test this way, on this thread.
pub fn with_way<T>(way: Way, test: impl FnOnce() -> T) -> T {
    WAY.sync_scope(way, test)
}

/// A task that goes this way.
pub async fn on_way<F: Future>(way: Way, task: F) -> F::Output {
    WAY.scope(way, task).await
}
