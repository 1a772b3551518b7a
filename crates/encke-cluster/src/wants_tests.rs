//! Tests of what a node wants, with an engine that confirms when the test says so.

use std::collections::{BTreeMap, BTreeSet};

use bayeux::ChannelName;
use proptest::prelude::*;

use super::*;

const DELAY_MS: u64 = 5_000;

/// The wants of a node, and the subscriptions that its engine has.
struct Rig {
    wants: Wants,
    now_ms: u64,
    last: u64,
    confirmed: u64,
    /// By their keys, with the number of their confirmation.
    subscriptions: BTreeMap<u64, (String, u64)>,
    /// The names with subscribers.
    wanted: BTreeSet<String>,
}

impl Rig {
    fn new(shared_from: usize, subscriptions_max: usize) -> Rig {
        let wants = Wants::new(WantsLimits { leave_delay_ms: DELAY_MS, shared_from, subscriptions_max });
        let (subscriptions, wanted) = (BTreeMap::new(), BTreeSet::new());
        Rig { wants, now_ms: 0, last: 0, confirmed: 0, subscriptions, wanted }
    }

    fn add(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.set(name, true));
    }

    fn remove(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.set(name, false));
    }

    fn set(&mut self, name: &str, is_wanted: bool) {
        if is_wanted && self.wanted.insert(name.into()) {
            self.wants.add(name);
        } else if !is_wanted && self.wanted.remove(name) {
            self.wants.remove(name, self.now_ms);
        }
    }

    /// One turn of the node.
    fn turn(&mut self) {
        self.wants.expire(self.now_ms, |name| self.wanted.contains(name));
        let new = self.wants.plan(self.last, self.last + 1);
        if !new.is_empty() {
            self.last += 1;
            let new = new.into_iter().map(|(key, cover)| (key, (cover.to_string(), self.last)));
            self.subscriptions.extend(new);
        }
        self.end();
    }

    fn confirm(&mut self) {
        self.confirmed = self.last;
        self.end();
    }

    /// Replaced subscriptions end.
    fn overlap(&mut self) {
        self.now_ms += OVERLAP_MS;
        self.end();
    }

    fn end(&mut self) {
        for key in self.wants.ended(self.confirmed, self.now_ms) {
            assert!(self.subscriptions.remove(&key).is_some(), "it was subscribed to");
        }
    }

    fn settle(&mut self) -> Vec<String> {
        self.turn();
        self.confirm();
        self.overlap();
        let mut covers: Vec<String> = self.subscriptions.values().map(|(cover, _)| cover.clone()).collect();
        covers.sort();
        assert_eq!(covers.len(), self.wants.subscriptions());
        covers
    }

    fn after_the_delay(&mut self) -> Vec<String> {
        self.now_ms += DELAY_MS;
        self.settle()
    }
}

#[test]
fn a_wanted_pattern_covers_what_it_reaches() {
    let mut rig = Rig::new(100, 100);
    rig.add(&["/a", "/a/b", "/a/c", "/a/b/c", "/a/b/*", "/ab"]);
    assert_eq!(rig.settle(), ["/a", "/a/b", "/a/b/*", "/a/c", "/ab"]);
    rig.add(&["/a/*"]);
    assert_eq!(rig.settle(), ["/a", "/a/*", "/a/b/*", "/ab"]);
    rig.add(&["/a/**"]);
    assert_eq!(rig.settle(), ["/a", "/a/**", "/ab"]);
    rig.add(&["/*"]);
    assert_eq!(rig.settle(), ["/*", "/a/**"]);
    rig.add(&["/**"]);
    assert_eq!(rig.settle(), ["/**"]);
    rig.remove(&["/**", "/a/**", "/a/b/*"]);
    assert_eq!(rig.after_the_delay(), ["/*", "/a/*", "/a/b/c"]);
    rig.remove(&["/*", "/a/*"]);
    assert_eq!(rig.after_the_delay(), ["/a", "/a/b", "/a/b/c", "/a/c", "/ab"]);
}

#[test]
fn a_name_stays_wanted_for_a_while() {
    let mut rig = Rig::new(100, 100);
    for _ in 0..10 {
        rig.add(&["/a"]);
        assert_eq!(rig.settle(), ["/a"]);
        rig.remove(&["/a"]);
        rig.now_ms += DELAY_MS - OVERLAP_MS - 1;
        assert_eq!(rig.settle(), ["/a"]);
    }
    assert_eq!(rig.last, 1, "it was subscribed to once");
    rig.now_ms += 1;
    rig.settle();
    assert!(rig.settle().is_empty() && rig.wants.names.is_empty() && rig.wants.parents.is_empty());
}

#[test]
fn the_replaced_subscription_ends_after_the_new_one_is_confirmed() {
    let mut rig = Rig::new(100, 100);
    rig.add(&["/a/b"]);
    rig.settle();
    rig.add(&["/a/*"]);
    rig.turn();
    assert_eq!(rig.subscriptions.len(), 2);
    assert_eq!(rig.wants.confirmation_of("/a/b"), Some(2), "by the new one, although the old one is there");
    rig.confirm();
    assert_eq!(rig.subscriptions.len(), 2, "the engine may still be sending");
    rig.overlap();
    assert_eq!(rig.subscriptions.len(), 1);
}

#[test]
fn many_channels_of_one_parent_share_a_subscription() {
    let mut rig = Rig::new(64, 1_000);
    let channels: Vec<String> = (0..65).map(|number| format!("/user/{number:02}")).collect();
    let channels: Vec<&str> = channels.iter().map(String::as_str).collect();
    rig.add(&channels[..64]);
    rig.add(&["/user/1/private", "/other"]);
    assert_eq!(rig.settle().len(), 66);
    rig.add(&channels[64..]);
    assert_eq!(rig.settle(), ["/other", "/user/*", "/user/1/private"]);
    rig.remove(&channels[32..]);
    assert_eq!(rig.after_the_delay().len(), 34, "32 channels have their own again");
}

#[test]
fn too_many_subscriptions_give_way_to_one_for_all() {
    let mut rig = Rig::new(64, 10);
    let channels: Vec<String> = (0..11).map(|number| format!("/room/{number}/chat")).collect();
    let channels: Vec<&str> = channels.iter().map(String::as_str).collect();
    rig.add(&channels);
    assert_eq!(rig.settle(), ["/**"]);
    rig.remove(&channels[5..]);
    assert_eq!(rig.after_the_delay().len(), 5);
}

#[test]
fn the_way_back_from_all_channels_asks_for_subscriptions_and_not_for_names() {
    let mut rig = Rig::new(64, 10);
    let names = |parent: &str, count: usize| (0..count).map(|it| format!("/{parent}/{it}/x")).collect::<Vec<_>>();
    let shared: Vec<String> = (0..1_000).map(|number| format!("/user/{number}")).collect();
    let rooms = names("room", 10);
    let rooms: Vec<&str> = rooms.iter().map(String::as_str).collect();
    rig.add(&shared.iter().map(String::as_str).collect::<Vec<_>>());
    rig.add(&rooms[..9]);
    assert_eq!(rig.settle().len(), 10);
    rig.add(&rooms[9..]);
    assert_eq!(rig.settle(), ["/**"]);
    assert_eq!((rig.wants.confirmation_of("/user/7"), rig.wants.subscriptions()), (Some(rig.last), 1));
    rig.remove(&rooms[5..]);
    assert_eq!(rig.after_the_delay(), ["/**"], "they are more than half as many");
    rig.remove(&rooms[4..5]);
    assert_eq!(rig.after_the_delay().len(), 5);
    let keys = |rig: &Rig| rig.subscriptions.keys().copied().collect::<Vec<_>>();
    let before = keys(&rig);
    rig.add(&rooms);
    assert_eq!(rig.settle(), ["/**"]);
    let all = keys(&rig);
    rig.remove(&rooms);
    assert_eq!(rig.after_the_delay(), ["/user/*"]);
    assert!([before, all, keys(&rig)].concat().is_sorted(), "an engine reads older subscriptions first");
}

#[test]
fn a_turn_chooses_covers_of_so_many_names_and_none_is_uncovered_meanwhile() {
    let mut rig = Rig::new(100_000, 100_000);
    let names: Vec<String> = (0..3 * CHOSEN_MAX).map(|number| format!("/a/b/{number:06}")).collect();
    rig.add(&names.iter().map(String::as_str).collect::<Vec<_>>());
    rig.settle();
    rig.add(&["/a/**"]);
    // Those inside it change nothing.
    rig.add(&["/a/b/**", "/a/b/*", "/a/b/c/**"]);
    assert_eq!(rig.wants.unchosen.len(), 1);
    let mut turns = 0;
    while !rig.wants.unchosen.is_empty() {
        turns += 1;
        assert_eq!(rig.wants.next_ms(), Some(0));
        rig.turn();
        rig.confirm();
        let covered = names.iter().filter(|name| &*rig.wants.names[name.as_str()].cover == "/a/**").count();
        assert!(covered <= turns * CHOSEN_MAX, "{covered} in {turns} turns");
        let is_brought = |name: &String| rig.wants.confirmation_of(name).is_some_and(|by| by <= rig.confirmed);
        assert!(names.iter().all(is_brought));
    }
    assert_eq!(turns, 4);
    assert_eq!(rig.settle(), ["/a/**"]);
    rig.remove(&["/a/b/**", "/a/b/c/**"]);
    assert_eq!(rig.after_the_delay(), ["/a/**"]);
    assert!(rig.wants.unchosen.is_empty(), "nothing was covered by them");
}

#[test]
fn a_flood_of_names_that_come_and_go_holds_few() {
    let mut rig = Rig::new(64, 1_000);
    for number in 0..3 * LEAVING_MAX {
        let name = format!("/a/{number}");
        rig.add(&[&name]);
        rig.remove(&[&name]);
        rig.wants.expire(0, |_| false);
    }
    assert!(rig.wants.names.len() <= LEAVING_MAX && rig.wants.leaving.len() <= LEAVING_MAX);
}

proptest! {
    /// After any changes, a confirmed subscription brings each wanted name, and settled subscriptions bring nothing twice.
    #[test]
    fn each_wanted_name_is_covered_once(
        steps in prop::collection::vec((0..NAMES.len() + 2, any::<bool>()), 1..60),
        shared_from in 1_usize..4,
        subscriptions_max in 3_usize..20,
    ) {
        let mut rig = Rig::new(shared_from, subscriptions_max);
        // The names that are confirmed while they are wanted.
        let mut known = BTreeSet::new();
        for (step, is_wanted) in steps {
            match NAMES.get(step) {
                Some(name) => rig.set(name, is_wanted),
                None if step == NAMES.len() => rig.confirm(),
                None => rig.now_ms += DELAY_MS / 2,
            }
            rig.turn();
            known.retain(|name: &String| rig.wanted.contains(name));
            let confirmed = |name: &String| rig.wants.confirmation_of(name).is_some_and(|by| by <= rig.confirmed);
            known.extend(rig.wanted.iter().filter(|name| confirmed(name)).cloned());
            for name in &known {
                let reached = NAMES.iter().filter(|other| ChannelName::known(name).matches(ChannelName::known(other)));
                for channel in reached {
                    let brings = |(cover, by): &&(String, u64)| {
                        *by <= rig.confirmed && (cover == channel || bayeux::channel::overlap(cover, channel))
                    };
                    prop_assert!(rig.subscriptions.values().any(|it| brings(&it)), "{} of {} has stopped", channel, name);
                }
            }
        }
        let covers = rig.settle();
        for channel in NAMES.iter().filter(|name| !is_pattern(name)) {
            let brings = covers.iter().filter(|cover| ChannelName::known(cover).matches(ChannelName::known(channel)));
            prop_assert!(brings.count() <= 1, "{} comes twice by {:?}", channel, covers);
        }
    }
}

const NAMES: [&str; 12] =
    ["/a", "/b", "/a/b", "/a/c", "/a/d", "/a/b/c", "/*", "/**", "/a/*", "/a/**", "/a/b/*", "/a/b/**"];
