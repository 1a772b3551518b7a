//! `encke serve`: the server, its signals and its logs.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use encke::demo::Demo;
use encke::{Handle, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::{Config, Sources};
use crate::logs::LogLevel;
use crate::{FAILED, assets, complain, config_command};

/// Runs the server until a signal ends it.
pub(crate) fn run(sources: Sources) -> ExitCode {
    let config = match sources.read() {
        Ok(config) => config,
        Err(problems) => return config_command::complain_all(&problems),
    };
    let level = LogLevel::start(&config.program);
    for note in &config.notes {
        tracing::warn!("{note}");
    }
    raise_open_files(config.settings.connections_max as u64, config.is_set("connections_max"));
    let server = Server::new(config.settings.clone()).assets(assets::all());
    let server = if config.program.demo { server.application(Demo::default()) } else { server };
    let running = match server.start() {
        Ok(running) => running,
        Err(error) => {
            complain(&error);
            return ExitCode::from(FAILED);
        }
    };
    let signals = Signals { sources, current: config, level, handle: running.handle() };
    if let Err(error) = signals.start() {
        complain(&format_args!("cannot listen to signals: {error}"));
        return ExitCode::from(FAILED);
    }
    announce(&running.address().to_string());
    running.join();
    tracing::info!("ended");
    ExitCode::SUCCESS
}

/// Tells that the server is ready: one line for programs, a word more for people.
fn announce(address: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody may be reading; the server runs all the same.
    let _ = writeln!(out, "encke listening on http://{address}").and_then(|()| out.flush());
    if std::io::stdout().is_terminal() && std::io::stderr().is_terminal() {
        eprintln!("open http://{address} in a browser; Ctrl-C ends");
    }
}

/// Each connection is an open file: takes as many as the system allows, and tells when they are fewer than configured.
fn raise_open_files(connections_max: u64, was_asked_for: bool) {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    if connections_max.saturating_add(OTHER_FILES) <= hard {
        return;
    }
    let room = hard.saturating_sub(OTHER_FILES);
    if was_asked_for {
        tracing::warn!(connections_max, room, "the system's limit of open files allows fewer connections (ulimit -Hn)");
    } else {
        tracing::info!(room, "the system's limit of open files bounds the connections (ulimit -Hn)");
    }
}

/// What a signal needs.
struct Signals {
    sources: Sources,
    /// The configuration that holds.
    current: Config,
    level: LogLevel,
    handle: Handle,
}

impl Signals {
    /// Listens on a thread of its own; returns when signals cannot be missed any more.
    fn start(self) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listen = |kind| {
            let _inside = runtime.enter();
            signal(kind)
        };
        let terminate = listen(SignalKind::terminate())?;
        let interrupt = listen(SignalKind::interrupt())?;
        let hangup = listen(SignalKind::hangup())?;
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || runtime.block_on(self.listen(terminate, interrupt, hangup)))?;
        Ok(())
    }

    /// The first SIGTERM or SIGINT drains, the second ends at once; SIGHUP reads the configuration again.
    async fn listen(mut self, mut terminate: Signal, mut interrupt: Signal, mut hangup: Signal) {
        let mut is_draining = false;
        loop {
            let code = tokio::select! {
                _ = terminate.recv() => 128 + 15,
                _ = interrupt.recv() => 128 + 2,
                _ = hangup.recv() => {
                    self.reload();
                    continue;
                }
            };
            if is_draining {
                std::process::exit(code);
            }
            is_draining = true;
            tracing::info!("draining: clients are told to come back later; a second signal ends at once");
            self.handle.drain();
        }
    }

    /// Takes over what changed. What is wrong changes nothing.
    fn reload(&mut self) {
        let new = match self.sources.read() {
            Ok(new) => new,
            Err(problems) => {
                for problem in problems {
                    tracing::error!("{problem}");
                }
                return tracing::error!("the old settings stay");
            }
        };
        let mut restart = match self.handle.reload(new.settings.clone()) {
            Ok(names) => names,
            Err(error) => return tracing::error!("{error}; the old settings stay"),
        };
        let changes = new.changes_from(&self.current);
        restart.extend(
            ["demo", "log_format"].into_iter().filter(|name| changes.iter().any(|(changed, ..)| changed == name)),
        );
        if new.program.log != self.current.program.log {
            self.level.change(&new.program);
        }
        for note in &new.notes {
            tracing::warn!("{note}");
        }
        for (name, old, value) in &changes {
            if restart.contains(name) {
                tracing::warn!("{name}: {old} stays until a restart, then {value}");
            } else {
                tracing::info!("{name}: {old} is now {value}");
            }
        }
        tracing::info!(changes = changes.len(), "settings read again");
        self.current = new;
    }
}

/// Files that are no connections: listeners, epoll, logs, and room for those that are about to be refused.
const OTHER_FILES: u64 = 256;
