//! A node of a simulated cluster: shards and the machines of the cluster, as the program joins them, each on one thread.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use encke_cluster::{
    Event, HistoriesSettings, Member, Node as Publications, NodeLimits, Past, Sessions, SessionsSettings, Shards,
    Subjects,
};
use encke_core::{
    ChannelRule, EncodedPublications, Entropy, Envelope, ExchangeId, Id, NoApplication, NodeTag, Now, Policy,
    PublishToken, Request, Saved, SavedSession, Settings, Shard, ShardMessage, Shared, SocketKey, Wire,
};

use super::engine::Conn;
use super::plan::Plan;
use crate::rng::Rng;

/// A slot for a node: a new one takes the place of one that was killed.
pub(super) struct Node {
    /// Increases with each node in this slot.
    pub(super) life: u64,
    /// None if it is dead.
    pub(super) machine: Option<Machine>,
    pub(super) link: Link,
    /// It does nothing until then, in milliseconds.
    pub(super) paused_ms: u64,
    /// True if it had all histories, so that the balancer sends it clients.
    pub(super) is_ready: bool,
    /// The time since when it is there and was neither cut off nor paused, in milliseconds.
    pub(super) steady_ms: u64,
    /// Its own clock is ahead by this, and its time of day by that, in milliseconds.
    pub(super) clock_ms: u64,
    pub(super) wall_ms: u64,
}

/// The connection of a node to the engine.
#[derive(Default)]
pub(super) struct Link {
    pub(super) conn: Conn,
    pub(super) is_connected: bool,
    /// True if it cannot be made.
    pub(super) is_cut: bool,
    /// The time since when its node writes records, in milliseconds.
    pub(super) made_ms: u64,
    /// The time at which that one ended which was long enough for all of them, in milliseconds.
    pub(super) lost_ms: u64,
    /// Restored with the connection.
    pub(super) subscriptions: BTreeMap<u64, String>,
    pub(super) watches: Vec<(String, String)>,
    /// Requests and commands about keys that are not answered.
    pub(super) requests: BTreeSet<u64>,
    pub(super) keys: BTreeSet<u64>,
    /// The times of the last command, of the last event and of the last event of a watch, which later ones do not overtake.
    pub(super) up_ms: u64,
    pub(super) down_ms: u64,
    pub(super) watch_ms: u64,
}

/// All that runs on a node.
pub(super) struct Machine {
    pub(super) tag: NodeTag,
    pub(super) shared: Arc<Shared>,
    pub(super) shards: Vec<Shard>,
    pub(super) member: Member,
    /// Messages and requests that wait for each shard.
    pub(super) inputs: Vec<VecDeque<Input>>,
    pub(super) to_cluster: Vec<ToCluster>,
    pub(super) events: Vec<Event>,
    /// True if the shards want something else than the cluster knows.
    pub(super) has_changes: Arc<AtomicBool>,
    /// The time at which each thread runs next, in milliseconds; the last one is that of the cluster.
    pub(super) wakes: Vec<Option<u64>>,
}

/// Something for a shard.
pub(super) enum Input {
    Message(Envelope),
    Request(Box<Request>),
    Abandoned(ExchangeId),
    Delivered(ExchangeId, bool),
}

/// Something for the thread of the cluster.
pub(super) enum ToCluster {
    Publications(Arc<EncodedPublications>),
    Ask(Vec<Box<str>>, PublishToken),
    Message(ShardMessage),
}

/// The mailboxes of shards.
pub(super) struct Mailboxes {
    pub(super) shared: Arc<Shared>,
    pub(super) sent: RefCell<Vec<(usize, ShardMessage)>>,
}

impl Shards for Mailboxes {
    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn send(&self, shard: usize, message: ShardMessage) {
        self.sent.borrow_mut().push((shard, message));
    }
}

/// Clients have no WebSockets.
pub(super) struct NoSockets;

impl Wire for NoSockets {
    fn write(&mut self, _: SocketKey, _: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

impl Link {
    /// From now on its node writes no records.
    pub(super) fn no_longer_writes(&mut self, now_ms: u64) {
        if self.made_ms + RECORDED_MS <= now_ms {
            self.lost_ms = now_ms;
        }
    }
}

impl Node {
    /// An empty slot, with clocks that differ from those of others.
    pub(super) fn new(rng: &mut Rng, plan: &Plan) -> Node {
        Node {
            life: 0,
            machine: None,
            link: Link::default(),
            paused_ms: 0,
            is_ready: false,
            steady_ms: 0,
            clock_ms: rng.between(0, 1 << 40),
            wall_ms: WALL_MS + rng.between(0, plan.skew_ms),
        }
    }

    /// Its time.
    pub(super) fn now(&self, now_ms: u64) -> Now {
        Now { ms: self.clock_ms + now_ms, wall_ms: self.wall_ms + now_ms }
    }

    /// True if a session is on one of its shards.
    pub(super) fn has(&self, id: &Id) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.shards.iter().any(|shard| shard.holds(id).is_some()))
    }

    /// The time before which the records have all that was granted here, in milliseconds.
    pub(super) fn recorded_ms(&self, now_ms: u64) -> u64 {
        let is_steady = self.link.is_connected && self.link.made_ms + RECORDED_MS <= now_ms;
        let until_ms = if is_steady { now_ms } else { self.link.lost_ms };
        until_ms.saturating_sub(RECORDED_MS)
    }

    /// True if clients can reach it.
    pub(super) fn serves(&self) -> bool {
        self.machine.is_some() && self.is_ready
    }
}

impl Machine {
    /// A node that begins. `others`: the names of those that run. A node that has one of them takes no part in a cluster (`OwnName`).
    pub(super) fn new(rng: &mut Rng, plan: &Plan, now: Now, others: &[NodeTag]) -> Machine {
        let settings = Arc::new(settings(plan));
        let mut own = Rng::new(rng.bits());
        let mut entropy: Entropy = Box::new(move |bytes| own.fill(bytes));
        let mut tag = NodeTag::new(&mut entropy);
        while others.contains(&tag) {
            tag = NodeTag::new(&mut entropy);
        }
        let mut shared = Shared::new(plan.shards, Box::new(NoApplication));
        shared.node = Some(tag);
        shared.histories.begin_in_cluster();
        let (shared, has_changes) = (Arc::new(shared), Arc::new(AtomicBool::new(false)));
        let noted = has_changes.clone();
        shared.interest.set_on_change(move || noted.store(true, Ordering::Relaxed));
        let shards = (0..plan.shards).map(|index| {
            let mut own = Rng::new(rng.bits());
            let entropy: Entropy = Box::new(move |bytes| own.fill(bytes));
            Shard::new(index, shared.clone(), settings.clone(), entropy, now)
        });
        let shards: Vec<Shard> = shards.collect();
        let names: bayeux::Limits = (&*settings).into();
        let publications = Publications::new(subjects(), rng.bits(), LIMITS, names.clone());
        let sessions = Sessions::new(sessions(plan, tag, &shared));
        let histories = HistoriesSettings {
            node: rng.bits(),
            tag,
            subjects: subjects(),
            bucket: "histories".into(),
            has_journal: plan.has_journal,
            names,
            pending_bytes_max: 1 << 20,
        };
        Machine {
            tag,
            member: Member::new(publications, sessions, histories, settings),
            inputs: (0..plan.shards).map(|_| VecDeque::new()).collect(),
            wakes: vec![None; plan.shards + 1],
            shared,
            has_changes,
            shards,
            to_cluster: Vec::new(),
            events: Vec::new(),
        }
    }

    /// The number of the thread of the cluster.
    pub(super) fn cluster_thread(&self) -> usize {
        self.shards.len()
    }
}

/// The settings of the server of each node.
fn settings(plan: &Plan) -> Settings {
    let rule =
        ChannelRule { pattern: "/past/**".into(), history_messages: plan.history_messages, ..ChannelRule::default() };
    Settings { channels: vec![rule], timeout_ms: HOLD_MS, max_interval_ms: 30_000, ..Settings::default() }
}

fn sessions(plan: &Plan, tag: NodeTag, shared: &Shared) -> SessionsSettings {
    SessionsSettings {
        node: tag,
        subjects: subjects(),
        bucket: "sessions".into(),
        shards: plan.shards,
        forwarded_max: 1_000,
        forwarded_bytes_max: 1 << 20,
        served_bytes_max: 1 << 20,
        message_bytes_max: 1 << 20,
        hold_ms: HOLD_MS,
        records_per_s_max: 1_000,
        record_ttl_ms: 600_000,
        reply_delay_max_ms: REPLY_DELAY_MAX_MS,
        return_delay_ms: 1_000,
        encode,
        decode,
        memory: shared.memory.clone(),
        responses_bytes_max: 1 << 20,
    }
}

/// The subjects of the cluster.
pub(super) fn subjects() -> Subjects {
    Subjects::of("sim").expect("a valid name")
}

fn encode(saved: &Saved, past: Past) -> Vec<u8> {
    serde_json::to_vec(&(saved.policy, &saved.messages, &saved.sessions, past.take_overs, past.user_mark))
        .unwrap_or_default()
}

fn decode(bytes: &[u8]) -> Option<(Saved, Past)> {
    let (policy, messages, sessions, take_overs, user_mark): (Policy, Vec<Box<str>>, Vec<SavedSession>, u32, u64) =
        serde_json::from_slice(bytes).ok()?;
    Some((Saved { policy, messages, sessions }, Past { take_overs, user_mark }))
}

const LIMITS: NodeLimits = NodeLimits {
    pending_bytes_max: 1 << 20,
    incoming_bytes_max: 1 << 20,
    leave_delay_ms: 2_000,
    shared_from: 3,
    subscriptions_max: 100,
    reply_delay_max_ms: REPLY_DELAY_MAX_MS,
    return_delay_ms: 1_000,
};
/// The longest time that replies wait for the engine, in milliseconds.
const REPLY_DELAY_MAX_MS: u64 = 1_000;
/// The longest time that a connect is held, in milliseconds.
pub(super) const HOLD_MS: u64 = 4_000;
/// The time of day when a run begins, in milliseconds.
const WALL_MS: u64 = 1_700_000_000_000;
/// The time within which a record has what a node grants, in milliseconds.
const RECORDED_MS: u64 = 2_000;
