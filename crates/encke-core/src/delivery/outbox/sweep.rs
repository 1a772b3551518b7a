//! Packing: copies short ranges out of chunks that are mostly dead.
//!
//! A sweep walks all outboxes twice. First it *marks*: for each chunk it records which ranges are held; a range with
//! several holders counts once. Then it *packs*: the held ranges of a mostly dead chunk are copied into dense chunks,
//! so that the old one is freed. Ranges that several sessions hold are copied once and shared again, and consecutive
//! ranges of one chunk in a queue become one. So a chunk that many sessions hold as a whole stays as it is. Many short
//! ranges in a busy chunk are packed if the copy costs less than the queues of all their holders.
//!
//! Changes between two steps of a sweep do no harm: ranges that were not marked are not packed, and a copy is compared
//! before it is shared.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::rc::Rc;

use foldhash::fast::RandomState;

use super::runs::Runs;
use super::{InFlight, Kind, Outbox, RUN_BYTES, Run};
use crate::delivery::outbox::arena::{Arena, Chunk, Frames};

/// One walk over all outboxes, a few at a time.
#[derive(Debug, Default)]
pub struct Sweep {
    /// True if everything has been marked.
    pub packs: bool,
    /// The next holder to visit.
    pub next: usize,
    /// The number of runs visited since this was last reset.
    pub looked_at: usize,
    /// The bytes that are held of each chunk. Only a hint: another chunk may have the same address by now.
    held: HashMap<*const Chunk, usize, RandomState>,
    groups: HashMap<u64, Group, RandomState>,
    hasher: RandomState,
    /// Chunks that are still being written to.
    open: HashSet<*const Chunk, RandomState>,
}

/// Ranges of one chunk that are consecutive in a queue.
#[derive(Debug)]
struct Group {
    holders: usize,
    copy: Option<Frames>,
}

/// The chunks that packed ranges are copied to.
#[derive(Debug)]
pub struct Packed {
    /// For messages: whole frames.
    pub messages: Arena,
    /// The same, for messages of channels that compress.
    pub compressible: Arena,
    /// For everything else, including parts of frames.
    pub others: Arena,
}

impl Sweep {
    /// A sweep that leaves these chunks alone.
    pub fn new<'a>(open: impl Iterator<Item = &'a Chunk>) -> Sweep {
        Sweep { open: open.map(std::ptr::from_ref).collect(), ..Sweep::default() }
    }

    /// The bytes of chunks that it holds, without chunks that are in `seen`.
    pub fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        let copies = self.groups.values().filter_map(|group| group.copy.as_ref());
        copies.map(|copy| copy.chunk.recount(seen)).sum()
    }

    fn mark(&mut self, group: &[Run]) {
        let Some(chunk) = group.first().map(|run| &run.frames.chunk) else { return };
        self.looked_at += group.len();
        let at = Rc::as_ptr(chunk);
        if self.open.contains(&at) {
            return;
        }
        chunk.drop_unheld_forms();
        let (bytes, hash) = (bytes_of(group), self.hash(group));
        let mut is_new = false;
        let known = self.groups.entry(hash).or_insert_with(|| {
            is_new = true;
            Group { holders: 0, copy: None }
        });
        known.holders += 1;
        if is_new {
            *self.held.entry(at).or_default() += bytes;
        }
    }

    /// True if a copy of these ranges costs less than they do.
    fn wants(&self, group: &[Run]) -> bool {
        let Some(chunk) = group.first().map(|run| &run.frames.chunk) else { return false };
        let Some(held) = self.held.get(&Rc::as_ptr(chunk)) else { return false };
        let Some(known) = self.groups.get(&self.hash(group)) else { return false };
        let is_sparse = held * 2 <= chunk.own_bytes();
        is_sparse || known.holders * (group.len() - 1) * RUN_BYTES >= 2 * bytes_of(group)
    }

    /// The copy of these ranges as one range.
    fn pack(&mut self, group: &[Run], packed: &mut Packed) -> Option<Frames> {
        let hash = self.hash(group);
        let known = self.groups.get_mut(&hash)?;
        if let Some(copy) = known.copy.as_ref().filter(|copy| is_same(group, copy)) {
            return Some(copy.clone());
        }
        let Run { kind, frames, .. } = group.first()?;
        let arena = match kind {
            Kind::Messages if frames.chunk.is_compressible() => &mut packed.compressible,
            Kind::Messages => &mut packed.messages,
            _ => &mut packed.others,
        };
        let copy = arena.part(bytes_of(group), |out| {
            for Run { frames, .. } in group {
                out.extend_from_slice(&frames.chunk.slice(frames.start, frames.end));
            }
        });
        known.copy = Some(copy.clone());
        Some(copy)
    }

    fn hash(&self, group: &[Run]) -> u64 {
        let of_run = |run: &Run| (Rc::as_ptr(&run.frames.chunk), run.frames.start, run.frames.end);
        let first = group.first().map(of_run);
        let add = |hash: u64, run: &Run| {
            let range = u64::from(run.frames.start) << 32 | u64::from(run.frames.end);
            (hash ^ range).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
        };
        self.hasher.hash_one((first, group.iter().fold(0, add)))
    }
}

impl Runs {
    fn sweep(&mut self, sweep: &mut Sweep, packed: &mut Packed) {
        if let Some(swept) = self.in_one_piece(|runs| swept(runs, sweep, packed)) {
            *self = swept;
        }
    }

    /// Appends a run. Merges it with the last run if they are adjacent.
    fn push_joined(&mut self, run: Run) {
        match self.back_mut().filter(|last| last.kind != Kind::Close && last.is_continued_by(&run)) {
            Some(last) => {
                last.frames.end = run.frames.end;
                last.messages += run.messages;
            }
            None => self.push_back(run),
        }
    }
}

impl Outbox {
    /// Marks or packs its runs. A partly written frame is packed with the rest of its run.
    pub fn sweep(&mut self, sweep: &mut Sweep, packed: &mut Packed) {
        self.runs.sweep(sweep, packed);
    }

    /// Marks or packs messages that were taken out.
    pub fn sweep_taken(&mut self, taken: &mut InFlight, sweep: &mut Sweep, packed: &mut Packed) {
        self.settle(taken);
        taken.runs.sweep(sweep, packed);
        self.charge(taken);
    }
}

/// Marks these runs, or packs them: what they become, if anything else.
fn swept(runs: &[Run], sweep: &mut Sweep, packed: &mut Packed) -> Option<Runs> {
    if !sweep.packs {
        runs.chunk_by(belong_together).for_each(|group| sweep.mark(group));
        return None;
    }
    sweep.looked_at += runs.len();
    if !runs.chunk_by(belong_together).any(|group| sweep.wants(group)) {
        return None;
    }
    let mut swept = Runs::default();
    for group in runs.chunk_by(belong_together) {
        match (group, sweep.wants(group).then(|| sweep.pack(group, packed)).flatten()) {
            ([first, ..], Some(frames)) => {
                let messages = group.iter().map(|run| run.messages).sum();
                swept.push_joined(Run { frames, kind: first.kind, messages });
            }
            _ => group.iter().for_each(|run| swept.push_joined(run.clone())),
        }
    }
    Some(swept)
}

fn belong_together(run: &Run, next: &Run) -> bool {
    run.kind == next.kind && run.kind != Kind::Close && Rc::ptr_eq(&run.frames.chunk, &next.frames.chunk)
}

fn bytes_of(group: &[Run]) -> usize {
    group.iter().map(|run| run.frames.bytes()).sum()
}

/// True if a copy equals these ranges.
fn is_same(group: &[Run], copy: &Frames) -> bool {
    let copied = copy.chunk.slice(copy.start, copy.end);
    let mut rest = &copied[..];
    group.iter().all(|Run { frames, .. }| {
        let bytes = frames.chunk.slice(frames.start, frames.end);
        let begins = rest.starts_with(&bytes);
        rest = rest.get(bytes.len()..).unwrap_or_default();
        begins
    }) && rest.is_empty()
}
