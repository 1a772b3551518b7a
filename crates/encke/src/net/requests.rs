//! Requests of handles and of the HTTP API to shards whose outcome they wait for: subscriptions of a session, and removals from
//! a history.

use encke_core::{Changed, Envelope, Id, PublishToken, ShardMessage, Shared};

use super::node::{ServerShared, ThreadMessage};
use super::outcomes::Outcome;

/// A change of the subscriptions of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Subscribe,
    Unsubscribe,
}

impl ServerShared {
    /// Subscribes a session to a channel or pattern, or ends its subscription. None if the server stops.
    pub(crate) async fn change_subscription(&self, change: Change, session: &str, channel: &str) -> Option<Changed> {
        let id = Id::parse(session).filter(|id| id.shard() < self.mailboxes.len());
        let Some(id) = id else { return Some(Changed::SessionUnknown) };
        let message = |token| match change {
            Change::Subscribe => ShardMessage::Subscribe(id, channel.into(), token),
            Change::Unsubscribe => ShardMessage::Unsubscribe(id, channel.into(), token),
        };
        let outcome = self.request(id.shard(), message).await?;
        Some(outcome.changed.unwrap_or(Changed::SessionUnknown))
    }

    /// Removes all messages from the history of a channel. None if the server stops.
    pub(crate) async fn clear_history(&self, shared: &Shared, channel: &str) -> Option<Outcome> {
        self.request(shared.histories.owner(channel), |token| ShardMessage::ClearHistory(channel.into(), token)).await
    }

    /// Sends a request to a shard and waits for its outcome.
    async fn request(&self, shard: usize, message: impl FnOnce(PublishToken) -> ShardMessage) -> Option<Outcome> {
        let token = self.outcomes.token();
        let outcome = self.outcomes.wait(token);
        let envelope = Envelope::new(&self.mailbox, message(token));
        if self.mailboxes.get(shard)?.send(ThreadMessage::FromShard(envelope)).is_err() {
            self.outcomes.forget(token);
            return None;
        }
        outcome.await.ok()
    }
}
