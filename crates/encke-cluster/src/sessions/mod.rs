//! Sessions of a cluster: a client may come to any node, and its session goes on. [`Sessions`] is a deterministic machine like
//! [`Node`](crate::Node), on the same engine.
//!
//! The id of a session names the node that has opened it, so most are found without a question. While that node is there, it serves
//! the requests of the session that other nodes read, and gives the session to the node to which its client comes with a WebSocket or a
//! stream, or serves that, too. When it is gone, another node takes the session from its record, which only one can do: the write names the revision that was read.
//!
//! ```text
//!   shards ── Search ───▶ Searches ── Serve, Release ──▶ engine ──▶ Serving of the node that has it ──▶ its shards
//!   shards ── Changed ──▶ Records ── keys ──▶ engine
//! ```

mod answering;
mod asking;
mod confirming;
mod counts;
mod homes;
mod lines;
mod loading;
mod marks;
mod message;
mod notices;
mod orders;
mod own;
mod probing;
mod reads;
mod record;
mod records;
mod relaying;
mod relays;
mod searches;
mod servers;
mod serving;
#[cfg(test)]
pub(crate) mod tests;
mod unrecorded;
mod visiting;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use encke_core::{ExchangeId, ForNodes, FromNodes, Id, NodeTag, Saved, SessionsMemory, Settings, ShardMessage};
use foldhash::fast::RandomState;

use crate::command::{Command, KeyReply, RequestFailure, VALUE_BYTES_MAX};
use crate::subject::Subjects;
use confirming::Confirming;
pub use confirming::Resumption;
pub use counts::SessionCounts;
use homes::Homes;
pub use marks::Past;
use marks::UserMarks;
use message::{Question, Reply};
use notices::Notice;
use orders::Orders;
pub use orders::{Order, Ordered};
use own::{KeyCommand, Outcome};
use reads::Reads;
pub use record::RecordView;
use record::{Key, Record};
use records::Records;
use relays::Relays;
pub use relays::{RelayId, RelayOutput, RelayRequest, Visitor};
use searches::{Searches, State};
use servers::Server;
use serving::Serving;
pub use visiting::Visited;

/// The settings of [`Sessions`].
#[derive(Clone, Debug)]
pub struct SessionsSettings {
    /// The name of this node in the ids of its sessions.
    pub node: NodeTag,
    /// The subjects of the cluster.
    pub subjects: Subjects,
    /// The bucket of the records.
    pub bucket: String,
    /// The number of shards.
    pub shards: usize,
    /// Requests, WebSockets and streams of this node that wait for other nodes, and requests of other nodes that this one serves.
    pub forwarded_max: usize,
    /// Bytes of the bodies of those of this node.
    pub forwarded_bytes_max: usize,
    /// Bytes of the large bodies of requests of other nodes that this one serves at once.
    pub served_bytes_max: usize,
    /// Bytes of one body.
    pub message_bytes_max: usize,
    /// The longest time that a connect is held, in milliseconds.
    pub hold_ms: u64,
    /// Records written in a second.
    pub records_per_s_max: usize,
    /// The time after which a record that nobody writes goes, in milliseconds.
    pub record_ttl_ms: u64,
    /// The longest time that the reply to a disconnect waits until the end of its session is written, in milliseconds.
    pub reply_delay_max_ms: u64,
    /// The time after the return of the engine in which a node that is not there may come back, in milliseconds.
    pub return_delay_ms: u64,
    /// Writes a session and its past as bytes.
    pub encode: fn(&Saved, Past) -> Vec<u8>,
    /// Reads them.
    pub decode: Decode,
    /// Where the bodies of responses count.
    pub memory: Arc<SessionsMemory>,
    /// Bytes of all these bodies.
    pub responses_bytes_max: usize,
}

/// Reads a session and its past. None if this is none.
pub type Decode = fn(&[u8]) -> Option<(Saved, Past)>;

/// Something to be done for [`Sessions`].
#[derive(Debug)]
pub enum Output {
    /// Run this command.
    Engine(Command),
    /// Send this to a shard.
    Shard(usize, ShardMessage),
    /// Tell this [`Searcher::Visitor`](encke_core::Searcher::Visitor) the outcome of its search.
    Visitor(u64, Visited),
    /// The outcome of the [`Order`] with this waiter.
    Ordered(u64, Ordered),
    /// Do this for a relay.
    Relay(RelayOutput),
    /// Read the messages of histories behind a mark, and answer with [`FromNodes::Missed`].
    Missed(Resumption),
    /// The sessions of this node have confirmed this tick, but for those whose record says otherwise. True if there are some.
    Confirmed(u64, bool),
    /// The outcome of [`Sessions::probe`]. True: the node is gone.
    Probed(NodeTag, bool),
}

/// The sessions of one node, as far as other nodes are concerned.
pub struct Sessions {
    settings: SessionsSettings,
    records: Records,
    homes: Homes,
    searches: Searches,
    confirming: Confirming,
    serving: Serving,
    reads: Reads,
    /// Sessions that shards are to give up, by the number of the question.
    releasing: HashMap<u64, Leaving, RandomState>,
    /// Sessions that have been given up and wait for the end of a write of their record.
    leaving: HashMap<Key, (Leaving, Bytes), RandomState>,
    /// Replies that wait until the end of a session is written.
    ends: HashMap<Key, (Id, Vec<u64>), RandomState>,
    /// The times until which they wait, in milliseconds, oldest first.
    ends_until: VecDeque<(u64, Key)>,
    /// Shards that have still to say which sessions have come back with this node.
    shards_loading: usize,
    orders: Orders,
    user_marks: UserMarks,
    relays: Relays,
    /// Notices that were not answered, with the time of their next try, in milliseconds.
    notices: VecDeque<(u64, Notice)>,
    /// Nodes for which something of this one waits.
    servers: HashMap<NodeTag, Server, RandomState>,
    /// Commands on their way.
    sent: HashMap<u64, Sent, RandomState>,
    last: u64,
    is_connected: bool,
    listens: bool,
    /// The time of the last return of the engine, in milliseconds.
    connected_ms: u64,
    /// The most bytes of a message.
    body_bytes_max: usize,
    outputs: Vec<Output>,
    counts: SessionCounts,
}

/// A session that another node has asked for.
struct Leaving {
    session: Id,
    reply_to: String,
    to: NodeTag,
    bytes_max: usize,
}

/// The purpose of a command on its way.
enum Sent {
    Record(Key),
    Search(u64),
    /// A search reads the record of its session.
    Read(u64),
    Ping(NodeTag),
    Probe(NodeTag),
    Order(u64),
    Relay(RelayId),
    Taken(Notice),
    /// Nobody waits for the answer.
    Notice,
}

impl Sessions {
    /// The number from which on commands are those of [`Sessions`].
    pub const NUMBERS_FROM: u64 = 1 << 63;
    /// The key of its subscription.
    pub const LISTENS_BY: u64 = 0;

    /// The sessions of a node whose engine is away.
    pub fn new(settings: SessionsSettings) -> Sessions {
        Sessions {
            records: Records::new(settings.node, settings.records_per_s_max, settings.decode),
            homes: Homes::default(),
            searches: Searches::new(settings.forwarded_max, settings.forwarded_bytes_max),
            confirming: Confirming::new(settings.shards),
            serving: Serving::new(settings.forwarded_max, settings.served_bytes_max),
            reads: Reads::default(),
            releasing: HashMap::default(),
            leaving: HashMap::default(),
            ends: HashMap::default(),
            ends_until: VecDeque::new(),
            shards_loading: 0,
            orders: Orders::default(),
            user_marks: UserMarks::default(),
            relays: Relays::new(settings.forwarded_max),
            notices: VecDeque::new(),
            servers: HashMap::default(),
            sent: HashMap::default(),
            last: Sessions::NUMBERS_FROM,
            is_connected: false,
            listens: false,
            connected_ms: 0,
            body_bytes_max: 0,
            outputs: Vec::new(),
            counts: SessionCounts::default(),
            settings,
        }
    }

    /// The engine is there, and takes messages of at most so many bytes.
    pub fn connected(&mut self, now_ms: u64, body_bytes_max: usize) {
        self.body_bytes_max = body_bytes_max;
        self.records.record_bytes_max = body_bytes_max.saturating_sub(HEADERS_BYTES).min(VALUE_BYTES_MAX);
        if self.is_connected {
            return;
        }
        (self.is_connected, self.connected_ms) = (true, now_ms);
        self.reads.begin_again();
        if !std::mem::replace(&mut self.listens, true) {
            let subject = self.settings.subjects.of_node(self.settings.node);
            self.outputs.push(Output::Engine(Command::Listen { key: Sessions::LISTENS_BY, subject }));
        }
        self.records.look_again();
    }

    /// The engine is away.
    pub fn disconnected(&mut self) {
        self.is_connected = false;
        self.end_relays_with(None);
        self.servers.clear();
        self.leave_served();
        while let Some((_, key)) = self.ends_until.pop_front() {
            self.has_ended(&key);
        }
    }

    /// Takes other settings.
    pub(crate) fn set_settings(&mut self, settings: &Settings) {
        self.settings.responses_bytes_max = settings.responses_bytes_max;
    }

    /// Takes a message of a shard for [`OTHER_NODES`](encke_core::OTHER_NODES).
    pub fn from_shard(&mut self, now_ms: u64, message: ShardMessage) {
        match message {
            ShardMessage::ForNodes(ForNodes::Search { session, origins, waiting }) => {
                self.search(now_ms, session, origins, waiting);
            }
            ShardMessage::ForNodes(ForNodes::Released(number, given)) => self.released(number, given),
            ShardMessage::ForNodes(ForNodes::Restored(id)) => self.restored(now_ms, &id),
            ShardMessage::ForNodes(ForNodes::Changed { session, owner, saved, since, has_subscribed }) => {
                self.changed((session, owner), &saved, since, has_subscribed.then_some(now_ms));
            }
            ShardMessage::ForNodes(ForNodes::Resumes { session, owner, names, room }) => {
                self.resumes((session, owner), names, room);
            }
            ShardMessage::ForNodes(ForNodes::Confirmed { shard, tick, has_late }) => {
                self.shard_confirmed(shard, tick, has_late);
            }
            ShardMessage::ForNodes(ForNodes::Loaded(ids)) => self.loaded(&ids),
            ShardMessage::ForNodes(ForNodes::Ended { session, binds, reply }) => {
                self.ended(now_ms, &session, binds, reply);
            }
            ShardMessage::Abandoned(exchange) => self.abandoned(&exchange),
            ShardMessage::Delivered(exchange, is_taken) => self.delivered(now_ms, &exchange, is_taken),
            ShardMessage::Response(exchange, response) => self.respond(now_ms, &exchange, &response),
            // Shards send nothing else.
            _ => {}
        }
    }

    /// A question of another node has come.
    pub fn asked(&mut self, now_ms: u64, reply_to: String, body: &Bytes) {
        match Question::read(body) {
            Some(question) => self.answer_question(now_ms, reply_to, question),
            None => self.counts.rejected += 1,
        }
    }

    /// A request is answered, or has failed.
    pub fn answered(&mut self, now_ms: u64, number: u64, answer: Result<Bytes, RequestFailure>) {
        match self.sent.remove(&number) {
            Some(Sent::Search(search)) => {
                let answer = answer.map(|bytes| Reply::read(&bytes));
                self.counts.rejected += u64::from(answer == Ok(None));
                self.search_answered(now_ms, (search, number), answer);
            }
            Some(Sent::Ping(node)) => self.ping_answered(now_ms, (node, number), answer.err()),
            Some(Sent::Probe(node)) => self.probe_answered(node, answer.err()),
            Some(Sent::Relay(relay)) => self.relay_answered(relay, answer.map(|bytes| Reply::read(&bytes))),
            Some(Sent::Taken(notice)) => self.notice_answered(now_ms, notice, answer.err()),
            Some(Sent::Record(_) | Sent::Order(_) | Sent::Read(_) | Sent::Notice) | None => {}
        }
    }

    /// A command about a key has its result.
    pub fn key_answered(&mut self, now_ms: u64, number: u64, answer: KeyReply) {
        match self.sent.remove(&number) {
            Some(Sent::Search(search)) => self.record_answered(now_ms, (search, number), answer),
            Some(Sent::Read(search)) => {
                self.reads.has_ended();
                self.record_answered(now_ms, (search, number), answer);
                self.read_next(now_ms);
            }
            Some(Sent::Order(order)) => self.order_answered(now_ms, order, &answer),
            Some(Sent::Record(key)) => {
                let outcome = self.records.answered(now_ms, key, &answer);
                self.orders.has_keys |= !self.records.fails;
                if self.records.is_written(&key) || self.records.has_mark(&key) {
                    self.confirming.written(&key);
                }
                if self.records.id(&key).is_none() {
                    self.has_ended(&key);
                }
                if let Some((leaving, state)) = self.leaving.remove(&key) {
                    return self.give(leaving, state);
                }
                match outcome {
                    None => {}
                    Some(Outcome::Past(id, state)) => self.has_past(&id, &state),
                    Some(Outcome::Report(id)) => self.tell_shard(&id, FromNodes::Report(id)),
                    Some(Outcome::Tell(node, revision)) => self.tell_taken(Notice::of_end(key, node, revision)),
                    Some(Outcome::Lost(id, node)) => {
                        node.into_iter().for_each(|node| self.homes.note(key, node));
                        self.tell_shard(&id, FromNodes::Leave(id));
                    }
                }
            }
            Some(Sent::Ping(_) | Sent::Probe(_) | Sent::Relay(_) | Sent::Taken(_) | Sent::Notice) | None => {}
        }
    }

    /// Does what has to be done after events, or at a time. Call it after events, before [`Sessions::take_outputs`].
    pub fn turn(&mut self, now_ms: u64) {
        self.pass_ticks();
        while let Some(number) = self.searches.next(now_ms) {
            self.go_on(now_ms, number);
        }
        while let Some((exchange, served)) = self.serving.overdue(now_ms) {
            self.lose_fate(exchange, &served);
        }
        while let Some((_, key)) = self.ends_until.pop_front_if(|(until_ms, _)| *until_ms <= now_ms) {
            self.has_ended(&key);
        }
        self.turn_orders(now_ms);
        if !self.is_connected {
            // They are given up.
            self.read_next(now_ms);
            return;
        }
        while let Some((_, notice)) = self.notices.pop_front_if(|(due_ms, _)| *due_ms <= now_ms) {
            self.tell_taken(notice);
        }
        self.ping(now_ms);
        while let Some(command) = self.records.next(now_ms) {
            let key = match &command {
                KeyCommand::Read(key) | KeyCommand::Write(key, ..) => *key,
            };
            let number = self.number(Sent::Record(key));
            self.send_key_command(number, command);
        }
    }

    /// The time at which [`Sessions::turn`] has something to do, if nothing happens before.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let records = self.is_connected.then(|| self.records.next_ms(now_ms)).flatten();
        let ends = self.ends_until.front().map(|(until_ms, _)| *until_ms);
        let notices = self.notices.front().filter(|_| self.is_connected).map(|(due_ms, _)| *due_ms);
        let orders = self.orders.next_ms();
        [records, self.next_ping_ms(), ends, notices, orders, self.searches.next_ms(), self.serving.next_ms()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Takes what has to be done, in order.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// A new number for a command.
    fn number(&mut self, purpose: Sent) -> u64 {
        self.last += 1;
        self.sent.insert(self.last, purpose);
        self.last
    }

    fn ask(&mut self, purpose: Sent, node: NodeTag, question: &Question, timeout_ms: u64) -> u64 {
        let number = self.number(purpose);
        let (subject, body) = (self.settings.subjects.of_node(node), question.write());
        self.outputs.push(Output::Engine(Command::Request { number, subject, body, timeout_ms }));
        number
    }

    fn reply(&mut self, reply_to: String, reply: &Reply) {
        self.outputs.push(Output::Engine(Command::Answer { reply_to, body: reply.write().into() }));
    }

    fn send_key_command(&mut self, number: u64, command: KeyCommand) {
        let bucket = self.settings.bucket.clone();
        let command = match command {
            KeyCommand::Read(key) => Command::Get { number, bucket, key: key.text() },
            KeyCommand::Write(key, record, expected) => {
                let ttl_ms = match &record {
                    Record::Ended => ENDED_TTL_MS,
                    Record::Live { .. } => self.settings.record_ttl_ms,
                };
                let (key, value) = (key.text(), record.write());
                Command::Put { number, bucket, key, value, expected, ttl_ms: Some(ttl_ms) }
            }
        };
        self.outputs.push(Output::Engine(command));
    }

    /// The shard of a session.
    fn shard_of(&self, id: &Id) -> usize {
        id.shard() % self.settings.shards
    }

    fn tell_shard(&mut self, id: &Id, message: FromNodes) {
        self.outputs.push(Output::Shard(self.shard_of(id), ShardMessage::FromNodes(message)));
    }

    /// Tells the shard of a session the fate of a response for another node.
    fn tell_fate(&mut self, session: &Id, exchange: ExchangeId, is_taken: bool) {
        let message = ShardMessage::Delivered(exchange, is_taken);
        self.outputs.push(Output::Shard(self.shard_of(session), message));
    }
}

/// The time for which the end of a session is known, in milliseconds: a node that was away for longer and has a copy of it would write
/// its record again. Clients that come to that copy only keep it alive.
const ENDED_TTL_MS: u64 = 10 * 60 * 1_000;
/// Bytes of a message of the engine that a record leaves for its subject and its headers.
const HEADERS_BYTES: usize = 1_024;
