//! The memory of encoded frames: chunks of bytes that are written once and shared by every outbox of the shard.
//!
//! Each publication is appended to the open chunk as one whole WebSocket frame. Publications of one tick are adjacent
//! there, so the outbox of a session that gets them all holds a single range, and its flush is one `send` of one
//! contiguous slice: nothing is copied or counted per subscriber. (Long-polling takes the payloads from the same
//! frames.)
//!
//! Receivers that take no frames share bytes as well: the messages of a chunk are written once for each [`Format`]
//! ([`Frames::text`]). Any range of frames is also a range of that text.
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

use crate::delivery::outbox::format::Format;
use crate::memory::Account;

/// The size of a chunk in bytes: large enough that the publications of a tick share a range, and small enough that one
/// slow session may pin it.
pub const CHUNK_BYTES: usize = 32 * 1024;

/// The content of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Whole frames.
    Whole,
    /// Whole frames of channels that compress.
    Compressible,
    /// Parts of frames beside whole ones.
    Parts,
}

/// Shared, append-only bytes.
#[derive(Debug)]
pub struct Chunk {
    bytes: RefCell<Vec<u8>>,
    /// Its messages in other formats, as far as they were needed.
    texts: RefCell<Vec<Text>>,
    content: Content,
    /// The compressed forms of its frames, as far as they were needed.
    compressed: RefCell<Option<Box<Compressed>>>,
    /// The account that counts its bytes until it is dropped.
    account: Rc<Account>,
}

impl Chunk {
    /// Adds the bytes allocated for it, for its texts and for its compressed forms, unless those chunks are among the `seen`.
    pub fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        let own = if seen.insert(self) { self.own_bytes() } else { return 0 };
        let (texts, compressed) = (self.texts.borrow(), self.compressed.borrow());
        own + texts.iter().map(|text| text.starts_bytes() + text.chunk.recount(seen)).sum::<usize>()
            + compressed.as_ref().map_or(0, |compressed| compressed.index_bytes() + compressed.chunk.recount(seen))
    }

    /// The account that counts its bytes.
    pub fn account(&self) -> &Rc<Account> {
        &self.account
    }

    /// Frees its texts, and its compressed forms, that nobody else holds.
    pub fn drop_unheld_forms(&self) {
        self.texts.borrow_mut().retain(|text| Rc::strong_count(&text.chunk) > 1);
        self.compressed.borrow_mut().take_if(|compressed| Rc::strong_count(&compressed.chunk) == 1);
    }

    /// True if its frames are those of channels that compress.
    pub fn is_compressible(&self) -> bool {
        self.content == Content::Compressible
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

    /// The bytes allocated for it, without texts and compressed forms.
    pub fn own_bytes(&self) -> usize {
        self.bytes.borrow().capacity()
    }

    /// The bytes from `start` to `end`.
    pub fn slice(&self, start: u32, end: u32) -> Ref<'_, [u8]> {
        Ref::map(self.bytes.borrow(), |bytes| &bytes[start as usize..end as usize])
    }
}

/// The messages of a chunk in another format than frames.
#[derive(Debug)]
struct Text {
    format: Format,
    chunk: Rc<Chunk>,
    /// The start of each message: of its frame in the first chunk, and of its text in this one.
    starts: Vec<(u32, u32)>,
    /// The end of the last frame that was written.
    until: u32,
}

impl Text {
    fn new(format: Format, frames: &Chunk) -> Text {
        let chunk = new_chunk(frames.own_bytes(), Content::Whole, &frames.account);
        Text { format, chunk, starts: Vec::new(), until: 0 }
    }

    /// The text of these frames only.
    fn of(frames: &Frames, format: Format) -> Text {
        let chunk = new_chunk(frames.bytes(), Content::Whole, &frames.chunk.account);
        let mut text = Text { format, chunk, starts: Vec::new(), until: frames.start };
        text.go_on(&frames.chunk.bytes.borrow(), frames.end);
        text
    }

    /// Writes the frames up to `end`.
    fn go_on(&mut self, frames: &[u8], end: u32) {
        let mut text = self.chunk.bytes.borrow_mut();
        let before = self.starts_bytes() + text.capacity();
        while self.until < end {
            let Some((head, length)) = frame::split(&frames[self.until as usize..]) else { break };
            self.starts.push((self.until, text.len() as u32));
            let frame = &frames[self.until as usize..][..head + length];
            self.format.write(frame, head, &mut text);
            self.until += (head + length) as u32;
        }
        self.chunk.account.chunk_allocated(self.starts_bytes() + text.capacity() - before);
    }

    fn starts_bytes(&self) -> usize {
        self.starts.capacity() * size_of::<(u32, u32)>()
    }

    /// The start of the text of the frame that begins at `start`; the end of the text if that frame is not written yet.
    fn at(&self, start: u32) -> u32 {
        let end = || self.chunk.bytes.borrow().len() as u32;
        self.starts.binary_search_by_key(&start, |(frame, _)| *frame).map_or_else(|_| end(), |at| self.starts[at].1)
    }

    /// The start of the last frame whose text begins at `at` or before, and the start of that text.
    fn frame_at(&self, at: u32) -> (u32, u32) {
        let after = self.starts.partition_point(|(_, text)| *text <= at);
        self.starts.get(after.saturating_sub(1)).copied().unwrap_or_default()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.account.chunk_freed(self.own_bytes());
    }
}

impl Drop for Text {
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
        Box::new(Compressed { chunk: new_chunk(0, Content::Whole, plain.account()), forms: Vec::new() })
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

    /// The same messages in another format. Only for whole frames.
    pub fn text(&self, format: Format) -> Frames {
        if self.chunk.content == Content::Parts {
            let text = Text::of(self, format);
            let end = text.at(self.end);
            return Frames { chunk: text.chunk.clone(), start: 0, end };
        }
        let mut texts = self.chunk.texts.borrow_mut();
        let at = texts.iter().position(|text| text.format == format).unwrap_or_else(|| {
            texts.push(Text::new(format, &self.chunk));
            texts.len() - 1
        });
        let text = &mut texts[at];
        text.go_on(&self.chunk.bytes.borrow(), self.end);
        Frames { chunk: text.chunk.clone(), start: text.at(self.start), end: text.at(self.end) }
    }

    /// The bytes of the frames that the first `bytes` of their [text](Frames::text) hold whole, and the bytes of text that
    /// follow them.
    pub fn whole_in_text(&self, format: Format, bytes: usize) -> (usize, usize) {
        let whole = |text: &Text| {
            let at = text.at(self.start) + bytes as u32;
            let (frame, start) = text.frame_at(at);
            ((frame - self.start) as usize, (at - start) as usize)
        };
        if self.chunk.content == Content::Parts {
            return whole(&Text::of(self, format));
        }
        let texts = self.chunk.texts.borrow();
        texts.iter().find(|text| text.format == format).map_or((0, bytes), whole)
    }
}

/// The open chunk, and the account that counts all chunks that are alive.
#[derive(Debug)]
pub struct Arena {
    open: Rc<Chunk>,
    content: Content,
    account: Rc<Account>,
}

impl Arena {
    /// An empty arena for whole frames, whose chunks this account counts.
    pub fn new(account: &Rc<Account>) -> Arena {
        Arena::of(Content::Whole, account)
    }

    /// The same for this content.
    pub fn of(content: Content, account: &Rc<Account>) -> Arena {
        // Channels rarely compress: no memory before the first frame.
        let bytes = if content == Content::Compressible { 0 } else { CHUNK_BYTES };
        Arena { open: new_chunk(bytes, content, account), content, account: account.clone() }
    }

    /// The bytes of the open chunk, its texts and its compressed forms, unless an outbox holds them.
    pub fn unheld_bytes(&self) -> usize {
        let unheld = |chunk: &Rc<Chunk>| if Rc::strong_count(chunk) == 1 { chunk.own_bytes() } else { 0 };
        let (texts, compressed) = (self.open.texts.borrow(), self.open.compressed.borrow());
        unheld(&self.open)
            + texts.iter().map(|text| unheld(&text.chunk) + text.starts_bytes()).sum::<usize>()
            + compressed.as_ref().map_or(0, |forms| unheld(&forms.chunk) + forms.index_bytes())
    }

    /// The open chunk.
    pub fn open(&self) -> &Chunk {
        &self.open
    }

    /// Appends `payload_bytes` bytes, which `write` must write exactly, as one frame.
    #[inline]
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

    /// Appends bytes that are only a part of a frame, to an arena of parts. They have no [text](Frames::text).
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
            return new_chunk(total, self.content, &self.account);
        }
        let left = |bytes: &Vec<u8>| bytes.capacity() - bytes.len();
        if total > left(&self.open.bytes.borrow()) {
            self.open = new_chunk(CHUNK_BYTES, self.content, &self.account);
        }
        self.open.clone()
    }
}

fn new_chunk(capacity: usize, content: Content, account: &Rc<Account>) -> Rc<Chunk> {
    let bytes = Vec::with_capacity(capacity);
    account.chunk_allocated(bytes.capacity());
    Rc::new(Chunk {
        bytes: RefCell::new(bytes),
        texts: RefCell::default(),
        content,
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
    fn texts_are_made_once_and_shared_by_all_ranges() {
        let mut arena = Arena::new(&Rc::default());
        let mut message =
            |text: &str| arena.frame(Opcode::Text, text.len(), |bytes| bytes.extend_from_slice(text.as_bytes()));
        let long = format!("[{{\"b\":\"{}\"}}]", "x".repeat(200));
        let all = ["[{\"a\":1}]", &long, "[{\"c\":3}]"].map(&mut message);
        let text = |from: usize, to: usize| {
            let joined = Frames { end: all[to].end, ..all[from].clone() }.text(Format::Joined);
            String::from_utf8(joined.chunk.slice(joined.start, joined.end).to_vec()).expect("text")
        };
        assert_eq!(text(0, 0), "{\"a\":1},");
        assert_eq!(text(1, 2), format!("{},{{\"c\":3}},", &long[1..long.len() - 1]));
        assert_eq!(text(0, 1), format!("{{\"a\":1}},{},", &long[1..long.len() - 1]));
        let [first, last] = [&all[0], &all[2]].map(|frames| frames.text(Format::Joined).chunk);
        assert!(Rc::ptr_eq(&first, &last));
    }

    #[test]
    fn a_text_is_freed_with_its_chunk() {
        let mut arena = Arena::new(&Rc::default());
        let (idle, text) = (live_bytes(&arena), format!("[{}]", "1".repeat(CHUNK_BYTES)));
        let frames = arena.encoded(&{
            let mut frame = Vec::new();
            frame::message(Opcode::Text, text.as_bytes(), &mut frame);
            frame
        });
        assert_eq!(frames.text(Format::Joined).bytes(), text.len() - 1);
        assert!(live_bytes(&arena) >= idle + 2 * CHUNK_BYTES);
        drop(frames);
        assert_eq!(live_bytes(&arena), idle);
    }
}
