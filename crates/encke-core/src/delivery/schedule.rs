//! The schedule of a shard: the sessions and sockets that have something to do, now or at a time, and in which order.
//!
//! ```text
//!   writes ──▶ replays ──▶ searches     a flush; replays wait until everything is written
//!     ▲
//!   connects                            a tick, as soon as responses have room again
//!   passes                              a flush, behind the writes
//! ```
//!
//! A session or a socket is in each queue at most once: its [`Marks`] say in which queues it is.

use std::cell::Cell;
use std::collections::VecDeque;

use crate::events::{SessionKey, SocketKey};
use crate::limits::Capacity;
use crate::wheel::Wheel;

/// The queues and the timers of one shard.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Sessions and sockets that have something to write, in the order in which they got it.
    writes: VecDeque<Holder>,
    /// Sessions that may replay more.
    replays: VecDeque<SessionKey>,
    /// Sessions whose held connects have messages but wait until earlier responses are delivered.
    connects: VecDeque<SessionKey>,
    /// Sessions whose queues must be searched for withdrawn messages.
    searches: Searches,
    /// Sessions whose queues are to keep the latest message of each channel only.
    passes: VecDeque<SessionKey>,
    /// The deadlines of sessions and sockets.
    pub(crate) timers: Wheel<Holder>,
    steps: Cell<u64>,
}

/// A session, or a WebSocket itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    Session(SessionKey),
    Socket(SocketKey),
}

/// The queues that a session or a socket is in. Only the schedule adds one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    write: Write,
    /// Bits of [`Queue`], and [`RESUMES`].
    queues: u8,
}

/// The write state of a session or socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Write {
    #[default]
    Idle,
    Queued,
    /// The kernel takes no bytes at the moment. Nothing is queued until it does. A session is blocked only while its
    /// socket is.
    Blocked,
}

/// A queue of sessions that have something else to do than to write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Queue {
    Replays = 1,
    Connects = 2,
    Searches = 4,
    Passes = 8,
}

impl Marks {
    /// True if it is in a queue.
    pub(crate) fn is_in(self, queue: Queue) -> bool {
        self.queues & queue as u8 > 0
    }

    /// Notes that the schedule has returned it as the next of a queue.
    pub(crate) fn leave(&mut self, queue: Queue) {
        self.queues &= !(queue as u8);
    }

    /// Notes that the schedule has returned it as the next to write.
    pub(crate) fn leave_writes(&mut self) {
        self.write = Write::Idle;
    }

    /// True if something to write has to be queued: it is not queued yet, and the kernel takes bytes.
    pub(crate) fn may_be_written(self) -> bool {
        self.write == Write::Idle
    }

    /// True if the kernel takes no bytes at the moment.
    pub(crate) fn is_blocked(self) -> bool {
        self.write == Write::Blocked
    }

    /// Notes that the kernel takes no bytes. If it is still queued, the next attempt to write finds out.
    pub(crate) fn block(&mut self) {
        if self.write == Write::Idle {
            self.write = Write::Blocked;
        }
    }

    /// Notes that the kernel takes bytes again, or that a session has left its socket.
    pub(crate) fn unblock(&mut self) {
        if self.write == Write::Blocked {
            self.write = Write::Idle;
        }
    }

    /// True if a session gets nothing before the messages that it has missed.
    #[inline(always)]
    pub(crate) fn resumes(self) -> bool {
        self.queues & RESUMES > 0
    }

    /// Notes if a session gets nothing before the messages that it has missed.
    pub(crate) fn set_resumes(&mut self, resumes: bool) {
        self.queues = if resumes { self.queues | RESUMES } else { self.queues & !RESUMES };
    }

    /// Notes that it enters a queue. Returns false if it was there.
    fn enter(&mut self, queue: Queue) -> bool {
        let enters = !self.is_in(queue);
        self.queues |= queue as u8;
        enters
    }
}

impl Schedule {
    /// An empty schedule.
    pub(crate) fn new(now_ms: u64) -> Schedule {
        Schedule {
            writes: VecDeque::new(),
            replays: VecDeque::new(),
            connects: VecDeque::new(),
            searches: Searches::default(),
            passes: VecDeque::new(),
            timers: Wheel::new(now_ms),
            steps: Cell::new(0),
        }
    }

    /// The steps since the start: see [`Shard::steps`](crate::Shard::steps).
    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Counts steps of a loop whose length clients decide.
    #[inline(always)]
    pub(crate) fn count_steps(&self, steps: usize) {
        self.steps.set(self.steps.get() + steps as u64);
    }

    /// True if nothing waits to be written.
    pub(crate) fn is_written(&self) -> bool {
        self.writes.is_empty()
    }

    /// True if nothing waits to be written, and no queue waits for a pass.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_written() && self.passes.is_empty()
    }

    /// True if sessions wait for messages out of histories.
    pub(crate) fn has_replays(&self) -> bool {
        !self.replays.is_empty()
    }

    /// True if a flush has nothing to do.
    pub(crate) fn is_settled(&self, now_ms: u64) -> bool {
        self.is_complete() && !self.has_replays() && !self.searches.is_due(now_ms)
    }

    /// The number of entries of each queue: writes and replays, connects, searches and passes.
    pub(crate) fn lens(&self) -> [usize; 3] {
        let searches = self.searches.paid.len() + self.searches.unpaid.len() + self.passes.len();
        [self.writes.len() + self.replays.len(), self.connects.len(), searches]
    }

    /// Queues a session for writing. While its socket takes no bytes, that socket writes for it later.
    #[inline(always)]
    pub(crate) fn write_session(&mut self, key: SessionKey, marks: &mut Marks) {
        self.write(Holder::Session(key), marks);
    }

    /// Queues a socket for writing, unless the kernel takes no bytes of it.
    pub(crate) fn write_socket(&mut self, key: SocketKey, marks: &mut Marks) {
        self.write(Holder::Socket(key), marks);
    }

    #[inline(always)]
    fn write(&mut self, holder: Holder, marks: &mut Marks) {
        if marks.may_be_written() {
            marks.write = Write::Queued;
            self.writes.push_back(holder);
        }
    }

    /// The next session or socket to write.
    #[inline(always)]
    pub(crate) fn next_write(&mut self) -> Option<Holder> {
        self.writes.pop_front()
    }

    /// Queues a session that may replay more.
    pub(crate) fn replay(&mut self, key: SessionKey, marks: &mut Marks) {
        if marks.enter(Queue::Replays) {
            self.replays.push_back(key);
        }
    }

    /// The next session to replay. None while anything waits to be written.
    pub(crate) fn next_replay(&mut self) -> Option<SessionKey> {
        if self.is_written() { self.replays.pop_front() } else { None }
    }

    /// Queues a session whose held connect waits for room. Returns false if it was queued.
    pub(crate) fn await_room(&mut self, key: SessionKey, marks: &mut Marks) -> bool {
        let is_new = marks.enter(Queue::Connects);
        if is_new {
            self.connects.push_back(key);
        }
        is_new
    }

    /// The next session whose held connect waits for room.
    pub(crate) fn next_connect(&mut self) -> Option<SessionKey> {
        self.connects.pop_front()
    }

    /// Queues a session whose messages are to be passed over.
    pub(crate) fn pass_over(&mut self, key: SessionKey, marks: &mut Marks) {
        if marks.enter(Queue::Passes) {
            self.passes.push_back(key);
        }
    }

    /// The session whose messages are passed over now. It stays the first until its pass ends.
    pub(crate) fn current_pass(&self) -> Option<SessionKey> {
        self.passes.front().copied()
    }

    /// Removes that session.
    pub(crate) fn end_pass(&mut self) {
        self.passes.pop_front();
    }

    /// Queues a session for a search, which messages have paid for, or time has to pay for. Returns false if it was
    /// queued.
    pub(crate) fn search(&mut self, key: SessionKey, marks: &mut Marks, is_paid: bool) -> bool {
        let is_new = marks.enter(Queue::Searches);
        if is_new {
            let queue = if is_paid { &mut self.searches.paid } else { &mut self.searches.unpaid };
            queue.push_back(key);
        }
        is_new
    }

    /// Begins the searches of a turn.
    pub(crate) fn begin_searches(&mut self) {
        self.searches.searched = 0;
    }

    /// The next session to search, as far as one turn may. Returns true with it if the search is paid for.
    pub(crate) fn next_search(&mut self, now_ms: u64, capacity: &Capacity) -> Option<(SessionKey, bool)> {
        let searches = &mut self.searches;
        if !searches.is_due(now_ms) || searches.searched >= turn_max(capacity).max(1) {
            return None;
        }
        let paid = searches.paid.pop_front().map(|key| (key, true));
        paid.or_else(|| Some((searches.unpaid.pop_front()?, false)))
    }

    /// True if so many messages may be searched now, rather than in a later turn.
    pub(crate) fn has_time_for(&self, messages: usize, is_paid: bool, now_ms: u64, capacity: &Capacity) -> bool {
        let Searches { unpaid, searched, .. } = &self.searches;
        let fits_turn = *searched == 0 || searched + messages <= turn_max(capacity);
        fits_turn && (is_paid || (unpaid.is_empty() && self.searches.has_rested(now_ms)))
    }

    /// Counts a search of so many messages.
    pub(crate) fn spend(&mut self, messages: usize, is_paid: bool, now_ms: u64) {
        self.searches.searched += messages;
        if !is_paid {
            let rests_until_us = &mut self.searches.rests_until_us;
            *rests_until_us = (*rests_until_us).max(now_ms * 1_000) + messages as u64 * MESSAGE_US;
        }
    }
}

/// The pending searches of a shard.
#[derive(Debug, Default)]
struct Searches {
    /// Sessions that wait for a search that messages have paid for.
    paid: VecDeque<SessionKey>,
    /// Sessions that wait for a search that time pays for.
    unpaid: VecDeque<SessionKey>,
    /// No unpaid search starts before this time, in microseconds.
    rests_until_us: u64,
    /// The number of messages searched in this turn.
    searched: usize,
}

impl Searches {
    /// True if a flush has something to search.
    fn is_due(&self, now_ms: u64) -> bool {
        !self.paid.is_empty() || (!self.unpaid.is_empty() && self.has_rested(now_ms))
    }

    fn has_rested(&self, now_ms: u64) -> bool {
        now_ms * 1_000 >= self.rests_until_us
    }
}

/// The most messages that one turn searches, unless a single session has more.
fn turn_max(capacity: &Capacity) -> usize {
    TURN_MAX.min(capacity.messages_max / 16)
}

/// The pause of unpaid searches for each message searched, in microseconds. The search itself takes an eighth of that.
const MESSAGE_US: u64 = 1;

const TURN_MAX: usize = 4_096;

/// The bit of a session that gets nothing before the messages that it has missed. No queue has it.
const RESUMES: u8 = 128;
