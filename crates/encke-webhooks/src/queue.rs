//! The events of a backend that wait for their request, are under way, or wait for a retry: a machine without I/O and clock.
//!
//! The events of a session go one after the other: the next one starts when the one before has ended, with all its retries. Different
//! sessions go in parallel, up to a limit. The queue counts messages and bytes of all events that have not ended.
//!
//! Room in the queue, and the requests under way, are shared by the owners of events ([`Shares`]): no owner can take them from the others.
//! Some of both is for urgent events, so that they have room when others fill the rest.
//!
//! The caller drives it: [`Queue::push`] adds an event, [`Queue::start`] returns the next one to send, [`Queue::finish`] takes the result
//! of a request, [`Queue::tick`] ends events whose time is over. Each event ends once.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use encke::{Amount, Budget, Share, Shares, Urgency};
use fastrand::Rng;

use crate::breaker::{Breaker, Fault, State, with_jitter};
use crate::owner::Owner;
use crate::settings::WebhookSettings;
use lines::Lines;

mod lines;

/// The terms on which an event waits and is sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The time after which it ends without a result.
    pub(crate) deadline_ms: u64,
    /// The time that one request may take.
    pub(crate) request_timeout_ms: u64,
    /// The number of requests for it.
    pub(crate) attempts_max: usize,
    /// True if it waits while the breaker is open, false if it ends then.
    pub(crate) waits_when_down: bool,
    /// True if it may be sent again although the backend may have processed it.
    pub(crate) is_repeatable: bool,
    /// Urgent events have a reserve of room.
    pub(crate) urgency: Urgency,
}

/// Names an event.
pub(crate) type EventId = u64;

/// The charge for an event beside its body.
pub(crate) const EVENT_BYTES: usize = 256;

/// The reason why an event was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The queue is full, or its owner has its share.
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
        /// The way in which it has failed.
        cause: Cause,
        /// True if the same request would have the same result.
        is_final: bool,
        /// The pause that the backend asks for.
        retry_after_ms: Option<u64>,
    },
}

/// The way in which a request has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// There was no connection to the backend.
    Unreachable,
    /// The backend has the request, and did not answer it in time, or broke off.
    Silent,
    /// The backend has answered that it did not process the request.
    Postponed,
    /// The backend has answered something that is no result. It may have processed the request.
    Unusable,
}

impl Cause {
    /// True if the backend has answered, so it is up.
    fn is_answer(self) -> bool {
        matches!(self, Cause::Postponed | Cause::Unusable)
    }
}

/// The end of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The backend has answered.
    Answered,
    /// The backend has answered, but with no result.
    Failed,
    /// The backend does not answer: the last request had no answer, or the breaker is open.
    Down,
    /// Its time was over before a request for it could start.
    Late,
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
    owner: Owner,
    /// Its room in the queue.
    share: Share<Owner>,
    terms: Terms,
    attempts: usize,
    /// True if the last request for it was answered.
    was_answered: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Behind another event of its session, or in a line.
    Waiting,
    /// With its share of the requests under way.
    InFlight(Share<Owner>),
    /// Until this time.
    Retry(u64),
}

/// The queue of a backend.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    settings: Arc<WebhookSettings>,
    breaker: Breaker,
    random: Rng,
    events: HashMap<EventId, Event<T>>,
    /// The events of each session in their order; the first one is ready, under way or waits for a retry.
    sessions: HashMap<Arc<str>, VecDeque<EventId>>,
    /// The first events of their sessions that may start: common and urgent ones.
    lines: [Lines; 2],
    /// Deadlines, and the times of retries.
    timers: BTreeSet<(u64, EventId)>,
    /// The room that owners have taken.
    room: Shares<Owner>,
    /// The requests of owners that are under way.
    in_flight: Shares<Owner>,
    next: EventId,
}

impl<T> Queue<T> {
    pub(crate) fn new(settings: Arc<WebhookSettings>, random: Rng) -> Queue<T> {
        Queue {
            breaker: Breaker::new(settings.clone()),
            settings,
            random,
            events: HashMap::new(),
            sessions: HashMap::new(),
            lines: Default::default(),
            timers: BTreeSet::new(),
            room: Shares::default(),
            in_flight: Shares::default(),
            next: 0,
        }
    }

    /// Events that have not ended.
    pub(crate) fn messages(&self) -> usize {
        self.room.used().count
    }

    /// Their bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.room.used().bytes
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
        owner: Owner,
        body_bytes: usize,
        terms: Terms,
        content: T,
    ) -> Result<EventId, (Refused, T)> {
        if !terms.waits_when_down && !self.breaker.admits(now_ms) {
            return Err((Refused::Down, content));
        }
        let budget = Budget::new(self.settings.queue_messages_max, self.settings.queue_bytes_max).with_urgent();
        let amount = Amount::one(body_bytes + EVENT_BYTES);
        let Ok(share) = self.room.take(&budget, owner, amount, terms.urgency) else {
            return Err((Refused::Full, content));
        };
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
            self.lines[line(terms.urgency)].insert(owner, id);
        }
        self.timers.insert((terms.deadline_ms, id));
        let (session, stage) = (session.cloned(), Stage::Waiting);
        let event = Event { content, session, owner, share, terms, attempts: 0, was_answered: false, stage };
        self.events.insert(id, event);
        Ok(id)
    }

    /// Returns the next request to send, if one may start now.
    pub(crate) fn start(&mut self, now_ms: u64) -> Option<Started<'_, T>> {
        if !self.breaker.admits(now_ms) {
            return None;
        }
        let budget = Budget::new(self.settings.requests_in_flight_max, usize::MAX).with_urgent();
        let of = |urgency| self.lines[line(urgency)].first().map(|first| (first, urgency));
        let mut first = [of(Urgency::Urgent), of(Urgency::Common)];
        first.sort_unstable_by_key(|first| first.map(|(order, _)| order));
        // If the first one of a line gets no share, nobody behind it does.
        let (id, owner, urgency, share) = first.into_iter().flatten().find_map(|((_, id, owner), urgency)| {
            let share = self.in_flight.take(&budget, owner, Amount::of(1), urgency).ok()?;
            Some((id, owner, urgency, share))
        })?;
        self.lines[line(urgency)].started(owner, id);
        let event = self.events.get_mut(&id)?;
        event.stage = Stage::InFlight(share);
        event.attempts += 1;
        self.breaker.started();
        let left_ms = event.terms.deadline_ms.saturating_sub(now_ms).max(1);
        let timeout_ms = event.terms.request_timeout_ms.min(left_ms);
        Some(Started { id, timeout_ms, is_retry: event.attempts > 1, content: &event.content })
    }

    /// Takes the result of a request that [`Queue::start`] has returned.
    pub(crate) fn finish(&mut self, now_ms: u64, id: EventId, attempt: Attempt) -> Outcome<T> {
        let mut outcome = Outcome { ended: Vec::new(), breaker_changed: false };
        let Some(event) = self.events.get_mut(&id) else { return outcome };
        let stage = std::mem::replace(&mut event.stage, Stage::Waiting);
        let Stage::InFlight(share) = stage else {
            event.stage = stage;
            return outcome;
        };
        let (terms, attempts, owner) = (event.terms, event.attempts, event.owner);
        self.in_flight.give_back(share);
        self.lines[line(terms.urgency)].ended(owner);
        let (cause, is_final, retry_after_ms) = match attempt {
            Attempt::Answered | Attempt::Rejected => {
                outcome.breaker_changed = self.breaker.succeeded();
                let end = if attempt == Attempt::Answered { End::Answered } else { End::Failed };
                outcome.ended.extend(self.remove(id).map(|content| (content, end)));
                return outcome;
            }
            Attempt::Failed { cause, is_final, retry_after_ms } => (cause, is_final, retry_after_ms),
        };
        event.was_answered = cause.is_answer();
        let fault = match cause {
            Cause::Unreachable => Some(Fault::Unreachable { event: id }),
            Cause::Silent => Some(Fault::Silent { owner }),
            Cause::Postponed | Cause::Unusable => None,
        };
        outcome.breaker_changed = match fault {
            Some(fault) => self.breaker.failed(now_ms, fault, &mut self.random),
            None => self.breaker.succeeded(),
        };
        let was_sent = matches!(cause, Cause::Silent | Cause::Unusable);
        let pause_ms = self.pause_ms(attempts).max(retry_after_ms.unwrap_or(0)).min(self.settings.retry_pause_ms_max);
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
            _ => {
                let end = if cause.is_answer() { End::Failed } else { End::Down };
                outcome.ended.extend(self.remove(id).map(|content| (content, end)));
            }
        }
        if outcome.breaker_changed && self.breaker.state() != State::Closed {
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
                    self.lines[line(event.terms.urgency)].insert(event.owner, id);
                }
                // Its request ends at the deadline, too.
                Stage::InFlight(_) => {}
                Stage::Waiting | Stage::Retry(_) => {
                    let end = match event.attempts {
                        0 => End::Late,
                        _ if event.was_answered => End::Failed,
                        _ => End::Down,
                    };
                    ended.extend(self.remove(id).map(|content| (content, end)));
                }
            }
        }
        ended
    }

    /// The time at which [`Queue::tick`] and [`Queue::start`] have something to do, if no request ends before.
    pub(crate) fn wake_at_ms(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(at_ms, _)| *at_ms);
        let breaker = match self.breaker.state() {
            State::Open { until_ms } if self.lines.iter().any(|lines| lines.first().is_some()) => Some(until_ms),
            _ => None,
        };
        timer.into_iter().chain(breaker).min()
    }

    /// The pause after this number of requests.
    fn pause_ms(&mut self, attempts: usize) -> u64 {
        let doubled = self.settings.retry_pause_ms.saturating_mul(1 << (attempts - 1).min(30));
        with_jitter(doubled.min(self.settings.retry_pause_ms_max), &mut self.random)
    }

    /// Removes an event that is not under way any more. The next one of its session becomes ready.
    fn remove(&mut self, id: EventId) -> Option<T> {
        let event = self.events.remove(&id)?;
        self.room.give_back(event.share);
        self.lines[line(event.terms.urgency)].remove(event.owner, id);
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
                Some(next) if was_first => {
                    if let Some(event) = self.events.get(next) {
                        self.lines[line(event.terms.urgency)].insert(event.owner, *next);
                    }
                }
                Some(_) => {}
                None => _ = self.sessions.remove(&session),
            }
        }
        Some(event.content)
    }

    /// Removes the events that do not wait while the breaker is open, in their order.
    fn end_waiting_for_closed(&mut self) -> Vec<T> {
        let ends = |event: &Event<T>| !event.terms.waits_when_down && !matches!(event.stage, Stage::InFlight(_));
        let mut ids: Vec<EventId> = self.events.iter().filter(|(_, event)| ends(event)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}

/// The index of the line for events of this urgency.
fn line(urgency: Urgency) -> usize {
    usize::from(urgency == Urgency::Urgent)
}

#[cfg(test)]
mod tests;
