//! Sessions that have come back with this node, out of what its last process has saved. Others may have ended or taken them meanwhile, so
//! nobody is served before their records are read, unless the engine is away.

use encke_core::Id;

use super::Sessions;
use super::record::Key;

impl Sessions {
    /// Its shards will each say once which sessions have come back.
    #[must_use]
    pub fn that_awaits_shards(self) -> Sessions {
        Sessions { shards_loading: self.settings.shards, ..self }
    }

    /// Sessions of a shard have come back.
    pub(super) fn loaded(&mut self, ids: &[Id]) {
        self.shards_loading = self.shards_loading.saturating_sub(1);
        self.records.loaded(ids);
    }

    /// True if a session may have come back, and nobody knows if it has ended meanwhile.
    pub(super) fn is_loading(&self, id: &Id) -> bool {
        self.shards_loading > 0 || self.records.loading.contains(&Key::of(id))
    }

    /// True if that holds for any session.
    pub fn are_loading(&self) -> bool {
        self.shards_loading > 0 || !self.records.loading.is_empty()
    }
}
