//! The floor: a single-threaded fan-out over epoll, with no protocol above WebSocket frames.
//!
//! What a publisher (path `/pub`) sends goes to every subscriber (path `/sub`): each line of a text message is framed
//! once, the frame is copied into one buffer per socket, and each buffer is sent once per turn of the loop. It has no
//! sessions, no channels, no subscriptions, no timers: the best that a server on one core could do here. Its one limit is
//! the bytes that may wait for a socket; over it the socket is dropped.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use benches::machine::allow_files;
use benches::problem::Problem;
use clap::Parser;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use websocket::{Decoder, Event, Flow, Opcode, Role, frame, handshake};

/// A fan-out over epoll without a protocol, to compare servers with.
#[derive(Debug, Parser)]
struct Arguments {
    /// The port on 127.0.0.1; 0 takes any free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

fn main() -> ExitCode {
    match Floor::listen(Arguments::parse().port).and_then(Floor::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("floor: {problem}");
            ExitCode::FAILURE
        }
    }
}

struct Floor {
    listener: TcpListener,
    epoll: OwnedFd,
    /// A free place is taken again.
    sockets: Vec<Option<Socket>>,
    free: Vec<usize>,
    input: Vec<u8>,
}

struct Socket {
    stream: TcpStream,
    role: Part,
    /// Waits to be sent.
    output: Vec<u8>,
    /// Waits for the socket to take more.
    blocked: bool,
}

enum Part {
    /// The upgrade request as far as it has come.
    Upgrading(Vec<u8>),
    Subscriber,
    Publisher(Box<Decoder>),
}

/// What reading from a socket led to.
enum Outcome {
    Nothing,
    Publications(Vec<u8>),
    Over,
}

impl Floor {
    fn listen(port: u16) -> Result<Self, Problem> {
        allow_files(FILES_WANTED)?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        listen(&socket, BACKLOG)?;
        let listener = TcpListener::from(socket);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        println!("listening on {}", listener.local_addr()?);
        Ok(Floor { listener, epoll, sockets: Vec::new(), free: Vec::new(), input: vec![0; READ_BYTES] })
    }

    fn run(mut self) -> Result<(), Problem> {
        let mut events = Vec::with_capacity(EVENTS_PER_TURN);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let mut published = false;
            for &epoll::Event { flags, data } in &events {
                match data.u64() {
                    LISTENER => self.accept()?,
                    index => published |= self.serve(index as usize, flags)?,
                }
            }
            if published {
                self.send_all()?;
            }
        }
    }

    fn accept(&mut self) -> Result<(), Problem> {
        loop {
            let (stream, _) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or_else(|| {
                self.sockets.push(None);
                self.sockets.len() - 1
            });
            epoll::add(&self.epoll, &stream, EventData::new_u64(index as u64), EventFlags::IN)?;
            let role = Part::Upgrading(Vec::new());
            self.sockets[index] = Some(Socket { stream, role, output: Vec::new(), blocked: false });
        }
    }

    /// Serves one socket and says whether something was published.
    fn serve(&mut self, index: usize, flags: EventFlags) -> Result<bool, Problem> {
        if flags.contains(EventFlags::OUT) && !self.send(index)? {
            return Ok(false);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return Ok(false);
        }
        let Some(socket) = self.sockets[index].as_mut() else { return Ok(false) };
        match socket.receive(&mut self.input) {
            Outcome::Nothing => {
                self.send(index)?;
                Ok(false)
            }
            Outcome::Publications(frames) => {
                self.copy_to_all(&frames);
                Ok(true)
            }
            Outcome::Over => {
                self.drop_socket(index);
                Ok(false)
            }
        }
    }

    /// Copies each frame into each subscriber's buffer.
    fn copy_to_all(&mut self, mut frames: &[u8]) {
        while let Some((head, length)) = frame::split(frames) {
            let (one, rest) = frames.split_at(head + length);
            for socket in self.sockets.iter_mut().flatten() {
                if matches!(socket.role, Part::Subscriber) {
                    socket.output.extend_from_slice(one);
                }
            }
            frames = rest;
        }
    }

    fn send_all(&mut self) -> Result<(), Problem> {
        for index in 0..self.sockets.len() {
            if self.sockets[index].as_ref().is_some_and(|socket| !socket.blocked && !socket.output.is_empty()) {
                self.send(index)?;
            }
        }
        Ok(())
    }

    /// Sends what waits; says whether the socket is still there.
    fn send(&mut self, index: usize) -> Result<bool, Problem> {
        let Some(socket) = &mut self.sockets[index] else { return Ok(false) };
        if !socket.output.is_empty() {
            match (&socket.stream).write(&socket.output) {
                Ok(sent) if sent == socket.output.len() => socket.output.clear(),
                Ok(sent) => drop(socket.output.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => socket.output.resize(OUTPUT_BYTES_MAX + 1, 0),
            }
        }
        if socket.output.len() > OUTPUT_BYTES_MAX {
            self.drop_socket(index);
            return Ok(false);
        }
        let blocked = !socket.output.is_empty();
        if blocked != socket.blocked {
            socket.blocked = blocked;
            let flags = if blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, &socket.stream, EventData::new_u64(index as u64), flags)?;
        }
        Ok(true)
    }

    fn drop_socket(&mut self, index: usize) {
        self.sockets[index] = None;
        self.free.push(index);
    }
}

impl Socket {
    fn receive(&mut self, input: &mut [u8]) -> Outcome {
        let read = match (&self.stream).read(input) {
            Ok(0) => return Outcome::Over,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Outcome::Nothing,
            Err(_) => return Outcome::Over,
        };
        match &mut self.role {
            Part::Upgrading(head) => {
                head.extend_from_slice(&input[..read]);
                if head.ends_with(b"\r\n\r\n") {
                    let head = std::mem::take(head);
                    return self.upgrade(&head);
                }
                if head.len() > HEAD_BYTES_MAX { Outcome::Over } else { Outcome::Nothing }
            }
            // The load's subscribers say nothing but goodbye.
            Part::Subscriber => Outcome::Nothing,
            Part::Publisher(decoder) => publications(decoder, &mut input[..read]),
        }
    }

    fn upgrade(&mut self, head: &[u8]) -> Outcome {
        let head = String::from_utf8_lossy(head);
        let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
        let role = match head.split(' ').nth(1) {
            Some("/sub") => Part::Subscriber,
            Some("/pub") => Part::Publisher(Box::new(Decoder::new(Role::Server, READ_BYTES))),
            _ => return Outcome::Over,
        };
        let Some(key) = key else { return Outcome::Over };
        let accept = handshake::accept(key.trim());
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        self.output.extend_from_slice(answer.as_bytes());
        self.role = role;
        Outcome::Nothing
    }
}

/// Frames each line of each text message.
fn publications(decoder: &mut Decoder, input: &mut [u8]) -> Outcome {
    let mut frames = Vec::new();
    let mut closed = false;
    let fed = decoder.feed(input, &mut |event| {
        match event {
            Event::Text(text) => {
                text.split('\n').for_each(|line| frame::message(Opcode::Text, line.as_bytes(), &mut frames));
            }
            Event::Close(_) => closed = true,
            _ => {}
        }
        Flow::Continue
    });
    if closed || fed.is_err() {
        return Outcome::Over;
    }
    if frames.is_empty() { Outcome::Nothing } else { Outcome::Publications(frames) }
}

const LISTENER: u64 = u64::MAX;
const BACKLOG: i32 = 4096;
const EVENTS_PER_TURN: usize = 1024;
const READ_BYTES: usize = 64 * 1024;
const HEAD_BYTES_MAX: usize = 8192;
/// The sessions of the largest run and some.
const FILES_WANTED: u64 = 10_000;
/// About two seconds of the highest rate.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
