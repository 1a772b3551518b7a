//! Lets batches and calls wait for the application. `batch` and the chapters for its messages lead here with a future;
//! `websocket` and `http` suspend the batch. `decisions` continues when the result comes.

use bayeux::{BayeuxError, Message};

use crate::connections::waits::{Call, Wait};
use crate::decision::{Awaited, WaitKey};
use crate::events::{Effect, SessionKey, SocketKey};
use crate::protocol::batch::{Batch, Outcome, Via};
use crate::schedule::Timer;
use crate::shard::Parts;

/// A session may have this part of `calls_waiting_bytes_max`: one of sixteen.
const SESSION_SHARE: usize = 16;

impl Parts {
    /// Lets the current message of a batch wait for a decision, or refuses it if too many messages wait.
    pub(super) fn ask(&mut self, batch: &mut Batch, message: &Message<'_>, awaited: Awaited, name: usize) {
        if self.may_wait(batch) {
            batch.wait_for(awaited, name);
        } else {
            self.refuse(batch, message, BayeuxError::DecisionsWaitingMax.as_str());
        }
    }

    /// True if one more batch may wait for a decision. A session that ends does not wait.
    pub(super) fn may_wait(&self, batch: &Batch) -> bool {
        let all = self.connections.waits.batches();
        let has_room =
            all.count < self.settings.decisions_waiting_max && all.bytes < self.settings.decisions_waiting_bytes_max;
        if !has_room {
            self.metrics.decisions_refused.add(1);
        }
        has_room && !batch.is(Outcome::EndsSession)
    }

    /// Suspends a batch whose current message waits for a decision.
    pub(super) fn suspend(&mut self, mut batch: Batch) {
        let Some(awaited) = batch.decisions.as_mut().and_then(|decisions| decisions.awaited.take()) else { return };
        if let Via::Socket(socket) = batch.via {
            self.set_suspended(socket, true);
        }
        self.metrics.decisions_delayed.add(1);
        self.wait(Wait::Batch(Box::new(batch)), awaited, self.settings.decision_timeout_ms);
    }

    /// Notes that a socket must not be read, or may be read again. Its client is not silent meanwhile.
    pub(super) fn set_suspended(&mut self, key: SocketKey, is_suspended: bool) {
        let now_ms = self.now.ms;
        let Some(socket) = self.socket_mut(key) else { return };
        let was_suspended = std::mem::replace(&mut socket.is_suspended, is_suspended);
        (socket.last_received_ms, socket.alone_ms) = (now_ms, now_ms);
        if was_suspended && !is_suspended {
            self.effects.push(Effect::Continue(key));
        }
    }

    /// True if a session may make one more call, of this many bytes, whose answer may come later. Each shard and each session may
    /// have one call of any size.
    pub(super) fn may_call(&self, key: SessionKey, bytes: usize) -> bool {
        let (all, own) = (self.connections.waits.calls(), self.connections.waits.calls_of(key));
        let bytes_max = self.settings.calls_waiting_bytes_max;
        let has_room = all.count < self.settings.calls_waiting_max
            && own.count < self.settings.calls_waiting_per_session_max
            && (all.count == 0 || all.bytes + bytes <= bytes_max)
            && (own.count == 0 || own.bytes + bytes <= bytes_max / SESSION_SHARE);
        if !has_room {
            self.metrics.calls_refused.add(1);
        }
        has_room
    }

    /// Waits for the answer to a call.
    pub(super) fn wait_for_answer(&mut self, call: Call, awaited: Awaited) {
        self.metrics.calls_delayed.add(1);
        self.wait(Wait::Call(Box::new(call)), awaited, self.settings.call_timeout_ms);
    }

    fn wait(&mut self, wait: Wait, awaited: Awaited, timeout_ms: u64) {
        let key = self.connections.waits.add(wait, self.now.ms + timeout_ms);
        self.arm_wait(key);
        self.count_waits();
        self.effects.push(Effect::Await(key, awaited));
    }

    /// Updates the gauges of waits.
    pub(super) fn count_waits(&self) {
        let (batches, calls) = (self.connections.waits.batches(), self.connections.waits.calls());
        self.metrics.decisions_waiting.set(batches.count);
        self.metrics.decisions_waiting_bytes.set(batches.bytes);
        self.metrics.calls_waiting.set(calls.count);
        self.metrics.calls_waiting_bytes.set(calls.bytes);
    }

    /// Sets the timer of a wait. Returns false if its time is over.
    pub(super) fn arm_wait(&mut self, key: WaitKey) -> bool {
        let Parts { connections, schedule, now, .. } = self;
        let Some((due_ms, armed_ms)) = connections.waits.timer(key) else { return true };
        if due_ms <= now.ms {
            return false;
        }
        *armed_ms = schedule.timers.set(Timer::Wait(key), due_ms, u64::MAX);
        true
    }
}
