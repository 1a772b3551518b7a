//! Messages as the subscribers in the process get them, and gaps.

use std::sync::Arc;

use bayeux::RawJson;
use bytes::Bytes;

use crate::positions::Position;
use encke_core::Side;
use encke_core::history::RingKey;

/// A message as its subscribers get it.
#[derive(Clone, Debug)]
pub struct Message {
    pub(crate) channel: Arc<str>,
    json: Bytes,
    side: Side,
    position: Option<(Position, RingKey)>,
}

/// Messages that a subscription did not get.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Gap {
    /// The reader was too slow, so the oldest messages of its queue were discarded.
    #[error("{messages} messages were discarded because their reader was too slow")]
    Slow {
        /// The number of messages.
        messages: u64,
    },
    /// The history does not have all messages after the position where the subscription begins, or continues.
    #[error("the history of {channel} does not have all messages after the position")]
    Gone {
        /// The channel.
        channel: Arc<str>,
    },
}

impl Message {
    pub(crate) fn new(channel: Arc<str>, json: Bytes, side: Side, position: Option<(Position, RingKey)>) -> Message {
        Message { channel, json, side, position }
    }

    /// The channel that it was published to.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// The whole message: a JSON object with `channel` and `data`.
    pub fn json(&self) -> &str {
        // It was written by the server.
        str::from_utf8(&self.json).unwrap_or_default()
    }

    /// The published value as raw JSON; `null` if there is none.
    pub fn data(&self) -> &str {
        RawJson::trusted(self.json()).member("data").map_or("null", |data| data.as_str())
    }

    /// The side that has made it: a client, or the server's own side.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Its position, if the channel has a history.
    pub fn position(&self) -> Option<&Position> {
        self.position.as_ref().map(|(position, _)| position)
    }

    /// Its position, and the history that it is in.
    pub(crate) fn ring_position(&self) -> Option<&(Position, RingKey)> {
        self.position.as_ref()
    }
}
