//! Sessions that clients of this node name and that are not here: their requests are served by the node that has them; for a
//! WebSocket or a stream that node gives the session up, or serves it, too; and if that node is gone, this one takes the session over from its record.
//!
//! ```text
//!            ┌──── the record names another node ─────┐
//!            ▼                                        │
//!   asks the node ── it is gone, or has it not ──▶ reads the record ── none, or ended ──▶ the client gets an error
//!            │                                        │    ▲
//!            │ Served: the response                   │    └──── another one was first ──┐
//!            │ Given: the session                     ▼                                  │
//!            └──▶ its shard restores it ◀──────── takes it: a write on this revision ────┘
//! ```
//!
//! Of one session only one search asks for it, reads or writes its record at a time; the others wait for its end.

use std::collections::{BTreeSet, HashMap};

use encke_core::{Amount, Budget, ExchangeId, Id, NodeTag, Opener, Searcher, Share, Shares, Urgency};
use foldhash::fast::RandomState;

use super::message::{HEAD_BYTES_MAX, MULTIPLEXED, Question, Serve};
use super::record::{Content, Key};

/// The searches of one node.
pub(super) struct Searches {
    pub(super) budget: Budget,
    shares: Shares<u64>,
    all: HashMap<u64, Search, RandomState>,
    exchanges: HashMap<ExchangeId, u64, RandomState>,
    /// The search that asks for a session, and those that wait for its end.
    first: HashMap<Key, (u64, BTreeSet<u64>), RandomState>,
    /// Those that go on at a time, in milliseconds.
    paused: BTreeSet<(u64, u64)>,
    last: u64,
}

/// A session that is not here.
pub(super) struct Search {
    pub(super) session: Id,
    pub(super) key: Key,
    pub(super) waiting: Searcher,
    share: Share<u64>,
    /// The hash of the client's address, or of its connection; 0 if not known.
    pub(super) owner: u64,
    pub(super) state: State,
    /// The command whose answer is awaited.
    pub(super) command: u64,
    pub(super) began_ms: u64,
    /// Nodes and records asked so far.
    pub(super) steps: u32,
    /// The nodes that are gone, or do not have the session.
    pub(super) without: Vec<Absence>,
    /// The revision of the record whose node was asked last.
    pub(super) asked_revision: u64,
    /// The node for which nobody has listened when it was asked last.
    pub(super) last_absent: Option<NodeTag>,
    /// True if the client is gone.
    pub(super) is_abandoned: bool,
    /// True if the session has ended by an order.
    pub(super) has_ended: bool,
}

/// A node from which a session cannot come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Absence {
    pub(super) node: NodeTag,
    /// True if the node is gone, false if it has answered that it does not have the session.
    pub(super) is_gone: bool,
}

/// The state of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It waits for another search of its session, or for a time.
    Waits,
    /// This node serves the request.
    Serves(NodeTag),
    /// This node is to give the session up.
    Releases(NodeTag),
    /// The record is read.
    Reads,
    /// The record is written, with this state.
    Takes(Content),
    /// A shard restores the session.
    Restores,
    /// The response of this node is on its way to the client.
    Answered(NodeTag),
}

impl Searches {
    pub(super) fn new(count_max: usize, bytes_max: usize) -> Searches {
        Searches {
            budget: Budget::new(count_max, bytes_max),
            shares: Shares::default(),
            all: HashMap::default(),
            exchanges: HashMap::default(),
            first: HashMap::default(),
            paused: BTreeSet::new(),
            last: 0,
        }
    }

    /// Their number.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a search of a client with these origins. Otherwise returns the party that waits: there are too many.
    pub(super) fn add(
        &mut self,
        now_ms: u64,
        session: Id,
        origins: [u64; 2],
        waiting: Searcher,
    ) -> Result<u64, Searcher> {
        let bytes = match &waiting {
            Searcher::Request { request, .. } => request.body.len(),
            Searcher::Socket(..) | Searcher::Visitor(..) => 0,
        };
        let owner = if origins[1] == 0 { origins[0] } else { origins[1] };
        let amount = Amount::one(bytes + SEARCH_BYTES);
        let Ok(share) = self.shares.take(&self.budget, owner, amount, Urgency::Common) else { return Err(waiting) };
        self.last += 1;
        let mut number = self.last;
        if let Searcher::Request { request, .. } = &waiting {
            number |= if request.peer.is_multiplexed { MULTIPLEXED } else { 0 };
            self.exchanges.insert(request.exchange, number);
        }
        let search = Search {
            session,
            key: Key::of(&session),
            waiting,
            share,
            owner,
            state: State::Waits,
            command: 0,
            began_ms: now_ms,
            steps: 0,
            without: Vec::new(),
            asked_revision: 0,
            last_absent: None,
            is_abandoned: false,
            has_ended: false,
        };
        self.all.insert(number, search);
        Ok(number)
    }

    pub(super) fn get(&mut self, number: u64) -> Option<&mut Search> {
        self.all.get_mut(&number)
    }

    /// The search for a request.
    pub(super) fn of_exchange(&self, exchange: &ExchangeId) -> Option<u64> {
        self.exchanges.get(exchange).copied()
    }

    /// The searches that wait for a node.
    pub(super) fn that_wait_for(&self, node: NodeTag) -> Vec<u64> {
        let waits = |search: &Search| matches!(search.state, State::Serves(of) | State::Releases(of) if of == node);
        let mut numbers: Vec<u64> =
            self.all.iter().filter(|(_, search)| waits(search)).map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Removes a search.
    pub(super) fn remove(&mut self, number: u64) -> Option<Search> {
        let search = self.all.remove(&number)?;
        if let Searcher::Request { request, .. } = &search.waiting {
            self.exchanges.remove(&request.exchange);
        }
        Some(search)
    }

    /// Returns the part of the budget that a search had.
    pub(super) fn give_back(&mut self, search: Search) -> Searcher {
        self.shares.give_back(search.share);
        search.waiting
    }

    /// Makes a search the one that asks for its session. False if there is another one, for which it waits.
    pub(super) fn lead(&mut self, number: u64, key: Key) -> bool {
        let (first, followers) = self.first.entry(key).or_insert((number, BTreeSet::new()));
        let leads = *first == number;
        if !leads {
            followers.insert(number);
        }
        leads
    }

    /// A session has ended by an order: it must not come here.
    pub(super) fn end(&mut self, key: &Key) {
        let Some((first, followers)) = self.first.get(key) else { return };
        for number in std::iter::once(first).chain(followers) {
            self.all.get_mut(number).into_iter().for_each(|search| search.has_ended = true);
        }
    }

    /// The search that restores this session.
    pub(super) fn that_restores(&self, key: &Key) -> Option<u64> {
        let (first, _) = self.first.get(key)?;
        self.all.get(first).filter(|search| search.state == State::Restores).map(|_| *first)
    }

    /// True if this session is about to be taken or restored here.
    pub(super) fn is_under_way(&self, key: &Key) -> bool {
        let first = self.first.get(key).and_then(|(first, _)| self.all.get(first));
        first.is_some_and(|search| matches!(search.state, State::Takes(_) | State::Restores))
    }

    /// True if another search asks for this session.
    pub(super) fn is_led(&self, number: u64, key: &Key) -> bool {
        self.first.get(key).is_some_and(|(first, _)| *first != number)
    }

    /// A search no longer asks for its session. Returns those that have waited for it.
    pub(super) fn step_down(&mut self, number: u64, key: &Key) -> BTreeSet<u64> {
        match self.first.get(key) {
            Some((first, _)) if *first == number => {
                self.first.remove(key).map(|(_, followers)| followers).unwrap_or_default()
            }
            _ => BTreeSet::new(),
        }
    }

    /// Lets a search go on at this time, in milliseconds.
    pub(super) fn pause(&mut self, number: u64, until_ms: u64) {
        if let Some(search) = self.get(number) {
            search.state = State::Waits;
            self.paused.insert((until_ms, number));
        }
    }

    /// A search that may go on.
    pub(super) fn next(&mut self, now_ms: u64) -> Option<u64> {
        let first = self.paused.first().filter(|(until_ms, _)| *until_ms <= now_ms)?.1;
        self.paused.pop_first();
        Some(first)
    }

    /// The time at which one goes on.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.paused.first().map(|(until_ms, _)| *until_ms)
    }
}

impl Search {
    /// The question to the node that has the session. `node`: this one. `bytes_max`: the most bytes of a message.
    pub(super) fn question(&self, number: u64, node: NodeTag, bytes_max: usize, is_urgent: bool) -> Question {
        match &self.waiting {
            Searcher::Request { request, .. } if request.body.len() + HEAD_BYTES_MAX <= bytes_max => {
                Question::Serve(Serve {
                    session: self.session,
                    node,
                    number,
                    address: request.peer.address,
                    browser: request.browser,
                    transport: request.transport.clone(),
                    body: request.body.clone(),
                })
            }
            waiting => {
                let opener = match waiting {
                    Searcher::Request { request, .. } => request.browser.map_or(Opener::Page, Opener::Browser),
                    Searcher::Socket(_, opener) | Searcher::Visitor(_, opener) => *opener,
                };
                let bytes_max = bytes_max.try_into().unwrap_or(u32::MAX);
                Question::Release { session: self.session, node, bytes_max, is_urgent, opener }
            }
        }
    }

    /// The absence of the session from a node, if it is known.
    pub(super) fn absence(&self, node: NodeTag) -> Option<Absence> {
        self.without.iter().copied().find(|absence| absence.node == node)
    }

    /// True if all of it is one connect, which may be processed twice.
    pub(super) fn is_connect(&self) -> bool {
        matches!(self.waiting, Searcher::Request { is_connect: true, .. })
    }
}

/// The bytes of a search beside its body.
const SEARCH_BYTES: usize = 512;
