//! A streaming response: `Welcome! Your Id: 7`, then `Chunk 1 for Id: 7` and so on, without an end.

use super::listener::{Listener, ListenerShared};
use crate::engine::Target;
use crate::engine::http::{Piece, Responses};
use crate::scenario::http::exchange;

/// One response.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) listener: Listener,
    responses: Responses,
    /// An incomplete line.
    line: Vec<u8>,
}

/// The path of the stream with this id.
pub(super) fn path(id: u32) -> String {
    format!("/comet?id={id}")
}

impl Stream {
    pub(super) fn new(listener: Listener) -> Stream {
        Stream { listener, responses: Responses::default(), line: Vec::new() }
    }

    /// Asks for the response.
    pub(super) fn connected(&mut self, target: &Target, out: &mut Vec<u8>, shared: &mut ListenerShared) {
        out.extend_from_slice(&exchange::request(target, &path(self.listener.id)));
        shared.sent += 1;
    }

    /// Takes received bytes.
    ///
    /// # Errors
    /// They are not the expected stream.
    pub(super) fn received(&mut self, bytes: &[u8], shared: &mut ListenerShared) -> Result<usize, String> {
        let mut at = 0;
        while let Some((piece, used)) = self.responses.next(&bytes[at..])? {
            at += used;
            match piece {
                Piece::Head(head) if head.status != 200 => return Err(format!("answered {}", head.reason)),
                Piece::Head(_) => {}
                Piece::Body(body) => self.body(body, shared)?,
                Piece::End => return Err("the response came to an end".into()),
            }
        }
        Ok(at)
    }

    fn body(&mut self, body: &[u8], shared: &mut ListenerShared) -> Result<(), String> {
        shared.bytes += body.len() as u64;
        for part in body.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
                self.line.clear();
                self.take(&line, shared)?;
            } else if self.line.len() > LINE_BYTES_MAX {
                return Err(format!("sent a line over {LINE_BYTES_MAX} bytes"));
            }
        }
        // Thousands of them wait for long.
        if self.line.is_empty() {
            self.line = Vec::new();
        }
        Ok(())
    }

    fn take(&mut self, line: &str, shared: &mut ListenerShared) -> Result<(), String> {
        let id = self.listener.id;
        if !self.listener.is_welcomed() {
            let wanted = format!("Welcome! Your Id: {id}");
            if line != wanted {
                return Err(format!("{:?} in place of a welcome", plain(line, id)));
            }
            self.listener.welcome(1, shared);
            return Ok(());
        }
        let number = line.strip_prefix("Chunk ").and_then(|rest| rest.strip_suffix(&format!(" for Id: {id}")));
        let number = number.and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| format!("{:?} in place of a chunk", plain(line, id)))?;
        self.listener.chunk(number, None, shared);
        Ok(())
    }
}

/// A line as it is counted among others: short, and without the id.
fn plain(line: &str, id: u32) -> String {
    let line: String = line.chars().take(SHOWN_CHARS_MAX).collect();
    line.replace(&id.to_string(), "N")
}

const LINE_BYTES_MAX: usize = 1024;
const SHOWN_CHARS_MAX: usize = 60;
