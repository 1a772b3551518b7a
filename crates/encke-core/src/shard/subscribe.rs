//! `/meta/subscribe` and `/meta/unsubscribe` (Bayeux 1.0 §4.5, §4.6).

use std::borrow::Cow;
use std::collections::HashSet;

use bayeux::{BayeuxError, ChannelKind, ChannelName, Message, RawJson, Reply, subscription_names};
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::application::Decision;
use crate::decision::Resolved;
use crate::events::{SessionKey, crosses_nodes};
use crate::interval::Interval;
use crate::protocol::batch::{Batch, ext_of, success};
use crate::protocol::replay_request::ReplayRequest;
use crate::rights::table::{Entry, Granted, Right};
use crate::rights::{Denial, May, Wish};
use crate::shard::Machines;

impl Machines {
    pub(super) fn subscribe(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        if self.delivery.session(key).is_some_and(|session| session.is_ending()) {
            // The session only gets its remaining queue, because otherwise it might never end. The error is not
            // `402::session_unknown`: a client that gets that may leave without its remaining messages.
            return self.beside().refuse(batch, message, &BayeuxError::SubscribeDenied.because("session_ending"));
        }
        let Some((raw, names)) = self.names(batch, message, key) else { return };
        let interval = match self.interval_of(message) {
            Ok(interval) => interval,
            Err(error) => return self.beside().refuse(batch, message, error.as_str()),
        };
        let Some(decisions) = self.decide(batch, message, key, &names, interval) else { return };
        let mut replay_request = match self.replay_request(batch, key, message) {
            Ok(replay_request) => replay_request,
            Err(error) => return self.beside().refuse(batch, message, error.as_str()),
        };
        if replay_request.is_some() {
            // Before positions are followed.
            self.leave_request(key);
        }
        let mut decisions = decisions.into_iter();
        let result = each(&names, |name| {
            let decided = decisions.next().unwrap_or_default();
            self.subscribe_to((key, name), interval, decided, replay_request.as_mut())
        });
        let mut replay = None;
        if let Some(replay_request) = replay_request {
            let (begun, member) = replay_request.end();
            (batch.begun, replay) = (Some(begun), member);
        }
        match result {
            Ok(()) => {
                let unknown = self.unknown_to_nodes(&names);
                self.accept_names(batch, message, raw, replay, (key, unknown));
            }
            Err(error) => self.beside().refuse(batch, message, &error),
        }
    }

    /// Those of the names whose publications of other nodes do not arrive yet, in a cluster.
    fn unknown_to_nodes(&self, names: &Names<'_>) -> Vec<Box<str>> {
        if self.requests.owed.is_full() {
            return Vec::new();
        }
        self.unknown_names(names.iter().map(|name| &**name))
    }

    /// The same of any names.
    pub(super) fn unknown_names<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<Box<str>> {
        let shared = &self.env.shared;
        if !shared.is_clustered() {
            return Vec::new();
        }
        let is_unknown =
            |name: &&str| crosses_nodes(name) && shared.interest.has(name) && !shared.interest.is_known(name);
        names.filter(is_unknown).map(Box::from).collect()
    }

    pub(super) fn unsubscribe(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        let Some((raw, names)) = self.names(batch, message, key) else { return };
        match each(&names, |name| self.unsubscribe_from(key, name)) {
            Ok(()) => self.accept_names(batch, message, raw, None, (key, Vec::new())),
            Err(error) => self.beside().refuse(batch, message, &error),
        }
    }

    /// The `subscription` field and its names, each once. An invalid field is refused.
    fn names<'m>(
        &mut self,
        batch: &mut Batch,
        message: &Message<'m>,
        key: SessionKey,
    ) -> Option<(RawJson<'m>, Names<'m>)> {
        self.delivery.aside().active(key);
        let Some(raw) = message.subscription else {
            self.beside().refuse(batch, message, BayeuxError::SubscriptionMissing.as_str());
            return None;
        };
        let mut names = match subscription_names(raw, self.env.settings.limits()) {
            Ok(names) => names,
            Err(error) => {
                self.beside().refuse(batch, message, error.error());
                return None;
            }
        };
        if names.len() > 1 {
            let mut known = HashSet::with_hasher(RandomState::default());
            names.retain(|name| known.insert(name.clone()));
        }
        Some((raw, names))
    }

    /// Asks for the rights to the names of a subscribe, before anything is done for one of them. None if the message waits
    /// for a decision, or is refused. After a denied name no further ones are asked about.
    fn decide(
        &mut self,
        batch: &mut Batch,
        message: &Message<'_>,
        key: SessionKey,
        names: &Names<'_>,
        interval: Option<Interval>,
    ) -> Option<Decided> {
        let made = batch.decisions.as_mut().map(|later| std::mem::take(&mut later.made)).unwrap_or_default();
        // They are in the order of the names.
        let mut made = made.into_iter().peekable();
        let mut decisions = Decided::new();
        let ext = message.ext.map(RawJson::as_str);
        let replays = message.ext.is_some_and(bayeux::ext::uses_replay);
        let mut added = 0;
        for (index, name) in names.iter().enumerate() {
            let Some(entry) = self.entry_of((key, name), interval, added, replays) else {
                decisions.push(None);
                continue;
            };
            if entry != Entry::Replay {
                // Also before an answer that may come under another policy.
                self.clients.decides_about(key);
            }
            while made.next_if(|(of, _)| *of < index).is_some() {}
            let earlier = made.next_if(|(of, _)| *of == index).map(|(_, decision)| decision);
            let wish = Wish { ext, is_held: entry == Entry::Replay, ..Wish::of(name) };
            let decision = match self.beside().may(entry, key, &wish, earlier) {
                May::Granted(granted) => Ok(granted),
                May::Denied(denial) => Err(denial),
                May::Later(later) => {
                    self.beside().ask(batch, message, later, index);
                    // Those before it are granted.
                    let is_asked = |(at, asked): (usize, &Option<_>)| asked.is_some().then_some(at);
                    let asked = decisions.iter().enumerate().filter_map(is_asked);
                    if let Some(later) = batch.decisions.as_mut().filter(|later| later.awaited.is_some()) {
                        later.made = asked.map(|at| (at, Resolved::Subscribe(Decision::Allow))).collect();
                        // Messages that come live before the decision would come again from the ring.
                        batch.withholds |= replays && self.delivery.withhold(key);
                    }
                    return None;
                }
            };
            added += usize::from(matches!(entry, Entry::Subscribe | Entry::Stream));
            let is_denied = decision.is_err();
            decisions.push(Some(decision));
            if is_denied {
                break;
            }
        }
        Some(decisions)
    }

    /// The right that a name in a subscribe needs. None if the name cannot be subscribed to, does not fit the limits, or
    /// nothing is to be done for it. `replays`: the message names positions. `added`: the number of subscriptions that
    /// will be made before.
    fn entry_of(
        &self,
        (key, name): (SessionKey, &str),
        interval: Option<Interval>,
        added: usize,
        replays: bool,
    ) -> Option<Entry> {
        let channel = parse(name, self.env.settings.limits()).ok()?;
        if channel.kind() != ChannelKind::Broadcast {
            None
        } else if self.holds(key, name, interval) {
            replays.then_some(Entry::Replay)
        } else {
            let is_plain = self.delivery.session(key).is_some_and(|session| session.is_plain());
            let entry = if is_plain { Entry::Stream } else { Entry::Subscribe };
            let is_in_place_of_own = interval.is_some() && self.subscribes(key, name);
            (is_in_place_of_own || self.full(key, name, added).is_none()).then_some(entry)
        }
    }

    /// The error if a session has too many subscriptions for one more to a channel or pattern, or its shard too many
    /// channels. `added`: the number of those that will be made before.
    fn full(&self, key: SessionKey, name: &str, added: usize) -> Option<BayeuxError> {
        self.delivery.session(key)?;
        if self.channels.count_of(key.index) + added >= self.subscriptions_max(key) {
            return Some(BayeuxError::SubscriptionsMax);
        }
        let is_full = self.channels.len() >= self.env.settings.given().channels_max && !self.channels.has(name);
        is_full.then_some(BayeuxError::ChannelsMax)
    }

    /// The number of subscriptions that a session may have.
    pub(super) fn subscriptions_max(&self, key: SessionKey) -> usize {
        let own = self.clients.identity(key).and_then(|identity| identity.limits.subscriptions_max);
        own.map_or(self.env.settings.given().subscriptions_max, |own| own as usize)
    }

    /// Replies that it is done: now, or when the other nodes know the names that they do not know yet.
    fn accept_names(
        &mut self,
        batch: &mut Batch,
        message: &Message<'_>,
        raw: RawJson<'_>,
        replay: Option<String>,
        (key, unknown): (SessionKey, Vec<Box<str>>),
    ) {
        let (ext, timestamp) = (ext_of([replay, self.env.timesync(message)]), self.env.timestamp());
        let channel = message.channel.as_deref().unwrap_or_default();
        let reply = success(channel, message.id.as_ref(), &ext, &timestamp);
        let reply = Reply { subscription: Some(raw), ..reply };
        if unknown.is_empty() {
            return batch.reply(&reply);
        }
        let mut text = Vec::new();
        reply.write(&mut text);
        // Clients that replay take no message before the reply: it would come again after a subscribe of their session.
        let withholds = self.delivery.withhold(key);
        let token = self.beside().accept_when_known(batch, message, key, unknown, text);
        if withholds {
            self.requests.owed.withhold(token, batch, key);
        }
    }

    fn subscribe_to(
        &mut self,
        (key, name): (SessionKey, &str),
        interval: Option<Interval>,
        decided: Option<Result<Granted, Denial>>,
        replay_request: Option<&mut ReplayRequest<'_>>,
    ) -> Result<(), Refusal> {
        let channel = parse(name, self.env.settings.limits())?;
        match channel.kind() {
            ChannelKind::Broadcast => {}
            // Services answer any session that calls them. There is nothing to subscribe to, and trying does no harm
            // (CometD 9).
            ChannelKind::Service => return Ok(()),
            _ if channel.is_pattern() => return Err(BayeuxError::CreateDenied.as_str().into()),
            _ => return Err(BayeuxError::SubscribeDenied.as_str().into()),
        }
        let is_held = self.holds(key, name, interval);
        let is_in_place_of_own = !is_held && self.subscribes(key, name);
        if !is_held && !is_in_place_of_own {
            self.check_room(key, name)?;
        }
        let granted = match decided {
            Some(decided) => decided.map_err(|denial| denial.error())?,
            // It has the subscription already, and names no position.
            None if is_held => return Ok(()),
            None => return Err(BayeuxError::DecisionFailed.as_str().into()),
        };
        if is_in_place_of_own {
            return self.change_interval((key, channel), interval.unwrap_or_default(), granted, replay_request);
        }
        if !is_held {
            return self.add_subscription(key, channel, interval.unwrap_or_default(), granted, replay_request);
        }
        granted.use_for(Right::History);
        if !self.channels.interval_of(key.index, name).is_none() {
            return Err(BayeuxError::MinIntervalWithPositions.as_str().into());
        }
        replay_request.map_or(Ok(()), |replay_request| self.follow(key, channel, None, replay_request))
    }

    /// True if a session has a subscription to exactly this channel or pattern.
    pub(super) fn subscribes(&self, key: SessionKey, name: &str) -> bool {
        self.delivery.has(key) && self.channels.slot_of(key.index, name).is_some()
    }

    /// The same with this interval, if one is named.
    fn holds(&self, key: SessionKey, name: &str, interval: Option<Interval>) -> bool {
        let has_it = || self.channels.interval_of(key.index, name);
        self.subscribes(key, name) && interval.is_none_or(|interval| interval == has_it())
    }

    /// Refuses one more subscription of a session if there are too many.
    pub(super) fn check_room(&self, key: SessionKey, name: &str) -> Result<(), Refusal> {
        let Some(full) = self.full(key, name, 0) else { return Ok(()) };
        self.env.metrics.subscriptions_refused.add(1);
        Err(full.as_str().into())
    }

    /// Makes a subscription with this interval. The counted limits hold.
    pub(super) fn add_subscription(
        &mut self,
        key: SessionKey,
        channel: ChannelName<'_>,
        interval: Interval,
        granted: Granted,
        replay_request: Option<&mut ReplayRequest<'_>>,
    ) -> Result<(), Refusal> {
        let name = channel.as_str();
        if !self.delivery.has(key) {
            return Ok(());
        }
        let slot = self.channels.count_of(key.index);
        self.beside().count_subscription(key, channel, true)?;
        // Before the reply leaves: a publication by a client that has seen the reply reaches this session.
        let Some(listed) = self.enlist(key, channel, interval, granted) else { return Ok(()) };
        // After the subscription: later publications arrive live, and earlier ones are in the history.
        let replay_request = replay_request.filter(|_| interval.is_none());
        let followed = replay_request.map_or(Ok(()), |replay_request| {
            replay_request.is_of_new = true;
            let followed = self.follow(key, channel, Some(listed), replay_request);
            replay_request.is_of_new = false;
            followed
        });
        if followed.is_err() {
            self.drop_subscription(key, slot);
            self.forget_cursors(key, name);
        } else {
            self.joined(key, name, true);
            self.give_retained(key, channel, listed, interval);
        }
        followed
    }

    /// Gives a subscription another interval. It goes on: no limit is asked, and nobody sees it end.
    fn change_interval(
        &mut self,
        (key, channel): (SessionKey, ChannelName<'_>),
        interval: Interval,
        granted: Granted,
        replay_request: Option<&mut ReplayRequest<'_>>,
    ) -> Result<(), Refusal> {
        granted.use_for(Right::Subscribe);
        let before = self.channels.interval_of(key.index, channel.as_str());
        let Some(list) = self.move_to(key, channel.as_str(), interval) else { return Ok(()) };
        let replay_request = replay_request.filter(|_| interval.is_none());
        let followed =
            replay_request.map_or(Ok(()), |replay_request| self.follow(key, channel, Some(list), replay_request));
        if followed.is_err() {
            self.move_to(key, channel.as_str(), before);
        }
        followed
    }

    pub(super) fn unsubscribe_from(&mut self, key: SessionKey, name: &str) -> Result<(), Refusal> {
        let channel = parse(name, self.env.settings.limits())?;
        if channel.kind() == ChannelKind::Service {
            return Ok(());
        }
        if channel.kind() != ChannelKind::Broadcast {
            return Err(BayeuxError::ChannelMissing.as_str().into());
        }
        // Unsubscribing from a channel without subscribers succeeds (CometD 9).
        let Some(session) = self.delivery.session(key) else { return Ok(()) };
        let follows = session.replays();
        if let Some(slot) = self.channels.slot_of(key.index, name) {
            let interval = self.channels.list_at(key.index, slot).map(|(_, interval)| interval);
            if follows && interval.is_some_and(Interval::is_none) {
                self.channels.hand_over(key.index, slot);
            }
            self.settle_waiting(key, slot, false);
            self.drop_subscription(key, slot);
            self.forget_cursors(key, name);
        }
        Ok(())
    }
}

/// The names of a `subscription` field.
type Names<'m> = SmallVec<[Cow<'m, str>; 1]>;

/// The decision on each name. None for a name that needs none.
type Decided = SmallVec<[Option<Result<Granted, Denial>>; 1]>;

/// Calls `each` with every name. At the first failure the rest is skipped: earlier names stand, and the single reply has
/// the error (CometD 9).
fn each(names: &Names<'_>, mut each: impl FnMut(&str) -> Result<(), Refusal>) -> Result<(), Refusal> {
    names.iter().try_for_each(|name| each(name))
}

/// The error text of a refused subscription.
pub(super) type Refusal = Cow<'static, str>;

/// Parses the name of a channel to subscribe to. A name without a leading slash is invalid, in CometD's words.
fn parse<'n>(name: &'n str, limits: &bayeux::Limits) -> Result<ChannelName<'n>, Refusal> {
    if !name.starts_with('/') {
        return Err(BayeuxError::SubscriptionInvalid.as_str().into());
    }
    ChannelName::parse(name, limits).map_err(|error| error.error().into())
}
