//! A crowd of sessions.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::engine::clock;
use crate::engine::cuts::Breaker;
use crate::engine::error::ConnectionError;
use crate::engine::poll::Ready;
use crate::engine::pool::Pool;
use crate::engine::session::{Session, SessionState};
use crate::engine::shared::Shared;
use crate::engine::timers::Timers;
use crate::order::{ClientsSpec, Membership, Recovery};
use crate::outcome::Breaks;
use crate::outcome::Faults;
use crate::problem::Problem;

/// Sessions of one process: its share of the subscribers, and of those that only publish.
#[derive(Debug)]
pub struct Clients {
    pub(super) shared: Shared,
    pub(super) sessions: Vec<Session>,
    /// How many sessions there will be; connections of the pool have their tokens behind them.
    pub(super) total: usize,
    pub(super) subscriber_count: usize,
    pub(super) pool: Pool,
    pub(super) timers: Timers,
    pub(super) ready: Vec<Ready>,
    pub(super) membership: Membership,
    pub(super) worker: u32,
    pub(super) reconnect: bool,
    pub(super) recovery: Recovery,
    /// Breaks connections, while it is wanted.
    pub(super) breaker: Option<Box<Breaker>>,
    pub(super) breaks: Breaks,
    pub(super) opening_at_once: usize,
    /// Sessions whose pause is over.
    pub(super) to_reopen: VecDeque<usize>,
    pub(super) stage: Stage,
    /// Why the opening failed.
    pub(super) failure: Option<ConnectionError>,
    pub(super) first_loss: Option<String>,
    /// Sessions that are [`SessionState::Open`].
    pub(super) connected: u64,
    /// Sessions that are [`SessionState::Opening`].
    pub(super) opening_now: usize,
    /// Sessions that are [`SessionState::Disconnecting`].
    pub(super) disconnecting: usize,
    pub(super) dropped: u64,
    /// How many of them before the trial began.
    pub(super) dropped_before: u64,
    pub(super) published: Published,
    pub(super) sent: u64,
    pub(super) sent_batches: u64,
    pub(super) sent_bytes: u64,
    /// Of the next publication.
    pub(super) next_id: u64,
    /// What is sent next, reused.
    pub(super) payload: Vec<u8>,
}

/// What a crowd is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Any trouble ends the opening.
    Opening,
    /// Sessions come back, or are lost.
    Running,
}

/// One publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedMessage {
    /// The room's number.
    pub room: u32,
    /// When it should leave, in microseconds of the crowd's clock.
    pub planned_us: u64,
}

/// Counters since the crowd began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that are open now.
    pub connected: u64,
    /// Sessions that were lost for good.
    pub dropped: u64,
    /// Publications handed to sockets.
    pub sent: u64,
    /// WebSocket messages or requests that held them.
    pub sent_batches: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Publications that the server refused.
    pub denied: u64,
    /// Deliveries received.
    pub received: u64,
    /// WebSocket messages or responses that held them.
    pub received_batches: u64,
    /// Their bytes.
    pub received_bytes: u64,
}

/// How many publications each room has had of one worker: `next[room]` is the sequence number that comes next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// By room.
    pub next: Vec<u32>,
}

impl Clients {
    /// Opens this worker's share of the crowd: worker `worker` of `workers` has the clients whose number modulo `workers` is
    /// `worker`, likewise publishers. `progress` is told from time to time how many are open; `false` stops the opening, and
    /// what is open by then is the crowd.
    ///
    /// # Errors
    /// Nobody answers at the target, what answers is no Bayeux server, it refuses, lacks what [`ClientsSpec::recovery`] needs, or
    /// the machine has too few files.
    pub fn open(
        spec: &ClientsSpec,
        worker: u32,
        workers: u32,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Clients, Problem> {
        let mut clients = Clients::prepare(spec, worker, workers)?;
        let opens_per_s = spec.opens_per_s.map(|rate| rate / f64::from(workers.max(1)));
        clients.open_all(opens_per_s, progress)?;
        if let Some(unsupported) = clients.missing_support() {
            clients.disconnect();
            return Err(Problem::Server(unsupported));
        }
        Ok(clients)
    }

    /// The crowd's clock in microseconds: the machine's monotonic clock, the same in all processes.
    pub fn clock_us() -> u64 {
        clock::now_us()
    }

    /// Numbers of this worker's subscribers: `0..n` locally.
    pub fn subscribers(&self) -> Range<usize> {
        0..self.subscriber_count
    }

    /// Numbers of this worker's publishing sessions: they follow the subscribers.
    pub fn publishers(&self) -> Range<usize> {
        self.subscriber_count..self.total
    }

    /// Publishes in one carrier; numbers the publications of each room. Never waits.
    ///
    /// # Errors
    /// The session is gone or away, or takes nothing any more, or there is no such room; nothing was published.
    pub fn publish(&mut self, session: usize, batch: &[PlannedMessage], data_bytes: usize) -> Result<(), Problem> {
        self.check_sending(session)?;
        if let Some(PlannedMessage { room, .. }) = batch.iter().find(|one| one.room >= self.membership.rooms) {
            return Err(Problem::Usage(format!("there is no room {room}")));
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.write_batch(session, batch, data_bytes);
        self.send_payload(session, batch.len())
    }

    /// Sends to a service channel, whose answer with the same data is awaited by this session. Answers count as deliveries.
    ///
    /// # Errors
    /// As [`Clients::publish`].
    pub fn call(&mut self, session: usize, channel: &str, planned_us: u64, data_bytes: usize) -> Result<(), Problem> {
        self.check_sending(session)?;
        self.write_call(session, channel, planned_us, data_bytes);
        self.send_payload(session, 1)
    }

    /// Waits for sockets for at most `timeout` and serves those that are ready; timers of sessions run here, too.
    ///
    /// # Errors
    /// The machine's, never a single session's.
    pub fn turn(&mut self, timeout: Duration) -> Result<(), Problem> {
        let next_us =
            self.timers.next_us().into_iter().chain(self.breaker.as_ref().and_then(|breaker| breaker.next_us()));
        let timeout = next_us.min().map_or(timeout, |next_us| timeout.min(clock::until(next_us)));
        let mut ready = std::mem::take(&mut self.ready);
        let waited = self.shared.poll.wait(timeout, &mut ready);
        ready.iter().for_each(|ready| self.serve(ready));
        self.ready = ready;
        self.wake();
        self.make_cuts();
        waited
    }

    /// Counters so far. A delivery counts as received if it was asked for, the first time, and if it was published since
    /// [`Clients::begin`]: when `received` has grown by [`Clients::expected`] since then, everything has arrived.
    pub fn counts(&self) -> Counts {
        Counts {
            connected: self.connected,
            dropped: self.dropped,
            sent: self.sent,
            sent_batches: self.sent_batches,
            sent_bytes: self.sent_bytes,
            denied: self.shared.reader.denied,
            received: self.shared.reader.received,
            received_batches: self.shared.reader.batches,
            received_bytes: self.shared.reader.bytes,
        }
    }

    /// From now on, deliveries planned at or after `from_us` are timed, one in `sample` (a power of two), and those that took
    /// longer than `late_after_us` are counted as late, whether sampled or not. Clears what was timed before.
    pub fn time_from(&mut self, from_us: u64, sample: u32, late_after_us: u64) {
        self.shared.reader.time_from(from_us, sample, late_after_us);
    }

    /// What was timed: `(microseconds, how many)`, rising, and the highest.
    pub fn latencies_us(&self) -> (Vec<(u64, u64)>, u64) {
        (self.shared.reader.latencies_us(), self.latency_max_us())
    }

    /// The highest latency seen since [`Clients::time_from`], sampled or not.
    pub fn latency_max_us(&self) -> u64 {
        self.shared.reader.latency_max_us()
    }

    /// What this worker has published so far.
    pub fn published(&self) -> &Published {
        &self.published
    }

    /// How many deliveries this worker's sessions should have had since the crowd or [`Clients::begin`] began, by what all
    /// workers have published, this one's own included, in the order of workers; and the answers of its own calls.
    pub fn expected(&self, all: &[Published]) -> u64 {
        self.shared.reader.tally.expected(all)
    }

    /// What is wrong if nothing more comes.
    pub fn faults(&self, all: &[Published]) -> Faults {
        Faults {
            late: self.shared.reader.late(),
            dropped_sessions: self.dropped - self.dropped_before,
            ..self.shared.reader.tally.faults(all)
        }
    }

    /// Begins a new trial: what was published before neither counts nor is expected any more. Returns how many deliveries of the
    /// trial have been received already, from workers that were sooner; they were counted, but not timed.
    pub fn begin(&mut self, all: &[Published]) -> u64 {
        let early = self.shared.reader.tally.begin(all);
        self.sessions.iter_mut().for_each(|session| session.has_broken = false);
        self.shared.reader.time_from(u64::MAX, 1, u64::MAX);
        self.dropped_before = self.dropped;
        early
    }

    /// Why the first lost session was lost, or what else went wrong first, such as a refused publication.
    pub fn first_loss(&self) -> Option<&str> {
        self.first_loss.as_deref().or(self.shared.reader.refused.as_deref())
    }

    /// Breaks every connection at once, without a goodbye; with [`ClientsSpec::reconnect`] the sessions come back.
    pub fn cut(&mut self) {
        self.reset_all();
        for index in 0..self.sessions.len() {
            if self.sessions[index].socket().is_some() {
                self.error(index, ConnectionError::Lost("was cut off".into()));
            }
        }
        self.pool.close();
    }

    /// Says goodbye on all sessions, as far as that goes without waiting long, and closes the sockets.
    pub fn disconnect(&mut self) {
        for index in 0..self.sessions.len() {
            if self.sessions[index].state == SessionState::Open && self.sessions[index].protocol.disconnect() {
                self.set_state(index, SessionState::Disconnecting);
                self.settle(index);
            }
        }
        let begin = Instant::now();
        while self.disconnecting > 0 && begin.elapsed() < DISCONNECT_TIMEOUT {
            if self.turn(Duration::from_millis(20)).is_err() {
                break;
            }
        }
        self.reset_all();
        for index in 0..self.sessions.len() {
            self.sessions[index].close();
            self.set_state(index, SessionState::Gone);
        }
        self.pool.close();
    }

    /// Lets the sockets end with a reset: no port of ours waits for stragglers, and the next crowd can have it.
    fn reset_all(&mut self) {
        for socket in self.sessions.iter().filter_map(Session::socket) {
            // Without it, the socket is closed all the same.
            let _ = sockopt::set_socket_linger(socket.stream(), Some(Duration::ZERO));
        }
    }
}

/// How long to wait for the replies to goodbyes.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);
