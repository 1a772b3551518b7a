//! Connections that break again and again, as those of phones and laptops do.
//!
//! What the server sees of it is one of three things: a reset out of the blue; a reset while it writes, after which nobody can say
//! what arrived; or a connection that goes on for a while and takes everything, though nobody is there any more, and whose client
//! may be back on another one meanwhile.

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

/// What breaks connections.
#[derive(Debug)]
pub(super) struct Breaker {
    terms: Cuts,
    rng: Rng,
    /// When each session's connection breaks next.
    next: BinaryHeap<Reverse<(u64, u32)>>,
    /// Connections that nobody reads any more, by the time at which the network says so to the server.
    dead: BTreeMap<(u64, u32), Socket>,
}

impl Breaker {
    /// How long the next client stays away, in microseconds.
    pub(super) fn offline_us(&mut self) -> u64 {
        around(self.terms.offline_us, &mut self.rng)
    }

    /// When something is to be done next.
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
    /// From `from_us` on the connections of subscribers break as told, until [`Clients::end_cuts`]. What breaks do is counted anew.
    pub fn begin_cuts(&mut self, terms: Cuts, from_us: u64) {
        let mut rng = Rng::new(terms.seed, self.worker);
        let first = |index| Reverse((from_us + rng.below(terms.every_us), index));
        let next = (0..self.subscriber_count as u32).map(first).collect();
        self.reset_breaks();
        self.breaker = Some(Box::new(Breaker { terms, rng, next, dead: BTreeMap::new() }));
    }

    /// Nothing breaks any more; clients that are away come back.
    pub fn end_cuts(&mut self) {
        if let Some(mut breaker) = self.breaker.take() {
            breaker.reset_dead(u64::MAX);
        }
    }

    /// Counts anew what breaks do to sessions.
    pub fn reset_breaks(&mut self) {
        self.breaks = Breaks::default();
        self.sessions.iter_mut().for_each(|session| session.reconnection = Reconnection::No);
    }

    /// How many sessions may be on their way back at a time.
    pub fn set_opening_at_once(&mut self, sessions: u32) {
        self.opening_at_once = sessions.max(1) as usize;
    }

    /// Subscribers that are open and have heard of the server since [`Clients::reset_breaks`]: those that go on, and those that
    /// had to begin anew.
    pub fn clients_back(&self) -> (u64, u64) {
        let open = self.sessions[..self.subscriber_count].iter().filter(|session| session.state == SessionState::Open);
        open.fold((0, 0), |(connect, handshake), session| match session.reconnection {
            Reconnection::No => (connect, handshake),
            Reconnection::Connect => (connect + 1, handshake),
            Reconnection::Handshake => (connect, handshake + 1),
        })
    }

    /// What breaks did to subscribers, since [`Clients::reset_breaks`] or [`Clients::begin_cuts`].
    pub fn breaks(&self) -> Breaks {
        self.breaks
    }

    /// Breaks what is due.
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
                    // Whatever still comes there is nobody's.
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
    // Without it, the socket is closed all the same.
    let _ = sockopt::set_socket_linger(socket.stream(), Some(Duration::ZERO));
}

/// A time between a half and one and a half of this.
fn around(mean_us: u64, rng: &mut Rng) -> u64 {
    mean_us / 2 + rng.below(mean_us + 1)
}

/// A connection that breaks while something comes breaks after fewer bytes than that: mostly within the first message.
const BYTES_BEFORE_BREAK: u64 = 120;
