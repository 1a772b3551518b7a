//! Leases of a cluster, in the engine's keys: of the nodes that want one, one holds it, for work that runs once. [`Leases`] is a
//! deterministic machine like [`Node`](crate::Node), on the same engine.
//!
//! The holder writes the key again and again. Clocks are not compared: a key that has not changed for [`GONE_MS`], by the clock of another
//! node, has no holder any more, and that node writes itself into it, if it still has the revision that was seen. The holder counts its
//! time from when a write was sent, and gives up earlier ([`HOLDS_MS`]). So two never hold a lease at once, whatever the engine loses or delays.
//!
//! ```text
//!   free ──▶ claims ──▶ holds ── each BEAT_MS ──▶ holds
//!    ▲                    │ no write for HOLDS_MS, or another node's claim is seen
//!    └────────────────────┘
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::command::{Command, Expected, KeyAnswer, KeyReply};

/// Something to be done for [`Leases`].
#[derive(Debug, PartialEq, Eq)]
pub enum LeaseOutput {
    /// Run this command.
    Engine(Command),
    /// This node holds the lease with this name until a time in milliseconds, unless this comes again. None: it does not hold it any more.
    Holds(Box<str>, Option<u64>),
}

/// The leases of one node.
pub struct Leases {
    /// A random number that no other node and start has.
    node: u64,
    bucket: String,
    leases: BTreeMap<Box<str>, Lease>,
    /// The keys that this node does not want, with the times of their last changes, in milliseconds: it may want them later.
    others: BTreeMap<String, (Known, u64)>,
    last: u64,
    is_connected: bool,
    watches: bool,
    /// True if the running watch has reported all keys.
    is_complete: bool,
    outputs: Vec<LeaseOutput>,
}

/// A lease that this node wants.
#[derive(Default)]
struct Lease {
    key: String,
    /// The last value of the key, with its revision. None: there is none.
    known: Option<Known>,
    /// The time of its last change, in milliseconds.
    changed_ms: u64,
    /// The write on its way.
    write: Option<Write>,
    /// The time of the next write, in milliseconds.
    due_ms: u64,
    /// The time until which this node holds it, in milliseconds. None: it does not.
    until_ms: Option<u64>,
    /// True if the running watch has reported the key.
    is_reported: bool,
    /// True if it is given up when no write is on its way.
    is_given_up: bool,
}

#[derive(Clone, Copy)]
struct Write {
    /// The number of its command.
    number: u64,
    /// The time when it was sent, in milliseconds.
    sent_ms: u64,
    /// True if it gives the lease up.
    gives_up: bool,
}

#[derive(Clone, Copy)]
struct Known {
    revision: u64,
    /// None: the node that held it has given it up.
    holder: Option<u64>,
}

impl Leases {
    /// The number from which on commands are those of [`Leases`], up to those of [`Revocations`](crate::Revocations).
    pub const NUMBERS_FROM: u64 = 1 << 59;

    /// The leases of a node whose engine is away. `node` is random, and differs from that of every other node and start.
    pub fn new(node: u64, bucket: String) -> Leases {
        let (leases, others, outputs) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let (last, is_connected, watches) = (Leases::NUMBERS_FROM, false, false);
        Leases { node, bucket, leases, others, last, is_connected, watches, is_complete: false, outputs }
    }

    /// True if a command with this number is one of [`Leases`].
    pub fn has_sent(number: u64) -> bool {
        (Leases::NUMBERS_FROM..Leases::NUMBERS_FROM * 2).contains(&number)
    }

    /// The bucket of its keys.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// This node wants a lease.
    pub fn want(&mut self, now_ms: u64, name: &str) {
        let key = key_of(name);
        let lease = self.leases.entry(name.into()).or_insert_with(|| {
            let (known, changed_ms) = self.others.remove(&key).map_or((None, now_ms), |(known, ms)| (Some(known), ms));
            Lease { is_reported: known.is_some(), key, known, changed_ms, ..Lease::default() }
        });
        lease.is_given_up = false;
        self.watch();
    }

    /// This node no longer wants a lease.
    pub fn give_up(&mut self, name: &str) {
        if let Some(lease) = self.leases.get_mut(name) {
            lease.is_given_up = true;
        }
    }

    /// The engine is there.
    pub fn connected(&mut self, now_ms: u64) {
        if !std::mem::replace(&mut self.is_connected, true) {
            // Changes of the time in between were not seen.
            self.leases.values_mut().for_each(|lease| lease.changed_ms = now_ms);
            self.others.values_mut().for_each(|(_, changed_ms)| *changed_ms = now_ms);
            self.watch();
        }
    }

    /// The engine is away. The node holds what it holds until its time is over.
    pub fn disconnected(&mut self) {
        self.is_connected = false;
    }

    /// The node of a cluster without a lease needs no keys.
    fn watch(&mut self) {
        if self.is_connected && !self.leases.is_empty() && !std::mem::replace(&mut self.watches, true) {
            let watch = Command::Watch { bucket: self.bucket.clone(), prefix: String::new() };
            self.outputs.push(LeaseOutput::Engine(watch));
        }
    }

    /// A watch begins.
    pub fn watch_begins(&mut self) {
        self.is_complete = false;
        self.others.clear();
        self.leases.values_mut().for_each(|lease| lease.is_reported = false);
    }

    /// A watch has reported all keys.
    pub fn watch_is_complete(&mut self, now_ms: u64) {
        self.is_complete = true;
        for lease in self.leases.values_mut().filter(|lease| !lease.is_reported) {
            lease.learn(now_ms, None);
        }
    }

    /// A key is there, or has changed, or is gone.
    pub fn key_changed(&mut self, now_ms: u64, key: &str, revision: u64, value: Option<&Bytes>) {
        let own = self.node;
        let known = value.map(|value| Known { revision, holder: read(value) });
        let Some((name, lease)) = self.leases.iter_mut().find(|(_, lease)| lease.key == key) else {
            return self.note(now_ms, key, known);
        };
        // The first report of a watch counts: the engine may have lost its keys, and revisions begin again.
        let is_first = !std::mem::replace(&mut lease.is_reported, true);
        if !is_first && value.is_some() && lease.known.is_some_and(|known| known.revision >= revision) {
            return;
        }
        lease.learn(now_ms, known);
        let is_of_another = lease.known.is_some_and(|known| known.holder != Some(own));
        if is_of_another && lease.until_ms.take().is_some() {
            self.outputs.push(LeaseOutput::Holds(name.clone(), None));
        }
    }

    /// Notes a key that this node does not want.
    fn note(&mut self, now_ms: u64, key: &str, known: Option<Known>) {
        match known {
            None => _ = self.others.remove(key),
            Some(known) if self.others.len() < OTHERS_MAX || self.others.contains_key(key) => {
                self.others.insert(key.into(), (known, now_ms));
            }
            Some(_) => {}
        }
    }

    /// A write has its result.
    pub fn key_answered(&mut self, now_ms: u64, number: u64, answer: &KeyReply) {
        let own = self.node;
        let sent = |lease: &Lease| lease.write.filter(|write| write.number == number);
        let found = self.leases.iter_mut().find_map(|(name, lease)| Some((name, sent(lease)?, lease)));
        let Some((name, Write { sent_ms, gives_up, .. }, lease)) = found else { return };
        lease.write = None;
        if gives_up {
            // Nothing depends on it: without it the others wait a little longer.
            let revision = if let Ok(KeyAnswer::Written(revision)) = answer { Some(*revision) } else { None };
            lease.known = revision.map(|revision| Known { revision, holder: None });
            return;
        }
        if let Ok(KeyAnswer::Written(revision)) = answer
            && lease.known.is_none_or(|known| known.revision < *revision)
        {
            lease.learn(now_ms, Some(Known { revision: *revision, holder: Some(own) }));
        }
        // The watch may have brought something later.
        let is_own = answer.is_ok() && lease.known.is_some_and(|known| known.holder == Some(own));
        let until_ms = sent_ms + HOLDS_MS;
        if is_own && !lease.is_given_up && until_ms > now_ms {
            lease.due_ms = sent_ms + BEAT_MS;
            lease.until_ms = Some(until_ms);
            self.outputs.push(LeaseOutput::Holds(name.clone(), Some(until_ms)));
        } else {
            // It may have been executed: the watch shows it.
            lease.due_ms = now_ms + RETRY_MS;
        }
    }

    /// Writes what has to be written, and ends what is over. Call it after events, before [`Leases::take_outputs`].
    pub fn turn(&mut self, now_ms: u64) {
        let mut writes = Vec::new();
        for (name, lease) in &mut self.leases {
            if lease.until_ms.take_if(|until_ms| *until_ms <= now_ms || lease.is_given_up).is_some() {
                self.outputs.push(LeaseOutput::Holds(name.clone(), None));
            }
            if self.is_connected
                && self.is_complete
                && let Some((expected, holder)) = lease.wanted_write(now_ms, self.node)
            {
                writes.push((name.clone(), expected, holder));
            }
        }
        for (name, expected, holder) in writes {
            self.write(now_ms, &name, expected, holder);
        }
        let own = self.node;
        let is_over = |lease: &Lease| {
            let is_own = lease.known.is_some_and(|known| known.holder == Some(own));
            lease.is_given_up && lease.write.is_none() && !is_own
        };
        let over: Vec<Lease> = self.leases.extract_if(.., |_, lease| is_over(lease)).map(|(_, lease)| lease).collect();
        over.iter().for_each(|lease| self.note(lease.changed_ms, &lease.key, lease.known));
    }

    fn write(&mut self, now_ms: u64, name: &str, expected: Expected, holder: Option<u64>) {
        let Some(lease) = self.leases.get_mut(name) else { return };
        self.last += 1;
        let (number, bucket, key) = (self.last, self.bucket.clone(), lease.key.clone());
        lease.write = Some(Write { number, sent_ms: now_ms, gives_up: holder.is_none() });
        let put = Command::Put { number, bucket, key, value: write(holder), expected, ttl_ms: Some(TTL_MS) };
        self.outputs.push(LeaseOutput::Engine(put));
    }

    /// The time at which [`Leases::turn`] has something to do, if nothing happens before.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let of = |lease: &Lease| {
            let write_ms = (self.is_connected && self.is_complete).then(|| lease.next_ms(self.node)).flatten();
            [write_ms, lease.until_ms].into_iter().flatten().min()
        };
        self.leases.values().filter_map(of).min().map(|next_ms| next_ms.max(now_ms + 1))
    }

    /// The node stops: it gives up all leases.
    pub fn end(&mut self) {
        self.leases.values_mut().for_each(|lease| lease.is_given_up = true);
    }

    /// True if nothing is left to be given up.
    pub fn has_ended(&self) -> bool {
        self.leases.is_empty() || !self.is_connected
    }

    /// The number of leases that this node holds.
    pub fn held(&self) -> usize {
        self.leases.values().filter(|lease| lease.until_ms.is_some()).count()
    }

    /// Takes what has to be done, in order.
    pub fn take_outputs(&mut self) -> Vec<LeaseOutput> {
        std::mem::take(&mut self.outputs)
    }
}

impl Lease {
    fn learn(&mut self, now_ms: u64, known: Option<Known>) {
        let revision = |known: Option<Known>| known.map(|known| known.revision);
        if revision(known) != revision(self.known) {
            (self.known, self.changed_ms) = (known, now_ms);
        }
    }

    /// The time from which on this node writes the key, in milliseconds. None: while a write is on its way.
    fn next_ms(&self, own: u64) -> Option<u64> {
        if self.write.is_some() {
            return None;
        }
        Some(match self.known {
            Some(Known { holder: Some(holder), .. }) if holder == own && self.is_given_up => 0,
            Some(Known { holder: Some(holder), .. }) if holder == own => self.due_ms,
            _ if self.is_given_up => return None,
            Some(Known { holder: None, .. }) => self.due_ms,
            None if self.until_ms.is_some() => self.due_ms,
            // The engine may have lost it, and its holder goes on until its time is over.
            Some(Known { holder: Some(_), .. }) | None => self.due_ms.max(self.changed_ms + GONE_MS),
        })
    }

    /// The write that is due: the value that has to be there, and the holder.
    fn wanted_write(&self, now_ms: u64, own: u64) -> Option<(Expected, Option<u64>)> {
        self.next_ms(own).filter(|next_ms| *next_ms <= now_ms)?;
        let expected = self.known.map_or(Expected::Absent, |known| Expected::Revision(known.revision));
        Some((expected, Some(own).filter(|_| !self.is_given_up)))
    }
}

/// The key of a lease.
fn key_of(name: &str) -> String {
    crate::hex::of(&Sha256::digest(name.as_bytes())[..KEY_BYTES])
}

fn write(holder: Option<u64>) -> Bytes {
    let mut value = vec![VERSION];
    value.extend_from_slice(&holder.unwrap_or(NOBODY).to_le_bytes());
    value.into()
}

/// The holder of a value. A value of another version has a holder that nobody knows.
fn read(value: &Bytes) -> Option<u64> {
    let holder = value.strip_prefix(&[VERSION]).and_then(|rest| Some(u64::from_le_bytes(rest.try_into().ok()?)));
    holder.map_or(Some(u64::MAX), |holder| Some(holder).filter(|holder| *holder != NOBODY))
}

const VERSION: u8 = 1;
/// Keys that are noted and that this node does not want.
const OTHERS_MAX: usize = 16_384;
/// The number that is no node.
const NOBODY: u64 = 0;
/// The bytes of the hash in a key.
const KEY_BYTES: usize = 16;
/// The time between two writes of the holder, in milliseconds.
const BEAT_MS: u64 = 1_500;
/// The time for which a write holds for the holder, from when it was sent, in milliseconds.
pub(crate) const HOLDS_MS: u64 = 4_000;
/// The time after which a key that does not change has no holder, in milliseconds: longer than [`HOLDS_MS`].
pub(crate) const GONE_MS: u64 = 6_000;
/// The pause after a write has failed, in milliseconds.
const RETRY_MS: u64 = 300;
/// The time after which a key that nobody writes goes, in milliseconds: a day.
const TTL_MS: u64 = 24 * 3_600_000;
