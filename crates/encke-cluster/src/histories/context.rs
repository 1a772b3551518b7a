//! The surroundings of a partition while it does something: the time, the other nodes, the rings of this one, and the way out.

use std::collections::HashMap;

use bytes::Bytes;
use encke_core::history::mixed;
use encke_core::{Now, PublishToken, Share};
use foldhash::fast::RandomState;

use super::claim::Claim;
use super::entry::{Entry, NodeId, Term};
use super::marks::Report;
use super::members::Members;
use super::message::{Body, HEAD_BYTES, Message};
use super::rings::Rings;
use super::sources::Payer;
use crate::command::{Command, Expected};
use crate::subject::Subjects;

/// Something to be done for the histories.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Run this command.
    Engine(Command),
    /// Publications are stored (true), or refused.
    Settled(PublishToken, bool),
    /// All that this node has delivered was committed before this tick, and has this mark. [`Histories::confirmed`](super::Histories::confirmed)
    /// is the answer.
    Tick(u64, Bytes),
    /// Another node reports of its sessions.
    Report(Report),
}

/// The purpose of a command about a key or a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Beat,
    Claim(u16),
    Journal(u16),
}

/// The way to the engine.
pub(super) struct Wire {
    pub(super) own: NodeId,
    pub(super) subjects: Subjects,
    pub(super) bucket: String,
    /// True if the engine keeps journals.
    pub(super) has_journal: bool,
    /// Values that were added to journals, and commands about them that have failed.
    pub(super) journal_counts: [u64; 2],
    /// True if the engine is there.
    pub(super) is_connected: bool,
    /// The most bytes of a message.
    pub(super) bytes_max: usize,
    /// The number of the last command.
    last: u64,
    sent: HashMap<u64, Purpose, RandomState>,
    outputs: Vec<Output>,
    /// The number of seeds that were made.
    seeds: u64,
    #[cfg(test)]
    pub(super) sabotage: Option<Sabotage>,
    /// The shares of publications that wait no more.
    pub(super) freed: Vec<Share<Payer>>,
}

/// The surroundings of a partition.
pub(super) struct Context<'a> {
    pub(super) now: Now,
    pub(super) members: &'a Members,
    pub(super) rings: &'a mut dyn Rings,
    pub(super) wire: &'a mut Wire,
    /// True if the keys of all nodes and partitions are known.
    pub(super) knows_all: bool,
}

impl Wire {
    /// The way of a node whose engine is away. `numbers_from`: commands about keys have higher numbers.
    pub(super) fn new(own: NodeId, subjects: Subjects, bucket: String, has_journal: bool, numbers_from: u64) -> Wire {
        Wire {
            own,
            subjects,
            bucket,
            has_journal,
            journal_counts: [0; 2],
            is_connected: false,
            bytes_max: MESSAGE_BYTES_OF_NATS,
            last: numbers_from,
            sent: HashMap::default(),
            outputs: Vec::new(),
            seeds: 0,
            #[cfg(test)]
            sabotage: None,
            freed: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, output: Output) {
        self.outputs.push(output);
    }

    pub(super) fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Writes a key. Returns the number of the command.
    pub(super) fn put(
        &mut self,
        purpose: Purpose,
        key: String,
        value: Bytes,
        expected: Expected,
        ttl_ms: Option<u64>,
    ) -> u64 {
        let (number, bucket) = (self.begun(purpose), self.bucket.clone());
        self.push(Output::Engine(Command::Put { number, bucket, key, value, expected, ttl_ms }));
        number
    }

    /// Reads a key. Returns the number of the command.
    fn get(&mut self, purpose: Purpose, key: String) -> u64 {
        let (number, bucket) = (self.begun(purpose), self.bucket.clone());
        self.push(Output::Engine(Command::Get { number, bucket, key }));
        number
    }

    /// Removes a key. Nobody waits for the answer.
    pub(super) fn remove(&mut self, key: String) {
        self.last += 1;
        let (number, bucket) = (self.last, self.bucket.clone());
        self.push(Output::Engine(Command::Delete { number, bucket, key, expected: Expected::Any }));
    }

    /// Adds a value to the journal of a partition. Returns the number of the command.
    pub(super) fn append(&mut self, partition: u16, value: Bytes, after: u64) -> u64 {
        let number = self.begun(Purpose::Journal(partition));
        self.push(Output::Engine(Command::Append { number, journal: partition.to_string(), value, after }));
        number
    }

    /// Reads the journal of a partition. Returns the number of the command.
    pub(super) fn read_journal(&mut self, partition: u16, from: u64) -> u64 {
        let number = self.begun(Purpose::Journal(partition));
        self.push(Output::Engine(Command::ReadJournal { number, journal: partition.to_string(), from }));
        number
    }

    /// The number of the next command.
    fn begun(&mut self, purpose: Purpose) -> u64 {
        self.last += 1;
        self.sent.insert(self.last, purpose);
        self.last
    }

    /// The purpose of a command that has ended.
    pub(super) fn ended(&mut self, number: u64) -> Option<Purpose> {
        self.sent.remove(&number)
    }

    /// A seed that nobody else has.
    pub(super) fn new_seed(&mut self) -> u64 {
        self.seeds += 1;
        mixed(self.own.0 ^ mixed(self.seeds))
    }

    /// The bytes that a message has for entries or records.
    pub(super) fn room(&self) -> usize {
        self.bytes_max.min(MESSAGE_BYTES_MAX).saturating_sub(HEAD_BYTES)
    }

    fn message(&mut self, subject: String, partition: u16, term: Term, body: Body) {
        if self.is_connected {
            let message = Message { from: self.own, partition, term, body };
            self.push(Output::Engine(Command::Send { subject, body: message.write() }));
        }
    }

    /// Sends to one node.
    pub(super) fn send(&mut self, to: NodeId, partition: u16, term: Term, body: Body) {
        self.message(self.subjects.of_histories_node(to.0), partition, term, body);
    }

    /// Sends to all other nodes.
    pub(super) fn send_to_all(&mut self, partition: u16, term: Term, body: Body) {
        self.message(self.subjects.of_histories_log(), partition, term, body);
    }

    /// Sends entries of the log, to one node or to all: in as many messages as they need.
    pub(super) fn send_log<'e>(
        &mut self,
        to: Option<NodeId>,
        (partition, term): (u16, Term),
        mut first: u64,
        entries: impl Iterator<Item = &'e Entry>,
        committed: u64,
    ) {
        let (mut packed, mut bytes) = (Vec::new(), 0);
        let send = |wire: &mut Wire, first: u64, entries: Vec<Entry>| {
            let body = Body::Log { first, entries, committed };
            match to {
                Some(node) => wire.send(node, partition, term, body),
                None => wire.send_to_all(partition, term, body),
            }
        };
        for entry in entries {
            let more = entry.submission.bytes();
            if bytes + more > self.room() && !packed.is_empty() {
                let count = packed.len() as u64;
                send(self, first, std::mem::take(&mut packed));
                (first, bytes) = (first + count, 0);
            }
            packed.push(entry.clone());
            bytes += more;
        }
        send(self, first, packed);
    }
}

impl Context<'_> {
    pub(super) fn own(&self) -> NodeId {
        self.wire.own
    }

    /// True if this node may commit and write claims: no other takes it for gone, and it knows what others have written meanwhile.
    pub(super) fn has_lease(&self) -> bool {
        self.wire.is_connected && self.knows_all && self.members.has_lease(self.now.ms)
    }

    /// True if a node that is gone for this one is gone.
    pub(super) fn sees_others(&self) -> bool {
        !self.members.is_blind(self.now.ms)
    }

    pub(super) fn is_alive(&self, node: NodeId) -> bool {
        self.members.is_alive(self.now.ms, node)
    }

    /// Reads a claim. Returns the number of the command.
    pub(super) fn read_claim(&mut self, partition: u16) -> u64 {
        self.wire.get(Purpose::Claim(partition), format!("{CLAIMS}{partition}"))
    }

    /// Writes a claim. Returns the number of the command.
    pub(super) fn write_claim(&mut self, partition: u16, claim: &Claim, expected: Expected) -> u64 {
        let key = format!("{CLAIMS}{partition}");
        self.wire.put(Purpose::Claim(partition), key, claim.write(), expected, None)
    }
}

/// A rule that is broken, to show that the tests find it.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    /// An owner commits before the nodes in sync have acknowledged.
    CommitsEarly,
    /// A node that is not in sync becomes the owner, and goes on with the epochs.
    SucceedsFromOutside,
    /// A node that is to be in sync counts as such only when the claim says so.
    AddsLate,
    /// An owner whose claim the engine has lost goes on before the nodes in sync follow it.
    GoesOnAlone,
    /// The owner takes each number of a source.
    TakesAllNumbers,
    /// A node tells others a mark before clients have confirmed it.
    MarksEarly,
    /// An owner commits what its journal does not have.
    CommitsWithoutJournal,
    /// An owner adds to its journal behind a later owner.
    AddsBehindLater,
    /// The first value of an owner drops what the owners before it have added to the journal.
    DropsAtFirstValue,
    /// An owner that was away goes on after the engine has lost its keys, though another node may have gone on with the journal.
    ForgetsAbsence,
    /// An older claim is followed if it stays.
    BelievesOlder,
    /// A node goes on from times at which messages came that came with rings.
    TrustsTimes,
}

#[cfg(test)]
impl Context<'_> {
    pub(super) fn is_broken(&self, sabotage: Sabotage) -> bool {
        self.wire.sabotage == Some(sabotage)
    }
}

/// The prefix of the keys of claims.
pub(super) const CLAIMS: &str = "p.";
/// The most bytes of a message before the engine has said how many it takes: the default of NATS.
const MESSAGE_BYTES_OF_NATS: usize = 1024 * 1024;
/// A message with several entries has at most so many bytes.
const MESSAGE_BYTES_MAX: usize = 256 * 1024;
