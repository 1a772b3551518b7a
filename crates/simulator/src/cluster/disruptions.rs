//! Nodes that are killed, paused and cut off, and an engine that restarts.

use super::node::Machine;
use super::plan::Disruption;
use super::sabotage::ClusterSabotage;
use super::{Cluster, Mend, What};

impl Cluster {
    /// The time until the next disruption, in milliseconds.
    pub(super) fn pause_ms(&mut self) -> u64 {
        let (least_ms, most_ms) = self.plan.pause_ms;
        self.rng.between(least_ms, most_ms)
    }

    /// A node begins in a slot.
    pub(super) fn start(&mut self, node: usize) {
        let now_ms = self.now_ms;
        if self.nodes[node].machine.is_some() {
            return;
        }
        self.nodes[node].life += 1;
        let now = self.nodes[node].now(now_ms);
        let others: Vec<_> = self.nodes.iter().filter_map(|node| node.machine.as_ref()).map(|it| it.tag).collect();
        let machine = Machine::new(&mut self.rng, &self.plan, now, &others);
        let threads = machine.wakes.len();
        self.note(|_| format!("node {node} begins as {:?}", machine.tag));
        let state = &mut self.nodes[node];
        (state.machine, state.is_ready, state.paused_ms, state.steady_ms) = (Some(machine), false, 0, now_ms);
        (0..threads).for_each(|thread| self.wake(node, thread));
        self.at(now_ms + 20, What::Connect(node));
        self.is_disturbed();
    }

    /// Something goes wrong now: what is promised for calm times only is not promised.
    pub(super) fn is_disturbed(&mut self) {
        self.calm_ms = self.now_ms;
        self.checker.disturbed_ms.push(self.now_ms);
    }

    /// True if all nodes are there and have all partitions in sync.
    fn is_level(&self) -> bool {
        self.nodes.iter().all(|node| {
            let histories = node.machine.as_ref().and_then(|machine| machine.member.histories());
            let counts = histories.map(encke_cluster::Histories::counts).unwrap_or_default();
            node.link.is_connected && node.paused_ms <= self.now_ms && counts.in_sync == encke_core::history::PARTITIONS
        })
    }

    /// Something goes wrong.
    pub(super) fn disrupt(&mut self) {
        if self.heals {
            return;
        }
        let pause_ms = self.pause_ms();
        self.at(self.now_ms + pause_ms, What::Disrupt);
        if self.plan.disruptions.is_empty() || (self.plan.is_careful && !self.is_level()) {
            return;
        }
        let disruption = self.rng.pick(&self.plan.disruptions);
        let node = self.rng.below(self.nodes.len());
        match disruption {
            Disruption::Restart | Disruption::LoseKeys => self.restart_engine(disruption == Disruption::LoseKeys),
            Disruption::KillAll => {
                let alive = (0..self.nodes.len()).filter(|node| self.nodes[*node].machine.is_some());
                alive.collect::<Vec<_>>().into_iter().for_each(|node| self.kill(node));
            }
            _ if self.nodes[node].machine.is_none() => {}
            Disruption::Kill => self.kill(node),
            Disruption::Pause => {
                let most_ms = self.rng.pick(&[2_000, 8_000, 60_000]);
                let ms = self.rng.between(300, most_ms);
                self.pause(node, ms);
            }
            Disruption::Cut => {
                let ms = self.rng.between(100, 15_000);
                self.cut(node, ms);
            }
            Disruption::Break => {
                self.is_disturbed();
                self.tally.engine_breaks += 1;
                self.disconnect(node);
                let at_ms = self.now_ms + self.rng.between(0, 500);
                self.at(at_ms, What::Connect(node));
            }
        }
    }

    fn kill(&mut self, node: usize) {
        self.is_disturbed();
        self.tally.kills += 1;
        self.note(|_| format!("node {node} is killed"));
        self.forget_unrecorded(node);
        self.disconnect(node);
        self.count_machine(node);
        let state = &mut self.nodes[node];
        (state.machine, state.is_ready, state.link) = (None, false, Default::default());
        let life = state.life;
        // Their clients see it soon.
        for client in 0..self.clients.len() {
            if let Some(exchange) = self.clients[client].waits_at(node, life) {
                let at_ms = self.now_ms + self.rng.between(0, 50);
                self.at(at_ms, What::Respond(client, exchange, None));
            }
        }
        let at_ms = self.now_ms + self.rng.between(100, 12_000);
        self.at(at_ms, What::Mend(Mend::Start(node)));
    }

    /// A node takes along what it has granted and no record has.
    fn forget_unrecorded(&mut self, node: usize) {
        let recorded_ms = self.nodes[node].recorded_ms(self.now_ms);
        for client in &mut self.clients {
            if client.session.is_some_and(|session| self.nodes[node].has(&session)) {
                let is_recorded = |at_ms: &u64| *at_ms < recorded_ms;
                client.granted.values_mut().for_each(|granted| *granted = granted.filter(is_recorded));
            }
        }
    }

    fn pause(&mut self, node: usize, ms: u64) {
        self.is_disturbed();
        self.tally.pauses += 1;
        self.note(|_| format!("node {node} pauses for {ms} ms"));
        let state = &mut self.nodes[node];
        state.link.no_longer_writes(self.now_ms);
        state.link.made_ms = self.now_ms + ms;
        state.paused_ms = self.now_ms + ms;
        state.steady_ms = state.paused_ms;
        if self.sabotage == ClusterSabotage::StoppedClock {
            state.clock_ms = state.clock_ms.saturating_sub(ms);
        }
        self.checker.disturbed_ms.push(self.now_ms + ms);
        self.calm_ms = self.now_ms + ms;
    }

    fn cut(&mut self, node: usize, ms: u64) {
        self.is_disturbed();
        self.tally.cuts += 1;
        self.note(|_| format!("node {node} is cut off for {ms} ms"));
        self.nodes[node].link.is_cut = true;
        self.disconnect(node);
        self.at(self.now_ms + ms, What::Mend(Mend::Join(node)));
    }

    fn restart_engine(&mut self, loses_keys: bool) {
        if !self.engine_is_up {
            return;
        }
        self.is_disturbed();
        self.engine_is_up = false;
        (0..self.nodes.len()).for_each(|node| self.disconnect(node));
        match loses_keys {
            true => {
                self.tally.keys_lost += 1;
                self.engine.lose_keys();
            }
            false => self.tally.engine_restarts += 1,
        }
        let ms = self.rng.between(50, 8_000);
        self.note(|_| format!("the engine restarts and is away for {ms} ms; its keys are lost: {loses_keys}"));
        self.at(self.now_ms + ms, What::Mend(Mend::Engine));
    }

    /// A disruption ends.
    pub(super) fn mend(&mut self, mend: Mend) {
        match mend {
            Mend::Start(node) => self.start(node),
            Mend::Join(node) => {
                if std::mem::replace(&mut self.nodes[node].link.is_cut, false) {
                    self.is_disturbed();
                    self.connect(node);
                }
            }
            Mend::Engine => {
                if !std::mem::replace(&mut self.engine_is_up, true) {
                    self.is_disturbed();
                    for node in 0..self.nodes.len() {
                        let at_ms = self.now_ms + self.rng.between(0, 500);
                        self.at(at_ms, What::Connect(node));
                    }
                }
            }
        }
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) {
        self.note(|_| "nothing goes wrong any more".into());
        self.heals = true;
        self.mend(Mend::Engine);
        for node in 0..self.nodes.len() {
            self.start(node);
            self.mend(Mend::Join(node));
            let state = &mut self.nodes[node];
            if state.paused_ms > self.now_ms + 1 {
                let early_ms = state.paused_ms - self.now_ms - 1;
                if self.sabotage == ClusterSabotage::StoppedClock {
                    state.clock_ms += early_ms;
                }
                state.paused_ms = self.now_ms + 1;
                state.steady_ms = self.now_ms;
                let threads = state.machine.as_ref().map_or(0, |machine| machine.wakes.len());
                (0..threads).for_each(|thread| self.wake(node, thread));
            }
        }
        self.calm_ms = self.now_ms;
    }

    /// Adds the counts of a node to the tally.
    pub(super) fn count_machine(&mut self, node: usize) {
        let Some(machine) = &self.nodes[node].machine else { return };
        let sessions = machine.member.sessions.counts();
        self.tally.forwarded += sessions.forwarded;
        self.tally.records += sessions.records_written;
        self.tally.copies_dropped += machine.member.node.counts().doubled;
    }
}
