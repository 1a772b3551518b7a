//! The rules for channels.

use serde::{Deserialize, Serialize};

/// A rule for the channels that match a pattern, written as `ChannelRule { pattern: …, ..ChannelRule::default() }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelRule {
    /// A channel (`/stock/GOOG`) or a pattern (`/stock/*`, `/stock/**`).
    pub pattern: String,
    /// The policy for a session whose outbox is full when such a message arrives.
    #[serde(default)]
    pub slow_consumer: SlowConsumer,
    /// Bytes in an outbox from which on `drop-oldest` and `keep-latest` drop messages. 0: when the outbox is full.
    #[serde(default)]
    pub slow_consumer_bytes: usize,
    /// True: messages are lazy. They are delayed until the next other message, or until their time is over.
    #[serde(default)]
    pub lazy: bool,
    /// Longest time that lazy messages of these channels are delayed, in milliseconds, also those that the program has made lazy
    /// one by one. 0: `lazy_timeout_max_ms`.
    #[serde(default)]
    pub lazy_timeout_ms: u64,
    /// The least time between two messages of each of these channels for a subscriber, in milliseconds, up to one minute: it gets the
    /// latest message. 0: all messages.
    #[serde(default)]
    pub min_interval_ms: u32,
    /// True: messages are compressed for WebSockets whose clients take that. Not for channels where secrets stand beside
    /// text that others choose.
    #[serde(default)]
    pub compress: bool,
    /// Overrides `broadcast_to_publisher` for these channels.
    #[serde(default)]
    pub broadcast_to_publisher: Option<bool>,
    /// Messages of each of these channels that the history retains. 0: the channels have no history.
    #[serde(default)]
    pub history_messages: usize,
    /// Time that the history retains them, in milliseconds. 0: 10 minutes, or any time with `retain_last` and no `history_messages`.
    #[serde(default)]
    pub history_ms: u64,
    /// Bytes of each of these channels that the history retains; the latest message is always retained. 0: 64 MiB.
    #[serde(default)]
    pub history_bytes: usize,
    /// True: the history retains at least the latest message, and a new subscription that names no position gets it at once.
    #[serde(default)]
    pub retain_last: bool,
    /// The histories of these channels stay when they are empty, with their positions, and make no room for others.
    #[serde(default)]
    pub persistent: bool,
    /// The users and sessions on each of these channels are known, and announced on `/presence/CHANNEL`.
    #[serde(default)]
    pub presence: bool,
    /// The clients that may publish: `anyone`, `users` (sessions with a user), or `server` (none: only the program itself).
    #[serde(default)]
    pub publishers: Publishers,
    /// Subscriptions to each of these channels, on all shards. 0: no limit.
    #[serde(default)]
    pub subscribers_max: usize,
    /// Messages that clients may publish in a second on each of these channels. 0: no limit.
    #[serde(default)]
    pub messages_per_s_max: usize,
    /// Bytes that clients may publish in a second on each of these channels. 0: no limit.
    #[serde(default)]
    pub bytes_per_s_max: usize,
}

/// The limits of a channel's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryTerms {
    /// Messages.
    pub messages_max: usize,
    /// The age of a message, in milliseconds.
    pub age_max_ms: u64,
    /// Bytes, including the overhead of each message.
    pub bytes_max: usize,
    /// An empty history stays, and makes no room for others.
    pub is_persistent: bool,
    /// Its messages are compressed.
    pub compresses: bool,
}

impl ChannelRule {
    /// The limits of the histories of these channels, if they have any.
    pub fn history(&self) -> Option<HistoryTerms> {
        let messages_max = self.history_messages.max(usize::from(self.retain_last));
        (messages_max > 0).then_some(HistoryTerms {
            messages_max,
            age_max_ms: match self.history_ms {
                // A rule that only retains the latest message says nothing about its age.
                0 if self.history_messages == 0 => RETAINED_MS,
                0 => HISTORY_MS,
                own => own,
            },
            bytes_max: if self.history_bytes == 0 { HISTORY_BYTES } else { self.history_bytes },
            is_persistent: self.persistent,
            compresses: self.compress,
        })
    }

    /// The setting by which these channels have a history: its name, its value, and the value without one. For errors.
    pub fn history_setting(&self) -> (&'static str, String, &'static str) {
        match self.history_messages {
            0 => ("channels.retain_last", self.retain_last.to_string(), "false"),
            messages => ("channels.history_messages", messages.to_string(), "0"),
        }
    }
}

/// The policy for a session whose outbox is full. A session that acknowledges is always ended: it was promised every
/// message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SlowConsumer {
    /// The session is ended; its client starts again.
    #[default]
    Disconnect,
    /// The oldest queued messages are dropped.
    DropOldest,
    /// All but the latest queued message of each channel are dropped.
    KeepLatest,
}

/// The clients that may publish on a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Publishers {
    /// All that the application allows.
    #[default]
    Anyone,
    /// Sessions whose identity names a user.
    Users,
    /// None. The program itself publishes, by its services, its handles or the HTTP API.
    Server,
}

/// The time that a history retains messages if the rule does not set it, in milliseconds.
const HISTORY_MS: u64 = 10 * 60 * 1000;
/// The same if the rule only retains the latest message, in milliseconds: a hundred years. Rings of which the older one makes room have
/// different times.
const RETAINED_MS: u64 = 100 * 365 * 24 * 60 * 60 * 1000;
/// The bytes that a history retains if the rule does not set it.
const HISTORY_BYTES: usize = 64 * 1024 * 1024;
