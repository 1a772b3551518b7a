//! Users whose sessions somebody has ended. A mark is a random number that stands for the order. A session that was opened by a node that
//! knew the mark has it in its record; one without it was opened before, and ends where somebody takes it over or restores it.
//!
//! ```text
//!   order ──▶ mark 7 of ann ──▶ all nodes, and the engine's keys
//!   ann opens a session ──▶ its record: mark 7       taken over: goes on
//!   an older record: no mark, or another one         taken over: ends
//! ```
//!
//! So no clocks and no revisions are compared, and records of users without marks are as before.

use std::collections::{HashMap, VecDeque};

use encke_core::{FromNodes, Id, Saved, ShardMessage};
use foldhash::fast::RandomState;

use super::record::Key;
use super::{Output, Sessions};
use crate::user_ends;

/// The state of a session that only the cluster knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// The times that it was taken over from a record.
    pub take_overs: u32,
    /// The mark of its user that its node knew when it has connected. 0: none.
    pub user_mark: u64,
}

/// The marks that a node knows.
#[derive(Default)]
pub(super) struct UserMarks {
    all: HashMap<[u8; HASH_BYTES], u64, RandomState>,
    /// Oldest first: the times at which they go, in milliseconds, and the marks, of which a user may have got a later one.
    order: VecDeque<(u64, [u8; HASH_BYTES], u64)>,
    /// Marks that have given way to new ones before their time.
    pub(super) dropped: u64,
}

impl UserMarks {
    /// Notes a mark until this time. False if it is known.
    fn note(&mut self, user: &str, mark: u64, until_ms: u64) -> bool {
        let hash = hash_of(user);
        if mark == 0 || self.all.insert(hash, mark) == Some(mark) {
            return false;
        }
        self.order.push_back((until_ms, hash, mark));
        while self.all.len() > USERS_MAX {
            self.dropped += 1;
            self.forget_first();
        }
        // Many marks of one user are one.
        if self.order.len() > 2 * self.all.len() + SWEEP_FROM {
            let all = &self.all;
            self.order.retain(|(_, hash, mark)| all.get(hash) == Some(mark));
        }
        true
    }

    /// Forgets marks whose time is over.
    fn sweep(&mut self, now_ms: u64) {
        while self.order.front().is_some_and(|(until_ms, ..)| *until_ms <= now_ms) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, hash, mark)) = self.order.pop_front()
            && self.all.get(&hash) == Some(&mark)
        {
            self.all.remove(&hash);
        }
    }

    /// Their number.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The mark of a session's user. 0 if it has none.
    pub(super) fn of(&self, saved: &Saved) -> u64 {
        if self.all.is_empty() {
            return 0;
        }
        let identity = saved.sessions.first().and_then(|session| session.identity.as_ref());
        identity.and_then(|identity| self.all.get(&hash_of(&identity.user)).copied()).unwrap_or(0)
    }

    /// True if a session was opened before its user's mark.
    pub(super) fn end(&self, saved: &Saved, past: Past) -> bool {
        let mark = self.of(saved);
        mark != 0 && mark != past.user_mark
    }
}

impl Sessions {
    /// All sessions of a user have ended by the order with this mark, which is not 0. False if that is known: then those of this node end, or have
    /// ended.
    pub fn mark_user(&mut self, now_ms: u64, user: &str, mark: u64) -> bool {
        self.user_marks.sweep(now_ms);
        self.user_marks.note(user, mark, now_ms + self.order_ttl_ms())
    }

    /// Ends a session of this node, whose user has this mark, if it was opened before. One that has come back with its node tells when its
    /// record is read.
    pub fn end_older(&mut self, session: &Id, mark: u64) {
        let past = self.records.past(&Key::of(session));
        if past.is_some_and(|past| past.user_mark != mark) {
            self.disconnect(session);
        }
    }

    /// Ends a session of this node from the server's side.
    fn disconnect(&mut self, session: &Id) {
        let message = ShardMessage::Disconnect(*session, None);
        self.outputs.push(Output::Shard(self.shard_of(session), message));
    }

    /// The record of a session that has come back with its node says its past. It ends if its user has a later mark.
    pub(super) fn has_past(&mut self, id: &Id, state: &[u8]) {
        let Some((saved, past)) = (self.settings.decode)(state) else { return };
        if self.user_marks.end(&saved, past) {
            self.disconnect(id);
        } else {
            // The reports so far do not have it.
            self.tell_shard(id, FromNodes::Report(*id));
        }
    }

    /// The past of a session of this node; of one that is new, what is known of its user.
    pub(super) fn past_of(&self, key: &Key, saved: &Saved) -> Past {
        let new = || Past { take_overs: 0, user_mark: self.user_marks.of(saved) };
        self.records.past(key).unwrap_or_else(new)
    }
}

fn hash_of(user: &str) -> [u8; HASH_BYTES] {
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(&user_ends::hash_of(user)[..HASH_BYTES]);
    hash
}

/// The bytes of a user's hash.
const HASH_BYTES: usize = 16;
/// Users with marks, of some 80 bytes each. The oldest give way.
const USERS_MAX: usize = 128 * 1_024;
/// Marks that do not hold any more for which it is not worth to look.
const SWEEP_FROM: usize = 1_024;
