//! Tests of sessions on an engine in memory, with shards that only know which sessions they have.

mod faults;
mod model;
mod moves;

use encke_core::{Entropy, Id, NodeTag};

/// The tag of a node.
pub(super) fn tag(number: u64) -> NodeTag {
    NodeTag::new(&mut entropy(number))
}

/// The id of a session with this number that a node has opened.
pub(super) fn id(number: u64, node: u64) -> Id {
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
