//! What makes a client go: its dialog, its carrier and the clock, brought together one step at a time.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};

use crate::carrier::Carrier;
use crate::dialog::{ConnectionType, Event};
use crate::{Client, Error, Heard, Message, Transport};

/// The way to the server.
///
/// ```text
/// Closed ── after the pause ──▶ Opening ──▶ Open
///   ▲                              │         │
///   └────── failed, broken ────────┴─────────┘
/// ```
pub(crate) enum Way {
    /// It is opened again then.
    Closed { until: Instant },
    /// The work lives here and not in the future that waits for it, which may be dropped.
    Opening(Pin<Box<dyn Future<Output = Result<Carrier, Error>> + Send>>),
    /// There it is.
    Open(Carrier),
    /// It stays closed.
    Over,
}

/// Replies that are waited for.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    ids: VecDeque<u64>,
    /// Whether they come also after a break.
    across_breaks: bool,
    failure: Option<Error>,
}

/// A service's answer that is waited for.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) outcome: Option<Result<Box<RawValue>, Error>>,
}

/// What the way to the server came up with.
enum Moved {
    PauseOver,
    Opened(Result<Carrier, Error>),
    Received(Result<String, Error>),
}

impl Client {
    /// Goes on until the session can be used.
    pub(crate) async fn ensure_open(&mut self) -> Result<(), Error> {
        while !self.dialog.is_open() {
            self.turn(None).await?;
        }
        Ok(())
    }

    /// Waits for replies.
    pub(crate) async fn answered(&mut self, replies: Waiting) -> Result<(), Error> {
        self.asked = replies;
        self.fewer(|client| client.asked.left(), 1).await?;
        self.asked.outcome()
    }

    /// Goes on until there are fewer than so many of something. A server that lets nothing of it go for as long as it may take
    /// for an answer counts as gone.
    pub(crate) async fn fewer(&mut self, count: impl Fn(&Client) -> usize, than: usize) -> Result<(), Error> {
        let mut left = count(self);
        let mut since = Instant::now();
        while left >= than {
            let deadline = self.dialog.is_open().then(|| since + self.options.network_delay_max);
            self.turn(deadline).await?;
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                self.fail(Error::Lost(format!("no answer within {:?}", self.options.network_delay_max)))?;
            }
            let before = std::mem::replace(&mut left, count(self));
            if left < before || deadline.is_none() {
                since = Instant::now();
            }
        }
        Ok(())
    }

    /// Sends what can be sent without waiting.
    pub(crate) async fn nudge(&mut self) -> Result<(), Error> {
        poll_fn(|context| match pin!(self.turn(None)).poll(context) {
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => Poll::Ready(Ok(())),
        })
        .await
    }

    /// How many bytes wait to be sent.
    pub(crate) fn unsent_bytes(&self) -> usize {
        match &self.way {
            Way::Open(carrier) => carrier.unsent_bytes(),
            _ => 0,
        }
    }

    /// One step: waits for the server, for the dialog's time or for the deadline, and works on what came. May be dropped at
    /// any point: after the one `await` nothing waits any more.
    pub(crate) async fn turn(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        if matches!(self.way, Way::Over) {
            return Err(Error::Lost("the session is over".into()));
        }
        self.speak();
        let wake = [self.dialog.wake_at().map(Instant::from_std), deadline].into_iter().flatten().min();
        tokio::select! {
            moved = self.way.moved() => self.work(moved)?,
            () = until(wake) => self.dialog.wake(Instant::now().into_std()),
        }
        self.hear()?;
        self.speak();
        Ok(())
    }

    fn work(&mut self, moved: Moved) -> Result<(), Error> {
        match moved {
            Moved::PauseOver => {
                let opening = Carrier::open(
                    self.connection_type,
                    self.endpoint.clone(),
                    self.cookies.clone(),
                    self.options.message_bytes_max,
                    self.options.network_delay_max,
                );
                self.way = Way::Opening(Box::pin(opening));
            }
            Moved::Opened(Ok(carrier)) => {
                self.way = Way::Open(carrier);
                self.dialog.carrier_opened(Instant::now().into_std());
            }
            Moved::Received(Ok(text)) => {
                if let Err(error) = self.dialog.received(&text, Instant::now().into_std()) {
                    self.hear()?;
                    return self.fail(self.in_place(error));
                }
            }
            Moved::Opened(Err(error)) | Moved::Received(Err(error)) => return self.fail(error),
        }
        Ok(())
    }

    /// The way to the server is of no use: tries another one, comes back later, or gives up.
    fn fail(&mut self, error: Error) -> Result<(), Error> {
        let now = Instant::now();
        if !self.was_open {
            // A server or something in front of it may not like WebSockets. Nobody at all likes nothing else either.
            let blocked =
                self.connection_type == ConnectionType::WebSocket && !matches!(error, Error::Unreachable { .. });
            if self.options.transport != Transport::Auto || !blocked {
                self.way = Way::Over;
                return Err(self.in_place(error));
            }
            tracing::debug!(reason = %error, "no WebSocket, long-polling instead");
            self.connection_type = ConnectionType::LongPolling;
            self.dialog.carrier_lost("no WebSocket", now.into_std());
            while self.dialog.event().is_some() {}
            self.dialog.carrier_switched(ConnectionType::LongPolling);
            self.way = Way::Closed { until: now };
            return Ok(());
        }
        if !self.options.reconnect {
            self.way = Way::Over;
            return Err(error);
        }
        // Errors of a server that was there before may be those of a proxy, while the server restarts.
        let reason = error.to_string();
        if matches!(self.way, Way::Open(_)) {
            self.dialog.carrier_lost(&reason, now.into_std());
        } else {
            self.dialog.carrier_failed(&reason, now.into_std());
        }
        self.hear()
    }

    /// With the address, which the dialog does not know. Who never spoke Bayeux cannot be lost.
    fn in_place(&self, error: Error) -> Error {
        match error {
            Error::NotBayeux { reason, .. } => Error::NotBayeux { address: self.endpoint.place(), reason },
            Error::Lost(reason) if !self.was_open => Error::NotBayeux { address: self.endpoint.place(), reason },
            error => error,
        }
    }

    /// Hands what the dialog wants to say to the carrier.
    fn speak(&mut self) {
        if let Way::Open(carrier) = &mut self.way {
            while let Some(transmission) = self.dialog.transmit() {
                carrier.send(transmission);
            }
        }
    }

    /// Works on what the dialog has to tell.
    fn hear(&mut self) -> Result<(), Error> {
        while let Some(event) = self.dialog.event() {
            match event {
                Event::Opened { resumed } => {
                    tracing::debug!(resumed, "session open");
                    self.was_open = true;
                }
                Event::Replied { id, channel, outcome } => self.replied(id, channel, outcome),
                Event::Message(message) => self.deliver(message)?,
                Event::Gap(gap) => self.keep(Heard::Gap(gap))?,
                Event::Lost { reason, reopen_in } => self.lost(reason, reopen_in)?,
                Event::Ended(error) => {
                    self.way = Way::Over;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn replied(&mut self, id: u64, channel: String, outcome: Result<(), String>) {
        let outcome = outcome.map_err(|error| Error::Refused { channel, error });
        match (&mut self.call, outcome) {
            // The word that the server took the message; the service's answer comes by itself.
            (Some(call), Ok(())) if call.id == id => {}
            (Some(call), Err(error)) if call.id == id => call.outcome = Some(Err(error)),
            (_, outcome) => {
                if let Some(outcome) = self.asked.settle(id, outcome) {
                    self.soon.settle(id, outcome);
                }
            }
        }
    }

    fn deliver(&mut self, message: Message) -> Result<(), Error> {
        match &mut self.call {
            Some(call) if message.id == Some(call.id) => {
                call.outcome = Some(if message.failed {
                    Err(Error::Refused { channel: message.channel, error: message.data.get().into() })
                } else {
                    Ok(message.data)
                });
            }
            _ => self.keep(Heard::Message(message))?,
        }
        Ok(())
    }

    fn keep(&mut self, heard: Heard) -> Result<(), Error> {
        if self.inbox.len() >= self.options.inbox_messages_max {
            // There is no going on: a message would be missing, and nobody would know.
            self.way = Way::Over;
            return Err(Error::Overflow(self.inbox.len()));
        }
        self.inbox.push_back(heard);
        Ok(())
    }

    fn lost(&mut self, reason: String, reopen_in: Duration) -> Result<(), Error> {
        if let Way::Open(carrier) = &self.way {
            self.cookies = carrier.cookies().clone();
        }
        if !self.was_open || !self.options.reconnect {
            self.way = Way::Over;
            return Err(self.in_place(Error::Lost(reason)));
        }
        tracing::warn!(reason, ?reopen_in, "connection lost");
        self.way = Way::Closed { until: Instant::now() + reopen_in };
        self.asked.lost(&reason);
        self.soon.lost(&reason);
        if let Some(call) = &mut self.call {
            call.outcome = Some(Err(Error::Lost(reason)));
        }
        Ok(())
    }
}

impl Way {
    /// Waits for what it comes up with.
    async fn moved(&mut self) -> Moved {
        match self {
            Way::Closed { until } => {
                sleep_until(*until).await;
                Moved::PauseOver
            }
            Way::Opening(opening) => Moved::Opened(opening.await),
            Way::Open(carrier) => Moved::Received(carrier.receive().await),
            Way::Over => pending().await,
        }
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Closed { until } => write!(formatter, "Closed until {until:?}"),
            Way::Opening(_) => formatter.write_str("Opening"),
            Way::Open(carrier) => carrier.fmt(formatter),
            Way::Over => formatter.write_str("Over"),
        }
    }
}

impl Waiting {
    /// For the reply to a change of subscriptions.
    pub(crate) fn across_breaks(id: u64) -> Waiting {
        Waiting { ids: VecDeque::from([id]), across_breaks: true, failure: None }
    }

    pub(crate) fn add(&mut self, id: u64) {
        self.ids.push_back(id);
    }

    /// How many have not come.
    pub(crate) fn left(&self) -> usize {
        self.ids.len()
    }

    /// What those that came said: the first failure.
    pub(crate) fn outcome(&mut self) -> Result<(), Error> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Takes a reply, or gives it back if it is none of these.
    fn settle(&mut self, id: u64, outcome: Result<(), Error>) -> Option<Result<(), Error>> {
        // Servers answer in order: it is the first one.
        let Some(at) = self.ids.iter().position(|waiting| *waiting == id) else { return Some(outcome) };
        self.ids.remove(at);
        if self.ids.is_empty() {
            self.ids = VecDeque::new();
        }
        if let (Err(error), None) = (outcome, &self.failure) {
            self.failure = Some(error);
        }
        None
    }

    /// The connection broke.
    fn lost(&mut self, reason: &str) {
        if !self.ids.is_empty() && !self.across_breaks {
            self.ids = VecDeque::new();
            self.failure.get_or_insert_with(|| Error::Lost(reason.into()));
        }
    }
}

impl From<VecDeque<u64>> for Waiting {
    /// For the replies to messages that a break makes void.
    fn from(ids: VecDeque<u64>) -> Waiting {
        Waiting { ids, across_breaks: false, failure: None }
    }
}

async fn until(wake: Option<Instant>) {
    match wake {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
