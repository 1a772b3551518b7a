//! Sessions that have not connected yet: limits them for each connection and address, and ends the oldest when room is
//! needed. `handshake` leads here for each new session, and [`ShardMessage::MakeRoom`] when another shard needs room.

use std::sync::atomic::{AtomicIsize, Ordering};

use crate::application::EndReason;
use crate::clients::newcomers::Origins;
use crate::events::{Effect, SessionKey, ShardMessage};
use crate::limits::sessions::SessionOwner;
use crate::shard::Parts;

impl Parts {
    /// Registers a session that has not connected yet. Each connection and each address has a limit; beyond it the
    /// oldest are ended.
    pub(super) fn is_new(&mut self, key: SessionKey, origins: Origins) {
        let most =
            [self.settings.given().unconnected_per_connection_max, self.settings.given().unconnected_per_address_max];
        for (origin, most) in origins.into_iter().zip(most) {
            while origin > 0 && self.clients.newcomers_of(origin) >= most {
                let Some(oldest) = self.clients.oldest_newcomer(Some(origin)) else { break };
                self.remove_session(oldest, EndReason::Unused);
            }
        }
        self.clients.is_new(key, origins);
        self.shared.newcomers[self.index].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one more session on all shards. False: its owner has its part of `sessions_max`, or all have connected and
    /// there is no room.
    pub(super) fn count_session(&mut self, owner: SessionOwner) -> bool {
        let newcomers: isize = self.shared.newcomers.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        let (max, newcomers) = (self.settings.given().sessions_max, newcomers.max(0).unsigned_abs());
        let Some(count) = self.shared.sessions.take(owner, max, newcomers) else { return false };
        let has_room = count <= max || self.make_room();
        if !has_room {
            self.shared.sessions.give_back(owner);
        }
        has_room
    }

    /// Ends the oldest session that has not connected yet, here or on another shard. Returns false if there is none. On
    /// another shard it ends a moment later, and until then there is one session more than allowed.
    fn make_room(&mut self) -> bool {
        if let Some(oldest) = self.clients.oldest_newcomer(None) {
            self.remove_session(oldest, EndReason::Unused);
            return true;
        }
        let others = &self.shared.newcomers;
        let claim = |count: &AtomicIsize| {
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count > 0).then(|| count - 1)).is_ok()
        };
        let shard = (0..others.len()).filter(|shard| *shard != self.index).find(|shard| claim(&others[*shard]));
        self.effects.extend(shard.map(|shard| Effect::SendToShard(shard, ShardMessage::MakeRoom)));
        shard.is_some()
    }

    /// Ends the oldest session that has not connected yet, because another shard has admitted a session in its place.
    pub(super) fn make_room_for_others(&mut self) {
        self.shared.newcomers[self.index].fetch_add(1, Ordering::Relaxed);
        if let Some(oldest) = self.clients.oldest_newcomer(None) {
            self.remove_session(oldest, EndReason::Unused);
        }
    }
}
