//! The session as programs use it.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use crate::cookies::Cookies;
use crate::dialog::{ConnectionType, Dialog, Gap, Start};
use crate::drive::{Call, Waiting, Way};
use crate::endpoint::Endpoint;
use crate::{Error, Extension, Message, Options};

/// Where Bayeux servers answer by habit.
const DEFAULT_PATH: &str = "/cometd";

/// What comes for a session; see [`Client::listen`].
#[derive(Clone, Debug)]
pub enum Heard {
    /// A message.
    Message(Message),
    /// Messages that are gone.
    Gap(Gap),
}

/// A session with a Bayeux server.
///
/// It has no task of its own: reading, writing, the heartbeat and the way back after a break happen while one of its methods
/// is awaited, so whoever holds it keeps calling [`Client::next`]. Methods may be dropped half-way (in a `select!`, say):
/// nothing that came in is lost, and what they began goes on in the next one.
#[derive(Debug)]
pub struct Client {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) options: Options,
    pub(crate) dialog: Dialog,
    pub(crate) way: Way,
    /// What carries it, or will when the way is open.
    pub(crate) connection_type: ConnectionType,
    pub(crate) cookies: Cookies,
    /// Whether there was a session once: from then on, what goes wrong is a break.
    pub(crate) was_open: bool,
    pub(crate) inbox: VecDeque<Heard>,
    /// What the running method waits for.
    pub(crate) asked: Waiting,
    /// What [`Client::publish_soon`] sent.
    pub(crate) soon: Waiting,
    pub(crate) call: Option<Call>,
}

/// Messages that go together; see [`Client::batch`].
#[derive(Debug)]
pub struct Batch<'a> {
    dialog: &'a mut Dialog,
    ids: VecDeque<u64>,
}

impl Client {
    /// Opens a session. Without a path the URL means `/cometd`; `http://` and `ws://` mean the same.
    ///
    /// # Errors
    /// The URL is wrong, nobody or no Bayeux server answers there, or the server refuses.
    pub async fn connect(url: &str) -> Result<Client, Error> {
        Client::connect_with(url, Options::default()).await
    }

    /// Opens a session that behaves as told.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_with(url: &str, options: Options) -> Result<Client, Error> {
        Client::connect_extended(url, options, Vec::new()).await
    }

    /// Opens a session with extensions, which see all its messages, the first handshake included; see [`Extension`].
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_extended(
        url: &str,
        options: Options,
        extensions: Vec<Box<dyn Extension>>,
    ) -> Result<Client, Error> {
        let mut dialog = Dialog::new(options.dialog());
        for extension in extensions {
            dialog.extend(extension);
        }
        let mut client = Client {
            endpoint: Arc::new(Endpoint::parse(url, DEFAULT_PATH)?),
            connection_type: options.connection_type(),
            options,
            dialog,
            way: Way::Closed { until: Instant::now() },
            cookies: Cookies::default(),
            was_open: false,
            inbox: VecDeque::new(),
            asked: Waiting::default(),
            soon: Waiting::default(),
            call: None,
        };
        client.ensure_open().await?;
        Ok(client)
    }

    /// Subscribes to a channel or pattern; what is published there after this returns is received. After a break the
    /// subscription is there again.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks and [`Options::reconnect`] is off.
    pub async fn subscribe(&mut self, channel: &str) -> Result<(), Error> {
        self.ensure_open().await?;
        let id = self.dialog.subscribe(&[channel.into()]);
        self.answered(Waiting::across_breaks(id)).await
    }

    /// As [`Client::subscribe`], from somewhere else than [`Options::replay`] says: after a place that the program has kept,
    /// say. Without that option it is a plain subscribe.
    ///
    /// # Errors
    /// As [`Client::subscribe`].
    pub async fn subscribe_from(&mut self, channel: &str, start: Start) -> Result<(), Error> {
        self.ensure_open().await?;
        let id = self.dialog.subscribe_from(channel, start);
        self.answered(Waiting::across_breaks(id)).await
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// As [`Client::subscribe`].
    pub async fn unsubscribe(&mut self, channel: &str) -> Result<(), Error> {
        self.ensure_open().await?;
        let id = self.dialog.unsubscribe(&[channel.into()]);
        self.answered(Waiting::across_breaks(id)).await
    }

    /// Publishes and waits for the server's word that it took the message.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks; then it is not known whether the message arrived.
    pub async fn publish(&mut self, channel: &str, data: &RawValue) -> Result<(), Error> {
        self.ensure_open().await?;
        let id = self.dialog.publish(channel, data);
        self.answered(Waiting::from(VecDeque::from([id]))).await
    }

    /// Publishes without waiting for the server's word, so that many messages can be on their way. Waits only while too
    /// many are ([`Options::unsent_bytes_max`], or 10,000 that were not answered). [`Client::flush`] waits for all.
    ///
    /// # Errors
    /// The server refused an earlier one of these messages, or the connection broke since; then it is not known which arrived.
    pub async fn publish_soon(&mut self, channel: &str, data: &RawValue) -> Result<(), Error> {
        self.ensure_open().await?;
        self.fewer(|client| client.soon.left(), SOON_MESSAGES_MAX).await?;
        self.fewer(Client::unsent_bytes, self.options.unsent_bytes_max.max(1)).await?;
        self.soon.outcome()?;
        self.ensure_open().await?;
        let id = self.dialog.publish(channel, data);
        self.soon.add(id);
        self.nudge().await
    }

    /// Waits until all that [`Client::publish_soon`] sent was answered.
    ///
    /// # Errors
    /// As [`Client::publish_soon`].
    pub async fn flush(&mut self) -> Result<(), Error> {
        self.fewer(|client| client.soon.left(), 1).await?;
        self.soon.outcome()
    }

    /// Sends messages together, in one frame or request, and waits for all their replies.
    ///
    /// # Errors
    /// The first refusal, while the other messages may well have been taken; or the connection breaks.
    pub async fn batch(&mut self, fill: impl FnOnce(&mut Batch<'_>)) -> Result<(), Error> {
        self.ensure_open().await?;
        let mut ids = VecDeque::new();
        self.dialog.batch(|dialog| {
            let mut batch = Batch { dialog, ids: VecDeque::new() };
            fill(&mut batch);
            ids = batch.ids;
        });
        self.answered(Waiting::from(ids)).await
    }

    /// Sends data to a service channel and waits for the service's answer, which is the message that comes back with the
    /// same channel and id (CometD's remote call).
    ///
    /// # Errors
    /// The service or the server refuses, there is no answer within [`Options::network_delay_max`], or the connection breaks.
    pub async fn call(&mut self, channel: &str, data: &RawValue) -> Result<Box<RawValue>, Error> {
        self.ensure_open().await?;
        let id = self.dialog.publish(channel, data);
        self.call = Some(Call { id, outcome: None });
        let deadline = Instant::now() + self.options.network_delay_max;
        while Instant::now() < deadline {
            self.turn(Some(deadline)).await?;
            if let Some(outcome) = self.call.as_mut().and_then(|call| call.outcome.take()) {
                self.call = None;
                return outcome;
            }
        }
        self.call = None;
        Err(Error::Lost(format!("no answer on {channel} within {:?}", self.options.network_delay_max)))
    }

    /// Waits for the next message, keeps the heartbeat going, and comes back after a break. Gaps are only logged: a program that
    /// wants to know calls [`Client::listen`].
    ///
    /// # Errors
    /// The server ended the session or refuses a new one; the connection broke and [`Options::reconnect`] is off.
    pub async fn next(&mut self) -> Result<Message, Error> {
        loop {
            match self.listen().await? {
                Heard::Message(message) => return Ok(message),
                Heard::Gap(Gap { channel, lost }) => tracing::warn!(channel, ?lost, "messages are gone"),
            }
        }
    }

    /// As [`Client::next`], but also tells of messages that are gone, in between those where they are missing. Only sessions with
    /// [`Options::acknowledge`] or [`Options::replay`] know.
    ///
    /// # Errors
    /// As [`Client::next`].
    pub async fn listen(&mut self) -> Result<Heard, Error> {
        loop {
            if let Some(heard) = self.inbox.pop_front() {
                if self.inbox.is_empty() {
                    // Most sessions are idle most of the time.
                    self.inbox = VecDeque::new();
                }
                return Ok(heard);
            }
            self.turn(None).await?;
        }
    }

    /// Ends the session and closes the connection.
    ///
    /// # Errors
    /// The connection breaks before the server answered; the session then ends by itself a little later.
    pub async fn disconnect(mut self) -> Result<(), Error> {
        if !self.dialog.is_open() || matches!(self.way, Way::Over) {
            return Ok(());
        }
        self.options.reconnect = false;
        let delay = self.options.network_delay_max;
        self.asked = Waiting::from(VecDeque::from([self.dialog.disconnect()]));
        let answered = async {
            while self.asked.left() > 0 {
                self.turn(None).await?;
            }
            self.asked.outcome()
        };
        timeout(delay, answered).await.map_err(|_| Error::Lost(format!("no answer within {delay:?}")))??;
        if let Way::Open(carrier) = &mut self.way {
            let _ = timeout(delay, carrier.close()).await;
        }
        Ok(())
    }

    /// The session's id, as long as there is one. It is a secret: who knows it can speak for the session.
    pub fn client_id(&self) -> Option<&str> {
        self.dialog.client_id()
    }

    /// What carries the session.
    pub fn connection_type(&self) -> ConnectionType {
        self.connection_type
    }
}

impl Batch<'_> {
    /// Publishes.
    pub fn publish(&mut self, channel: &str, data: &RawValue) {
        self.ids.push_back(self.dialog.publish(channel, data));
    }

    /// Subscribes to a channel or pattern.
    pub fn subscribe(&mut self, channel: &str) {
        self.ids.push_back(self.dialog.subscribe(&[channel.into()]));
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, channel: &str) {
        self.ids.push_back(self.dialog.unsubscribe(&[channel.into()]));
    }
}

/// How many publications may be on their way without an answer.
const SOON_MESSAGES_MAX: usize = 10_000;
