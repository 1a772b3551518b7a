//! The threads of a node: one for each shard, and that of the cluster. Each runs some time after something has come for it.

use std::sync::atomic::Ordering;

use encke_cluster::MemberOutput;
use encke_core::{
    Effect, Envelope, ExchangeId, ForNodes, FromNodes, OTHER_NODES, Persisted, PublishToken, Response, ShardMessage,
};

use super::node::{Input, Mailboxes, NoSockets, ToCluster};
use super::sabotage::ClusterSabotage;
use super::{Cluster, Fate, What};

impl Cluster {
    /// A thread of a node runs soon.
    pub(super) fn wake(&mut self, node: usize, thread: usize) {
        let delay_ms = self.rng.between(0, 1);
        self.wake_at(node, thread, self.now_ms + delay_ms);
    }

    fn wake_at(&mut self, node: usize, thread: usize, at_ms: u64) {
        let state = &mut self.nodes[node];
        let at_ms = at_ms.max(state.paused_ms).max(self.now_ms);
        let Some(machine) = &mut state.machine else { return };
        if machine.wakes[thread].is_some_and(|wakes_ms| wakes_ms <= at_ms && wakes_ms >= state.paused_ms) {
            return;
        }
        machine.wakes[thread] = Some(at_ms);
        let life = state.life;
        self.at(at_ms, What::Wake { node, life, thread });
    }

    pub(super) fn run_thread(&mut self, node: usize, life: u64, thread: usize) {
        let (now_ms, state) = (self.now_ms, &mut self.nodes[node]);
        let Some(machine) = state.machine.as_mut().filter(|_| state.life == life) else { return };
        if machine.wakes[thread] != Some(now_ms) {
            return;
        }
        machine.wakes[thread] = None;
        if now_ms < state.paused_ms {
            return self.wake_at(node, thread, now_ms);
        }
        if thread == machine.cluster_thread() {
            self.run_cluster_thread(node);
        } else {
            self.run_shard(node, thread);
        }
    }

    fn run_cluster_thread(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        let now = state.now(self.now_ms);
        let Some(machine) = &mut state.machine else { return };
        let member = &mut machine.member;
        for message in std::mem::take(&mut machine.to_cluster) {
            match message {
                ToCluster::Publications(publications) => member.node.publish(&publications),
                ToCluster::Ask(names, token) => member.node.ask(names, token),
                ToCluster::Message(message) => member.from_shard(now.ms, message),
            }
        }
        for event in std::mem::take(&mut machine.events) {
            // Nothing else is sent to the subjects.
            if let Err(error) = member.take(event, now.ms, &machine.shared) {
                panic!("an envelope of a node is none: {error}");
            }
        }
        let mailboxes = Mailboxes { shared: machine.shared.clone(), sent: Vec::new().into() };
        member.turn(now, &mailboxes);
        while member.deliver(&mailboxes) {}
        let outputs = member.take_outputs();
        let next_ms = member.next_ms(now.ms).map(|next_ms| self.now_ms + next_ms.saturating_sub(now.ms));
        if !state.is_ready {
            let level = member.histories().map_or(0, |histories| histories.counts().level);
            state.is_ready = level == encke_core::history::PARTITIONS;
        }
        let thread = machine.cluster_thread();
        for (shard, message) in mailboxes.sent.into_inner() {
            self.send_to_shard(node, shard, message);
        }
        for output in outputs {
            if let MemberOutput::Engine(command) = output {
                self.command(node, command);
            }
        }
        next_ms.into_iter().for_each(|at_ms| self.wake_at(node, thread, at_ms.max(self.now_ms + 1)));
    }

    fn run_shard(&mut self, node: usize, index: usize) {
        let state = &mut self.nodes[node];
        let now = state.now(self.now_ms);
        let Some(machine) = &mut state.machine else { return };
        let shard = &mut machine.shards[index];
        for input in std::mem::take(&mut machine.inputs[index]) {
            match input {
                Input::Message(envelope) => shard.receive(now, envelope),
                Input::Request(request) => _ = shard.request(now, *request),
                Input::Abandoned(exchange) => shard.abandoned(now, exchange),
                Input::Delivered(exchange, is_taken) => shard.delivered(now, exchange, is_taken),
            }
        }
        shard.advance(now);
        let mut effects = shard.take_effects();
        for _ in 0..FLUSHES_MAX {
            let is_more = shard.flush(now, &mut NoSockets, &mut || false);
            effects.extend(shard.take_effects());
            if !is_more && shard.is_settled() {
                break;
            }
        }
        let (has_changed, cluster) = (machine.has_changes.swap(false, Ordering::Relaxed), machine.cluster_thread());
        for effect in effects {
            self.effect(node, effect);
        }
        if has_changed {
            self.wake(node, cluster);
        }
        self.wake_at(node, index, self.now_ms + TICK_MS);
    }

    fn effect(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Respond(exchange, response) => self.respond(node, exchange, response),
            Effect::SendToShard(to, message) if to == usize::from(OTHER_NODES) => {
                self.send_to_cluster(node, ToCluster::Message(message));
            }
            Effect::SendToShard(to, message) => self.send_to_shard(node, to, message),
            Effect::SendToNodes(publications) => self.send_to_cluster(node, ToCluster::Publications(publications)),
            Effect::AwaitInterest(names, token) => self.send_to_cluster(node, ToCluster::Ask(names, token)),
            // Nobody has sockets, presence, a disk or an application that waits.
            _ => {}
        }
    }

    fn send_to_cluster(&mut self, node: usize, message: ToCluster) {
        if let ToCluster::Message(ShardMessage::Record(publications)) = &message
            && let Some(token) = publications.token.filter(|_| self.is_sabotaged(ClusterSabotage::EarlyConfirmation))
        {
            let persisted = Persisted { number: token.number, is_persisted: true };
            self.send_to_shard(node, token.shard.into(), ShardMessage::Persisted(vec![persisted]));
        }
        let Some(machine) = &mut self.nodes[node].machine else { return };
        machine.to_cluster.push(message);
        let thread = machine.cluster_thread();
        self.wake(node, thread);
    }

    pub(super) fn send_to_shard(&mut self, node: usize, shard: usize, message: ShardMessage) {
        match &message {
            ShardMessage::FromNodes(FromNodes::Tick(tick)) if self.is_sabotaged(ClusterSabotage::EarlyPosition) => {
                let confirmed = ForNodes::Confirmed { shard, tick: *tick, has_late: false };
                return self.send_to_cluster(node, ToCluster::Message(ShardMessage::ForNodes(confirmed)));
            }
            ShardMessage::FromNodes(FromNodes::Leave(_)) => {
                if self.is_sabotaged(ClusterSabotage::ForgottenTakeOver) {
                    return;
                }
                self.tally.left += 1;
            }
            ShardMessage::FromNodes(FromNodes::Restore(_, restored)) => {
                self.tally.taken_over += u64::from(!restored.is_whole);
            }
            _ => {}
        }
        if let ShardMessage::Delivered(exchange, is_taken) = &message {
            self.note(|_| format!("shard {shard} of node {node} learns that {exchange:?} was taken: {is_taken}"));
        }
        let Some(machine) = &mut self.nodes[node].machine else { return };
        // Handles and subscribers in the process are not there.
        if shard < machine.shards.len() {
            let envelope = Envelope::new(&machine.shared.mailbox, message);
            self.give(node, shard, Input::Message(envelope));
        }
    }

    /// Something waits for a shard.
    pub(super) fn give(&mut self, node: usize, shard: usize, input: Input) {
        if let Some(machine) = &mut self.nodes[node].machine {
            machine.inputs[shard].push_back(input);
            self.wake(node, shard);
        }
    }

    /// A node answers a request.
    fn respond(&mut self, node: usize, exchange: ExchangeId, response: Response) {
        let number = exchange.number;
        let client = self.clients.iter().position(|client| client.awaits(number, node, self.nodes[node].life));
        let breaks = !self.heals && self.rng.chance(self.plan.client_breaks);
        // The kernel may take bytes that nobody reads any more.
        let is_taken = client.is_some() && (!breaks || self.rng.chance(500));
        if let Some(shard) = response.confirm {
            self.report_fate(node, exchange, Fate::Delivered(shard, is_taken));
        }
        let Some(client) = client else { return };
        if breaks {
            self.note(|_| format!("the connection of client {client} breaks before its response {number}"));
        }
        let at_ms = self.now_ms + self.rng.between(0, 3);
        self.at(at_ms, What::Respond(client, number, (!breaks).then_some(response)));
    }

    /// A node learns of the fate of a request or its response soon.
    pub(super) fn report_fate(&mut self, node: usize, exchange: ExchangeId, fate: Fate) {
        let (life, at_ms) = (self.nodes[node].life, self.now_ms + self.rng.between(0, 3));
        let ExchangeId { shard, number } = exchange;
        self.at(at_ms, What::Fate { node, life, exchange: number, shard, fate });
    }

    pub(super) fn fate(&mut self, (node, life): (usize, u64), (shard, number): (u16, u64), fate: Fate) {
        if self.nodes[node].life != life {
            return;
        }
        let exchange = ExchangeId { shard, number };
        match fate {
            Fate::Abandoned => self.give(node, shard.into(), Input::Abandoned(exchange)),
            Fate::Delivered(home, is_taken) if home == shard => {
                self.give(node, home.into(), Input::Delivered(exchange, is_taken));
            }
            Fate::Delivered(OTHER_NODES, is_taken) => {
                let message = ShardMessage::Delivered(exchange, is_taken);
                self.send_to_cluster(node, ToCluster::Message(message));
            }
            Fate::Delivered(home, is_taken) => {
                debug_assert_ne!(home, PublishToken::HANDLES);
                self.send_to_shard(node, home.into(), ShardMessage::Delivered(exchange, is_taken));
            }
        }
    }
}

/// The time between two ticks of a shard, in milliseconds.
const TICK_MS: u64 = 100;
/// The most flushes of one turn.
const FLUSHES_MAX: usize = 100;
