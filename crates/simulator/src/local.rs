//! The virtual shard of the subscribers in the process: its dispatcher, and a witness that follows announcements.

use std::sync::Arc;
use std::task::{Context, Waker};

use encke_local::{Registry, Scratch, Subscription};

/// The subscribers in the process of the server.
pub(crate) struct Local {
    pub(crate) registry: Arc<Registry>,
    pub(crate) scratch: Scratch,
    /// The most messages that came at once.
    pub(crate) burst_max: usize,
    /// It subscribes to the announcements of presence.
    pub(crate) witness: Option<Subscription>,
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

    /// Ends the subscriptions.
    pub(crate) fn leave(&mut self) {
        self.witness = None;
    }
}

/// The next item of a subscription, if it is there.
pub(crate) fn next(
    subscription: &mut Subscription,
) -> std::task::Poll<Option<Result<encke_local::Message, encke_local::Gap>>> {
    let future = std::pin::pin!(subscription.next());
    future.poll(&mut Context::from_waker(Waker::noop()))
}
