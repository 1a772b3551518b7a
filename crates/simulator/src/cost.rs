//! The cost of a shard: steps, and the messages that caused them.

use encke_core::ShardMessage;

/// The cost of a shard so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Its steps.
    pub(crate) steps: u64,
    /// Messages that it has taken since it had nothing to do.
    pub(crate) messages: u64,
}

impl Cost {
    /// Notes the publications in a message for its shard.
    pub(crate) fn note(&mut self, message: &ShardMessage) {
        self.messages += match message {
            ShardMessage::Record(publication) => u64::from(publication.messages),
            ShardMessage::Publication(publication) => u64::from(publication.messages),
            _ => 1,
        };
    }
}
