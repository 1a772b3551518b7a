//! Subscribes whose reply waits for other nodes: the session gets nothing before it.

use crate::events::{Effect, ShardMessage};
use crate::shard::tests::confirmed::{deliver, rig};
use crate::shard::tests::{NOW, Rig};

/// A subscribe that begins at a position of `/a`.
fn subscribe_from(client: &str, name: &str, position: &str) -> String {
    let ext = format!(r#""ext":{{"replay":{{"/a":{position}}}}}"#);
    format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"{name}",{ext}}}"#)
}

/// The number of the token for which the replies to subscribes wait.
fn awaited(rig: &mut Rig) -> u64 {
    let number = rig.shard.take_effects().into_iter().find_map(|effect| match effect {
        Effect::AwaitInterest(_, token) => Some(token.number),
        _ => None,
    });
    number.expect("a reply that waits")
}

/// Checks that a text has the reply to a subscribe, and behind it these messages.
fn check_order(text: &str, numbers: std::ops::Range<usize>) {
    let reply = text.find("/meta/subscribe").unwrap_or_else(|| panic!("no reply: {text}"));
    let found: Vec<usize> = text.match_indices("\"data\":").map(|(at, _)| at).collect();
    assert_eq!(found.len(), numbers.len(), "lost or doubled: {text}");
    assert!(found.iter().all(|at| *at > reply), "messages come before the reply: {text}");
    for (at, number) in found.iter().zip(numbers) {
        assert!(text[*at..].starts_with(&format!("\"data\":{number},")), "out of order: {text}");
    }
}

// Clients that replay drop what comes before the reply to a subscribe: of a session that goes on, it comes again.
#[test]
fn what_a_session_replays_follows_the_reply_that_waits_for_other_nodes() {
    let mut rig = rig();
    (0..3).for_each(|number| deliver(&mut rig, number));
    let (socket, client) = rig.opened(r#"{"replay":{"positions":"ext"}}"#);
    let subscribe = subscribe_from(&client, "/a", "-2");
    let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#);
    rig.shard.socket_text(NOW, socket, &format!("[{subscribe},{connect}]"));
    let number = awaited(&mut rig);
    deliver(&mut rig, 3);
    let early = rig.flushed(socket);
    assert!(!early.contains("\"data\"") && !early.contains("100"), "neither messages nor positions: {early}");
    rig.shard.message(NOW, ShardMessage::InterestKnown(vec![number]));
    check_order(&rig.flushed(socket), 0..4);
}

#[test]
fn a_connect_does_not_overtake_the_subscribe_of_its_request_that_waits_for_other_nodes() {
    let mut rig = rig();
    (0..3).for_each(|number| deliver(&mut rig, number));
    let (socket, client) = rig.opened(r#"{"replay":{"positions":"ext"}}"#);
    rig.shard.socket_closed(NOW, socket);
    let subscribe = subscribe_from(&client, "/a", "-2");
    let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#);
    let exchange = rig.request(format!("[{subscribe},{connect}]"));
    let number = awaited(&mut rig);
    assert_eq!(rig.response(exchange), None);
    rig.shard.message(NOW, ShardMessage::InterestKnown(vec![number]));
    let response = rig.response(exchange).expect("a response");
    check_order(&response, 0..0);
    let next = rig.connect(&client);
    let messages = rig.response(next).expect("messages");
    assert_eq!(messages.matches("\"data\":").count(), 3, "{messages}");
}

#[test]
fn the_reply_comes_first_also_on_the_next_socket() {
    for from in ["-2", "-1"] {
        let mut rig = rig();
        (0..3).for_each(|number| deliver(&mut rig, number));
        let (socket, client) = rig.opened(r#"{"replay":{"positions":"ext"}}"#);
        let subscribe = subscribe_from(&client, "/a", from);
        rig.shard.socket_text(NOW, socket, &subscribe);
        let number = awaited(&mut rig);
        deliver(&mut rig, 3);
        rig.shard.socket_closed(NOW, socket);
        let next = rig.shard.socket_opened(NOW, None);
        rig.shard.socket_text(NOW, next, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
        let early = rig.flushed(next);
        assert!(!early.contains("\"data\""), "{early}");
        rig.shard.message(NOW, ShardMessage::InterestKnown(vec![number]));
        check_order(&rig.flushed(next), if from == "-2" { 0..4 } else { 3..4 });
    }
}

#[test]
fn two_subscribes_that_wait_withhold_the_session_until_the_second_reply() {
    let mut rig = rig();
    let (socket, client) = rig.opened(r#"{"replay":{"positions":"ext"}}"#);
    let mut numbers = Vec::new();
    for name in ["/a", "/b"] {
        let subscribe = subscribe_from(&client, name, "-2");
        rig.shard.socket_text(NOW, socket, &subscribe);
        numbers.push(awaited(&mut rig));
    }
    deliver(&mut rig, 0);
    rig.shard.message(NOW, ShardMessage::InterestKnown(vec![numbers[1]]));
    let early = rig.flushed(socket);
    assert!(!early.contains("\"data\""), "{early}");
    rig.shard.message(NOW, ShardMessage::InterestKnown(vec![numbers[0]]));
    check_order(&rig.flushed(socket), 0..1);
}

#[test]
fn a_live_message_follows_the_reply_that_waits() {
    for (from, earlier) in [("-2", 0), ("-1", 3)] {
        let mut rig = rig();
        (0..earlier).for_each(|number| deliver(&mut rig, number));
        let (socket, client) = rig.opened(r#"{"replay":{"positions":"ext"}}"#);
        let subscribe = subscribe_from(&client, "/a", from);
        rig.shard.socket_text(NOW, socket, &subscribe);
        let number = awaited(&mut rig);
        deliver(&mut rig, earlier);
        assert!(!rig.flushed(socket).contains("\"data\""));
        rig.shard.message(NOW, ShardMessage::InterestKnown(vec![number]));
        check_order(&rig.flushed(socket), earlier..earlier + 1);
    }
}
