//! One worker's share of an order, executed by its clients.
//!
//! ```text
//! sending (warm-up, measured window) ─→ totals of all workers ─→ waiting for deliveries under way ─→ outcome
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::plan::{Due, Plan, Share};
use crate::engine::{Clients, Counts, PlannedMessage, Published};
use crate::latencies::Latencies;
use crate::machine::own_cpu;
use crate::order::{ClientsSpec, Order, Recipients, Senders, Size};
use crate::outcome::{CutShort, Outcome, Usage};
use crate::problem::Problem;
use crate::random::Rng;
use crate::report::Flow;

/// The link between a worker that runs an order and the others.
pub trait Coordinator {
    /// The measured window begins or ends now, or a second is over.
    fn event(&mut self, event: Event<'_>);

    /// Returns true to continue; called every turn.
    fn should_continue(&mut self) -> bool;

    /// The publications of all workers, in worker order, once each has reported them. Called every turn after this
    /// worker has published `own` and stopped publishing.
    ///
    /// # Errors
    /// Another worker is gone.
    fn totals(&mut self, own: &Published) -> Result<Option<Vec<Published>>, Problem>;
}

/// Called while an order runs, with an event or none. Returns false to stop.
pub type Watch<'a> = dyn FnMut(Option<Event<'_>>) -> bool + 'a;

/// An event of a running order.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The warm-up is over.
    WindowBegins,
    /// Messages sent from now on do not count for rates.
    WindowEnds,
    /// About a second is over.
    Snapshot(&'a Snapshot),
}

/// The counters of one worker, or of all, since the trial began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Sessions that are open.
    pub connected: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Latencies since the previous snapshot.
    pub latencies: Latencies,
}

/// Runs one worker's share of an order from `begin_us` on. `before` has the earlier publications of all workers.
/// Returns the outcome, and the publications of all workers now.
///
/// # Errors
/// epoll or the coordinator fails.
pub fn run_trial(
    clients: &mut Clients,
    (spec, share): (&ClientsSpec, Share),
    order: &Order,
    (begin_us, before): (u64, &[Published]),
    coordinator: &mut dyn Coordinator,
) -> Result<(Outcome, Vec<Published>), Problem> {
    let early = clients.begin(before);
    clients.time_from(begin_us + order.warm_up_ms * 1000, sample(spec, order), order.late_after_us);
    if let Some(cuts) = order.cuts {
        clients.begin_cuts(cuts, begin_us);
    }
    let mut run = TrialRun::new(clients, spec, share, order, begin_us);
    run.base.received -= early;
    if order.warm_up_ms == 0 {
        // The window is the trial's: a worker that begins late counts the messages that others sent it before.
        run.mark(Mark { at_us: begin_us, counts: run.base, cpu: own_cpu() }, coordinator);
    }
    run.send(coordinator)?;
    // Offline clients reconnect and receive the missed messages.
    run.clients.end_cuts();
    let all = run.totals(coordinator)?;
    run.wait(&all, coordinator)?;
    let outcome = run.conclude(&all);
    Ok((outcome, all))
}

struct TrialRun<'a> {
    clients: &'a mut Clients,
    order: &'a Order,
    plan: Plan,
    rng: Rng,
    rooms: u64,
    begin_us: u64,
    base: Counts,
    sender: Option<u64>,
    batch: Vec<PlannedMessage>,
    marks: Vec<Mark>,
    snapshot_us: u64,
    last_snapshot: Latencies,
    arrival: Arrival,
    sent_us: u64,
    refused: u64,
    error: Option<String>,
    cut_short: Option<CutShort>,
}

/// The counters at an end of the measured window.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at_us: u64,
    counts: Counts,
    cpu: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    received: u64,
    at_us: u64,
}

impl<'a> TrialRun<'a> {
    fn new(clients: &'a mut Clients, spec: &ClientsSpec, share: Share, order: &'a Order, begin_us: u64) -> Self {
        let base = clients.counts();
        TrialRun {
            clients,
            order,
            plan: Plan::new(spec, order, share, begin_us),
            // Rooms are chosen by other numbers than senders.
            rng: Rng::new(!order.traffic.seed, share.worker),
            rooms: spec.membership.rooms.into(),
            begin_us,
            base,
            sender: None,
            batch: Vec::new(),
            marks: Vec::new(),
            snapshot_us: begin_us + SNAPSHOT_EVERY_US,
            last_snapshot: Latencies::default(),
            arrival: Arrival { received: base.received, at_us: begin_us },
            sent_us: begin_us,
            refused: 0,
            error: None,
            cut_short: None,
        }
    }

    /// Sends until the plan is done, or the run is stopped.
    fn send(&mut self, coordinator: &mut dyn Coordinator) -> Result<(), Problem> {
        while self.cut_short.is_none() {
            let now_us = Clients::clock_us();
            self.send_due(now_us);
            let next_us = self.plan.next_us(now_us);
            self.turn(next_us.unwrap_or(u64::MAX), coordinator)?;
            let window_is_over = self.window_end_us().is_none_or(|end_us| Clients::clock_us() >= end_us);
            if next_us.is_none() && window_is_over {
                break;
            }
            if self.refused > REFUSED_MAX {
                self.cut_short = Some(CutShort::Hopeless);
            }
        }
        self.sent_us = Clients::clock_us();
        if self.window_end_us().is_some() || self.cut_short.is_some() {
            self.mark_up_to(2, coordinator);
        }
        Ok(())
    }

    /// Reports this worker's publications, and waits for those of all workers.
    fn totals(&mut self, coordinator: &mut dyn Coordinator) -> Result<Vec<Published>, Problem> {
        loop {
            if let Some(all) = coordinator.totals(self.clients.published())? {
                return Ok(all);
            }
            self.turn(u64::MAX, coordinator)?;
        }
    }

    /// Waits for the deliveries under way: until all have arrived, none arrived for too long, or they do not matter any
    /// more.
    fn wait(&mut self, all: &[Published], coordinator: &mut dyn Coordinator) -> Result<(), Problem> {
        let expected = self.clients.expected(all);
        let mut timeout_us = self.order.drain_timeout_ms * 1000;
        let began_us = Clients::clock_us();
        while self.arrival.received - self.base.received < expected && self.cut_short != Some(CutShort::Hopeless) {
            if self.cut_short == Some(CutShort::Asked) {
                timeout_us = timeout_us.min(INTERRUPTED_TIMEOUT_US);
            }
            if Clients::clock_us() > self.arrival.at_us.max(began_us) + timeout_us {
                break;
            }
            self.turn(u64::MAX, coordinator)?;
        }
        self.mark_up_to(2, coordinator);
        // Doubled deliveries follow soon.
        let end_us = Clients::clock_us() + LINGER_US;
        while Clients::clock_us() < end_us {
            self.turn(end_us, coordinator)?;
        }
        self.snapshot(Clients::clock_us(), coordinator);
        Ok(())
    }

    /// Publishes the messages that are due, up to a limit, so that reading is never delayed for long.
    fn send_due(&mut self, now_us: u64) {
        let limit = if self.plan.is_timed() { PUBLICATIONS_PER_TURN } else { BATCH_PUBLICATIONS_MAX };
        let size = self.order.traffic.batch_size as usize;
        let mut count = 0;
        while count < limit {
            let Some(due) = self.plan.take(now_us) else { break };
            if self.sender != Some(due.sender) || self.batch.len() + size > BATCH_PUBLICATIONS_MAX {
                self.publish();
            }
            self.gather(due, size);
            count += size;
        }
        self.publish();
    }

    fn gather(&mut self, due: Due, size: usize) {
        self.sender = Some(due.sender);
        for _ in 0..size {
            let room = self.rng.below(self.rooms) as u32;
            self.batch.push(PlannedMessage { room, planned_us: due.planned_us });
        }
    }

    /// Sends the collected batch of one sender.
    fn publish(&mut self) {
        let Some(sender) = self.sender.take() else { return };
        let bytes = self.order.traffic.data_bytes as usize;
        let senders = match self.order.traffic.senders {
            Senders::Publishers => self.clients.publishers(),
            Senders::AnyClient | Senders::EachClient(_) => self.clients.subscribers(),
        };
        let session = senders.start + sender as usize;
        let done = match &self.order.traffic.recipients {
            Recipients::AnyRoom => self.clients.publish(session, &self.batch, bytes),
            Recipients::Service(channel) => {
                let mut calls = self.batch.iter();
                calls.try_for_each(|call| self.clients.call(session, channel, call.planned_us, bytes))
            }
        };
        if let Err(problem) = done {
            self.refused += self.batch.len() as u64;
            self.error.get_or_insert_with(|| problem.to_string());
        }
        self.batch.clear();
    }

    /// Serves the sockets until `until_us` at the latest, and does everything that falls due.
    fn turn(&mut self, until_us: u64, coordinator: &mut dyn Coordinator) -> Result<(), Problem> {
        let now_us = Clients::clock_us();
        let next_mark_us = self.next_mark_us().unwrap_or(u64::MAX);
        let timeout_us = until_us.min(next_mark_us).saturating_sub(now_us).min(TURN_US_MAX);
        self.clients.turn(Duration::from_micros(timeout_us))?;
        let now_us = Clients::clock_us();
        let received = self.clients.counts().received;
        if received > self.arrival.received {
            self.arrival = Arrival { received, at_us: now_us };
        }
        if now_us >= next_mark_us {
            self.mark_up_to(self.marks.len() + 1, coordinator);
        }
        if now_us >= self.snapshot_us {
            self.snapshot(now_us, coordinator);
        }
        if self.cut_short.is_none() {
            let hopeless =
                self.order.give_up_us.is_some_and(|give_up_us| self.clients.latencies().max_us() > give_up_us);
            self.cut_short = if !coordinator.should_continue() {
                Some(CutShort::Asked)
            } else {
                hopeless.then_some(CutShort::Hopeless)
            };
        }
        Ok(())
    }

    fn snapshot(&mut self, now_us: u64, coordinator: &mut dyn Coordinator) {
        let counts = self.clients.counts();
        let snapshot = Snapshot {
            connected: counts.connected,
            sent: counts.sent - self.base.sent,
            received: counts.received - self.base.received,
            latencies: self.clients.latencies().since(&mut self.last_snapshot),
        };
        self.snapshot_us = now_us + SNAPSHOT_EVERY_US;
        coordinator.event(Event::Snapshot(&snapshot));
    }

    fn window_end_us(&self) -> Option<u64> {
        match self.order.size {
            Size::Ms(ms) => Some(self.begin_us + (self.order.warm_up_ms + ms) * 1000),
            Size::Batches(_) => None,
        }
    }

    fn next_mark_us(&self) -> Option<u64> {
        match self.marks.len() {
            0 => Some(self.begin_us + self.order.warm_up_ms * 1000),
            1 => self.window_end_us(),
            _ => None,
        }
    }

    fn mark_up_to(&mut self, count: usize, coordinator: &mut dyn Coordinator) {
        while self.marks.len() < count {
            self.mark(Mark { at_us: Clients::clock_us(), counts: self.clients.counts(), cpu: own_cpu() }, coordinator);
        }
    }

    fn mark(&mut self, mark: Mark, coordinator: &mut dyn Coordinator) {
        coordinator.event(if self.marks.is_empty() { Event::WindowBegins } else { Event::WindowEnds });
        self.marks.push(mark);
    }

    fn conclude(self, all: &[Published]) -> Outcome {
        let (first, last) = (self.marks[0], self.marks[1]);
        // Without a fixed length, the window ends with the last message sent, or received.
        let ends_us = match self.order.size {
            Size::Ms(_) => [last.at_us, last.at_us],
            Size::Batches(_) => [self.sent_us, self.arrival.at_us],
        };
        let [sent_ms, received_ms] = ends_us.map(|end_us| whole_ms(end_us.saturating_sub(first.at_us)));
        let (from, to) = (first.counts, last.counts);
        let mut faults = self.clients.faults(all);
        if self.cut_short == Some(CutShort::Hopeless) {
            faults.lost = 0;
        }
        Outcome {
            expected: self.clients.expected(all),
            faults,
            outgoing: Flow {
                messages: to.sent - from.sent,
                batches: to.sent_batches - from.sent_batches,
                bytes: to.sent_bytes - from.sent_bytes,
                window_ms: sent_ms,
            },
            incoming: Flow {
                messages: to.received - from.received,
                batches: to.received_batches - from.received_batches,
                bytes: to.received_bytes - from.received_bytes,
                window_ms: received_ms,
            },
            sent: self.clients.counts().sent - self.base.sent,
            received: self.arrival.received - self.base.received,
            latencies: self.clients.latencies().clone(),
            elapsed_ms: whole_ms(self.arrival.at_us.saturating_sub(self.begin_us)),
            usage: Usage {
                window_s: last.at_us.saturating_sub(first.at_us) as f64 / 1e6,
                cpu_s: last.cpu.saturating_sub(first.cpu).as_secs_f64(),
            },
            breaks: self.clients.breaks(),
            refused: self.refused,
            denied: self.clients.counts().denied - self.base.denied,
            first_error: self.error.or_else(|| self.clients.first_loss().map(str::to_owned)),
            cut_short: self.cut_short,
        }
    }
}

/// One delivery in how many is timed, so that timing costs next to nothing at any rate.
fn sample(spec: &ClientsSpec, order: &Order) -> u32 {
    let members = f64::from(spec.clients) * f64::from(spec.membership.per_client);
    let fan_out = match order.traffic.recipients {
        Recipients::AnyRoom => members / f64::from(spec.membership.rooms.max(1)),
        Recipients::Service(_) => 1.0,
    };
    let per_s = order.traffic.messages_per_s(spec.clients).map_or(UNKNOWN_DELIVERIES_PER_S, |rate| rate * fan_out);
    let sample = (per_s / TIMED_PER_S).max(1.0) as u32;
    1 << sample.ilog2()
}

/// Rounded, but never zero: a window that is over in less than half a millisecond has a rate, too.
fn whole_ms(us: u64) -> u64 {
    if us == 0 { 0 } else { ((us + 500) / 1000).max(1) }
}

/// The most publications in one batch.
const BATCH_PUBLICATIONS_MAX: usize = 64;
/// The most publications before the sockets are served again.
const PUBLICATIONS_PER_TURN: usize = 4096;
/// Publications that no session takes before the trial is hopeless.
const REFUSED_MAX: u64 = 100_000;
const TURN_US_MAX: u64 = 10_000;
const SNAPSHOT_EVERY_US: u64 = 1_000_000;
const LINGER_US: u64 = 20_000;
const INTERRUPTED_TIMEOUT_US: u64 = 1_000_000;
/// Enough for a p99.9 each second.
const TIMED_PER_S: f64 = 200_000.0;
/// The rate of one core of a fast server, assumed if no rate is given.
const UNKNOWN_DELIVERIES_PER_S: f64 = 2e6;
