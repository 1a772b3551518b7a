//! Users, the end of their credentials, and limits: a session gets and does nothing without the right to it, each limit refuses
//! with its own error, and the counts of limits equal what is there.

use bayeux::json::member;
use encke_core::{Id, Identity, Owner, SLOT_MS, Settings, ShardMessage, message_frame};

use crate::channels::{PRESENT, WHISPER, needed_for};
use crate::checker::{Invariant, Published};
use crate::claims::{Claims, claims_of};
use crate::holders::Holder;
use crate::sabotage::Sabotage;
use crate::script::TREE_RULE;
use crate::texts::{field, is_ending, number_of};
use crate::world::World;

impl World {
    /// Notes the identity of a new session.
    pub(super) fn is_held_by(&mut self, session: String, identity: &Identity) {
        let Identity { user, token_id, expires_ms, .. } = identity.clone();
        let holder = Holder { user, token_id: token_id.unwrap_or_default(), expires_ms, ..Holder::default() };
        self.holders.insert(session, holder);
    }

    /// Notes new credentials of a session. They come too late for one whose rights have ended. The server refuses those that
    /// are revoked, and the earlier ones stay valid until they end.
    pub(super) fn is_refreshed(&mut self, session: &str, identity: &Identity) {
        if self.shared.revoked.has(identity) {
            return;
        }
        if let Some(holder) = self.holders.get_mut(session).filter(|holder| holder.ends.is_none()) {
            self.checker.tally.refreshes += 1;
            // The shard may have ended its rights already, and then ignores the new credentials.
            holder.is_kicked |= holder.expires_ms.is_some_and(|end_ms| end_ms <= self.now.wall_ms);
            holder.token_id = identity.token_id.clone().unwrap_or_default();
            holder.expires_ms = identity.expires_ms;
        }
    }

    /// The rights of the user of a session.
    pub(super) fn claims_of(&self, session: usize) -> Claims {
        let holder = self.holders.get(&self.checker.sessions[session].text);
        holder.map_or(Claims::default(), |holder| claims_of(&self.scenario.users, &holder.user))
    }

    /// Checks that a session may call the service that it calls.
    pub(super) fn is_called(&mut self, session: &str, channel: &str) {
        let user = self.holders.get(session).map_or("", |holder| &holder.user);
        if !claims_of(&self.scenario.users, user).may_publish(channel) {
            let detail = format!("{session} of {user} called {channel} without the right to it");
            self.checker.fail(Invariant::RightsHold, detail);
        }
    }

    /// Checks the reply to a publication or a call of a session against its rights. True if it is refused, as it must be.
    pub(super) fn is_refused_publication(&mut self, number: usize, raw: &str) -> bool {
        let (from, channel) = (self.checker.publications[number].from, field(raw, "channel"));
        if self.claims_of(from).may_publish(&channel) {
            return false;
        }
        if member(raw, "successful") == Some("true") {
            let detail = format!("session {from} has no right to what succeeded: {raw}");
            self.checker.fail(Invariant::RightsHold, detail);
        }
        let is_call = channel.starts_with("/service/");
        self.checker.tally.calls_refused += u64::from(is_call);
        self.checker.tally.publications_refused += u64::from(!is_call);
        field(raw, "error").starts_with("403:")
    }

    /// Checks the reply to a subscribe of a session against its rights.
    pub(super) fn check_subscription(&mut self, session: usize, names: &[String], raw: &str) {
        let claims = self.claims_of(session);
        let denied = names.iter().find(|name| !claims.may_subscribe(name));
        let is_successful = member(raw, "successful") == Some("true");
        let is_denied = field(raw, "error").ends_with(":subscribe_denied") && !is_ending(raw);
        if is_successful == denied.is_some() && (is_successful || is_denied) {
            let detail = format!("session {session} has {claims:?} and subscribes to {names:?}: {raw}");
            self.checker.fail(Invariant::RightsHold, detail);
        }
        if let Some(name) = denied.filter(|_| is_denied) {
            let announces = needed_for(name).count() > 1;
            self.checker.tally.announcements_refused += u64::from(announces);
            self.checker.tally.subscriptions_refused += u64::from(!announces);
        }
    }

    /// Checks that a session may know who is on a channel.
    pub(super) fn check_announcement(&mut self, session: Option<usize>, channel: &str) {
        if let Some(session) = session.filter(|session| !self.claims_of(*session).may_subscribe(channel)) {
            let detail = format!("session {session} got an announcement on {channel} without the right to it");
            self.checker.fail(Invariant::RightsHold, detail);
        }
    }

    /// True if the server may end a session at any time: it was asked to, or the credentials are over.
    pub(super) fn may_be_ended(&self, session: usize) -> bool {
        let state = &self.checker.sessions[session];
        let wall_ms = self.now.wall_ms;
        state.kicked
            || self.holders.get(&state.text).is_some_and(|holder| {
                holder.is_kicked || holder.ends.is_some() || holder.expires_ms.is_some_and(|end_ms| end_ms <= wall_ms)
            })
    }

    /// Does something about users: revokes a token, ends the sessions of a user, or sends a message to all of them.
    pub(super) fn some_right(&mut self) {
        let tokens: Vec<Box<str>> = self.holders.values().map(|holder| holder.token_id.clone()).collect();
        let users: Vec<Box<str>> = self.holders.values().map(|holder| holder.user.clone()).collect();
        if users.is_empty() {
            return;
        }
        let which = self.rng.below(users.len());
        let message: Box<dyn Fn() -> ShardMessage> = match self.rng.below(10) {
            0..3 => {
                let token_id = tokens[which].clone();
                self.shared.revoked.add(&token_id, u64::MAX, self.now.wall_ms, usize::MAX);
                Box::new(move || ShardMessage::Revoke(token_id.clone()))
            }
            3 => {
                let user = users[which].clone();
                Box::new(move || ShardMessage::DisconnectUser(user.clone()))
            }
            _ => {
                let user = users[which].clone();
                let number = self.checker.publications.len();
                let data = format!("{{\"k\":{number},\"big\":12345678901234567890.10,\"to\":\"{user}\"}}");
                let frame: std::sync::Arc<[u8]> = message_frame(WHISPER, &data, None, None).into();
                // One shard gets all messages of handles in order. But responses may overtake each other on their way to
                // a client that replays.
                let may_overtake = self.clients.iter().any(|client| client.follower.is_some());
                let (from, stream) = (usize::MAX, TO_USERS - if may_overtake { number } else { 0 });
                let publication = Published { from, stream, channel: WHISPER.into(), data, repeated: false, copies: 0 };
                self.checker.publications.push(publication);
                Box::new(move || ShardMessage::DeliverToUser(user.clone(), frame.clone()))
            }
        };
        let outside = self.shards.len();
        for to in 0..outside {
            self.send_to_shard(to, outside, message());
        }
    }

    /// Notes what a message to a shard does to the sessions of a user or a token there. True if the shard does not get
    /// it: a sabotage.
    pub(super) fn changes_rights(&mut self, to: usize, message: &ShardMessage) -> bool {
        let next = self.checker.publications.len();
        let here = |session: &str| Id::parse(session).is_some_and(|id| id.shard() == to);
        let holders = self.holders.iter_mut().filter(|(session, _)| here(session));
        match message {
            ShardMessage::Revoke(token_id) => {
                for (_, holder) in holders.filter(|(_, holder)| holder.token_id == *token_id) {
                    holder.ends = holder.ends.or(Some(next));
                    self.checker.tally.rights_ended += 1;
                }
                return self.sabotage == Sabotage::ForgottenRevocation;
            }
            ShardMessage::DisconnectUser(user) => {
                holders.filter(|(_, holder)| holder.user == *user).for_each(|(_, holder)| holder.is_kicked = true);
            }
            ShardMessage::DeliverToUser(user, frame) => {
                let text = String::from_utf8_lossy(frame);
                // Before the payload is the head of the frame.
                let data = &text[text.find('[').unwrap_or_default()..];
                let data = bayeux::json::elements(data).find_map(|raw| bayeux::json::member(raw, "data"));
                for (session, _) in holders.filter(|(_, holder)| holder.user == *user && holder.ends.is_none()) {
                    self.checker.delivered(session, data.unwrap_or_default());
                }
            }
            _ => {}
        }
        false
    }

    /// Notes that the application allows a publication. The server may refuse it if the rights of its publisher have
    /// ended while it waited for that.
    pub(super) fn is_published(&mut self, data: &str) {
        let number = number_of(data).filter(|number| *number < self.checker.publications.len());
        let from = number.map(|number| self.checker.publications[number].from);
        if let Some((number, from)) = number.zip(from).filter(|(_, from)| *from != usize::MAX) {
            let channel = &self.checker.publications[number].channel;
            if !self.claims_of(from).may_publish(channel) {
                let detail = format!("session {from} publishes on {channel} without the right to it");
                self.checker.fail(Invariant::RightsHold, detail);
            }
        }
        match number.filter(|_| from.is_some_and(|from| from != usize::MAX && self.may_be_ended(from))) {
            Some(number) => self.checker.publications[number].copies += 1,
            None => self.checker.published(data),
        }
    }

    /// Checks that a message was not published after the rights of its receiver had ended.
    pub(super) fn check_rights(&mut self, session: usize, data: &str) {
        let holder = self.holders.get(&self.checker.sessions[session].text);
        if let Some((ends, number)) = holder.and_then(|holder| holder.ends).zip(number_of(data))
            && number >= ends
        {
            let detail = format!("session {session} got message {number}, and its rights had ended at message {ends}");
            self.checker.fail(Invariant::NothingAfterRights, detail);
        }
    }

    /// Checks, when time has passed, that credentials have ended, and that all counts are right.
    pub(super) fn check_counts(&mut self) {
        if self.sabotage == Sabotage::StoppedClock {
            return;
        }
        let (next, wall_ms) = (self.checker.publications.len(), self.now.wall_ms);
        let is_over = |holder: &&mut Holder| holder.expires_ms.is_some_and(|end_ms| end_ms + 2 * SLOT_MS <= wall_ms);
        for holder in self.holders.values_mut().filter(|holder| holder.ends.is_none()).filter(is_over) {
            holder.ends = Some(next);
            self.checker.tally.rights_ended += 1;
        }
        if self.sabotage_once(Sabotage::ForgottenCount) {
            self.shared.limits.subscriptions.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        }
        let of_shard = |shard: &encke_core::Shard| {
            shard.holdings().iter().find(|held| held.0 == "subscriptions").map_or(0, |held| held.1)
        };
        let all: usize = self.shards.iter().map(of_shard).sum();
        self.checker.agree("all subscriptions", self.shared.limits.sizes()[0], all);
        for user in 0..self.scenario.users.len() {
            let user = format!("u{user}");
            let owner = Owner::User(user.clone().into());
            let ids =
                self.shards.iter().flat_map(|shard| shard.sessions_of(&owner).into_iter().map(move |id| (shard, id)));
            let ids: Vec<_> = ids.collect();
            let subscriptions = ids.iter().filter_map(|(shard, id)| Some(shard.session(id)?.1.len())).sum();
            let (sessions, counted) = (ids.len(), self.shared.limits.of_user(&user));
            if self.all_have(|settings| settings.user_sessions_max > 0) {
                self.checker.agree("sessions of a user", counted[0], sessions);
            }
            if self.all_have(|settings| settings.user_subscriptions_max > 0) {
                self.checker.agree("subscriptions of a user", counted[1], subscriptions);
            }
        }
        for name in PRESENT {
            let here: usize = self.shards.iter().map(|shard| shard.subscribers_of(name)).sum();
            if self.all_have(|settings| settings.channels[TREE_RULE].subscribers_max > 0) {
                self.checker.agree(name, self.shared.limits.subscribers.of(name), here);
            }
        }
    }

    fn all_have(&self, is_set: fn(&Settings) -> bool) -> bool {
        self.shards.iter().all(|shard| is_set(shard.settings()))
    }
}

/// The stream of messages to all sessions of a user.
const TO_USERS: usize = usize::MAX / 2;
