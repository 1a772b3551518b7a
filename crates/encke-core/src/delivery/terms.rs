//! The terms of sessions: those of the settings, but for sessions whose terms differ. Only these have an entry here, so all others cost
//! nothing.

use std::collections::HashMap;

use bayeux::Terms;
use foldhash::fast::RandomState;

use crate::delivery::Delivery;
use crate::delivery::sessions::session::{Confirmation, Session};
use crate::events::SessionKey;
use crate::memory::Counted;
use crate::session_terms::SessionTerms;

/// The sessions with their own terms, by their indexes.
#[derive(Debug, Default)]
pub(super) struct OwnTerms(HashMap<u32, Own, RandomState>);

/// The terms of one session.
#[derive(Debug)]
struct Own {
    /// Those that its identity gives.
    granted: SessionTerms,
    /// Those that the application has set since. They stand above the others.
    set: SessionTerms,
    /// True if its messages come with connects only where its terms do not say.
    comes_with_connects: bool,
    /// The memory of the entry.
    _counted: Counted,
}

impl Own {
    fn in_force(&self) -> SessionTerms {
        self.set.or(self.granted)
    }
}

impl OwnTerms {
    /// The bytes of its entries.
    pub(super) fn bytes(&self) -> usize {
        self.0.len() * ENTRY_BYTES
    }

    /// Forgets a session that has ended.
    pub(super) fn forget(&mut self, index: u32) {
        if !self.0.is_empty() && self.0.remove(&index).is_some() && self.0.is_empty() {
            self.0 = HashMap::default();
        }
    }

    fn of(&self, key: SessionKey) -> Option<&Own> {
        if self.0.is_empty() { None } else { self.0.get(&key.index) }
    }
}

impl Delivery {
    /// The terms of a session.
    #[inline]
    pub(crate) fn terms_of(&self, key: SessionKey) -> Terms {
        if self.own_terms.0.is_empty() { self.terms } else { self.own_terms_of(key).applied_to(self.terms) }
    }

    /// True or false if a session gets its own messages or not whatever the settings say.
    pub(crate) fn broadcasts_to(&self, publisher: SessionKey) -> Option<bool> {
        self.own_terms.of(publisher)?.in_force().broadcast_to_publisher
    }

    /// The terms of a session that differ from the settings.
    #[inline(never)]
    fn own_terms_of(&self, key: SessionKey) -> SessionTerms {
        self.own_terms.of(key).map(Own::in_force).unwrap_or_default()
    }

    /// The terms that the application has given a session since its handshake.
    pub(super) fn set_terms_of(&self, key: SessionKey) -> Option<SessionTerms> {
        self.own_terms.of(key).map(|own| own.set).filter(|set| *set != SessionTerms::default())
    }

    /// Gives a session the terms of its identity, in place of those of the identity before.
    pub(crate) fn grant_terms(&mut self, key: SessionKey, granted: SessionTerms) {
        self.change_terms(key, granted, |own| &mut own.granted);
    }

    /// Gives a session these terms above those of its identity, in place of those that it was given so before.
    pub(crate) fn set_terms(&mut self, key: SessionKey, set: SessionTerms) {
        self.change_terms(key, set, |own| &mut own.set);
    }

    fn change_terms(&mut self, key: SessionKey, terms: SessionTerms, part: fn(&mut Own) -> &mut SessionTerms) {
        if self.own_terms.of(key).is_none() && terms == SessionTerms::default() {
            return;
        }
        let before = self.terms_of(key);
        let Some(own) = self.own_entry(key) else { return };
        *part(own) = terms;
        let after = self.terms_of(key);
        if let Some(session) = self.sessions.get_mut(key).filter(|_| before != after) {
            session.protocol.terms_changed(&before, &after);
        }
        self.settle_manner(key);
        self.arm(key);
    }

    /// Gives a session the terms that it had before a restart, and with which the state of its protocol was restored.
    pub(super) fn restore_terms(&mut self, key: SessionKey, granted: SessionTerms, set: SessionTerms) {
        if granted.or(set) != SessionTerms::default()
            && let Some(own) = self.own_entry(key)
        {
            (own.granted, own.set) = (granted, set);
            self.settle_manner(key);
        }
    }

    /// The entry of a session, which is made if there is none. None if the session is gone.
    fn own_entry(&mut self, key: SessionKey) -> Option<&mut Own> {
        let (account, session) = (self.encoder.account(), self.sessions.get(key)?);
        Some(self.own_terms.0.entry(key.index).or_insert_with(|| Own {
            granted: SessionTerms::default(),
            set: SessionTerms::default(),
            comes_with_connects: session.comes_with_connects(),
            _counted: Counted::new(account, ENTRY_BYTES),
        }))
    }

    /// Lets the messages of a session come with connects only, or as they are published, as its terms say. On a WebSocket it stays as it
    /// was, because messages may be on their way to the kernel.
    pub(super) fn settle_manner(&mut self, key: SessionKey) {
        let Some(own) = self.own_terms.of(key) else { return };
        let wanted = own.in_force().connect_deliver_only.unwrap_or(own.comes_with_connects);
        let session = self.sessions.get_mut(key).filter(|session| session.socket().is_none());
        session.into_iter().for_each(|session| session.come_with_connects(wanted));
    }
}

impl Session {
    /// True if its messages come with connect replies only, and the kernel confirms them.
    fn comes_with_connects(&self) -> bool {
        matches!(self.confirmation, Confirmation::ByKernel { with_connects: true, .. })
    }

    /// Lets messages come with connects only, or not. A client that acknowledges gets them so anyway, and one without Bayeux has no
    /// connects. It must have no WebSocket.
    fn come_with_connects(&mut self, wanted: bool) {
        debug_assert!(self.socket().is_none(), "messages may be on their way to the kernel");
        let is_plain = self.is_plain();
        if let Confirmation::ByKernel { with_connects, .. } = &mut self.confirmation {
            *with_connects = wanted && !is_plain;
        }
    }
}

/// The memory of an entry in the table, in bytes. Up to half of the table is empty.
const ENTRY_BYTES: usize = 2 * size_of::<(u32, Own)>();
