//! Lets batches and calls wait for the application. `batch` and the chapters for its messages lead here with a future;
//! `websocket` and `http` suspend the batch. `decisions` continues when the result comes.

use bayeux::{BayeuxError, Message};

use crate::connections::waits::{Call, Payer, Wait};
use crate::decision::{Awaited, WaitKey};
use crate::events::{Effect, SessionKey, SocketKey};
use crate::limits::shares::{Amount, Urgency};
use crate::protocol::batch::{Batch, Outcome, Via};
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
        let (budget, amount) = (self.settings.decisions_waiting(), Amount::one(batch.held_bytes()));
        let inner = batch.session.map(Payer::Session);
        let (payer, waits) = (self.payer(batch, batch.session), self.connections.waits.batches());
        let has_room = waits.admit(&budget, &payer, inner.as_ref(), amount, Urgency::Common).is_ok();
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
        let (session, waits) = (Payer::Session(session), self.connections.waits.calls());
        let (budget, amount) = (self.settings.calls_waiting(), Amount::one(bytes));
        let has_own = match urgency {
            Urgency::Common => waits.of(&session).count < self.settings.given().calls_waiting_per_session_max,
            Urgency::Urgent => true,
        };
        let has_room = has_own && waits.admit(&budget, &payer, Some(&session), amount, urgency).is_ok();
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
        let key = self.connections.waits.add(wait, payer, self.now.ms + timeout_ms);
        self.arm_wait(key);
        self.count_waits();
        self.effects.push(Effect::Await(key, awaited));
    }

    /// Updates the gauges of waits.
    pub(super) fn count_waits(&self) {
        let (batches, calls) = (self.connections.waits.batches().used(), self.connections.waits.calls().used());
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
