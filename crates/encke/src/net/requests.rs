//! Requests of handles and of the HTTP API whose outcome they wait for: subscriptions of a session, removals from a history,
//! and revocations.

use encke_core::{Changed, Id, Owner, PublishToken, ShardMessage};

use super::outcomes::Outcome;
use super::server_shared::ServerShared;
use crate::error::{RemovalError, RevocationError, SubscriptionError};

/// A change of the subscriptions of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Subscribe,
    Unsubscribe,
}

/// The outcome of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Revocation {
    /// The number of sessions that it ends.
    pub sessions: usize,
    /// True if it is on the disk. False without a `data` directory: it holds until this process ends.
    pub is_durable: bool,
}

impl ServerShared {
    /// Revokes a token, until it expires in milliseconds since 1970, and ends its sessions.
    pub(crate) async fn revoke(
        &self,
        token_id: &str,
        expires_ms: u64,
        tokens_max: usize,
    ) -> Result<Revocation, RevocationError> {
        let now_ms = self.clock.now().wall_ms;
        // Before its sessions are looked for, so that none is opened in between.
        let is_taken = self.shared().revoked.add(token_id, expires_ms, now_ms, tokens_max);
        let ids = self.sessions_of(Owner::Token(token_id.into())).await.ok_or(RevocationError::Stopped)?;
        for shard in 0..self.mailboxes.shards() {
            // A shard that has ended has no sessions any more.
            let _ended = self.mailboxes.send_to_shard(shard, ShardMessage::Revoke(token_id.into()));
        }
        if !is_taken {
            return Err(RevocationError::Full);
        }
        let (revocations, shared, token_id) = (self.revocations.clone(), self.shared().clone(), String::from(token_id));
        let persist = move || revocations.persist((&token_id, expires_ms), &shared.revoked, now_ms);
        // The disk may take long, and shards wait for nothing.
        let is_durable = self.application.spawn_blocking(persist).await.map_err(|_| RevocationError::Stopped)??;
        Ok(Revocation { sessions: ids.len(), is_durable })
    }

    /// Subscribes a session to a channel or pattern, or ends its subscription.
    pub(crate) async fn change_subscription(
        &self,
        change: Change,
        id: Id,
        channel: &str,
    ) -> Result<(), SubscriptionError> {
        let home = self.shared().shard_of(&id);
        if home >= self.mailboxes.shards() {
            return Err(SubscriptionError::SessionUnknown);
        }
        let message = |token| match change {
            Change::Subscribe => ShardMessage::Subscribe(id, channel.into(), token),
            Change::Unsubscribe => ShardMessage::Unsubscribe(id, channel.into(), token),
        };
        let outcome = self.request(home, message).await.ok_or(SubscriptionError::Stopped)?;
        match outcome.changed {
            Some(Changed::Done) => Ok(()),
            Some(Changed::Full) => Err(SubscriptionError::Full),
            Some(Changed::SessionUnknown) | None => Err(SubscriptionError::SessionUnknown),
        }
    }

    /// Removes all messages from the history of a channel. Returns their number.
    pub(crate) async fn clear_history(&self, channel: &str) -> Result<usize, RemovalError> {
        let owner = self.shared().histories.owner(channel);
        let outcome = self.request(owner, |token| ShardMessage::ClearHistory(channel.into(), token)).await;
        let outcome = outcome.ok_or(RemovalError::Stopped)?;
        let removed = outcome.removed.ok_or_else(|| RemovalError::NoHistory(channel.into()))?;
        if outcome.is_persisted { Ok(removed) } else { Err(RemovalError::NotStored) }
    }

    /// Sends a request to a shard and waits for its outcome.
    async fn request(&self, shard: usize, message: impl FnOnce(PublishToken) -> ShardMessage) -> Option<Outcome> {
        let token = self.outcomes.token();
        let outcome = self.outcomes.wait(token);
        if !self.mailboxes.send_to_shard(shard, message(token)) {
            self.outcomes.forget(token);
            return None;
        }
        outcome.await.ok()
    }
}
