//! The WebSockets of a shard.

use slab::Slab;

use crate::delivery::connections::socket::{Phase, Socket};
use crate::delivery::schedule::Marks;
use crate::events::SocketKey;
use crate::opener::Opener;

/// All WebSockets of a shard. A key of a socket that is gone finds nothing, even if another socket has its index now.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    slab: Slab<Socket>,
    opened: u32,
}

impl Sockets {
    /// The number of sockets.
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Adds a socket that has been opened now. `browser` is the browser id in the cookie of its upgrade request.
    pub(crate) fn insert(&mut self, opener: Opener, now_ms: u64) -> SocketKey {
        self.opened = self.opened.wrapping_add(1);
        let generation = self.opened;
        let index = self.slab.insert(Socket {
            generation,
            session: None,
            own: None,
            opener,
            origins: [0; 2],
            head: None,
            phase: Phase::Open,
            compression: None,
            is_carried: false,
            is_suspended: false,
            marks: Marks::default(),
            pending_replies: 0,
            last_received_ms: now_ms,
            alone_ms: now_ms,
            armed_ms: u64::MAX,
        });
        SocketKey { index: index as u32, generation }
    }

    /// Removes a socket.
    pub(crate) fn remove(&mut self, key: SocketKey) -> Option<Socket> {
        self.get(key)?;
        Some(self.slab.remove(key.index as usize))
    }

    /// A socket, unless it is gone.
    pub(crate) fn get(&self, key: SocketKey) -> Option<&Socket> {
        self.slab.get(key.index as usize).filter(|socket| socket.generation == key.generation)
    }

    /// A socket, unless it is gone.
    pub(crate) fn get_mut(&mut self, key: SocketKey) -> Option<&mut Socket> {
        self.slab.get_mut(key.index as usize).filter(|socket| socket.generation == key.generation)
    }

    /// A socket that may still be given frames.
    pub(crate) fn unclosed(&mut self, key: SocketKey) -> Option<&mut Socket> {
        self.get_mut(key).filter(|socket| socket.phase != Phase::Closed)
    }

    /// All sockets with their keys.
    pub(crate) fn with_keys(&self) -> impl Iterator<Item = (SocketKey, &Socket)> {
        let key = |index, socket: &Socket| SocketKey { index, generation: socket.generation };
        self.slab.iter().map(move |(index, socket)| (key(index as u32, socket), socket))
    }

    /// The number of slots, empty or occupied.
    pub(crate) fn slots(&self) -> usize {
        self.slab.capacity()
    }

    /// The key of the socket in a slot, if there is one.
    pub(crate) fn key_in_slot(&self, slot: usize) -> Option<SocketKey> {
        self.slab.get(slot).map(|socket| SocketKey { index: slot as u32, generation: socket.generation })
    }

    /// The socket in a slot, if there is one.
    pub(crate) fn in_slot(&mut self, slot: usize) -> Option<&mut Socket> {
        self.slab.get_mut(slot)
    }

    /// Releases the memory of most slots if most are empty. Slots behind an occupied one stay.
    pub(crate) fn give_room_back(&mut self) {
        if self.slots() > ROOM_RETAINED && self.len() < self.slots() / 4 {
            self.slab.shrink_to_fit();
        }
    }
}

/// The number of sockets for which the table keeps room.
const ROOM_RETAINED: usize = 64;
