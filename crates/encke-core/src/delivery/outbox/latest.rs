//! Keep-latest: a pass over an outbox drops each message that a newer one of its channel supersedes.
//!
//! A pass goes from the newest message to the oldest and remembers the channels that it has seen. It goes on in parts, so
//! that no turn of a shard does much of it. Between two parts the outbox may change in any way: a pass skips messages
//! that have arrived meanwhile, and begins again if it does not find the run that it has reached.
//!
//! ```text
//!   oldest  ░░░░░░░░░░░░░░░░│▒▒▒▒▒▒▒▒▒▒▒▒│       newest
//!           not visited ◀── reached       arrived since it began
//! ```

use std::collections::HashSet;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::{Capacity, Kind, Outbox, RUN_BYTES, Run, frames, payload};
use crate::delivery::outbox::arena::{Chunk, Frames};

/// One pass over an outbox.
#[derive(Debug, Default)]
pub struct Latest {
    /// The channels of the messages visited, as hashes.
    seen: HashSet<u64, RandomState>,
    hasher: RandomState,
    /// The oldest run visited, and its index when the last part ended. None before the first part.
    reached: Option<(usize, Frames)>,
    /// The bytes of the visited messages that stay, and of their queue.
    retained_bytes: usize,
    /// The number of messages dropped.
    pub dropped: usize,
}

impl Latest {
    /// True if it has visited nothing yet.
    pub fn is_new(&self) -> bool {
        self.reached.is_none()
    }

    /// The bytes of the chunk that it holds, unless that is in `seen`.
    pub fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        self.reached.as_ref().map_or(0, |(_, frames)| frames.chunk.recount(seen))
    }

    /// Visits the messages of a run, the newest first. Appends those that stay to `retained`, the newest first. The first
    /// `written` bytes belong to frames that stay in any case.
    fn visit(&mut self, run: &Run, written: u32, retained: &mut Vec<Run>) {
        let chunk = &run.frames.chunk;
        let bytes = chunk.slice(run.frames.start, run.frames.end);
        let ends = frames(&bytes).scan(0, |end, frame| {
            *end += frame.len();
            Some(*end)
        });
        let ends: Vec<usize> = ends.collect();
        for (nth, &end) in ends.iter().enumerate().rev() {
            let start = if nth == 0 { 0 } else { ends[nth - 1] };
            let channel = self.hasher.hash_one(channel_of(payload(&bytes[start..end])));
            if start as u32 >= written && !self.seen.insert(channel) {
                self.dropped += 1;
                continue;
            }
            self.retained_bytes += end - start;
            let at = |offset: usize| run.frames.start + offset as u32;
            let frame = Frames { chunk: chunk.clone(), start: at(start), end: at(end) };
            match retained.last_mut().filter(|newer| newer.kind == run.kind && frame.is_followed_by(&newer.frames)) {
                Some(newer) => {
                    newer.frames.start = frame.start;
                    newer.messages += 1;
                }
                None => {
                    self.retained_bytes += RUN_BYTES;
                    retained.push(Run { frames: frame, kind: run.kind, messages: 1 });
                }
            }
        }
    }
}

impl Outbox {
    /// Continues a pass: visits messages until it has taken this many steps, or it is over. Returns the number of
    /// steps, and true if it is over. A step is a message or a run.
    pub fn keep_latest(&mut self, pass: &mut Latest, steps_max: usize) -> (usize, bool) {
        let reached = pass.reached.take().and_then(|(hint, frames)| self.runs.find(hint, &frames));
        let end = reached.unwrap_or_else(|| {
            *pass = Latest { dropped: pass.dropped, ..Latest::default() };
            self.runs.len()
        });
        let (mut at, mut steps, mut retained, dropped) = (end, 0, Vec::new(), pass.dropped);
        let (mut before, mut after) = (0, 0);
        while at > 0
            && steps < steps_max
            && let Some(run) = self.runs.get(at - 1)
        {
            at -= 1;
            steps += 1 + run.messages as usize;
            if run.kind != Kind::Messages {
                retained.push(run.clone());
                continue;
            }
            let (known, bytes) = (retained.len(), pass.retained_bytes);
            before += run.frames.bytes();
            let before_it = at.checked_sub(1).and_then(|before| self.runs.get(before));
            let written = if at == 0 { self.written } else { before_it.map_or(0, Run::begins_next) };
            pass.visit(run, written, &mut retained);
            after += pass.retained_bytes - bytes - (retained.len() - known) * RUN_BYTES;
        }
        if pass.dropped > dropped {
            retained.reverse();
            self.runs.replace(at..end, retained);
            self.bytes -= before - after;
            self.messages -= (pass.dropped - dropped) as u32;
        }
        pass.reached = self.runs.get(at).map(|oldest| (at, oldest.frames.clone()));
        if at == 0 {
            self.left_by_pass = self.messages;
        }
        (steps, at == 0)
    }

    /// True if a complete pass has found more messages than fit: the session waits for too many channels.
    pub fn exceeds(&self, pass: &Latest, capacity: &Capacity) -> bool {
        pass.seen.len() + self.lent.0 > capacity.messages_max || pass.retained_bytes + self.lent.1 > capacity.bytes_max
    }

    /// True if so many messages have arrived since the last pass that they pay for another one.
    pub fn has_outgrown_its_pass(&self) -> bool {
        let left = self.left_by_pass;
        self.messages >= left.saturating_add(FEW_MESSAGES.max(left / GROWTH_SHARE))
    }

    /// Notes that the session has got everything.
    #[inline(always)]
    pub fn is_caught_up(&mut self) {
        (self.behind_since, self.left_by_pass) = (0, 0);
    }

    /// Notes that a search has removed all messages that it could.
    pub fn note_pass(&mut self) {
        self.left_by_pass = self.messages;
    }

    /// True if a pass costs no more than a few pushes.
    pub fn is_short(&self) -> bool {
        self.messages <= FEW_MESSAGES
    }
}

/// The channel of an encoded message. It is always the first field, and its characters need no escapes.
fn channel_of(payload: &[u8]) -> &[u8] {
    const BEFORE: &[u8] = b"[{\"channel\":\"";
    let rest = payload.strip_prefix(BEFORE).unwrap_or_default();
    let end = rest.iter().position(|byte| *byte == b'"').unwrap_or(rest.len());
    &rest[..end]
}

/// An outbox of this many messages is searched at any time.
const FEW_MESSAGES: u32 = 64;

/// The part of an outbox that has to arrive before the next pass. So each message pays for this many steps.
const GROWTH_SHARE: u32 = 8;
