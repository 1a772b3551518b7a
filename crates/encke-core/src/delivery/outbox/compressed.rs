//! The compressed forms of frames, for WebSockets whose clients take them (RFC 7692).
//!
//! Outboxes hold plain frames, whatever they are written to. A chunk of channels that compress has a second chunk, with
//! the compressed form of each frame that a socket has needed. The first socket that is about to be written makes the
//! form, and all others share it: a publication is compressed once.
//!
//! A form is the frame of an array, too. Its message is one block, so the same block goes into batches of several messages
//! ([`Compressor::batch`]):
//!
//! ```text
//!   stored "["   block of the message   stored "]"   end
//! ```
//!
//! While the kernel has a part of a form, the form is a separate run before the plain frame ([`Kind::Begun`]).

use std::rc::Rc;

use websocket::deflate::{self, Deflater, STORED_HEADER_BYTES};
use websocket::{Compression, Opcode, frame};

use super::{Kind, Outbox, Run, Wrote, first_frame, frames, payload, whole_frames};
use crate::delivery::outbox::arena::Frames;

/// Compresses messages.
#[derive(Debug, Default)]
pub(crate) struct Compressor {
    deflater: Deflater,
    /// Messages of fewer bytes stay as they are.
    pub(crate) bytes_min: usize,
    /// A buffer for a payload.
    payload: Vec<u8>,
    /// A buffer for the parts of a write.
    pub(crate) parts: Parts,
}

/// Ranges of frames to be written, of one run of an outbox after the other.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) frames: Vec<Frames>,
    /// The number of ranges up to the end of each run.
    ends: Vec<usize>,
}

impl Compressor {
    /// It compresses messages from this size on.
    pub(crate) fn new(bytes_min: usize) -> Compressor {
        Compressor { bytes_min, ..Compressor::default() }
    }

    /// The number of messages compressed since the start.
    pub(crate) fn messages(&self) -> u64 {
        self.deflater.blocks()
    }

    /// Appends the form of a frame that holds an array of one message.
    fn form(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        let array = payload(plain);
        self.payload.clear();
        if array.len() >= self.bytes_min.max(2) {
            deflate::stored(b"[", &mut self.payload);
            self.deflater.block(&array[1..array.len() - 1], &mut self.payload);
            deflate::stored(b"]", &mut self.payload);
            self.payload.push(deflate::END);
        }
        if self.payload.is_empty() || self.payload.len() >= array.len() {
            return out.extend_from_slice(plain);
        }
        frame::compressed_header(Opcode::Text, self.payload.len(), out);
        out.extend_from_slice(&self.payload);
    }

    /// A compressed frame with an array of these messages and of replies behind them, which stay as they are.
    pub(crate) fn batch(&mut self, ranges: &[Frames], compression: Compression, replies: &[u8]) -> Vec<u8> {
        let (mut parts, mut batch, mut plain) = (Vec::new(), Vec::new(), vec![b'[']);
        ranges.iter().for_each(|range| range.forms(self, compression, &mut parts));
        for part in parts {
            let bytes = part.chunk.slice(part.start, part.end);
            for form in frames(&bytes) {
                if frame::is_compressed(form) {
                    deflate::stored(&plain, &mut batch);
                    plain.clear();
                    batch.extend_from_slice(block_of(form));
                } else {
                    plain.extend_from_slice(inside(payload(form), 1, 1));
                }
                plain.push(b',');
            }
        }
        plain.extend_from_slice(replies);
        plain.push(b']');
        deflate::stored(&plain, &mut batch);
        batch.push(deflate::END);
        let mut frame = Vec::with_capacity(frame::header_bytes(batch.len()) + batch.len());
        frame::compressed_header(Opcode::Text, batch.len(), &mut frame);
        frame.append(&mut batch);
        frame
    }

    /// A frame with a message that is no Bayeux message, compressed if that makes it shorter.
    pub(crate) fn single(&mut self, opcode: Opcode, message: &[u8], compression: Compression) -> Vec<u8> {
        let mut frame = Vec::new();
        self.payload.clear();
        if (self.bytes_min..=compression.message_bytes_max()).contains(&message.len()) {
            self.deflater.block(message, &mut self.payload);
            // The rest of the empty block with which it ends is implied (RFC 7692 §7.2.1).
            self.payload.truncate(self.payload.len().saturating_sub(4));
        }
        if self.payload.is_empty() || self.payload.len() >= message.len() {
            frame::message(opcode, message, &mut frame);
        } else {
            frame::compressed_header(opcode, self.payload.len(), &mut frame);
            frame.extend_from_slice(&self.payload);
        }
        frame
    }
}

/// The block in the form of a frame.
fn block_of(form: &[u8]) -> &[u8] {
    inside(payload(form), STORED_HEADER_BYTES + 1, STORED_HEADER_BYTES + 2)
}

/// The bytes without so many at the beginning and at the end.
fn inside(bytes: &[u8], before: usize, behind: usize) -> &[u8] {
    bytes.get(before..bytes.len().saturating_sub(behind)).unwrap_or_default()
}

impl Frames {
    /// Appends the frames as they go to such a socket. Makes the forms that do not exist yet.
    fn forms(&self, compressor: &mut Compressor, compression: Compression, parts: &mut Vec<Frames>) {
        if !self.chunk.is_compressible() || self.start == self.end {
            return parts.push(self.clone());
        }
        self.chunk.with_compressed(|plain, compressed| {
            let mut index = compressed.forms.partition_point(|form| form.start < self.start);
            let mut start = self.start;
            let mut last: Option<Frames> = None;
            while start < self.end {
                let is_made = compressed.forms.get(index).is_some_and(|form| form.start == start);
                if !is_made {
                    let Some((head, length)) = frame::split(&plain[start as usize..]) else { break };
                    let end = start + (head + length) as u32;
                    let form = |out: &mut Vec<u8>| compressor.form(&plain[start as usize..end as usize], out);
                    compressed.insert(index, (start, end), form);
                }
                let form = compressed.forms[index];
                let is_plain =
                    payload(&plain[start as usize..form.end as usize]).len() > compression.message_bytes_max();
                let (chunk, first, end) = match is_plain {
                    true => (&self.chunk, form.start, form.end),
                    false => (&compressed.chunk, form.form_start, form.form_end),
                };
                match &mut last {
                    Some(last) if last.end == first && Rc::ptr_eq(&last.chunk, chunk) => last.end = end,
                    _ => parts.extend(last.replace(Frames { chunk: chunk.clone(), start: first, end })),
                }
                (start, index) = (form.end, index + 1);
            }
            parts.extend(last);
        });
    }
}

impl Outbox {
    /// Sets `parts` to what goes to such a socket next: the first runs, until they have about `bytes_max` bytes or
    /// `parts_max` parts.
    pub(crate) fn compress(
        &self,
        compressor: &mut Compressor,
        compression: Compression,
        (bytes_max, parts_max): (usize, usize),
        parts: &mut Parts,
    ) {
        let (mut written, mut is_begun, mut bytes) = (self.written, false, 0);
        for run in self.runs.iter() {
            if bytes >= bytes_max || parts.frames.len() >= parts_max {
                break;
            }
            let mut rest = run.frames.clone();
            if std::mem::replace(&mut is_begun, run.kind == Kind::Begun) {
                rest.start = first_frame(&rest).0;
                if rest.start == rest.end {
                    continue;
                }
            }
            let from = parts.frames.len();
            match std::mem::take(&mut written) {
                0 => rest.forms(compressor, compression, &mut parts.frames),
                begun => parts.frames.push(Frames { start: rest.start + begun, ..rest }),
            }
            bytes += parts.frames[from..].iter().map(Frames::bytes).sum::<usize>();
            parts.ends.push(parts.frames.len());
            if run.kind == Kind::Close {
                break;
            }
        }
    }

    /// Notes that the kernel has taken so many bytes of `parts`. Returns what it has taken completely by that.
    pub(crate) fn wrote_compressed(&mut self, mut bytes: usize, parts: &Parts) -> Wrote {
        let (mut wrote, mut from) = (Wrote::default(), 0);
        for &end in &parts.ends {
            let of_run = &parts.frames[from..end];
            from = end;
            let Some(first) = self.runs.front().filter(|_| bytes > 0) else { break };
            let whole: usize = of_run.iter().map(Frames::bytes).sum();
            let is_plain = of_run.iter().all(|part| Rc::ptr_eq(&part.chunk, &first.frames.chunk));
            if bytes < whole && !is_plain {
                wrote.messages += self.wrote_part_of_run(bytes, of_run);
                break;
            }
            let plain = if is_plain { bytes.min(whole) } else { first.frames.bytes() };
            bytes -= bytes.min(whole);
            let Wrote { messages, close } = self.wrote(plain);
            wrote = Wrote { messages: wrote.messages + messages, close: wrote.close | close };
        }
        wrote
    }

    /// Notes that the kernel has taken so many bytes of the forms of the first run. Returns the number of messages that it
    /// has completely. A form of which it has a part becomes the first run.
    fn wrote_part_of_run(&mut self, mut bytes: usize, of_run: &[Frames]) -> usize {
        let (mut count, mut begun) = (0, None);
        for part in of_run {
            let (start, whole, messages) = whole_frames(part, bytes as u32);
            bytes -= whole;
            count += messages;
            if start < part.end {
                let frame = Frames { start, ..part.clone() };
                begun = (bytes > 0).then(|| Frames { end: first_frame(&frame).0, ..frame });
                break;
            }
        }
        self.drop_first(count);
        if let Some(frames) = begun {
            self.bytes += frames.bytes() - bytes;
            self.written = bytes as u32;
            self.runs.push_front(Run { frames, kind: Kind::Begun, messages: 0 });
        }
        count as usize
    }

    /// Removes the first messages of the first run.
    pub(super) fn drop_first(&mut self, count: u32) {
        let Some(first) = self.runs.front_mut() else { return };
        let bytes: usize = {
            let all = first.frames.chunk.slice(first.frames.start, first.frames.end);
            frames(&all).take(count as usize).map(<[u8]>::len).sum()
        };
        first.frames.start += bytes as u32;
        first.messages -= count;
        self.messages -= count;
        self.bytes -= bytes;
        if first.messages == 0 {
            self.runs.pop_front();
        }
    }
}

impl Parts {
    /// Empties it, and releases the frames.
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests;
