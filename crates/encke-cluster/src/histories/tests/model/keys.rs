//! The keys of the engine, and who watches them.

use bytes::Bytes;

use super::{Arrival, Cluster, Member, What};
use crate::command::{Expected, KeyAnswer, KeyFailure, KeyReply};
use crate::histories::claim::Claim;
use crate::histories::entry::NodeId;

impl Cluster {
    pub(super) fn write(&mut self, key: String, value: Option<Bytes>, expected: Expected) -> KeyReply {
        let before = self.keys.get(&key).map(|(revision, value, _)| (*revision, value.clone()));
        let last = before.as_ref().map_or(0, |(revision, _)| *revision);
        if !expected.allows(last) {
            return Err(KeyFailure::Conflict);
        }
        if let (Some((_, old)), Some(new)) = (&before, &value) {
            self.check_claims(&key, old, new);
        }
        self.revision += 1;
        let revision = self.revision;
        match &value {
            Some(value) => _ = self.keys.insert(key.clone(), (revision, value.clone(), before)),
            None => _ = self.keys.remove(&key),
        }
        for node in 0..self.members.len() {
            if self.members[node].watches && self.members[node].is_connected {
                let arrival = Arrival::Key(key.clone(), revision, value.clone());
                self.report(node, arrival);
            }
        }
        Ok(KeyAnswer::Written(revision))
    }

    /// A partition begins again only if nobody is there who has its messages; or, when the engine has lost its keys, if one of those that
    /// may have had more is not there.
    fn check_claims(&mut self, key: &str, old: &[u8], new: &[u8]) {
        let (Some(old), Some(new)) = (Claim::read(old), Claim::read(new)) else { return };
        if !key.starts_with("p.") {
            return;
        }
        if old.lineage == new.lineage {
            if old.is_restored() && !new.is_restored() {
                self.rolled_back.remove(key);
            }
            return;
        }
        let mut in_sync = self.members.iter().filter(|member| old.has(NodeId(member.node)));
        let is_gone = |member: &Member| member.absence.is_seen(self.now_ms);
        // After a loss nobody knows who was in sync last.
        let is_certain = !self.rolled_back.contains(key);
        let may_begin = match old.is_restored() {
            _ if !is_certain => self.members.iter().any(is_gone),
            true => in_sync.any(is_gone),
            false => in_sync.all(is_gone),
        };
        // A node that reads its journal has nothing else.
        let may_begin = may_begin || (old.owner == new.owner && self.journals.have_gaps());
        assert!(may_begin, "{key} begins again though others have it: {old:?}");
    }

    /// The engine loses the last write of each claim, if it is one of the same owner as that before.
    pub(in super::super) fn lose_last_claims(&mut self) {
        let term = |value: &Bytes| Claim::read(value).map(|claim| claim.term());
        for (_, stored) in self.keys.iter_mut().filter(|(key, _)| key.starts_with("p.")) {
            if let Some((revision, value)) = stored.2.take_if(|(_, before)| term(before) == term(&stored.1)) {
                (stored.0, stored.1) = (revision, value);
            }
        }
    }

    /// Remembers the keys as they are now.
    pub(in super::super) fn save_keys(&mut self) {
        self.saved.push_back((self.now_ms, self.revision, self.keys.clone()));
        if self.saved.len() > SAVED_MAX {
            self.saved.pop_front();
        }
    }

    /// The engine has the keys of this many savings ago again, if all nodes that live know what has happened since then: nothing says what
    /// nobody knows who is there.
    pub(in super::super) fn restore_keys(&mut self, savings: usize) {
        let saved = self.saved.len().checked_sub(savings).and_then(|index| self.saved.get(index));
        let mut alive = self.members.iter().filter(|member| member.is_alive);
        if saved.is_some_and(|(saved_ms, ..)| alive.all(|member| member.absence.was_there_since(*saved_ms))) {
            self.roll_back(savings);
        }
    }

    /// The engine has the keys of this many savings ago again.
    pub(in super::super) fn roll_back(&mut self, savings: usize) {
        let index = self.saved.len() - savings;
        let (_, revision, keys) = self.saved[index].clone();
        self.saved.truncate(index + 1);
        self.rolled_back.extend(self.keys.keys().cloned());
        (self.revision, self.keys) = (revision, keys);
        self.break_connections();
    }

    pub(super) fn break_connections(&mut self) {
        for node in 0..self.members.len() {
            if self.members[node].is_connected {
                self.disconnect(node);
                self.connect(node);
            }
        }
    }

    pub(super) fn report(&mut self, node: usize, arrival: Arrival) {
        let late_ms = if self.dice.happens(self.faults.reports_late) { self.dice.random(2_000) } else { 0 };
        let (delay_ms, life) = (self.delay_ms() + late_ms, self.lives[node]);
        self.add_in_order((usize::MAX, node, false), delay_ms, What::ToNode { node, life, arrival });
    }

    pub(super) fn begin_watch(&mut self, node: usize) {
        self.report(node, Arrival::WatchBegins);
        let all: Vec<_> = self.keys.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut late = Vec::new();
        for (key, (revision, value, before)) in all {
            match before {
                Some((older, old)) if self.dice.happens(self.faults.reads_old) => {
                    self.report(node, Arrival::Key(key.clone(), older, Some(old)));
                    late.push(Arrival::Key(key, revision, Some(value)));
                }
                _ => self.report(node, Arrival::Key(key, revision, Some(value))),
            }
        }
        self.report(node, Arrival::WatchComplete);
        late.into_iter().for_each(|arrival| self.report(node, arrival));
    }
}

/// The savings of keys that are there.
const SAVED_MAX: usize = 12;
