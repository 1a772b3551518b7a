//! Inspects a shard after each event: its counters, the memory of its sessions, and each living session.

use encke_core::SLOT_MS;

use crate::application::Note;
use crate::checker::Invariant;
use crate::world::World;

/// The counts of a shard's sessions that ended: expired, ended by the server, too slow, by themselves.
pub(crate) type Ends = [u64; 4];

impl World {
    /// The sessions of a shard that have ended.
    pub(crate) fn ends(&self, shard: usize) -> Ends {
        let metrics = self.shards[shard].metrics();
        let ended = metrics.kicked.get() + metrics.tokens_expired.get() + metrics.revoked.get();
        [metrics.expired.get(), ended, metrics.slow_disconnected.get(), metrics.disconnected.get()]
    }

    /// Inspects a shard after an event.
    pub(crate) fn after(&mut self, shard: usize, before: Ends, time_passed: bool) {
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

    /// Checks that a session had a reason to end.
    fn may_end(&mut self, session: usize, ends: &[u64]) {
        let state = &self.checker.sessions[session];
        let least_ms = self.scenario.settings.iter().map(|s| s.max_interval_ms).min().unwrap_or(0);
        let silent = state.held_since_ms.is_none() && state.last_received_ms + least_ms <= self.now.ms;
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
        let fold = if self.scenario.may_keep_latest(state) { 2 } else { 1 };
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

/// The most bytes of a publication's frame beside its padding, except for the few of 40,000 bytes, which occur only
/// where the outbox is large.
const FRAME_BYTES: usize = 256;
/// The size of the frame of `/meta/disconnect`.
const DISCONNECT_BYTES: usize = 64;
