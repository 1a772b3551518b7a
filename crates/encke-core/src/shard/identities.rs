//! The owners of sessions in the tables: the lists of users and tokens, and the timers of credentials. `handshake`,
//! `owners`, `restart` and `ending` lead here.

use std::sync::Arc;

use crate::events::SessionKey;
use crate::identity::Identity;
use crate::schedule::Timer;
use crate::shard::Parts;

impl Parts {
    /// Gives a session its owner, or another one of the same user instead. `is_counted`: it counts among the sessions of
    /// its user.
    pub(super) fn set_owner(&mut self, key: SessionKey, identity: Arc<Identity>, is_counted: bool) {
        if let Some(armed_ms) = self.clients.set_owner(key, identity, is_counted) {
            self.disarm(armed_ms);
        }
        self.arm_owner(key);
    }

    /// Sets the timer for the notice before the end of a session's credentials, or for their end.
    pub(super) fn arm_owner(&mut self, key: SessionKey) {
        let notice_ms = self.settings.given().auth_expiry_notice_ms;
        let Parts { clients, schedule, now, .. } = self;
        clients.arm(key, notice_ms, *now, |at_ms, armed_ms| schedule.timers.set(Timer::Owner(key), at_ms, armed_ms));
    }
}
