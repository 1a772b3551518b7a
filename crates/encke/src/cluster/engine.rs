//! The engine of a cluster, as the server sees it.

use std::pin::Pin;

use tokio::sync::mpsc;

pub use encke_cluster::{
    Command as EngineCommand, Event as EngineEvent, Expected, JournalValue, KEY_BYTES_MAX, KeyAnswer, KeyFailure,
    KeyReply, RequestFailure, VALUE_BYTES_MAX,
};

/// An engine that carries envelopes between the nodes of a cluster, such as NATS. Each node has its own connection to it.
///
/// The contract:
///
/// - It runs commands in their order, and reports by [`EngineEvents`]. Those about keys and journals have an order among
///   themselves, and do not wait for others: they carry leases and heartbeats.
/// - An envelope comes at most once for each subscription that matches its subject. Envelopes of one node on one subject come in the
///   order in which the node sent them.
/// - While its connection is away it takes no commands: the node sends none between [`EngineEvent::Disconnected`] and the next
///   [`EngineEvent::Connected`]. Those on their way run later, or are lost. With `Connected` it has all its subscriptions
///   again.
/// - An envelope that two subscriptions bring is reported by the older one first, behind all that the older one has brought
///   before. So the order holds while a wide subscription replaces a narrow one. The node drops the second copy.
/// - [`EngineCommand::Confirm`] is answered after a round trip to the engine: who publishes from then on finds the subscriptions.
/// - It does not report envelopes that this node has sent.
/// - Each [`EngineCommand::Request`] is answered once, by an answer or a failure; so is each command about a key or a journal.
/// - Commands about keys and journals begin in order and may end in any. Of one key or journal only one should be on its way.
pub trait ClusterEngine: Send + 'static {
    /// The engine with its addresses, as operators know it, for the log: `NATS (nats://10.0.0.1:4222)`. It shows no secret.
    fn name(&self) -> String {
        "the engine of the cluster".into()
    }

    /// Runs it on the thread of the cluster, until there are no commands any more. It connects by itself, again and again.
    fn run(self: Box<Self>, commands: EngineCommands, events: EngineEvents) -> EngineRun;
}

/// An engine that runs.
pub type EngineRun = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Commands for an engine.
#[derive(Debug)]
pub struct EngineCommands(pub(crate) mpsc::UnboundedReceiver<EngineCommand>);

impl EngineCommands {
    /// The next command. None: the server has stopped.
    pub async fn next(&mut self) -> Option<EngineCommand> {
        self.0.recv().await
    }
}

/// The events of an engine. The node bounds what it has not taken yet.
#[derive(Clone, Debug)]
pub struct EngineEvents(pub(crate) mpsc::Sender<EngineEvent>);

impl EngineEvents {
    /// Reports an event. It waits while the node has too many. Events after the end of the server are dropped.
    pub async fn report(&self, event: EngineEvent) {
        _ = self.0.send(event).await;
    }
}
