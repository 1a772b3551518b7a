//! Lets batches and calls wait for the application. `batch` and the chapters for its messages lead here with a future;
//! `websocket` and `http` suspend the batch. `decisions` continues when the result comes.

use bayeux::{BayeuxError, Message};

use crate::decision::{Awaited, WaitKey};
use crate::events::{Effect, SessionKey, SocketKey};
use crate::limits::shares::Urgency;
use crate::protocol::batch::{Batch, Outcome, Via};
use crate::requests::{Call, Payer, Wait};
use crate::schedule::Timer;
use crate::shard::Parts;

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
        let payer = self.payer(batch, batch.session);
        let has_room = self.requests.admits_batch(&self.settings.decisions_waiting(), &payer, batch);
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
        let payer = self.payer(&batch, batch.session);
        self.wait(Wait::Batch(Box::new(batch)), payer, awaited, self.settings.given().decision_timeout_ms);
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

    /// True if a session may make one more call of so many bytes whose answer may come later.
    pub(super) fn may_call(&self, session: SessionKey, payer: Payer, bytes: usize, urgency: Urgency) -> bool {
        let (budget, own_max) = (self.settings.calls_waiting(), self.settings.given().calls_waiting_per_session_max);
        let has_room = self.requests.admits_call(&budget, own_max, (&payer, session), bytes, urgency);
        if !has_room {
            self.metrics.calls_refused.add(1);
        }
        has_room
    }

    /// Waits for the answer to a call.
    pub(super) fn wait_for_answer(&mut self, call: Call, awaited: Awaited) {
        self.metrics.calls_delayed.add(1);
        let payer = call.payer;
        self.wait(Wait::Call(Box::new(call)), payer, awaited, self.settings.given().call_timeout_ms);
    }

    fn wait(&mut self, wait: Wait, payer: Payer, awaited: Awaited, timeout_ms: u64) {
        let key = self.requests.wait(wait, payer, self.now.ms + timeout_ms);
        self.arm_wait(key);
        self.count_waits();
        self.effects.push(Effect::Await(key, awaited));
    }

    /// Updates the gauges of waits.
    pub(super) fn count_waits(&self) {
        let [batches, calls] = self.requests.waiting();
        self.metrics.decisions_waiting.set(batches.count);
        self.metrics.decisions_waiting_bytes.set(batches.bytes);
        self.metrics.calls_waiting.set(calls.count);
        self.metrics.calls_waiting_bytes.set(calls.bytes);
    }

    /// Sets the timer of a wait. Returns false if its time is over.
    pub(super) fn arm_wait(&mut self, key: WaitKey) -> bool {
        let Some(due_ms) = self.requests.due_ms(key) else { return true };
        if due_ms <= self.now.ms {
            return false;
        }
        let at_ms = self.schedule.timers.set(Timer::Wait(key), due_ms, u64::MAX);
        self.requests.armed(key, at_ms);
        true
    }
}
