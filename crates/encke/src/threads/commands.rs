//! Commands between nodes and revoked tokens of a cluster, on its thread.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use encke_cluster::{
    Answers, CallKind, Callee, RemoteCallCounts, RemoteCallOutput, RemoteCalls, RemoteCallsSettings, RevocationCounts,
    RevocationOutput, Revocations, UserEnd,
};
use encke_core::{Elsewhere, Id, Now, SessionOwner, Urgency};
use foldhash::fast::RandomState;
use tokio::sync::{mpsc, oneshot};

use crate::cluster::commands::{NodeCommand, NodeReply, Target};
use crate::cluster::engine::{EngineCommand, EngineEvent};
use crate::cluster::link::{Link, ToCluster, ToRevoke};
use crate::net::server_shared::ServerShared;

/// The commands of a node, and its revoked tokens.
pub(crate) struct NodeCommands {
    calls: RemoteCalls,
    /// Those who wait for the answers to a call.
    waiting: HashMap<u64, oneshot::Sender<Answers>, RandomState>,
    /// Revoked tokens of which the other nodes learn, by the number of the call.
    spreading: HashMap<u64, ToRevoke, RandomState>,
    /// Runs messages and ends of other nodes for sessions here, one after the other, so that their order holds. The first of them starts it.
    in_order: Option<mpsc::UnboundedSender<Asked>>,
    revocations: Revocations,
    /// Those who wait until the engine has the mark of a user, by their numbers.
    marking: HashMap<u64, oneshot::Sender<bool>, RandomState>,
    /// Those who wait until the engine has a revocation, by their numbers.
    revoking: HashMap<u64, Revoking, RandomState>,
    last_waiter: u64,
}

/// A revoked token of which the other nodes know, and on its way to the engine.
struct Revoking {
    answers: Answers,
    done: oneshot::Sender<(Answers, bool)>,
}

impl NodeCommands {
    /// Those of a node whose engine is away.
    pub(crate) fn new(settings: RemoteCallsSettings, revocations: Revocations) -> NodeCommands {
        NodeCommands {
            calls: RemoteCalls::new(settings),
            waiting: HashMap::default(),
            spreading: HashMap::default(),
            in_order: None,
            revocations,
            marking: HashMap::default(),
            revoking: HashMap::default(),
            last_waiter: 0,
        }
    }

    /// Calls other nodes.
    pub(super) fn call(
        &mut self,
        now_ms: u64,
        callee: Callee,
        (kind, content): (CallKind, Bytes),
        done: oneshot::Sender<Answers>,
    ) {
        let call = self.calls.call(now_ms, callee, kind, content);
        self.waiting.insert(call, done);
    }

    /// Passes an action of the application, which this owner has caused, to other nodes. Nobody waits for their answers. `mark`: see
    /// [`NodeCommand::Disconnect`].
    pub(super) fn act(&mut self, now_ms: u64, (action, mark): (Elsewhere, u64), owner: Option<SessionOwner>) {
        let session = |id: Id| Target::Session(id.as_str().into());
        // One who floods causes orders himself, and they must not delay his end.
        let ends = matches!(action, Elsewhere::Disconnect(_) | Elsewhere::DisconnectUser(_));
        let urgency = if ends { Urgency::Urgent } else { Urgency::Common };
        let command = match action {
            Elsewhere::Deliver(id, message) => NodeCommand::Deliver { to: session(id), message },
            Elsewhere::Disconnect(id) => NodeCommand::Disconnect { to: session(id), names_id: false, mark: 0 },
            Elsewhere::DeliverToUser(user, message) => NodeCommand::Deliver { to: Target::User(user), message },
            Elsewhere::ChangeAttribute(id, change) => {
                NodeCommand::ChangeAttribute { session: id.as_str().into(), change: *change }
            }
            Elsewhere::DisconnectUser(user) => {
                NodeCommand::Disconnect { to: Target::User(user), names_id: false, mark }
            }
        };
        self.calls.order(now_ms, (owner, urgency), command.write());
    }

    /// Answers a call of another node.
    pub(super) fn reply(&mut self, number: u64, reply: &[u8]) {
        self.calls.answer(number, reply);
    }

    /// Lets all nodes know of a revoked token. They count its sessions before they learn of it by the engine.
    pub(super) fn revoke(&mut self, now_ms: u64, revoked: ToRevoke) {
        let command = NodeCommand::Revoke { token_id: revoked.token_id.clone(), until_ms: revoked.until_ms };
        let call = self.calls.call(now_ms, Callee::All, CallKind::Command, command.write());
        self.spreading.insert(call, revoked);
    }

    /// Writes the mark of a user whose sessions have ended. `done` learns if that is done.
    pub(super) fn mark_user(&mut self, now_ms: u64, ended: UserEnd<'_>, done: Option<oneshot::Sender<bool>>) {
        self.last_waiter += 1;
        let waiter = done.map(|done| {
            self.marking.insert(self.last_waiter, done);
            self.last_waiter
        });
        self.revocations.end_user(now_ms, UserEnd { waiter, ..ended });
    }

    /// The other nodes have answered a call.
    fn done(&mut self, now: Now, call: u64, answers: Answers) {
        if let Some(ToRevoke { token_id, until_ms, done }) = self.spreading.remove(&call) {
            self.last_waiter += 1;
            self.revoking.insert(self.last_waiter, Revoking { answers, done });
            self.revocations.revoke(&token_id, until_ms, now.wall_ms, self.last_waiter);
        } else if let Some(done) = self.waiting.remove(&call) {
            // A client that has left does not wait any more.
            _ = done.send(answers);
        }
    }

    /// Takes an event of the engine, if it concerns commands or revoked tokens.
    pub(super) fn take(&mut self, event: &EngineEvent, now_ms: u64) {
        let own = self.revocations.bucket();
        match event {
            EngineEvent::Connected { envelope_bytes_max } => {
                self.calls.connected(now_ms, *envelope_bytes_max);
                self.revocations.connected();
            }
            EngineEvent::Disconnected => self.disconnected(),
            EngineEvent::Answered { number, answer } if RemoteCalls::has_sent(*number) => {
                self.calls.answered(now_ms, *number, answer.clone());
            }
            EngineEvent::Asked { key, reply_to, body } if RemoteCalls::LISTENS_BY.contains(key) => {
                self.calls.received(now_ms, Some(reply_to), body);
            }
            EngineEvent::Notified { key, body } if RemoteCalls::LISTENS_BY.contains(key) => {
                self.calls.received(now_ms, None, body);
            }
            EngineEvent::KeyAnswer { number, answer } if Revocations::has_sent(*number) => {
                self.revocations.key_answered(now_ms, *number, answer);
            }
            EngineEvent::WatchBegins { bucket, .. } if bucket == own => self.revocations.watch_begins(),
            EngineEvent::WatchFailed { bucket, .. } if bucket == own => self.revocations.watch_failed(),
            EngineEvent::WatchComplete { bucket, .. } if bucket == own => self.revocations.watch_is_complete(),
            EngineEvent::KeyChanged { bucket, key, value, .. } if bucket == own => {
                self.revocations.key_changed(key, value.as_ref());
            }
            _ => {}
        }
    }

    /// The engine is away, or has ended.
    pub(super) fn disconnected(&mut self) {
        self.calls.disconnected();
        self.revocations.disconnected();
    }

    /// Does what has to be done, and passes it on.
    pub(super) fn turn(
        &mut self,
        now: Now,
        (server, link): (&Arc<ServerShared>, &Arc<Link>),
        commands: &mpsc::UnboundedSender<EngineCommand>,
    ) {
        self.calls.turn(now.ms);
        for output in self.calls.take_outputs() {
            match output {
                // An engine that has ended takes nothing.
                RemoteCallOutput::Engine(command) => _ = commands.send(command),
                RemoteCallOutput::Asked { run: number, content, bytes_max } => {
                    self.asked(server, link, (number, bytes_max), &content);
                }
                RemoteCallOutput::Done(call, answers) => self.done(now, call, answers),
            }
        }
        self.turn_revocations(now, (server, link), commands);
        if self.revocations.is_settled() && !link.has_revocations() {
            link.set_has_revocations();
        }
        let (own, others) = self.calls.nodes();
        link.set_nodes(own, others);
    }

    fn turn_revocations(
        &mut self,
        now: Now,
        (server, link): (&Arc<ServerShared>, &Link),
        commands: &mpsc::UnboundedSender<EngineCommand>,
    ) {
        let mut revoked = Vec::new();
        for output in self.revocations.take_outputs() {
            match output {
                RevocationOutput::Engine(command) => _ = commands.send(command),
                RevocationOutput::Revoked(token_id, until_ms) => revoked.push((token_id, until_ms)),
                RevocationOutput::UserEnded(user, mark) => link.send(ToCluster::MarkFound(user, mark)),
                RevocationOutput::Complete => self.revocations.compare(server.shared().revoked.all(now.wall_ms)),
                RevocationOutput::Written(waiter, is_written) => {
                    let done = self.marking.remove(&waiter);
                    done.into_iter().for_each(|done| _ = done.send(is_written));
                    if let Some(Revoking { answers, done }) = self.revoking.remove(&waiter) {
                        _ = done.send((answers, is_written));
                    }
                }
            }
        }
        // They count before the node says that it has them.
        let new = server.note_revoked(revoked);
        if !new.is_empty() {
            let (server, application) = (server.clone(), server.application.clone());
            application.spawn(async move { server.end_revoked(new).await });
        }
        self.revocations.turn(now.ms, now.wall_ms);
        for output in self.revocations.take_outputs() {
            if let RevocationOutput::Engine(command) = output {
                _ = commands.send(command);
            }
        }
    }

    /// Runs the call of another node beside this thread.
    fn asked(
        &mut self,
        server: &Arc<ServerShared>,
        link: &Arc<Link>,
        (number, bytes_max): (u64, usize),
        content: &[u8],
    ) {
        let Some(command) = NodeCommand::read(content).filter(|_| !link.is_frozen()) else {
            return link.send(ToCluster::Reply(number, NodeReply::Failed.write()));
        };
        match &command {
            NodeCommand::Disconnect { to: Target::Session(session), .. } => {
                let id = Id::parse(session);
                id.into_iter().for_each(|id| link.send(ToCluster::EndIfItComes(id)));
            }
            NodeCommand::Disconnect { to: Target::User(user), mark, .. } => {
                link.send(ToCluster::UserEnded(user.clone(), *mark));
            }
            _ => {}
        }
        let (has_order, asked) = (command.has_order(), (command, number, bytes_max));
        let (server, link) = (server.clone(), link.clone());
        let application = server.application.clone();
        if !has_order {
            application.spawn(async move { run(&server, &link, asked).await });
            return;
        }
        let in_order = self.in_order.get_or_insert_with(|| {
            let (in_order, mut all) = mpsc::unbounded_channel();
            application.spawn(async move {
                while let Some(asked) = all.recv().await {
                    run(&server, &link, asked).await;
                }
            });
            in_order
        });
        // A runtime that has ended runs nothing.
        _ = in_order.send(asked);
    }

    /// The time of the next turn, if nothing happens before, in milliseconds.
    pub(super) fn next_ms(&self, now_ms: u64) -> Option<u64> {
        [self.calls.next_ms(), self.revocations.next_ms(now_ms)].into_iter().flatten().min()
    }

    /// Their counts and sizes.
    pub(super) fn counts(&self) -> (RemoteCallCounts, RevocationCounts) {
        (self.calls.counts(), self.revocations.counts())
    }
}

/// A command of another node, with the number of its call and the most bytes of its reply.
type Asked = (NodeCommand, u64, usize);

/// Runs a command of another node, and passes the reply to the thread of the cluster.
async fn run(server: &ServerShared, link: &Link, (command, number, bytes_max): Asked) {
    let reply = server.run_for_node(command, bytes_max).await;
    link.send(ToCluster::Reply(number, reply));
}
