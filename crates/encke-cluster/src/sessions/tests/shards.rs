//! The shards of a node of the model.

use encke_core::{ForNodes, FromNodes, Given, Id, NOT_HERE, OTHER_NODES, Request, Response, Searched, ShardMessage};

use super::model::Cluster;
use super::{Answer, saved};

/// So many messages are more than may move with a session.
pub(super) const LARGE: u64 = 1 << 40;

impl Cluster {
    /// The shards of a node.
    pub(super) fn shard(&mut self, node: usize, message: ShardMessage) {
        match message {
            ShardMessage::Request(request) => self.shard_request(node, &request),
            ShardMessage::Response(exchange, response) => {
                let answer = match (response.status, str::from_utf8(&response.body).unwrap_or_default()) {
                    (503, _) => Answer::Later,
                    (_, by) => Answer::By(by.parse().expect("a node")),
                };
                self.members[node].answers.push((exchange.number, answer));
                if response.confirm.is_some() {
                    self.tell(node, ShardMessage::Delivered(exchange, true));
                }
            }
            ShardMessage::Delivered(exchange, is_taken) => {
                self.members[node].fates.push((exchange.number, Some(is_taken)));
            }
            ShardMessage::Abandoned(exchange) => self.members[node].fates.push((exchange.number, None)),
            ShardMessage::FromNodes(message) => self.shard_move(node, message),
            ShardMessage::Disconnect(id, _) => self.end(node, id),
            ShardMessage::InterestKnown(numbers) => self.members[node].left.extend(numbers),
            other => panic!("shards get no {other:?}"),
        }
    }

    fn shard_request(&mut self, node: usize, request: &Request) {
        let exchange = request.exchange;
        let session = Id::parse(&request.body).expect("an id");
        let is_here = self.members[node].here.contains_key(&session);
        self.members[node].multiplexed += u64::from(request.peer.is_multiplexed);
        match request.searched {
            Searched::ByNode if self.members[node].holds => {}
            Searched::ByNode if is_here => {
                let (body, confirm) = (node.to_string().into(), Some(0));
                let response = Response { status: 200, body, set_browser: None, confirm, compresses: false };
                self.tell(node, ShardMessage::Response(exchange, response));
            }
            Searched::ByNode => self.tell(node, ShardMessage::Response(exchange, Response::with_status(NOT_HERE))),
            _ => {
                let answer = if is_here { Answer::By(node) } else { Answer::Unknown };
                self.members[node].answers.push((exchange.number, answer));
            }
        }
        assert!(exchange.shard == OTHER_NODES || request.searched == Searched::All);
    }

    fn shard_move(&mut self, node: usize, message: FromNodes) {
        match message {
            FromNodes::Restore(id, restored) => {
                let waiting = if restored.is_whole { restored.saved.messages.len() as u64 } else { 0 };
                self.members[node].here.insert(id, waiting);
                if !restored.is_whole && self.clients.confirmed.contains_key(&id) {
                    return self.resume(node, id, restored.has_mark);
                }
                self.report(node, id);
                self.tell(node, ShardMessage::ForNodes(ForNodes::Restored(id)));
            }
            FromNodes::Release(id, release) => {
                let stays = self.members[node].keeps_all && self.members[node].here.contains_key(&id);
                let given = match self.members[node].here.remove(&id).filter(|_| !stays) {
                    None if stays => {
                        self.members[node].here.insert(id, 0);
                        Given::Stays
                    }
                    Some(waiting) if waiting >= LARGE => {
                        self.members[node].here.insert(id, waiting);
                        Given::TooLarge
                    }
                    Some(waiting) => Given::Session(Box::new(saved(id, waiting))),
                    None => Given::Unknown,
                };
                self.tell(node, ShardMessage::ForNodes(ForNodes::Released(release.number, given)));
            }
            FromNodes::Relay(socket, home) => self.members[node].relayed.push((socket.index.into(), home)),
            FromNodes::Leave(id) => _ = self.members[node].here.remove(&id),
            FromNodes::Unsettled(id) => self.members[node].unsettled.push(id),
            FromNodes::Report(id) => self.report(node, id),
            FromNodes::Tick(tick) => self.confirm_tick(node, tick),
            FromNodes::Missed(..) => panic!("the model reads nothing"),
            FromNodes::Searched(socket) => {
                let session = self.sockets[&u64::from(socket.index)];
                let is_here = self.members[node].here.contains_key(&session);
                let answer = if is_here { Answer::By(node) } else { Answer::Unknown };
                self.members[node].answers.push((socket.index.into(), answer));
            }
            FromNodes::Unsearched(socket) => {
                self.members[node].answers.push((socket.index.into(), Answer::Later));
            }
        }
    }
}
