//! The conductor: a shard, and the story of what it does, chapter by chapter.

mod admission;
mod attach;
mod batch;
mod channels;
mod connect;
mod connect_reply;
mod ending;
mod fan_out;
pub(crate) mod flush;
mod from_shards;
mod handshake;
mod held;
pub(crate) mod http;
mod memory;
mod newcomers;
mod pending_replies;
mod publish;
mod record;
mod relief;
mod replay;
mod replies;
mod responses;
mod restart;
mod resume_at;
mod sessions;
mod slow_consumers;
mod socket_replies;
mod sockets;
mod subscribe;
mod tick;
mod timers;
mod websocket;
mod withdrawals;

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize};

use bayeux::Terms;
use foldhash::fast::RandomState;
use slab::Slab;

use crate::application::{Actions, Application};
use crate::channels::hub::Hub;
use crate::channels::interest::Interest;
use crate::channels::rules::Rules;
use crate::connections::account::MailboxAccount;
use crate::connections::admission::Budget;
use crate::connections::arrivals::Arrivals;
use crate::connections::pending_replies::PendingReplies;
use crate::connections::socket::Socket;
use crate::events::{Effect, ExchangeId, SessionKey, SocketKey};
use crate::fanout::backpressure::Backpressure;
use crate::fanout::burst::Burst;
use crate::history::Histories;
use crate::metrics::Metrics;
use crate::now::Now;
use crate::outbox::arena::Arena;
use crate::outbox::memory::{Account, SessionsMemory};
use crate::outbox::relief::Relief;
use crate::outbox::{Capacity, Packed};
use crate::sessions::id::{Entropy, Id};
use crate::sessions::newcomers::Newcomers;
use crate::sessions::session::Sessions;
use crate::sessions::withdrawn::Withdrawals;
use crate::settings::Settings;
use crate::wheel::Wheel;

impl Shard {
    /// Work that was caused since the start, in bytes for subscribers and other shards: what a connection has caused is seen by the
    /// difference.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Whether the server is about to stop.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

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
            with_positions: Arena::new(&account),
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
            pending_replies: PendingReplies::default(),
            wheel: Wheel::new(now.ms),
            dirty: VecDeque::new(),
            replaying: VecDeque::new(),
            withdrawals: Withdrawals::default(),
            unanswered: VecDeque::new(),
            newcomers: Newcomers::default(),
            effects: Vec::new(),
            deferred_actions: VecDeque::new(),
            is_running_deferred: false,
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
            ("replies to what is not kept yet", self.pending_replies.len()),
            ("messages of other shards", self.arrivals.len()),
            ("timers", self.wheel.len()),
            ("waiting writes and effects", self.dirty.len() + self.effects.len() + self.replaying.len()),
            ("connects that wait for room", self.unanswered.len()),
            ("sessions that wait for a search", self.withdrawals.len()),
            ("sessions that have not connected yet", self.newcomers.len()),
        ]
    }

    /// Hands over what others have to do, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        self.fan_out_pending();
        std::mem::take(&mut self.effects)
    }

    /// Whether nothing waits for [`Shard::flush`] or [`Shard::take_effects`].
    pub fn is_settled(&self) -> bool {
        let has_arrivals = !self.arrivals.is_empty() && !self.are_arrivals_held_back();
        let at_hand = !self.burst.is_empty() || !self.deferred_actions.is_empty() || has_arrivals;
        !at_hand
            && self.budget.is_fresh()
            && self.dirty.is_empty()
            && self.effects.is_empty()
            && self.replaying.is_empty()
            && !self.withdrawals.is_due(self.now.ms)
            && !self.is_relieving()
    }

    /// Whether sessions wait to be given more out of histories by [`Shard::flush`], when it has nothing else to do.
    pub fn is_replaying(&self) -> bool {
        !self.replaying.is_empty()
    }
}

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
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Arc<Settings>,
    /// The rules for channels in the settings.
    rules: Rules,
    limits: bayeux::Limits,
    terms: Terms,
    capacity: Capacity,
    pub(crate) metrics: Arc<Metrics>,
    entropy: Entropy,
    pub(crate) now: Now,
    draining: bool,
    /// What chunks and queues take.
    account: Rc<Account>,
    /// Frames of publications.
    arena: Arena,
    /// The same with their places in the history of their channel, for those who want to know.
    with_positions: Arena,
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
    pub(crate) sessions: Sessions,
    pub(crate) sockets: Slab<Socket>,
    sockets_opened: u32,
    /// Held connects of each browser that has any.
    browsers: HashMap<Id, u32, RandomState>,
    /// The session that a request's response belongs to, while it is held or on its way.
    exchanges: HashMap<ExchangeId, SessionKey, RandomState>,
    /// Requests sent on to the shard of their session.
    forwarded: HashMap<ExchangeId, usize, RandomState>,
    /// Replies to publications that are not kept yet.
    pub(crate) pending_replies: PendingReplies,
    wheel: Wheel<Timer>,
    /// What has something to write, each once, in the order it got it.
    dirty: VecDeque<Dirty>,
    /// Sessions that may go on to catch up, each once: when nothing else is to be written.
    replaying: VecDeque<SessionKey>,
    /// Sessions of which something that waits is not to come.
    pub(crate) withdrawals: Withdrawals,
    /// Sessions whose connects have something to bring and wait for other responses to be taken, each once.
    pub(crate) unanswered: VecDeque<SessionKey>,
    /// Sessions that have not connected yet.
    newcomers: Newcomers,
    effects: Vec<Effect>,
    /// What is to be done after the end of sessions.
    deferred_actions: VecDeque<Actions>,
    is_running_deferred: bool,
    publications: u64,
    /// What was handed out since the last flush that wrote everything.
    budget: Budget,
    /// Readers that are behind.
    backpressure: Backpressure,
    /// What has come from other shards and waits.
    pub(crate) arrivals: Arrivals,
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
pub(crate) enum Timer {
    Session(SessionKey),
    Socket(SocketKey),
}

/// What has to be flushed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dirty {
    Session(SessionKey),
    Socket(SocketKey),
}

/// The timing for the protocol.
pub(crate) fn terms(settings: &Settings) -> Terms {
    Terms {
        timeout_ms: settings.timeout_ms,
        interval_ms: settings.interval_ms,
        max_interval_ms: settings.max_interval_ms,
        client_max_ms: settings.client_interval_max_ms,
    }
}

pub(crate) fn capacity(settings: &Settings) -> Capacity {
    Capacity { messages_max: settings.outbox_messages_max, bytes_max: settings.outbox_bytes_max }
}
