//! The store of the sessions of a cluster, on its thread: commands about their records go there and not to the engine.
//!
//! ```text
//!   Sessions ── Get, Put ──▶ NodeStore ──▶ Batching ── batches ──▶ store
//!      ▲                         ▲            │   upkeep ── scavenge, purge ──▶ store
//!      └──── answers, gone nodes ┴────────────┘
//! ```
//!
//! Commands that come while batches are on their way gather for the next ones.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use encke_cluster::{Command, Expected, KeyAnswer, KeyFailure, KeyReply, Sessions};
use encke_core::{NodeTag, Settings};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::cluster::link::StoreTask;
use crate::cluster::sessions::stored;
use crate::cluster::store::{SessionStore, SessionStoreSettings, SessionWrite};
use crate::cluster::store_numbers::StoreNumbers;
use crate::threads::upkeep::{Upkeep, UpkeepEvent};

/// The store of a node.
pub(crate) struct NodeStore {
    to_batching: mpsc::UnboundedSender<Asked>,
    to_upkeep: mpsc::Sender<StoreTask>,
    events: mpsc::UnboundedReceiver<StoreEvent>,
    settings: Arc<Settings>,
    numbers: Arc<StoreNumbers>,
    /// The question of the upkeep which nodes are gone.
    probing: Option<Probing>,
    /// True if the store was away, and may have lost entries: all have to be compared.
    may_have_lost: bool,
    /// The time from which on they may be compared, in milliseconds: a store that comes and goes must not be read all the time.
    compare_from_ms: u64,
    unstarted: Option<(Batching, Upkeep)>,
}

/// A question which of these nodes are gone.
struct Probing {
    left: BTreeSet<NodeTag>,
    gone: Vec<NodeTag>,
    done: oneshot::Sender<Vec<NodeTag>>,
}

/// An event of a store.
#[derive(Debug)]
pub(super) enum StoreEvent {
    /// The answer to the command with this number.
    Answer(u64, KeyReply),
    /// The store answers for the first time, or again.
    There,
    /// It does not answer any more, for this reason.
    Away(String),
    /// The upkeep asks.
    Upkeep(UpkeepEvent),
}

/// A command for the store.
enum Asked {
    Read(u64, String),
    Write(u64, SessionWrite),
}

impl NodeStore {
    /// The store of a node. `own`: its tag.
    pub(crate) fn new(
        store: Arc<dyn SessionStore>,
        settings: SessionStoreSettings,
        (server, own): (Arc<Settings>, NodeTag),
        numbers: Arc<StoreNumbers>,
    ) -> NodeStore {
        let (to_batching, asked) = mpsc::unbounded_channel();
        let (to_upkeep, tasks) = mpsc::channel(TASKS_MAX);
        let (to_node, events) = mpsc::unbounded_channel();
        let batching = Batching {
            store: store.clone(),
            numbers: numbers.clone(),
            asked,
            events: to_node.clone(),
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            on_way: JoinSet::new(),
            state: State::Unknown,
            ping: Instant::now(),
        };
        // After the end of the server nobody listens.
        let report = move |event| _ = to_node.send(StoreEvent::Upkeep(event));
        let upkeep = Upkeep::new((store, settings), own, numbers.clone(), tasks, Box::new(report));
        let unstarted = Some((batching, upkeep));
        NodeStore {
            to_batching,
            to_upkeep,
            events,
            settings: server,
            numbers,
            probing: None,
            may_have_lost: false,
            compare_from_ms: 0,
            unstarted,
        }
    }

    /// Starts its tasks, on this runtime.
    pub(super) fn start(&mut self) {
        if let Some((batching, upkeep)) = self.unstarted.take() {
            tokio::spawn(batching.run());
            tokio::spawn(upkeep.run());
        }
    }

    /// Takes a command about the record of a session. Sends back what it does not know.
    pub(super) fn command(&self, command: Command) -> Option<Command> {
        let asked = match command {
            Command::Get { number, key, .. } => Asked::Read(number, key),
            Command::Put { number, key, value, expected, .. } => {
                let expected = match expected {
                    Expected::Revision(version) => Some(version),
                    // The owner of a session always knows what has to be there.
                    Expected::Absent | Expected::Any => None,
                };
                Asked::Write(number, SessionWrite { key, expected, session: stored(value, &self.settings) })
            }
            command => return Some(command),
        };
        // A task that has panicked takes nothing.
        _ = self.to_batching.send(asked);
        None
    }

    /// A request of the HTTP API. It fails if too many wait.
    pub(super) fn task(&self, task: StoreTask) {
        if let Err(TrySendError::Full(task)) = self.to_upkeep.try_send(task) {
            task.fail("too many requests wait for it");
        }
    }

    /// New settings. The time for which a client may stay away is that of a session's next write.
    pub(super) fn set_settings(&mut self, settings: Arc<Settings>) {
        self.settings = settings;
    }

    /// The next event.
    pub(super) async fn next(&mut self) -> Option<StoreEvent> {
        self.events.recv().await
    }

    /// Takes an event, and all others that are there.
    pub(super) fn take(&mut self, now_ms: u64, first: StoreEvent, sessions: &mut Sessions) {
        let mut next = Some(first);
        while let Some(event) = next {
            match event {
                StoreEvent::Answer(number, answer) => sessions.key_answered(now_ms, number, answer),
                StoreEvent::There => {
                    tracing::info!("the store of sessions is there: {}", self.numbers.name);
                }
                StoreEvent::Away(error) => {
                    self.may_have_lost = true;
                    tracing::warn!(
                        error,
                        "the store of sessions is away: {}; sessions go on, their records wait",
                        self.numbers.name
                    );
                }
                StoreEvent::Upkeep(UpkeepEvent::Failed(error)) => {
                    tracing::warn!(error, "a scavenge or purge of {} has failed", self.numbers.name);
                }
                StoreEvent::Upkeep(UpkeepEvent::Probe(nodes, done)) => {
                    let left: BTreeSet<NodeTag> = nodes.into_iter().collect();
                    let asked: Vec<NodeTag> = left.iter().copied().collect();
                    self.probing = Some(Probing { left, gone: Vec::new(), done });
                    asked.into_iter().for_each(|node| sessions.probe(node));
                    self.answer_when_probed();
                }
            }
            next = self.events.try_recv().ok();
        }
        let is_there = self.numbers.is_there.load(Relaxed);
        if self.may_have_lost && is_there && now_ms >= self.compare_from_ms {
            (self.may_have_lost, self.compare_from_ms) = (false, now_ms + COMPARE_EVERY_MS);
            sessions.records_are_back();
        }
    }

    /// A node is there, or gone.
    pub(super) fn probed(&mut self, node: NodeTag, is_gone: bool) {
        let Some(probing) = &mut self.probing else { return };
        if probing.left.remove(&node) && is_gone {
            probing.gone.push(node);
        }
        self.answer_when_probed();
    }

    fn answer_when_probed(&mut self) {
        if let Some(Probing { gone, done, .. }) = self.probing.take_if(|probing| probing.left.is_empty()) {
            // It may have given up.
            _ = done.send(gone);
        }
    }
}

/// The task that sends batches.
struct Batching {
    store: Arc<dyn SessionStore>,
    numbers: Arc<StoreNumbers>,
    asked: mpsc::UnboundedReceiver<Asked>,
    events: mpsc::UnboundedSender<StoreEvent>,
    reads: VecDeque<(u64, String)>,
    writes: VecDeque<(u64, SessionWrite)>,
    on_way: JoinSet<Outcome>,
    state: State,
    /// The time of the next ping while the store does not answer.
    ping: Instant,
}

/// The answer to a batch, or the failure of the whole.
type Outcome = Result<(), String>;

/// The state of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unknown,
    There,
    Away,
}

impl Batching {
    async fn run(mut self) {
        loop {
            self.send_batches();
            let (is_there, is_idle) = (self.state == State::There, self.on_way.is_empty());
            tokio::select! {
                asked = self.asked.recv() => match asked {
                    Some(asked) => self.take(asked),
                    // The server has stopped. Those on their way may still be written.
                    None => return while self.on_way.join_next().await.is_some() {},
                },
                Some(outcome) = self.on_way.join_next() => self.note(outcome.unwrap_or_else(|error| Err(error.to_string()))),
                () = sleep_until(self.ping), if !is_there && is_idle => self.send_ping(),
            }
        }
    }

    /// Takes a command, and all others that are there.
    fn take(&mut self, first: Asked) {
        let mut next = Some(first);
        while let Some(asked) = next {
            match asked {
                Asked::Read(number, key) => self.reads.push_back((number, key)),
                Asked::Write(number, write) => self.writes.push_back((number, write)),
            }
            self.numbers.waiting.fetch_add(1, Relaxed);
            next = self.asked.try_recv().ok();
        }
    }

    fn send_batches(&mut self) {
        while self.on_way.len() < BATCHES_MAX && !(self.reads.is_empty() && self.writes.is_empty()) {
            // Clients wait for reads.
            if !self.reads.is_empty() {
                let count = self.reads.len().min(READS_MAX);
                self.on_way.spawn(read(self.parts(), self.reads.drain(..count).collect()));
            }
            let mut bytes = 0;
            let fits = |(_, write): &&(u64, SessionWrite)| {
                bytes += write.session.record.len() + write.session.attributes.len();
                bytes <= BATCH_BYTES_MAX
            };
            let count = self.writes.iter().take(WRITES_MAX).take_while(fits).count().max(1).min(self.writes.len());
            if count > 0 {
                self.on_way.spawn(write(self.parts(), self.writes.drain(..count).collect()));
            }
        }
    }

    fn send_ping(&mut self) {
        self.ping = Instant::now() + PING_EVERY;
        let store = self.store.clone();
        self.on_way.spawn(async move { store.ping().await.map_err(|error| error.to_string()) });
    }

    fn parts(&self) -> Parts {
        self.numbers.batches.fetch_add(1, Relaxed);
        Parts { store: self.store.clone(), numbers: self.numbers.clone(), events: self.events.clone() }
    }

    /// Reports that the store is there, or away, once.
    fn note(&mut self, outcome: Outcome) {
        let before = self.state;
        self.state = if outcome.is_ok() { State::There } else { State::Away };
        self.numbers.is_there.store(outcome.is_ok(), Relaxed);
        if before != self.state {
            let event = outcome.map_or_else(StoreEvent::Away, |()| StoreEvent::There);
            // The server has stopped.
            _ = self.events.send(event);
        }
    }
}

/// Everything that a batch needs.
struct Parts {
    store: Arc<dyn SessionStore>,
    numbers: Arc<StoreNumbers>,
    events: mpsc::UnboundedSender<StoreEvent>,
}

impl Parts {
    /// Reports the answers to a batch, of which each key has one. If all have failed, so has the batch.
    fn answer(self, numbers: Vec<u64>, answers: Result<Vec<KeyReply>, KeyFailure>) -> Outcome {
        self.numbers.waiting.fetch_sub(numbers.len() as u64, Relaxed);
        let (count, mut failed, mut last) = (numbers.len(), 0, String::new());
        let missing = || Err(KeyFailure::Failed("the store has not answered all".into()));
        let mut answers = answers.map(Vec::into_iter);
        for number in numbers {
            let answer = match &mut answers {
                Ok(answers) => answers.next().unwrap_or_else(missing),
                Err(failure) => Err(failure.clone()),
            };
            if let Err(KeyFailure::Failed(error)) = &answer {
                (failed, last) = (failed + 1, error.clone());
            }
            let counter = match &answer {
                // A store has no journals.
                Ok(KeyAnswer::Found(_) | KeyAnswer::Values { .. }) => &self.numbers.read,
                Ok(KeyAnswer::Written(_)) => &self.numbers.written,
                Err(KeyFailure::Conflict) => &self.numbers.conflicts,
                Err(_) => &self.numbers.failed,
            };
            counter.fetch_add(1, Relaxed);
            // The server has stopped.
            _ = self.events.send(StoreEvent::Answer(number, answer));
        }
        if failed == count { Err(last) } else { Ok(()) }
    }
}

async fn read(parts: Parts, reads: Vec<(u64, String)>) -> Outcome {
    let (numbers, keys): (Vec<u64>, Vec<String>) = reads.into_iter().unzip();
    let store = parts.store.clone();
    let found = guarded(async move { store.read(&keys).await }).await;
    parts.answer(numbers, found.map(|found| found.into_iter().map(|entry| Ok(KeyAnswer::Found(entry))).collect()))
}

async fn write(parts: Parts, writes: Vec<(u64, SessionWrite)>) -> Outcome {
    let (numbers, writes): (Vec<u64>, Vec<SessionWrite>) = writes.into_iter().unzip();
    let store = parts.store.clone();
    let written = guarded(async move { store.write(&writes).await }).await;
    let answers = written.map(|written| written.into_iter().map(|one| one.map(KeyAnswer::Written)).collect());
    parts.answer(numbers, answers)
}

/// The outcome of a store. A panic of it is a failure, so each command has its answer.
async fn guarded<T: Send + 'static>(
    command: impl Future<Output = Result<T, KeyFailure>> + Send + 'static,
) -> Result<T, KeyFailure> {
    let outcome = tokio::spawn(command).await;
    outcome.unwrap_or_else(|error| Err(KeyFailure::Failed(error.to_string())))
}

/// Batches on their way. One more may be, so that reads do not delay writes without end.
const BATCHES_MAX: usize = 4;
/// Requests of the HTTP API that wait until an earlier one is done.
pub(super) const TASKS_MAX: usize = 16;
/// Sessions that one batch reads.
const READS_MAX: usize = 32;
/// Sessions that one batch writes.
const WRITES_MAX: usize = 100;
/// Bytes of records and attributes that one batch writes, unless the first session has more.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The time between two comparisons of all sessions of a node with the store, in milliseconds.
const COMPARE_EVERY_MS: u64 = 60_000;
/// The time between two pings of a store that does not answer.
const PING_EVERY: Duration = Duration::from_secs(1);
