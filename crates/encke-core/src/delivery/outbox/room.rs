//! Drops messages of an outbox: the oldest, or those that a caller chooses.

use super::{Capacity, Kind, Outbox, RUN_BYTES, Run, frames, payload};
use crate::delivery::outbox::arena::Frames;

impl Outbox {
    /// Drops the oldest messages until one of `bytes` fits. Partly written frames stay. Returns the number of messages
    /// dropped.
    ///
    /// If it has to pass over many runs of replies, it drops more at once, so that the next messages find room without
    /// a search.
    pub fn drop_oldest(&mut self, bytes: usize, capacity: &Capacity) -> usize {
        let mut wanted = (self.held_bytes() + bytes).saturating_sub(capacity.bytes_max);
        let mut surplus = (self.messages() + 1).saturating_sub(capacity.messages_max);
        let messages = self.messages;
        let mut written = self.written;
        let mut spared = Vec::new();
        while (wanted > 0 || surplus > 0)
            && let Some(mut run) = self.runs.pop_front()
        {
            let begun = std::mem::take(&mut written);
            if run.kind != Kind::Messages {
                written = run.begins_next();
                spared.push(run);
                continue;
            }
            surplus =
                surplus.max((spared.len() / SPARED_PER_MESSAGE).saturating_sub((messages - self.messages) as usize));
            if begun > 0 {
                // The remaining part adds one run.
                wanted += if wanted > 0 { RUN_BYTES } else { 0 };
                spared.push(run.split_off_front(|before| before < begun as usize));
            }
            let all = wanted >= run.frames.bytes() || surplus >= run.messages as usize;
            let mut left = surplus;
            let gone = run.split_off_front(|before| {
                let is_dropped = all || before < wanted || left > 0;
                left = left.saturating_sub(1);
                is_dropped
            });
            let whole = if run.messages == 0 { RUN_BYTES } else { 0 };
            wanted = wanted.saturating_sub(gone.frames.bytes() + whole);
            surplus = surplus.saturating_sub(gone.messages as usize);
            self.bytes -= gone.frames.bytes();
            self.messages -= gone.messages;
            if run.messages > 0 {
                self.runs.push_front(run);
            }
        }
        for run in spared.into_iter().rev() {
            self.put_back(run);
        }
        (messages - self.messages) as usize
    }

    /// Queues a frame before everything of which the kernel has nothing.
    pub fn push_first(&mut self, frames: &Frames, kind: Kind) {
        let (mut begun, mut written) = (Vec::new(), self.written as usize);
        while written > 0
            && let Some(mut run) = self.runs.pop_front()
        {
            let part = std::mem::replace(&mut written, run.begins_next() as usize);
            if run.kind == Kind::Begun {
                begun.push(run);
                continue;
            }
            begun.push(run.split_off_front(|before| before < part));
            if run.frames.bytes() > 0 {
                self.runs.push_front(run);
            }
        }
        let behind = std::mem::take(&mut self.runs);
        begun.into_iter().for_each(|run| self.runs.push_back(run));
        self.push(frames, kind);
        self.runs.append(&mut { behind });
    }

    /// Puts a run in front again. Merges it with the next run if they are adjacent now.
    fn put_back(&mut self, mut run: Run) {
        if let Some(next) = self.runs.front_mut().filter(|next| run.is_continued_by(next)) {
            run.frames.end = next.frames.end;
            run.messages += next.messages;
            *next = run;
            return;
        }
        self.runs.push_front(run);
    }

    /// Drops the messages for which `keep` (given frame length and payload) is false. Replies and partly written frames
    /// stay. Returns the number of messages dropped.
    pub fn filter(&mut self, mut keep: impl FnMut(usize, &[u8]) -> bool) -> usize {
        let mut stored = Outbox { written: self.written, lent: self.lent, ..Outbox::default() };
        let mut dropped = 0;
        let mut written = self.written;
        let mut runs = std::mem::take(&mut self.runs);
        while let Some(run) = runs.pop_front() {
            let mut position = run.frames.start;
            let begun = position + std::mem::replace(&mut written, run.begins_next());
            let bytes = run.frames.chunk.slice(run.frames.start, run.frames.end);
            for frame in frames(&bytes) {
                let (start, end) = (position, position + frame.len() as u32);
                position = end;
                let untouched = start >= begun && run.kind == Kind::Messages;
                if untouched && !keep(frame.len(), payload(frame)) {
                    dropped += 1;
                    continue;
                }
                stored.push(&Frames { chunk: run.frames.chunk.clone(), start, end }, run.kind);
            }
        }
        stored.bytes -= self.written as usize;
        *self = stored;
        dropped
    }
}

impl Run {
    pub(super) fn is_continued_by(&self, next: &Run) -> bool {
        self.kind == next.kind && self.frames.is_followed_by(&next.frames)
    }

    /// A number of bytes of the next run that must stay: 1 if the kernel has a part of the form of its first message.
    pub(super) fn begins_next(&self) -> u32 {
        u32::from(self.kind == Kind::Begun)
    }

    /// Splits off the first frames while `takes` is true, given the bytes before each frame.
    fn split_off_front(&mut self, mut takes: impl FnMut(usize) -> bool) -> Run {
        let (mut before, mut count) = (0, 0);
        {
            let bytes = self.frames.chunk.slice(self.frames.start, self.frames.end);
            for frame in frames(&bytes) {
                if !takes(before) {
                    break;
                }
                before += frame.len();
                count += 1;
            }
        }
        let mut front = self.clone();
        front.frames.end = front.frames.start + before as u32;
        (front.messages, self.messages) = (count.min(self.messages), self.messages.saturating_sub(count));
        self.frames.start = front.frames.end;
        front
    }
}

/// The number of runs of replies to pass over for each dropped message.
const SPARED_PER_MESSAGE: usize = 16;
