//! The handle of a running server: publications, sessions, reload, drain.

mod lists;
mod publish;
mod session;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, watch};

use crate::added_operation::ApiOperation;
use crate::api_keys::ApiKeys;
use crate::cluster::link::ToCluster;
use crate::cluster::settings::ClusterSettings;
use crate::error::{PublishError, RevocationError, SettingsError};
use crate::fallback::Fallback;
use crate::http::embedded::Visit;
use crate::idempotency::Window;
use crate::lease::Lease;
use crate::metric::Metric;
use crate::net::everywhere::ClusterNodes;
use crate::net::published::Published;
use crate::net::requests::Revocation;
use crate::net::server_shared::ServerShared;
use crate::net::thread_message::ThreadMessage;
use crate::outgoing::Outgoing;
use crate::settings::check_settings;
use crate::threads::ending;
use crate::tls::TicketKey;
use encke_core::{Action, Actions, Declared as _, Elsewhere, Id, ServerEntry, Settings, ShardMessage, Weight};
use encke_local::{Members, Start, SubscribeError, Subscription};
use publish::Terms;

/// Controls a running server, from any thread. Clones control the same server; they do not keep it running.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

/// A handle that does not hold the server's data.
#[derive(Clone, Debug)]
pub(crate) struct WeakHandle(Weak<Inner>);

impl WeakHandle {
    /// The handle, while a shard or another handle has the data.
    pub(crate) fn upgrade(&self) -> Option<Handle> {
        self.0.upgrade().map(Handle)
    }
}

struct Inner {
    server_shared: Arc<ServerShared>,
    settings: Mutex<Arc<Settings>>,
    draining: AtomicBool,
    /// True while requests of handles are accepted.
    open: RwLock<bool>,
    /// True if sessions outlive the server.
    keeps: bool,
    /// The channels and patterns of the rules.
    named: RwLock<HashSet<String>>,
    /// To the shards, from other HTTP servers.
    visits: Vec<mpsc::UnboundedSender<Visit>>,
}

impl Handle {
    /// A handle of a server that has just started. `keeps`: its sessions outlive it.
    pub(crate) fn new(
        server_shared: Arc<ServerShared>,
        settings: Arc<Settings>,
        keeps: bool,
        visits: Vec<mpsc::UnboundedSender<Visit>>,
    ) -> Handle {
        let (named, settings) = (RwLock::new(named(&settings)), Mutex::new(settings));
        let (draining, open) = (AtomicBool::new(false), RwLock::new(true));
        Handle(Arc::new(Inner { server_shared, settings, draining, open, keeps, named, visits }))
    }

    /// Passes what another HTTP server has to a shard, which a number stands for. A shard that has ended drops it.
    pub(crate) fn visit(&self, number: usize, visit: Visit) {
        let _ended = self.0.visits[number % self.0.visits.len()].send(visit);
    }

    pub(crate) fn server(&self) -> &Arc<ServerShared> {
        &self.0.server_shared
    }

    pub(crate) fn downgrade(&self) -> WeakHandle {
        WeakHandle(Arc::downgrade(&self.0))
    }

    /// Does what a hook has requested. It never fails for want of room, like messages between shards: hooks run only
    /// for input that was admitted.
    pub(crate) fn act(&self, actions: Actions) {
        let terms = self.terms();
        for action in actions {
            if let Err(error) = self.perform(&terms, &action) {
                tracing::error!(%error, "a hook requested what cannot be done");
            }
        }
    }

    fn perform(&self, terms: &Terms, action: &Action) -> Result<(), PublishError> {
        match action {
            Action::Publish { channel, data, ext, is_lazy } => {
                let message = Outgoing { is_lazy: *is_lazy, ..Outgoing::raw(data).with(ext.as_deref()) };
                self.broadcast(terms, channel, &message, Weight::Light, None)?;
            }
            Action::Deliver { session, channel, data, id, ext } => {
                let message = Outgoing::raw(data).with(ext.as_deref());
                let frame = self.frame(terms, channel, &message, id.as_deref())?;
                _ = Id::parse(session)
                    .is_some_and(|id| self.send_to_shard_of(&id, ShardMessage::Deliver(id, frame, None)));
            }
            Action::DeliverToUser { user, channel, data } => {
                let frame = self.frame(terms, channel, &Outgoing::raw(data), None)?;
                self.send_to_all_shards(|| ShardMessage::DeliverToUser((**user).into(), frame.clone()));
                self.act_elsewhere(|| Elsewhere::DeliverToUser((**user).into(), frame.clone()));
            }
            Action::DisconnectUser { user } => {
                self.send_to_all_shards(|| ShardMessage::DisconnectUser((**user).into()));
                self.act_elsewhere(|| Elsewhere::DisconnectUser((**user).into()));
            }
            Action::ChangeAttribute { session, change } => self.act_on_attribute(session, change),
            Action::Disconnect { session } => _ = self.disconnect(session),
            _ => {}
        }
        Ok(())
    }

    /// Passes an action to the other nodes of a cluster.
    fn act_elsewhere(&self, action: impl FnOnce() -> Elsewhere) {
        if let Some(cluster) = &self.0.server_shared.cluster {
            cluster.send(ToCluster::Act(action()));
        }
    }

    /// Lets the shards know that the hooks have changed.
    pub(crate) fn application_changed(&self) {
        self.send_to_all_shards(|| ShardMessage::Application);
    }

    /// True if a channel exists although nobody subscribes to it: it has a history, or a rule names it.
    pub(crate) fn knows(&self, channel: &str) -> bool {
        self.0.named.read().contains(channel) || self.0.server_shared.shared().histories.has(channel)
    }

    /// Subscribes to a channel or pattern, as a part of the program: nothing is decided about it, and there is no
    /// session. The stream gets what is published after this call has returned.
    ///
    /// # Errors
    /// When it is no channel or pattern for broadcasts.
    pub fn subscribe(&self, pattern: &str) -> Result<Subscription, SubscribeError> {
        self.subscribe_from(pattern, &Start::Latest)
    }

    /// Subscribes from a point in the past, where the channels have histories. Nothing is lost or doubled between the
    /// history and new messages.
    ///
    /// # Errors
    /// When it is no channel or pattern for broadcasts, the positions do not fit, or a pattern matches too many channels
    /// with a history.
    pub fn subscribe_from(&self, pattern: &str, start: &Start) -> Result<Subscription, SubscribeError> {
        self.0.server_shared.local.registry.subscribe(
            &self.settings(),
            pattern,
            start,
            ServerEntry::HandleSubscribe.may(),
        )
    }

    /// Installs a service for the requests that are not the server's own, in place of the one before. None: there is none.
    pub fn set_fallback(&self, fallback: Option<Arc<dyn Fallback>>) {
        self.0.server_shared.pages.set_fallback(fallback);
    }

    /// The members of a channel whose rule has `presence`: up to `max` users whose names come after `after`, in the order
    /// of their names, and the numbers of all. The answer ends earlier after 64 KiB of names and ids; `next` is then set, too.
    /// A channel without presence has no members. On a node of a cluster these are the members of this node, unless it knows those of all:
    /// see [`Handle::presence_everywhere`].
    pub fn presence(&self, channel: &str, after: &str, max: usize) -> Members {
        self.0.server_shared.presence.members(channel, after, max, ServerEntry::HandlePresence.may())
    }

    /// The same of all nodes of a cluster, and the number of the nodes. It waits until they have reported their members, 2.5 s at most. Of
    /// sessions of other nodes no ids are known. None instead of the nodes: the server is no node of a cluster.
    pub async fn presence_everywhere(&self, channel: &str, after: &str, max: usize) -> (Members, Option<ClusterNodes>) {
        let granted = ServerEntry::HandlePresence.may();
        self.0.server_shared.members_everywhere(channel, (after, max), None, granted).await
    }

    /// Ends a session, on whatever node of a cluster. Its client gets a disconnect message. False if no session can have this id, or the server has
    /// stopped.
    pub fn disconnect(&self, client_id: &str) -> bool {
        Id::parse(client_id).is_some_and(|id| self.send_to_shard_of(&id, ShardMessage::Disconnect(id, None)))
    }

    /// Revokes a token by its id: its sessions end, and it opens no further ones until it has expired, in milliseconds
    /// since 1970, on all nodes of a cluster. With a `data` directory the revocation is on the disk when this returns, so it also holds for the
    /// processes that follow; without one it ends with this process. See [`Handle::revoked_tokens`] for a process that
    /// takes over.
    ///
    /// # Errors
    /// When too many tokens are revoked, or the disk does not take it.
    pub async fn revoke(&self, token_id: &str, expires_ms: u64) -> Result<Revocation, RevocationError> {
        let tokens_max = self.settings().revoked_tokens_max;
        self.0.server_shared.revoke(token_id, expires_ms, tokens_max).await
    }

    /// The revoked tokens that have not expired, each with its end in milliseconds since 1970.
    pub fn revoked_tokens(&self) -> Vec<(Box<str>, u64)> {
        self.0.server_shared.shared().revoked.all(self.0.server_shared.clock.now().wall_ms)
    }

    fn send_to_all_shards(&self, message: impl Fn() -> ShardMessage) {
        for shard in 0..self.0.server_shared.mailboxes.shards() {
            // A shard that has ended has no sessions any more.
            let _ended = self.send_to_shard(shard, message());
        }
    }

    /// A lease with this name, for work that runs on one node of a cluster: of all nodes that want it, one holds it at a time. If that one
    /// stops, another holds it at once, and within ten seconds if it is killed. Without the engine of the cluster nobody holds it. Without a
    /// cluster it is always held. The node gives it up when this value is dropped.
    pub fn lease(&self, name: &str) -> Lease {
        let Some(cluster) = &self.0.server_shared.cluster else { return Lease::always() };
        let (waiting, until) = watch::channel(None);
        cluster.send(ToCluster::Lease(name.into(), waiting));
        Lease::of_cluster(until)
    }

    /// The number of sessions of this node.
    pub fn sessions(&self) -> usize {
        self.0.server_shared.shared().sessions.count()
    }

    /// Adds metrics of the program to `/metrics`. The server calls the function at each scrape, on the thread of a shard,
    /// so it must not block. Names begin with `encke_` or the name of the program, and no other metric has them.
    pub fn add_metrics(&self, read: impl Fn() -> Vec<Metric> + Send + Sync + 'static) {
        self.0.server_shared.metrics.add(read);
    }

    /// Adds an operation to the HTTP API and its OpenAPI document. No other operation has its name or its path.
    pub fn add_operation(&self, operation: ApiOperation) {
        self.0.server_shared.api.added_operations.add(operation);
    }

    /// Replaces the keys of the HTTP API. A key that is not in the list is revoked.
    pub fn set_api_keys(&self, keys: ApiKeys) {
        *self.0.server_shared.api.keys.write() = Arc::new(keys);
    }

    /// Applies new settings while the server runs. Returns the names of those that changed but need a restart: they stay
    /// as they were.
    ///
    /// # Errors
    /// When a setting cannot work: the old settings stay in force.
    pub fn reload(&self, mut settings: Settings) -> Result<Vec<&'static str>, SettingsError> {
        check_settings(&settings)?;
        let mut current = self.0.settings.lock();
        // Settings that need a restart remain unchanged here, too: the next call compares with the settings in force.
        let takes_any_port = settings.listen.port() == 0;
        let mut fixed = settings.keep_fixed(&current);
        if self.0.server_shared.cluster.is_some() {
            // With the `data` in force.
            ClusterSettings::check_server(&settings)?;
        }
        fixed.retain(|name| !(takes_any_port && *name == "listen"));
        match &self.0.server_shared.tls {
            Some(tls) => fixed.extend(tls.reload(&settings)?),
            None if !settings.tls_cert.is_empty() => fixed.push("tls_cert"),
            None => {}
        }
        let next = Arc::new(settings);
        // Before the shards: they send publications of new rules there.
        let cluster = &self.0.server_shared.cluster;
        cluster.iter().for_each(|cluster| cluster.send(ToCluster::Settings(next.clone())));
        self.send_to_all_shards(|| ShardMessage::Settings(next.clone()));
        *self.0.named.write() = named(&next);
        self.0.server_shared.api.idempotency.set_window(Window::of(&next));
        *current = next;
        Ok(fixed)
    }

    /// The keys of TLS session tickets, for the process that takes over: [`Builder::ticket_keys`](crate::Builder::ticket_keys). None
    /// without TLS.
    pub fn ticket_keys(&self) -> Vec<TicketKey> {
        self.0.server_shared.tls.iter().flat_map(|tls| tls.ticket_keys()).collect()
    }

    /// Stops accepting connections. Those already in the system's backlog wait for another process that holds the
    /// listening socket.
    pub fn stop_accepting(&self) {
        self.0.server_shared.accepting.send_replace(false);
    }

    /// Drains the server and returns at once. It admits no new sessions, advises clients to come back later and at
    /// different times, and closes WebSockets. When all connections are gone or `drain_timeout_ms` is over, its
    /// threads end. With a `data` directory it saves the sessions there, with everything published until then.
    pub fn drain(&self) {
        if self.0.draining.swap(true, Ordering::Relaxed) {
            return;
        }
        let handle = self.clone();
        std::thread::spawn(move || handle.stop_when_empty());
    }

    fn stop_when_empty(&self) {
        let mailboxes = &self.0.server_shared.mailboxes;
        self.send_to_all_shards(|| ShardMessage::Drain);
        let timeouts = Duration::from_millis(self.settings().drain_timeout_ms);
        let started = Instant::now();
        // The first pause lets responses to the drain leave.
        std::thread::sleep(DRAIN_PAUSE);
        while started.elapsed() < timeouts && self.0.server_shared.connections.open() > 0 {
            std::thread::sleep(DRAIN_PAUSE);
        }
        if self.0.keeps {
            *self.0.open.write() = false;
            self.0.server_shared.cluster.iter().for_each(|cluster| cluster.freeze());
            // A shard whose thread panicked is gone.
            mailboxes.send_to_all(|| ThreadMessage::Freeze);
            ending::settle(mailboxes);
            // Each round ends sessions, or is the last one.
            while self.announce_the_last() {}
        }
        // A frozen shard takes the publications that came before this.
        self.0.server_shared.published.iter().for_each(Published::close);
        if self.0.keeps {
            ending::settle(mailboxes);
        }
        mailboxes.send_to_all(|| ThreadMessage::Stop);
        self.0.server_shared.outcomes.close();
        self.0.server_shared.local.stop();
        self.0.server_shared.cluster.iter().for_each(|cluster| cluster.stop());
        self.0.server_shared.presence.stop();
        // It may have a handle of this server.
        self.set_fallback(None);
    }

    /// Announces what is left, so that saved sessions know of all other members. False if nothing was. A session without room for an
    /// announcement ends, and its user leaves, too.
    fn announce_the_last(&self) -> bool {
        let (terms, announcements) = (self.terms(), self.0.server_shared.presence.finish());
        let is_news = !announcements.is_empty();
        for (channel, data) in announcements {
            let _too_long = self.broadcast(&terms, &channel, &Outgoing::raw(&data), Weight::Light, None);
        }
        ending::settle(&self.0.server_shared.mailboxes);
        is_news
    }

    /// The work of the thread that announces changes of members, until the server stops.
    pub(crate) fn announce(&self) {
        let ServerShared { presence, clock, .. } = &*self.0.server_shared;
        while presence.announce(clock.now(), &self.settings(), |channel, data| self.publish(channel, data)) {}
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.0.settings.lock().clone()
    }

    /// Sends to the shard of a session. False if there is no such shard, or the shard has ended.
    fn send_to_shard_of(&self, id: &Id, message: ShardMessage) -> bool {
        self.send_to_shard(self.0.server_shared.shared().shard_of(id), message)
    }

    /// False if there is no such shard, or the shard has ended.
    fn send_to_shard(&self, shard: usize, message: ShardMessage) -> bool {
        // Locked while sending: an accepted message is in a mailbox before the mailboxes are emptied for the last
        // time.
        let open = self.0.open.read();
        *open && self.0.server_shared.mailboxes.send_to_shard(shard, message)
    }
}

opaque!(Handle);

/// The channels and patterns of the rules.
fn named(settings: &Settings) -> HashSet<String> {
    settings.channels.iter().map(|rule| rule.pattern.clone()).collect()
}

/// The interval at which a drain counts the connections that are left.
const DRAIN_PAUSE: Duration = Duration::from_millis(50);
