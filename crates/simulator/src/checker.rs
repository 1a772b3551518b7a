//! The invariants, and the records to check them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use encke_core::Id;

use crate::channels::{ECHO, covers, has_history};
use crate::tally::Tally;
use crate::texts::number_of;

/// A promise of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariant {
    /// Messages of one publisher on one channel reach a session in the order they were sent.
    InOrder,
    /// No message reaches a session twice.
    NotTwice,
    /// A message is lost only with a connection whose kernel had all of it, or by the policy for slow consumers.
    NothingLost,
    /// `data` arrives as it was sent, to the last byte.
    ExactData,
    /// A message reaches the subscribers, and nobody else.
    OnlySubscribers,
    /// A delivered message has no field reserved for the server.
    CleanMessages,
    /// Nobody sees the client id of another.
    SecretIds,
    /// Every message with an id gets one reply, on the connection it came on.
    OneReply,
    /// Every request gets one response.
    OneResponse,
    /// A connect is held no longer than agreed.
    HeldInTime,
    /// A session ends only if it was silent for long enough, left, was ended, or was too slow. Until then the server
    /// knows it.
    LivesOn,
    /// An outbox holds no more than its limit.
    OutboxBounded,
    /// A shard's account of the memory of its sessions equals the result of a full walk.
    MemoryCounted,
    /// Bytes between shards stay within their limit.
    ShardMessagesBounded,
    /// A socket gets only whole frames, and nothing after a close frame or after its end.
    CleanFrames,
    /// The counters agree with each other.
    NumbersAgree,
    /// When all clients have left, the server retains nothing of them.
    NoLeak,
    /// A client gets each message of a channel with a history once and in order, across all its sessions.
    PositionsGrow,
    /// The server reports to a client each message of a channel with a history that it does not get.
    LossReported,
    /// All subscribers of a channel with a history receive its messages in the same order.
    OneOrder,
    /// The positions and losses that the server reports are correct.
    PositionsHonest,
    /// Histories retain no more than their limits.
    HistoryBounded,
    /// A publication confirmed to its publisher is in its history after a restart.
    ConfirmedPersisted,
    /// The log can be opened after any end of the process.
    LogOpens,
    /// A session gets nothing that is published after its credentials have ended.
    NothingAfterRights,
    /// The counts of limits equal what is there.
    CountsAgree,
    /// The reported members of a channel are its subscribers.
    PresenceAgrees,
    /// A user that has left a channel is a member for the grace time, and then no longer; a return within it is announced as
    /// neither a leave nor a join.
    PresenceGrace,
    /// Whoever follows the announcements of a channel knows its members.
    PresenceAnnounced,
    /// The table of members stays within its limits.
    PresenceBounded,
    /// An event takes a bounded number of steps, whatever queues hold.
    CostBounded,
    /// Nobody publishes on a channel, calls a service, gets messages or learns of members without the right to it, and nobody
    /// is refused a subscription to which it has the right.
    RightsHold,
    /// An address leaves a part of the held requests to others, and no request is refused while there is room for it.
    SharesHold,
    /// Where a rule keeps the latest message of a channel for a slow client, that message arrives.
    LatestArrives,
    /// The queue of a subscriber in the process holds no more than its limit.
    QueueBounded,
    /// A change that is reported to a handle as done is done.
    ChangesDone,
    /// The core does not panic.
    NoPanic,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The promise.
    pub invariant: Invariant,
    /// A description of the violation.
    pub detail: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.detail)
    }
}

/// A message that a client sent for others.
#[derive(Clone, Debug)]
pub struct Published {
    /// The session that sent it.
    pub from: usize,
    /// Messages of one stream and channel are in order. A client begins a new stream when it cannot know whether the
    /// last message arrived.
    pub stream: usize,
    /// The channel on which it is delivered.
    pub channel: String,
    /// Its data.
    pub data: String,
    /// True if it was sent twice, as HTTP clients do when they get no response.
    pub repeated: bool,
    /// The number of times the server accepted it.
    pub copies: u32,
}

/// A client's knowledge of one of its subscriptions. Numbers are those of the first publication sent after the client
/// knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscription {
    /// It has requested the subscription.
    Requested,
    /// It knows that the subscription is granted.
    Granted(usize),
    /// It has requested the end, or does not know the result of its request.
    Uncertain,
    /// It knows that the subscription has ended.
    Gone(usize),
}

/// A session, as its client and the network know it.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its client id as text.
    pub text: String,
    /// Its client id, parsed.
    pub id: Id,
    /// The client that owns it.
    pub client: usize,
    /// True until the server has ended it.
    pub alive: bool,
    /// True if its client has disconnected or uses another session: nothing is promised any more.
    pub left: bool,
    /// True if the server was asked to end it.
    pub kicked: bool,
    /// True if it was opened over HTTP, so that only requests with the cookie of its browser may use it.
    pub cookie: bool,
    /// True if its client acknowledges messages: nothing is lost with a connection.
    pub acknowledges: bool,
    /// True if it gets positions: of channels with a history it gets all messages, or a loss report.
    pub follows: bool,
    /// True if its client has lost the cookie it was opened with.
    pub strayed: bool,
    /// Its subscriptions, as its client knows them.
    pub subscriptions: BTreeMap<String, Subscription>,
    /// Messages that must arrive.
    pub expected: BTreeSet<usize>,
    /// The number of arrivals of each message.
    pub seen: BTreeMap<usize, u32>,
    /// The last message of each stream and channel.
    last: BTreeMap<(usize, String), usize>,
    /// The time of the last message the server received from it, in milliseconds.
    pub last_received_ms: u64,
    /// The time of the last message sent in its name, in milliseconds.
    pub spoke_ms: u64,
    /// The time since which a connect of it is held, in milliseconds.
    pub held_since_ms: Option<u64>,
}

/// The records and counters of a run.
#[derive(Debug, Default)]
pub struct Checker {
    /// All publications, by number.
    pub publications: Vec<Published>,
    /// All sessions that some client knows, by number.
    pub sessions: Vec<Session>,
    /// Publications whose publishers know that they were accepted.
    pub confirmed: BTreeSet<usize>,
    /// The counters.
    pub tally: Tally,
    /// True if publishers get their own messages.
    pub returns_to_publisher: bool,
    /// True if calls may be answered in another order.
    pub answers_come_late: bool,
    /// The first promise that was broken.
    pub broken: Option<Broken>,
}

impl Checker {
    /// Records that a promise is broken; only the first counts.
    pub fn fail(&mut self, invariant: Invariant, detail: impl Into<String>) {
        if self.broken.is_none() {
            self.broken = Some(Broken { invariant, detail: detail.into() });
        }
    }

    /// Checks the count of something.
    pub(crate) fn agree(&mut self, what: &str, counted: usize, there: usize) {
        if counted != there {
            self.fail(Invariant::CountsAgree, format!("{what}: {counted} are counted, and there are {there}"));
        }
    }

    /// Adds a session. Returns its number.
    pub fn open(&mut self, text: &str, id: Id, client: usize) -> usize {
        self.tally.sessions += 1;
        self.sessions.push(Session {
            text: text.to_owned(),
            id,
            client,
            alive: true,
            left: false,
            kicked: false,
            cookie: false,
            acknowledges: false,
            follows: false,
            strayed: false,
            subscriptions: BTreeMap::new(),
            expected: BTreeSet::new(),
            seen: BTreeMap::new(),
            last: BTreeMap::new(),
            // The simulation does not know when the handshake arrived.
            last_received_ms: 0,
            spoke_ms: 0,
            held_since_ms: None,
        });
        self.sessions.len() - 1
    }

    /// The number of the session with this client id.
    pub fn find(&self, text: &str) -> Option<usize> {
        self.sessions.iter().rposition(|session| session.text == text)
    }

    /// Records that the server accepted a broadcast.
    pub fn published(&mut self, data: &str) {
        let Some(number) = number_of(data).filter(|number| *number < self.publications.len()) else { return };
        self.tally.published += 1;
        self.publications[number].copies += 1;
        let publication = &self.publications[number];
        for (index, session) in self.sessions.iter_mut().enumerate() {
            let own = index == publication.from && !self.returns_to_publisher;
            let wanted = session.subscriptions.iter().any(|(name, subscription)| {
                matches!(subscription, Subscription::Granted(from) if *from <= number)
                    && covers(name, &publication.channel)
            });
            let with_positions = session.follows && has_history(&publication.channel);
            if wanted
                && !own
                && !with_positions
                && session.alive
                && !session.left
                && !session.seen.contains_key(&number)
            {
                session.expected.insert(number);
            }
        }
    }

    /// Records that the application asked the server to deliver a message to one session.
    pub fn delivered(&mut self, to: &str, data: &str) {
        let Some(number) = number_of(data).filter(|number| *number < self.publications.len()) else { return };
        self.publications[number].copies += 1;
        if let Some(session) = self.find(to).map(|session| &mut self.sessions[session])
            && session.alive
            && !session.left
            && !session.seen.contains_key(&number)
        {
            session.expected.insert(number);
        }
    }

    /// Records that a message has reached a client.
    pub fn arrived(&mut self, session: usize, channel: &str, data: &str) {
        let Some(number) = number_of(data) else {
            return self.fail(Invariant::ExactData, format!("session {session} got data that nobody sent: {data}"));
        };
        let Some(publication) = self.publications.get(number) else {
            return self
                .fail(Invariant::ExactData, format!("session {session} got message {number}, which nobody sent"));
        };
        self.tally.arrived += 1;
        if publication.data != data || publication.channel != channel {
            let detail =
                format!("message {number} of {} came to session {session} as {channel} {data}", publication.channel);
            return self.fail(Invariant::ExactData, detail);
        }
        let Some(state) = self.sessions.get_mut(session) else { return };
        state.expected.remove(&number);
        let seen = state.seen.entry(number).or_default();
        *seen += 1;
        if *seen > publication.copies {
            let detail =
                format!("message {number} came {seen} times to session {session}, sent {} times", publication.copies);
            return self.fail(Invariant::NotTwice, detail);
        }
        let own = session == publication.from && !self.returns_to_publisher;
        let service = channel.starts_with("/service/");
        let invited = state.subscriptions.iter().any(|(name, subscription)| {
            covers(name, channel) && !matches!(subscription, Subscription::Gone(from) if *from <= number)
        });
        if !service && (own || !invited) {
            let detail = format!(
                "message {number} on {channel} came to session {session}: own {own}, subscriptions {:?}",
                state.subscriptions
            );
            return self.fail(Invariant::OnlySubscribers, detail);
        }
        // Calls are answered when their answers are ready.
        let has_order = channel != ECHO || !self.answers_come_late;
        if has_order && !publication.repeated {
            let last = state.last.insert((publication.stream, channel.to_owned()), number);
            if let Some(last) = last.filter(|last| *last > number) {
                let detail = format!("message {number} on {channel} came to session {session} after message {last}");
                self.fail(Invariant::InOrder, detail);
            }
        }
    }

    /// Records that a text for a client is lost with its connection, though the kernel had it: its messages need not
    /// arrive.
    pub fn lost(&mut self, client: usize, text: &str) {
        for raw in bayeux::json::elements(text) {
            let Some(number) = bayeux::json::member(raw, "data").and_then(number_of) else { continue };
            self.tally.lost += 1;
            let own = |session: &&mut Session| session.client == client && !session.acknowledges;
            for session in self.sessions.iter_mut().filter(own) {
                session.expected.remove(&number);
            }
        }
    }

    /// A client requests the end of a subscription, or cannot know the result of its request: messages of that
    /// subscription need not arrive.
    pub fn withdraw(&mut self, session: usize, name: &str) {
        let Checker { sessions, publications, .. } = self;
        let Some(session) = sessions.get_mut(session) else { return };
        session.subscriptions.insert(name.to_owned(), Subscription::Uncertain);
        let subscriptions = &session.subscriptions;
        session.expected.retain(|number| {
            let channel = &publications[*number].channel;
            let other = |(other, subscription): (&String, &Subscription)| {
                matches!(subscription, Subscription::Granted(from) if from <= number) && covers(other, channel)
            };
            !covers(name, channel) || subscriptions.iter().any(other)
        });
    }

    /// A client abandons a session.
    pub fn leave(&mut self, session: usize) {
        let session = &mut self.sessions[session];
        session.left = true;
        session.expected.clear();
    }

    /// The server has ended a session.
    pub fn ended(&mut self, session: usize) {
        let session = &mut self.sessions[session];
        session.alive = false;
        session.expected.clear();
        session.held_since_ms = None;
    }

    /// Searches a client's input for the client ids of others.
    pub fn no_secrets(&mut self, client: usize, text: &str) {
        let other = self.sessions.iter().find(|session| session.client != client && text.contains(&session.text));
        if let Some(other) = other {
            let detail = format!("client {client} saw the id of a session of client {}: {text}", other.client);
            self.fail(Invariant::SecretIds, detail);
        }
    }

    /// True if every message that must arrive has arrived.
    pub fn is_complete(&self) -> bool {
        self.sessions.iter().all(|session| session.expected.is_empty())
    }
}
