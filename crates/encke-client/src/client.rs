//! The session: handshake, heartbeat, subscriptions, and the way back after a break.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::Error;
use crate::Message;
use crate::carrier::Carrier;
use crate::endpoint::Endpoint;
use crate::wire::{Advice, AdviceRequest, Incoming, Outgoing, Reconnect};

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long the server may take to answer, beyond the time it holds a connect.
    pub network_delay_max: Duration,
    /// Whether a broken connection is opened again.
    pub reconnect: bool,
    /// Each failed attempt to come back lengthens the pause before the next by this.
    pub backoff_step: Duration,
    /// The longest pause between two attempts.
    pub backoff_max: Duration,
    /// The longest text that the server may send, in bytes.
    pub message_bytes_max: usize,
    /// How many messages may wait for [`Client::next`] while another method runs.
    pub inbox_messages_max: usize,
}

/// A session with a Bayeux server.
///
/// Its methods may be dropped half-way (in a `select!`, say): nothing that came in is lost.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    options: Options,
    carrier: Option<Carrier>,
    heartbeat: Heartbeat,
    /// The session, as long as the server may know it.
    client_id: Option<String>,
    subscriptions: Vec<String>,
    advice: Advice,
    inbox: VecDeque<Message>,
    last_id: u64,
}

/// Where the loop of connects stands.
///
/// ```text
/// Off ── session open ──▶ Due ── connect sent ──▶ Out ── reply ──▶ Due
///  ▲                                               │
///  └───────────── connection lost ─────────────────┘
/// ```
#[derive(Clone, Debug)]
enum Heartbeat {
    /// There is no session, or it is being opened.
    Off,
    /// The next connect is to be sent then.
    Due(Instant),
    /// A connect is held by the server, which has until then to answer.
    Out { id: String, deadline: Instant },
}

impl Default for Options {
    /// CometD's defaults where its clients have the option.
    fn default() -> Options {
        Options {
            network_delay_max: Duration::from_secs(10),
            reconnect: true,
            backoff_step: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            message_bytes_max: 16 * 1024 * 1024,
            inbox_messages_max: 100_000,
        }
    }
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
        let mut client = Client {
            endpoint: Endpoint::parse(url)?,
            options,
            carrier: None,
            heartbeat: Heartbeat::Off,
            client_id: None,
            subscriptions: Vec::new(),
            advice: Advice::default(),
            inbox: VecDeque::new(),
            last_id: 0,
        };
        client.open().await?;
        Ok(client)
    }

    /// Subscribes to a channel or pattern; what is published there after this returns is received.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks.
    pub async fn subscribe(&mut self, channel: &str) -> Result<(), Error> {
        self.ensure_open().await?;
        self.change_subscription("/meta/subscribe", &[channel.into()]).await?;
        if !self.subscriptions.iter().any(|subscription| subscription == channel) {
            self.subscriptions.push(channel.into());
        }
        Ok(())
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks.
    pub async fn unsubscribe(&mut self, channel: &str) -> Result<(), Error> {
        self.ensure_open().await?;
        self.subscriptions.retain(|subscription| subscription != channel);
        self.change_subscription("/meta/unsubscribe", &[channel.into()]).await
    }

    /// Publishes and waits for the server's word that it took the message.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks; then it is not known whether the message arrived.
    pub async fn publish(&mut self, channel: &str, data: &RawValue) -> Result<(), Error> {
        self.ensure_open().await?;
        self.exchange(Outgoing { channel, data: Some(data), ..Outgoing::default() }).await?;
        Ok(())
    }

    /// Waits for the next message, keeps the heartbeat going, and comes back after a break.
    ///
    /// # Errors
    /// The server ended the session or refuses a new one; the connection broke and [`Options::reconnect`] is off.
    pub async fn next(&mut self) -> Result<Message, Error> {
        loop {
            if let Some(message) = self.inbox.pop_front() {
                return Ok(message);
            }
            self.ensure_open().await?;
            match self.step(None).await {
                Ok(_late_replies) => {}
                Err(error) if error.is_transient() && self.options.reconnect => {
                    tracing::warn!(reason = %error, "connection lost");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends the session and closes the connection.
    ///
    /// # Errors
    /// The connection breaks before the server answered; the session then ends by itself a little later.
    pub async fn disconnect(mut self) -> Result<(), Error> {
        if matches!(self.heartbeat, Heartbeat::Off) {
            return Ok(());
        }
        self.exchange(Outgoing { channel: "/meta/disconnect", ..Outgoing::default() }).await?;
        if let Some(carrier) = &mut self.carrier {
            let _ = timeout(self.options.network_delay_max, carrier.close()).await;
        }
        Ok(())
    }

    /// Opens the connection again if it is gone, as often as it takes.
    async fn ensure_open(&mut self) -> Result<(), Error> {
        if !matches!(self.heartbeat, Heartbeat::Off) {
            return Ok(());
        }
        if !self.options.reconnect {
            return Err(Error::Lost("it was lost before".into()));
        }
        sleep(self.interval()).await;
        let mut failures = 0;
        loop {
            match self.open().await {
                Ok(()) => return Ok(()),
                // A proxy in front of a server that restarts answers, but not with Bayeux.
                Err(error) if error.is_transient() || matches!(error, Error::NotBayeux { .. }) => {
                    failures += 1;
                    let pause = self.backoff(failures);
                    tracing::warn!(reason = %error, ?pause, "still away");
                    sleep(pause).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens the connection, takes the old session up or opens a new one with the same subscriptions.
    async fn open(&mut self) -> Result<(), Error> {
        self.heartbeat = Heartbeat::Off;
        let opening = Carrier::open(&self.endpoint, self.options.message_bytes_max);
        let carrier = timeout(self.options.network_delay_max, opening).await.map_err(|_| Error::Unreachable {
            address: self.endpoint.authority.clone(),
            reason: format!("no answer within {:?}", self.options.network_delay_max),
        })??;
        self.carrier = Some(carrier);
        if self.client_id.is_some() && self.resume().await? {
            return Ok(());
        }
        self.handshake().await?;
        self.heartbeat = Heartbeat::Due(Instant::now());
        if !self.subscriptions.is_empty() {
            let subscriptions = self.subscriptions.clone();
            let outcome = self.change_subscription("/meta/subscribe", &subscriptions).await;
            if outcome.is_err() {
                self.heartbeat = Heartbeat::Off;
            }
            outcome?;
        }
        Ok(())
    }

    async fn handshake(&mut self) -> Result<(), Error> {
        self.client_id = None;
        let types = [self.carrier.as_ref().map_or("", Carrier::connection_type)];
        let reply = self
            .exchange(Outgoing {
                channel: "/meta/handshake",
                version: Some("1.0"),
                supported_connection_types: Some(&types),
                ..Outgoing::default()
            })
            .await?;
        if reply.successful.is_none() || reply.client_id.is_none() {
            return Err(self.not_bayeux("its handshake reply has no clientId"));
        }
        self.client_id = reply.client_id;
        Ok(())
    }

    /// Goes on with the session over a new connection; whether the server still knew it.
    async fn resume(&mut self) -> Result<bool, Error> {
        let connection_type = self.carrier.as_ref().map(Carrier::connection_type);
        let advice = Some(AdviceRequest { timeout: 0 });
        let outcome =
            self.exchange(Outgoing { channel: "/meta/connect", connection_type, advice, ..Outgoing::default() }).await;
        match outcome {
            Ok(_) => {
                self.heartbeat = Heartbeat::Due(Instant::now() + self.interval());
                Ok(true)
            }
            Err(Error::Refused { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn change_subscription(&mut self, channel: &str, subscriptions: &[String]) -> Result<(), Error> {
        let subscription = Some(subscriptions);
        self.exchange(Outgoing { channel, subscription, ..Outgoing::default() }).await?;
        Ok(())
    }

    /// Sends a message of this session and waits for its reply, which is successful.
    async fn exchange(&mut self, message: Outgoing<'_>) -> Result<Incoming, Error> {
        let channel = message.channel.to_string();
        let id = self.send(message);
        let deadline = Instant::now() + self.options.network_delay_max;
        while Instant::now() < deadline {
            for reply in self.step(Some(deadline)).await? {
                if reply.answers(&id) {
                    return match reply.failure() {
                        Some(error) => Err(Error::Refused { channel, error }),
                        None => Ok(reply),
                    };
                }
            }
        }
        self.heartbeat = Heartbeat::Off;
        Err(Error::Lost(format!("no answer on {channel} within {:?}", self.options.network_delay_max)))
    }

    /// Waits for one text from the server, for the heartbeat's time or for the deadline. Returns replies; deliveries go into
    /// the inbox. After an error the session is not open any more.
    async fn step(&mut self, deadline: Option<Instant>) -> Result<Vec<Incoming>, Error> {
        if matches!(self.heartbeat, Heartbeat::Due(at) if at <= Instant::now()) {
            self.send_connect();
        }
        let wake = match self.heartbeat {
            Heartbeat::Off => None,
            Heartbeat::Due(at) | Heartbeat::Out { deadline: at, .. } => Some(at),
        };
        let wake = [wake, deadline].into_iter().flatten().min();
        let Some(carrier) = &mut self.carrier else {
            return Err(Error::Lost("it was lost before".into()));
        };
        let outcome = tokio::select! {
            text = carrier.receive() => match text {
                Ok(text) => self.take_in(&text),
                Err(error) => Err(error),
            },
            () = async { match wake { Some(at) => sleep_until(at).await, None => std::future::pending().await } } => {
                self.check_heartbeat()
            }
        };
        if outcome.is_err() {
            self.heartbeat = Heartbeat::Off;
        }
        outcome
    }

    /// A server that does not answer a connect in time is gone, whatever the socket says.
    fn check_heartbeat(&self) -> Result<Vec<Incoming>, Error> {
        match self.heartbeat {
            Heartbeat::Out { deadline, .. } if deadline <= Instant::now() => {
                Err(Error::Lost("the server does not answer".into()))
            }
            _ => Ok(Vec::new()),
        }
    }

    fn take_in(&mut self, text: &str) -> Result<Vec<Incoming>, Error> {
        let messages = Incoming::parse(text).map_err(|_| self.not_bayeux("it sent something that is not Bayeux"))?;
        let mut replies = Vec::new();
        for message in messages {
            if message.channel.starts_with("/meta/")
                && let Some(advice) = message.advice
            {
                self.advice.update(advice);
            }
            let is_heartbeat = matches!(&self.heartbeat, Heartbeat::Out { id, .. } if message.answers(id));
            if is_heartbeat {
                self.connect_replied(&message)?;
            } else if message.channel == "/meta/disconnect" && message.successful.is_none() {
                // A server that ends a session says so with a disconnect that answers nothing.
                return Err(Error::Refused { channel: message.channel, error: "the server ended the session".into() });
            } else if message.is_reply() {
                replies.push(message);
            } else if self.inbox.len() >= self.options.inbox_messages_max {
                return Err(Error::Overflow(self.inbox.len()));
            } else {
                self.inbox.push_back(message.into_message());
            }
        }
        Ok(replies)
    }

    fn connect_replied(&mut self, reply: &Incoming) -> Result<(), Error> {
        let mut pause = self.interval();
        if let Some(error) = reply.failure() {
            match reply.advice.and_then(|advice| advice.reconnect) {
                Some(Reconnect::Handshake) => {
                    self.client_id = None;
                    return Err(Error::Lost(error));
                }
                Some(Reconnect::Retry) => pause += self.options.backoff_step,
                Some(Reconnect::None) | None => {
                    return Err(Error::Refused { channel: reply.channel.clone(), error });
                }
            }
        }
        self.heartbeat = Heartbeat::Due(Instant::now() + pause);
        Ok(())
    }

    fn send_connect(&mut self) {
        let connection_type = self.carrier.as_ref().map(Carrier::connection_type);
        let id = self.send(Outgoing { channel: "/meta/connect", connection_type, ..Outgoing::default() });
        let held = Duration::from_millis(self.advice.timeout.unwrap_or(CONNECT_HELD_MS));
        self.heartbeat = Heartbeat::Out { id, deadline: Instant::now() + held + self.options.network_delay_max };
    }

    /// Sends a message with this session's client id and a new id, which is returned. In an array, as senders should
    /// (Bayeux 1.0 §3.1).
    fn send(&mut self, message: Outgoing<'_>) -> String {
        self.last_id += 1;
        let id = self.last_id.to_string();
        let message = Outgoing { id: id.clone(), client_id: self.client_id.as_deref(), ..message };
        // Texts and raw JSON: there is nothing in it that cannot be written.
        let text = serde_json::to_string(&[message]).unwrap_or_default();
        if let Some(carrier) = &mut self.carrier {
            carrier.send(&text);
        }
        id
    }

    /// The pause before the next connect that the server advises.
    fn interval(&self) -> Duration {
        Duration::from_millis(self.advice.interval.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0))
    }

    /// The pause after so many failures, with up to a step of chance so that clients do not come back in one wave.
    fn backoff(&self, failures: u32) -> Duration {
        let chance = self.options.backoff_step.mul_f64(f64::from(crate::random::<1>()[0]) / 256.0);
        (self.options.backoff_step * failures).min(self.options.backoff_max) + chance
    }

    fn not_bayeux(&self, reason: &str) -> Error {
        let address = format!("{}{}", self.endpoint.authority, self.endpoint.path);
        Error::NotBayeux { address, reason: reason.into() }
    }
}

/// How long a server holds a connect that never said, in milliseconds: longer than any default known.
const CONNECT_HELD_MS: u64 = 120_000;
