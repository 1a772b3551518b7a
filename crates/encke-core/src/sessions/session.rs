//! A session as its shard keeps it, and the table of all of them.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use slab::Slab;
use smallvec::SmallVec;

use crate::channels::hub::Subscription;
use crate::events::{ExchangeId, HttpTransport, SessionKey, SocketKey};
use crate::outbox::{InFlight, Outbox, Packed, Sweep};
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

    /// Bytes that it holds: what others hold, too, counts with its part.
    pub(crate) fn share_bytes(&self) -> usize {
        self.outbox.share_bytes() + self.handed_out().map(|messages| messages.share_bytes()).sum::<usize>()
    }
}

/// One session. The fields a fan-out touches come first.
#[derive(Debug)]
pub struct Session {
    /// The number of the last publication it was offered: it gets each once, whatever it subscribes to.
    pub stamp: u64,
    /// What it still gets.
    pub outbox: Outbox,
    /// Whether it is on the list of those to be flushed, or its socket is blocked and will put it there.
    pub dirty: bool,
    /// Whether the outbox holds anything but lazy messages.
    pub urgent: bool,
    /// Whether it is on the list of those whose connects wait for other responses to be taken.
    pub awaits_room: bool,
    /// What carries messages to it now.
    pub attachment: Attachment,
    /// The connect that waits for its reply.
    pub held: Option<Box<Held>>,
    /// Messages in a response that the kernel has not taken yet; while there are any, no other response takes more.
    pub in_flight: Option<Box<(ExchangeId, InFlight)>>,
    /// Other responses on their way whose fate is not known yet: those of a session that acknowledges, and large replies.
    pub responses: u32,
    /// What it was sent and has not confirmed, if it acknowledges: then it gets messages with connect replies only.
    pub unacked: Option<Box<Unacked>>,
    /// What it still has to catch up with, if it wants to know where messages stand in the history of their channel.
    pub replay: Option<Box<Replay>>,
    /// The protocol's state.
    pub protocol: bayeux::Session,
    /// Its public key to itself.
    pub id: Id,
    /// The browser it was opened from, if it has a cookie.
    pub browser: Option<Id>,
    /// What it subscribes to.
    pub subscriptions: SmallVec<[Subscription; 1]>,
    /// It gets messages with connect replies only, on a WebSocket, too: `connect_deliver_only` when it was opened.
    pub with_connects: bool,
    /// Tells a late event of a reused index apart.
    pub generation: u32,
    /// Its place among those that have not connected yet.
    pub newcomer: u32,
    /// The earliest entry of it in the timer wheel, in milliseconds; `u64::MAX` for none.
    pub armed_ms: u64,
    /// When its lazy messages have to go, in milliseconds; `u64::MAX` when none wait.
    pub lazy_due_ms: u64,
    /// When it was active last, as the activity extension counts, in milliseconds.
    pub active_ms: u64,
}

/// What carries messages to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// Responses to requests, as they come.
    Requests,
    /// This WebSocket.
    Socket(SocketKey),
}

/// A connect that waits for its reply.
#[derive(Debug)]
pub struct Held {
    /// How its reply travels.
    pub via: HeldVia,
    /// Its message id.
    pub id: Option<bayeux::Id<'static>>,
    /// The member `timesync` of its reply's `ext`.
    pub timesync: Option<String>,
}

/// How the reply of a held connect travels.
#[derive(Debug, PartialEq, Eq)]
pub enum HeldVia {
    /// On the session's WebSocket.
    Socket,
    /// As the response to a request.
    Exchange(ExchangeId, HttpTransport),
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its client said goodbye.
    Disconnected,
    /// Its client was silent for too long.
    Expired,
    /// The server ended it.
    Kicked,
    /// It had not connected yet, and others wanted its place.
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
    /// How many there are.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Adds a session that has just shaken hands.
    pub fn insert(&mut self, id: Id, browser: Option<Id>, protocol: bayeux::Session, now_ms: u64) -> SessionKey {
        self.generation = self.generation.wrapping_add(1);
        let index = self.slab.insert(Session {
            stamp: 0,
            outbox: Outbox::default(),
            dirty: false,
            urgent: false,
            awaits_room: false,
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

    /// Takes a session out.
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

    /// The session at an index that the hub holds: it is there while it subscribes.
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

    /// Gives back the memory of most slots if most are empty. What stands behind a session stays.
    pub fn give_room_back(&mut self) {
        let len = self.slab.len();
        if self.slab.capacity() > ROOM_KEPT && len < self.slab.capacity() / 4 {
            self.slab.shrink_to_fit();
        }
        if self.ids.capacity() > ROOM_KEPT && len < self.ids.capacity() / 4 {
            let (hasher, slab) = (&self.hasher, &self.slab);
            self.ids.shrink_to(len * 2, |index| hasher.hash_one(slab[*index as usize].id));
        }
    }

    /// How many slots there are, each with a session or without.
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

/// Sessions that a table keeps room for.
const ROOM_KEPT: usize = 1_024;

impl Session {
    /// Its key, given where it stands.
    pub fn key(&self, index: u32) -> SessionKey {
        SessionKey { index, generation: self.generation }
    }

    /// True if a WebSocket brings it messages as they come.
    pub fn is_pushed_to(&self) -> bool {
        self.unacked.is_none() && !self.with_connects
    }

    /// Whether something could take messages right now. Nothing can while a response with older ones is on its way:
    /// if that fails, they have to come first.
    pub fn is_reachable(&self) -> bool {
        let pushed = matches!(self.attachment, Attachment::Socket(_)) && self.is_pushed_to();
        let answers = |held: &Held| matches!(held.via, HeldVia::Socket) || self.may_respond();
        (pushed || self.held.as_deref().is_some_and(answers)) && self.is_given()
    }

    /// Whether what waits may go out: no response with older messages is on its way, and nothing of it has to be withdrawn first.
    pub fn is_given(&self) -> bool {
        self.in_flight.is_none() && !self.awaits_withdrawal()
    }

    /// Whether one more response may take messages. One at a time does; a client that acknowledges may give up a response and
    /// ask again at once, as it gets nothing twice.
    pub fn may_respond(&self) -> bool {
        match self.unacked {
            Some(_) => self.responses < UNCONFIRMED_RESPONSES_MAX,
            None => self.in_flight.is_none(),
        }
    }

    /// Whether its held connect has something to bring it, and may.
    pub fn is_due(&self) -> bool {
        let over_http = || self.held.as_deref().is_some_and(|held| matches!(held.via, HeldVia::Exchange(..)));
        let owes = || over_http() && self.unacked.as_ref().is_some_and(|unacked| unacked.is_owing(None));
        self.is_reachable() && (!self.outbox.is_empty() || owes())
    }

    /// Whether its client is taking a response at the moment: then it is not silent.
    pub fn is_taking(&self) -> bool {
        self.in_flight.is_some() || self.responses > 0
    }

    /// Whether all that waits and all that may have to come again fits into one response, or before one reply on this WebSocket.
    pub fn fits(&self, socket: Option<SocketKey>, response_bytes_max: usize) -> bool {
        let fits = match (socket, &self.unacked) {
            (None, _) => self.outbox.bytes() <= response_bytes_max,
            (Some(_), None) => true,
            (Some(_), Some(unacked)) => unacked.fits(&self.outbox, socket),
        };
        fits && self.is_given()
    }

    /// Whether a connect on this WebSocket, or by a request, has something to bring it.
    pub fn has_something_for(&self, socket: Option<SocketKey>) -> bool {
        if self.awaits_withdrawal() {
            return false;
        }
        let has_news = self.replay.as_ref().is_some_and(|replay| replay.has_news());
        match &self.unacked {
            Some(unacked) => {
                (socket.is_some() || self.may_respond()) && (self.urgent || unacked.is_owing(socket) || has_news)
            }
            // While a response is on its way nothing more can be delivered: the connect waits for its fate.
            None => {
                let waits = self.urgent && (socket.is_none() || self.with_connects);
                self.in_flight.is_none() && (has_news || waits)
            }
        }
    }

    /// Lets go of messages that are not to come, or not again, as `keep` says, given the payload: wherever they wait.
    pub fn withdraw(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        self.outbox.filter(|_, payload| keep(payload));
        if let Some(in_flight) = &mut self.in_flight {
            self.outbox.withdraw(&mut in_flight.1, &mut keep);
        }
        if let Some(unacked) = &mut self.unacked {
            unacked.withdraw(&mut self.outbox, &mut keep);
        }
    }

    /// Messages that were handed out and may come back.
    pub fn handed_out(&self) -> impl Iterator<Item = &InFlight> {
        let unconfirmed = self.unacked.iter().flat_map(|unacked| unacked.messages());
        self.in_flight.iter().map(|in_flight| &in_flight.1).chain(unconfirmed)
    }

    /// Whether its held connect came as this request.
    pub fn is_held_on(&self, exchange: ExchangeId) -> bool {
        self.held.as_ref().is_some_and(|held| matches!(&held.via, HeldVia::Exchange(on, _) if *on == exchange))
    }

    /// When the shard has to look at it next, in milliseconds.
    pub fn deadline_ms(&self) -> u64 {
        let waits_for_client = self.is_taking() && !self.protocol.is_held();
        let protocol_ms = if waits_for_client { u64::MAX } else { self.protocol.deadline_ms() };
        protocol_ms.min(self.lazy_due_ms)
    }
}

/// Responses of an acknowledging session that may be on their way at once: what a client got no reply to, and what it asked for then.
const UNCONFIRMED_RESPONSES_MAX: u32 = 2;

impl Session {
    /// Whether it gets nothing, as what waits for it has to be searched first.
    pub(crate) fn awaits_withdrawal(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.withdrawn.is_some())
    }

    /// The WebSocket whose own outbox has messages of it: they went there with a connect reply. Of one that acknowledges the socket has
    /// parts of frames, and the messages are in the ledger.
    pub(crate) fn socket_with_messages(&self) -> Option<SocketKey> {
        match self.attachment {
            Attachment::Socket(socket) if self.with_connects && self.unacked.is_none() => Some(socket),
            _ => None,
        }
    }
}
