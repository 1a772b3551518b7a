//! The events of a backend that wait for their request, are under way, or wait for a retry: a machine without I/O and clock.
//!
//! The events of a session go one after the other: the next one starts when the one before has ended, with all its retries. Different
//! sessions go in parallel, up to a limit. The queue counts messages and bytes of all events that have not ended.
//!
//! The caller drives it: [`Queue::push`] adds an event, [`Queue::start`] returns the next one to send, [`Queue::finish`] takes the result
//! of a request, [`Queue::tick`] ends events whose time is over. Each event ends once.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use fastrand::Rng;

use crate::breaker::{Breaker, BreakerLimits, State, with_jitter};

/// The limits of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimits {
    /// Events that have not ended.
    pub(crate) messages_max: usize,
    /// The bytes of their bodies, with [`EVENT_BYTES`] for each.
    pub(crate) bytes_max: usize,
    /// Requests under way.
    pub(crate) in_flight_max: usize,
    /// The first pause before a retry, in milliseconds. It doubles with each one.
    pub(crate) retry_pause_ms: u64,
    /// The longest pause, also one that the backend asks for.
    pub(crate) retry_pause_ms_max: u64,
    /// The limits of the breaker.
    pub(crate) breaker: BreakerLimits,
}

/// The terms on which an event waits and is sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The time after which it ends without a result.
    pub(crate) deadline_ms: u64,
    /// The time that one request may take.
    pub(crate) request_timeout_ms: u64,
    /// The number of requests for it.
    pub(crate) attempts_max: u32,
    /// True if it waits while the breaker is open, false if it ends then.
    pub(crate) waits_when_down: bool,
    /// True if it may be sent again although the backend may have processed it.
    pub(crate) is_repeatable: bool,
}

/// Names an event.
pub(crate) type EventId = u64;

/// The charge for an event beside its body.
pub(crate) const EVENT_BYTES: usize = 256;

/// The reason why an event was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The queue is full.
    Full,
    /// The breaker is open, and the event does not wait.
    Down,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The backend has answered.
    Answered,
    /// The backend has answered that it refuses this request: the same request would be refused again.
    Rejected,
    /// No answer, or none that can be used.
    Failed {
        /// True if the backend may have processed the request.
        was_sent: bool,
        /// True if the same request would have the same result.
        is_final: bool,
        /// The pause that the backend asks for.
        retry_after_ms: Option<u64>,
    },
}

/// The end of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The backend has answered.
    Answered,
    /// Its last request has failed.
    Failed,
    /// Its time was over before a request for it succeeded.
    Late,
    /// The breaker has opened.
    Down,
}

/// A request to send.
#[derive(Debug)]
pub(crate) struct Started<'a, T> {
    pub(crate) id: EventId,
    /// The time that it may take.
    pub(crate) timeout_ms: u64,
    /// True for a retry.
    pub(crate) is_retry: bool,
    pub(crate) content: &'a T,
}

/// The outcome of a request: the events that have ended with it, and the change of the breaker.
#[derive(Debug)]
pub(crate) struct Outcome<T> {
    pub(crate) ended: Vec<(T, End)>,
    pub(crate) breaker_changed: bool,
}

#[derive(Debug)]
struct Event<T> {
    content: T,
    session: Option<Arc<str>>,
    bytes: usize,
    terms: Terms,
    attempts: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Behind another event of its session, or in `ready`.
    Waiting,
    InFlight,
    /// Until this time.
    Retry(u64),
}

/// The queue of a backend.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    limits: QueueLimits,
    breaker: Breaker,
    random: Rng,
    events: HashMap<EventId, Event<T>>,
    /// The events of each session in their order; the first one is ready, under way or waits for a retry.
    sessions: HashMap<Arc<str>, VecDeque<EventId>>,
    /// The first events of their sessions that may start, the oldest first.
    ready: BTreeSet<EventId>,
    /// Deadlines, and the times of retries.
    timers: BTreeSet<(u64, EventId)>,
    bytes: usize,
    in_flight: usize,
    next: EventId,
}

impl<T> Queue<T> {
    pub(crate) fn new(limits: QueueLimits, random: Rng) -> Queue<T> {
        Queue {
            limits,
            breaker: Breaker::new(limits.breaker),
            random,
            events: HashMap::new(),
            sessions: HashMap::new(),
            ready: BTreeSet::new(),
            timers: BTreeSet::new(),
            bytes: 0,
            in_flight: 0,
            next: 0,
        }
    }

    /// Events that have not ended.
    pub(crate) fn messages(&self) -> usize {
        self.events.len()
    }

    /// Their bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The state of the breaker.
    pub(crate) fn breaker(&self) -> State {
        self.breaker.state()
    }

    /// Adds an event to the events of its session.
    ///
    /// # Errors
    /// Returns the event with the reason why it cannot wait.
    pub(crate) fn push(
        &mut self,
        now_ms: u64,
        session: Option<&Arc<str>>,
        body_bytes: usize,
        terms: Terms,
        content: T,
    ) -> Result<EventId, (Refused, T)> {
        if !terms.waits_when_down && !self.breaker.admits(now_ms) {
            return Err((Refused::Down, content));
        }
        let bytes = body_bytes + EVENT_BYTES;
        if self.events.len() >= self.limits.messages_max || self.bytes + bytes > self.limits.bytes_max {
            return Err((Refused::Full, content));
        }
        let id = self.next;
        self.next += 1;
        let is_first = match session {
            Some(session) => {
                let events = self.sessions.entry(session.clone()).or_default();
                events.push_back(id);
                events.len() == 1
            }
            None => true,
        };
        if is_first {
            self.ready.insert(id);
        }
        self.timers.insert((terms.deadline_ms, id));
        self.bytes += bytes;
        let session = session.cloned();
        self.events.insert(id, Event { content, session, bytes, terms, attempts: 0, stage: Stage::Waiting });
        Ok(id)
    }

    /// Returns the next request to send, if one may start now.
    pub(crate) fn start(&mut self, now_ms: u64) -> Option<Started<'_, T>> {
        if self.in_flight >= self.limits.in_flight_max || !self.breaker.admits(now_ms) {
            return None;
        }
        let id = self.ready.pop_first()?;
        let event = self.events.get_mut(&id)?;
        event.stage = Stage::InFlight;
        event.attempts += 1;
        self.in_flight += 1;
        self.breaker.started();
        let left_ms = event.terms.deadline_ms.saturating_sub(now_ms).max(1);
        let timeout_ms = event.terms.request_timeout_ms.min(left_ms);
        Some(Started { id, timeout_ms, is_retry: event.attempts > 1, content: &event.content })
    }

    /// Takes the result of a request that [`Queue::start`] has returned.
    pub(crate) fn finish(&mut self, now_ms: u64, id: EventId, attempt: Attempt) -> Outcome<T> {
        let mut outcome = Outcome { ended: Vec::new(), breaker_changed: false };
        let Some(event) = self.events.get(&id).filter(|event| event.stage == Stage::InFlight) else { return outcome };
        let (terms, attempts) = (event.terms, event.attempts);
        self.in_flight -= 1;
        let (was_sent, is_final, retry_after_ms) = match attempt {
            Attempt::Answered | Attempt::Rejected => {
                outcome.breaker_changed = self.breaker.succeeded();
                let end = if attempt == Attempt::Answered { End::Answered } else { End::Failed };
                outcome.ended.extend(self.remove(id).map(|content| (content, end)));
                return outcome;
            }
            Attempt::Failed { was_sent, is_final, retry_after_ms } => (was_sent, is_final, retry_after_ms),
        };
        outcome.breaker_changed = self.breaker.failed(now_ms, &mut self.random);
        let pause_ms = self.pause_ms(attempts).max(retry_after_ms.unwrap_or(0)).min(self.limits.retry_pause_ms_max);
        let at_ms = now_ms.saturating_add(pause_ms);
        let is_retried = !is_final
            && (terms.is_repeatable || !was_sent)
            && attempts < terms.attempts_max
            && at_ms < terms.deadline_ms
            && (terms.waits_when_down || self.breaker.state() == State::Closed);
        match self.events.get_mut(&id) {
            Some(event) if is_retried => {
                event.stage = Stage::Retry(at_ms);
                self.timers.insert((at_ms, id));
            }
            _ => outcome.ended.extend(self.remove(id).map(|content| (content, End::Failed))),
        }
        if outcome.breaker_changed {
            outcome.ended.extend(self.end_waiting_for_closed().into_iter().map(|content| (content, End::Down)));
        }
        outcome
    }

    /// Ends the events whose time is over, and makes those ready whose pause is over.
    pub(crate) fn tick(&mut self, now_ms: u64) -> Vec<(T, End)> {
        let mut ended = Vec::new();
        while let Some(&(at_ms, id)) = self.timers.first().filter(|(at_ms, _)| *at_ms <= now_ms) {
            self.timers.pop_first();
            let Some(event) = self.events.get_mut(&id) else { continue };
            match event.stage {
                Stage::Retry(retry_ms) if retry_ms == at_ms => {
                    event.stage = Stage::Waiting;
                    self.ready.insert(id);
                }
                // Its request ends at the deadline, too.
                Stage::InFlight => {}
                Stage::Waiting | Stage::Retry(_) => ended.extend(self.remove(id).map(|content| (content, End::Late))),
            }
        }
        ended
    }

    /// The time at which [`Queue::tick`] and [`Queue::start`] have something to do, if no request ends before.
    pub(crate) fn wake_at_ms(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(at_ms, _)| *at_ms);
        let breaker = match self.breaker.state() {
            State::Open { until_ms } if !self.ready.is_empty() => Some(until_ms),
            _ => None,
        };
        timer.into_iter().chain(breaker).min()
    }

    /// The pause after this number of requests.
    fn pause_ms(&mut self, attempts: u32) -> u64 {
        let doubled = self.limits.retry_pause_ms.saturating_mul(1 << (attempts - 1).min(30));
        with_jitter(doubled.min(self.limits.retry_pause_ms_max), &mut self.random)
    }

    /// Removes an event that is not under way any more. The next one of its session becomes ready.
    fn remove(&mut self, id: EventId) -> Option<T> {
        let event = self.events.remove(&id)?;
        self.bytes -= event.bytes;
        self.ready.remove(&id);
        self.timers.remove(&(event.terms.deadline_ms, id));
        if let Stage::Retry(at_ms) = event.stage {
            self.timers.remove(&(at_ms, id));
        }
        if let Some(session) = event.session
            && let Some(events) = self.sessions.get_mut(&session)
        {
            let was_first = events.front() == Some(&id);
            events.retain(|other| *other != id);
            match events.front() {
                Some(next) if was_first => _ = self.ready.insert(*next),
                Some(_) => {}
                None => _ = self.sessions.remove(&session),
            }
        }
        Some(event.content)
    }

    /// Removes the events that do not wait while the breaker is open, in their order.
    fn end_waiting_for_closed(&mut self) -> Vec<T> {
        let ends = |event: &Event<T>| !event.terms.waits_when_down && event.stage != Stage::InFlight;
        let mut ids: Vec<EventId> = self.events.iter().filter(|(_, event)| ends(event)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}

#[cfg(test)]
mod tests;
