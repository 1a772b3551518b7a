//! Limits by session, user, address, channel and server: on messages, handshakes, sessions and subscriptions.
//!
//! The narrowest limit is checked first: a session that sends too much must not use up what its user, its address or
//! the server may send.

use std::hash::Hash;
use std::sync::atomic::Ordering;

use bayeux::{BayeuxError, ChannelKind, ChannelName, Message};

use crate::clients::newcomers::Origins;
use crate::events::SessionKey;
use crate::identity::Identity;
use crate::limits::rate::Rate;
use crate::limits::sessions::SessionOwner;
use crate::limits::users::{UserKey, UserUse, UsersOfNodes};
use crate::limits::{Resource, SESSIONS, SUBSCRIPTIONS};
use crate::metrics::Count;
use crate::protocol::batch::Batch;
use crate::settings::ChannelRule;
use crate::settings::in_force::InForce;
use crate::shard::beside::BesideBurst;
use crate::shard::{Env, Machines};

impl BesideBurst<'_> {
    /// The error for a message that exceeds a rate. None if it may be processed. Connects, disconnects and handshakes are
    /// not counted here: a session lives by them.
    #[inline(always)]
    pub(super) fn over_rate(
        &mut self,
        batch: &Batch,
        message: &Message<'_>,
        channel: ChannelName<'_>,
        key: SessionKey,
    ) -> Option<String> {
        let has_own = self.clients.identity(key).is_some();
        // A message that waited for a decision was counted before.
        if (!self.env.settings.has_rates() && !has_own) || batch.is_decided() {
            return None;
        }
        let exceeded = self.exceeded(batch, message, channel, key)?;
        Some(BayeuxError::RateExceeded.because(exceeded))
    }

    /// The name of the first limit that a message exceeds. It is not inlined into the way of a publication without limits.
    #[inline(never)]
    fn exceeded(
        &mut self,
        batch: &Batch,
        message: &Message<'_>,
        channel: ChannelName<'_>,
        key: SessionKey,
    ) -> Option<&'static str> {
        let (now, rates) = (self.env.now, *self.env.settings.rates());
        let units = [1, message.batch_bytes];
        self.sessions.id_of(key)?;
        let identity = self.clients.identity(key).cloned();
        let limits = identity.as_ref().map_or_else(Default::default, |identity| identity.limits);
        let own = [limits.messages_per_s_max, limits.bytes_per_s_max];
        for (at, name) in ["session_messages_per_s_max", "session_bytes_per_s_max"].into_iter().enumerate() {
            let rate = own[at].map_or(rates.session[at], |per_s| Rate(u64::from(per_s)));
            if rate.is_on() && !self.clients.take(key, at, rate, now, units[at]) {
                self.env.metrics.session_rates_exceeded.add(1);
                return Some(name);
            }
        }
        if !self.env.settings.has_rates() {
            return None;
        }
        let user = identity.as_ref().map_or("", |identity| &identity.user);
        let names = ["user_messages_per_s_max", "user_bytes_per_s_max"];
        if !user.is_empty()
            && let Some(at) = self.env.user_over(&rates.user, units, user)
        {
            self.env.metrics.user_rates_exceeded.add(1);
            return Some(names[at]);
        }
        let names = ["address_messages_per_s_max", "address_bytes_per_s_max"];
        if rates.address.iter().any(|rate| rate.is_on()) {
            let [_, address] = self.origins_of(batch);
            if address > 0
                && let Some(at) = self.env.first_over(&rates.address, units, (ADDRESS, address))
            {
                self.env.metrics.address_rates_exceeded.add(1);
                return Some(names[at]);
            }
        }
        if self.env.settings.rules_have_rates() && channel.kind() == ChannelKind::Broadcast {
            let of_rule = |rule: &ChannelRule| [rule.messages_per_s_max as u64, rule.bytes_per_s_max as u64];
            // 0 is no limit.
            let least = |one: u64, other: u64| if one == 0 || other == 0 { one.max(other) } else { one.min(other) };
            let rules = self.env.settings.publication_rules(channel).map(of_rule);
            let rates =
                rules.fold([0; 2], |[messages, bytes], of| [least(messages, of[0]), least(bytes, of[1])]).map(Rate);
            if let Some(at) = self.env.first_over(&rates, units, (CHANNEL, channel.as_str())) {
                self.env.metrics.channel_rates_exceeded.add(1);
                return Some(["channel_messages_per_s_max", "channel_bytes_per_s_max"][at]);
            }
        }
        let server = &self.env.shared.limits.server;
        let over = (0..2).find(|at| {
            let rate = rates.server[*at];
            rate.is_on() && !rate.take_shared(&server[*at], now, units[*at])
        })?;
        self.env.metrics.server_rates_exceeded.add(1);
        Some(["messages_per_s_max", "bytes_per_s_max"][over])
    }

    /// The name of the rate that one more handshake of a client exceeds, before it is known who the client is.
    pub(super) fn handshake_over_rate(&self, batch: &Batch) -> Option<&'static str> {
        self.env.authentication_over_rate(self.origins_of(batch))
    }

    /// Counts one more subscription of a session, before it is made. Otherwise returns the error. `is_limited`: the
    /// limits hold. If not, it was made before a restart, and is only counted.
    pub(super) fn count_subscription(
        &mut self,
        key: SessionKey,
        channel: ChannelName<'_>,
        is_limited: bool,
    ) -> Result<(), String> {
        let most = |set: usize| if is_limited && set > 0 { set } else { usize::MAX };
        let limits = &self.env.shared.limits;
        let all_max = most(self.env.settings.given().all_subscriptions_max);
        let one_more = |all: usize| (all < all_max).then_some(all + 1);
        if limits.subscriptions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            return Err(self.env.too_many("all_subscriptions_max"));
        }
        if self.env.settings.given().user_subscriptions_max > 0
            && let Some(identity) = self.clients.identity(key).filter(|identity| !identity.user.is_empty())
        {
            let user = UserCount { kind: SUBSCRIPTIONS, user: &identity.user };
            if !self.env.try_count(&user, most(self.env.settings.given().user_subscriptions_max)) {
                limits.subscriptions.fetch_sub(1, Ordering::Relaxed);
                return Err(self.env.too_many("user_subscriptions_max"));
            }
            self.clients.count_subscription(key);
        }
        if self.env.settings.rules_have_subscribers()
            && let Some(rule) = self.env.settings.rule_of(channel)
            && let subscribers_max = self.env.settings.given().channels[rule].subscribers_max
            && subscribers_max > 0
        {
            let name = channel.as_str();
            let here = self.channels.subscribers_of(name);
            if !self.env.shared.limits.subscribers.try_set(name, self.env.index, here + 1, most(subscribers_max)) {
                self.uncount_subscription(key);
                return Err(self.env.too_many("channel_subscribers_max"));
            }
        }
        Ok(())
    }

    /// Ends the count of a subscription of a session.
    pub(super) fn uncount_subscription(&mut self, key: SessionKey) {
        let limits = &self.env.shared.limits;
        limits.subscriptions.fetch_sub(1, Ordering::Relaxed);
        if let Some(identity) = self.clients.uncount_subscription(key) {
            self.env.uncount(&UserCount { kind: SUBSCRIPTIONS, user: &identity.user });
        }
    }
}

/// A count of a user.
struct UserCount<'a> {
    kind: u8,
    user: &'a str,
}

impl Env {
    /// The users of all nodes, and the key of one. None if this server is no node of a cluster.
    fn of_nodes(&self, user: &str) -> Option<(&UsersOfNodes, UserKey)> {
        self.shared.node.map(|_| (&self.shared.limits.users_of_nodes, UserKey::of(user)))
    }

    /// Counts one more of what a user has, unless there are `max` here and on the other nodes. True if it was counted.
    fn try_count(&self, UserCount { kind, user }: &UserCount<'_>, max: usize) -> bool {
        let (users, of_nodes) = (&self.shared.limits.users, self.of_nodes(user));
        let elsewhere = of_nodes.map_or(0, |(of_nodes, key)| of_nodes.elsewhere(key).count(*kind));
        let max = if max == usize::MAX { max } else { max.saturating_sub(elsewhere) };
        let has_room = users.try_add(users.key((*kind, *user)), max);
        if has_room && let Some((of_nodes, key)) = of_nodes {
            of_nodes.add(key, UserUse::of(*kind, 1));
        }
        has_room
    }

    /// Counts so many more, where no limit holds.
    fn count(&self, UserCount { kind, user }: &UserCount<'_>, by: usize) {
        let users = &self.shared.limits.users;
        users.add(users.key((*kind, *user)), by);
        if by > 0
            && let Some((of_nodes, key)) = self.of_nodes(user)
        {
            of_nodes.add(key, UserUse::of(*kind, by));
        }
    }

    /// Counts one less.
    fn uncount(&self, UserCount { kind, user }: &UserCount<'_>) {
        let users = &self.shared.limits.users;
        users.remove(users.key((*kind, *user)), 1);
        if let Some((of_nodes, key)) = self.of_nodes(user) {
            of_nodes.remove(key, UserUse::of(*kind, 1));
        }
    }

    /// The index of the first rate of a user, of messages or of bytes, that is exceeded here and on the other nodes.
    fn user_over(&self, rates: &[Rate; 2], units: [usize; 2], user: &str) -> Option<usize> {
        let of_nodes = self.of_nodes(user).filter(|_| rates.iter().any(|rate| rate.is_on()));
        let Some((of_nodes, key)) = of_nodes else { return self.first_over(rates, units, (USER, user)) };
        let [messages, bytes] = *rates;
        let left = [of_nodes.rate(key, Resource::Messages, messages), of_nodes.rate(key, Resource::Bytes, bytes)];
        let over = self.first_over(&left, units, (USER, user));
        if over.is_none() {
            let [messages, bytes] = units.map(|units| u32::try_from(units).unwrap_or(u32::MAX));
            of_nodes.add(key, UserUse { used: [messages, bytes, 0], ..UserUse::default() });
        }
        over
    }

    /// The index of the first rate of an owner, of messages or of bytes, that is exceeded.
    fn first_over(&self, rates: &[Rate; 2], units: [usize; 2], owner: impl Hash + Copy) -> Option<usize> {
        let resources = [Resource::Messages, Resource::Bytes];
        (0..2).find(|at| !self.take(resources[*at], rates[*at], units[*at], owner))
    }

    fn take(&self, resource: Resource, rate: Rate, units: usize, owner: impl Hash) -> bool {
        let (buckets, entries_max) = (&self.shared.limits.buckets, self.settings.given().rate_entries_max);
        !rate.is_on() || buckets.take(buckets.key((resource, owner)), rate, self.now, units, entries_max)
    }

    pub(super) fn authentication_over_rate(&self, [_, address]: Origins) -> Option<&'static str> {
        let rate = Rate(self.settings.given().address_handshakes_per_s_max as u64);
        if address > 0 && !self.take(Resource::Handshakes, rate, 1, (ADDRESS, address)) {
            return exceeded(&self.metrics.address_rates_exceeded, "address_handshakes_per_s_max");
        }
        let rate = Rate(self.settings.given().handshakes_per_s_max as u64);
        let bucket = &self.shared.limits.server[Resource::Handshakes as usize];
        // The last tokens are for addresses that take few, so that one address alone cannot keep all others out.
        let share = rate.0 / ADDRESS_SHARE;
        if !rate.is_on() || rate.take_all_but(share, bucket, self.now) {
            return None;
        }
        let takes_few = address == 0 || self.take(Resource::Handshakes, Rate(share), 1, (SHARE, address));
        if share > 0 && takes_few && rate.take_shared(bucket, self.now, 1) {
            return None;
        }
        exceeded(&self.metrics.server_rates_exceeded, "handshakes_per_s_max")
    }

    /// Counts one more session of a user. Otherwise returns the error: the user has too many, or opens them too fast.
    pub(super) fn admit_user(&mut self, identity: Option<&Identity>) -> Result<(), String> {
        let Some(user) = identity.map(|identity| &*identity.user).filter(|user| !user.is_empty()) else {
            return Ok(());
        };
        let rate = Rate(self.settings.given().user_handshakes_per_s_max as u64);
        let of_nodes = self.of_nodes(user).filter(|_| rate.is_on());
        let left = of_nodes.map_or(rate, |(of_nodes, key)| of_nodes.rate(key, Resource::Handshakes, rate));
        if !self.take(Resource::Handshakes, left, 1, (USER, user)) {
            self.metrics.user_rates_exceeded.add(1);
            return Err(BayeuxError::RateExceeded.because("user_handshakes_per_s_max"));
        }
        let used = UserUse { used: [0, 0, 1], ..UserUse::default() };
        of_nodes.into_iter().for_each(|(of_nodes, key)| of_nodes.add(key, used));
        let most = self.settings.given().user_sessions_max;
        if most > 0 && !self.try_count(&UserCount { kind: SESSIONS, user }, most) {
            return Err(BayeuxError::SessionsMax.because("user_sessions_max"));
        }
        Ok(())
    }

    /// True if [`Env::admit_user`] has counted this identity, or would.
    pub(super) fn counts_sessions_of(&self, identity: &Identity) -> bool {
        self.settings.given().user_sessions_max > 0 && !identity.user.is_empty()
    }

    /// Ends the count of a session of a user.
    pub(super) fn release_user(&self, identity: &Identity) {
        self.uncount(&UserCount { kind: SESSIONS, user: &identity.user });
    }

    /// The owner of a session among those of all shards: its user, or else the client's origin.
    pub(super) fn session_owner(&self, identity: Option<&Identity>, [connection, address]: Origins) -> SessionOwner {
        let origin = if address > 0 { address } else { connection };
        SessionOwner::of(self.user_of(identity).unwrap_or(origin))
    }

    /// The hash of a user, the same on all shards.
    pub(super) fn user_of(&self, identity: Option<&Identity>) -> Option<u64> {
        let identity = identity.filter(|identity| !identity.user.is_empty())?;
        Some(self.shared.limits.buckets.key((USER, &*identity.user)))
    }

    /// The error for credentials of so many bytes, before anybody reads them.
    pub(super) fn over_credentials(&self, bytes: usize) -> Option<BayeuxError> {
        let is_over = bytes > self.settings.given().credentials_bytes_max;
        self.metrics.credentials_too_large.add(usize::from(is_over));
        is_over.then_some(BayeuxError::CredentialsTooLarge)
    }

    /// Counts a session of a user that exists already, so no limit holds. True if sessions of users are counted.
    pub(super) fn count_session_of(&self, identity: &Identity) -> bool {
        let is_counted = self.counts_sessions_of(identity);
        self.count(&UserCount { kind: SESSIONS, user: &identity.user }, is_counted.into());
        is_counted
    }

    fn too_many(&self, limit: &'static str) -> String {
        self.metrics.subscriptions_refused.add(1);
        BayeuxError::SubscriptionsMax.because(limit)
    }
}

impl Machines {
    /// States the number of subscribers that a channel has on this shard, or none if its rule does not limit them.
    fn state_subscribers(&mut self, name: &str) {
        let rule = self.env.settings.rule_of(ChannelName::known(name));
        let is_limited = rule.is_some_and(|rule| self.env.settings.given().channels[rule].subscribers_max > 0);
        let here = if is_limited { self.channels.subscribers_of(name) } else { 0 };
        self.env.shared.limits.subscribers.set(name, self.env.index, here);
    }

    /// Notes that a channel has lost a subscriber.
    pub(super) fn has_lost_subscriber(&mut self, name: &str) {
        if self.env.settings.rules_have_subscribers() {
            self.state_subscribers(name);
        }
    }

    /// Counts what was not counted by the settings before: sessions and subscriptions of users, and the subscribers of
    /// channels.
    pub(super) fn restate_counts(&mut self, before: &InForce) {
        for key in self.delivery.keys() {
            let Some(identity) = self.clients.identity(key).cloned() else { continue };
            let is_counted = self.clients.is_counted(key) || self.env.count_session_of(&identity);
            self.clients.set_counted(key, is_counted);
            if self.env.settings.given().user_subscriptions_max > 0 && !identity.user.is_empty() {
                let missing = self.clients.count_subscriptions(key, self.channels.count_of(key.index) as u32);
                self.env.count(&UserCount { kind: SUBSCRIPTIONS, user: &identity.user }, missing as usize);
            }
        }
        if before.rules_have_subscribers() || self.env.settings.rules_have_subscribers() {
            for slot in 0..self.channels.slots() {
                if let Some(name) = self.channels.in_slot(slot).map(|(name, _)| Box::<str>::from(name)) {
                    self.state_subscribers(&name);
                }
            }
        }
    }
}

fn exceeded(count: &Count, limit: &'static str) -> Option<&'static str> {
    count.add(1);
    Some(limit)
}

/// The kinds of owners of a bucket.
const USER: u8 = 0;
const ADDRESS: u8 = 1;
const CHANNEL: u8 = 2;
const SHARE: u8 = 5;

/// Each address may take this part of the server's handshakes in a second whatever the others take: one of four.
const ADDRESS_SHARE: u64 = 4;
