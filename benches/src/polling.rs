//! One long-polling session of the load: its requests follow each other on one keep-alive connection.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use rustix::event::epoll::EventFlags;
use serde_json::Value;

use crate::load::{Client, MESSAGE_BYTES_MAX, READ_BYTES};
use crate::problem::Problem;
use crate::reader::Reader;

/// What all long-polling sessions of a run have in common.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The path to post to.
    pub path: String,
    /// The channel each subscribes to; with its own number behind it if it ends with a slash.
    pub channel: String,
}

/// A session.
#[derive(Debug)]
pub struct Poll {
    stream: TcpStream,
    index: u32,
    plan: Plan,
    state: State,
    client_id: String,
    cookie: String,
    tail: Vec<u8>,
    unsent: Vec<u8>,
}

/// `Connecting → Handshaking → Subscribing → FirstConnect → Held`, and `Held` again after each answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Handshaking,
    Subscribing,
    FirstConnect,
    Held,
}

impl Client for Poll {
    type Plan = Plan;

    fn start(plan: &Plan, index: u32, stream: TcpStream) -> Self {
        Poll {
            stream,
            index,
            plan: plan.clone(),
            state: State::Connecting,
            client_id: String::new(),
            cookie: String::new(),
            tail: Vec::new(),
            unsent: Vec::new(),
        }
    }

    fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn ready(&mut self, flags: EventFlags, scratch: &mut [u8], _reader: &mut Reader) -> Result<(), Problem> {
        if self.state == State::Connecting && flags.contains(EventFlags::OUT) {
            if let Some(error) = self.stream.take_error()? {
                return Err(Problem::Server(format!("connect: {error}")));
            }
            self.state = State::Handshaking;
            self.post(
                r#"[{"id":"1","channel":"/meta/handshake","version":"1.0","minimumVersion":"1.0","supportedConnectionTypes":["long-polling"]}]"#,
            );
        }
        self.flush()?;
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.receive(scratch)?;
            self.flush()?;
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.state == State::Held
    }

    fn wants_write(&self) -> bool {
        !self.unsent.is_empty() || self.state == State::Connecting
    }
}

impl Poll {
    fn post(&mut self, body: &str) {
        let (path, length) = (&self.plan.path, body.len());
        let cookie = if self.cookie.is_empty() { String::new() } else { format!("Cookie: {}\r\n", self.cookie) };
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\n{cookie}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.unsent.extend_from_slice(request.as_bytes());
    }

    fn flush(&mut self) -> Result<(), Problem> {
        while !self.unsent.is_empty() {
            match (&self.stream).write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(Problem::Server(format!("write: {error}"))),
            }
        }
        // Thousands of sessions wait here for long: the load should not hold buffers either.
        self.unsent = Vec::new();
        Ok(())
    }

    fn receive(&mut self, scratch: &mut [u8]) -> Result<(), Problem> {
        let kept = self.tail.len();
        scratch[..kept].copy_from_slice(&self.tail);
        let read = match (&self.stream).read(&mut scratch[kept..kept + READ_BYTES]) {
            Ok(0) => return Err(Problem::Server("closed the connection".into())),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(Problem::Server(format!("read: {error}"))),
        };
        let bytes = &scratch[..kept + read];
        let Some((head, body)) = whole_answer(bytes)? else {
            if bytes.len() > MESSAGE_BYTES_MAX {
                return Err(Problem::Server(format!("sent an answer over {MESSAGE_BYTES_MAX} bytes")));
            }
            self.tail = bytes.to_vec();
            return Ok(());
        };
        self.tail = Vec::new();
        if let Some(cookie) = header(head, "set-cookie") {
            cookie.split(';').next().unwrap_or_default().clone_into(&mut self.cookie);
        }
        self.answer(body)
    }

    fn answer(&mut self, body: &[u8]) -> Result<(), Problem> {
        let messages: Vec<Value> = serde_json::from_slice(body)
            .map_err(|error| Problem::Server(format!("sent no Bayeux messages: {error}")))?;
        if let Some(refused) = messages.iter().find(|message| message["successful"] == Value::Bool(false)) {
            return Err(Problem::Server(format!("refused {refused}")));
        }
        if self.state == State::Handshaking {
            let id = messages.iter().find_map(|message| message["clientId"].as_str());
            id.ok_or_else(|| Problem::Server("gave no clientId".into()))?.clone_into(&mut self.client_id);
        }
        let client_id = &self.client_id;
        let (state, request) = match self.state {
            State::Connecting | State::Handshaking => (State::Subscribing, self.subscription()),
            State::Subscribing => (
                State::FirstConnect,
                format!(
                    r#"[{{"id":"3","channel":"/meta/connect","clientId":"{client_id}","connectionType":"long-polling","advice":{{"timeout":0}}}}]"#
                ),
            ),
            State::FirstConnect | State::Held => (
                State::Held,
                format!(
                    r#"[{{"id":"4","channel":"/meta/connect","clientId":"{client_id}","connectionType":"long-polling"}}]"#
                ),
            ),
        };
        self.state = state;
        self.post(&request);
        Ok(())
    }

    fn subscription(&self) -> String {
        let mut channel = self.plan.channel.clone();
        if channel.ends_with('/') {
            channel += &self.index.to_string();
        }
        let client_id = &self.client_id;
        format!(r#"[{{"id":"2","channel":"/meta/subscribe","clientId":"{client_id}","subscription":"{channel}"}}]"#)
    }
}

/// Head and body of an answer with status 200 and a `Content-Length`; none until it is whole.
fn whole_answer(bytes: &[u8]) -> Result<Option<(&str, &[u8])>, Problem> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| Problem::Server("sent a head that is no text".into()))?;
    let line = head.lines().next().unwrap_or_default();
    if line.split(' ').nth(1) != Some("200") {
        return Err(Problem::Server(format!("answered {line}")));
    }
    let length = header(head, "content-length").and_then(|length| length.parse::<usize>().ok());
    let length = length.ok_or_else(|| Problem::Server("answered without a Content-Length".into()))?;
    Ok(bytes.get(end + 4..end + 4 + length).map(|body| (head, body)))
}

fn header<'a>(head: &'a str, wanted: &str) -> Option<&'a str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.into_iter().find_map(|(name, value)| name.eq_ignore_ascii_case(wanted).then(|| value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_when_it_is_whole() {
        let answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 2\r\n\r\n[]";
        let (head, body) = whole_answer(answer).expect("valid").expect("whole");
        assert_eq!((header(head, "set-cookie"), body), (Some("a=b; Path=/"), &b"[]"[..]));
        assert!(whole_answer(&answer[..answer.len() - 1]).expect("valid").is_none());
    }

    #[test]
    fn another_status_is_an_error() {
        assert!(whole_answer(b"HTTP/1.1 503 Service Unavailable\r\n\r\n").is_err());
    }
}
