//! What has to hold, and the books that are kept to check it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use encke_core::Id;

use crate::follower::is_past;

/// A promise of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariant {
    /// Messages of one publisher on one channel reach a session in the order they were sent.
    InOrder,
    /// No message reaches a session twice.
    NotTwice,
    /// A message is lost only with a connection whose kernel had it whole, or by the policy for slow consumers.
    NothingLost,
    /// `data` arrives as it was sent, to the last byte.
    ExactData,
    /// A message reaches those who subscribed, and nobody else.
    OnlySubscribers,
    /// A delivered message has no field that is for the server to say.
    CleanMessages,
    /// Nobody sees the client id of another.
    SecretIds,
    /// Every message with an id gets one reply, on the carrier it came on.
    OneReply,
    /// Every request gets one response.
    OneResponse,
    /// A connect is held no longer than was agreed.
    HeldInTime,
    /// A session ends only when it was silent for long enough, left, was ended, or was too slow; and is known until then.
    LivesOn,
    /// An outbox holds no more than it may.
    OutboxBounded,
    /// What a shard counts for the memory that its sessions hold is what a walk over all of it finds.
    MemoryCounted,
    /// No more bytes are under way between shards than may be.
    ShardMessagesBounded,
    /// What is written to a socket is whole frames, and nothing after a close frame or after its end.
    CleanFrames,
    /// The numbers agree with each other.
    NumbersAgree,
    /// When all clients have left, nothing is kept of them.
    NoLeak,
    /// What a client gets of a channel with a history comes once and in order, over all its sessions.
    PlacesGrow,
    /// What a client has not got of a channel with a history it is told to be lost.
    LossTold,
    /// All who hear a channel with a history hear it in one order.
    OneOrder,
    /// What the server says of places and losses is so.
    PlacesHonest,
    /// Histories keep no more than they may.
    HistoryBounded,
    /// A publication that was confirmed to its publisher is in its history after a restart.
    ConfirmedKept,
    /// The log can be opened after any end of the process.
    LogOpens,
    /// The core does not panic.
    NoPanic,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which.
    pub invariant: Invariant,
    /// How.
    pub detail: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.detail)
    }
}

/// A message that a client sent for others.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The session that sent it.
    pub from: usize,
    /// Messages of one stream and channel are in order. A client begins a new stream when it cannot know what became of the last.
    pub stream: usize,
    /// The channel it will be delivered on.
    pub channel: String,
    /// Its data.
    pub data: String,
    /// It was sent twice, as HTTP clients do when they hear nothing.
    pub repeated: bool,
    /// How often the server accepted it.
    pub copies: u32,
}

/// What a client knows of one of its subscriptions. Numbers are those of the first publication sent after it knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It asked for it.
    Asked,
    /// It knows that it has it.
    Granted(usize),
    /// It asked for its end, or does not know what became of its request.
    Unsure,
    /// It knows that it has it no more.
    Gone(usize),
}

/// A session as its client and the network know it.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its client id, as text and parsed.
    pub text: String,
    /// Its client id.
    pub id: Id,
    /// Whose it is.
    pub client: usize,
    /// The server has not ended it.
    pub alive: bool,
    /// Its client has said goodbye or turned to another session: nothing is promised any more.
    pub left: bool,
    /// The server was asked to end it.
    pub kicked: bool,
    /// It was opened over HTTP, so that it can be used only with the cookie of its browser.
    pub cookie: bool,
    /// Its client acknowledges what it gets: nothing is lost with a connection.
    pub acknowledges: bool,
    /// It is told where messages stand: of channels with a history it gets all, or is told what it does not get.
    pub follows: bool,
    /// Its client has lost the cookie it was opened with.
    pub strayed: bool,
    /// Its subscriptions.
    pub wishes: BTreeMap<String, Wish>,
    /// Messages that must arrive.
    pub expected: BTreeSet<usize>,
    /// How often each message arrived.
    pub seen: BTreeMap<usize, u32>,
    /// The last message of each stream and channel.
    last: BTreeMap<(usize, String), usize>,
    /// When the server heard of it last, in milliseconds.
    pub last_received_ms: u64,
    /// When something came in its name last, in milliseconds.
    pub spoke_ms: u64,
    /// Since when a connect of it is held, in milliseconds.
    pub held_since_ms: Option<u64>,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Publications that the server accepted.
    pub published: u64,
    /// Messages that arrived.
    pub arrived: u64,
    /// Messages that were lost with a connection.
    pub lost: u64,
    /// Sessions opened.
    pub sessions: u64,
    /// Connections broken.
    pub breaks: u64,
    /// Changes of transport or connection with a living session.
    pub switches: u64,
    /// Responses that the kernel did not take, though they carried messages.
    pub refused_responses: u64,
    /// Messages dropped for slow consumers.
    pub dropped: u64,
    /// Sessions ended for being slow.
    pub slow: u64,
    /// Sessions ended because all of them held too much.
    pub ended_for_memory: u64,
    /// Times that what waited was packed.
    pub sweeps: u64,
    /// Sessions that expired.
    pub expired: u64,
    /// Sessions the server ended.
    pub kicked: u64,
    /// Replies.
    pub replies: u64,
    /// WebSockets that went to another shard.
    pub moves: u64,
    /// Messages out of histories.
    pub replayed: u64,
    /// Times a client wanted what was gone.
    pub gone: u64,
    /// Places told with connect replies.
    pub heartbeats: u64,
    /// Ends of the server's process.
    pub restarts: u64,
    /// Those of them that were not in order.
    pub kills: u64,
    /// Sessions that went on in the next process.
    pub restored: u64,
    /// Times the disk began to refuse.
    pub disk_faults: u64,
    /// Publications that were delivered and not kept.
    pub pending_replies: u64,
    /// Replies to publications that came on another connection than the one they were awaited on.
    pub late_replies: u64,
    /// Messages of histories that were lost with a process, and not confirmed.
    pub places_lost: u64,
    /// Times a client named its places again in its old session.
    pub returns: u64,
    /// Responses that overtook what was written before them.
    pub overtaken: u64,
    /// Starts on a full disk.
    pub full_starts: u64,
    /// Starts on a disk that has lost what a failed sync should have kept, while the system still shows it.
    pub lost_writes: u64,
    /// Responses with more than one batch on a WebSocket may have that were lost.
    pub long_lost: u64,
    /// Messages that were not taken in at once.
    pub edge_waits: u64,
}

/// The books.
#[derive(Debug, Default)]
pub struct Checker {
    /// All publications, by number.
    pub publications: Vec<Publication>,
    /// All sessions that some client knows, by number.
    pub sessions: Vec<Session>,
    /// Publications whose publishers know that they were accepted.
    pub confirmed: BTreeSet<usize>,
    /// What happened.
    pub tally: Tally,
    /// Whether publishers get their own messages.
    pub returns_to_publisher: bool,
    /// The first promise that was broken.
    pub broken: Option<Broken>,
}

impl Checker {
    /// Notes that a promise is broken; the first one counts.
    pub fn fail(&mut self, invariant: Invariant, detail: impl Into<String>) {
        if self.broken.is_none() {
            self.broken = Some(Broken { invariant, detail: detail.into() });
        }
    }

    /// A new session.
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
            wishes: BTreeMap::new(),
            expected: BTreeSet::new(),
            seen: BTreeMap::new(),
            last: BTreeMap::new(),
            // When the handshake came nobody knows out here.
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

    /// The server accepted a broadcast.
    pub fn published(&mut self, data: &str) {
        let Some(number) = number_of(data).filter(|number| *number < self.publications.len()) else { return };
        self.tally.published += 1;
        self.publications[number].copies += 1;
        let publication = &self.publications[number];
        for (index, session) in self.sessions.iter_mut().enumerate() {
            let own = index == publication.from && !self.returns_to_publisher;
            let wanted = session.wishes.iter().any(|(name, wish)| {
                matches!(wish, Wish::Granted(from) if *from <= number) && covers(name, &publication.channel)
            });
            let with_positions = session.follows && is_past(&publication.channel);
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

    /// The server was asked by its application to deliver a message to one session.
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

    /// A message has reached a client.
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
        let invited = state
            .wishes
            .iter()
            .any(|(name, wish)| covers(name, channel) && !matches!(wish, Wish::Gone(from) if *from <= number));
        if !service && (own || !invited) {
            let detail = format!(
                "message {number} on {channel} came to session {session}: own {own}, wishes {:?}",
                state.wishes
            );
            return self.fail(Invariant::OnlySubscribers, detail);
        }
        if !publication.repeated {
            let last = state.last.insert((publication.stream, channel.to_owned()), number);
            if let Some(last) = last.filter(|last| *last > number) {
                let detail = format!("message {number} on {channel} came to session {session} after message {last}");
                self.fail(Invariant::InOrder, detail);
            }
        }
    }

    /// A text that was for a client is lost with its connection, though the kernel had it: its messages need not arrive.
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

    /// A client asks for the end of a subscription, or cannot know what became of it: what was to come by it may stay out.
    pub fn withdraw(&mut self, session: usize, name: &str) {
        let Checker { sessions, publications, .. } = self;
        let Some(session) = sessions.get_mut(session) else { return };
        session.wishes.insert(name.to_owned(), Wish::Unsure);
        let wishes = &session.wishes;
        session.expected.retain(|number| {
            let channel = &publications[*number].channel;
            let other = |(other, wish): (&String, &Wish)| {
                matches!(wish, Wish::Granted(from) if from <= number) && covers(other, channel)
            };
            !covers(name, channel) || wishes.iter().any(other)
        });
    }

    /// A client has no more use for a session.
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

    /// Looks for the client ids of others in what a client got.
    pub fn no_secrets(&mut self, client: usize, text: &str) {
        let other = self.sessions.iter().find(|session| session.client != client && text.contains(&session.text));
        if let Some(other) = other {
            let detail = format!("client {client} saw the id of a session of client {}: {text}", other.client);
            self.fail(Invariant::SecretIds, detail);
        }
    }

    /// Whether all that must arrive has arrived.
    pub fn is_complete(&self) -> bool {
        self.sessions.iter().all(|session| session.expected.is_empty())
    }
}

/// The number of a publication, which its data begin with.
pub fn number_of(data: &str) -> Option<usize> {
    let rest = data.strip_prefix("{\"k\":")?;
    rest[..rest.find(',')?].parse().ok()
}

/// Whether a subscription to `name` covers `channel`. Written anew, so as not to trust the code under test.
pub fn covers(name: &str, channel: &str) -> bool {
    if let Some(parent) = name.strip_suffix("/**") {
        return channel.strip_prefix(parent).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'));
    }
    if let Some(parent) = name.strip_suffix("/*") {
        let rest = channel.strip_prefix(parent).and_then(|rest| rest.strip_prefix('/'));
        return rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('/'));
    }
    name == channel
}
