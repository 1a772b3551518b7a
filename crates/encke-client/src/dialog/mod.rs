//! A Bayeux session without I/O: texts and times go in, texts and events come out.
//!
//! [`Client`](crate::Client) is one of these with sockets around it. Use it on its own where the sockets are yours: a load
//! generator that keeps thousands of sessions on one epoll, say.
//!
//! ```
//! use std::time::Instant;
//! use encke_client::dialog::{Dialog, DialogOptions, Event};
//!
//! let mut dialog = Dialog::new(DialogOptions::default());
//! // A socket is open: what is to be sent over it?
//! dialog.carrier_opened(Instant::now());
//! let handshake = dialog.transmit().expect("a handshake");
//! assert!(handshake.text.starts_with(r#"[{"channel":"/meta/handshake""#));
//! // What the server answered:
//! let reply = r#"[{"channel":"/meta/handshake","id":"1","successful":true,"clientId":"a1","version":"1.0"}]"#;
//! dialog.received(reply, Instant::now())?;
//! assert!(matches!(dialog.event(), Some(Event::Opened { resumed: false })));
//! # Ok::<(), encke_client::Error>(())
//! ```
//!
//! After each call take what there is to [`Dialog::transmit`] and what there is to hear ([`Dialog::event`]), and call
//! [`Dialog::wake`] at the time that [`Dialog::wake_at`] says. It never reads the clock. It waits for replies to handshakes and
//! connects; how long to wait for the reply to anything else is the caller's affair, who may then say `carrier_lost`.

mod life;
mod naming;
mod pace;
mod recovery;
mod replay;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::extension::{Extension, Extensions};
use crate::message::{AdviceRequest, Envelope};
use crate::{Error, Message};

use naming::Naming;
use pace::Pace;
use recovery::Recovery;
pub use replay::{Gap, Place, Start};

/// A Bayeux session without I/O.
#[derive(Debug)]
pub struct Dialog {
    options: DialogOptions,
    state: State,
    /// The session, as long as the server may know it.
    client_id: Option<Box<str>>,
    /// What the server is known to have subscribed this session to.
    subscriptions: Vec<String>,
    /// Subscribing and unsubscribing that was not answered yet; said again after a break.
    asked: Vec<Asked>,
    /// Subscribes that put all subscriptions in their places again and are not granted yet.
    naming: Vec<Naming>,
    pace: Pace,
    extensions: Extensions,
    /// What makes up for breaks, if something does.
    recovery: Option<Box<Recovery>>,
    last_id: u64,
    batch: Batch,
    out: VecDeque<Transmission>,
    events: VecDeque<Event>,
}

/// How a dialog behaves.
#[derive(Clone, Debug)]
pub struct DialogOptions {
    /// What carries it.
    pub connection_type: ConnectionType,
    /// How long the server may take to answer, beyond the time it holds a connect.
    pub network_delay_max: Duration,
    /// Each failed attempt lengthens the pause before the next by this; and each pause has up to this much of chance.
    pub backoff_step: Duration,
    /// The longest that failures make a pause.
    pub backoff_max: Duration,
    /// Whether the session acknowledges what it gets (CometD's extension `ack`): as long as the server knows it, breaks lose
    /// nothing and double nothing. Messages then come with connect replies only.
    pub acknowledge: bool,
    /// Whether the session remembers its places in the histories of its channels and goes on there after a break (extension
    /// `replay`), also in a new session; and where its subscriptions begin.
    pub replay: Option<Start>,
    /// How many messages a session that acknowledges may get before the reply that confirms them: a server's outbox, over
    /// long-polling. More end the session.
    pub batch_messages_max: usize,
    /// Decides about chance. `None` asks the kernel.
    pub random: Option<[u8; 8]>,
}

/// What carries messages (Bayeux 1.0 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionType {
    /// One WebSocket.
    WebSocket,
    /// HTTP requests, one of which the server holds until it has something to say.
    LongPolling,
}

/// Which way a text goes. Over a WebSocket both are the one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The request that the server holds.
    Connect,
    /// Another one: texts of this lane go one after the other.
    Other,
}

/// A text to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmission {
    /// Over long-polling, which request carries it.
    pub lane: Lane,
    /// One JSON array of messages.
    pub text: String,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The session can be used: all its subscriptions are there.
    Opened {
        /// Whether it is the session from before the break. A new one has missed what was published in between.
        resumed: bool,
    },
    /// The reply to a subscribe, unsubscribe, publish or disconnect, or to a message that the caller wrote himself.
    ///
    /// Each subscribe and unsubscribe gets one, also across a break. A publication that was on its way when
    /// [`Event::Lost`] came gets none: whether it arrived is not known.
    Replied {
        /// Of the message it answers.
        id: u64,
        /// Of the message it answers.
        channel: String,
        /// The Bayeux error (Bayeux 1.0 §3.14) if the server refused.
        outcome: Result<(), String>,
    },
    /// A message for the session.
    Message(Message),
    /// Messages for the session are gone: told where [`DialogOptions::acknowledge`] or [`DialogOptions::replay`] is set.
    Gap(Gap),
    /// The way to the server is of no use any more: close it, open another after the pause, then call
    /// [`Dialog::carrier_opened`].
    Lost {
        /// What happened.
        reason: String,
        /// The pause.
        reopen_in: Duration,
    },
    /// The session is over permanently: the server refused, ended it, or told us to stay away.
    Ended(Error),
}

/// Where the session stands.
///
/// ```text
///            carrier opened                 replied              replied, with what was asked
/// Away ──┬── no session ──▶ Handshaking ──┬── subscriptions ──▶ Restoring ──┬─▶ Open
///  ▲     │        ▲                       └── none ─────────────────────────┤
///  │     │        └─ later ── Unshaken ◀── session unknown, refused for now │
///  │     └── session ─▶ Resuming ──── known ────────────────────────────────┘
///  └── carrier lost or failed, no answer
///
/// Any ── disconnect ──▶ Leaving ── reply ──▶ Over ◀── refused permanently, ended by the server ── any
/// ```
#[derive(Clone, Debug)]
enum State {
    /// There is no way to the server.
    Away,
    /// The next handshake is to be sent then.
    Unshaken(Instant),
    /// A handshake was sent.
    Handshaking(Sent),
    /// The session's subscriptions were sent; `resumed` says that it is an old one.
    Restoring { deadline: Instant, resumed: bool },
    /// The session is old; a connect asks whether the server still knows it.
    Resuming(Sent),
    /// The session is open; the next connect is to be sent then.
    Due(Instant),
    /// The session is open; a connect is held by the server.
    Held(Sent),
    /// A disconnect was sent.
    Leaving {
        /// Its id.
        id: u64,
    },
    /// Nothing happens any more.
    Over,
}

/// A message that the dialog waits for the reply of.
#[derive(Clone, Copy, Debug)]
struct Sent {
    id: u64,
    /// When the server counts as gone.
    deadline: Instant,
}

/// A change of subscriptions that was not answered yet.
#[derive(Debug)]
struct Asked {
    id: u64,
    change: Change,
    channels: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Subscribe,
    Unsubscribe,
}

/// Whether messages are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batch {
    Off,
    /// A batch was begun, and nothing sent.
    Begun,
    /// The last transmission is the batch.
    Written,
}

impl Default for DialogOptions {
    /// CometD's defaults where its clients have the option, over a WebSocket.
    fn default() -> DialogOptions {
        DialogOptions {
            connection_type: ConnectionType::WebSocket,
            network_delay_max: Duration::from_secs(10),
            backoff_step: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            acknowledge: false,
            replay: None,
            batch_messages_max: 100_000,
            random: None,
        }
    }
}

impl Dialog {
    /// A session that waits for a way to the server.
    pub fn new(mut options: DialogOptions) -> Dialog {
        Dialog {
            state: State::Away,
            client_id: None,
            subscriptions: Vec::new(),
            asked: Vec::new(),
            naming: Vec::new(),
            pace: Pace::new(options.random.unwrap_or_else(crate::random)),
            extensions: Extensions::default(),
            recovery: Recovery::new(&mut options),
            last_id: 0,
            batch: Batch::Off,
            out: VecDeque::new(),
            events: VecDeque::new(),
            options,
        }
    }

    /// Adds an extension behind those that are there. Before the first handshake, so that it sees all.
    pub fn extend(&mut self, extension: Box<dyn Extension>) {
        self.extensions.add(extension);
    }

    /// The next text to be sent; call until there is none.
    pub fn transmit(&mut self) -> Option<Transmission> {
        pop(&mut self.out)
    }

    /// The next thing that happened; call until there is none.
    pub fn event(&mut self) -> Option<Event> {
        pop(&mut self.events)
    }

    /// Subscribes to channels or patterns with one message and returns its id. When the session is not open it is done once
    /// it is. What the server granted is kept and asked for again in a new session.
    pub fn subscribe(&mut self, channels: &[String]) -> u64 {
        self.ask(Change::Subscribe, channels)
    }

    /// Ends subscriptions with one message and returns its id.
    pub fn unsubscribe(&mut self, channels: &[String]) -> u64 {
        self.ask(Change::Unsubscribe, channels)
    }

    /// Publishes and returns the message's id. When the session is not open, the reply says so at once.
    pub fn publish(&mut self, channel: &str, data: &RawValue) -> u64 {
        let id = self.next_id();
        if self.is_open() {
            self.send(Lane::Other, id, Envelope { channel, data: Some(data), ..Envelope::default() });
        } else {
            self.replied(id, channel, Err("the session is not open".into()));
        }
        id
    }

    /// Puts all that is sent inside into one carrier text: one frame, one request.
    pub fn batch(&mut self, messages: impl FnOnce(&mut Dialog)) {
        let outer = self.batch;
        if outer == Batch::Off {
            self.batch = Batch::Begun;
        }
        messages(self);
        if outer == Batch::Off {
            self.batch = Batch::Off;
        }
    }

    /// Ends the session and returns the message's id. After its reply nothing happens any more. When the session is not open
    /// it is over at once.
    pub fn disconnect(&mut self) -> u64 {
        let id = self.next_id();
        if self.is_open() {
            self.send(Lane::Other, id, Envelope { channel: DISCONNECT, ..Envelope::default() });
            self.state = State::Leaving { id };
        } else {
            self.state = State::Over;
            self.replied(id, DISCONNECT, Ok(()));
        }
        id
    }

    /// The session's id, which is a secret (Bayeux 1.0 §2.1.7).
    pub fn client_id(&self) -> Option<&str> {
        self.client_id.as_deref()
    }

    /// Whether the session can be used.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Due(_) | State::Held(_))
    }

    /// Whether nothing will happen any more.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// A fresh id, for callers that write messages themselves.
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// From the next [`Dialog::carrier_opened`] on, something else carries it.
    pub fn carrier_switched(&mut self, to: ConnectionType) {
        self.options.connection_type = to;
    }

    fn ask(&mut self, change: Change, channels: &[String]) -> u64 {
        let id = self.next_id();
        if matches!(self.state, State::Over | State::Leaving { .. }) {
            self.replied(id, change.channel(), Err("the session is over".into()));
            return id;
        }
        self.asked.push(Asked { id, change, channels: channels.into() });
        if self.is_open() {
            self.send_change(Lane::Other, id, change, channels, false);
        }
        id
    }

    /// Sends a change of subscriptions; `again` says that the session had them before.
    fn send_change(&mut self, lane: Lane, id: u64, change: Change, channels: &[String], again: bool) {
        let envelope = Envelope { channel: change.channel(), subscription: Some(channels), ..Envelope::default() };
        self.send_all(lane, id, envelope, again);
    }

    /// Sends a connect: `at_once` asks for a reply without being held.
    fn send_connect(&mut self, at_once: bool) -> u64 {
        let id = self.next_id();
        let envelope = Envelope {
            channel: CONNECT,
            connection_type: Some(self.options.connection_type.name()),
            advice: at_once.then_some(AdviceRequest { timeout: 0 }),
            ..Envelope::default()
        };
        self.send(Lane::Connect, id, envelope);
        id
    }

    /// Writes a message of this session, in an array, as senders should (Bayeux 1.0 §3.1).
    fn send(&mut self, lane: Lane, id: u64, envelope: Envelope<'_>) {
        self.send_all(lane, id, envelope, false);
    }

    /// The same for any message; see [`Dialog::send_change`] for `again`.
    fn send_all(&mut self, lane: Lane, id: u64, envelope: Envelope<'_>, again: bool) {
        let mut envelope = Envelope { id: id.to_string(), client_id: self.client_id.as_deref(), ..envelope };
        self.extensions.outgoing(&mut envelope);
        if let Some(recovery) = &mut self.recovery {
            recovery.outgoing(&mut envelope, again);
        }
        // Texts and raw JSON: there is nothing in it that cannot be written.
        let mut text = serde_json::to_string(&[envelope]).unwrap_or_default();
        match (self.batch, self.out.back_mut()) {
            (Batch::Written, Some(last)) if last.lane == lane => {
                last.text.pop();
                text.replace_range(..1, ",");
                last.text.push_str(&text);
            }
            _ => {
                if self.batch == Batch::Begun {
                    self.batch = Batch::Written;
                }
                self.out.push_back(Transmission { lane, text });
            }
        }
    }

    fn replied(&mut self, id: u64, channel: &str, outcome: Result<(), String>) {
        self.events.push_back(Event::Replied { id, channel: channel.into(), outcome });
    }
}

impl ConnectionType {
    /// Its name in Bayeux.
    pub fn name(self) -> &'static str {
        match self {
            ConnectionType::WebSocket => "websocket",
            ConnectionType::LongPolling => "long-polling",
        }
    }
}

impl Change {
    fn channel(self) -> &'static str {
        match self {
            Change::Subscribe => SUBSCRIBE,
            Change::Unsubscribe => "/meta/unsubscribe",
        }
    }
}

/// Takes the first; an emptied queue gives its memory back, for most sessions are idle most of the time.
fn pop<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let first = queue.pop_front();
    if queue.is_empty() {
        *queue = VecDeque::new();
    }
    first
}

const HANDSHAKE: &str = "/meta/handshake";
const CONNECT: &str = "/meta/connect";
const DISCONNECT: &str = "/meta/disconnect";
const SUBSCRIBE: &str = "/meta/subscribe";
