//! Revoked tokens of a cluster, in the engine's keys: each node writes those that it revokes, and watches those of all. [`Revocations`] is a
//! deterministic machine like [`Node`](crate::Node), on the same engine.
//!
//! A key is the hash of a token's id, and goes when the token has expired. What this node has revoked while the engine was away, or what
//! the engine has lost, is written when a watch has reported all keys.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use foldhash::fast::RandomState;
use sha2::{Digest as _, Sha256};

use crate::command::{Command, Expected, KeyReply, VALUE_BYTES_MAX};
use crate::hex;
use crate::user_ends::{self, MarkShares, UserEnd};

/// Something to be done for [`Revocations`].
#[derive(Debug, PartialEq, Eq)]
pub enum RevocationOutput {
    /// Run this command.
    Engine(Command),
    /// A node has revoked this token, until a time in milliseconds since 1970.
    Revoked(Box<str>, u64),
    /// All sessions of a user have ended by the order with this mark.
    UserEnded(Box<str>, u64),
    /// All keys are reported: call [`Revocations::compare`].
    Complete,
    /// The revocation or the mark for which this one waits is written, or not.
    Written(u64, bool),
}

/// The counts of [`Revocations`] since its start, and its sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RevocationCounts {
    /// Revocations written.
    pub written: u64,
    /// Writes that have failed.
    pub failed: u64,
    /// Revocations that wait to be written.
    pub waiting: usize,
    /// Keys that are none of a revocation.
    pub rejected: u64,
}

/// The revocations of one node, as far as other nodes are concerned.
pub struct Revocations {
    bucket: String,
    /// Writes on their way. With the one that waits for it, if any.
    sent: HashMap<u64, (Revocation, Option<u64>), RandomState>,
    /// Marks of users on their way, with the one that waits for each, if any.
    marking: HashMap<u64, Option<u64>, RandomState>,
    shares: MarkShares,
    last: u64,
    /// Revocations that nobody waits for, and that have to be written.
    missing: VecDeque<Revocation>,
    /// The time from which on they are written, in milliseconds.
    due_ms: u64,
    /// The keys that the running watch has reported, with their ends, until it has reported all.
    reported: Option<HashMap<Box<str>, u64, RandomState>>,
    is_connected: bool,
    watches: bool,
    is_settled: bool,
    outputs: Vec<RevocationOutput>,
    counts: RevocationCounts,
}

/// A token, and the time until which it is revoked, in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Revocation {
    token_id: Box<str>,
    until_ms: u64,
}

impl Revocations {
    /// The number from which on commands are those of [`Revocations`], up to those of [`RemoteCalls`](crate::RemoteCalls).
    pub const NUMBERS_FROM: u64 = 1 << 60;

    /// The revocations of a node whose engine is away.
    pub fn new(bucket: String) -> Revocations {
        Revocations {
            bucket,
            sent: HashMap::default(),
            marking: HashMap::default(),
            shares: MarkShares::default(),
            last: Revocations::NUMBERS_FROM,
            missing: VecDeque::new(),
            due_ms: 0,
            reported: None,
            is_connected: false,
            watches: false,
            is_settled: false,
            outputs: Vec::new(),
            counts: RevocationCounts::default(),
        }
    }

    /// True if a command with this number is one of [`Revocations`].
    pub fn has_sent(number: u64) -> bool {
        (Revocations::NUMBERS_FROM..Revocations::NUMBERS_FROM * 2).contains(&number)
    }

    /// The bucket of its keys.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// True if this node has had all revocations once, or cannot have them.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The engine is there.
    pub fn connected(&mut self) {
        self.is_connected = true;
        if !std::mem::replace(&mut self.watches, true) {
            let watch = Command::Watch { bucket: self.bucket.clone(), prefix: String::new() };
            self.outputs.push(RevocationOutput::Engine(watch));
        }
    }

    /// The engine is away. What is not written waits for the next watch.
    pub fn disconnected(&mut self) {
        self.is_connected = false;
        self.missing.clear();
    }

    /// Writes a revocation. `waiter` comes back with [`RevocationOutput::Written`].
    pub fn revoke(&mut self, token_id: &str, until_ms: u64, wall_ms: u64, waiter: u64) {
        let is_too_large = token_id.len() + HEAD_BYTES > VALUE_BYTES_MAX;
        if !self.is_connected || is_too_large || self.sent.len() >= SENT_MAX {
            self.counts.failed += 1;
            // While the engine is away, the next watch tells what is missing.
            if self.is_connected && !is_too_large {
                self.missing.push_back(Revocation { token_id: token_id.into(), until_ms });
            }
            return self.outputs.push(RevocationOutput::Written(waiter, false));
        }
        self.write(Revocation { token_id: token_id.into(), until_ms }, wall_ms, Some(waiter));
    }

    /// Writes that all sessions of a user have ended. See [`Sessions::mark_user`](crate::Sessions::mark_user).
    pub fn end_user(&mut self, now_ms: u64, ended: UserEnd<'_>) {
        let UserEnd { user, mark, ttl_ms, owner, waiter } = ended;
        let is_too_large = user.len() + HEAD_BYTES > VALUE_BYTES_MAX;
        let is_possible = self.is_connected && !is_too_large && self.marking.len() < SENT_MAX;
        if !is_possible || !self.shares.take(now_ms, owner, user, ttl_ms) {
            self.counts.failed += 1;
            return self.outputs.extend(waiter.map(|waiter| RevocationOutput::Written(waiter, false)));
        }
        self.last += 1;
        self.marking.insert(self.last, waiter);
        let (number, bucket, key) = (self.last, self.bucket.clone(), user_ends::key_of(user));
        let (value, expected, ttl_ms) = (user_ends::write(user, mark), Expected::Any, Some(ttl_ms));
        let put = Command::Put { number, bucket, key, value, expected, ttl_ms };
        self.outputs.push(RevocationOutput::Engine(put));
    }

    /// A write has its result.
    pub fn key_answered(&mut self, now_ms: u64, number: u64, answer: &KeyReply) {
        if let Some(waiter) = self.marking.remove(&number) {
            let counted = if answer.is_ok() { &mut self.counts.written } else { &mut self.counts.failed };
            *counted += 1;
            return self.outputs.extend(waiter.map(|waiter| RevocationOutput::Written(waiter, answer.is_ok())));
        }
        let Some((revocation, waiter)) = self.sent.remove(&number) else { return };
        match answer {
            Ok(_) => self.counts.written += 1,
            Err(_) => {
                self.counts.failed += 1;
                self.due_ms = now_ms + RETRY_MS;
                if self.is_connected {
                    self.missing.push_back(revocation);
                }
            }
        }
        waiter.into_iter().for_each(|waiter| self.outputs.push(RevocationOutput::Written(waiter, answer.is_ok())));
    }

    /// A watch begins.
    pub fn watch_begins(&mut self) {
        self.reported = Some(HashMap::default());
    }

    /// A watch cannot begin: the engine keeps no keys.
    pub fn watch_failed(&mut self) {
        self.is_settled = true;
    }

    /// A watch has reported all keys.
    pub fn watch_is_complete(&mut self) {
        self.is_settled = true;
        self.outputs.push(RevocationOutput::Complete);
    }

    /// A key is there, or has changed. One that is gone has expired.
    pub fn key_changed(&mut self, key: &str, value: Option<&Bytes>) {
        let Some(value) = value else { return };
        if let Some((user, mark)) = user_ends::read(key, value) {
            return self.outputs.push(RevocationOutput::UserEnded(user, mark));
        }
        let Some(Revocation { token_id, until_ms }) = read(value).filter(|read| key_of(&read.token_id) == key) else {
            self.counts.rejected += 1;
            return;
        };
        if let Some(reported) = &mut self.reported {
            reported.insert(token_id.clone(), until_ms);
        }
        self.outputs.push(RevocationOutput::Revoked(token_id, until_ms));
    }

    /// Writes those of these tokens that the engine does not have.
    pub fn compare(&mut self, all: Vec<(Box<str>, u64)>) {
        let Some(reported) = self.reported.take() else { return };
        let is_missing = |token: &str, until_ms: u64| reported.get(token).is_none_or(|there_ms| *there_ms < until_ms);
        let missing = all.into_iter().filter(|(token, until_ms)| is_missing(token, *until_ms));
        self.missing = missing.map(|(token_id, until_ms)| Revocation { token_id, until_ms }).collect();
        self.missing.retain(|revocation| revocation.token_id.len() + HEAD_BYTES <= VALUE_BYTES_MAX);
    }

    /// Writes what waits. Call it after events, before [`Revocations::take_outputs`].
    pub fn turn(&mut self, now_ms: u64, wall_ms: u64) {
        while self.is_connected
            && now_ms >= self.due_ms
            && self.sent.len() < AT_ONCE
            && let Some(revocation) = self.missing.pop_front()
        {
            if revocation.until_ms > wall_ms {
                self.write(revocation, wall_ms, None);
            }
        }
    }

    /// The time at which [`Revocations::turn`] has something to do, if nothing happens before.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let waits = self.is_connected && !self.missing.is_empty() && self.due_ms > now_ms;
        waits.then_some(self.due_ms)
    }

    /// Takes what has to be done, in order.
    pub fn take_outputs(&mut self) -> Vec<RevocationOutput> {
        std::mem::take(&mut self.outputs)
    }

    /// Its counts and sizes.
    pub fn counts(&self) -> RevocationCounts {
        RevocationCounts { waiting: self.missing.len() + self.sent.len() + self.marking.len(), ..self.counts }
    }

    fn write(&mut self, revocation: Revocation, wall_ms: u64, waiter: Option<u64>) {
        self.last += 1;
        let Revocation { token_id, until_ms } = &revocation;
        let mut value = Vec::with_capacity(HEAD_BYTES + token_id.len());
        value.push(VERSION);
        value.extend_from_slice(&until_ms.to_le_bytes());
        value.extend_from_slice(token_id.as_bytes());
        let put = Command::Put {
            number: self.last,
            bucket: self.bucket.clone(),
            key: key_of(token_id),
            value: value.into(),
            expected: Expected::Any,
            ttl_ms: Some(until_ms.saturating_sub(wall_ms).clamp(1_000, TTL_MAX_MS)),
        };
        self.outputs.push(RevocationOutput::Engine(put));
        self.sent.insert(self.last, (revocation, waiter));
    }
}

/// The key of a token.
fn key_of(token_id: &str) -> String {
    hex::of(&Sha256::digest(token_id.as_bytes()))
}

/// Reads a value. None if it is none.
fn read(value: &Bytes) -> Option<Revocation> {
    let (until_ms, token_id) = value.strip_prefix(&[VERSION])?.split_first_chunk()?;
    let token_id = str::from_utf8(token_id).ok()?.into();
    Some(Revocation { token_id, until_ms: u64::from_le_bytes(*until_ms) })
}

const VERSION: u8 = 1;
/// The bytes of a value beside the token.
const HEAD_BYTES: usize = 1 + 8;
/// Writes on their way for which nobody waits.
const AT_ONCE: usize = 32;
/// Writes on their way; more are refused.
const SENT_MAX: usize = 4_096;
/// The pause after a write has failed, in milliseconds.
const RETRY_MS: u64 = 5_000;
/// The longest life of a key, in milliseconds: ten years.
const TTL_MAX_MS: u64 = 10 * 365 * 24 * 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{KeyAnswer, KeyFailure};

    const WALL_MS: u64 = 1_000_000;

    fn connected() -> Revocations {
        let mut revocations = Revocations::new("test".into());
        revocations.connected();
        let watch = Command::Watch { bucket: "test".into(), prefix: String::new() };
        assert_eq!(revocations.take_outputs(), [RevocationOutput::Engine(watch)]);
        revocations
    }

    /// The writes among what has to be done: number, key and value.
    fn puts(revocations: &mut Revocations) -> Vec<(u64, String, Bytes)> {
        let put = |output| match output {
            RevocationOutput::Engine(Command::Put { number, key, value, .. }) => Some((number, key, value)),
            _ => None,
        };
        revocations.take_outputs().into_iter().filter_map(put).collect()
    }

    fn begin(revocations: &mut Revocations, there: &[&str]) {
        revocations.watch_begins();
        for token in there {
            let mut value = vec![VERSION];
            value.extend_from_slice(&(WALL_MS + 5_000).to_le_bytes());
            value.extend_from_slice(token.as_bytes());
            revocations.key_changed(&key_of(token), Some(&value.into()));
        }
        revocations.watch_is_complete();
    }

    #[test]
    fn what_one_node_writes_another_one_reads() {
        let (mut one, mut other) = (connected(), connected());
        one.revoke("token \u{e4}", WALL_MS + 5_000, WALL_MS, 7);
        let [(number, key, value)] = &puts(&mut one)[..] else { panic!("one write") };
        one.key_answered(0, *number, &Ok(KeyAnswer::Written(1)));
        assert_eq!(one.take_outputs(), [RevocationOutput::Written(7, true)]);
        other.key_changed(key, Some(value));
        assert_eq!(other.take_outputs(), [RevocationOutput::Revoked("token \u{e4}".into(), WALL_MS + 5_000)]);
        other.key_changed(key, None);
        other.key_changed("other", Some(value));
        other.key_changed(key, Some(&Bytes::from_static(b"\x02")));
        assert_eq!((other.take_outputs().len(), other.counts().rejected), (0, 2));
    }

    #[test]
    fn without_the_engine_a_revocation_fails_and_is_written_when_it_is_back() {
        let mut revocations = connected();
        begin(&mut revocations, &[]);
        revocations.compare(Vec::new());
        revocations.disconnected();
        revocations.take_outputs();
        revocations.revoke("a", WALL_MS + 5_000, WALL_MS, 7);
        assert_eq!(revocations.take_outputs(), [RevocationOutput::Written(7, false)]);
        revocations.connected();
        begin(&mut revocations, &["there"]);
        let ends = [("a", 5_000), ("there", 5_000), ("expired", 0)];
        revocations.compare(ends.map(|(token, ms)| (token.into(), WALL_MS + ms)).into());
        revocations.turn(0, WALL_MS);
        let keys: Vec<_> = puts(&mut revocations).into_iter().map(|(_, key, _)| key).collect();
        assert_eq!(keys, [key_of("a")], "the others are there, or have expired");
    }

    #[test]
    fn a_longer_end_is_written_over_a_shorter_one() {
        let mut revocations = connected();
        begin(&mut revocations, &["a"]);
        revocations.compare(vec![("a".into(), WALL_MS + 9_000)]);
        revocations.turn(0, WALL_MS);
        assert_eq!(puts(&mut revocations).len(), 1);
    }

    #[test]
    fn a_write_that_fails_is_reported_and_tried_again() {
        let mut revocations = connected();
        revocations.revoke("a", WALL_MS + 60_000, WALL_MS, 7);
        let [(number, ..)] = puts(&mut revocations)[..] else { panic!("one write") };
        revocations.key_answered(1_000, number, &Err(KeyFailure::Failed("no leader".into())));
        assert_eq!(revocations.take_outputs(), [RevocationOutput::Written(7, false)]);
        assert_eq!((revocations.next_ms(1_000), revocations.counts().waiting), (Some(1_000 + RETRY_MS), 1));
        revocations.turn(1_000 + RETRY_MS - 1, WALL_MS);
        assert_eq!(puts(&mut revocations).len(), 0);
        revocations.turn(1_000 + RETRY_MS, WALL_MS);
        let [(number, ..)] = puts(&mut revocations)[..] else { panic!("one write") };
        revocations.key_answered(9_000, number, &Ok(KeyAnswer::Written(1)));
        assert_eq!((revocations.take_outputs().len(), revocations.counts().waiting), (0, 0), "nobody waits for it");
    }

    #[test]
    fn many_that_are_missing_are_written_a_few_at_a_time() {
        let mut revocations = connected();
        begin(&mut revocations, &[]);
        revocations.compare((0..100).map(|number| (number.to_string().into(), WALL_MS + 60_000)).collect());
        revocations.turn(0, WALL_MS);
        let first = puts(&mut revocations);
        assert_eq!((first.len(), revocations.counts().waiting), (AT_ONCE, 100));
        first.iter().for_each(|(number, ..)| revocations.key_answered(0, *number, &Ok(KeyAnswer::Written(1))));
        revocations.turn(0, WALL_MS);
        assert_eq!(puts(&mut revocations).len(), AT_ONCE);
    }

    #[test]
    fn too_many_writes_and_too_long_tokens_are_refused() {
        let mut revocations = connected();
        (0..SENT_MAX as u64).for_each(|waiter| revocations.revoke("a", WALL_MS + 1, WALL_MS, waiter));
        assert_eq!(puts(&mut revocations).len(), SENT_MAX);
        revocations.revoke("b", WALL_MS + 1, WALL_MS, 7);
        assert_eq!(revocations.take_outputs(), [RevocationOutput::Written(7, false)]);
        let mut revocations = connected();
        revocations.revoke(&"x".repeat(VALUE_BYTES_MAX), WALL_MS + 1, WALL_MS, 8);
        assert_eq!(revocations.take_outputs(), [RevocationOutput::Written(8, false)]);
    }

    #[test]
    fn a_node_has_all_revocations_when_the_first_watch_is_complete_or_cannot_begin() {
        let (mut one, mut other) = (connected(), connected());
        one.watch_begins();
        assert!(!one.is_settled());
        one.watch_is_complete();
        other.watch_failed();
        assert!(one.is_settled() && other.is_settled());
    }
}
