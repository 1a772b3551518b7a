//! `/meta/subscribe` and `/meta/unsubscribe` (Bayeux 1.0 §4.5, §4.6). `batch` leads here; `resume_at` handles the
//! positions that a subscribe names.

use std::collections::HashSet;

use bayeux::{BayeuxError, ChannelKind, ChannelName, Message, RawJson, Reply, subscription_names};
use foldhash::fast::RandomState;

use crate::application::{Answer, Decision, Subscribing};
use crate::events::SessionKey;
use crate::protocol::batch::{Batch, ext_of};
use crate::protocol::replay_request::ReplayRequest;
use crate::shard::Parts;

impl Parts {
    pub(crate) fn subscribe(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        if self.sessions.get(key).is_some_and(|session| session.protocol.is_ending()) {
            // The session only gets its remaining queue, because otherwise it might never end. The error is not
            // `402::session_unknown`: a client that gets that may leave without its remaining messages.
            return self.refuse(batch, message, &BayeuxError::SubscribeDenied.because("session_ending"));
        }
        let mut replay_request = match self.replay_request(batch, key, message) {
            Ok(replay_request) => replay_request,
            Err(error) => return self.refuse(batch, message, error.as_str()),
        };
        let raw = self.each_name(batch, message, key, |shard, name| {
            shard.subscribe_to(key, name, message.ext, replay_request.as_mut())
        });
        let mut replay = None;
        if let Some(replay_request) = replay_request {
            let (begun, member) = replay_request.end();
            (batch.begun, replay) = (Some(begun), member);
        }
        if let Some(raw) = raw {
            self.accept_names(batch, message, raw, replay);
        }
    }

    pub(super) fn unsubscribe(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        if let Some(raw) = self.each_name(batch, message, key, |shard, name| shard.unsubscribe_from(key, name)) {
            self.accept_names(batch, message, raw, None);
        }
    }

    /// Calls `each` with every name of the `subscription` field. At the first failure the rest is skipped: earlier
    /// names stand, and the single reply has the error (CometD 9). Returns the field if none failed.
    fn each_name<'m>(
        &mut self,
        batch: &mut Batch,
        message: &Message<'m>,
        key: SessionKey,
        mut each: impl FnMut(&mut Parts, &str) -> Result<(), Refusal>,
    ) -> Option<RawJson<'m>> {
        self.active(key);
        let Some(raw) = message.subscription else {
            self.refuse(batch, message, BayeuxError::SubscriptionMissing.as_str());
            return None;
        };
        let names = match subscription_names(raw, &self.limits) {
            Ok(names) => names,
            Err(error) => {
                self.refuse(batch, message, error.error());
                return None;
            }
        };
        let mut known = HashSet::with_hasher(RandomState::default());
        for name in &names {
            // A repeated name is handled once.
            if names.len() > 1 && !known.insert(&**name) {
                continue;
            }
            if let Err(error) = each(self, name) {
                self.refuse(batch, message, &error);
                return None;
            }
        }
        Some(raw)
    }

    fn accept_names(&self, batch: &mut Batch, message: &Message<'_>, raw: RawJson<'_>, replay: Option<String>) {
        let (ext, timestamp) = (ext_of([replay, self.timesync(message)]), self.timestamp());
        batch.reply(&Reply {
            id: message.id.as_ref(),
            subscription: Some(raw),
            successful: Some(true),
            ext: ext.as_deref().map(RawJson::trusted),
            timestamp: timestamp.as_deref(),
            ..Reply::new(message.channel.as_deref().unwrap_or_default())
        });
    }

    fn subscribe_to(
        &mut self,
        key: SessionKey,
        name: &str,
        ext: Option<RawJson<'_>>,
        replay_request: Option<&mut ReplayRequest<'_>>,
    ) -> Result<(), Refusal> {
        let channel = parse(name, &self.limits)?;
        match channel.kind() {
            ChannelKind::Broadcast => {}
            // Services answer any session that calls them. There is nothing to subscribe to, and trying does no harm
            // (CometD 9).
            ChannelKind::Service => return Ok(()),
            _ if channel.is_pattern() => return Err(BayeuxError::CreateDenied.as_str().into()),
            _ => return Err(BayeuxError::SubscribeDenied.as_str().into()),
        }
        let known = self.hub.find(name);
        let Some(session) = self.sessions.get_mut(key) else { return Ok(()) };
        if known.is_some_and(|known| session.subscriptions.iter().any(|s| s.channel == known)) {
            return replay_request.map_or(Ok(()), |replay_request| self.follow(key, channel, None, replay_request));
        }
        if session.subscriptions.len() >= self.settings.subscriptions_max {
            self.metrics.subscriptions_refused.add(1);
            return Err(BayeuxError::SubscriptionsMax.as_str().into());
        }
        if known.is_none() && self.hub.channels() >= self.settings.channels_max {
            self.metrics.subscriptions_refused.add(1);
            return Err(BayeuxError::ChannelsMax.as_str().into());
        }
        if session.identity().is_some_and(|identity| !identity.may_subscribe(name)) {
            return Err(BayeuxError::SubscribeDenied.because("").into());
        }
        let subscribing = Subscribing { caller: session.caller(), channel: name, ext: ext.map(RawJson::as_str) };
        match self.shared.application.subscribe(&subscribing) {
            Answer::Now(Decision::Allow) => {}
            Answer::Now(Decision::Deny(reason)) => return Err(BayeuxError::SubscribeDenied.because(&reason).into()),
            Answer::Later(_) => return Err(BayeuxError::DecisionsWaitingMax.as_str().into()),
        }
        let slot = session.subscriptions.len();
        // Before the reply leaves: a publication by a client that has seen the reply reaches this session.
        let Some(listed) = self.enlist(key, channel) else { return Ok(()) };
        // After the subscription: later publications arrive live, and earlier ones are in the history.
        let followed =
            replay_request.map_or(Ok(()), |replay_request| self.follow(key, channel, Some(listed), replay_request));
        if followed.is_err() {
            self.drop_subscription(key, slot);
            self.forget_cursors(key, name);
        }
        followed
    }

    pub(super) fn unsubscribe_from(&mut self, key: SessionKey, name: &str) -> Result<(), Refusal> {
        let channel = parse(name, &self.limits)?;
        if channel.kind() == ChannelKind::Service {
            return Ok(());
        }
        if channel.kind() != ChannelKind::Broadcast {
            return Err(BayeuxError::ChannelMissing.as_str().into());
        }
        // Unsubscribing from a channel without subscribers succeeds (CometD 9).
        let Some(known) = self.hub.find(name) else { return Ok(()) };
        let Some(session) = self.sessions.get(key) else { return Ok(()) };
        let follows = session.replay.is_some();
        if let Some(slot) = session.subscriptions.iter().position(|s| s.channel == known) {
            if follows {
                self.hand_over(key, known);
            }
            self.drop_subscription(key, slot);
            self.forget_cursors(key, name);
        }
        Ok(())
    }
}

/// The error text of a refused subscription.
type Refusal = std::borrow::Cow<'static, str>;

/// Parses the name of a channel to subscribe to. A name without a leading slash is invalid, in CometD's words.
fn parse<'n>(name: &'n str, limits: &bayeux::Limits) -> Result<ChannelName<'n>, Refusal> {
    if !name.starts_with('/') {
        return Err(BayeuxError::SubscriptionInvalid.as_str().into());
    }
    ChannelName::parse(name, limits).map_err(|error| error.error().into())
}
