//! The dispatcher of the subscribers in the process.

use std::sync::Arc;

use encke_core::{Envelope, PRESENCE_CHANNEL, ServerEntry, ShardMessage};
use encke_local::Start;

use crate::checker::Invariant;
use crate::local::{Local, next};
use crate::sabotage::Sabotage;
use crate::world::World;

impl World {
    /// Starts the dispatcher of a new process, and the witness.
    pub(super) fn begin_local(&mut self) {
        self.local = Local::new(self.shared.clone());
        self.holds = Arc::default();
        if self.scenario.has_presence() {
            let pattern = format!("{PRESENCE_CHANNEL}/**");
            let witness = self.local.registry.subscribe(
                &self.scenario.settings[0],
                &pattern,
                &Start::Latest,
                ServerEntry::HandleSubscribe.may(),
            );
            self.local.witness = witness.ok();
        }
    }

    /// The dispatcher takes a message of a shard.
    pub(super) fn dispatch(&mut self, envelope: &Envelope) {
        if self.sabotage_once(Sabotage::DeafDispatcher) {
            return;
        }
        let ShardMessage::Publication(publication) = &envelope.message else {
            let detail = format!("the dispatcher got {:?}", envelope.message);
            return self.checker.fail(Invariant::NumbersAgree, detail);
        };
        self.local.burst_max = self.local.burst_max.max(publication.messages as usize);
        self.local.registry.dispatch(publication, &mut self.local.scratch);
        while let Some(witness) = &mut self.local.witness
            && let std::task::Poll::Ready(Some(item)) = next(witness)
        {
            match item {
                Ok(message) => self.witness_learns(message.channel(), message.data()),
                Err(gap) => self.checker.fail(Invariant::PresenceAnnounced, gap.to_string()),
            }
        }
    }
}
