//! The machines of a node that exchange something with its shards, joined: publications and interest ([`Node`]), sessions ([`Sessions`])
//! and histories ([`Histories`]). [`Member`] has their order: it decides what reaches a shard before what.
//!
//! ```text
//!   shards ── publications, names, messages ──▶ Member ── commands ──▶ engine
//!     ▲                                          │  ▲──── events ───────┘
//!     └────────────── Shards ────────────────────┘
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use encke_core::{EncodedPublications, NodeTag, Now, Persisted, PublishToken, Settings, ShardMessage, Shared};

use crate::command::Command;
use crate::envelope::EnvelopeError;
use crate::event::Event;
use crate::histories::{Histories, HistoriesSettings, HistoryOutput, Report};
use crate::member_histories::MemberHistories;
use crate::node::Node;
use crate::node_rings::{Shards, send_to_wanting};
use crate::sessions::{Ordered, Output, RelayOutput, Sessions, Visited};

/// The machines of one node.
pub struct Member {
    /// Publications and interest.
    pub node: Node,
    /// Sessions.
    pub sessions: Sessions,
    histories: MemberHistories,
    outputs: Vec<MemberOutput>,
    scratch: String,
}

/// Something to be done for a [`Member`].
#[derive(Debug)]
pub enum MemberOutput {
    /// Run this command.
    Engine(Command),
    /// Do this for a relay.
    Relay(RelayOutput),
    /// Answer a visitor: see [`Output::Visitor`].
    Visitor(u64, Visited),
    /// The outcome of an order: see [`Output::Ordered`].
    Ordered(u64, Ordered),
    /// A node is there, or gone: see [`Output::Probed`].
    Probed(NodeTag, bool),
}

impl Member {
    /// A node whose engine is away. It has histories when a rule of the server's settings has one.
    pub fn new(node: Node, sessions: Sessions, histories: HistoriesSettings, of_server: Arc<Settings>) -> Member {
        let histories = MemberHistories::new(histories, of_server);
        Member { node, sessions, histories, outputs: Vec::new(), scratch: String::new() }
    }

    /// Its histories. None until a rule has one.
    pub fn histories(&self) -> Option<&Histories> {
        self.histories.machine()
    }

    /// Takes new settings.
    pub fn set_settings(&mut self, settings: Arc<Settings>) {
        self.sessions.set_settings(&settings);
        self.histories.set_settings(settings);
    }

    /// Takes a message of a shard for [`OTHER_NODES`](encke_core::OTHER_NODES).
    pub fn from_shard(&mut self, now_ms: u64, message: ShardMessage) {
        if let Some(message) = self.histories.take_message(message) {
            self.sessions.from_shard(now_ms, message);
        }
    }

    /// Takes an event of the engine, unless it is one of remote calls, revocations or leases.
    ///
    /// # Errors
    /// When an envelope is none.
    pub fn take(&mut self, event: Event, now_ms: u64, shared: &Shared) -> Result<(), EnvelopeError> {
        self.histories.take(&event, now_ms);
        match event {
            Event::Connected { envelope_bytes_max } => {
                self.node.connected(now_ms, envelope_bytes_max);
                self.sessions.connected(now_ms, envelope_bytes_max);
            }
            Event::Disconnected => {
                self.node.disconnected(&shared.interest);
                self.sessions.disconnected();
            }
            Event::Confirmed(number) => self.node.confirmed(number, &shared.interest),
            Event::Sent(bytes) => self.node.sent(bytes),
            Event::Received(bytes) => return self.node.received(&bytes, &shared.interest, &mut self.scratch),
            Event::Dropped => self.node.dropped(),
            Event::Answered { number, answer } if number >= Sessions::NUMBERS_FROM => {
                self.sessions.answered(now_ms, number, answer);
            }
            Event::Asked { key: Sessions::LISTENS_BY, reply_to, body } => {
                self.sessions.asked(now_ms, reply_to, &body);
            }
            Event::KeyAnswer { number, answer } if number >= Sessions::NUMBERS_FROM => {
                self.sessions.key_answered(now_ms, number, answer);
            }
            // The node sends no requests and uses no keys. Histories have taken what is theirs.
            Event::Answered { .. }
            | Event::Asked { .. }
            | Event::Notified { .. }
            | Event::KeyAnswer { .. }
            | Event::KeyChanged { .. }
            | Event::WatchBegins { .. }
            | Event::WatchFailed { .. }
            | Event::WatchComplete { .. }
            | Event::Failed(_) => {}
        }
        Ok(())
    }

    /// The engine has ended.
    pub fn disconnected(&mut self, shared: &Shared) {
        self.node.disconnected(&shared.interest);
        self.sessions.disconnected();
        self.histories.disconnected();
    }

    /// Does what has to be done after events, or at a time. Call it before [`Member::take_outputs`].
    pub fn turn(&mut self, now: Now, shards: &dyn Shards) {
        self.node.turn(now.ms, &shards.shared().interest);
        self.outputs.extend(self.node.take_commands().into_iter().map(MemberOutput::Engine));
        self.sessions.turn(now.ms);
        self.pass_on(shards);
        self.turn_histories(now, shards);
        // Ticks go to the shards behind the messages before them.
        self.pass_on(shards);
        self.histories.go_on_with_resumptions(now, shards);
        self.settle(shards);
    }

    fn turn_histories(&mut self, now: Now, shards: &dyn Shards) {
        let mut settled = BTreeMap::<u16, Vec<Persisted>>::new();
        let outputs = self.histories.turn(now, shards, &mut || self.sessions.unrecorded(now.ms));
        for output in outputs {
            match output {
                HistoryOutput::Engine(command) => self.outputs.push(MemberOutput::Engine(command)),
                HistoryOutput::Settled(PublishToken { shard, number }, is_persisted) => {
                    settled.entry(shard).or_default().push(Persisted { number, is_persisted });
                }
                HistoryOutput::Tick(tick, mark) => self.sessions.ticked(tick, mark),
                HistoryOutput::Report(Report { node, mark, unrecorded }) => {
                    self.sessions.note_report(node, mark, &unrecorded);
                }
            }
        }
        for (shard, persisted) in settled {
            shards.send(shard.into(), ShardMessage::Persisted(persisted));
        }
    }

    /// Passes on what the sessions have.
    fn pass_on(&mut self, shards: &dyn Shards) {
        for output in self.sessions.take_outputs() {
            match output {
                Output::Engine(command) => self.outputs.push(MemberOutput::Engine(command)),
                Output::Shard(shard, message) => shards.send(shard, message),
                Output::Relay(output) => self.outputs.push(MemberOutput::Relay(output)),
                Output::Visitor(visitor, visited) => self.outputs.push(MemberOutput::Visitor(visitor, visited)),
                Output::Missed(resumption) => self.histories.resume(resumption),
                Output::Ordered(waiter, outcome) => self.outputs.push(MemberOutput::Ordered(waiter, outcome)),
                Output::Probed(node, is_gone) => self.outputs.push(MemberOutput::Probed(node, is_gone)),
                Output::Confirmed(tick, has_late) => self.histories.confirmed(tick, has_late),
            }
        }
    }

    /// Lets replies leave that have waited.
    fn settle(&mut self, to: &dyn Shards) {
        let mut shards = BTreeMap::<u16, Vec<u64>>::new();
        for PublishToken { shard, number } in self.node.take_settled() {
            shards.entry(shard).or_default().push(number);
        }
        for (shard, numbers) in shards {
            to.send(shard.into(), ShardMessage::InterestKnown(numbers));
        }
    }

    /// Passes the next publications of other nodes to the shards that want them, if there is room between shards. False if not, or if there
    /// are none.
    pub fn deliver(&mut self, shards: &dyn Shards) -> bool {
        let account = &shards.shared().mailbox;
        let arrived: Vec<EncodedPublications> = self.node.next_arrival(account);
        let has_some = !arrived.is_empty();
        arrived.into_iter().for_each(|publications| send_to_wanting(shards, publications, &mut self.scratch));
        has_some
    }

    /// Takes what has to be done, in order.
    pub fn take_outputs(&mut self) -> Vec<MemberOutput> {
        std::mem::take(&mut self.outputs)
    }

    /// The time of the next turn, if nothing happens before, in milliseconds.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let all = [self.node.next_ms(), self.sessions.next_ms(now_ms), self.histories.next_ms(now_ms)];
        all.into_iter().flatten().min()
    }

    /// Passes all partitions of histories on, because the server stops. True when that is done.
    pub fn end(&mut self) -> bool {
        self.histories.end()
    }
}
