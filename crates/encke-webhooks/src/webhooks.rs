//! All webhooks of a server, and their thread.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use encke::{Builder, Handle, Settings};
use encke_fetch::FetchError;
use tokio::sync::{oneshot, watch};

use crate::backend::Backend;
use crate::counters;
use crate::hooks::Hooks;
use crate::list;
use crate::settings::{WebhookError, WebhookSettings, check_all, check_times};

/// The webhooks of a server. Their requests run on a separate thread, so that shards never wait. When this is dropped, requests end.
#[derive(Debug)]
pub struct Webhooks {
    backends: Vec<Arc<Backend>>,
    server: watch::Sender<Option<Handle>>,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// A reason why webhooks do not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting cannot work.
    #[error(transparent)]
    Setting(#[from] WebhookError),
    /// The file of certificates cannot be used.
    #[error("webhooks: {0}")]
    Certificates(#[from] FetchError),
    /// The thread or the runtime cannot start.
    #[error("the thread of the webhooks cannot start: {0}")]
    Thread(#[from] io::Error),
    /// The system has no random numbers.
    #[error("no random numbers for webhooks: {0}")]
    Random(getrandom::Error),
}

impl Webhooks {
    /// Checks settings without starting anything. Reads the files of secrets.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn check(settings: &[WebhookSettings]) -> Result<(), WebhookError> {
        check_all(settings).map(drop)
    }

    /// Checks that no webhook takes longer than the server waits for a decision or a call: nobody would take such an answer.
    ///
    /// # Errors
    /// The first time-out that is too long.
    pub fn check_times(settings: &[WebhookSettings], server: &Settings) -> Result<(), WebhookError> {
        check_times(settings, server)
    }

    /// Starts the thread of the webhooks, if there are any.
    ///
    /// # Errors
    /// When a setting cannot work, or the thread cannot start.
    pub fn start(settings: &[WebhookSettings]) -> Result<Webhooks, StartError> {
        let server = watch::Sender::new(None);
        let mut backends = Vec::new();
        for checked in check_all(settings)? {
            let seed = getrandom::u64().map_err(StartError::Random)?;
            backends.push(Arc::new(Backend::new(checked, server.subscribe(), seed)?));
        }
        if backends.is_empty() {
            return Ok(Webhooks { backends, server, thread: None });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let running = backends.clone();
        let thread = std::thread::Builder::new().name("webhooks".into()).spawn(move || {
            runtime.block_on(async move {
                for backend in running {
                    tokio::spawn(backend.run());
                }
                // Dropping the sender is a stop, too.
                let _stopped = stopped.await;
            });
        })?;
        Ok(Webhooks { backends, server, thread: Some((stop, thread)) })
    }

    /// Puts the webhooks in front of the hooks of a server: those decide first, and have the services that no webhook wants.
    pub fn in_front_of(&self, server: Builder) -> Builder {
        if self.backends.is_empty() {
            return server;
        }
        let backends = self.backends.clone();
        server.layer(move |inner| Box::new(Hooks::new(&backends, inner)))
    }

    /// Connects the webhooks with their server once it has started: it performs the actions of backends, shows the metrics, and lists the
    /// webhooks in its HTTP API.
    pub fn serve(&self, server: &Handle) {
        self.server.send_replace(Some(server.clone()));
        server.add_operation(list::operation(self.backends.clone()));
        if self.backends.is_empty() {
            return;
        }
        let backends = self.backends.clone();
        server.add_metrics(move || {
            let snapshots: Vec<_> = backends.iter().map(|backend| backend.snapshot()).collect();
            counters::metrics(&snapshots)
        });
    }

    /// Waits until all events have been posted, or for this time. Then ends the thread. Returns the number of events that were lost.
    pub fn finish(mut self, timeout: Duration) -> usize {
        let began = Instant::now();
        let waiting = |backends: &[Arc<Backend>]| backends.iter().map(|backend| backend.waiting()).sum();
        let mut left = waiting(&self.backends);
        while left > 0 && began.elapsed() < timeout {
            std::thread::sleep(FINISH_PAUSE);
            left = waiting(&self.backends);
        }
        if left > 0 {
            tracing::warn!(events = left, "webhooks: events were not posted before the end");
        }
        self.stop();
        left
    }

    fn stop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            // A thread that panicked has already logged it.
            let _panicked = thread.join();
        }
    }
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Time between two looks at the queues at the end.
const FINISH_PAUSE: Duration = Duration::from_millis(10);
