//! `encke serve`: the server, its signals and its logs.

use std::io::{self, IsTerminal, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use encke::{Builder, Declared as _, Fallback, Handle, Running, Server};
use encke_auth::{AuthSettingsError, Jwt};
use encke_demo::{Demo, Source, Streams};
use encke_mongodb::MongoSettingsError;
use encke_nats::NatsSettingsError;
use encke_proxy::{Proxy, ProxyError, ProxySettings};
use encke_sources::{SourceSettings, Sources as Publishing, SourcesSettings};
use encke_webhooks::Webhooks;
use listenfd::ListenFd;
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cluster::ClusterSection;
use crate::config::{Config, Sources};
use crate::handover::{Handover, Heritage, Predecessor, Program};
use crate::logs::LogLevel;
use crate::mongodb::MongoSection;
use crate::sections::Sections;
use crate::{FAILED, allocator, assets, complain, config_command, demo, effects, options};

/// Runs the server until a signal ends it. `opens` is true if `encke demo` opens a browser.
pub(crate) fn run(sources: Sources, opens: bool) -> ExitCode {
    let config = match sources.read() {
        Ok(config) => config,
        Err(problems) => return config_command::complain_all(&problems),
    };
    let level = LogLevel::start(&config.program.log, config.program.log_format);
    for note in config.notes.iter().chain(&effects::without_effect(&config)) {
        tracing::warn!("{note}");
    }
    raise_open_files();
    let (connections_max, was_asked_for) = (config.settings.connections_max as u64, config.is_set("connections_max"));
    let is_demo = sources.demo;
    match start(sources, config, level) {
        Ok(Started { running, publishing, webhooks, begun }) => {
            report_to_room(connections_max, was_asked_for);
            let scheme = if running.has_tls() { "https" } else { "http" };
            announce(scheme, &running.address().to_string());
            if is_demo {
                demo::welcome(scheme, running.address(), opens);
            }
            let handle = running.handle();
            running.join();
            publishing.join();
            // The ends of sessions are events, too.
            webhooks.finish(WEBHOOKS_TIMEOUT);
            let handover = begun.lock().take();
            let heritage = Heritage { revoked: handle.revoked_tokens(), ticket_keys: handle.ticket_keys() };
            if let Some(Err(problem)) = handover.map(|handover| handover.complete(&heritage)) {
                complain(&format!("no server has taken over: {problem}"));
                return ExitCode::from(FAILED);
            }
            tracing::info!("ended");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            complain(&problem);
            ExitCode::from(FAILED)
        }
    }
}

/// The reason why the server does not run.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Server(#[from] encke::StartError),
    #[error(transparent)]
    Auth(#[from] AuthSettingsError),
    #[error(transparent)]
    Cluster(#[from] NatsSettingsError),
    #[error(transparent)]
    Mongo(#[from] MongoSettingsError),
    #[error("cannot listen to signals: {0}")]
    Signals(io::Error),
    #[error("cannot put the backend behind the server: {0}")]
    Proxy(#[from] ProxyError),
    #[error("cannot use the inherited listening socket: {0}")]
    Socket(io::Error),
    #[error("cannot start the thread of the sources: {0}")]
    Publishing(io::Error),
    #[error(transparent)]
    Webhooks(#[from] encke_webhooks::StartError),
}

/// Everything that runs.
struct Started {
    running: Running,
    publishing: Publishing,
    webhooks: Webhooks,
    /// The handover that has begun, if one has.
    begun: Arc<Mutex<Option<Handover>>>,
}

fn start(sources: Sources, mut config: Config, level: LogLevel) -> Result<Started, Problem> {
    let program = Program::this().map_err(Problem::Signals)?;
    let (runtime, early) = early_signals().map_err(Problem::Signals)?;
    let mut predecessor = Predecessor::of_environment().map_err(Problem::Socket)?;
    let (listener, further, is_supervised) = inherited_from(predecessor.as_ref()).map_err(Problem::Socket)?;
    let inherited = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    settle_demo(&mut config, inherited.filter(|_| !sources.demo));
    let server = Server::builder().settings(config.server_settings()).assets(assets::ALL);
    let auth = config.sections.auth.as_ref().map(Jwt::new).transpose()?;
    let server = authenticating(server, auth.as_ref(), sources.demo);
    let server = server.api_keys(config.sections.api_keys.clone()).reclaim_memory_with(allocator::reclaim);
    let streams = config.program.demo.then(Streams::default);
    // The sources start after the server.
    let listed = Arc::new(OnceLock::<Listed>::new());
    let demo = demo_of(&config.program);
    let server = demo.into_iter().fold(server, |server, demo| {
        demo.message_bytes_max(config.settings.message_bytes_max).sources(list_of(&listed)).install(server)
    });
    let server = joining(&config.sections, server)?;
    let webhooks = Webhooks::start(&config.sections.webhooks)?;
    let server = webhooks.in_front_of(server);
    if let Some(address) = inherited
        && config.is_set("listen")
        && config.settings.listen != address
    {
        tracing::warn!(%address, "the listening socket was inherited; the setting listen has no effect");
    }
    let server = match &mut predecessor {
        Some(predecessor) => {
            server.check()?;
            tracing::info!("ready; waiting for the previous server to end");
            let Heritage { revoked, ticket_keys } = predecessor.succeed().map_err(Problem::Socket)?;
            server.revoked_tokens(revoked).ticket_keys(ticket_keys)
        }
        None => server,
    };
    // From here on this process may hold the only copy of the sessions.
    let ends = registered(&runtime, [SignalKind::terminate(), SignalKind::interrupt()]).map_err(Problem::Signals)?;
    let server = listener.into_iter().fold(server, Builder::listener).further_listeners(further);
    let running = server.start()?;
    let listeners = sockets_of(&running).map_err(Problem::Socket)?;
    let handle = running.handle();
    if let Some(auth) = auth.clone() {
        handle.add_metrics(move || auth.metrics());
    }
    webhooks.serve(&handle);
    let data = Some(PathBuf::from(&config.settings.data)).filter(|data| !data.as_os_str().is_empty());
    let publishing = SourcesSettings { sources: config.sections.sources.clone(), data };
    let publishing = Publishing::start(publishing, handle.clone()).map_err(Problem::Publishing)?;
    let mails = || encke_demo::example_mails(handle.clone());
    let example = sources.demo.then(mails).transpose().map_err(Problem::Publishing)?;
    let _first = listed.set((publishing.clone(), example));
    install_fallback(&handle, config.sections.proxy.as_ref(), streams.as_ref())?;
    if let Some(streams) = streams.clone() {
        handle.add_metrics(move || streams.metrics());
    }
    let begun = Arc::<Mutex<Option<Handover>>>::default();
    let signals = Signals {
        sources,
        current: config,
        level,
        handle,
        auth,
        publishing: publishing.clone(),
        streams,
        program,
        listeners,
        is_supervised,
        begun: begun.clone(),
    };
    signals.start(runtime, early, ends).map_err(Problem::Signals)?;
    predecessor.into_iter().for_each(Predecessor::serves);
    Ok(Started { running, publishing, webhooks, begun })
}

/// Makes a server a node of the cluster, and gives it the store of its sessions, if there are sections for them.
fn joining(sections: &Sections, server: Builder) -> Result<Builder, Problem> {
    let cluster = sections.cluster.as_ref();
    let server = ClusterSection::join(cluster, server)?;
    Ok(MongoSection::join(sections.mongodb.as_ref(), cluster, server)?)
}

/// The services of the demo pages, if they are on.
fn demo_of(program: &options::Program) -> Option<Demo> {
    program.demo.then(|| if program.demo_cometd_channels { Demo::with_cometd_channels() } else { Demo::default() })
}

/// Decides about the demo pages again if the socket was inherited: its address counts, not the setting.
fn settle_demo(config: &mut Config, inherited: Option<SocketAddr>) {
    inherited.into_iter().for_each(|address| config.settle_demo(address));
    if let Some(reason) = config.demo_is_off() {
        tracing::info!("the services, rules and histories of the demo pages are {reason}");
    }
}

/// A server with the authentication of the section `[auth]`. Without one, visitors of `encke demo` choose their names.
fn authenticating(server: Builder, auth: Option<&Jwt>, is_demo: bool) -> Builder {
    match auth {
        Some(auth) => server.authenticate(auth.clone()),
        None if is_demo => server.authenticate(encke_demo::visitor),
        None => server,
    }
}

/// The sources of the configuration, and one of example mails, which counts as long as no mailbox is configured.
type Listed = (Publishing, Option<Source>);

/// Lists the sources of a server that may not have started yet.
fn list_of(listed: &Arc<OnceLock<Listed>>) -> impl Fn() -> Vec<Source> + Send + Sync + 'static {
    let listed = listed.clone();
    let one = |it: SourceSettings| Source { kind: it.kind.name().to_owned(), name: it.name, channel: it.channel };
    move || {
        let Some((publishing, example)) = listed.get() else { return Vec::new() };
        let mut all: Vec<Source> = publishing.current().into_iter().map(one).collect();
        if !all.iter().any(|source| source.kind == "mail") {
            all.extend(example.clone());
        }
        all
    }
}

/// Puts the streams of the demo, if it is on, and the backend of the section `[proxy]`, if any, behind the server.
fn install_fallback(
    handle: &Handle,
    settings: Option<&ProxySettings>,
    streams: Option<&Streams>,
) -> Result<(), ProxyError> {
    let proxy = settings.map(|settings| Proxy::new(settings.clone(), handle.clone())).transpose()?;
    let proxy = proxy.map(|proxy| Arc::new(proxy) as Arc<dyn Fallback>);
    handle.set_fallback(streams.map(|streams| streams.in_front_of(proxy.clone())).or(proxy));
    Ok(())
}

/// The listening socket of the server before this one, or of a supervisor, if any, and further ones of the former. The last part is
/// true if a supervisor owns the socket: then it outlives this process.
fn inherited_from(predecessor: Option<&Predecessor>) -> io::Result<(Option<TcpListener>, Vec<OwnedFd>, bool)> {
    if let Some(predecessor) = predecessor {
        let mut sockets = predecessor.sockets()?.into_iter();
        return Ok((sockets.next().map(TcpListener::from), sockets.collect(), false));
    }
    let listener = of_supervisor()?;
    let is_supervised = listener.is_some();
    Ok((listener, Vec::new(), is_supervised))
}

/// The listening sockets of a server, the one of `listen` first.
fn sockets_of(running: &Running) -> io::Result<Vec<OwnedFd>> {
    Ok([running.listener()?.into()].into_iter().chain(running.further_listeners()?).collect())
}

/// The listening socket from systemd, if any.
fn of_supervisor() -> io::Result<Option<TcpListener>> {
    let mut given = ListenFd::from_env();
    if given.len() > 1 {
        tracing::warn!(sockets = given.len(), "several sockets were inherited; the first one is used");
    }
    given.take_tcp_listener(0)
}

/// Announces that the server is ready: one line for programs, a second one for people.
fn announce(scheme: &str, address: &str) {
    let mut out = std::io::stdout().lock();
    // If nobody reads it, the server still runs.
    let _ = writeln!(out, "encke listening on {scheme}://{address}").and_then(|()| out.flush());
    if std::io::stdout().is_terminal() && std::io::stderr().is_terminal() {
        eprintln!("open {scheme}://{address} in a browser; Ctrl-C ends");
    }
}

/// Each connection is an open file: takes as many as the system allows.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Logs the number of connections that the system allows, if it is lower than configured. The server already runs, so the files
/// that are open are those that no connection can have.
fn report_to_room(connections_max: u64, was_asked_for: bool) {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return };
    let others = std::fs::read_dir("/dev/fd").map_or(OTHER_FILES, |open| open.count() as u64);
    let room = limit.saturating_sub(others);
    if connections_max <= room {
        return;
    }
    if was_asked_for {
        tracing::warn!(connections_max, room, "the system's limit of open files allows fewer connections (ulimit -Hn)");
    } else {
        tracing::info!(room, "the system's limit of open files limits the connections (ulimit -Hn)");
    }
}

/// The runtime of the signals, and the signals that must not end a process that is about to serve: those to reload and to hand over.
/// They are queued until it does.
fn early_signals() -> io::Result<(Runtime, [Signal; 2])> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let early = registered(&runtime, [SignalKind::hangup(), SignalKind::user_defined2()])?;
    Ok((runtime, early))
}

/// From now on these signals are queued.
fn registered(runtime: &Runtime, kinds: [SignalKind; 2]) -> io::Result<[Signal; 2]> {
    let _inside = runtime.enter();
    let [one, other] = kinds.map(signal);
    Ok([one?, other?])
}

/// The context of the signal handlers.
struct Signals {
    sources: Sources,
    /// The effective configuration.
    current: Config,
    level: LogLevel,
    handle: Handle,
    /// The sources that publish by themselves.
    publishing: Publishing,
    /// The streams of the demo, if it is on.
    streams: Option<Streams>,
    /// The authentication, if the configuration had the section `[auth]` at the start.
    auth: Option<Jwt>,
    program: Program,
    listeners: Vec<OwnedFd>,
    /// True if a supervisor owns the listening socket.
    is_supervised: bool,
    /// The handover that has begun.
    begun: Arc<Mutex<Option<Handover>>>,
}

impl Signals {
    /// Listens on a separate thread.
    fn start(self, runtime: Runtime, early: [Signal; 2], ends: [Signal; 2]) -> io::Result<()> {
        std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(self.listen(early, ends)))?;
        Ok(())
    }

    /// The first SIGTERM or SIGINT drains, the second ends at once; SIGHUP reads the configuration again; SIGUSR2 drains when another
    /// server is ready to take over, which makes no later signal the second.
    async fn listen(mut self, [mut hangup, mut hand_over]: [Signal; 2], [mut terminate, mut interrupt]: [Signal; 2]) {
        let (mut is_draining, mut is_second) = (false, false);
        loop {
            let code = tokio::select! {
                _ = terminate.recv() => 128 + 15,
                _ = interrupt.recv() => 128 + 2,
                _ = hangup.recv() => {
                    self.reload();
                    continue;
                }
                _ = hand_over.recv() => {
                    is_draining = is_draining || self.hand_over();
                    continue;
                }
            };
            if std::mem::replace(&mut is_second, true) {
                std::process::exit(code);
            }
            is_draining = true;
            tracing::info!("draining: clients are advised to reconnect later; a second signal ends at once");
            if self.is_supervised {
                // The next process that holds the socket serves the connections that come now.
                self.handle.stop_accepting();
            }
            self.drain();
        }
    }

    /// Stops what publishes or streams by itself, and drains the server.
    fn drain(&self) {
        self.publishing.stop();
        self.streams.iter().for_each(Streams::stop);
        self.handle.drain();
    }

    /// Lets another process of this program take over. False if it cannot.
    fn hand_over(&mut self) -> bool {
        match self.program.hand_over(&self.listeners) {
            Ok(handover) => {
                let process = handover.process();
                *self.begun.lock() = Some(handover);
                tracing::info!(process, "draining: another server takes over when this one has ended");
                self.handle.stop_accepting();
                self.drain();
                true
            }
            Err(error) => {
                tracing::error!("the handover failed, this server continues: {error}");
                false
            }
        }
    }

    /// Applies the changes of the configuration. A configuration with an error changes nothing.
    fn reload(&mut self) {
        let mut new = match self.sources.read() {
            Ok(new) => new,
            Err(problems) => {
                for problem in problems {
                    tracing::error!("{problem}");
                }
                return tracing::error!("the old settings stay in force");
            }
        };
        if let (Some(jwt), Some(auth)) = (&self.auth, &new.sections.auth)
            && let Err(error) = jwt.reload(auth)
        {
            return tracing::error!("{error}; the old settings stay in force");
        }
        if self.auth.is_some() != new.sections.auth.is_some() {
            tracing::warn!("[auth] stays as it is until a restart");
        }
        let changes = new.changes_from(&self.current);
        // The demo stays as it is, and the rules of its channels with it.
        let unchanged = new.program.keep_fixed(&self.current.program);
        let mut restart = match self.handle.reload(new.server_settings()) {
            Ok(names) => names,
            Err(error) => return tracing::error!("{error}; the old settings stay in force"),
        };
        self.handle.set_api_keys(new.sections.api_keys.clone());
        restart.extend(unchanged);
        restart.extend((new.sections.proxy != self.current.sections.proxy).then_some("proxy"));
        if new.sections.cluster != self.current.sections.cluster {
            tracing::warn!("[cluster] stays as it is until a restart");
        }
        if new.sections.mongodb != self.current.sections.mongodb {
            tracing::warn!("[mongodb] stays as it is until a restart");
        }
        let publishing = self.publishing.reload(new.sections.sources.clone());
        for (what, names) in
            [("starts", &publishing.added), ("stops", &publishing.removed), ("has other settings", &publishing.changed)]
        {
            names.iter().for_each(|source| tracing::info!(source, "{what}"));
        }
        if new.sections.webhooks != self.current.sections.webhooks {
            tracing::warn!("webhooks: the old ones stay until a restart");
        }
        if new.program.log != self.current.program.log {
            self.level.change(&new.program.log);
        }
        for note in new.notes.iter().chain(&effects::without_effect(&new)) {
            tracing::warn!("{note}");
        }
        for (name, old, value) in &changes {
            if restart.contains(name) {
                tracing::warn!("{name}: {old} stays until a restart, then {value}");
            } else {
                tracing::info!("{name}: {old} is now {value}");
            }
        }
        tracing::info!(changes = changes.len(), "settings reloaded");
        self.current = new;
    }
}

/// The time for webhooks to post the events that still wait when the server has stopped.
const WEBHOOKS_TIMEOUT: Duration = Duration::from_secs(5);

/// Files that are no connections, where the system does not list them: listeners, epoll, logs.
const OTHER_FILES: u64 = 32;
