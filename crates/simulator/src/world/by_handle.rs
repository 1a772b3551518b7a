//! Handles of the server: they subscribe and unsubscribe sessions, and remove the messages of histories. What is reported
//! as done is done.

use encke_core::{Changed, PublishToken, Report, ShardMessage};

use crate::changes::Change;
use crate::channels::{HISTORY_CHANNELS, covers};
use crate::checker::{Invariant, Subscription};
use crate::client::What;
use crate::sabotage::Sabotage;
use crate::world::World;

impl World {
    pub(super) fn token(&mut self) -> PublishToken {
        self.changes.tokens += 1;
        PublishToken { shard: PublishToken::HANDLES, number: self.changes.tokens }
    }

    /// A handle changes something.
    pub(super) fn some_change(&mut self) {
        if self.rng.chance(200) {
            return self.clear_history();
        }
        if self.checker.sessions.is_empty() {
            return;
        }
        let session = self.rng.below(self.checker.sessions.len());
        let name = self.scenario.subscription(&mut self.rng).to_owned();
        // A subscription without the right to it ends with the next credentials, or its session with the process.
        if !self.claims_of(session).may_subscribe(&name) {
            return;
        }
        let state = &self.checker.sessions[session];
        let client = &self.clients[state.client];
        let requests = |what: &What| matches!(what, What::Subscribe(names) if names.contains(&name));
        if client.awaited.values().any(|awaited| requests(&awaited.what)) {
            return;
        }
        // A client that replays knows its subscriptions to histories.
        let replays = client.follower.is_some() || state.follows;
        if replays && HISTORY_CHANNELS.iter().any(|channel| covers(&name, channel)) {
            return;
        }
        let subscribes = match state.subscriptions.get(&name) {
            None | Some(Subscription::Gone(_)) => true,
            Some(Subscription::Granted(_)) => false,
            // The client has requested something.
            Some(_) => return,
        };
        let (id, channel) = (state.id, Box::from(&*name));
        if subscribes {
            self.checker.sessions[session].subscriptions.insert(name.clone(), Subscription::Requested);
        } else {
            self.checker.withdraw(session, &name);
        }
        let token = self.token();
        self.changes.under_way.insert(token.number, Change { session, name, subscribes });
        let message = if subscribes {
            ShardMessage::Subscribe(id, channel, token)
        } else {
            ShardMessage::Unsubscribe(id, channel, token)
        };
        self.send_to_shard(id.shard(), self.shards.len(), message);
    }

    fn clear_history(&mut self) {
        let channel = self.rng.pick(&HISTORY_CHANNELS);
        let token = self.token();
        let owner = self.shared.histories.owner(channel);
        self.send_to_shard(owner, self.shards.len(), ShardMessage::ClearHistory(channel.into(), token));
    }

    /// True if the shard does not get this message of a handle, which gets a report as if it did: a sabotage.
    pub(super) fn is_forgotten(&mut self, message: &ShardMessage) -> bool {
        match (self.sabotage, message) {
            (Sabotage::ForgottenChange, ShardMessage::Subscribe(_, _, token)) => {
                self.reported(&ShardMessage::Report(Report::Changed(token.number, Changed::Done)));
                true
            }
            (Sabotage::ForgottenRemoval, ShardMessage::ClearHistory(channel, _)) => {
                self.check_cleared(channel);
                true
            }
            _ => false,
        }
    }

    /// Checks that a history is empty after a shard has removed its messages.
    pub(super) fn check_cleared(&mut self, channel: &str) {
        let Some(ring) = self.shared.histories.find(channel, 0) else { return };
        let left = self.shared.histories.with(ring.ring, |ring| ring.from(0).count()).unwrap_or(0);
        self.checker.tally.histories_cleared += 1;
        if left > 0 {
            self.checker
                .fail(Invariant::ChangesDone, format!("{left} messages of {channel} are left after their removal"));
        }
    }

    /// Takes the report on a request of a handle.
    pub(super) fn reported(&mut self, message: &ShardMessage) {
        let ShardMessage::Report(Report::Changed(number, changed)) = message else { return };
        let Some(Change { session, name, subscribes }) = self.changes.under_way.remove(number) else { return };
        let next = self.checker.publications.len();
        let is_done = *changed == Changed::Done;
        self.checker.tally.changes += u64::from(is_done);
        let session = &mut self.checker.sessions[session];
        let Some(subscription) = session.subscriptions.get_mut(&name) else { return };
        *subscription = match (*subscription, subscribes, is_done) {
            (Subscription::Requested, true, true) => Subscription::Granted(next),
            (Subscription::Uncertain, false, true) => Subscription::Gone(next),
            (Subscription::Requested, true, false) => Subscription::Uncertain,
            (other, ..) => other,
        };
    }

    /// Changes that were under way when the server ended may have been made or not.
    pub(super) fn forget_changes(&mut self) {
        for change in std::mem::take(&mut self.changes.under_way).into_values() {
            self.checker.withdraw(change.session, &change.name);
        }
    }
}
