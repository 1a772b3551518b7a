//! The end of a run: all faults are healed, promised messages must arrive, all clients leave, and nothing of them may
//! remain.

use crate::checker::Invariant;
use crate::client::{Client, Phase};
use crate::world::World;

impl World {
    /// Nothing breaks any more, and every client reads and connects: all promised messages must arrive.
    pub(super) fn heal(&mut self) {
        self.healing = true;
        self.mend_disk();
        let begun_ms = self.now.ms;
        for client in &mut self.clients {
            client.reading = true;
        }
        self.scenario.kernel_bytes = HEALED_KERNEL_BYTES;
        self.network.widen(HEALED_KERNEL_BYTES);
        // In a tight outbox a long message fits only alone. Responses with room for one or two messages carry less
        // than a busy channel produces.
        let is_tight = self.scenario.outboxes_are_tight() || self.scenario.responses_are_small();
        let busy = (!is_tight && self.rng.chance(300)).then(|| self.rng.pick(&BUSY));
        let (mut round, mut quiet, mut arrived) = (0, 0, 0);
        // Where responses are small a backlog takes many of them: as long as messages arrive, the rest may.
        while quiet < HEALING_ROUNDS_MAX && round < HEALING_ROUNDS_MAX * 10 {
            for client in 0..self.clients.len() {
                self.act(client);
            }
            self.pump();
            if self.is_broken() {
                return;
            }
            self.connects_are_answered(begun_ms);
            let complete =
                self.checker.is_complete() && self.missing_positions().is_empty() && self.members_are_known();
            let settled = round >= 2 && complete && self.clients.iter().all(Client::is_settled);
            if settled {
                break;
            }
            let step_ms = self.rng.between(10, 120);
            self.pass(step_ms);
            // A client that replays must finish beside a channel that has a message for each of its connects.
            let missing = self.missing_positions();
            if let Some(channel) = busy.filter(|_| !missing.is_empty()) {
                if round == BUSY_ROUNDS_MAX {
                    return self
                        .checker
                        .fail(Invariant::LossReported, format!("beside {channel}: {}", missing.join("; ")));
                }
                self.chatter(channel);
            }
            let before = std::mem::replace(&mut arrived, self.checker.tally.arrived);
            quiet = if arrived > before { 0 } else { quiet + 1 };
            round += 1;
        }
        if !self.is_broken() {
            self.nothing_is_missing();
        }
    }

    fn nothing_is_missing(&mut self) {
        let now: u64 = self.shards.iter().map(|shard| shard.metrics().slow_dropped.get()).sum();
        let dropped = self.checker.tally.dropped + now;
        self.check_feeds();
        let missing: Vec<_> = self
            .checker
            .sessions
            .iter()
            .enumerate()
            .flat_map(|(index, session)| session.expected.iter().map(move |number| (index, *number)))
            .collect();
        let of_acknowledging = missing.iter().filter(|(session, _)| self.checker.sessions[*session].acknowledges);
        if missing.len() as u64 > dropped || of_acknowledging.count() > 0 {
            let detail =
                format!("these messages never came (session, message): {missing:?}; dropped by policy: {dropped}");
            self.checker.fail(Invariant::NothingLost, detail);
        }
        let missing = self.missing_positions();
        if !missing.is_empty() {
            self.checker.fail(Invariant::LossReported, missing.join("; "));
        }
        self.check_announced();
        self.check_chains();
        for client in 0..self.clients.len() {
            if let Some((id, what)) = self.clients[client].first_owed() {
                let detail = format!("client {client} never got a reply to its message {id} ({what:?})");
                self.checker.fail(Invariant::OneReply, detail);
            }
        }
    }

    /// Checks that a connect is answered within its timeout if nothing breaks.
    fn connects_are_answered(&mut self, begun_ms: u64) {
        let longest_ms = self.scenario.settings.iter().map(|s| s.timeout_ms).max().unwrap_or(0);
        for client in 0..self.clients.len() {
            let Some(since_ms) = self.clients[client].connect_since_ms() else { continue };
            let waited_ms = self.now.ms - since_ms.max(begun_ms);
            if waited_ms > longest_ms + HEALING_SLACK_MS {
                let detail = format!("the connect of client {client} waits for {waited_ms} ms");
                self.checker.fail(Invariant::HeldInTime, detail);
            }
        }
    }

    /// All clients leave, with a disconnect or silently. Nothing of them may remain.
    pub(super) fn leave(&mut self) {
        for client in 0..self.clients.len() {
            if self.rng.chance(500) {
                self.disconnect(client);
            }
        }
        self.pump();
        for client in 0..self.clients.len() {
            self.vanish(client);
        }
        for _ in 0..LEAVING_ROUNDS {
            self.pump();
            self.pass(LEAVING_STEP_MS);
        }
        // The histories expire, too.
        for _ in 0..2 {
            self.pass(FORGETTING_MS);
        }
        self.pump();
        self.drop_held();
        self.local.leave();
        if !self.is_broken() {
            self.nothing_is_left();
        }
    }

    fn nothing_is_left(&mut self) {
        let mut left = Vec::new();
        for (index, shard) in self.shards.iter().enumerate() {
            left.extend(
                [("channels with a history", self.shared.histories.holding(index).channels)]
                    .into_iter()
                    .filter(|held| held.1 > 0)
                    .map(|held| (index, held.0, held.1)),
            );
            left.extend(
                shard.holdings().into_iter().filter(|(_, count)| *count > 0).map(|held| (index, held.0, held.1)),
            );
            let frame_bytes = shard.metrics().frame_bytes.get();
            if frame_bytes != self.empty_frame_bytes {
                left.push((index, "frame bytes", frame_bytes as usize));
            }
            let metrics = shard.metrics();
            for (name, gauge) in
                [("held", &metrics.held), ("sockets", &metrics.sockets), ("sessions", &metrics.sessions)]
            {
                if gauge.get() != 0 {
                    left.push((index, name, gauge.get() as usize));
                }
            }
        }
        left.extend(Some((0, "bytes in transit", self.shared.mailbox.bytes())).filter(|held| held.2 > 0));
        let limits = self.shared.limits.sizes();
        for (name, count) in
            ["subscriptions", "users that are counted", "channels that are counted"].into_iter().zip(limits)
        {
            left.extend(Some((0, name, count)).filter(|held| held.2 > 0));
        }
        left.extend(Some((0, "members", self.presence.sizes().iter().sum())).filter(|held| held.2 > 0));
        left.extend(Some((0, "held requests", self.holds.sizes().iter().sum())).filter(|held| held.2 > 0));
        let sessions = self.shared.sessions.count();
        if !left.is_empty() || sessions > 0 || !self.shared.interest.is_empty() {
            let names = self.shared.interest.len();
            let detail = format!("left behind: {left:?}; {sessions} sessions and {names} names of interest in all");
            self.checker.fail(Invariant::NoLeak, detail);
        }
        let open = self.network.exchanges.iter().position(|exchange| exchange.is_open());
        if let Some(exchange) = open {
            let detail = format!("request {exchange} never got a response");
            self.checker.fail(Invariant::OneResponse, detail);
        }
    }

    /// Ends all connections of a client, which waits for nothing more.
    fn vanish(&mut self, client: usize) {
        self.clients[client].phase = Phase::Vanished;
        for conn in 0..self.network.conns.len() {
            if self.network.conns[conn].client == client && self.network.conns[conn].client_open {
                self.network.leave(conn);
            }
        }
        for exchange in self.network.exchanges.iter_mut().filter(|exchange| exchange.client == client) {
            exchange.client_waits = false;
        }
        for session in 0..self.checker.sessions.len() {
            if self.checker.sessions[session].client == client {
                self.checker.leave(session);
            }
        }
    }
}

/// Channels that may stay busy while clients replay others.
const BUSY: [&str; 2] = ["/a", "/lazy/x"];
/// Rounds of healing: at about 65 ms each, more than all waits that the settings allow.
const HEALING_ROUNDS_MAX: usize = 150;
/// The rounds beside a busy channel in which every client must finish its replay.
const BUSY_ROUNDS_MAX: usize = 120;
/// The time a connect may take beyond its timeout: slots of the timer wheel, steps of time, and an advised pause.
const HEALING_SLACK_MS: u64 = 1_000;
/// Longer than an empty history is retained.
const FORGETTING_MS: u64 = encke_core::history::EMPTY_RETAINED_MS + 1_000_000;
/// Steps of time after all clients have left, and their length: far more than any session lives.
const LEAVING_ROUNDS: usize = 12;
const LEAVING_STEP_MS: u64 = 3_000;
/// The size of the kernel's buffers during healing, in bytes.
const HEALED_KERNEL_BYTES: usize = 1 << 20;
