//! The sessions of one process.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::engine::breaker::Breaker;
use crate::engine::clock;
use crate::engine::error::ConnectionError;
use crate::engine::http2::Links;
use crate::engine::poll::Ready;
use crate::engine::pool::Pool;
use crate::engine::published::Published;
use crate::engine::session::{Session, SessionState};
use crate::engine::shared::WorkerShared;
use crate::engine::timers::Timers;
use crate::latencies::Latencies;
use crate::order::{ClientsSpec, Membership, Recovery};
use crate::outcome::Breaks;
use crate::outcome::Faults;
use crate::problem::Problem;

/// Sessions of one process: its share of the subscribers, and of those that only publish.
#[derive(Debug)]
pub struct Clients {
    pub(super) shared: WorkerShared,
    pub(super) sessions: Vec<Session>,
    /// The final number of sessions. Shared connections have the tokens after them: those of the pool, then those of HTTP/2.
    pub(super) total: usize,
    pub(super) subscriber_count: usize,
    pub(super) pool: Pool,
    /// The connections that sessions share, if their WebSockets are streams of HTTP/2.
    pub(super) http2: Links,
    pub(super) timers: Timers,
    pub(super) ready: Vec<Ready>,
    pub(super) membership: Membership,
    pub(super) worker: u32,
    pub(super) reconnect: bool,
    pub(super) recovery: Recovery,
    /// Breaks connections while a trial asks for it.
    pub(super) breaker: Option<Box<Breaker>>,
    pub(super) breaks: Breaks,
    pub(super) opening_at_once: usize,
    /// Sessions whose pause has ended.
    pub(super) to_reopen: VecDeque<usize>,
    pub(super) stage: Stage,
    /// The first error during opening.
    pub(super) failure: Option<ConnectionError>,
    pub(super) first_loss: Option<String>,
    /// Sessions that are [`SessionState::Open`].
    pub(super) connected: u64,
    /// Sessions that are [`SessionState::Opening`].
    pub(super) opening_now: usize,
    /// Sessions that are [`SessionState::Disconnecting`].
    pub(super) disconnecting: usize,
    pub(super) dropped: u64,
    /// The part of `dropped` from before the trial.
    pub(super) dropped_before: u64,
    pub(super) published: Published,
    pub(super) sent: u64,
    pub(super) sent_batches: u64,
    pub(super) sent_bytes: u64,
    /// The id of the next publication.
    pub(super) next_id: u64,
    /// True if publications decline their replies.
    pub(super) no_reply: bool,
    /// A reused buffer for the next batch.
    pub(super) payload: Vec<u8>,
}

/// The phase of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Any connection error ends the opening.
    Opening,
    /// Sessions come back, or are lost.
    Running,
}

/// One publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedMessage {
    /// The room's number.
    pub room: u32,
    /// The planned send time, in microseconds of the load's clock.
    pub planned_us: u64,
}

/// Counters since the clients were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that are open now.
    pub connected: u64,
    /// Sessions that were lost permanently.
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

impl Clients {
    /// Opens this worker's share of the clients: worker `worker` of `workers` has the clients whose number modulo
    /// `workers` is `worker`, and likewise the publishers. Calls `progress` now and then with the number of open
    /// sessions. If it returns false, the opening stops with the sessions open so far.
    ///
    /// # Errors
    /// The target does not answer, is not a Bayeux server, refuses a session, or does not support
    /// [`ClientsSpec::recovery`]; or the limit of open files is too low.
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

    /// The load's clock in microseconds: the machine's monotonic clock, equal in all processes.
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

    /// Publishes the messages in one batch, and numbers the publications of each room. Never waits.
    ///
    /// # Errors
    /// The session is closed or disconnected, its queue is full, or a room does not exist. Nothing was published then.
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

    /// Sends to a service channel. The session expects an answer with the same data, which counts as a delivery.
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

    /// The number of TLS handshakes that have resumed an earlier session.
    pub fn resumed(&self) -> u64 {
        self.shared.target.resumed()
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

    /// Starts timing: from now on, one in `sample` deliveries (a power of two) planned at or after `from_us` is
    /// recorded, and every delivery that takes longer than `late_after_us` counts as late. Clears earlier records.
    pub fn time_from(&mut self, from_us: u64, sample: u32, late_after_us: u64) {
        self.shared.reader.time_from(from_us, sample, late_after_us);
    }

    /// The latencies since [`Clients::time_from`]; the highest one may not be among the sampled.
    pub fn latencies(&self) -> &Latencies {
        self.shared.reader.latencies()
    }

    /// This worker's publications so far.
    pub fn published(&self) -> &Published {
        &self.published
    }

    /// The number of deliveries that this worker's sessions expect since [`Clients::begin`], given the publications of
    /// all workers in worker order, plus the answers to its own calls.
    pub fn expected(&self, all: &[Published]) -> u64 {
        self.shared.reader.tally.expected(all)
    }

    /// The faults, assuming that nothing more arrives.
    pub fn faults(&self, all: &[Published]) -> Faults {
        Faults {
            late: self.shared.reader.late(),
            dropped_sessions: self.dropped - self.dropped_before,
            ..self.shared.reader.tally.faults(all)
        }
    }

    /// Begins a new trial: earlier publications neither count nor are expected any more. Returns the number of
    /// deliveries of the new trial that already arrived from workers that began sooner; they are counted, but not
    /// timed.
    pub fn begin(&mut self, all: &[Published]) -> u64 {
        let early = self.shared.reader.tally.begin(all);
        self.sessions.iter_mut().for_each(|session| session.has_broken = false);
        self.shared.reader.time_from(u64::MAX, 1, u64::MAX);
        self.dropped_before = self.dropped;
        early
    }

    /// The reason of the first lost session, or the first other failure, such as a refused publication.
    pub fn first_loss(&self) -> Option<&str> {
        self.first_loss.as_deref().or(self.shared.reader.refused.as_deref())
    }

    /// Breaks every connection at once, without a disconnect. With [`ClientsSpec::reconnect`] the sessions reconnect.
    pub fn cut(&mut self) {
        self.reset_all();
        for index in 0..self.sessions.len() {
            if self.socket_mut(index).is_some() {
                self.lose(index, ConnectionError::Lost("was cut off".into()));
            }
        }
        self.pool.close();
    }

    /// Disconnects all sessions, waits briefly for the replies, and closes the sockets.
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
            self.close(index);
            self.set_state(index, SessionState::Gone);
        }
        self.pool.close();
    }

    /// Makes the sockets close with a reset, so that no local port stays in TIME_WAIT.
    fn reset_all(&mut self) {
        for socket in self.sessions.iter().filter_map(Session::socket).chain(self.http2.sockets()) {
            // If this fails, the socket is still closed.
            let _ = sockopt::set_socket_linger(socket.stream(), Some(Duration::ZERO));
        }
    }
}

/// Time to wait for the replies to disconnects.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);
