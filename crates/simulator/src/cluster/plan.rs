//! The plan of a seed: the nodes, the clients and what may go wrong.

use crate::rng::Rng;

/// The guarantees that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// None.
    Plain,
    /// It acknowledges.
    Ack,
    /// It acknowledges and replays.
    AckReplay,
    /// It replays.
    Replay,
}

impl Kind {
    pub(super) fn acknowledges(self) -> bool {
        matches!(self, Kind::Ack | Kind::AckReplay)
    }

    pub(super) fn replays(self) -> bool {
        matches!(self, Kind::Replay | Kind::AckReplay)
    }
}

/// Misbehaviour of the engine, each in this many of 1,000 cases.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EngineFaults {
    /// Messages about histories that are lost.
    pub(super) loses: usize,
    /// Messages about histories that come twice.
    pub(super) doubles: usize,
    /// Messages that are delayed by at most 400 ms.
    pub(super) delays: usize,
    /// Requests, or their answers, that are lost.
    pub(super) loses_requests: usize,
    /// Answers about keys that are lost, though the key was written.
    pub(super) forgets_answer: usize,
    /// Changes of keys that are reported up to two seconds late.
    pub(super) reports_late: usize,
    /// Reads, and watches that begin, with old values.
    pub(super) reads_old: usize,
}

/// Something that happens to a node or to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disruption {
    /// A node is killed. Another one starts in its slot.
    Kill,
    /// All nodes are killed.
    KillAll,
    /// A node does nothing for a while. Its connections stay.
    Pause,
    /// A node is cut off from the engine.
    Cut,
    /// The connection of a node breaks, and is there again at once.
    Break,
    /// The engine restarts.
    Restart,
    /// The engine restarts and has lost all keys.
    LoseKeys,
}

/// The plan of a seed.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    pub(super) shards: usize,
    /// True if the engine keeps journals of histories.
    pub(super) has_journal: bool,
    pub(super) clients: Vec<Kind>,
    pub(super) engine: EngineFaults,
    /// The disruptions of this run.
    pub(super) disruptions: Vec<Disruption>,
    /// A node is disrupted only while all nodes have all messages.
    pub(super) is_careful: bool,
    /// The time between two disruptions, in milliseconds.
    pub(super) pause_ms: (u64, u64),
    /// The time in which things go wrong, in milliseconds.
    pub(super) live_ms: u64,
    /// Connections of clients that break, for 1,000 responses.
    pub(super) client_breaks: usize,
    /// The differences of the clocks, in milliseconds.
    pub(super) skew_ms: u64,
    /// The messages that a history retains.
    pub(super) history_messages: usize,
    /// Publications, for 1,000 actions of clients.
    pub(super) publishes: usize,
}

impl Plan {
    pub(super) fn new(rng: &mut Rng, has_journal: bool) -> Plan {
        let kinds = [Kind::Plain, Kind::Ack, Kind::AckReplay, Kind::Replay, Kind::Ack, Kind::AckReplay];
        let all: &[Disruption] = if has_journal { &WITH_JOURNAL } else { &WITHOUT };
        let disruptions = (0..rng.below(4)).map(|_| rng.pick(all)).collect();
        let is_bad = rng.chance(500);
        let some = |rng: &mut Rng, most: usize| if is_bad { rng.below(most + 1) } else { 0 };
        let engine = EngineFaults {
            loses: some(rng, 40),
            doubles: some(rng, 40),
            delays: some(rng, 120),
            loses_requests: some(rng, 30),
            forgets_answer: some(rng, 60),
            reports_late: some(rng, 60),
            reads_old: some(rng, 250),
        };
        let count = 3 + rng.below(6);
        Plan {
            nodes: 2 + rng.below(3),
            shards: 1 + rng.below(2),
            has_journal,
            clients: (0..count).map(|_| rng.pick(&kinds)).collect(),
            engine,
            disruptions,
            is_careful: rng.chance(400),
            pause_ms: if rng.chance(500) { (500, 5_000) } else { (3_000, 20_000) },
            live_ms: rng.between(10_000, 50_000),
            client_breaks: if rng.chance(600) { rng.below(30) } else { 0 },
            skew_ms: if rng.chance(500) { 3_600_000 } else { 0 },
            history_messages: if rng.chance(150) { 5 } else { 2_000 },
            publishes: 200 + rng.below(500),
        }
    }
}

/// The disruptions of a cluster without journals. Those that come twice are chosen more often.
const WITHOUT: [Disruption; 8] = [
    Disruption::Kill,
    Disruption::Kill,
    Disruption::Pause,
    Disruption::Cut,
    Disruption::Cut,
    Disruption::Break,
    Disruption::Restart,
    Disruption::LoseKeys,
];
/// Those of one with journals.
const WITH_JOURNAL: [Disruption; 8] = [
    Disruption::Kill,
    Disruption::KillAll,
    Disruption::KillAll,
    Disruption::Pause,
    Disruption::Cut,
    Disruption::Break,
    Disruption::Restart,
    Disruption::LoseKeys,
];
