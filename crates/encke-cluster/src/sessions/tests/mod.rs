//! Tests of sessions on an engine in memory, with shards that only know which sessions they have.

mod acknowledging;
mod fates;
mod faults;
mod model;
mod moves;
mod orders;
mod records;
mod served;
mod shards;
mod visits;

use encke_core::{Entropy, Id, NodeTag, Policy, Saved, SavedSession, SavedUnacked, Stage};

use super::SessionsSettings;
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
        message_bytes_max: 1_000,
        hold_ms: 20_000,
        records_per_s_max: 1_000,
        record_ttl_ms: 1_000_000,
        reply_delay_max_ms: 1_000,
        return_delay_ms: 1_000,
        encode: |saved, take_overs| [vec![take_overs as u8], vec![b'x'; saved.messages.len()]].concat(),
        decode,
    }
}

/// The first byte is the number of take-overs, the others are messages.
fn decode(bytes: &[u8]) -> Option<(Saved, u32)> {
    let take_overs = *bytes.first()?;
    Some((saved(id(0, 0), bytes.len() as u64 - 1), take_overs.into()))
}

fn saved(id: Id, waiting: u64) -> Saved {
    let session = SavedSession {
        id,
        browser: None,
        identity: None,
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
