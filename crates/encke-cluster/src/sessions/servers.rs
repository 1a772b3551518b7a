//! The nodes that serve something of this one, and the question if they are still there.

use encke_core::NodeTag;

use super::message::Question;
use super::{Sent, Sessions, State};
use crate::command::RequestFailure;

/// A node that serves requests of this one.
pub(super) struct Server {
    /// The requests that wait for it.
    waiting: usize,
    /// The time at which it is asked again if it is there, in milliseconds.
    ping_ms: u64,
    /// Times in a row that it has not answered.
    silent: u32,
    /// The number of the question that waits for its answer.
    pub(super) pinged: Option<u64>,
}

impl Sessions {
    /// Asks the nodes that serve requests of this one if they are still there.
    pub(super) fn ping(&mut self, now_ms: u64) {
        let due = |server: &Server| server.pinged.is_none() && server.ping_ms <= now_ms;
        let mut nodes: Vec<NodeTag> =
            self.servers.iter().filter(|(_, server)| due(server)).map(|(node, _)| *node).collect();
        nodes.sort_unstable();
        for node in nodes {
            let number = self.ask(Sent::Ping(node), node, &Question::Ping, RELEASE_MS);
            self.servers.entry(node).and_modify(|server| server.pinged = Some(number));
        }
    }

    /// A node has answered a ping, or has not.
    pub(super) fn ping_answered(
        &mut self,
        now_ms: u64,
        (node, number): (NodeTag, u64),
        failure: Option<RequestFailure>,
    ) {
        // Without an entry, or with a newer one, nothing that waits for the node knows of this question.
        let asked = self.servers.get_mut(&node).filter(|server| server.pinged == Some(number));
        let Some(server) = asked else { return };
        (server.pinged, server.ping_ms) = (None, now_ms + PING_EVERY_MS);
        match failure {
            None => server.silent = 0,
            Some(RequestFailure::TimedOut) => server.silent += 1,
            // It may be on its way to another NATS server: once may be too early.
            Some(RequestFailure::NoResponders) => {
                (server.silent, server.ping_ms) = (server.silent + 1, now_ms + ABSENT_PAUSE_MS);
            }
            Some(RequestFailure::Away) => {}
        }
        if server.silent >= SILENT_MAX {
            self.is_gone(now_ms, node);
        }
    }

    /// A node is gone: connects that it held are held here, once the session is.
    fn is_gone(&mut self, now_ms: u64, node: NodeTag) {
        self.end_relays_with(Some(node));
        self.servers.remove(&node);
        self.counts.nodes_gone += 1;
        for number in self.searches.that_wait_for(node) {
            let Some(search) = self.searches.get(number) else { continue };
            let is_released = matches!(search.state, State::Releases(_));
            search.command = 0;
            if is_released || search.is_connect() {
                search.began_ms = now_ms;
                self.go_on_without(number, node, true);
            } else {
                // It may have been processed.
                self.give_up(now_ms, number);
            }
        }
    }

    /// Something waits for a node: it is asked if it is still there.
    pub(super) fn wait_for(&mut self, now_ms: u64, node: NodeTag) {
        self.servers.entry(node).or_insert_with(|| Server::new(now_ms)).waiting += 1;
    }

    /// Something no longer waits for a node.
    pub(super) fn no_longer_waits(&mut self, node: NodeTag) {
        if let Some(server) = self.servers.get_mut(&node) {
            server.waiting = server.waiting.saturating_sub(1);
            if server.waiting == 0 {
                self.servers.remove(&node);
            }
        }
    }

    /// The time of the next of these questions, in milliseconds.
    pub(super) fn next_ping_ms(&self) -> Option<u64> {
        self.servers.values().filter(|server| server.pinged.is_none()).map(|server| server.ping_ms).min()
    }

    /// A node has answered something: it is there, whatever has become of the questions about that.
    pub(super) fn is_there(&mut self, node: NodeTag) {
        self.servers.entry(node).and_modify(|server| server.silent = 0);
    }
}

impl Server {
    fn new(now_ms: u64) -> Server {
        Server { waiting: 0, ping_ms: now_ms + PING_EVERY_MS, silent: 0, pinged: None }
    }
}

/// The time between two questions to a node that serves requests, in milliseconds.
const PING_EVERY_MS: u64 = 500;
/// Questions in a row without an answer, each for its time, or for which nobody has listened, after which a node counts as gone.
const SILENT_MAX: u32 = 2;
/// The pause before a node is asked again for which nobody has listened, in milliseconds.
pub(super) const ABSENT_PAUSE_MS: u64 = 200;
/// The time for the answer to a question that is no request, in milliseconds.
pub(super) const RELEASE_MS: u64 = 2_000;
