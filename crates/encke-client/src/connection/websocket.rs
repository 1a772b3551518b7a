//! A WebSocket connection as client: the opening handshake, frames out, texts in.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::header::{CONNECTION, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http_body_util::Full;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use websocket::deflate::Inflater;
use websocket::{Compression, Decoder, Event, Flow, Opcode, ProtocolError, Role, frame, handshake};

use super::Target;
use super::cookies::Cookies;
use super::http::{self, HttpConnection};
use super::stream::Stream;
use crate::error::{Error, LostReason, NotBayeux};
use crate::random;

/// An open WebSocket. Holds no buffers while nothing is on its way.
#[derive(Debug)]
pub(crate) struct WebSocket {
    stream: Stream,
    decoder: Decoder,
    /// Frames to be written, from `written` on.
    out: Vec<u8>,
    written: usize,
    /// The bytes of [`WebSocket::answer`] since `out` was empty.
    answer_bytes: usize,
    /// The payload of the latest ping, while `out` holds its pong up.
    pinged: Option<Vec<u8>>,
    /// Whole texts that were read and not yet returned.
    texts: VecDeque<String>,
    /// The reason why the connection ended, once it has.
    ended: Option<LostReason>,
}

impl WebSocket {
    /// Shakes hands (RFC 6455 §4.1).
    pub(crate) async fn open(
        connection: HttpConnection,
        target: &Target,
        cookies: &mut Cookies,
    ) -> Result<WebSocket, Error> {
        let refused = |reason| Error::NotBayeux { address: target.endpoint.address(), reason };
        let key = handshake::client_key(random());
        let mut request = http::head(target, cookies);
        if target.compress {
            request = request.header(SEC_WEBSOCKET_EXTENSIONS, Compression::OFFER);
        }
        let request = request
            .header(UPGRADE, "websocket")
            .header(CONNECTION, "Upgrade")
            .header(SEC_WEBSOCKET_KEY, &key)
            .header(SEC_WEBSOCKET_VERSION, "13")
            .body(Full::default())
            .map_err(|error| Error::from(LostReason::Http(Arc::new(error))))?;
        let (response, stream, input) = connection.upgrade(target, request).await?;
        let (status, headers) = (response.status(), response.headers());
        let checked = handshake::check_response(status, headers, &key, target.compress);
        let compression = checked.map_err(|error| match error {
            handshake::ResponseError::Status(status) => refused(NotBayeux::Status(status.as_u16())),
            error => refused(NotBayeux::Handshake(error)),
        })?;
        cookies.take(response.headers());
        let mut decoder = Decoder::new(Role::Client, target.message_bytes_max);
        if compression.is_some() {
            decoder.take_compressed();
        }
        let mut socket = WebSocket {
            stream,
            decoder,
            out: Vec::new(),
            written: 0,
            answer_bytes: 0,
            pinged: None,
            texts: VecDeque::new(),
            ended: None,
        };
        socket.take_in(&mut input.to_vec());
        Ok(socket)
    }

    /// The number of bytes that wait to be written.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.out.len() - self.written
    }

    /// Takes a text to be sent by [`WebSocket::receive`] or [`WebSocket::close`].
    pub(crate) fn send(&mut self, text: &str) {
        frame::masked(Opcode::Text, text.as_bytes(), random(), &mut self.out);
    }

    /// As [`WebSocket::send`], for a text that the server has caused.
    pub(crate) fn answer(&mut self, text: &str) {
        self.answer_bytes += text.len();
        self.send(text);
    }

    /// Writes waiting frames and returns the next text. Reads nothing while more than [`ANSWER_BYTES_MAX`] of answers wait. May be dropped at any point without losing anything.
    pub(crate) async fn receive(&mut self) -> Result<String, Error> {
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<String, Error>> {
        loop {
            self.poll_write(cx);
            if let Some(text) = self.texts.pop_front() {
                if self.texts.is_empty() {
                    self.texts = VecDeque::new();
                }
                return Poll::Ready(Ok(text));
            }
            if let Some(reason) = &self.ended {
                return Poll::Ready(Err(reason.clone().into()));
            }
            if self.answer_bytes.min(self.unsent_bytes()) > ANSWER_BYTES_MAX {
                return Poll::Pending;
            }
            ready!(self.poll_read(cx));
        }
    }

    /// Writes waiting frames, and reads nothing. Never returns, and may be dropped at any point.
    pub(crate) async fn write(&mut self) {
        poll_fn(|cx| {
            self.poll_write(cx);
            Poll::Pending
        })
        .await
    }

    /// Writes waiting frames and a close frame, and shuts the sending side. The caller bounds the time.
    pub(crate) async fn close(&mut self) {
        frame::masked_close(1000, "", random(), &mut self.out);
        let rest = std::mem::take(&mut self.out);
        // A server that does not read any more needs no close frame.
        let _ = self.stream.write_all(&rest[self.written..]).await;
        let _ = self.stream.shutdown().await;
    }

    /// Writes as much as the kernel takes: first the frames, then a pong to the latest ping. Wakes the task when it takes more.
    fn poll_write(&mut self, cx: &mut Context<'_>) {
        if self.ended.is_some() {
            return;
        }
        loop {
            while self.written < self.out.len() {
                match Pin::new(&mut self.stream).poll_write(cx, &self.out[self.written..]) {
                    Poll::Ready(Ok(bytes)) => self.written += bytes,
                    Poll::Ready(Err(error)) => return self.ended = Some(error.into()),
                    Poll::Pending => return self.drop_written(),
                }
            }
            (self.out, self.written, self.answer_bytes) = (Vec::new(), 0, 0);
            let Some(payload) = self.pinged.take() else { break };
            frame::masked(Opcode::Pong, &payload, random(), &mut self.out);
        }
        // TLS may have encrypted bytes that the kernel has not taken yet.
        if let Poll::Ready(Err(error)) = Pin::new(&mut self.stream).poll_flush(cx) {
            self.ended = Some(error.into());
        }
    }

    /// Frees the written part of the buffer when it is the larger one: a server that reads slowly may never let it become empty.
    fn drop_written(&mut self) {
        if self.written > self.out.len() / 2 {
            self.out.drain(..self.written);
            self.written = 0;
        }
    }

    /// Reads what the kernel has, at most one buffer.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // On the stack and only while there is something to read: an idle session holds no buffer.
        let mut buffer = [0; READ_BYTES];
        let mut read = ReadBuf::new(&mut buffer);
        match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read)) {
            Ok(()) if read.filled().is_empty() => self.ended = Some(LostReason::Closed),
            Ok(()) => self.take_in(read.filled_mut()),
            Err(error) => self.ended = Some(error.into()),
        }
        Poll::Ready(())
    }

    /// Decodes input: texts are queued, the latest ping is noted (RFC 6455 §5.5.3), a close or a broken rule ends the connection.
    fn take_in(&mut self, input: &mut [u8]) {
        let (texts, pinged, ended) = (&mut self.texts, &mut self.pinged, &mut self.ended);
        // An idle session holds none: it takes 40 KiB.
        let mut inflater = Inflater::default();
        let result = self.decoder.feed_with(input, &mut inflater, &mut |event| {
            match event {
                Event::Text(text) => texts.push_back(text.into()),
                Event::Ping(payload) => *pinged = Some(payload.into()),
                Event::Close(Some((code, reason))) => {
                    *ended = Some(LostReason::CloseFrame { code, reason: reason.into() });
                }
                Event::Close(None) => *ended = Some(LostReason::Closed),
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
        self.ended = Some(LostReason::Protocol(error));
    }
}

/// The most bytes of answers that wait to be written before the client reads on. Servers that read what they cause never come near:
/// the largest answers are the subscribes that repeat all subscriptions after a break.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The size of a read, in bytes.
const READ_BYTES: usize = 16 * 1024;
