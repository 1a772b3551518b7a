//! Leases of a cluster, on its thread.

use std::collections::BTreeMap;
use std::time::Duration;

use encke_cluster::{LeaseOutput, Leases};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::cluster::engine::{EngineCommand, EngineEvent};

/// The leases that this node wants.
pub(crate) struct NodeLeases {
    machine: Leases,
    /// Those who wait for each of them, and the time until which the node holds it.
    wanted: BTreeMap<Box<str>, (Vec<Waiting>, Option<Instant>)>,
}

/// Learns until when this node holds a lease.
pub(crate) type Waiting = watch::Sender<Option<Instant>>;

impl NodeLeases {
    /// Those of a node whose engine is away.
    pub(crate) fn new(machine: Leases) -> NodeLeases {
        NodeLeases { machine, wanted: BTreeMap::new() }
    }

    /// A part of the program wants a lease.
    pub(super) fn want(&mut self, now_ms: u64, name: Box<str>, waiting: Waiting) {
        self.machine.want(now_ms, &name);
        let (all, until) = self.wanted.entry(name).or_default();
        waiting.send_replace(*until);
        all.push(waiting);
    }

    /// Takes an event of the engine, if it concerns leases.
    pub(super) fn take(&mut self, event: &EngineEvent, now_ms: u64) {
        let own = self.machine.bucket();
        match event {
            EngineEvent::Connected { .. } => self.machine.connected(now_ms),
            EngineEvent::Disconnected => self.machine.disconnected(),
            EngineEvent::KeyAnswer { number, answer } if Leases::has_sent(*number) => {
                self.machine.key_answered(now_ms, *number, answer);
            }
            EngineEvent::WatchBegins { bucket, .. } if bucket == own => self.machine.watch_begins(),
            EngineEvent::WatchComplete { bucket, .. } if bucket == own => self.machine.watch_is_complete(now_ms),
            EngineEvent::KeyChanged { bucket, key, revision, value } if bucket == own => {
                self.machine.key_changed(now_ms, key, *revision, value.as_ref());
            }
            _ => {}
        }
    }

    /// The engine has ended.
    pub(super) fn disconnected(&mut self) {
        self.machine.disconnected();
    }

    /// Does what has to be done, and passes it on.
    pub(super) fn turn(&mut self, now_ms: u64, commands: &mpsc::UnboundedSender<EngineCommand>) {
        let machine = &mut self.machine;
        self.wanted.retain(|name, (all, _)| {
            all.retain(|waiting| !waiting.is_closed());
            if all.is_empty() {
                machine.give_up(name);
            }
            !all.is_empty()
        });
        self.machine.turn(now_ms);
        for output in self.machine.take_outputs() {
            match output {
                // An engine that has ended takes nothing.
                LeaseOutput::Engine(command) => _ = commands.send(command),
                LeaseOutput::Holds(name, until_ms) => {
                    let Some((all, until)) = self.wanted.get_mut(&name) else { continue };
                    if until.is_some() != until_ms.is_some() {
                        tracing::info!(lease = &*name, is_held = until_ms.is_some(), "a lease of the cluster");
                    }
                    let end = |until_ms: u64| Instant::now() + Duration::from_millis(until_ms.saturating_sub(now_ms));
                    *until = until_ms.map(end);
                    all.iter().for_each(|waiting| _ = waiting.send_replace(*until));
                }
            }
        }
    }

    /// The time of the next turn, if nothing happens before, in milliseconds.
    pub(super) fn next_ms(&self, now_ms: u64) -> Option<u64> {
        self.machine.next_ms(now_ms)
    }

    /// The server stops: gives up all leases. True when that is done.
    pub(super) fn end(&mut self) -> bool {
        self.machine.end();
        self.machine.has_ended()
    }

    /// The number of leases that this node holds.
    pub(super) fn held(&self) -> usize {
        self.machine.held()
    }
}
