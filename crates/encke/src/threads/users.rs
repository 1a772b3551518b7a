//! The limits of users over the nodes of a cluster, on its thread.

use std::sync::Arc;

use encke_cluster::{UserLimitCounts, UserLimits};
use encke_core::Settings;
use tokio::sync::mpsc;

use crate::cluster::engine::{EngineCommand, EngineEvent};
use crate::cluster::link::Link;
use crate::net::server_shared::ServerShared;

/// The use of users on the nodes.
pub(crate) struct NodeUsers {
    machine: UserLimits,
    settings: Arc<Settings>,
}

impl NodeUsers {
    /// Those of a node whose engine is away.
    pub(crate) fn new(machine: UserLimits, settings: Arc<Settings>) -> NodeUsers {
        NodeUsers { machine, settings }
    }

    /// Takes new settings.
    pub(super) fn set_settings(&mut self, settings: Arc<Settings>) {
        self.settings = settings;
    }

    /// Takes an event of the engine, if it concerns the use of users.
    pub(super) fn take(&mut self, event: &EngineEvent, now_ms: u64, server: &ServerShared) {
        let users = &server.shared().limits.users_of_nodes;
        match event {
            EngineEvent::Connected { envelope_bytes_max } => self.machine.connected(*envelope_bytes_max),
            EngineEvent::Disconnected => self.machine.disconnected(users),
            EngineEvent::Notified { key: UserLimits::LISTENS_BY, body } => self.machine.received(now_ms, body, users),
            _ => {}
        }
    }

    /// The engine has ended.
    pub(super) fn disconnected(&mut self, server: &ServerShared) {
        self.machine.disconnected(&server.shared().limits.users_of_nodes);
    }

    /// Does what has to be done, and passes it on.
    pub(super) fn turn(
        &mut self,
        now_ms: u64,
        (server, link): (&ServerShared, &Link),
        commands: &mpsc::UnboundedSender<EngineCommand>,
    ) {
        if now_ms >= self.machine.next_ms() {
            let (own, nodes) = link.nodes();
            let others: Vec<u64> = nodes.iter().copied().filter(|node| *node != own).collect();
            self.machine.turn(now_ms, &server.shared().limits.users_of_nodes, &self.settings, &others);
        }
        // An engine that has ended takes nothing.
        self.machine.take_outputs().into_iter().for_each(|command| _ = commands.send(command));
    }

    /// The time of the next turn, in milliseconds.
    pub(super) fn next_ms(&self) -> u64 {
        self.machine.next_ms()
    }

    /// Their counts and sizes.
    pub(super) fn counts(&self) -> UserLimitCounts {
        self.machine.counts()
    }
}
