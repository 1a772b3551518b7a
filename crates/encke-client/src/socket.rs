//! A WebSocket connection as client: the opening handshake, frames out, texts in.

use std::collections::VecDeque;
use std::io::ErrorKind;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use websocket::{Decoder, Event, Flow, Opcode, ProtocolError, Role, frame, handshake};

use crate::Error;
use crate::endpoint::Endpoint;
use crate::random;

/// An open WebSocket. Holds no buffers while nothing is on its way.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    decoder: Decoder,
    /// Frames to be written, from `written` on.
    out: Vec<u8>,
    written: usize,
    /// Whole texts that were read and not yet taken.
    texts: VecDeque<String>,
    /// Why the connection ended, once it has.
    ended: Option<String>,
}

impl Socket {
    /// Connects and shakes hands (RFC 6455 §4.1).
    pub(crate) async fn open(endpoint: &Endpoint, message_bytes_max: usize) -> Result<Socket, Error> {
        let unreachable = |error: std::io::Error| Error::Unreachable {
            address: endpoint.authority.clone(),
            reason: error.to_string(),
        };
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let mut socket = Socket {
            stream,
            decoder: Decoder::new(Role::Client, message_bytes_max),
            out: Vec::new(),
            written: 0,
            texts: VecDeque::new(),
            ended: None,
        };
        socket.upgrade(endpoint).await?;
        Ok(socket)
    }

    async fn upgrade(&mut self, endpoint: &Endpoint) -> Result<(), Error> {
        let broken = |error: std::io::Error| not_bayeux(endpoint, error.to_string());
        let key = handshake::client_key(random());
        let head = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n",
            endpoint.path, endpoint.authority
        );
        self.stream.write_all(head.as_bytes()).await.map_err(broken)?;
        let mut input = Vec::with_capacity(512);
        let head_bytes = loop {
            if let Some(at) = input.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if input.len() > HEAD_BYTES_MAX {
                return Err(not_bayeux(endpoint, "its answer is not HTTP".into()));
            }
            if self.stream.read_buf(&mut input).await.map_err(broken)? == 0 {
                return Err(not_bayeux(endpoint, "it closed the connection".into()));
            }
        };
        let (status, headers) =
            parse_head(&input[..head_bytes]).ok_or_else(|| not_bayeux(endpoint, "its answer is not HTTP".into()))?;
        handshake::check_response(status, &headers, &key).map_err(|error| match error {
            handshake::ResponseError::Status(status) => {
                not_bayeux(endpoint, format!("it answered HTTP status {status}"))
            }
            error => not_bayeux(endpoint, error.to_string()),
        })?;
        self.take_in(&mut input[head_bytes..]);
        Ok(())
    }

    /// Takes a text to be sent by [`Socket::receive`] or [`Socket::close`].
    pub(crate) fn send(&mut self, text: &str) {
        frame::masked(Opcode::Text, text.as_bytes(), random(), &mut self.out);
    }

    /// Writes what waits and returns the next text. May be dropped at any point without losing anything.
    pub(crate) async fn receive(&mut self) -> Result<String, Error> {
        loop {
            self.write_ready();
            if let Some(text) = self.texts.pop_front() {
                return Ok(text);
            }
            if let Some(reason) = &self.ended {
                return Err(Error::Lost(reason.clone()));
            }
            let ready = if self.out.is_empty() {
                self.stream.readable().await
            } else {
                tokio::select! { ready = self.stream.readable() => ready, ready = self.stream.writable() => ready }
            };
            match ready {
                Ok(()) => self.read_ready(),
                Err(error) => self.ended = Some(error.to_string()),
            }
        }
    }

    /// Writes what waits and a close frame, and shuts the sending side. The caller bounds the time.
    pub(crate) async fn close(&mut self) {
        frame::masked_close(1000, "", random(), &mut self.out);
        let rest = std::mem::take(&mut self.out);
        // Whoever does not listen any more needs no goodbye.
        let _ = self.stream.write_all(&rest[self.written..]).await;
        let _ = self.stream.shutdown().await;
    }

    /// Writes as much as the kernel takes.
    fn write_ready(&mut self) {
        while self.written < self.out.len() {
            match self.stream.try_write(&self.out[self.written..]) {
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    self.ended.get_or_insert_with(|| error.to_string());
                    break;
                }
            }
        }
        self.out = Vec::new();
        self.written = 0;
    }

    /// Reads what the kernel has, at most one buffer.
    fn read_ready(&mut self) {
        // On the stack and only while there is something to read: an idle session holds no buffer.
        let mut buffer = [0; READ_BYTES];
        match self.stream.try_read(&mut buffer) {
            Ok(0) => self.ended = Some("the server closed the connection".into()),
            Ok(bytes) => self.take_in(&mut buffer[..bytes]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => self.ended = Some(error.to_string()),
        }
    }

    /// Decodes input: texts are kept, pings are answered, a close or a broken rule ends the connection.
    fn take_in(&mut self, input: &mut [u8]) {
        let (texts, out, ended) = (&mut self.texts, &mut self.out, &mut self.ended);
        let result = self.decoder.feed(input, &mut |event| {
            match event {
                Event::Text(text) => texts.push_back(text.into()),
                Event::Ping(payload) => frame::masked(Opcode::Pong, payload, random(), out),
                Event::Close(Some((code, reason))) => {
                    *ended = Some(format!("closed by the server with {code} {reason}"))
                }
                Event::Close(None) => *ended = Some("closed by the server".into()),
                Event::Binary(_) | Event::Pong(_) => {}
            }
            Flow::Continue
        });
        if let Err(error) = result {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: ProtocolError) {
        frame::masked_close(error.close_code(), error.reason(), random(), &mut self.out);
        self.ended = Some(format!("the server broke the WebSocket protocol: {error}"));
    }
}

/// Reads the status and the headers of an HTTP answer.
fn parse_head(head: &[u8]) -> Option<(StatusCode, HeaderMap)> {
    let mut lines = std::str::from_utf8(head).ok()?.split("\r\n").take_while(|line| !line.is_empty());
    let status_line = lines.next()?.strip_prefix("HTTP/1.")?;
    let status = StatusCode::from_bytes(status_line.split(' ').nth(1)?.as_bytes()).ok()?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_str(value.trim()).ok()?);
    }
    Some((status, headers))
}

fn not_bayeux(endpoint: &Endpoint, reason: String) -> Error {
    Error::NotBayeux { address: format!("{}{}", endpoint.authority, endpoint.path), reason }
}

/// The longest head of an HTTP answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// How much is read at once, in bytes.
const READ_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_an_answer_is_read() {
        let head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nX: a: b\r\n\r\n";
        let (status, headers) = parse_head(head).expect("valid");
        assert_eq!(status, StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(headers["x"], "a: b");
        assert!(parse_head(b"SSH-2.0-OpenSSH\r\n\r\n").is_none());
        assert!(parse_head(b"HTTP/1.1\r\n\r\n").is_none());
    }
}
