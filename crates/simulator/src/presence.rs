//! Presence: the members that the shards report are the sessions that subscribe to a channel with presence.

use std::collections::BTreeSet;

use encke_core::{Id, PresenceEvent, SLOTS_VISITED_MAX, Shard};

use crate::Sabotage;
use crate::checker::Invariant;
use crate::script::TREE_RULE;
use crate::world::World;

/// Members: the channel, and the client id.
pub(crate) type Members = BTreeSet<(String, String)>;

impl World {
    /// Takes a report of a shard.
    pub(crate) fn presence_changes(&mut self, event: PresenceEvent) {
        self.checker.tally.presence_reports += 1;
        let (change, is_joined, is_as_expected) = match event {
            PresenceEvent::Joined { channel, session, .. } => {
                let member = (channel.to_string(), session.as_str().to_string());
                (format!("{member:?} joins"), true, self.members.insert(member))
            }
            PresenceEvent::Left { channel, session, .. } if self.sabotage == Sabotage::ForgottenLeave => {
                let member = (channel.to_string(), session.as_str().to_string());
                (format!("{member:?} leaves"), false, self.members.contains(&member))
            }
            PresenceEvent::Left { channel, session, .. } => {
                let member = (channel.to_string(), session.as_str().to_string());
                (format!("{member:?} leaves"), false, self.members.remove(&member))
            }
            PresenceEvent::Asked { .. } => return,
        };
        if !is_as_expected {
            let detail = format!("{change}, and was a member before: {is_joined}");
            self.checker.fail(Invariant::PresenceAgrees, detail);
        }
    }

    /// Checks that the reported members of a shard are those that subscribe, by the rules in force there.
    pub(crate) fn check_presence(&mut self) {
        if !self.scenario.settings.iter().any(|settings| settings.channels[TREE_RULE].presence) {
            return;
        }
        let there: Members = self.shards.iter().flat_map(members_of).collect();
        if let Some(member) = there.symmetric_difference(&self.members).next() {
            let detail =
                format!("{member:?} subscribes: {}, and the shards report the opposite", there.contains(member));
            self.checker.fail(Invariant::PresenceAgrees, detail);
        }
    }
}

/// The members that subscribe on a shard.
fn members_of(shard: &Shard) -> Vec<(String, String)> {
    if !shard.settings().channels[TREE_RULE].presence {
        return Vec::new();
    }
    let views = shard.sessions_from(0, SLOTS_VISITED_MAX).items;
    let of_session = |id: Id| {
        let names = shard.session(&id).map(|session| session.1).unwrap_or_default();
        let names = names.into_iter().filter(|name| name.starts_with("/a/") && !name.ends_with('*'));
        names.map(move |name| (name.to_string(), id.as_str().to_string())).collect::<Vec<_>>()
    };
    views.into_iter().flat_map(|view| of_session(view.id)).collect()
}
