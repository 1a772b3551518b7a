//! Opening clients: paced, bounded, with a precise error if it fails.

use std::time::{Duration, Instant};

use crate::engine::clients::{Clients, Stage};
use crate::engine::clock::now_us;
use crate::engine::error::ConnectionError;
use crate::engine::files::allow_sockets;
use crate::engine::http2::Links;
use crate::engine::members::{channel_of, rooms_of};
use crate::engine::poll::Poll;
use crate::engine::pool::{POOL_CONNECTIONS, Pool};
use crate::engine::published::Published;
use crate::engine::reader::Reader;
use crate::engine::session::{Session, SessionState};
use crate::engine::shared::WorkerShared;
use crate::engine::stamp::{CALL_ROOM, PUBLISHERS_MAX, WORKERS_MAX};
use crate::engine::tally::Tally;
use crate::engine::target::Target;
use crate::engine::timers::Timers;
use crate::order::{ClientsSpec, Recovery, Transport};
use crate::outcome::Breaks;
use crate::problem::Problem;

impl Clients {
    /// Creates the clients without opening a session.
    pub(super) fn prepare(spec: &ClientsSpec, worker: u32, workers: u32) -> Result<Clients, Problem> {
        let share = |count: u32| count.saturating_sub(worker).div_ceil(workers.max(1)) as usize;
        let (clients, publishers) = (share(spec.clients), share(spec.publishers));
        let total = clients + publishers;
        check_numbers(spec, workers, total)?;
        let default_path = if spec.transport == Transport::Raw { "/" } else { "/cometd" };
        if spec.publish_to.is_some() && spec.publishers == 0 {
            return Err(Problem::Usage("--publish-to is for scenarios with sessions that only publish".into()));
        }
        let resolve = |url: &String| Target::resolve(url, default_path, &spec.trust);
        let mut target = resolve(&spec.target)?;
        let publishers_at = spec.publish_to.as_ref().map(resolve).transpose()?.map(|target| (clients, target));
        let pool = if spec.transport.is_http() { POOL_CONNECTIONS } else { 0 };
        // Streams of HTTP/2 are for WebSockets of the target.
        let streams = spec.streams_per_connection.filter(|_| !spec.transport.is_http());
        let at_target = if publishers_at.is_some() { clients } else { total };
        let (streamed, per_connection) = streams.map_or((0, 1), |streams| (at_target, streams.max(1) as usize));
        let http2 = Links::new(streamed, clients.min(streamed), per_connection, (total + pool) as u64);
        if streams.is_some() {
            target.require_http2();
        }
        allow_sockets((total - streamed + http2.len() + pool) as u64)?;
        let members = (0..clients as u32).map(|client| rooms_of(&spec.membership, worker + client * workers.max(1)));
        let no_rooms = (0..publishers).map(|_| Vec::new());
        let tally = Tally::new(worker, workers, spec.membership.rooms, members.chain(no_rooms));
        let reader = Reader::new(tally, (spec.transport != Transport::Raw).then(|| spec.membership.clone()));
        let mut shared = WorkerShared::new(target, spec.transport, Poll::new()?, reader);
        shared.publishers_at = publishers_at;
        shared.inflater = spec.compress.then(Default::default);
        // Clients that do not reconnect need no positions, so their deliveries can be read by the fast path.
        if spec.reconnect && spec.recovery != Recovery::default() {
            shared.parsing_sessions = clients;
        }
        Ok(Clients {
            shared,
            sessions: Vec::with_capacity(total),
            total,
            subscriber_count: clients,
            pool: Pool::new(pool, total as u64),
            http2,
            timers: Timers::default(),
            ready: Vec::new(),
            membership: spec.membership.clone(),
            worker,
            reconnect: spec.reconnect,
            recovery: spec.recovery,
            breaker: None,
            breaks: Breaks::default(),
            opening_at_once: spec.opening_at_once.max(1) as usize,
            to_reopen: std::collections::VecDeque::new(),
            stage: Stage::Opening,
            failure: None,
            first_loss: None,
            connected: 0,
            opening_now: 0,
            disconnecting: 0,
            dropped: 0,
            dropped_before: 0,
            published: Published { next: vec![0; spec.membership.rooms as usize] },
            sent: 0,
            sent_batches: 0,
            sent_bytes: 0,
            next_id: 0,
            no_reply: spec.no_reply,
            payload: Vec::new(),
        })
    }

    /// Opens all sessions, or stops when `progress` returns false.
    pub(super) fn open_all(
        &mut self,
        opens_per_s: Option<f64>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), Problem> {
        let begin_us = now_us();
        let mut last_progress = Instant::now();
        let mut moved = ((0, 0), Instant::now());
        while (self.connected as usize) < self.total {
            let due = opens_per_s.map_or(self.total, |rate| ((now_us() - begin_us) as f64 / 1e6 * rate) as usize + 1);
            while self.sessions.len() < self.total.min(due) && self.opening_now < self.opening_at_once {
                self.begin_session();
            }
            let paced = self.sessions.len() < self.total && opens_per_s.is_some();
            self.turn(if paced { PACE_STEP } else { PROGRESS_STEP })?;
            if let Some(error) = self.failure.take() {
                return Err(self.not_opened(&error));
            }
            let now = (self.connected, self.sessions.len());
            if now != moved.0 || self.opening_now == 0 {
                moved = (now, Instant::now());
            } else if moved.1.elapsed() > OPEN_TIMEOUT {
                let mut sockets = self.sessions.iter().filter_map(Session::socket).chain(self.http2.sockets());
                let connecting = sockets.any(|socket| socket.is_connecting());
                let reason = format!("sent nothing for {} s", OPEN_TIMEOUT.as_secs());
                let error =
                    if connecting { ConnectionError::Unreachable(reason) } else { ConnectionError::NotSpoken(reason) };
                return Err(self.not_opened(&error));
            }
            if last_progress.elapsed() >= PROGRESS_STEP {
                last_progress = Instant::now();
                if !progress(self.connected) {
                    break;
                }
            }
        }
        progress(self.connected);
        self.stage = Stage::Running;
        Ok(())
    }

    fn begin_session(&mut self) {
        let index = self.sessions.len();
        let rooms = self.shared.reader.tally.rooms_of(index);
        let channels: Vec<_> = rooms.iter().map(|room| channel_of(&self.membership, *room)).collect();
        let is_elsewhere = self.shared.publishers_at.as_ref().is_some_and(|(first, _)| index >= *first);
        let shares = self.http2.len() > 0 && !is_elsewhere;
        let transport = match self.shared.transport {
            // A publisher gets no events, and its requests would wait for each other.
            Transport::Eventsource if index >= self.subscriber_count => Transport::Websocket,
            Transport::LongPolling if is_elsewhere => Transport::Websocket,
            transport => transport,
        };
        self.sessions.push(Session::new(transport, shares, self.recovery, rooms, &channels));
        self.opening_now += 1;
        debug_assert_eq!(self.sessions[index].state, SessionState::Opening);
        self.open_connection(index);
    }

    /// The error for a failed opening. If no session was opened, one session's error stands for all.
    fn not_opened(&self, error: &ConnectionError) -> Problem {
        let target = self.shared.target_of(self.sessions.len().saturating_sub(1));
        let reason = error.reason();
        match error {
            ConnectionError::Machine(reason) => {
                Problem::Machine(format!("after {} sessions: {reason}", self.connected))
            }
            _ if self.connected > 0 => {
                Problem::Server(format!("{reason}, when {} of {} sessions were open", self.connected, self.total))
            }
            ConnectionError::Unreachable(reason) => {
                Problem::Unreachable { address: target.authority.clone(), reason: reason.clone() }
            }
            ConnectionError::Refused(reason) => Problem::Server(reason.clone()),
            ConnectionError::NotSpoken(_) | ConnectionError::Lost(_) => Problem::NotBayeux {
                address: format!("{}{}", target.authority, target.path),
                reason: format!("it {reason}"),
            },
        }
    }
}

/// Checks that the numbers of rooms, workers and sessions fit into a stamp.
fn check_numbers(spec: &ClientsSpec, workers: u32, sessions: usize) -> Result<(), Problem> {
    for (what, count, max) in [
        ("rooms", u64::from(spec.membership.rooms), CALL_ROOM),
        ("workers", u64::from(workers), WORKERS_MAX),
        ("sessions in a worker", sessions as u64, PUBLISHERS_MAX),
    ] {
        if count > u64::from(max) {
            return Err(Problem::Usage(format!("{count} {what} are too many: at most {max}")));
        }
    }
    Ok(())
}

const PACE_STEP: Duration = Duration::from_millis(1);
const PROGRESS_STEP: Duration = Duration::from_millis(100);
/// Time without progress after which the opening fails.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
