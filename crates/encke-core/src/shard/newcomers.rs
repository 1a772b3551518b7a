use std::sync::atomic::{AtomicIsize, Ordering};

use crate::events::{Effect, SessionKey, ShardMessage};
use crate::sessions::newcomers::Origins;
use crate::sessions::session::Ended;
use crate::shard::Shard;

impl Shard {
    /// A session is there and has not connected yet. Of one connection, and of one address, there are only so many: the oldest go.
    pub(super) fn is_new(&mut self, key: SessionKey, origins: Origins) {
        let most = [self.settings.unconnected_per_connection_max, self.settings.unconnected_per_address_max];
        for (origin, most) in origins.into_iter().zip(most) {
            while origin > 0 && self.newcomers.of(origin) >= most {
                let Some(oldest) = self.newcomers.oldest_of(origin) else { break };
                self.remove_session(oldest, Ended::Unused);
            }
        }
        let place = self.newcomers.add(key, origins);
        if let Some(session) = self.sessions.get_mut(key) {
            session.newcomer = place;
        }
        self.shared.newcomers[self.index].fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the oldest session that has not connected yet, here or on another shard. False where there is none. That of another shard
    /// goes a moment later, so for that moment there is one more than there may be.
    pub(super) fn make_room(&mut self) -> bool {
        if let Some(oldest) = self.newcomers.oldest() {
            self.remove_session(oldest, Ended::Unused);
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

    /// Another shard has let a session in for one that has not connected yet.
    pub(super) fn make_room_for_others(&mut self) {
        self.shared.newcomers[self.index].fetch_add(1, Ordering::Relaxed);
        if let Some(oldest) = self.newcomers.oldest() {
            self.remove_session(oldest, Ended::Unused);
        }
    }
}
