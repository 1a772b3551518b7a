//! The items of a subscription: messages, and reports of messages that are missing.

use std::fmt;

use bayeux::ext::binary_of;
use bayeux::{RawJson, ServerMessage};
use serde::de::DeserializeOwned;

/// The position of a message in the history of its channel; see [`ReplayFrom`].
pub type Position = bayeux::Position<'static>;

/// The point in a channel's history from which a subscription gets messages.
///
/// A position that a program has stored becomes one by `into()`: `ReplayFrom::from(position)`.
pub type ReplayFrom = bayeux::ext::ReplayFrom<'static>;

/// A message of a channel that the session subscribed to, or one that the server sent to the session alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The channel it was published on.
    pub channel: Box<str>,
    /// The id of the message that it answers, if it is the answer of a service (Bayeux 1.0, "service channels").
    pub id: Option<u64>,
    /// True if it is the answer of a service that reports a failure.
    pub failed: bool,
    /// Its position in the history of its channel, if the client replays and the channel has a history.
    pub position: Option<Position>,
    data: Box<str>,
    ext: Option<Box<str>>,
}

/// A publication that the server has accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// Its position in the history of its channel, if the client replays and the channel has a history. `None` from a server that
    /// does not report it.
    pub position: Option<Position>,
}

/// A report of messages that the subscription does not get. It is in the stream at the point where they are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The channel or pattern of the missing messages; for a slow reader of several channels all of them, separated by commas.
    pub channel: String,
    /// The cause.
    pub cause: GapCause,
}

/// The cause of a gap, and the known facts about the missing messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GapCause {
    /// The server does not retain messages with these offsets any more.
    #[non_exhaustive]
    NotRetained {
        /// The offset of the first missing message.
        first: u64,
        /// The offset of the last one.
        last: u64,
    },
    /// After a break it is unknown if messages are missing: the channel has no history, or its history was lost.
    Unknown,
    /// The reader of this subscription was too slow, and its buffer was full: messages were discarded here; see
    /// [`ClientBuilder::subscription_messages_max`](crate::ClientBuilder::subscription_messages_max).
    #[non_exhaustive]
    SlowReader {
        /// The number of discarded messages.
        messages: u64,
    },
}

impl Message {
    pub(crate) fn new(message: ServerMessage<'_>) -> Message {
        let data = message.data.unwrap_or(RawJson::NULL).as_str().into();
        let (id, failed) = (message.number(), message.successful == Some(false));
        let ext = message.ext.map(|ext| ext.as_str().into());
        Message { channel: message.channel.into(), id, failed, position: None, data, ext }
    }

    /// A message of a page of a history; `None` if this is none.
    pub(crate) fn stored(raw: RawJson<'_>, position: Option<Position>) -> Option<Message> {
        let text = |name| raw.member(name).map(|value| value.as_str().into());
        let channel = raw.member("channel")?.text()?.into();
        let data = text("data").unwrap_or_else(|| "null".into());
        Some(Message { channel, id: None, failed: false, position, data, ext: text("ext") })
    }

    #[cfg(test)]
    pub(crate) fn sample(channel: &str, data: &str) -> Message {
        let text = format!(r#"{{"channel":"{channel}","data":{data}}}"#);
        Message::new(bayeux::parse_server_batch(&text).expect("Bayeux").remove(0))
    }

    /// Its memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let epoch = self.position.as_ref().map_or(0, |position| position.epoch.len());
        let ext = self.ext.as_ref().map_or(0, |ext| ext.len());
        MESSAGE_BYTES + self.channel.len() + self.data.len() + ext + epoch
    }

    /// Its data as raw JSON, byte for byte as it was published; `null` if it has none.
    pub fn data(&self) -> RawJson<'_> {
        RawJson::trusted(&self.data)
    }

    /// Its `ext` as raw JSON, if it has one: fields of extensions, such as a signature.
    pub fn ext(&self) -> Option<RawJson<'_>> {
        self.ext.as_deref().map(RawJson::trusted)
    }

    /// The bytes that its publisher has sent by CometD's extension `binary`; `None` if it has other data.
    pub fn binary(&self) -> Option<Vec<u8>> {
        self.ext()?.member("binary")?;
        binary_of(self.data())
    }

    /// Its data as a type of the program.
    ///
    /// # Errors
    /// The data does not match the type.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.data().as_str())
    }
}

/// The memory of a message beside its texts, in a queue: its fields, and the overhead of three allocations.
pub(crate) const MESSAGE_BYTES: usize = 256;

impl Gap {
    pub(crate) fn unknown(channel: &str) -> Gap {
        Gap { channel: channel.into(), cause: GapCause::Unknown }
    }

    pub(crate) fn lost(channel: &str, lost: Option<(u64, u64)>) -> Gap {
        let cause = lost.map_or(GapCause::Unknown, |(first, last)| GapCause::NotRetained { first, last });
        Gap { channel: channel.into(), cause }
    }

    /// The first and the last offset of the missing messages, if they are known.
    pub fn offsets(&self) -> Option<(u64, u64)> {
        match self.cause {
            GapCause::NotRetained { first, last } => Some((first, last)),
            _ => None,
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channel = &self.channel;
        match self.cause {
            GapCause::NotRetained { first, last } => {
                write!(f, "{channel}: messages {first} to {last} are not retained any more")
            }
            GapCause::Unknown => write!(f, "{channel}: messages may be missing, the server cannot tell"),
            GapCause::SlowReader { messages } => {
                write!(f, "{channel}: {messages} messages came faster than they were read")
            }
        }
    }
}

impl std::error::Error for Gap {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_read_as_a_type_and_is_unchanged_byte_for_byte() {
        let message = Message::sample("/a", r#"{"n":12345678901234567890, "x":1.0e400}"#);
        assert_eq!(message.data().as_str(), r#"{"n":12345678901234567890, "x":1.0e400}"#);
        #[derive(serde::Deserialize)]
        struct Number {
            n: u64,
        }
        assert_eq!(message.json::<Number>().expect("a number").n, 12_345_678_901_234_567_890);
        assert!(message.json::<u64>().is_err());
    }
}
