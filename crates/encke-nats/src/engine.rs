//! The connection to NATS and its tasks.
//!
//! ```text
//!   commands ──▶ Queues ──▶ Sending ──▶ NATS client
//!                 │          │ │ │ subscriptions come and go
//!                 │          │ │ └─▶ receive ──▶ events
//!                 │          │ └───▶ Confirmation: a round trip to the server ──▶ events
//!                 │          └─────▶ requests: answers, and times without one ──▶ events
//!                 └──▶ keys: another connection ──▶ events
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, Message, ServerAddr, Subscriber};
use bytes::Bytes;
use encke::{ClusterEngine, EngineCommand, EngineCommands, EngineEvent, EngineEvents, EngineRun};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::arrivals::Arrivals;
use crate::journals::JournalSettings;
use crate::key_commands;
use crate::keys::KeySettings;
use crate::requests::{self, Note};
use crate::settings::{NatsSettings, NatsSettingsError};

/// NATS as the engine of a cluster.
#[derive(Debug)]
pub struct Nats {
    options: ConnectOptions,
    addresses: Vec<ServerAddr>,
    /// The addresses for the log. Their URLs have no secrets.
    name: String,
    /// Copies of each key in JetStream.
    replicas: usize,
    journals: JournalSettings,
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
        let (addresses, confirm) = (settings.addresses()?, format!("encke.{cluster}.confirm"));
        let name = format!("NATS ({})", settings.servers.join(", "));
        let journals = JournalSettings {
            stream: format!("encke-{cluster}-journal"),
            prefix: format!("encke.{cluster}.j."),
            bytes_max: settings.journal_bytes_max,
            age_ms: settings.journal_retention_ms,
        };
        Ok(Nats { options, addresses, name, replicas: settings.replicas, journals, confirm })
    }

    async fn start(self, mut commands: EngineCommands, events: EngineEvents) {
        let Nats { options, addresses, replicas, journals, confirm, .. } = self;
        let (to_states, states) = mpsc::unbounded_channel();
        let reported = events.clone();
        let of_keys = KeySettings { options: options.clone(), addresses: addresses.clone(), replicas };
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
        let (to_requests, notes) = mpsc::unbounded_channel();
        let (to_keys, of_key) = mpsc::unbounded_channel();
        tokio::spawn(report_states(client.clone(), states, to_requests.clone(), reported));
        tokio::spawn(requests::report(notes, events.clone()));
        tokio::spawn(key_commands::run(of_keys, journals, of_key, events.clone()));
        let confirmation = Confirmation { client: client.clone(), subject: confirm, events: events.clone() };
        tokio::spawn(confirmation.run(confirming));
        tokio::spawn(receive(changes, events.clone()));
        let (to_sending, mut of_sending) = mpsc::unbounded_channel();
        let queues = Queues { to_sending, to_keys };
        let passing = async move {
            while let Some(command) = commands.next().await {
                queues.pass(command);
            }
        };
        let mut sending = Sending { client, events, to_confirm, to_receiving, to_requests, inbox: None };
        let sending = async move {
            while let Some(command) = of_sending.recv().await {
                sending.run(command).await;
            }
            // The rest leaves, if there is a connection.
            _ = sending.client.flush().await;
        };
        tokio::join!(passing, sending);
    }
}

impl ClusterEngine for Nats {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn run(self: Box<Self>, commands: EngineCommands, events: EngineEvents) -> EngineRun {
        Box::pin(self.start(commands, events))
    }
}

/// Reports the states of the connection.
async fn report_states(
    client: Client,
    mut states: mpsc::UnboundedReceiver<Event>,
    to_requests: mpsc::UnboundedSender<Note>,
    events: EngineEvents,
) {
    while let Some(event) = states.recv().await {
        if matches!(event, Event::Disconnected | Event::Closed) {
            _ = to_requests.send(Note::Away);
        }
        if let Some(event) = translate(event, &client) {
            events.report(event).await;
        }
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
    /// Read this, too. True: it brings requests.
    Begin(u64, Subscriber, bool),
    /// End this one.
    End(u64),
}

/// Commands that wait, for each connection: those about keys, such as leases and heartbeats, do not wait behind publications.
struct Queues {
    to_sending: mpsc::UnboundedSender<EngineCommand>,
    to_keys: mpsc::UnboundedSender<EngineCommand>,
}

impl Queues {
    fn pass(&self, command: EngineCommand) {
        let queue = match command {
            EngineCommand::Get { .. }
            | EngineCommand::Put { .. }
            | EngineCommand::Delete { .. }
            | EngineCommand::Append { .. }
            | EngineCommand::ReadJournal { .. }
            | EngineCommand::Watch { .. } => &self.to_keys,
            _ => &self.to_sending,
        };
        _ = queue.send(command);
    }
}

/// Runs the commands of the connection for envelopes and requests.
struct Sending {
    client: Client,
    events: EngineEvents,
    to_confirm: mpsc::UnboundedSender<u64>,
    to_receiving: mpsc::UnboundedSender<Change>,
    to_requests: mpsc::UnboundedSender<Note>,
    /// The subject of answers to requests, without their numbers. The first request makes it.
    inbox: Option<String>,
}

impl Sending {
    async fn run(&mut self, command: EngineCommand) {
        match command {
            EngineCommand::Subscribe { key, subject } => self.subscribe(key, subject, false).await,
            EngineCommand::Listen { key, subject } => self.subscribe(key, subject, true).await,
            EngineCommand::Unsubscribe { key } => _ = self.to_receiving.send(Change::End(key)),
            EngineCommand::Confirm(number) => _ = self.to_confirm.send(number),
            EngineCommand::Publish { subject, envelope } => {
                let bytes = envelope.len();
                if let Err(error) = self.client.publish(subject, Bytes::from(envelope)).await {
                    self.events.report(EngineEvent::Failed(error.to_string())).await;
                }
                self.events.report(EngineEvent::Sent(bytes)).await;
            }
            EngineCommand::Request { number, subject, body, timeout_ms } => {
                self.request(number, subject, body, timeout_ms).await;
            }
            EngineCommand::Answer { reply_to: subject, body } => self.send(subject, body).await,
            EngineCommand::Send { subject, body } => self.send(subject, body.into()).await,
            // Those about keys.
            _ => {}
        }
    }

    async fn send(&mut self, subject: String, body: Bytes) {
        if let Err(error) = self.client.publish(subject, body).await {
            self.events.report(EngineEvent::Failed(error.to_string())).await;
        }
    }

    async fn subscribe(&mut self, key: u64, subject: String, brings_requests: bool) {
        match self.client.subscribe(subject).await {
            Ok(subscriber) => _ = self.to_receiving.send(Change::Begin(key, subscriber, brings_requests)),
            Err(error) => self.events.report(EngineEvent::Failed(error.to_string())).await,
        }
    }

    /// Sends a request from here, and not from a task for each, so that requests keep their order.
    async fn request(&mut self, number: u64, subject: String, body: Vec<u8>, timeout_ms: u64) {
        let until = Instant::now() + Duration::from_millis(timeout_ms);
        _ = self.to_requests.send(Note::Sent { number, until });
        if self.inbox.is_none() {
            let inbox = self.client.new_inbox();
            match self.client.subscribe(format!("{inbox}.*")).await {
                Ok(subscriber) => {
                    _ = self.to_requests.send(Note::Begin(subscriber));
                    self.inbox = Some(inbox);
                }
                Err(error) => self.events.report(EngineEvent::Failed(error.to_string())).await,
            }
        }
        let sent = match &self.inbox {
            Some(inbox) => {
                let reply_to = format!("{inbox}.{number}");
                self.client.publish_with_reply(subject, reply_to, Bytes::from(body)).await.is_ok()
            }
            None => false,
        };
        if !sent {
            _ = self.to_requests.send(Note::Failed(number));
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
    // The keys of those that bring requests.
    let mut listening = BTreeSet::new();
    loop {
        let change = tokio::select! {
            biased;
            change = changes.recv() => change,
            (key, message) = arrivals.next() => {
                report_arrival(&events, listening.contains(&key).then_some(key), message).await;
                continue;
            }
        };
        match change {
            None => return,
            Some(Change::Begin(key, subscriber, brings_requests)) => {
                if brings_requests {
                    listening.insert(key);
                }
                arrivals.add(key, subscriber, brings_requests);
            }
            Some(Change::End(key)) => {
                let of_requests = listening.remove(&key).then_some(key);
                for message in arrivals.remove(key).await {
                    report_arrival(&events, of_requests, message).await;
                }
            }
        }
    }
}

/// Reports an envelope, or a request or message of the subscription with this key.
async fn report_arrival(events: &EngineEvents, of_requests: Option<u64>, message: Message) {
    match (of_requests, message.reply) {
        (None, _) => events.report(EngineEvent::Received(message.payload)).await,
        (Some(key), Some(reply_to)) => {
            let reply_to = reply_to.as_str().to_owned();
            events.report(EngineEvent::Asked { key, reply_to, body: message.payload }).await;
        }
        (Some(key), None) => events.report(EngineEvent::Notified { key, body: message.payload }).await,
    }
}

/// The longest wait for the answer to one confirmation.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_does_not_wait_behind_publications() {
        let (to_sending, mut of_sending) = mpsc::unbounded_channel();
        let (to_keys, mut of_keys) = mpsc::unbounded_channel();
        let queues = Queues { to_sending, to_keys };
        let publish = || EngineCommand::Publish { subject: "a".into(), envelope: Vec::new() };
        (0..100).for_each(|_| queues.pass(publish()));
        queues.pass(EngineCommand::Get { number: 7, bucket: "b".into(), key: "k".into() });
        // No publication has left.
        assert!(matches!(of_keys.try_recv(), Ok(EngineCommand::Get { number: 7, .. })));
        assert!((0..100).all(|_| of_sending.try_recv().is_ok_and(|command| command == publish())));
    }
}
