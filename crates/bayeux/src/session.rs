//! The life of a session in the protocol: it decides when a connect is answered or held, and when silence ends the session.
//!
//! ```text
//!            handshake                 first connect            later connects
//!   (none) ────────────▶ Handshaken ────────────────▶ Waiting ◀──────────────▶ Held
//!                            │                           │  answered / time out   │
//!                            │ silence                   │ silence                │ kicked
//!                            ▼                           ▼                        ▼
//!                         (expired)                   (expired)                 Ending ──▶ (gone)
//! ```
//!
//! `Held` never expires: a client that waits is alive. In every other state a deadline is armed
//! (CometD 9: `interval + maxInterval` after a connect reply; other messages push it to now + `maxInterval`).
//! The machine knows neither sockets nor a clock: time comes in as milliseconds.

use crate::advice::{Advice, ClientAdvice};

/// The server's timing, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The time for which a connect is held.
    pub timeout_ms: u64,
    /// The client's pause between connects.
    pub interval_ms: u64,
    /// The grace after `interval_ms` before a silent session expires.
    pub max_interval_ms: u64,
    /// The longest hold time that a client may request, and the longest sum of its pause and its grace.
    pub client_max_ms: u64,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has shaken hands and not connected yet.
    Handshaken { expires_ms: u64 },
    /// No connect is held.
    Waiting { expires_ms: u64 },
    /// A connect is held until `until_ms`. `alive_ms` after that the silence of the client begins, unless the connect is
    /// answered later. Mostly it is negative.
    Held { until_ms: u64, alive_ms: i32 },
    /// The server has ended it. Its client gets to know with its next connect.
    Ending { expires_ms: u64 },
}

/// The protocol state of one session.
#[derive(Clone, Debug)]
pub struct Session {
    state: State,
    requested: RequestedTiming,
    /// True if the current connect contained advice: then its reply contains advice, too.
    asked: bool,
    /// The timeout and interval last advised to the client; `None` if unknown.
    last_advised: Option<(u32, u32)>,
}

/// The times that a client has requested, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedTiming {
    /// Its pause after the current connect only.
    pub interval_ms: Option<u32>,
    /// Its grace, if it is longer than the server's. It applies until the client requests another.
    pub max_interval_ms: Option<u32>,
}

/// The stage of a session: the part of its state that survives a restart of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has shaken hands and not connected yet.
    New,
    /// It has connected.
    Connected,
    /// The server has ended it, and its client does not know yet.
    Ending,
}

/// The circumstances of a connect.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances {
    /// The advice of the client.
    pub advice: Option<ClientAdvice>,
    /// True if the connection may hold this connect (over HTTP: it came alone, and its browser has no surplus).
    pub may_hold: bool,
    /// True if messages wait that a held connect would deliver at once.
    pub queued: bool,
}

/// The decision on a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer it now.
    Answer,
    /// Hold it until the given time in milliseconds, or until a message comes.
    Hold {
        /// The latest time of the answer.
        until_ms: u64,
    },
    /// The server has ended this session: deliver the waiting messages and advise `none`.
    Disconnect,
}

/// A deadline of the session that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The held connect has to be answered.
    Connect,
    /// The client was silent for too long: the session ends.
    Expiry,
}

impl Session {
    /// A session that has just shaken hands.
    pub fn new(now_ms: u64, terms: &Terms) -> Session {
        Session {
            state: State::Handshaken { expires_ms: now_ms + terms.interval_ms + terms.max_interval_ms },
            requested: RequestedTiming::default(),
            asked: false,
            last_advised: Some((clamp(terms.timeout_ms), clamp(terms.interval_ms))),
        }
    }

    /// A session stored by an earlier run of the server. Its grace starts again, and its next connect reply carries the advice that is valid now.
    pub fn restored(now_ms: u64, terms: &Terms, stage: Stage, requested: RequestedTiming) -> Session {
        let mut session = Session { requested, last_advised: None, ..Session::new(now_ms, terms) };
        let expires_ms = session.expiry(now_ms, terms);
        match stage {
            Stage::New => {}
            Stage::Connected => session.state = State::Waiting { expires_ms },
            Stage::Ending => session.end(now_ms, terms),
        }
        session
    }

    /// Its stage.
    pub fn stage(&self) -> Stage {
        match self.state {
            State::Handshaken { .. } => Stage::New,
            State::Waiting { .. } | State::Held { .. } => Stage::Connected,
            State::Ending { .. } => Stage::Ending,
        }
    }

    /// The times that its client has requested.
    pub fn requested(&self) -> RequestedTiming {
        self.requested
    }

    /// Requests a grace for the session, with its handshake (CometD's `maxInterval`). Returns the grace that applies from its
    /// first connect on, in milliseconds: at least the server's, at most the limit for clients. Until then the server's grace
    /// applies, because a session that was never used needs no longer one.
    pub fn ask_max_interval(&mut self, terms: &Terms, asked_ms: i64) -> u64 {
        self.requested.max_interval_ms = Some(clamp(u64::try_from(asked_ms).unwrap_or(0)));
        self.grace_ms(terms)
    }

    /// A connect has come. A connect that was held before is superseded by it.
    pub fn connect(&mut self, now_ms: u64, terms: &Terms, circumstances: &Circumstances) -> Verdict {
        let cap = |ms: i64| u64::try_from(ms).unwrap_or(0).min(terms.client_max_ms);
        let advice = circumstances.advice.unwrap_or_default();
        // A connect that was on its way for long must not forget what its client is busy with since.
        let alive_ms = now_ms.max(self.alive_ms(terms));
        self.asked = circumstances.advice.is_some();
        // A negative interval means "do not retry" (§1.4): nothing to wait for.
        self.requested.interval_ms = advice.interval_ms.map(|ms| clamp(cap(ms)));
        if let Some(ms) = advice.max_interval_ms {
            self.requested.max_interval_ms = Some(clamp(u64::try_from(ms).unwrap_or(0)));
        }
        let timeout_ms = advice.timeout_ms.map_or(terms.timeout_ms, cap);
        let expires_ms = self.expiry(alive_ms, terms);
        match self.state {
            State::Ending { .. } => Verdict::Disconnect,
            State::Handshaken { .. } => {
                self.state = State::Waiting { expires_ms };
                Verdict::Answer
            }
            State::Waiting { .. } | State::Held { .. } => {
                if circumstances.may_hold && !circumstances.queued && timeout_ms > 0 {
                    let until_ms = now_ms + timeout_ms;
                    self.state = State::Held { until_ms, alive_ms: difference(alive_ms, until_ms) };
                    Verdict::Hold { until_ms }
                } else {
                    self.state = State::Waiting { expires_ms };
                    Verdict::Answer
                }
            }
        }
    }

    /// The held connect is being answered, or its connection is gone: the wait for the next one starts.
    pub fn release(&mut self, now_ms: u64, terms: &Terms) {
        if let State::Held { .. } = self.state {
            self.state = State::Waiting { expires_ms: self.expiry(now_ms.max(self.alive_ms(terms)), terms) };
        }
    }

    /// The time until which its client cannot be silent, after its first connect.
    fn alive_ms(&self, terms: &Terms) -> u64 {
        match self.state {
            State::Waiting { expires_ms } => expires_ms.saturating_sub(self.expiry(0, terms)),
            State::Held { until_ms, alive_ms } => until_ms.saturating_add_signed(alive_ms.into()),
            State::Handshaken { .. } | State::Ending { .. } => 0,
        }
    }

    /// Another message of the client has come, so it is alive. A time in the future: the client is busy until then.
    #[inline]
    pub fn received(&mut self, now_ms: u64, terms: &Terms) {
        let grace_ms = if self.is_new() { terms.max_interval_ms } else { self.grace_ms(terms) };
        if let State::Handshaken { expires_ms } | State::Waiting { expires_ms } = &mut self.state {
            *expires_ms = (*expires_ms).max(now_ms + grace_ms);
        }
        if let State::Held { until_ms, alive_ms } = &mut self.state {
            *alive_ms = (*alive_ms).max(difference(now_ms, *until_ms));
        }
    }

    /// The client was taking a response until now: its silence counts from now on.
    pub fn resume(&mut self, now_ms: u64, terms: &Terms) {
        let (silent_ms, ended_ms) = (self.expiry(now_ms, terms), now_ms + terms.interval_ms + terms.max_interval_ms);
        match &mut self.state {
            State::Handshaken { expires_ms } | State::Waiting { expires_ms } => {
                *expires_ms = silent_ms.max(*expires_ms)
            }
            State::Ending { expires_ms } => *expires_ms = ended_ms.max(*expires_ms),
            State::Held { .. } => {}
        }
    }

    /// Other terms hold from now on. A held connect is answered when it was to be. A client that is silent has been so for as long as
    /// before. Before its first connect the session expires as it was to.
    pub fn terms_changed(&mut self, before: &Terms, terms: &Terms) {
        let alive_ms = self.alive_ms(before);
        let silent_ms = self.expiry(alive_ms, terms);
        if let State::Waiting { expires_ms } = &mut self.state {
            *expires_ms = silent_ms;
        }
    }

    /// The server ends the session. One more connect may fetch the waiting messages.
    pub fn end(&mut self, now_ms: u64, terms: &Terms) {
        self.state = State::Ending { expires_ms: now_ms + terms.interval_ms + terms.max_interval_ms };
    }

    /// The advice of the next connect reply: always when the request carried advice, otherwise when
    /// it differs from the last one (CometD 9, `takeAdvice`).
    pub fn take_advice(&mut self, terms: &Terms) -> Option<Advice> {
        let interval_ms = self.requested.interval_ms.unwrap_or(clamp(terms.interval_ms));
        let next = (clamp(terms.timeout_ms), interval_ms);
        let is_due = self.asked || self.last_advised != Some(next);
        self.last_advised = Some(next);
        self.asked = false;
        is_due.then(|| Advice::retry(u64::from(next.0), u64::from(next.1)))
    }

    /// True if a connect is held.
    pub fn is_held(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    /// True if the first connect is still to come.
    pub fn is_new(&self) -> bool {
        matches!(self.state, State::Handshaken { .. })
    }

    /// True if the server has ended it.
    pub fn is_ending(&self) -> bool {
        matches!(self.state, State::Ending { .. })
    }

    /// The next deadline, in milliseconds.
    pub fn deadline_ms(&self) -> u64 {
        match self.state {
            State::Held { until_ms, .. } => until_ms,
            State::Handshaken { expires_ms } | State::Waiting { expires_ms } | State::Ending { expires_ms } => {
                expires_ms
            }
        }
    }

    /// The action that is due now, if any.
    pub fn due(&self, now_ms: u64) -> Option<Due> {
        if now_ms < self.deadline_ms() {
            return None;
        }
        Some(if self.is_held() { Due::Connect } else { Due::Expiry })
    }

    fn expiry(&self, now_ms: u64, terms: &Terms) -> u64 {
        let interval_ms = self.requested.interval_ms.map_or(terms.interval_ms, u64::from);
        now_ms + interval_ms + self.grace_ms(terms)
    }

    /// The time that it survives the silence of its client, after the client's pause, in milliseconds.
    pub fn grace_ms(&self, terms: &Terms) -> u64 {
        let requested_ms = self.requested.max_interval_ms.map_or(0, u64::from);
        let pause_ms = self.requested.interval_ms.map_or(0, u64::from);
        requested_ms.min(terms.client_max_ms.saturating_sub(pause_ms)).max(terms.max_interval_ms)
    }
}

/// The time from `to_ms` to `ms`, in milliseconds.
fn difference(ms: u64, to_ms: u64) -> i32 {
    i32::try_from(ms as i64 - to_ms as i64).unwrap_or(i32::MIN)
}

/// Times on the wire fit 32 bits (49 days); greater values are reduced to that.
fn clamp(ms: u64) -> u32 {
    u32::try_from(ms).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { timeout_ms: 20_000, interval_ms: 0, max_interval_ms: 10_000, client_max_ms: 600_000 };

    fn asking(timeout_ms: Option<i64>, interval_ms: Option<i64>) -> Circumstances {
        Circumstances {
            advice: Some(ClientAdvice { timeout_ms, interval_ms, ..ClientAdvice::default() }),
            may_hold: true,
            queued: false,
        }
    }

    fn plain() -> Circumstances {
        Circumstances { advice: None, may_hold: true, queued: false }
    }

    fn connected() -> Session {
        let mut session = Session::new(0, &TERMS);
        assert_eq!(session.connect(0, &TERMS, &plain()), Verdict::Answer);
        session
    }

    #[test]
    fn the_first_connect_is_answered_at_once_and_the_next_is_held() {
        let mut session = connected();
        assert_eq!(session.connect(5, &TERMS, &plain()), Verdict::Hold { until_ms: 20_005 });
    }

    #[test]
    fn a_connect_is_not_held_if_messages_wait_or_the_connection_cannot_or_the_client_asks_for_zero() {
        let mut session = connected();
        let queued = Circumstances { queued: true, ..plain() };
        let refused = Circumstances { may_hold: false, ..plain() };
        for circumstances in [queued, refused, asking(Some(0), None), asking(Some(-7), None)] {
            assert_eq!(session.connect(9, &TERMS, &circumstances), Verdict::Answer);
        }
    }

    #[test]
    fn a_silent_session_expires_after_interval_and_grace() {
        let session = connected();
        assert_eq!(session.due(9_999), None);
        assert_eq!(session.due(10_000), Some(Due::Expiry));
    }

    #[test]
    fn other_terms_count_from_the_last_sign_of_life() {
        let longer = Terms { timeout_ms: 5_000, max_interval_ms: 30_000, ..TERMS };
        let mut session = connected();
        session.received(4_000, &TERMS);
        session.terms_changed(&TERMS, &longer);
        assert_eq!(session.deadline_ms(), 34_000);
        session.terms_changed(&longer, &TERMS);
        assert_eq!(session.deadline_ms(), 14_000, "and back");
        assert_eq!(session.connect(5_000, &longer, &plain()), Verdict::Hold { until_ms: 10_000 });
        session.terms_changed(&longer, &TERMS);
        assert_eq!(session.deadline_ms(), 10_000, "a held connect is answered when it was to be");
        session.release(10_000, &TERMS);
        assert_eq!((session.deadline_ms(), session.take_advice(&longer).is_some()), (20_000, true));
    }

    #[test]
    fn a_held_connect_never_expires_but_is_answered() {
        let mut session = connected();
        session.connect(0, &TERMS, &plain());
        assert_eq!(session.due(19_999), None);
        assert_eq!(session.due(20_000), Some(Due::Connect));
        session.release(20_000, &TERMS);
        assert_eq!(session.due(30_000), Some(Due::Expiry));
    }

    #[test]
    fn a_client_that_is_busy_beyond_the_answer_of_its_connect_is_silent_from_then_on() {
        for (busy_until_ms, expires_ms) in [(5_000, 30_000), (19_000, 30_000), (50_000, 60_000)] {
            let mut session = connected();
            session.connect(0, &TERMS, &plain());
            session.received(busy_until_ms, &TERMS);
            assert_eq!(session.deadline_ms(), 20_000, "the connect is answered in time");
            session.release(20_000, &TERMS);
            assert_eq!(session.deadline_ms(), expires_ms);
        }
    }

    /// It was on its way while a later one was answered with much to read.
    #[test]
    fn a_connect_does_not_end_the_time_for_which_its_client_is_busy() {
        for circumstances in [plain(), asking(Some(0), None)] {
            let mut session = connected();
            session.received(50_000, &TERMS);
            session.connect(1_000, &TERMS, &circumstances);
            session.release(2_000, &TERMS);
            assert_eq!(session.deadline_ms(), 60_000);
        }
    }

    #[test]
    fn any_message_pushes_the_expiry_but_never_pulls_it() {
        let mut session = connected();
        session.received(9_000, &TERMS);
        assert_eq!(session.deadline_ms(), 19_000);
        session.connect(9_000, &TERMS, &asking(Some(0), Some(60_000)));
        session.received(9_001, &TERMS);
        assert_eq!(session.deadline_ms(), 79_000);
    }

    #[test]
    fn advice_is_sent_only_if_the_client_sends_some_or_it_has_changed() {
        let mut session = connected();
        assert_eq!(session.take_advice(&TERMS), None);
        session.connect(0, &TERMS, &asking(Some(500), Some(7_000)));
        assert_eq!(session.take_advice(&TERMS), Some(Advice::retry(20_000, 7_000)));
        session.connect(0, &TERMS, &plain());
        assert_eq!(session.take_advice(&TERMS), Some(Advice::retry(20_000, 0)));
        assert_eq!(session.take_advice(&TERMS), None);
        let other = Terms { timeout_ms: 5_000, ..TERMS };
        assert_eq!(session.take_advice(&other), Some(Advice::retry(5_000, 0)));
    }

    #[test]
    fn absurd_requested_times_are_capped() {
        let mut session = connected();
        assert_eq!(
            session.connect(0, &TERMS, &asking(Some(i64::MAX), Some(i64::MAX))),
            Verdict::Hold { until_ms: 600_000 }
        );
        session.release(0, &TERMS);
        assert_eq!(session.deadline_ms(), 610_000);
        let advice = ClientAdvice { interval_ms: Some(400_000), max_interval_ms: Some(i64::MAX), timeout_ms: Some(0) };
        session.connect(0, &TERMS, &Circumstances { advice: Some(advice), may_hold: true, queued: false });
        assert_eq!(session.deadline_ms(), 600_000, "a pause and a grace count together");
    }

    #[test]
    fn a_client_that_knows_it_will_sleep_gets_a_longer_grace_up_to_the_cap_and_never_a_shorter_one() {
        let mut session = Session::new(0, &TERMS);
        assert_eq!(session.ask_max_interval(&TERMS, 60_000), 60_000);
        session.received(0, &TERMS);
        assert_eq!(session.deadline_ms(), 10_000, "it has not connected yet");
        session.connect(0, &TERMS, &plain());
        assert_eq!((session.due(59_999), session.due(60_000)), (None, Some(Due::Expiry)));
        for (asked_ms, grace_ms) in [(i64::MAX, 600_000), (i64::MIN, 10_000), (5, 10_000)] {
            assert_eq!(Session::new(0, &TERMS).ask_max_interval(&TERMS, asked_ms), grace_ms);
        }
        let advice = Some(ClientAdvice { max_interval_ms: Some(30_000), ..ClientAdvice::default() });
        session.connect(0, &TERMS, &Circumstances { advice, may_hold: false, queued: false });
        session.connect(0, &TERMS, &Circumstances { may_hold: false, ..plain() });
        assert_eq!(session.deadline_ms(), 30_000, "a connect may ask, too, and the request lasts");
    }

    #[test]
    fn a_restored_session_keeps_its_stage_and_gets_the_advice_that_is_valid_now() {
        let requested = RequestedTiming { interval_ms: Some(500), max_interval_ms: Some(60_000) };
        let mut session = Session::restored(7, &TERMS, Stage::Connected, requested);
        assert_eq!(
            (session.stage(), session.requested(), session.deadline_ms()),
            (Stage::Connected, requested, 60_507)
        );
        assert_eq!(session.connect(8, &TERMS, &plain()), Verdict::Hold { until_ms: 20_008 });
        assert_eq!(session.take_advice(&TERMS), Some(Advice::retry(20_000, 0)));
        let mut ended = Session::restored(0, &TERMS, Stage::Ending, requested);
        assert_eq!(ended.connect(1, &TERMS, &plain()), Verdict::Disconnect);
        assert!(Session::restored(0, &TERMS, Stage::New, requested).is_new());
    }

    #[test]
    fn the_next_connect_of_an_ended_session_is_answered_with_a_disconnect() {
        let mut session = connected();
        session.end(100, &TERMS);
        assert_eq!(session.connect(200, &TERMS, &plain()), Verdict::Disconnect);
        assert_eq!(session.due(10_100), Some(Due::Expiry));
    }
}
