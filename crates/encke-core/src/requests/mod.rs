//! The requests of clients that are not answered yet: batches and calls that wait for the application, replies that wait
//! for the disk, requests that another shard answers. The machine knows connections and sessions by their keys only. It
//! returns what has to be answered now.

mod owed;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::HashMap;

use bayeux::Message;
use foldhash::fast::RandomState;

pub(crate) use owed::{Answer, Due, OnSocket, Settled};
pub(crate) use waits::{Call, Payer, Wait};

use crate::decision::WaitKey;
use crate::events::{ExchangeId, Persisted, SessionKey};
use crate::limits::shares::{Amount, Budget, Urgency};
use crate::protocol::batch::Batch;
use crate::requests::owed::Owed;
use crate::requests::waits::Waits;

/// The requests of one shard that are not answered yet.
#[derive(Default)]
pub(crate) struct Requests {
    waits: Waits,
    owed: Owed,
    /// Requests forwarded to the shard of their session, with the index of that shard.
    forwarded: HashMap<ExchangeId, usize, RandomState>,
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

    /// The batches and the calls that wait for the application.
    pub(crate) fn waiting(&self) -> [Amount; 2] {
        self.waits.used()
    }

    /// True if one more batch of this owner may wait for a decision.
    pub(crate) fn admits_batch(&self, budget: &Budget, payer: &Payer, batch: &Batch) -> bool {
        self.waits.admits_batch(budget, payer, batch)
    }

    /// True if a session may wait for the answer to one more call of so many bytes. A common call counts against the
    /// session's own limit, too.
    pub(crate) fn admits_call(
        &self,
        budget: &Budget,
        per_session_max: usize,
        (payer, session): (&Payer, SessionKey),
        bytes: usize,
        urgency: Urgency,
    ) -> bool {
        self.waits.admits_call(budget, per_session_max, (payer, session), bytes, urgency)
    }

    /// Lets a batch or a call that was admitted wait for the application, until a time in milliseconds.
    pub(crate) fn wait(&mut self, wait: Wait, payer: Payer, due_ms: u64) -> WaitKey {
        self.waits.add(wait, payer, due_ms)
    }

    /// Ends a wait. Returns it with the time of its timer.
    pub(crate) fn end_wait(&mut self, key: WaitKey) -> Option<(Wait, u64)> {
        self.waits.remove(key)
    }

    /// The end of a wait, in milliseconds. None if it is over.
    pub(crate) fn due_ms(&self, key: WaitKey) -> Option<u64> {
        self.waits.due_ms(key)
    }

    /// Notes the time of a wait's timer, in milliseconds.
    pub(crate) fn armed(&mut self, key: WaitKey, at_ms: u64) {
        self.waits.armed(key, at_ms);
    }

    /// True if a batch of this session waits.
    pub(crate) fn has_batch_of(&self, session: SessionKey) -> bool {
        self.waits.has_batch_of(session)
    }

    /// True if a session waits for the answer to an urgent call.
    pub(crate) fn has_urgent_call(&self, session: SessionKey) -> bool {
        self.waits.has_urgent_call(session)
    }

    /// Notes that nobody waits for the response to a request. Returns false if its batch does not wait.
    pub(crate) fn abandon(&mut self, exchange: &ExchangeId) -> bool {
        self.waits.abandon(exchange)
    }

    /// The number of a new token, for which replies to publications can wait.
    pub(crate) fn new_token(&mut self) -> u64 {
        self.owed.new_token()
    }

    /// Lets the reply to a publication in a batch wait for a token.
    pub(crate) fn owe(&mut self, token: u64, batch: &mut Batch, message: &Message<'_>, session: SessionKey) {
        self.owed.owe(token, batch, message, session);
    }

    /// Takes a request whose batch has been processed. Returns it if it is to be answered now. Otherwise its answer comes
    /// out of [`Requests::settle`].
    pub(crate) fn answer(&mut self, answer: Answer) -> Option<Answer> {
        self.owed.answer(answer)
    }

    /// Settles a token: returns the replies that have waited for it.
    pub(crate) fn settle(&mut self, persisted: Persisted, timestamp: Option<&str>) -> Option<Settled> {
        self.owed.settle(persisted, timestamp)
    }

    /// True if a request has late replies.
    #[cfg(test)]
    pub(crate) fn has_late_replies(&self) -> bool {
        self.owed.requests() > 0
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
