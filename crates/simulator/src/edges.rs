//! The edges of the server: admission, waiting readers, and the bytes between shards.

use encke_core::{Envelope, ShardMessage, Weight};

use crate::checker::Invariant;
use crate::world::{InTransit, World};

impl World {
    /// True if a shard admits a client's message.
    pub(crate) fn is_admitted(&mut self, shard: usize) -> bool {
        let weight = if self.rng.chance(self.scenario.heavy) { Weight::Heavy } else { Weight::Light };
        let before = self.ends(shard);
        let is_admitted = self.shards[shard].admits(self.now, weight);
        self.after(shard, before, false);
        self.checker.tally.edge_waits += u64::from(!is_admitted);
        is_admitted
    }

    /// Marks sessions whose input the server does not read as not silent.
    pub(crate) fn waiting_is_no_silence(&mut self, shard: usize) {
        for conn in 0..self.network.conns.len() {
            let state = &self.network.conns[conn];
            if let Some(key) = state.key.filter(|_| state.waits && state.shard == shard) {
                self.shards[shard].socket_waits(self.now, key);
            }
        }
    }

    /// Processes requests that waited in a shard.
    pub(crate) fn requests_are_worked_through(&mut self, shard: usize) {
        for (to, exchange) in std::mem::take(&mut self.waiting) {
            if to != shard || self.shards[shard].has_waiting(self.network.id_of(exchange)) {
                self.waiting.push((to, exchange));
                continue;
            }
            self.overtaken(exchange);
            let exchange = &self.network.exchanges[exchange];
            self.received(exchange.session.filter(|_| exchange.sign_of_life));
        }
    }

    /// Checks that the bytes between shards stay within their limit.
    pub(crate) fn shard_messages_are_bounded(&mut self) {
        // Messages admitted below the limit may still grow: a batch becomes as many publications, each with an
        // envelope for each shard.
        let (bytes, bytes_max) = (self.shared.mailbox.bytes(), self.scenario.settings[0].mailbox_bytes_max);
        // Responses have their own limits: for each of them, and for all together.
        let responses = self.in_transit.iter().flatten().flatten().filter_map(|item| match item {
            InTransit::ShardMessage(Envelope { message: ShardMessage::Response(_, response), .. }) => {
                Some(response.body.len())
            }
            _ => None,
        });
        let bytes = bytes.saturating_sub(responses.sum());
        if bytes > 2 * bytes_max + OVERDRAFT_BYTES {
            self.checker.fail(
                Invariant::ShardMessagesBounded,
                format!("{bytes} bytes are in transit, at most {bytes_max} twice"),
            );
        }
    }
}

/// The bytes allowed above the limit: for the expansion of messages admitted below it. The subscribers in the process get
/// each message, too.
const OVERDRAFT_BYTES: usize = 600_000;
