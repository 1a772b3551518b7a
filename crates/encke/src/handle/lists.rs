//! Lists of sessions and channels, and what waits for the answer of a shard: all sessions of a user, the subscriptions of a
//! session, the removal of a history.

use super::Handle;
use crate::cluster::commands::{NodeCommand, NodeReply, Target};
use crate::error::{PublishError, RemovalError, SubscriptionError};
use crate::history_page::HistoryPage;
use crate::net::listing::List;
use crate::outgoing::Outgoing;
use encke_core::{ChannelView, ServerEntry, SessionView, Weight};

impl Handle {
    /// Lists the sessions of this node, at most `limit` of them: the first page, or the one at the cursor of the page before. None if the
    /// cursor is not valid, or the server has stopped.
    pub async fn list_sessions(&self, cursor: Option<&str>, limit: usize) -> Option<List<SessionView>> {
        let server_shared = &self.0.server_shared;
        let from = server_shared.cursor(cursor)?;
        server_shared.list_sessions(from, limit).await
    }

    /// Lists channels and patterns with their subscribers on this node, at most `limit` of them: those that `pattern` matches, or all.
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

    /// Sends a message to all sessions of a user, as a message of this channel, on all nodes of a cluster. Returns their number, which is 0
    /// if the server has stopped; sessions of nodes that did not answer are not in it.
    ///
    /// # Errors
    /// The same as of [`Handle::deliver`].
    pub async fn deliver_to_user(&self, user: &str, channel: &str, data_json: &str) -> Result<usize, PublishError> {
        let message = self.frame(&self.terms(), channel, &Outgoing::raw(data_json), None)?;
        if !self.0.server_shared.mailboxes.account().has_room(Weight::Heavy) {
            return Err(PublishError::Busy);
        }
        Ok(self.everywhere(NodeCommand::Deliver { to: Target::User(user.into()), message }).await)
    }

    /// Ends all sessions of a user, on all nodes of a cluster. Returns their number, which is 0 if the server has stopped; sessions of
    /// nodes that did not answer are not in it.
    pub async fn disconnect_user(&self, user: &str) -> usize {
        let ended = self.0.server_shared.end_user(user).await;
        ended.filter(|_| *self.0.open.read()).map_or(0, |ended| ended.sessions)
    }

    /// Runs a command on all nodes. Returns the number of sessions that it has reached.
    async fn everywhere(&self, command: NodeCommand) -> usize {
        let reached = self.0.server_shared.everywhere(&command).await;
        // A message that was sent before the server closed is in a mailbox before the mailboxes are emptied for the last time.
        let is_open = *self.0.open.read();
        reached.filter(|_| is_open).map_or(0, |reached| reached.sessions())
    }

    /// Subscribes a session to a channel or pattern, from now on. Nothing is decided about it, and its client gets no message
    /// about it. Does nothing if it has this subscription.
    ///
    /// # Errors
    /// When it is no channel or pattern for broadcasts, there is no such session, or it has too many subscriptions.
    pub async fn subscribe_session(&self, client_id: &str, channel: &str) -> Result<(), SubscriptionError> {
        self.change_subscription(true, client_id, channel).await
    }

    /// Ends the subscription of a session to a channel or pattern. Does nothing if it has no such subscription.
    ///
    /// # Errors
    /// When it is no channel or pattern for broadcasts, or there is no such session.
    pub async fn unsubscribe_session(&self, client_id: &str, channel: &str) -> Result<(), SubscriptionError> {
        self.change_subscription(false, client_id, channel).await
    }

    /// Ends the subscriptions of all sessions of a user to a channel or pattern, on all nodes of a cluster. Returns the number of these
    /// sessions, which is 0 if the server has stopped; sessions of nodes that did not answer are not in it.
    ///
    /// # Errors
    /// When it is no channel or pattern for broadcasts.
    pub async fn unsubscribe_user(&self, user: &str, channel: &str) -> Result<usize, SubscriptionError> {
        self.broadcast_name(channel)?;
        Ok(self.everywhere(NodeCommand::Unsubscribe { user: user.into(), channel: channel.into() }).await)
    }

    async fn change_subscription(
        &self,
        subscribes: bool,
        client_id: &str,
        channel: &str,
    ) -> Result<(), SubscriptionError> {
        self.broadcast_name(channel)?;
        let channel: Box<str> = channel.into();
        let command = |session| NodeCommand::Change { session, channel: channel.clone(), subscribes };
        let changed = self.0.server_shared.at_session(client_id, command).await;
        match changed.ok_or(SubscriptionError::Stopped)?.of_session() {
            Ok(NodeReply::Full) => Err(SubscriptionError::Full),
            Ok(_) => Ok(()),
            Err(_) => Err(SubscriptionError::SessionUnknown),
        }
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
