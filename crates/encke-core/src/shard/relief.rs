//! Keeps the memory of sessions within its limit: packs mostly dead chunks, and ends the sessions that hold most if
//! that is not enough. It does so once a turn, and when a fan-out adds much at once.

use crate::delivery::Holder;
use crate::events::SessionKey;
use crate::relief::{Holders, Relief, SWEEP_RUNS_MAX};
use crate::shard::Machines;

impl Machines {
    /// True if the sessions of all shards hold more than `sessions_bytes_max`, or packing is behind with the bytes
    /// added here.
    pub(super) fn is_memory_short(&self) -> bool {
        let max = self.env.settings.given().sessions_bytes_max;
        self.relief.is_behind() || self.env.shared.memory.sessions_bytes() > max
    }

    /// Checks how much the sessions of this shard hold: once a turn, and during a turn that adds much.
    pub(super) fn check_memory(&mut self) {
        let max = self.env.settings.given().sessions_bytes_max;
        if self.relief.check(self.delivery.held_bytes(), self.delivery.bytes(), max) {
            self.relief.begin(self.delivery.sweep());
        }
        self.go_on_with_sweep(self.relief.runs(), max);
        self.publish_memory();
        let before = self.steps();
        self.relieve(max);
        if self.delivery.free(Relief::runs_to_free((self.steps() - before) as usize)) {
            self.publish_memory();
        }
    }

    /// True if memory must be checked before the next tick: the account has changed, or a sweep is under way.
    pub(super) fn needs_memory_care(&self) -> bool {
        self.relief.needs_care(self.delivery.bytes()) || self.delivery.has_waste()
    }

    /// Publishes the memory of this shard to the others.
    fn publish_memory(&self) {
        self.env.shared.memory.publish(self.env.index, self.delivery.held_bytes());
    }

    /// Continues the sweep over up to `runs_max` runs.
    fn go_on_with_sweep(&mut self, runs_max: usize, max: usize) {
        let Some(mut sweep) = self.relief.take_sweep() else { return };
        if !self.delivery.go_on_with_sweep(&mut sweep, runs_max) {
            return self.relief.go_on_later(sweep);
        }
        drop(sweep);
        self.env.metrics.sweeps.add(1);
        self.relief.end_sweep(self.delivery.held_bytes(), max);
    }

    /// True if all sessions together hold too much, and this shard does not hold less than its share.
    fn is_short(&self, max: usize) -> bool {
        let all = self.env.shared.memory.sessions_bytes();
        all > max && self.delivery.held_bytes() * self.env.shared.shards >= all
    }

    /// Acts when all sessions together hold too much: packs a part of the memory of this shard, and ends sessions if
    /// everything is packed and that was not enough. A shard that holds less than its share leaves this to others.
    fn relieve(&mut self, max: usize) {
        let before = self.steps();
        if !self.relief.is_ending_sessions() {
            let is_short = self.is_short(max);
            if self.relief.set_short(is_short) {
                self.relief.begin(self.delivery.sweep());
            }
            if !is_short {
                return;
            }
            self.go_on_with_sweep(SWEEP_RUNS_MAX, max);
            if self.delivery.has_waste() || !self.relief.may_end_sessions(self.env.now.ms) {
                return;
            }
            self.publish_memory();
            if !self.is_short(max) {
                return;
            }
        }
        self.end_for_memory(max, before + SWEEP_RUNS_MAX as u64);
    }

    /// Ends sessions until an eighth of the limit is free: goes on with that up to this number of steps. An ended session
    /// may hold parts of chunks that others hold, too: these parts become free when the chunks are packed.
    fn end_for_memory(&mut self, max: usize, until: u64) {
        let mut holders = self.relief.take_search();
        if !self.find_holders(&mut holders, until) || !self.end_holders(&mut holders, max, until) {
            return self.relief.search_later(holders);
        }
        let (ended, freed) = holders.outcome();
        self.relief.end_search(self.env.now.ms, self.delivery.bytes(), max);
        self.env.metrics.ended_for_memory.add(ended);
        tracing::warn!(
            ended,
            freed,
            max,
            "sessions hold more than sessions_bytes_max: the largest sessions were ended"
        );
        self.relief.begin(self.delivery.sweep());
        self.publish_memory();
    }

    /// Looks at sessions and sockets until this number of steps. Returns true if it has seen all of them.
    fn find_holders(&self, holders: &mut Holders, until: u64) -> bool {
        let slots = self.delivery.slots();
        while self.steps() < until
            && let Some(at) = holders.next_slot(slots)
        {
            if let Some(holder) = self.delivery.holder_in_slot(at) {
                holders.add(holder, self.bytes_of(holder));
            }
        }
        holders.have_seen(slots)
    }

    /// Ends those that hold most, until the ended ones held enough together, or this number of steps. Returns true if
    /// it is over.
    fn end_holders(&mut self, holders: &mut Holders, max: usize, until: u64) -> bool {
        holders.set_excess(|| self.env.shared.memory.sessions_bytes().saturating_sub(max - max / 8));
        while let Some((bytes_found, holder)) = holders.largest() {
            if self.steps() >= until {
                holders.add(holder, bytes_found);
                return false;
            }
            if !holders.takes((bytes_found, holder), self.bytes_of(holder)) {
                continue;
            }
            match holder {
                Holder::Session(key) if self.resorts_to_histories(key) => {}
                Holder::Session(key) => {
                    holders.has_ended();
                    let given_up = self.delivery.give_up(key, "");
                    self.end_given_up(given_up);
                }
                Holder::Socket(key) => self.cut_off(key),
            }
        }
        true
    }

    /// True if a session that replays could leave most of its queue to the histories that contain it.
    fn resorts_to_histories(&mut self, key: SessionKey) -> bool {
        let Machines { delivery, channels, .. } = self;
        delivery.resorts_to_histories(key, &|key, name| channels.receives(key.index, name))
    }

    /// The bytes that a session or socket holds: its queues, and what it holds beside them unless that is little. The end of
    /// one with little frees nothing that matters.
    fn bytes_of(&self, holder: Holder) -> usize {
        let (queues, mut others) = self.delivery.bytes_of(holder);
        if let Holder::Session(key) = holder {
            self.env.count_steps(self.channels.count_of(key.index));
            others += self.clients.bytes_of(key) + self.channels.share_bytes(key.index);
        }
        queues + if others > ORDINARY_BYTES { others } else { 0 }
    }
}

const ORDINARY_BYTES: usize = 4 * 1024;
