//! Tests of sessions on an engine in memory, with shards that only know which sessions they have.

mod acknowledging;
mod fates;
mod faults;
mod marks;
mod model;
mod moves;
mod orders;
mod records;
mod served;
mod shards;
mod visits;

use std::sync::Arc;

use encke_core::{Entropy, Id, Identity, NodeTag, Policy, Saved, SavedSession, SavedUnacked, SessionsMemory, Stage};

use super::{Past, SessionsSettings};
use crate::subject::Subjects;

/// The tag of a node.
pub(crate) fn tag(number: u64) -> NodeTag {
    NodeTag::new(&mut entropy(number))
}

/// The id of a session with this number that a node has opened.
pub(crate) fn id(number: u64, node: u64) -> Id {
    Id::of_node(number as usize % 3, tag(node), &mut entropy(1_000 + number))
}

/// Bytes that follow from a number.
fn entropy(seed: u64) -> Entropy {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    Box::new(move |bytes| {
        for byte in bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = (state >> 24) as u8;
        }
    })
}

fn subjects() -> Subjects {
    Subjects::of("test").expect("a valid name")
}

pub(super) fn settings(node: u64) -> SessionsSettings {
    SessionsSettings {
        node: tag(node),
        subjects: subjects(),
        bucket: "test".into(),
        shards: 3,
        forwarded_max: 16,
        forwarded_bytes_max: 1 << 20,
        served_bytes_max: 1 << 20,
        message_bytes_max: 1_000,
        hold_ms: 20_000,
        records_per_s_max: 1_000,
        record_ttl_ms: 1_000_000,
        reply_delay_max_ms: 1_000,
        return_delay_ms: 1_000,
        encode,
        decode,
        memory: Arc::new(SessionsMemory::new(3)),
        responses_bytes_max: 1 << 20,
    }
}

/// The first byte is the number of take-overs, the others are messages. Above [`MARKED`], the second one is the mark of the user.
fn encode(saved: &Saved, past: Past) -> Vec<u8> {
    let head = match past.user_mark {
        0 => vec![past.take_overs as u8],
        mark => vec![past.take_overs as u8 | MARKED, mark as u8],
    };
    [head, vec![b'x'; saved.messages.len()]].concat()
}

fn decode(bytes: &[u8]) -> Option<(Saved, Past)> {
    let first = *bytes.first()?;
    let is_marked = first & MARKED != 0;
    let user_mark = if is_marked { (*bytes.get(1)?).into() } else { 0 };
    let past = Past { take_overs: (first & !MARKED).into(), user_mark };
    Some((saved(id(0, 0), (bytes.len() - 1 - usize::from(is_marked)) as u64), past))
}

const MARKED: u8 = 0x80;

fn saved(id: Id, waiting: u64) -> Saved {
    let session = SavedSession {
        id,
        browser: None,
        identity: Some(Identity::of_user("ann")),
        terms: None,
        attributes: None,
        policy: None,
        buckets_ms: [0; 3],
        stage: Stage::Connected,
        interval_ms: None,
        max_interval_ms: None,
        subscriptions: vec!["/a".into()],
        intervals: Vec::new(),
        by_server: Vec::new(),
        waiting: Vec::new(),
        ack: Some(SavedUnacked { closed: 0, batches: Vec::new() }),
        replay: None,
    };
    let messages = (0..waiting).map(|number| number.to_string().into()).collect();
    Saved { policy: Policy::default(), messages, sessions: vec![session] }
}

/// The most bytes of a message of the engine.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The result for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Its session is served by this node.
    By(usize),
    /// Its session is unknown: it must handshake.
    Unknown,
    /// It has to come back.
    Later,
}

/// The time for which the value before a write may still be read, in milliseconds.
const OLD_MS: u64 = 300;
