//! `encke flood-target`: the server of "Comet & Java: Threaded Vs Nonblocking I/O" (2008), the target of the scenario
//! `flood`.
//!
//! `GET /comet?id=7` is answered by an endless response: `Welcome! Your Id: 7`, and with every tick of a common timer
//! `Chunk N for Id: 7`. It serves connections in either way that the post compares: one thread for all, or a thread for
//! each.

mod nonblocking;
mod request;
mod threads;

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum};

use crate::engine::allow_sockets;
use crate::engine::connections::os_message;
use crate::machine;
use crate::problem::Problem;
use crate::run::parse;

/// The way in which connections are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Io {
    /// One thread for all, with epoll.
    Async,
    /// A thread for each, which waits in its own reads and writes.
    Threads,
}

/// The options of the target.
#[derive(Clone, Debug, Args)]
pub struct TargetOptions {
    /// One nonblocking thread for all connections, or a blocking thread for each
    #[arg(long, value_enum, default_value = "async")]
    pub io: Io,
    /// The port on 127.0.0.1; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value = "0")]
    pub port: u16,
    /// The time between chunks
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse::some_duration)]
    pub chunk_every: Duration,
    /// Connections at a time; more are answered with 503 [default: as the limit of open files allows]
    #[arg(long, value_name = "N", value_parser = parse::count)]
    pub connections_max: Option<u32>,
    /// The stack of each thread of --io threads
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = stack)]
    pub stack: u32,
}

/// A target that runs, until its process ends.
#[derive(Debug)]
pub struct FloodTarget {
    /// The address it listens on.
    pub address: SocketAddr,
    state: Arc<State>,
}

/// State that all connections share.
#[derive(Debug)]
struct State {
    chunk_every: Duration,
    connections_max: usize,
    stack_bytes: usize,
    /// Connections that are open.
    connections: AtomicUsize,
    /// A shortage has been logged.
    shortage_logged: AtomicBool,
    log_to: LogTo,
}

/// The destination of messages for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTo {
    /// Events to stdout, shortages to stderr.
    Stdio,
    /// Nowhere.
    Nowhere,
}

/// The command `flood-target`.
pub fn command() -> Command {
    TargetOptions::augment_args(Command::new("flood-target"))
        .about("Serve streaming responses to be measured by encke bench flood, one thread for all or one for each")
        .after_help("GET /comet?id=7 is answered with a welcome and then a chunk with every tick. Ctrl-C ends it.")
}

/// Serves until Ctrl-C. An error at the start is one line on stderr, and sets the exit code.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let options = TargetOptions::from_arg_matches(matches).map_err(|error| Problem::Usage(error.to_string()));
    match options.and_then(|options| FloodTarget::start(&options, LogTo::Stdio)) {
        // Its threads serve; this one has nothing to do.
        Ok(_target) => loop {
            std::thread::park();
        },
        Err(problem) => {
            eprintln!("encke: {problem}");
            ExitCode::from(problem.exit_code())
        }
    }
}

impl FloodTarget {
    /// Listens, and serves on separate threads.
    ///
    /// # Errors
    /// The port is taken, or no thread can be started.
    pub fn start(options: &TargetOptions, log_to: LogTo) -> Result<FloodTarget, Problem> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).map_err(|error| {
            Problem::Machine(format!("cannot listen on 127.0.0.1:{}: {}", options.port, os_message(&error)))
        })?;
        let address = listener.local_addr()?;
        let files = machine::files_max();
        let room = files.saturating_sub(OTHER_FILES);
        let wanted = options.connections_max.map_or(room, u64::from);
        allow_sockets(wanted.min(room))?;
        let state = Arc::new(State {
            chunk_every: options.chunk_every,
            connections_max: usize::try_from(wanted.min(room)).unwrap_or(usize::MAX),
            stack_bytes: options.stack as usize,
            connections: AtomicUsize::new(0),
            shortage_logged: AtomicBool::new(false),
            log_to,
        });
        match options.io {
            Io::Async => nonblocking::start(listener, state.clone())?,
            Io::Threads => threads::start(listener, state.clone())?,
        }
        state.log(&format!("listening on http://{address}"));
        if wanted > room {
            state.warn(&format!("the system's limit of open files allows {room} connections (ulimit -Hn)"));
        }
        Ok(FloodTarget { address, state })
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }
}

impl State {
    /// Logs an event. A failure to write is ignored.
    fn log(&self, line: &str) {
        if self.log_to == LogTo::Stdio {
            let mut out = io::stdout().lock();
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
    }

    fn warn(&self, line: &str) {
        if self.log_to == LogTo::Stdio {
            let _ = writeln!(io::stderr(), "encke: {line}");
        }
    }

    /// Logs a shortage, once until it is over.
    fn short_of(&self, line: impl FnOnce(usize) -> String) {
        if !self.shortage_logged.swap(true, Ordering::Relaxed) {
            self.warn(&line(self.connections.load(Ordering::Relaxed)));
        }
    }

    /// Handles a failed accept.
    fn accept_failed(&self, error: &io::Error) {
        self.short_of(|open| format!("no connection can be accepted: {}; {open} are open", os_message(error)));
    }

    /// Counts a connection; `None` if there are too many.
    fn enter(self: &Arc<Self>) -> Option<Entered> {
        let open = self.connections.fetch_add(1, Ordering::Relaxed);
        let entered = Entered(self.clone());
        if open >= self.connections_max {
            self.short_of(|_| {
                format!("connections are refused: {} are open (--connections-max)", self.connections_max)
            });
            return None;
        }
        Some(entered)
    }
}

/// A connection that is counted until it ends.
#[derive(Debug)]
struct Entered(Arc<State>);

impl Entered {
    /// It is served: nothing is short.
    fn is_served(&self) {
        self.0.shortage_logged.store(false, Ordering::Relaxed);
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn stack(text: &str) -> Result<u32, String> {
    parse::size(text)
        .ok()
        .filter(|bytes| (STACK_BYTES_MIN..=STACK_BYTES_MAX).contains(bytes))
        .ok_or_else(|| "a size from 32KiB to 8MiB".into())
}

/// A thread needs at least this much.
const STACK_BYTES_MIN: u32 = 32 * 1024;
/// The stack of a program's first thread.
const STACK_BYTES_MAX: u32 = 8 * 1024 * 1024;
/// Files that are no connections.
const OTHER_FILES: u64 = 32;
/// The pause after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Time for a request to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
