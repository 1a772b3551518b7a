//! The shard: the conductor of the machines. An event comes as a method call. The conductor passes it from machine to
//! machine, and what one returns to the next.
//!
//! ```text
//!   websocket, http ─▶ batch ─▶ handshake, connect, subscribe ─▶ Clients, Channels, Delivery
//!                        └────▶ publication ─▶ Burst ─▶ record (histories) ─▶ fan-out: Channels, Delivery
//!   from_shards ─▶ Admission ─▶ the same ways
//!   turn (flush, time) ─▶ Delivery ─▶ held connects that are due, sessions that are given up
//! ```

mod actions;
mod attributes;
mod batch;
mod beside;
mod changes;
mod channels;
mod confirmed;
mod conflated;
mod connect;
mod decisions;
mod ending;
mod from_shards;
mod handshake;
mod history_service;
mod http;
mod inspect;
mod limits;
mod node_moves;
mod nodes;
mod owners;
mod patterns;
mod pending_replies;
mod presence;
mod publication;
mod record;
mod relief;
mod restart;
mod resume_at;
mod retained;
mod streams;
mod subscribe;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;
mod turn;
mod websocket;

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicIsize;

pub use http::Taken;
pub use streams::{StreamOpener, StreamOpening};

use beside::BesideBurst;
use publication::Burst;

use crate::admission::Admission;
use crate::admission::account::MailboxAccount;
use crate::application::{Actions, Application};
use crate::channels::Channels;
use crate::channels::interest::Interest;
use crate::clients::Clients;
use crate::clients::newcomers;
use crate::clients::owners::Revoked;
use crate::conflation::Conflation;
use crate::decision::WaitKey;
use crate::delivery::Delivery;
use crate::events::{Effect, Peer, SessionKey};
use crate::history::Histories;
use crate::id::{Entropy, Id, NodeTag};
use crate::limits::SharedLimits;
use crate::limits::sessions::{SessionOwner, SessionShares};
use crate::memory::SessionsMemory;
use crate::metrics::Metrics;
use crate::now::Now;
use crate::relief::Relief;
use crate::requests::Requests;
use crate::rights::policy::Policy;
use crate::settings::Settings;
use crate::settings::in_force::InForce;
use crate::wheel::Wheel;

/// One shard of the server. See the documentation of the crate.
///
/// Publications may wait for their fan-out, and everything that looks at outboxes or changes subscriptions has to come
/// after it. So the machines are reached through `Shard::settle_burst`, which fans out first. What must not wait for that
/// gets a `BesideBurst`, which reaches no outbox.
pub struct Shard {
    /// Publications that wait for their fan-out.
    burst: Burst,
    /// True while the actions that sessions left at their end are run.
    runs_deferred: bool,
    machines: Machines,
}

/// The machines of a shard, while nothing waits for its fan-out.
struct Machines {
    env: Env,
    /// The messages that sessions still get, on which connections.
    delivery: Delivery,
    /// The subscriptions.
    channels: Channels,
    /// Messages that wait for the interval of their channel.
    conflation: Conflation,
    /// The owners of sessions.
    clients: Clients,
    /// The requests that are not answered yet.
    requests: Requests,
    /// The budget of fan-outs.
    admission: Admission,
    /// The care for memory.
    relief: Relief,
}

/// The conductor's own state.
struct Env {
    index: usize,
    shared: Arc<Shared>,
    settings: InForce,
    metrics: Arc<Metrics>,
    entropy: Entropy,
    now: Now,
    /// True if the server is about to stop: clients come back later.
    is_draining: bool,
    /// The deadlines of credentials and of waits.
    timers: Wheel<Timer>,
    /// Waits whose timer has come.
    overdue: Vec<WaitKey>,
    /// The effects since the environment took them. Those of the delivery come here before the next one.
    effects: Vec<Effect>,
    /// Actions that the application requested when sessions began or ended, with the owners of these.
    deferred_actions: VecDeque<(Actions, Option<SessionOwner>)>,
    /// Sessions or subscriptions may have come or gone since the gauges were updated.
    gauges_are_old: bool,
    /// The steps beside those of the delivery.
    steps: Cell<u64>,
    /// The sessions whose records are out of date, in a cluster.
    unrecorded: nodes::Unrecorded,
    /// The moves of sessions between nodes within the last second.
    node_moves: node_moves::NodeMoves,
    /// The sessions that acknowledge, with the ticks that their clients have confirmed, in a cluster.
    confirmed: confirmed::Confirmed,
    /// The latest messages that sessions without replay have got from rings, and that may still be on their way to this shard.
    retained: retained::Retained,
}

/// The owner of an entry in the conductor's timer wheel.
#[derive(Clone, Copy, Debug)]
enum Timer {
    Wait(WaitKey),
    /// The credentials of a session.
    Credentials(SessionKey),
}

impl Shard {
    /// Creates an empty shard.
    pub fn new(index: usize, shared: Arc<Shared>, settings: Arc<Settings>, entropy: Entropy, now: Now) -> Shard {
        shared.mailbox.set_bytes_max(settings.mailbox_bytes_max);
        let (settings, metrics) = (InForce::new(settings), Arc::<Metrics>::default());
        let (histories, memory) = (shared.histories.clone(), shared.memory.clone());
        let delivery = Delivery::new(index, &settings, histories, memory, metrics.clone(), now);
        let machines = Machines {
            channels: Channels::new(delivery.account()),
            conflation: Conflation::new(delivery.account()),
            clients: Clients::new(shared.policy, shared.limits.buckets.hasher(), delivery.account()),
            delivery,
            requests: Requests::default(),
            admission: Admission::default(),
            relief: Relief::default(),
            env: Env {
                index,
                shared,
                settings,
                metrics,
                entropy,
                now,
                is_draining: false,
                timers: Wheel::new(now.ms),
                overdue: Vec::new(),
                effects: Vec::new(),
                deferred_actions: VecDeque::new(),
                gauges_are_old: false,
                steps: Cell::new(0),
                unrecorded: nodes::Unrecorded::default(),
                node_moves: node_moves::NodeMoves::default(),
                confirmed: confirmed::Confirmed::default(),
                retained: retained::Retained::default(),
            },
        };
        Shard { burst: Burst::default(), runs_deferred: false, machines }
    }

    /// Counts in `metrics`, which other threads can read.
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Shard {
        self.machines.delivery.set_metrics(metrics.clone());
        self.machines.env.metrics = metrics;
        self
    }

    /// Fans out what waits for it. Returns the machines, which may then look at outboxes and change subscriptions.
    fn settle_burst(&mut self) -> &mut Machines {
        self.fan_out_burst();
        self.run_deferred_actions();
        &mut self.machines
    }

    /// The same at this time.
    fn settle_burst_at(&mut self, now: Now) -> &mut Machines {
        self.machines.set_time(now);
        self.settle_burst()
    }

    /// The machines as far as they may be used while publications wait for their fan-out.
    #[inline(always)]
    fn beside_burst(&mut self) -> BesideBurst<'_> {
        self.machines.beside()
    }

    /// The same at this time.
    #[inline(always)]
    fn beside_burst_at(&mut self, now: Now) -> BesideBurst<'_> {
        self.machines.set_time(now);
        self.machines.beside()
    }

    /// Returns the effects since the last call, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        let Machines { env, delivery, .. } = self.settle_burst();
        delivery.move_effects(&mut env.effects);
        std::mem::take(&mut env.effects)
    }
}

impl Machines {
    #[inline]
    fn set_time(&mut self, now: Now) {
        self.env.now = now;
        self.delivery.set_time(now);
    }

    /// The machines without a way to outboxes.
    #[inline(always)]
    fn beside(&mut self) -> BesideBurst<'_> {
        let Machines { env, delivery, channels, clients, requests, admission, .. } = self;
        BesideBurst { env, sessions: delivery.aside(), channels, clients, requests, admission }
    }

    /// Adds an effect.
    fn emit(&mut self, effect: Effect) {
        self.beside().emit(effect);
    }

    /// The steps of all machines.
    fn steps(&self) -> u64 {
        self.env.steps.get() + self.delivery.steps()
    }
}

impl Env {
    /// Counts steps of a loop whose length clients decide.
    #[inline]
    fn count_steps(&self, steps: usize) {
        self.steps.set(self.steps.get() + steps as u64);
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
    /// The name of this node in the ids of its sessions, if the server is a node of a cluster. Set before the first shard is created.
    pub node: Option<NodeTag>,
    /// The number of sessions on all shards, by owner.
    pub sessions: SessionShares,
    /// For each shard, the number of sessions that have not connected yet, minus those that other shards have asked it
    /// to end.
    pub newcomers: Box<[AtomicIsize]>,
    /// The memory that the sessions of all shards hold.
    pub memory: Arc<SessionsMemory>,
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
        let memory = Arc::new(SessionsMemory::new(shards));
        Shared {
            interest,
            mailbox: Arc::default(),
            histories,
            is_durable: false,
            node: None,
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

    /// Hashes of the connection and the address of a client; 0 if not known.
    pub fn origins_of(&self, peer: Peer) -> [u64; 2] {
        newcomers::origins(&self.limits.buckets.hasher(), peer)
    }

    /// The shard of a session, or of a browser's sessions. Ids of other nodes may name shards that are not here.
    pub fn shard_of(&self, id: &Id) -> usize {
        let shard = id.shard();
        if shard >= self.shards && self.is_clustered() { shard % self.shards } else { shard }
    }

    /// True if the server is a node of a cluster.
    pub(crate) fn is_clustered(&self) -> bool {
        self.node.is_some()
    }

    /// True if others need to know what a shard wants: other shards, or other nodes.
    pub(crate) fn notes_interest(&self) -> bool {
        self.shards > 1 || self.is_clustered()
    }
}
