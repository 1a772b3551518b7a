//! The requests of clients that are not answered yet: batches and calls that wait for the application, replies that wait
//! for the disk, requests that another shard answers. The machine knows connections and sessions by their keys only. It
//! returns what has to be answered now.

mod owed;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

pub(crate) use owed::{Answer, Due, OnSocket, Owed, Settled};
pub(crate) use waits::{Call, Payer, Wait, Waits};

use crate::events::{ExchangeId, SocketKey};
use crate::id::Id;

/// The requests of one shard that are not answered yet.
#[derive(Default)]
pub(crate) struct Requests {
    /// Batches and calls that wait for the application.
    pub(crate) waits: Waits,
    /// Replies that wait for the disk.
    pub(crate) owed: Owed,
    /// Requests forwarded to the shard of their session, with the index of that shard.
    forwarded: HashMap<ExchangeId, usize, RandomState>,
    /// Sessions of other nodes that wait until publications for them arrive, by their token.
    pub(crate) restored: HashMap<u64, Id, RandomState>,
    /// WebSockets for whose session all nodes of a cluster have been asked.
    pub(crate) searched: HashSet<SocketKey, RandomState>,
    /// Room for the replies to the next batch of a WebSocket.
    room: Vec<u8>,
}

/// The sizes of the tables of [`Requests`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Batches and calls that wait for the application.
    pub(crate) waits: usize,
    /// Replies that wait for the disk.
    pub(crate) replies: usize,
    /// Requests that another shard answers.
    pub(crate) forwarded: usize,
}

impl Requests {
    /// The sizes of its tables.
    pub(crate) fn pending(&self) -> Pending {
        Pending { waits: self.waits.len(), replies: self.owed.len(), forwarded: self.forwarded.len() }
    }

    /// Notes that a request has been forwarded to this shard.
    pub(crate) fn forward(&mut self, exchange: ExchangeId, shard: usize) {
        self.forwarded.insert(exchange, shard);
    }

    /// Notes that a forwarded request is answered or abandoned. Returns the shard that it was forwarded to.
    pub(crate) fn end_forwarded(&mut self, exchange: &ExchangeId) -> Option<usize> {
        self.forwarded.remove(exchange)
    }

    /// Takes the room for the replies to a batch.
    #[inline]
    pub(crate) fn take_room(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.room)
    }

    /// Takes a buffer back, so that the next replies need no memory. A large one is freed.
    #[inline]
    pub(crate) fn reuse(&mut self, mut room: Vec<u8>) {
        if room.capacity() <= ROOM_BYTES_MAX {
            room.clear();
            self.room = room;
        }
    }
}

/// The size up to which the buffer of a batch's replies is reused for the next batch.
const ROOM_BYTES_MAX: usize = 4096;
