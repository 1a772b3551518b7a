//! Publications and deliveries of the program.

use std::sync::Arc;

use bayeux::{Publication, RawJson, Reply, ext};
use serde::Serialize;

use super::Handle;
use crate::error::{PublishError, PublishManyError, StoreMessageError};
use crate::net::published::{InBurst, Marks, Positions};
use crate::outgoing::Outgoing;
use encke_core::{EXT_BYTES_MAX, Id, ServerEntry, ShardMessage, Weight};
use encke_local::Position;

/// The settings that concern publications: the limits of names and data, and true if messages have a timestamp.
pub(super) type Terms = (bayeux::Limits, bool);

impl Handle {
    /// Broadcasts `data_json` on a channel, and returns before it is delivered. Messages that one thread publishes on one
    /// channel arrive in that order. If the channel has a history, the message enters it.
    ///
    /// # Errors
    /// When the channel is not publishable, the data is not JSON, or the server is too busy: after
    /// [`PublishError::Busy`] the caller may try again.
    pub fn publish(&self, channel: &str, data_json: &str) -> Result<(), PublishError> {
        self.publish_message(channel, &Outgoing::raw(data_json))
    }

    /// As [`Handle::publish`], with data that serde writes as JSON.
    ///
    /// # Errors
    /// As [`Handle::publish`].
    pub fn publish_json<T: Serialize + ?Sized>(&self, channel: &str, data: &T) -> Result<(), PublishError> {
        self.publish_message(channel, &Outgoing::json(data)?)
    }

    /// As [`Handle::publish`], with an `ext` or binary data, or lazily.
    ///
    /// # Errors
    /// As [`Handle::publish`].
    pub fn publish_message(&self, channel: &str, message: &Outgoing<'_>) -> Result<(), PublishError> {
        self.broadcast(&self.terms(), channel, message, Weight::Heavy, None)
    }

    /// As [`Handle::publish`], and waits until the history of the channel has stored the message: on disk, where the server has a
    /// `data` directory ([`Settings::history_commit`](crate::Settings::history_commit)). Returns its position.
    ///
    /// # Errors
    /// When the message was not published, or was delivered without being stored.
    pub async fn publish_stored(&self, channel: &str, data_json: &str) -> Result<Position, StoreMessageError> {
        let burst = {
            let mut positions = Positions::new(&self.0.server_shared.outcomes);
            let wanted = Some(&mut positions);
            self.broadcast(&self.terms(), channel, &Outgoing::raw(data_json), Weight::Heavy, wanted)?;
            positions.bursts.pop()
        };
        let InBurst { last, outcome, .. } = burst.ok_or(StoreMessageError::Stopped)?;
        let outcome = outcome.await.map_err(|_| StoreMessageError::Stopped)?;
        if outcome.is_refused() {
            return Err(PublishError::Busy.into());
        }
        match outcome.first {
            None => Err(StoreMessageError::NoHistory(channel.into())),
            Some(_) if !outcome.is_persisted => Err(StoreMessageError::NotStored),
            Some((epoch, first)) => Ok(Position { epoch, offset: first + u64::from(last) }),
        }
    }

    /// Broadcasts messages, each with its channel and its data, in their order.
    ///
    /// # Errors
    /// The first error. The messages before it are published, and their number is in the error.
    pub fn publish_many<C: AsRef<str>, D: AsRef<str>>(
        &self,
        messages: impl IntoIterator<Item = (C, D)>,
    ) -> Result<usize, PublishManyError> {
        let terms = self.terms();
        let mut published = 0;
        for (channel, data) in messages {
            self.broadcast(&terms, channel.as_ref(), &Outgoing::raw(data.as_ref()), Weight::Heavy, None)
                .map_err(|error| PublishManyError { published, error })?;
            published += 1;
        }
        Ok(published)
    }

    /// Sends a message to one session only, as a message of this channel, on whatever node of a cluster it is. False if no session can have this id, or the
    /// server has stopped. A session that has just ended gets nothing, and nobody is notified.
    ///
    /// # Errors
    /// The same as of [`Handle::publish`], but any channel outside `/meta/` will do, also one below `/service/`.
    pub fn deliver(&self, client_id: &str, channel: &str, data_json: &str) -> Result<bool, PublishError> {
        self.deliver_message(client_id, channel, &Outgoing::raw(data_json))
    }

    /// As [`Handle::deliver`], with an `ext` or binary data.
    ///
    /// # Errors
    /// As [`Handle::deliver`].
    pub fn deliver_message(
        &self,
        client_id: &str,
        channel: &str,
        message: &Outgoing<'_>,
    ) -> Result<bool, PublishError> {
        let frame = self.frame(&self.terms(), channel, message, None)?;
        if !self.0.server_shared.mailboxes.account().has_room(Weight::Heavy) {
            return Err(PublishError::Busy);
        }
        let Some(id) = Id::parse(client_id) else { return Ok(false) };
        Ok(self.send_to_shard_of(&id, ShardMessage::Deliver(id, frame, None)))
    }

    /// The settings that concern publications.
    pub(super) fn terms(&self) -> Terms {
        let settings = self.0.settings.lock();
        (bayeux::Limits::from(&**settings), settings.timestamps)
    }

    /// Publishes. Light messages are taken without regard to the room between shards. `wanted` notes the position.
    pub(super) fn broadcast(
        &self,
        (limits, has_timestamp): &Terms,
        channel: &str,
        message: &Outgoing<'_>,
        weight: Weight,
        wanted: Option<&mut Positions<'_>>,
    ) -> Result<(), PublishError> {
        let name = bayeux::ChannelName::parse(channel, limits).ok();
        if name.is_none_or(|name| name.kind() != bayeux::ChannelKind::Broadcast) {
            return Err(PublishError::Channel(channel.into()));
        }
        let (data, ext) = checked(message, limits)?;
        let now = || ext::timestamp(self.0.server_shared.clock.now().wall_ms as i64);
        let timestamp = has_timestamp.then(|| format!("\"{}\"", now()));
        let timestamp = timestamp.as_deref().map(RawJson::trusted);
        let is_lazy = message.is_lazy;
        let message = Publication { channel, data: Some(data), ext, timestamp, ..Publication::default() };
        let account = self.0.server_shared.mailboxes.account();
        let has_room = weight == Weight::Light || account.has_room(weight);
        let wanted = wanted.map(|positions| (positions, 0));
        let marks = Marks { publisher: None, is_lazy };
        if has_room && self.0.server_shared.publish(&message, marks, wanted, ServerEntry::HandlePublish.may()) {
            return Ok(());
        }
        Err(PublishError::Busy)
    }

    /// The frame of a message for one session.
    pub(super) fn frame(
        &self,
        (limits, _): &Terms,
        channel: &str,
        message: &Outgoing<'_>,
        id: Option<&str>,
    ) -> Result<Arc<[u8]>, PublishError> {
        let name = bayeux::ChannelName::parse(channel, limits).ok();
        if name.is_none_or(|name| bayeux::channel::is_meta(name.as_str())) {
            return Err(PublishError::Channel(channel.into()));
        }
        let (data, ext) = checked(message, limits)?;
        let id = id.map(bayeux::Id::new);
        let reply = Reply { id: id.as_ref(), data: Some(data), ext, ..Reply::new(channel) };
        Ok(encke_core::reply_frame(&reply).into())
    }
}

/// The data and the `ext` of a message, if they are JSON, and the latter an object that is not too long.
fn checked<'m>(
    message: &'m Outgoing<'_>,
    limits: &bayeux::Limits,
) -> Result<(RawJson<'m>, Option<RawJson<'m>>), PublishError> {
    let valid = |text: &'m str| bayeux::json::validate(text, limits.json_depth_max).map_err(|_| PublishError::Data);
    let data = valid(&message.data)?;
    let ext = message.ext.as_deref().map(valid).transpose()?;
    if ext.is_some_and(|ext| !ext.starts_with('{') || ext.len() > EXT_BYTES_MAX) {
        return Err(PublishError::Data);
    }
    Ok((RawJson::trusted(data), ext.map(RawJson::trusted)))
}
