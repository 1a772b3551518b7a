//! The circuit breaker of a backend.
//!
//! It opens after some failures in a row. While it is open, no request is sent. After a pause it is half-open: one request is sent, and
//! its result closes the breaker, or opens it again for a pause twice as long.
//!
//! Any answer by HTTP is a success: the backend is up. What one client sends, again and again, must not open the breaker for all: an event
//! that no connection could be made for counts once, and all requests of an owner without an answer together count once.

use std::collections::HashSet;
use std::sync::Arc;

use fastrand::Rng;

use crate::owner::Owner;
use crate::settings::WebhookSettings;

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Requests are sent.
    Closed,
    /// No request is sent until this time.
    Open {
        /// In milliseconds, on the clock of the caller.
        until_ms: u64,
    },
    /// One request is under way, which decides.
    HalfOpen,
}

/// The cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// No connection could be made for an event. Its content has no part in this.
    Unreachable { event: u64 },
    /// The backend did not answer in time, or broke off. The content may be the cause, so all of one owner is one failure.
    Silent { owner: Owner },
}

/// The circuit breaker of a backend.
#[derive(Debug)]
pub(crate) struct Breaker {
    settings: Arc<WebhookSettings>,
    state: State,
    /// The failures since the last success; at most as many as open it.
    failures: HashSet<Fault>,
    /// The next pause, before jitter.
    pause_ms: u64,
}

impl Breaker {
    pub(crate) fn new(settings: Arc<WebhookSettings>) -> Breaker {
        Breaker { state: State::Closed, failures: HashSet::new(), pause_ms: settings.breaker_pause_ms, settings }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// True if a request may start at this time. An open breaker whose pause is over lets one request start.
    pub(crate) fn admits(&self, now_ms: u64) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { until_ms } => until_ms <= now_ms,
            State::HalfOpen => false,
        }
    }

    /// Notes that a request starts, after [`Breaker::admits`].
    pub(crate) fn started(&mut self) {
        if let State::Open { .. } = self.state {
            self.state = State::HalfOpen;
        }
    }

    /// Notes that the backend has answered. True if this closes the breaker.
    pub(crate) fn succeeded(&mut self) -> bool {
        self.failures.clear();
        self.pause_ms = self.settings.breaker_pause_ms;
        std::mem::replace(&mut self.state, State::Closed) != State::Closed
    }

    /// Notes that a request has failed. True if this opens a closed breaker.
    pub(crate) fn failed(&mut self, now_ms: u64, fault: Fault, random: &mut Rng) -> bool {
        match self.state {
            State::Closed => {
                self.failures.insert(fault);
                if self.failures.len() < self.settings.breaker_failures {
                    return false;
                }
                self.failures.clear();
                self.open(now_ms, random);
                true
            }
            State::HalfOpen => {
                self.open(now_ms, random);
                false
            }
            // A request that was under way when it opened.
            State::Open { .. } => false,
        }
    }

    fn open(&mut self, now_ms: u64, random: &mut Rng) {
        let pause_ms = with_jitter(self.pause_ms, random);
        self.state = State::Open { until_ms: now_ms.saturating_add(pause_ms) };
        self.pause_ms = self.pause_ms.saturating_mul(2).min(self.settings.breaker_pause_ms_max);
    }
}

/// A random time between half of this one and all of it, so that many who wait do not come back at once.
pub(crate) fn with_jitter(pause_ms: u64, random: &mut Rng) -> u64 {
    random.u64(pause_ms / 2..=pause_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> (Breaker, Rng) {
        let settings = WebhookSettings {
            breaker_failures: 3,
            breaker_pause_ms: 1_000,
            breaker_pause_ms_max: 3_000,
            ..WebhookSettings::default()
        };
        (Breaker::new(settings.into()), Rng::with_seed(1))
    }

    fn fault(number: u64) -> Fault {
        Fault::Unreachable { event: number }
    }

    fn until_ms(breaker: &Breaker) -> u64 {
        match breaker.state() {
            State::Open { until_ms } => until_ms,
            other => panic!("not open: {other:?}"),
        }
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_between_them_does_not() {
        let (mut breaker, mut random) = breaker();
        assert!(!breaker.failed(0, fault(1), &mut random));
        assert!(!breaker.failed(0, fault(2), &mut random));
        assert!(!breaker.succeeded());
        assert!(!breaker.failed(0, fault(3), &mut random));
        assert!(!breaker.failed(0, fault(4), &mut random));
        assert!(breaker.admits(0));
        assert!(breaker.failed(0, fault(5), &mut random), "the third in a row opens it");
        assert!(!breaker.admits(0));
    }

    #[test]
    fn what_one_owner_sends_does_not_open_it_however_often_it_fails() {
        let (mut breaker, mut random) = breaker();
        for _ in 0..100 {
            assert!(!breaker.failed(0, Fault::Silent { owner: Owner::number(7) }, &mut random));
            assert!(!breaker.failed(0, Fault::Unreachable { event: 7 }, &mut random), "a retry");
        }
        assert!(breaker.failed(0, Fault::Silent { owner: Owner::number(8) }, &mut random), "the third cause");
    }

    #[test]
    fn after_the_pause_one_request_decides() {
        let (mut breaker, mut random) = breaker();
        for number in 0..3 {
            breaker.failed(0, fault(number), &mut random);
        }
        let until = until_ms(&breaker);
        assert!((500..=1_000).contains(&until), "{until}");
        assert!(!breaker.admits(until - 1));
        assert!(breaker.admits(until));
        breaker.started();
        assert!(!breaker.admits(until + 10_000), "a second request waits for the result of the first");
        assert!(breaker.succeeded(), "it closes");
        assert!(breaker.admits(until));
    }

    #[test]
    fn each_failed_try_doubles_the_pause_up_to_a_limit() {
        let (mut breaker, mut random) = breaker();
        for number in 0..3 {
            breaker.failed(0, fault(number), &mut random);
        }
        let mut now = until_ms(&breaker);
        for longest in [2_000, 3_000, 3_000] {
            breaker.started();
            assert!(!breaker.failed(now, fault(9), &mut random), "it was open before");
            let pause = until_ms(&breaker) - now;
            assert!((longest / 2..=longest).contains(&pause), "{pause} of {longest}");
            now = until_ms(&breaker);
        }
    }

    #[test]
    fn a_late_failure_does_not_prolong_the_pause() {
        let (mut breaker, mut random) = breaker();
        for number in 0..3 {
            breaker.failed(0, fault(number), &mut random);
        }
        let until = until_ms(&breaker);
        assert!(!breaker.failed(until - 1, fault(9), &mut random));
        assert_eq!(until_ms(&breaker), until);
    }
}
