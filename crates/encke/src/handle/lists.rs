//! Lists of sessions and channels, and what waits for the answer of a shard: all sessions of a user, the subscriptions of a
//! session, the removal of a history.

use super::Handle;
use crate::error::{PublishError, RemovalError, SubscriptionError};
use crate::history_page::HistoryPage;
use crate::net::listing::List;
use crate::net::requests::Change;
use crate::outgoing::Outgoing;
use encke_core::{ChannelView, Id, Owner, ServerEntry, SessionView, ShardMessage, Weight};

impl Handle {
    /// Lists sessions, at most `limit` of them: the first page, or the one at the cursor of the page before. None if the
    /// cursor is not valid, or the server has stopped.
    pub async fn list_sessions(&self, cursor: Option<&str>, limit: usize) -> Option<List<SessionView>> {
        let server_shared = &self.0.server_shared;
        let from = server_shared.cursor(cursor)?;
        server_shared.list_sessions(from, limit).await
    }

    /// Lists channels and patterns with their subscribers, at most `limit` of them: those that `pattern` matches, or all.
    /// None if the pattern or the cursor is not valid, or the server has stopped.
    pub async fn list_channels(
        &self,
        pattern: Option<&str>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Option<List<ChannelView>> {
        let limits = bayeux::Limits::from(&*self.settings());
        if pattern.is_some_and(|pattern| bayeux::ChannelName::parse(pattern, &limits).is_err()) {
            return None;
        }
        let server_shared = &self.0.server_shared;
        let from = server_shared.cursor(cursor)?;
        server_shared.list_channels(from, limit, pattern).await
    }

    /// Sends a message to all sessions of a user, as a message of this channel. Returns their number, which is 0 if the
    /// server has stopped.
    ///
    /// # Errors
    /// The same as of [`Handle::deliver`].
    pub async fn deliver_to_user(&self, user: &str, channel: &str, data_json: &str) -> Result<usize, PublishError> {
        let frame = self.frame(&self.terms(), channel, &Outgoing::raw(data_json), None)?;
        if !self.0.server_shared.mailboxes.account().has_room(Weight::Heavy) {
            return Err(PublishError::Busy);
        }
        let ids = self.0.server_shared.sessions_of(Owner::User(user.into())).await.unwrap_or_default();
        let deliver = |id: &Id| self.send_to_shard_of(id, ShardMessage::Deliver(*id, frame.clone()));
        Ok(ids.iter().filter(|id| deliver(id)).count())
    }

    /// Ends all sessions of a user. Returns their number, which is 0 if the server has stopped.
    pub async fn disconnect_user(&self, user: &str) -> usize {
        let ids = self.0.server_shared.sessions_of(Owner::User(user.into())).await.unwrap_or_default();
        ids.iter().filter(|id| self.send_to_shard_of(id, ShardMessage::Disconnect(**id))).count()
    }

    /// Subscribes a session to a channel or pattern, from now on. Nothing is decided about it, and its client gets no message
    /// about it. Does nothing if it has this subscription.
    ///
    /// # Errors
    /// When it is no channel or pattern for broadcasts, there is no such session, or it has too many subscriptions.
    pub async fn subscribe_session(&self, client_id: &str, channel: &str) -> Result<(), SubscriptionError> {
        self.change_subscription(Change::Subscribe, client_id, channel).await
    }

    /// Ends the subscription of a session to a channel or pattern. Does nothing if it has no such subscription.
    ///
    /// # Errors
    /// When it is no channel or pattern for broadcasts, or there is no such session.
    pub async fn unsubscribe_session(&self, client_id: &str, channel: &str) -> Result<(), SubscriptionError> {
        self.change_subscription(Change::Unsubscribe, client_id, channel).await
    }

    /// Ends the subscriptions of all sessions of a user to a channel or pattern. Returns the number of these sessions, which is 0 if the
    /// server has stopped.
    ///
    /// # Errors
    /// When it is no channel or pattern for broadcasts.
    pub async fn unsubscribe_user(&self, user: &str, channel: &str) -> Result<usize, SubscriptionError> {
        self.broadcast_name(channel)?;
        let ids = self.0.server_shared.sessions_of(Owner::User(user.into())).await.unwrap_or_default();
        let mut sessions = 0;
        for id in ids {
            // One that has just ended has no subscription, either.
            let changed = self.0.server_shared.change_subscription(Change::Unsubscribe, id, channel).await;
            sessions += usize::from(changed.is_ok());
        }
        Ok(sessions)
    }

    async fn change_subscription(
        &self,
        change: Change,
        client_id: &str,
        channel: &str,
    ) -> Result<(), SubscriptionError> {
        self.broadcast_name(channel)?;
        let id = Id::parse(client_id).ok_or(SubscriptionError::SessionUnknown)?;
        self.0.server_shared.change_subscription(change, id, channel).await
    }

    /// Checks the name of a channel or pattern for broadcasts.
    fn broadcast_name(&self, channel: &str) -> Result<(), SubscriptionError> {
        let limits = bayeux::Limits::from(&*self.settings());
        let name = bayeux::ChannelName::parse(channel, &limits).ok();
        match name.is_some_and(|name| name.kind() == bayeux::ChannelKind::Broadcast) {
            true => Ok(()),
            false => Err(SubscriptionError::Channel(channel.into())),
        }
    }

    /// Reads the history of a channel: up to `limit` messages after an offset, or from the oldest one. `None` if the channel has no
    /// history.
    ///
    /// ```
    /// # fn print(handle: &encke::Handle) {
    /// if let Some(page) = handle.read_history("/stock/GOOG", None, 100) {
    ///     for message in page.messages {
    ///         println!("{} {}", message.position, message.data());
    ///     }
    /// }
    /// # }
    /// ```
    pub fn read_history(&self, channel: &str, after: Option<u64>, limit: usize) -> Option<HistoryPage> {
        let granted = ServerEntry::HandleHistory.may();
        self.0.server_shared.shared().read_history(channel, granted, |ring| HistoryPage::read(ring, after, limit))
    }

    /// Removes all messages from the history of a channel. Returns their number. Offsets go on where they were.
    ///
    /// # Errors
    /// When the channel has no history, or the removal could not be stored.
    pub async fn remove_history(&self, channel: &str) -> Result<usize, RemovalError> {
        self.0.server_shared.clear_history(channel).await
    }
}
