//! The account of the memory that sessions hold: for each shard, and the sum of all shards.
//!
//! A shard counts in its own [`Account`], without atomics. It regularly publishes its part in [`SessionsMemory`]. There
//! every shard sees the sum, which is compared with the limit `sessions_bytes_max`.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// The bytes that one shard holds for its sessions and sockets.
#[derive(Debug, Default)]
pub struct Account {
    chunks: Cell<usize>,
    queues: Cell<usize>,
}

impl Account {
    /// The size of all chunks of encoded frames in bytes. Each counts once, even if it is shared.
    pub fn chunk_bytes(&self) -> usize {
        self.chunks.get()
    }

    /// The sum of all bytes.
    pub fn bytes(&self) -> usize {
        self.chunks.get() + self.queues.get()
    }

    /// Notes that the size of a queue has changed.
    pub fn queue_changed(&self, before: usize, after: usize) {
        self.queues.set(self.queues.get() + after - before);
    }

    /// Notes that a chunk, or a part of one, has been allocated.
    pub fn chunk_allocated(&self, bytes: usize) {
        self.chunks.set(self.chunks.get() + bytes);
    }

    /// Notes that a chunk has been freed.
    pub fn chunk_freed(&self, bytes: usize) {
        self.chunks.set(self.chunks.get() - bytes);
    }
}

/// Bytes that a session or a WebSocket holds beside its queues, such as its identity. They count while this lives.
#[derive(Debug)]
pub struct Counted {
    account: Rc<Account>,
    bytes: usize,
}

impl Counted {
    /// Counts these bytes.
    pub fn new(account: &Rc<Account>, bytes: usize) -> Counted {
        account.queue_changed(0, bytes);
        Counted { account: account.clone(), bytes }
    }

    /// The bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.account.queue_changed(self.bytes, 0);
    }
}

/// The bytes that all shards hold for their sessions and sockets.
///
/// It consists of atomics only. Only the shard itself writes its part; a sum may be slightly out of date.
#[derive(Debug)]
pub struct SessionsMemory {
    shards: Box<[Part]>,
    /// The size of the response bodies. They are freed on the thread of their connection.
    bodies: AtomicUsize,
    /// Encrypted bytes that the kernel has not taken.
    unsent: AtomicUsize,
}

/// The part of one shard, on its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Part(AtomicUsize);

impl SessionsMemory {
    /// Empty parts for this number of shards.
    pub fn new(shards: usize) -> SessionsMemory {
        SessionsMemory {
            shards: (0..shards).map(|_| Part::default()).collect(),
            bodies: AtomicUsize::new(0),
            unsent: AtomicUsize::new(0),
        }
    }

    /// Publishes the bytes that a shard holds now.
    pub fn publish(&self, shard: usize, bytes: usize) {
        if let Some(part) = self.shards.get(shard) {
            part.0.store(bytes, Ordering::Relaxed);
        }
    }

    /// A part of a response. Its bytes count until it is dropped, unless they are few.
    pub fn counted_part(self: &Arc<Self>, part: Bytes) -> Bytes {
        let bytes = part.len();
        if bytes < COUNTED_BYTES { part } else { self.counted(part, bytes) }
    }

    /// A body that counts with this number of bytes until it is dropped.
    pub(crate) fn counted<B: AsRef<[u8]> + Send + 'static>(self: &Arc<Self>, body: B, bytes: usize) -> Bytes {
        self.bodies.fetch_add(bytes, Ordering::Relaxed);
        Bytes::from_owner(Body { body, bytes, memory: self.clone() })
    }

    /// The size of all response bodies.
    pub fn body_bytes(&self) -> usize {
        self.bodies.load(Ordering::Relaxed)
    }

    /// Notes that the number of encrypted bytes of a connection has changed that the kernel has not taken.
    pub fn unsent_changed(&self, before: usize, after: usize) {
        self.unsent.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    /// The number of encrypted bytes that the kernel has not taken.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent.load(Ordering::Relaxed)
    }

    /// The sum of all shards, with encrypted bytes that are not sent, without response bodies.
    pub fn sessions_bytes(&self) -> usize {
        self.shards.iter().map(|part| part.0.load(Ordering::Relaxed)).sum::<usize>() + self.unsent_bytes()
    }
}

/// The body of a response, counted in the memory of the server.
struct Body<B> {
    body: B,
    bytes: usize,
    memory: Arc<SessionsMemory>,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Body<B> {
    fn as_ref(&self) -> &[u8] {
        self.body.as_ref()
    }
}

impl<B> Drop for Body<B> {
    fn drop(&mut self) {
        self.memory.bodies.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bodies of fewer bytes are not counted.
pub(crate) const COUNTED_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypted_bytes_that_wait_count_among_those_of_sessions() {
        let memory = SessionsMemory::new(2);
        memory.publish(0, 100);
        memory.publish(1, 20);
        memory.unsent_changed(0, 7);
        memory.unsent_changed(5, 0);
        assert_eq!((memory.sessions_bytes(), memory.unsent_bytes()), (122, 2));
    }
}
