//! The floor of the HTTP API: a single-threaded loop over epoll that answers the publications of `api` with the bytes that Encke answers,
//! and delivers them to its one subscriber.
//!
//! It reads each request in one piece or several, believes what it says, and knows no keys, rights, limits or timers: the best that a
//! server on one core could do here.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;

use bayeux::json::{elements, members};
use benches::event_loop::{EventLoop, LISTENER};
use encke_bench::problem::Problem;
use rustix::event::epoll;
use websocket::{Opcode, frame};

fn main() -> ExitCode {
    match Floor::listen().and_then(Floor::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("api_floor: {problem}");
            ExitCode::FAILURE
        }
    }
}

struct Floor {
    epoll: EventLoop,
    /// Each with the part of a request that has arrived. Slots are not reused.
    sockets: Vec<Option<(TcpStream, Vec<u8>)>>,
    subscriber: Option<usize>,
    /// Frames for the subscriber.
    unsent: Vec<u8>,
    /// A buffer for a message.
    text: String,
    published: usize,
}

impl Floor {
    fn listen() -> Result<Floor, Problem> {
        let epoll = EventLoop::listen(0)?;
        let (sockets, unsent, text) = (Vec::new(), Vec::new(), String::new());
        Ok(Floor { epoll, sockets, subscriber: None, unsent, text, published: 0 })
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
            self.deliver();
        }
    }

    fn accept(&mut self) -> Result<(), Problem> {
        while let Some(stream) = self.epoll.accept()? {
            self.epoll.watch(&stream, self.sockets.len())?;
            self.sockets.push(Some((stream, Vec::new())));
        }
        Ok(())
    }

    fn serve(&mut self, index: usize, input: &mut [u8]) {
        let Some((stream, arrived)) = &mut self.sockets[index] else { return };
        let read = match stream.read(input) {
            Ok(read) if read > 0 => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            _ => return self.sockets[index] = None,
        };
        arrived.extend_from_slice(&input[..read]);
        let text = std::mem::take(arrived);
        let text = String::from_utf8_lossy(&text);
        match text.split_once("\r\n\r\n") {
            // Whatever the subscriber says is what `api` says.
            _ if self.subscriber == Some(index) => self.write(index, &framed(SUBSCRIBER_REPLY)),
            Some((head, _)) if head.starts_with("GET /metrics") => {
                let page = format!("HTTP/1.1 200 OK\r\n\r\nencke_publications_total {}\n", self.published);
                self.write(index, page.as_bytes());
                self.sockets[index] = None;
            }
            Some((head, _)) if head.starts_with("GET ") => {
                self.subscriber = Some(index);
                self.write(index, b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
            }
            Some((head, body)) if body.len() >= length_of(head) => self.publish(index, body),
            _ => {
                if let Some((_, arrived)) = &mut self.sockets[index] {
                    arrived.extend_from_slice(text.as_bytes());
                }
            }
        }
    }

    fn publish(&mut self, index: usize, body: &str) {
        let before = self.published;
        match body.strip_prefix("{\"messages\":") {
            Some(messages) => elements(messages).for_each(|message| self.publish_one(message)),
            None => self.publish_one(body),
        }
        let body = format!("{{\"published\":{},\"positions\":[]}}", self.published - before);
        let response = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n\
             content-length: {}\r\ndate: Thu, 26 Nov 2026 12:00:00 GMT\r\n\r\n{body}",
            body.len()
        );
        self.write(index, response.as_bytes());
    }

    fn publish_one(&mut self, message: &str) {
        let (mut data, mut channel) = ("null", "\"\"");
        for (key, value) in members(message) {
            match key.raw() {
                "\"data\"" => data = value,
                "\"channel\"" => channel = value,
                _ => channel = elements(value).next().unwrap_or_default(),
            }
        }
        self.text.clear();
        for part in ["[{\"channel\":", channel, ",\"data\":", data, "}]"] {
            self.text.push_str(part);
        }
        frame::message(Opcode::Text, self.text.as_bytes(), &mut self.unsent);
        self.published += 1;
    }

    fn deliver(&mut self) {
        let stream = self.subscriber.and_then(|index| self.sockets[index].as_ref());
        if let Some((stream, _)) = stream.filter(|_| !self.unsent.is_empty()) {
            match (&*stream).write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                // It goes with the next publication.
                Err(_) => self.unsent.truncate(UNSENT_BYTES_MAX),
            }
        }
    }

    fn write(&mut self, index: usize, bytes: &[u8]) {
        if let Some((stream, _)) = &mut self.sockets[index] {
            // A client that does not read gets nothing.
            let _blocked = stream.write(bytes);
        }
    }
}

fn framed(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::message(Opcode::Text, text.as_bytes(), &mut bytes);
    bytes
}

/// The length of a body, by the last field of the heads that `api` writes.
fn length_of(head: &str) -> usize {
    head.rsplit(' ').next().and_then(|length| length.trim().parse().ok()).unwrap_or(0)
}

/// The reply to the handshake, the connect and the subscribe.
const SUBSCRIBER_REPLY: &str = r#"[{"clientId":"0","successful":true}]"#;
const READ_BYTES: usize = 64 * 1024;
const UNSENT_BYTES_MAX: usize = 16 * 1024 * 1024;
