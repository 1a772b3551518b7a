//! History and the replay extension on the wire, and clients that ask for strange positions (row 26 of `docs/contributing/bad-input.md`).

pub mod client;

use std::collections::BTreeMap;

use encke::{ChannelRule, Settings, SlowConsumer};
use serde_json::{Value, json};

use crate::common::{TestServer, Ws, publications};
use client::{Client, OPEN, both, offer, publish, reported, stored, wait_stored, with};

#[test]
fn a_late_subscriber_gets_stored_messages_then_live_ones_on_both_transports() {
    for (shards, open) in [(1, OPEN[0]), (1, OPEN[1]), (3, OPEN[0]), (3, OPEN[1])] {
        let server = TestServer::start(Settings { shards, ..with(stored(1_000)) });
        for number in 0..100 {
            publish(&server, "/h/a", number);
        }
        wait_stored(&server, 100);
        let mut client = open(&server);
        let answer = client.subscribe("/h/a", json!({ "/h/a": -2 }));
        assert_eq!((&answer["recovered"], &answer["lost"]), (&json!(true), &Value::Null));
        let first = answer["from"].as_u64().expect("a number");
        assert_eq!(answer["latest"], first + 99);
        let received = client.receive(100);
        assert_eq!(received.iter().map(|one| one.id).collect::<Vec<_>>(), (first..first + 100).collect::<Vec<_>>());
        assert_eq!(
            received.iter().map(|one| one.data.clone()).collect::<Vec<_>>(),
            (0..100).map(|n| json!(n)).collect::<Vec<_>>()
        );
        publish(&server, "/h/b", 1);
        publish(&server, "/h/a", 100);
        assert_eq!(client.ids(1), [first + 100]);
    }
}

#[test]
fn positions_may_be_numbers_strings_maps_or_have_an_epoch() {
    let server = TestServer::start(with(stored(100)));
    for number in 0..10 {
        publish(&server, "/h/a", number);
    }
    wait_stored(&server, 10);
    let answer = Client::poller(&server).subscribe("/h/a", Value::Null);
    let (epoch, latest) = (answer["epoch"].clone(), answer["latest"].as_u64().expect("a number"));
    let fifth = latest - 5;
    for replay in [
        json!(fifth),
        json!(fifth.to_string()),
        json!({ "/h/a": fifth }),
        json!({ "/h/a": fifth.to_string(), "/other": -2 }),
        json!({ "/h/a": { "id": fifth, "epoch": epoch } }),
        json!({ "/h/a": { "id": fifth.to_string() } }),
        json!({ "id": fifth, "epoch": epoch, "/h/a": fifth }),
    ] {
        // The last one is a map with invalid channel names; their positions must still be valid.
        for mut client in both(&server) {
            let reply = client.try_subscribe(json!("/h/a"), replay.clone());
            if reply["successful"] == false {
                assert_eq!(replay["epoch"], epoch, "only an epoch by itself is no position");
                continue;
            }
            let answer = &reply["ext"]["replay"]["/h/a"];
            assert_eq!((&answer["recovered"], &answer["from"]), (&json!(true), &json!(fifth + 1)), "{replay}");
            assert_eq!(client.numbers(5), [5, 6, 7, 8, 9], "{replay}");
        }
    }
}

#[test]
fn position_minus_1_replays_nothing() {
    for shards in [1, 3] {
        let server = TestServer::start(Settings { shards, ..with(stored(100)) });
        publish(&server, "/h/a", 1);
        wait_stored(&server, 1);
        for (at, replay) in [Value::Null, json!(-1), json!({ "/h/a": "-1" }), json!({ "/h/b": -2 })].iter().enumerate()
        {
            for mut client in both(&server) {
                let answer = client.subscribe("/h/a", replay.clone());
                assert_eq!(answer["from"].as_u64().expect("from"), answer["latest"].as_u64().expect("latest") + 1);
                publish(&server, "/h/a", 10 + at);
                assert_eq!(client.numbers(1), [10 + at as u64]);
            }
        }
    }
}

#[test]
fn a_position_no_longer_retained_is_reported_and_stored_messages_follow() {
    let server = TestServer::start(with(stored(10)));
    let first = Client::poller(&server).subscribe("/h/a", Value::Null)["from"].as_u64().expect("a number");
    for number in 0..30 {
        publish(&server, "/h/a", number);
    }
    server.wait_for("encke_publications", 30);
    let oldest = first + 20;
    for (replay, lost) in [
        (json!(first + 3), json!({ "from": first + 4, "to": oldest - 1 })),
        (json!(0), json!({ "from": 1, "to": oldest - 1 })),
        (json!(first + 30), Value::Null),
        (json!(i64::MAX), Value::Null),
        (json!({ "/h/a": { "id": first + 25, "epoch": "another" } }), Value::Null),
    ] {
        for mut client in both(&server) {
            let answer = client.subscribe("/h/a", replay.clone());
            assert_eq!((&answer["recovered"], &answer["from"]), (&json!(false), &json!(oldest)), "{replay}");
            assert_eq!(answer["lost"], lost, "{replay}");
            assert_eq!(client.numbers(10), (20..30).collect::<Vec<_>>());
        }
    }
    assert_eq!(server.metric("encke_replay_positions_gone"), 10);
    // The offset just before the oldest one: everything after it is still there.
    let answer = Client::poller(&server).subscribe("/h/a", json!(oldest - 1));
    assert_eq!((&answer["recovered"], &answer["from"]), (&json!(true), &json!(oldest)));
}

#[test]
fn messages_are_removed_by_age_and_bytes_and_their_channel_stays() {
    let server = TestServer::start(with(ChannelRule { history_ms: 200, ..stored(10) }));
    publish(&server, "/h/a", 1);
    wait_stored(&server, 1);
    let before = Client::poller(&server).subscribe("/h/a", Value::Null);
    wait_stored(&server, 0);
    let latest = before["latest"].as_u64().expect("a number");
    let answer =
        Client::poller(&server).subscribe("/h/a", json!({ "/h/a": { "id": latest, "epoch": before["epoch"] } }));
    assert_eq!((&answer["recovered"], &answer["from"]), (&json!(true), &json!(latest + 1)), "nothing was missed");
    let answer = Client::poller(&server).subscribe("/h/a", json!(latest - 1));
    assert_eq!((&answer["recovered"], &answer["lost"]), (&json!(false), &json!({ "from": latest, "to": latest })));

    let server = TestServer::start(with(ChannelRule { history_bytes: 1_000, ..stored(100) }));
    for _ in 0..50 {
        publish(&server, "/h/a", format!("\"{}\"", "x".repeat(100)));
    }
    server.wait_for("encke_publications", 50);
    assert!(server.metric("encke_history_bytes") <= 1_000);
    assert!(server.metric("encke_history_messages") >= 4);
}

#[test]
fn a_restarted_server_reports_earlier_positions_as_lost() {
    let server = TestServer::start(with(stored(10)));
    publish(&server, "/h/a", 1);
    wait_stored(&server, 1);
    let before = Client::poller(&server).subscribe("/h/a", Value::Null);
    drop(server);
    let server = TestServer::start(with(stored(10)));
    publish(&server, "/h/a", 2);
    wait_stored(&server, 1);
    for replay in [before["latest"].clone(), json!({ "/h/a": { "id": before["latest"], "epoch": before["epoch"] } })] {
        let mut client = Client::poller(&server);
        assert_eq!(client.subscribe("/h/a", replay)["recovered"], false);
        assert_eq!(client.numbers(1), [2]);
    }
}

#[test]
fn a_pattern_begins_at_the_requested_position_of_each_channel() {
    for (shards, open) in [(1, OPEN[0]), (1, OPEN[1]), (3, OPEN[0]), (3, OPEN[1])] {
        let server = TestServer::start(Settings { shards, ..with(stored(100)) });
        for number in 0..6 {
            publish(&server, &format!("/h/{}", number % 3), number);
        }
        publish(&server, "/h/deeper/x", 6);
        wait_stored(&server, 7);
        let mut client = open(&server);
        let reply = client.try_subscribe(json!("/h/*"), json!({ "/h/*": -2, "/h/1": -1, "/none": 5 }));
        let answers = reply["ext"]["replay"].as_object().expect("answers");
        assert_eq!(answers.keys().collect::<Vec<_>>(), ["/h/0", "/h/1", "/h/2"]);
        let mut numbers = client.numbers(4);
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 2, 3, 5]);
        publish(&server, "/h/new", 7);
        assert_eq!(client.numbers(1), [7]);
    }
}

#[test]
fn a_replay_joins_live_messages_without_gaps_or_duplicates() {
    for shards in [1, 3] {
        let server = TestServer::start(Settings { shards, mailbox_bytes_max: 4_096, ..with(stored(100_000)) });
        for number in 0..2_000 {
            publish(&server, "/h/a", number);
        }
        let mut publishers: Vec<Ws> = (0..2).map(|_| server.session()).collect();
        let total = 6_000;
        let mut clients = Vec::new();
        for round in 0..40 {
            for (at, ws) in publishers.iter_mut().enumerate() {
                let numbers = (0..50).map(|n| 2_000 + (round * 100 + at * 50 + n));
                let batch: Vec<_> =
                    numbers.map(|n| ws.mine(json!({ "id": "p", "channel": "/h/a", "data": n }))).collect();
                ws.send_json(&json!(batch));
                ws.next_json();
            }
            if round % 10 == 0 {
                clients.extend(both(&server).into_iter().map(|mut client| {
                    let answer = client.subscribe("/h/a", json!(-2));
                    (client, answer["from"].as_u64().expect("a number"))
                }));
            }
        }
        let mut order: BTreeMap<u64, Value> = BTreeMap::new();
        for (client, first) in &mut clients {
            let received = client.receive(total);
            for (one, id) in received.iter().zip(*first..) {
                assert_eq!(one.id, id, "{shards} shards");
                assert_eq!(order.entry(id).or_insert_with(|| one.data.clone()), &one.data, "all see one order");
            }
            assert_eq!(received.len(), total);
        }
    }
}

#[test]
fn with_acknowledgements_a_replay_arrives_once_and_in_order_even_if_responses_are_lost() {
    let server = TestServer::start(with(stored(10_000)));
    for number in 0..3_000 {
        publish(&server, "/h/a", number);
    }
    wait_stored(&server, 3_000);
    let mut client = Client::poller_with(&server, json!({ "ack": true, "replay": offer() }));
    client.subscribe("/h/a", json!(-2));
    let Client::Http(poller) = &mut client else { panic!("a poller") };
    let (mut acknowledged, mut numbers, mut tries) = (0, Vec::new(), 0);
    while numbers.len() < 3_000 {
        let messages = poller.poll(json!({ "ext": { "ack": acknowledged }, "advice": { "timeout": 0 } }));
        tries += 1;
        // The client reports every other response as lost.
        if tries % 2 == 0 {
            continue;
        }
        let reply = messages.iter().find(|message| message["channel"] == "/meta/connect").expect("a reply");
        acknowledged = reply["ext"]["ack"].as_i64().expect("a number");
        numbers
            .extend(publications(&messages).iter().map(|message| reported(message).data.as_u64().expect("a number")));
    }
    assert_eq!(numbers, (0..3_000).collect::<Vec<_>>());
}

#[test]
fn many_replaying_sessions_use_little_memory_and_delay_nobody() {
    let server =
        TestServer::start(Settings { outbox_messages_max: 200, outbox_bytes_max: 64 * 1024, ..with(stored(20_000)) });
    for number in 0..10_000 {
        publish(&server, "/h/a", format!("{{\"n\":{number},\"t\":\"{}\"}}", "x".repeat(100)));
    }
    wait_stored(&server, 10_000);
    let mut neighbour = server.neighbour();
    let mut clients: Vec<Client> = (0..20).map(|at| OPEN[at % 2](&server)).collect();
    for client in &mut clients {
        client.subscribe("/h/a", json!(-2));
    }
    // Nobody reads; the waiting messages are in the histories.
    neighbour.lives(&server);
    assert!(server.metric("encke_frame_bytes") < 20 * 128 * 1024);
    for client in &mut clients {
        let received = client.receive(10_000);
        assert!(received.iter().enumerate().all(|(number, one)| one.data["n"] == number));
        neighbour.lives(&server);
    }
    assert_eq!(server.metric("encke_slow_consumers_disconnected"), 0);
    assert_eq!(server.metric("encke_messages_replayed"), 200_000);
}

#[test]
fn a_slow_client_gets_live_messages_from_the_history_and_a_report_of_lost_ones() {
    let rule = ChannelRule { slow_consumer: SlowConsumer::Disconnect, ..stored(50) };
    let server = TestServer::start(Settings { outbox_messages_max: 10, ..with(rule) });
    let mut client = Client::poller(&server);
    let first = client.subscribe("/h/a", Value::Null)["from"].as_u64().expect("a number");
    for number in 0..40 {
        publish(&server, "/h/a", number);
    }
    server.wait_for("encke_publications", 40);
    assert_eq!(client.ids(40), (first..first + 40).collect::<Vec<_>>());
    for number in 40..200 {
        publish(&server, "/h/a", number);
    }
    server.wait_for("encke_publications", 200);
    let mut lost = Vec::new();
    let mut ids = Vec::new();
    while ids.last() != Some(&(first + 199)) {
        for message in publications(&client.next()) {
            ids.push(reported(&message).id);
            let gone = &message["ext"]["replay"]["lost"];
            if let (Some(from), Some(to)) = (gone["from"].as_u64(), gone["to"].as_u64()) {
                lost.extend(from..=to);
            }
        }
    }
    let mut all = [ids, lost.clone()].concat();
    all.sort_unstable();
    assert_eq!(all, (first + 40..first + 200).collect::<Vec<_>>(), "each arrived or was reported lost");
    assert!(lost.len() >= 100);
    assert!(server.metric("encke_replay_positions_gone") >= 1);
    assert_eq!(server.metric("encke_slow_consumers_disconnected"), 0);
}

#[test]
fn a_message_with_a_position_is_exact_for_any_data() {
    let server = TestServer::start(with(stored(100)));
    let [mut live, mut plain] = [Client::websocket(&server), Client::Ws(Box::new(server.session()))];
    let mut mixed = Client::websocket_with(&server, json!({ "replay": true }));
    [&mut live, &mut mixed].into_iter().for_each(|client| drop(client.subscribe("/h/a", json!(-1))));
    let Client::Ws(ws) = &mut plain else { panic!("a WebSocket") };
    ws.subscribe("/h/a");
    let texts = [
        r#"{"big":12345678901234567890,"tiny":1e-400}"#,
        r#"{"event":{"mine":true},"x":1}"#,
        r#"{"event":{"replayId":1}}"#,
        r#"{"event":7}"#,
        "[1,2.50]",
        "\"\\ud800\"",
        "null",
        "{}",
    ];
    for text in texts {
        publish(&server, "/h/a", text);
    }
    let mut late = Client::websocket(&server);
    late.subscribe("/h/a", json!(-2));
    let mut late_mixed = Client::websocket_with(&server, json!({ "replay": true }));
    late_mixed.subscribe("/h/a", json!(-2));
    let raw = |client: &mut Client| match client {
        Client::Ws(ws) => match ws.next_frame() {
            crate::common::Frame::Text(text) => text,
            other => panic!("no text but {other:?}"),
        },
        Client::Http(_) => panic!("a WebSocket"),
    };
    for text in texts {
        assert_eq!(
            raw(&mut plain),
            format!("[{{\"channel\":\"/h/a\",\"data\":{text}}}]"),
            "positions are only sent to clients that asked for them"
        );
        let in_ext = raw(&mut live);
        assert_eq!(in_ext, raw(&mut late), "live and replayed are the same to the last byte");
        let published = format!("[{{\"channel\":\"/h/a\",\"data\":{text},\"ext\":{{\"replay\":{{\"epoch\":");
        assert!(in_ext.starts_with(&published), "{in_ext}");
        let with_positions = raw(&mut mixed);
        assert_eq!(with_positions, raw(&mut late_mixed), "live and replayed are the same to the last byte");
        let id: String = with_positions
            .split_once("\"replayId\":")
            .expect("a position")
            .1
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        let event = with_positions.split_once("\"event\":").expect("an event").1;
        match text {
            _ if text.contains("mine") => {
                assert!(
                    with_positions
                        .contains(&format!("\"data\":{{\"event\":{{\"replayId\":{id},\"mine\":true}},\"x\":1}}"))
                )
            }
            "{}" => assert!(event.contains("\"createdDate\"") && !with_positions.contains("payload")),
            _ if text.starts_with("{\"big") => assert!(with_positions.contains(&format!("\"}},{}", &text[1..]))),
            _ => assert!(with_positions.contains(&format!(",\"payload\":{text}}}")), "{with_positions}"),
        }
    }
}

#[test]
fn a_publisher_without_its_own_messages_does_not_get_them_from_the_history() {
    for shards in [1, 3] {
        let rule = ChannelRule { broadcast_to_publisher: Some(false), ..stored(100) };
        let server = TestServer::start(Settings { shards, ..with(rule) });
        let mut publisher = Client::websocket(&server);
        for number in 0..5 {
            publisher.call(json!({ "id": "p", "channel": "/h/a", "data": number }));
        }
        publish(&server, "/h/a", 5);
        wait_stored(&server, 6);
        publisher.subscribe("/h/a", json!(-2));
        assert_eq!(publisher.numbers(1), [5]);
        publisher.call(json!({ "id": "p", "channel": "/h/a", "data": 6 }));
        wait_stored(&server, 7);
        publish(&server, "/h/a", 7);
        assert_eq!(publisher.numbers(1), [7]);
        let mut other = Client::poller(&server);
        other.subscribe("/h/a", json!(-2));
        assert_eq!(other.numbers(8), (0..8).collect::<Vec<_>>());
    }
}

/// Row 26: invalid positions, and positions in channels without a history.
#[test]
fn invalid_positions_are_refused_and_affect_only_their_sender() {
    let server = TestServer::start(with(stored(100)));
    let mut neighbour = server.neighbour();
    publish(&server, "/h/a", 1);
    wait_stored(&server, 1);
    let mut client = Client::websocket(&server);
    for replay in [
        json!(-3),
        json!(1.5),
        json!("x"),
        json!([]),
        json!({ "/h/a": {} }),
        json!({ "/h/a": true }),
        json!({ "/h/a": -1, "/other": "?" }),
        json!({ "/h/a": { "id": 1, "epoch": 1 } }),
        json!(1e300),
    ] {
        assert_eq!(client.try_subscribe(json!("/h/a"), replay.clone())["error"], "400::replay_invalid", "{replay}");
    }
    assert_eq!(server.metric("encke_subscriptions"), 1, "the neighbour's");
    // A channel without a history has no position.
    let answer = client.subscribe("/none", json!(7));
    assert_eq!(answer, json!({ "recovered": false, "epoch": null, "from": null, "latest": null, "lost": null }));
    // A client without the extension may put any value there.
    let mut plain = Client::Ws(Box::new(server.session()));
    assert_eq!(plain.try_subscribe(json!("/h/a"), json!("x"))["successful"], true);
    neighbour.lives(&server);
}

#[test]
fn a_replay_ends_with_its_subscription_or_its_session() {
    let server = TestServer::start(Settings { outbox_messages_max: 40, ..with(stored(10_000)) });
    for number in 0..5_000 {
        publish(&server, "/h/a", number);
    }
    wait_stored(&server, 5_000);
    let mut client = Client::poller(&server);
    client.subscribe("/h/a", json!(-2));
    assert!(client.numbers(1)[0] == 0);
    let reply = client.call(json!({ "id": "u", "channel": "/meta/unsubscribe", "subscription": "/h/a" }));
    assert_eq!(reply["successful"], true);
    publish(&server, "/h/a", 5_000);
    server.wait_for("encke_publications", 5_001);
    let rest: usize = (0..5).map(|_| publications(&client.next()).len()).sum();
    assert!(rest <= 40, "{rest} messages after the end of the subscription");
    client.subscribe("/h/a", json!(-1));
    publish(&server, "/h/a", 5_001);
    assert_eq!(client.numbers(1), [5_001]);

    let mut client = Client::websocket(&server);
    client.subscribe("/h/a", json!(-2));
    client.receive(1);
    client.call_off();
    server.wait_for("encke_sessions_disconnected", 1);
    server.wait_for_exactly("encke_subscriptions", 1);
}

#[test]
fn a_connect_reply_reports_the_clients_position() {
    for shards in [1, 3] {
        let server = TestServer::start(Settings { shards, ..with(stored(100)) });
        let mut client = Client::poller(&server);
        let answer = client.subscribe("/h/a", json!(-1));
        for number in 0..3 {
            publish(&server, "/h/a", number);
        }
        wait_stored(&server, 3);
        let last = client.ids(3)[2];
        let reply = client.next().pop().expect("a connect reply");
        assert_eq!(reply["ext"]["replay"], json!({ "/h/a": { "id": last, "epoch": answer["epoch"] } }));
    }
}
