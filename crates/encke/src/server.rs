//! A server: its start, its handles, its stop.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bayeux::{Publication, RawJson, ext};
use tokio::sync::{mpsc, watch};

use crate::asset::Asset;
use crate::data::{Data, DataInUse};
use crate::entropy::kernel_entropy;
use crate::error::{PublishError, StartError};
use crate::metric::{AddedMetrics, Metric};
use crate::net::confirm::Confirmations;
use crate::net::node::{ServerShared, ThreadMessage};
use crate::net::published::{Added, Published};
use crate::net::store_thread::Inbox;
use crate::settings::{SettingsError, check_settings};
use crate::threads::{accept, driver, ending};
use encke_core::Settings;
use encke_core::{Application, NoApplication};
use encke_core::{Envelope, Id, Metrics, Saved, Shard, ShardMessage, Shared, Weight};

/// A server that does not run yet: its settings, its application, its files. [`Server::start`] runs it.
pub struct Server {
    settings: Settings,
    assets: &'static [Asset],
    application: Box<dyn Application>,
    listener: Option<TcpListener>,
    echo: bool,
    reclaim_memory: Option<fn()>,
}

impl Server {
    /// Creates a server with these settings, without an application and without files.
    pub fn new(settings: Settings) -> Server {
        Server {
            settings,
            assets: &[],
            application: Box::new(NoApplication),
            listener: None,
            echo: false,
            reclaim_memory: None,
        }
    }

    /// Accepts connections from this bound socket instead of binding one: the socket of a supervisor, or of the
    /// previous server process.
    pub fn listener(mut self, listener: TcpListener) -> Server {
        self.listener = Some(listener);
        self
    }

    /// Serves these files beside the Bayeux endpoint. [`Settings::files`] serves those of a directory.
    pub fn assets(mut self, assets: &'static [Asset]) -> Server {
        self.assets = assets;
        self
    }

    /// Installs an application, which decides what clients may do and serves their calls.
    pub fn application(mut self, application: impl Application + 'static) -> Server {
        self.application = Box::new(application);
        self
    }

    /// Echoes every WebSocket message instead of speaking Bayeux, for suites that test the WebSocket protocol.
    pub fn echo(mut self) -> Server {
        self.echo = true;
        self
    }

    /// Calls this function on the thread of a shard that has been busy and is now quiet, or that holds much less than
    /// before. It returns the thread's free memory to the system: `mi_collect` of mimalloc, for example. Without it,
    /// an allocator may retain that memory.
    pub fn reclaim_memory_with(mut self, reclaim: fn()) -> Server {
        self.reclaim_memory = Some(reclaim);
        self
    }

    /// Checks for reasons why the server could not start, as far as they show while another server runs on the same
    /// `data` directory: its settings, a disk that takes no file, a file of another version. Damage further inside
    /// the files shows only at the start.
    ///
    /// # Errors
    /// The same as [`Server::start`] would return.
    pub fn check(&self) -> Result<(), StartError> {
        check_settings(&self.settings)?;
        Data::probe(&self.settings)
    }

    /// Binds the address, starts a thread for each shard, restores the saved sessions, and returns.
    ///
    /// # Errors
    /// When a setting cannot work, the address cannot be bound, the data directory cannot be used, or a thread cannot be
    /// started. The server then has accepted no client.
    pub fn start(self) -> Result<Running, StartError> {
        check_settings(&self.settings)?;
        let listen = self.settings.listen;
        let failed = |source| StartError::Listen { address: listen, source };
        let listener = self.listener.map_or_else(|| accept::listen(listen), accept::adopt).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let again = listener.try_clone().map_err(failed)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = if self.settings.shards == 0 { cores } else { self.settings.shards };
        let shards = shards.min(encke_core::SHARDS_MAX);
        let settings = Arc::new(Settings { listen: address, ..self.settings });
        let (mailboxes, receivers): (Vec<_>, Vec<_>) = (0..shards).map(|_| mpsc::unbounded_channel()).unzip();
        let start = Instant::now();
        let mut shared = Shared::new(shards, self.application);
        let data = Data::open(&settings, &mut shared, ServerShared::now(start))?;
        let shared = Arc::new(shared);
        let confirmations: Vec<Arc<Confirmations>> = (0..shards).map(|_| Arc::default()).collect();
        let who_may_wait = confirmations.clone();
        shared.mailbox.set_on_room(move || who_may_wait.iter().for_each(|shard| shard.wake.notify_one()));
        let server_shared = Arc::new(ServerShared {
            mailboxes,
            confirmations,
            published: (0..shards).map(|_| Published::default()).collect(),
            mailbox: shared.mailbox.clone(),
            metrics: (0..=shards).map(|_| Arc::<Metrics>::default()).collect(),
            added_metrics: AddedMetrics::default(),
            assets: self.assets,
            connections: AtomicUsize::new(0),
            echo: self.echo,
            reclaim_memory: self.reclaim_memory,
            start,
            accepting: watch::Sender::new(true),
        });
        let stored = data
            .map(|data| data.start(&shared, &server_shared.mailboxes, &server_shared.metrics[shards]))
            .transpose()?;
        let (history_store, data) = stored.unzip();
        let saved = data.as_ref().map(|data| data.sessions(shards, settings.sessions_max)).transpose()?;
        let context = ThreadContext {
            shared: shared.clone(),
            settings: settings.clone(),
            server_shared: server_shared.clone(),
            saved: Arc::new(saved.unwrap_or_default()),
        };
        let (threads, starts) = context.start_shards(receivers, listener, history_store)?;
        // Removed only now: if an earlier step fails, the next start still finds the sessions.
        data.as_ref().map_or(Ok(()), DataInUse::forget_sessions)?;
        for start in starts {
            // A thread that panicked has already logged it.
            let _gone = start.send(());
        }
        let handle = Handle {
            server_shared,
            shared,
            settings: Arc::new(Mutex::new(settings)),
            draining: Arc::new(AtomicBool::new(false)),
            open: Arc::new(RwLock::new(true)),
            keeps: data.is_some(),
        };
        Ok(Running { address, handle, threads, listener: again, data })
    }
}

/// The context that the threads of all shards start with.
#[derive(Clone)]
struct ThreadContext {
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    server_shared: Arc<ServerShared>,
    saved: Arc<Saved>,
}

/// A shard's thread, which returns its sessions.
type ShardThread = JoinHandle<Option<Saved>>;

impl ThreadContext {
    /// Starts a thread for each mailbox. When this returns, all shards have restored their sessions and wait for
    /// their start signals: a publication of one shard must find the subscriptions of the others. A thread whose
    /// start signal is dropped ends.
    fn start_shards(
        self,
        mailboxes: Vec<mpsc::UnboundedReceiver<ThreadMessage>>,
        listener: TcpListener,
        history_store: Option<Inbox>,
    ) -> Result<(Vec<ShardThread>, Vec<Sender<()>>), StartError> {
        let (mut threads, mut starts) = (Vec::new(), Vec::new());
        let (ready, readiness) = channel();
        let mut listener = Some(listener);
        for (index, mailbox) in mailboxes.into_iter().enumerate() {
            let (context, ready, history_store, listener) =
                (self.clone(), ready.clone(), history_store.clone(), listener.take());
            let (start, opened) = channel();
            let thread = std::thread::Builder::new().name(format!("shard-{index}")).spawn(move || {
                let runtime = driver::runtime();
                let runtime = runtime.map_err(|error| ready.send(Err(error))).ok()?;
                let (shard, server_shared) = context.restored(index);
                let _gone = ready.send(Ok(()));
                drop(ready);
                opened.recv().ok()?;
                driver::run(runtime, shard, server_shared, mailbox, listener, history_store)
            });
            threads.push(thread.map_err(StartError::Thread)?);
            starts.push(start);
        }
        drop(ready);
        for _ in &threads {
            readiness.recv().map_err(|_| StartError::ShardPanicked)?.map_err(StartError::Thread)?;
        }
        Ok((threads, starts))
    }

    /// Creates a shard with its saved sessions.
    fn restored(self, index: usize) -> (Shard, Arc<ServerShared>) {
        let metrics = self.server_shared.metrics[index].clone();
        let now = ServerShared::now(self.server_shared.start);
        let mut shard = Shard::new(index, self.shared, self.settings, kernel_entropy(), now).with_metrics(metrics);
        shard.restore(now, &self.saved);
        (shard, self.server_shared)
    }
}

/// A running server. Dropping this value does not stop it: [`Handle::drain`] does.
pub struct Running {
    address: SocketAddr,
    handle: Handle,
    threads: Vec<ShardThread>,
    listener: TcpListener,
    data: Option<DataInUse>,
}

impl Running {
    /// The address it listens on, with the actual port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle to control it from any thread.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The socket it accepts connections from, for the server process that follows: see [`Server::listener`].
    ///
    /// # Errors
    /// The error of the system, for example too many open files.
    pub fn listener(&self) -> std::io::Result<TcpListener> {
        self.listener.try_clone()
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
        // Everything is written. Dropping this value releases the directory.
        let Some(data) = self.data.and_then(DataInUse::close) else { return };
        data.save_sessions(saved);
    }
}

/// Controls a running server, from any thread. Clones control the same server; they do not keep it running.
#[derive(Clone)]
pub struct Handle {
    server_shared: Arc<ServerShared>,
    shared: Arc<Shared>,
    settings: Arc<Mutex<Arc<Settings>>>,
    draining: Arc<AtomicBool>,
    /// True while requests of handles are accepted.
    open: Arc<RwLock<bool>>,
    /// True if sessions outlive the server.
    keeps: bool,
}

impl Handle {
    /// Broadcasts `data_json` on a channel, and returns before it is delivered. Messages that one thread publishes on one
    /// channel arrive in that order. If the channel has a history, the message enters it.
    ///
    /// # Errors
    /// When the channel is not publishable, the data is not JSON, or the server is too busy: after
    /// [`PublishError::Busy`] the caller may try again.
    pub fn publish(&self, channel: &str, data_json: &str) -> Result<(), PublishError> {
        let (limits, has_timestamp) = {
            let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
            (bayeux::Limits::from(&**settings), settings.timestamps)
        };
        let name = bayeux::ChannelName::parse(channel, &limits).ok();
        if name.is_none_or(|name| name.kind() != bayeux::ChannelKind::Broadcast) {
            return Err(PublishError::Channel(channel.into()));
        }
        let data = bayeux::json::validate(data_json, limits.json_depth_max).map_err(|_| PublishError::Data)?;
        let now = || ext::timestamp(ServerShared::now(self.server_shared.start).wall_ms as i64);
        let timestamp = has_timestamp.then(|| format!("\"{}\"", now()));
        let timestamp = timestamp.as_deref().map(RawJson::trusted);
        let message = Publication { channel, data: Some(RawJson::trusted(data)), timestamp, ..Publication::default() };
        // One shard for each channel: it preserves the order of publications, and it owns the channel's history, if
        // any.
        let shard = self.shared.histories.owner(channel);
        let account = &self.server_shared.mailbox;
        let published = self.server_shared.published.get(shard).filter(|_| account.has_room(Weight::Heavy));
        match published.map_or(Added::Closed, |published| published.add(account, &message)) {
            Added::Noted => {}
            Added::First => _ = self.server_shared.mailboxes[shard].send(ThreadMessage::Published),
            Added::Closed => return Err(PublishError::Busy),
        }
        Ok(())
    }

    /// Ends a session. Its client gets a disconnect message. False if no session can have this id, or the server has
    /// stopped.
    pub fn disconnect(&self, client_id: &str) -> bool {
        Id::parse(client_id).is_some_and(|id| self.send_to_shard(id.shard(), ShardMessage::Disconnect(id)))
    }

    /// The number of sessions of all shards.
    pub fn sessions(&self) -> usize {
        self.shared.sessions.load(Ordering::Relaxed)
    }

    /// Adds metrics of the program to `/metrics`. The server calls the function at each scrape, on the thread of a shard,
    /// so it must not block. Names begin with `encke_` or the name of the program, and no other metric has them.
    pub fn add_metrics(&self, read: impl Fn() -> Vec<Metric> + Send + Sync + 'static) {
        self.server_shared.added_metrics.add(Arc::new(read));
    }

    /// Applies new settings while the server runs. Returns the names of those that changed but need a restart: they stay
    /// as they were.
    ///
    /// # Errors
    /// When a setting cannot work: the old settings stay in force.
    pub fn reload(&self, settings: Settings) -> Result<Vec<&'static str>, SettingsError> {
        check_settings(&settings)?;
        let mut current = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        // Settings that need a restart remain unchanged here, too: the next call compares with the settings in force.
        let fixed = [
            ("listen", settings.listen != current.listen && settings.listen.port() != 0),
            ("shards", settings.shards != current.shards),
            ("data", settings.data != current.data),
            ("history_commit", settings.history_commit != current.history_commit),
            ("history_commit_interval_ms", settings.history_commit_interval_ms != current.history_commit_interval_ms),
        ];
        let next = Arc::new(Settings {
            listen: current.listen,
            shards: current.shards,
            data: current.data.clone(),
            history_commit: current.history_commit,
            history_commit_interval_ms: current.history_commit_interval_ms,
            ..settings
        });
        for shard in 0..self.server_shared.mailboxes.len() {
            // A shard whose mailbox is closed has ended.
            let _ended = self.send_to_shard(shard, ShardMessage::Settings(next.clone()));
        }
        *current = next;
        Ok(fixed.into_iter().filter_map(|(name, changed)| changed.then_some(name)).collect())
    }

    /// Stops accepting connections. Those already in the system's backlog wait for another process that holds the
    /// listening socket.
    pub fn stop_accepting(&self) {
        self.server_shared.accepting.send_replace(false);
    }

    /// Drains the server and returns at once. It admits no new sessions, advises clients to come back later and at
    /// different times, and closes WebSockets. When all connections are gone or `drain_timeout_ms` is over, its
    /// threads end. With a `data` directory it saves the sessions there, with everything published until then.
    pub fn drain(&self) {
        if self.draining.swap(true, Ordering::Relaxed) {
            return;
        }
        let handle = self.clone();
        std::thread::spawn(move || handle.stop_when_empty());
    }

    fn stop_when_empty(&self) {
        for mailbox in &self.server_shared.mailboxes {
            let _ended =
                mailbox.send(ThreadMessage::FromShard(Envelope::new(&self.server_shared.mailbox, ShardMessage::Drain)));
        }
        let timeouts = Duration::from_millis(self.settings().drain_timeout_ms);
        let started = Instant::now();
        // The first pause lets responses to the drain leave.
        std::thread::sleep(DRAIN_PAUSE);
        while started.elapsed() < timeouts && self.server_shared.connections.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(DRAIN_PAUSE);
        }
        // A frozen shard takes the publications that came before this.
        self.server_shared.published.iter().for_each(Published::close);
        if self.keeps {
            *self.open.write().unwrap_or_else(PoisonError::into_inner) = false;
            ending::freeze(&self.server_shared.mailboxes);
        }
        for mailbox in &self.server_shared.mailboxes {
            let _ended = mailbox.send(ThreadMessage::Stop);
        }
    }

    fn settings(&self) -> Arc<Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// False if there is no such shard, or the shard has ended.
    fn send_to_shard(&self, shard: usize, message: ShardMessage) -> bool {
        // Locked while sending: an accepted message is in a mailbox before the mailboxes are emptied for the last
        // time.
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let thread_message = || ThreadMessage::FromShard(Envelope::new(&self.server_shared.mailbox, message));
        self.server_shared.mailboxes.get(shard).is_some_and(|mailbox| *open && mailbox.send(thread_message()).is_ok())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("address", &self.address).finish_non_exhaustive()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("sessions", &self.sessions()).finish_non_exhaustive()
    }
}

/// The interval at which a drain counts the connections that are left.
const DRAIN_PAUSE: Duration = Duration::from_millis(50);
