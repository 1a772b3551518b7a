//! Nodes that report their members to each other, over a network that delays, loses and doubles nothing but whole streams.

use std::collections::{BTreeMap, BTreeSet};

use encke_core::{Id, SessionOwner};
use proptest::prelude::*;
use serde_json::Value;

use super::reporter::Reporter;
use super::{Gathered, MemberTable, MembersReport, PresenceTerms, ToFollow};

pub(super) const TERMS: PresenceTerms =
    PresenceTerms { grace_ms: 1_000, interval_ms: 100, members_max: 100_000, bytes_max: 1 << 30 };
/// Long enough for all that is to be reported, announced or forgotten.
pub(super) const SETTLED_MS: u64 = 30_000;
const STEP_MS: u64 = 20;

fn id(number: usize) -> Id {
    Id::parse(&format!("{number:032}")).expect("an id")
}

/// A node with what subscribers of its announcements know.
#[derive(Default)]
pub(super) struct Node {
    pub(super) table: MemberTable,
    pub(super) gathered: Gathered,
    pub(super) reporter: Reporter,
    /// The users that are there by its announcements, by channel. Filled with the list when it is gathered.
    known: BTreeMap<String, BTreeSet<String>>,
    pub(super) is_away: bool,
}

/// A message on its way: its arrival, the receiver, and what it says.
enum Flight {
    Follow(u64, ToFollow),
    Followed(ToFollow, bool),
    Report(u64, u64, MembersReport),
    Reported(u64, u64, bool),
}

pub(super) struct Cluster {
    pub(super) nodes: BTreeMap<u64, Node>,
    flights: Vec<(u64, u64, Flight)>,
    pub(super) now_ms: u64,
    delay_ms: u64,
    pub(super) reports: usize,
    /// The bytes of names in the largest command to follow them.
    pub(super) follow_bytes: usize,
    pub(super) terms: PresenceTerms,
    sessions: BTreeSet<(u64, String, usize, String)>,
}

impl Cluster {
    pub(super) fn new(nodes: u64) -> Cluster {
        let node = |number| {
            let mut node = Node::default();
            node.table.watch();
            (number, node)
        };
        let nodes = (1..=nodes).map(node).collect();
        let (flights, sessions) = (Vec::new(), BTreeSet::new());
        let mut cluster =
            Cluster { nodes, flights, now_ms: 0, delay_ms: 10, reports: 0, follow_bytes: 0, terms: TERMS, sessions };
        cluster.pass(STEP_MS);
        cluster
    }

    pub(super) fn node(&mut self, number: u64) -> &mut Node {
        self.nodes.get_mut(&number).expect("a node")
    }

    pub(super) fn join(&mut self, node: u64, channel: &str, session: usize, user: &str) {
        if self.sessions.insert((node, channel.into(), session, user.into())) {
            let now_ms = self.now_ms;
            self.node(node).table.join(channel, &id(session), user, true, now_ms, &TERMS);
        }
    }

    pub(super) fn leave(&mut self, node: u64, channel: &str, session: usize, user: &str) {
        if self.sessions.remove(&(node, channel.into(), session, user.into())) {
            let now_ms = self.now_ms;
            self.node(node).table.leave(channel, &id(session), user, now_ms, &TERMS);
        }
    }

    pub(super) fn want(&mut self, node: u64, name: &str, is_wanted: bool) {
        let now_ms = self.now_ms;
        let Node { table, gathered, .. } = self.node(node);
        gathered.want(name, is_wanted, table, now_ms);
    }

    /// A killed node: its members are gone, and another one starts.
    fn kill(&mut self, node: u64) {
        self.nodes.remove(&node);
        self.sessions.retain(|(of, ..)| *of != node);
        let mut new = Node::default();
        new.table.watch();
        self.nodes.insert(node + 100, new);
    }

    pub(super) fn pass(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        while self.now_ms < end_ms {
            self.now_ms += STEP_MS;
            self.step();
        }
    }

    fn step(&mut self) {
        let (now_ms, terms) = (self.now_ms, self.terms);
        let arrived: Vec<_> = self.flights.extract_if(.., |(at_ms, ..)| *at_ms <= now_ms).collect();
        arrived.into_iter().for_each(|(_, to, flight)| self.arrive(to, flight));
        let here: Vec<u64> = self.nodes.iter().filter(|(_, node)| !node.is_away).map(|(number, _)| *number).collect();
        let numbers: Vec<u64> = self.nodes.keys().copied().collect();
        for number in numbers {
            let others: Vec<u64> = here.iter().copied().filter(|other| *other != number).collect();
            let mut flights = Vec::new();
            let node = self.node(number);
            node.table.advance_quietly(now_ms);
            node.spread();
            node.gathered.set_nodes((!node.is_away).then_some(&*others), &TERMS, now_ms);
            if !node.is_away {
                for follow in node.gathered.take_follows(&terms, now_ms) {
                    flights.push((follow.node, Flight::Follow(number, follow)));
                }
                for (to, stream, report) in node.reporter.take_reports(&node.table, &TERMS, now_ms) {
                    flights.push((to, Flight::Report(number, stream, report)));
                }
            }
            node.announce(now_ms);
            let at_ms = now_ms + self.delay_ms;
            for (_, flight) in &flights {
                if let Flight::Follow(_, follow) = flight {
                    let bytes = follow.names.iter().map(|name| name.len()).sum();
                    self.follow_bytes = self.follow_bytes.max(bytes);
                }
            }
            self.flights.extend(flights.into_iter().map(|(to, flight)| (at_ms, to, flight)));
        }
    }

    fn arrive(&mut self, to: u64, flight: Flight) {
        let (now_ms, terms) = (self.now_ms, self.terms);
        let is_here = self.nodes.get(&to).is_some_and(|node| !node.is_away);
        let answer = match flight {
            Flight::Follow(from, follow) => {
                if is_here {
                    let names = (follow.names.clone(), follow.page);
                    self.node(to).reporter.follow((from, follow.stream), names, now_ms);
                }
                Some((from, Flight::Followed(follow, is_here)))
            }
            Flight::Report(from, stream, report) => {
                self.reports += 1;
                let is_taken = is_here && self.node(to).gathered.take_report((from, stream), report, &terms);
                Some((from, Flight::Reported(to, stream, is_taken)))
            }
            Flight::Followed(follow, is_taken) => {
                let node = self.nodes.get_mut(&to);
                node.into_iter()
                    .for_each(|node| _ = node.gathered.followed(follow.node, follow.stream, is_taken, now_ms));
                None
            }
            Flight::Reported(from, stream, is_taken) => {
                let node = self.nodes.get_mut(&to);
                node.into_iter().for_each(|node| node.reporter.answered(from, stream, is_taken));
                None
            }
        };
        let at_ms = now_ms + self.delay_ms;
        self.flights.extend(answer.map(|(to, flight)| (at_ms, to, flight)));
    }

    /// The users of a channel on all nodes.
    fn users(&self, channel: &str) -> BTreeSet<String> {
        let here = self.sessions.iter().filter(|(_, of, _, user)| of == channel && !user.is_empty());
        here.map(|(.., user)| user.clone()).collect()
    }

    pub(super) fn listed(&self, node: u64, channel: &str) -> BTreeSet<String> {
        self.nodes[&node].listed(channel)
    }

    /// The lists and the announcements of a node say who is on a channel.
    pub(super) fn check(&self, node: u64, channel: &str) {
        let (expected, own) = (self.users(channel), &self.nodes[&node]);
        assert!(own.gathered.is_ready(channel), "{channel} is gathered at {node}");
        assert_eq!(self.listed(node, channel), expected, "the list of {channel} at {node}");
        assert_eq!(
            own.known.get(channel).cloned().unwrap_or_default(),
            expected,
            "{channel} by announcements at {node}"
        );
        let counts = own.gathered.members(channel, ("", 1), &own.table).counts;
        let sessions = self.sessions.iter().filter(|(_, of, ..)| of == channel);
        let anonymous = sessions.clone().filter(|(.., user)| user.is_empty()).count();
        assert_eq!((counts.users, counts.anonymous, counts.sessions), (expected.len(), anonymous, sessions.count()));
    }
}

impl Node {
    fn spread(&mut self) {
        let touched = self.table.take_touched();
        self.gathered.touched(&touched, &self.table);
        self.reporter.touched(&touched);
    }

    /// Subscribers ask for the list once it is gathered, and follow the announcements from then on.
    fn announce(&mut self, now_ms: u64) {
        for (channel, data) in self.gathered.advance(now_ms, &TERMS) {
            let data: Value = serde_json::from_str(&data).expect("JSON");
            let Some(known) = self.known.get_mut(&*channel) else { continue };
            let names = |list: &Value| {
                let names = list.as_array().expect("a list").iter();
                names.map(|name| name.as_str().expect("a name").to_owned()).collect::<Vec<_>>()
            };
            for user in names(&data["joined"]) {
                assert!(known.insert(user.clone()), "{user} joins {channel} twice");
            }
            for user in names(&data["left"]) {
                assert!(known.remove(&user), "{user} leaves {channel} and was not there");
            }
        }
    }

    /// A subscriber begins with the list.
    pub(super) fn begin(&mut self, channel: &str) {
        assert!(self.gathered.is_ready(channel));
        self.known.insert(channel.into(), self.listed(channel));
    }

    /// All pages of a list.
    fn listed(&self, channel: &str) -> BTreeSet<String> {
        let (mut listed, mut next) = (BTreeSet::new(), Some(String::new()));
        while let Some(after) = next {
            let page = self.gathered.members(channel, (&after, 1_000), &self.table);
            listed.extend(page.members.into_iter().map(|member| member.user));
            next = page.next;
        }
        listed
    }
}

#[test]
fn a_node_lists_and_announces_the_members_of_all() {
    let mut cluster = Cluster::new(3);
    cluster.join(1, "/a", 1, "ann");
    cluster.join(2, "/a", 2, "bob");
    cluster.join(2, "/a", 3, "");
    cluster.join(2, "/other", 4, "eve");
    cluster.pass(1_000);
    assert_eq!(cluster.reports, 0, "nobody follows anything");
    cluster.want(3, "/a", true);
    assert!(!cluster.nodes[&3].gathered.is_ready("/a"));
    cluster.pass(100);
    cluster.node(3).begin("/a");
    cluster.check(3, "/a");
    cluster.join(1, "/a", 5, "cid");
    cluster.join(3, "/a", 6, "dan");
    cluster.pass(300);
    cluster.check(3, "/a");
    cluster.leave(2, "/a", 2, "bob");
    cluster.pass(TERMS.grace_ms / 2);
    assert!(cluster.listed(3, "/a").contains("bob"), "within the grace time");
    cluster.pass(TERMS.grace_ms);
    cluster.check(3, "/a");
    let before = cluster.reports;
    cluster.pass(8_000);
    assert_eq!(cluster.reports, before, "nothing has changed");
}

#[test]
fn a_user_that_moves_to_another_node_is_not_announced() {
    let mut cluster = Cluster::new(3);
    cluster.want(3, "/a", true);
    cluster.pass(200);
    cluster.node(3).begin("/a");
    cluster.join(1, "/a", 1, "ann");
    cluster.pass(1_000);
    cluster.leave(1, "/a", 1, "ann");
    cluster.pass(200);
    cluster.join(2, "/a", 1, "ann");
    // It would panic at a second join.
    cluster.pass(SETTLED_MS);
    cluster.check(3, "/a");
}

#[test]
fn the_users_of_a_killed_node_stay_for_the_grace_time_and_leave_unless_they_are_elsewhere() {
    let mut cluster = Cluster::new(3);
    cluster.want(3, "/*", true);
    cluster.pass(100);
    ["/a", "/b"].iter().for_each(|channel| cluster.node(3).begin(channel));
    cluster.join(1, "/a", 1, "ann");
    cluster.join(1, "/a", 2, "bob");
    cluster.join(1, "/b", 3, "eve");
    cluster.pass(1_000);
    ["/a", "/b"].iter().for_each(|channel| cluster.check(3, channel));
    cluster.kill(1);
    cluster.pass(500);
    assert_eq!(cluster.listed(3, "/a").len(), 2);
    cluster.join(2, "/a", 1, "ann");
    cluster.pass(SETTLED_MS);
    ["/a", "/b"].iter().for_each(|channel| cluster.check(3, channel));
    assert_eq!(cluster.listed(3, "/a").len(), 1);
}

#[test]
fn a_node_that_was_away_reports_what_has_changed_meanwhile() {
    let mut cluster = Cluster::new(2);
    cluster.want(2, "/a", true);
    cluster.pass(200);
    cluster.node(2).begin("/a");
    cluster.join(1, "/a", 1, "ann");
    cluster.join(1, "/a", 2, "bob");
    cluster.pass(1_000);
    for away_ms in [3_000, 60_000] {
        cluster.node(1).is_away = true;
        cluster.pass(away_ms / 2);
        cluster.join(1, "/a", 3, "cid");
        cluster.leave(1, "/a", 2, "bob");
        cluster.pass(away_ms / 2);
        cluster.node(1).is_away = false;
        cluster.pass(SETTLED_MS);
        cluster.check(2, "/a");
        cluster.join(1, "/a", 2, "bob");
        cluster.leave(1, "/a", 3, "cid");
        cluster.pass(SETTLED_MS);
        cluster.check(2, "/a");
    }
}

#[test]
fn a_channel_with_more_users_than_a_report_has_room_for_is_reported_in_parts() {
    let mut cluster = Cluster::new(2);
    let user = |number: usize| format!("{number:0>50}");
    (0..5_000).for_each(|number| cluster.join(1, "/a", number, &user(number)));
    cluster.want(2, "/a", true);
    cluster.pass(40);
    // While its parts are on their way.
    cluster.leave(1, "/a", 0, &user(0));
    cluster.leave(1, "/a", 4_999, &user(4_999));
    cluster.join(1, "/a", 6_000, &user(6_000));
    cluster.pass(400);
    cluster.node(2).begin("/a");
    cluster.pass(SETTLED_MS);
    assert!(cluster.reports > 4, "{}", cluster.reports);
    cluster.check(2, "/a");
}

#[test]
fn an_asker_follows_a_channel_for_a_while_and_has_its_share_of_them() {
    let mut cluster = Cluster::new(2);
    cluster.join(1, "/a", 1, "ann");
    let (greedy, other) = (SessionOwner::of(1), SessionOwner::of(2));
    let Node { table, gathered, .. } = cluster.node(2);
    let asked = (0..2_000).filter(|number| gathered.ask(&format!("/c/{number}"), Some(greedy), table, 20)).count();
    assert!((500..1_000).contains(&asked), "{asked}");
    assert!(gathered.ask("/a", Some(other), table, 20), "others have their share");
    cluster.pass(200);
    assert_eq!(cluster.listed(2, "/a").len(), 1);
    cluster.pass(40_000);
    assert_eq!(cluster.nodes[&2].gathered.sizes(), [0, 0, 0]);
}

#[derive(Clone, Debug)]
enum Act {
    Join(u64, usize, usize),
    Leave(u64, usize, usize),
    Want(u64, usize, bool),
    Away(u64, bool),
    Pass(u64),
    Delay(u64),
}

const CHANNELS: [&str; 3] = ["/a", "/r/1", "/r/2"];
const NAMES: [&str; 4] = ["/a", "/r/*", "/r/1", "/**"];
const USERS: [&str; 4] = ["ann", "bob", "cid", ""];

fn acts() -> impl Strategy<Value = Act> {
    let node = 1..=3_u64;
    prop_oneof![
        4 => (node.clone(), 0..CHANNELS.len(), 0..12_usize).prop_map(|(node, channel, session)| Act::Join(node, channel, session)),
        4 => (node.clone(), 0..CHANNELS.len(), 0..12_usize).prop_map(|(node, channel, session)| Act::Leave(node, channel, session)),
        2 => (node.clone(), 0..NAMES.len(), any::<bool>()).prop_map(|(node, name, is_wanted)| Act::Want(node, name, is_wanted)),
        1 => (node, any::<bool>()).prop_map(|(node, is_away)| Act::Away(node, is_away)),
        4 => prop_oneof![0..500_u64, 0..20_000_u64].prop_map(Act::Pass),
        1 => (0..400_u64).prop_map(Act::Delay),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn in_the_end_each_node_that_follows_a_channel_lists_and_has_announced_who_is_there(acts in prop::collection::vec(acts(), 1..60)) {
        let mut cluster = Cluster::new(3);
        // A subscriber of this node has been there from the beginning, so announcements say all.
        cluster.want(1, "/a", true);
        cluster.want(1, "/r/*", true);
        cluster.pass(500);
        CHANNELS.iter().for_each(|channel| cluster.node(1).begin(channel));
        for act in acts {
            match act {
                Act::Join(node, channel, session) => cluster.join(node, CHANNELS[channel], session, USERS[session % 4]),
                Act::Leave(node, channel, session) => cluster.leave(node, CHANNELS[channel], session, USERS[session % 4]),
                Act::Want(node, name, is_wanted) if node != 1 => cluster.want(node, NAMES[name], is_wanted),
                Act::Want(..) => {}
                Act::Away(node, is_away) => cluster.node(node).is_away = is_away,
                Act::Pass(ms) => cluster.pass(ms),
                Act::Delay(ms) => cluster.delay_ms = ms,
            }
        }
        cluster.nodes.values_mut().for_each(|node| node.is_away = false);
        cluster.pass(2 * SETTLED_MS);
        CHANNELS.iter().for_each(|channel| cluster.check(1, channel));
    }
}
