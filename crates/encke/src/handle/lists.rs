//! Lists of sessions and channels, and what is done to all sessions of a user.

use super::Handle;
use crate::error::PublishError;
use crate::net::listing::{Listed, written};
use encke_core::{ChannelView, Id, Identity, SessionView, ShardMessage, Weight};

/// A page of a list. Items that exist during the whole listing are on exactly one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T> {
    /// The items. There may be fewer than the limit, or none, and still a next page.
    pub items: Vec<T>,
    /// The cursor of the next page. None after the last one.
    pub next: Option<String>,
}

impl Handle {
    /// Lists sessions, at most `limit` of them: the first page, or the one at the cursor of the page before. None if the
    /// cursor is not valid, or the server has stopped.
    pub async fn list_sessions(&self, cursor: Option<&str>, limit: usize) -> Option<List<SessionView>> {
        let server_shared = &self.0.server_shared;
        let from = cursor.map_or(Some((0, 0)), |cursor| server_shared.cursor(cursor))?;
        server_shared.list_sessions(from, limit).await.map(List::from)
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
        let from = cursor.map_or(Some((0, 0)), |cursor| server_shared.cursor(cursor))?;
        server_shared.list_channels(&self.0.shared, from, limit, pattern).await.map(List::from)
    }

    /// Sends a message to all sessions of a user, as a message of this channel. Returns their number, which is 0 if the
    /// server has stopped.
    ///
    /// # Errors
    /// The same as of [`Handle::deliver`].
    pub async fn deliver_to_user(&self, user: &str, channel: &str, data_json: &str) -> Result<usize, PublishError> {
        let frame = self.frame(&self.terms(), channel, data_json, None)?;
        if !self.0.server_shared.mailbox.has_room(Weight::Heavy) {
            return Err(PublishError::Busy);
        }
        let user = Box::<str>::from(user);
        let ids = self.0.server_shared.sessions_of(move |identity| identity.user == user).await.unwrap_or_default();
        let deliver = |id: &Id| self.send_to_shard(id.shard(), ShardMessage::Deliver(*id, frame.clone()));
        Ok(ids.iter().filter(|id| deliver(id)).count())
    }

    /// Ends all sessions of a user. Returns their number, which is 0 if the server has stopped.
    pub async fn disconnect_user(&self, user: &str) -> usize {
        let user = Box::<str>::from(user);
        self.disconnect_all(move |identity| identity.user == user).await
    }

    async fn disconnect_all(&self, is_wanted: impl Fn(&Identity) -> bool + Clone + Send + 'static) -> usize {
        let ids = self.0.server_shared.sessions_of(is_wanted).await.unwrap_or_default();
        ids.iter().filter(|id| self.send_to_shard(id.shard(), ShardMessage::Disconnect(**id))).count()
    }
}

impl<T> From<Listed<T>> for List<T> {
    fn from(listed: Listed<T>) -> List<T> {
        List { items: listed.items, next: listed.next.map(written) }
    }
}
