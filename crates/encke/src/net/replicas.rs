//! The idempotency keys of a cluster. Two nodes have a replica of each key, and every node finds them by the key alone. The node that processes a
//! request reserves its key at the first of them that answers, and gives both its answer. So a repeated request finds the answer at whichever
//! node it arrives, also when one of these nodes is gone meanwhile.
//!
//! A node that is away is passed over, and a node that is alone keeps its own keys: a publication does not wait for other nodes longer
//! than a command does. Then, and while nodes do not yet agree on who is there, a request may be processed twice.

use std::cmp::Reverse;
use std::sync::Arc;

use bytes::Bytes;
use encke_cluster::Callee;
use http::StatusCode;

use super::server_shared::ServerShared;
use crate::cluster::commands::{KeyState, NodeCommand, NodeReply};
use crate::cluster::link::Link;
use crate::idempotency::{Known, Remembered, Reservation, Sum, sum_of};

/// A key whose request is being processed here. Dropping it without an answer forgets the key, also at its replica.
pub(crate) struct ReservedKey {
    reservation: Option<Reservation>,
    server: Arc<ServerShared>,
    sums: (Sum, Sum),
    /// The other node that has reserved the key.
    replica: Option<u64>,
}

impl ServerShared {
    /// Looks the key of a request up in the whole cluster, and reserves it if it is new. `sums` are those of the key and of the request.
    pub(crate) async fn reserve_key(self: &Arc<Self>, sums: (Sum, Sum)) -> Known<ReservedKey> {
        let (key, request) = sums;
        let reservation = match self.api.idempotency.begin(sums, self.clock.now().ms) {
            Known::New(reservation) => reservation,
            Known::Answered(answer) => return Known::Answered(answer),
            Known::OtherRequest => return Known::OtherRequest,
            Known::InProgress => return Known::InProgress,
        };
        let mut reserved = ReservedKey { reservation: Some(reservation), server: self.clone(), sums, replica: None };
        let Some(cluster) = &self.cluster else { return Known::New(reserved) };
        let (own, nodes) = cluster.nodes();
        for replica in replicas(&key, &nodes) {
            // The others ask here, and find the reservation.
            if replica == own {
                break;
            }
            let command = NodeCommand::ReserveKey { key, request, node: own };
            // A client that leaves meanwhile gives it back.
            reserved.replica = Some(replica);
            let Some(replies) = cluster.command(Callee::Node(replica), &command).await else { break };
            let reply = replies.replies.into_iter().next();
            if matches!(reply, Some((_, NodeReply::Key(KeyState::New)))) {
                break;
            }
            reserved.replica = None;
            match reply {
                Some((_, NodeReply::Key(KeyState::InProgress))) => return Known::InProgress,
                Some((_, NodeReply::Key(KeyState::OtherRequest))) => return Known::OtherRequest,
                Some((_, NodeReply::Key(KeyState::Answered(status, body)))) => {
                    let answer = (status_of(status), Bytes::from(body));
                    reserved.remember(answer.clone());
                    return Known::Answered(answer);
                }
                // It is away, or knows no keys of others.
                _ => {}
            }
        }
        Known::New(reserved)
    }

    /// Reserves a key for another node.
    pub(super) fn lend_key(&self, sums: (Sum, Sum), node: u64) -> NodeReply {
        let nodes = self.cluster.as_ref().map(|cluster| cluster.nodes().1);
        let is_there = |node| nodes.as_ref().is_none_or(|nodes| nodes.contains(&node));
        let lent = self.api.idempotency.lend(sums, node, self.clock.now().ms, is_there);
        // Full: the other node goes on without this one.
        let Some(known) = lent else { return NodeReply::Failed };
        NodeReply::Key(match known {
            Known::New(()) => KeyState::New,
            Known::InProgress => KeyState::InProgress,
            Known::OtherRequest => KeyState::OtherRequest,
            Known::Answered((status, body)) => {
                KeyState::Answered(status.as_u16(), String::from_utf8_lossy(&body).into_owned())
            }
        })
    }

    /// Remembers the answer that another node has given.
    pub(super) fn note_answer(&self, sums: (Sum, Sum), status: u16, body: &str) -> NodeReply {
        let answer = (status_of(status), Bytes::copy_from_slice(body.as_bytes()));
        self.api.idempotency.note(sums, self.clock.now().ms, answer);
        NodeReply::Count(0)
    }
}

impl ReservedKey {
    /// Remembers the answer, here and at the replicas of the key. It returns when those that are there have it.
    pub(crate) async fn complete(mut self, (status, body): Remembered) {
        self.remember((status, body.clone()));
        let Some(cluster) = self.server.cluster.clone() else { return };
        let (own, nodes) = cluster.nodes();
        let mut others: Vec<u64> = replicas(&self.sums.0, &nodes).chain(self.replica.take()).collect();
        others.sort_unstable();
        others.dedup();
        others.retain(|node| *node != own);
        let (key, request) = self.sums;
        // Answers are JSON.
        let body = String::from_utf8_lossy(&body).into_owned();
        let command = NodeCommand::NoteAnswer { key, request, status: status.as_u16(), body };
        let mut sent = tokio::task::JoinSet::new();
        for node in others {
            let (cluster, command) = (cluster.clone(), command.clone());
            sent.spawn(async move { cluster.command(Callee::Node(node), &command).await });
        }
        sent.join_all().await;
    }

    /// Remembers the answer on this node.
    fn remember(&mut self, answer: Remembered) {
        let Some(reservation) = self.reservation.take() else { return };
        reservation.complete(self.server.clock.now().ms, answer);
    }
}

impl Drop for ReservedKey {
    fn drop(&mut self) {
        let (Some(replica), Some(cluster)) = (self.replica, self.server.cluster.clone()) else { return };
        let (command, cluster): (_, Arc<Link>) =
            (NodeCommand::GiveBackKey { key: self.sums.0, node: cluster.nodes().0 }, cluster);
        self.server.application.spawn(async move { cluster.command(Callee::Node(replica), &command).await });
    }
}

/// The replicas of a key among these nodes, the first one first: rendezvous hashing, so that another node takes over few keys when one is gone.
fn replicas(key: &Sum, nodes: &[u64]) -> impl Iterator<Item = u64> + use<> {
    let mut ranked: Vec<(Reverse<Sum>, u64)> =
        nodes.iter().map(|node| (Reverse(sum_of(&[key, &node.to_le_bytes()])), *node)).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, node)| node).take(REPLICAS)
}

/// The status of an answer. Only valid ones are remembered.
fn status_of(number: u16) -> StatusCode {
    StatusCode::from_u16(number).unwrap_or(StatusCode::OK)
}

/// The number of nodes that keep a key.
const REPLICAS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_replica_is_the_first_when_that_one_is_gone() {
        for number in 0..100 {
            let key = [number; 32];
            let nodes = [3, 5, 7, 9];
            let before: Vec<u64> = replicas(&key, &nodes).collect();
            let rest: Vec<u64> = nodes.into_iter().filter(|node| *node != before[0]).collect();
            assert_eq!(replicas(&key, &rest).next(), Some(before[1]));
        }
    }

    #[test]
    fn keys_are_dealt_out_to_all_nodes() {
        let firsts: std::collections::BTreeSet<u64> =
            (0..100).filter_map(|number| replicas(&[number; 32], &[1, 2, 3]).next()).collect();
        assert_eq!(firsts.len(), 3);
        assert_eq!(replicas(&[1; 32], &[4]).collect::<Vec<_>>(), [4]);
    }
}
