//! The floor: a single-threaded fan-out over epoll, with no protocol above lines in WebSocket messages.
//!
//! `+ROOM` joins a room and is answered with the same line; `=ROOM DATA` sends DATA to all in the room; `?DATA` is answered
//! with DATA. Each DATA is framed once, the frame is copied into one buffer per socket, and each buffer is sent once per
//! turn of the loop. It has no sessions, no channel hierarchy, no timers: the best that a server on one core could do here.
//! Its one limit is the bytes that may wait for a socket; over it the socket is dropped.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;

use benches::event_loop::{EventLoop, LISTENER};
use clap::Parser;
use encke_bench::problem::Problem;
use rustix::event::epoll::{Event as Ready, EventFlags};
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
    epoll: EventLoop,
    /// Freed slots are reused.
    sockets: Vec<Option<Socket>>,
    free: Vec<usize>,
    /// The sockets in each room.
    rooms: HashMap<String, Vec<usize>>,
    /// Sockets with something to send at the end of this turn.
    unsent: Vec<usize>,
    input: Vec<u8>,
}

struct Socket {
    stream: TcpStream,
    state: State,
    /// The rooms it is in.
    rooms: Vec<String>,
    /// Waits to be sent.
    output: Vec<u8>,
    /// Waits for the socket to take more.
    blocked: bool,
}

enum State {
    /// The upgrade request as far as it has come.
    Upgrading(Vec<u8>),
    Open(Decoder),
}

/// The result of reading from a socket.
enum Outcome {
    Nothing,
    Lines(Vec<String>),
    Over,
}

impl Floor {
    fn listen(port: u16) -> Result<Self, Problem> {
        let epoll = EventLoop::listen(port)?;
        let (sockets, free, rooms, unsent) = (Vec::new(), Vec::new(), HashMap::new(), Vec::new());
        Ok(Floor { epoll, sockets, free, rooms, unsent, input: vec![0; READ_BYTES] })
    }

    fn run(mut self) -> Result<(), Problem> {
        let mut events = Vec::new();
        loop {
            self.epoll.wait(&mut events)?;
            for &Ready { flags, data } in &events {
                match data.u64() {
                    LISTENER => self.accept()?,
                    index => self.serve(index as usize, flags)?,
                }
            }
            for index in std::mem::take(&mut self.unsent) {
                self.send(index)?;
            }
        }
    }

    fn accept(&mut self) -> Result<(), Problem> {
        while let Some(stream) = self.epoll.accept()? {
            let index = self.free.pop().unwrap_or_else(|| {
                self.sockets.push(None);
                self.sockets.len() - 1
            });
            self.epoll.watch(&stream, index)?;
            let (state, rooms, output) = (State::Upgrading(Vec::new()), Vec::new(), Vec::new());
            self.sockets[index] = Some(Socket { stream, state, rooms, output, blocked: false });
        }
        Ok(())
    }

    fn serve(&mut self, index: usize, flags: EventFlags) -> Result<(), Problem> {
        if flags.contains(EventFlags::OUT) && !self.send(index)? {
            return Ok(());
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return Ok(());
        }
        let Some(socket) = self.sockets[index].as_mut() else { return Ok(()) };
        match socket.receive(&mut self.input) {
            Outcome::Nothing => drop(self.send(index)?),
            Outcome::Lines(lines) => lines.iter().for_each(|line| self.obey(index, line)),
            Outcome::Over => self.drop_socket(index),
        }
        Ok(())
    }

    fn obey(&mut self, index: usize, line: &str) {
        match line.split_at_checked(1) {
            Some(("=", rest)) => {
                let Some((room, data)) = rest.split_once(' ') else { return };
                let Some(members) = self.rooms.get(room) else { return };
                let mut one = Vec::with_capacity(data.len() + 4);
                frame::message(Opcode::Text, data.as_bytes(), &mut one);
                for member in members {
                    put(&mut self.sockets, &mut self.unsent, *member, &one);
                }
            }
            Some(("+", room)) => {
                if let Some(socket) = &mut self.sockets[index]
                    && !socket.rooms.iter().any(|joined| joined == room)
                {
                    socket.rooms.push(room.to_owned());
                    self.rooms.entry(room.to_owned()).or_default().push(index);
                }
                self.answer(index, line);
            }
            Some(("?", data)) => self.answer(index, data),
            _ => {}
        }
    }

    fn answer(&mut self, index: usize, text: &str) {
        let mut one = Vec::new();
        frame::message(Opcode::Text, text.as_bytes(), &mut one);
        put(&mut self.sockets, &mut self.unsent, index, &one);
    }

    /// Writes the unsent bytes. Returns false if the socket is gone.
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
            self.epoll.watch_for_room(&socket.stream, index, blocked)?;
        }
        Ok(true)
    }

    fn drop_socket(&mut self, index: usize) {
        let Some(socket) = self.sockets[index].take() else { return };
        for room in socket.rooms {
            if let Some(members) = self.rooms.get_mut(&room) {
                members.retain(|member| *member != index);
            }
        }
        self.free.push(index);
    }
}

/// Appends a frame to a socket's unsent bytes.
fn put(sockets: &mut [Option<Socket>], unsent: &mut Vec<usize>, index: usize, frame: &[u8]) {
    let Some(socket) = &mut sockets[index] else { return };
    if socket.output.is_empty() {
        unsent.push(index);
    }
    socket.output.extend_from_slice(frame);
}

impl Socket {
    fn receive(&mut self, input: &mut [u8]) -> Outcome {
        let read = match (&self.stream).read(input) {
            Ok(0) => return Outcome::Over,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Outcome::Nothing,
            Err(_) => return Outcome::Over,
        };
        match &mut self.state {
            State::Upgrading(head) => {
                head.extend_from_slice(&input[..read]);
                if head.ends_with(b"\r\n\r\n") {
                    let head = std::mem::take(head);
                    return self.upgrade(&head);
                }
                if head.len() > HEAD_BYTES_MAX { Outcome::Over } else { Outcome::Nothing }
            }
            State::Open(decoder) => lines(decoder, &mut input[..read]),
        }
    }

    fn upgrade(&mut self, head: &[u8]) -> Outcome {
        let head = String::from_utf8_lossy(head);
        let Some(key) = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")) else {
            return Outcome::Over;
        };
        let accept = handshake::accept(key.trim());
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        self.output.extend_from_slice(answer.as_bytes());
        self.state = State::Open(Decoder::new(Role::Server, MESSAGE_BYTES_MAX));
        Outcome::Nothing
    }
}

/// The lines of all text messages that are whole.
fn lines(decoder: &mut Decoder, input: &mut [u8]) -> Outcome {
    let mut lines = Vec::new();
    let mut closed = false;
    let fed = decoder.feed(input, &mut |event| {
        match event {
            Event::Text(text) => lines.extend(text.lines().map(str::to_owned)),
            Event::Close(_) => closed = true,
            _ => {}
        }
        Flow::Continue
    });
    if closed || fed.is_err() {
        return Outcome::Over;
    }
    if lines.is_empty() { Outcome::Nothing } else { Outcome::Lines(lines) }
}

const READ_BYTES: usize = 64 * 1024;
const HEAD_BYTES_MAX: usize = 8192;
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// About two seconds of the highest rate.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
