//! The account of the memory that sessions hold: what each shard keeps for its own, and the sum of all shards.
//!
//! A shard counts in an [`Account`] of its own, without atomics. Now and then it publishes its part in [`SessionsMemory`], where every
//! shard sees the sum and the limit `sessions_bytes_max` is compared with it.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that one shard holds for its sessions and sockets.
#[derive(Debug, Default)]
pub struct Account {
    chunks: Cell<usize>,
    queues: Cell<usize>,
}

impl Account {
    /// Bytes of all chunks of encoded frames, each counted once, whoever shares it.
    pub fn chunk_bytes(&self) -> usize {
        self.chunks.get()
    }

    /// All bytes.
    pub fn bytes(&self) -> usize {
        self.chunks.get() + self.queues.get()
    }

    /// A queue that took so many bytes takes so many now.
    pub fn queue_changed(&self, before: usize, after: usize) {
        self.queues.set(self.queues.get() + after - before);
    }

    /// A chunk of so many bytes, or a part of one, has been allocated.
    pub fn chunk_allocated(&self, bytes: usize) {
        self.chunks.set(self.chunks.get() + bytes);
    }

    /// A chunk of so many bytes has been freed.
    pub fn chunk_freed(&self, bytes: usize) {
        self.chunks.set(self.chunks.get() - bytes);
    }
}

/// Bytes that all shards hold for their sessions and sockets.
///
/// Pure atomics. Each part is written by its shard only; a sum may be a moment old.
#[derive(Debug)]
pub struct SessionsMemory {
    shards: Box<[Part]>,
    /// Bytes of response bodies that are copies of their own. They are freed on the thread of their connection.
    bodies: AtomicUsize,
}

/// The part of one shard, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Part(AtomicUsize);

impl SessionsMemory {
    /// For so many shards.
    pub fn new(shards: usize) -> SessionsMemory {
        SessionsMemory { shards: (0..shards).map(|_| Part::default()).collect(), bodies: AtomicUsize::new(0) }
    }

    /// Publishes what a shard holds now.
    pub fn publish(&self, shard: usize, bytes: usize) {
        if let Some(part) = self.shards.get(shard) {
            part.0.store(bytes, Ordering::Relaxed);
        }
    }

    /// A response body that is a copy of its own has been made.
    pub fn body_made(&self, bytes: usize) {
        self.bodies.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A response body is gone.
    pub fn body_dropped(&self, bytes: usize) {
        self.bodies.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes of all response bodies.
    pub fn body_bytes(&self) -> usize {
        self.bodies.load(Ordering::Relaxed)
    }

    /// The sum of all shards, without bodies.
    pub fn sessions_bytes(&self) -> usize {
        self.shards.iter().map(|part| part.0.load(Ordering::Relaxed)).sum()
    }
}
