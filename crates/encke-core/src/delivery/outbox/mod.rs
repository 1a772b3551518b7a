//! The outbox of a session: the queue of what it has to be sent, until the kernel has taken it.
//!
//! An outbox is a queue of runs; a run is a range of whole frames in a chunk of the arena. Adjacent publications extend
//! the last run instead of adding one. That makes a fan-out cheap: see [`arena`].

pub(crate) mod arena;
pub(crate) mod compressed;
pub(crate) mod format;
mod in_flight;
mod latest;
mod room;
mod runs;
mod sweep;
pub(crate) mod waste;

use std::collections::HashSet;

use websocket::frame;

use crate::delivery::outbox::arena::{Chunk, Frames};
use crate::limits::Capacity;
pub use in_flight::InFlight;
pub use latest::Latest;
use runs::Runs;
pub use sweep::{Packed, Sweep};

/// The content of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Publications. They belong to the session, and stay with it when its connection changes.
    Messages,
    /// Replies and control frames. They belong to the connection that they were made for.
    Replies,
    /// The compressed form of the message that begins the next run, of which the kernel has a part. It belongs to the
    /// connection; the message is removed when the rest of the form is written.
    Begun,
    /// The close frame of the connection. Nothing is sent after it (RFC 6455 §5.5.1).
    Close,
}

/// Several whole frames, to be written in one piece.
#[derive(Clone, Debug)]
pub struct Run {
    frames: Frames,
    kind: Kind,
    messages: u32,
}

/// The queue of one session.
#[derive(Debug, Default)]
pub struct Outbox {
    runs: Runs,
    messages: u32,
    /// The number of messages that the last pass of [`Latest`] left; 0 if it has been empty since.
    left_by_pass: u32,
    bytes: usize,
    /// An upper bound for the bytes of the runs that are not messages. Written bytes are subtracted only when it is
    /// computed again.
    reply_bytes: usize,
    /// The bytes of the first frame that the kernel has taken: never all of them.
    written: u32,
    /// The time since when it has held much, in the units of the
    /// [backpressure](super::backpressure); 0 if it has been empty since.
    pub(super) behind_since: u32,
    /// Messages that may come back, and the bytes charged for them: in responses on their way, in a socket's own queue,
    /// or unacknowledged.
    lent: Lent,
}

/// A number of messages, and the bytes charged for them.
pub type Lent = (usize, usize);

/// The result of a write: what the kernel has taken completely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wrote {
    /// The number of messages.
    pub messages: usize,
    /// True if the close frame is written: the rest is for another connection.
    pub close: bool,
}

/// The result of leaving a connection.
#[derive(Debug, Default)]
pub struct Left {
    /// True if the connection has only a part of a frame, so that it cannot send anything else.
    pub is_torn: bool,
    /// The replies made for the connection, and its close frame.
    pub replies: Outbox,
}

/// The size of a run in the queue, in bytes.
pub const RUN_BYTES: usize = size_of::<Run>();
impl Outbox {
    /// True if nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The number of queued messages, including those in a response that may come back.
    pub fn messages(&self) -> usize {
        self.messages as usize + self.lent.0
    }

    /// The bytes of queued frames, including the charge for those in a response that may come back.
    pub fn bytes(&self) -> usize {
        self.bytes + self.lent.1
    }

    /// The bytes that count against its capacity: those of the frames, and of the queue that holds them.
    pub fn held_bytes(&self) -> usize {
        self.bytes() + self.runs.len() * RUN_BYTES
    }

    /// The bytes of queued frames, without those in a response.
    pub fn waiting_bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of queued replies and control frames. Partly written ones count in full.
    pub fn reply_bytes(&self) -> usize {
        let is_reply = |run: &&Run| matches!(run.kind, Kind::Replies | Kind::Close);
        self.runs.iter().filter(is_reply).map(|run| run.frames.bytes()).sum()
    }

    /// True if this many more bytes of replies would exceed the limit. When `reply_bytes` has to be computed again, the
    /// limit is an eighth lower, so that the whole queue is not searched each time.
    pub fn has_too_many_replies(&mut self, bytes: usize, bytes_max: usize) -> bool {
        if self.reply_bytes + bytes <= bytes_max {
            return false;
        }
        self.reply_bytes = self.reply_bytes();
        self.reply_bytes + bytes > bytes_max - bytes_max / 8
    }

    /// The bytes charged for messages that were sent and may come back.
    pub fn lent_bytes(&self) -> usize {
        self.lent.1
    }

    /// True if this many more messages of this many bytes would exceed the capacity.
    #[inline(always)]
    pub fn is_full(&self, messages: usize, bytes: usize, capacity: &Capacity) -> bool {
        self.messages() + messages > capacity.messages_max || self.held_bytes() + bytes > capacity.bytes_max
    }

    /// True if the kernel has taken a part of a frame and the rest is still queued.
    pub fn is_mid_frame(&self) -> bool {
        self.written > 0
    }

    /// The rest of a frame that the kernel has taken in part.
    pub fn rest_of_frame(&self) -> Option<Frames> {
        let first = &self.runs.front().filter(|_| self.written > 0)?.frames;
        Some(Frames { start: first.start + self.written, end: first_frame(first).0, ..first.clone() })
    }

    /// Appends everything that is queued in another outbox. Only an empty outbox may take over one whose first frame is
    /// partly written.
    pub fn append(&mut self, mut other: Outbox) {
        if self.is_empty() {
            *self = Outbox { lent: self.lent, ..other };
            return;
        }
        debug_assert!(!other.is_mid_frame(), "nothing may come between the halves of a frame");
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.reply_bytes += other.reply_bytes;
        self.runs.append(&mut other.runs);
    }

    /// Queues a partly written frame as a whole again.
    fn forget_written(&mut self) {
        let Some(first) = self.runs.front().filter(|_| self.written > 0) else { return };
        let written = std::mem::take(&mut self.written) as usize;
        self.bytes += written;
        if first.kind == Kind::Begun {
            self.bytes -= first.frames.bytes();
            self.runs.pop_front();
        }
    }

    /// Removes the frames at the head of the first run that the kernel has. Returns the number of messages among them. So
    /// whatever drops messages finds the first frame in part at most.
    #[inline(never)]
    fn cut_written(&mut self) -> usize {
        let Some(first) = self.runs.front_mut() else { return 0 };
        let (start, whole, frames) = whole_frames(&first.frames, self.written);
        first.frames.start = start;
        self.written -= whole as u32;
        let gone = if first.kind == Kind::Messages { frames } else { 0 };
        first.messages -= gone;
        self.messages -= gone;
        gone as usize
    }

    /// Takes out everything that is queued, for a socket's own queue. It may come back, and counts until it is
    /// [settled](Outbox::settle_charge).
    pub fn hand_over(&mut self) -> (Outbox, Lent) {
        let charge = (self.messages as usize, self.bytes + self.runs.len() * RUN_BYTES);
        let lent = (self.lent.0 + charge.0, self.lent.1 + charge.1);
        let handed = std::mem::replace(self, Outbox { lent, ..Outbox::default() });
        (Outbox { lent: (0, 0), ..handed }, charge)
    }

    /// Removes a charge: the messages have arrived, or come back just now.
    pub fn settle_charge(&mut self, charge: Lent) {
        self.lent = (self.lent.0 - charge.0, self.lent.1 - charge.1);
    }

    /// Puts the content of another outbox in front. No frame of this one may be partly written.
    pub fn prepend(&mut self, older: Outbox) {
        let newer = std::mem::replace(self, older);
        debug_assert!(newer.written == 0, "nothing may come before the rest of a frame");
        self.lent = newer.lent;
        self.append(newer);
    }

    /// Appends one frame.
    pub fn push(&mut self, frames: &Frames, kind: Kind) {
        if matches!(kind, Kind::Replies | Kind::Close) {
            self.reply_bytes += frames.bytes();
        }
        self.push_many(frames, kind, u32::from(kind == Kind::Messages));
    }

    /// Appends several frames that hold this many messages and no replies.
    #[inline(always)]
    pub fn push_many(&mut self, frames: &Frames, kind: Kind, messages: u32) {
        self.messages += messages;
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

    /// The unwritten part of the only run; None if there are several runs or none.
    pub fn only_run(&self) -> Option<(&Chunk, u32, u32)> {
        let first = self.runs.front().filter(|_| self.runs.len() == 1)?;
        Some((&first.frames.chunk, first.frames.start + self.written, first.frames.end))
    }

    /// The ranges of messages, first to last, for a caller that copies them. None of them may be partly written.
    pub fn message_ranges(&self) -> impl Iterator<Item = &Frames> {
        self.runs.iter().filter(|run| run.kind == Kind::Messages).map(|run| &run.frames)
    }

    /// The bytes that its queue and its chunks take, without chunks that are in `seen`. Adds its chunks to `seen`.
    pub fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        self.runs.recount(seen)
    }

    /// The bytes that its queue and its chunks take. Bytes shared with others count in proportion.
    pub fn share_bytes(&self) -> usize {
        self.runs.share_bytes()
    }

    /// The number of runs.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Notes that the kernel has taken `bytes` more. Returns what it has taken completely by that.
    #[inline(always)]
    pub fn wrote(&mut self, mut bytes: usize) -> Wrote {
        let mut wrote = Wrote::default();
        self.bytes -= bytes;
        while bytes > 0 {
            let Some(first) = self.runs.front() else { break };
            let rest = first.frames.bytes() - self.written as usize;
            if bytes < rest {
                self.written += bytes as u32;
                wrote.messages += self.cut_written();
                break;
            }
            bytes -= rest;
            wrote.messages += first.messages as usize;
            let kind = first.kind;
            self.messages -= first.messages;
            self.written = 0;
            self.runs.pop_front();
            if kind == Kind::Begun {
                self.drop_first(1);
                wrote.messages += 1;
            }
            wrote.close |= kind == Kind::Close;
        }
        wrote
    }

    /// Detaches the outbox from its connection: takes out the replies made for that connection. A partly written
    /// message is queued as a whole again.
    pub fn leave_attachment(&mut self) -> Left {
        let is_torn = self.is_mid_frame();
        self.forget_written();
        let mut left = Left { is_torn, ..Left::default() };
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

    /// Drops the messages and leaves the replies. No frame may be partly written.
    pub fn drop_messages(&mut self) {
        debug_assert!(self.written == 0, "half a frame must be followed by its rest");
        self.runs.retain(|run| run.kind != Kind::Messages);
        self.bytes = self.runs.iter().map(|run| run.frames.bytes()).sum();
        self.messages = 0;
    }

    /// Takes out all messages for a response. They count as queued until they are settled or restored.
    pub fn take_messages(&mut self) -> InFlight {
        (self.written, self.reply_bytes) = (0, 0);
        self.is_caught_up();
        let runs = std::mem::take(&mut self.runs);
        self.lend(runs)
    }

    /// Takes out the oldest messages, as [`Outbox::take_messages`] does: at most `bytes_max` bytes of frames, but at
    /// least one message if `at_least_one`. Only for an outbox without replies and without a partly written frame.
    pub fn take_oldest(&mut self, bytes_max: usize, at_least_one: bool) -> InFlight {
        if self.bytes <= bytes_max {
            return self.take_messages();
        }
        let runs = take_oldest(&mut self.runs, bytes_max, at_least_one);
        self.lend(runs)
    }

    fn lend(&mut self, runs: Runs) -> InFlight {
        let lent = InFlight::new(runs);
        self.messages -= lent.messages() as u32;
        self.bytes -= lent.bytes();
        self.charge(&lent);
        lent
    }

    /// Charges for these messages, which may come back.
    fn charge(&mut self, lent: &InFlight) {
        self.lent = (self.lent.0 + lent.messages(), self.lent.1 + lent.held_bytes());
    }

    /// Removes the charge for these messages, which have arrived.
    pub fn settle(&mut self, arrived: &InFlight) {
        self.lent = (self.lent.0 - arrived.messages(), self.lent.1 - arrived.held_bytes());
    }

    /// Removes the messages for whose payload `keep` is false from those that were taken out. They do not come back.
    pub fn withdraw(&mut self, taken: &mut InFlight, mut keep: impl FnMut(&[u8]) -> bool) {
        self.settle(taken);
        let mut waiting = Outbox { runs: std::mem::take(&mut taken.runs), ..Outbox::default() };
        waiting.filter(|_, payload| keep(payload));
        taken.replace(waiting.runs);
        self.charge(taken);
    }

    /// Splits the oldest messages off those that were taken out: at most `bytes_max` bytes of frames, but at least one
    /// message if `at_least_one`.
    pub fn split(&mut self, taken: &mut InFlight, bytes_max: usize, at_least_one: bool) -> InFlight {
        self.settle(taken);
        let mut rest = std::mem::take(&mut taken.runs);
        let oldest = InFlight::new(take_oldest(&mut rest, bytes_max, at_least_one));
        taken.replace(rest);
        self.charge(taken);
        self.charge(&oldest);
        oldest
    }

    /// Queues these messages again, before all others, because their response failed.
    pub fn restore(&mut self, mut in_flight: InFlight) {
        self.settle(&in_flight);
        self.messages += in_flight.messages() as u32;
        self.bytes += in_flight.bytes();
        let behind = std::mem::replace(&mut self.runs, std::mem::take(&mut in_flight.runs));
        self.runs.append(&mut { behind });
    }
}

/// Takes the first of these runs of messages.
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

/// The end of the first frame, and a count of 1.
fn first_frame(run: &Frames) -> (u32, u32) {
    let bytes = run.chunk.slice(run.start, run.end);
    (run.start + frames(&bytes).next().map_or(0, <[u8]>::len) as u32, 1)
}

/// The start of the first frame that `written` bytes do not cover completely, the bytes of the whole frames before it,
/// and their number.
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

/// Splits frames into one range each.
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

/// The last of several frames.
pub fn last_of(all: &Frames) -> Frames {
    let last = frames(&all.chunk.slice(all.start, all.end)).last().map_or(all.bytes(), <[u8]>::len);
    Frames { chunk: all.chunk.clone(), start: all.end - last as u32, end: all.end }
}

/// Iterates over the frames in a run.
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
