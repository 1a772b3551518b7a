//! The phases of a restart under load.
//!
//! ```text
//! sending ──▶ signal ──▶ ended, started at once ──▶ all are back ──▶ sending ──▶ all are answered, the confirmed ones have arrived
//! ```

use std::time::{Duration, Instant};

use super::server::{Kill, Plan, Running};
use crate::engine::{Clients, PlannedMessage};
use crate::problem::Problem;
use crate::report::Sample;
use crate::report::units::count;
use crate::run::{Bench, Interrupt};

/// A restart run.
pub(super) struct RestartRun<'a> {
    terms: RestartTerms,
    bench: &'a mut Bench,
    clients: &'a mut Clients,
    /// The planned time of the next message, in microseconds.
    next_us: u64,
    began: Instant,
    samples: Vec<Sample>,
}

/// The terms of a restart run.
pub(super) struct RestartTerms {
    pub(super) clients: u32,
    pub(super) kill: Kill,
    /// Messages per second, and the length of each.
    pub(super) rate: f64,
    pub(super) message_size: u32,
    /// Time to send messages before the stop, and after all are back.
    pub(super) around: Duration,
    pub(super) back_within: Duration,
    /// True if others serve clients while this server is away. Only a part of the clients has to come back then.
    pub(super) is_one_of_several: bool,
}

impl RestartTerms {
    /// The clients that are back, or have never been away. The publisher is none of them.
    pub(super) fn back(&self, clients: &Clients) -> u64 {
        if self.is_one_of_several {
            return clients.clients_open();
        }
        let (connect, handshake) = clients.clients_back();
        connect + handshake
    }
}

/// Percent of the clients that are timed.
pub(super) const SHARES: [u64; 3] = [50, 99, 100];

/// The times of a restart.
pub(super) struct RestartTimes {
    /// Time from the signal to the end of the server.
    pub(super) ended: Option<Duration>,
    /// Time from the new start until it accepted connections.
    pub(super) listened: Option<Duration>,
    /// Time from the new start until each share of the clients was back.
    pub(super) back: [Option<Duration>; 3],
    pub(super) samples: Vec<Sample>,
}

/// Starts a server and waits until it listens; none if the run is to end before.
pub(super) fn started(plan: &Plan, interrupt: &Interrupt) -> Result<Option<Running>, Problem> {
    let mut server = plan.start(interrupt)?;
    let began = Instant::now();
    while !server.is_up()? {
        if interrupt.is_set() {
            return Ok(None);
        }
        if began.elapsed() > START_TIMEOUT {
            return Err(Problem::Server(format!("does not listen after {} s", START_TIMEOUT.as_secs())));
        }
        std::thread::sleep(TURN);
    }
    Ok(Some(server))
}

impl<'a> RestartRun<'a> {
    pub(super) fn new(terms: RestartTerms, bench: &'a mut Bench, clients: &'a mut Clients) -> RestartRun<'a> {
        let now_us = Clients::clock_us();
        RestartRun { terms, bench, clients, next_us: now_us, began: Instant::now(), samples: Vec::new() }
    }

    /// Runs from the first message to the last, and ends the server. Returns `None` if the run is to end early, since
    /// an incomplete restart has no result.
    pub(super) fn run(mut self, plan: &Plan, mut server: Running) -> Result<Option<RestartTimes>, Problem> {
        let mut times = RestartTimes { ended: None, listened: None, back: [None; 3], samples: Vec::new() };
        self.clients.begin(&[]);
        self.clients.note_confirmations();
        self.send_for(self.terms.around)?;
        if self.bench.interrupt.is_set() {
            return Ok(None);
        }
        // The clients reconnect without a limit.
        self.clients.set_opening_at_once(self.terms.clients);
        server.signal(self.terms.kill)?;
        let signalled = Instant::now();
        while server.ended()?.is_none() {
            if self.bench.interrupt.is_set() {
                return Ok(None);
            }
            if signalled.elapsed() > STOP_TIMEOUT {
                return Err(Problem::Server(format!("does not stop within {} s", STOP_TIMEOUT.as_secs())));
            }
            self.turn("stopping")?;
        }
        times.ended = Some(signalled.elapsed());
        // Its final messages are still to be read.
        let reading = Instant::now();
        while reading.elapsed() < LAST_MESSAGES {
            self.turn("stopping")?;
        }
        self.clients.reset_breaks();
        let mut server = plan.start(&self.bench.interrupt)?;
        self.wait_for_return(&mut server, &mut times)?;
        if times.back[2].is_some() {
            self.send_for(self.terms.around)?;
        }
        self.settle()?;
        if self.bench.interrupt.is_set() {
            return Ok(None);
        }
        self.sample();
        times.samples = std::mem::take(&mut self.samples);
        Ok(Some(times))
    }

    /// Waits until no publication waits for its reply and all confirmed ones have arrived, or until nothing comes any
    /// more. A reply makes one more message expected, so the two have to be true at once.
    fn settle(&mut self) -> Result<(), Problem> {
        let progress = |clients: &Clients| (clients.counts().received, clients.unanswered());
        let mut latest = (progress(self.clients), Instant::now());
        let mut settled: Option<Instant> = None;
        while settled.is_none_or(|since| since.elapsed() < LINGER)
            && latest.1.elapsed() < REPLAY_TIMEOUT
            && !self.bench.interrupt.is_set()
        {
            self.serve("replaying")?;
            let now = progress(self.clients);
            if now != latest.0 {
                latest = (now, Instant::now());
            }
            let is_settled = self.clients.unanswered() == 0 && self.clients.missing_confirmed() == 0;
            settled = settled.or(Some(Instant::now())).filter(|_| is_settled);
        }
        Ok(())
    }

    /// Waits until all are back, or it takes too long.
    fn wait_for_return(&mut self, server: &mut Running, times: &mut RestartTimes) -> Result<(), Problem> {
        let clients = u64::from(self.terms.clients);
        let wanted = SHARES.map(|share| (clients * share).div_ceil(100));
        let began = Instant::now();
        let (mut probed, timeout) = (Instant::now(), self.terms.back_within + BACK_TIMEOUT);
        while times.back[2].is_none() && began.elapsed() < timeout && !self.bench.interrupt.is_set() {
            self.turn("coming back")?;
            if times.listened.is_none() && probed.elapsed() > PROBE_EVERY {
                probed = Instant::now();
                times.listened = server.is_up()?.then(|| began.elapsed());
            }
            let connected = self.terms.back(self.clients);
            for (time, wanted) in times.back.iter_mut().zip(wanted) {
                if time.is_none() && connected >= wanted && times.listened.is_some() {
                    *time = Some(began.elapsed());
                }
            }
        }
        Ok(())
    }

    fn send_for(&mut self, time: Duration) -> Result<(), Problem> {
        let began = Instant::now();
        while began.elapsed() < time && !self.bench.interrupt.is_set() {
            self.turn("sending")?;
        }
        Ok(())
    }

    /// Serves the sockets and sends the messages that are due. A message that the session refuses is dropped.
    fn turn(&mut self, what: &str) -> Result<(), Problem> {
        let now_us = Clients::clock_us();
        while self.next_us <= now_us {
            let message = PlannedMessage { room: 0, planned_us: self.next_us };
            let publisher = self.clients.publishers().start;
            let _ = self.clients.publish(publisher, &[message], self.terms.message_size as usize);
            self.next_us += (1e6 / self.terms.rate) as u64;
        }
        self.serve(what)
    }

    fn serve(&mut self, what: &str) -> Result<(), Problem> {
        self.clients.turn(TURN)?;
        if self.samples.last().is_none_or(|last| self.at_ms() >= last.at_ms + SAMPLE_EVERY_MS) {
            self.sample();
            let (connected, all) = (self.clients.counts().connected, u64::from(self.terms.clients) + 1);
            self.bench.progress.tick(|| format!("{what}  {} of {} are connected", count(connected), count(all)));
        }
        Ok(())
    }

    fn sample(&mut self) {
        let counts = self.clients.counts();
        let (sent, received, connected) = (counts.sent, counts.received, counts.connected);
        self.samples.push(Sample { at_ms: self.at_ms(), connected, sent, received, ..Sample::default() });
    }

    fn at_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }
}

impl Kill {
    /// The signal's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kill::Term => "SIGTERM",
            Kill::Kill => "SIGKILL",
        }
    }
}

const TURN: Duration = Duration::from_millis(5);
const LAST_MESSAGES: Duration = Duration::from_millis(50);
const PROBE_EVERY: Duration = Duration::from_millis(20);
const SAMPLE_EVERY_MS: u64 = 100;
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Beyond the time that all have to be back in, so that it is seen how long it would take.
const BACK_TIMEOUT: Duration = Duration::from_secs(50);
/// Since something came.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(8);
/// Doubled deliveries come within this time.
const LINGER: Duration = Duration::from_millis(500);
