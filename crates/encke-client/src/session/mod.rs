//! A Bayeux session without I/O: texts and times go in, texts and events come out.
//!
//! [`Client`](crate::Client) is one of these with sockets around it. Use it directly where the sockets are yours: in a load
//! generator that keeps thousands of sessions on one epoll, for example.
//!
//! ```
//! use std::time::Instant;
//! use encke_client::session::{ClientSession, Event, SessionOptions};
//!
//! let mut session = ClientSession::new(SessionOptions::default());
//! // A socket is open: send the session's first text.
//! session.connection_opened(Instant::now());
//! let handshake = session.transmit().expect("a handshake");
//! assert!(handshake.text.starts_with(r#"[{"channel":"/meta/handshake""#));
//! // The server answers:
//! let reply = r#"[{"channel":"/meta/handshake","id":"1","successful":true,"clientId":"a1","version":"1.0"}]"#;
//! session.received(reply, Instant::now())?;
//! assert!(matches!(session.event(), Some(Event::Opened { resumed: false })));
//! # Ok::<(), encke_client::NotBayeux>(())
//! ```
//!
//! After each call take all texts ([`ClientSession::transmit`]) and all events ([`ClientSession::event`]), and call
//! [`ClientSession::wake`] at the time that [`ClientSession::wake_at`] returns. It never reads the clock. It waits for the replies to
//! handshakes and connects; time-outs of other replies are up to the caller, who may then call
//! [`ClientSession::connection_lost`].

mod life;
mod options;
mod recovery;
mod replay;
mod resubscribe;
#[cfg(test)]
mod tests;
mod timing;
mod token;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bayeux::channel::{META_DISCONNECT, META_HANDSHAKE, META_SUBSCRIBE, META_UNSUBSCRIBE};
use bayeux::ext::{ExtWriter, NO_REPLY};
use bayeux::{Id, Message as ClientMessage, RawJson};

use crate::extension::{Extension, Extensions};
use crate::{Error, Gap, LostReason, Message, Position};

pub use options::{ConnectionType, SessionOptions};
use recovery::Recovery;
use resubscribe::Resubscribe;
use timing::ReconnectTiming;

/// A Bayeux session without I/O.
#[derive(Debug)]
pub struct ClientSession {
    options: SessionOptions,
    state: State,
    /// The session's id, as long as the server may know it.
    client_id: Option<Box<str>>,
    /// The channels that the server has subscribed this session to.
    subscriptions: Vec<String>,
    /// The intervals of those that asked for one, in milliseconds.
    intervals: Option<Box<Intervals>>,
    /// Subscribes and unsubscribes without a reply; they are sent again after a break.
    pending_changes: Vec<PendingChange>,
    /// Subscribes that repeat all subscriptions after a break and are not granted yet.
    resubscribes: Vec<Resubscribe>,
    /// The token of the next handshake.
    token: Option<Box<str>>,
    timing: ReconnectTiming,
    extensions: Extensions,
    /// The extensions `ack` and `replay`, where they are on.
    recovery: Option<Box<Recovery>>,
    last_id: u64,
    /// The longest message that the server takes, in bytes, if it has said so.
    message_bytes_max: u64,
    batch: BatchState,
    out: VecDeque<Transmission>,
    events: VecDeque<Event>,
}

/// Intervals by channel or pattern. Most sessions have none.
#[derive(Debug, Default)]
struct Intervals(HashMap<String, u32>);

/// The request that carries a text over long-polling. A WebSocket carries all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestClass {
    /// The request that the server holds.
    Connect,
    /// Like [`RequestClass::Other`], but a handshake goes alone (Bayeux 1.0, "handshake request").
    Handshake,
    /// Any other one: these go one after the other, and texts that wait may go together.
    Other,
}

/// A text to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmission {
    /// Over long-polling, the request that carries it.
    pub class: RequestClass,
    /// One JSON array of messages.
    pub text: String,
}

/// An event of a session.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The session can be used: the server has all its subscriptions.
    Opened {
        /// True for the session from before the break. A new one has missed the messages in between, unless it replays.
        resumed: bool,
    },
    /// The reply to a subscribe, unsubscribe, publish or disconnect, or to a message that the caller wrote itself.
    ///
    /// Each subscribe and unsubscribe gets one, also across a break. A publication that was on its way when
    /// [`Event::Lost`] came gets none: it is not known whether it arrived.
    Replied {
        /// The id of the message that it answers.
        id: u64,
        /// The channel of the message that it answers.
        channel: String,
        /// The refusal, if the server refused; [`Error::Closed`] if the session is not open, [`Error::ConnectionLost`] for a
        /// disconnect that a break overtook.
        outcome: Result<(), Error>,
        /// The position of a publication in the history of its channel, where the server reports it: to a session that replays.
        position: Option<Position>,
    },
    /// The session waits for a token ([`SessionOptions::takes_tokens`]): the caller answers with [`ClientSession::set_token`] or
    /// [`ClientSession::token_failed`].
    TokenWanted,
    /// A message for the session.
    Message(Message),
    /// Messages for the session are missing: reported where [`SessionOptions::ack`] or [`SessionOptions::replay`] is set.
    Gap(Gap),
    /// The connection is of no use any more: close it, open another one after the pause, then call
    /// [`ClientSession::connection_opened`].
    Lost {
        /// The reason.
        reason: LostReason,
        /// The pause.
        reopen_in: Duration,
    },
    /// The session has ended: the server refused it, ended it, or advised the client to stay away.
    Ended(Error),
}

/// The state of a session.
///
/// ```text
///                 connection opened                   reply               reply, subscriptions sent
/// Disconnected ──┬── no session ──▶ Handshaking ──┬── subscriptions ──▶ Resubscribing ──┬─▶ open: ConnectDue ⇄ Connected
///  ▲             │        ▲                       └── none ────────────────────────────┤
///  │             │        ├ later ─ HandshakeDue ◀── session unknown, refused for now   │
///  │             │        └ token ─ TokenDue (where handshakes have tokens)             │
///  │             └── session ─▶ Resuming ──── known ────────────────────────────────────┘
///  └── connection lost or failed, no reply
///
/// any ── disconnect ──▶ Disconnecting ── reply ──▶ Ended ◀── refused, ended by the server ── any
/// ```
#[derive(Clone, Debug)]
enum State {
    /// There is no connection to the server.
    Disconnected,
    /// The next handshake is to be sent at this time.
    HandshakeDue(Instant),
    /// The next handshake waits for a token.
    TokenDue,
    /// A handshake was sent.
    Handshaking(Sent),
    /// The session's subscriptions were sent; `resumed` is true for an old session. A new one is not resumed if its connection
    /// breaks now.
    Resubscribing { deadline: Instant, resumed: bool },
    /// The session is old; a connect checks if the server still knows it.
    Resuming(Sent),
    /// The session is open; the next connect is to be sent at this time.
    ConnectDue(Instant),
    /// The session is open; the server holds a connect.
    Connected(Sent),
    /// A disconnect was sent.
    Disconnecting {
        /// Its id.
        id: u64,
    },
    /// Nothing happens any more.
    Ended,
}

/// A message whose reply the session waits for.
#[derive(Clone, Copy, Debug)]
struct Sent {
    id: u64,
    /// The time at which the server counts as gone.
    deadline: Instant,
}

/// A change of subscriptions without a reply.
#[derive(Debug)]
struct PendingChange {
    id: u64,
    change: Change,
    channels: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Subscribe,
    Unsubscribe,
}

/// The state of a batch: messages that go into one text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchState {
    Off,
    /// A batch has begun; it has no message yet.
    Begun,
    /// The last transmission is the batch.
    Written,
}

impl ClientSession {
    /// A session that waits for a connection.
    pub fn new(mut options: SessionOptions) -> ClientSession {
        ClientSession {
            state: State::Disconnected,
            client_id: None,
            subscriptions: Vec::new(),
            intervals: None,
            pending_changes: Vec::new(),
            resubscribes: Vec::new(),
            token: None,
            timing: ReconnectTiming::new(options.jitter_seed.unwrap_or_else(crate::random)),
            extensions: Extensions::default(),
            recovery: Recovery::new(&mut options),
            last_id: 0,
            message_bytes_max: u64::MAX,
            batch: BatchState::Off,
            out: VecDeque::new(),
            events: VecDeque::new(),
            options,
        }
    }

    /// Adds an extension behind the others. Before the first handshake, so that it sees all messages.
    pub fn add_extension(&mut self, extension: Box<dyn Extension>) {
        self.extensions.add(extension);
    }

    /// The next text to be sent; call until there is none.
    pub fn transmit(&mut self) -> Option<Transmission> {
        pop(&mut self.out)
    }

    /// The next event; call until there is none.
    pub fn event(&mut self) -> Option<Event> {
        pop(&mut self.events)
    }

    /// Subscribes to channels or patterns with one message and returns its id. A session that is not open does so once it is.
    /// Granted subscriptions are repeated in a new session.
    pub fn subscribe(&mut self, channels: &[String]) -> u64 {
        self.change_subscriptions(Change::Subscribe, channels)
    }

    /// As [`ClientSession::subscribe`], to one channel or pattern, with at most one message of each channel in so many milliseconds: the
    /// latest. Its messages have no positions.
    pub fn subscribe_with_interval(&mut self, channel: &str, min_interval_ms: u32) -> u64 {
        self.change_with_interval(Change::Subscribe, &[channel.into()], Some(min_interval_ms))
    }

    /// Ends subscriptions with one message and returns its id.
    pub fn unsubscribe(&mut self, channels: &[String]) -> u64 {
        self.change_subscriptions(Change::Unsubscribe, channels)
    }

    /// Publishes and returns the message's id. If the session is not open, the reply is an error at once.
    pub fn publish(&mut self, channel: &str, data: RawJson<'_>) -> u64 {
        self.publish_with(channel, data, None)
    }

    /// As [`ClientSession::publish`], and declines the reply ([`declines_reply`](bayeux::ext::declines_reply)): a server that
    /// knows this replies only if it refuses the message.
    pub fn publish_without_reply(&mut self, channel: &str, data: RawJson<'_>) -> u64 {
        self.publish_with(channel, data, Some(RawJson::trusted(NO_REPLY)))
    }

    fn publish_with(&mut self, channel: &str, data: RawJson<'_>, ext: Option<RawJson<'_>>) -> u64 {
        let id = self.next_id();
        if let Some(error) = self.refusal_of(channel, data) {
            self.replied(id, channel, Err(error));
        } else {
            let message = ClientMessage { data: Some(data), ext, ..ClientMessage::new(channel) };
            self.send(RequestClass::Other, id, message);
        }
        id
    }

    /// Puts all messages that are sent inside into one text: one frame, one request.
    pub fn batch(&mut self, messages: impl FnOnce(&mut ClientSession)) {
        let outer = self.batch;
        if outer == BatchState::Off {
            self.batch = BatchState::Begun;
        }
        messages(self);
        if outer == BatchState::Off {
            self.batch = BatchState::Off;
        }
    }

    /// Ends the session and returns the message's id. After its reply nothing happens any more. A session that is not open
    /// ends at once.
    pub fn disconnect(&mut self) -> u64 {
        let id = self.next_id();
        if self.is_open() {
            self.send(RequestClass::Other, id, ClientMessage::new(META_DISCONNECT));
            self.state = State::Disconnecting { id };
        } else {
            self.state = State::Ended;
            self.replied(id, META_DISCONNECT, Ok(()));
        }
        id
    }

    /// The session's id, which is a secret (Bayeux 1.0, "clientId").
    pub fn client_id(&self) -> Option<&str> {
        self.client_id.as_deref()
    }

    /// True while the session can be used.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::ConnectDue(_) | State::Connected(_))
    }

    /// True if nothing will happen any more.
    pub fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// A fresh id, for callers that write messages themselves.
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Changes the transport, from the next [`ClientSession::connection_opened`] on.
    pub fn switch_connection_type(&mut self, to: ConnectionType) {
        self.options.connection_type = to;
    }

    fn change_subscriptions(&mut self, change: Change, channels: &[String]) -> u64 {
        self.change_with_interval(change, channels, None)
    }

    /// The interval that a subscription asked for, in milliseconds.
    fn interval_of(&self, name: &str) -> Option<u32> {
        self.intervals.as_ref()?.0.get(name).copied()
    }

    fn change_with_interval(&mut self, change: Change, channels: &[String], interval_ms: Option<u32>) -> u64 {
        for channel in channels {
            match interval_ms {
                Some(ms) => _ = self.intervals.get_or_insert_default().0.insert(channel.clone(), ms),
                None => _ = self.intervals.as_mut().and_then(|intervals| intervals.0.remove(channel)),
            }
        }
        let id = self.next_id();
        if matches!(self.state, State::Ended | State::Disconnecting { .. }) {
            self.replied(id, change.channel(), Err(Error::Closed));
            return id;
        }
        self.pending_changes.push(PendingChange { id, change, channels: channels.into() });
        if self.is_open() {
            self.send_change(RequestClass::Other, id, change, channels, false);
        }
        id
    }

    /// Sends a change of subscriptions; `again` is true if the session had them before.
    fn send_change(&mut self, class: RequestClass, id: u64, change: Change, channels: &[String], again: bool) {
        self.send_message(class, id, ClientMessage::new(change.channel()), channels, again);
    }

    /// Writes a message of this session.
    fn send(&mut self, class: RequestClass, id: u64, message: ClientMessage<'_>) {
        self.send_message(class, id, message, &[], false);
    }

    /// The same for any message; see [`ClientSession::send_change`] for `channels` and `again`. It stands in an array, as senders
    /// should write it (Bayeux 1.0, "Message").
    fn send_message(
        &mut self,
        class: RequestClass,
        id: u64,
        message: ClientMessage<'_>,
        channels: &[String],
        again: bool,
    ) {
        let channel = message.channel.clone().unwrap_or_default();
        // Texts and trees: there is nothing in them that cannot be written.
        let mut extended = self.extensions.outgoing(&channel, channels, message.data);
        self.add_token(&channel, &mut extended);
        let mut ext = ExtWriter::with(serde_json::to_string(&extended).unwrap_or_default());
        // Only a publication that declines its reply has an `ext` before its extensions.
        if message.ext.is_some() {
            ext.decline_reply();
        }
        if channel == META_HANDSHAKE {
            ext.ask_limits();
        }
        // The names of a subscribe have the same interval. Those with one have no positions.
        let interval_ms =
            channels.first().filter(|_| channel == META_SUBSCRIBE).and_then(|name| self.interval_of(name));
        if let Some(ms) = interval_ms {
            ext.min_interval(ms);
        } else if let Some(recovery) = &mut self.recovery {
            recovery.outgoing(&channel, channels, again, &mut ext);
        }
        let ext = ext.finish();
        let subscription = (!channels.is_empty()).then(|| serde_json::to_string(channels).unwrap_or_default());
        let message = ClientMessage {
            channel: message.channel,
            id: Some(Id::new(id.to_string())),
            client_id: self.client_id.as_deref().map(Into::into),
            version: message.version,
            supported_connection_types: message.supported_connection_types,
            connection_type: message.connection_type,
            subscription: subscription.as_deref().map(RawJson::trusted),
            data: message.data,
            advice: message.advice,
            ext: ext.as_deref().map(RawJson::trusted),
            ..ClientMessage::default()
        };
        let mut text = match (self.batch, self.out.back_mut()) {
            (BatchState::Written, Some(last)) if last.class == class => {
                let mut text = std::mem::take(&mut last.text).into_bytes();
                if let Some(end) = text.last_mut() {
                    *end = b',';
                }
                text
            }
            _ => {
                if self.batch == BatchState::Begun {
                    self.batch = BatchState::Written;
                }
                self.out.push_back(Transmission { class, text: String::new() });
                vec![b'[']
            }
        };
        message.write(&mut text);
        text.push(b']');
        if let Some(last) = self.out.back_mut() {
            last.text = String::from_utf8(text).unwrap_or_default();
        }
    }

    fn replied(&mut self, id: u64, channel: &str, outcome: Result<(), Error>) {
        self.events.push_back(Event::Replied { id, channel: channel.into(), outcome, position: None });
    }
}

impl Change {
    fn channel(self) -> &'static str {
        match self {
            Change::Subscribe => META_SUBSCRIBE,
            Change::Unsubscribe => META_UNSUBSCRIBE,
        }
    }
}

/// Takes the first item. An empty queue frees its memory, because most sessions are idle most of the time.
fn pop<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let first = queue.pop_front();
    if queue.is_empty() {
        *queue = VecDeque::new();
    }
    first
}
