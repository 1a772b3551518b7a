//! A run from its beginning to its end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use encke_core::{Now, Shared};
use simulated_disk::SimDisk;

use crate::application::Recorder;
use crate::changes::Changes;
use crate::checker::{Broken, Checker};
use crate::client::Client;
use crate::follower::Follower;
use crate::holders::Holders;
use crate::local::Local;
use crate::members::Presence;
use crate::network::Network;
use crate::plan::plan_of;
use crate::records::Records;
use crate::rng::Rng;
use crate::sabotage::{Options, Sabotage};
use crate::tally::Tally;
use crate::world::World;

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
        let mut network = Network::new(Rng::new(rng.bits()), scenario.shards, count, scenario.short_writes);
        network.offers.share = scenario.offering;
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
            holds: Arc::default(),
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
}

/// The time of day when a run begins, in milliseconds.
const WALL_MS: u64 = 1_700_000_000_000;
