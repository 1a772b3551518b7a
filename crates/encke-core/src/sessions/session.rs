//! A session, and the table of all sessions of a shard.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use slab::Slab;
use smallvec::SmallVec;

use crate::channels::hub::Subscription;
use crate::events::{ExchangeId, HttpTransport, SessionKey, SocketKey};
use crate::outbox::{InFlight, Outbox, Packed, Sweep};
use crate::schedule::{Marks, Schedule};
use crate::sessions::id::Id;
use crate::sessions::replay::Replay;
use crate::sessions::unacked::Unacked;

impl Session {
    pub(crate) fn sweep(&mut self, sweep: &mut Sweep, packed: &mut Packed) {
        self.outbox.sweep(sweep, packed);
        if let Some(in_flight) = &mut self.in_flight {
            self.outbox.sweep_taken(&mut in_flight.1, sweep, packed);
        }
        for messages in self.unacked.iter_mut().flat_map(|unacked| unacked.messages_mut()) {
            self.outbox.sweep_taken(messages, sweep, packed);
        }
    }

    /// The bytes that it holds. Bytes shared with other sessions count in proportion.
    pub(crate) fn share_bytes(&self) -> usize {
        self.outbox.share_bytes() + self.handed_out().map(|messages| messages.share_bytes()).sum::<usize>()
    }
}

/// One session. The fields that a fan-out uses come first.
#[derive(Debug)]
pub struct Session {
    /// The number of the last publication offered to it. It gets each publication once, even if several subscriptions
    /// match.
    pub stamp: u64,
    /// The messages queued for it.
    pub outbox: Outbox,
    /// The queues of the shard's schedule that it is in.
    pub marks: Marks,
    /// True if the outbox holds anything but lazy messages.
    pub urgent: bool,
    /// Its connection.
    pub attachment: Attachment,
    /// The connect that is held.
    pub held: Option<Box<Held>>,
    /// Messages in a response that the kernel has not taken yet. While it is set, no other response takes messages.
    pub in_flight: Option<Box<(ExchangeId, InFlight)>>,
    /// The number of other responses whose outcome is not known yet: those of a session that acknowledges, and large
    /// replies.
    pub responses: u32,
    /// Messages that it was sent and has not confirmed, if it acknowledges. Such a session gets messages with connect
    /// replies only.
    pub unacked: Option<Box<Unacked>>,
    /// Its replay state, if it asked for positions.
    pub replay: Option<Box<Replay>>,
    /// The state of the Bayeux protocol.
    pub protocol: bayeux::Session,
    /// The client id.
    pub id: Id,
    /// The browser that opened it, if it has a cookie.
    pub browser: Option<Id>,
    /// Its subscriptions.
    pub subscriptions: SmallVec<[Subscription; 1]>,
    /// True if it gets messages with connect replies only, even on a WebSocket: `connect_deliver_only` was set when it
    /// was opened.
    pub with_connects: bool,
    /// Distinguishes sessions that reuse an index, so late events are recognized.
    pub generation: u32,
    /// Its index among the sessions that have not connected yet.
    pub newcomer: u32,
    /// Its earliest entry in the timer wheel, in milliseconds; `u64::MAX` for none.
    pub armed_ms: u64,
    /// The time when its lazy messages are due, in milliseconds; `u64::MAX` if none are queued.
    pub lazy_due_ms: u64,
    /// The time of its last activity, as the activity extension counts it, in milliseconds.
    pub active_ms: u64,
}

/// A session's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// HTTP requests; each response carries messages.
    Requests,
    /// This WebSocket.
    Socket(SocketKey),
}

/// A connect that the server holds.
#[derive(Debug)]
pub struct Held {
    /// The transport of its reply.
    pub via: HeldVia,
    /// Its message id.
    pub id: Option<bayeux::Id<'static>>,
    /// The member `timesync` of its reply's `ext`.
    pub timesync: Option<String>,
}

/// The transport of a held connect's reply.
#[derive(Debug, PartialEq, Eq)]
pub enum HeldVia {
    /// On the session's WebSocket.
    Socket,
    /// As the response to a request.
    Exchange(ExchangeId, HttpTransport),
}

/// The reason why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its client disconnected.
    Disconnected,
    /// Its client was silent for too long.
    Expired,
    /// The server ended it.
    Kicked,
    /// It had not connected yet, and its room was needed.
    Unused,
    /// Its outbox was full.
    Slow,
}

/// All sessions of a shard, by index and by id.
#[derive(Debug, Default)]
pub struct Sessions {
    slab: Slab<Session>,
    ids: HashTable<u32>,
    hasher: RandomState,
    generation: u32,
}

impl Sessions {
    /// The number of sessions.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Adds a session that has just completed its handshake.
    pub fn insert(&mut self, id: Id, browser: Option<Id>, protocol: bayeux::Session, now_ms: u64) -> SessionKey {
        self.generation = self.generation.wrapping_add(1);
        let index = self.slab.insert(Session {
            stamp: 0,
            outbox: Outbox::default(),
            marks: Marks::default(),
            urgent: false,
            attachment: Attachment::Requests,
            held: None,
            in_flight: None,
            responses: 0,
            unacked: None,
            replay: None,
            protocol,
            id,
            browser,
            subscriptions: SmallVec::new(),
            with_connects: false,
            generation: self.generation,
            newcomer: super::newcomers::NONE,
            armed_ms: u64::MAX,
            lazy_due_ms: u64::MAX,
            active_ms: now_ms,
        }) as u32;
        let hash = self.hasher.hash_one(id);
        let (hasher, slab) = (&self.hasher, &self.slab);
        self.ids.insert_unique(hash, index, |index| hasher.hash_one(slab[*index as usize].id));
        SessionKey { index, generation: self.generation }
    }

    /// Removes a session.
    pub fn remove(&mut self, key: SessionKey) -> Option<Session> {
        self.get(key)?;
        let session = self.slab.remove(key.index as usize);
        if let Ok(entry) = self.ids.find_entry(self.hasher.hash_one(session.id), |index| *index == key.index) {
            entry.remove();
        }
        Some(session)
    }

    /// The session with this id.
    pub fn find(&self, id: &Id) -> Option<SessionKey> {
        let index = *self.ids.find(self.hasher.hash_one(id), |index| self.slab[*index as usize].id == *id)?;
        Some(SessionKey { index, generation: self.slab[index as usize].generation })
    }

    /// A session, unless it is gone.
    pub fn get(&self, key: SessionKey) -> Option<&Session> {
        self.slab.get(key.index as usize).filter(|session| session.generation == key.generation)
    }

    /// A session, unless it is gone.
    pub fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.slab.get_mut(key.index as usize).filter(|session| session.generation == key.generation)
    }

    /// The session at an index that the hub holds. It exists while it subscribes.
    pub fn at(&mut self, index: u32) -> &mut Session {
        &mut self.slab[index as usize]
    }

    /// All sessions.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slab.iter().map(|(_, session)| session)
    }

    /// All sessions with their keys.
    pub fn with_keys(&self) -> impl Iterator<Item = (SessionKey, &Session)> {
        self.slab.iter().map(|(index, session)| (session.key(index as u32), session))
    }

    /// Releases the memory of most slots if most are empty. Slots behind an occupied one stay.
    pub fn give_room_back(&mut self) {
        let len = self.slab.len();
        if self.slab.capacity() > ROOM_RETAINED && len < self.slab.capacity() / 4 {
            self.slab.shrink_to_fit();
        }
        if self.ids.capacity() > ROOM_RETAINED && len < self.ids.capacity() / 4 {
            let (hasher, slab) = (&self.hasher, &self.slab);
            self.ids.shrink_to(len * 2, |index| hasher.hash_one(slab[*index as usize].id));
        }
    }

    /// The number of slots, empty or occupied.
    pub fn slots(&self) -> usize {
        self.slab.capacity()
    }

    /// The session in a slot, if there is one.
    pub fn in_slot(&mut self, slot: usize) -> Option<&mut Session> {
        self.slab.get_mut(slot)
    }

    /// The keys of all sessions.
    pub fn keys(&self) -> Vec<SessionKey> {
        self.slab.iter().map(|(index, s)| SessionKey { index: index as u32, generation: s.generation }).collect()
    }
}

/// Tables with at most this capacity are not shrunk.
const ROOM_RETAINED: usize = 1_024;

impl Session {
    /// Notes that its outbox has something to send at once. Schedules it if something could take that now.
    #[inline(always)]
    pub(crate) fn make_urgent(&mut self, index: u32, schedule: &mut Schedule) {
        self.urgent = true;
        if self.marks.may_be_written() && self.is_reachable() {
            schedule.write_session(self.key(index), &mut self.marks);
        }
    }

    /// Notes that messages have left its outbox. With an empty outbox it has nothing urgent, nothing lazy, and is not
    /// behind.
    pub(crate) fn was_sent(&mut self) {
        if self.outbox.is_empty() {
            self.urgent = false;
            self.lazy_due_ms = u64::MAX;
            self.outbox.behind_since = 0;
        }
    }

    /// Its key, given its index.
    pub fn key(&self, index: u32) -> SessionKey {
        SessionKey { index, generation: self.generation }
    }

    /// True if a WebSocket pushes messages to it.
    pub fn is_pushed_to(&self) -> bool {
        self.unacked.is_none() && !self.with_connects
    }

    /// True if something could take messages right now. False while a response with older messages is on its way: if
    /// that fails, those messages come first.
    pub fn is_reachable(&self) -> bool {
        let pushed = matches!(self.attachment, Attachment::Socket(_)) && self.is_pushed_to();
        let answers = |held: &Held| matches!(held.via, HeldVia::Socket) || self.may_respond();
        (pushed || self.held.as_deref().is_some_and(answers)) && self.is_given()
    }

    /// True if queued messages may go out: no response with older messages is on its way, and none has to be withdrawn
    /// first.
    pub fn is_given(&self) -> bool {
        self.in_flight.is_none() && !self.awaits_withdrawal()
    }

    /// True if one more response may take messages. Without acknowledgement one at a time may. A client that
    /// acknowledges may give up a response and ask again at once, because it gets nothing twice.
    pub fn may_respond(&self) -> bool {
        match self.unacked {
            Some(_) => self.responses < UNCONFIRMED_RESPONSES_MAX,
            None => self.in_flight.is_none(),
        }
    }

    /// True if its held connect has something to deliver, and may.
    pub fn is_due(&self) -> bool {
        let over_http = || self.held.as_deref().is_some_and(|held| matches!(held.via, HeldVia::Exchange(..)));
        let must_resend = || over_http() && self.unacked.as_ref().is_some_and(|unacked| unacked.must_resend(None));
        self.is_reachable() && (!self.outbox.is_empty() || must_resend())
    }

    /// True if its client is receiving a response: then it is not silent.
    pub fn is_taking(&self) -> bool {
        self.in_flight.is_some() || self.responses > 0
    }

    /// True if all queued messages, and all that may have to be sent again, fit into one response, or before one reply
    /// on this WebSocket.
    pub fn fits(&self, socket: Option<SocketKey>, response_bytes_max: usize) -> bool {
        let fits = match (socket, &self.unacked) {
            (None, _) => self.outbox.bytes() <= response_bytes_max,
            (Some(_), None) => true,
            (Some(_), Some(unacked)) => unacked.fits(&self.outbox, socket),
        };
        fits && self.is_given()
    }

    /// True if a connect on this WebSocket, or by a request, has something to deliver.
    pub fn has_something_for(&self, socket: Option<SocketKey>) -> bool {
        if self.awaits_withdrawal() {
            return false;
        }
        let has_news = self.replay.as_ref().is_some_and(|replay| replay.has_news());
        match &self.unacked {
            Some(unacked) => {
                (socket.is_some() || self.may_respond()) && (self.urgent || unacked.must_resend(socket) || has_news)
            }
            // While a response is on its way nothing more can be delivered: the connect waits for its outcome.
            None => {
                let waits = self.urgent && (socket.is_none() || self.with_connects);
                self.in_flight.is_none() && (has_news || waits)
            }
        }
    }

    /// Withdraws messages that must not be delivered (again), wherever they are queued: those for whose payload `keep`
    /// is false.
    pub fn withdraw(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        self.outbox.filter(|_, payload| keep(payload));
        if let Some(in_flight) = &mut self.in_flight {
            self.outbox.withdraw(&mut in_flight.1, &mut keep);
        }
        if let Some(unacked) = &mut self.unacked {
            unacked.withdraw(&mut self.outbox, &mut keep);
        }
    }

    /// Messages that were taken for sending and may come back.
    pub fn handed_out(&self) -> impl Iterator<Item = &InFlight> {
        let unconfirmed = self.unacked.iter().flat_map(|unacked| unacked.messages());
        self.in_flight.iter().map(|in_flight| &in_flight.1).chain(unconfirmed)
    }

    /// True if its held connect came as this request.
    pub fn is_held_on(&self, exchange: ExchangeId) -> bool {
        self.held.as_ref().is_some_and(|held| matches!(&held.via, HeldVia::Exchange(on, _) if *on == exchange))
    }

    /// The time when the shard has to look at it next, in milliseconds.
    pub fn deadline_ms(&self) -> u64 {
        let waits_for_client = self.is_taking() && !self.protocol.is_held();
        let protocol_ms = if waits_for_client { u64::MAX } else { self.protocol.deadline_ms() };
        protocol_ms.min(self.lazy_due_ms)
    }
}

/// The number of responses of an acknowledging session that may be on their way at once: one that the client got no
/// reply to, and one that it requested after that.
const UNCONFIRMED_RESPONSES_MAX: u32 = 2;

impl Session {
    /// True if it gets nothing, because its queued messages have to be searched first.
    pub(crate) fn awaits_withdrawal(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.withdrawn.is_some())
    }

    /// The WebSocket whose own outbox holds messages of this session: they went there with a connect reply. None for a
    /// session that acknowledges: its socket holds parts of frames, and `unacked` has the messages.
    pub(crate) fn socket_with_messages(&self) -> Option<SocketKey> {
        match self.attachment {
            Attachment::Socket(socket) if self.with_connects && self.unacked.is_none() => Some(socket),
            _ => None,
        }
    }
}
