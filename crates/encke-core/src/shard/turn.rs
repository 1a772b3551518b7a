//! A turn of the shard: [`Shard::flush`] writes when all ready tasks have run, and [`Shard::advance`] acts on the passage
//! of time.

use bayeux::session::Due;

use crate::application::EndReason;
use crate::delivery::{Holder, Session, Wire, Writes};
use crate::events::SessionKey;
use crate::now::Now;
use crate::shard::{Machines, Shard, Timer};

impl Shard {
    /// Writes all that waits. Stops early when `out_of_time` returns true, so that reading and quiet channels continue.
    /// Returns true if something is left to write. If not, messages of other shards may still wait for the next call:
    /// see [`Shard::is_settled`].
    pub fn flush(&mut self, now: Now, wire: &mut dyn Wire, out_of_time: &mut dyn FnMut() -> bool) -> bool {
        let machines = self.settle_burst_at(now);
        let is_complete = machines.write(wire, out_of_time);
        if is_complete && !machines.admission.let_edges_go_first() {
            self.take_arrivals(false);
        }
        !is_complete
    }

    /// Does everything that is due. The server calls it at short, regular intervals.
    pub fn advance(&mut self, now: Now) {
        self.settle_burst_at(now).tick();
        self.time_out_waits();
    }
}

impl Machines {
    /// Writes outboxes, then goes on with passes, replays, searches and memory. Returns true if everything is written
    /// and passed over.
    fn write(&mut self, wire: &mut dyn Wire, out_of_time: &mut dyn FnMut() -> bool) -> bool {
        let mut writes = Writes::default();
        while let Some(session) = self.delivery.write(wire, out_of_time, &mut writes) {
            self.answer_held(session, None);
        }
        while self.delivery.may_pass_over()
            && let Some(passed) = self.delivery.pass_over(&|key, name| self.channels.receives(key.index, name))
        {
            self.end_given_up(passed);
            if out_of_time() {
                break;
            }
        }
        let is_complete = self.delivery.is_complete();
        if is_complete {
            self.renew_budget();
        }
        while let Some(key) = self.delivery.next_replay() {
            let has_begun = self.begin_page(key);
            let (caught_up, is_due) = self.delivery.replay_more(key, wire);
            if has_begun {
                // No write lists it again if the page has no messages.
                self.delivery.replay_later(key);
            }
            self.note_caught_up(caught_up);
            if is_due {
                self.answer_held(key, None);
            }
            if out_of_time() {
                break;
            }
        }
        for (key, id, outcome) in self.delivery.go_on_with_resumptions() {
            self.resumption_ended(key, id, outcome);
        }
        self.delivery.go_on_with_withdrawals();
        if self.needs_memory_care() {
            self.check_memory();
            self.env.gauges_are_old = true;
        }
        self.update_old_gauges();
        is_complete
    }

    /// Renews the budget of fan-outs, as all that sockets take is written.
    fn renew_budget(&mut self) {
        let is_behind = self.delivery.has_readers_behind();
        self.admission.renew(self.env.now, is_behind, self.env.settings.capacity());
        match self.admission.is_held_back() {
            true => self.env.metrics.reader_waits.add(1),
            false if is_behind => self.delivery.forget_who_caught_up(),
            false => {}
        }
    }

    fn tick(&mut self) {
        // The clients of waiting requests are not silent.
        self.admission.clients().iter().for_each(|client| self.delivery.aside().alive(client));
        for holder in self.delivery.due() {
            match holder {
                Holder::Session(key) => self.session_due(key),
                Holder::Socket(key) => self.delivery.socket_due(key),
            }
        }
        let mut due = Vec::new();
        self.env.timers.advance(self.env.now.ms, &mut due);
        for timer in due {
            match timer {
                Timer::Credentials(key) => self.credentials_due(key),
                Timer::Wait(key) => self.env.overdue.push(key),
            }
        }
        if self.admission.is_held_back() && self.delivery.is_complete() {
            self.renew_budget();
        }
        self.send_due();
        self.delivery.look_for_room();
        self.delivery.go_on_with_withdrawals();
        self.sweep_history();
        self.check_memory();
        self.report_changes();
        self.visit_confirmed();
        self.resume_late();
        self.delivery.forget_shared_frames();
        if self.relief.gives_room_back(self.env.now.ms) {
            self.delivery.give_room_back();
            self.clients.give_room_back();
            self.channels.give_room_back();
        }
        self.update_gauges();
    }

    fn session_due(&mut self, key: SessionKey) {
        match self.delivery.session_due(key) {
            None => return,
            Some(Due::Connect) => self.answer_held(key, None),
            // The client waits for the application.
            Some(Due::Expiry) if self.requests.waits.has_batch_of(key) => self.delivery.aside().received(key),
            Some(Due::Expiry) if self.delivery.session(key).is_some_and(|session| session.is_taking()) => {}
            // The client lives as long as its stream does.
            Some(Due::Expiry) if self.delivery.stream_of(key).is_some() && !self.is_ending(key) => {
                self.delivery.aside().received(key);
            }
            Some(Due::Expiry) => return self.expire(key),
        }
        self.delivery.arm(key);
    }

    /// True if the server has ended a session.
    pub(super) fn is_ending(&self, key: SessionKey) -> bool {
        self.delivery.session(key).is_some_and(Session::is_ending)
    }

    /// Ends a silent session. If the server had ended it already, its client was only to learn so with its next
    /// connect.
    fn expire(&mut self, key: SessionKey) {
        let unread = self.delivery.was_read(key);
        let Some(session) = self.delivery.session(key) else { return };
        let why = if session.is_ending() { EndReason::Kicked } else { EndReason::Expired };
        let socket = session.socket();
        if unread > 0 {
            self.env.metrics.unread.add(unread as usize);
            tracing::info!(session = ?session.id(), messages = unread, "session expired: its last messages may be lost");
        }
        self.end_session(key, why);
        if let Some(socket) = socket {
            self.delivery.close_socket(socket, 1000, "session expired");
        }
    }
}
