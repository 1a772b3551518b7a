//! Replies that several chapters need: errors, and the acceptance of a publication. `batch` and the chapters below it
//! lead here.

use bayeux::{BayeuxError, ChannelKind, Message, RawJson, Reply};

use crate::protocol::batch::{Batch, error_reply, ext_of};
use crate::shard::Parts;

impl Parts {
    /// Refuses a message of a session that is unknown, or that its sender may not use.
    pub(super) fn refuse_unknown(&mut self, batch: &mut Batch, message: &Message<'_>, kind: ChannelKind) {
        self.metrics.sessions_unknown.add(1);
        // Clients recover by exactly this pair of error and advice (CometD 9).
        let advice = (kind == ChannelKind::Connect).then(|| bayeux::advice::Advice::handshake().to_json());
        let error = BayeuxError::SessionUnknown.as_str();
        batch.reply(&Reply { advice: advice.as_deref().map(RawJson::trusted), ..error_reply(message, error) });
    }

    /// Answers a message with an error.
    pub(super) fn refuse(&mut self, batch: &mut Batch, message: &Message<'_>, error: &str) {
        self.metrics.errors.add(1);
        tracing::debug!(session = ?self.id_of(batch), channel = ?message.channel, error, "message refused");
        batch.reply(&error_reply(message, error));
    }

    /// The `ext` of a meta reply: the answer of the timesync extension.
    pub(super) fn reply_ext(&self, message: &Message<'_>) -> Option<String> {
        ext_of([self.timesync(message)])
    }

    /// Accepts a publication. The reply has the channel, the id, and success.
    pub(super) fn accept(&mut self, batch: &mut Batch, message: &Message<'_>) {
        let channel = message.channel.as_deref().unwrap_or_default();
        let timestamp = self.timestamp();
        batch.reply(&Reply {
            id: message.id.as_ref(),
            successful: Some(true),
            timestamp: timestamp.as_deref(),
            ..Reply::new(channel)
        });
    }
}
