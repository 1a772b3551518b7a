//! The load generator: this process, or several workers.

use super::plan::Share;
use super::trial_run::{self, Coordinator, Event, Watch};
use super::workers::Workers;
use crate::engine::{Clients, Published};
use crate::order::{ClientsSpec, Order};
use crate::outcome::{CutShort, Outcome};
use crate::problem::Problem;
use crate::report::Flow;

/// Open clients, ready for orders.
#[derive(Debug)]
pub enum Generator {
    /// In this process.
    Local(Box<Local>),
    /// In separate processes.
    Workers(Workers),
}

/// Clients in this process.
#[derive(Debug)]
pub struct Local {
    /// Its sessions.
    pub clients: Clients,
    spec: ClientsSpec,
    published: Vec<Published>,
}

impl Generator {
    /// Opens all sessions, in this process or, if `workers` is above one, in that many worker processes, each pinned to
    /// its core of `cores`. Calls `progress` with the number of open sessions; if it returns false, the opening stops.
    ///
    /// # Errors
    /// As [`Clients::open`]; a worker cannot be started or dies.
    pub fn open(
        spec: &ClientsSpec,
        workers: u32,
        cores: &[usize],
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Generator, Problem> {
        if workers > 1 {
            return Workers::open(spec, workers, cores, progress).map(Generator::Workers);
        }
        let clients = Clients::open(spec, 0, 1, progress)?;
        let published = vec![clients.published().clone()];
        Ok(Generator::Local(Box::new(Local { clients, spec: spec.clone(), published })))
    }

    /// Executes an order.
    ///
    /// # Errors
    /// epoll fails, or a worker died.
    pub fn run_trial(&mut self, order: &Order, watch: &mut Watch<'_>) -> Result<Outcome, Problem> {
        match self {
            Generator::Local(local) => {
                let begin_us = Clients::clock_us() + LOCAL_LEAD_US;
                let who = (&local.spec, Share { worker: 0, workers: 1 });
                let mut coordinator = LocalCoordinator(watch);
                let (outcome, published) = trial_run::run_trial(
                    &mut local.clients,
                    who,
                    order,
                    (begin_us, &local.published),
                    &mut coordinator,
                )?;
                local.published = published;
                Ok(outcome)
            }
            Generator::Workers(workers) => workers.run_trial(order, watch),
        }
    }

    /// Disconnects all sessions and closes their sockets.
    pub fn disconnect(self) {
        match self {
            Generator::Local(mut local) => local.clients.disconnect(),
            Generator::Workers(workers) => workers.disconnect(),
        }
    }
}

impl std::ops::AddAssign for Outcome {
    /// Adds another worker's outcome of the same order.
    fn add_assign(&mut self, other: Self) {
        self.expected += other.expected;
        self.faults += other.faults;
        self.outgoing = both(self.outgoing, other.outgoing);
        self.incoming = both(self.incoming, other.incoming);
        self.sent += other.sent;
        self.received += other.received;
        self.latencies += &other.latencies;
        self.elapsed_ms = self.elapsed_ms.max(other.elapsed_ms);
        self.usage.window_s = self.usage.window_s.max(other.usage.window_s);
        self.usage.cpu_s += other.usage.cpu_s;
        self.breaks.cut += other.breaks.cut;
        self.breaks.resumed += other.breaks.resumed;
        self.breaks.renewed += other.breaks.renewed;
        self.breaks.gaps += other.breaks.gaps;
        self.breaks.again += other.breaks.again;
        self.refused += other.refused;
        self.denied += other.denied;
        self.first_error = self.first_error.take().or(other.first_error);
        self.cut_short = match (self.cut_short, other.cut_short) {
            (Some(CutShort::Hopeless), _) | (_, Some(CutShort::Hopeless)) => Some(CutShort::Hopeless),
            (mine, other) => mine.or(other),
        };
        if self.cut_short == Some(CutShort::Hopeless) {
            self.faults.lost = 0;
        }
    }
}

/// The sum of two workers' messages in the same window.
fn both(one: Flow, other: Flow) -> Flow {
    let mut sum = one;
    sum += other;
    Flow { window_ms: one.window_ms.max(other.window_ms), ..sum }
}

/// The coordinator of a single worker, which waits for no other.
struct LocalCoordinator<'a, 'b>(&'a mut Watch<'b>);

impl Coordinator for LocalCoordinator<'_, '_> {
    fn event(&mut self, event: Event<'_>) {
        (self.0)(Some(event));
    }

    fn should_continue(&mut self) -> bool {
        (self.0)(None)
    }

    fn totals(&mut self, own: &Published) -> Result<Option<Vec<Published>>, Problem> {
        Ok(Some(vec![own.clone()]))
    }
}

/// The time before the first planned time, so that it is not late from the start.
const LOCAL_LEAD_US: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Faults;

    #[test]
    fn outcomes_of_workers_add_up() {
        let flow = |messages| Flow { messages, batches: messages, bytes: messages * 10, window_ms: 1000 };
        let outcome = |messages, us| Outcome {
            expected: messages,
            incoming: flow(messages),
            latencies: [(us, messages)].into_iter().collect(),
            ..Outcome::default()
        };
        let mut sum = outcome(10, 7);
        sum += outcome(20, 3);
        assert_eq!((sum.expected, sum.incoming, sum.latencies.counts()), (30, flow(30), vec![(3, 20), (7, 10)]));
    }

    #[test]
    fn one_hopeless_worker_makes_the_trial_hopeless_and_nothing_counts_as_lost() {
        let lost = Faults { lost: 3, doubled: 1, ..Faults::default() };
        let mut sum = Outcome { cut_short: Some(CutShort::Asked), faults: lost, ..Outcome::default() };
        sum += Outcome { cut_short: Some(CutShort::Hopeless), ..Outcome::default() };
        assert_eq!((sum.cut_short, sum.faults.lost, sum.faults.doubled), (Some(CutShort::Hopeless), 0, 1));
    }
}
