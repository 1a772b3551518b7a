//! Inspects a shard after each event: its counters, its cost, its histories, the memory of its sessions, and each living
//! session. An event takes a number of steps that its messages and their subscribers bound, whatever queues hold.

use bayeux::json::{elements, member};
use encke_core::{Envelope, SLOT_MS, STEPS_PER_DELIVERY, STEPS_PER_TURN, ShardMessage, SlowConsumer};

use crate::application::Note;
use crate::channels::{CHANNELS, HISTORY_CHANNELS, covers};
use crate::checker::{Invariant, Session};
use crate::sabotage::Sabotage;
use crate::script::Scenario;
use crate::texts::number_of;
use crate::transit::InTransit;
use crate::world::World;

/// The counts of a shard's sessions that ended: expired, ended by the server, too slow, by themselves.
pub(super) type Ends = [u64; 4];

impl World {
    /// The sessions of a shard that have ended.
    pub(super) fn ends(&self, shard: usize) -> Ends {
        let metrics = self.shards[shard].metrics();
        let ended = metrics.kicked.get() + metrics.tokens_expired.get() + metrics.revoked.get();
        [metrics.expired.get(), ended, metrics.slow_disconnected.get(), metrics.disconnected.get()]
    }

    /// Inspects a shard after an event.
    pub(super) fn after(&mut self, shard: usize, before: Ends, time_passed: bool) {
        self.requests_are_worked_through(shard);
        let after = self.ends(shard);
        let ends: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        let mut ended = 0;
        let notes = self.recorder.with(|recording| std::mem::take(&mut recording.notes));
        self.check_cost(shard, notes.len(), time_passed || self.is_turn);
        for note in notes {
            match note {
                Note::Published(data) => self.is_published(&data),
                Note::Called(session, channel) => self.is_called(&session, &channel),
                Note::Delivered(to, data) => self.checker.delivered(&to, &data),
                Note::Opened(session, identity) => self.is_held_by(session, &identity),
                Note::Refreshed(session, identity) => self.is_refreshed(&session, &identity),
                Note::Ended(session) => {
                    ended += 1;
                    if let Some(session) = self.checker.find(&session) {
                        self.note(|_| format!("session {session} ended: {ends:?}"));
                        self.may_end(session, &ends);
                        self.checker.ended(session);
                    }
                }
            }
        }
        self.record_histories();
        self.shard_messages_are_bounded();
        let metrics = self.shards[shard].metrics();
        let open = metrics.handshakes.get() + metrics.restored.get() - after.iter().sum::<u64>();
        if ended != ends.iter().sum::<u64>() || open != self.shards[shard].sessions() as u64 {
            let detail = format!("shard {shard}: {ended} sessions ended, counted {ends:?}, {open} should be open");
            self.checker.fail(Invariant::NumbersAgree, detail);
        }
        let (counted, walked) = self.shards[shard].memory();
        if counted != walked {
            let detail = format!("shard {shard} counts {counted} bytes for its sessions, and holds {walked}");
            self.checker.fail(Invariant::MemoryCounted, detail);
        }
        for session in 0..self.checker.sessions.len() {
            let state = &self.checker.sessions[session];
            if state.alive && state.id.shard() == shard {
                self.check_session(session, shard, time_passed);
            }
        }
    }

    /// Records changes of the histories. It runs after every event: changes within one event are not visible.
    pub(super) fn record_histories(&mut self) {
        for channel in HISTORY_CHANNELS {
            let histories = &self.shared.histories;
            let Some(ring) = histories.find(channel, 0) else { continue };
            let (seen_positions, next) =
                (self.records.seen_positions.entry(channel).or_default(), self.records.next.entry(channel));
            let next = next.or_default();
            let oldest = self.records.oldest.entry(channel).or_default();
            let mut given_twice = None;
            histories.with(ring.ring, |ring| {
                for entry in ring.from(*next) {
                    let Some(number) = member(&entry.text, "data").and_then(number_of) else { continue };
                    let before = seen_positions.insert(entry.offset, number).filter(|before| *before != number);
                    given_twice = given_twice.or(before.map(|before| (entry.offset, before, number)));
                }
                *next = ring.next();
                // Messages that come back with a restart may have been reported as lost before.
                *oldest = ring.oldest().max(*oldest);
            });
            if let Some((id, before, number)) = given_twice {
                let detail = format!("{id} of {channel} was message {before} and is message {number} now");
                self.checker.fail(Invariant::OneOrder, detail);
            }
        }
        for owner in 0..self.shards.len() {
            let settings = self.shards[owner].settings();
            let (bytes_max, shards) = (settings.history_bytes_max, self.shards.len());
            let holding = self.shared.histories.holding(owner);
            if holding.bytes > bytes_max / shards {
                let detail = format!("shard {owner} keeps {holding:?}, of {bytes_max} bytes for {shards} shards");
                self.checker.fail(Invariant::HistoryBounded, detail);
            }
        }
    }

    /// Checks the steps of an event, in which the application saw so many messages. `is_turn`: a flush or a tick.
    pub(super) fn check_cost(&mut self, shard: usize, seen: usize, is_turn: bool) {
        let steps = self.shards[shard].steps();
        let sessions = self.shards[shard].sessions() as u64;
        let cost = &mut self.costs[shard];
        cost.messages += 1 + seen as u64;
        let mut taken = steps - std::mem::replace(&mut cost.steps, steps);
        let turn = if is_turn { STEPS_PER_TURN * TURNS } else { EVENT_STEPS };
        let bound = turn + cost.messages * (1 + sessions) * STEPS_PER_DELIVERY;
        if self.shards[shard].is_settled() {
            self.costs[shard].messages = 0;
        }
        if self.sabotage == Sabotage::LinearSearch && !is_turn {
            taken += self.waiting_on(shard).iter().sum::<u64>() * LONGER;
        }
        // One outbox may be searched.
        if taken > bound && taken > bound + 2 * self.waiting_on(shard).into_iter().max().unwrap_or(0) {
            let detail = format!("{taken} steps of shard {shard} for one event, and {bound} are its bound");
            self.checker.fail(Invariant::CostBounded, detail);
        }
    }

    /// The messages that wait for each session of a shard.
    fn waiting_on(&self, shard: usize) -> Vec<u64> {
        let here = self.checker.sessions.iter().filter(|session| session.alive && session.id.shard() == shard);
        here.filter_map(|session| Some(self.shards[shard].waiting(&session.id)?.0 as u64)).collect()
    }

    /// Checks the size of a frame. Clients limit it; a single message may be larger.
    pub(super) fn fits(&mut self, conn: usize, text: &str) {
        let acknowledges = self.network.conns[conn].session.is_some_and(|at| self.checker.sessions[at].acknowledges);
        let messages = || elements(text).filter(|raw| member(raw, "data").is_some()).count();
        if acknowledges && text.len() > TEXT_BYTES_MAX && messages() > 1 {
            let detail = format!("{} bytes in one frame of connection {conn}", text.len());
            self.checker.fail(Invariant::CleanFrames, detail);
        }
    }

    /// Checks that the bytes between shards stay within their limit.
    pub(super) fn shard_messages_are_bounded(&mut self) {
        // Messages admitted below the limit may still grow: a batch becomes as many publications, each with an
        // envelope for each shard.
        let (bytes, bytes_max) = (self.shared.mailbox.bytes(), self.scenario.settings[0].mailbox_bytes_max);
        // Responses have their own limits: for each of them, and for all together.
        let responses = self.in_transit.iter().flatten().flatten().filter_map(|item| match item {
            InTransit::ShardMessage(Envelope { message: ShardMessage::Response(_, response), .. }) => {
                Some(response.body.len())
            }
            _ => None,
        });
        let bytes = bytes.saturating_sub(responses.sum());
        if bytes > 2 * bytes_max + OVERDRAFT_BYTES {
            self.checker.fail(
                Invariant::ShardMessagesBounded,
                format!("{bytes} bytes are in transit, at most {bytes_max} twice"),
            );
        }
    }

    /// Checks that a session had a reason to end.
    fn may_end(&mut self, session: usize, ends: &[u64]) {
        let state = &self.checker.sessions[session];
        let least_ms = self.scenario.settings.iter().map(|s| s.max_interval_ms).min().unwrap_or(0);
        // A stream keeps its session.
        let streams = self
            .network
            .conns
            .iter()
            .any(|conn| conn.stream.is_some() && conn.session == Some(session) && conn.key.is_some() && !conn.shut);
        let silent = (!streams || state.kicked)
            && state.held_since_ms.is_none()
            && state.last_received_ms + least_ms <= self.now.ms;
        let inactive = self.scenario.settings.iter().any(|s| s.activity_timeout_ms > 0);
        let tight = self.scenario.sessions_end_slow();
        // A client that has left reads no more.
        let reason = (ends[0] > 0 && (silent || state.left))
            || (ends[1] > 0 && (self.may_be_ended(session) || inactive))
            || (ends[2] > 0 && tight)
            || (ends[3] > 0 && state.left);
        if !reason {
            let detail = format!(
                "session {session} ended ({ends:?}: expired, ended, slow, left) without a reason; last received at {} ms, held since {:?}, lives {least_ms} ms",
                state.last_received_ms, state.held_since_ms
            );
            self.checker.fail(Invariant::LivesOn, detail);
        }
    }

    /// Inspects one living session of a shard.
    fn check_session(&mut self, session: usize, shard: usize, time_passed: bool) {
        let now_ms = self.now.ms;
        let settings = &self.scenario.settings;
        let state = &mut self.checker.sessions[session];
        let (Some((messages, bytes, reply_bytes)), Some(held)) =
            (self.shards[shard].waiting(&state.id), self.shards[shard].holds(&state.id))
        else {
            return self
                .checker
                .fail(Invariant::LivesOn, format!("session {session} is gone, and its client was not notified"));
        };
        match (held, state.held_since_ms) {
            (true, None) => state.held_since_ms = Some(now_ms),
            (false, Some(_)) => {
                state.held_since_ms = None;
                state.last_received_ms = state.last_received_ms.max(now_ms);
            }
            // A newer connect has replaced the older one.
            (true, Some(since_ms)) => state.held_since_ms = Some(since_ms.max(state.spoke_ms)),
            (false, None) => {}
        }
        let longest_ms = settings.iter().map(|s| s.timeout_ms).max().unwrap_or(0) + 2 * SLOT_MS;
        if time_passed
            && let Some(since_ms) = state.held_since_ms
            && since_ms + longest_ms < now_ms
        {
            let detail = format!("a connect of session {session} is held since {since_ms} ms");
            return self.checker.fail(Invariant::HeldInTime, detail);
        }
        // The limits may be exceeded by the disconnect of a session that the server ended. A frame that was half written
        // when its connection broke counts again in full. Under `keep-latest` an outbox may hold twice its limits until the
        // next pass.
        let fold = if may_keep_latest(&self.scenario, state) { 2 } else { 1 };
        let messages_max = fold * settings[0].outbox_messages_max + 1;
        let bytes_max =
            fold * settings[0].outbox_bytes_max + DISCONNECT_BYTES + self.scenario.padding_bytes + FRAME_BYTES;
        if messages > messages_max || bytes.max(reply_bytes) > bytes_max {
            let detail = format!(
                "{messages} messages, {bytes} bytes and {reply_bytes} bytes of replies wait for session {session}, \
                 at most {messages_max} and {bytes_max} of both"
            );
            self.checker.fail(Invariant::OutboxBounded, detail);
        }
    }
}

/// True if a rule with `keep-latest` may apply to a session: it does not acknowledge, and it has requested a channel of
/// such a rule.
fn may_keep_latest(scenario: &Scenario, session: &Session) -> bool {
    let keeps = |channel: &str| {
        let mut rules = scenario.settings.iter().flat_map(|settings| &settings.channels);
        rules.any(|rule| rule.slow_consumer == SlowConsumer::KeepLatest && covers(&rule.pattern, channel))
    };
    let requests = |channel: &str| session.subscriptions.keys().any(|name| covers(name, channel));
    !session.acknowledges && CHANNELS.iter().any(|channel| requests(channel) && keeps(channel))
}

/// The bytes allowed above the limit: for the expansion of messages admitted below it. The subscribers in the process get
/// each message, too.
const OVERDRAFT_BYTES: usize = 600_000;
/// The steps of an event without a message.
const EVENT_STEPS: u64 = 1_024;
/// A flush looks at the time so many times at most.
const TURNS: u64 = 5;
/// Queues here are short. A sabotaged search takes as many steps as in queues that are so many times longer.
const LONGER: u64 = 10_000;
/// The most bytes of a publication's frame beside its padding, except for the few of 40,000 bytes, which occur only
/// where the outbox is large.
const FRAME_BYTES: usize = 256;
/// The size of the frame of `/meta/disconnect`.
const DISCONNECT_BYTES: usize = 64;
/// The limit of Jetty's client for the text of a frame.
pub(super) const TEXT_BYTES_MAX: usize = 64 * 1024;
