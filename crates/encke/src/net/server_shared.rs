//! State shared by all shards of a server and its handles.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bayeux::Publication;
use tokio::sync::{mpsc, oneshot, watch};

use super::confirm::Confirmations;
use super::connections::Connections;
use super::holds::Holds;
use super::outcomes::Outcomes;
use super::published::{Added, Positions, Published};
use super::thread_message::ThreadMessage;
use crate::api_keys::ApiKeys;
use crate::asset::Asset;
use crate::fallback::Installed;
use crate::idempotency::Idempotency;
use crate::local::Local;
use crate::metric::AddedMetrics;
use crate::presence::Presence;
use crate::revocations::Revocations;
use crate::session_names::SessionNames;
use encke_core::{Granted, MailboxAccount, Metrics, Now, Right, Shard, ShardMessage};

/// Data shared by all shards of a server.
pub(crate) struct ServerShared {
    pub(crate) mailboxes: Vec<mpsc::UnboundedSender<ThreadMessage>>,
    /// The subscribers in the process: the virtual shard after the last one.
    pub(crate) local: Local,
    /// Answers the requests that are not the server's own.
    pub(crate) fallback: Installed,
    /// The numbers of held requests.
    pub(crate) holds: Arc<Holds>,
    /// One for each shard, with its wake-up.
    pub(crate) confirmations: Vec<Arc<Confirmations>>,
    /// Publications of handles, for each shard.
    pub(crate) published: Vec<Published>,
    /// Requests of handles that wait for their outcome.
    pub(crate) outcomes: Arc<Outcomes>,
    /// The keys of the HTTP API.
    pub(crate) api_keys: RwLock<Arc<ApiKeys>>,
    pub(crate) session_names: SessionNames,
    /// The journal of revoked tokens.
    pub(crate) revocations: Arc<Revocations>,
    /// Answers of the HTTP API that are remembered.
    pub(crate) idempotency: Arc<Idempotency>,
    /// The account of bytes in the mailboxes.
    pub(crate) mailbox: Arc<MailboxAccount>,
    /// The threads on which the application waits.
    pub(crate) application: tokio::runtime::Handle,
    /// The members of channels.
    pub(crate) presence: Presence,
    /// One for each shard; then the store thread's, that of the subscribers in the process, and that of presence.
    pub(crate) metrics: Vec<Arc<Metrics>>,
    /// The metrics of the program around the server.
    pub(crate) added_metrics: AddedMetrics,
    pub(crate) assets: &'static [Asset],
    pub(crate) connections: Arc<Connections>,
    /// Echoes every WebSocket message, for conformance suites.
    pub(crate) echo: bool,
    /// Returns the thread's free memory to the system.
    pub(crate) reclaim_memory: Option<fn()>,
    /// The instant at which the clock starts.
    pub(crate) start: Instant,
    /// True while new connections are accepted.
    pub(crate) accepting: watch::Sender<bool>,
}

impl ServerShared {
    /// The current time on the clock that started at `start`.
    pub(crate) fn now(start: Instant) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { ms: CLOCK_START_MS + start.elapsed().as_millis() as u64, wall_ms: wall.as_millis() as u64 }
    }

    /// Passes a publication to the shard that owns its channel. False if the server has stopped.
    pub(crate) fn publish(
        &self,
        owner: usize,
        message: &Publication<'_>,
        wanted: Option<(&mut Positions<'_>, usize)>,
        granted: Granted,
    ) -> bool {
        granted.use_for(Right::Publish);
        let Some(published) = self.published.get(owner) else { return false };
        match published.add(&self.mailbox, message, wanted) {
            Added::Noted => {}
            Added::First => _ = self.mailboxes[owner].send(ThreadMessage::Published),
            Added::Closed => return false,
        }
        true
    }

    /// The keys of the HTTP API.
    pub(crate) fn api_keys(&self) -> Arc<ApiKeys> {
        self.api_keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Passes a message of a shard to the handle that waits for it.
    pub(super) fn report(&self, message: ShardMessage) {
        match message {
            ShardMessage::Report(report) => self.outcomes.note(report),
            ShardMessage::Persisted(persisted) => self.outcomes.settle(&persisted),
            // Shards send handles nothing else.
            _ => {}
        }
    }

    /// Reads a shard. None if there is no such shard, or the server stops.
    pub(crate) async fn inspect<T: Send + 'static>(
        &self,
        shard: usize,
        look: impl FnOnce(&Shard) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let look = move |shard: &Shard| _ = sender.send(look(shard));
        self.mailboxes.get(shard)?.send(ThreadMessage::Inspect(Box::new(look))).ok()?;
        receiver.await.ok()
    }

    /// True if the store thread has panicked and answers every request as not persisted.
    pub(crate) fn history_store_has_panicked(&self) -> bool {
        self.metrics.iter().any(|metrics| metrics.history_store_panicked.get() > 0)
    }
}

/// The reading of the clock at its start, in milliseconds: high enough to give messages of an earlier life of the
/// process a time on it.
const CLOCK_START_MS: u64 = 1 << 42;
