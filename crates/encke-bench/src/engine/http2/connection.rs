//! The client's end of an HTTP/2 connection, without its socket.

use std::collections::VecDeque;

use super::frame::{self, Frame};
use super::hpack;
use super::windows::{ReceiveWindow, SendWindow, WINDOW_BYTES, WINDOW_MAX};
use crate::engine::error::ConnectionError;
use crate::engine::http::shown;
use crate::engine::target::Target;

/// Streams of WebSockets, and the windows of all.
///
/// ```text
/// begin ──▶ (the server's settings) ──▶ ready: streams open and end ──▶ leaving: they only end
/// ```
#[derive(Debug)]
pub(super) struct Http2 {
    state: State,
    /// In the order of their numbers: 1, 3, 5 …
    streams: Vec<Stream>,
    /// Streams that have not ended.
    open: usize,
    received: ReceiveWindow,
    send: SendWindow,
    terms: Terms,
    /// Headers of which more frames follow.
    headers: Option<Headers>,
    /// Streams that ended with the last frame, and why. The caller learns of them one by one.
    ended: VecDeque<(usize, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begun,
    Ready,
    Leaving,
}

/// The server's settings (RFC 9113 §6.5.2).
#[derive(Debug)]
struct Terms {
    frame_bytes_max: usize,
    stream_window: u32,
    streams_max: u32,
    /// True if it accepts WebSockets (RFC 8441 §3).
    connects: bool,
}

#[derive(Debug)]
struct Stream {
    /// None after its end.
    session: Option<u32>,
    is_answered: bool,
    received: ReceiveWindow,
    send: SendWindow,
    /// The bytes that had no room in a window.
    unsent: VecDeque<u8>,
}

#[derive(Debug)]
struct Headers {
    stream: u32,
    ends_stream: bool,
    fields: Vec<u8>,
}

/// The effect of a frame on sessions.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// None.
    Nothing,
    /// The server accepts streams from now on.
    Ready,
    /// The response to the request of a stream; its status.
    Answered { session: usize, stream: usize, status: u16 },
    /// Bytes of a WebSocket.
    Data { session: usize, stream: usize, bytes: &'a [u8] },
    /// The server has ended a stream; the text follows "the server".
    Ended { session: usize, reason: String },
}

impl Http2 {
    /// A connection without streams. Appends what the client says first (RFC 9113 §3.4).
    pub(super) fn begin(out: &mut Vec<u8>) -> Http2 {
        out.extend_from_slice(frame::PREFACE);
        let (no_table, no_push) = ((frame::HEADER_TABLE_SIZE, 0), (frame::ENABLE_PUSH, 0));
        frame::write_settings(&[no_table, no_push, (frame::INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES)], out);
        let more = CONNECTION_WINDOW_BYTES - WINDOW_BYTES;
        frame::write(frame::WINDOW_UPDATE, 0, 0, &more.to_be_bytes(), out);
        Http2 {
            state: State::Begun,
            streams: Vec::new(),
            open: 0,
            received: ReceiveWindow::new(CONNECTION_WINDOW_BYTES),
            send: SendWindow::new(WINDOW_BYTES),
            terms: Terms {
                frame_bytes_max: frame::FRAME_BYTES_MAX,
                stream_window: WINDOW_BYTES,
                streams_max: u32::MAX,
                connects: false,
            },
            headers: None,
            ended: VecDeque::new(),
        }
    }

    /// Returns true once the server's settings have arrived.
    pub(super) fn is_ready(&self) -> bool {
        self.state != State::Begun
    }

    /// Returns true if a stream has not ended.
    pub(super) fn is_used(&self) -> bool {
        self.open > 0
    }

    /// Sends the request for the WebSocket of a session. Returns the index of its stream.
    ///
    /// # Errors
    /// The server accepts no WebSockets, or no further streams.
    pub(super) fn open(
        &mut self,
        session: usize,
        target: &Target,
        out: &mut Vec<u8>,
    ) -> Result<usize, ConnectionError> {
        let Terms { connects, streams_max, stream_window, .. } = self.terms;
        if !connects {
            return Err(ConnectionError::NotSpoken("accepts no WebSockets over HTTP/2 (RFC 8441)".into()));
        }
        if self.open as u64 >= streams_max.into() {
            return Err(ConnectionError::Refused(format!(
                "accepts only {streams_max} streams on an HTTP/2 connection: --streams-per-connection may be {streams_max} at most"
            )));
        }
        if self.state == State::Leaving {
            return Err(ConnectionError::Lost("ends the HTTP/2 connection and accepts no further streams".into()));
        }
        let mut fields = Vec::new();
        hpack::write_connect(target, &mut fields);
        frame::write(frame::HEADERS, frame::END_HEADERS, number(self.streams.len()), &fields, out);
        self.streams.push(Stream {
            session: Some(session as u32),
            is_answered: false,
            received: ReceiveWindow::new(STREAM_WINDOW_BYTES),
            send: SendWindow::new(stream_window),
            unsent: VecDeque::new(),
        });
        self.open += 1;
        Ok(self.streams.len() - 1)
    }

    /// Sends bytes of a stream as far as the windows have room, and the others later.
    pub(super) fn send(&mut self, stream: usize, bytes: &[u8], out: &mut Vec<u8>) {
        let mut sent = 0;
        if self.streams[stream].unsent.is_empty() {
            while let Some(room) = self.room(stream, bytes.len() - sent) {
                self.write_data(stream, &bytes[sent..sent + room], out);
                sent += room;
            }
        }
        self.streams[stream].unsent.extend(&bytes[sent..]);
    }

    /// The bytes of a stream that have had no room yet.
    pub(super) fn unsent_bytes(&self, stream: usize) -> usize {
        self.streams.get(stream).map_or(0, |stream| stream.unsent.len())
    }

    /// Resets the stream of a session that gives it up. Does nothing if it has ended.
    pub(super) fn reset(&mut self, stream: usize, session: usize, out: &mut Vec<u8>) {
        if self.streams.get(stream).is_some_and(|stream| stream.session == Some(session as u32)) {
            self.end(stream);
            frame::write(frame::RST_STREAM, 0, number(stream), &frame::CANCEL.to_be_bytes(), out);
        }
    }

    /// The sessions whose streams have not ended.
    pub(super) fn sessions(&self) -> impl Iterator<Item = usize> {
        self.streams.iter().filter_map(|stream| Some(stream.session? as usize))
    }

    /// Takes the frame at the start of `bytes`, and appends what answers it to `out`. Returns its effect and its length; `None` if more
    /// data is needed.
    ///
    /// # Errors
    /// The server breaks the protocol, or ends the connection.
    pub(super) fn next<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<(Event<'a>, usize)>, ConnectionError> {
        if let Some((session, reason)) = self.ended.pop_front() {
            return Ok(Some((Event::Ended { session, reason }, 0)));
        }
        if self.state == State::Begun && bytes.len() > 3 && bytes[3] != frame::SETTINGS {
            return Err(ConnectionError::NotSpoken(format!("does not speak HTTP/2: {:?}", shown(bytes))));
        }
        let Some((frame, length)) = Frame::split(bytes).map_err(ConnectionError::NotSpoken)? else { return Ok(None) };
        let event = if frame.kind == frame::DATA {
            self.data(&frame, out).map_err(ConnectionError::NotSpoken)?
        } else {
            self.other(&frame, out)?
        };
        Ok(Some((event, length)))
    }

    #[inline]
    fn data<'a>(&mut self, frame: &Frame<'a>, out: &mut Vec<u8>) -> Result<Event<'a>, String> {
        self.expect_no_headers()?;
        let bytes = frame.content()?;
        if let Some(more) = self.received.take(frame.payload.len())? {
            frame::write(frame::WINDOW_UPDATE, 0, 0, &more.to_be_bytes(), out);
        }
        let index = self.index(frame.stream)?;
        let stream = &mut self.streams[index];
        let Some(session) = stream.session.map(|session| session as usize) else { return Ok(Event::Nothing) };
        if frame.has(frame::END_STREAM) {
            self.end_in_turn(index, "closed the stream", out);
        } else if let Some(more) = stream.received.take(frame.payload.len())? {
            frame::write(frame::WINDOW_UPDATE, 0, frame.stream, &more.to_be_bytes(), out);
        }
        Ok(if bytes.is_empty() { Event::Nothing } else { Event::Data { session, stream: index, bytes } })
    }

    fn other(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<Event<'static>, ConnectionError> {
        if frame.kind != frame::CONTINUATION {
            self.expect_no_headers().map_err(ConnectionError::NotSpoken)?;
        }
        let event = match (frame.kind, frame.payload) {
            (frame::HEADERS | frame::CONTINUATION, _) => self.headers(frame, out),
            (frame::RST_STREAM, [a, b, c, d]) => {
                let name = frame::error_name(u32::from_be_bytes([*a, *b, *c, *d]));
                self.index(frame.stream).map(|index| {
                    self.end_with(index, format!("reset the stream: {name}"));
                    Event::Nothing
                })
            }
            (frame::SETTINGS, settings) if !frame.has(frame::ACK) => self.settings(settings, out),
            (frame::PING, [_, _, _, _, _, _, _, _]) if !frame.has(frame::ACK) => {
                frame::write(frame::PING, frame::ACK, 0, frame.payload, out);
                Ok(Event::Nothing)
            }
            (frame::GOAWAY, [a, b, c, d, e, f, g, h, debug @ ..]) => {
                let code = u32::from_be_bytes([*e, *f, *g, *h]);
                if code != frame::NO_ERROR {
                    let text = format!("ended the HTTP/2 connection: {} {}", frame::error_name(code), shown(debug));
                    return Err(ConnectionError::Lost(text.trim_end().to_owned()));
                }
                self.leave(u32::from_be_bytes([*a, *b, *c, *d]) & WINDOW_MAX);
                Ok(Event::Nothing)
            }
            (frame::WINDOW_UPDATE, [a, b, c, d]) => {
                self.window(frame.stream, u32::from_be_bytes([*a, *b, *c, *d]) & WINDOW_MAX, out)
            }
            (frame::RST_STREAM | frame::GOAWAY | frame::WINDOW_UPDATE, _) => {
                Err(format!("sent a frame of kind {} with {} bytes", frame.kind, frame.payload.len()))
            }
            (frame::PUSH_PROMISE, _) => Err("pushes, although the client forbids it".into()),
            _ => Ok(Event::Nothing),
        };
        event.map_err(ConnectionError::NotSpoken)
    }

    /// Takes a frame of a list of fields, whole or in part (RFC 9113 §6.2, §6.10).
    fn headers(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<Event<'static>, String> {
        let mut headers = match self.headers.take() {
            None if frame.kind == frame::HEADERS => {
                Headers { stream: frame.stream, ends_stream: frame.has(frame::END_STREAM), fields: Vec::new() }
            }
            Some(headers) if headers.stream == frame.stream => headers,
            _ => return Err("sent a list of fields that has not begun".into()),
        };
        let content = if frame.kind == frame::HEADERS { frame.content()? } else { frame.payload };
        headers.fields.extend_from_slice(content);
        if headers.fields.len() > HEADERS_BYTES_MAX {
            return Err(format!("sent a list of fields over {HEADERS_BYTES_MAX} bytes"));
        }
        if !frame.has(frame::END_HEADERS) {
            self.headers = Some(headers);
            return Ok(Event::Nothing);
        }
        let index = self.index(headers.stream)?;
        let Stream { session, is_answered, .. } = &mut self.streams[index];
        let Some(session) = session.map(|session| session as usize) else { return Ok(Event::Nothing) };
        // Further fields follow the data.
        let status = if *is_answered { None } else { Some(hpack::status(&headers.fields)?) };
        let Some(status) = status.filter(|status| *status >= 200) else {
            if headers.ends_stream {
                self.end_in_turn(index, "closed the stream", out);
            }
            return Ok(Event::Nothing);
        };
        *is_answered = true;
        if headers.ends_stream && status < 300 {
            self.end_in_turn(index, "closed the stream at once", out);
        }
        Ok(Event::Answered { session, stream: index, status })
    }

    fn settings(&mut self, settings: &[u8], out: &mut Vec<u8>) -> Result<Event<'static>, String> {
        for &[a, b, c, d, e, f] in settings.as_chunks().0 {
            let value = u32::from_be_bytes([c, d, e, f]);
            match u16::from_be_bytes([a, b]) {
                frame::MAX_CONCURRENT_STREAMS => self.terms.streams_max = value,
                frame::INITIAL_WINDOW_SIZE => {
                    let before = std::mem::replace(&mut self.terms.stream_window, value);
                    let more = i64::from(value) - i64::from(before);
                    self.streams.iter_mut().try_for_each(|stream| stream.send.give(more))?;
                }
                frame::MAX_FRAME_SIZE => self.terms.frame_bytes_max = (value as usize).max(frame::FRAME_BYTES_MAX),
                frame::ENABLE_CONNECT_PROTOCOL => self.terms.connects = value == 1,
                _ => {}
            }
        }
        frame::write(frame::SETTINGS, frame::ACK, 0, &[], out);
        self.send_unsent(out);
        if self.state != State::Begun {
            return Ok(Event::Nothing);
        }
        self.state = State::Ready;
        Ok(Event::Ready)
    }

    fn window(&mut self, stream: u32, more: u32, out: &mut Vec<u8>) -> Result<Event<'static>, String> {
        if stream == 0 {
            self.send.give(more.into())?;
            self.send_unsent(out);
        } else {
            let index = self.index(stream)?;
            self.streams[index].send.give(more.into())?;
            self.send_unsent_of(index, out);
        }
        Ok(Event::Nothing)
    }

    /// The server accepts no further streams. Those above `last` it has not seen.
    fn leave(&mut self, last: u32) {
        self.state = State::Leaving;
        for index in 0..self.streams.len() {
            if number(index) > last {
                self.end_with(index, "ended the HTTP/2 connection before the stream".into());
            }
        }
    }

    /// The server has ended its side of a stream. The client ends the other one, too.
    fn end_in_turn(&mut self, index: usize, reason: &str, out: &mut Vec<u8>) {
        self.end_with(index, reason.to_owned());
        frame::write(frame::DATA, frame::END_STREAM, number(index), &[], out);
    }

    fn end_with(&mut self, index: usize, reason: String) {
        if let Some(session) = self.end(index) {
            self.ended.push_back((session as usize, reason));
        }
    }

    fn end(&mut self, index: usize) -> Option<u32> {
        let Stream { session, unsent, .. } = &mut self.streams[index];
        *unsent = VecDeque::new();
        let session = session.take();
        self.open -= usize::from(session.is_some());
        session
    }

    fn send_unsent(&mut self, out: &mut Vec<u8>) {
        (0..self.streams.len()).for_each(|index| self.send_unsent_of(index, out));
    }

    fn send_unsent_of(&mut self, index: usize, out: &mut Vec<u8>) {
        let mut unsent = std::mem::take(&mut self.streams[index].unsent);
        while let Some(room) = self.room(index, unsent.as_slices().0.len()) {
            self.write_data(index, &unsent.as_slices().0[..room], out);
            unsent.drain(..room);
        }
        if !unsent.is_empty() {
            self.streams[index].unsent = unsent;
        }
    }

    /// The bytes of the next frame of a stream that has `bytes` to send; none if there is no room.
    fn room(&self, index: usize, bytes: usize) -> Option<usize> {
        let windows = self.streams[index].send.room().min(self.send.room());
        Some(windows.min(self.terms.frame_bytes_max).min(bytes)).filter(|room| *room > 0)
    }

    fn write_data(&mut self, index: usize, bytes: &[u8], out: &mut Vec<u8>) {
        frame::write(frame::DATA, 0, number(index), bytes, out);
        self.streams[index].send.take(bytes.len());
        self.send.take(bytes.len());
    }

    fn index(&self, stream: u32) -> Result<usize, String> {
        let index = (stream / 2) as usize;
        if stream % 2 == 1 && index < self.streams.len() {
            return Ok(index);
        }
        Err(format!("sent a frame of stream {stream}, which is not open"))
    }

    fn expect_no_headers(&self) -> Result<(), String> {
        if self.headers.is_some() { Err("sent a frame within a list of fields".into()) } else { Ok(()) }
    }
}

/// The number of a stream by its index.
fn number(index: usize) -> u32 {
    index as u32 * 2 + 1
}

/// The bytes that the server may send on a stream before the client has read them; as many as Chrome allows.
const STREAM_WINDOW_BYTES: u32 = 6 * 1024 * 1024;
/// The bytes that it may send on all streams together; as many as Chrome allows.
const CONNECTION_WINDOW_BYTES: u32 = 15 * 1024 * 1024;
/// The longest list of fields that is accepted, in bytes.
const HEADERS_BYTES_MAX: usize = 64 * 1024;
