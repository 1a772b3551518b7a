//! Nodes that follow very many channels, or have no room for the members of others.

use super::gathered_tests::{Cluster, SETTLED_MS, TERMS};
use super::report::PartReport;
use super::{FollowPage, Gathered, MemberTable, MembersReport, PresenceTerms, ToFollow};

/// A node that follows one other, number 1, and what it asks it for.
fn follower(name: &str) -> (Gathered, ToFollow) {
    let mut gathered = Gathered::default();
    gathered.set_nodes(Some(&[1]), &TERMS, 0);
    gathered.want(name, true, &MemberTable::default(), 0);
    let follow = gathered.take_follows(&TERMS, 0).remove(0);
    (gathered, follow)
}

fn users(gathered: &Gathered, channel: &str) -> Vec<String> {
    let page = gathered.members(channel, ("", 100), &MemberTable::default());
    page.members.into_iter().map(|member| member.user).collect()
}

#[test]
fn members_of_other_nodes_have_a_limit_and_those_of_this_node_are_listed_first() {
    let mut cluster = Cluster::new(2);
    cluster.terms = PresenceTerms { members_max: 10, ..TERMS };
    cluster.pass(1_000);
    (0..100).for_each(|number| cluster.join(1, "/a", number, &format!("user-{number}")));
    cluster.join(2, "/a", 200, "own");
    cluster.want(2, "/a", true);
    cluster.pass(1_000);
    let listed = cluster.listed(2, "/a");
    // The channel counts as one.
    assert!(listed.contains("own") && listed.len() == 10, "{listed:?}");
    assert_eq!(cluster.node(2).gathered.take_refused(), 91, "those without room are counted");
    cluster.want(2, "/a", false);
    cluster.pass(SETTLED_MS);
    assert_eq!(cluster.nodes[&2].gathered.sizes(), [0, 0, 0], "nothing stays when nobody follows");
}

#[test]
fn channels_of_other_nodes_take_room_also_without_users() {
    for (terms, expected) in [
        (PresenceTerms { members_max: 0, ..TERMS }, 0),
        (PresenceTerms { bytes_max: 0, ..TERMS }, 0),
        (PresenceTerms { members_max: 30, ..TERMS }, 30),
        (PresenceTerms { bytes_max: 10_000, ..TERMS }, 38),
    ] {
        let mut cluster = Cluster::new(2);
        cluster.terms = terms;
        (0..200).for_each(|number| cluster.join(1, &format!("/c/{number}"), number, ""));
        cluster.want(2, "/**", true);
        cluster.pass(1_000);
        let [members, bytes, _] = cluster.nodes[&2].gathered.sizes();
        assert_eq!((members, bytes <= terms.bytes_max), (expected, true), "{bytes}");
        assert_eq!(cluster.node(2).gathered.take_refused(), 200 - expected as u64);
        (0..200).for_each(|number| cluster.leave(1, &format!("/c/{number}"), number, ""));
        cluster.pass(SETTLED_MS);
        assert_eq!(cluster.nodes[&2].gathered.sizes(), [0, 0, 1]);
    }
}

#[test]
fn members_without_room_are_listed_when_there_is_room_again() {
    let mut cluster = Cluster::new(2);
    cluster.terms = PresenceTerms { members_max: 10, ..TERMS };
    (0..20).for_each(|number| cluster.join(1, "/a", number, &format!("a-{number}")));
    cluster.want(2, "/b", true);
    cluster.pass(1_000);
    cluster.node(2).begin("/b");
    cluster.want(2, "/a", true);
    cluster.pass(1_000);
    (0..5).for_each(|number| cluster.join(1, "/b", 100 + number, &format!("b-{number}")));
    cluster.pass(1_000);
    assert!(cluster.listed(2, "/b").is_empty(), "there is no room");
    cluster.want(2, "/a", false);
    cluster.pass(SETTLED_MS);
    cluster.check(2, "/b");
    let before = cluster.reports;
    cluster.pass(SETTLED_MS);
    assert_eq!(cluster.reports, before, "once is enough");
}

#[test]
fn names_that_one_command_has_no_room_for_are_followed_in_several() {
    let mut cluster = Cluster::new(2);
    let name = |number: usize| format!("/{number:0>246}");
    (0..4_300).for_each(|number| cluster.want(2, &name(number), true));
    cluster.pass(4_000);
    let last = [name(0), name(2_000), name(4_299)];
    last.iter().for_each(|channel| cluster.node(2).begin(channel));
    for (user, away_ms) in [("ann", 20), ("bob", 100_000)] {
        // After long the other node has forgotten all, and learns it from a list.
        cluster.node(1).is_away = true;
        cluster.pass(away_ms);
        cluster.node(1).is_away = false;
        last.iter().enumerate().for_each(|(number, channel)| cluster.join(1, channel, number, user));
        cluster.pass(SETTLED_MS);
        last.iter().for_each(|channel| cluster.check(2, channel));
    }
    assert!((60_000..70_000).contains(&cluster.follow_bytes), "{}", cluster.follow_bytes);
    cluster.want(2, &last[1], false);
    cluster.pass(SETTLED_MS);
    let before = cluster.reports;
    cluster.join(1, &last[1], 7, "cid");
    cluster.pass(SETTLED_MS);
    assert_eq!(cluster.reports, before, "a list without it has ended");
}

#[test]
fn a_node_that_follows_very_many_channels_follows_all() {
    let mut cluster = Cluster::new(2);
    for number in 0..10_100 {
        cluster.want(2, &format!("/c/{number}"), true);
    }
    cluster.pass(2_100);
    ["/c/3", "/c/4", "/c/10050"].iter().for_each(|channel| cluster.node(2).begin(channel));
    cluster.join(1, "/c/3", 1, "ann");
    cluster.join(1, "/c/10050", 2, "bob");
    cluster.pass(3_000);
    for channel in ["/c/3", "/c/10050"] {
        cluster.check(2, channel);
    }
    assert_eq!(cluster.nodes[&2].gathered.next_ms(), None, "it has nothing to do");
    (0..5_000).for_each(|number| {
        let name = format!("/d/{number}");
        cluster.want(2, &name, true);
        cluster.want(2, &name, false);
    });
    assert_eq!(cluster.nodes[&2].gathered.sizes()[2], 10_101, "only those with subscribers have a name");
    for number in 100..10_100 {
        cluster.want(2, &format!("/c/{number}"), false);
    }
    cluster.pass(SETTLED_MS);
    assert_eq!(cluster.nodes[&2].gathered.sizes()[2], 100);
    cluster.join(1, "/c/4", 3, "cid");
    cluster.join(1, "/d", 4, "dan");
    cluster.pass(SETTLED_MS);
    ["/c/3", "/c/4"].iter().for_each(|channel| cluster.check(2, channel));
}

#[test]
fn a_name_that_is_followed_again_is_new_also_when_a_list_is_due() {
    let (mut gathered, first) = follower("/a");
    assert_eq!((first.page, gathered.followed(1, first.stream, true, 0)), (None, false));
    let both = FollowPage { is_first: true, is_last: true };
    assert_eq!(gathered.take_follows(&TERMS, 0)[0].page, Some(both));
    gathered.followed(1, first.stream, true, 0);
    gathered.want("/b", true, &MemberTable::default(), 60_000);
    let new = gathered.take_follows(&TERMS, 60_000).remove(0);
    assert_eq!((new.page, &*new.names), (None, &["/b".into()][..]));
    // It was lost: it is asked for again after a pause, and only the first loss is worth a line in the log.
    assert!(gathered.followed(1, first.stream, false, 60_000));
    assert!(gathered.take_follows(&TERMS, 60_100).is_empty());
    assert_eq!(gathered.take_follows(&TERMS, 62_000), [new]);
    assert!(!gathered.followed(1, first.stream, false, 62_000));
}

#[test]
fn what_changes_while_all_is_reported_is_not_old() {
    let (mut gathered, follow) = follower("/a/*");
    let mut take = |report: MembersReport| assert!(gathered.take_report((1, follow.stream), report, &TERMS));
    let part = |user: &str, sessions: i64, is_whole: bool| PartReport {
        channel: "/a/1".into(),
        is_first: is_whole,
        is_last: is_whole,
        users: vec![(user.into(), sessions)],
        sessions: 1,
        ..PartReport::default()
    };
    take(MembersReport { parts: vec![part("ann", 1, true)], ..MembersReport::default() });
    take(MembersReport { begun: vec!["/a/*".into()], ..MembersReport::default() });
    take(MembersReport { parts: vec![part("bob", 1, false)], ..MembersReport::default() });
    take(MembersReport { done: vec!["/a/*".into()], ..MembersReport::default() });
    assert_eq!(users(&gathered, "/a/1"), ["bob"]);
}
