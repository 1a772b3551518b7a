//! Schedules requests on connections, and takes samples meanwhile.
//!
//! A *slot* is a requester: a keep-alive connection, or a user. It keeps its connection as long as the server does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::visitor::{Asked, Counts, News, Page, Visitor, VisitorShared};
use crate::engine::Target;
use crate::engine::clock::now_us;
use crate::engine::connections::Connections;
use crate::latencies::Latencies;
use crate::machine::thread_cpu;
use crate::outcome::{CutShort, Outcome, Usage};
use crate::problem::Problem;
use crate::random::Rng;
use crate::report::Flow;
use crate::run::{Bench, Event, Observed, Snapshot, Watcher};

/// The pages to request, the requesters, and the rate.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) pages: Vec<Page>,
    /// Connections or users.
    pub(super) slots: u32,
    /// HTTP/2 in place of HTTP/1.1.
    pub(super) http2: bool,
    pub(super) pace: Pace,
    pub(super) warm_up: Duration,
    pub(super) duration: Duration,
    /// Ends it earlier.
    pub(super) requests_max: Option<u64>,
}

/// The times of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pace {
    /// A slot's next request follows its last answer: a closed loop, as in ApacheBench.
    WhenAnswered,
    /// A rate per second, by any free slot. Requests that wait for one count from their planned time.
    PerSecond(f64),
    /// A slot's next request follows a random pause, exponential with this mean, as in Faban.
    AfterThinking(Duration),
}

/// The result of a plan.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) counts: Counts,
    pub(super) outcome: Outcome,
    pub(super) seen: Observed,
}

/// Runs a plan.
///
/// # Errors
/// epoll fails.
pub(super) fn drive(target: &Target, plan: &Plan, bench: &mut Bench) -> Result<Done, Problem> {
    let begin_us = now_us();
    let from_us = begin_us + plan.warm_up.as_micros() as u64;
    let shared = VisitorShared {
        pages: plan.pages.clone(),
        from_us,
        latencies: Latencies::default(),
        counts: Counts::default(),
        news: Vec::new(),
    };
    let mut driver = Driver {
        target,
        plan,
        connections: Connections::new(shared)?,
        slots: vec![None; plan.slots as usize],
        rng: Rng::new(SEED, 0),
        due: BinaryHeap::new(),
        free: Vec::new(),
        awaited: 0,
        planned: 0,
        last_snapshot: Latencies::default(),
        begin_us,
        from_us,
        end_us: from_us + plan.duration.as_micros() as u64,
    };
    driver.start();
    let watcher = Watcher::new(&plan.name, bench.server, &mut bench.progress, &bench.interrupt);
    driver.run(watcher)
}

struct Driver<'a> {
    target: &'a Target,
    plan: &'a Plan,
    connections: Connections<Visitor>,
    /// The connection of each slot.
    slots: Vec<Option<usize>>,
    rng: Rng,
    /// The next requests of slots: `(planned time, slot)`; unused with a rate per second.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// Free slots, with a rate per second.
    free: Vec<usize>,
    /// Requests without an answer so far.
    awaited: u64,
    /// Requests that have left, or wait for a connection.
    planned: u64,
    last_snapshot: Latencies,
    begin_us: u64,
    from_us: u64,
    end_us: u64,
}

impl Driver<'_> {
    fn start(&mut self) {
        for slot in 0..self.slots.len() {
            match self.plan.pace {
                Pace::WhenAnswered => self.due.push(Reverse((self.begin_us, slot))),
                Pace::PerSecond(_) => self.free.push(slot),
                // Spread, as if it had been running before.
                Pace::AfterThinking(mean) => {
                    let first_us = self.rng.below(mean.as_micros() as u64 + 1);
                    self.due.push(Reverse((self.begin_us + first_us, slot)));
                }
            }
        }
    }

    fn run(mut self, mut watcher: Watcher<'_>) -> Result<Done, Problem> {
        let (mut first, mut last, mut cut_short) = (None, None, None);
        let mut snapshot_us = self.begin_us + SNAPSHOT_EVERY_US;
        let mut give_up_us = u64::MAX;
        loop {
            let now = now_us();
            if now >= self.from_us && first.is_none() {
                first = Some((now, thread_cpu()));
                watcher.take(Some(Event::WindowBegins));
            }
            let has_ended = now >= self.end_us && !self.lacks_an_answer(now);
            let is_over = has_ended || self.has_all_planned() || cut_short.is_some();
            if !is_over {
                self.ask_due(now)?;
            } else if last.is_none() && (self.awaited == 0 || has_ended || cut_short.is_some()) {
                last = Some((now, thread_cpu(), self.connections.shared.counts.clone()));
                watcher.take(Some(Event::WindowEnds));
                give_up_us = now + if cut_short.is_some() { 0 } else { TIMEOUT_US };
            }
            if last.is_some() && (self.awaited == 0 || now >= give_up_us) {
                break;
            }
            self.turn(now, snapshot_us)?;
            if now >= snapshot_us {
                snapshot_us += SNAPSHOT_EVERY_US;
                let snapshot = self.snapshot();
                watcher.take(Some(Event::Snapshot(&snapshot)));
            }
            if !watcher.take(None) {
                cut_short = Some(CutShort::Asked);
            }
        }
        let (first_us, first_cpu) = first.unwrap_or((self.begin_us, Duration::ZERO));
        let (last_us, last_cpu, counts) = last.unwrap_or((first_us, first_cpu, Counts::default()));
        let usage = Usage {
            window_s: last_us.saturating_sub(first_us) as f64 / 1e6,
            cpu_s: last_cpu.saturating_sub(first_cpu).as_secs_f64(),
        };
        Ok(self.conclude(watcher, usage, &counts, cut_short))
    }

    fn conclude(self, watcher: Watcher<'_>, usage: Usage, at_end: &Counts, cut_short: Option<CutShort>) -> Done {
        let counts = self.connections.shared.counts.clone();
        let window_ms = ((usage.window_s * 1000.0).round() as u64).max(1);
        let flow = |messages, bytes| Flow { messages, batches: messages, bytes, window_ms };
        let sent_bytes = at_end.asked * self.plan.pages.first().map_or(0, |page| page.request.len() as u64);
        let outcome = Outcome {
            expected: counts.asked,
            outgoing: flow(at_end.asked, sent_bytes),
            incoming: flow(at_end.answered, at_end.bytes),
            sent: counts.sent,
            received: counts.received,
            latencies: self.connections.shared.latencies,
            elapsed_ms: now_us().saturating_sub(self.begin_us) / 1000,
            usage,
            cut_short,
            ..Outcome::default()
        };
        let seen = watcher.conclude(&outcome);
        Done { counts, outcome, seen }
    }

    /// True if a window of users has no answer yet. It then lasts longer than planned, up to the time-out of an answer: if the
    /// pauses or a halt of the load take the whole window, it shows nothing about the server.
    fn lacks_an_answer(&self, now: u64) -> bool {
        let counts = &self.connections.shared.counts;
        let is_empty = counts.answered == 0 && counts.errors.is_empty();
        matches!(self.plan.pace, Pace::AfterThinking(_)) && is_empty && now < self.end_us + TIMEOUT_US
    }

    fn has_all_planned(&self) -> bool {
        self.plan.requests_max.is_some_and(|max| self.planned >= max)
    }

    /// Sends the requests that are due.
    fn ask_due(&mut self, now: u64) -> Result<(), Problem> {
        for _ in 0..ASKED_PER_TURN {
            if self.has_all_planned() {
                break;
            }
            let Some((planned_us, slot)) = self.take_due(now) else { break };
            self.ask(slot, planned_us)?;
        }
        Ok(())
    }

    fn take_due(&mut self, now: u64) -> Option<(u64, usize)> {
        match self.plan.pace {
            Pace::PerSecond(_) => {
                let planned_us = self.next_us()?;
                if planned_us > now {
                    return None;
                }
                Some((planned_us, self.free.pop()?))
            }
            Pace::WhenAnswered | Pace::AfterThinking(_) => {
                let Reverse((planned_us, _)) = *self.due.peek()?;
                if planned_us > now {
                    return None;
                }
                self.due.pop().map(|Reverse(due)| due)
            }
        }
    }

    /// The time of the next request.
    fn next_us(&self) -> Option<u64> {
        match self.plan.pace {
            Pace::PerSecond(rate) => {
                let next_us = self.begin_us + (self.planned as f64 * 1e6 / rate).round() as u64;
                // A window's length times a rate is no whole number.
                (next_us < self.end_us).then_some(next_us)
            }
            Pace::WhenAnswered | Pace::AfterThinking(_) => self.due.peek().map(|Reverse((at_us, _))| *at_us),
        }
    }

    fn ask(&mut self, slot: usize, planned_us: u64) -> Result<(), Problem> {
        let page = self.rng.below(self.plan.pages.len() as u64) as usize;
        let asked = Asked { planned_us, page };
        self.planned += 1;
        self.awaited += 1;
        if planned_us >= self.from_us {
            self.connections.shared.counts.asked += 1;
        }
        if let Some(connection) = self.slots[slot]
            && self.connections.with(connection, |visitor, out, shared| visitor.ask(asked, out, shared))?.is_some()
        {
            return Ok(());
        }
        self.slots[slot] = Some(self.connections.open(self.target, Visitor::new(slot, asked, self.plan.http2))?);
        Ok(())
    }

    /// Serves the sockets until something is due, and handles the answers.
    fn turn(&mut self, now: u64, snapshot_us: u64) -> Result<(), Problem> {
        let is_blocked = matches!(self.plan.pace, Pace::PerSecond(_)) && self.free.is_empty();
        let next_us = if is_blocked { snapshot_us } else { self.next_us().unwrap_or(snapshot_us) };
        let timeout_us = next_us.min(snapshot_us).saturating_sub(now).min(TURN_US_MAX);
        self.connections.turn(Duration::from_micros(timeout_us))?;
        let mut news = std::mem::take(&mut self.connections.shared.news);
        let now = now_us();
        for news in news.drain(..) {
            let (slot, is_failed) = match news {
                News::Answered(slot) => (slot, false),
                News::AnsweredAtLast(slot) => (self.release(slot), false),
                News::Failed(slot) => (self.release(slot), true),
                News::Left(slot) => {
                    self.release(slot);
                    continue;
                }
            };
            self.awaited -= 1;
            self.schedule(slot, now, is_failed);
        }
        self.connections.shared.news = news;
        Ok(())
    }

    fn release(&mut self, slot: usize) -> usize {
        if let Some(connection) = self.slots[slot].take() {
            self.connections.close(connection);
        }
        slot
    }

    fn schedule(&mut self, slot: usize, now: u64, is_failed: bool) {
        match self.plan.pace {
            Pace::PerSecond(_) => self.free.push(slot),
            // A server that is not there would be asked a million times a second.
            Pace::WhenAnswered => {
                let pause_us = if is_failed { RETRY_US } else { 0 };
                self.due.push(Reverse((now + pause_us, slot)));
            }
            Pace::AfterThinking(mean) => {
                let share = (self.rng.below(1 << 32) as f64 + 1.0) / (1u64 << 32) as f64;
                let pause_us = -share.ln() * mean.as_micros() as f64;
                self.due.push(Reverse((now + pause_us as u64, slot)));
            }
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let connected = self.connections.alive() as u64;
        let VisitorShared { counts, latencies, .. } = &self.connections.shared;
        let latencies = latencies.since(&mut self.last_snapshot);
        Snapshot { connected, sent: counts.sent, received: counts.received, latencies }
    }
}

/// Makes pages and pauses the same in each run.
const SEED: u64 = 2006;
/// The most requests before the sockets are served again.
const ASKED_PER_TURN: usize = 256;
const TURN_US_MAX: u64 = 10_000;
const SNAPSHOT_EVERY_US: u64 = 1_000_000;
/// The pause after a failed connection before a slot tries again.
const RETRY_US: u64 = 100_000;
/// Time to wait for the last answers.
const TIMEOUT_US: u64 = 10_000_000;
