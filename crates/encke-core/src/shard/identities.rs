//! The owners of sessions in the tables: the lists of users and tokens, and the timers of credentials. `handshake`,
//! `owners`, `restart` and `ending` lead here.

use std::sync::Arc;

use crate::events::SessionKey;
use crate::identity::Identity;
use crate::outbox::memory::Counted;
use crate::schedule::Timer;
use crate::sessions::session::Owner;
use crate::shard::Parts;

impl Parts {
    /// Gives a session its owner, or another one of the same user instead. `is_counted`: it counts among the sessions of
    /// its user.
    pub(super) fn set_owner(&mut self, key: SessionKey, identity: Arc<Identity>, is_counted: bool) {
        let before = self.forget_owner(key);
        let (is_counted, subscriptions_counted, refreshes_full_ns) = before.map_or((is_counted, 0, 0), |before| {
            (before.is_counted, before.subscriptions_counted, before.refreshes_full_ns)
        });
        let slots = self.sessions.owners.add(&identity, key);
        let counted = Counted::new(self.fanout.encoder.account(), size_of::<Owner>() + identity.bytes());
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.owner = Some(Box::new(Owner {
            identity,
            is_counted,
            subscriptions_counted,
            slots,
            armed_ms: u64::MAX,
            counted,
            refreshes_full_ns,
            is_notified: false,
            ends: None,
        }));
        self.arm_owner(key);
    }

    /// Takes the owner of a session out of it, and out of all tables.
    pub(super) fn forget_owner(&mut self, key: SessionKey) -> Option<Box<Owner>> {
        let owner = self.sessions.take_owner(key)?;
        self.disarm(owner.armed_ms);
        Some(owner)
    }

    /// Sets the timer for the notice before the end of a session's credentials, or for their end.
    pub(super) fn arm_owner(&mut self, key: SessionKey) {
        let notice_ms = self.settings.given().auth_expiry_notice_ms;
        let Parts { sessions, schedule, now, .. } = self;
        let Some(owner) = sessions.get_mut(key).and_then(|session| session.owner.as_mut()) else { return };
        let Some(expires_ms) = owner.identity.expires_ms.filter(|_| owner.ends.is_none()) else { return };
        let next_ms = if owner.is_notified { expires_ms } else { expires_ms.saturating_sub(notice_ms) };
        let at_ms = now.ms.saturating_add(next_ms.saturating_sub(now.wall_ms));
        owner.armed_ms = schedule.timers.set(Timer::Owner(key), at_ms, owner.armed_ms);
    }
}
