//! The demos' services, rooms and rules.

use super::rooms::{LIST_BYTES, NAMES, ROOM_MEMBERS_MAX};
use super::*;
use encke::{Action, ChannelRule, Settings};

fn call_at(demo: &Demo, now_ms: u64, session: &str, channel: &str, data: &str) -> Vec<Action> {
    demo.serve(now_ms, &Call::new(session, channel, data).with_id("7")).as_slice().to_vec()
}

fn call(demo: &Demo, session: &str, channel: &str, data: &str) -> Vec<Action> {
    call_at(demo, 0, session, channel, data)
}

fn end(demo: &Demo, session: &str) -> Vec<Action> {
    let mut actions = Actions::default();
    demo.ended(session, &mut actions);
    actions.as_slice().to_vec()
}

fn join(demo: &Demo, session: &str, user: &str) -> Vec<Action> {
    join_at(demo, 0, session, user)
}

fn join_at(demo: &Demo, now_ms: u64, session: &str, user: &str) -> Vec<Action> {
    let data = format!(r#"{{"user":"{user}","room":"/demo/chat/lobby"}}"#);
    call_at(demo, now_ms, session, "/service/demo/members", &data)
}

fn join_cometd(demo: &Demo, now_ms: u64, session: &str, user: &str) -> Vec<Action> {
    let data = format!(r#"{{"user":"{user}","room":"/chat/demo"}}"#);
    call_at(demo, now_ms, session, "/service/members", &data)
}

fn change(data: &str) -> Action {
    Action::Publish { channel: "/demo/members/lobby".into(), data: data.into(), ext: None, is_lazy: false }
}

fn list(names: &str, version: u64) -> Action {
    Action::Reply { data: format!(r#"{{"members":{names},"version":{version}}}"#), successful: true }
}

fn all(names: &str) -> Vec<Action> {
    vec![Action::Publish { channel: "/members/demo".into(), data: names.into(), ext: None, is_lazy: false }]
}

/// The bytes sent to each subscriber of the members' channel.
fn published_bytes(actions: &[Action]) -> usize {
    let data = |action: &Action| match action {
        Action::Publish { data, .. } => data.len(),
        _ => 0,
    };
    actions.iter().map(data).sum()
}

fn is_refused(actions: &[Action]) -> bool {
    matches!(actions, [Action::Reply { successful: false, .. }])
}

#[test]
fn a_new_member_gets_the_names_and_the_others_get_the_change() {
    let demo = Demo::default();
    assert_eq!(
        join(&demo, "s1", "ann"),
        [list(r#"["ann"]"#, 1), change(r#"{"left":null,"joined":"ann","version":1}"#)]
    );
    assert_eq!(
        join(&demo, "s2", "bob"),
        [list(r#"["ann","bob"]"#, 2), change(r#"{"left":null,"joined":"bob","version":2}"#)]
    );
    assert_eq!(end(&demo, "s1"), [change(r#"{"left":"ann","joined":null,"version":3}"#)]);
    assert_eq!(end(&demo, "a session that never joined"), []);
}

#[test]
fn joining_again_changes_the_name_or_sends_the_names_again() {
    let demo = Demo::default();
    join(&demo, "s1", "ann");
    assert_eq!(
        join(&demo, "s1", "anna"),
        [list(r#"["anna"]"#, 2), change(r#"{"left":"ann","joined":"anna","version":2}"#)]
    );
    assert_eq!(join(&demo, "s1", "anna"), [list(r#"["anna"]"#, 2)]);
}

#[test]
fn a_name_used_twice_stays_until_both_members_have_left() {
    let demo = Demo::default();
    join(&demo, "s1", "ann");
    assert_eq!(join(&demo, "s2", "ann"), [list(r#"["ann"]"#, 1)]);
    assert_eq!(end(&demo, "s1"), []);
    assert_eq!(end(&demo, "s2"), [change(r#"{"left":"ann","joined":null,"version":2}"#)]);
}

/// Regression test: one message of 1,000 renames ended all healthy subscribers of a room of 500, because each rename
/// published all 500 names.
#[test]
fn a_thousand_renames_in_a_full_room_cost_its_members_little() {
    let long = |number: usize| format!("{number:0>64}");
    let demo = Demo::default();
    for number in 0..ROOM_MEMBERS_MAX {
        join_at(&demo, 0, &format!("s{number}"), &long(number));
    }
    let renames: Vec<_> = (0..1_000).map(|number| join_at(&demo, 1, "s0", &long(ROOM_MEMBERS_MAX + number))).collect();
    let taken = renames.iter().filter(|actions| !is_refused(actions)).count();
    assert_eq!(taken, NAMES.burst_max as usize - 1, "the first one was for joining");
    assert!(renames.iter().map(|actions| published_bytes(actions)).max() < Some(250), "one change, not 500 names");
    // It may be renamed again later.
    assert!(!is_refused(&join_at(&demo, 1_001, "s0", "late")));
    assert!(is_refused(&join_at(&demo, 1_002, "s0", "later")));
}

#[test]
fn cometds_lists_are_bounded_by_the_bytes_that_a_subscriber_gets() {
    let demo = Demo::with_cometd_channels();
    let mut bytes = 0;
    let mut refused = 0;
    for number in 0..20_000 {
        let actions = join_cometd(&demo, 0, &format!("s{}", number % 2_000), &format!("{number:0>64}"));
        bytes += published_bytes(&actions);
        refused += usize::from(is_refused(&actions));
    }
    for number in 0..2_000 {
        bytes += published_bytes(&end(&demo, &format!("s{number}")));
    }
    assert!(refused > 10_000, "{refused}");
    assert!(bytes < LIST_BYTES.burst_max as usize, "{bytes}");
}

#[test]
fn with_cometds_channels_all_names_are_published_each_time() {
    let demo = Demo::with_cometd_channels();
    assert_eq!(join_cometd(&demo, 0, "s1", "ann"), all(r#"["ann"]"#));
    assert_eq!(join_cometd(&demo, 0, "s2", "bob"), all(r#"["ann","bob"]"#));
    assert_eq!(join_cometd(&demo, 0, "s2", "bob"), all(r#"["ann","bob"]"#));
    assert_eq!(join_cometd(&demo, 0, "s2", "ben"), all(r#"["ann","ben"]"#));
    assert_eq!(end(&demo, "s1"), all(r#"["ben"]"#));
}

#[test]
fn cometds_channels_belong_to_the_demo_only_on_request() {
    let (own, both) = (Demo::default(), Demo::with_cometd_channels());
    let rooms = |demo: &Demo| demo.kinds().map(|names| names.rooms).collect::<Vec<_>>();
    assert_eq!((rooms(&own), rooms(&both)), (vec!["/demo/chat/"], vec!["/demo/chat/", "/chat/"]));
    let has = |demo: &Demo, name: &str| demo.services().contains(&name);
    for name in ["/service/members", "/service/privatechat"] {
        assert!(!has(&own, name) && has(&both, name), "{name}");
    }
    assert!(has(&own, "/service/demo/members") && has(&own, "/service/echo"));
}

#[test]
fn a_private_message_reaches_its_peers_and_its_sender_only() {
    let demo = Demo::default();
    for (session, user) in [("s1", "ann"), ("s2", "bob"), ("s3", "cid"), ("s4", "dan")] {
        join(&demo, session, user);
    }
    let data = r#"{"room":"/demo/chat/lobby","user":"ann","peer":"bob, cid","chat":"a \"<b>word</b>\""}"#;
    let got = call(&demo, "s1", "/service/demo/privatechat", data);
    let deliver = |session: &str| Action::Deliver {
        session: session.into(),
        channel: "/demo/chat/lobby".into(),
        data: r#"{"chat":"a \"&lt;b&gt;word&lt;/b&gt;\"","user":"ann","scope":"private"}"#.into(),
        id: Some("7".into()),
        ext: None,
    };
    assert_eq!(got, [deliver("s2"), deliver("s3"), deliver("s1")]);
}

#[test]
fn a_private_message_to_an_unknown_name_is_not_delivered() {
    let demo = Demo::default();
    join(&demo, "s1", "ann");
    let data = r#"{"room":"/demo/chat/lobby","user":"ann","peer":"nobody","chat":"x"}"#;
    assert_eq!(call(&demo, "s1", "/service/demo/privatechat", data), []);
}

#[test]
fn a_private_message_has_a_limited_number_of_receivers() {
    let demo = Demo::default();
    for number in 0..=PEERS_MAX {
        join(&demo, &format!("s{number}"), &format!("ann{number}"));
    }
    let to = |count: usize| {
        let peers: Vec<String> = (0..count).map(|number| format!("ann{number}")).collect();
        let peers = peers.join(",");
        let data = format!(r#"{{"room":"/demo/chat/lobby","user":"ann","peer":"{peers}","chat":"x"}}"#);
        call(&demo, "s0", "/service/demo/privatechat", &data)
    };
    assert_eq!(to(PEERS_MAX).len(), PEERS_MAX);
    assert!(is_refused(&to(PEERS_MAX + 1)));
}

#[test]
fn an_echo_is_byte_exact() {
    let data = r#"{"n": 12345678901234567890}"#;
    let got = call(&Demo::default(), "s1", "/service/echo", data);
    assert_eq!(got, [Action::Reply { data: data.into(), successful: true }]);
}

#[test]
fn an_invalid_call_gets_an_error() {
    let demo = Demo::default();
    let wrong = [
        r#"{"user":"ann","room":"/demo/members/lobby"}"#,
        r#"{"user":"ann","room":"/chat/demo"}"#,
        r#"{"user":"ann","room":"/demo/chat/*"}"#,
        r#"{"user":"ann","room":"/demo/chat//"}"#,
        r#"{"user":7,"room":"/demo/chat/lobby"}"#,
        r#"{"user":"","room":"/demo/chat/lobby"}"#,
        "[]",
        "null",
    ];
    for data in wrong {
        let got = call(&demo, "s1", "/service/demo/members", data);
        assert!(is_refused(&got), "{data}: {got:?}");
    }
    assert!(is_refused(&call(&demo, "s1", "/service/demo/privatechat", "{}")));
}

#[test]
fn a_full_room_refuses_new_members() {
    let demo = Demo::default();
    for number in 0..ROOM_MEMBERS_MAX {
        join(&demo, &format!("s{number}"), "ann");
    }
    assert!(is_refused(&join(&demo, "one more", "bob")));
}

#[test]
fn markup_in_chat_messages_is_escaped() {
    let filtered = filter(r#"{"user":"ann","chat":"\u003cb>hi</b> 1 < 2","n":12345678901234567890}"#);
    assert_eq!(
        filtered,
        Verdict::Replace(r#"{"user":"ann","chat":"&lt;b&gt;hi&lt;/b&gt; 1 &lt; 2","n":12345678901234567890}"#.into())
    );
    assert_eq!(filter(r#""<i>x</i>""#), Verdict::Replace(r#""&lt;i&gt;x&lt;/i&gt;""#.into()));
}

#[test]
fn a_clean_message_is_unchanged() {
    for data in [r#"{ "chat" : "hi", "n":1.0 }"#, "7", "null", r#"["<b>"]"#, r#""x""#] {
        assert_eq!(filter(data), Verdict::Forward, "{data}");
    }
}

#[test]
fn a_message_with_the_bad_word_is_deleted() {
    assert_eq!(filter(r#"{"chat":"well, Dang!"}"#), Verdict::Delete);
    assert_eq!(filter(r#"{"chat":"dangerous"}"#), Verdict::Forward);
}

#[test]
fn pages_learn_the_limit_on_a_message() {
    let demo = Demo::default().message_bytes_max(4_096);
    let reply = Action::Reply { data: r#"{"message_bytes_max":4096}"#.into(), successful: true };
    assert_eq!(call(&demo, "s1", "/service/demo/limits", "null"), [reply]);
}

#[test]
fn the_rules_of_the_demo_come_after_the_operator_s() {
    let own = ChannelRule { pattern: "/demo/screenpush/**".into(), history_messages: 7, ..ChannelRule::default() };
    let settings = with_rules(Settings { channels: vec![own.clone()], ..Settings::default() });
    assert_eq!(settings.channels[0], own);
    assert!(settings.channels.len() > 1);
    encke::check_settings(&settings).expect("the rules are valid");
}
