//! The shard: one type, [`Shard`], that owns the sessions, sockets, channels and timers of one thread. Each submodule
//! is a chapter: it adds methods for one kind of event or one step of processing. ARCHITECTURE.md gives the
//! order in which they call each other.

mod admission;
mod attach;
mod batch;
mod by_handle;
mod channels;
mod connect;
mod connect_reply;
mod decisions;
mod ending;
mod fan_out;
pub(crate) mod flush;
mod from_shards;
mod handshake;
mod held;
pub(crate) mod http;
mod identities;
mod inspect;
mod limits;
mod memory;
mod newcomers;
pub(crate) mod owners;
mod pending_replies;
mod presence;
mod presence_service;
mod publish;
mod record;
mod relief;
mod replay;
mod replies;
mod responses;
mod restart;
mod resume_at;
mod rights;
mod sessions;
mod slow_consumers;
mod socket_replies;
mod sockets;
mod subscribe;
mod suspend;
mod tick;
mod timers;
mod websocket;
mod withdrawals;

pub use publish::Shard;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicIsize;

use crate::admission::Admission;
use crate::admission::account::MailboxAccount;
use crate::application::{Actions, Application};
use crate::channels::Channels;
use crate::channels::interest::Interest;
use crate::clients::Clients;
use crate::clients::owners::Revoked;
use crate::connections::Connections;
use crate::events::{Effect, SocketKey};
use crate::fanout::FanOut;
use crate::history::Histories;
use crate::limits::SharedLimits;
use crate::limits::sessions::SessionShares;
use crate::metrics::Metrics;
use crate::now::Now;
use crate::outbox::memory::SessionsMemory;
use crate::requests::Requests;
use crate::rights::policy::Policy;
use crate::schedule::Schedule;
use crate::sessions::id::{Entropy, Id};
use crate::sessions::table::Sessions;
use crate::settings::Settings;
use crate::settings::in_force::InForce;

impl Shard {
    /// The work done since the start, in bytes written for subscribers and other shards. The difference between two
    /// calls is the work that one connection caused.
    pub fn work(&self) -> u64 {
        self.parts().admission.work()
    }

    /// The steps of loops whose length clients decide, since the start. The difference between two calls is the cost of
    /// the events between them. A step takes 5 to 100 ns.
    ///
    /// A step is a subscriber of a publication, a message that is searched for, dropped or read from a history, a run that
    /// is packed or freed, a session, a subscription or a slot that is visited. Whatever outboxes hold, an event takes at
    /// most:
    ///
    /// - [`STEPS_PER_DELIVERY`] for each message to each of its subscribers, on average over the messages since the last
    ///   flush that returned false;
    /// - [`STEPS_PER_TURN`] in a flush or a tick, and as many again for each time that `out_of_time` has returned false;
    /// - a search of one outbox, which holds at most twice `outbox_messages_max`: for withdrawn messages, or for those that
    ///   a history has;
    /// - the subscriptions of each session that ends;
    /// - those of all sessions, when settings change.
    pub fn steps(&self) -> u64 {
        self.parts().schedule.steps()
    }

    /// True if the server is about to stop.
    pub fn is_draining(&self) -> bool {
        self.parts().connections.draining
    }

    /// The index of this shard.
    pub fn index(&self) -> usize {
        self.parts().index
    }

    /// The counters and gauges of this shard.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.parts().metrics
    }

    /// Bytes of publications recorded in durable histories since the start. The difference between two calls is what
    /// reading one socket caused.
    pub fn recorded_bytes(&self) -> u64 {
        self.parts().admission.recorded_bytes()
    }

    /// The settings in force.
    pub fn settings(&self) -> &Arc<Settings> {
        self.parts().settings.given()
    }

    /// True if handshakes need the head of their HTTP request.
    pub fn reads_heads(&self) -> bool {
        self.parts().shared.application.reads_heads()
    }

    /// The tokens that open no session any more, of all shards.
    pub fn revoked(&self) -> &Revoked {
        &self.parts().shared.revoked
    }

    /// The number of sessions on this shard.
    pub fn sessions(&self) -> usize {
        self.parts().sessions.len()
    }

    /// The queue of a session: messages, the bytes of their frames, and bytes of replies on its WebSocket. None if the
    /// session is unknown.
    pub fn waiting(&self, session: &Id) -> Option<(usize, usize, usize)> {
        let sessions = &self.parts().sessions;
        let session = sessions.get(sessions.find(session)?)?;
        let records: usize = session.handed_out().map(|messages| messages.held_bytes() - messages.bytes()).sum();
        let reply_bytes = session.outbox.reply_bytes();
        let bytes = session.outbox.bytes().saturating_sub(records + reply_bytes);
        Some((session.outbox.messages(), bytes, reply_bytes))
    }

    /// True if the session has a held connect. None if the session is unknown.
    pub fn holds(&self, session: &Id) -> Option<bool> {
        let sessions = &self.parts().sessions;
        Some(sessions.get(sessions.find(session)?)?.is_held())
    }

    /// The sizes of all tables and queues, by name. All are zero some time after the last client has left.
    pub fn holdings(&self) -> [(&'static str, usize); 17] {
        let parts = self.parts();
        let [writes, connects, searches] = parts.schedule.lens();
        let [exchanges, browsers] = parts.connections.exchanges.lens();
        let pending = parts.requests.pending();
        [
            ("sessions", parts.sessions.len()),
            ("sockets", parts.connections.sockets.len()),
            ("channels", parts.channels.len()),
            ("subscriptions", parts.channels.subscriptions()),
            ("browsers", browsers),
            ("exchanges", exchanges),
            ("forwarded requests", pending.forwarded),
            ("pending publish replies", pending.replies),
            ("messages from other shards", parts.admission.waiting()),
            ("timers", parts.schedule.timers.len()),
            ("waiting writes and effects", writes + parts.effects.len()),
            ("connects that wait for response memory", connects),
            ("sessions that wait for a search", searches),
            ("sessions without a connect", parts.clients.newcomers()),
            ("waits for the application", pending.waits),
            ("users and tokens with a session", parts.clients.owners()),
            ("queues of ended sessions", parts.fanout.relief.queues()),
        ]
    }

    /// The bytes that the sessions and sockets of this shard hold: as counted by the account, and as found by a walk
    /// over everything. For tests.
    pub fn memory(&self) -> (usize, usize) {
        let mut seen = HashSet::new();
        let pending = self.burst().frames().map_or(0, |frames| frames.chunk.recount(&mut seen));
        (self.parts().fanout.encoder.bytes(), pending + self.parts().recount(&mut seen))
    }

    /// Bytes that sessions and sockets hold, without the room reserved for the next message.
    pub fn held_bytes(&self) -> usize {
        self.parts().fanout.encoder.held_bytes()
    }

    /// True if there is room for a body of a response that has nothing to do with sessions.
    pub fn has_room_for(&self, body_bytes: usize) -> bool {
        self.parts().has_room_for(body_bytes)
    }

    /// True if little room is left for further responses. A client that does not take its own is then given up soon.
    pub fn is_short_of_responses(&self) -> bool {
        self.parts().is_short_of_responses()
    }

    /// True if the shard still has this WebSocket.
    pub fn has_socket(&self, key: SocketKey) -> bool {
        self.parts().socket(key).is_some()
    }

    /// True if the kernel took nothing at the last write. The task of the socket must then wait until it is writable,
    /// and call [`Shard::socket_writable`].
    pub fn is_blocked(&self, key: SocketKey) -> bool {
        self.parts().socket(key).is_some_and(|socket| socket.marks.is_blocked())
    }

    /// Returns the effects since the last call, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.settle_burst().effects)
    }

    /// True if nothing waits for [`Shard::flush`] or [`Shard::take_effects`].
    pub fn is_settled(&self) -> bool {
        let parts = self.parts();
        let has_arrivals = parts.admission.may_serve(parts.settings.capacity());
        let has_input = !self.burst().is_empty() || !parts.deferred_actions.is_empty() || has_arrivals;
        !has_input
            && parts.admission.is_fresh()
            && parts.schedule.is_settled(parts.now.ms)
            && parts.effects.is_empty()
            && !parts.is_relieving()
    }
}

/// The most steps for a message to one of its subscribers, on average: see [`Shard::steps`].
pub const STEPS_PER_DELIVERY: u64 = 256;

/// The most steps of one turn beside its deliveries: see [`Shard::steps`].
pub const STEPS_PER_TURN: u64 = 256 * 1024;

/// The state that all shards of a server share.
pub struct Shared {
    /// The shards that have subscribers, by channel.
    pub interest: Interest,
    /// Bytes in transit between shards.
    pub mailbox: Arc<MailboxAccount>,
    /// The retained messages of channels.
    pub histories: Arc<Histories>,
    /// True if histories survive the process. Shards then emit [`Effect::Persist`], and replies to publications wait
    /// for the result.
    pub is_durable: bool,
    /// The number of sessions on all shards, by owner.
    pub sessions: SessionShares,
    /// For each shard, the number of sessions that have not connected yet, minus those that other shards have asked it
    /// to end.
    pub newcomers: Box<[AtomicIsize]>,
    /// The memory that the sessions of all shards hold.
    pub memory: SessionsMemory,
    /// The limits on rates and numbers that hold for the whole server.
    pub limits: SharedLimits,
    /// The application's hooks.
    pub application: Box<dyn Application>,
    /// Their fingerprint at the start.
    pub policy: Policy,
    /// Tokens that open no session any more.
    pub revoked: Revoked,
    /// The number of shards.
    pub shards: usize,
}

impl Shared {
    /// Creates the shared state for this number of shards.
    ///
    /// Histories live in memory only, unless [`Shared::is_durable`] is set before the first shard is created.
    pub fn new(shards: usize, application: Box<dyn Application>) -> Shared {
        let histories = Arc::new(Histories::new(shards));
        let (interest, sessions) = (Interest::default(), SessionShares::default());
        let memory = SessionsMemory::new(shards);
        Shared {
            interest,
            mailbox: Arc::default(),
            histories,
            is_durable: false,
            sessions,
            newcomers: (0..shards).map(|_| AtomicIsize::new(0)).collect(),
            memory,
            limits: SharedLimits::default(),
            policy: application.policy(),
            application,
            revoked: Revoked::default(),
            shards,
        }
    }
}

/// The parts of a shard, while nothing waits for its fan-out. All chapters below `publish` are methods of it.
pub struct Parts {
    index: usize,
    pub(crate) shared: Arc<Shared>,
    settings: InForce,
    pub(crate) metrics: Arc<Metrics>,
    entropy: Entropy,
    pub(crate) now: Now,
    pub(crate) sessions: Sessions,
    pub(crate) clients: Clients,
    pub(crate) connections: Connections,
    pub(crate) admission: Admission,
    pub(crate) requests: Requests,
    channels: Channels,
    fanout: FanOut,
    /// The sessions and sockets with something to do, and the timers.
    pub(crate) schedule: Schedule,
    /// The effects since the environment took them.
    effects: Vec<Effect>,
    /// Actions that the application requested when sessions ended.
    deferred_actions: VecDeque<Actions>,
}

impl Parts {
    fn new(index: usize, shared: Arc<Shared>, settings: Arc<Settings>, entropy: Entropy, now: Now) -> Parts {
        shared.mailbox.set_bytes_max(settings.mailbox_bytes_max);
        let hasher = shared.limits.buckets.hasher();
        let (sessions, fanout) = (Sessions::new(shared.policy), FanOut::new());
        Parts {
            index,
            shared,
            settings: InForce::new(settings),
            metrics: Arc::default(),
            entropy,
            now,
            sessions,
            connections: Connections::default(),
            admission: Admission::default(),
            requests: Requests::default(),
            channels: Channels::new(fanout.encoder.account()),
            clients: Clients::new(hasher, fanout.encoder.account()),
            deferred_actions: VecDeque::new(),
            fanout,
            schedule: Schedule::new(now.ms),
            effects: Vec::new(),
        }
    }
}
