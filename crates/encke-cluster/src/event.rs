//! The events of an engine.

use bytes::Bytes;

use crate::command::{KeyReply, RequestFailure};

/// An event of an engine.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The connection is there, and takes envelopes of at most so many bytes.
    Connected {
        /// The most bytes of an envelope.
        envelope_bytes_max: usize,
    },
    /// The connection is away.
    Disconnected,
    /// A [`Command::Confirm`](crate::Command::Confirm) is answered.
    Confirmed(u64),
    /// An envelope of so many bytes is sent, or lost.
    Sent(usize),
    /// An envelope has arrived.
    Received(Bytes),
    /// An envelope had arrived, and was dropped.
    Dropped,
    /// The answer to an [`Command::Request`](crate::Command::Request).
    Answered {
        /// The number of the request.
        number: u64,
        /// The answer, or the reason why there is none.
        answer: Result<Bytes, RequestFailure>,
    },
    /// A request has come on a subject to which the node listens.
    Asked {
        /// The key of the [`Command::Listen`](crate::Command::Listen).
        key: u64,
        /// The subject to which the answer goes, for [`Command::Answer`](crate::Command::Answer).
        reply_to: String,
        /// The request.
        body: Bytes,
    },
    /// A message that nobody has to answer has come on a subject to which the node listens.
    Notified {
        /// The key of the [`Command::Listen`](crate::Command::Listen).
        key: u64,
        /// The message.
        body: Bytes,
    },
    /// The answer to a command about a key.
    KeyAnswer {
        /// The number of the command.
        number: u64,
        /// The result.
        answer: KeyReply,
    },
    /// An [`Command::Watch`](crate::Command::Watch) begins, or begins again after a break: all keys that are there follow.
    WatchBegins {
        /// The bucket.
        bucket: String,
        /// The prefix.
        prefix: String,
    },
    /// All keys that were there when a watch began are reported. Those that were known before and were not reported are gone.
    WatchComplete {
        /// The bucket.
        bucket: String,
        /// The prefix.
        prefix: String,
    },
    /// A watch does not begin: the engine keeps no keys, or fails. It is tried again.
    WatchFailed {
        /// The bucket.
        bucket: String,
        /// The prefix.
        prefix: String,
    },
    /// A key that is watched is there, or has changed. A key with a time to live that goes by itself is reported, too.
    KeyChanged {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// Its revision.
        revision: u64,
        /// Its value; None if it is gone.
        value: Option<Bytes>,
    },
    /// Something that an operator has to know, such as that the engine refuses a subject.
    Failed(String),
}
