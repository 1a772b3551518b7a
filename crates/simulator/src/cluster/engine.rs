//! The engine of a simulated cluster: it obeys the contract of `ClusterEngine`, and otherwise does what it may. It knows connections, and
//! not nodes: a node that is cut off comes back with another connection.

use std::collections::BTreeMap;

use bytes::Bytes;
use encke_cluster::{Expected, JournalValue, KeyAnswer, KeyFailure, KeyReply};

use super::sabotage::ClusterSabotage;

/// A connection of a node. Each has another number.
pub(super) type Conn = u64;

/// The engine.
#[derive(Default)]
pub(super) struct Engine {
    subscriptions: Vec<Subscription>,
    watches: Vec<(Conn, String, String)>,
    keys: BTreeMap<(String, String), Key>,
    /// The values of each journal.
    journals: BTreeMap<String, Vec<Stored>>,
    revision: u64,
    sabotage: ClusterSabotage,
}

/// The revision of a value of a journal, the time at which it came, in milliseconds, and the value.
type Stored = (u64, u64, Bytes);

struct Subscription {
    conn: Conn,
    key: u64,
    subject: String,
}

/// A key of a bucket.
#[derive(Clone, Default)]
struct Key {
    revision: u64,
    value: Option<Bytes>,
    written_ms: u64,
    /// The value before the last write.
    before: Option<(u64, Option<Bytes>)>,
}

/// A key, its revision and its value.
pub(super) type Change = (String, u64, Option<Bytes>);

impl Engine {
    pub(super) fn new(sabotage: ClusterSabotage) -> Engine {
        Engine { sabotage, ..Engine::default() }
    }

    pub(super) fn subscribe(&mut self, conn: Conn, key: u64, subject: String) {
        self.subscriptions.push(Subscription { conn, key, subject });
    }

    pub(super) fn unsubscribe(&mut self, conn: Conn, key: u64) {
        self.subscriptions.retain(|of| (of.conn, of.key) != (conn, key));
    }

    /// Forgets the subscriptions that a subject matches exactly.
    pub(super) fn forget_subject(&mut self, subject: &str) {
        self.subscriptions.retain(|of| of.subject != subject);
    }

    /// The subscriptions of others that match a subject: those of one connection in the order in which they were made.
    pub(super) fn matching(&self, from: Conn, subject: &str) -> Vec<(Conn, u64)> {
        let matching = self.subscriptions.iter().filter(|of| of.conn != from && matches(&of.subject, subject));
        matching.map(|of| (of.conn, of.key)).collect()
    }

    pub(super) fn watch(&mut self, conn: Conn, bucket: &str, prefix: &str) {
        self.watches.push((conn, bucket.into(), prefix.into()));
    }

    /// The connections that watch a key.
    pub(super) fn watching(&self, bucket: &str, key: &str) -> Vec<(Conn, String)> {
        let watches = |(_, of, prefix): &&(Conn, String, String)| of == bucket && key.starts_with(prefix.as_str());
        self.watches.iter().filter(watches).map(|(conn, _, prefix)| (*conn, prefix.clone())).collect()
    }

    /// The keys with a prefix: for each its value now, and the one before.
    pub(super) fn keys_of(&self, bucket: &str, prefix: &str) -> Vec<(Change, Option<Change>)> {
        let of = |((of, key), state): (&(String, String), &Key)| {
            let before = state.before.clone().map(|(revision, value)| (key.clone(), revision, value));
            let is_there = state.value.is_some() && of == bucket && key.starts_with(prefix);
            is_there.then(|| ((key.clone(), state.revision, state.value.clone()), before))
        };
        self.keys.iter().filter_map(of).collect()
    }

    /// A connection ends, with all that it has.
    pub(super) fn end(&mut self, conn: Conn) {
        self.subscriptions.retain(|of| of.conn != conn);
        self.watches.retain(|(of, ..)| *of != conn);
    }

    /// Reads a key. The value may be one that was replaced a moment ago.
    pub(super) fn get(&self, now_ms: u64, bucket: &str, key: &str, is_old: bool) -> KeyAnswer {
        let Some(state) = self.keys.get(&(bucket.into(), key.into())) else { return KeyAnswer::Found(None) };
        let found = |revision: u64, value: &Option<Bytes>| value.clone().map(|value| (revision, value));
        match &state.before {
            Some((revision, value)) if is_old && now_ms < state.written_ms + OLD_MS => {
                KeyAnswer::Found(found(*revision, value))
            }
            _ => KeyAnswer::Found(found(state.revision, &state.value)),
        }
    }

    /// Writes or removes a key, if it has the expected revision.
    pub(super) fn put(
        &mut self,
        now_ms: u64,
        (bucket, key): (&str, &str),
        value: Option<Bytes>,
        expected: Expected,
    ) -> KeyReply {
        let last = self.keys.get(&(bucket.into(), key.into())).cloned().unwrap_or_default();
        let revision = if last.value.is_some() { last.revision } else { 0 };
        let is_fenced = match self.sabotage {
            ClusterSabotage::UnfencedHistories => !bucket.ends_with("histories"),
            ClusterSabotage::UnfencedSessions => !bucket.ends_with("sessions"),
            _ => true,
        };
        let is_expected = match expected {
            Expected::Any => true,
            Expected::Absent => revision == 0,
            Expected::Revision(of) => of == revision,
        };
        if is_fenced && !is_expected {
            return Err(KeyFailure::Conflict);
        }
        self.revision += 1;
        let before = last.value.is_some().then_some((last.revision, last.value));
        let state = Key { revision: self.revision, value, written_ms: now_ms, before };
        self.keys.insert((bucket.into(), key.into()), state);
        Ok(KeyAnswer::Written(self.revision))
    }

    /// Adds a value to a journal, if the expected one is the last.
    pub(super) fn append(&mut self, now_ms: u64, journal: &str, value: Bytes, after: u64) -> KeyReply {
        let values = self.journals.entry(journal.into()).or_default();
        if values.last().map_or(0, |(revision, ..)| *revision) != after {
            return Err(KeyFailure::Conflict);
        }
        self.revision += 1;
        values.push((self.revision, now_ms, value));
        Ok(KeyAnswer::Written(self.revision))
    }

    /// Reads some values of a journal.
    pub(super) fn read_journal(&self, now_ms: u64, journal: &str, from: u64) -> KeyAnswer {
        let values = self.journals.get(journal).map_or(&[][..], Vec::as_slice);
        let of = |(revision, came_ms, value): &Stored| JournalValue {
            revision: *revision,
            age_ms: now_ms - came_ms,
            value: value.clone(),
        };
        let from_there = values.iter().filter(|(revision, ..)| *revision >= from);
        let last = values.last().map(|(revision, _, value)| (*revision, value.clone()));
        KeyAnswer::Values { values: from_there.take(READ_VALUES).map(of).collect(), last }
    }

    /// Removes a key whose time is over. True if it was there.
    pub(super) fn expire(&mut self, bucket: &str, key: &str, revision: u64) -> bool {
        let state = self.keys.get_mut(&(bucket.to_owned(), key.to_owned()));
        let state = state.filter(|state| state.revision == revision && state.value.is_some());
        state.map(|state| state.value = None).is_some()
    }

    /// Loses all keys and journals.
    pub(super) fn lose_keys(&mut self) {
        self.keys.clear();
        self.journals.clear();
        self.revision = 0;
    }
}

/// True if a subscription matches a subject.
fn matches(subscription: &str, subject: &str) -> bool {
    let (mut wanted, mut tokens) = (subscription.split('.'), subject.split('.'));
    loop {
        match (wanted.next(), tokens.next()) {
            (None, None) | (Some(">"), Some(_)) => return true,
            (Some("*"), Some(_)) => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

/// The time for which the value before a write may still be read, in milliseconds.
const OLD_MS: u64 = 300;
/// The values of a journal in one answer.
const READ_VALUES: usize = 5;
