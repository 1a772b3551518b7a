//! The end of the server's process and the start of the next: a clean one that saves all sessions, or a kill or a
//! loss of power after which only the log of the histories remains, as far as it had reached the disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bayeux::json::member;
use encke_core::{Saved, Shard, ShardMessage, Shared};

use crate::channels::HISTORY_CHANNELS;
use crate::checker::Invariant;
use crate::cost::Cost;
use crate::exchange::State;
use crate::network::Item;
use crate::rng::Rng;
use crate::sabotage::Sabotage;
use crate::script::{Stop, TREE_RULE};
use crate::texts::number_of;
use crate::transit::InTransit;
use crate::world::World;

/// A message that was in a history.
struct Persisted {
    channel: &'static str,
    id: u64,
    number: usize,
    /// The time at which it expires by the wall clock, in milliseconds.
    until_ms: u64,
}

impl World {
    /// Ends the server and starts it again. Its clients find their connections closed.
    pub(super) fn restart(&mut self, stop: Stop) {
        let skips_rewrites = self.sabotage == Sabotage::SkippedRewrite && stop == Stop::Killed;
        // Not before another sabotage: failures of the disk could hide it.
        let is_plain = self.sabotage == Sabotage::None && stop == Stop::Killed;
        if skips_rewrites || (is_plain && self.rng.chance(500)) {
            self.fail_syncs();
        }
        self.note(|_| format!("the server ends: {stop:?}"));
        self.checker.tally.restarts += 1;
        let saved = match stop {
            Stop::Clean => self.stop_cleanly(),
            Stop::Killed | Stop::PowerLoss => {
                self.checker.tally.kills += 1;
                Saved::default()
            }
        };
        if self.is_broken() {
            return;
        }
        let stored = self.stored();
        self.harvest();
        self.cut_connections(stop);
        if self.sabotage == Sabotage::FalseEnd && stop != Stop::Clean {
            self.log.iter_mut().flat_map(|log| &mut log.inboxes).for_each(VecDeque::clear);
            self.close_log();
        }
        let Some(log) = self.log.take() else { return };
        let disk = log.disk.clone();
        drop(log);
        match stop {
            Stop::PowerLoss => disk.crash(),
            Stop::Clean | Stop::Killed => disk.kill(),
        }
        if self.rng.chance(200) {
            self.checker.tally.full_starts += 1;
            disk.faults(|faults| faults.space_bytes = Some(0));
        }
        self.checker.tally.lost_writes += u64::from(disk.has_lost_writes());
        disk.faults(|faults| faults.skips_rewrites = skips_rewrites);
        // If the clock were set back meanwhile, offsets might begin below those of a history that never reached the
        // disk.
        self.wall_max_ms = self.wall_max_ms.max(self.now.wall_ms);
        self.now.wall_ms = self.wall_max_ms + 1;
        self.begin(disk, &saved, stop == Stop::Clean);
        if stop != Stop::Clean {
            for session in 0..self.checker.sessions.len() {
                self.checker.ended(session);
            }
        }
        let now_ms = self.now.ms;
        for session in &mut self.checker.sessions {
            (session.held_since_ms, session.last_received_ms) = (None, now_ms);
        }
        self.histories_are_back(&stored, stop);
    }

    /// The shards of a new process, with the saved state of the last one.
    fn begin(&mut self, disk: simulated_disk::SimDisk, saved: &Saved, is_clean: bool) {
        let mut shared = Shared::new(self.scenario.shards, Box::new(self.recorder.clone()));
        self.open_log(disk, &mut shared);
        // Revoked tokens are saved, and the next process knows them before any session.
        let wall_ms = self.now.wall_ms;
        for (token_id, until_ms) in self.shared.revoked.all(wall_ms) {
            shared.revoked.add(&token_id, until_ms, wall_ms, usize::MAX);
        }
        self.shared = Arc::new(shared);
        // Where the new rules have no presence, nobody is a member any more.
        self.presence.restart(is_clean && self.scenario.settings[0].channels[TREE_RULE].presence);
        self.drop_held();
        self.begin_local();
        self.shards = self.new_shards();
        self.shards.iter_mut().for_each(|shard| shard.restore(self.now, saved));
        let restored: usize = self.shards.iter().map(Shard::sessions).sum();
        self.checker.tally.restored += restored as u64;
        if restored != saved.sessions.len() {
            let detail = format!("{restored} of {} sessions came back", saved.sessions.len());
            self.checker.fail(Invariant::LivesOn, detail);
        }
        self.waits.clear();
        self.forget_changes();
        self.drained = false;
        self.frozen = false;
    }

    /// Shards without sessions.
    pub(super) fn new_shards(&mut self) -> Vec<Shard> {
        let settings = Arc::new(self.scenario.settings[0].clone());
        self.costs = vec![Cost::default(); self.scenario.shards];
        (0..self.scenario.shards)
            .map(|index| {
                let mut bits = Rng::new(self.rng.bits());
                let entropy = Box::new(move |bytes: &mut [u8]| bits.fill(bytes));
                Shard::new(index, self.shared.clone(), settings.clone(), entropy, self.now)
            })
            .collect()
    }

    /// The steps of the real server between SIGTERM and its end.
    fn stop_cleanly(&mut self) -> Saved {
        self.drain();
        for _ in 0..self.rng.below(DRAIN_STEPS_MAX) {
            self.step();
        }
        while self.report() {}
        // From here on nothing is read or written: only messages on their way arrive.
        self.frozen = true;
        for items in self.in_transit.iter_mut().flatten() {
            items.retain(|item| matches!(item, InTransit::ShardMessage(_)));
        }
        // The last events cause messages, too, and nothing waits for writing any more.
        for shard in 0..self.shards.len() {
            self.settle_all(shard);
        }
        self.settle_messages();
        // A session without room for an announcement ends, and its user leaves, too.
        while self.finish_presence() {
            self.settle_messages();
        }
        let mut saved = Saved::default();
        for shard in 0..self.shards.len() {
            saved.append(self.shards[shard].save(self.now));
        }
        self.close_log();
        if self.sabotage == Sabotage::LostSession {
            saved.sessions.pop();
        }
        if self.sabotage == Sabotage::LostOutbox {
            saved.sessions.iter_mut().for_each(|session| session.waiting.clear());
        }
        saved
    }

    /// Lets the messages inside a frozen server arrive.
    fn settle_messages(&mut self) {
        for _ in 0..SETTLE_ROUNDS_MAX {
            let mut moved = false;
            for to in 0..=self.shards.len() {
                for from in 0..=self.shards.len() {
                    while self.deliver_shard_messages(to, from) {
                        moved = true;
                    }
                }
                if to < self.shards.len() {
                    self.settle(to);
                }
            }
            moved |= self.run_store(usize::MAX);
            if !moved {
                break;
            }
        }
    }

    /// Every connection ends, and messages inside the server are lost.
    fn cut_connections(&mut self, stop: Stop) {
        for conn in 0..self.network.conns.len() {
            let client = self.network.conns[conn].client;
            let was_up = self.network.conns[conn].is_up();
            if stop != Stop::Clean && was_up && self.network.rng.chance(500) {
                for text in self.network.break_off(conn) {
                    self.checker.lost(client, &text);
                }
            }
            self.network.end(conn);
        }
        for number in 0..self.network.exchanges.len() {
            let exchange = &mut self.network.exchanges[number];
            if matches!(exchange.state, State::Sent(_) | State::Open | State::Abandoned) {
                exchange.state = State::Lost;
                if exchange.client_waits {
                    let client = exchange.client;
                    self.network.inboxes[client].push_back(Item::Failed(number));
                }
            }
        }
        self.in_transit.iter_mut().flatten().for_each(|items| items.clear());
        self.waiting.clear();
        self.reports.clear();
        self.network.forget_sockets();
    }

    /// The messages in histories whose publishers know that they are persisted.
    fn stored(&self) -> Vec<Persisted> {
        let mut stored = Vec::new();
        for channel in HISTORY_CHANNELS {
            let Some(ring) = self.shared.histories.find(channel, 0) else { continue };
            let age_max_ms = self.scenario.history_age_max_ms();
            self.shared.histories.with(ring.ring, |ring| {
                for entry in ring.from(0) {
                    let number = member(&entry.text, "data").and_then(number_of);
                    let confirmed = number.filter(|number| self.checker.confirmed.contains(number));
                    stored.extend(confirmed.map(|number| Persisted {
                        channel,
                        id: entry.offset,
                        number,
                        until_ms: entry.wall_ms.saturating_add(age_max_ms),
                    }));
                }
            });
        }
        stored
    }

    /// Checks that confirmed messages are at their offsets, and that no offset has another message than before.
    fn histories_are_back(&mut self, stored: &[Persisted], stop: Stop) {
        let mut there: BTreeMap<&str, (u64, BTreeSet<u64>)> = BTreeMap::new();
        for channel in HISTORY_CHANNELS {
            let Some(ring) = self.shared.histories.find(channel, 0) else { continue };
            self.shared.histories.with(ring.ring, |ring| {
                let ids = ring.from(0).map(|entry| entry.offset).collect();
                there.insert(channel, (ring.oldest(), ids));
            });
        }
        self.checker.tally.positions_lost += self.records.restart_histories(&there);
        self.record_histories();
        // With little room, older messages of the log may have come back in place of newer ones.
        let sure = self.outlives(stop == Stop::PowerLoss) && !self.scenario.history_is_tight();
        let wall_ms = self.now.wall_ms;
        let is_fine = |stored: &Persisted| {
            let is_there = there.get(stored.channel).is_some_and(|(_, ids)| ids.contains(&stored.id));
            is_there || stored.until_ms <= wall_ms
        };
        for Persisted { channel, id, number, .. } in stored {
            // Of a message sent and stored twice, one copy may have been confirmed and the other not.
            if sure && !stored.iter().any(|other| other.number == *number && is_fine(other)) {
                let detail = format!("message {number} at {id} of {channel} was confirmed and is gone after {stop:?}");
                return self.checker.fail(Invariant::ConfirmedPersisted, detail);
            }
        }
    }

    /// Adds the counters of the shards.
    pub(super) fn harvest(&mut self) {
        let tally = &mut self.checker.tally;
        tally.compressed_reads = self.network.compressed_reads;
        for metrics in self.shards.iter().map(Shard::metrics) {
            tally.dropped += metrics.slow_dropped.get();
            tally.slow += metrics.slow_disconnected.get();
            tally.ended_for_memory += metrics.ended_for_memory.get();
            tally.sweeps += metrics.sweeps.get();
            tally.compressed += metrics.messages_compressed.get();
            tally.expired += metrics.expired.get();
            tally.kicked += metrics.kicked.get();
            tally.replayed += metrics.replayed.get();
            tally.gone += metrics.positions_gone.get();
        }
    }

    /// Tells the server to drain.
    pub(super) fn drain(&mut self) {
        (self.drained, self.has_drained) = (true, true);
        self.note(|_| "the server drains".into());
        let outside = self.shards.len();
        for to in 0..self.shards.len() {
            self.send_to_shard(to, outside, ShardMessage::Drain);
        }
    }

    /// The disk accepts pending writes and fails to sync them: the system shows data that the disk does not have.
    pub(super) fn fail_syncs(&mut self) {
        self.mend_disk();
        HISTORY_CHANNELS.iter().for_each(|channel| self.chatter(channel));
        let Some(log) = &self.log else { return };
        log.disk.faults(|faults| faults.failing_syncs = u32::MAX);
        self.run_store(usize::MAX);
        self.pass(self.scenario.settings[0].history_commit_interval_ms);
        self.run_store(usize::MAX);
    }
}

/// Steps between the beginning of a drain and the end.
const DRAIN_STEPS_MAX: usize = 60;
/// Rounds in which messages cause messages.
const SETTLE_ROUNDS_MAX: usize = 32;
