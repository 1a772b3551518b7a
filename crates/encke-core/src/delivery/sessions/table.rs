//! The table of all sessions of a shard.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use slab::Slab;

use crate::delivery::outbox::Outbox;
use crate::delivery::schedule::Marks;
use crate::delivery::sessions::session::{Attachment, Confirmation, Session};
use crate::events::SessionKey;
use crate::id::Id;
use crate::rights::table::{Granted, Right};

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

    /// Adds a session that may be opened.
    pub(crate) fn insert(
        &mut self,
        granted: Granted,
        id: Id,
        browser: Option<Id>,
        protocol: bayeux::Session,
        confirmation: Confirmation,
        now_ms: u64,
    ) -> SessionKey {
        granted.use_for(Right::Handshake);
        self.generation = self.generation.wrapping_add(1).max(1);
        let index = self.slab.insert(Session {
            stamp: 0,
            outbox: Outbox::default(),
            marks: Marks::default(),
            urgent: false,
            attachment: Attachment::default(),
            confirmation,
            responses: 0,
            replay: None,
            protocol,
            id,
            browser,
            generation: self.generation,
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

    /// The session in a slot, for reading.
    pub fn seen_in_slot(&self, slot: usize) -> Option<&Session> {
        self.slab.get(slot)
    }

    /// The session in a slot, if there is one.
    pub fn in_slot(&mut self, slot: usize) -> Option<&mut Session> {
        self.slab.get_mut(slot)
    }

    /// The keys of all sessions.
    pub fn keys(&self) -> Vec<SessionKey> {
        self.with_keys().map(|(key, _)| key).collect()
    }
}

/// Tables with at most this capacity are not shrunk.
const ROOM_RETAINED: usize = 64;
