//! One run: a server of several shards, its clients, and the network between them.
//!
//! The files of this folder are chapters of [`World`]. A chapter calls only those below it:
//!
//! 1. `run`, `ending`, `restart`, `steps`: which event comes next;
//! 2. `acting`, `oddities`, `reading`, `held`, `feeds`: clients;
//! 3. `server`, `edges`, `decisions`, `dispatching`, `presence`, `by_handle`, `storing`: the threads and handles of the server;
//! 4. `inspecting`, `held_limit`, `rights`: checks after each event;
//! 5. `following`, `returning`, `sending`, `letting_go`, `received`, `late`, `tampering`: what the others are made of.

mod acting;
mod by_handle;
mod decisions;
mod dispatching;
mod edges;
mod ending;
mod feeds;
mod following;
mod held;
mod held_limit;
mod inspecting;
mod late;
mod letting_go;
mod oddities;
mod presence;
mod reading;
mod received;
mod restart;
mod returning;
mod rights;
mod run;
mod sending;
mod server;
mod steps;
mod storing;
mod tampering;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use encke_core::{Envelope, Id, Now, Shard, ShardMessage, Shared, Weight};
use encke_local::Holds;

use crate::application::Recorder;
use crate::chain::Chain;
use crate::changes::Changes;
use crate::checker::{Checker, Published};
use crate::client::Client;
use crate::cost::Cost;
use crate::holders::Holders;
use crate::local::Local;
use crate::log::Log;
use crate::members::Presence;
use crate::network::Network;
use crate::records::Records;
use crate::rng::Rng;
use crate::sabotage::Sabotage;
use crate::script::Scenario;
use crate::transit::{InTransit, Report, WaitingFuture};

/// A run.
pub struct World {
    rng: Rng,
    scenario: Scenario,
    now: Now,
    shards: Vec<Shard>,
    shared: Arc<Shared>,
    /// Messages on their way to each shard from each other, and to the virtual one of the process; the last queue of
    /// each is for messages from outside.
    in_transit: Vec<Vec<VecDeque<InTransit>>>,
    /// Requests that a shard has received and not processed yet.
    waiting: Vec<(usize, usize)>,
    /// Results of responses, not reported to the shards yet.
    reports: VecDeque<Report>,
    /// Futures of the application for which shards wait.
    waits: Vec<WaitingFuture>,
    /// The identities of sessions.
    holders: Holders,
    /// The subscribers in the process.
    local: Local,
    /// The clients with held requests.
    chains: Vec<Chain>,
    /// The numbers of held requests, in shares of addresses.
    holds: Arc<Holds>,
    /// The members of channels with presence.
    presence: Presence,
    /// The requests of handles.
    changes: Changes,
    /// True while a shard flushes, or everything that waits in it is processed.
    is_turn: bool,
    /// The cost of each shard.
    costs: Vec<Cost>,
    recorder: Recorder,
    network: Network,
    clients: Vec<Client>,
    /// The cookie of each browser, and the number of times it was set.
    browsers: Vec<(Option<Id>, u32)>,
    checker: Checker,
    /// The observed contents of the histories.
    records: Records,
    /// True when nothing breaks any more: promised messages must arrive.
    healing: bool,
    drained: bool,
    /// True if the server has ever drained.
    has_drained: bool,
    /// True if the server reads and writes nothing any more: only messages on their way arrive.
    frozen: bool,
    /// The log of the histories, where they are on disk.
    log: Option<Log>,
    /// The latest time that the wall clock has shown, in milliseconds.
    wall_max_ms: u64,
    sabotage: Sabotage,
    sabotaged: u32,
    /// The number of messages that clients have sent.
    message_ids: u64,
    /// Messages that lost their WebSocket before their reply, by message id: the session, and the publication if it is
    /// one.
    late: BTreeMap<u64, (usize, Option<usize>)>,
    /// A text that a sabotaged wire withholds.
    held_back: Option<String>,
    /// Bytes of frames that an empty shard holds.
    empty_frame_bytes: u64,
    history: Option<VecDeque<String>>,
}

impl World {
    /// Records a step, if recording is on.
    fn note(&mut self, text: impl FnOnce(&World) -> String) {
        if self.history.is_none() || self.is_broken() {
            return;
        }
        let line = format!("{:>7} ms  {}", self.now.ms, text(self));
        if let Some(history) = &mut self.history {
            if history.len() == HISTORY_MAX {
                history.pop_front();
            }
            history.push_back(line);
        }
    }

    fn is_broken(&self) -> bool {
        self.checker.broken.is_some()
    }

    /// Puts a message into the mailbox of a shard.
    fn send_to_shard(&mut self, to: usize, from: usize, message: ShardMessage) {
        let envelope = Envelope::new(&self.shared.mailbox, message);
        self.in_transit[to][from].push_back(InTransit::ShardMessage(envelope));
    }

    /// A handle of the server publishes something.
    fn publish_from_outside(&mut self, channel: &str) {
        if !self.shared.mailbox.has_room(Weight::Heavy) {
            return self.note(|_| "the server is too busy for a publication".into());
        }
        let number = self.checker.publications.len();
        let to = self.shared.histories.owner(channel);
        let data = format!("{{\"k\":{number},\"big\":12345678901234567890.10,\"from\":\"outside\"}}");
        // Messages to one shard stay in order.
        let (from, stream) = (usize::MAX, usize::MAX - to);
        let publication =
            Published { from, stream, channel: channel.into(), data: data.clone(), repeated: false, copies: 0 };
        self.checker.publications.push(publication);
        let outside = self.shards.len();
        self.checker.published(&data);
        let publication = encke_core::EncodedPublications::of_server(&self.shared.mailbox, channel, &data);
        self.send_to_shard(to, outside, ShardMessage::Record(publication.into()));
    }

    /// True if a sabotage of this kind is due now: it is done only a few times.
    fn sabotage_once(&mut self, kind: Sabotage) -> bool {
        let due = self.sabotage == kind && !self.healing && self.sabotaged < 3 && self.rng.chance(200);
        self.sabotaged += u32::from(due);
        due
    }

    /// The last steps before a promise was broken.
    pub fn history(&self) -> Vec<String> {
        self.history.iter().flatten().cloned().collect()
    }
}

/// The number of recorded steps.
const HISTORY_MAX: usize = 4_000;
