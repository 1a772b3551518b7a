//! The schedule of breaks, the form of each, and the dead connections that breaks leave behind.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use rustix::net::sockopt;

use crate::engine::socket::Socket;
use crate::order::Cuts;
use crate::random::Rng;

/// Schedules the breaks.
#[derive(Debug)]
pub(super) struct Breaker {
    terms: Cuts,
    rng: Rng,
    /// The next break of each session.
    next: BinaryHeap<Reverse<(u64, u32)>>,
    /// Dead connections, by the time at which they are reset.
    dead: BTreeMap<(u64, u32), Socket>,
}

/// The form of a break for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A reset during a write, after this many more bytes.
    During(u16),
    /// The connection accepts data until this time, in microseconds.
    Dead(u64),
    /// A reset without warning.
    Reset,
}

impl Breaker {
    /// Breaks of these sessions' connections that begin at `from_us`.
    pub(super) fn new(terms: Cuts, from_us: u64, worker: u32, sessions: impl Iterator<Item = usize>) -> Breaker {
        let mut rng = Rng::new(terms.seed, worker);
        let first = |index| Reverse((from_us + rng.below(terms.every_us), index as u32));
        let next = sessions.map(first).collect();
        Breaker { terms, rng, next, dead: BTreeMap::new() }
    }

    /// A random time that the next client stays offline, in microseconds.
    pub(super) fn offline_us(&mut self) -> u64 {
        around(self.terms.offline_us, &mut self.rng)
    }

    /// The time of the next action.
    pub(super) fn next_us(&self) -> Option<u64> {
        let next = self.next.peek().map(|Reverse((at_us, _))| *at_us);
        next.into_iter().chain(self.dead.keys().next().map(|(at_us, _)| *at_us)).min()
    }

    /// A session whose break is due. Its next one is scheduled.
    pub(super) fn take_due(&mut self, now_us: u64) -> Option<usize> {
        let Reverse((_, index)) = self.next.peek().copied().filter(|Reverse((at_us, _))| *at_us <= now_us)?;
        self.next.pop();
        let again_us = now_us + around(self.terms.every_us, &mut self.rng);
        self.next.push(Reverse((again_us, index)));
        Some(index as usize)
    }

    /// The form of the next break.
    pub(super) fn form(&mut self, now_us: u64) -> Form {
        match self.rng.below(3) {
            0 => Form::During(1 + self.rng.below(BYTES_BEFORE_BREAK) as u16),
            1 => Form::Dead(now_us + self.offline_us()),
            _ => Form::Reset,
        }
    }

    /// Retains the dead connection of a session until it is reset.
    pub(super) fn retain_dead(&mut self, until_us: u64, index: usize, socket: Socket) {
        self.dead.insert((until_us, index as u32), socket);
    }

    /// Resets the dead connections that are due.
    pub(super) fn reset_dead(&mut self, now_us: u64) {
        while let Some(first) = self.dead.first_entry().filter(|first| first.key().0 <= now_us) {
            reset(&first.remove());
        }
    }
}

/// Lets the connection end with a reset as soon as it is dropped.
pub(super) fn reset(socket: &Socket) {
    // If this fails, the socket is still closed.
    let _ = sockopt::set_socket_linger(socket.stream(), Some(Duration::ZERO));
}

/// A time between a half and one and a half of this.
fn around(mean_us: u64, rng: &mut Rng) -> u64 {
    mean_us / 2 + rng.below(mean_us + 1)
}

/// A connection that breaks while something comes breaks after fewer bytes than that: mostly within the first message.
const BYTES_BEFORE_BREAK: u64 = 120;
