//! Requests of handles and of the HTTP API whose outcome they wait for: subscriptions of a session, removals from a history,
//! and revocations.

use encke_core::{AskedBy, AttributeChange, Changed, Id, Owner, PublishToken, SessionTerms, ShardMessage};

use super::everywhere::ClusterNodes;
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
    /// True if it is on the disk, or the engine of the cluster has it. False without both: it holds until this process ends.
    pub is_durable: bool,
    /// The nodes of the cluster that know of it. None without a cluster.
    pub nodes: Option<ClusterNodes>,
}

impl ServerShared {
    /// Revokes a token on all nodes, until it expires in milliseconds since 1970, and ends its sessions.
    pub(crate) async fn revoke(
        &self,
        token_id: &str,
        expires_ms: u64,
        tokens_max: usize,
    ) -> Result<Revocation, RevocationError> {
        let now_ms = self.clock.now().wall_ms;
        // Before its sessions are looked for, so that none is opened in between.
        let is_taken = self.shared().revoked.add(token_id, expires_ms, now_ms, tokens_max);
        let own = self.end_sessions_of_token(token_id).await.ok_or(RevocationError::Stopped)?;
        let stored = if is_taken { self.persist_revoked(vec![(token_id.into(), expires_ms)]).await } else { Ok(false) };
        let Some(cluster) = self.cluster.as_deref().filter(|_| is_taken) else {
            let is_durable = if is_taken { stored? } else { return Err(RevocationError::Full) };
            return Ok(Revocation { sessions: own, is_durable, nodes: None });
        };
        let (others, is_shared) = cluster.revoke(token_id, expires_ms).await.ok_or(RevocationError::Stopped)?;
        stored?;
        if !is_shared {
            return Err(RevocationError::NotShared);
        }
        let sessions = own + others.replies.iter().map(|(_, reply)| reply.count()).sum::<usize>();
        Ok(Revocation { sessions, is_durable: true, nodes: Some(ClusterNodes::of(&others)) })
    }

    /// Takes a token that another node has revoked, until a time in milliseconds since 1970. Returns the number of its sessions here, which
    /// end. None if the server stops.
    pub(crate) async fn take_revoked(&self, token_id: &str, until_ms: u64) -> Option<usize> {
        let new = self.note_revoked(vec![(token_id.into(), until_ms)]);
        let sessions = self.end_sessions_of_token(token_id).await;
        self.persist_all(new).await;
        sessions
    }

    /// Notes tokens that other nodes have revoked, each with its end in milliseconds since 1970. Returns those that were not known.
    pub(crate) fn note_revoked(&self, tokens: Vec<(Box<str>, u64)>) -> Vec<(Box<str>, u64)> {
        let (revoked, now_ms) = (&self.shared().revoked, self.clock.now().wall_ms);
        let is_new = |token_id: &str, until_ms: u64| revoked.end_of(token_id).is_none_or(|end_ms| end_ms < until_ms);
        let mut new = tokens;
        new.retain(|(token_id, until_ms)| is_new(token_id, *until_ms));
        for (token_id, until_ms) in &new {
            // They were within `revoked_tokens_max` on the node that has revoked them.
            revoked.add(token_id, *until_ms, now_ms, usize::MAX);
        }
        new
    }

    /// Ends the sessions of tokens that other nodes have revoked, and writes these to the journal.
    pub(crate) async fn end_revoked(&self, tokens: Vec<(Box<str>, u64)>) {
        for (token_id, _) in &tokens {
            self.end_sessions_of_token(token_id).await;
        }
        self.persist_all(tokens).await;
    }

    async fn persist_all(&self, tokens: Vec<(Box<str>, u64)>) {
        if !tokens.is_empty() {
            // A failure is logged, and the engine of the cluster has them.
            _ = self.persist_revoked(tokens).await;
        }
    }

    /// Ends the sessions of a revoked token on this node. Returns their number. None if the server stops.
    async fn end_sessions_of_token(&self, token_id: &str) -> Option<usize> {
        let ids = self.sessions_of(Owner::Token(token_id.into())).await?;
        for shard in 0..self.mailboxes.shards() {
            // A shard that has ended has no sessions any more.
            let _ended = self.mailboxes.send_to_shard(shard, ShardMessage::Revoke(token_id.into()));
        }
        Some(ids.len())
    }

    /// Writes revoked tokens to the journal. False if there is none.
    async fn persist_revoked(&self, tokens: Vec<(Box<str>, u64)>) -> Result<bool, RevocationError> {
        let (revocations, shared, now_ms) = (self.revocations.clone(), self.shared().clone(), self.clock.now().wall_ms);
        let persist = move || revocations.persist(&tokens, &shared.revoked, now_ms);
        // The disk may take long, and shards wait for nothing.
        self.application.spawn_blocking(persist).await.map_err(|_| RevocationError::Stopped)?
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
            _ => Err(SubscriptionError::SessionUnknown),
        }
    }

    /// Gives a session of this node terms above those of its identity. None if the server stops.
    pub(crate) async fn set_terms(&self, id: Id, terms: SessionTerms) -> Option<Changed> {
        let home = self.shared().shard_of(&id);
        let outcome = self.request(home, |token| ShardMessage::SetTerms(id, Box::new(terms), token)).await?;
        Some(outcome.changed.unwrap_or(Changed::SessionUnknown))
    }

    /// Changes an attribute of a session of this node. None if the server stops.
    pub(crate) async fn change_attribute(&self, id: Id, change: AttributeChange) -> Option<Changed> {
        let home = self.shared().shard_of(&id);
        let message = |token| ShardMessage::ChangeAttribute(id, Box::new(change), AskedBy::Handle(token));
        let outcome = self.request(home, message).await?;
        Some(outcome.changed.unwrap_or(Changed::SessionUnknown))
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
