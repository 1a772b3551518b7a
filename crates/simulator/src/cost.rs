//! The cost of events: each takes a number of steps that its messages and their subscribers bound, whatever queues hold.

use encke_core::{STEPS_PER_DELIVERY, STEPS_PER_TURN, ShardMessage};

use crate::Sabotage;
use crate::checker::Invariant;
use crate::world::World;

/// The cost of a shard so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Its steps.
    steps: u64,
    /// Messages that it has taken since it had nothing to do.
    messages: u64,
}

impl World {
    /// Notes the publications in a message for a shard.
    pub(crate) fn note_cost(&mut self, shard: usize, message: &ShardMessage) {
        self.costs[shard].messages += match message {
            ShardMessage::Record(publication) => u64::from(publication.messages),
            ShardMessage::Publication(publication) => u64::from(publication.messages),
            _ => 1,
        };
    }

    /// Checks the steps of an event, in which the application saw so many messages. `is_turn`: a flush or a tick.
    pub(crate) fn check_cost(&mut self, shard: usize, seen: usize, is_turn: bool) {
        let steps = self.shards[shard].steps();
        let sessions = self.shards[shard].sessions() as u64;
        let cost = &mut self.costs[shard];
        cost.messages += 1 + seen as u64;
        let mut taken = steps - std::mem::replace(&mut cost.steps, steps);
        let turn = if is_turn { STEPS_PER_TURN * TURNS } else { EVENT_STEPS };
        let bound = turn + cost.messages * (1 + sessions) * STEPS_PER_DELIVERY;
        if self.shards[shard].is_settled() {
            self.costs[shard].messages = 0;
        }
        if self.sabotage == Sabotage::LinearSearch && !is_turn {
            taken += self.waiting_on(shard).iter().sum::<u64>() * LONGER;
        }
        // One outbox may be searched.
        if taken > bound && taken > bound + 2 * self.waiting_on(shard).into_iter().max().unwrap_or(0) {
            let detail = format!("{taken} steps of shard {shard} for one event, and {bound} are its bound");
            self.checker.fail(Invariant::CostBounded, detail);
        }
    }

    /// The messages that wait for each session of a shard.
    fn waiting_on(&self, shard: usize) -> Vec<u64> {
        let here = self.checker.sessions.iter().filter(|session| session.alive && session.id.shard() == shard);
        here.filter_map(|session| Some(self.shards[shard].waiting(&session.id)?.0 as u64)).collect()
    }
}

/// The steps of an event without a message.
const EVENT_STEPS: u64 = 1_024;
/// A flush looks at the time so many times at most.
const TURNS: u64 = 5;
/// Queues here are short. A sabotaged search takes as many steps as in queues that are so many times longer.
const LONGER: u64 = 10_000;
