//! Commands for the engine, and the results of those that have one.

use bytes::Bytes;

/// A command for the engine. It begins them in order, and waits for the result of none before it begins the next one.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Subscribe to a subject.
    Subscribe {
        /// Names the subscription. A later one has a higher key.
        key: u64,
        /// The subject, with wildcards.
        subject: String,
    },
    /// End a subscription, or no longer listen.
    Unsubscribe {
        /// Names the subscription.
        key: u64,
    },
    /// Tell by [`Node::confirmed`](crate::Node::confirmed) when the engine has all subscriptions of the commands before.
    Confirm(u64),
    /// Send an envelope, and tell its bytes by [`Node::sent`](crate::Node::sent).
    Publish {
        /// The subject, without wildcards.
        subject: String,
        /// The envelope.
        envelope: Vec<u8>,
    },
    /// Send a request to a node that listens to its subject, and report the answer or a [`RequestFailure`]. Requests and envelopes
    /// leave in the order of their commands.
    Request {
        /// Names the request. No other one that is not answered has it.
        number: u64,
        /// The subject, without wildcards.
        subject: String,
        /// The request, of no more bytes than an envelope.
        body: Vec<u8>,
        /// The longest wait for the answer, in milliseconds.
        timeout_ms: u64,
    },
    /// Send a message to who listens to a subject. It may be lost, and nobody answers.
    Send {
        /// The subject, without wildcards.
        subject: String,
        /// The message, of no more bytes than an envelope.
        body: Vec<u8>,
    },
    /// Report the requests and messages on a subject.
    Listen {
        /// Names the subscription, as in [`Command::Subscribe`].
        key: u64,
        /// The subject, with wildcards.
        subject: String,
    },
    /// Answer a request.
    Answer {
        /// The subject to which the answer goes, as the request has named it.
        reply_to: String,
        /// The answer, of no more bytes than an envelope.
        body: Bytes,
    },
    /// Read a key of a bucket. The answer may be older than the last write.
    Get {
        /// Names the command.
        number: u64,
        /// The bucket: letters, digits, `_` and `-`. It is made if it is not there.
        bucket: String,
        /// The key: letters, digits, `_`, `-`, `=` and dots between them, of at most [`KEY_BYTES_MAX`] bytes.
        key: String,
    },
    /// Write a key.
    Put {
        /// Names the command.
        number: u64,
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// The value, of at most [`VALUE_BYTES_MAX`] bytes.
        value: Bytes,
        /// The value that has to be there.
        expected: Expected,
        /// The time after which the key goes by itself, in milliseconds: whole seconds, rounded up. None: it stays.
        ttl_ms: Option<u64>,
    },
    /// Remove a key.
    Delete {
        /// Names the command.
        number: u64,
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// The value that has to be there.
        expected: Expected,
    },
    /// Add a value to a journal, behind its last one. The engine keeps journals on disk; within its bounds the oldest values go first.
    Append {
        /// Names the command.
        number: u64,
        /// The journal: letters and digits.
        journal: String,
        /// The value, of no more bytes than an envelope.
        value: Bytes,
        /// The revision of the value that has to be the last one; 0: there has to be none.
        after: u64,
    },
    /// Read the values of a journal from this revision on: at least the first of them, and as many as one answer takes; and the last value.
    ReadJournal {
        /// Names the command.
        number: u64,
        /// The journal.
        journal: String,
        /// The revision.
        from: u64,
    },
    /// Report the keys of a bucket that begin with this prefix, and from then on their changes, in the order of the writes. It goes
    /// on over reconnects.
    Watch {
        /// The bucket.
        bucket: String,
        /// Empty, or with a dot at its end.
        prefix: String,
    },
}

/// The value that a key must have for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Any, or none.
    Any,
    /// None: the key was never written, or is removed.
    Absent,
    /// The one with this revision.
    Revision(u64),
}

/// The reasons why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFailure {
    /// There is no node that listens, so the request was not processed. It comes at once.
    #[error("nobody listens")]
    NoResponders,
    /// No answer has come in time. It may have been processed.
    #[error("no answer in time")]
    TimedOut,
    /// The connection has ended meanwhile, or did not take the request. It may have been processed.
    #[error("the connection to the engine has ended")]
    Away,
}

/// The result of a command about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyAnswer {
    /// The revision and the value of a [`Command::Get`]; None if there is no such key.
    Found(Option<(u64, Bytes)>),
    /// The revision of a [`Command::Put`], [`Command::Delete`] or [`Command::Append`]. Revisions of a bucket or journal grow.
    Written(u64),
    /// The answer to a [`Command::ReadJournal`].
    Values {
        /// The values. None are left out between them.
        values: Vec<JournalValue>,
        /// The last value of the journal, with its revision; None if it has none. It is no older than any write that was answered before.
        last: Option<(u64, Bytes)>,
    },
}

/// A value of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalValue {
    /// Its revision.
    pub revision: u64,
    /// The time for which the engine has had it, in milliseconds, by the engine's own clock.
    pub age_ms: u64,
    /// The value.
    pub value: Bytes,
}

/// The reasons why a command about a key or a journal has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFailure {
    /// The key has another revision than [`Expected`], or the journal another last value. Nothing was written.
    #[error("another revision")]
    Conflict,
    /// The engine takes no value of so many bytes. Nothing was written.
    #[error("too large")]
    TooLarge,
    /// The engine keeps nothing, or is away, or has not answered. It may have been written.
    #[error("{0}")]
    Failed(String),
}

/// The result of a command about a key, or its failure.
pub type KeyReply = Result<KeyAnswer, KeyFailure>;

/// The most bytes of a key.
pub const KEY_BYTES_MAX: usize = 512;
/// The most bytes of a value.
pub const VALUE_BYTES_MAX: usize = 256 * 1024;
