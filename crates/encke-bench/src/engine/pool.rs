//! The connections that long-polling sessions share for what does not wait: publications, mostly, while each session's
//! own connection holds its connect.

use std::collections::VecDeque;

use crate::engine::http::Response;
use crate::engine::http_link::{Errand, HttpLink, Progress, Request};
use crate::engine::poll::Ready;
use crate::engine::shared::Shared;
use crate::engine::trouble::Trouble;

/// The connections and what waits for one of them to be free.
#[derive(Debug, Default)]
pub(super) struct Pool {
    links: Vec<HttpLink>,
    idle: Vec<usize>,
    waiting: VecDeque<Request>,
    waiting_bytes: usize,
    /// Where tokens begin: that of link `n` is `first_token + n`.
    first_token: u64,
}

/// What came of a step.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// A response; its body is in [`Shared::body`].
    pub(super) answered: Option<(Errand, Response)>,
    /// Of what it is not known whether it arrived.
    pub(super) lost: Vec<Errand>,
    /// Why.
    pub(super) trouble: Option<Trouble>,
}

impl Pool {
    /// A pool without connections.
    pub(super) fn new(first_token: u64) -> Pool {
        Pool { first_token, ..Pool::default() }
    }

    /// Whether [`Pool::send`] takes anything.
    pub(super) fn has_room(&self) -> bool {
        self.waiting_bytes <= POOL_WAITING_BYTES_MAX
    }

    /// Sends a request over a connection that is idle, or a further one, or when one becomes idle.
    pub(super) fn send(&mut self, request: Request, shared: &Shared) -> Outcome {
        self.waiting_bytes += request.bytes.len();
        self.waiting.push_back(request);
        if self.idle.is_empty() && self.links.len() < POOL_CONNECTIONS_MAX {
            self.idle.push(self.links.len());
            self.links.push(HttpLink::default());
        }
        let mut outcome = Outcome::default();
        if let Some(index) = self.idle.pop() {
            self.feed(index, shared, &mut outcome);
        }
        outcome
    }

    /// Serves the connection with this number.
    pub(super) fn step(&mut self, index: usize, ready: &Ready, shared: &mut Shared) -> Outcome {
        let mut outcome = Outcome::default();
        let Some(link) = self.links.get_mut(index) else { return outcome };
        let progress = link.step(ready, shared);
        let served = match progress {
            Ok(Progress::None | Progress::Connected) => link.pump(ready.token, shared),
            Ok(Progress::Closed) => Ok(()),
            Ok(Progress::Answered(errand, response)) => {
                outcome.answered = Some((errand, response));
                self.feed(index, shared, &mut outcome);
                Ok(())
            }
            Err(trouble) => Err(trouble),
        };
        if let Err(trouble) = served {
            self.close_link(index, trouble, &mut outcome);
            self.feed(index, shared, &mut outcome);
        }
        outcome
    }

    /// Closes all connections and forgets what waits.
    pub(super) fn close(&mut self) -> Vec<Errand> {
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|request| request.errand);
        let mut errands: Vec<_> = waiting.collect();
        self.links.iter_mut().for_each(|link| errands.extend(link.close()));
        self.idle = (0..self.links.len()).collect();
        self.waiting_bytes = 0;
        errands
    }

    /// How many connections it may open.
    pub(super) const fn connections_max() -> usize {
        POOL_CONNECTIONS_MAX
    }

    /// Gives a free link the next request; one that cannot be sent is lost, and the next is tried.
    fn feed(&mut self, index: usize, shared: &Shared, outcome: &mut Outcome) {
        while let Some(request) = self.waiting.pop_front() {
            self.waiting_bytes -= request.bytes.len();
            match self.links[index].send(request, self.first_token + index as u64, shared) {
                Ok(()) => return,
                Err(trouble) => self.close_link(index, trouble, outcome),
            }
        }
        self.idle.push(index);
    }

    fn close_link(&mut self, index: usize, trouble: Trouble, outcome: &mut Outcome) {
        outcome.lost.extend(self.links[index].close());
        outcome.trouble.get_or_insert(trouble);
    }
}

/// Enough to keep a server busy, few enough not to be a load of their own.
const POOL_CONNECTIONS_MAX: usize = 64;
/// What may wait for a connection, in bytes.
const POOL_WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
