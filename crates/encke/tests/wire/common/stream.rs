//! A client of streams on a bare socket.

use std::net::SocketAddr;

use serde_json::Value;

use super::Tcp;
use super::http::Response;

/// A response that stays open.
pub struct Stream {
    pub head: Response,
    pub tcp: Tcp,
    text: Vec<u8>,
    /// The beginning of a chunk, if the response has chunks (RFC 9112 §7.1): a gateway writes them.
    chunk: Option<Vec<u8>>,
    /// True after the last chunk.
    is_over: bool,
}

impl Stream {
    /// Requests a stream. Its response may have a status that is no 200.
    #[track_caller]
    pub fn open(address: SocketAddr, target: &str, fields: &[(&str, &str)]) -> Stream {
        Stream::on(Tcp::connect(address), address, target, fields)
    }

    #[track_caller]
    pub fn on(mut tcp: Tcp, address: SocketAddr, target: &str, fields: &[(&str, &str)]) -> Stream {
        let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        tcp.send(format!("GET {target} HTTP/1.1\r\nhost: {address}\r\n{fields}\r\n"));
        let head = tcp.head().expect("a response");
        let chunk = (head.header("transfer-encoding") == Some("chunked")).then(Vec::new);
        Stream { head, tcp, text: Vec::new(), chunk, is_over: false }
    }

    /// The text up to `end`, without it. None at the end of the stream.
    #[track_caller]
    pub fn until(&mut self, end: &str) -> Option<String> {
        loop {
            if let Some(at) = self.text.windows(end.len()).position(|window| window == end.as_bytes()) {
                let rest = self.text.split_off(at + end.len());
                let text = std::mem::replace(&mut self.text, rest);
                return Some(String::from_utf8(text[..at].to_vec()).expect("UTF-8"));
            }
            let more = if self.is_over { Vec::new() } else { self.tcp.read_some() };
            if more.is_empty() {
                return None;
            }
            self.take(more);
        }
    }

    /// Takes bytes of the body.
    fn take(&mut self, bytes: Vec<u8>) {
        let Some(chunk) = &mut self.chunk else { return self.text.extend_from_slice(&bytes) };
        chunk.extend_from_slice(&bytes);
        while let Some(at) = chunk.windows(2).position(|window| window == b"\r\n") {
            let size = str::from_utf8(&chunk[..at]).expect("a size");
            let end = at + 2 + usize::from_str_radix(size, 16).expect("a size");
            if end == at + 2 || chunk.len() < end + 2 {
                self.is_over = end == at + 2;
                return;
            }
            self.text.extend_from_slice(&chunk[at + 2..end]);
            chunk.drain(..end + 2);
        }
    }

    /// The next server-sent event that is no comment: its fields in lines.
    #[track_caller]
    pub fn event(&mut self) -> Option<String> {
        self.until("\n\n").map(|event| if event.starts_with(':') { self.event() } else { Some(event) })?
    }

    /// The messages of the next event with data.
    #[track_caller]
    pub fn messages(&mut self) -> Vec<Value> {
        loop {
            let event = self.event().expect("an event");
            if let Some(data) = event.strip_prefix("data: ") {
                return serde_json::from_str::<Vec<Value>>(data).expect("an array");
            }
        }
    }

    /// The messages of the next line that is not empty.
    #[track_caller]
    pub fn line(&mut self) -> Vec<Value> {
        let line = self.until("\n").expect("a line");
        if line.is_empty() { self.line() } else { serde_json::from_str(&line).expect("an array") }
    }
}
