//! Sessions that acknowledge: unconfirmed batches come again, once and first.

use crate::application::NoApplication;
use crate::events::{ShardMessage, SocketKey};
use crate::id::Id;
use crate::settings::{ChannelRule, Settings, SlowConsumer};
use crate::shard::tests::{NOW, Rig};

/// A session that acknowledges, on a WebSocket, and subscribes to `/a`.
fn acknowledging(settings: Settings) -> (Rig, SocketKey, String) {
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let (socket, client) = rig.opened(r#"{"ack":true}"#);
    rig.subscribe(socket, &client);
    rig.flushed(socket);
    (rig, socket, client)
}

/// Settings with which one response holds everything that these tests publish.
fn roomy() -> Settings {
    Settings { response_bytes_max: 1 << 20, ..Settings::default() }
}

fn publish(rig: &mut Rig, count: usize, bytes: usize) {
    for number in 0..count {
        let data = format!("{{\"n\":{number},\"t\":\"{}\"}}", "x".repeat(bytes));
        rig.shard.publish_now("/a", &data);
    }
}

#[test]
fn a_session_that_acknowledges_ends_where_the_policy_would_drop_messages_of_others() {
    for slow_consumer in [SlowConsumer::DropOldest, SlowConsumer::KeepLatest] {
        let rule = ChannelRule { pattern: "/a".into(), slow_consumer, ..ChannelRule::default() };
        let settings = Settings { channels: vec![rule], outbox_messages_max: 5, ..Settings::default() };
        let (mut rig, socket, client) = acknowledging(settings);
        publish(&mut rig, 5, 1);
        assert_eq!(rig.shard.sessions(), 1);
        publish(&mut rig, 1, 1);
        rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
        assert_eq!(rig.shard.sessions(), 0, "{slow_consumer:?}");
        assert_eq!((rig.shard.metrics().slow_dropped.get(), rig.shard.metrics().slow_disconnected.get()), (0, 1));
    }
}

/// The result of a connect on a WebSocket that acknowledges this batch: the numbers of the messages delivered at once,
/// and the number of the new batch. Checks that the frame is small enough for clients.
fn connect(rig: &mut Rig, socket: SocketKey, client: &str, acknowledged: u64) -> (Vec<u64>, u64) {
    let ext = format!(r#""advice":{{"timeout":0}},"ext":{{"ack":{acknowledged}}}"#);
    let text = format!(r#"{{"channel":"/meta/connect","clientId":"{client}",{ext}}}"#);
    rig.shard.socket_text(NOW, socket, &text);
    let frame = rig.flushed(socket);
    assert!(frame.len() <= 64 * 1024, "{} bytes", frame.len());
    read(&frame)
}

/// Connects over HTTP, where a response may be large. Returns the same as [`connect`].
fn poll(rig: &mut Rig, client: &str, acknowledged: u64) -> (Vec<u64>, u64) {
    let ext = format!(r#""advice":{{"timeout":0}},"ext":{{"ack":{acknowledged}}}"#);
    let exchange = rig.request(format!(r#"{{"channel":"/meta/connect","clientId":"{client}",{ext}}}"#));
    read(&rig.response(exchange).expect("a response"))
}

fn read(text: &str) -> (Vec<u64>, u64) {
    let number = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("one");
    let numbers = text.match_indices("{\"n\":").map(|(at, _)| number(&text[at + 5..])).collect();
    let (_, batch) = text.split_once("\"ack\":").expect("a batch");
    (numbers, number(batch))
}

#[test]
fn messages_sent_again_on_a_websocket_are_in_frames_that_clients_accept() {
    let (mut rig, first, client) = acknowledging(Settings::default());
    let (_, got) = connect(&mut rig, first, &client, 0);
    publish(&mut rig, 50, 1_100);
    let (lost, _) = connect(&mut rig, first, &client, got);
    assert_eq!(lost, (0..50).collect::<Vec<_>>());
    publish(&mut rig, 1, 12_000);
    let second = rig.shard.socket_opened(NOW, None);
    let (again, got) = connect(&mut rig, second, &client, got);
    assert_eq!(again, lost);
    let (rest, _) = connect(&mut rig, second, &client, got);
    assert_eq!(rest, [0]);
}

#[test]
fn a_long_lost_response_is_sent_again_on_a_websocket_in_parts_once_and_in_order() {
    let (mut rig, socket, client) = acknowledging(roomy());
    rig.shard.socket_closed(NOW, socket);
    let (_, mut got) = poll(&mut rig, &client, 0);
    publish(&mut rig, 300, 1_000);
    assert_eq!(poll(&mut rig, &client, got).0.len(), 300);
    publish(&mut rig, 1, 1);
    let mut socket = rig.shard.socket_opened(NOW, None);
    let mut received = Vec::new();
    for round in 0..12 {
        let (numbers, batch) = connect(&mut rig, socket, &client, got);
        if round % 3 == 1 {
            // This one never arrives.
            socket = rig.shard.socket_opened(NOW, None);
            continue;
        }
        received.extend(numbers);
        got = batch;
    }
    assert_eq!(received, (0..300).chain([0]).collect::<Vec<_>>());
    let id = Id::parse(&client).expect("an id");
    assert_eq!(rig.shard.waiting(&id), Some((0, 0, 0)));
}

#[test]
fn a_batch_confirms_its_messages_even_if_a_later_one_had_no_room_for_them() {
    let (mut rig, socket, client) = acknowledging(roomy());
    rig.shard.socket_closed(NOW, socket);
    let (_, got) = poll(&mut rig, &client, 0);
    publish(&mut rig, 300, 1_000);
    let (all, polled) = poll(&mut rig, &client, got);
    // An older connect was delayed: the reply to it is lost.
    let other = rig.shard.socket_opened(NOW, None);
    let (some, late) = connect(&mut rig, other, &client, got);
    assert!(some.len() < all.len() && late > polled);
    assert_eq!(poll(&mut rig, &client, polled).0, [0; 0], "the client had all of it");
}

#[test]
fn messages_left_out_of_a_batch_are_unconfirmed_after_a_restart() {
    let (mut rig, socket, client) = acknowledging(Settings::default());
    rig.shard.socket_closed(NOW, socket);
    let (_, got) = poll(&mut rig, &client, 0);
    publish(&mut rig, 300, 1_000);
    poll(&mut rig, &client, got);
    let socket = rig.shard.socket_opened(NOW, None);
    let (some, got) = connect(&mut rig, socket, &client, got);
    let saved = rig.shard.save(NOW);
    let mut next = Rig::new(1, Settings::default(), Box::new(NoApplication));
    next.shard.restore(NOW, &saved);
    let (rest, _) = poll(&mut next, &client, got);
    assert_eq!(some.into_iter().chain(rest).collect::<Vec<_>>(), (0..300).collect::<Vec<_>>());
}

#[test]
fn after_a_restart_a_batch_still_confirms_its_messages_even_if_a_later_one_had_no_room_for_them() {
    let (mut rig, socket, client) = acknowledging(roomy());
    rig.shard.socket_closed(NOW, socket);
    let (_, got) = poll(&mut rig, &client, 0);
    publish(&mut rig, 300, 1_000);
    let (_, polled) = poll(&mut rig, &client, got);
    let other = rig.shard.socket_opened(NOW, None);
    connect(&mut rig, other, &client, got);
    let saved = rig.shard.save(NOW);
    let mut next = Rig::new(1, roomy(), Box::new(NoApplication));
    next.shard.restore(NOW, &saved);
    assert_eq!(poll(&mut next, &client, polled).0, [0; 0], "the client had all of it");
}

#[test]
fn a_session_ended_by_the_server_on_a_websocket_gets_all_queued_messages_before_the_last_reply() {
    for is_held in [false, true] {
        let (mut rig, socket, client) = acknowledging(Settings::default());
        let mut acknowledged = connect(&mut rig, socket, &client, 0).1;
        if is_held {
            rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
        }
        publish(&mut rig, 10, 20_000);
        rig.shard.message(NOW, ShardMessage::Disconnect(Id::parse(&client).expect("an id"), None));
        let mut said = rig.flushed(socket);
        let mut received = Vec::new();
        for _ in 0..10 {
            if !said.is_empty() {
                let (numbers, batch) = read(&said);
                received.extend(numbers);
                acknowledged = batch;
            }
            if rig.shard.sessions() == 0 {
                break;
            }
            assert!(!said.contains("\"reconnect\":\"none\""));
            publish(&mut rig, 3, 20_000);
            let ext = format!(r#""ext":{{"ack":{acknowledged}}}"#);
            let text = format!(r#"{{"channel":"/meta/connect","clientId":"{client}",{ext}}}"#);
            rig.shard.socket_text(NOW, socket, &text);
            said = rig.flushed(socket);
        }
        assert_eq!(received, (0..10).collect::<Vec<_>>());
        let at = |part: &str| said.find(part).unwrap_or_else(|| panic!("{part}"));
        assert!(
            at("/meta/disconnect") < at("\"reconnect\":\"none\"") && at("\"reconnect\":\"none\"") < at("session ended")
        );
    }
}

#[test]
fn a_connect_that_is_answered_on_a_socket_that_was_shut_leaves_nothing_there() {
    let (mut rig, socket, client) = acknowledging(Settings::default());
    connect(&mut rig, socket, &client, 0);
    rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
    rig.shard.settle_burst().delivery.reset_socket(socket);
    publish(&mut rig, 2, 20_000);
    rig.flushed(socket);
    let bytes = |rig: &Rig| rig.shard.machines.delivery.socket(socket).map(|socket| socket.out_bytes());
    assert_eq!(bytes(&rig), Some(0));
    rig.shard.message(NOW, ShardMessage::Disconnect(Id::parse(&client).expect("an id"), None));
    rig.flushed(socket);
    assert_eq!(bytes(&rig), Some(0));
}

#[test]
fn a_connect_on_a_websocket_is_answered_when_a_late_request_supersedes_it() {
    let (mut rig, socket, client) = acknowledging(Settings::default());
    let (_, got) = connect(&mut rig, socket, &client, 0);
    let fields = format!(r#""id":"8","clientId":"{client}","ext":{{"ack":{got}}}"#);
    rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/meta/connect",{fields}}}"#));
    assert_eq!(rig.flushed(socket), "", "it is held");
    // Its client has given it up, and waits on the WebSocket.
    let late = rig.connect(&client);
    let reply = rig.flushed(socket);
    assert!(reply.contains(r#""id":"8","successful":true"#) && !reply.contains("ack"), "{reply}");
    publish(&mut rig, 1, 1);
    assert!(rig.response(late).expect("the messages go there").contains("\"n\":0"));
    assert_eq!(connect(&mut rig, socket, &client, got).0, [0], "they come again");
}
