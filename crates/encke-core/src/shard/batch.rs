//! Processes one batch of Bayeux messages: checks each message, finds its session, and handles it by the kind of its
//! channel. Publications by clients and messages to services are handled here.

use bayeux::{BayeuxError, ChannelKind, ChannelName, Message, Publication, RawJson, ext};

use crate::application::{Actions, Service};
use crate::decision::Awaited;
use crate::events::{HISTORY_SERVICE, SessionKey};
use crate::limits::shares::Urgency;
use crate::protocol::batch::{Batch, Rest};
use crate::requests::Call;
use crate::rights::table::{Entry, Right};
use crate::rights::{May, Wish};
use crate::shard::Shard;
use crate::shard::beside::declines_reply;
use crate::shard::owners::REFRESH;

impl Shard {
    /// Processes all messages. Replies go to the batch; everything else that they cause is queued.
    pub(super) fn process(&mut self, batch: &mut Batch, messages: &[Message<'_>]) {
        let metrics = &self.machines.env.metrics;
        metrics.batches.add(1);
        metrics.messages.add(messages.len());
        let replies_max = self.beside_burst().replies_bytes_max(batch);
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
            self.end_batch(batch);
        }
    }

    /// Processes the next message of a batch that has been suspended.
    pub(super) fn process_next(&mut self, batch: &mut Batch, message: &Message<'_>) {
        let mut beside = self.beside_burst();
        if batch.replies.len() <= beside.replies_bytes_max(batch) {
            self.process_one(batch, message);
        } else {
            beside.refuse(batch, message, BayeuxError::RepliesTooLong.as_str());
        }
    }

    /// Ends the processing of a batch, or a part of it: it is answered or suspended now.
    pub(super) fn end_batch(&mut self, batch: &mut Batch) {
        let machines = self.settle_burst();
        if batch.begun.is_some() {
            machines.unqueue_at_end(batch);
        }
    }

    fn process_one(&mut self, batch: &mut Batch, message: &Message<'_>) {
        let mut beside = self.beside_burst();
        if let Some(fault) = message.fault {
            return beside.refuse(batch, message, fault.error());
        }
        let name = message.channel.as_deref().unwrap_or_default();
        let channel = match ChannelName::parse(name, beside.env.settings.limits()) {
            Ok(channel) => channel,
            Err(error) => return beside.refuse(batch, message, error.error()),
        };
        let kind = channel.kind();
        if kind == ChannelKind::Broadcast {
            let Some(key) = beside.sender(batch, message) else {
                return beside.refuse_unknown(batch, message, kind);
            };
            let Some(error) = beside.over_rate(batch, message, channel, key) else {
                return self.publish(batch, message, channel, key);
            };
            beside.sessions.received(key);
            return beside.refuse(batch, message, &error);
        }
        let machines = self.settle_burst();
        machines.env.gauges_are_old = true;
        if kind == ChannelKind::Handshake {
            return machines.handshake(batch, message);
        }
        let mut beside = machines.beside();
        let Some(key) = beside.sender(batch, message) else {
            return beside.refuse_unknown(batch, message, kind);
        };
        let is_counted = matches!(kind, ChannelKind::Subscribe | ChannelKind::Unsubscribe | ChannelKind::Service);
        if is_counted && let Some(error) = beside.over_rate(batch, message, channel, key) {
            beside.refuse(batch, message, &error);
            return beside.sessions.received(key);
        }
        if matches!(kind, ChannelKind::Disconnect | ChannelKind::Service) {
            // Both may answer a held connect: the actions of a service may end its session.
            machines.unqueue(batch);
        }
        match kind {
            ChannelKind::Connect => machines.connect(batch, message, key),
            ChannelKind::Disconnect => machines.disconnect(batch, message, key),
            ChannelKind::Subscribe => machines.subscribe(batch, message, key),
            ChannelKind::Unsubscribe => machines.unsubscribe(batch, message, key),
            ChannelKind::Service if machines.serves_presence(channel) => machines.ask_presence(batch, message, key),
            ChannelKind::Service if channel.as_str() == HISTORY_SERVICE => machines.ask_history(batch, message, key),
            ChannelKind::Service => self.serve(batch, message, channel, key),
            _ => machines.beside().refuse(batch, message, BayeuxError::ChannelCreateDenied.as_str()),
        }
        self.beside_burst().sessions.received(key);
    }

    /// Passes a message to a service of the application.
    fn serve(&mut self, batch: &mut Batch, message: &Message<'_>, channel: ChannelName<'_>, key: SessionKey) {
        let machines = self.settle_burst();
        let mut beside = machines.beside();
        beside.sessions.active(key);
        let bytes = [message.data, message.ext].iter().flatten().map(|json| json.as_str().len()).sum();
        let has_owner = beside.clients.identity(key).is_some();
        let is_refresh = has_owner && channel.as_str() == REFRESH;
        let entry = if is_refresh { Entry::RefreshCall } else { Entry::Call };
        let granted = match beside.may(entry, key, &wish_of(message, channel), batch.decided()) {
            May::Granted(granted) => granted,
            May::Denied(denial) => return beside.refuse(batch, message, &denial.error()),
            May::Later(later) => return beside.ask(batch, message, later, 0),
        };
        if is_refresh {
            let id = message.id.clone().map(bayeux::Id::into_owned);
            let call = beside.refresh_call(batch, key, id, bytes);
            if let Err(error) = beside.admit_refresh(&call) {
                return beside.refuse(batch, message, &error);
            }
            beside.env.accept(batch, message);
            return machines.refresh(call, message.data.map_or("null", RawJson::as_str), granted);
        }
        granted.use_for(Right::Call);
        if !beside.env.shared.application.serves(channel.as_str()) {
            return beside.refuse(batch, message, BayeuxError::ServiceUnknown.as_str());
        }
        let payer = beside.payer(batch, Some(key));
        if !beside.may_call(key, payer, bytes, Urgency::Common) {
            return beside.refuse(batch, message, BayeuxError::CallsWaitingMax.as_str());
        }
        let Some(caller) = machines.caller(key) else { return };
        let mut actions = Actions::default();
        let service = Service {
            caller,
            channel: channel.as_str(),
            id: message.id.as_ref().map(bayeux::Id::as_str),
            data: message.data.map(RawJson::as_str),
            ext: message.ext.map(RawJson::as_str),
        };
        let later = machines.env.shared.application.service(&service, &mut actions);
        self.act(actions, Some((key, channel.as_str(), message.id.as_ref())));
        self.machines.env.accept(batch, message);
        if let Some(later) = later {
            let (channel, id) = (channel.as_str().into(), message.id.clone().map(bayeux::Id::into_owned));
            let (machines, urgency) = (self.settle_burst(), Urgency::Common);
            let authentication = machines.clients.policy().authentication;
            let call = Call { session: key, channel, id, bytes, payer, urgency, authentication };
            machines.wait_for_answer(call, Awaited::Service(later));
        }
    }

    /// Publishes a message on a broadcast channel, if the session may.
    #[inline]
    fn publish(&mut self, batch: &mut Batch, message: &Message<'_>, channel: ChannelName<'_>, key: SessionKey) {
        let mut beside = self.beside_burst();
        beside.sessions.active(key);
        let mut granted = match beside.may(Entry::Publish, key, &wish_of(message, channel), batch.decided()) {
            May::Granted(granted) => granted,
            May::Denied(denial) => return beside.refuse(batch, message, &denial.error()),
            May::Later(later) => return beside.ask(batch, message, later, 0),
        };
        let (replacement, ext) = (granted.take_data(), granted.take_ext());
        if beside.lacks_history(channel) {
            return beside.refuse(batch, message, BayeuxError::HistoryChannelsMax.as_str());
        }
        let stamp = beside.env.raw_timestamp();
        let mut publication = Publication::from_message(channel, message, beside.env.settings.given().forward_ext);
        if replacement.is_some() {
            publication.data = replacement.as_deref().map(RawJson::trusted);
        }
        if let Some(ext) = &ext {
            publication.ext = Some(RawJson::trusted(ext));
        }
        let forwarded = publication.ext.and_then(ext::forwarded);
        publication.ext = forwarded.as_deref().map(RawJson::trusted);
        publication.timestamp = stamp.as_deref().map(RawJson::trusted).or(publication.timestamp);
        match self.broadcast(channel, &publication, (Some(key), false), granted) {
            None => self.machines.env.accept(batch, message),
            Some(_) if declines_reply(message) => {}
            Some(token) => {
                let index = self.burst.messages() - 1;
                self.beside_burst().accept_later(batch, message, key, token, index);
            }
        }
    }
}

/// The wish of a client that sends a message on a channel.
#[inline]
fn wish_of<'a>(message: &'a Message<'_>, channel: ChannelName<'a>) -> Wish<'a> {
    let (data, ext) = (message.data.map(RawJson::as_str), message.ext.map(RawJson::as_str));
    Wish { data, ext, ..Wish::of(channel.as_str()) }
}
