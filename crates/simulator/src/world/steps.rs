//! One small step after another.
//!
//! Every possible event waits in its own queue: bytes, requests, messages between shards, confirmations. Each step
//! takes the head of a random queue, so that all interleavings occur that the real threads and sockets allow.

use std::sync::Arc;

use encke_core::ShardMessage;

use crate::channels::CHANNELS;
use crate::checker::Invariant;
use crate::world::World;

impl World {
    /// Makes one random event happen.
    pub(super) fn step(&mut self) {
        match self.rng.below(100) {
            0..22 => self.some_client(World::act),
            22..42 => self.some_client(World::read),
            42..56 => self.some_upload(),
            56..68 => self.some_exchange(),
            68..78 => self.some_message(),
            78..90 => self.some_turn(),
            90..94 => self.some_report(),
            94..99 => self.some_time(),
            _ => self.some_control(),
        }
        if !self.scenario.users.is_empty() && self.rng.chance(RIGHTS) {
            self.some_right();
        }
        if self.scenario.feeds > 0 && self.rng.chance(FEEDS) {
            self.feed();
        }
        if self.rng.chance(if self.scenario.rush { RUSHED } else { HELD }) {
            self.some_held();
        }
        if self.scenario.has_presence() && self.rng.chance(ANNOUNCEMENTS) {
            self.announce();
        }
        if self.scenario.faults > 0 && self.rng.chance(CHANGES) {
            self.some_change();
        }
        if self.scenario.lateness > 0 && self.rng.chance(300) {
            self.some_decision();
        }
        if self.log.is_some() && self.rng.chance(self.scenario.keeping) {
            let most = 1 + self.rng.below(5);
            self.run_store(most);
        }
    }

    /// Lets everything on its way arrive.
    pub(super) fn pump(&mut self) {
        for _ in 0..PUMP_ROUNDS_MAX {
            if self.is_broken() {
                return;
            }
            let mut moved = false;
            for conn in 0..self.network.conns.len() {
                while self.upload(conn) {
                    moved = true;
                }
            }
            for exchange in 0..self.network.exchanges.len() {
                moved |= self.progress(exchange);
            }
            moved |= self.announce();
            moved |= self.healing && self.drain_held();
            for to in 0..=self.shards.len() {
                for from in 0..=self.shards.len() {
                    while self.deliver_shard_messages(to, from) {
                        moved = true;
                    }
                }
            }
            while self.report() {
                moved = true;
            }
            while self.some_decision() {
                moved = true;
            }
            moved |= self.run_store(usize::MAX);
            for shard in 0..self.shards.len() {
                moved |= self.turn(shard);
            }
            for client in 0..self.clients.len() {
                while self.read_one(client) {
                    moved = true;
                }
            }
            for conn in 0..self.network.conns.len() {
                moved |= self.writable(conn);
            }
            if !moved {
                return;
            }
        }
        if !self.healing {
            return;
        }
        let detail = format!("after {PUMP_ROUNDS_MAX} rounds without any time passing there is still something to do");
        self.checker.fail(Invariant::NumbersAgree, detail);
    }

    fn some_client(&mut self, act: fn(&mut World, usize)) {
        let client = self.rng.below(self.clients.len());
        act(self, client);
    }

    fn some_upload(&mut self) {
        let busy: Vec<usize> =
            (0..self.network.conns.len()).filter(|conn| !self.network.conns[*conn].up.is_empty()).collect();
        if !busy.is_empty() {
            let conn = self.rng.pick(&busy);
            self.upload(conn);
        }
    }

    fn some_exchange(&mut self) {
        let busy: Vec<usize> =
            (0..self.network.exchanges.len()).filter(|x| self.network.exchanges[*x].may_progress()).collect();
        if !busy.is_empty() {
            let exchange = self.rng.pick(&busy);
            self.progress(exchange);
        }
    }

    fn some_message(&mut self) {
        let (to, from) = (self.rng.below(self.shards.len() + 1), self.rng.below(self.shards.len() + 1));
        for _ in 0..=self.rng.below(3) {
            self.deliver_shard_messages(to, from);
        }
    }

    fn some_turn(&mut self) {
        let shard = self.rng.below(self.shards.len());
        self.turn(shard);
        for conn in 0..self.network.conns.len() {
            if self.network.conns[conn].shard == shard && self.rng.chance(300) {
                self.writable(conn);
            }
        }
    }

    fn some_report(&mut self) {
        self.report();
    }

    fn some_time(&mut self) {
        let jump_ms = if self.rng.chance(30) { self.scenario.jump_ms } else { 60 };
        let step_ms = self.rng.between(1, jump_ms.max(1));
        self.pass(step_ms);
    }

    pub(super) fn some_fault(&mut self) {
        if self.log.is_some() && self.rng.chance(200) {
            return if self.rng.chance(500) { self.break_disk() } else { self.mend_disk() };
        }
        let alive: Vec<usize> =
            (0..self.network.conns.len()).filter(|conn| self.network.conns[*conn].is_up()).collect();
        if alive.is_empty() || self.rng.chance(300) {
            return self.some_client(World::break_exchange);
        }
        let conn = self.rng.pick(&alive);
        self.checker.tally.breaks += 1;
        self.note(|_| format!("connection {conn} breaks"));
        let client = self.network.conns[conn].client;
        for text in self.network.break_off(conn) {
            self.checker.lost(client, &text);
        }
    }

    /// A random control call to the whole server.
    fn some_control(&mut self) {
        let outside = self.shards.len();
        if self.rng.chance(300) {
            let channel = self.rng.pick(&CHANNELS);
            self.publish_from_outside(channel);
            return;
        }
        if self.rng.chance(150) {
            let known: Vec<usize> =
                (0..self.checker.sessions.len()).filter(|s| self.checker.sessions[*s].alive).collect();
            if known.is_empty() || self.scenario.faults == 0 {
                return;
            }
            let session = self.rng.pick(&known);
            self.note(|_| format!("session {session} is to be ended"));
            let session = &mut self.checker.sessions[session];
            session.kicked = true;
            let id = session.id;
            self.send_to_shard(id.shard(), outside, ShardMessage::Disconnect(id, None));
        } else {
            let which = self.rng.below(2);
            let settings = Arc::new(self.scenario.settings[which].clone());
            for to in 0..self.shards.len() {
                self.send_to_shard(to, outside, ShardMessage::Settings(settings.clone()));
            }
        }
    }

    /// Publishes messages that wait for all subscribers.
    pub(super) fn chatter(&mut self, channel: &str) {
        self.publish_from_outside(channel);
        let shards = self.shards.len();
        for (to, from) in (0..=shards).rev().flat_map(|from| (0..shards).map(move |to| (to, from))) {
            while self.deliver_shard_messages(to, from) {}
            self.settle(to);
        }
    }
}

/// Changes of rights, and of subscriptions by handles, per thousand steps.
const RIGHTS: usize = 15;
const CHANGES: usize = 20;
/// Publications on feeds, per thousand steps.
const FEEDS: usize = 50;
/// Turns of clients with held requests, per thousand steps.
const HELD: usize = 80;
/// The same where clients have more requests than may be held.
const RUSHED: usize = 500;
/// Turns of the thread that announces members, per thousand steps.
const ANNOUNCEMENTS: usize = 100;
/// Rounds of letting messages arrive: with a small account of bytes between shards each may admit only one message.
const PUMP_ROUNDS_MAX: usize = 4_000;
