//! Groups that end, sessions that change their interval or have several subscriptions, and the cost of what waits.

use super::*;

impl Rig {
    fn unsubscribe_at(&mut self, ms: u64, (key, client): &(SocketKey, String), names: &str) -> String {
        let text = format!(r#"{{"channel":"/meta/unsubscribe","clientId":"{client}","subscription":{names}}}"#);
        self.request_on(after(ms), *key, &text)
    }
}

#[test]
fn a_group_in_the_slot_of_another_one_has_its_own_interval() {
    let mut rig = rig();
    let (attacker, victim) = (rig.session("{}"), rig.session("{}"));
    rig.subscribe_with(0, &attacker, r#""/a""#, r#"{"min_interval_ms":60000}"#);
    rig.publish_at(0, "/a", 0);
    rig.unsubscribe_at(10, &attacker, r#""/a""#);
    rig.subscribe_with(20, &victim, r#""/a""#, r#"{"min_interval_ms":50}"#);
    rig.publish_at(100, "/a", 1);
    let mut received = rig.received(100, &victim);
    received.extend(rig.received(200, &victim));
    received.extend(rig.received(1_000, &victim));
    assert_eq!(received, ["/a 1"], "within its interval of 50 ms");
}

#[test]
fn a_changed_interval_does_not_lose_the_latest_message() {
    for ext in [r#"{"min_interval_ms":1000}"#, r#"{"min_interval_ms":0}"#] {
        let mut rig = rig();
        let session = rig.session("{}");
        rig.subscribe_with(0, &session, r#""/a""#, HALF_A_SECOND);
        (0..3).for_each(|data| rig.publish_at(0, "/a", data));
        assert_eq!(rig.received(0, &session), ["/a 0"]);
        let text = rig.subscribe_with(10, &session, r#""/a""#, ext);
        let mut received = rig.received(600, &session);
        received.extend(rig.received(5_000, &session));
        assert!(text.contains("\"data\":2") || received == ["/a 2"], "{ext}: {text} {received:?}");
    }
}

#[test]
fn a_message_comes_once_when_the_subscription_that_delivered_it_ends() {
    for ext in ["{}", r#"{"min_interval_ms":100}"#] {
        let mut rig = rig();
        let session = rig.session("{}");
        rig.subscribe_with(0, &session, r#""/a/*""#, r#"{"min_interval_ms":1000}"#);
        rig.subscribe_with(0, &session, r#""/a/b""#, ext);
        (0..3).for_each(|data| rig.publish_at(0, "/a/b", data));
        let mut received = rig.received(0, &session);
        received.extend(rig.received(200, &session));
        rig.unsubscribe_at(300, &session, r#""/a/b""#);
        received.extend(rig.received(2_000, &session));
        assert_eq!(received.iter().filter(|message| *message == "/a/b 2").count(), 1, "{ext}: {received:?}");
    }
}

#[test]
fn what_waits_in_two_groups_goes_once_to_the_next_node() {
    let mut rig = rig();
    let session = rig.session("{}");
    rig.subscribe_with(0, &session, r#""/a/*""#, HALF_A_SECOND);
    rig.subscribe_with(0, &session, r#""/a/**""#, r#"{"min_interval_ms":1000}"#);
    (0..3).for_each(|data| rig.publish_at(0, "/a/b", data));
    let mut received = rig.received(0, &session);
    let id = crate::id::Id::parse(&session.1).expect("an id");
    let key = rig.shard.machines.delivery.find(&id).expect("it is here");
    rig.shard.machines.send_waiting_to(key);
    received.extend(rig.received(0, &session));
    assert_eq!(received, ["/a/b 0", "/a/b 2"]);
}

#[test]
fn the_groups_and_their_overlaps_count_as_memory() {
    let mut rig = Rig::of(Settings { subscriptions_max: 1_000, ..Settings::default() });
    let session = rig.session("{}");
    let before = rig.shard.machines.conflation.bytes();
    for number in 0..500 {
        rig.subscribe_with(0, &session, &format!(r#"["/a/{number}/*"]"#), HALF_A_SECOND);
    }
    rig.subscribe_with(0, &session, r#""/**""#, HALF_A_SECOND);
    assert!(rig.shard.machines.conflation.bytes() > before, "500 groups with an overlap each take nothing");
}

/// A session that joins the group of another one, with messages that wait there and that it has got. Returns both, and what it has got.
fn joined(rig: &mut Rig) -> ((SocketKey, String), (SocketKey, String), Vec<String>) {
    let (session, other) = (rig.session("{}"), rig.session("{}"));
    rig.subscribe_with(0, &other, r#""/a""#, HALF_A_SECOND);
    rig.subscribe_with(0, &session, r#""/a""#, "{}");
    (0..2).for_each(|data| rig.publish_at(0, "/a", data));
    let received = rig.received(0, &session);
    rig.subscribe_with(10, &session, r#""/a""#, HALF_A_SECOND);
    (session, other, received)
}

#[test]
fn who_joins_a_group_does_not_get_again_what_it_has_got() {
    let mut rig = rig();
    let (session, _other, mut received) = joined(&mut rig);
    received.extend(rig.received(2_000, &session));
    assert_eq!(received, ["/a 0", "/a 1"], "each once");
}

#[test]
fn messages_that_are_due_at_once_cost_a_turn_a_bounded_number_of_steps() {
    let mut rig = rig();
    let sessions: Vec<_> = (0..100).map(|_| rig.session("{}")).collect();
    for session in &sessions {
        rig.subscribe_with(0, session, r#""/a/*""#, HALF_A_SECOND);
    }
    for data in 0..2 {
        for channel in 0..1_000 {
            rig.publish_at(0, &format!("/a/{channel}"), data);
        }
        for session in &sessions {
            rig.flushed(session.0);
        }
    }
    let before = rig.shard.steps();
    rig.shard.advance(after(600));
    let steps = rig.shard.steps() - before;
    assert!(steps < 50_000, "{steps} steps in one turn");
    let mut text = rig.flushed(sessions[0].0);
    for turn in 1..20 {
        rig.shard.advance(after(600 + turn));
        text += &rig.flushed(sessions[0].0);
    }
    assert_eq!(text.matches("\"data\":1").count(), 1_000, "the rest comes in the next turns");
}

#[test]
fn a_refused_change_of_the_interval_leaves_the_subscription() {
    let rule = |subscribers_max| ChannelRule { pattern: "/a".into(), subscribers_max, ..ChannelRule::default() };
    let mut rig = Rig::of(with_rule(rule(2)));
    let (session, other) = (rig.session("{}"), rig.session("{}"));
    rig.subscribe_with(0, &session, r#""/a""#, "{}");
    rig.subscribe_with(0, &other, r#""/a""#, "{}");
    rig.shard.message(after(1), ShardMessage::Settings(Arc::new(with_rule(rule(1)))));
    let reply = rig.subscribe_with(10, &session, r#""/a""#, HALF_A_SECOND);
    rig.publish_at(20, "/a", 1);
    assert_eq!(rig.received(20, &session), ["/a 1"], "it has lost its subscription: {reply}");
}

#[test]
fn another_interval_is_no_departure_for_presence() {
    let mut rig = Rig::of(with_rule(ChannelRule { pattern: "/a".into(), presence: true, ..ChannelRule::default() }));
    let session = rig.session("{}");
    rig.subscribe_with(0, &session, r#""/a""#, "{}");
    rig.shard.take_effects();
    rig.shard.socket_text(
        after(10),
        session.0,
        &format!(
            r#"{{"channel":"/meta/subscribe","clientId":"{}","subscription":"/a","ext":{HALF_A_SECOND}}}"#,
            session.1
        ),
    );
    let presence = |effect: &crate::events::Effect| matches!(effect, crate::events::Effect::Presence(_));
    let announced: Vec<_> = rig.shard.take_effects().into_iter().filter(presence).collect();
    assert!(announced.is_empty(), "{announced:?}");
}

#[test]
fn a_session_that_moves_costs_the_steps_of_its_own_groups() {
    let mut rig = rig();
    let (session, paced) = (rig.session("{}"), rig.session("{}"));
    rig.subscribe_with(0, &paced, r#""/a/*""#, r#"{"min_interval_ms":60000}"#);
    for data in 0..2 {
        (0..10_000).for_each(|channel| rig.publish_at(0, &format!("/a/{channel}"), data));
        rig.flushed(paced.0);
    }
    let id = crate::id::Id::parse(&session.1).expect("an id");
    let key = rig.shard.machines.delivery.find(&id).expect("it is here");
    let before = rig.shard.steps();
    rig.shard.machines.send_waiting_to(key);
    let steps = rig.shard.steps() - before;
    assert!(steps < 100, "{steps} steps for a session that is in no group");
    let id = crate::id::Id::parse(&paced.1).expect("an id");
    let key = rig.shard.machines.delivery.find(&id).expect("it is here");
    rig.shard.machines.send_waiting_to(key);
    let steps = rig.shard.steps() - before;
    assert!(steps >= 10_000, "{steps} steps counted for a walk over 10,000 entries");
}

/// The steps of ending a subscription to `/t/**` with an interval, for a session that has this many patterns below it.
fn steps_of_an_end(patterns: usize, channels: usize, interval: &str) -> u64 {
    let rule = ChannelRule { pattern: "/t/**".into(), min_interval_ms: 500, ..ChannelRule::default() };
    let mut rig = Rig::of(Settings { subscriptions_max: 1_000, ..with_rule(rule) });
    let session = rig.session("{}");
    for number in 0..patterns {
        rig.subscribe_with(0, &session, &format!(r#"["/t/a{number}/*"]"#), interval);
    }
    rig.subscribe_with(0, &session, r#""/t/**""#, r#"{"min_interval_ms":1000}"#);
    for data in 0..2 {
        (0..channels).for_each(|channel| rig.publish_at(0, &format!("/t/a{channel}/x"), data));
        rig.flushed(session.0);
    }
    let before = rig.shard.steps();
    rig.unsubscribe_at(10, &session, r#""/t/**""#);
    let steps = rig.shard.steps() - before;
    let mut received = rig.received(600, &session);
    received.extend(rig.received(1_200, &session));
    assert!(received.len() <= patterns, "{received:?}");
    steps
}

#[test]
fn a_subscription_that_ends_walks_what_waits_once_whatever_its_session_subscribes_to() {
    for interval in ["{}", HALF_A_SECOND] {
        let steps = steps_of_an_end(300, 400, interval);
        // Its own group, everybody, and the subscriptions.
        assert!(steps < 10 * (300 + 400), "{steps} steps with {interval}");
    }
}

#[test]
fn a_message_that_a_session_has_had_does_not_come_again_when_the_shard_stops() {
    let mut rig = rig();
    let (session, other, mut received) = joined(&mut rig);
    rig.shard.machines.send_all_waiting();
    received.extend(rig.received(20, &session));
    assert_eq!(received, ["/a 0", "/a 1"], "each once");
    assert_eq!(rig.received(20, &other).last().map(String::as_str), Some("/a 1"));
    assert_eq!(rig.shard.machines.conflation.len(), 0);
}
