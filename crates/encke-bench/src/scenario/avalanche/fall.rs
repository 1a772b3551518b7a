//! The course of it: messages, the stop, the start, the way back.
//!
//! ```text
//! sending ──▶ told to stop ──▶ ended, started at once ──▶ all are back ──▶ sending ──▶ what was confirmed is there
//! ```

use std::time::{Duration, Instant};

use super::server::{Kill, Plan, Running};
use super::{Avalanche, SHARES};
use crate::engine::{Crowd, Publication};
use crate::problem::Problem;
use crate::report::Sample;
use crate::report::units::count;
use crate::run::{Bench, Interrupt};

/// One avalanche on its way.
pub(super) struct Fall<'a> {
    terms: &'a Avalanche,
    bench: &'a mut Bench,
    crowd: &'a mut Crowd,
    /// When the next message is due, in microseconds.
    next_us: u64,
    began: Instant,
    samples: Vec<Sample>,
}

/// How it went.
pub(super) struct Fallen {
    /// From the signal to the end of the server.
    pub(super) ended: Option<Duration>,
    /// From its new start until it took connections.
    pub(super) listened: Option<Duration>,
    /// From its new start until each share of the clients was back.
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
        if began.elapsed() > START_PATIENCE {
            return Err(Problem::Server(format!("does not listen after {} s", START_PATIENCE.as_secs())));
        }
        std::thread::sleep(TURN);
    }
    Ok(Some(server))
}

impl<'a> Fall<'a> {
    pub(super) fn new(terms: &'a Avalanche, bench: &'a mut Bench, crowd: &'a mut Crowd) -> Fall<'a> {
        let now_us = Crowd::clock_us();
        Fall { terms, bench, crowd, next_us: now_us, began: Instant::now(), samples: Vec::new() }
    }

    /// From the first message to the last. The server ends with it. None if the run is to end before: half an avalanche says
    /// nothing.
    pub(super) fn run(mut self, plan: &Plan, mut server: Running) -> Result<Option<Fallen>, Problem> {
        let mut fallen = Fallen { ended: None, listened: None, back: [None; 3], samples: Vec::new() };
        self.crowd.begin(&[]);
        self.crowd.note_confirmations();
        self.go_on_for(self.terms.around)?;
        if self.bench.interrupt.is_set() {
            return Ok(None);
        }
        // Nobody waits for anybody now.
        self.crowd.open_at_once(self.terms.clients);
        server.signal(self.terms.kill)?;
        let signalled = Instant::now();
        while server.ended()?.is_none() {
            if self.bench.interrupt.is_set() {
                return Ok(None);
            }
            if signalled.elapsed() > STOP_PATIENCE {
                return Err(Problem::Server(format!("does not stop within {} s", STOP_PATIENCE.as_secs())));
            }
            self.turn("stopping")?;
        }
        fallen.ended = Some(signalled.elapsed());
        // Its last words are still to be read.
        let reading = Instant::now();
        while reading.elapsed() < LAST_WORDS {
            self.turn("stopping")?;
        }
        self.crowd.forget_breaks();
        let mut server = plan.start(&self.bench.interrupt)?;
        self.come_back(&mut server, &mut fallen)?;
        if fallen.back[2].is_some() {
            self.go_on_for(self.terms.around)?;
        }
        self.catch_up()?;
        if self.bench.interrupt.is_set() {
            return Ok(None);
        }
        self.sample();
        fallen.samples = std::mem::take(&mut self.samples);
        Ok(Some(fallen))
    }

    /// Until what was confirmed is there, or nothing comes any more.
    fn catch_up(&mut self) -> Result<(), Problem> {
        let mut arrival = (self.crowd.counts().received, Instant::now());
        while self.crowd.missing_confirmed() > 0 && arrival.1.elapsed() < CATCH_UP_PATIENCE {
            if self.bench.interrupt.is_set() {
                return Ok(());
            }
            self.serve("catching up")?;
            let received = self.crowd.counts().received;
            if received > arrival.0 {
                arrival = (received, Instant::now());
            }
        }
        // What comes twice comes soon after.
        let lingering = Instant::now();
        while lingering.elapsed() < LINGER && !self.bench.interrupt.is_set() {
            self.serve("catching up")?;
        }
        Ok(())
    }

    /// Until all are back, or it takes too long.
    fn come_back(&mut self, server: &mut Running, fallen: &mut Fallen) -> Result<(), Problem> {
        let clients = u64::from(self.terms.clients);
        let wanted = SHARES.map(|share| (clients * share).div_ceil(100));
        let began = Instant::now();
        let (mut probed, patience) = (Instant::now(), self.terms.back_within + BACK_PATIENCE);
        while fallen.back[2].is_none() && began.elapsed() < patience && !self.bench.interrupt.is_set() {
            self.turn("coming back")?;
            if fallen.listened.is_none() && probed.elapsed() > PROBE_EVERY {
                probed = Instant::now();
                fallen.listened = server.is_up()?.then(|| began.elapsed());
            }
            // The publisher is none of them.
            let (connect, handshake) = self.crowd.clients_back();
            let connected = connect + handshake;
            for (time, wanted) in fallen.back.iter_mut().zip(wanted) {
                if time.is_none() && connected >= wanted && fallen.listened.is_some() {
                    *time = Some(began.elapsed());
                }
            }
        }
        Ok(())
    }

    fn go_on_for(&mut self, time: Duration) -> Result<(), Problem> {
        let began = Instant::now();
        while began.elapsed() < time && !self.bench.interrupt.is_set() {
            self.turn("sending")?;
        }
        Ok(())
    }

    /// Serves sockets and sends what is due; what nobody takes is not sent.
    fn turn(&mut self, what: &str) -> Result<(), Problem> {
        let now_us = Crowd::clock_us();
        while self.next_us <= now_us {
            let publication = Publication { room: 0, planned_us: self.next_us };
            let publisher = self.crowd.publishers().start;
            let _ = self.crowd.publish(publisher, &[publication], self.terms.message_size as usize);
            self.next_us += (1e6 / self.terms.rate) as u64;
        }
        self.serve(what)
    }

    fn serve(&mut self, what: &str) -> Result<(), Problem> {
        self.crowd.turn(TURN)?;
        if self.samples.last().is_none_or(|last| self.at_ms() >= last.at_ms + SAMPLE_EVERY_MS) {
            self.sample();
            let (connected, all) = (self.crowd.counts().connected, u64::from(self.terms.clients) + 1);
            self.bench.progress.tick(|| format!("{what}  {} of {} are connected", count(connected), count(all)));
        }
        Ok(())
    }

    fn sample(&mut self) {
        let counts = self.crowd.counts();
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
const LAST_WORDS: Duration = Duration::from_millis(50);
const PROBE_EVERY: Duration = Duration::from_millis(20);
const SAMPLE_EVERY_MS: u64 = 100;
const START_PATIENCE: Duration = Duration::from_secs(60);
const STOP_PATIENCE: Duration = Duration::from_secs(60);
/// Beyond the time that all have to be back in, so that it is seen how long it would take.
const BACK_PATIENCE: Duration = Duration::from_secs(50);
/// Since something came.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(8);
const LINGER: Duration = Duration::from_millis(500);
