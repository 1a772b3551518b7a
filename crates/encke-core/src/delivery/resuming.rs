//! Sessions that another node has had, and that get the messages of histories that they have missed.
//!
//! ```text
//!   ranges of rings ─▶ a page, under the lock ─▶ frames, encoded once ─▶ a queue beside the session's ─▶ in front of it
//!                                                   ▲ other sessions take them from here
//! ```
//!
//! When a node is gone, many sessions miss the same messages. So their frames are shared like those of a fan-out. They live as long as a
//! queue holds them; a page that nobody holds any more is read again. The sessions take turns, a page each, and a flush does a
//! bounded part of the work. Live messages wait in the session's own queue until the missed ones are before them.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::rc::{Rc, Weak};

use crate::delivery::Delivery;
use crate::delivery::encoder::Encoder;
use crate::delivery::outbox::arena::{Chunk, Frames};
use crate::delivery::outbox::{Kind, Outbox};
use crate::events::SessionKey;
use crate::history::{Histories, MissedRange, Ring, RingKey};
use crate::id::Id;
use crate::limits::Capacity;
use crate::memory::{Account, Counted};

/// The sessions that resume, and the frames that they share.
#[derive(Debug, Default)]
pub(super) struct Resuming {
    sessions: VecDeque<Resumption>,
    shared: SharedFrames,
    /// The time until which the index of shared frames stays without a session that resumes, in milliseconds.
    until_ms: u64,
}

/// A session that resumes.
#[derive(Debug)]
struct Resumption {
    key: SessionKey,
    id: Id,
    /// The messages that it does not have yet.
    ranges: VecDeque<MissedRange>,
    /// Those that it has.
    missed: Outbox,
    /// The memory of this, without `missed`.
    counted: Counted,
}

/// A session does not get all messages that it has missed: some are gone, or there is no room for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incomplete;

/// The frames of messages, by the serial of the ring and the offset.
#[derive(Debug, Default)]
struct SharedFrames {
    messages: BTreeMap<(u64, u64), SharedFrame>,
    /// The number of messages from which on those that nobody holds are forgotten.
    sweep_from: usize,
    /// The memory of the index.
    counted: Option<Counted>,
}

/// The frame of a message, as long as a queue holds its chunk.
#[derive(Debug)]
struct SharedFrame {
    /// No other message of the ring has an offset from this one on and below its own.
    from: u64,
    chunk: Weak<Chunk>,
    start: u32,
    end: u32,
    /// The session that published it and must not get it back.
    except: Option<Box<Id>>,
}

/// Messages of a ring, copied while its owner was locked.
#[derive(Default)]
struct Page {
    texts: Vec<u8>,
    /// For each message its offset, the end of its text, and the session that must not get it.
    messages: Vec<(u64, usize, Option<Box<Id>>)>,
    compresses: bool,
}

/// The work that is left in a flush.
struct Budget {
    messages: usize,
    read_bytes: usize,
}

impl Delivery {
    /// Lets a session get nothing before the messages that it has missed: those are to come.
    pub(crate) fn await_missed(&mut self, key: SessionKey) {
        self.sessions.get_mut(key).into_iter().for_each(|session| session.marks.set_resumes(true));
    }

    /// Lets a session get the messages that it has missed, before all that waits for it. [`Delivery::go_on_with_resumptions`] returns the
    /// session when it has them.
    pub(crate) fn begin_resumption(&mut self, key: SessionKey, ranges: Vec<MissedRange>) {
        if let Some(session) = self.sessions.get(key) {
            let (id, missed) = (session.id, Outbox::default());
            let bytes = size_of::<Resumption>() + ranges.capacity() * size_of::<MissedRange>();
            let (ranges, counted) = (ranges.into(), Counted::new(self.account(), bytes));
            self.resuming.sessions.push_back(Resumption { key, id, ranges, missed, counted });
        }
    }

    /// Gives sessions that resume a part of their messages. Returns those that have all, those that cannot get all, and those that are gone.
    pub(crate) fn go_on_with_resumptions(&mut self) -> Vec<(SessionKey, Id, Result<(), Incomplete>)> {
        let mut ended = Vec::new();
        if self.resuming.sessions.is_empty() {
            return ended;
        }
        let mut budget = Budget { messages: MESSAGES_IN_A_FLUSH, read_bytes: READ_BYTES_IN_A_FLUSH };
        while budget.is_left()
            && let Some(mut resumption) = self.resuming.sessions.pop_front()
        {
            let before = budget.messages;
            let Some(session) = self.sessions.get(resumption.key) else {
                budget.messages = budget.messages.saturating_sub(1);
                ended.push((resumption.key, resumption.id, Ok(())));
                self.discard(resumption.missed);
                continue;
            };
            let waiting = (session.outbox.messages(), session.outbox.held_bytes());
            let Delivery { resuming, histories, encoder, capacity, .. } = self;
            let added = resumption.add_page(&mut resuming.shared, histories, encoder, (waiting, capacity), &mut budget);
            self.schedule.count_steps(1 + before - budget.messages);
            budget.messages = budget.messages.saturating_sub(1);
            match added {
                Ok(()) if !resumption.ranges.is_empty() => self.resuming.sessions.push_back(resumption),
                Ok(()) => ended.push((resumption.key, resumption.id, self.end_resumption(resumption))),
                Err(incomplete) => {
                    ended.push((resumption.key, resumption.id, Err(incomplete)));
                    self.discard(resumption.missed);
                }
            }
        }
        self.resuming.until_ms = self.now.ms + INDEX_RETAINED_MS;
        let account = self.account().clone();
        self.resuming.shared.count(&account);
        ended
    }

    /// Puts the messages that a session has missed before those that wait for it. From then on it gets them all.
    fn end_resumption(&mut self, Resumption { key, missed, .. }: Resumption) -> Result<(), Incomplete> {
        let Delivery { sessions, schedule, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return Ok(()) };
        if session.outbox.is_mid_frame() {
            // A connection has begun to take messages that are newer.
            self.discard(missed);
            return Err(Incomplete);
        }
        session.urgent |= !missed.is_empty();
        schedule.count_steps(session.outbox.runs());
        session.outbox.prepend(missed);
        session.marks.set_resumes(false);
        self.resume(key);
        Ok(())
    }

    /// The number of sessions that resume.
    pub(crate) fn resuming(&self) -> usize {
        self.resuming.sessions.len()
    }

    /// Frees the index of shared frames when no session has resumed for a while.
    pub(crate) fn forget_shared_frames(&mut self) {
        let Delivery { resuming, schedule, now, .. } = self;
        let is_idle = resuming.sessions.is_empty() && now.ms >= resuming.until_ms;
        if is_idle && !resuming.shared.messages.is_empty() {
            schedule.count_steps(resuming.shared.messages.len());
            resuming.shared = SharedFrames::default();
        }
    }
}

impl Resuming {
    /// The bytes that it takes, without chunks that are in `seen`.
    pub(super) fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        let of = |resumption: &Resumption| resumption.missed.recount(seen) + resumption.counted.bytes();
        let sessions: usize = self.sessions.iter().map(of).sum();
        sessions + self.shared.counted.as_ref().map_or(0, Counted::bytes)
    }
}

impl Resumption {
    /// Adds the next messages of the first range. `waiting`: the messages that wait for the session, and their bytes.
    fn add_page(
        &mut self,
        shared: &mut SharedFrames,
        histories: &Histories,
        encoder: &mut Encoder,
        ((messages, bytes), capacity): ((usize, usize), &Capacity),
        budget: &mut Budget,
    ) -> Result<(), Incomplete> {
        let Some(range) = self.ranges.front_mut() else { return Ok(()) };
        // Frames of this page live until they are in the queue.
        let _page = match shared.find(range) {
            Some(_) => Vec::new(),
            None => shared.read(range, histories, encoder, budget)?,
        };
        let mut added = 0;
        while added < PAGE_MESSAGES_MAX
            && let Some((offset, frames, except)) = shared.find(range)
        {
            added += 1;
            range.first = offset + 1;
            if except == Some(&self.id) {
                continue;
            }
            if self.missed.is_full(messages + 1, bytes + frames.bytes(), capacity) {
                return Err(Incomplete);
            }
            self.missed.push(&frames, Kind::Messages);
        }
        budget.messages = budget.messages.saturating_sub(added);
        if added == 0 || range.first >= range.end {
            self.ranges.pop_front();
        }
        Ok(())
    }
}

impl SharedFrames {
    /// The first message of a range, if its frame lives: its offset, its frame, and the session that must not get it.
    fn find(&self, range: &MissedRange) -> Option<(u64, Frames, Option<&Id>)> {
        let MissedRange { ring: RingKey { serial, .. }, first, end } = *range;
        let (key, frame) = self.messages.range((serial, first)..(serial, end.max(first))).next()?;
        let SharedFrame { from, ref chunk, start, end, ref except } = *frame;
        let chunk = chunk.upgrade().filter(|_| from <= first)?;
        Some((key.1, Frames { chunk, start, end }, except.as_deref()))
    }

    /// Reads the next messages of a range, and encodes them. Returns their frames.
    fn read(
        &mut self,
        range: &MissedRange,
        histories: &Histories,
        encoder: &mut Encoder,
        budget: &mut Budget,
    ) -> Result<Vec<Frames>, Incomplete> {
        let page = histories.with(range.ring, |ring| Page::read(ring, range)).flatten().ok_or(Incomplete)?;
        self.sweep();
        budget.read_bytes = budget.read_bytes.saturating_sub(page.texts.len());
        let (mut from, mut begin, mut all) = (range.first, 0, Vec::with_capacity(page.messages.len()));
        for (offset, text_end, except) in page.messages {
            let text = &page.texts[begin..text_end];
            let frames = encoder.publication(text.len(), page.compresses, |bytes| bytes.extend_from_slice(text));
            let (chunk, start, end) = (Rc::downgrade(&frames.chunk), frames.start, frames.end);
            self.messages.insert((range.ring.serial, offset), SharedFrame { from, chunk, start, end, except });
            all.push(frames);
            (from, begin) = (offset + 1, text_end);
        }
        Ok(all)
    }

    /// Forgets messages that nobody holds, if they may be many.
    fn sweep(&mut self) {
        if self.messages.len() >= self.sweep_from {
            self.messages.retain(|_, frame| frame.chunk.strong_count() > 0);
            if self.messages.len() > INDEX_MESSAGES_MAX {
                self.messages.clear();
            }
            self.sweep_from = (2 * self.messages.len()).max(SWEEP_FROM);
        }
    }

    /// Counts the memory of the index in this account.
    fn count(&mut self, account: &Rc<Account>) {
        let bytes = self.messages.len() * INDEX_BYTES;
        if self.counted.as_ref().map_or(0, Counted::bytes) != bytes {
            self.counted = Some(Counted::new(account, bytes));
        }
    }
}

impl Page {
    /// Copies the next messages of a range. None if the ring does not have all of them any more.
    fn read(ring: &Ring, range: &MissedRange) -> Option<Page> {
        if ring.oldest() > range.first {
            return None;
        }
        let mut page = Page { compresses: ring.compresses(), ..Page::default() };
        for entry in ring.between(range.first, range.end).take(PAGE_MESSAGES_MAX) {
            if !page.messages.is_empty() && page.texts.len() + entry.text.len() > PAGE_BYTES_MAX {
                break;
            }
            page.texts.extend_from_slice(entry.text.as_bytes());
            page.messages.push((entry.offset, page.texts.len(), entry.except.clone()));
        }
        Some(page)
    }
}

impl Budget {
    fn is_left(&self) -> bool {
        self.messages > 0 && self.read_bytes > 0
    }
}

/// The messages that a session takes in its turn, and that are copied while the owner of their ring is locked.
const PAGE_MESSAGES_MAX: usize = 64;
/// The bytes of their texts, unless a single message has more.
const PAGE_BYTES_MAX: usize = 64 * 1_024;
/// The messages that one flush gives to sessions that resume.
const MESSAGES_IN_A_FLUSH: usize = 8 * 1_024;
/// The bytes of texts that one flush reads and encodes for them, unless a page has more.
const READ_BYTES_IN_A_FLUSH: usize = 256 * 1_024;
/// The messages of the index that queues may hold.
const INDEX_MESSAGES_MAX: usize = 64 * 1_024;
/// The messages of the index for which it is not worth to look if queues hold them.
const SWEEP_FROM: usize = 4 * 1_024;
/// The memory of a message in the index, in bytes.
const INDEX_BYTES: usize = 96;
/// The time for which the index stays, in milliseconds.
const INDEX_RETAINED_MS: u64 = 10_000;
