//! A shard: the sessions, subscriptions and outboxes of one thread, without I/O.
//!
//! ```text
//!   socket_text ─┐                                  ┌─▶ flush ─▶ Wire (one gathered write per session and turn)
//!   request ─────┼─▶ batch ─▶ hub ─▶ outbox ─▶ dirty┤
//!   mail ────────┘                                  └─▶ effects (responses, closings, mail to other shards)
//!   advance (time)
//! ```
//!
//! Events come in as method calls with the time; what they cause is queued. Two things come out: [`Shard::flush`] writes
//! what waits to a [`Wire`], and [`Shard::take_effects`] hands over the rest. Nothing calls back, nothing blocks, no clock
//! is read, so a simulation can drive many shards with made-up time, sockets and faults.

mod account;
mod ack;
mod admission;
mod application;
mod arena;
mod arrivals;
mod backpressure;
mod batch;
mod burst;
mod connect;
mod deliver;
mod effect;
mod flush;
mod follow;
mod handshake;
pub mod history;
mod hub;
mod ids;
mod interest;
mod mail;
mod memory;
mod metrics;
mod newcomers;
mod outbox;
mod pings;
mod positions;
mod record;
mod relief;
mod replay;
mod requests;
mod rules;
mod saved;
mod session;
mod settings;
mod sockets;
mod subscribe;
mod tails;
#[cfg(test)]
mod tests;
mod timers;
mod unkept;
mod wheel;
mod withdrawals;

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use bayeux::{BayeuxError, Reply, Terms};
use foldhash::fast::RandomState;
use slab::Slab;

pub use account::{Charge, ENVELOPE_BYTES, Envelope, MailboxAccount};
pub use admission::{Usage, Weight};
pub use application::{Action, Actions, Application, Decision, NoApplication, Publishing, Service, Verdict};
pub use effect::{
    Closing, Effect, ExchangeId, HttpTransport, Keep, Kept, Mail, Now, Peer, Publication, Request, Response,
    SessionKey, SocketKey, Ticket,
};
pub use flush::Wire;
#[cfg(test)]
pub(crate) use ids::kernel_entropy;
pub use ids::{Entropy, Id};
pub use interest::Interest;
pub use memory::SessionsMemory;
pub use metrics::{Count, Meaning, Metrics};
pub use requests::Taken;
pub use rules::Rules;
pub use saved::{Saved, SavedBatch, SavedLedger, SavedLoss, SavedReplay, SavedSession, SavedTail, Span, Stage};
pub use settings::{ChannelRule, HistoryCommit, HistoryTerms, SHARDS_MAX, Settings, SlowConsumer, TransportName};
pub use sockets::Received;
pub use wheel::SLOT_MS;

use admission::Budget;
use arena::Arena;
use arrivals::Arrivals;
use backpressure::Backpressure;
use burst::Burst;
use history::Histories;
use hub::Hub;
use memory::Account;
use newcomers::Newcomers;
use outbox::{Capacity, Packed};
use relief::Relief;
use session::{Carrier, Ended, Held, HeldVia, Sessions};
use sockets::Socket;
use unkept::Unkept;
use wheel::Wheel;
use withdrawals::Withdrawals;

/// What all shards of a server share.
pub struct Shared {
    /// Which shards want a channel.
    pub interest: Interest,
    /// Bytes under way between shards.
    pub mailbox: Arc<MailboxAccount>,
    /// What channels have said lately.
    pub histories: Histories,
    /// Whether histories survive the process: then a shard has them kept, and replies to publications wait until they are.
    pub is_durable: bool,
    /// Sessions of all shards.
    pub sessions: AtomicUsize,
    /// Of each shard the sessions that have not connected yet, less those that others have asked it to end.
    pub newcomers: Box<[AtomicIsize]>,
    /// What sessions of all shards hold in memory.
    pub memory: SessionsMemory,
    /// What the application adds.
    pub application: Box<dyn Application>,
    /// How many shards there are.
    pub shards: usize,
}

impl Shared {
    /// For a server of so many shards.
    ///
    /// Histories are kept in memory only, unless [`Shared::is_durable`] is set before the first shard is made.
    pub fn new(shards: usize, application: Box<dyn Application>) -> Shared {
        let histories = Histories::new(shards);
        let (interest, sessions) = (Interest::default(), AtomicUsize::new(0));
        let memory = SessionsMemory::new(shards);
        Shared {
            interest,
            mailbox: Arc::default(),
            histories,
            is_durable: false,
            sessions,
            newcomers: (0..shards).map(|_| AtomicIsize::new(0)).collect(),
            memory,
            application,
            shards,
        }
    }
}

/// One shard. See the module.
pub struct Shard {
    index: usize,
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    /// The rules for channels in the settings.
    rules: Rules,
    limits: bayeux::Limits,
    terms: Terms,
    capacity: Capacity,
    metrics: Arc<Metrics>,
    entropy: Entropy,
    now: Now,
    draining: bool,
    /// What chunks and queues take.
    account: Rc<Account>,
    /// Frames of publications.
    arena: Arena,
    /// The same with their places in the history of their channel, for those who want to know.
    placed: Arena,
    /// Frames for one receiver: apart, so that they do not part publications that follow each other.
    own: Arena,
    /// What goes before and behind texts that are shared.
    parts: Arena,
    /// What is copied out of chunks that are mostly dead.
    packed: Packed,
    relief: Relief,
    /// Publications that wait to be handed to their subscribers.
    burst: Burst,
    hub: Hub,
    sessions: Sessions,
    sockets: Slab<Socket>,
    sockets_opened: u32,
    /// Held connects of each browser that has any.
    browsers: HashMap<Id, u32, RandomState>,
    /// The session that a request's response belongs to, while it is held or on its way.
    exchanges: HashMap<ExchangeId, SessionKey, RandomState>,
    /// Requests sent on to the shard of their session.
    forwarded: HashMap<ExchangeId, usize, RandomState>,
    /// Replies to publications that are not kept yet.
    unkept: Unkept,
    wheel: Wheel<Timer>,
    /// What has something to write, each once, in the order it got it.
    dirty: VecDeque<Dirty>,
    /// Sessions that may go on to catch up, each once: when nothing else is to be written.
    catching_up: VecDeque<SessionKey>,
    /// Sessions of which something that waits is not to come.
    withdrawals: Withdrawals,
    /// Sessions whose connects have something to bring and wait for other responses to be taken, each once.
    unanswered: VecDeque<SessionKey>,
    /// Sessions that have not connected yet.
    newcomers: Newcomers,
    effects: Vec<Effect>,
    /// What is to be done after the end of sessions.
    wills: VecDeque<Actions>,
    executing_wills: bool,
    publications: u64,
    /// What was handed out since the last flush that wrote everything.
    budget: Budget,
    /// Readers that are behind.
    backpressure: Backpressure,
    /// What has come from other shards and waits.
    arrivals: Arrivals,
    /// A message at an edge had to wait since the last flush that wrote everything; it goes before arrivals each other time.
    edge_waits: bool,
    edges_first: bool,
    work: u64,
    recorded_bytes: u64,
    lists: Vec<u32>,
    scratch: Vec<u8>,
    spelling: String,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug)]
enum Timer {
    Session(SessionKey),
    Socket(SocketKey),
}

/// What has to be flushed.
#[derive(Clone, Copy, Debug)]
enum Dirty {
    Session(SessionKey),
    Socket(SocketKey),
}

impl Shard {
    /// An empty shard.
    pub fn new(index: usize, shared: Arc<Shared>, settings: Arc<Settings>, entropy: Entropy, now: Now) -> Shard {
        shared.mailbox.set_bytes_max(settings.mailbox_bytes_max);
        let account = Rc::<Account>::default();
        Shard {
            index,
            shared,
            limits: settings.bayeux_limits(),
            terms: terms(&settings),
            capacity: capacity(&settings),
            rules: Rules::new(&settings.channels),
            settings,
            metrics: Arc::default(),
            entropy,
            now,
            draining: false,
            arena: Arena::new(&account),
            placed: Arena::new(&account),
            own: Arena::new(&account),
            parts: Arena::new(&account),
            packed: Packed { messages: Arena::new(&account), others: Arena::new(&account) },
            relief: Relief::default(),
            account,
            burst: Burst::default(),
            hub: Hub::default(),
            sessions: Sessions::default(),
            sockets: Slab::new(),
            sockets_opened: 0,
            browsers: HashMap::default(),
            exchanges: HashMap::default(),
            forwarded: HashMap::default(),
            unkept: Unkept::default(),
            wheel: Wheel::new(now.ms),
            dirty: VecDeque::new(),
            catching_up: VecDeque::new(),
            withdrawals: Withdrawals::default(),
            unanswered: VecDeque::new(),
            newcomers: Newcomers::default(),
            effects: Vec::new(),
            wills: VecDeque::new(),
            executing_wills: false,
            publications: 0,
            budget: Budget::default(),
            backpressure: Backpressure::default(),
            arrivals: Arrivals::default(),
            edge_waits: false,
            edges_first: false,
            work: 0,
            recorded_bytes: 0,
            lists: Vec::new(),
            scratch: Vec::new(),
            spelling: String::new(),
        }
    }

    /// Counts there, where others can read along.
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Shard {
        self.metrics = metrics;
        self
    }

    /// Which shard it is.
    pub fn index(&self) -> usize {
        self.index
    }

    /// What it counts.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Bytes of publications for histories that survive the process, since the start: what reading a socket has caused, seen by the difference.
    pub fn recorded_bytes(&self) -> u64 {
        self.recorded_bytes
    }

    /// The settings in force.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// Sessions that live here.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// What waits for a session: messages, their bytes, and bytes of replies on its WebSocket. None for an unknown one.
    pub fn waiting(&self, session: &Id) -> Option<(usize, usize, usize)> {
        let session = self.sessions.get(self.sessions.find(session)?)?;
        let (bytes, reply_bytes) = (session.outbox.bytes(), session.outbox.reply_bytes());
        Some((session.outbox.messages(), bytes.saturating_sub(reply_bytes), reply_bytes))
    }

    /// Whether a connect of a session is held. None for an unknown one.
    pub fn holds(&self, session: &Id) -> Option<bool> {
        Some(self.sessions.get(self.sessions.find(session)?)?.held.is_some())
    }

    /// What is kept for clients, by name. All zero when the last one has left and time has passed.
    pub fn holdings(&self) -> [(&'static str, usize); 14] {
        [
            ("sessions", self.sessions.len()),
            ("sockets", self.sockets.len()),
            ("channels", self.hub.channels()),
            ("subscriptions", self.hub.subscriptions()),
            ("browsers", self.browsers.len()),
            ("exchanges", self.exchanges.len()),
            ("forwarded requests", self.forwarded.len()),
            ("replies to what is not kept yet", self.unkept.len()),
            ("messages of other shards", self.arrivals.len()),
            ("timers", self.wheel.len()),
            ("waiting writes and effects", self.dirty.len() + self.effects.len() + self.catching_up.len()),
            ("connects that wait for room", self.unanswered.len()),
            ("sessions that wait for a search", self.withdrawals.len()),
            ("sessions that have not connected yet", self.newcomers.len()),
        ]
    }

    /// Whether a WebSocket is still open here, as the shard sees it.
    pub fn has_socket(&self, key: SocketKey) -> bool {
        self.socket(key).is_some()
    }

    /// Hands over what others have to do, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        self.spread();
        std::mem::take(&mut self.effects)
    }

    /// Whether nothing waits for [`Shard::flush`] or [`Shard::take_effects`].
    pub fn is_settled(&self) -> bool {
        let has_arrivals = !self.arrivals.is_empty() && !self.are_arrivals_held_back();
        let at_hand = !self.burst.is_empty() || !self.wills.is_empty() || has_arrivals;
        !at_hand
            && self.budget.is_fresh()
            && self.dirty.is_empty()
            && self.effects.is_empty()
            && self.catching_up.is_empty()
            && !self.withdrawals.is_due(self.now.ms)
            && !self.is_relieving()
    }

    /// Whether sessions wait to be given more out of histories by [`Shard::flush`], when it has nothing else to do.
    pub fn is_catching_up(&self) -> bool {
        !self.catching_up.is_empty()
    }

    /// Ends a session and everything that hangs on it. Its carrier stays: see the callers.
    fn remove_session(&mut self, key: SessionKey, why: Ended) {
        self.withdraw_now(key);
        self.drop_subscriptions(key);
        self.let_go_of_held(key);
        self.has_arrived(key);
        let Some(mut session) = self.sessions.remove(key) else { return };
        self.disarm(session.armed_ms);
        self.shared.sessions.fetch_sub(1, Ordering::Relaxed);
        if let Some(in_flight) = &session.in_flight {
            self.exchanges.remove(&in_flight.0);
            // Older messages are on their way in a response: these would overtake them.
            session.outbox.drop_messages();
        }
        match why {
            Ended::Disconnected => self.metrics.disconnected.add(1),
            Ended::Expired => self.metrics.expired.add(1),
            Ended::Kicked => self.metrics.kicked.add(1),
            Ended::Slow => self.metrics.slow_disconnected.add(1),
            Ended::Unused => self.metrics.unused_ended.add(1),
        }
        tracing::debug!(session = ?session.id, why = ?why, "session ended");
        if let Carrier::Socket(socket) = session.carrier {
            let is_owing = session.ledger.as_ref().is_some_and(|ledger| ledger.is_owing(Some(socket)));
            if is_owing {
                // What it was sent elsewhere may still arrive: newer messages must not come before that, nor its client come back with
                // their places. That it has ended it is told.
                session.outbox.filter(|_, payload| payload.starts_with(b"[{\"channel\":\"/meta/"));
            }
            self.inherit(socket, session.outbox);
        }
        let mut actions = Actions::default();
        self.shared.application.ended(session.id.as_str(), &mut actions);
        // Not now: publications may be on their way through outboxes, and what comes after this end comes after them.
        self.wills.push_back(actions);
    }

    /// Does what is to be done after the end of sessions. That may end others, whose wills wait their turn: nested, they
    /// would take the stack of as many sessions as are too slow for each other's farewells.
    fn execute_wills(&mut self) {
        if self.wills.is_empty() || std::mem::replace(&mut self.executing_wills, true) {
            return;
        }
        while !self.wills.is_empty() {
            while let Some(actions) = self.wills.pop_front() {
                self.act(actions, None);
            }
            self.spread_burst();
        }
        self.executing_wills = false;
    }

    fn update_gauges(&self) {
        let metrics = &self.metrics;
        metrics.sessions.set(self.sessions.len());
        metrics.sockets.set(self.sockets.len());
        metrics.channels.set(self.hub.channels());
        metrics.subscriptions.set(self.hub.subscriptions());
        let unheld: usize = self.arenas().into_iter().map(Arena::unheld_bytes).sum();
        metrics.arrivals.set(self.arrivals.len());
        metrics.frame_bytes.set(self.account.chunk_bytes() - unheld);
        // Bodies belong to no shard.
        let bodies = if self.index == 0 { self.shared.memory.body_bytes() } else { 0 };
        metrics.memory_bytes.set(self.account.bytes() + bodies);
    }

    /// Lets other shards see what this one holds.
    fn publish_memory(&self) {
        self.shared.memory.publish(self.index, self.held_bytes());
    }

    fn arenas(&self) -> [&Arena; 6] {
        [&self.arena, &self.placed, &self.own, &self.parts, &self.packed.messages, &self.packed.others]
    }
}

/// The timing for the protocol.
fn terms(settings: &Settings) -> Terms {
    Terms {
        timeout_ms: settings.timeout_ms,
        interval_ms: settings.interval_ms,
        max_interval_ms: settings.max_interval_ms,
        client_max_ms: settings.client_interval_max_ms,
    }
}

fn capacity(settings: &Settings) -> Capacity {
    Capacity { messages_max: settings.outbox_messages_max, bytes_max: settings.outbox_bytes_max }
}

/// A message for one session as a frame of its own.
fn message_frame(channel: &str, data: &str, id: Option<&bayeux::Id<'_>>, successful: Option<bool>) -> Vec<u8> {
    let mut payload = vec![b'['];
    Reply { id, data: Some(bayeux::RawJson::trusted(data)), successful, ..Reply::new(channel) }.write(&mut payload);
    payload.push(b']');
    let mut frame = Vec::with_capacity(payload.len() + 10);
    websocket::frame::message(websocket::Opcode::Text, &payload, &mut frame);
    frame
}

/// The error text for a batch that cannot be read at all.
fn batch_error_body(error: BayeuxError) -> Vec<u8> {
    format!("[{{\"successful\":false,\"error\":\"{error}\"}}]").into_bytes()
}
