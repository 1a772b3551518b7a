//! Delivery: everything that sessions still get, from the queue of each to the write on its connection.

mod activity;
mod attach;
mod backpressure;
mod connections;
mod connects;
mod encoder;
mod fan_out;
mod flush;
mod memory;
mod missed;
mod outbox;
mod patterns;
mod replay;
mod responses;
mod restart;
mod resuming;
mod schedule;
mod sessions;
mod slow_consumers;
mod sockets;
mod stream;
mod terms;
#[cfg(test)]
mod tests;
mod timers;
mod wire;
mod withdrawals;

use std::rc::Rc;
use std::sync::Arc;

use bayeux::Terms;
use bayeux::ext::PositionForm;

pub(crate) use activity::Aside;
pub use connections::reached::Reached;
pub(crate) use connections::socket::{GOING_AWAY, Phase, Socket};
pub use connections::socket::{Received, SocketOrigin};
pub(crate) use connects::Speaks;
pub(crate) use fan_out::{FanOut, Manner};
pub(crate) use flush::Writes;
pub(crate) use missed::Unconfirmed;
pub(crate) use outbox::arena::{Chunk, Frames};
pub use outbox::format::Format;
pub(crate) use outbox::{RUN_BYTES, Sweep, last_of, payloads};
pub(crate) use replay::{Beginning, Begun, CaughtUp};
pub(crate) use resuming::Incomplete;
pub(crate) use schedule::Holder;
pub(crate) use sessions::patterns::{PAGE, PatternReplay};
#[cfg(test)]
pub(crate) use sessions::replay::InRings;
pub(crate) use sessions::session::{HeldConnect, ReplyTo, Session};
#[cfg(test)]
pub(crate) use sessions::withdrawn::RANGES_MAX;
pub(crate) use sessions::withdrawn::{Given, Unnumbered, Withdrawn};
pub(crate) use slow_consumers::{GivenUp, Receives};
pub use wire::Wire;

use backpressure::Backpressure;
use connections::exchanges::Exchanges;
use connections::sockets::Sockets;
use encoder::Encoder;
use outbox::Latest;
use outbox::waste::Waste;
use resuming::Resuming;
use schedule::Schedule;
use sessions::table::Sessions;
use terms::OwnTerms;

use crate::events::{Effect, SessionKey, SocketKey};
use crate::history::Histories;
use crate::id::Id;
use crate::limits::Capacity;
use crate::memory::{Account, SessionsMemory};
use crate::metrics::Metrics;
use crate::now::Now;
use crate::settings::Settings;
use crate::settings::in_force::InForce;

/// The delivery of one shard: its sessions with their queues, its WebSockets and held requests, and the frames that
/// queues share.
///
/// ```text
///   open ─▶ attach, hold ─▶ fan_out, deliver_to ─▶ (outbox) ─▶ write ─▶ Wire
///                                                      │         └────▶ a session whose connect must be answered
///                                                      └─ respond_with ─▶ Effect::Respond ─▶ delivered
/// ```
///
/// The machine knows nothing of channels, rights and the application. Its owner calls it in this order:
///
/// - [`Delivery::set_time`] before the calls of an event.
/// - [`Delivery::open`], [`Delivery::attach`], [`Delivery::connect`], [`Delivery::hold`] as clients come, and
///   [`Delivery::detach`], [`Delivery::take_held`], [`Delivery::close`] as they go.
/// - [`Delivery::fan_out`] and [`Delivery::deliver_to`] with messages. These return [`GivenUp`] for each session or
///   socket that takes too little: the owner ends it, with everything that belongs to it elsewhere.
/// - [`Delivery::write`] when all ready tasks have run, until it returns None. It writes each session once. It returns
///   a session whose held connect has become due: the owner answers, because only it knows the reply.
/// - [`Delivery::pass_over`], [`Delivery::replay_more`], [`Delivery::go_on_with_resumptions`] and
///   [`Delivery::go_on_with_withdrawals`] afterwards. They do a part of what is left to do for queues.
/// - [`Delivery::due`] as time passes.
/// - [`Delivery::move_effects`] to get what the environment has to do: responses and the ends of sockets.
pub(crate) struct Delivery {
    index: usize,
    settings: Arc<Settings>,
    capacity: Capacity,
    terms: Terms,
    /// The terms of sessions that differ from these.
    own_terms: OwnTerms,
    metrics: Arc<Metrics>,
    /// The histories that replays read.
    histories: Arc<Histories>,
    /// The memory that the sessions of all shards hold.
    memory: Arc<SessionsMemory>,
    now: Now,
    sessions: Sessions,
    /// WebSockets.
    sockets: Sockets,
    /// HTTP requests that are not answered yet, and responses on their way.
    exchanges: Exchanges,
    /// The frames that outboxes share.
    encoder: Encoder,
    /// The sessions and sockets with something to do.
    schedule: Schedule,
    /// Readers that are behind.
    backpressure: Backpressure,
    /// A pass over the outbox of the session that is the first to get one.
    pass: Latest,
    /// The queues of ended sessions.
    waste: Waste,
    /// The sessions of other nodes that get what they have missed.
    resuming: Resuming,
    /// The number of sessions that replay, by the form of their positions.
    forms: [usize; PositionForm::ALL.len()],
    /// The number of fan-outs. It is the stamp of the sessions that have got the last one.
    fan_outs: u64,
    effects: Vec<Effect>,
}

impl Delivery {
    /// No sessions and no connections.
    pub(crate) fn new(
        index: usize,
        settings: &InForce,
        histories: Arc<Histories>,
        memory: Arc<SessionsMemory>,
        metrics: Arc<Metrics>,
        now: Now,
    ) -> Delivery {
        Delivery {
            index,
            settings: settings.given().clone(),
            capacity: *settings.capacity(),
            terms: settings.terms(),
            own_terms: OwnTerms::default(),
            metrics,
            histories,
            memory,
            now,
            sessions: Sessions::default(),
            sockets: Sockets::default(),
            exchanges: Exchanges::default(),
            encoder: Encoder::new(settings.given().compress_bytes_min),
            schedule: Schedule::new(now.ms),
            backpressure: Backpressure::default(),
            pass: Latest::default(),
            waste: Waste::default(),
            resuming: Resuming::default(),
            forms: [0; PositionForm::ALL.len()],
            fan_outs: 0,
            effects: Vec::new(),
        }
    }

    /// Counts in `metrics` from now on.
    pub(crate) fn set_metrics(&mut self, metrics: Arc<Metrics>) {
        self.metrics = metrics;
    }

    /// Notes the settings in force from now on.
    pub(crate) fn set_settings(&mut self, settings: &InForce) {
        (self.settings, self.capacity, self.terms) = (settings.given().clone(), *settings.capacity(), settings.terms());
        self.encoder.compressor.bytes_min = self.settings.compress_bytes_min;
    }

    /// Notes the time of the calls that follow.
    #[inline]
    pub(crate) fn set_time(&mut self, now: Now) {
        self.now = now;
    }

    /// Moves the effects since the last call to the end of `effects`.
    #[inline]
    pub(crate) fn move_effects(&mut self, effects: &mut Vec<Effect>) {
        if !self.effects.is_empty() {
            effects.append(&mut self.effects);
        }
    }

    /// The encoder of the frames for the sessions of this shard.
    #[inline]
    pub(crate) fn encoder(&mut self) -> &mut Encoder {
        &mut self.encoder
    }

    /// The session with this id.
    #[inline]
    pub(crate) fn find(&self, id: &Id) -> Option<SessionKey> {
        self.sessions.find(id)
    }

    /// A session, unless it is gone.
    #[inline]
    pub(crate) fn session(&self, key: SessionKey) -> Option<&Session> {
        self.sessions.get(key)
    }

    /// True if a session is not gone.
    pub(crate) fn has(&self, key: SessionKey) -> bool {
        self.sessions.get(key).is_some()
    }

    /// The id of a session.
    pub(crate) fn id_of(&self, key: Option<SessionKey>) -> Option<Id> {
        Some(self.sessions.get(key?)?.id)
    }

    /// The keys of all sessions.
    pub(crate) fn keys(&self) -> Vec<SessionKey> {
        self.sessions.keys()
    }

    /// The session in a slot of the table, with its key.
    pub(crate) fn in_slot(&self, slot: usize) -> Option<(SessionKey, &Session)> {
        let session = self.sessions.seen_in_slot(slot)?;
        Some((session.key(slot as u32), session))
    }

    /// The number of slots for sessions, empty or occupied.
    pub(crate) fn session_slots(&self) -> usize {
        self.sessions.slots()
    }

    /// A WebSocket, unless it is gone.
    #[inline]
    pub(crate) fn socket(&self, key: SocketKey) -> Option<&Socket> {
        self.sockets.get(key)
    }

    /// True if frames may be sent on this WebSocket.
    pub(crate) fn is_open(&self, key: SocketKey) -> bool {
        self.socket(key).is_some_and(|socket| socket.phase == Phase::Open)
    }

    /// The sizes of its tables and queues.
    pub(crate) fn sizes(&self) -> Sizes {
        let [writes, connects, searches] = self.schedule.lens();
        let [exchanges, browsers] = self.exchanges.lens();
        Sizes {
            sessions: self.sessions.len(),
            sockets: self.sockets.len(),
            exchanges,
            browsers,
            timers: self.schedule.timers.len(),
            writes,
            effects: self.effects.len(),
            connects,
            searches,
            waste: self.waste.len(),
        }
    }

    /// The steps since the start: see [`Shard::steps`](crate::Shard::steps).
    pub(crate) fn steps(&self) -> u64 {
        self.schedule.steps()
    }

    /// The account of all that sessions and sockets hold.
    pub(crate) fn account(&self) -> &Rc<Account> {
        self.encoder.account()
    }
}

/// The sizes of the tables and queues of [`Delivery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) sessions: usize,
    pub(crate) sockets: usize,
    /// Requests with a held connect, and responses on their way.
    pub(crate) exchanges: usize,
    /// Browsers with held connects.
    pub(crate) browsers: usize,
    pub(crate) timers: usize,
    /// Sessions and sockets that wait for a write or a replay.
    pub(crate) writes: usize,
    pub(crate) effects: usize,
    /// Connects that wait for response memory.
    pub(crate) connects: usize,
    /// Sessions that wait for a search or a pass.
    pub(crate) searches: usize,
    /// The queues of ended sessions.
    pub(crate) waste: usize,
}
