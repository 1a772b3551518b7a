//! A server: its start and its end.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use crate::app::decisions::Decisions;
use crate::app::hooks::BuilderHooks;
use crate::app::route::Routes;
use crate::app::running::Hooks;
use crate::asset::Asset;
use crate::beside::{Beside, Tower};
use crate::builder::Builder;
use crate::cluster::engine::ClusterEngine;
use crate::cluster::link::Link;
use crate::cluster::sessions;
use crate::cluster::settings::ClusterSettings;
use crate::cluster::store::{SessionStore, SessionStoreSettings};
use crate::cluster::store_numbers::StoreNumbers;
use crate::data::{Data, DataInUse};
use crate::embedded::EnckeService;
use crate::entropy::kernel_entropy;
use crate::error::{SettingsError, StartError};
use crate::fallback::{Fallback, Pages};
use crate::files::Directory;
use crate::handle::Handle;
use crate::local::Local;
use crate::net::api_state::ApiState;
use crate::net::clock::Clock;
use crate::net::confirm::Confirmations;
use crate::net::mailboxes::Mailboxes;
use crate::net::published::Published;
use crate::net::server_metrics::ServerMetrics;
use crate::net::server_shared::ServerShared;
use crate::net::store_thread::Inbox;
use crate::presence::Presence;
use crate::settings::check_settings;
use crate::threads::application::ApplicationThreads;
use crate::threads::cluster::{self, Parts};
use crate::threads::commands::NodeCommands;
use crate::threads::driver;
use crate::threads::driver::Inputs;
use crate::threads::leases::NodeLeases;
use crate::threads::listeners::{self, Bound};
use crate::threads::members;
use crate::threads::store::NodeStore;
use crate::threads::users::NodeUsers;
use crate::tls::Tls;
use encke_cluster::{Member, OwnName, Sessions, UserLimits};
use encke_core::{Application, NodeTag, Saved, Settings, Shard, Shared};

/// The beginning of every server: [`Server::builder`].
#[derive(Clone, Copy, Debug)]
pub enum Server {}

impl Server {
    /// A builder of a server with default settings and without hooks.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Checks for reasons why the server could not start, as far as they show while another server runs on the same
    /// `data` directory: its settings, a disk that takes no file, a file of another version. Damage further inside
    /// the files shows only at the start.
    ///
    /// # Errors
    /// The same as [`Builder::start`] would return.
    pub fn check(&self) -> Result<(), StartError> {
        check_settings(&self.settings)?;
        self.hooks.check()?;
        check_cluster(&self.settings, self.cluster.as_ref(), self.session_store.as_ref())?;
        Data::probe(&self.settings)
    }

    /// Binds the address, starts a thread for each shard, restores the saved sessions, and returns.
    ///
    /// # Errors
    /// When a setting cannot work, the address cannot be bound, the data directory cannot be used, or a thread cannot be
    /// started. The server then has accepted no client.
    pub fn start(self) -> Result<Running, StartError> {
        check_settings(&self.settings)?;
        self.hooks.check()?;
        check_cluster(&self.settings, self.cluster.as_ref(), self.session_store.as_ref())?;
        let Builder { without_listener, listener, further_listeners, .. } = self;
        let listeners = listeners::open(&self.settings, without_listener, listener, further_listeners)?;
        let address = listeners::address(&listeners).unwrap_or(self.settings.listen);
        let shards = shards_of(&self.settings);
        let settings = Arc::new(Settings { listen: address, ..self.settings });
        let (mailboxes, messages): (Vec<_>, Vec<_>) = (0..shards).map(|_| mpsc::unbounded_channel()).unzip();
        let (to_visit, visits): (Vec<_>, Vec<_>) = (0..shards).map(|_| mpsc::unbounded_channel()).unzip();
        let clock = Clock::start();
        let threads = ApplicationThreads::start(settings.application_threads).map_err(StartError::Thread)?;
        let tls = Tls::open(&settings, self.ticket_keys, threads.handle())?;
        let mut registered = self.hooks;
        warn_of_holes(&registered);
        let routes = std::mem::take(&mut registered.routes);
        let decisions =
            Box::new(Decisions::new(registered, threads.handle().clone(), !settings.tls_client_ca.is_empty()));
        let (handlers, hooks) = (decisions.context().clone(), decisions.hooks().clone());
        let application = self.layers.into_iter().fold(decisions as Box<dyn Application>, |inner, layer| layer(inner));
        let mut shared = Shared::new(shards, application);
        let data = Data::open(&settings, &mut shared, clock.now())?;
        revoke_again(&shared, &self.revoked, clock.now().wall_ms);
        make_node(&mut shared, self.cluster.is_some(), data.as_ref())?;
        let shared = Arc::new(shared);
        let link = self.cluster.as_ref().map(|_| Arc::default());
        let confirmations = confirmations(&shared, link.as_ref());
        let metrics = ServerMetrics::new(shards);
        let local = Local::start(shared.clone(), metrics.of_local().clone()).map_err(StartError::Thread)?;
        let server_shared = Arc::new(ServerShared {
            clock,
            mailboxes: Mailboxes::new(mailboxes, shared.mailbox.clone()),
            local,
            cluster: link,
            presence: Presence::new(metrics.of_server().clone(), self.cluster.is_some()),
            published: (0..shards).map(|_| Published::default()).collect(),
            outcomes: Arc::default(),
            confirmations,
            application: threads.handle().clone(),
            connections: Arc::default(),
            accepting: watch::Sender::new(true),
            tls,
            holds: Arc::default(),
            api: ApiState::new(self.api_keys, shared.node, &settings),
            revocations: data.as_ref().map(Data::revocations).cloned().unwrap_or_default(),
            directory: open_directory(&settings, &metrics),
            metrics,
            pages: Pages::new(self.assets, Arc::new(Routes::new(routes, handlers.clone(), threads.handle().clone()))),
            echo: self.echo,
            reclaim_memory: self.reclaim_memory,
        });
        let handle = Handle::new(server_shared.clone(), settings.clone(), !settings.data.is_empty(), to_visit);
        start_presence(&handle);
        handlers.set(handle.downgrade());
        handle.set_fallback(fallback_of(self.fallback, &server_shared, self.assets));
        let cluster = start_cluster(&server_shared, self.cluster, self.session_store, &settings)?;
        let (history_store, data, saved) = start_data(data, &server_shared, settings.sessions_max)?;
        let context = ThreadContext {
            settings: settings.clone(),
            server_shared: server_shared.clone(),
            saved: Arc::new(saved),
            handle: handle.clone(),
            application: Arc::new(threads),
        };
        let (threads, starts) =
            context.start_shards(messages.into_iter().zip(visits).collect(), listeners.clone(), history_store)?;
        // Removed only now: if an earlier step fails, the next start still finds the sessions.
        data.as_ref().map_or(Ok(()), DataInUse::forget_sessions)?;
        // A thread that panicked has already logged it.
        starts.into_iter().for_each(|start| _ = start.send(()));
        Ok(Running { address, handle, hooks, threads, cluster, listeners, data })
    }
}

/// Checks the settings of a node of a cluster, if the server is one.
fn check_cluster(
    settings: &Settings,
    cluster: Option<&(ClusterSettings, Box<dyn ClusterEngine>)>,
    store: Option<&(SessionStoreSettings, Arc<dyn SessionStore>)>,
) -> Result<(), SettingsError> {
    let Some((cluster, _)) = cluster else {
        ClusterSettings::check_alone(settings)?;
        let wanted = "none without a cluster, whose sessions it has";
        return store.map_or(Ok(()), |(_, store)| Err(SettingsError::new("session_store", store.name(), wanted)));
    };
    cluster.check()?;
    store.map_or(Ok(()), |(settings, _)| settings.check())?;
    ClusterSettings::check_server(settings)
}

/// Makes the server a node of a cluster, if it is one.
fn make_node(shared: &mut Shared, is_clustered: bool, data: Option<&Data>) -> Result<(), StartError> {
    shared.node = node_tag(is_clustered, data)?;
    if is_clustered {
        shared.histories.begin_in_cluster();
    }
    Ok(())
}

/// The name of this node in the ids of its sessions: that of the process before, whose sessions this one may go on with, or a new one.
/// None outside a cluster.
fn node_tag(is_clustered: bool, data: Option<&Data>) -> Result<Option<NodeTag>, StartError> {
    let new = || NodeTag::new(&mut kernel_entropy());
    is_clustered.then(|| data.map_or_else(|| Ok(new()), |data| data.node_tag(new()))).transpose()
}

/// The service of the program for requests that are not the server's, if it has one.
fn fallback_of(
    service: Option<Beside>,
    server_shared: &ServerShared,
    assets: &'static [Asset],
) -> Option<Arc<dyn Fallback>> {
    let threads = server_shared.application.clone();
    service.map(|service| Arc::new(Tower { service, threads, assets }) as Arc<dyn Fallback>)
}

/// Revokes the tokens that the process before this one has revoked.
fn revoke_again(shared: &Shared, revoked: &[(Box<str>, u64)], wall_ms: u64) {
    for (token_id, until_ms) in revoked {
        // They were within `revoked_tokens_max` when they were revoked.
        shared.revoked.add(token_id, *until_ms, wall_ms, usize::MAX);
    }
}

/// Starts the thread of the cluster, if the server is a node of one. From now on it learns what the shards want.
fn start_cluster(
    server_shared: &Arc<ServerShared>,
    cluster: Option<(ClusterSettings, Box<dyn ClusterEngine>)>,
    store: Option<(SessionStoreSettings, Arc<dyn SessionStore>)>,
    settings: &Arc<Settings>,
) -> Result<Option<JoinHandle<()>>, StartError> {
    let (Some((cluster, engine)), Some(link), Some(tag)) =
        (cluster, server_shared.cluster.clone(), server_shared.shared().node)
    else {
        return Ok(None);
    };
    let node = cluster.node(settings)?;
    let of_node = (tag, server_shared.mailboxes.shards());
    let memory = server_shared.shared().memory.clone();
    let sessions = sessions::settings(&cluster, settings, cluster.subjects()?, of_node, memory);
    let sessions = Sessions::new(sessions).that_awaits_shards();
    let member = Member::new(node, sessions, cluster.histories(settings, tag)?, settings.clone());
    let wakes = link.clone();
    server_shared.shared().interest.set_on_change(move || wakes.wake());
    let read = link.clone();
    server_shared.metrics.add(move || read.metrics());
    let server = Arc::downgrade(server_shared);
    server_shared.metrics.add(move || server.upgrade().map(|it| it.presence.cluster_metrics()).unwrap_or_default());
    let calls = cluster.remote_calls(tag)?;
    let users = NodeUsers::new(UserLimits::new(calls.node, calls.subjects.of_users()), settings.clone());
    let commands = NodeCommands::new(calls, cluster.revocations());
    let leases = NodeLeases::new(cluster.leases());
    let store = store.map(|(store_settings, store)| {
        let numbers = Arc::new(StoreNumbers::new(store.name()));
        link.set_store(numbers.clone());
        NodeStore::new(store, store_settings, (settings.clone(), tag), numbers)
    });
    let parts = Parts { own_name: OwnName::new(tag, cluster.subjects()?), member, commands, leases, users, store };
    cluster::start(server_shared.clone(), link, parts, engine).map(Some).map_err(StartError::Thread)
}

/// Announces the members of channels, and on a node of a cluster gathers those of the other nodes.
fn start_presence(handle: &Handle) {
    let (server, announcer) = (handle.server(), handle.downgrade());
    server.presence.announce_by(move || announcer.upgrade().iter().for_each(Handle::announce));
    if server.cluster.is_some() {
        let settings = handle.clone();
        server.application.spawn(members::run(server.clone(), move || settings.settings()));
    }
}

/// Waits until a node has the revoked tokens of its cluster, so that it admits none of them. Without the engine it starts all the same.
fn await_revocations(server_shared: &ServerShared) {
    let Some(link) = &server_shared.cluster else { return };
    let started = Instant::now();
    while !link.has_revocations() {
        if started.elapsed() > REVOCATIONS_MAX {
            return tracing::warn!("the node starts without the revoked tokens of its cluster, and gets them later");
        }
        std::thread::sleep(CLUSTER_PAUSE);
    }
}

/// The longest time that a node waits for the revoked tokens of its cluster before it takes clients.
const REVOCATIONS_MAX: Duration = Duration::from_secs(2);
/// The longest wait for the end of the thread of the cluster.
const CLUSTER_END_MAX: Duration = Duration::from_secs(5);
/// The time after which the thread of the cluster is looked at again.
const CLUSTER_PAUSE: Duration = Duration::from_millis(5);

/// The directory of files, with its metrics.
fn open_directory(settings: &Settings, metrics: &ServerMetrics) -> Directory {
    let directory = Directory::open(settings);
    let read = directory.clone();
    metrics.add(move || read.metrics());
    directory
}

/// Names the channels below those of authorizers about which nobody decides.
fn warn_of_holes(hooks: &BuilderHooks) {
    let open = hooks.open_below();
    if !open.is_empty() {
        let open = open.join(" ");
        tracing::warn!(
            open,
            "authorizers decide about one level of channels, and nobody about those below: /** decides about all"
        );
    }
}

/// Starts the thread that stores histories, and reads the saved sessions, if there is a data directory.
fn start_data(
    data: Option<Data>,
    server_shared: &ServerShared,
    sessions_max: usize,
) -> Result<(Option<Inbox>, Option<DataInUse>, Saved), StartError> {
    let Some(data) = data else { return Ok((None, None, Saved::default())) };
    let ServerShared { mailboxes, outcomes, metrics, .. } = server_shared;
    let (history_store, data) = data.start(server_shared.shared(), mailboxes, outcomes, metrics.of_store())?;
    let saved = data.sessions(mailboxes.shards(), sessions_max)?;
    Ok((Some(history_store), Some(data), saved))
}

/// The queues of confirmations of all shards. Room between shards wakes those who may wait for it.
fn confirmations(shared: &Shared, cluster: Option<&Arc<Link>>) -> Vec<Arc<Confirmations>> {
    let confirmations: Vec<Arc<Confirmations>> = (0..shared.shards).map(|_| Arc::default()).collect();
    let (who_may_wait, cluster) = (confirmations.clone(), cluster.cloned());
    shared.mailbox.set_on_room(move || {
        who_may_wait.iter().for_each(|shard| shard.wake.notify_one());
        cluster.iter().for_each(|cluster| cluster.wake());
    });
    confirmations
}

/// The number of shards: as the settings say, or one for each core.
fn shards_of(settings: &Settings) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let shards = if settings.shards == 0 { cores } else { settings.shards };
    shards.min(encke_core::SHARDS_MAX)
}

/// The context that the threads of all shards start with.
#[derive(Clone)]
struct ThreadContext {
    settings: Arc<Settings>,
    server_shared: Arc<ServerShared>,
    saved: Arc<Saved>,
    /// Lives as long as a shard, so that hooks can use it.
    handle: Handle,
    application: Arc<ApplicationThreads>,
}

/// A shard's thread, which returns its sessions.
type ShardThread = JoinHandle<Option<Saved>>;

impl ThreadContext {
    /// Starts a thread for each shard. When this returns, all shards have restored their sessions, know the revoked tokens of a cluster, and wait for
    /// their start signals: a publication of one shard must find the subscriptions of the others. A thread whose
    /// start signal is dropped ends.
    fn start_shards(
        self,
        inputs: Vec<Inputs>,
        mut listeners: Arc<[Bound]>,
        history_store: Option<Inbox>,
    ) -> Result<(Vec<ShardThread>, Vec<Sender<()>>), StartError> {
        let (mut threads, mut starts) = (Vec::new(), Vec::new());
        let (ready, readiness) = channel();
        for (index, inputs) in inputs.into_iter().enumerate() {
            let (context, ready, history_store, listeners) =
                (self.clone(), ready.clone(), history_store.clone(), std::mem::take(&mut listeners));
            let (start, opened) = channel();
            let thread = std::thread::Builder::new().name(format!("shard-{index}")).spawn(move || {
                let runtime = driver::runtime();
                let runtime = runtime.map_err(|error| ready.send(Err(error))).ok()?;
                let _alive = (context.handle.clone(), context.application.clone());
                let (shard, server_shared) = context.restored(index);
                let _gone = ready.send(Ok(()));
                drop(ready);
                opened.recv().ok()?;
                driver::run(runtime, shard, server_shared, inputs, listeners, history_store)
            });
            threads.push(thread.map_err(StartError::Thread)?);
            starts.push(start);
        }
        drop(ready);
        for _ in &threads {
            readiness.recv().map_err(|_| StartError::ShardPanicked)?.map_err(StartError::Thread)?;
        }
        await_revocations(&self.server_shared);
        Ok((threads, starts))
    }

    /// Creates a shard with its saved sessions.
    fn restored(self, index: usize) -> (Shard, Arc<ServerShared>) {
        let metrics = self.server_shared.metrics.of_shard(index).clone();
        let now = self.server_shared.clock.now();
        let mut shard = Shard::new(index, self.server_shared.shared().clone(), self.settings, kernel_entropy(), now)
            .with_metrics(metrics);
        shard.restore(now, &self.saved);
        (shard, self.server_shared)
    }
}

/// A running server. Dropping this value does not stop it: [`Handle::drain`] does.
pub struct Running {
    address: SocketAddr,
    handle: Handle,
    hooks: Hooks,
    threads: Vec<ShardThread>,
    /// The thread of the cluster.
    cluster: Option<JoinHandle<()>>,
    listeners: Arc<[Bound]>,
    data: Option<DataInUse>,
}

impl Running {
    /// The address it listens on, with the actual port if port 0 was requested. Without a listener it is that of the
    /// settings.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its hooks for channels, to which the program may add others, and from which it may remove them.
    pub fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    /// True if it speaks TLS there.
    pub fn has_tls(&self) -> bool {
        self.listeners.first().is_some_and(|(_, speaks)| speaks.tls.is_some())
    }

    /// The Bayeux endpoint as a service inside another HTTP server: see [`service`](crate::service).
    pub fn service(&self) -> EnckeService {
        crate::embedded::service(&self.handle)
    }

    /// A handle to control it from any thread.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The socket it accepts connections from, for the server process that follows: see [`Builder::listener`].
    ///
    /// # Errors
    /// The error of the system, for example too many open files; or that there is no listener.
    pub fn listener(&self) -> std::io::Result<TcpListener> {
        Ok(self.listeners.first().ok_or(std::io::ErrorKind::NotConnected)?.0.try_clone()?.into())
    }

    /// The sockets of [`Settings::listeners`], for the server process that follows: see [`Builder::further_listeners`].
    ///
    /// # Errors
    /// The error of the system, for example too many open files.
    pub fn further_listeners(&self) -> std::io::Result<Vec<OwnedFd>> {
        self.listeners.iter().skip(1).map(|(socket, _)| socket.try_clone()).collect()
    }

    /// Waits until it has stopped, which it does after [`Handle::drain`]. With a `data` directory it then saves the
    /// sessions there, so a program that ends without this loses them.
    pub fn join(self) {
        let mut saved = Saved::default();
        for thread in self.threads {
            match thread.join() {
                Ok(sessions) => sessions.into_iter().for_each(|sessions| saved.append(sessions)),
                Err(_) => tracing::error!("a shard ended with a panic"),
            }
        }
        // Everything is written. Dropping the value releases the directory.
        if let Some(data) = self.data.and_then(DataInUse::close) {
            data.save_sessions(saved);
        }
        // Other nodes learn that this one has stopped. If that takes too long, they find out by themselves.
        let started = Instant::now();
        while self.cluster.as_ref().is_some_and(|cluster| !cluster.is_finished()) && started.elapsed() < CLUSTER_END_MAX
        {
            std::thread::sleep(CLUSTER_PAUSE);
        }
    }
}

opaque!(Running, address);
