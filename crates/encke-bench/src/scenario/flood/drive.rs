//! Opens connections at their planned times and holds them, while chunks come.

use std::time::Duration;

use super::listener::{Listener, ListenerShared};
use super::over::Over;
use super::session::{Session, next_keep_alive_us};
use super::stream::Stream;
use crate::engine::Target;
use crate::engine::clock::now_us;
use crate::engine::connections::{Connections, End, Handler};
use crate::latencies::Latencies;
use crate::machine::own_cpu;
use crate::outcome::{CutShort, Outcome, Usage};
use crate::problem::Problem;
use crate::report::Flow;
use crate::run::{Bench, Event, Observed, Snapshot, Watcher};

/// The connections to open, their rate and lifetime.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) over: Over,
    pub(super) connections: u32,
    /// Connections per second.
    pub(super) per_s: f64,
    pub(super) chunk_every: Duration,
    pub(super) late_after: Duration,
    /// The time that all stay open after the last was begun.
    pub(super) hold: Duration,
}

/// The result of a plan.
#[derive(Debug)]
pub(super) struct Done {
    /// The planned time of the first connection, in microseconds.
    pub(super) begin_us: u64,
    /// The planned time of the last.
    pub(super) opened_us: u64,
    pub(super) shared: ListenerShared,
    pub(super) outcome: Outcome,
    pub(super) seen: Observed,
}

/// Runs a plan.
///
/// # Errors
/// The publishing session cannot be opened, if one is needed; or epoll fails.
pub(super) fn drive(target: &Target, plan: &Plan, bench: &mut Bench) -> Result<Done, Problem> {
    let shared = ListenerShared::new(plan.late_after, plan.chunk_every);
    let mut connections = Connections::new(shared)?;
    let publisher = match plan.over {
        Over::Stream => None,
        Over::LongPolling => Some(publisher(&mut connections, target)?),
    };
    let begin_us = now_us();
    let last = f64::from(plan.connections.saturating_sub(1));
    let opened_us = begin_us + (last * 1e6 / plan.per_s) as u64;
    let driver = Driver {
        target,
        plan,
        connections,
        publisher,
        last_snapshot: Latencies::default(),
        begin_us,
        end_us: opened_us + plan.hold.as_micros() as u64,
        opened: 0,
        publish_us: begin_us + plan.chunk_every.as_micros() as u64,
        keep_alive_us: next_keep_alive_us(),
    };
    let watcher = Watcher::new(&plan.name, bench.server, &mut bench.progress, &bench.interrupt);
    let mut done = driver.run(watcher)?;
    done.opened_us = opened_us;
    Ok(done)
}

/// Opens the session that publishes.
fn publisher<'a>(connections: &mut Connections<Flooder<'a>>, target: &'a Target) -> Result<usize, Problem> {
    let kind = Kind::Session(Session::publishes());
    let index = connections.open(target, Flooder { target, kind })?;
    let end_us = now_us() + PUBLISHER_TIMEOUT_US;
    while !connections.shared.can_publish {
        if let Some(reason) = connections.shared.publisher_failed.take() {
            let Target { authority, path, .. } = target;
            return Err(Problem::NotBayeux { address: format!("{authority}{path}"), reason });
        }
        if now_us() > end_us {
            return Err(Problem::Server("does not answer a handshake within 10 s".into()));
        }
        connections.turn(Duration::from_millis(100))?;
    }
    Ok(index)
}

/// One connection of any kind.
struct Flooder<'a> {
    target: &'a Target,
    kind: Kind,
}

enum Kind {
    Stream(Stream),
    Session(Session),
}

impl Handler for Flooder<'_> {
    type State = ListenerShared;

    fn connected(&mut self, out: &mut Vec<u8>, shared: &mut ListenerShared) -> Result<(), String> {
        match &mut self.kind {
            Kind::Stream(stream) => stream.connected(self.target, out, shared),
            Kind::Session(session) => session.connected(self.target, out, shared),
        }
        Ok(())
    }

    fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>, shared: &mut ListenerShared) -> Result<usize, String> {
        match &mut self.kind {
            Kind::Stream(stream) => stream.received(bytes, shared),
            Kind::Session(session) => session.received(bytes, self.target, out, shared),
        }
    }

    fn ended(&mut self, end: End, shared: &mut ListenerShared) {
        let why = match end {
            End::Unreachable(why) | End::Broken(why) => why,
            End::Closed => "closed by the server".into(),
        };
        let listener = match &mut self.kind {
            Kind::Stream(stream) => Some(&mut stream.listener),
            Kind::Session(session) => session.listener_mut(),
        };
        match listener {
            Some(listener) => listener.ended(&why, shared),
            None => shared.publisher_failed = Some(why),
        }
    }
}

impl Flooder<'_> {
    fn listener(&self) -> Option<&Listener> {
        match &self.kind {
            Kind::Stream(stream) => Some(&stream.listener),
            Kind::Session(session) => session.listener(),
        }
    }
}

struct Driver<'a> {
    target: &'a Target,
    plan: &'a Plan,
    connections: Connections<Flooder<'a>>,
    /// The connection of the session that publishes, where chunks are publications.
    publisher: Option<usize>,
    last_snapshot: Latencies,
    begin_us: u64,
    end_us: u64,
    /// Connections begun so far.
    opened: u32,
    /// The time of the next chunk to publish.
    publish_us: u64,
    keep_alive_us: u64,
}

impl Driver<'_> {
    fn run(mut self, mut watcher: Watcher<'_>) -> Result<Done, Problem> {
        watcher.take(Some(Event::WindowBegins));
        let cpu = own_cpu();
        let mut snapshot_us = self.begin_us + SNAPSHOT_EVERY_US;
        let mut cut_short = None;
        while now_us() < self.end_us && cut_short.is_none() {
            let now = now_us();
            self.open_due(now)?;
            self.publish_due(now)?;
            let next_us = self.next_us().min(snapshot_us).min(self.end_us);
            self.connections.turn(Duration::from_micros(next_us.saturating_sub(now).min(TURN_US_MAX)))?;
            if now >= snapshot_us {
                snapshot_us += SNAPSHOT_EVERY_US;
                let snapshot = self.snapshot();
                watcher.take(Some(Event::Snapshot(&snapshot)));
            }
            if !watcher.take(None) {
                cut_short = Some(CutShort::Asked);
            }
        }
        let end_us = now_us();
        watcher.take(Some(Event::WindowEnds));
        let usage = Usage {
            window_s: end_us.saturating_sub(self.begin_us) as f64 / 1e6,
            cpu_s: own_cpu().saturating_sub(cpu).as_secs_f64(),
        };
        self.settle(end_us, cut_short.is_some())?;
        Ok(self.conclude(watcher, usage, cut_short))
    }

    fn open_due(&mut self, now: u64) -> Result<(), Problem> {
        for _ in 0..OPENED_PER_TURN {
            let Some(planned_us) = self.next_open_us().filter(|planned_us| *planned_us <= now) else { break };
            let listener = Listener::new(self.opened + 1, planned_us);
            let kind = match self.plan.over {
                Over::Stream => Kind::Stream(Stream::new(listener)),
                Over::LongPolling => Kind::Session(Session::listens(listener)),
            };
            self.opened += 1;
            self.connections.open(self.target, Flooder { target: self.target, kind })?;
        }
        Ok(())
    }

    fn next_open_us(&self) -> Option<u64> {
        let offset_us = (f64::from(self.opened) * 1e6 / self.plan.per_s) as u64;
        (self.opened < self.plan.connections).then_some(self.begin_us + offset_us)
    }

    fn publish_due(&mut self, now: u64) -> Result<(), Problem> {
        let Some(publisher) = self.publisher else { return Ok(()) };
        let target = self.target;
        let mut with = |act: &dyn Fn(&mut Session, &mut Vec<u8>, &mut ListenerShared)| {
            self.connections.with(publisher, |flooder, out, shared| {
                if let Kind::Session(session) = &mut flooder.kind {
                    act(session, out, shared);
                }
            })
        };
        if now >= self.publish_us {
            let due_us = self.publish_us;
            self.publish_us += self.plan.chunk_every.as_micros() as u64;
            self.keep_alive_us = next_keep_alive_us();
            with(&|session, out, shared| session.publish(due_us, target, out, shared))?;
        } else if now >= self.keep_alive_us {
            self.keep_alive_us = next_keep_alive_us();
            with(&|session, out, _| session.keep_alive(target, out))?;
        }
        Ok(())
    }

    fn next_us(&self) -> u64 {
        let open_us = self.next_open_us().unwrap_or(u64::MAX);
        let publish_us = if self.publisher.is_some() { self.publish_us.min(self.keep_alive_us) } else { u64::MAX };
        open_us.min(publish_us)
    }

    /// Waits for the chunks under way, and counts the missing ones.
    fn settle(&mut self, end_us: u64, cut_short: bool) -> Result<(), Problem> {
        let timeout_us = if cut_short { 0 } else { self.connections.shared.late_after_us };
        if self.publisher.is_some() {
            while now_us() < end_us + timeout_us && self.behind() > 0 {
                self.connections.turn(Duration::from_micros(TURN_US_MAX))?;
            }
            if !cut_short {
                self.connections.shared.faults.lost += self.behind();
            }
            return Ok(());
        }
        let lost: u64 = self.listeners().map(|listener| listener.overdue(end_us, &self.connections.shared)).sum();
        self.connections.shared.faults.lost += lost;
        Ok(())
    }

    /// Publications that have not arrived yet, on connections that are there.
    fn behind(&self) -> u64 {
        self.listeners().map(|listener| listener.behind(self.connections.shared.published)).sum()
    }

    fn listeners(&self) -> impl Iterator<Item = &Listener> {
        (0..self.connections.len()).filter_map(|index| self.connections.handler(index).listener())
    }

    fn snapshot(&mut self) -> Snapshot {
        let shared = &self.connections.shared;
        let latencies = shared.welcomes.since(&mut self.last_snapshot);
        Snapshot { connected: shared.listening, sent: shared.sent, received: shared.chunks, latencies }
    }

    fn conclude(self, watcher: Watcher<'_>, usage: Usage, cut_short: Option<CutShort>) -> Done {
        let begin_us = self.begin_us;
        let shared = self.connections.shared;
        let window_ms = (usage.window_s * 1000.0).round() as u64;
        let flow = |messages, bytes| Flow { messages, batches: messages, bytes, window_ms };
        let outcome = Outcome {
            expected: shared.chunks + shared.faults.lost,
            faults: shared.faults,
            outgoing: flow(shared.sent, 0),
            incoming: flow(shared.chunks, shared.bytes),
            sent: shared.sent,
            received: shared.chunks,
            latencies: shared.welcomes.clone(),
            elapsed_ms: (usage.window_s * 1000.0) as u64,
            usage,
            cut_short,
            ..Outcome::default()
        };
        let seen = watcher.conclude(&outcome);
        Done { begin_us, opened_us: begin_us, shared, outcome, seen }
    }
}

/// The most connections begun before the sockets are served again.
const OPENED_PER_TURN: usize = 64;
const TURN_US_MAX: u64 = 10_000;
const SNAPSHOT_EVERY_US: u64 = 1_000_000;
/// Time for the first handshake.
const PUBLISHER_TIMEOUT_US: u64 = 10_000_000;
