//! Compares the deliveries to all sessions of a worker with the publications.

use crate::engine::flow::{Flow, Sequence};
use crate::engine::published::Published;
use crate::engine::stamp::{CALL_ROOM, Stamped};
use crate::outcome::Faults;

/// A [`Flow`] for each session, room it is in, and worker; and one for each session's own calls.
#[derive(Debug)]
pub(super) struct Tally {
    worker: u32,
    workers: u32,
    /// The index in `rooms` of each session's first room, and one more at the end.
    begins: Vec<u32>,
    /// Rooms of all sessions, one session behind the other, rising within each.
    rooms: Vec<u32>,
    /// The number of sessions in each room.
    members: Vec<u32>,
    /// By index in `rooms`, then by worker.
    flows: Vec<Flow>,
    /// By session; empty until the first call.
    calls: Vec<Calls>,
    /// The publications of each worker in each room at the start of the trial; missing entries are 0.
    base: Vec<Published>,
    faults: Faults,
}

#[derive(Debug, Default)]
struct Calls {
    /// The number of the next call.
    next: u32,
    /// The number of the trial's first.
    base: u32,
    answers: Flow,
}

impl Tally {
    /// A tally of sessions in these rooms, each one's rising.
    pub(super) fn new(worker: u32, workers: u32, rooms: u32, sessions: impl Iterator<Item = Vec<u32>>) -> Tally {
        let mut tally = Tally {
            worker,
            workers: workers.max(1),
            begins: vec![0],
            rooms: Vec::new(),
            members: vec![0; rooms as usize],
            flows: Vec::new(),
            calls: Vec::new(),
            base: Vec::new(),
            faults: Faults::default(),
        };
        for rooms in sessions {
            rooms.iter().for_each(|room| tally.members[*room as usize] += 1);
            tally.rooms.extend(rooms);
            tally.begins.push(tally.rooms.len() as u32);
        }
        tally.flows.resize_with(tally.rooms.len() * tally.workers as usize, Flow::default);
        tally
    }

    /// The rooms of a session.
    pub(super) fn rooms_of(&self, session: usize) -> &[u32] {
        &self.rooms[self.begins[session] as usize..self.begins[session + 1] as usize]
    }

    /// Takes a delivery. Returns true if it counts as received: subscribed to, for the first time, and not from an
    /// earlier trial.
    #[inline]
    pub(super) fn take(&mut self, session: usize, stamped: Stamped<'_>) -> bool {
        let (room, worker) = stamped.room_and_worker();
        let begin = self.begins[session] as usize;
        let rooms = &self.rooms[begin..self.begins[session + 1] as usize];
        let index_in_rooms = match rooms {
            [only] if *only == room => 0,
            _ => match rooms.binary_search(&room) {
                Ok(index_in_rooms) => index_in_rooms,
                Err(_) => return self.take_elsewhere(session, stamped),
            },
        };
        if worker >= self.workers {
            return self.take_elsewhere(session, stamped);
        }
        let flow = &mut self.flows[(begin + index_in_rooms) * self.workers as usize + worker as usize];
        match flow.take(stamped.sequence(), || stamped.publisher()) {
            Sequence::InOrder => true,
            kind => {
                let base = first_of(&self.base, worker, room);
                self.note(kind, stamped.sequence() < base)
            }
        }
    }

    /// Counts a delivery that this session did not subscribe to.
    pub(super) fn note_misdelivered(&mut self) {
        self.faults.misdelivered += 1;
    }

    /// Counts deliveries that a session recognised as repeats.
    pub(super) fn note_doubled(&mut self, deliveries: u64) {
        self.faults.doubled += deliveries;
    }

    /// The number of a session's next call.
    pub(super) fn next_call(&mut self, session: usize) -> u32 {
        if self.calls.is_empty() {
            self.calls.resize_with(self.begins.len() - 1, Calls::default);
        }
        let next = &mut self.calls[session].next;
        *next += 1;
        *next - 1
    }

    /// See [`Clients::expected`](crate::engine::Clients::expected).
    pub(super) fn expected(&self, all: &[Published]) -> u64 {
        let mut expected = self.calls.iter().map(|calls| u64::from(calls.next - calls.base)).sum();
        for (worker, published) in all.iter().enumerate() {
            for (room, (next, members)) in published.next.iter().zip(&self.members).enumerate() {
                let count = next.saturating_sub(first_of(&self.base, worker as u32, room as u32));
                expected += u64::from(count) * u64::from(*members);
            }
        }
        expected
    }

    /// The numbers of publications that have not come, once for each session that misses one.
    pub(super) fn missing(&self, all: &[Published]) -> impl Iterator<Item = u32> {
        self.flows.iter().enumerate().flat_map(move |(index, flow)| {
            let (index_in_rooms, worker) = (index / self.workers as usize, index as u32 % self.workers);
            flow.missing(first_of(all, worker, self.rooms[index_in_rooms]))
        })
    }

    /// The faults, assuming that nothing more arrives.
    pub(super) fn faults(&self, all: &[Published]) -> Faults {
        let answers = self.calls.iter().map(|calls| calls.answers.lost(calls.next));
        let flows = self.flows.iter().enumerate().map(|(index, flow)| {
            let (index_in_rooms, worker) = (index / self.workers as usize, index as u32 % self.workers);
            flow.lost(first_of(all, worker, self.rooms[index_in_rooms]))
        });
        Faults { lost: answers.sum::<u64>() + flows.sum::<u64>(), ..self.faults }
    }

    /// Starts over: only publications from now on are expected. Returns the number of these that have already arrived,
    /// since other workers may have begun before.
    pub(super) fn begin(&mut self, all: &[Published]) -> u64 {
        self.base = all.to_vec();
        self.faults = Faults::default();
        let mut early = 0;
        for (index, flow) in self.flows.iter_mut().enumerate() {
            let (index_in_rooms, worker) = (index / self.workers as usize, index as u32 % self.workers);
            let base = first_of(all, worker, self.rooms[index_in_rooms]);
            early += u64::from(flow.begin(base));
        }
        for calls in &mut self.calls {
            (calls.base, calls.answers) = (calls.next, Flow::new(calls.next));
        }
        early
    }

    #[cold]
    fn take_elsewhere(&mut self, session: usize, stamped: Stamped<'_>) -> bool {
        let sequence = stamped.sequence();
        let of_session =
            stamped.room_and_worker() == (CALL_ROOM, self.worker) && stamped.publisher() as usize == session;
        match self.calls.get_mut(session).filter(|_| of_session) {
            Some(calls) => match calls.answers.take(sequence, || 0) {
                Sequence::InOrder => true,
                kind => {
                    let stale = sequence < calls.base;
                    self.note(kind, stale)
                }
            },
            None => {
                self.note_misdelivered();
                false
            }
        }
    }

    fn note(&mut self, kind: Sequence, stale: bool) -> bool {
        match kind {
            _ if stale => return false,
            Sequence::InOrder => {}
            Sequence::Doubled => self.faults.doubled += 1,
            Sequence::Reordered => self.faults.reordered += 1,
        }
        kind != Sequence::Doubled
    }
}

/// The next of `worker` in `room`; 0 if nothing is known of it.
fn first_of(all: &[Published], worker: u32, room: u32) -> u32 {
    all.get(worker as usize).and_then(|published| published.next.get(room as usize)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stamp::{DATA_BYTES_MIN, Stamp};

    fn tally() -> Tally {
        Tally::new(0, 2, 3, [vec![0], vec![0, 2], vec![]].into_iter())
    }

    fn deliver(tally: &mut Tally, session: usize, room: u32, worker: u32, sequence: u32) -> bool {
        let mut data = Vec::new();
        Stamp { sequence, room, worker, publisher: 1, planned_us: 0 }.write(DATA_BYTES_MIN, &mut data);
        tally.take(session, Stamped::find(&data).expect("a stamp"))
    }

    fn published(next: [[u32; 3]; 2]) -> Vec<Published> {
        next.iter().map(|next| Published { next: next.to_vec() }).collect()
    }

    #[test]
    fn each_session_expects_the_publications_of_all_workers_in_its_rooms() {
        let mut tally = tally();
        let all = published([[2, 9, 0], [0, 0, 1]]);
        // Two members of room 0 for two publications, one member of room 2 for one; room 1 is empty.
        assert_eq!(tally.expected(&all), 5);
        for (session, room, worker, sequence) in [(0, 0, 0, 0), (0, 0, 0, 1), (1, 0, 0, 0), (1, 2, 1, 0)] {
            assert!(deliver(&mut tally, session, room, worker, sequence));
        }
        assert_eq!(tally.faults(&all), Faults { lost: 1, ..Faults::default() });
        deliver(&mut tally, 1, 0, 0, 1);
        assert!(tally.faults(&all).none());
    }

    #[test]
    fn deliveries_without_a_subscription_are_misdelivered() {
        let mut tally = tally();
        deliver(&mut tally, 0, 2, 0, 0);
        deliver(&mut tally, 2, 0, 0, 0);
        deliver(&mut tally, 0, 0, 2, 0);
        deliver(&mut tally, 0, CALL_ROOM, 0, 0);
        assert_eq!(tally.faults(&[]), Faults { misdelivered: 4, ..Faults::default() });
    }

    #[test]
    fn deliveries_of_an_earlier_trial_do_not_count() {
        let mut tally = tally();
        let all = published([[2, 0, 0], [0, 0, 0]]);
        deliver(&mut tally, 0, 0, 0, 1);
        assert_eq!(tally.begin(&all), 0);
        assert_eq!(tally.expected(&all), 0);
        assert!(!deliver(&mut tally, 0, 0, 0, 0), "late from the trial before");
        assert!(tally.faults(&all).none());
        let all = published([[3, 0, 0], [0, 0, 0]]);
        assert_eq!((tally.expected(&all), tally.faults(&all).lost), (2, 2));
        assert!(deliver(&mut tally, 0, 0, 0, 2) && deliver(&mut tally, 1, 0, 0, 2));
        assert!(tally.faults(&all).none());
    }

    #[test]
    fn deliveries_before_a_slow_worker_begins_count() {
        let mut tally = tally();
        // Another worker begins the trial and publishes twice in room 0 before this one begins.
        (0..4).for_each(|sequence| assert!(deliver(&mut tally, 0, 0, 1, sequence)));
        (0..3).for_each(|sequence| assert!(deliver(&mut tally, 1, 0, 1, sequence)));
        assert_eq!(tally.begin(&published([[0, 0, 0], [2, 0, 0]])), 2 + 1);
        let all = published([[0, 0, 0], [4, 0, 0]]);
        assert_eq!((tally.expected(&all), tally.faults(&all).lost), (4, 1));
        assert!(deliver(&mut tally, 1, 0, 1, 3));
        assert!(tally.faults(&all).none());
    }

    #[test]
    fn an_answer_belongs_to_the_caller() {
        let mut tally = tally();
        assert_eq!((tally.next_call(1), tally.next_call(1)), (0, 1));
        assert_eq!((tally.expected(&[]), tally.faults(&[]).lost), (2, 2));
        // Session 1 is also number 1 of the publishers, see `deliver`.
        deliver(&mut tally, 1, CALL_ROOM, 0, 1);
        deliver(&mut tally, 1, CALL_ROOM, 0, 0);
        deliver(&mut tally, 0, CALL_ROOM, 0, 0);
        assert_eq!(tally.faults(&[]), Faults { reordered: 1, misdelivered: 1, ..Faults::default() });
    }
}
