//! Processes one batch of Bayeux messages: checks each message, finds its session and calls the chapter for its
//! channel. `websocket` and `http` lead here for each batch that they have parsed. Messages to services and
//! publications by clients are handled here.

use bayeux::{BayeuxError, ChannelKind, ChannelName, Message, Publication, RawJson, ext};

use crate::application::{Actions, Service};
use crate::decision::Awaited;
use crate::events::SessionKey;
use crate::limits::shares::Urgency;
use crate::protocol::batch::{Batch, Rest, Via};
use crate::requests::Call;
use crate::rights::table::{Entry, Right};
use crate::rights::{May, Wish};
use crate::shard::owners::REFRESH;
use crate::shard::{Parts, Shard};

impl Shard {
    /// Processes all messages. Replies go to the batch; everything else that they cause is queued.
    pub(super) fn process(&mut self, batch: &mut Batch, messages: &[Message<'_>]) {
        let parts = self.beside_burst();
        parts.metrics.batches.add(1);
        parts.metrics.messages.add(messages.len());
        let replies_max = parts.replies_bytes_max(batch);
        for (index, message) in messages.iter().enumerate() {
            if batch.replies.len() <= replies_max {
                self.process_one(batch, message);
            } else {
                self.beside_burst().refuse(batch, message, BayeuxError::RepliesTooLong.as_str());
            }
            if let Some(decisions) = &mut batch.decisions {
                decisions.rest = Rest::of(&messages[index..]);
                break;
            }
        }
        if batch.begun.is_some() {
            self.settle_burst().unqueue_at_end(batch);
        }
        self.beside_burst().update_old_gauges();
    }

    /// Processes the next message of a batch that has been suspended.
    pub(super) fn process_next(&mut self, batch: &mut Batch, message: &Message<'_>) {
        let parts = self.beside_burst();
        if batch.replies.len() <= parts.replies_bytes_max(batch) {
            self.process_one(batch, message);
        } else {
            parts.refuse(batch, message, BayeuxError::RepliesTooLong.as_str());
        }
    }

    fn process_one(&mut self, batch: &mut Batch, message: &Message<'_>) {
        let parts = self.beside_burst();
        if let Some(fault) = message.fault {
            return parts.refuse(batch, message, fault.error());
        }
        let name = message.channel.as_deref().unwrap_or_default();
        let channel = match ChannelName::parse(name, parts.settings.limits()) {
            Ok(channel) => channel,
            Err(error) => return parts.refuse(batch, message, error.error()),
        };
        let kind = channel.kind();
        if kind == ChannelKind::Broadcast {
            let Some(key) = parts.sender(batch, message) else {
                return parts.refuse_unknown(batch, message, kind);
            };
            let Some(error) = parts.over_rate(batch, message, channel, key) else {
                return self.publish(batch, message, channel, key);
            };
            parts.received(key);
            return parts.refuse(batch, message, &error);
        }
        let parts = self.settle_burst();
        parts.schedule.gauges_are_old = true;
        if kind == ChannelKind::Handshake {
            return parts.handshake(batch, message);
        }
        let Some(key) = parts.sender(batch, message) else {
            return parts.refuse_unknown(batch, message, kind);
        };
        let is_counted = matches!(kind, ChannelKind::Subscribe | ChannelKind::Unsubscribe | ChannelKind::Service);
        if is_counted && let Some(error) = parts.over_rate(batch, message, channel, key) {
            parts.refuse(batch, message, &error);
            return parts.received(key);
        }
        if matches!(kind, ChannelKind::Disconnect | ChannelKind::Service) {
            // Both may answer a held connect: the actions of a service may end its session.
            parts.unqueue(batch);
        }
        match kind {
            ChannelKind::Connect => parts.connect(batch, message, key),
            ChannelKind::Disconnect => parts.disconnect(batch, message, key),
            ChannelKind::Subscribe => parts.subscribe(batch, message, key),
            ChannelKind::Unsubscribe => parts.unsubscribe(batch, message, key),
            ChannelKind::Service if parts.serves_presence(channel) => parts.ask_presence(batch, message, key),
            ChannelKind::Service => self.serve(batch, message, channel, key),
            _ => parts.refuse(batch, message, BayeuxError::ChannelCreateDenied.as_str()),
        }
        self.beside_burst().received(key);
    }

    /// Passes a message to a service of the application.
    fn serve(&mut self, batch: &mut Batch, message: &Message<'_>, channel: ChannelName<'_>, key: SessionKey) {
        let parts = self.settle_burst();
        parts.active(key);
        let bytes = [message.data, message.ext].iter().flatten().map(|json| json.as_str().len()).sum();
        let has_owner = parts.clients.identity(key).is_some();
        let is_refresh = has_owner && channel.as_str() == REFRESH;
        let entry = if is_refresh { Entry::RefreshCall } else { Entry::Call };
        let granted = match parts.may(entry, key, &wish_of(message, channel), batch.decided()) {
            May::Granted(granted) => granted,
            May::Denied(denial) => return parts.refuse(batch, message, &denial.error()),
            May::Later(later) => return parts.ask(batch, message, later, 0),
        };
        if is_refresh {
            let id = message.id.clone().map(bayeux::Id::into_owned);
            let call = parts.refresh_call(batch, key, id, bytes);
            if let Err(error) = parts.admit_refresh(&call) {
                return parts.refuse(batch, message, &error);
            }
            parts.accept(batch, message);
            return parts.refresh(call, message.data.map_or("null", RawJson::as_str), granted);
        }
        granted.use_for(Right::Call);
        let payer = parts.payer(batch, Some(key));
        if !parts.may_call(key, payer, bytes, Urgency::Common) {
            return parts.refuse(batch, message, BayeuxError::CallsWaitingMax.as_str());
        }
        let Some(caller) = parts.caller(key) else { return };
        let mut actions = Actions::default();
        let service = Service {
            caller,
            channel: channel.as_str(),
            id: message.id.as_ref().map(bayeux::Id::as_str),
            data: message.data.map(RawJson::as_str),
            ext: message.ext.map(RawJson::as_str),
        };
        let later = parts.shared.application.service(&service, &mut actions);
        self.act(actions, Some((key, channel.as_str(), message.id.as_ref())));
        let parts = self.beside_burst();
        parts.accept(batch, message);
        if let Some(later) = later {
            let (channel, id) = (channel.as_str().into(), message.id.clone().map(bayeux::Id::into_owned));
            let call = Call { session: key, channel, id, bytes, payer, urgency: Urgency::Common };
            parts.wait_for_answer(call, Awaited::Service(later));
        }
    }

    /// Publishes a message on a broadcast channel, if the session may.
    pub(crate) fn publish(
        &mut self,
        batch: &mut Batch,
        message: &Message<'_>,
        channel: ChannelName<'_>,
        key: SessionKey,
    ) {
        let parts = self.beside_burst();
        parts.active(key);
        let mut granted = match parts.may(Entry::Publish, key, &wish_of(message, channel), batch.decided()) {
            May::Granted(granted) => granted,
            May::Denied(denial) => return parts.refuse(batch, message, &denial.error()),
            May::Later(later) => return parts.ask(batch, message, later, 0),
        };
        let replacement = granted.take_data();
        if parts.lacks_history(channel) {
            return parts.refuse(batch, message, BayeuxError::HistoryChannelsMax.as_str());
        }
        let stamp = parts.raw_timestamp();
        let mut publication = Publication::from_message(channel, message, parts.settings.given().forward_ext);
        if replacement.is_some() {
            publication.data = replacement.as_deref().map(RawJson::trusted);
        }
        let forwarded = publication.ext.and_then(ext::without_replay);
        publication.ext = forwarded.as_deref().map(RawJson::trusted);
        publication.timestamp = stamp.as_deref().map(RawJson::trusted).or(publication.timestamp);
        match self.broadcast(channel, &publication, Some(key), granted) {
            None => self.beside_burst().accept(batch, message),
            Some(token) => self.beside_burst().accept_later(batch, message, key, token),
        }
    }
}

impl Parts {
    /// The bytes of replies after which the rest of a batch is refused.
    fn replies_bytes_max(&self, batch: &Batch) -> usize {
        let is_short = matches!(batch.via, Via::Http { .. }) && self.is_short_of_responses();
        if is_short { 0 } else { self.settings.capacity().bytes_max / 2 }.max(REPLIES_BYTES_LEAST)
    }

    /// The session of a message: the session of the batch, if the message names it.
    fn sender(&self, batch: &Batch, message: &Message<'_>) -> Option<SessionKey> {
        let key = batch.session.filter(|_| !batch.handshake)?;
        let session = self.sessions.get(key)?;
        message.client_id.as_deref().is_some_and(|id| session.id.is(id)).then_some(key)
    }
}

/// The wish of a client that sends a message on a channel.
#[inline]
fn wish_of<'a>(message: &'a Message<'_>, channel: ChannelName<'a>) -> Wish<'a> {
    let (data, ext) = (message.data.map(RawJson::as_str), message.ext.map(RawJson::as_str));
    Wish { data, ext, ..Wish::of(channel.as_str()) }
}

/// The smallest limit on the replies to one batch, in bytes. The limit is half of the capacity of an outbox, if that is
/// more. Over HTTP it is this value while there is little room for responses. A batch whose replies exceed the limit
/// has the rest of its messages refused.
const REPLIES_BYTES_LEAST: usize = 64 * 1024;
