//! State shared by all shards of a server and its handles.

use std::sync::Arc;

use bayeux::Publication;
use tokio::sync::{oneshot, watch};

use super::api_state::ApiState;
use super::clock::Clock;
use super::confirm::Confirmations;
use super::connections::Connections;
use super::mailboxes::Mailboxes;
use super::outcomes::Outcomes;
use super::published::{Added, Positions, Published};
use super::server_metrics::ServerMetrics;
use super::thread_message::ThreadMessage;
use crate::cluster::link::Link;
use crate::fallback::Pages;
use crate::files::Directory;
use crate::local::Local;
use crate::net::published::Marks;
use crate::presence::Presence;
use crate::revocations::Revocations;
use crate::tls::Tls;
use encke_cluster::Shards;
use encke_core::{Envelope, Granted, OTHER_NODES, PublishToken, Right, Shard, ShardMessage, Shared};
use encke_local::Holds;

/// Data shared by all shards of a server.
pub(crate) struct ServerShared {
    pub(crate) clock: Clock,
    pub(crate) mailboxes: Mailboxes,
    /// The subscribers in the process: the virtual shard after the last one.
    pub(crate) local: Local,
    /// The mailbox of the cluster's thread, if the server is a node of a cluster.
    pub(crate) cluster: Option<Arc<Link>>,
    /// The members of channels.
    pub(crate) presence: Presence,
    /// Publications of handles, for each shard.
    pub(crate) published: Vec<Published>,
    /// Requests of handles that wait for their outcome.
    pub(crate) outcomes: Arc<Outcomes>,
    /// One for each shard, with its wake-up.
    pub(crate) confirmations: Vec<Arc<Confirmations>>,
    /// The threads on which the application waits.
    pub(crate) application: tokio::runtime::Handle,
    pub(crate) connections: Arc<Connections>,
    /// True while new connections are accepted.
    pub(crate) accepting: watch::Sender<bool>,
    /// TLS, if the server has certificates.
    pub(crate) tls: Option<Arc<Tls>>,
    /// The numbers of held requests.
    pub(crate) holds: Arc<Holds>,
    pub(crate) api: ApiState,
    /// The journal of revoked tokens.
    pub(crate) revocations: Arc<Revocations>,
    pub(crate) metrics: ServerMetrics,
    pub(crate) pages: Pages,
    /// The files of the directory.
    pub(crate) directory: Directory,
    /// Echoes every WebSocket message, for conformance suites.
    pub(crate) echo: bool,
    /// Returns the thread's free memory to the system.
    pub(crate) reclaim_memory: Option<fn()>,
}

impl ServerShared {
    /// The part of it that the core knows.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.local.registry.shared()
    }

    /// Passes a publication to the shard that owns its channel, and its history, if any: so publications of one channel keep
    /// their order. False if the server has stopped.
    pub(crate) fn publish(
        &self,
        message: &Publication<'_>,
        marks: Marks,
        wanted: Option<(&mut Positions<'_>, usize)>,
        granted: Granted,
    ) -> bool {
        granted.use_for(Right::Publish);
        let owner = self.shared().histories.owner(message.channel);
        let Some(published) = self.published.get(owner) else { return false };
        match published.add(self.mailboxes.account(), message, marks, wanted) {
            Added::Noted => {}
            Added::First => _ = self.mailboxes.send(owner, ThreadMessage::Published),
            Added::Closed => return false,
        }
        true
    }

    /// Passes a message to the shard or the handle of a token.
    pub(crate) fn answer(&self, shard: u16, message: ShardMessage) {
        if shard == PublishToken::HANDLES {
            return self.report(message);
        }
        // A shard that has ended has no replies.
        let _ended = self.mailboxes.send_to_shard(shard.into(), message);
    }

    /// Passes a message of a shard to the handle that waits for it.
    pub(crate) fn report(&self, message: ShardMessage) {
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
        self.mailboxes.send(shard, ThreadMessage::Inspect(Box::new(look)));
        // A look that was not sent has dropped its sender.
        receiver.await.ok()
    }
}

impl Shards for ServerShared {
    fn shared(&self) -> &Arc<Shared> {
        self.local.registry.shared()
    }

    fn send(&self, shard: usize, message: ShardMessage) {
        if shard == self.mailboxes.shards() {
            return self.local.send(Envelope::new(self.mailboxes.account(), message));
        }
        // A number that is too large is that of no shard.
        self.answer(u16::try_from(shard).unwrap_or(OTHER_NODES), message);
    }
}
