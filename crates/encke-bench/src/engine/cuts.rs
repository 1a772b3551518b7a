//! Connections that break again and again, as those of phones and laptops do.
//!
//! A break has one of three forms for the server: a reset without warning; a reset during a write, so that it is
//! unknown what arrived; or a dead connection that accepts data for a while although the client is gone, and may have
//! reconnected elsewhere.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use rustix::net::sockopt;

use crate::engine::clients::Clients;
use crate::engine::clock::now_us;
use crate::engine::error::ConnectionError;
use crate::engine::session::{Reconnection, SessionState};
use crate::engine::socket::Socket;
use crate::order::Cuts;
use crate::outcome::Breaks;
use crate::random::Rng;

/// Schedules and makes the breaks.
#[derive(Debug)]
pub(super) struct Breaker {
    terms: Cuts,
    rng: Rng,
    /// The next break of each session.
    next: BinaryHeap<Reverse<(u64, u32)>>,
    /// Dead connections, by the time at which they are reset.
    dead: BTreeMap<(u64, u32), Socket>,
}

impl Breaker {
    /// A random time that the next client stays offline, in microseconds.
    pub(super) fn offline_us(&mut self) -> u64 {
        around(self.terms.offline_us, &mut self.rng)
    }

    /// The time of the next action.
    pub(super) fn next_us(&self) -> Option<u64> {
        let next = self.next.peek().map(|Reverse((at_us, _))| *at_us);
        next.into_iter().chain(self.dead.keys().next().map(|(at_us, _)| *at_us)).min()
    }

    fn reset_dead(&mut self, now_us: u64) {
        while let Some(first) = self.dead.first_entry().filter(|first| first.key().0 <= now_us) {
            reset(&first.remove());
        }
    }
}

impl Clients {
    /// Breaks the connections of subscribers as `terms` say, from `from_us` until [`Clients::end_cuts`]. Resets the
    /// counters of breaks.
    pub fn begin_cuts(&mut self, terms: Cuts, from_us: u64) {
        let mut rng = Rng::new(terms.seed, self.worker);
        let first = |index| Reverse((from_us + rng.below(terms.every_us), index));
        let next = (0..self.subscriber_count as u32).map(first).collect();
        self.reset_breaks();
        self.breaker = Some(Box::new(Breaker { terms, rng, next, dead: BTreeMap::new() }));
    }

    /// Stops the breaks. Offline clients reconnect.
    pub fn end_cuts(&mut self) {
        if let Some(mut breaker) = self.breaker.take() {
            breaker.reset_dead(u64::MAX);
        }
    }

    /// Resets the counters of breaks.
    pub fn reset_breaks(&mut self) {
        self.breaks = Breaks::default();
        self.sessions.iter_mut().for_each(|session| session.reconnection = Reconnection::No);
    }

    /// Limits the number of sessions that reconnect at the same time.
    pub fn set_opening_at_once(&mut self, sessions: u32) {
        self.opening_at_once = sessions.max(1) as usize;
    }

    /// The subscribers that are open and have received from the server since [`Clients::reset_breaks`]: those that
    /// resumed, and those that made a new handshake.
    pub fn clients_back(&self) -> (u64, u64) {
        let open = self.sessions[..self.subscriber_count].iter().filter(|session| session.state == SessionState::Open);
        open.fold((0, 0), |(connect, handshake), session| match session.reconnection {
            Reconnection::No => (connect, handshake),
            Reconnection::Connect => (connect + 1, handshake),
            Reconnection::Handshake => (connect, handshake + 1),
        })
    }

    /// The effects of breaks on subscribers, since [`Clients::reset_breaks`] or [`Clients::begin_cuts`].
    pub fn breaks(&self) -> Breaks {
        self.breaks
    }

    /// Makes the breaks that are due.
    pub(super) fn make_cuts(&mut self) {
        let now = now_us();
        while let Some(breaker) = &mut self.breaker {
            breaker.reset_dead(now);
            let Some(Reverse((_, index))) = breaker.next.peek().copied().filter(|Reverse((at_us, _))| *at_us <= now)
            else {
                return;
            };
            breaker.next.pop();
            let again_us = now + around(breaker.terms.every_us, &mut breaker.rng);
            breaker.next.push(Reverse((again_us, index)));
            self.cut_one(index as usize, now);
        }
    }

    fn cut_one(&mut self, index: usize, now_us: u64) {
        let Some(breaker) = &mut self.breaker else { return };
        let session = &mut self.sessions[index];
        if session.socket().is_none_or(Socket::is_connecting) {
            return;
        }
        self.breaks.cut += 1;
        match breaker.rng.below(3) {
            0 => {
                let bytes = 1 + breaker.rng.below(BYTES_BEFORE_BREAK) as u16;
                return session.break_after(bytes);
            }
            1 => {
                let until_us = now_us + breaker.offline_us();
                if let Some(socket) = session.abandon() {
                    // Data that still arrives there is ignored.
                    let _ = self.shared.poll.remove(socket.stream());
                    breaker.dead.insert((until_us, index as u32), socket);
                }
            }
            _ => session.socket().into_iter().for_each(reset),
        }
        self.error(index, ConnectionError::Lost("was cut off".into()));
    }
}

/// Lets the connection end with a reset as soon as it is dropped.
fn reset(socket: &Socket) {
    // If this fails, the socket is still closed.
    let _ = sockopt::set_socket_linger(socket.stream(), Some(Duration::ZERO));
}

/// A time between a half and one and a half of this.
fn around(mean_us: u64, rng: &mut Rng) -> u64 {
    mean_us / 2 + rng.below(mean_us + 1)
}

/// A connection that breaks while something comes breaks after fewer bytes than that: mostly within the first message.
const BYTES_BEFORE_BREAK: u64 = 120;
