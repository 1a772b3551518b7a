//! The positions that a stream of several channels has reached. The id of each of its events names all of them, so that its
//! client can go on after any event.

use std::collections::BTreeMap;

use bayeux::ext::{self, Plain};

/// The position of the last message of each channel, as text: `EPOCH-OFFSET`.
#[derive(Clone, Debug)]
pub struct Reached {
    /// None if there are too many to name them.
    positions: Option<BTreeMap<Box<str>, Box<str>>>,
}

impl Default for Reached {
    /// No position.
    fn default() -> Reached {
        Reached { positions: Some(BTreeMap::new()) }
    }
}

impl Reached {
    /// The positions of too many channels to name them.
    pub fn unknown() -> Reached {
        Reached { positions: None }
    }

    /// Sets the position of a channel.
    pub fn insert(&mut self, channel: &str, position: &str) {
        if let Some(positions) = &mut self.positions {
            positions.insert(channel.into(), position.into());
        }
        self.positions.take_if(|positions| positions.len() > CHANNELS_MAX);
    }

    /// Notes a message that goes out: see [`PositionStamp::write_plain`](bayeux::ext::PositionStamp::write_plain).
    pub(crate) fn note(&mut self, payload: &[u8]) {
        let position = Plain::of(payload).and_then(|plain| plain.position);
        if let Some((channel, position)) = ext::channel_of(payload).zip(position) {
            self.insert(&channel, position);
        }
    }

    /// The id: `/a:EPOCH-OFFSET,/b:EPOCH-OFFSET`. Empty if there are no positions, and [`Reached::UNKNOWN`] if there are too
    /// many.
    pub fn id(&self) -> String {
        let Some(positions) = &self.positions else { return Reached::UNKNOWN.into() };
        let parts: Vec<_> = positions.iter().map(|(channel, position)| format!("{channel}:{position}")).collect();
        parts.join(",")
    }

    /// The id of a stream that has reached too many positions to name them.
    pub const UNKNOWN: &str = "unknown";
}

/// The most channels whose positions one id names.
const CHANNELS_MAX: usize = 64;
