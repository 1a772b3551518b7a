//! The table of all sessions of a shard.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use slab::Slab;

use crate::application::Actions;
use crate::events::SessionKey;
use crate::limits::sessions::{SessionOwner, Standing};
use crate::outbox::Outbox;
use crate::rights::table::{Granted, Right};
use crate::schedule::Marks;
use crate::sessions::id::Id;
use crate::sessions::newcomers::{Newcomers, Origins};
use crate::sessions::owners::Owners;
use crate::sessions::session::{Attachment, Confirmation, Owner, Session};

/// All sessions of a shard, by index and by id.
#[derive(Debug, Default)]
pub struct Sessions {
    slab: Slab<Session>,
    ids: HashTable<u32>,
    hasher: RandomState,
    generation: u32,
    /// The sessions of each user and token.
    pub(crate) owners: Owners,
    /// Those that have not connected yet.
    pub(crate) newcomers: Newcomers,
    /// Actions that the application requested when sessions ended.
    pub(crate) deferred_actions: VecDeque<Actions>,
}

impl Sessions {
    /// No sessions. `hasher`: that of all shards.
    pub(crate) fn new(hasher: RandomState) -> Sessions {
        Sessions { newcomers: Newcomers::new(hasher), ..Sessions::default() }
    }

    /// The number of sessions.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Adds a session that may be opened, and that counts for this owner.
    pub(crate) fn insert(
        &mut self,
        (granted, owner): (Granted, SessionOwner),
        id: Id,
        browser: Option<Id>,
        protocol: bayeux::Session,
        confirmation: Confirmation,
        now_ms: u64,
    ) -> SessionKey {
        granted.use_for(Right::Handshake);
        self.generation = self.generation.wrapping_add(1);
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
            owner: None,
            buckets: None,
            generation: self.generation,
            standing: Standing::of(owner),
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

    /// Takes the owner of a session out of it, and out of the lists of users and tokens.
    pub(crate) fn take_owner(&mut self, key: SessionKey) -> Option<Box<Owner>> {
        let owner = self.get_mut(key)?.owner.take()?;
        for (at, moved) in self.owners.remove(&owner.identity, owner.slots).into_iter().enumerate() {
            if let Some(other) = moved.and_then(|moved| self.get_mut(moved)?.owner.as_mut()) {
                other.slots[at] = owner.slots[at];
            }
        }
        Some(owner)
    }

    /// Adds a session to those that have not connected yet.
    pub(crate) fn add_newcomer(&mut self, key: SessionKey, origins: Origins) {
        let Some(owner) = self.owner_of(key) else { return };
        let position = self.newcomers.add(key, owner, origins);
        if let Some(session) = self.get_mut(key) {
            session.standing = Standing::newcomer(position);
        }
    }

    /// Removes a session from those that have not connected yet. Returns false if it was not among them.
    pub(crate) fn leave_newcomers(&mut self, key: SessionKey) -> bool {
        let (Some(owner), Some(session)) = (self.owner_of(key), self.get_mut(key)) else { return false };
        let before = std::mem::replace(&mut session.standing, Standing::of(owner));
        before.owner().map_err(|position| self.newcomers.remove(position)).is_err()
    }

    /// The owner that a session counts for below `sessions_max`.
    pub(crate) fn owner_of(&self, key: SessionKey) -> Option<SessionOwner> {
        self.get(key)?.standing.owner().or_else(|position| self.newcomers.owner_of(position).ok_or(())).ok()
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
