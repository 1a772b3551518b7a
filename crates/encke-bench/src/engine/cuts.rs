//! Connections that break again and again, as those of phones and laptops do.
//!
//! A break has one of three forms for the server: a reset without warning; a reset during a write, so that it is
//! unknown what arrived; or a dead connection that accepts data for a while although the client is gone, and may have
//! reconnected elsewhere.

use crate::engine::breaker::{Breaker, Form, reset};
use crate::engine::clients::Clients;
use crate::engine::clock::now_us;
use crate::engine::error::ConnectionError;
use crate::engine::session::{Reconnection, SessionState};
use crate::engine::socket::Socket;
use crate::order::Cuts;
use crate::outcome::Breaks;

impl Clients {
    /// Breaks the connections of subscribers as `terms` say, from `from_us` until [`Clients::end_cuts`]. Resets the
    /// counters of breaks.
    pub fn begin_cuts(&mut self, terms: Cuts, from_us: u64) {
        self.reset_breaks();
        // The first session of a connection stands for those that share it.
        let connections = (0..self.subscriber_count).step_by(self.http2.sessions_per_link());
        self.breaker = Some(Box::new(Breaker::new(terms, from_us, self.worker, connections)));
    }

    /// Stops the breaks, also those that wait for bytes. Offline clients reconnect.
    pub fn end_cuts(&mut self) {
        if let Some(mut breaker) = self.breaker.take() {
            breaker.reset_dead(u64::MAX);
            for index in 0..self.sessions.len() {
                self.socket_mut(index).iter_mut().for_each(|socket| socket.break_after(None));
            }
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

    /// The number of subscribers that are open.
    pub fn clients_open(&self) -> u64 {
        let subscribers = &self.sessions[..self.subscriber_count];
        subscribers.iter().filter(|session| session.state == SessionState::Open).count() as u64
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
            let Some(index) = breaker.take_due(now) else { return };
            self.cut_one(index, now);
        }
    }

    fn cut_one(&mut self, index: usize, now_us: u64) {
        if self.socket_mut(index).as_ref().is_none_or(Socket::is_connecting) {
            return;
        }
        let Some(form) = self.breaker.as_mut().map(|breaker| breaker.form(now_us)) else { return };
        self.breaks.cut += 1;
        match form {
            Form::During(bytes) => {
                return self.socket_mut(index).iter_mut().for_each(|socket| socket.break_after(Some(bytes)));
            }
            Form::Dead(until_us) => {
                if let (Some(socket), Some(breaker)) = (self.socket_mut(index).take(), &mut self.breaker) {
                    // Data that still arrives there is ignored.
                    let _ = self.shared.poll.remove(socket.stream());
                    breaker.retain_dead(until_us, index, socket);
                }
            }
            Form::Reset => self.socket_mut(index).iter().for_each(reset),
        }
        self.lose(index, ConnectionError::Lost("was cut off".into()));
    }
}
