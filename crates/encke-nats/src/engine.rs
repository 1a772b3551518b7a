//! The connection to NATS and its tasks.
//!
//! ```text
//!   commands ──▶ Sending ──▶ NATS client
//!                 │  │ subscriptions come and go
//!                 │  └─▶ receive ──▶ events
//!                 └────▶ Confirmation: a round trip to the server ──▶ events
//! ```

use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, ServerAddr, Subscriber};
use bytes::Bytes;
use encke::{ClusterEngine, EngineCommand, EngineCommands, EngineEvent, EngineEvents, EngineRun};
use tokio::sync::mpsc;

use crate::arrivals::Arrivals;
use crate::settings::{NatsSettings, NatsSettingsError};

/// NATS as the engine of a cluster.
#[derive(Debug)]
pub struct Nats {
    options: ConnectOptions,
    addresses: Vec<ServerAddr>,
    /// The subject of confirmations, to which nobody subscribes.
    confirm: String,
}

impl Nats {
    /// The engine of the cluster with this name. It connects when the server starts.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn new(settings: NatsSettings, cluster: &str) -> Result<Nats, NatsSettingsError> {
        let inbox = format!("encke.{cluster}.inbox");
        let options = settings.options()?.custom_inbox_prefix(inbox).request_timeout(Some(CONFIRM_TIMEOUT));
        Ok(Nats { options, addresses: settings.addresses()?, confirm: format!("encke.{cluster}.confirm") })
    }

    async fn start(self, mut commands: EngineCommands, events: EngineEvents) {
        let Nats { options, addresses, confirm } = self;
        let (to_states, mut states) = mpsc::unbounded_channel();
        let reported = events.clone();
        let options = options.event_callback(move |event| {
            let to_states = to_states.clone();
            async move { _ = to_states.send(event) }
        });
        // It tries again until the server is there. Only addresses without a server are an error.
        let client = match options.connect(&addresses[..]).await {
            Ok(client) => client,
            Err(error) => return reported.report(EngineEvent::Failed(error.to_string())).await,
        };
        let (to_confirm, confirming) = mpsc::unbounded_channel();
        let (to_receiving, changes) = mpsc::unbounded_channel();
        let watched = client.clone();
        tokio::spawn(async move {
            while let Some(event) = states.recv().await {
                if let Some(event) = translate(event, &watched) {
                    reported.report(event).await;
                }
            }
        });
        let confirmation = Confirmation { client: client.clone(), subject: confirm, events: events.clone() };
        tokio::spawn(confirmation.run(confirming));
        tokio::spawn(receive(changes, events.clone()));
        let mut sending = Sending { client, events, to_confirm, to_receiving };
        while let Some(command) = commands.next().await {
            sending.run(command).await;
        }
        // The rest leaves, if there is a connection.
        _ = sending.client.flush().await;
    }
}

impl ClusterEngine for Nats {
    fn run(self: Box<Self>, commands: EngineCommands, events: EngineEvents) -> EngineRun {
        Box::pin(self.start(commands, events))
    }
}

/// An event of the client for the node.
fn translate(event: Event, client: &Client) -> Option<EngineEvent> {
    match event {
        Event::Connected => Some(EngineEvent::Connected { envelope_bytes_max: client.max_payload() }),
        Event::Disconnected | Event::Closed => Some(EngineEvent::Disconnected),
        Event::SlowConsumer(_) => Some(EngineEvent::Dropped),
        Event::ServerError(error) => Some(EngineEvent::Failed(error.to_string())),
        Event::ClientError(error) => Some(EngineEvent::Failed(error.to_string())),
        Event::LameDuckMode | Event::Draining => None,
    }
}

/// A change of what is read.
enum Change {
    /// Read this, too.
    Begin(u64, Subscriber),
    /// End this one.
    End(u64),
}

/// Runs commands.
struct Sending {
    client: Client,
    events: EngineEvents,
    to_confirm: mpsc::UnboundedSender<u64>,
    to_receiving: mpsc::UnboundedSender<Change>,
}

impl Sending {
    async fn run(&mut self, command: EngineCommand) {
        match command {
            EngineCommand::Subscribe { key, subject } => match self.client.subscribe(subject).await {
                Ok(subscriber) => _ = self.to_receiving.send(Change::Begin(key, subscriber)),
                Err(error) => self.events.report(EngineEvent::Failed(error.to_string())).await,
            },
            EngineCommand::Unsubscribe { key } => _ = self.to_receiving.send(Change::End(key)),
            EngineCommand::Confirm(number) => _ = self.to_confirm.send(number),
            EngineCommand::Publish { subject, envelope } => {
                let bytes = envelope.len();
                if let Err(error) = self.client.publish(subject, Bytes::from(envelope)).await {
                    self.events.report(EngineEvent::Failed(error.to_string())).await;
                }
                self.events.report(EngineEvent::Sent(bytes)).await;
            }
        }
    }
}

/// Asks the server for confirmations.
struct Confirmation {
    client: Client,
    subject: String,
    events: EngineEvents,
}

impl Confirmation {
    async fn run(self, mut confirming: mpsc::UnboundedReceiver<u64>) {
        while let Some(mut number) = confirming.recv().await {
            // One round trip confirms all that was requested before it.
            while let Ok(later) = confirming.try_recv() {
                number = later;
            }
            if self.confirm().await {
                self.events.report(EngineEvent::Confirmed(number)).await;
            }
        }
    }

    /// One round trip: nobody answers this subject, and the server says so on this connection, behind all that it had for it
    /// before. A ping would do, but the client has none. False if the connection is away: the node asks again when it is back.
    async fn confirm(&self) -> bool {
        loop {
            let answer = self.client.request(self.subject.clone(), Bytes::new()).await;
            match answer.map_err(|error| (error.kind(), error)) {
                Ok(_) | Err((RequestErrorKind::NoResponders, _)) => return true,
                Err(_) if self.client.connection_state() != State::Connected => return false,
                Err((_, error)) => {
                    let text = format!("no answer on {}: {error}", self.subject);
                    self.events.report(EngineEvent::Failed(text)).await;
                }
            }
        }
    }
}

/// Reads all subscriptions.
async fn receive(mut changes: mpsc::UnboundedReceiver<Change>, events: EngineEvents) {
    let mut arrivals = Arrivals::new();
    loop {
        let change = tokio::select! {
            biased;
            change = changes.recv() => change,
            message = arrivals.next() => {
                events.report(EngineEvent::Received(message.payload)).await;
                continue;
            }
        };
        match change {
            None => return,
            Some(Change::Begin(key, subscriber)) => arrivals.add(key, subscriber),
            Some(Change::End(key)) => {
                for message in arrivals.remove(key).await {
                    events.report(EngineEvent::Received(message.payload)).await;
                }
            }
        }
    }
}

/// The longest wait for the answer to one confirmation.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);
