//! The records of the sessions of this node: written when something of a session has changed, so many in a second; looked at again
//! when the engine was away, or when a write finds another revision.
//!
//! ```text
//!             changed           written               conflict            another node's
//!   unknown ──────────▶ waits ──────────▶ recorded ─────────────▶ looks ────────────────▶ lost: the copy here ends
//!                         ▲                  │ ▲                    │
//!                         └──── changed ─────┘ └───── its own ──────┘
//! ```
//!
//! If the client relies on something that only the copy here has, such as a subscription, the session itself ends: its end replaces the
//! record of the other node, which learns of it, and the client begins again. It ends, too, if the other copy was not taken over from this
//! one: each take-over counts in the record, and a copy with no higher count was written after the engine has lost its keys.
//!
//! Of one key only one command is on its way. A session that has ended leaves its end, which goes by itself.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;
use encke_core::{Id, NodeTag, SessionOwner};
use foldhash::fast::RandomState;

use super::lines::{Line, Lines};
use super::own::{KeyCommand, Outcome, Own, Phase, hash_of, weight_of};
use super::record::{Content, Key, Record};
use super::unrecorded::{UNRECORDED_AFTER_MS, Unrecorded};
use super::{Decode, Past};
use crate::command::{Expected, KeyAnswer, KeyFailure, KeyReply, VALUE_BYTES_MAX};

/// The records of one node.
pub(super) struct Records {
    node: NodeTag,
    /// Writes in a second.
    pub(super) writes_per_s_max: usize,
    own: HashMap<Key, Own, RandomState>,
    /// Sessions that have to be written, and some that had to be.
    lines: Lines,
    /// Sessions that have waited for a binding write, or still do, and since when, in milliseconds.
    pub(super) binding: HashMap<Key, u64, RandomState>,
    /// Sessions whose record has to be read.
    looks: VecDeque<Key>,
    /// Sessions that have come back with this node and may have ended, until their records are read, or cannot be.
    pub(super) loading: HashSet<Key, RandomState>,
    /// Those that wait for a time, in milliseconds, before they are looked at.
    later: VecDeque<(u64, Key)>,
    on_way: usize,
    /// The end of the time in which the writes so far count, in milliseconds, and their number: a large one counts as several.
    window: (u64, usize),
    /// The time until which nothing is sent, because a command has failed, in milliseconds.
    paused_ms: u64,
    /// True if the last command has failed.
    pub(super) fails: bool,
    /// Records written, and commands that have failed.
    pub(super) written: u64,
    pub(super) failed: u64,
    /// The most bytes of a record.
    pub(super) record_bytes_max: usize,
    /// States that had more.
    pub(super) too_large: u64,
    decode: Decode,
}

impl Records {
    pub(super) fn new(node: NodeTag, writes_per_s_max: usize, decode: Decode) -> Records {
        Records {
            node,
            writes_per_s_max,
            own: HashMap::default(),
            lines: Lines::default(),
            binding: HashMap::default(),
            looks: VecDeque::new(),
            loading: HashSet::default(),
            later: VecDeque::new(),
            on_way: 0,
            window: (0, 0),
            paused_ms: 0,
            fails: false,
            written: 0,
            failed: 0,
            record_bytes_max: VALUE_BYTES_MAX,
            too_large: 0,
            decode,
        }
    }

    /// The number of sessions, and of those that wait for a write.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.own.len(), self.lines.len())
    }

    /// The state of a session has changed. One that is too large for a record leaves an empty one: the session begins again at a take-over.
    /// `subscribed_ms`: the time at which a subscription has changed, if one has, in milliseconds.
    pub(super) fn changed(&mut self, (id, owner): (Id, SessionOwner), mut state: Content, subscribed_ms: Option<u64>) {
        let key = Key::of(&id);
        if state.record_bytes() > self.record_bytes_max {
            self.too_large += 1;
            state = Content::empty();
        }
        let own = self.own.entry(key).or_insert_with(|| Own::of(id, 0, None));
        own.owner = owner;
        own.mark.take_if(|mark| state.mark.as_ref() != Some(mark));
        let hash = hash_of(&state);
        let is_known = match own.phase {
            Phase::Writes(on_way) => on_way == hash,
            _ => own.revision > 0 && own.written == hash,
        };
        if !is_known || own.pending.is_some() {
            own.pending = Some(state);
            if let Some(subscribed_ms) = subscribed_ms
                && !std::mem::replace(&mut own.is_binding, true)
            {
                self.binding.insert(key, subscribed_ms);
            }
            self.enqueue(key);
        }
    }

    /// A session has ended. `binds`: also where another node has a copy. True if that has to be written.
    pub(super) fn ended(&mut self, id: &Id, binds: bool) -> bool {
        let key = Key::of(id);
        let Some(own) = self.own.get_mut(&key) else { return false };
        own.is_binding |= binds;
        if std::mem::replace(&mut own.is_ended, true) {
            return true;
        }
        own.pending = None;
        if own.revision == 0 && !own.is_unsure && matches!(own.phase, Phase::Rests | Phase::Waits) {
            self.own.remove(&key);
            self.sweep();
            return false;
        }
        self.enqueue(key);
        true
    }

    /// Sessions have come back with this node. Their records tell if others have taken them, or ended them.
    pub(super) fn loaded(&mut self, ids: &[Id]) {
        for id in ids {
            let key = Key::of(id);
            self.own.entry(key).or_insert_with(|| Own { is_unsure: true, is_loaded: true, ..Own::of(*id, 0, None) });
            self.loading.insert(key);
            self.look(key);
        }
    }

    /// This node has taken a session.
    pub(super) fn taken(&mut self, own: Own) {
        self.own.insert(Key::of(&own.id), own);
    }

    /// A session is new here, unless it is known.
    pub(super) fn opened(&mut self, id: Id, past: Past) {
        self.own.entry(Key::of(&id)).or_insert_with(|| Own { past, ..Own::of(id, 0, None) });
    }

    /// The past of a session of this node, if it is known.
    pub(super) fn past(&self, key: &Key) -> Option<Past> {
        self.own.get(key).filter(|own| !own.is_loaded).map(|own| own.past)
    }

    /// The mark in the record from which this node has taken a session.
    pub(super) fn mark(&self, key: &Key) -> Option<Bytes> {
        self.own.get(key).and_then(|own| own.mark.clone())
    }

    /// True if the record of a session is as it has to be, or if the session is not here.
    pub(super) fn is_written(&self, key: &Key) -> bool {
        self.own.get(key).is_none_or(|own| own.pending.is_none() && own.phase == Phase::Rests && !own.is_unsure)
    }

    /// The sessions that another node must not go on with, should this one be gone.
    pub(super) fn unrecorded(&mut self, now_ms: u64) -> Unrecorded {
        self.sweep_binding();
        let Records { binding, own, .. } = self;
        // Without a record nobody goes on with it.
        let has_record = |own: &Own| own.revision > 0 || own.is_unsure || matches!(own.phase, Phase::Writes(_));
        let late = binding.iter().filter(|(_, since_ms)| **since_ms + UNRECORDED_AFTER_MS <= now_ms);
        let late = late.filter_map(|(key, _)| own.get(key).filter(|own| has_record(own)).map(|own| (*key, own.owner)));
        Unrecorded::of(late)
    }

    /// True if the record of a session has a mark, or is empty: then it may wait for a later one.
    pub(super) fn has_mark(&self, key: &Key) -> bool {
        self.own.get(key).is_some_and(|own| own.has_mark)
    }

    /// True if a command about the record of a session is on its way: it cannot be given away before that has ended.
    pub(super) fn is_busy(&self, key: &Key) -> bool {
        self.own.get(key).is_some_and(|own| matches!(own.phase, Phase::Writes(_) | Phase::Looks))
    }

    /// Forgets a session that has left this node. Returns the revision of its record; 0 if it has none.
    pub(super) fn forget(&mut self, key: &Key) -> u64 {
        self.own.remove(key).map_or(0, |own| own.revision)
    }

    /// The session with this key, if it is here.
    pub(super) fn id(&self, key: &Key) -> Option<Id> {
        self.own.get(key).map(|own| own.id)
    }

    /// The engine is there again: others may have taken sessions meanwhile.
    pub(super) fn look_again(&mut self) {
        let mut keys: Vec<Key> = self
            .own
            .iter()
            .filter(|(_, own)| own.revision > 0 && own.phase == Phase::Rests)
            .map(|(key, _)| *key)
            .collect();
        keys.sort_unstable();
        for key in keys {
            self.look(key);
        }
    }

    /// Another node says that it has taken a session, with this revision of its record: the record tells.
    pub(super) fn may_be_taken(&mut self, key: Key, revision: u64) {
        let Some(own) = self.own.get_mut(&key) else { return };
        own.later_revision = own.later_revision.max(revision);
        if own.phase == Phase::Rests {
            self.look(key);
        }
    }

    /// The next command, if one may be sent now.
    pub(super) fn next(&mut self, now_ms: u64) -> Option<KeyCommand> {
        if now_ms < self.paused_ms {
            return None;
        }
        while self.later.front().is_some_and(|(due_ms, _)| *due_ms <= now_ms)
            && let Some((_, key)) = self.later.pop_front()
        {
            self.looks.push_back(key);
        }
        while self.on_way < ON_WAY_MAX
            && let Some(key) = self.looks.pop_front()
        {
            if let Some(own) = self.own.get_mut(&key).filter(|own| own.phase == Phase::Waits) {
                own.phase = Phase::Looks;
                self.on_way += 1;
                return Some(KeyCommand::Read(key));
            }
        }
        while self.on_way < ON_WAY_MAX && self.may_write(now_ms) {
            let Records { lines, own, .. } = self;
            let (key, line) = lines.pop(|key, line| own.get(key).map_or(0, |own| own.weight_in(line)))?;
            let Some(own) = self.own.get_mut(&key).filter(|own| own.waits_in(line)) else { continue };
            own.line = None;
            let record = match (own.is_ended, own.pending.clone()) {
                (true, _) => Record::Ended,
                (false, Some(content)) => Record::Live { node: self.node, content: content.in_line(line) },
                (false, None) => {
                    own.phase = Phase::Rests;
                    self.go_on(key);
                    continue;
                }
            };
            let (hash, has_mark) = match &record {
                Record::Live { content, .. } => (hash_of(content), content.has_mark()),
                Record::Ended => (0, false),
            };
            own.has_mark &= has_mark;
            own.phase = Phase::Writes(hash);
            let expected = if own.revision == 0 { Expected::Absent } else { Expected::Revision(own.revision) };
            self.on_way += 1;
            self.window.1 += weight_of(&record);
            return Some(KeyCommand::Write(key, record, expected));
        }
        None
    }

    /// The time at which [`Records::next`] has something, if nothing is answered before.
    pub(super) fn next_ms(&self, now_ms: u64) -> Option<u64> {
        if self.on_way >= ON_WAY_MAX {
            return None;
        }
        let is_full = self.window.0 > now_ms && self.window.1 >= self.writes_in_window();
        let writes = (self.lines.len() > 0).then_some(if is_full { self.window.0 } else { now_ms });
        let looks = (!self.looks.is_empty()).then_some(now_ms);
        let next_ms = [writes, looks, self.later.front().map(|(due_ms, _)| *due_ms)].into_iter().flatten().min();
        next_ms.map(|next_ms| next_ms.max(self.paused_ms))
    }

    /// A command about this key has ended.
    pub(super) fn answered(&mut self, now_ms: u64, key: Key, answer: &KeyReply) -> Option<Outcome> {
        self.on_way = self.on_way.saturating_sub(1);
        self.fails = matches!(answer, Err(KeyFailure::Failed(_)));
        self.loading.remove(&key);
        if self.fails {
            // All may fail, as without JetStream.
            self.paused_ms = now_ms + RETRY_MS;
            self.loading.clear();
        }
        // A session that was forgotten and came back has no command on its way.
        let own = self.own.get_mut(&key)?;
        match (own.phase, answer) {
            (Phase::Writes(hash), Ok(KeyAnswer::Written(revision))) => {
                own.phase = Phase::Rests;
                (own.is_unsure, own.given_by) = (false, None);
                let is_written = |state: &Content| state.has_mark() && hash_of(state) == hash;
                own.has_mark = is_written(&Content::empty()) || own.pending.as_ref().is_some_and(is_written);
                self.written += 1;
                (own.revision, own.written) = (*revision, hash);
                if own.is_ended && hash == 0 {
                    let also_on = own.also_on;
                    self.own.remove(&key);
                    return also_on.map(|node| Outcome::Tell(node, *revision));
                }
                own.pending.take_if(|state| hash_of(state) == hash);
                own.is_binding &= own.is_ended || own.pending.is_some();
                self.go_on(key);
                None
            }
            (Phase::Looks, Ok(KeyAnswer::Found(found))) => {
                own.phase = Phase::Rests;
                own.is_unsure = false;
                self.found(now_ms, key, found.as_ref())
            }
            (Phase::Writes(_), Err(KeyFailure::Conflict)) => {
                own.phase = Phase::Rests;
                self.look(key);
                None
            }
            (Phase::Writes(hash), Err(KeyFailure::TooLarge)) if hash != hash_of(&Content::empty()) && hash != 0 => {
                own.phase = Phase::Rests;
                // One that has come meanwhile may be smaller.
                if own.pending.take_if(|state| hash_of(state) == hash).is_some() {
                    self.too_large += 1;
                    own.pending = Some(Content::empty());
                }
                self.go_on(key);
                None
            }
            (Phase::Writes(_) | Phase::Looks, _) => {
                // It may have been written: the record tells.
                self.failed += 1;
                own.phase = Phase::Waits;
                own.is_unsure = true;
                self.later.push_back((now_ms + RETRY_MS, key));
                None
            }
            (Phase::Rests | Phase::Waits, _) => None,
        }
    }

    /// Compares a record with what this node knows of it.
    fn found(&mut self, now_ms: u64, key: Key, found: Option<&(u64, Bytes)>) -> Option<Outcome> {
        let own = self.own.get_mut(&key)?;
        let (id, is_ended, was_loaded) = (own.id, own.is_ended, std::mem::take(&mut own.is_loaded));
        let Some((revision, value)) = found else {
            if own.also_on.is_some() {
                own.revision = 0;
                self.enqueue(key);
                return None;
            }
            if is_ended {
                self.own.remove(&key);
                return None;
            }
            (own.revision, own.written) = (0, 0);
            if own.pending.is_some() {
                self.enqueue(key);
                return None;
            }
            return Some(Outcome::Report(id));
        };
        let is_old = *revision < own.revision.max(own.later_revision) && !own.is_taken(value, self.decode);
        if is_old && own.old_reads < OLD_READS_MAX {
            own.old_reads += 1;
            own.phase = Phase::Waits;
            self.later.push_back((now_ms + RETRY_MS, key));
            return None;
        }
        // If it stays old, the engine has lost its keys, and revisions have begun again.
        (own.old_reads, own.later_revision) = (0, 0);
        match Record::read(value) {
            Some(Record::Live { node, content }) if node == self.node => {
                let outcome = own.is_recorded(*revision, content, was_loaded.then_some(self.decode));
                if outcome.is_none() {
                    self.go_on(key);
                }
                outcome
            }
            // It was given with this record.
            Some(Record::Live { node, .. }) if own.given_by == Some(node) && own.revision == *revision => {
                if is_ended || own.pending.is_some() {
                    self.enqueue(key);
                    return None;
                }
                Some(Outcome::Report(id))
            }
            Some(Record::Live { node, content }) => {
                let theirs = (self.decode)(&content.state);
                // The engine had lost its keys, and that node has written a copy from before this one took the session.
                let is_older = theirs.as_ref().is_some_and(|(_, past)| past.take_overs <= own.past.take_overs);
                let pending = own.pending.as_ref().and_then(|pending| (self.decode)(&pending.state));
                let has_them = pending.zip(theirs).is_some_and(|((ours, _), (theirs, _))| ours == theirs);
                if own.also_on.is_some() || is_older || (own.is_binding && !has_them) {
                    (own.revision, own.also_on, own.pending) = (*revision, Some(node), None);
                    own.is_ended = true;
                    self.enqueue(key);
                    return (!is_ended).then_some(Outcome::Lost(id, None));
                }
                self.own.remove(&key);
                (!is_ended).then_some(Outcome::Lost(id, Some(node)))
            }
            Some(Record::Ended) => {
                self.own.remove(&key);
                (!is_ended).then_some(Outcome::Lost(id, None))
            }
            // Of another version, or somebody else's: this node's own replaces it.
            None => {
                own.revision = *revision;
                own.written = 0;
                if is_ended || own.pending.is_some() {
                    self.enqueue(key);
                    return None;
                }
                Some(Outcome::Report(id))
            }
        }
    }

    /// Does what has come meanwhile: looks, if another node has reported a later revision, or writes.
    fn go_on(&mut self, key: Key) {
        let Some(own) = self.own.get(&key) else { return };
        if own.later_revision > own.revision {
            self.look(key);
        } else if own.is_ended || own.pending.is_some() {
            self.enqueue(key);
        }
    }

    fn enqueue(&mut self, key: Key) {
        let Some(own) = self.own.get_mut(&key) else { return };
        let needs_mark = !own.has_mark && own.pending.as_ref().is_some_and(Content::has_mark);
        let line = match own.phase {
            // The end of one that waits for something else is not delayed by that. Its key there has no effect.
            Phase::Rests | Phase::Waits if own.is_ended => Line::End,
            Phase::Rests if needs_mark => Line::Mark,
            Phase::Waits if needs_mark && own.waits_in(Line::Change) => Line::Mark,
            Phase::Rests => Line::Change,
            Phase::Waits | Phase::Writes(_) | Phase::Looks => return,
        };
        (own.phase, own.line) = (Phase::Waits, Some(line));
        self.lines.push(line, own.owner, key);
        self.sweep();
    }

    fn sweep_binding(&mut self) {
        let Records { binding, own, .. } = self;
        binding.retain(|key, _| own.get(key).is_some_and(|own| own.is_binding && !own.is_ended));
    }

    /// Forgets keys in lines that do not wait there any more, and those of binding writes, if these are many.
    fn sweep(&mut self) {
        if self.lines.len() > 2 * self.own.len() + SWEEP_FROM {
            let mut seen = HashSet::<Key, RandomState>::default();
            let Records { lines, own, .. } = self;
            lines.retain(|key, line| own.get(key).is_some_and(|own| own.waits_in(line)) && seen.insert(*key));
        }
        if self.binding.len() > 2 * self.own.len() + SWEEP_FROM {
            self.sweep_binding();
        }
    }

    fn look(&mut self, key: Key) {
        if let Some(own) = self.own.get_mut(&key) {
            (own.phase, own.line) = (Phase::Waits, None);
            self.looks.push_back(key);
        }
    }

    fn may_write(&mut self, now_ms: u64) -> bool {
        if now_ms >= self.window.0 {
            // Large records of the last time may count for this one, too.
            let windows = 1 + (now_ms - self.window.0) / WINDOW_MS;
            let paid = self.writes_in_window().saturating_mul(windows as usize);
            self.window = (now_ms + WINDOW_MS, self.window.1.saturating_sub(paid));
        }
        self.window.1 < self.writes_in_window()
    }

    fn writes_in_window(&self) -> usize {
        (self.writes_per_s_max * WINDOW_MS as usize / 1_000).max(1)
    }
}

/// Commands of records on their way.
const ON_WAY_MAX: usize = 64;
/// The keys of sessions that do not wait any more for which it is not worth to look.
const SWEEP_FROM: usize = 1_024;
/// The time over which writes are counted, in milliseconds.
const WINDOW_MS: u64 = 100;
/// Reads with a revision that is too low, one a second, after which that is the revision: no server of the engine is behind for so long.
const OLD_READS_MAX: u8 = 10;
/// The time before a record is looked at again after a failure, in milliseconds.
const RETRY_MS: u64 = 1_000;
