//! A cluster under virtual time: nodes with their shards and the machines of `encke-cluster`, joined as the program joins them, over one
//! engine. The engine delays, loses and doubles what it may, nodes are killed, paused and cut off, and clients go on at any node.
//!
//! ```text
//!   clients ── requests ──▶ nodes: shards ⇄ Member ── commands ──▶ Engine
//!      ▲                      │                   ◀── events ──────┘
//!      └──── responses ───────┘            Checker: what clients, histories and sessions have seen
//! ```
//!
//! All that happens is an entry of one queue, by its time. A seed decides everything else, so a run is reproducible exactly.

mod acting;
mod checker;
mod checks;
mod client;
mod disruptions;
mod engine;
mod link;
mod node;
mod plan;
mod reading;
mod sabotage;
mod tally;
mod threads;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use encke_cluster::{Command, Event};
use encke_core::{Id, Response};

use crate::panic_text;
use crate::rng::Rng;
use checker::{Broken, Checker, Promise};
use client::Client;
use engine::{Conn, Engine};
use node::Node;
use plan::{EngineFaults, Plan};
pub use sabotage::{ClusterOptions, ClusterSabotage};
pub use tally::ClusterTally;

/// A seed that broke a promise.
#[derive(Clone, Debug)]
pub struct ClusterFailure {
    /// The seed.
    pub seed: u64,
    /// The promise, and how it was broken.
    pub broken: String,
    /// The last steps, if they were recorded.
    pub history: Vec<String>,
}

/// Runs a seed of a cluster.
///
/// # Errors
/// The first promise that was broken.
pub fn run_cluster(seed: u64, options: &ClusterOptions) -> Result<ClusterTally, ClusterFailure> {
    let mut cluster = Cluster::new(seed, options);
    let result = catch_unwind(AssertUnwindSafe(|| cluster.run()));
    let broken = match result {
        Ok(Ok(tally)) => return Ok(tally),
        Ok(Err(broken)) => broken,
        Err(panic) => Broken { promise: Promise::NoPanic, detail: panic_text(&panic) },
    };
    let broken = format!("{:?}: {}", broken.promise, broken.detail);
    Err(ClusterFailure { seed, broken, history: cluster.history.take().into_iter().flatten().collect() })
}

/// A run.
struct Cluster {
    rng: Rng,
    plan: Plan,
    now_ms: u64,
    queue: BTreeMap<(u64, u64), What>,
    /// Increases with each entry of the queue.
    order: u64,
    nodes: Vec<Node>,
    engine: Engine,
    engine_is_up: bool,
    last_conn: Conn,
    /// The times until which commands of connections that are gone still run.
    lost: BTreeMap<Conn, u64>,
    /// Requests in a row that were lost, or whose answer was: of a connection to a subject, small ones and others.
    lost_in_row: BTreeMap<(Conn, String), usize>,
    clients: Vec<Client>,
    /// The number of the last request.
    exchanges: u64,
    checker: Checker,
    tally: ClusterTally,
    /// True when nothing goes wrong any more.
    heals: bool,
    /// The time since when nothing has gone wrong, in milliseconds.
    calm_ms: u64,
    sabotage: ClusterSabotage,
    history: Option<VecDeque<String>>,
}

/// Something that happens at a time.
enum What {
    /// A thread of a node runs.
    Wake { node: usize, life: u64, thread: usize },
    /// The engine gets a command of a connection.
    Command(Conn, Command),
    /// An event of a connection reaches its node.
    Event(Conn, Event),
    /// The time of a key is over.
    Expire(String, String, u64),
    /// A node tries to connect to the engine.
    Connect(usize),
    /// A client does something.
    Act(usize),
    /// A response reaches a client. None: its connection breaks.
    Respond(usize, u64, Option<Response>),
    /// A node learns that a client has gone, or has its response.
    Fate { node: usize, life: u64, exchange: u64, shard: u16, fate: Fate },
    /// A client has waited for long enough.
    GiveUp(usize, u64),
    /// Something goes wrong.
    Disrupt,
    /// The end of a disruption.
    Mend(Mend),
    /// A publication must have arrived.
    Check { client: usize, session: Id, publication: usize },
    /// All sessions are looked at.
    Look,
}

/// The fate of a response.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Its client has gone.
    Abandoned,
    /// The response was taken (true) or not, as the shard that wants to know learns.
    Delivered(u16, bool),
}

/// The end of a disruption.
#[derive(Clone, Copy, Debug)]
enum Mend {
    /// A node starts in this slot.
    Start(usize),
    /// A node is no longer cut off.
    Join(usize),
    /// The engine is there again.
    Engine,
}

impl Cluster {
    fn new(seed: u64, options: &ClusterOptions) -> Cluster {
        let mut rng = Rng::new(seed);
        let plan = Plan::new(&mut rng, options.has_journals);
        let nodes = (0..plan.nodes).map(|_| Node::new(&mut rng, &plan)).collect();
        let clients: Vec<Client> = plan.clients.iter().map(|kind| Client::new(&mut rng, *kind)).collect();
        Cluster {
            nodes,
            now_ms: 0,
            queue: BTreeMap::new(),
            order: 0,
            engine: Engine::new(options.sabotage),
            engine_is_up: true,
            last_conn: 0,
            lost: BTreeMap::new(),
            lost_in_row: BTreeMap::new(),
            exchanges: 0,
            checker: Checker { streams: vec![0; clients.len()], ..Checker::default() },
            clients,
            tally: ClusterTally::default(),
            heals: false,
            calm_ms: 0,
            sabotage: options.sabotage,
            history: options.trace.then(VecDeque::new),
            rng,
            plan,
        }
    }

    /// Runs to the end, or until a promise is broken.
    fn run(&mut self) -> Result<ClusterTally, Broken> {
        (0..self.nodes.len()).for_each(|node| self.start(node));
        (0..self.clients.len()).for_each(|client| self.at(self.now_ms, What::Act(client)));
        self.at(LOOK_EVERY_MS, What::Look);
        self.pass(BEGIN_MS)?;
        let pause_ms = self.pause_ms();
        self.at(self.now_ms + pause_ms, What::Disrupt);
        self.pass(self.plan.live_ms)?;
        self.heal();
        self.pass(HEAL_MS)?;
        self.check_all();
        self.checker.broken.take().map_or(Ok(self.tally), Err)
    }

    /// Lets time pass, and all happen that happens until then.
    fn pass(&mut self, ms: u64) -> Result<(), Broken> {
        let until_ms = self.now_ms + ms;
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= until_ms) {
            self.now_ms = entry.key().0;
            let what = entry.remove();
            self.happen(what);
            if let Some(broken) = self.checker.broken.take() {
                return Err(broken);
            }
        }
        self.now_ms = until_ms;
        Ok(())
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Wake { node, life, thread } => self.run_thread(node, life, thread),
            What::Command(conn, command) => {
                let is_lost = self.lost.get(&conn).is_some_and(|until_ms| self.now_ms > *until_ms);
                if !is_lost {
                    self.run_command(conn, command);
                }
            }
            What::Event(conn, event) => self.event(conn, event),
            What::Expire(bucket, key, revision) => self.expire(&bucket, &key, revision),
            What::Connect(node) => self.connect(node),
            What::Act(client) => self.act(client),
            What::Respond(client, exchange, response) => self.response(client, exchange, response),
            What::Fate { node, life, exchange, shard, fate } => self.fate((node, life), (shard, exchange), fate),
            What::GiveUp(client, exchange) => self.give_up(client, exchange),
            What::Disrupt => self.disrupt(),
            What::Mend(mend) => self.mend(mend),
            What::Check { client, session, publication } => self.check_in_time(client, session, publication),
            What::Look => self.look(),
        }
    }

    /// Adds an entry to the queue.
    fn at(&mut self, at_ms: u64, what: What) {
        self.order += 1;
        self.queue.insert((at_ms.max(self.now_ms), self.order), what);
    }

    /// The misbehaviour of the engine now.
    fn faults(&self) -> EngineFaults {
        if self.heals { EngineFaults::default() } else { self.plan.engine }
    }

    fn is_sabotaged(&self, sabotage: ClusterSabotage) -> bool {
        self.sabotage == sabotage
    }

    /// Records a step, if recording is on.
    fn note(&mut self, text: impl FnOnce(&Cluster) -> String) {
        if self.history.is_none() {
            return;
        }
        let line = format!("{:>7} ms  {}", self.now_ms, text(self));
        if let Some(history) = &mut self.history {
            if history.len() == HISTORY_MAX {
                history.pop_front();
            }
            history.push_back(line);
        }
    }
}

/// The time in which all nodes begin, in milliseconds: partitions without an owner wait for 10 s.
const BEGIN_MS: u64 = 13_000;
/// The time in which all has to arrive when nothing goes wrong any more, in milliseconds.
const HEAL_MS: u64 = 30_000;
/// The time between two looks at all sessions, in milliseconds.
const LOOK_EVERY_MS: u64 = 1_000;
/// The steps that are recorded.
const HISTORY_MAX: usize = 40_000;
