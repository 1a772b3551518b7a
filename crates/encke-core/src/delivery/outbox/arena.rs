//! The memory of encoded frames: chunks of bytes that are written once and shared by every outbox of the shard.
//!
//! Each publication is appended to the open chunk as one whole WebSocket frame. Publications of one tick are adjacent
//! there, so the outbox of a session that gets them all holds a single range, and its flush is one `send` of one
//! contiguous slice: nothing is copied or counted per subscriber. (Long-polling takes the payloads from the same
//! frames.)
//!
//! Where several messages go out in one array, as with acknowledgements, their texts are joined with commas once for
//! each chunk ([`Frames::joined`]). Any range of frames is also a range of that text, so these receivers share bytes as
//! well.
//!
//! Frames of channels that compress have separate chunks, with a compressed form of each frame
//! (`compressed.rs`).
//!
//! A chunk is freed when the last outbox releases it. A range of few bytes keeps its whole chunk alive, so chunks are
//! small ([`CHUNK_BYTES`]), and a frame that does not fit gets its own chunk.

use std::cell::{Ref, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use websocket::{Opcode, frame};

use crate::memory::Account;

/// The size of a chunk in bytes: large enough that the publications of a tick share a range, and small enough that one
/// slow session may pin it.
pub const CHUNK_BYTES: usize = 32 * 1024;

/// Shared, append-only bytes.
#[derive(Debug)]
pub struct Chunk {
    bytes: RefCell<Vec<u8>>,
    /// Its messages with commas between them, as far as they were needed.
    joined: RefCell<Option<Box<Joined>>>,
    /// True if its frames have compressed forms.
    is_compressible: bool,
    /// These forms, as far as they were needed.
    compressed: RefCell<Option<Box<Compressed>>>,
    /// The account that counts its bytes until it is dropped.
    account: Rc<Account>,
}

impl Chunk {
    /// Adds the bytes allocated for it, for its joined texts and for its compressed forms, unless those chunks are among the
    /// `seen`.
    pub fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        let own = if seen.insert(self) { self.own_bytes() } else { return 0 };
        let (joined, compressed) = (self.joined.borrow(), self.compressed.borrow());
        own + joined.as_ref().map_or(0, |joined| joined.starts_bytes() + joined.chunk.recount(seen))
            + compressed.as_ref().map_or(0, |compressed| compressed.index_bytes() + compressed.chunk.recount(seen))
    }

    /// The account that counts its bytes.
    pub fn account(&self) -> &Rc<Account> {
        &self.account
    }

    /// Frees its joined texts, and its compressed forms, if nobody else holds them.
    pub fn drop_unheld_forms(&self) {
        self.joined.borrow_mut().take_if(|joined| Rc::strong_count(&joined.chunk) == 1);
        self.compressed.borrow_mut().take_if(|compressed| Rc::strong_count(&compressed.chunk) == 1);
    }

    /// True if its frames are those of channels that compress.
    pub fn is_compressible(&self) -> bool {
        self.is_compressible
    }

    /// Lends its bytes, and the compressed forms of its frames.
    pub(super) fn with_compressed(&self, with: impl FnOnce(&[u8], &mut Compressed)) {
        let mut compressed = self.compressed.borrow_mut();
        with(&self.bytes.borrow(), compressed.get_or_insert_with(|| Compressed::new(self)));
    }

    /// Appends bytes, and counts the memory for them. Returns their start and their end.
    fn grow(&self, write: impl FnOnce(&mut Vec<u8>)) -> (u32, u32) {
        let mut bytes = self.bytes.borrow_mut();
        let (start, before) = (bytes.len(), bytes.capacity());
        write(&mut bytes);
        self.account.chunk_allocated(bytes.capacity() - before);
        (start as u32, bytes.len() as u32)
    }

    /// Its size divided by the number of ranges that share it.
    pub fn share_bytes(self: &Rc<Self>) -> usize {
        self.own_bytes() / Rc::strong_count(self).max(1)
    }

    /// The bytes allocated for it, without joined texts and compressed forms.
    pub fn own_bytes(&self) -> usize {
        self.bytes.borrow().capacity()
    }

    /// The bytes from `start` to `end`.
    pub fn slice(&self, start: u32, end: u32) -> Ref<'_, [u8]> {
        Ref::map(self.bytes.borrow(), |bytes| &bytes[start as usize..end as usize])
    }
}

/// The messages of a chunk as elements of a JSON array, each followed by a comma.
#[derive(Debug)]
struct Joined {
    chunk: Rc<Chunk>,
    /// The start of each message: of its frame in the first chunk, and of its text in this one.
    starts: Vec<(u32, u32)>,
    /// The end of the last frame that was joined.
    until: u32,
}

impl Joined {
    fn new(frames: &Chunk) -> Box<Joined> {
        // Without frame headers and brackets the text is never longer than the frames.
        let chunk = new_chunk(frames.own_bytes(), &frames.account, false);
        Box::new(Joined { chunk, starts: Vec::new(), until: 0 })
    }

    /// Joins the frames up to `end`.
    fn go_on(&mut self, frames: &[u8], end: u32) {
        let starts_bytes = self.starts_bytes();
        let mut text = self.chunk.bytes.borrow_mut();
        while self.until < end {
            let Some((head, length)) = frame::split(&frames[self.until as usize..]) else { break };
            self.starts.push((self.until, text.len() as u32));
            let payload = &frames[self.until as usize + head..][..length];
            text.extend_from_slice(payload.get(1..length.max(1) - 1).unwrap_or_default());
            text.push(b',');
            self.until += (head + length) as u32;
        }
        self.chunk.account.chunk_allocated(self.starts_bytes() - starts_bytes);
    }

    fn starts_bytes(&self) -> usize {
        self.starts.capacity() * size_of::<(u32, u32)>()
    }

    /// The start of the text of the frame that begins at `start`; the end of the text if that frame is not joined yet.
    fn at(&self, start: u32) -> u32 {
        let end = || self.chunk.bytes.borrow().len() as u32;
        self.starts.binary_search_by_key(&start, |(frame, _)| *frame).map_or_else(|_| end(), |at| self.starts[at].1)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.account.chunk_freed(self.own_bytes());
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.chunk.account.chunk_freed(self.starts_bytes());
    }
}

/// The compressed forms of the frames of a chunk.
#[derive(Debug)]
pub(super) struct Compressed {
    pub(super) chunk: Rc<Chunk>,
    /// Sorted by their frames.
    pub(super) forms: Vec<Form>,
}

/// A frame, and its form. A frame that is too short is its own form, as a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// The frame in the first chunk.
    pub(super) start: u32,
    pub(super) end: u32,
    /// The form in the second chunk.
    pub(super) form_start: u32,
    pub(super) form_end: u32,
}

impl Compressed {
    fn new(plain: &Chunk) -> Box<Compressed> {
        Box::new(Compressed { chunk: new_chunk(0, plain.account(), false), forms: Vec::new() })
    }

    /// The bytes of its index.
    fn index_bytes(&self) -> usize {
        self.forms.capacity() * size_of::<Form>()
    }

    /// Adds a form, which `write` writes, of the frame from `start` to `end`. It is the form at this index then.
    pub(super) fn insert(&mut self, index: usize, (start, end): (u32, u32), write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.index_bytes();
        let (form_start, form_end) = self.chunk.grow(write);
        self.forms.insert(index, Form { start, end, form_start, form_end });
        self.chunk.account().chunk_allocated(self.index_bytes() - before);
    }
}

impl Drop for Compressed {
    fn drop(&mut self) {
        self.chunk.account().chunk_freed(self.index_bytes());
    }
}

/// A range of whole frames in a chunk.
#[derive(Clone, Debug)]
pub struct Frames {
    /// The chunk.
    pub chunk: Rc<Chunk>,
    /// The first byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Frames {
    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// True if `next` begins where these frames end.
    pub fn is_followed_by(&self, next: &Frames) -> bool {
        self.end == next.start && Rc::ptr_eq(&self.chunk, &next.chunk)
    }

    /// The same messages as elements of a JSON array, each followed by a comma. Only for frames with one message each.
    pub fn joined(&self) -> Frames {
        let mut joined = self.chunk.joined.borrow_mut();
        let joined = joined.get_or_insert_with(|| Joined::new(&self.chunk));
        joined.go_on(&self.chunk.bytes.borrow(), self.end);
        Frames { chunk: joined.chunk.clone(), start: joined.at(self.start), end: joined.at(self.end) }
    }
}

/// The open chunk, and the account that counts all chunks that are alive.
#[derive(Debug)]
pub struct Arena {
    open: Rc<Chunk>,
    is_compressible: bool,
    account: Rc<Account>,
}

impl Arena {
    /// An empty arena, whose chunks this account counts.
    pub fn new(account: &Rc<Account>) -> Arena {
        Arena { open: new_chunk(CHUNK_BYTES, account, false), is_compressible: false, account: account.clone() }
    }

    /// The same for frames of channels that compress. It has no memory before the first one.
    pub fn compressible(account: &Rc<Account>) -> Arena {
        Arena { open: new_chunk(0, account, true), is_compressible: true, account: account.clone() }
    }

    /// The bytes of the open chunk, its joined texts and its compressed forms, unless an outbox holds them.
    pub fn unheld_bytes(&self) -> usize {
        let unheld = |chunk: &Rc<Chunk>| if Rc::strong_count(chunk) == 1 { chunk.own_bytes() } else { 0 };
        let joined = self.open.joined.borrow();
        let of_joined = joined.as_ref().map_or(0, |joined| unheld(&joined.chunk) + joined.starts_bytes());
        let compressed = self.open.compressed.borrow();
        let of_compressed = compressed.as_ref().map_or(0, |forms| unheld(&forms.chunk) + forms.index_bytes());
        unheld(&self.open) + of_joined + of_compressed
    }

    /// The open chunk.
    pub fn open(&self) -> &Chunk {
        &self.open
    }

    /// Appends `payload_bytes` bytes, which `write` must write exactly, as one frame.
    pub fn frame(&mut self, opcode: Opcode, payload_bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Frames {
        let total = frame::header_bytes(payload_bytes) + payload_bytes;
        self.append(total, |bytes| {
            frame::header(opcode, payload_bytes, bytes);
            write(bytes);
        })
    }

    /// Appends encoded frames.
    pub fn encoded(&mut self, frames: &[u8]) -> Frames {
        self.append(frames.len(), |bytes| bytes.extend_from_slice(frames))
    }

    /// Appends bytes that are only a part of a frame. [`Frames::joined`] does not work for such an arena.
    pub fn part(&mut self, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Frames {
        self.append(bytes, write)
    }

    fn append(&mut self, total: usize, write: impl FnOnce(&mut Vec<u8>)) -> Frames {
        let chunk = self.room_for(total);
        let mut bytes = chunk.bytes.borrow_mut();
        let start = bytes.len();
        write(&mut bytes);
        debug_assert_eq!(bytes.len() - start, total, "a frame is as long as it was announced");
        let end = bytes.len();
        drop(bytes);
        Frames { chunk, start: start as u32, end: end as u32 }
    }

    fn room_for(&mut self, total: usize) -> Rc<Chunk> {
        if total > CHUNK_BYTES {
            return new_chunk(total, &self.account, self.is_compressible);
        }
        let left = |bytes: &Vec<u8>| bytes.capacity() - bytes.len();
        if total > left(&self.open.bytes.borrow()) {
            self.open = new_chunk(CHUNK_BYTES, &self.account, self.is_compressible);
        }
        self.open.clone()
    }
}

fn new_chunk(capacity: usize, account: &Rc<Account>, is_compressible: bool) -> Rc<Chunk> {
    let bytes = Vec::with_capacity(capacity);
    account.chunk_allocated(bytes.capacity());
    Rc::new(Chunk {
        bytes: RefCell::new(bytes),
        joined: RefCell::default(),
        is_compressible,
        compressed: RefCell::default(),
        account: account.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live_bytes(arena: &Arena) -> usize {
        arena.account.chunk_bytes() - arena.unheld_bytes()
    }

    #[test]
    fn frames_of_one_tick_are_contiguous() {
        let mut arena = Arena::new(&Rc::default());
        let first = arena.frame(Opcode::Text, 2, |bytes| bytes.extend_from_slice(b"[]"));
        let second = arena.encoded(b"\x81\x02[]");
        assert!(Rc::ptr_eq(&first.chunk, &second.chunk));
        assert_eq!(first.end, second.start);
        assert_eq!(&*first.chunk.slice(first.start, second.end), b"\x81\x02[]\x81\x02[]");
    }

    #[test]
    fn a_chunk_is_freed_with_its_last_range_and_a_large_frame_has_its_own() {
        let mut arena = Arena::new(&Rc::default());
        let idle = live_bytes(&arena);
        let large =
            arena.frame(Opcode::Text, CHUNK_BYTES * 2, |bytes| bytes.resize(bytes.len() + CHUNK_BYTES * 2, b' '));
        assert!(live_bytes(&arena) >= idle + CHUNK_BYTES * 2);
        drop(large);
        assert_eq!(live_bytes(&arena), idle);
    }

    #[test]
    fn joined_texts_are_made_once_and_shared_by_all_ranges() {
        let mut arena = Arena::new(&Rc::default());
        let mut message =
            |text: &str| arena.frame(Opcode::Text, text.len(), |bytes| bytes.extend_from_slice(text.as_bytes()));
        let long = format!("[{{\"b\":\"{}\"}}]", "x".repeat(200));
        let all = ["[{\"a\":1}]", &long, "[{\"c\":3}]"].map(&mut message);
        let text = |from: usize, to: usize| {
            let joined = Frames { end: all[to].end, ..all[from].clone() }.joined();
            String::from_utf8(joined.chunk.slice(joined.start, joined.end).to_vec()).expect("text")
        };
        assert_eq!(text(0, 0), "{\"a\":1},");
        assert_eq!(text(1, 2), format!("{},{{\"c\":3}},", &long[1..long.len() - 1]));
        assert_eq!(text(0, 1), format!("{{\"a\":1}},{},", &long[1..long.len() - 1]));
        assert!(Rc::ptr_eq(&all[0].joined().chunk, &all[2].joined().chunk));
    }

    #[test]
    fn a_joined_text_is_freed_with_its_chunk() {
        let mut arena = Arena::new(&Rc::default());
        let (idle, text) = (live_bytes(&arena), format!("[{}]", "1".repeat(CHUNK_BYTES)));
        let frames = arena.encoded(&{
            let mut frame = Vec::new();
            frame::message(Opcode::Text, text.as_bytes(), &mut frame);
            frame
        });
        assert_eq!(frames.joined().bytes(), text.len() - 1);
        assert!(live_bytes(&arena) >= idle + 2 * CHUNK_BYTES);
        drop(frames);
        assert_eq!(live_bytes(&arena), idle);
    }
}
