//! Requests that follow one another on a connection, and their responses piece by piece.

use super::frame::{self, Frame};
use super::hpack;
use crate::engine::http::{Head, Piece};
use crate::engine::target::Target;

/// One connection, with one request at a time.
#[derive(Debug, Default)]
pub(crate) struct Http2Requests {
    /// The number of the latest request's stream. 0: there was none.
    stream: u32,
    /// True once the server's settings have arrived.
    is_ready: bool,
    /// Fields of which more frames follow, and true if the response ends with them.
    fields: Option<(Vec<u8>, bool)>,
    /// True if the response has ended, and nobody knows.
    has_ended: bool,
    /// True if the server accepts no further requests.
    is_leaving: bool,
    /// Bytes since the server was last given more room.
    received: u32,
}

/// The fields of a GET request, as [`Http2Requests::ask`] sends them.
pub(crate) fn get(target: &Target, path: &str) -> Vec<u8> {
    let mut fields = Vec::new();
    hpack::write_get(target, path, &mut fields);
    fields
}

impl Http2Requests {
    /// Appends what the client says first (RFC 9113 §3.4). Windows are as large as they can be: the load always has room.
    pub(crate) fn begin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(frame::PREFACE);
        let (no_table, no_push) = ((frame::HEADER_TABLE_SIZE, 0), (frame::ENABLE_PUSH, 0));
        frame::write_settings(&[no_table, no_push, (frame::INITIAL_WINDOW_SIZE, WINDOW_MAX)], out);
        let more = WINDOW_MAX - WINDOW_BYTES;
        frame::write(frame::WINDOW_UPDATE, 0, 0, &more.to_be_bytes(), out);
    }

    /// Sends a request with these fields.
    pub(crate) fn ask(&mut self, fields: &[u8], out: &mut Vec<u8>) {
        self.stream = if self.stream == 0 { 1 } else { self.stream + 2 };
        frame::write(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, self.stream, fields, out);
    }

    /// Reads the next piece of the response, and appends what answers the server. Returns the piece and the bytes used; `None` if more
    /// data is needed.
    ///
    /// # Errors
    /// The server breaks the protocol, or gives the response up. The text follows "the server".
    pub(crate) fn next<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<(Piece<'a>, usize)>, String> {
        let mut used = 0;
        loop {
            if std::mem::take(&mut self.has_ended) {
                return Ok(Some((Piece::End, used)));
            }
            if !self.is_ready && bytes.get(KIND_AT).is_some_and(|kind| *kind != frame::SETTINGS) {
                return Err("does not speak HTTP/2".into());
            }
            let Some((frame, length)) = Frame::split(&bytes[used..])? else {
                // The frames so far need not be read again.
                return Ok((used > 0).then_some((Piece::Body(&[]), used)));
            };
            used += length;
            if let Some(piece) = self.take(&frame, out)? {
                return Ok(Some((piece, used)));
            }
        }
    }

    fn take<'a>(&mut self, frame: &Frame<'a>, out: &mut Vec<u8>) -> Result<Option<Piece<'a>>, String> {
        let is_of_request = frame.stream == self.stream && self.stream > 0;
        match frame.kind {
            frame::DATA if is_of_request => {
                self.has_ended = frame.has(frame::END_STREAM);
                self.received += frame.payload.len() as u32;
                if self.received >= WINDOW_MAX / 2 {
                    let more = std::mem::take(&mut self.received);
                    frame::write(frame::WINDOW_UPDATE, 0, 0, &more.to_be_bytes(), out);
                }
                return Ok(Some(Piece::Body(frame.content()?)));
            }
            frame::HEADERS if is_of_request && self.fields.is_none() => {
                self.fields = Some((frame.content()?.to_vec(), frame.has(frame::END_STREAM)));
                return if frame.has(frame::END_HEADERS) { self.head() } else { Ok(None) };
            }
            frame::CONTINUATION if is_of_request => {
                let (fields, _) = self.fields.as_mut().ok_or("sent a continuation of nothing")?;
                fields.extend_from_slice(frame.payload);
                if fields.len() > FIELDS_BYTES_MAX {
                    return Err(format!("sent a head over {FIELDS_BYTES_MAX} bytes"));
                }
                return if frame.has(frame::END_HEADERS) { self.head() } else { Ok(None) };
            }
            frame::RST_STREAM if is_of_request => {
                let code = frame.payload.first_chunk().map_or(0, |code| u32::from_be_bytes(*code));
                return Err(format!("reset the stream: {}", frame::error_name(code)));
            }
            frame::SETTINGS if !frame.has(frame::ACK) => {
                self.is_ready = true;
                frame::write(frame::SETTINGS, frame::ACK, 0, &[], out);
            }
            frame::PING if !frame.has(frame::ACK) => frame::write(frame::PING, frame::ACK, 0, frame.payload, out),
            frame::GOAWAY => self.is_leaving = true,
            frame::DATA | frame::HEADERS | frame::CONTINUATION | frame::RST_STREAM | frame::PUSH_PROMISE => {
                return Err(format!("sent a frame of kind {} on stream {}", frame.kind, frame.stream));
            }
            _ => {}
        }
        Ok(None)
    }

    /// The head of a response whose fields are complete. Trailers have no status.
    fn head<'a>(&mut self) -> Result<Option<Piece<'a>>, String> {
        let Some((fields, ends_stream)) = self.fields.take() else { return Ok(None) };
        self.has_ended = ends_stream;
        let status = hpack::status(&fields)?;
        Ok(Some(Piece::Head(Head {
            status,
            reason: status.to_string(),
            keep_alive: !self.is_leaving,
            ..Head::default()
        })))
    }
}

/// The byte of a frame that says its kind.
const KIND_AT: usize = 3;
/// The window of a connection before anything else is said, in bytes.
const WINDOW_BYTES: u32 = 65_535;
/// The largest window, in bytes.
const WINDOW_MAX: u32 = u32::MAX >> 1;
const FIELDS_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of these bytes, in parts of this size, and the bytes that answer them.
    fn read(requests: &mut Http2Requests, bytes: &[u8], size: usize) -> Result<(Vec<String>, Vec<u8>), String> {
        let (mut buffered, mut pieces, mut out) = (Vec::new(), Vec::new(), Vec::new());
        for part in bytes.chunks(size) {
            buffered.extend_from_slice(part);
            while let Some((piece, used)) = requests.next(&buffered, &mut out)? {
                match piece {
                    Piece::Head(head) => pieces.push(format!("{} {}", head.status, head.keep_alive)),
                    Piece::Body([]) => {}
                    Piece::Body(body) => pieces.push(String::from_utf8_lossy(body).into_owned()),
                    Piece::End => pieces.push("end".into()),
                }
                buffered.drain(..used);
            }
        }
        Ok((pieces, out))
    }

    fn server() -> Vec<u8> {
        let mut bytes = Vec::new();
        frame::write_settings(&[], &mut bytes);
        frame::write(frame::SETTINGS, frame::ACK, 0, &[], &mut bytes);
        frame::write(frame::WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0], &mut bytes);
        bytes
    }

    #[test]
    fn responses_follow_one_another_however_they_are_cut() {
        let mut bytes = server();
        // Early hints come first.
        frame::write(frame::HEADERS, frame::END_HEADERS, 1, b"\x08\x03103", &mut bytes);
        frame::write(frame::HEADERS, 0, 1, &[0x88], &mut bytes);
        frame::write(frame::CONTINUATION, frame::END_HEADERS, 1, &[], &mut bytes);
        frame::write(frame::DATA, 0, 1, b"some", &mut bytes);
        frame::write(frame::PING, 0, 0, &[7; 8], &mut bytes);
        frame::write(frame::DATA, frame::END_STREAM | frame::PADDED, 1, b"\x01 more\0", &mut bytes);
        let mut second = Vec::new();
        frame::write(frame::GOAWAY, 0, 0, &[0; 8], &mut second);
        frame::write(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 3, &[0x8D], &mut second);
        for size in [1, 2, 9, 1_000] {
            let (mut requests, mut out) = (Http2Requests::default(), Vec::new());
            requests.begin(&mut out);
            requests.ask(b"first", &mut out);
            let (pieces, answers) = read(&mut requests, &bytes, size).expect("valid");
            assert_eq!(pieces, ["103 true", "200 true", "some", " more", "end"], "{size}");
            assert_eq!(answers.len(), 9 + 17, "the settings and the ping are answered");
            requests.ask(b"second", &mut out);
            assert_eq!(read(&mut requests, &second, size).expect("valid").0, ["404 false", "end"], "{size}");
        }
    }

    #[test]
    fn a_server_that_gives_a_response_up_or_speaks_something_else_is_an_error() {
        let failed = |more: &[u8]| {
            let mut requests = Http2Requests::default();
            requests.ask(b"", &mut Vec::new());
            read(&mut requests, more, 100).err()
        };
        let mut reset = server();
        frame::write(frame::RST_STREAM, 0, 1, &[0, 0, 0, 7], &mut reset);
        assert_eq!(failed(&reset).as_deref(), Some("reset the stream: REFUSED_STREAM"));
        assert_eq!(failed(b"HTTP/1.1 400 Bad Request\r\n\r\n").as_deref(), Some("does not speak HTTP/2"));
        let mut foreign = server();
        frame::write(frame::DATA, 0, 3, b"x", &mut foreign);
        assert!(failed(&foreign).is_some());
    }
}
