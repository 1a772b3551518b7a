//! A deliberately faulty server: a real Encke behind a proxy that drops, doubles, swaps or delays deliveries, over
//! WebSocket or in responses to requests, and counts its faults. Replies and heartbeats pass unchanged.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::value::RawValue;
use websocket::{Decoder, Event, Flow, Opcode, Role, frame};

/// The fault made on a delivery now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault: to check that the proxy itself is correct.
    None,
    /// It never arrives.
    Drop,
    /// It arrives twice.
    Double,
    /// It arrives after the next one.
    Swap,
    /// It, and everything behind it on its connection, arrives later by this time.
    Delay(Duration),
}

/// A running proxy.
pub struct Faulty {
    /// The address for clients.
    pub address: SocketAddr,
    done: Arc<AtomicU64>,
}

impl Faulty {
    /// Starts a proxy for `server`. Every `every`th delivery of a connection gets the fault; the first ones are
    /// spared.
    pub fn before(server: SocketAddr, fault: Fault, every: u64) -> Faulty {
        Faulty::for_connections(server, fault, every, usize::MAX)
    }

    /// The same, for `connections` connections: later ones are refused.
    pub fn for_connections(server: SocketAddr, fault: Fault, every: u64, connections: usize) -> Faulty {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let done = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&done);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok).take(connections) {
                let Ok(upstream) = TcpStream::connect(server) else { break };
                let tamper = Tamper { fault, every, seen: 0, held: None, done: Arc::clone(&counter) };
                let (from, to) = (client.try_clone().expect("a socket"), upstream.try_clone().expect("a socket"));
                thread::spawn(move || pass(from, to));
                thread::spawn(move || tamper.run(upstream, client));
            }
        });
        Faulty { address, done }
    }

    /// The number of deliveries with the fault so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

/// The path of one connection from the server to the client.
struct Tamper {
    fault: Fault,
    every: u64,
    seen: u64,
    held: Option<Box<RawValue>>,
    done: Arc<AtomicU64>,
}

impl Tamper {
    fn run(mut self, mut server: TcpStream, mut client: TcpStream) {
        let mut input = Vec::new();
        let mut buffer = [0; 16 * 1024];
        let head = loop {
            if let Some(at) = input.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            match server.read(&mut buffer) {
                Ok(read) if read > 0 => input.extend_from_slice(&buffer[..read]),
                _ => return,
            }
        };
        if !input.starts_with(b"HTTP/1.1 101") {
            return self.run_http(input, server, client);
        }
        if client.write_all(&input[..head]).is_err() {
            return;
        }
        let mut rest = input.split_off(head);
        let mut decoder = Decoder::new(Role::Client, 16 * 1024 * 1024);
        loop {
            let mut out = Vec::new();
            let fed = decoder.feed(&mut rest, &mut |event| {
                self.event(event, &mut out);
                Flow::Continue
            });
            if fed.is_err() || client.write_all(&out).is_err() {
                return;
            }
            match server.read(&mut buffer) {
                Ok(read) if read > 0 => rest = buffer[..read].to_vec(),
                _ => return drop(client.shutdown(std::net::Shutdown::Both)),
            }
        }
    }

    /// Responses to requests, one after the other; `input` is the part received of the first.
    fn run_http(mut self, mut input: Vec<u8>, mut server: TcpStream, mut client: TcpStream) {
        let mut buffer = [0; 16 * 1024];
        loop {
            while let Some((head, body)) = response(&input) {
                let end = head.len() + body.len();
                let texts = std::str::from_utf8(body).ok();
                let changed = texts.and_then(|text| self.text(text)).unwrap_or_else(|| b"[]".to_vec());
                let mut out: String = head
                    .lines()
                    .filter(|line| !line.is_empty() && length(line).is_none())
                    .fold(String::new(), |head, line| head + line + "\r\n");
                out += &format!("Content-Length: {}\r\n\r\n", changed.len());
                if client.write_all(&[out.as_bytes(), &changed].concat()).is_err() {
                    return;
                }
                input.drain(..end);
            }
            match server.read(&mut buffer) {
                Ok(read) if read > 0 => input.extend_from_slice(&buffer[..read]),
                _ => return drop(client.shutdown(std::net::Shutdown::Both)),
            }
        }
    }

    /// The messages to pass on; none if nothing is left.
    fn text(&mut self, text: &str) -> Option<Vec<u8>> {
        let messages: Vec<Box<RawValue>> = serde_json::from_str(text).expect("Bayeux from the server");
        let mut forwarded = Vec::new();
        messages.into_iter().for_each(|message| self.message(message, &mut forwarded));
        (!forwarded.is_empty()).then(|| serde_json::to_vec(&forwarded).expect("JSON"))
    }

    fn event(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Text(text) => {
                if let Some(forwarded) = self.text(text) {
                    frame::message(Opcode::Text, &forwarded, out);
                }
            }
            Event::Ping(payload) => frame::message(Opcode::Ping, payload, out),
            Event::Close(_) => frame::message(Opcode::Close, &[], out),
            Event::Binary(_) | Event::Pong(_) => {}
        }
    }

    fn message(&mut self, message: Box<RawValue>, forwarded: &mut Vec<Box<RawValue>>) {
        if message.get().contains("\"/meta/") || !message.get().contains("\"data\"") {
            return forwarded.push(message);
        }
        self.seen += 1;
        let due = self.seen.is_multiple_of(self.every);
        if due && self.fault != Fault::None {
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        match self.fault {
            Fault::Drop if due => {}
            Fault::Double if due => forwarded.extend([message.clone(), message]),
            Fault::Swap if due => self.held = Some(message),
            Fault::Delay(time) if due => {
                thread::sleep(time);
                forwarded.push(message);
            }
            _ => {
                forwarded.push(message);
                forwarded.extend(self.held.take());
            }
        }
    }
}

/// The head and the body of the response at the start, if it is complete.
fn response(input: &[u8]) -> Option<(&str, &[u8])> {
    let end = input.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&input[..end]).expect("a head");
    let length: usize = head.lines().find_map(length).expect("a length");
    Some((head, input.get(end..end + length)?))
}

/// The length in this header line.
fn length(line: &str) -> Option<usize> {
    let (name, value) = line.split_once(':')?;
    if name.eq_ignore_ascii_case("content-length") { value.trim().parse().ok() } else { None }
}

/// The path from the client to the server, unchanged.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Both);
}
