//! One run: a server of several shards, its clients, and the network between them, one small step after another.
//!
//! Every possible event waits in its own queue: bytes, requests, messages between shards, confirmations. Each step
//! takes the head of a random queue, so that all interleavings occur that the real threads and sockets allow.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use encke_core::{Charge, Envelope, ExchangeId, Id, Now, Shard, ShardMessage, Shared, Weight};
use journal::sim::SimDisk;

use crate::application::Recorder;
use crate::by_handle::Changes;
use crate::checker::{Broken, Checker, Invariant, Published};
use crate::client::Client;
use crate::cost::Cost;
use crate::follower::{Follower, Records};
use crate::held::Chain;
use crate::held_shares::HeldShares;
use crate::local::Local;
use crate::log::Log;
use crate::network::Network;
use crate::presence::Presence;
use crate::rights::Holders;
use crate::rng::Rng;
use crate::sabotage::plan_of;
use crate::script::{CHANNELS, Scenario};
use crate::tally::Tally;
use crate::waits::WaitingFuture;
use crate::{Options, Sabotage};

/// A run.
pub struct World {
    pub(crate) rng: Rng,
    pub(crate) scenario: Scenario,
    pub(crate) now: Now,
    pub(crate) shards: Vec<Shard>,
    pub(crate) shared: Arc<Shared>,
    /// Messages on their way to each shard from each other, and to the virtual one of the process; the last queue of
    /// each is for messages from outside.
    pub(crate) in_transit: Vec<Vec<VecDeque<InTransit>>>,
    /// Requests that a shard has received and not processed yet.
    pub(crate) waiting: Vec<(usize, usize)>,
    /// Results of responses, not reported to the shards yet.
    pub(crate) reports: VecDeque<Report>,
    /// Futures of the application for which shards wait.
    pub(crate) waits: Vec<WaitingFuture>,
    /// The identities of sessions.
    pub(crate) holders: Holders,
    /// The subscribers in the process.
    pub(crate) local: Local,
    /// The clients with held requests.
    pub(crate) chains: Vec<Chain>,
    /// The numbers of held requests, in shares of addresses.
    pub(crate) held_shares: HeldShares,
    /// The members of channels with presence.
    pub(crate) presence: Presence,
    /// The requests of handles.
    pub(crate) changes: Changes,
    /// True while a shard flushes, or everything that waits in it is processed.
    pub(crate) is_turn: bool,
    /// The cost of each shard.
    pub(crate) costs: Vec<Cost>,
    pub(crate) recorder: Recorder,
    pub(crate) network: Network,
    pub(crate) clients: Vec<Client>,
    /// The cookie of each browser, and the number of times it was set.
    pub(crate) browsers: Vec<(Option<Id>, u32)>,
    pub(crate) checker: Checker,
    /// The observed contents of the histories.
    pub(crate) records: Records,
    /// True when nothing breaks any more: promised messages must arrive.
    pub(crate) healing: bool,
    pub(crate) drained: bool,
    /// True if the server has ever drained.
    pub(crate) has_drained: bool,
    /// True if the server reads and writes nothing any more: only messages on their way arrive.
    pub(crate) frozen: bool,
    /// The log of the histories, where they are on disk.
    pub(crate) log: Option<Log>,
    /// The latest time that the wall clock has shown, in milliseconds.
    pub(crate) wall_max_ms: u64,
    pub(crate) sabotage: Sabotage,
    pub(crate) sabotaged: u32,
    /// The number of messages that clients have sent.
    pub(crate) message_ids: u64,
    /// Messages that lost their WebSocket before their reply, by message id: the session, and the publication if it is
    /// one.
    pub(crate) late: BTreeMap<u64, (usize, Option<usize>)>,
    /// A text that a sabotaged wire withholds.
    pub(crate) held_back: Option<String>,
    /// Bytes of frames that an empty shard holds.
    pub(crate) empty_frame_bytes: u64,
    history: Option<VecDeque<String>>,
}

/// An item on its way from one shard to another.
#[derive(Debug)]
pub(crate) enum InTransit {
    ShardMessage(Envelope),
    /// A WebSocket that moves: its number, the text that caused the move, and the session that the text names.
    Socket(usize, String, Option<usize>, Charge),
}

/// The result of a response that carries messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) exchange: ExchangeId,
    pub(crate) home: usize,
    pub(crate) taken: bool,
}

impl World {
    /// The world of a seed.
    pub fn new(seed: u64, options: &Options) -> World {
        let mut rng = Rng::new(seed);
        let scenario = plan_of(&mut rng, options.sabotage);
        let recorder = Recorder::default();
        let shared = Shared::new(scenario.shards, Box::new(recorder.clone()));
        // High enough that recovered messages may be old.
        let now = Now { ms: (1 << 40) + rng.between(0, 100_000), wall_ms: WALL_MS };
        let count = scenario.clients.len();
        let (lateness, users, bits) = (scenario.lateness, scenario.users.clone(), rng.bits());
        recorder.with(|recording| {
            recording.sessions = vec![None; count];
            (recording.lateness, recording.rng) = (lateness, Some(Rng::new(bits)));
            (recording.users, recording.wall_ms) = (users, WALL_MS);
            recording.forgets_claims = options.sabotage == Sabotage::ForgottenClaims;
        });
        let mut clients: Vec<Client> =
            scenario.clients.iter().map(|(transport, browser)| Client::new(*transport, *browser)).collect();
        let follows = match (scenario.laden, scenario.outboxes_are_tight()) {
            (true, _) => 900,
            (_, true) => 700,
            _ => 400,
        };
        clients.iter_mut().for_each(|client| client.follower = rng.chance(follows).then(Follower::default));
        let network = Network::new(Rng::new(rng.bits()), scenario.shards, count, scenario.short_writes);
        let checker = Checker {
            returns_to_publisher: scenario.settings[0].broadcast_to_publisher,
            answers_come_late: lateness > 0,
            ..Checker::default()
        };
        let durable = scenario.durable.then(|| SimDisk::new(rng.bits()));
        let world = World {
            in_transit: (0..=scenario.shards)
                .map(|_| (0..=scenario.shards).map(|_| VecDeque::new()).collect())
                .collect(),
            waiting: Vec::new(),
            reports: VecDeque::new(),
            waits: Vec::new(),
            holders: Holders::default(),
            local: Local::new(Arc::new(Shared::new(scenario.shards, Box::new(recorder.clone())))),
            chains: Vec::new(),
            held_shares: HeldShares::default(),
            presence: Presence::default(),
            changes: Changes::default(),
            browsers: vec![(None, 0); count],
            is_turn: false,
            costs: Vec::new(),
            healing: false,
            drained: false,
            sabotage: options.sabotage,
            sabotaged: 0,
            message_ids: 0,
            late: BTreeMap::new(),
            held_back: None,
            history: options.trace.then(VecDeque::new),
            rng,
            scenario,
            now,
            shards: Vec::new(),
            shared: Arc::new(shared),
            log: None,
            wall_max_ms: WALL_MS,
            frozen: false,
            has_drained: false,
            recorder,
            network,
            clients,
            checker,
            records: Records::default(),
            empty_frame_bytes: 0,
        };
        world.begun(durable)
    }

    /// Starts the first process.
    fn begun(mut self, disk: Option<SimDisk>) -> World {
        if let Some(disk) = disk {
            let mut shared = Shared::new(self.scenario.shards, Box::new(self.recorder.clone()));
            self.open_log(disk, &mut shared);
            self.shared = Arc::new(shared);
        }
        self.begin_local();
        self.begin_chains();
        self.shards = self.new_shards();
        self.shards[0].advance(self.now);
        self.empty_frame_bytes = self.shards[0].metrics().frame_bytes.get();
        self
    }

    /// Runs to the end, or until a promise is broken.
    pub fn run(&mut self) -> Result<Tally, Broken> {
        self.live();
        self.heal();
        if !self.is_broken() {
            self.leave();
        }
        self.harvest();
        self.checker.broken.clone().map_or(Ok(self.checker.tally), Err)
    }

    /// The last steps before a promise was broken.
    pub fn history(&self) -> Vec<String> {
        self.history.iter().flatten().cloned().collect()
    }

    /// Records a step, if recording is on.
    pub(crate) fn note(&mut self, text: impl FnOnce(&World) -> String) {
        if self.history.is_none() || self.is_broken() {
            return;
        }
        let line = format!("{:>7} ms  {}", self.now.ms, text(self));
        if let Some(history) = &mut self.history {
            if history.len() == HISTORY_MAX {
                history.pop_front();
            }
            history.push_back(line);
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.checker.broken.is_some()
    }

    /// The main part: all events, in any order.
    fn live(&mut self) {
        for step in 0..self.scenario.steps {
            if self.is_broken() {
                return;
            }
            if self.scenario.drained && step == self.scenario.steps * 9 / 10 {
                self.drain();
            }
            let stop = self.scenario.restarts.iter().find(|(at, _)| *at == step).map(|(_, stop)| *stop);
            if let Some(stop) = stop.filter(|_| !self.drained) {
                self.restart(stop);
                continue;
            }
            self.step();
            if self.rng.chance(self.scenario.faults) {
                self.some_fault();
            }
        }
    }

    /// Makes one random event happen.
    pub(crate) fn step(&mut self) {
        match self.rng.below(100) {
            0..22 => self.some_client(World::act),
            22..42 => self.some_client(World::read),
            42..56 => self.some_upload(),
            56..68 => self.some_exchange(),
            68..78 => self.some_message(),
            78..90 => self.some_turn(),
            90..94 => self.some_report(),
            94..99 => self.some_time(),
            _ => self.some_control(),
        }
        if !self.scenario.users.is_empty() && self.rng.chance(RIGHTS) {
            self.some_right();
        }
        if self.scenario.feeds > 0 && self.rng.chance(FEEDS) {
            self.feed();
        }
        if self.rng.chance(if self.scenario.rush { RUSHED } else { HELD }) {
            self.some_held();
        }
        if self.has_presence() && self.rng.chance(ANNOUNCEMENTS) {
            self.announce();
        }
        if self.scenario.faults > 0 && self.rng.chance(CHANGES) {
            self.some_change();
        }
        if self.scenario.lateness > 0 && self.rng.chance(300) {
            self.some_decision();
        }
        if self.log.is_some() && self.rng.chance(self.scenario.keeping) {
            let most = 1 + self.rng.below(5);
            self.run_store(most);
        }
    }

    /// Lets everything on its way arrive.
    pub(crate) fn pump(&mut self) {
        for _ in 0..PUMP_ROUNDS_MAX {
            if self.is_broken() {
                return;
            }
            let mut moved = false;
            for conn in 0..self.network.conns.len() {
                while self.upload(conn) {
                    moved = true;
                }
            }
            for exchange in 0..self.network.exchanges.len() {
                moved |= self.progress(exchange);
            }
            moved |= self.announce();
            moved |= self.healing && self.drain_held();
            for to in 0..=self.shards.len() {
                for from in 0..=self.shards.len() {
                    while self.deliver_shard_messages(to, from) {
                        moved = true;
                    }
                }
            }
            while self.report() {
                moved = true;
            }
            while self.some_decision() {
                moved = true;
            }
            moved |= self.run_store(usize::MAX);
            for shard in 0..self.shards.len() {
                moved |= self.turn(shard);
            }
            for client in 0..self.clients.len() {
                while self.read_one(client) {
                    moved = true;
                }
            }
            for conn in 0..self.network.conns.len() {
                moved |= self.writable(conn);
            }
            if !moved {
                return;
            }
        }
        if !self.healing {
            return;
        }
        let detail = format!("after {PUMP_ROUNDS_MAX} rounds without any time passing there is still something to do");
        self.checker.fail(Invariant::NumbersAgree, detail);
    }

    fn some_client(&mut self, act: fn(&mut World, usize)) {
        let client = self.rng.below(self.clients.len());
        act(self, client);
    }

    fn some_upload(&mut self) {
        let busy: Vec<usize> =
            (0..self.network.conns.len()).filter(|conn| !self.network.conns[*conn].up.is_empty()).collect();
        if !busy.is_empty() {
            let conn = self.rng.pick(&busy);
            self.upload(conn);
        }
    }

    fn some_exchange(&mut self) {
        let busy: Vec<usize> =
            (0..self.network.exchanges.len()).filter(|x| self.network.exchanges[*x].may_progress()).collect();
        if !busy.is_empty() {
            let exchange = self.rng.pick(&busy);
            self.progress(exchange);
        }
    }

    fn some_message(&mut self) {
        let (to, from) = (self.rng.below(self.shards.len() + 1), self.rng.below(self.shards.len() + 1));
        for _ in 0..=self.rng.below(3) {
            self.deliver_shard_messages(to, from);
        }
    }

    fn some_turn(&mut self) {
        let shard = self.rng.below(self.shards.len());
        self.turn(shard);
        for conn in 0..self.network.conns.len() {
            if self.network.conns[conn].shard == shard && self.rng.chance(300) {
                self.writable(conn);
            }
        }
    }

    fn some_report(&mut self) {
        self.report();
    }

    fn some_time(&mut self) {
        let jump_ms = if self.rng.chance(30) { self.scenario.jump_ms } else { 60 };
        let step_ms = self.rng.between(1, jump_ms.max(1));
        self.pass(step_ms);
    }

    fn some_fault(&mut self) {
        if self.log.is_some() && self.rng.chance(200) {
            return if self.rng.chance(500) { self.break_disk() } else { self.mend_disk() };
        }
        let alive: Vec<usize> =
            (0..self.network.conns.len()).filter(|conn| self.network.conns[*conn].is_up()).collect();
        if alive.is_empty() || self.rng.chance(300) {
            return self.some_client(World::break_exchange);
        }
        let conn = self.rng.pick(&alive);
        self.checker.tally.breaks += 1;
        self.note(|_| format!("connection {conn} breaks"));
        let client = self.network.conns[conn].client;
        for text in self.network.break_off(conn) {
            self.checker.lost(client, &text);
        }
    }

    /// A random control call to the whole server.
    fn some_control(&mut self) {
        let outside = self.shards.len();
        if self.rng.chance(300) {
            let channel = self.rng.pick(&CHANNELS);
            self.publish_from_outside(channel);
            return;
        }
        if self.rng.chance(150) {
            let known: Vec<usize> =
                (0..self.checker.sessions.len()).filter(|s| self.checker.sessions[*s].alive).collect();
            if known.is_empty() || self.scenario.faults == 0 {
                return;
            }
            let session = self.rng.pick(&known);
            self.note(|_| format!("session {session} is to be ended"));
            let session = &mut self.checker.sessions[session];
            session.kicked = true;
            let id = session.id;
            self.send_to_shard(id.shard(), outside, ShardMessage::Disconnect(id));
        } else {
            let which = self.rng.below(2);
            let settings = Arc::new(self.scenario.settings[which].clone());
            for to in 0..self.shards.len() {
                self.send_to_shard(to, outside, ShardMessage::Settings(settings.clone()));
            }
        }
    }

    /// A handle of the server publishes something.
    pub(crate) fn publish_from_outside(&mut self, channel: &str) {
        if !self.shared.mailbox.has_room(Weight::Heavy) {
            return self.note(|_| "the server is too busy for a publication".into());
        }
        let number = self.checker.publications.len();
        let to = self.shared.histories.owner(channel);
        let data = format!("{{\"k\":{number},\"big\":12345678901234567890.10,\"from\":\"outside\"}}");
        // Messages to one shard stay in order.
        let (from, stream) = (usize::MAX, usize::MAX - to);
        let publication =
            Published { from, stream, channel: channel.into(), data: data.clone(), repeated: false, copies: 0 };
        self.checker.publications.push(publication);
        let outside = self.shards.len();
        self.checker.published(&data);
        let publication = encke_core::Publication::of_server(&self.shared.mailbox, channel, &data);
        self.send_to_shard(to, outside, ShardMessage::Record(publication.into()));
    }

    /// Puts a message into the mailbox of a shard.
    pub(crate) fn send_to_shard(&mut self, to: usize, from: usize, message: ShardMessage) {
        let envelope = Envelope::new(&self.shared.mailbox, message);
        self.in_transit[to][from].push_back(InTransit::ShardMessage(envelope));
    }
}

/// The time of day when a run begins, in milliseconds.
const WALL_MS: u64 = 1_700_000_000_000;
/// Changes of rights, and of subscriptions by handles, per thousand steps.
const RIGHTS: usize = 15;
const CHANGES: usize = 20;
/// Publications on feeds, per thousand steps.
const FEEDS: usize = 50;
/// Turns of clients with held requests, per thousand steps.
const HELD: usize = 80;
/// The same where clients have more requests than may be held.
const RUSHED: usize = 500;
/// Turns of the thread that announces members, per thousand steps.
const ANNOUNCEMENTS: usize = 100;
/// The number of recorded steps.
const HISTORY_MAX: usize = 4_000;
/// Rounds of letting messages arrive: with a small account of bytes between shards each may admit only one message.
const PUMP_ROUNDS_MAX: usize = 4_000;
