//! Batches and calls that wait for the application. A suspended batch continues with its message when the result comes, or
//! its time is over, and a call gets its answer.

use bayeux::{BayeuxError, Message};

use crate::decision::{Awaited, Resolved, WaitKey};
use crate::events::Effect;
use crate::now::Now;
use crate::protocol::batch::{Batch, REREAD_BYTES_MAX, Rest, Via, failed_call_frame, is_connect, is_handshake};
use crate::requests::{Call, Payer, Wait};
use crate::shard::{Machines, Shard, Timer};

impl Shard {
    /// Takes the result of a future. A result that comes after its time-out is dropped.
    pub(super) fn resolved(&mut self, now: Now, key: WaitKey, resolved: Resolved) {
        let machines = self.settle_burst_at(now);
        let Some((wait, armed_ms)) = machines.requests.waits.remove(key) else {
            return machines.env.metrics.results_late.add(1);
        };
        machines.disarm(armed_ms);
        machines.count_waits();
        let result = if matches!(resolved, Resolved::Failed) {
            machines.env.metrics.decisions_failed.add(1);
            Err(Failure::Panicked)
        } else {
            Ok(resolved)
        };
        self.go_on(wait, result);
    }

    /// Ends the waits whose time is over.
    pub(super) fn time_out_waits(&mut self) {
        while let machines = self.settle_burst()
            && let Some(key) = machines.env.overdue.pop()
        {
            if machines.arm_wait(key) {
                continue;
            }
            let Some((wait, _)) = machines.requests.waits.remove(key) else { continue };
            machines.env.metrics.decisions_timed_out.add(1);
            machines.count_waits();
            machines.emit(Effect::Cancel(key));
            self.go_on(wait, Err(Failure::TimedOut));
        }
    }

    fn go_on(&mut self, wait: Wait, result: Result<Resolved, Failure>) {
        match wait {
            Wait::Batch(batch) => self.resume_batch(*batch, result),
            Wait::Call(call) => self.answer_call(&call, result),
        }
        self.settle_burst().update_old_gauges();
    }

    /// Continues with a batch at the message that has waited.
    fn resume_batch(&mut self, mut batch: Batch, result: Result<Resolved, Failure>) {
        self.settle_burst().release_withheld(&mut batch);
        let Some(decisions) = &mut batch.decisions else { return };
        let rest = std::mem::take(&mut decisions.rest);
        let is_abandoned = decisions.is_abandoned;
        let mut failure = None;
        match result {
            Ok(resolved) => {
                let name = decisions.name;
                decisions.made.push((name, resolved));
            }
            Err(failed) => {
                decisions.made.clear();
                failure = Some(match failed {
                    Failure::TimedOut => BayeuxError::DecisionTimeout,
                    Failure::Panicked => BayeuxError::DecisionFailed,
                });
            }
        }
        decisions.reread_bytes += rest.first().map_or(0, |(text, ..)| text.len());
        if decisions.reread_bytes > REREAD_BYTES_MAX {
            decisions.made.clear();
            failure = Some(BayeuxError::SubscriptionNamesMax);
        }
        let is_gone = match batch.via {
            Via::Socket(socket) => !self.machines.delivery.is_open(socket),
            Via::Http { .. } => is_abandoned,
        };
        self.process_rest(&mut batch, rest, failure, is_gone);
        match batch.via {
            Via::Socket(socket) => _ = self.answer_on_socket(socket, batch),
            Via::Http { .. } => self.answer_request(batch),
        }
    }

    /// Processes the remaining messages of a batch, the first one with this error. `is_gone` is true if the client is
    /// gone: then no session is opened or connected for it.
    fn process_rest(&mut self, batch: &mut Batch, mut rest: Rest, mut failure: Option<BayeuxError>, is_gone: bool) {
        while let Some((text, fault, batch_bytes)) = rest.first() {
            let limits = bayeux::Limits {
                batch_messages_max: 1,
                json_depth_max: usize::MAX,
                ..self.machines.env.settings.limits().clone()
            };
            let Ok(mut messages) = bayeux::parse_batch(text, &limits) else {
                debug_assert!(false, "a message is not read again: {text}");
                rest.pop();
                continue;
            };
            (messages[0].fault, messages[0].batch_bytes) = (fault, batch_bytes);
            let message = &messages[0];
            self.settle_burst().settle_torn(batch, message);
            match failure.take() {
                Some(error) => self.settle_burst().refuse_undecided(batch, message, error),
                None if (is_gone && is_handshake(message))
                    || (is_connect(message) && self.is_stale(batch, is_gone)) => {}
                None => self.process_next(batch, message),
            }
            drop(messages);
            if batch.waits() {
                if let Some(decisions) = &mut batch.decisions {
                    decisions.rest = rest;
                }
                break;
            }
            rest.pop();
            batch.decisions.iter_mut().for_each(|decisions| decisions.reread_bytes = 0);
        }
        self.end_batch(batch);
    }

    /// True if a connect of a resumed batch must not take the session: its client has gone, or has connected elsewhere
    /// meanwhile. It gets no reply, like a connect on a WebSocket that a newer one replaces.
    fn is_stale(&self, batch: &Batch, is_gone: bool) -> bool {
        let session = || batch.session.and_then(|key| self.machines.delivery.session(key));
        match batch.via {
            Via::Socket(socket) => is_gone || session().is_some_and(|session| session.socket() != Some(socket)),
            Via::Http { .. } => is_gone,
        }
    }

    /// Runs the actions that answer a call. A caller that has gone gets nothing; what the call publishes, it publishes.
    fn answer_call(&mut self, call: &Call, result: Result<Resolved, Failure>) {
        let error = match result {
            Ok(Resolved::Service(actions)) => {
                return self.act(actions, Some((call.session, &call.channel, call.id.as_ref())));
            }
            Ok(Resolved::Refresh(result)) => return self.settle_burst().refreshed(call, result),
            Ok(_) | Err(Failure::Panicked) => BayeuxError::CallFailed,
            Err(Failure::TimedOut) => BayeuxError::CallTimeout,
        };
        let frame = failed_call_frame(&call.channel, call.id.as_ref(), error.as_str());
        self.settle_burst().deliver_to(call.session, &frame);
    }
}

/// The reason why a wait has no result.
enum Failure {
    TimedOut,
    Panicked,
}

impl Machines {
    /// Refuses a message on which there is no decision.
    fn refuse_undecided(&mut self, batch: &mut Batch, message: &Message<'_>, error: BayeuxError) {
        if is_handshake(message) {
            self.refuse_handshake_for_now(batch, message, error);
        } else {
            self.beside().refuse(batch, message, error.as_str());
        }
    }

    /// Lets the session of a batch get messages again, as a decision about positions has come.
    fn release_withheld(&mut self, batch: &mut Batch) {
        if std::mem::take(&mut batch.withholds)
            && let Some(key) = batch.session
        {
            self.delivery.release_withheld(key);
        }
    }

    /// Suspends a batch whose current message waits for a decision.
    pub(super) fn suspend(&mut self, mut batch: Batch) {
        let Some(awaited) = batch.decisions.as_mut().and_then(|decisions| decisions.awaited.take()) else { return };
        if let Via::Socket(socket) = batch.via {
            self.delivery.aside().set_suspended(socket, true);
        }
        self.env.metrics.decisions_delayed.add(1);
        let payer = self.beside().payer(&batch, batch.session);
        self.wait(Wait::Batch(Box::new(batch)), payer, awaited, self.env.settings.given().decision_timeout_ms);
    }

    /// Waits for the answer to a call.
    pub(super) fn wait_for_answer(&mut self, call: Call, awaited: Awaited) {
        self.env.metrics.calls_delayed.add(1);
        let payer = call.payer;
        self.wait(Wait::Call(Box::new(call)), payer, awaited, self.env.settings.given().call_timeout_ms);
    }

    fn wait(&mut self, wait: Wait, payer: Payer, awaited: Awaited, timeout_ms: u64) {
        let key = self.requests.waits.add(wait, payer, self.env.now.ms + timeout_ms);
        self.arm_wait(key);
        self.count_waits();
        self.emit(Effect::Await(key, awaited));
    }

    /// Updates the gauges of waits.
    fn count_waits(&self) {
        let ([batches, calls], metrics) = (self.requests.waits.used(), &self.env.metrics);
        metrics.decisions_waiting.set(batches.count);
        metrics.decisions_waiting_bytes.set(batches.bytes);
        metrics.calls_waiting.set(calls.count);
        metrics.calls_waiting_bytes.set(calls.bytes);
    }

    /// Sets the timer of a wait. Returns false if its time is over.
    fn arm_wait(&mut self, key: WaitKey) -> bool {
        let Some(due_ms) = self.requests.waits.due_ms(key) else { return true };
        if due_ms <= self.env.now.ms {
            return false;
        }
        let at_ms = self.env.timers.set(Timer::Wait(key), due_ms, u64::MAX);
        self.requests.waits.armed(key, at_ms);
        true
    }

    /// Notes that the owner of a timer has gone. Its entry is removed together with those of many others.
    pub(super) fn disarm(&mut self, armed_ms: u64) {
        if armed_ms < u64::MAX && self.env.timers.forget() {
            let Machines { env, delivery, requests, .. } = self;
            env.timers.retain(|timer| match timer {
                Timer::Credentials(key) => delivery.has(*key),
                Timer::Wait(key) => requests.waits.due_ms(*key).is_some(),
            });
        }
    }
}
