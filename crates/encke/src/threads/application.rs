//! The threads that run the application's futures. Shards poll a future once; one that is not ready continues here.

use std::io;

use tokio::runtime::{Handle, Runtime};

/// The threads of the application. Dropping the last owner ends them without waiting for their futures.
pub(crate) struct ApplicationThreads {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl ApplicationThreads {
    /// Starts this number of threads; 0: one for each core.
    ///
    /// # Errors
    /// The system's error, usually too few file descriptors.
    pub(crate) fn start(threads: usize) -> io::Result<ApplicationThreads> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        if threads > 0 {
            builder.worker_threads(threads);
        }
        let runtime = builder.thread_name("application").enable_all().build()?;
        Ok(ApplicationThreads { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// A handle to run futures with.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for ApplicationThreads {
    fn drop(&mut self) {
        // The last owner may be one of the futures: a runtime must not wait for itself.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
