//! The messages of histories that clients have confirmed, in a cluster: another node goes on from there when this one is gone.
//!
//! The cluster names ticks, twice a second. A session that acknowledges has *confirmed* a tick when its client has confirmed all that was
//! queued for it before the tick. After each tick the shard visits its sessions that acknowledge. Those that have not confirmed the tick before
//! it are *late*: they are reported by themselves, with the last tick that they have confirmed. All others are reported together. If more are
//! late than may be reported at once, the common tick stays behind.
//!
//! ```text
//!   tick 7 ──▶ visit: 1 1 1 1 1 late 1 1 ──▶ Changed(late, since tick 4), Confirmed(tick 6)
//! ```
//!
//! Nothing is done for a message. A visit costs a step for each session that acknowledges, and there are none while nothing is committed.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::delivery::Unconfirmed;
use crate::events::SessionKey;
use crate::node_messages::{ForNodes, Since};
use crate::shard::Machines;

/// The sessions that acknowledge, and the ticks that they have confirmed.
#[derive(Debug, Default)]
pub(super) struct Confirmed {
    sessions: BTreeMap<SessionKey, Session>,
    /// The last tick before which all has been fanned out.
    tick: u64,
    /// A later tick, before which messages of other shards may wait.
    awaited: Option<u64>,
    /// The session that was visited last, while not all have been visited after the tick.
    visited: Option<Bound<SessionKey>>,
    /// The tick that sessions that are not reported by themselves have confirmed, so far in this visit.
    common: u64,
    /// The reports that are left in this visit.
    reports_left: usize,
    /// The number of sessions that are not common.
    apart: usize,
}

/// A session that acknowledges.
#[derive(Debug)]
struct Session {
    /// The last tick that it has confirmed.
    tick: u64,
    /// A later tick, and the number of messages that it will have confirmed then.
    target: Option<(u64, u64)>,
    since: Since,
    /// The tick at which `since` was reported.
    reported: u64,
    /// True until it has the messages that it has missed.
    resumes: bool,
    /// True if the shard knows which these are.
    has_begun: bool,
    /// The time until which it may ask again for them, in milliseconds. None before it has to.
    late_until_ms: Option<u64>,
}

impl Confirmed {
    /// The point from which another node would have to go on with a session.
    pub(super) fn since(&self, key: SessionKey) -> Since {
        self.sessions.get(&key).map(|session| session.since).unwrap_or_default()
    }

    /// Adds a session that acknowledges. `resumes`: it waits for messages that it has missed.
    pub(super) fn add(&mut self, key: SessionKey, resumes: bool) {
        let since = if resumes { Since::Taken } else { Since::Common };
        let tick = if resumes { 0 } else { self.tick };
        self.apart += usize::from(resumes);
        let session = Session { since, resumes, ..Session::new(tick, self.tick) };
        self.sessions.insert(key, session);
    }

    /// Forgets a session.
    pub(super) fn remove(&mut self, key: SessionKey) {
        let session = self.sessions.remove(&key);
        self.apart -= usize::from(session.is_some_and(|session| session.since != Since::Common));
    }

    /// Visits a session. True if it has to be reported.
    fn visit(&mut self, key: SessionKey, unconfirmed: Unconfirmed) -> bool {
        let Some(session) = self.sessions.get_mut(&key) else { return false };
        session.note(self.tick, unconfirmed);
        let Some(since) = session.wanted(self.tick) else { return false };
        let was_common = session.since == Since::Common;
        // Those that are late for long would hold the others back. Reports that only bring a point up to date have a quarter.
        let is_stuck = was_common && session.tick + STUCK_TICKS < self.tick;
        let is_refresh = matches!(session.since, Since::Tick(_)) && self.tick < session.reported + OVERDUE_TICKS;
        let reserved = match (is_stuck, is_refresh) {
            (true, _) => 0,
            (false, false) => REPORTS_MAX / 2,
            (false, true) => REPORTS_MAX * 3 / 4,
        };
        if self.reports_left <= reserved {
            if was_common {
                self.common = self.common.min(session.tick);
            }
            return false;
        }
        self.reports_left -= 1;
        (session.since, session.reported) = (since, self.tick);
        self.apart = self.apart + usize::from(since != Since::Common) - usize::from(!was_common);
        true
    }

    /// True if no session acknowledges.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// A session has the messages that it has missed.
    pub(super) fn resumed(&mut self, key: SessionKey) {
        self.sessions.get_mut(&key).into_iter().for_each(|session| session.resumes = false);
    }

    /// The time until which a session that resumes may wait and ask once more, in milliseconds.
    pub(super) fn late_until_ms(&mut self, key: SessionKey, now_ms: u64) -> u64 {
        let session = self.sessions.get_mut(&key);
        session.map_or(now_ms, |session| *session.late_until_ms.get_or_insert(now_ms + LATE_MAX_MS))
    }

    /// The shard knows which messages a session has missed.
    pub(super) fn has_begun(&mut self, key: SessionKey) {
        self.sessions.get_mut(&key).into_iter().for_each(|session| session.has_begun = true);
    }

    /// True if a session waits to learn which messages it has missed.
    pub(super) fn awaits_missed(&self, key: SessionKey) -> bool {
        self.sessions.get(&key).is_some_and(|session| session.resumes && !session.has_begun)
    }

    /// True if a session has not all that it has missed.
    pub(super) fn resumes(&self, key: SessionKey) -> bool {
        self.sessions.get(&key).is_some_and(|session| session.resumes)
    }

    /// A tick has come. `is_behind`: messages of other shards wait.
    pub(super) fn ticks(&mut self, tick: u64, is_behind: bool) {
        self.awaited = Some(tick);
        self.begin(is_behind);
    }

    /// Begins with the visits after a tick, if all that came before it is fanned out.
    fn begin(&mut self, is_behind: bool) {
        if self.visited.is_none()
            && !is_behind
            && let Some(tick) = self.awaited.take()
        {
            self.tick = tick;
            (self.common, self.reports_left) = (common(tick), REPORTS_MAX);
            self.visited = Some(Bound::Unbounded);
        }
    }

    /// The next sessions to visit.
    fn next(&self) -> Vec<SessionKey> {
        let Some(from) = self.visited else { return Vec::new() };
        self.sessions.range((from, Bound::Unbounded)).map(|(key, _)| *key).take(VISITED_MAX).collect()
    }
}

impl Session {
    /// One that has confirmed this tick, and was reported with all others at that one.
    fn new(tick: u64, reported: u64) -> Session {
        let (since, target) = (Since::Common, None);
        Session { tick, target, since, reported, resumes: false, has_begun: false, late_until_ms: None }
    }

    /// Notes the state at a tick.
    fn note(&mut self, tick: u64, unconfirmed: Unconfirmed) {
        if self.resumes {
            return;
        }
        let Unconfirmed { confirmed, queued } = unconfirmed;
        if queued == 0 {
            (self.tick, self.target) = (tick, None);
        }
        if let Some((reached, _)) = self.target.take_if(|(_, count)| confirmed >= *count) {
            self.tick = reached;
        }
        if queued > 0 {
            self.target.get_or_insert((tick, confirmed + queued as u64));
        }
    }

    /// The point from which another node would have to go on, if it is to be another one than was reported.
    fn wanted(&self, tick: u64) -> Option<Since> {
        let is_late = self.tick < common(tick);
        match (is_late, self.since) {
            (true, Since::Common) => Some(Since::Tick(self.tick)),
            (true, Since::Tick(before)) if self.tick >= before + REFRESHED_TICKS => Some(Since::Tick(self.tick)),
            (true, Since::Taken) if self.tick > 0 => Some(Since::Tick(self.tick)),
            (false, Since::Tick(_) | Since::Taken) if tick >= self.reported + REFRESHED_TICKS => Some(Since::Common),
            _ => None,
        }
    }
}

impl Machines {
    /// Notes a session that acknowledges, if another node may have to go on with it.
    pub(super) fn follow_confirmations(&mut self, key: SessionKey, resumes: bool) {
        if self.env.shared.is_clustered() && self.delivery.unconfirmed(key).is_some() {
            self.env.confirmed.add(key, resumes);
            if resumes {
                self.delivery.await_missed(key);
            }
        }
    }

    /// Takes a tick of the cluster.
    pub(super) fn take_tick(&mut self, tick: u64) {
        self.env.confirmed.ticks(tick, self.admission.waiting() > 0);
        self.visit_confirmed();
    }

    /// Visits the next sessions after a tick.
    pub(super) fn visit_confirmed(&mut self) {
        self.env.confirmed.begin(self.admission.waiting() > 0);
        let Some(mut last) = self.env.confirmed.visited else { return };
        let keys = self.env.confirmed.next();
        self.env.count_steps(keys.len());
        for key in &keys {
            last = Bound::Excluded(*key);
            let Some(unconfirmed) = self.delivery.unconfirmed(*key) else {
                self.env.confirmed.remove(*key);
                continue;
            };
            if self.env.confirmed.visit(*key, unconfirmed) {
                self.report_session(*key);
            }
        }
        let confirmed = &mut self.env.confirmed;
        confirmed.visited = (keys.len() == VISITED_MAX).then_some(last);
        if confirmed.visited.is_none() {
            let has_late = confirmed.apart > 0;
            let (shard, tick) = (self.env.index, confirmed.common);
            self.tell_nodes(ForNodes::Confirmed { shard, tick, has_late });
        }
    }
}

/// The tick that sessions have to have confirmed, after this one.
fn common(tick: u64) -> u64 {
    tick.saturating_sub(1)
}

/// Sessions visited in one turn.
const VISITED_MAX: usize = 16 * 1024;
/// Sessions reported after one tick. Half of them are for those that have been late for long. Those that are reported again have a quarter.
const REPORTS_MAX: usize = 64;
/// The ticks after which a session has been late for long.
const STUCK_TICKS: u64 = 4;
/// The ticks after which a late session is reported again, while few are: a second. They bound how often that happens.
const REFRESHED_TICKS: u64 = 2;
/// The ticks after which that is not put off for others any more.
const OVERDUE_TICKS: u64 = 10;
/// The time for which a session waits for the fan-out of messages before those that it has missed, in milliseconds. Then its client begins again.
const LATE_MAX_MS: u64 = 5_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(session: &mut Session, tick: u64, confirmed: u64, queued: usize) -> Option<Since> {
        session.note(tick, Unconfirmed { confirmed, queued });
        let wanted = session.wanted(tick)?;
        (session.since, session.reported) = (wanted, tick);
        Some(wanted)
    }

    fn session(tick: u64) -> Session {
        Session::new(tick, tick)
    }

    #[test]
    fn a_session_that_confirms_in_time_is_never_reported() {
        let mut session = session(5);
        for tick in 6..50 {
            // Two messages are always on their way, and the client confirms those of the tick before.
            assert_eq!(visit(&mut session, tick, 2 * (tick - 6), 2), None);
            assert_eq!(session.tick, tick - 1);
        }
        assert_eq!((visit(&mut session, 50, 90, 0), session.tick), (None, 50));
    }

    #[test]
    fn a_late_session_names_the_last_tick_before_which_all_is_confirmed_and_is_common_again_after_a_while() {
        let mut session = session(5);
        assert_eq!(visit(&mut session, 6, 0, 3), None, "it had confirmed tick 5");
        assert_eq!(visit(&mut session, 7, 0, 4), Some(Since::Tick(5)));
        assert_eq!(visit(&mut session, 8, 2, 2), None, "it has not confirmed all that was queued at tick 6");
        assert_eq!((visit(&mut session, 9, 3, 9), session.tick), (None, 6));
        assert_eq!((visit(&mut session, 10, 11, 9), session.tick, session.target), (None, 6, Some((9, 12))));
        assert_eq!((visit(&mut session, 11, 12, 9), session.tick), (Some(Since::Tick(9)), 9));
        assert_eq!((visit(&mut session, 12, 40, 0), session.tick), (None, 12));
        assert_eq!((visit(&mut session, 13, 50, 0), session.tick), (Some(Since::Common), 13));
    }

    #[test]
    fn more_late_sessions_than_may_be_reported_hold_the_common_tick_back() {
        let mut all = Confirmed::default();
        let keys: Vec<_> = (0..200).map(|index| SessionKey { index, generation: 1 }).collect();
        keys.iter().for_each(|key| all.add(*key, false));
        let mut visit = |tick: u64, confirmed: &dyn Fn(u32) -> u64| {
            all.ticks(tick, false);
            let late = |key: &&SessionKey| {
                let confirmed = confirmed(key.index);
                all.visit(**key, Unconfirmed { confirmed, queued: 3 })
            };
            let reported = keys.iter().filter(late).count();
            all.visited = None;
            (reported, all.common)
        };
        assert_eq!(visit(1, &|_| 0), (0, 0));
        // The first ones confirm what came before the tick before.
        let half = REPORTS_MAX / 2;
        let mut tick = 1;
        let mut next = || {
            tick += 1;
            visit(tick, &move |index| if index < 20 { 3 * tick } else { 0 })
        };
        assert_eq!((next(), next(), next()), ((half, 0), (half, 0), (half, 0)));
        assert_eq!(next(), (REPORTS_MAX, 0), "they have been late for long");
        assert_eq!(next(), (180 - 3 * half - REPORTS_MAX, 5));
        assert_eq!(next(), (0, 6));
    }

    #[test]
    fn one_turn_visits_so_many_sessions() {
        let mut all = Confirmed::default();
        let key = |index: usize| SessionKey { index: index as u32, generation: 1 };
        (0..VISITED_MAX + 5).for_each(|index| all.add(key(index), false));
        assert!(all.next().is_empty());
        all.ticks(1, false);
        let first = all.next();
        assert_eq!((first.len(), first[VISITED_MAX - 1]), (VISITED_MAX, key(VISITED_MAX - 1)));
        all.visited = Some(Bound::Excluded(first[VISITED_MAX - 1]));
        all.ticks(2, false);
        assert_eq!((all.next().len(), all.tick), (5, 1), "the next tick waits");
        (0..VISITED_MAX + 5).for_each(|index| all.remove(key(index)));
        assert!(all.is_empty() && all.next().is_empty());
    }

    #[test]
    fn a_session_that_stays_late_is_reported_each_second() {
        let mut session = session(0);
        let reports: Vec<u64> = (2..200).filter(|tick| visit(&mut session, *tick, 10 * tick, 25).is_some()).collect();
        let pauses: Vec<u64> = reports.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.iter().all(|pause| (REFRESHED_TICKS..REFRESHED_TICKS + 2).contains(pause)), "{pauses:?}");
    }

    #[test]
    fn late_sessions_that_are_reported_again_leave_room_for_others_until_they_are_overdue() {
        let mut all = Confirmed::default();
        let keys: Vec<_> = (0..100).map(|index| SessionKey { index, generation: 1 }).collect();
        keys.iter().for_each(|key| all.add(*key, false));
        for session in all.sessions.values_mut().take(90) {
            (session.since, session.reported) = (Since::Tick(1), 1);
        }
        let mut visit = |tick: u64| {
            all.ticks(tick, false);
            keys.iter().for_each(|key| all.sessions.get_mut(key).expect("it").tick = tick - 2);
            let late = |key: &SessionKey| all.visit(*key, Unconfirmed { confirmed: 0, queued: 1 });
            let reported: Vec<bool> = keys.iter().map(late).collect();
            all.visited = None;
            let count = |of: &[bool]| of.iter().filter(|is_reported| **is_reported).count();
            (count(&reported[..90]), count(&reported[90..]))
        };
        assert_eq!(visit(5), (REPORTS_MAX / 4, 10), "all of them have gone on, and ten are newly late");
        assert_eq!((visit(6), visit(7)), ((REPORTS_MAX / 4, 0), (REPORTS_MAX / 4, 0)));
        assert_eq!(visit(11), (REPORTS_MAX / 2, 0), "some were not reported for five seconds");
    }

    #[test]
    fn a_session_that_resumes_has_confirmed_nothing_before_it_has_what_it_has_missed() {
        let mut all = Confirmed::default();
        let key = SessionKey { index: 1, generation: 1 };
        all.add(key, true);
        let session = all.sessions.get_mut(&key).expect("it");
        assert_eq!((visit(session, 20, 0, 0), session.since), (None, Since::Taken));
        all.resumed(key);
        let session = all.sessions.get_mut(&key).expect("it");
        assert_eq!((visit(session, 21, 0, 7), session.since), (None, Since::Taken));
        assert_eq!((visit(session, 22, 6, 1), session.since), (None, Since::Taken));
        assert_eq!((visit(session, 23, 7, 5), session.tick), (Some(Since::Tick(21)), 21));
    }
}
