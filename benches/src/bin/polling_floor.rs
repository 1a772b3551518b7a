//! The floor of long-polling, and of opening sessions: a single-threaded loop over epoll that answers the requests of
//! `encke bench` with the bytes that Encke answers.
//!
//! On WebSockets it answers the messages that open a session, and delivers nothing. It reads each request in one piece and
//! believes what it says. It has no limits, no timers and no other transport: the
//! best that a server on one core could do here.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;

use bayeux::json::{elements, member};
use benches::event_loop::{EventLoop, LISTENER};
use clap::Parser;
use encke_bench::problem::Problem;
use rustix::event::epoll;
use websocket::{Decoder, Event, Flow, Opcode, Role, frame, handshake};

/// Bayeux over epoll with nothing else, to compare servers with.
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
            eprintln!("polling_floor: {problem}");
            ExitCode::FAILURE
        }
    }
}

struct Floor {
    epoll: EventLoop,
    sockets: Vec<Option<Socket>>,
    /// Freed slots are reused.
    free: Vec<usize>,
    sessions: Vec<Session>,
    /// The sessions on each channel.
    channels: HashMap<String, Vec<usize>>,
    /// Sessions with messages that were published in this turn.
    reached: Vec<usize>,
}

struct Socket {
    stream: TcpStream,
    /// Set if it is a WebSocket.
    decoder: Option<Decoder>,
}

/// A session: its client id is its index.
#[derive(Default)]
struct Session {
    /// The socket and the reply of its connect.
    held: Option<(usize, String)>,
    /// Its messages, each with a comma behind it.
    waiting: Vec<u8>,
    has_connected: bool,
}

impl Floor {
    fn listen(port: u16) -> Result<Self, Problem> {
        let epoll = EventLoop::listen(port)?;
        let (sockets, free, sessions, reached) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Ok(Floor { epoll, sockets, free, sessions, channels: HashMap::new(), reached })
    }

    fn run(mut self) -> Result<(), Problem> {
        let mut events = Vec::new();
        let mut input = vec![0; READ_BYTES];
        loop {
            self.epoll.wait(&mut events)?;
            for &epoll::Event { data, .. } in &events {
                match data.u64() {
                    LISTENER => self.accept()?,
                    index => self.serve(index as usize, &mut input),
                }
            }
            for session in std::mem::take(&mut self.reached) {
                self.respond(session);
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
            self.sockets[index] = Some(Socket { stream, decoder: None });
        }
        Ok(())
    }

    fn serve(&mut self, index: usize, input: &mut [u8]) {
        let Some(socket) = &mut self.sockets[index] else { return };
        let read = match socket.stream.read(input) {
            Ok(read) if read > 0 => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            _ => {
                self.sockets[index] = None;
                return self.free.push(index);
            }
        };
        if let Some(decoder) = &mut socket.decoder {
            let text = text_of(decoder, &mut input[..read]);
            return self.answer(index, &text);
        }
        let text = str::from_utf8(&input[..read]).unwrap_or_default();
        match text.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")) {
            Some(key) => socket.upgrade(key),
            None => drop(text.split_once("\r\n\r\n").map(|(_, body)| self.answer(index, body))),
        }
    }

    /// Answers the messages of a request, or of a WebSocket message.
    fn answer(&mut self, index: usize, body: &str) {
        let mut replies = String::new();
        for message in elements(body) {
            let text = |name| member(message, name).unwrap_or_default().trim_matches('"');
            let (channel, id) = (text("channel"), text("id"));
            let session = text("clientId").trim_start_matches('0').parse::<usize>().unwrap_or_default();
            match channel {
                "/meta/handshake" => {
                    self.sessions.push(Session::default());
                    replies += &format!(
                        "{{\"channel\":\"/meta/handshake\",\"id\":\"{id}\",\"clientId\":\"{:032}\",\"successful\":true,\
                         \"version\":\"1.0\",\"supportedConnectionTypes\":[\"websocket\",\"long-polling\"],\
                         \"advice\":{{\"interval\":0,\"timeout\":30000,\"reconnect\":\"retry\"}}}},",
                        self.sessions.len() - 1
                    );
                }
                "/meta/connect" => {
                    let reply = format!("{{\"channel\":\"/meta/connect\",\"id\":\"{id}\",\"successful\":true}}");
                    let known = &mut self.sessions[session];
                    if std::mem::replace(&mut known.has_connected, true) {
                        known.held = Some((index, reply));
                        self.respond(session);
                    } else {
                        replies += &format!("{reply},");
                    }
                }
                "/meta/subscribe" => {
                    let raw = member(message, "subscription").unwrap_or_default();
                    let names: Vec<&str> = if raw.starts_with('[') { elements(raw).collect() } else { vec![raw] };
                    for name in names {
                        self.channels.entry(name.trim_matches('"').to_owned()).or_default().push(session);
                    }
                    replies += &format!(
                        "{{\"channel\":\"/meta/subscribe\",\"id\":\"{id}\",\"successful\":true,\"subscription\":{raw}}},"
                    );
                }
                "/meta/disconnect" => {
                    replies += &format!("{{\"channel\":\"/meta/disconnect\",\"id\":\"{id}\",\"successful\":true}},");
                }
                _ => {
                    let data = member(message, "data").unwrap_or_default();
                    let one = format!("{{\"channel\":\"{channel}\",\"data\":{data}}},");
                    for subscriber in self.channels.get(channel).into_iter().flatten() {
                        let known = &mut self.sessions[*subscriber];
                        if known.waiting.is_empty() {
                            self.reached.push(*subscriber);
                        }
                        known.waiting.extend_from_slice(one.as_bytes());
                    }
                    replies += &format!("{{\"channel\":\"{channel}\",\"id\":\"{id}\",\"successful\":true}},");
                }
            }
        }
        if !replies.is_empty() {
            replies.pop();
            self.write(index, replies.as_bytes());
        }
    }

    /// Answers the connect of a session that has messages.
    fn respond(&mut self, session: usize) {
        let known = &mut self.sessions[session];
        if known.waiting.is_empty() {
            return;
        }
        let Some((index, reply)) = known.held.take() else { return };
        let mut body = std::mem::take(&mut known.waiting);
        body.extend_from_slice(reply.as_bytes());
        self.write(index, &body);
    }

    fn write(&mut self, index: usize, messages: &[u8]) {
        let Some(Socket { stream, decoder }) = &mut self.sockets[index] else { return };
        if decoder.is_some() {
            let mut one = Vec::with_capacity(messages.len() + 6);
            frame::message(Opcode::Text, &[b"[", messages, b"]"].concat(), &mut one);
            let _blocked = stream.write(&one);
            return;
        }
        let mut response = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n\
             content-length: {}\r\ndate: Thu, 26 Nov 2026 12:00:00 GMT\r\n\r\n[",
            messages.len() + 2
        )
        .into_bytes();
        response.extend_from_slice(messages);
        response.push(b']');
        // A client that does not read gets nothing.
        let _blocked = stream.write(&response);
    }
}

impl Socket {
    fn upgrade(&mut self, key: &str) {
        let accept = handshake::accept(key.trim());
        let response = format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: {accept}\r\n\
             date: Thu, 26 Nov 2026 12:00:00 GMT\r\n\r\n"
        );
        self.decoder = Some(Decoder::new(Role::Server, READ_BYTES));
        let _blocked = self.stream.write(response.as_bytes());
    }
}

/// The text messages that are whole.
fn text_of(decoder: &mut Decoder, input: &mut [u8]) -> String {
    let mut all = String::new();
    let _fed = decoder.feed(input, &mut |event| {
        if let Event::Text(text) = event {
            all.push_str(text);
        }
        Flow::Continue
    });
    all
}

const READ_BYTES: usize = 64 * 1024;
