//! Writes the outboxes of a stream: not their frames, but the texts of these in the stream's format.

use std::io;
use std::io::IoSlice;

use bayeux::ext::Plain;
use smallvec::SmallVec;

use crate::delivery::connections::reached::Reached;
use crate::delivery::connections::socket::Stream;
use crate::delivery::outbox::arena::Frames;
use crate::delivery::outbox::format::write_event;
use crate::delivery::outbox::{Outbox, payloads, singly};
use crate::delivery::wire::{COPY_BYTES_MAX, Progress, RUN_BYTES_MAX, SLICES_MAX, Wire};
use crate::events::SocketKey;

/// Writes the texts of what these outboxes hold, one after the other. Of a frame whose text is written in part, the outbox
/// counts one byte as written, so that the frame stays the first.
#[inline(never)]
pub(super) fn write_stream(
    key: SocketKey,
    stream: &mut Stream,
    outboxes: [Option<&mut Outbox>; 2],
    wire: &mut dyn Wire,
    scratch: &mut Vec<u8>,
    messages: &mut usize,
) -> Progress {
    for outbox in outboxes.into_iter().flatten() {
        while !outbox.is_empty() {
            let written = match stream.reached.take() {
                None => write_texts(outbox, stream, key, wire, scratch),
                Some(mut reached) => {
                    let written = write_with_ids(outbox, stream, &mut reached, key, wire, scratch);
                    stream.reached = Some(reached);
                    written
                }
            };
            let (whole, rest) = match written {
                Ok(Some(written)) => written,
                Ok(None) => return Progress::Lost,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Progress::Blocked,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Progress::Lost,
            };
            let wrote = outbox.wrote(whole + usize::from(rest > 0) - usize::from(stream.written > 0));
            stream.written = rest;
            *messages += wrote.messages;
            if wrote.close {
                return Progress::Closed;
            }
        }
    }
    Progress::Empty
}

/// Writes the shared texts of an outbox. Returns the bytes of the frames that the kernel has whole, and the bytes that it has
/// of the text behind them. None if it takes no bytes any more.
fn write_texts(
    outbox: &Outbox,
    stream: &Stream,
    key: SocketKey,
    wire: &mut dyn Wire,
    scratch: &mut Vec<u8>,
) -> io::Result<Option<(usize, usize)>> {
    let texts = Texts::of(outbox, stream);
    let bytes = if texts.bytes == 0 { 0 } else { texts.write(stream, key, wire, scratch)? };
    Ok((bytes > 0 || texts.bytes == 0).then(|| texts.whole(stream, stream.written + bytes)))
}

/// Writes events whose ids name the positions of several channels: they are the stream's own. Returns the same.
fn write_with_ids(
    outbox: &Outbox,
    stream: &Stream,
    reached: &mut Reached,
    key: SocketKey,
    wire: &mut dyn Wire,
    scratch: &mut Vec<u8>,
) -> io::Result<Option<(usize, usize)>> {
    scratch.clear();
    let mut then = reached.clone();
    // For each frame the end of its text.
    let (mut frames, mut ends) = (Vec::new(), Vec::new());
    let mut begun = u32::from(stream.written > 0);
    for run in outbox.unwritten().take(SLICES_MAX) {
        for frame in singly(&Frames { start: run.start - std::mem::take(&mut begun), ..run }) {
            if scratch.len() >= COPY_BYTES_MAX {
                break;
            }
            let bytes = frame.chunk.slice(frame.start, frame.end);
            let payload = payloads(&bytes).next().unwrap_or_default();
            match Plain::of(payload) {
                Some(plain) if plain.position.is_some() => {
                    then.note(payload);
                    write_event(payload, &plain, Some(&then.id()), scratch);
                }
                _ => stream.format.write_frame(&bytes, scratch),
            }
            ends.push(scratch.len());
            drop(bytes);
            frames.push(frame);
        }
    }
    let unwritten = &scratch[stream.written..];
    let bytes = if unwritten.is_empty() { 0 } else { wire.write(key, &[IoSlice::new(unwritten)])? };
    if bytes == 0 && !unwritten.is_empty() {
        return Ok(None);
    }
    let bytes = stream.written + bytes;
    let whole = ends.iter().take_while(|end| **end <= bytes).count();
    for frame in &frames[..whole] {
        payloads(&frame.chunk.slice(frame.start, frame.end)).for_each(|payload| reached.note(payload));
    }
    let rest = bytes - ends[..whole].last().copied().unwrap_or(0);
    Ok(Some((frames[..whole].iter().map(Frames::bytes).sum(), rest)))
}

/// The runs of an outbox that go out in one write on a stream, each with its text.
struct Texts {
    runs: SmallVec<[(Frames, Frames); 2]>,
    /// The bytes of text that are not written yet.
    bytes: usize,
}

impl Texts {
    fn of(outbox: &Outbox, stream: &Stream) -> Texts {
        let mut begun = u32::from(stream.written > 0);
        let with_text = |frames: Frames| {
            let frames = Frames { start: frames.start - std::mem::take(&mut begun), ..frames };
            let text = frames.text(stream.format);
            (frames, text)
        };
        let runs: SmallVec<[_; 2]> = outbox.unwritten().take(SLICES_MAX).map(with_text).collect();
        let bytes = runs.iter().map(|(_, text)| text.bytes()).sum::<usize>() - stream.written;
        Texts { runs, bytes }
    }

    fn write(&self, stream: &Stream, key: SocketKey, wire: &mut dyn Wire, scratch: &mut Vec<u8>) -> io::Result<usize> {
        let mut written = stream.written as u32;
        let mut unwritten =
            |(_, text): &(Frames, Frames)| Frames { start: text.start + std::mem::take(&mut written), ..text.clone() };
        if let [run] = &self.runs[..] {
            let Frames { chunk, start, end } = unwritten(run);
            return wire.write(key, &[IoSlice::new(&chunk.slice(start, end))]);
        }
        let texts: Vec<_> = self.runs.iter().map(unwritten).collect();
        let bytes: Vec<_> = texts.iter().map(|text| text.chunk.slice(text.start, text.end)).collect();
        if self.bytes <= COPY_BYTES_MAX.min(texts.len() * RUN_BYTES_MAX) {
            scratch.clear();
            bytes.iter().for_each(|bytes| scratch.extend_from_slice(bytes));
            return wire.write(key, &[IoSlice::new(scratch)]);
        }
        let slices: Vec<_> = bytes.iter().map(|bytes| IoSlice::new(bytes)).collect();
        wire.write(key, &slices)
    }

    /// The bytes of the frames that so many bytes of text hold whole, and the bytes of text that follow them.
    fn whole(&self, stream: &Stream, mut bytes: usize) -> (usize, usize) {
        let mut whole = 0;
        for (frames, text) in &self.runs {
            if bytes < text.bytes() {
                let (more, rest) = frames.whole_in_text(stream.format, bytes);
                return (whole + more, rest);
            }
            (whole, bytes) = (whole + frames.bytes(), bytes - text.bytes());
        }
        (whole, bytes)
    }
}
