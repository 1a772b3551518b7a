//! The thread of all sources, and their restarts.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use encke::{Handle, Lease};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::back_off::BackOff;
use crate::metrics::AllMetrics;
use crate::publisher::{Publish, Publisher};
use crate::run::{End, Failure, Stop};
use crate::settings::{Kind, SourceSettings};
use crate::store::Store;
use crate::{command, file, mail, quotes};

/// The settings of all sources.
#[derive(Clone, Debug, Default)]
pub struct SourcesSettings {
    /// The sources, each with another name.
    pub sources: Vec<SourceSettings>,
    /// The data directory, in which sources remember how far they have read. None: they remember it until the server stops.
    pub data: Option<PathBuf>,
}

/// Running sources. Clones control the same sources. They end with [`Sources::stop`], and not when this is dropped.
#[derive(Clone, Debug)]
pub struct Sources {
    orders: mpsc::UnboundedSender<Order>,
    current: Arc<Mutex<Vec<SourceSettings>>>,
    end: Arc<Mutex<Receiver<()>>>,
}

/// The names of sources that a new configuration changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// Sources that start.
    pub added: Vec<String>,
    /// Sources that stop.
    pub removed: Vec<String>,
    /// Sources that stop, and start with other settings.
    pub changed: Vec<String>,
}

impl Sources {
    /// Starts all sources on one thread, and adds their metrics to those of the server.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread.
    pub fn start(settings: SourcesSettings, handle: Handle) -> io::Result<Sources> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (orders, received) = mpsc::unbounded_channel();
        let (ended, end) = channel();
        let metrics = AllMetrics::default();
        let read = metrics.clone();
        handle.add_metrics(move || read.read());
        let all = All { server: Arc::new(handle), data: settings.data, metrics, running: BTreeMap::new() };
        let first = settings.sources.clone();
        std::thread::Builder::new().name("sources".into()).spawn(move || {
            runtime.block_on(all.run(first, received));
            runtime.shutdown_timeout(STOP_MAX);
            // The receiver is gone if nobody joins.
            let _nobody = ended.send(());
        })?;
        let current = Arc::new(Mutex::new(settings.sources));
        Ok(Sources { orders, current, end: Arc::new(Mutex::new(end)) })
    }

    /// Starts the sources that are new, stops those that are gone, and restarts those whose settings differ.
    pub fn reload(&self, sources: Vec<SourceSettings>) -> Changes {
        let mut current = self.current.lock();
        let changes = Changes::between(&current, &sources);
        if changes != Changes::default() {
            current.clone_from(&sources);
            // After a stop there is nobody to take it.
            let _stopped = self.orders.send(Order::Reload(sources));
        }
        changes
    }

    /// The settings of the sources that are on.
    pub fn current(&self) -> Vec<SourceSettings> {
        self.current.lock().clone()
    }

    /// Stops all sources and returns at once. They end within seconds: programs are asked to end, and killed if they do not.
    pub fn stop(&self) {
        let _stopped = self.orders.send(Order::Stop);
    }

    /// Waits for the end of all sources after [`Sources::stop`], for some seconds at most.
    pub fn join(&self) {
        let end = self.end.lock();
        if end.recv_timeout(JOIN_MAX) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("some source did not end in time");
        }
    }
}

impl Changes {
    fn between(old: &[SourceSettings], new: &[SourceSettings]) -> Changes {
        let find = |list: &[SourceSettings], name: &str| list.iter().find(|source| source.name == name).cloned();
        let names = |list: &[SourceSettings], of: &dyn Fn(&SourceSettings) -> bool| {
            list.iter().filter(|source| of(source)).map(|source| source.name.clone()).collect()
        };
        Changes {
            added: names(new, &|source| find(old, &source.name).is_none()),
            removed: names(old, &|source| find(new, &source.name).is_none()),
            changed: names(new, &|source| find(old, &source.name).is_some_and(|old| old != *source)),
        }
    }
}

enum Order {
    Reload(Vec<SourceSettings>),
    Stop,
}

/// All sources, on their thread.
struct All {
    server: Arc<dyn Publish>,
    data: Option<PathBuf>,
    metrics: AllMetrics,
    running: BTreeMap<String, Running>,
}

/// The task of one source.
struct Running {
    settings: SourceSettings,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    store: Store,
}

impl All {
    async fn run(mut self, first: Vec<SourceSettings>, mut orders: mpsc::UnboundedReceiver<Order>) {
        self.apply(first).await;
        while let Some(Order::Reload(sources)) = orders.recv().await {
            self.apply(sources).await;
        }
        self.apply(Vec::new()).await;
    }

    /// Stops the sources that are not among these, then starts those that do not run.
    async fn apply(&mut self, sources: Vec<SourceSettings>) {
        let is_same = |running: &Running| sources.contains(&running.settings);
        let gone: Vec<_> = self.running.extract_if(.., |_, running| !is_same(running)).collect();
        for (_, running) in &gone {
            running.stop.send_replace(true);
        }
        let mut stores = BTreeMap::new();
        for (name, mut running) in gone {
            if timeout(STOP_MAX, &mut running.task).await.is_err() {
                running.task.abort();
            }
            self.metrics.remove(&name);
            stores.insert(name, running.store);
        }
        for settings in sources {
            if !self.running.contains_key(&settings.name) {
                let store = stores.remove(&settings.name);
                let store = store.unwrap_or_else(|| Store::new(self.data.as_deref(), &settings.name));
                self.start(settings, store);
            }
        }
    }

    fn start(&mut self, settings: SourceSettings, store: Store) {
        let metrics = self.metrics.of(&settings.name, settings.kind.name());
        let publisher = Publisher::new(&settings.name, self.server.clone(), metrics);
        let (stop, stopped) = watch::channel(false);
        let context = Context { publisher, store: store.clone(), stop: Stop(stopped) };
        let lease = match settings.every_node {
            true => Lease::always(),
            false => self.server.lease(&format!("sources/{}", settings.name)),
        };
        let task = tokio::spawn(supervise(settings.clone(), context, lease));
        self.running.insert(settings.name.clone(), Running { settings, stop, task, store });
    }
}

/// The context of a source.
#[derive(Clone)]
struct Context {
    publisher: Publisher,
    store: Store,
    stop: Stop,
}

/// Runs a source while its node holds its lease, again after each failure, until it stops or has finished.
async fn supervise(settings: SourceSettings, mut context: Context, mut lease: Lease) {
    let mut back_off = BackOff::new(settings.restart_pause_ms, settings.restart_pause_max_ms);
    let settings = Arc::new(settings);
    loop {
        tokio::select! {
            () = lease.held() => {}
            () = context.stop.ordered() => return,
        }
        let metrics = context.publisher.metrics();
        metrics.runs.add(1);
        metrics.running.set(1);
        let outcome = run_while_held(&settings, &context, &mut lease).await;
        metrics.running.set(0);
        if context.stop.is_ordered() {
            return;
        }
        let Some(outcome) = outcome else {
            tracing::info!(source = context.publisher.name(), "it stops: another node may run it");
            continue;
        };
        let pause = match outcome {
            Ok(End::Finished) => {
                tracing::info!(source = context.publisher.name(), "it has finished");
                // Its node holds the lease, so that no other one begins.
                return context.stop.ordered().await;
            }
            Ok(End::Again) => {
                back_off.reset();
                Duration::from_millis(settings.restart_pause_ms)
            }
            Err(error) => {
                if context.publisher.works_for() >= Duration::from_millis(settings.restart_pause_max_ms) {
                    back_off.reset();
                }
                let pause = back_off.next();
                context.publisher.failure(error, pause);
                pause
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = context.stop.ordered() => return,
        }
        context.publisher.metrics().restarts.add(1);
    }
}

/// Runs a source once. None: it was stopped, because of an order or because its node does not hold its lease any more.
async fn run_while_held(
    settings: &Arc<SourceSettings>,
    context: &Context,
    lease: &mut Lease,
) -> Option<Result<End, Failure>> {
    let (stop, stopped) = watch::channel(false);
    let (mut order, of_run) = (context.stop.clone(), Context { stop: Stop(stopped), ..context.clone() });
    // A separate task turns a panic into a failure.
    let mut run = AbortOnDrop(tokio::spawn(run(settings.clone(), of_run)));
    let stop_max = tokio::select! {
        outcome = run.end() => return Some(outcome),
        () = order.ordered() => STOP_MAX,
        () = lease.lost() => LOST_MAX,
    };
    stop.send_replace(true);
    // A run that has not ended then is aborted.
    _ = timeout(stop_max, run.end()).await;
    None
}

/// A task that ends when this is dropped.
struct AbortOnDrop(JoinHandle<Result<End, Failure>>);

impl AbortOnDrop {
    async fn end(&mut self) -> Result<End, Failure> {
        (&mut self.0).await.unwrap_or_else(|error| Err(format!("a defect of this source: {error}").into()))
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs a source once.
async fn run(settings: Arc<SourceSettings>, context: Context) -> Result<End, Failure> {
    let (publisher, channel, stop) = (&context.publisher, settings.channel.as_str(), context.stop.clone());
    match &settings.kind {
        // It stops its program by itself.
        Kind::Command(command) => command::run(command, channel, publisher, stop).await,
        Kind::Mail(mail) => stop.ends(mail::run(mail, channel, publisher, &context.store)).await,
        Kind::Quotes(quotes) => stop.ends(quotes::run(quotes, channel, publisher)).await,
        Kind::File(file) => stop.ends(file::run(file, channel, publisher, &context.store)).await,
    }
}

/// The time in which a source stops; then its task is aborted.
const STOP_MAX: Duration = Duration::from_secs(3);

/// The time in which a source stops whose lease is lost: shorter than the time before another node holds it.
const LOST_MAX: Duration = Duration::from_secs(1);

/// The time in which all sources stop.
const JOIN_MAX: Duration = Duration::from_secs(10);
