//! Keeps the memory of sessions within its limit: packs mostly dead chunks, and ends the sessions that hold most if
//! that is not enough. `flush` and `tick` lead here once a turn, and `fan_out` when it adds much at once.

use crate::connections::socket::Socket;
use crate::events::SessionKey;
use crate::outbox::Outbox;
use crate::relief::{Holder, Holders, SWEEP_RUNS_MAX};
use crate::sessions::replay::InRings;
use crate::shard::Parts;

impl Parts {
    /// Checks how much the sessions of this shard hold: once a turn, and during a turn that adds much.
    pub(super) fn check_memory(&mut self) {
        let max = self.settings.given().sessions_bytes_max;
        if self.fanout.relief.check(self.fanout.encoder.held_bytes(), self.fanout.encoder.bytes(), max) {
            self.begin_sweep();
        }
        self.go_on_with_sweep(self.fanout.relief.runs());
        self.publish_memory();
        let before = self.schedule.steps();
        self.relieve(max);
        let freed = self.fanout.relief.free((self.schedule.steps() - before) as usize);
        self.schedule.count_steps(freed);
        if freed > 0 {
            self.publish_memory();
        }
    }

    /// True if memory must be checked before the next tick: the account has changed, or a sweep is under way.
    pub(super) fn needs_memory_care(&self) -> bool {
        self.fanout.relief.needs_care(self.fanout.encoder.bytes())
    }

    /// True if the sessions of all shards hold more than `sessions_bytes_max`, or packing is behind with the bytes
    /// added here.
    pub(super) fn is_memory_short(&self) -> bool {
        self.fanout.relief.is_behind() || self.shared.memory.sessions_bytes() > self.settings.given().sessions_bytes_max
    }

    /// True if this shard packs because memory is short, ends sessions, or frees the queues of those that have ended.
    /// Each flush then continues that.
    pub(super) fn is_relieving(&self) -> bool {
        self.fanout.relief.is_acting()
    }

    /// Shrinks tables that were large once. Checks them at intervals.
    pub(super) fn give_room_back(&mut self) {
        if self.fanout.relief.gives_room_back(self.now.ms) {
            self.sessions.give_room_back();
            self.clients.give_room_back();
            self.channels.give_room_back();
            self.connections.sockets.give_room_back();
        }
    }

    fn begin_sweep(&mut self) {
        self.fanout.relief.begin(self.fanout.encoder.sweep());
    }

    /// Continues the sweep over up to `runs_max` runs: sessions first, then sockets. The first walk marks all of them,
    /// the second packs them.
    fn go_on_with_sweep(&mut self, runs_max: usize) {
        let Some(mut sweep) = self.fanout.relief.take_sweep() else { return };
        sweep.looked_at = 0;
        while sweep.looked_at < runs_max {
            let (at, sessions) = (sweep.next, self.sessions.slots());
            sweep.next += 1;
            sweep.looked_at += 1;
            if at < sessions {
                if let Some(session) = self.sessions.in_slot(at) {
                    session.sweep(&mut sweep, self.fanout.encoder.packed());
                }
            } else if at - sessions < self.connections.sockets.slots() {
                let socket = self.connections.sockets.in_slot(at - sessions);
                if let Some(own) = socket.and_then(|socket| socket.own.as_mut()) {
                    own.out.sweep(&mut sweep, self.fanout.encoder.packed());
                }
            } else if !sweep.packs {
                (sweep.packs, sweep.next) = (true, 0);
            } else {
                self.schedule.count_steps(sweep.looked_at);
                drop(sweep);
                self.metrics.sweeps.add(1);
                let max = self.settings.given().sessions_bytes_max;
                return self.fanout.relief.end_sweep(self.fanout.encoder.held_bytes(), max);
            }
        }
        self.schedule.count_steps(sweep.looked_at);
        self.fanout.relief.go_on_later(sweep);
    }

    /// Acts when all sessions together hold too much: packs a part of the memory of this shard, and ends sessions if
    /// everything is packed and that was not enough. A shard that holds less than its share leaves this to others.
    fn relieve(&mut self, max: usize) {
        let is_short = |shard: &Parts| {
            let all = shard.shared.memory.sessions_bytes();
            all > max && shard.fanout.encoder.held_bytes() * shard.shared.shards >= all
        };
        let before = self.schedule.steps();
        if !self.fanout.relief.is_ending_sessions() {
            let is_short_now = is_short(self);
            if self.fanout.relief.set_short(is_short_now) {
                self.begin_sweep();
            }
            if !is_short_now {
                return;
            }
            self.go_on_with_sweep(SWEEP_RUNS_MAX);
            if !self.fanout.relief.may_end_sessions(self.now.ms) {
                return;
            }
            self.publish_memory();
            if !is_short(self) {
                return;
            }
        }
        self.end_for_memory(max, before + SWEEP_RUNS_MAX as u64);
    }

    /// Ends sessions until an eighth of the limit is free: goes on with that up to this number of steps. An ended session
    /// may hold parts of chunks that others hold, too: these parts become free when the chunks are packed.
    fn end_for_memory(&mut self, max: usize, until: u64) {
        let mut holders = self.fanout.relief.take_search();
        if !self.find_holders(&mut holders, until) || !self.end_holders(&mut holders, max, until) {
            return self.fanout.relief.search_later(holders);
        }
        let (ended, freed) = holders.outcome();
        self.fanout.relief.end_search(self.now.ms, self.fanout.encoder.bytes(), max);
        self.metrics.ended_for_memory.add(ended);
        tracing::warn!(
            ended,
            freed,
            max,
            "sessions hold more than sessions_bytes_max: the largest sessions were ended"
        );
        self.begin_sweep();
        self.publish_memory();
    }

    /// Looks at sessions and sockets until this number of steps. Returns true if it has seen all of them.
    fn find_holders(&self, holders: &mut Holders, until: u64) -> bool {
        let sessions = self.sessions.slots();
        let slots = sessions + self.connections.sockets.slots();
        while self.schedule.steps() < until
            && let Some(at) = holders.next_slot(slots)
        {
            self.schedule.count_steps(1);
            let session = self.sessions.seen_in_slot(at).map(|session| Holder::Session(session.key(at as u32)));
            let socket = || at.checked_sub(sessions).and_then(|at| self.connections.sockets.key_in_slot(at));
            if let Some(holder) = session.or_else(|| socket().map(Holder::Socket)) {
                holders.add(holder, self.bytes_of(holder));
            }
        }
        holders.have_seen(slots)
    }

    /// Ends those that hold most, until the ended ones held enough together, or this number of steps. Returns true if
    /// it is over.
    fn end_holders(&mut self, holders: &mut Holders, max: usize, until: u64) -> bool {
        holders.set_excess(|| self.shared.memory.sessions_bytes().saturating_sub(max - max / 8));
        while let Some((bytes_found, holder)) = holders.largest() {
            if self.schedule.steps() >= until {
                holders.add(holder, bytes_found);
                return false;
            }
            if !holders.takes((bytes_found, holder), self.bytes_of(holder)) {
                continue;
            }
            match holder {
                Holder::Session(key) if self.resorts_to_history(key) => {}
                Holder::Session(key) => {
                    holders.has_ended();
                    self.end_slow(key, "");
                }
                Holder::Socket(key) => self.cut_off(key),
            }
        }
        true
    }

    /// The bytes that a session or socket holds. Shared bytes count for each holder with its part.
    fn bytes_of(&self, holder: Holder) -> usize {
        match holder {
            Holder::Session(key) => self.sessions.get(key).map_or(0, |session| {
                self.schedule.count_steps(1 + session.outbox.runs() + self.channels.count_of(key.index));
                session.share_bytes() + self.retained_bytes(key)
            }),
            Holder::Socket(key) => self.socket(key).map_or(0, |socket: &Socket| {
                let of_head = socket.head.as_ref().map_or(0, |head| head.counted.bytes());
                self.schedule.count_steps(1 + socket.out().map_or(0, Outbox::runs));
                socket.out().map_or(0, Outbox::share_bytes) + unless_ordinary(of_head)
            }),
        }
    }

    /// The bytes that a session holds beside its queues: its owner and its subscriptions.
    fn retained_bytes(&self, key: SessionKey) -> usize {
        unless_ordinary(self.clients.bytes_of(key) + self.channels.share_bytes(key.index))
    }

    /// True if a session that replays could leave most of its queue to the histories that contain it.
    fn resorts_to_history(&mut self, key: SessionKey) -> bool {
        let Some(session) = self.sessions.get(key) else { return true };
        let before = session.share_bytes();
        let replays = session.replay.as_ref().is_some_and(|replay| replay.in_rings == InRings::Maybe);
        let spilled = replays && self.spill(key, false);
        spilled && self.sessions.get(key).is_none_or(|session| session.share_bytes() < before / 4)
    }
}

/// The bytes that a session or socket holds beside its queues, unless these are few: the end of one with few frees nothing that
/// matters.
fn unless_ordinary(bytes: usize) -> usize {
    if bytes > ORDINARY_BYTES { bytes } else { 0 }
}

const ORDINARY_BYTES: usize = 4 * 1024;
