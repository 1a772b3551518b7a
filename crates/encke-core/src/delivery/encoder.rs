//! The frames of a shard: each is encoded once, and outboxes share it.

use std::collections::HashSet;
use std::rc::Rc;

use bayeux::ext::{self, PositionForm};
use websocket::{Opcode, frame};

use crate::delivery::outbox::arena::{Arena, Chunk, Content, Frames};
use crate::delivery::outbox::compressed::Compressor;
use crate::delivery::outbox::{Packed, Sweep, payloads};
use crate::history::Position;
use crate::memory::Account;

/// The arenas of a shard. Frames of different kinds go to different arenas, so that publications stay adjacent.
#[derive(Debug)]
pub(crate) struct Encoder {
    /// The memory that chunks and queues take.
    account: Rc<Account>,
    publications: Arena,
    /// Publications on channels that compress.
    compressible: Arena,
    /// Publications with the position of each message, for sessions that use replay.
    positioned: Arena,
    /// The same on channels that compress.
    compressible_positioned: Arena,
    /// The same for Salesforce's clients.
    mixed: Arena,
    /// The same on channels that compress.
    compressible_mixed: Arena,
    /// The same for clients without Bayeux.
    plain: Arena,
    /// Frames for a single receiver.
    single: Arena,
    /// The beginnings and ends of frames whose middle parts are shared.
    pieces: Arena,
    /// Ranges copied out of chunks that are mostly dead.
    packed: Packed,
    /// Makes the compressed forms of frames.
    pub(crate) compressor: Compressor,
    /// A buffer for bytes that go on at once.
    pub(crate) scratch: Vec<u8>,
}

impl Encoder {
    /// An encoder with empty arenas, which compresses messages from this size on.
    pub(crate) fn new(compress_bytes_min: usize) -> Encoder {
        let account = Rc::<Account>::default();
        Encoder {
            publications: Arena::new(&account),
            compressible: Arena::of(Content::Compressible, &account),
            positioned: Arena::new(&account),
            compressible_positioned: Arena::of(Content::Compressible, &account),
            mixed: Arena::new(&account),
            compressible_mixed: Arena::of(Content::Compressible, &account),
            plain: Arena::new(&account),
            single: Arena::new(&account),
            pieces: Arena::of(Content::Parts, &account),
            packed: Packed {
                messages: Arena::new(&account),
                compressible: Arena::of(Content::Compressible, &account),
                others: Arena::of(Content::Parts, &account),
            },
            compressor: Compressor::new(compress_bytes_min),
            scratch: Vec::new(),
            account,
        }
    }

    /// Encodes a message of `bytes` bytes, which `write` writes, as a frame with an array of one message. `compresses`: its
    /// channel does.
    #[inline]
    pub(crate) fn publication(&mut self, bytes: usize, compresses: bool, write: impl FnOnce(&mut Vec<u8>)) -> Frames {
        self.arena_of(compresses).frame(Opcode::Text, bytes + 2, |out| {
            out.push(b'[');
            write(out);
            out.push(b']');
        })
    }

    /// Copies the frames of publications of another shard. `compresses`: their channel does.
    pub(crate) fn copy(&mut self, frames: &[u8], compresses: bool) -> Frames {
        self.arena_of(compresses).encoded(frames)
    }

    #[inline]
    fn arena_of(&mut self, compresses: bool) -> &mut Arena {
        if compresses { &mut self.compressible } else { &mut self.publications }
    }

    /// Encodes the same messages, each with its position in this form.
    pub(crate) fn with_positions(&mut self, frames: &Frames, position: &Position, form: PositionForm) -> Frames {
        let created = ext::timestamp(position.wall_ms as i64);
        let first = bayeux::Position { epoch: (*position.epoch).into(), offset: position.first };
        let mut stamp = ext::PositionStamp { position: first, created: &created, lost: None };
        let mut encoded = Vec::with_capacity(frames.bytes() * 2);
        {
            let bytes = frames.chunk.slice(frames.start, frames.end);
            for payload in payloads(&bytes) {
                write_with_position(&stamp, &payload[1..payload.len() - 1], form, &mut self.scratch, &mut encoded);
                stamp.position.offset += 1;
            }
        }
        let arena = match (form, frames.chunk.is_compressible()) {
            (PositionForm::Plain, _) => &mut self.plain,
            (PositionForm::Mixed, true) => &mut self.compressible_mixed,
            (PositionForm::Mixed, false) => &mut self.mixed,
            (PositionForm::Ext, true) => &mut self.compressible_positioned,
            (PositionForm::Ext, false) => &mut self.positioned,
        };
        arena.encoded(&encoded)
    }

    /// Encodes a frame for a single receiver, whose payload of `bytes` bytes `write` writes.
    pub(crate) fn single(&mut self, opcode: Opcode, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Frames {
        self.single.frame(opcode, bytes, write)
    }

    /// Copies frames for a single receiver.
    pub(crate) fn copy_single(&mut self, frames: &[u8]) -> Frames {
        self.single.encoded(frames)
    }

    /// Copies the frames of messages for a single receiver. `compresses`: their channel does.
    pub(crate) fn messages_for_one(&mut self, frames: &[u8], compresses: bool) -> Frames {
        let arena = if compresses { &mut self.compressible } else { &mut self.single };
        arena.encoded(frames)
    }

    /// Encodes replies, separated by commas, as a frame with an array.
    pub(crate) fn replies(&mut self, replies: &[u8]) -> Frames {
        let write = |out: &mut Vec<u8>| [b"[", replies, b"]"].into_iter().for_each(|part| out.extend_from_slice(part));
        self.single.frame(Opcode::Text, replies.len() + 2, write)
    }

    /// The beginning and the end of a frame with an array of `bytes` bytes, whose last elements are these replies.
    pub(crate) fn around(&mut self, bytes: usize, replies: &[u8]) -> [Frames; 2] {
        let head = self.pieces.part(frame::header_bytes(bytes) + 1, |out| {
            frame::header(Opcode::Text, bytes, out);
            out.push(b'[');
        });
        let end = self.pieces.part(replies.len() + 1, |out| {
            out.extend_from_slice(replies);
            out.push(b']');
        });
        [head, end]
    }

    /// The arenas for ranges that a sweep packs.
    pub(crate) fn packed(&mut self) -> &mut Packed {
        &mut self.packed
    }

    /// A sweep that leaves the open chunks alone.
    pub(crate) fn sweep(&self) -> Sweep {
        Sweep::new(self.arenas().into_iter().map(|arena| -> &Chunk { arena.open() }))
    }

    /// The account of all that sessions and sockets hold.
    pub(crate) fn account(&self) -> &Rc<Account> {
        &self.account
    }

    /// The bytes that chunks and queues take.
    pub(crate) fn bytes(&self) -> usize {
        self.account.bytes()
    }

    /// The same without the room reserved for the next frames.
    pub(crate) fn held_bytes(&self) -> usize {
        self.account.bytes() - self.unheld_bytes()
    }

    /// The bytes of chunks that outboxes hold.
    pub(crate) fn held_chunk_bytes(&self) -> usize {
        self.account.chunk_bytes() - self.unheld_bytes()
    }

    /// The bytes of the open chunks, without chunks that are in `seen`.
    pub(crate) fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        self.arenas().into_iter().map(|arena| arena.open().recount(seen)).sum()
    }

    fn unheld_bytes(&self) -> usize {
        self.arenas().into_iter().map(Arena::unheld_bytes).sum()
    }

    fn arenas(&self) -> [&Arena; 12] {
        let Encoder { publications, compressible, positioned, compressible_positioned, plain, .. } = self;
        let (mixed, compressible_mixed) = (&self.mixed, &self.compressible_mixed);
        let Packed { messages, compressible: packed, others } = &self.packed;
        let (single, pieces) = (&self.single, &self.pieces);
        [
            publications,
            compressible,
            positioned,
            compressible_positioned,
            mixed,
            compressible_mixed,
            plain,
            single,
            pieces,
            messages,
            packed,
            others,
        ]
    }
}

/// Appends a message with its position in this form, as a separate frame. Overwrites `scratch`.
pub(crate) fn write_with_position(
    stamp: &ext::PositionStamp<'_>,
    message: &[u8],
    form: PositionForm,
    scratch: &mut Vec<u8>,
    frames: &mut Vec<u8>,
) {
    scratch.clear();
    scratch.push(b'[');
    stamp.write(form, str::from_utf8(message).unwrap_or_default(), scratch);
    scratch.push(b']');
    frame::message(Opcode::Text, scratch, frames);
}
