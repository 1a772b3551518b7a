//! The attributes of sessions: changed by hooks, handles and other nodes.

use crate::attributes::{AttributeChange, AttributeLimits, Unchanged};
use crate::events::{AskedBy, Changed, ShardMessage};
use crate::id::Id;
use crate::limits::sessions::SessionOwner;
use crate::node_messages::Elsewhere;
use crate::shard::Machines;

impl Machines {
    /// Changes an attribute of a session on any shard, for a hook. A change that is not valid is logged.
    pub(super) fn change_attribute_by_id(&mut self, session: Id, change: AttributeChange, owner: Option<SessionOwner>) {
        if let Err(error) = change.check(self.env.settings.given().json_depth_max) {
            return tracing::error!(name = &*change.name, %error, "the application sets an attribute that cannot be");
        }
        let home = self.env.shared.shard_of(&session);
        if home != self.env.index {
            return self
                .send_to_shard(home, ShardMessage::ChangeAttribute(session, Box::new(change), AskedBy::Hook(owner)));
        }
        self.change_attribute_here(&session, change, owner);
    }

    /// The same for a session of this shard, if it is still there. Another node may have it. `owner`: the one who has caused it.
    pub(super) fn change_attribute_here(&mut self, session: &Id, change: AttributeChange, owner: Option<SessionOwner>) {
        if self.delivery.find(session).is_none() {
            return self.act_elsewhere(owner, || Elsewhere::ChangeAttribute(*session, Box::new(change)));
        }
        // A change that finds no room is counted.
        let _outcome = self.change_attribute(session, change);
    }

    /// Changes an attribute of a session of this shard.
    pub(super) fn change_attribute(&mut self, session: &Id, change: AttributeChange) -> Changed {
        let Some(key) = self.delivery.find(session) else { return Changed::SessionUnknown };
        let given = self.env.settings.given();
        let limits =
            AttributeLimits { count_max: given.session_attributes_max, bytes_max: given.session_attributes_bytes_max };
        match self.clients.change_attribute(key, change, limits) {
            Ok(version) => {
                self.note_change(key);
                Changed::Version(version)
            }
            Err(Unchanged::Conflict(version)) => Changed::Conflict(version),
            Err(Unchanged::Full) => {
                let refused = &self.env.metrics.attributes_refused;
                if refused.get() == 0 {
                    tracing::warn!(
                        ?session,
                        "an attribute is not set: its session has session_attributes_max, or session_attributes_bytes_max bytes"
                    );
                }
                refused.add(1);
                Changed::Full
            }
        }
    }
}
