//! The edges of the server: admission, and waiting readers.

use encke_core::Weight;

use crate::world::World;

impl World {
    /// True if a shard admits a client's message.
    pub(super) fn is_admitted(&mut self, shard: usize) -> bool {
        let weight = if self.rng.chance(self.scenario.heavy) { Weight::Heavy } else { Weight::Light };
        let before = self.ends(shard);
        let is_admitted = self.shards[shard].admits(self.now, weight);
        self.after(shard, before, false);
        self.checker.tally.edge_waits += u64::from(!is_admitted);
        is_admitted
    }

    /// Marks sessions whose input the server does not read as not silent.
    pub(super) fn waiting_is_no_silence(&mut self, shard: usize) {
        for conn in 0..self.network.conns.len() {
            let state = &self.network.conns[conn];
            if let Some(key) = state.key.filter(|_| state.waits && state.shard == shard) {
                self.shards[shard].socket_waits(self.now, key);
            }
        }
    }
}
