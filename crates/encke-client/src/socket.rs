//! A WebSocket connection as client: the opening handshake, frames out, texts in.

use std::collections::VecDeque;
use std::io::ErrorKind;

use ::http::header::{CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http_body_util::Full;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use websocket::{Decoder, Event, Flow, Opcode, ProtocolError, Role, frame, handshake};

use crate::Error;
use crate::cookies::Cookies;
use crate::endpoint::Endpoint;
use crate::http::{self, Link};
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
    /// Shakes hands (RFC 6455 §4.1).
    pub(crate) async fn open(
        link: Link,
        endpoint: &Endpoint,
        cookies: &mut Cookies,
        message_bytes_max: usize,
    ) -> Result<Socket, Error> {
        let refused = |reason: String| Error::NotBayeux { address: endpoint.place(), reason };
        let key = handshake::client_key(random());
        let request = http::head(endpoint, cookies)
            .header(UPGRADE, "websocket")
            .header(CONNECTION, "Upgrade")
            .header(SEC_WEBSOCKET_KEY, &key)
            .header(SEC_WEBSOCKET_VERSION, "13")
            .body(Full::default())
            .map_err(|error| refused(error.to_string()))?;
        let (response, stream, input) = link.upgrade(endpoint, request).await?;
        handshake::check_response(response.status(), response.headers(), &key).map_err(|error| match error {
            handshake::ResponseError::Status(status) => refused(format!("it answered HTTP status {status}")),
            error => refused(error.to_string()),
        })?;
        cookies.take(response.headers());
        let mut socket = Socket {
            stream,
            decoder: Decoder::new(Role::Client, message_bytes_max),
            out: Vec::new(),
            written: 0,
            texts: VecDeque::new(),
            ended: None,
        };
        socket.take_in(&mut input.to_vec());
        Ok(socket)
    }

    /// How many bytes wait to be written.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.out.len() - self.written
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
                if self.texts.is_empty() {
                    self.texts = VecDeque::new();
                }
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

/// How much is read at once, in bytes.
const READ_BYTES: usize = 16 * 1024;
