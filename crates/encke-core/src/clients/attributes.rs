//! The attributes of the sessions of a shard. Only a session whose attributes were changed has an entry, so all others cost nothing.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::attributes::{AttributeChange, AttributeLimits, Attributes, Unchanged};
use crate::events::SessionKey;
use crate::memory::{Account, Counted};

/// Attributes by session.
#[derive(Debug, Default)]
pub(super) struct SessionAttributes(HashMap<SessionKey, Held, RandomState>);

#[derive(Debug)]
struct Held {
    /// Hooks that are under way share them.
    attributes: Arc<Attributes>,
    /// The memory that they take.
    counted: Counted,
}

impl Held {
    fn new(attributes: Arc<Attributes>, account: &Rc<Account>) -> Held {
        let counted = Counted::new(account, ENTRY_BYTES + attributes.memory_bytes());
        Held { attributes, counted }
    }
}

impl SessionAttributes {
    /// The attributes of a session, also if all were removed.
    #[inline]
    pub(super) fn of(&self, key: SessionKey) -> Option<&Arc<Attributes>> {
        if self.0.is_empty() { None } else { Some(&self.0.get(&key)?.attributes) }
    }

    /// Their memory, in bytes.
    pub(super) fn bytes_of(&self, key: SessionKey) -> usize {
        if self.0.is_empty() { 0 } else { self.0.get(&key).map_or(0, |held| held.counted.bytes()) }
    }

    /// Makes a change. Returns the version after it, or the reason against it.
    pub(super) fn change(
        &mut self,
        key: SessionKey,
        change: AttributeChange,
        limits: AttributeLimits,
        account: &Rc<Account>,
    ) -> Result<u64, Unchanged> {
        let mut attributes = self.0.get(&key).map(|held| held.attributes.clone()).unwrap_or_default();
        attributes.admits(&change, limits)?;
        // The clone of the pointer must go first, or all values would be copied.
        self.0.remove(&key);
        Arc::make_mut(&mut attributes).change(change);
        let version = attributes.version();
        self.set(key, attributes, account);
        Ok(version)
    }

    /// Gives a session these attributes.
    pub(super) fn set(&mut self, key: SessionKey, attributes: Arc<Attributes>, account: &Rc<Account>) {
        self.0.insert(key, Held::new(attributes, account));
    }

    /// Takes the attributes of a session that has ended.
    pub(super) fn take(&mut self, key: SessionKey) -> Option<Arc<Attributes>> {
        if self.0.is_empty() {
            return None;
        }
        let taken = self.0.remove(&key).map(|held| held.attributes);
        if self.0.is_empty() {
            self.0 = HashMap::default();
        }
        taken
    }
}

/// The memory of an entry in the table beside the attributes, in bytes. Up to half of the table is empty.
const ENTRY_BYTES: usize = 2 * size_of::<(SessionKey, Held)>();
