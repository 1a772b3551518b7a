//! The queue under virtual time: single cases, and seeded runs against a backend with faults.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

fn settings() -> WebhookSettings {
    WebhookSettings {
        queue_messages_max: 100,
        queue_bytes_max: 100_000,
        requests_in_flight_max: 4,
        retry_pause_ms: 100,
        retry_pause_ms_max: 1_000,
        breaker_failures: 3,
        breaker_pause_ms: 1_000,
        breaker_pause_ms_max: 4_000,
        ..WebhookSettings::default()
    }
}

fn queue() -> Queue<&'static str> {
    Queue::new(settings().into(), Rng::with_seed(7))
}

/// A decision that ends when the backend is down.
fn decision(deadline_ms: u64) -> Terms {
    Terms {
        deadline_ms,
        request_timeout_ms: 500,
        attempts_max: 100,
        waits_when_down: false,
        is_repeatable: true,
        urgency: Urgency::Urgent,
    }
}

/// A notification, which waits.
fn notification(deadline_ms: u64) -> Terms {
    Terms { waits_when_down: true, ..decision(deadline_ms) }
}

const FAILED: Attempt = failed(Cause::Silent);

const fn failed(cause: Cause) -> Attempt {
    Attempt::Failed { cause, is_final: false, retry_after_ms: None }
}

/// Another owner each time.
fn somebody() -> Owner {
    static NEXT: AtomicU64 = AtomicU64::new(1_000);
    Owner::number(NEXT.fetch_add(1, Ordering::Relaxed))
}

fn named(name: &str) -> Option<Arc<str>> {
    Some(name.into())
}

/// Starts a request, and returns its event and time-out.
fn start<T: Copy>(queue: &mut Queue<T>, now_ms: u64) -> Option<(EventId, T, u64)> {
    queue.start(now_ms).map(|started| (started.id, *started.content, started.timeout_ms))
}

fn end<T>(queue: &mut Queue<T>, now_ms: u64, id: EventId, attempt: Attempt) -> Vec<(T, End)> {
    queue.finish(now_ms, id, attempt).ended
}

#[test]
fn events_of_a_session_go_one_after_another_and_sessions_in_parallel() {
    let mut queue = queue();
    for (name, event) in [("a", "a1"), ("a", "a2"), ("b", "b1")] {
        queue.push(0, named(name).as_ref(), somebody(), 10, decision(1_000), event).expect("room");
    }
    let (a1, content, _) = start(&mut queue, 0).expect("ready");
    assert_eq!(content, "a1");
    assert_eq!(start(&mut queue, 0).expect("ready").1, "b1");
    assert!(start(&mut queue, 0).is_none(), "a2 waits for a1");
    assert_eq!(end(&mut queue, 5, a1, Attempt::Answered), [("a1", End::Answered)]);
    assert_eq!(start(&mut queue, 5).expect("ready").1, "a2");
}

#[test]
fn a_retry_comes_before_the_next_event_of_its_session() {
    let mut queue = queue();
    queue.push(0, named("a").as_ref(), somebody(), 10, decision(1_000), "a1").expect("room");
    queue.push(0, named("a").as_ref(), somebody(), 10, decision(1_000), "a2").expect("room");
    let (a1, ..) = start(&mut queue, 0).expect("ready");
    assert!(end(&mut queue, 0, a1, FAILED).is_empty());
    assert!(start(&mut queue, 0).is_none(), "a pause comes first");
    let at_ms = queue.wake_at_ms().expect("a retry");
    assert!((50..=100).contains(&at_ms), "{at_ms}");
    assert!(queue.tick(at_ms).is_empty());
    let again = queue.start(at_ms).expect("ready");
    assert!(again.is_retry && *again.content == "a1");
}

#[test]
fn pauses_double_up_to_their_limit_and_follow_the_backend_up_to_it() {
    let mut queue = queue();
    Arc::make_mut(&mut queue.settings).breaker_failures = 1_000;
    queue.breaker = Breaker::new(queue.settings.clone());
    queue.push(0, None, somebody(), 10, notification(1_000_000), "n").expect("room");
    let mut now = 0;
    let mut pauses = Vec::new();
    for retry_after_ms in [None, None, None, None, None, None, Some(700), Some(60_000)] {
        let (id, ..) = start(&mut queue, now).expect("ready");
        assert!(
            end(&mut queue, now, id, Attempt::Failed { cause: Cause::Silent, is_final: false, retry_after_ms })
                .is_empty()
        );
        let at_ms = queue.wake_at_ms().expect("a retry");
        pauses.push(at_ms - now);
        now = at_ms;
        queue.tick(now);
    }
    for (pause, longest) in pauses.iter().zip([100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000]) {
        assert!((longest / 2..=longest).contains(pause), "{pauses:?}");
    }
    assert_eq!(pauses[7], 1_000, "no longer than the limit, whatever the backend asks for");
}

#[test]
fn a_decision_ends_at_its_deadline_and_its_last_request_too() {
    let mut queue = queue();
    queue.push(0, None, somebody(), 10, decision(600), "d").expect("room");
    let (id, _, timeout_ms) = start(&mut queue, 0).expect("ready");
    assert_eq!(timeout_ms, 500);
    assert!(end(&mut queue, 400, id, FAILED).is_empty());
    let now = queue.wake_at_ms().expect("a retry");
    queue.tick(now);
    let (id, _, timeout_ms) = start(&mut queue, now).expect("ready");
    assert_eq!(now + timeout_ms, 600);
    assert_eq!(end(&mut queue, 600, id, FAILED), [("d", End::Down)]);
    // One that never starts.
    Arc::make_mut(&mut queue.settings).requests_in_flight_max = 0;
    queue.push(600, None, somebody(), 10, decision(1_000), "late").expect("room");
    assert!(queue.tick(999).is_empty());
    assert_eq!(queue.tick(1_000), [("late", End::Late)]);
    assert_eq!((queue.messages(), queue.bytes(), queue.wake_at_ms()), (0, 0, None));
}

#[test]
fn a_call_that_may_have_been_processed_is_not_repeated() {
    let call = Terms { is_repeatable: false, ..decision(10_000) };
    let mut queue = queue();
    queue.push(0, None, somebody(), 10, call, "call").expect("room");
    let (id, ..) = start(&mut queue, 0).expect("ready");
    assert!(end(&mut queue, 0, id, failed(Cause::Postponed)).is_empty(), "the backend has not seen it");
    let now = queue.wake_at_ms().expect("a retry");
    queue.tick(now);
    let (id, ..) = start(&mut queue, now).expect("ready");
    assert_eq!(end(&mut queue, now, id, FAILED), [("call", End::Down)]);
}

#[test]
fn a_refusal_is_not_repeated_and_a_number_of_attempts_ends_a_notification() {
    let mut queue = queue();
    queue.push(0, None, somebody(), 10, notification(100_000), "rejected").expect("room");
    let (id, ..) = start(&mut queue, 0).expect("ready");
    assert_eq!(end(&mut queue, 0, id, Attempt::Rejected), [("rejected", End::Failed)]);
    queue.push(0, None, somebody(), 10, Terms { attempts_max: 2, ..notification(100_000) }, "twice").expect("room");
    let (id, ..) = start(&mut queue, 0).expect("ready");
    assert!(end(&mut queue, 0, id, FAILED).is_empty());
    let now = queue.wake_at_ms().expect("a retry");
    queue.tick(now);
    let (id, ..) = start(&mut queue, now).expect("ready");
    assert_eq!(end(&mut queue, now, id, FAILED), [("twice", End::Down)]);
}

#[test]
fn messages_and_bytes_have_a_limit_each() {
    let mut queue = queue();
    for _ in 0..100 {
        queue.push(0, None, somebody(), 10, notification(1_000), "n").expect("room");
    }
    assert_eq!(queue.push(0, None, somebody(), 10, notification(1_000), "n").expect_err("full").0, Refused::Full);
    queue.tick(1_000);
    assert_eq!(queue.messages(), 0);
    queue.push(1_000, None, somebody(), 60_000, notification(2_000), "large").expect("room");
    assert_eq!(
        queue.push(1_000, None, somebody(), 60_000, notification(2_000), "n").expect_err("full").0,
        Refused::Full
    );
    queue.push(1_000, None, somebody(), 30_000, notification(2_000), "small").expect("room");
}

#[test]
fn an_open_breaker_ends_decisions_at_once_and_notifications_wait() {
    let mut queue = queue();
    Arc::make_mut(&mut queue.settings).requests_in_flight_max = 3;
    for event in ["d1", "d2", "d3", "d4"] {
        queue.push(0, None, somebody(), 10, decision(10_000), event).expect("room");
    }
    queue.push(0, named("s").as_ref(), somebody(), 10, notification(10_000), "n").expect("room");
    let ids: Vec<_> = (0..3).map(|_| start(&mut queue, 0).expect("ready").0).collect();
    assert!(end(&mut queue, 1, ids[0], FAILED).is_empty());
    assert!(end(&mut queue, 1, ids[1], FAILED).is_empty());
    let outcome = queue.finish(1, ids[2], FAILED);
    assert!(outcome.breaker_changed);
    let expected = [("d3", End::Down), ("d1", End::Down), ("d2", End::Down), ("d4", End::Down)];
    assert_eq!(outcome.ended, expected);
    assert!(start(&mut queue, 1).is_none());
    assert_eq!(queue.push(1, None, somebody(), 10, decision(10_000), "d5").expect_err("down").0, Refused::Down);
    // The notification is the request that decides.
    let now = queue.wake_at_ms().expect("the end of the pause");
    let (id, event, _) = start(&mut queue, now).expect("ready");
    assert_eq!(event, "n");
    assert_eq!(queue.push(now, None, somebody(), 10, decision(10_000), "d6").expect_err("down").0, Refused::Down);
    let outcome = queue.finish(now, id, Attempt::Answered);
    assert!(outcome.breaker_changed);
    queue.push(now, None, somebody(), 10, decision(20_000), "d7").expect("closed again");
    assert_eq!(start(&mut queue, now).expect("ready").1, "d7");
}

#[test]
fn an_owner_with_many_events_leaves_room_and_requests_to_others() {
    let settings = WebhookSettings { queue_messages_max: 80, requests_in_flight_max: 16, ..settings() };
    let mut queue = Queue::new(settings.into(), Rng::with_seed(7));
    let handshake = Terms { urgency: Urgency::Common, ..decision(1_000) };
    let greedy = Owner::number(1);
    while queue.push(0, None, greedy, 10, handshake, "greedy").is_ok() {}
    let many = queue.messages();
    assert!((40..70).contains(&many), "{many}");
    let requests = std::iter::from_fn(|| start(&mut queue, 0)).count();
    assert!((6..14).contains(&requests), "{requests}");
    // Strangers who come later, and the small events of sessions, go at once.
    for terms in [handshake, decision(1_000), decision(1_000)] {
        queue.push(1, None, somebody(), 10, terms, "other").expect("room");
        assert_eq!(start(&mut queue, 1).map(|(_, content, _)| content), Some("other"));
    }
    // Strangers fill what is for them, and still no session waits.
    while queue.push(1, None, somebody(), 10, handshake, "stranger").is_ok() {}
    assert!(queue.messages() < 80);
    queue.push(1, None, somebody(), 10, decision(1_000), "session").expect("the reserve");
}

#[test]
fn a_large_event_does_not_take_the_room_of_small_ones() {
    let mut queue = queue();
    let large = Terms { urgency: Urgency::Common, ..decision(1_000) };
    while queue.push(0, None, somebody(), 8_000, large, "large").is_ok() {}
    for _ in 0..10 {
        queue.push(0, None, somebody(), 500, decision(1_000), "small").expect("the reserve");
    }
}

#[test]
fn a_backend_that_answers_is_up_whatever_it_answers() {
    let mut queue = queue();
    for cause in [Cause::Unusable, Cause::Postponed] {
        for _ in 0..100 {
            queue.push(0, None, somebody(), 10, Terms { attempts_max: 1, ..decision(1_000) }, "poison").expect("room");
            let (id, ..) = start(&mut queue, 0).expect("ready");
            assert_eq!(end(&mut queue, 0, id, failed(cause)), [("poison", End::Failed)]);
        }
    }
    // Messages of one owner that make the backend hang or crash.
    for _ in 0..100 {
        queue
            .push(0, None, Owner::number(1), 10, Terms { attempts_max: 1, ..decision(1_000) }, "poison")
            .expect("room");
        let (id, ..) = start(&mut queue, 0).expect("ready");
        assert_eq!(end(&mut queue, 0, id, FAILED), [("poison", End::Down)]);
    }
    assert_eq!(queue.breaker(), State::Closed);
}

/// An event of a seeded run: its number, its session, and its order in it.
#[derive(Clone, Copy, Debug)]
struct Sample {
    number: usize,
    session: Option<u64>,
    deadline_ms: u64,
}

/// A request under way in a seeded run.
struct Flight {
    id: EventId,
    sample: Sample,
    ends_ms: u64,
    attempt: Attempt,
}

/// Counts of a run, to see that it reaches the interesting cases.
#[derive(Debug, Default)]
struct Seen {
    ends: [usize; 4],
    refused: usize,
    opened: usize,
    retries: usize,
}

/// The world of a run: a queue, requests under way, and the promises so far.
struct World {
    queue: Queue<Sample>,
    settings: Arc<WebhookSettings>,
    random: Rng,
    flights: Vec<Flight>,
    ended: Vec<bool>,
    /// The last event of each session that has ended.
    last_of: HashMap<u64, usize>,
    seen: Seen,
}

impl World {
    fn settle(&mut self, now_ms: u64, ended: Vec<(Sample, End)>) {
        for (sample, end) in ended {
            assert!(!std::mem::replace(&mut self.ended[sample.number], true), "event {} ends twice", sample.number);
            assert!(now_ms <= sample.deadline_ms, "event {} ends after its deadline", sample.number);
            self.seen.ends[end as usize] += 1;
        }
    }

    /// Starts all requests that may start; `is_up` says how the backend will answer.
    fn start_all(&mut self, now_ms: u64, is_up: bool) {
        while let Some(started) = self.queue.start(now_ms) {
            let (id, sample, timeout_ms) = (started.id, *started.content, started.timeout_ms);
            self.seen.retries += usize::from(started.is_retry);
            assert!(!self.ended[sample.number], "event {} starts after its end", sample.number);
            if let Some(session) = sample.session {
                let busy = self.flights.iter().any(|flight| flight.sample.session == Some(session));
                assert!(!busy, "two requests of session {session} at once");
                let last = self.last_of.entry(session).or_default();
                assert!(*last <= sample.number, "session {session}: {} after {last}", sample.number);
                *last = sample.number;
            }
            let takes_ms = if self.random.u8(..) < 20 { u64::MAX } else { self.random.u64(0..300) };
            let (ends_ms, attempt) = if takes_ms > timeout_ms {
                (now_ms + timeout_ms, FAILED)
            } else if is_up && self.random.u8(..) < 250 {
                (now_ms + takes_ms, Attempt::Answered)
            } else if self.random.u8(..) < 20 {
                (now_ms + takes_ms, Attempt::Rejected)
            } else {
                let causes = [Cause::Unreachable, Cause::Silent, Cause::Postponed, Cause::Unusable];
                let cause = if is_up { causes[self.random.usize(0..4)] } else { causes[self.random.usize(0..2)] };
                (now_ms + takes_ms, failed(cause))
            };
            self.flights.push(Flight { id, sample, ends_ms, attempt });
            assert!(self.flights.len() <= self.settings.requests_in_flight_max);
        }
    }

    fn land(&mut self, now_ms: u64) {
        while let Some(index) = self.flights.iter().position(|flight| flight.ends_ms <= now_ms) {
            let flight = self.flights.swap_remove(index);
            let outcome = self.queue.finish(now_ms, flight.id, flight.attempt);
            if outcome.breaker_changed && self.queue.breaker() != State::Closed {
                self.seen.opened += 1;
            }
            self.settle(now_ms, outcome.ended);
            // The same result again has no effect.
            assert!(self.queue.finish(now_ms, flight.id, flight.attempt).ended.is_empty());
        }
    }

    fn push(&mut self, now_ms: u64) {
        let session = if self.random.u8(..) < 50 { None } else { Some(self.random.u64(0..6)) };
        let is_decision = self.random.bool();
        let waits = if is_decision { 1_000 } else { 20_000 };
        let deadline_ms = now_ms + self.random.u64(1..=waits);
        let terms = if is_decision { decision(deadline_ms) } else { notification(deadline_ms) };
        let urgency = if self.random.bool() { Urgency::Urgent } else { Urgency::Common };
        let terms = Terms { urgency, ..terms };
        let sample = Sample { number: self.ended.len(), session, deadline_ms };
        let key = session.and_then(|session| named(&session.to_string()));
        let owner = Owner::number(session.unwrap_or_else(|| self.random.u64(10..13)) / 2);
        self.ended.push(false);
        if let Err((_, sample)) =
            self.queue.push(now_ms, key.as_ref(), owner, self.random.usize(0..5_000), terms, sample)
        {
            self.ended[sample.number] = true;
            self.seen.refused += 1;
        }
        assert!(
            self.queue.messages() <= self.settings.queue_messages_max
                && self.queue.bytes() <= self.settings.queue_bytes_max
        );
    }
}

#[test]
fn in_a_thousand_seeded_runs_each_event_ends_once_in_order_and_in_time() {
    let mut seen = Seen::default();
    for seed in 0..1_000 {
        let settings = Arc::new(WebhookSettings { queue_messages_max: 30, ..settings() });
        let mut world = World {
            queue: Queue::new(settings.clone(), Rng::with_seed(seed)),
            settings,
            random: Rng::with_seed(!seed),
            flights: Vec::new(),
            ended: Vec::new(),
            last_of: HashMap::new(),
            seen: std::mem::take(&mut seen),
        };
        let mut now_ms = 0;
        for step in 0..400 {
            // The backend is down for the second quarter.
            let is_up = !(100..200).contains(&step);
            let earliest = world.flights.iter().map(|flight| flight.ends_ms).chain(world.queue.wake_at_ms()).min();
            let pushes_ms = if step < 350 { now_ms + world.random.u64(0..60) } else { u64::MAX };
            now_ms = earliest.unwrap_or(u64::MAX).min(pushes_ms).max(now_ms);
            if now_ms == u64::MAX {
                break;
            }
            world.land(now_ms);
            let ended = world.queue.tick(now_ms);
            world.settle(now_ms, ended);
            if pushes_ms == now_ms {
                world.push(now_ms);
            }
            world.start_all(now_ms, is_up);
        }
        // Nothing is pushed any more: the rest ends by itself.
        while let Some(next) = world.flights.iter().map(|flight| flight.ends_ms).chain(world.queue.wake_at_ms()).min() {
            world.land(next.max(now_ms));
            now_ms = next.max(now_ms);
            let ended = world.queue.tick(now_ms);
            world.settle(now_ms, ended);
            world.start_all(now_ms, true);
        }
        assert!(world.ended.iter().all(|ended| *ended), "seed {seed}: an event never ends");
        assert_eq!((world.queue.messages(), world.queue.bytes()), (0, 0), "seed {seed}");
        assert!(world.queue.sessions.is_empty() && world.queue.timers.is_empty());
        assert!(world.queue.lines.iter().all(Lines::is_empty) && world.queue.in_flight.owners() == 0, "seed {seed}");
        seen = world.seen;
    }
    let Seen { ends, refused, opened, retries } = seen;
    assert!(ends.iter().all(|count| *count > 100) && refused > 100 && opened > 100 && retries > 100, "{seen:?}");
}
