//! Replays on a node of a cluster: a session gets nothing before the reply to its subscribe, which waits for other nodes, and nothing
//! twice, though messages are in the history before they come live.

use crate::events::{Effect, ShardMessage};
use crate::history::{Lineage, partition_of};
use crate::id::Id;
use crate::node_messages::FromNodes;
use crate::shard::tests::confirmed::{awaited, committed, committed_at, deliver, opened, rig, take, tell};
use crate::shard::tests::{NOW, Rig};

/// A subscribe that begins at a position of `/a`.
fn subscribe_from(client: &str, name: &str, position: &str) -> String {
    let ext = format!(r#""ext":{{"replay":{{"/a":{position}}}}}"#);
    format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"{name}",{ext}}}"#)
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

#[test]
fn what_a_replay_has_read_does_not_come_again_live() {
    let mut rig = rig();
    deliver(&mut rig, 0);
    let on_their_way: Vec<_> = (1..3).map(|number| committed(&rig, number)).collect();
    let (socket, client) = rig.opened(r#"{"replay":{"positions":"ext"}}"#);
    rig.shard.socket_text(NOW, socket, &subscribe_from(&client, "/a", "-2"));
    let number = awaited(&mut rig);
    rig.shard.message(NOW, ShardMessage::InterestKnown(vec![number]));
    let read = rig.flushed(socket);
    check_order(&read, 0..3);
    for publications in on_their_way {
        rig.shard.message(NOW, ShardMessage::Publication(publications.into()));
    }
    deliver(&mut rig, 3);
    check_order(&(read + &rig.flushed(socket)), 0..4);
}

// A session that another node gives or loses subscribes while messages are on their way to all subscribers of its channel.
#[test]
fn the_reply_to_a_connect_names_no_position_of_a_message_that_is_on_its_way() {
    let (other, saved) = opened(&mut rig());
    let mut rig = rig();
    let (socket, client) = rig.opened(r#"{"replay":{"positions":"ext"}}"#);
    rig.shard.socket_text(NOW, socket, &subscribe_from(&client, "/a", "-2"));
    let number = awaited(&mut rig);
    rig.shard.message(NOW, ShardMessage::InterestKnown(vec![number]));
    deliver(&mut rig, 0);
    check_order(&rig.flushed(socket), 0..1);
    let on_its_way = committed(&rig, 1);
    take(&mut rig, other, saved);
    let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}","advice":{{"timeout":0}}}}"#);
    rig.shard.socket_text(NOW, socket, &connect);
    let reply = rig.flushed(socket);
    assert!(
        reply.contains(r#""/a":{"id":100"#),
        "message 0 has the position 100, and is the last one that has come: {reply}"
    );
    rig.shard.message(NOW, ShardMessage::Publication(on_its_way.into()));
    assert!(rig.flushed(socket).contains("\"data\":1"));
}

// Its client may have given it up at another node.
#[test]
fn a_held_request_takes_no_message_along_once_its_session_has_subscribed_at_positions() {
    for (ext, leaves) in [("", true), (r#""ack":true,"#, false)] {
        let mut rig = rig();
        let (socket, client) = rig.opened(&format!(r#"{{{ext}"replay":{{"positions":"ext"}}}}"#));
        rig.shard.socket_text(NOW, socket, &subscribe_from(&client, "/a", "-1"));
        let number = awaited(&mut rig);
        rig.shard.message(NOW, ShardMessage::InterestKnown(vec![number]));
        deliver(&mut rig, 0);
        rig.flushed(socket);
        rig.shard.socket_closed(NOW, socket);
        let first = rig.connect(&client);
        rig.response(first);
        rig.shard.delivered(NOW, first, true);
        let confirms = r#","ext":{"ack":1}"#;
        let given_up = rig.request(format!(r#"{{"channel":"/meta/connect","clientId":"{client}"{confirms}}}"#));
        assert_eq!(rig.response(given_up), None, "{ext}: it is held");
        rig.request(subscribe_from(&client, "/a", "100"));
        let (mut left, mut numbers) = (None, Vec::new());
        for effect in rig.shard.take_effects() {
            match effect {
                Effect::Respond(of, response) if of == given_up => left = Some(response.body),
                Effect::AwaitInterest(_, token) => numbers.push(token.number),
                _ => {}
            }
        }
        rig.shard.message(NOW, ShardMessage::InterestKnown(numbers));
        let left = left.map(|body| String::from_utf8_lossy(&body).into_owned());
        assert_eq!(left.is_some(), leaves, "{ext}");
        assert!(left.is_none_or(|left| left.contains("true") && !left.contains("100")), "no position");
        deliver(&mut rig, 1);
        let next = if leaves { rig.connect(&client) } else { given_up };
        check_order(&format!("/meta/subscribe {}", rig.response(next).expect("a message")), 1..2);
    }
}

// The request was on its way for longer than that of the subscribe, which names a position before these messages.
#[test]
fn a_session_begins_again_if_a_node_that_is_gone_has_had_messages_of_a_history_for_it() {
    for (ext, subscribes_later, is_over) in [("", false, true), ("", true, false), (r#""ack":true,"#, false, false)] {
        let mut rig = rig();
        (0..3).for_each(|number| deliver(&mut rig, number));
        let (socket, client) = rig.opened(&format!(r#"{{{ext}"replay":{{"positions":"ext"}}}}"#));
        rig.shard.socket_closed(NOW, socket);
        let subscribe = |rig: &mut Rig| {
            rig.request(subscribe_from(&client, "/a", "-2"));
            let number = awaited(rig);
            rig.shard.message(NOW, ShardMessage::InterestKnown(vec![number]));
        };
        subscribe(&mut rig);
        let first = rig.connect(&client);
        assert_eq!(rig.response(first).expect("messages").matches("\"data\":").count(), 3);
        if subscribes_later {
            subscribe(&mut rig);
        }
        let id = Id::parse(&client).expect("an id");
        tell(&mut rig, FromNodes::Unsettled(id));
        rig.shard.delivered(NOW, first, true);
        assert_eq!(rig.shard.holds(&id).is_none(), is_over, "{ext} {subscribes_later}");
    }
}

// The node was cut off, or is slow: another one has given the client these messages.
#[test]
fn a_client_that_is_ahead_of_its_node_goes_on_at_its_position() {
    for is_subscribed in [false, true] {
        let mut rig = rig();
        deliver(&mut rig, 0);
        let (socket, client) = rig.opened(r#"{"replay":{"positions":"ext"}}"#);
        let subscribe = |rig: &mut Rig, position: &str| {
            rig.shard.socket_text(NOW, socket, &subscribe_from(&client, "/a", position));
            let tokens = rig.shard.take_effects().into_iter().filter_map(|effect| match effect {
                Effect::AwaitInterest(_, token) => Some(token.number),
                _ => None,
            });
            rig.shard.message(NOW, ShardMessage::InterestKnown(tokens.collect()));
            rig.flushed(socket)
        };
        if is_subscribed {
            subscribe(&mut rig, "-1");
        }
        let epoch = rig.shard.machines.env.shared.histories.find("/a", 0).expect("a ring").epoch;
        let strange = subscribe(&mut rig, r#"{"id":102,"epoch":"strange"}"#);
        assert!(strange.contains(r#""recovered":false"#), "an offset of another epoch says nothing: {strange}");
        let reply = subscribe(&mut rig, &format!(r#"{{"id":102,"epoch":"{epoch}"}}"#));
        assert!(reply.contains(r#""recovered":true"#) && reply.contains(r#""from":103,"#), "{reply}");
        (1..5).for_each(|number| deliver(&mut rig, number));
        let text = rig.flushed(socket);
        check_order(&format!("/meta/subscribe {text}"), 3..5);
        assert!(text.contains(r#""id":103"#), "{text}");
    }
}

// Its owner's clock is behind that of the one before.
#[test]
fn the_reply_to_a_connect_names_no_offset_of_an_epoch_that_is_over() {
    let mut rig = rig();
    (0..3).for_each(|number| deliver(&mut rig, number));
    let (socket, client) = rig.opened(r#"{"replay":{"positions":"ext"}}"#);
    rig.shard.socket_text(NOW, socket, &subscribe_from(&client, "/a", "-2"));
    let number = awaited(&mut rig);
    rig.shard.message(NOW, ShardMessage::InterestKnown(vec![number]));
    check_order(&rig.flushed(socket), 0..3);
    let histories = rig.shard.machines.env.shared.histories.clone();
    histories.begin_partition(partition_of("/a"), Lineage { seed: 8, first: 50 });
    let publications = committed_at(&rig, Lineage { seed: 8, first: 50 }, 50);
    rig.shard.message(NOW, ShardMessage::Publication(publications.into()));
    assert!(rig.flushed(socket).contains("\"id\":50"));
    let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}","advice":{{"timeout":0}}}}"#);
    rig.shard.socket_text(NOW, socket, &connect);
    let reply = rig.flushed(socket);
    assert!(reply.contains(r#""/a":{"id":50,"#), "the last one that has come: {reply}");
}

#[test]
fn a_client_that_begins_in_a_new_epoch_misses_nothing_though_offsets_before_were_higher() {
    let (mut rig, lineage) = (rig(), Lineage { seed: 8, first: 50 });
    deliver(&mut rig, 0);
    rig.shard.machines.env.shared.histories.begin_partition(partition_of("/a"), lineage);
    let (socket, client) = rig.opened(r#"{"replay":{"positions":"ext"}}"#);
    rig.shard.socket_text(NOW, socket, &subscribe_from(&client, "/a", "-1"));
    let number = awaited(&mut rig);
    rig.shard.message(NOW, ShardMessage::InterestKnown(vec![number]));
    let publications = committed_at(&rig, lineage, 50);
    rig.shard.message(NOW, ShardMessage::Publication(publications.into()));
    check_order(&rig.flushed(socket), 0..1);
}
