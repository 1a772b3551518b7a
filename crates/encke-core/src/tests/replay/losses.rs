//! Reports of losses: each comes once, after the messages before it.

use super::{By, Client, NOBODY, numbers, overrun, positions};
use crate::events::ShardMessage;
use crate::history::Ring;
use crate::id::Id;
use crate::protocol::batch::message_frame;
use crate::settings::Settings;
use crate::shard::tests::NOW;

#[test]
fn a_connect_is_not_held_while_a_loss_is_to_be_reported() {
    for by in [By::Requests, By::WebSocket] {
        let settings = Settings { outbox_messages_max: 4, history_channels_max: 1, ..Settings::default() };
        let mut client = Client::new(by, r#"{"replay":true}"#, settings);
        client.publish("/a", 3);
        client.subscribe("/a", "-1");
        client.resort_to_history("/a", 7, 1_000);
        // The server detects the loss and cannot report it yet.
        client.rig.flushed(client.socket.unwrap_or(NOBODY));
        let text = client.text("/meta/connect", "");
        let mut reply = client.say_all(&text);
        reply += &client.rig.flushed(client.socket.unwrap_or(NOBODY));
        assert!(reply.contains(r#""lost":{"from":7,"to":null}"#), "{by:?}: {reply}");
    }
}

#[test]
fn messages_without_room_that_their_ring_no_longer_has_are_reported_lost() {
    let settings = Settings { outbox_messages_max: 10, ..Settings::default() };
    let mut client = Client::new(By::Requests, r#"{"replay":true}"#, settings);
    let first = numbers(&client.subscribe("/short", "-1"), "\"from\":")[0];
    client.subscribe("/b", "-1");
    client.publish("/short", 30);
    client.publish("/b", 1);
    let received: String = (0..4).map(|_| client.connect()).collect();
    assert!(received.contains("\"/b\""));
    assert_eq!(positions(&received), (first + 25..first + 30).collect::<Vec<_>>());
    assert!(received.contains(&format!(r#""lost":{{"from":{first},"to":{}}}"#, first + 24)));
}

/// Overruns a short history, with so many messages of another channel before a response is lost and so many after it.
/// The loss is reported, and what the history still has comes.
fn expect_the_loss_and_the_rest(before: usize, after: usize) {
    let settings = Settings { outbox_messages_max: 10, ..Settings::default() };
    let mut client = Client::new(By::Requests, r#"{"replay":true}"#, settings);
    let first = overrun(&mut client, before);
    client.publish("/b", after);
    let received: String = (0..9).map(|_| client.connect()).collect();
    assert_eq!(positions(&received), (first + 25..first + 30).collect::<Vec<_>>());
    assert!(received.contains(&format!(r#""lost":{{"from":{first},"to":{}}}"#, first + 24)), "{received}");
}

#[test]
fn a_returned_message_without_room_is_sent_again_after_the_loss_before_it() {
    expect_the_loss_and_the_rest(1, 9);
}

#[test]
fn a_loss_begins_at_the_offset_that_the_cursor_returned_to() {
    // Ten of them are queued when the loss of the next ones is detected.
    expect_the_loss_and_the_rest(0, 1);
}

#[test]
fn a_loss_is_reported_when_few_enough_messages_wait_to_be_examined() {
    for ext in [r#"{"replay":true}"#, r#"{"ack":true,"replay":true}"#] {
        let settings = Settings { response_bytes_max: 40_000, ..Settings::default() };
        let mut client = Client::new(By::Requests, ext, settings);
        client.publish("/a", 3);
        client.subscribe("/a", "-1");
        client.subscribe("/b", "-1");
        client.publish("/b", 500);
        (0..2).for_each(|life| client.resort_to_history("/a", 7 + life, 1 + life));
        let (mut received, mut reported_at) = (0, None);
        for _ in 0..20 {
            let reply = client.connect();
            received += reply.matches("\"channel\":\"/b\"").count();
            if reply.contains("\"lost\":{") {
                reported_at.get_or_insert(received);
            }
        }
        assert_eq!(received, 500, "{ext}");
        let reported_at = reported_at.expect("it is reported");
        assert!((200..500).contains(&reported_at), "{ext}: with 256 KiB behind it, not after {reported_at} messages");
        assert!(client.rig.shard.machines.env.metrics.losses_delayed.get() > 3, "{ext}");
    }
}

#[test]
fn a_loss_is_reported_after_the_earlier_messages_of_its_channel() {
    let mut client = Client::new(By::Requests, r#"{"ack":true,"replay":true}"#, Settings::default());
    client.subscribe("/a", "-1");
    client.connect();
    client.publish("/a", 100);
    // This response is lost.
    client.hold();
    let next = client.rig.shard.machines.env.shared.histories.find("/a", 0).expect("a ring");
    let next = client.rig.shard.machines.env.shared.histories.with(next.ring, Ring::next).expect("a ring");
    client.resort_to_history("/a", next, 1);
    client.socket = Some(client.rig.shard.socket_opened(NOW, None));
    let (mut received, mut lost) = (Vec::new(), 0);
    for _ in 0..6 {
        let reply = client.connect();
        received.extend(positions(&reply));
        if reply.contains("\"lost\":{") {
            assert_eq!(received.len(), 100, "earlier messages come before the report");
            lost += 1;
        }
    }
    assert!(lost > 0, "it is reported");
}

#[test]
fn no_reply_reports_a_loss_behind_messages_that_a_full_queue_may_leave_to_the_history() {
    let settings = Settings { outbox_bytes_max: 5_000, ..Settings::default() };
    let mut client = Client::new(By::WebSocket, r#"{"replay":true}"#, settings);
    let first = numbers(&client.subscribe("/a", "-1"), "\"from\":")[0];
    client.publish("/a", 1);
    // No outbox has room for this one, so it is lost.
    client.rig.shard.publish_now("/a", &format!("\"{}\"", "x".repeat(6_000)));
    client.connect();
    // The session reads both again. The first message waits, and the loss behind it is known.
    client.resort_to_history("/a", first, 0);
    client.rig.kernel.room = 0;
    client.rig.flushed(client.socket.expect("a WebSocket"));
    client.connect();
    // Messages for the session alone fill the queue, and the first message goes back to its history.
    let frame = message_frame("/one", &format!("\"{}\"", "x".repeat(1_000)), None, None);
    for _ in 0..4 {
        client
            .rig
            .shard
            .message(NOW, ShardMessage::Deliver(Id::parse(&client.id).expect("an id"), frame.clone().into(), None));
    }
    client.rig.kernel.room = usize::MAX / 2;
    client.rig.shard.socket_writable(NOW, client.socket.expect("a WebSocket"));
    let received: String = (0..4).map(|_| client.connect()).collect();
    let report = received.find("\"lost\":{").expect("a report");
    assert_eq!(positions(&received), [first]);
    assert_eq!(positions(&received[..report]), [first], "the report comes after the message: {received}");
}

#[test]
fn messages_reported_lost_are_not_delivered_later() {
    let mut client = Client::new(By::Requests, r#"{"replay":true}"#, Settings::default());
    let start = numbers(&client.subscribe("/short", "-1"), "\"from\":")[0];
    client.publish("/short", 8);
    let reply = client.subscribe("/short", &(start - 1).to_string());
    assert!(reply.contains(&format!(r#""lost":{{"from":{start},"to":{}}}"#, start + 2)), "{reply}");
    assert_eq!(positions(&client.connect()), (start + 3..start + 8).collect::<Vec<_>>());
}
