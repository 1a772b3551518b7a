//! The use of users on the nodes of a cluster, so that limits of users hold for all nodes together. [`UserLimits`] is a deterministic machine
//! like [`Node`](crate::Node), on the same engine.
//!
//! ```text
//!   UsersOfNodes ── take, each second ──▶ UserLimits ── messages to all nodes ──▶ engine
//!   UsersOfNodes ◀── state ───────────── UserLimits ◀── messages of other nodes ── engine
//! ```
//!
//! A node reports the sessions and subscriptions of a user when they have changed, and all of them again in each half minute: a message may be
//! lost. A node that is connected asks for them. It reports what a user has used in a second if that is a tenth of a limit or more. What is
//! not reported again goes; so do the reports of a node that is gone. While the engine is away, each node has its own limits.
//!
//! ```text
//!   version 1 · node 8                     the node asks for all
//!   version 1 · node 8 · for each user: key 8 · sessions 4 · subscriptions 4 · messages 4 · bytes 4 · handshakes 4
//! ```

use std::collections::HashMap;

use encke_core::{Settings, UseElsewhere, UserKey, UserUse, UsersOfNodes};
use foldhash::fast::RandomState;

use crate::command::Command;

/// The use of users on the nodes of a cluster.
pub struct UserLimits {
    node: u64,
    subject: String,
    /// The reports of other nodes.
    nodes: HashMap<u64, Reported, RandomState>,
    /// The time of the next turn, in milliseconds.
    due_ms: u64,
    /// The number of turns.
    turns: u64,
    is_connected: bool,
    listens: bool,
    message_bytes_max: usize,
    outputs: Vec<Command>,
    counts: UserLimitCounts,
}

/// The reports of one node.
#[derive(Default)]
struct Reported {
    users: HashMap<UserKey, Entry, RandomState>,
    /// True if some of them may have a use.
    has_uses: bool,
    /// The time of its last message, in milliseconds.
    seen_ms: u64,
}

/// The report of a node about a user, with the times of its counts and of its use, in milliseconds.
struct Entry {
    has: UserUse,
    seen_ms: u64,
    used_ms: u64,
}

/// The counts of [`UserLimits`] since its start, and its sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserLimitCounts {
    /// Users reported to the other nodes, each time.
    pub reported: u64,
    /// Users that other nodes have reported, each once for each node.
    pub known: usize,
    /// Users of other nodes for which there was no room.
    pub refused: u64,
    /// Messages that are none of a node.
    pub rejected: u64,
}

impl UserLimits {
    /// The key of its subscription.
    pub const LISTENS_BY: u64 = 5;

    /// Those of a node whose engine is away. `node`: a random number that no other node and start has.
    pub fn new(node: u64, subject: String) -> UserLimits {
        UserLimits {
            node,
            subject,
            nodes: HashMap::default(),
            due_ms: 0,
            turns: 0,
            is_connected: false,
            listens: false,
            message_bytes_max: 0,
            outputs: Vec::new(),
            counts: UserLimitCounts::default(),
        }
    }

    /// The engine is there, and takes messages of at most so many bytes.
    pub fn connected(&mut self, message_bytes_max: usize) {
        (self.is_connected, self.message_bytes_max) = (true, message_bytes_max.min(MESSAGE_BYTES_MAX));
        if !std::mem::replace(&mut self.listens, true) {
            let (key, subject) = (UserLimits::LISTENS_BY, self.subject.clone());
            self.outputs.push(Command::Listen { key, subject });
        }
        // The others have missed what was reported meanwhile, and are asked for all that they have.
        self.turns = 0;
        self.report(&[]);
    }

    /// The engine is away: this node has its own limits.
    pub fn disconnected(&mut self, users: &UsersOfNodes) {
        self.is_connected = false;
        let nodes: Vec<u64> = self.nodes.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.forget(node, users));
    }

    /// A message of a node has come.
    pub fn received(&mut self, now_ms: u64, body: &[u8], users: &UsersOfNodes) {
        let Some((node, entries)) = read(body) else {
            self.counts.rejected += 1;
            return;
        };
        if node == self.node || !self.is_connected {
            return;
        }
        if body.len() == HEAD_BYTES {
            self.turns = 0;
        }
        let mut room = REPORTED_MAX.saturating_sub(self.known());
        for (key, has) in entries {
            let reported = self.nodes.entry(node).or_default();
            reported.seen_ms = now_ms;
            reported.has_uses |= has.used != [0; 3];
            let before = reported.users.remove(&key).map(|entry| entry.has).unwrap_or_default();
            if has.is_nothing() || (before.is_nothing() && room == 0) {
                self.counts.refused += u64::from(!has.is_nothing());
            } else {
                room = room.saturating_sub(usize::from(before.is_nothing()));
                let used_ms = if has.used == [0; 3] { 0 } else { now_ms };
                reported.users.insert(key, Entry { has, seen_ms: now_ms, used_ms });
            }
            if before != has {
                self.state(key, users);
            }
        }
    }

    /// Takes what users have here and reports it, and forgets what is old. `nodes`: the other nodes that are there.
    pub fn turn(&mut self, now_ms: u64, users: &UsersOfNodes, settings: &Settings, nodes: &[u64]) {
        if now_ms < self.due_ms {
            return;
        }
        self.due_ms = now_ms + TURN_MS;
        let part = self.turns;
        self.turns += 1;
        // All are reported again in turns; at first all at once.
        let is_again = |key: UserKey| part == 0 || key.part(TURNS_OF_ALL) == part % TURNS_OF_ALL;
        let rates =
            [settings.user_messages_per_s_max, settings.user_bytes_per_s_max, settings.user_handshakes_per_s_max];
        let least = rates.map(|rate| match (rate as u64).div_ceil(LEAST_PARTS) {
            0 => u32::MAX,
            part => part.try_into().unwrap_or(u32::MAX),
        });
        let mut entries = Vec::new();
        users.take(|key, mut here, is_changed| {
            let is_used = here.used.iter().zip(least).any(|(used, least)| *used >= least);
            if !is_used {
                here.used = [0; 3];
            }
            let has_counts = here.sessions + here.subscriptions > 0;
            if is_changed || is_used || (has_counts && is_again(key)) {
                entries.push((key, here));
            }
        });
        if self.is_connected && !nodes.is_empty() && !entries.is_empty() {
            self.report(&entries);
        }
        self.forget_old(now_ms, users, nodes);
    }

    /// The time of the next turn, in milliseconds.
    pub fn next_ms(&self) -> u64 {
        self.due_ms
    }

    /// Takes what has to be done, in order.
    pub fn take_outputs(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.outputs)
    }

    /// Its counts and sizes.
    pub fn counts(&self) -> UserLimitCounts {
        UserLimitCounts { known: self.known(), ..self.counts }
    }

    fn known(&self) -> usize {
        self.nodes.values().map(|reported| reported.users.len()).sum()
    }

    /// Reports users to the other nodes; none: asks them for all theirs.
    fn report(&mut self, entries: &[(UserKey, UserUse)]) {
        self.counts.reported += entries.len() as u64;
        let in_one = (self.message_bytes_max.saturating_sub(HEAD_BYTES) / ENTRY_BYTES).max(1);
        let (mut next, mut rest) = entries.split_at(in_one.min(entries.len()));
        loop {
            let (subject, body) = (self.subject.clone(), write(self.node, next));
            self.outputs.push(Command::Send { subject, body });
            if rest.is_empty() {
                return;
            }
            (next, rest) = rest.split_at(in_one.min(rest.len()));
        }
    }

    /// Forgets nodes that are gone, uses that were not reported again, and in each half minute users that were not.
    fn forget_old(&mut self, now_ms: u64, users: &UsersOfNodes, nodes: &[u64]) {
        let is_gone = |(node, reported): (&u64, &Reported)| {
            (!nodes.contains(node) && now_ms >= reported.seen_ms + GONE_MS).then_some(*node)
        };
        let gone: Vec<u64> = self.nodes.iter().filter_map(is_gone).collect();
        gone.into_iter().for_each(|node| self.forget(node, users));
        let looks_at_all = self.turns.is_multiple_of(TURNS_OF_ALL);
        let mut changed = Vec::new();
        for reported in self.nodes.values_mut().filter(|reported| looks_at_all || reported.has_uses) {
            reported.has_uses = false;
            let has_uses = &mut reported.has_uses;
            reported.users.retain(|key, entry| {
                let is_used = entry.used_ms > 0 && now_ms >= entry.used_ms + USED_MS;
                if is_used {
                    (entry.has.used, entry.used_ms) = ([0; 3], 0);
                }
                *has_uses |= entry.used_ms > 0;
                let is_old = looks_at_all && now_ms >= entry.seen_ms + OLD_MS;
                let stays = !is_old && !entry.has.is_nothing();
                if is_used || !stays {
                    changed.push(*key);
                }
                stays
            });
        }
        changed.into_iter().for_each(|key| self.state(key, users));
    }

    /// Forgets what a node has reported.
    fn forget(&mut self, node: u64, users: &UsersOfNodes) {
        let Some(reported) = self.nodes.remove(&node) else { return };
        reported.users.into_keys().for_each(|key| self.state(key, users));
    }

    /// States what all other nodes have reported of a user.
    fn state(&self, key: UserKey, users: &UsersOfNodes) {
        let mut elsewhere = UseElsewhere::default();
        for entry in self.nodes.values().filter_map(|reported| reported.users.get(&key)) {
            let UseElsewhere { sum, nodes } = &mut elsewhere;
            sum.sessions = sum.sessions.saturating_add(entry.has.sessions);
            sum.subscriptions = sum.subscriptions.saturating_add(entry.has.subscriptions);
            for ((sum, nodes), used) in sum.used.iter_mut().zip(nodes).zip(entry.has.used) {
                *sum = sum.saturating_add(used);
                *nodes += u16::from(used > 0);
            }
        }
        users.state(key, elsewhere);
    }
}

/// Writes a message.
fn write(node: u64, entries: &[(UserKey, UserUse)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + entries.len() * ENTRY_BYTES);
    out.push(VERSION);
    out.extend_from_slice(&node.to_le_bytes());
    for (key, UserUse { sessions, subscriptions, used }) in entries {
        out.extend_from_slice(&key.0.to_le_bytes());
        [*sessions, *subscriptions].iter().chain(used).for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    }
    out
}

/// Reads a message: its node, and the users that it reports. None if this is none.
fn read(body: &[u8]) -> Option<(u64, impl Iterator<Item = (UserKey, UserUse)>)> {
    let (node, entries) = body.strip_prefix(&[VERSION])?.split_first_chunk()?;
    let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
    let entry = |bytes: &[u8; ENTRY_BYTES]| {
        let number = |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let key = UserKey(bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)));
        let used = [number(16), number(20), number(24)];
        (key, UserUse { sessions: number(8), subscriptions: number(12), used })
    };
    rest.is_empty().then(|| (u64::from_le_bytes(*node), entries.iter().map(entry)))
}

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 9;
const ENTRY_BYTES: usize = 28;
/// The most bytes of a message.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// The time between two turns, in milliseconds: the time in which uses count.
const TURN_MS: u64 = 1_000;
/// The turns in which all users are reported again.
const TURNS_OF_ALL: u64 = 30;
/// The time after which a user that was not reported again has nothing, in milliseconds. Two messages may be lost.
const OLD_MS: u64 = 100_000;
/// The time for which a use counts, in milliseconds.
const USED_MS: u64 = 2_500;
/// The time for which a node that has not said that it is there may still be there, in milliseconds.
const GONE_MS: u64 = 7_000;
/// The part of a rate from which on a use is reported.
const LEAST_PARTS: u64 = 10;
/// Users that other nodes report, each once for each node: some 70 MB.
const REPORTED_MAX: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use encke_core::{Rate, Resource};

    use super::*;

    /// Two nodes and what is on its way between them.
    struct Pair {
        nodes: [(UserLimits, UsersOfNodes); 2],
        settings: Settings,
        now_ms: u64,
        loses: bool,
    }

    impl Pair {
        fn new() -> Pair {
            let node = |number| {
                let mut machine = UserLimits::new(number, "users".into());
                machine.connected(1_000);
                machine.take_outputs();
                (machine, UsersOfNodes::default())
            };
            let settings = Settings {
                user_messages_per_s_max: 100,
                user_bytes_per_s_max: 100_000,
                user_handshakes_per_s_max: 10,
                ..Settings::default()
            };
            Pair { nodes: [node(0), node(1)], settings, now_ms: 1_000_000, loses: false }
        }

        /// Passes so many seconds. Returns the users that were reported.
        fn pass(&mut self, seconds: u64) -> u64 {
            let before: u64 = self.nodes.iter().map(|(machine, _)| machine.counts().reported).sum();
            for _ in 0..seconds {
                for number in 0..2 {
                    let (machine, users) = &mut self.nodes[number];
                    machine.turn(self.now_ms, users, &self.settings, &[1 - number as u64]);
                    for command in machine.take_outputs() {
                        let Command::Send { body, .. } = command else { continue };
                        assert!(body.len() <= 1_000);
                        let (machine, users) = &mut self.nodes[1 - number];
                        if !self.loses {
                            machine.received(self.now_ms, &body, users);
                        }
                    }
                }
                self.now_ms += TURN_MS;
            }
            self.nodes.iter().map(|(machine, _)| machine.counts().reported).sum::<u64>() - before
        }

        fn users(&self, number: usize) -> &UsersOfNodes {
            &self.nodes[number].1
        }
    }

    fn key() -> UserKey {
        UserKey::of("ann")
    }

    fn sessions(sessions: u32) -> UserUse {
        UserUse { sessions, ..UserUse::default() }
    }

    fn messages(messages: u32) -> UserUse {
        UserUse { used: [messages, 0, 0], ..UserUse::default() }
    }

    #[test]
    fn sessions_are_reported_when_they_change_and_again_in_each_half_minute() {
        let mut pair = Pair::new();
        assert_eq!(pair.pass(2), 0);
        pair.users(0).add(key(), sessions(2));
        assert_eq!((pair.pass(1), pair.users(1).elsewhere(key())), (1, sessions(2)));
        assert_eq!(pair.pass(60), 2);
        pair.users(0).remove(key(), sessions(1));
        pair.users(1).add(key(), sessions(5));
        assert_eq!(pair.pass(1), 2);
        assert_eq!((pair.users(0).elsewhere(key()), pair.users(1).elsewhere(key())), (sessions(5), sessions(1)));
        pair.users(0).remove(key(), sessions(1));
        pair.users(1).remove(key(), sessions(5));
        assert_eq!(pair.pass(100), 2);
        assert_eq!((pair.users(0).count(), pair.users(1).count()), (0, 0), "nothing stays of them");
    }

    #[test]
    fn a_lost_message_is_made_up_for_and_what_is_not_reported_again_goes() {
        let mut pair = Pair::new();
        pair.users(0).add(key(), sessions(2));
        pair.loses = true;
        pair.pass(1);
        pair.loses = false;
        pair.pass(30);
        assert_eq!(pair.users(1).elsewhere(key()), sessions(2));
        pair.users(0).remove(key(), sessions(2));
        pair.loses = true;
        pair.pass(1);
        pair.loses = false;
        assert_eq!(pair.users(1).elsewhere(key()), sessions(2));
        pair.pass(130);
        assert_eq!((pair.users(1).elsewhere(key()), pair.users(1).count()), (UserUse::default(), 0));
    }

    #[test]
    fn a_use_of_a_tenth_of_a_limit_counts_on_the_other_node_for_two_seconds() {
        let mut pair = Pair::new();
        pair.users(0).add(key(), messages(9));
        assert_eq!(pair.pass(1), 0, "so little counts on its node only");
        pair.users(0).add(key(), messages(40));
        pair.pass(1);
        assert_eq!(pair.users(1).elsewhere(key()), messages(40));
        let left = |pair: &Pair| pair.users(1).rate(key(), Resource::Messages, Rate(100)).0;
        assert_eq!(left(&pair), 60);
        pair.pass(1);
        assert_eq!(left(&pair), 60);
        pair.pass(2);
        assert_eq!((left(&pair), pair.users(1).count()), (100, 0));
    }

    #[test]
    fn two_nodes_at_their_limit_have_half_of_it_each() {
        let mut pair = Pair::new();
        let rate = |pair: &Pair, number: usize| pair.users(number).rate(key(), Resource::Messages, Rate(100)).0 as u32;
        for second in 0..10 {
            let both = [rate(&pair, 0), rate(&pair, 1)];
            assert!(second == 0 || both == [50, 50], "{both:?} in second {second}");
            (0..2).for_each(|number| pair.users(number).add(key(), messages(both[number])));
            pair.pass(1);
        }
    }

    #[test]
    fn what_a_node_has_reported_ends_with_it_and_while_the_engine_is_away() {
        for is_cut_off in [true, false] {
            let mut pair = Pair::new();
            pair.users(0).add(key(), sessions(2));
            pair.pass(1);
            let (machine, users) = &mut pair.nodes[1];
            if is_cut_off {
                machine.disconnected(users);
            } else {
                machine.turn(pair.now_ms + GONE_MS, users, &pair.settings, &[]);
            }
            assert_eq!((users.elsewhere(key()), users.count(), machine.counts().known), (UserUse::default(), 0, 0));
            machine.connected(1_000);
            pair.now_ms += 10_000;
            pair.pass(1);
            pair.pass(1);
            assert_eq!(pair.users(1).elsewhere(key()), sessions(2), "a node that is there again asks for all");
        }
    }

    #[test]
    fn many_users_take_several_messages() {
        let mut pair = Pair::new();
        (0..500).for_each(|number| pair.users(0).add(UserKey::of(&number.to_string()), sessions(number + 1)));
        assert_eq!(pair.pass(1), 500);
        for number in 0..500 {
            assert_eq!(pair.users(1).elsewhere(UserKey::of(&number.to_string())), sessions(number + 1));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_end_in_a_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let (machine, users) = &mut Pair::new().nodes[0];
            machine.received(1, &bytes, users);
        }
    }
}
