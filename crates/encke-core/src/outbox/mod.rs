//! The outbox of a session: what it still gets, in order, until the kernel has it.
//!
//! An outbox is a queue of runs; a run is a range of whole frames in a chunk of the arena. Publications that lie side by
//! side extend the last run instead of adding one, which is what makes a fan-out cheap: see [`super::arena`].

pub(crate) mod arena;
mod in_flight;
pub(crate) mod memory;
pub(crate) mod relief;
mod room;
mod runs;
mod sweep;

use std::collections::HashSet;

use websocket::frame;

use crate::outbox::arena::{Chunk, Frames};
pub use in_flight::InFlight;
use runs::Runs;
pub use sweep::{Packed, Sweep};

/// What a run holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Publications: they belong to the session and go on with it to its next carrier.
    Messages,
    /// Replies and control frames: they belong to the carrier they were made for.
    Replies,
    /// The close frame of the carrier: nothing goes out behind it (RFC 6455 §5.5.1).
    Close,
}

/// Several whole frames, to be written in one piece.
#[derive(Clone, Debug)]
pub struct Run {
    frames: Frames,
    kind: Kind,
    messages: u32,
}

/// How much an outbox may hold.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Messages.
    pub messages_max: usize,
    /// Bytes, as encoded frames.
    pub bytes_max: usize,
}

/// The queue of one session.
#[derive(Debug, Default)]
pub struct Outbox {
    runs: Runs,
    messages: usize,
    bytes: usize,
    /// Bytes of the runs that are no messages, at most: what is written of them is taken off when somebody looks.
    reply_bytes: usize,
    /// Bytes of the first run that the kernel has already.
    written: u32,
    /// Since when it has had much, as the [backpressure](super::backpressure) counts; 0 for one that has been empty since.
    pub(super) behind_since: u32,
    /// Messages in responses on their way, on a socket's own queue or not acknowledged, which may come back, and the bytes that these are
    /// charged with.
    lent: Lent,
}

/// Messages, and the bytes that they are charged with.
pub type Lent = (usize, usize);

/// What the kernel has taken wholly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wrote {
    /// Messages. Those of a run count when its last byte is gone.
    pub messages: usize,
    /// Whether the close frame is gone: what is left is for another carrier.
    pub close: bool,
}

/// What stays with a carrier that is left.
#[derive(Debug, Default)]
pub struct Left {
    /// How many messages it had whole that were not counted yet.
    pub messages: usize,
    /// The replies made for it, and its close frame.
    pub replies: Outbox,
}

/// Bytes that a run takes in the queue.
pub const RUN_BYTES: usize = size_of::<Run>();
impl Outbox {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Messages that wait, with those in a response that may come back.
    pub fn messages(&self) -> usize {
        self.messages + self.lent.0
    }

    /// Bytes of frames that wait, with what those in a response that may come back are charged with.
    pub fn bytes(&self) -> usize {
        self.bytes + self.lent.1
    }

    /// The bytes that count against its capacity: those of frames, and of the queue that holds them.
    pub fn held_bytes(&self) -> usize {
        self.bytes() + self.runs.len() * RUN_BYTES
    }

    /// Bytes that wait, without those in a response.
    pub fn waiting_bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of replies and control frames that wait; those of which the kernel has a part count wholly.
    pub fn reply_bytes(&self) -> usize {
        self.runs.iter().filter(|run| run.kind != Kind::Messages).map(|run| run.frames.bytes()).sum()
    }

    /// Whether so many bytes of replies more would be too many. An eighth below the limit they may be, so that it is not worth a look at
    /// all that waits each time.
    pub fn has_too_many_replies(&mut self, bytes: usize, bytes_max: usize) -> bool {
        if self.reply_bytes + bytes <= bytes_max {
            return false;
        }
        self.reply_bytes = self.reply_bytes();
        self.reply_bytes + bytes > bytes_max - bytes_max / 8
    }

    /// Bytes of messages that were sent and may come back.
    pub fn lent_bytes(&self) -> usize {
        self.lent.1
    }

    /// Whether so many messages of so many bytes more would pass the capacity.
    #[inline(always)]
    pub fn is_full(&self, messages: usize, bytes: usize, capacity: &Capacity) -> bool {
        self.messages() + messages > capacity.messages_max || self.held_bytes() + bytes > capacity.bytes_max
    }

    /// Whether the kernel has a part of a frame whose rest still waits.
    pub fn is_mid_frame(&self) -> bool {
        let first = self.runs.front().filter(|_| self.written > 0);
        first.is_some_and(|run| whole_frames(&run.frames, self.written).1 < self.written as usize)
    }

    /// The rest of a frame of which the kernel has a part.
    pub fn rest_of_frame(&self) -> Option<Frames> {
        let first = &self.runs.front().filter(|_| self.written > 0)?.frames;
        let (start, whole, _) = whole_frames(first, self.written);
        let (end, _) = first_frame(&Frames { start, ..first.clone() });
        let begun = first.start + self.written;
        (whole < self.written as usize).then(|| Frames { start: begun, end, ..first.clone() })
    }

    /// Adds all that waits in another outbox at the end. Only a queue that is empty may take over one whose first frame is half out.
    /// Returns how many messages of it the kernel had whole that were not counted yet.
    pub fn append(&mut self, mut other: Outbox) -> usize {
        if self.is_empty() {
            *self = Outbox { lent: self.lent, ..other };
            return 0;
        }
        debug_assert!(!other.is_mid_frame(), "nothing may come between the halves of a frame");
        // Frames at the head of its first run may be gone: only the first run of a queue can say so.
        let gone = other.cut_written();
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.reply_bytes += other.reply_bytes;
        self.runs.append(&mut other.runs);
        gone
    }

    /// Cuts the frames off that the kernel has whole; one of which it has a part waits whole again. Returns how many messages went.
    fn cut_written(&mut self) -> usize {
        let Some(first) = self.runs.front_mut().filter(|_| self.written > 0) else { return 0 };
        let (start, whole, frames) = whole_frames(&first.frames, self.written);
        self.bytes += self.written as usize - whole;
        first.frames.start = start;
        let gone = if first.kind == Kind::Messages { frames } else { 0 };
        first.messages -= gone.min(first.messages);
        self.messages -= gone as usize;
        self.written = 0;
        gone as usize
    }

    /// Takes out all that waits, for a socket's own queue. It may come back, and counts until it is [settled](Outbox::settle_charge).
    pub fn hand_over(&mut self) -> (Outbox, Lent) {
        let charge = (self.messages, self.bytes + self.runs.len() * RUN_BYTES);
        let lent = (self.lent.0 + charge.0, self.lent.1 + charge.1);
        let handed = std::mem::replace(self, Outbox { lent, ..Outbox::default() });
        (Outbox { lent: (0, 0), ..handed }, charge)
    }

    /// What was handed over has arrived, or comes back just now.
    pub fn settle_charge(&mut self, charge: Lent) {
        self.lent = (self.lent.0 - charge.0, self.lent.1 - charge.1);
    }

    /// Puts what waits in another outbox in front. Nothing of this one may be half written.
    pub fn prepend(&mut self, older: Outbox) {
        let newer = std::mem::replace(self, older);
        debug_assert!(newer.written == 0, "its messages would go uncounted");
        self.lent = newer.lent;
        self.append(newer);
    }

    /// Adds one frame at the end.
    pub fn push(&mut self, frames: &Frames, kind: Kind) {
        if kind != Kind::Messages {
            self.reply_bytes += frames.bytes();
        }
        self.push_many(frames, kind, u32::from(kind == Kind::Messages));
    }

    /// Adds several frames at the end, which hold so many messages and no replies.
    #[inline(always)]
    pub fn push_many(&mut self, frames: &Frames, kind: Kind, messages: u32) {
        self.messages += messages as usize;
        self.bytes += frames.bytes();
        if let Some(last) = self.runs.back_mut()
            && last.kind == kind
            && last.frames.is_followed_by(frames)
        {
            last.frames.end = frames.end;
            last.messages += messages;
            return;
        }
        self.runs.push_back(Run { frames: frames.clone(), kind, messages });
    }

    /// The unwritten part of each run, first to last; none behind a close frame.
    pub fn unwritten(&self) -> impl Iterator<Item = Frames> + '_ {
        let mut written = self.written;
        let mut closed = false;
        self.runs.iter().map_while(move |run| {
            if closed {
                return None;
            }
            closed = run.kind == Kind::Close;
            let mut frames = run.frames.clone();
            frames.start += std::mem::take(&mut written);
            Some(frames)
        })
    }

    /// The unwritten part of the one run, where there is only one.
    pub fn only_run(&self) -> Option<(&Chunk, u32, u32)> {
        let first = self.runs.front().filter(|_| self.runs.len() == 1)?;
        Some((&first.frames.chunk, first.frames.start + self.written, first.frames.end))
    }

    /// The ranges of messages, first to last, for whoever copies them. Nothing of them may be half written.
    pub fn message_ranges(&self) -> impl Iterator<Item = &Frames> {
        self.runs.iter().filter(|run| run.kind == Kind::Messages).map(|run| &run.frames)
    }

    /// The bytes that its queue and its chunks take, but for chunks among the `seen`.
    pub fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        self.runs.recount(seen)
    }

    /// The bytes that its queue and its chunks take: what others hold, too, counts with its part.
    pub fn share_bytes(&self) -> usize {
        self.runs.share_bytes()
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// The kernel has taken `bytes` more. Returns what is wholly gone with them.
    #[inline(always)]
    pub fn wrote(&mut self, mut bytes: usize) -> Wrote {
        let mut wrote = Wrote::default();
        self.bytes -= bytes;
        while bytes > 0 {
            let Some(first) = self.runs.front() else { break };
            let rest = first.frames.bytes() - self.written as usize;
            if bytes < rest {
                self.written += bytes as u32;
                break;
            }
            bytes -= rest;
            wrote.messages += first.messages as usize;
            wrote.close |= first.kind == Kind::Close;
            self.messages -= first.messages as usize;
            self.written = 0;
            self.runs.pop_front();
        }
        wrote
    }

    /// The carrier carries it no more: replies made for that are taken out, and a message of which it had only a part
    /// waits whole again.
    pub fn leave_attachment(&mut self) -> Left {
        let mut left = Left { messages: self.cut_written(), ..Left::default() };
        let bytes = &mut self.bytes;
        self.runs.retain(|run| {
            if run.kind != Kind::Messages {
                *bytes -= run.frames.bytes();
                left.replies.push(&run.frames, run.kind);
            }
            run.kind == Kind::Messages
        });
        self.reply_bytes = 0;
        left
    }

    /// Drops the messages and keeps the replies. Only where nothing is half written.
    pub fn drop_messages(&mut self) {
        debug_assert!(self.written == 0, "half a frame must be followed by its rest");
        self.runs.retain(|run| run.kind != Kind::Messages);
        self.bytes = self.runs.iter().map(|run| run.frames.bytes()).sum();
        self.messages = 0;
    }

    /// Takes all messages out for a response. They count as waiting until they are settled or restored.
    pub fn take_messages(&mut self) -> InFlight {
        (self.written, self.reply_bytes) = (0, 0);
        self.behind_since = 0;
        let runs = std::mem::take(&mut self.runs);
        self.lend(runs)
    }

    /// Takes the oldest messages out, as [`Outbox::take_messages`] does: not more than `bytes_max` of frames, but at least
    /// one message if `at_least_one`. Only of an outbox without replies, of which nothing is written.
    pub fn take_oldest(&mut self, bytes_max: usize, at_least_one: bool) -> InFlight {
        if self.bytes <= bytes_max {
            return self.take_messages();
        }
        let runs = take_oldest(&mut self.runs, bytes_max, at_least_one);
        self.lend(runs)
    }

    fn lend(&mut self, runs: Runs) -> InFlight {
        let lent = InFlight::new(runs);
        self.messages -= lent.messages();
        self.bytes -= lent.bytes();
        self.charge(&lent);
        lent
    }

    /// These messages may come back: they count on.
    fn charge(&mut self, lent: &InFlight) {
        self.lent = (self.lent.0 + lent.messages(), self.lent.1 + lent.held_bytes());
    }

    /// These messages, which were taken out, have arrived.
    pub fn settle(&mut self, arrived: &InFlight) {
        self.lent = (self.lent.0 - arrived.messages(), self.lent.1 - arrived.held_bytes());
    }

    /// Takes messages that `keep`, given the payload, does not want out of those that were taken: they need not come back.
    pub fn withdraw(&mut self, taken: &mut InFlight, mut keep: impl FnMut(&[u8]) -> bool) {
        self.settle(taken);
        let mut waiting = Outbox { runs: std::mem::take(&mut taken.runs), ..Outbox::default() };
        waiting.filter(|_, payload| keep(payload));
        taken.replace(waiting.runs);
        self.charge(taken);
    }

    /// Takes the oldest out of messages that were taken: not more than `bytes_max` of frames, but at least one message if `at_least_one`.
    pub fn split(&mut self, taken: &mut InFlight, bytes_max: usize, at_least_one: bool) -> InFlight {
        self.settle(taken);
        let mut rest = std::mem::take(&mut taken.runs);
        let oldest = InFlight::new(take_oldest(&mut rest, bytes_max, at_least_one));
        taken.replace(rest);
        self.charge(taken);
        self.charge(&oldest);
        oldest
    }

    /// The response with these messages failed: they wait again, before all others.
    pub fn restore(&mut self, mut in_flight: InFlight) {
        self.settle(&in_flight);
        self.messages += in_flight.messages();
        self.bytes += in_flight.bytes();
        let behind = std::mem::replace(&mut self.runs, std::mem::take(&mut in_flight.runs));
        self.runs.append(&mut { behind });
    }

    /// Keeps the messages that `keep` (given frame length and payload) wants. Replies and what is partly written stay. Returns
    /// how many went.
    pub fn filter(&mut self, mut keep: impl FnMut(usize, &[u8]) -> bool) -> usize {
        let mut kept = Outbox { written: self.written, lent: self.lent, ..Outbox::default() };
        let mut dropped = 0;
        let mut written = self.written;
        let mut runs = std::mem::take(&mut self.runs);
        while let Some(run) = runs.pop_front() {
            let mut position = run.frames.start;
            let begun = position + std::mem::take(&mut written);
            let bytes = run.frames.chunk.slice(run.frames.start, run.frames.end);
            for frame in frames(&bytes) {
                let (start, end) = (position, position + frame.len() as u32);
                position = end;
                let untouched = start >= begun && run.kind == Kind::Messages;
                if untouched && !keep(frame.len(), payload(frame)) {
                    dropped += 1;
                    continue;
                }
                kept.push(&Frames { chunk: run.frames.chunk.clone(), start, end }, run.kind);
            }
        }
        kept.bytes -= self.written as usize;
        *self = kept;
        dropped
    }
}

/// Takes the first of these runs of messages out.
fn take_oldest(runs: &mut Runs, bytes_max: usize, at_least_one: bool) -> Runs {
    let (mut oldest, mut left) = (Runs::default(), bytes_max);
    while let Some(mut run) = runs.pop_front() {
        if run.frames.bytes() > left {
            let (cut, _, count) = whole_frames(&run.frames, left as u32);
            let is_first = at_least_one && count == 0 && oldest.is_empty();
            let (cut, count) = if is_first { first_frame(&run.frames) } else { (cut, count) };
            let mut head = run.clone();
            (head.frames.end, head.messages) = (cut, count);
            (run.frames.start, run.messages) = (cut, run.messages - count);
            if count > 0 {
                oldest.push_back(head);
            }
            if run.messages > 0 {
                runs.push_front(run);
            }
            break;
        }
        left -= run.frames.bytes();
        oldest.push_back(run);
    }
    oldest
}

/// Where the first frame ends, and that it is one.
fn first_frame(run: &Frames) -> (u32, u32) {
    let bytes = run.chunk.slice(run.start, run.end);
    (run.start + frames(&bytes).next().map_or(0, <[u8]>::len) as u32, 1)
}

/// Where the first frame starts that `written` bytes do not wholly cover, how many bytes of whole frames lie before it, and how many frames.
fn whole_frames(run: &Frames, written: u32) -> (u32, usize, u32) {
    let bytes = run.chunk.slice(run.start, run.end);
    let (mut whole, mut count) = (0, 0);
    for frame in frames(&bytes) {
        if whole + frame.len() > written as usize {
            break;
        }
        whole += frame.len();
        count += 1;
    }
    (run.start + whole as u32, whole, count)
}

/// Several frames as one range each.
pub fn singly(all: &Frames) -> Vec<Frames> {
    let bytes = all.chunk.slice(all.start, all.end);
    let mut end = all.start;
    let mut next = |frame: &[u8]| {
        let start = end;
        end += frame.len() as u32;
        Frames { chunk: all.chunk.clone(), start, end }
    };
    frames(&bytes).map(&mut next).collect()
}

/// The frames in a run, one by one.
fn frames(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (header, payload) = frame::split(bytes)?;
        let (frame, rest) = bytes.split_at(header + payload);
        bytes = rest;
        Some(frame)
    })
}

/// The payloads in a run: arrays of one message each.
pub fn payloads(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    frames(bytes).map(payload)
}

fn payload(frame: &[u8]) -> &[u8] {
    frame::split(frame).map_or(&[], |(header, length)| &frame[header..header + length])
}

#[cfg(test)]
mod tests;
