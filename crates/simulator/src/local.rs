//! The virtual shard of the subscribers in the process: its dispatcher, and a witness that follows announcements.

use std::sync::Arc;
use std::task::{Context, Waker};

use encke_core::{Envelope, PRESENCE_CHANNEL, ServerEntry, ShardMessage};
use encke_local::{Registry, Scratch, Start, Subscription};

use crate::Sabotage;
use crate::checker::Invariant;
use crate::held_shares::HeldShares;
use crate::world::World;

/// The subscribers in the process of the server.
pub(crate) struct Local {
    pub(crate) registry: Arc<Registry>,
    scratch: Scratch,
    /// The most messages that came at once.
    pub(crate) burst_max: usize,
    /// It subscribes to the announcements of presence.
    witness: Option<Subscription>,
}

impl Local {
    /// No subscribers.
    pub(crate) fn new(shared: Arc<encke_core::Shared>) -> Local {
        Local {
            registry: Registry::new(shared, Arc::default()),
            scratch: Scratch::default(),
            burst_max: 0,
            witness: None,
        }
    }
}

impl Local {
    /// Ends the subscriptions.
    pub(crate) fn leave(&mut self) {
        self.witness = None;
    }
}

impl World {
    /// Starts the dispatcher of a new process, and the witness.
    pub(crate) fn begin_local(&mut self) {
        self.local = Local::new(self.shared.clone());
        self.held_shares = HeldShares::default();
        if self.has_presence() {
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
    pub(crate) fn dispatch(&mut self, envelope: &Envelope) {
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

/// The next item of a subscription, if it is there.
pub(crate) fn next(
    subscription: &mut Subscription,
) -> std::task::Poll<Option<Result<encke_local::Message, encke_local::Gap>>> {
    let future = std::pin::pin!(subscription.next());
    future.poll(&mut Context::from_waker(Waker::noop()))
}
