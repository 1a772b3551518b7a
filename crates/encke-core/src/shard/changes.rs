//! The sessions of a shard that have changed since they were reported to the cluster. Their owners take turns, so one with many large sessions
//! delays no other.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::events::SessionKey;
use crate::limits::sessions::SessionOwner;
use crate::limits::turns::Turns;

/// The changes that have to be reported.
#[derive(Debug, Default)]
pub(super) struct Changes {
    sessions: HashMap<SessionKey, Change, RandomState>,
    /// Each of them once, and some that were reported meanwhile.
    turns: Turns<SessionOwner, SessionKey>,
}

/// A change of a session, which has a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    /// True until it is reported.
    is_due: bool,
    /// True if a subscription is part of it.
    pub(super) has_subscribed: bool,
}

impl Changes {
    /// Notes a change of a session. `owner`: asked if it has no turn yet.
    pub(super) fn note(&mut self, key: SessionKey, owner: impl FnOnce() -> Option<SessionOwner>) -> &mut Change {
        let change = self.sessions.entry(key).or_insert_with(|| {
            self.turns.push(owner().unwrap_or_default(), key);
            Change::default()
        });
        change.is_due = true;
        change
    }

    /// True if nothing has changed.
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// True if a subscription of a session has changed.
    pub(super) fn has_subscribed(&self, key: SessionKey) -> bool {
        self.sessions.get(&key).is_some_and(|change| change.has_subscribed)
    }

    /// The change of a session, which is reported now.
    pub(super) fn take(&mut self, key: SessionKey) -> Change {
        self.sessions.get_mut(&key).map(std::mem::take).unwrap_or_default()
    }

    /// The next session in turn that has to be reported. `weight`: how heavy that is.
    pub(super) fn next(&mut self, weight: impl Fn(SessionKey) -> usize) -> Option<(SessionKey, Change)> {
        let Changes { sessions, turns } = self;
        while let Some(key) = turns.pop(|key| {
            let is_due = sessions.get(key).is_some_and(|change| change.is_due);
            if is_due { weight(*key) as u64 } else { 0 }
        }) {
            if let Some(change) = sessions.remove(&key).filter(|change| change.is_due) {
                return Some((key, change));
            }
        }
        // Returns the memory that many sessions needed at once.
        self.sessions = HashMap::default();
        None
    }
}
