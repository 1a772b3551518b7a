//! Tests of the table of members under virtual time.

use std::collections::{BTreeMap, BTreeSet};

use encke_core::Id;
use proptest::prelude::*;
use serde_json::Value;

use super::{ANNOUNCED_MAX, MemberTable, PresenceTerms, RESTORE_MS};

const TERMS: PresenceTerms =
    PresenceTerms { grace_ms: 1_000, interval_ms: 100, members_max: 100_000, bytes_max: 1 << 30 };

fn id(number: usize) -> Id {
    Id::parse(&format!("{number:032}")).expect("an id")
}

/// A table with its clock, and what its subscribers know.
#[derive(Default)]
struct Rig {
    table: MemberTable,
    now_ms: u64,
    /// The announcements so far.
    announced: Vec<Value>,
    /// The users that are there, by the announcements.
    known: BTreeSet<String>,
}

impl Rig {
    fn join(&mut self, session: usize, user: &str) {
        assert!(self.table.join("/a", &id(session), user, true, self.now_ms, &TERMS));
    }

    fn leave(&mut self, session: usize, user: &str) {
        self.table.leave("/a", &id(session), user, self.now_ms, &TERMS);
    }

    /// Lets time pass, in steps as the thread does.
    fn pass(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        loop {
            for (channel, data) in self.table.advance(self.now_ms, &TERMS) {
                assert_eq!(&*channel, "/a");
                let data: Value = serde_json::from_str(&data).expect("JSON");
                for user in names(&data["joined"]) {
                    assert!(self.known.insert(user.clone()), "{user} joins twice");
                }
                for user in names(&data["left"]) {
                    assert!(self.known.remove(&user), "{user} leaves and was not there");
                }
                assert_eq!(data["channel"], "/a");
                self.announced.push(data);
            }
            match self.table.next_ms().filter(|next_ms| *next_ms <= end_ms) {
                Some(next_ms) => self.now_ms = self.now_ms.max(next_ms),
                None => break,
            }
        }
        self.now_ms = end_ms;
    }

    /// The announcements since the last call: who joined and left, the users and the anonymous sessions.
    fn news(&mut self) -> Vec<(Vec<String>, Vec<String>, u64, u64)> {
        let news = std::mem::take(&mut self.announced);
        let number = |data: &Value, name: &str| data[name].as_u64().expect("a number");
        let each = |data: &Value| {
            (names(&data["joined"]), names(&data["left"]), number(data, "users"), number(data, "anonymous"))
        };
        news.iter().map(each).collect()
    }
}

fn names(list: &Value) -> Vec<String> {
    list.as_array().expect("a list").iter().map(|name| name.as_str().expect("a name").to_string()).collect()
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn a_join_and_a_leave_are_announced_after_the_grace() {
    let mut rig = Rig::default();
    rig.join(1, "ann");
    rig.pass(50);
    assert_eq!(rig.news(), [(texts(&["ann"]), vec![], 1, 0)], "the first at once");
    rig.leave(1, "ann");
    rig.pass(999);
    assert_eq!((rig.news(), rig.table.counts("/a").users), (vec![], 1));
    rig.pass(1);
    assert_eq!(rig.news(), [(vec![], texts(&["ann"]), 0, 0)]);
    assert_eq!((rig.table.sizes(), rig.table.next_ms()), ([0, 0, 0], None));
}

#[test]
fn a_reload_is_neither_a_leave_nor_a_join() {
    let mut rig = Rig::default();
    rig.join(1, "ann");
    rig.pass(500);
    rig.news();
    for session in 2..20 {
        // Some pages open the new session first.
        if session % 2 == 0 {
            rig.leave(session - 1, "ann");
            rig.pass(400);
            rig.join(session, "ann");
        } else {
            rig.join(session, "ann");
            rig.pass(400);
            rig.leave(session - 1, "ann");
        }
        rig.pass(5_000);
    }
    assert_eq!(rig.news(), []);
    assert_eq!(rig.table.members("/a", "", 10).members[0].session_ids, [id(19).to_string()]);
}

#[test]
fn a_user_stays_until_its_last_session_has_left() {
    let mut rig = Rig::default();
    (1..=3).for_each(|session| rig.join(session, "ann"));
    rig.pass(500);
    assert_eq!(rig.news(), [(texts(&["ann"]), vec![], 1, 0)]);
    assert_eq!(rig.table.counts("/a").sessions, 3);
    rig.leave(2, "ann");
    rig.leave(2, "ann");
    rig.leave(1, "ann");
    rig.pass(10_000);
    assert_eq!((rig.news(), rig.table.counts("/a").sessions), (vec![], 1));
    rig.leave(3, "ann");
    rig.pass(1_000);
    assert_eq!(rig.news(), [(vec![], texts(&["ann"]), 0, 0)]);
}

#[test]
fn anonymous_sessions_are_a_number_and_a_reload_does_not_change_it() {
    let mut rig = Rig::default();
    (0..5).for_each(|session| rig.join(session, ""));
    rig.pass(10);
    assert_eq!(rig.news(), [(vec![], vec![], 0, 5)]);
    rig.leave(0, "");
    rig.pass(300);
    rig.join(5, "");
    rig.pass(5_000);
    assert_eq!(rig.news(), []);
    rig.leave(5, "");
    rig.leave(4, "");
    rig.pass(1_000);
    assert_eq!(rig.news(), [(vec![], vec![], 0, 3)]);
}

#[test]
fn many_changes_are_one_announcement_for_each_interval_and_a_thousand_users() {
    let mut rig = Rig::default();
    rig.join(0, "first");
    rig.pass(1);
    (1..=2_500).for_each(|session| rig.join(session, &format!("user{session}")));
    rig.pass(99);
    let news = rig.news();
    let joined: Vec<usize> = news.iter().map(|(joined, ..)| joined.len()).collect();
    assert_eq!(joined, [1, ANNOUNCED_MAX, ANNOUNCED_MAX, 500]);
    assert_eq!(news[3].2, 2_501);
}

#[test]
fn members_of_an_earlier_process_join_without_a_message() {
    let mut rig = Rig::default();
    assert!(rig.table.join("/a", &id(1), "ann", false, 0, &TERMS));
    assert!(rig.table.join("/a", &id(2), "", false, 0, &TERMS));
    rig.pass(10_000);
    assert_eq!(rig.news(), []);
    rig.known.insert("ann".into());
    rig.join(3, "bob");
    rig.pass(0);
    assert_eq!(rig.news(), [(texts(&["bob"]), vec![], 2, 1)]);
    rig.leave(1, "ann");
    rig.pass(2_000);
    assert_eq!(rig.news(), [(vec![], texts(&["ann"]), 1, 1)]);
}

#[test]
fn a_member_of_an_earlier_process_without_room_is_announced_as_gone() {
    let mut rig = Rig { known: BTreeSet::from(["alice".into(), "bob".into()]), ..Rig::default() };
    let terms = PresenceTerms { members_max: 1, ..TERMS };
    let mut restored = |session, user| rig.table.join("/a", &id(session), user, false, 0, &terms);
    assert!(restored(1, "alice"));
    assert!(!restored(2, "bob") && !restored(3, "alice") && !restored(4, ""));
    rig.pass(100);
    assert_eq!(rig.announced.len(), 0, "other shards may have more of them");
    rig.pass(RESTORE_MS - 100);
    assert_eq!(rig.known, BTreeSet::from(["alice".into()]), "alice is there with another session");
    assert_eq!(rig.announced.len(), 1);
    assert_eq!((&rig.announced[0]["users"], &rig.announced[0]["sessions"]), (&1.into(), &1.into()));
    // There is room for its next session, which joins as a new one.
    rig.leave(1, "alice");
    rig.pass(2_000);
    rig.join(5, "bob");
    rig.pass(1_000);
    assert_eq!(rig.known, BTreeSet::from(["bob".into()]));
    rig.leave(5, "bob");
    rig.pass(2_000);
    assert_eq!(rig.table.sizes(), [0, 0, 0]);
}

#[test]
fn a_member_without_room_that_joins_again_is_announced_also_to_who_did_not_know_it() {
    let terms = PresenceTerms { members_max: 1, ..TERMS };
    let restored = || {
        let mut rig = Rig::default();
        assert!(rig.table.join("/b", &id(1), "alice", false, 0, &terms));
        assert!(!rig.table.join("/a", &id(2), "bob", false, 0, &terms));
        rig.join(3, "bob");
        rig
    };
    let mut rig = restored();
    rig.pass(RESTORE_MS);
    assert_eq!(rig.news(), [(texts(&["bob"]), vec![], 1, 0)]);
    // It is gone also for those who knew it.
    let mut rig = restored();
    rig.known.insert("bob".into());
    rig.leave(3, "bob");
    rig.table.expire(2_000);
    rig.pass(RESTORE_MS);
    assert_eq!(rig.news(), [(vec![], texts(&["bob"]), 0, 0)]);
}

#[test]
fn members_come_in_pages() {
    let mut rig = Rig::default();
    for session in 0..25 {
        rig.join(session, &format!("u{session:02}"));
    }
    let (mut after, mut seen, mut pages) = (String::new(), Vec::new(), 0);
    loop {
        let page = rig.table.members("/a", &after, 10);
        assert_eq!(page.counts.users, 25);
        seen.extend(page.members.into_iter().map(|member| member.user));
        pages += 1;
        let Some(next) = page.next else { break };
        after = next;
    }
    assert_eq!((pages, seen.len(), &*seen[24]), (3, 25, "u24"));
    // Long names: a page has a bound in bytes, and at least one member.
    let mut rig = Rig::default();
    for session in 0..5 {
        rig.join(session, &format!("{session}{}", "x".repeat(50_000)));
    }
    assert_eq!(rig.table.members("/a", "", 1_000).members.len(), 1);
    assert_eq!(rig.table.members("/b", "", 1_000).members.len(), 0);
}

#[test]
fn the_table_is_bounded_also_by_those_that_leave() {
    let terms = PresenceTerms { members_max: 10, ..TERMS };
    let mut table = MemberTable::default();
    let joined = (0..100).filter(|number| table.join("/a", &id(*number), &format!("u{number}"), true, 0, &terms));
    assert_eq!(joined.count(), 10);
    // Sessions that come and go with new names within the grace time.
    for number in 100..200 {
        let user = format!("u{number}");
        table.join("/b", &id(number), &user, true, 0, &terms);
        table.leave("/b", &id(number), &user, 0, &terms);
    }
    (0..100).for_each(|number| table.leave("/a", &id(number), &format!("u{number}"), 0, &terms));
    for number in 200..300 {
        assert!(!table.join("/c", &id(number), &format!("u{number}"), true, 500, &terms), "until the grace is over");
    }
    table.advance(1_000, &terms);
    assert!(table.join("/c", &id(300), "late", true, 1_000, &terms));
    let terms = PresenceTerms { bytes_max: 1_000, ..TERMS };
    let mut table = MemberTable::default();
    let joined = (0..100).filter(|number| table.join("/a", &id(*number), &format!("u{number}"), true, 0, &terms));
    assert_eq!(joined.count(), 3);
}

/// Something that happens on a channel.
#[derive(Clone, Debug)]
enum Step {
    Join(usize, usize),
    Leave(usize, usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_usize..12, 0_usize..4).prop_map(|(session, user)| Step::Join(session, user)),
        (0_usize..12, 0_usize..4).prop_map(|(session, user)| Step::Leave(session, user)),
        (0_u64..1_500).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Whatever comes and goes: who follows the announcements knows the users, joins and leaves alternate for each user,
    /// no user leaves that was away for less than the grace, and in the end nothing is left.
    #[test]
    fn announcements_agree_with_the_members(steps in prop::collection::vec(step(), 0..120)) {
        let mut rig = Rig::default();
        let mut sessions: BTreeMap<usize, usize> = BTreeMap::new();
        let users = ["", "ann", "bob", "eve"];
        // The time since which a user has no session.
        let mut away: BTreeMap<usize, u64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Join(session, user) if !sessions.contains_key(&session) => {
                    sessions.insert(session, user);
                    away.remove(&user);
                    rig.join(session, users[user]);
                }
                Step::Leave(session, user) if sessions.get(&session) == Some(&user) => {
                    sessions.remove(&session);
                    rig.leave(session, users[user]);
                    if !sessions.values().any(|other| *other == user) {
                        away.insert(user, rig.now_ms);
                    }
                }
                Step::Join(..) | Step::Leave(..) => {}
                Step::Pass(ms) => rig.pass(ms),
            }
            let counts = rig.table.counts("/a");
            prop_assert_eq!(counts.sessions, sessions.len());
            prop_assert!(counts.anonymous >= sessions.values().filter(|user| **user == 0).count());
            for user in sessions.values().filter(|user| **user > 0) {
                let listed = rig.table.members("/a", "", 10).members;
                prop_assert!(listed.iter().any(|member| member.user == users[*user]));
            }
            for user in &rig.known {
                let number = users.iter().position(|name| name == user).expect("a user");
                let away_ms = away.get(&number).map_or(0, |since_ms| rig.now_ms - since_ms);
                prop_assert!(away_ms <= TERMS.grace_ms + TERMS.interval_ms, "{user} is gone");
            }
        }
        rig.pass(200);
        let there: BTreeSet<String> =
            rig.table.members("/a", "", 10).members.into_iter().map(|member| member.user).collect();
        prop_assert_eq!(&there, &rig.known);
        for (session, user) in std::mem::take(&mut sessions) {
            rig.leave(session, users[user]);
        }
        rig.pass(2_000);
        prop_assert!(rig.known.is_empty());
        prop_assert_eq!((rig.table.sizes(), rig.table.next_ms()), ([0, 0, 0], None));
    }
}
