//! The edges of the server: what it takes in, who waits, and what may be under way between its shards.

use encke_core::{Envelope, ShardMessage, Weight};

use crate::checker::Invariant;
use crate::world::{Letter, World};

impl World {
    /// Whether a shard takes a message of a client in.
    pub(crate) fn is_admitted(&mut self, shard: usize) -> bool {
        let weight = if self.rng.chance(self.scenario.heavy) { Weight::Heavy } else { Weight::Light };
        let before = self.ends(shard);
        let is_admitted = self.shards[shard].admits(self.now, weight);
        self.after(shard, before, false);
        self.checker.tally.edge_waits += u64::from(!is_admitted);
        is_admitted
    }

    /// What the server does not read is no sign that a client is silent.
    pub(crate) fn waiting_is_no_silence(&mut self, shard: usize) {
        for conn in 0..self.network.conns.len() {
            let state = &self.network.conns[conn];
            if let Some(key) = state.key.filter(|_| state.waits && state.shard == shard) {
                self.shards[shard].socket_waits(self.now, key);
            }
        }
    }

    /// Requests that waited in a shard and were worked through.
    pub(crate) fn requests_are_worked_through(&mut self, shard: usize) {
        for (to, exchange) in std::mem::take(&mut self.waiting) {
            if to != shard || self.shards[shard].has_waiting(self.network.id_of(exchange)) {
                self.waiting.push((to, exchange));
                continue;
            }
            self.overtaken(exchange);
            let exchange = &self.network.exchanges[exchange];
            self.heard(exchange.session.filter(|_| exchange.sign_of_life));
        }
    }

    /// No more is under way between shards than may be.
    pub(crate) fn shard_messages_are_bounded(&mut self) {
        // What was let in below the limit may still become more: a batch as many publications, each with an envelope for each shard.
        let (bytes, bytes_max) = (self.shared.mailbox.bytes(), self.scenario.settings[0].mailbox_bytes_max);
        // Responses have limits of their own: each of them, and all together.
        let responses = self.message.iter().flatten().flatten().filter_map(|letter| match letter {
            Letter::ShardMessage(Envelope { message: ShardMessage::Response(_, response), .. }) => {
                Some(response.body.len())
            }
            _ => None,
        });
        let bytes = bytes.saturating_sub(responses.sum());
        if bytes > 2 * bytes_max + OVERDRAFT_BYTES {
            self.checker.fail(
                Invariant::ShardMessagesBounded,
                format!("{bytes} bytes are under way, at most {bytes_max} twice"),
            );
        }
    }
}

/// What may be under way beside the limit: what the messages become that were let in below it.
const OVERDRAFT_BYTES: usize = 400_000;
