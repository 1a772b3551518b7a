//! Results of the application that come later. [`ShardMessage::Resolved`](crate::ShardMessage::Resolved) and the time-outs of `tick` lead here: a
//! suspended batch continues with its message, and a call gets its answer.

use bayeux::{BayeuxError, Message};

use crate::decision::{Resolved, WaitKey};
use crate::events::Effect;
use crate::now::Now;
use crate::protocol::batch::{Batch, Rest, Via, failed_call_frame, is_connect, is_handshake};
use crate::requests::{Call, Wait};
use crate::shard::{Parts, Shard};

impl Shard {
    /// Takes the result of a future. A result that comes after its time-out is dropped.
    pub(super) fn resolved(&mut self, now: Now, key: WaitKey, resolved: Resolved) {
        let parts = self.settle_burst_at(now);
        let Some((wait, armed_ms)) = parts.requests.end_wait(key) else {
            return parts.metrics.results_late.add(1);
        };
        parts.disarm(armed_ms);
        parts.count_waits();
        let result = if matches!(resolved, Resolved::Failed) {
            parts.metrics.decisions_failed.add(1);
            Err(Failure::Panicked)
        } else {
            Ok(resolved)
        };
        self.go_on(wait, result);
    }

    /// Ends the waits whose time is over.
    pub(super) fn time_out_waits(&mut self) {
        while let parts = self.settle_burst()
            && let Some(key) = parts.schedule.overdue.pop()
        {
            if parts.arm_wait(key) {
                continue;
            }
            let Some((wait, _)) = parts.requests.end_wait(key) else { continue };
            parts.metrics.decisions_timed_out.add(1);
            parts.count_waits();
            parts.effects.push(Effect::Cancel(key));
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
        self.beside_burst().release_withheld(&mut batch);
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
        let is_gone = match batch.via {
            Via::Socket(socket) => !self.parts().is_open(socket),
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
                ..self.parts().settings.limits().clone()
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
        }
        if batch.begun.is_some() {
            self.settle_burst().unqueue_at_end(batch);
        }
        self.beside_burst().update_old_gauges();
    }

    /// True if a connect of a resumed batch must not take the session: its client has gone, or has connected elsewhere
    /// meanwhile. It gets no reply, like a connect on a WebSocket that a newer one replaces.
    fn is_stale(&self, batch: &Batch, is_gone: bool) -> bool {
        let session = || batch.session.and_then(|key| self.parts().sessions.get(key));
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
        let parts = self.settle_burst();
        let frame = failed_call_frame(&call.channel, call.id.as_ref(), error.as_str());
        let frames = parts.fanout.encoder.copy_single(&frame);
        parts.deliver_to(call.session, &frames, None);
    }
}

/// The reason why a wait has no result.
enum Failure {
    TimedOut,
    Panicked,
}

impl Parts {
    /// Refuses a message on which there is no decision.
    fn refuse_undecided(&mut self, batch: &mut Batch, message: &Message<'_>, error: BayeuxError) {
        if is_handshake(message) {
            self.refuse_handshake_for_now(batch, message, error);
        } else {
            self.refuse(batch, message, error.as_str());
        }
    }
}
