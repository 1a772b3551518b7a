//! Subscribers in the process of the server: the thread that dispatches publications to them.
//!
//! To the shards they are one more shard, whose index is the number of shards: publications come to it as they come to
//! other shards. [`Registry`] has their queues.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use encke_core::{Envelope, Metrics, ShardMessage, Shared};
use encke_local::{Registry, Scratch};

/// The virtual shard of the subscribers in the process.
pub(crate) struct Local {
    pub(crate) registry: Arc<Registry>,
    /// To the dispatcher. None ends it.
    inbox: Sender<Option<Envelope>>,
}

impl Local {
    /// Starts the dispatcher.
    ///
    /// # Errors
    /// The system's error, if it cannot start a thread.
    pub(crate) fn start(shared: Arc<Shared>, metrics: Arc<Metrics>) -> io::Result<Local> {
        let registry = Registry::new(shared, metrics);
        let (inbox, envelopes) = channel();
        let dispatching = registry.clone();
        std::thread::Builder::new().name("dispatcher".into()).spawn(move || dispatch(&dispatching, &envelopes))?;
        Ok(Local { registry, inbox })
    }

    /// Passes a message of a shard to the dispatcher.
    pub(crate) fn send(&self, envelope: Envelope) {
        // After the end nobody reads.
        let _ended = self.inbox.send(Some(envelope));
    }

    /// Ends all subscriptions, after the publications that were sent before.
    pub(crate) fn stop(&self) {
        let _ended = self.inbox.send(None);
    }
}

/// The dispatcher: puts publications into queues until the server stops.
fn dispatch(registry: &Registry, envelopes: &Receiver<Option<Envelope>>) {
    let mut scratch = Scratch::default();
    while let Ok(Some(envelope)) = envelopes.recv() {
        if let ShardMessage::Publication(publication) = &envelope.message {
            registry.dispatch(publication, &mut scratch);
        }
    }
    registry.close();
}
