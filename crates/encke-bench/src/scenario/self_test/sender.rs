//! The other end of the self-test: sends the same numbered frames to all sockets, and nothing else.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use websocket::{Decoder, Event, Flow, Opcode, Role, frame, handshake};

use crate::engine::Clients;
use crate::engine::stamp::Stamp;
use crate::machine::pin;
use crate::problem::Problem;

/// The pace of the sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    /// As fast as the sockets accept.
    Flood,
    /// This many messages per second to all sockets together, [`PACED_FRAMES`] in each write.
    Paced {
        /// Messages per second.
        per_s: f64,
    },
}

/// The thread that sends. It ends when this is dropped.
pub(super) struct Sender {
    address: SocketAddr,
    signals: Arc<Signals>,
    thread: Option<JoinHandle<Result<Sent, Problem>>>,
}

/// The number of messages sent. The sockets stay open until it is dropped.
pub(super) struct Sent {
    /// Messages to each socket.
    pub(super) messages: u32,
    _sockets: Vec<Socket>,
}

#[derive(Debug, Default)]
struct Signals {
    go: AtomicBool,
    stop: AtomicBool,
}

/// A socket, and how much of the round at hand it has taken.
struct Socket {
    stream: TcpStream,
    written: usize,
}

impl Sender {
    /// Starts the thread on `core`; it accepts `clients` sockets and waits for [`Sender::go`].
    pub(super) fn start(core: usize, clients: u32, mode: Mode) -> Result<Sender, Problem> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let signals = Arc::new(Signals::default());
        let seen = Arc::clone(&signals);
        let thread = thread::Builder::new().name("sender".into()).spawn(move || {
            pin(core)?;
            let mut sockets = accept(&listener, clients, &seen)?;
            let messages = match mode {
                Mode::Flood => flood(&mut sockets, &seen),
                Mode::Paced { per_s } => pace(&mut sockets, per_s, &seen),
            };
            Ok(Sent { messages, _sockets: sockets })
        })?;
        Ok(Sender { address, signals, thread: Some(thread) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// All sockets are open: it begins to send.
    pub(super) fn go(&self) {
        self.signals.go.store(true, Ordering::Relaxed);
    }

    /// It finishes the round at hand and ends. As long as it has not, its sockets are to be read.
    pub(super) fn ask_to_stop(&self) {
        self.signals.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns the number of messages sent, after [`Sender::has_ended`].
    pub(super) fn join(mut self) -> Result<Sent, Problem> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(sent)) => sent,
            _ => Err(Problem::Machine("the sending thread ended in a panic".into())),
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.signals.stop.store(true, Ordering::Relaxed);
    }
}

/// Accepts the sockets: upgrades them, and confirms their rooms.
fn accept(listener: &TcpListener, clients: u32, signals: &Signals) -> Result<Vec<Socket>, Problem> {
    listener.set_nonblocking(true)?;
    let mut joining = Vec::new();
    let mut sockets = Vec::new();
    while sockets.len() < clients as usize || !signals.go.load(Ordering::Relaxed) {
        if signals.stop.load(Ordering::Relaxed) {
            return Ok(sockets);
        }
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                joining.push(Joining { stream, head: Vec::new(), decoder: None });
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_micros(200)),
            Err(error) => return Err(error.into()),
        }
        let mut waiting = Vec::new();
        for mut socket in joining {
            match socket.step()? {
                true => sockets.push(Socket { stream: socket.stream, written: 0 }),
                false => waiting.push(socket),
            }
        }
        joining = waiting;
    }
    Ok(sockets)
}

/// A socket that is not open yet.
struct Joining {
    stream: TcpStream,
    head: Vec<u8>,
    decoder: Option<Decoder>,
}

impl Joining {
    /// Reads the available data. Returns true if its client has joined.
    fn step(&mut self) -> Result<bool, Problem> {
        let mut buffer = [0; 2048];
        let read = match self.stream.read(&mut buffer) {
            Ok(0) => return Err(Problem::Machine("the load left its own self-test".into())),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        if let Some(decoder) = &mut self.decoder {
            let mut answer = Vec::new();
            let fed = decoder.feed(&mut buffer[..read], &mut |event| {
                if let Event::Text(lines) = event {
                    frame::message(Opcode::Text, lines.as_bytes(), &mut answer);
                }
                Flow::Continue
            });
            fed.map_err(|error| Problem::Machine(format!("the load sent no frames: {error}")))?;
            self.stream.write_all(&answer)?;
            return Ok(!answer.is_empty());
        }
        self.head.extend_from_slice(&buffer[..read]);
        let mut fields = [httparse::EMPTY_HEADER; 16];
        let mut request = httparse::Request::new(&mut fields);
        if request.parse(&self.head).is_ok_and(|status| status.is_complete()) {
            let key = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case("sec-websocket-key"));
            let accept = handshake::accept(&String::from_utf8_lossy(key.map_or(b"", |field| field.value)));
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
            );
            self.stream.write_all(answer.as_bytes())?;
            self.decoder = Some(Decoder::new(Role::Server, buffer.len()));
        }
        Ok(false)
    }
}

/// Rounds of as many frames as one read of the load takes, to every socket.
fn flood(sockets: &mut [Socket], signals: &Signals) -> u32 {
    let (mut next, mut frames) = (0, Vec::new());
    while !signals.stop.load(Ordering::Relaxed) {
        frames.clear();
        (next..next + FLOOD_FRAMES).for_each(|sequence| delivery(sequence, 0, &mut frames));
        next += FLOOD_FRAMES;
        sockets.iter_mut().for_each(|socket| socket.written = 0);
        while sockets.iter().any(|socket| socket.written < frames.len()) {
            for socket in sockets.iter_mut().filter(|socket| socket.written < frames.len()) {
                match socket.stream.write(&frames[socket.written..]) {
                    Ok(written) => socket.written += written,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    // The load has closed its sockets: done.
                    Err(_) => return next,
                }
            }
        }
    }
    next
}

/// A few frames to one socket after the other, each stamped when it is sent.
fn pace(sockets: &mut [Socket], per_s: f64, signals: &Signals) -> u32 {
    let (began, mut rounds, mut next) = (Instant::now(), 0u64, 0);
    let mut frames = Vec::new();
    while !signals.stop.load(Ordering::Relaxed) {
        for socket in &mut *sockets {
            let due = Duration::from_secs_f64(rounds as f64 * f64::from(PACED_FRAMES) / per_s);
            rounds += 1;
            // A thread that sleeps wakes late, which would be the sender's latency and not the load's. The rest of the last
            // round is not waited for.
            while began.elapsed() < due && !signals.stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            frames.clear();
            let now_us = Clients::clock_us();
            (next..next + PACED_FRAMES).for_each(|sequence| delivery(sequence, now_us, &mut frames));
            let mut rest = &frames[..];
            while !rest.is_empty() {
                match socket.stream.write(rest) {
                    Ok(written) => rest = &rest[written..],
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return next,
                }
            }
        }
        next += PACED_FRAMES;
    }
    next
}

fn delivery(sequence: u32, planned_us: u64, out: &mut Vec<u8>) {
    let mut data = Vec::with_capacity(DATA_BYTES);
    Stamp { sequence, room: 0, worker: 0, publisher: 0, planned_us }.write(DATA_BYTES, &mut data);
    frame::message(Opcode::Text, &data, out);
}

const DATA_BYTES: usize = 50;
/// About the size of one read of the load.
const FLOOD_FRAMES: u32 = 512;
/// A write for each would be more than the sending core can do.
const PACED_FRAMES: u32 = 10;
