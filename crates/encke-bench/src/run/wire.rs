//! The messages between the master and its workers: lines of JSON on the worker's stdin and stdout.
//!
//! ```text
//! Open ─→        ←─ Opening … Opened
//! RunTrial ─→    ←─ Snapshot …, Sent
//! Totals ─→      ←─ Snapshot …, Done
//! Stop ─→        (at any time: end the current trial)
//! Disconnect ─→  (the worker ends; so it does when its stdin closes)
//! ```

use std::io::{BufRead, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::trial_run::Snapshot;
use crate::engine::Published;
use crate::order::{ClientsSpec, Order};
use crate::outcome::Outcome;
use crate::problem::Problem;

/// A message to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Open your share of the clients.
    Open {
        /// All of it.
        spec: ClientsSpec,
        /// The worker's number.
        worker: u32,
        /// The number of workers.
        workers: u32,
        /// The core to stay on.
        core: Option<usize>,
    },
    /// Run your share of an order.
    RunTrial {
        /// All of it.
        order: Order,
        /// The start time, in microseconds of the machine's monotonic clock.
        begin_us: u64,
    },
    /// The publications of each worker by room, once all have reported them.
    Totals(Vec<Vec<u32>>),
    /// End the current trial.
    Stop,
    /// Disconnect all sessions, and end.
    Disconnect,
}

/// A message from a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// The number of open sessions.
    Opening(u64),
    /// All are.
    Opened,
    /// A second is over.
    Snapshot(Snapshot),
    /// It publishes no more, and has published this by room.
    Sent(Vec<u32>),
    /// All is over.
    Done(Box<Outcome>),
    /// It cannot continue, and ends.
    Failed(Failure),
}

/// A serialised problem of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Failure {
    /// [`Problem::Usage`].
    Usage(String),
    /// [`Problem::Unreachable`]: address and reason.
    Unreachable(String, String),
    /// [`Problem::NotBayeux`]: address and reason.
    NotBayeux(String, String),
    /// [`Problem::Server`].
    Server(String),
    /// [`Problem::Machine`].
    Machine(String),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Usage(text) => Failure::Usage(text),
            Problem::Unreachable { address, reason } => Failure::Unreachable(address, reason),
            Problem::NotBayeux { address, reason } => Failure::NotBayeux(address, reason),
            Problem::Server(text) => Failure::Server(text),
            Problem::Machine(text) => Failure::Machine(text),
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Usage(text) => Problem::Usage(text),
            Failure::Unreachable(address, reason) => Problem::Unreachable { address, reason },
            Failure::NotBayeux(address, reason) => Problem::NotBayeux { address, reason },
            Failure::Server(text) => Problem::Server(text),
            Failure::Machine(text) => Problem::Machine(text),
        }
    }
}

/// Writes one line.
///
/// # Errors
/// The other end is gone.
pub fn write(to: &mut impl Write, message: &impl Serialize) -> Result<(), Problem> {
    let mut line = serde_json::to_vec(message).map_err(|error| Problem::Machine(error.to_string()))?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()?;
    Ok(())
}

/// Reads one line; none at the end.
///
/// # Errors
/// The other end wrote something else.
pub fn read<M: DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<M>, Problem> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(|_| {
        let beginning: String = line.trim_end().chars().take(60).collect();
        Problem::Machine(format!("a worker and its master do not understand each other: {beginning}"))
    })
}

/// Converts the serialised form.
pub fn published(by_room: &[Vec<u32>]) -> Vec<Published> {
    by_room.iter().map(|next| Published { next: next.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_lines_and_come_back_as_they_were() {
        let messages = [
            FromWorker::Opening(7),
            FromWorker::Snapshot(Snapshot { latencies: [(1, 2)].into_iter().collect(), ..Snapshot::default() }),
            FromWorker::Failed(Problem::Server("is\ngone".into()).into()),
        ];
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| write(&mut bytes, message).expect("memory"));
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), messages.len());
        let mut rest = bytes.as_slice();
        for message in messages {
            assert_eq!(read(&mut rest).expect("a line"), Some(message));
        }
        assert_eq!(read::<FromWorker>(&mut rest).expect("the end"), None);
    }

    #[test]
    fn an_invalid_message_is_an_error_of_one_line() {
        let problem = read::<FromWorker>(&mut &b"Segmentation fault\n"[..]).expect_err("no JSON").to_string();
        assert!(problem.ends_with("Segmentation fault") && problem.lines().count() == 1, "{problem}");
    }

    #[test]
    fn a_problem_keeps_its_kind_on_the_way() {
        let problem = Problem::NotBayeux { address: "a:1".into(), reason: "no".into() };
        let text = problem.to_string();
        let back = Problem::from(Failure::from(problem));
        assert_eq!((back.to_string(), back.exit_code()), (text, 3));
    }
}
