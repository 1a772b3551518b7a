//! The acknowledgement extension on the wire, with the observed behaviour of CometD 9, and clients that lie (row 26
//! of `docs/contributing/bad-input.md`).

use encke::Settings;
use serde_json::{Value, json};

use crate::common::{Poller, TestServer, Ws, publications, settings};

/// The data of publications.
pub fn data(messages: &[Value]) -> Vec<u64> {
    publications(messages).iter().filter_map(|message| message["data"].as_u64()).collect()
}

/// The number of the batch that the connect reply among these messages closes.
pub fn batch(messages: &[Value]) -> i64 {
    let reply = messages.iter().find(|message| message["channel"] == "/meta/connect").expect("a connect reply");
    reply["ext"]["ack"].as_i64().expect("a number")
}

/// A long-polling session that acknowledges, subscribed to `/a`.
pub fn poller(server: &TestServer) -> Poller {
    let mut http = server.http();
    let handshake = json!([{ "channel": "/meta/handshake", "version": "1.0", "id": "1", "ext": { "ack": true },
        "supportedConnectionTypes": ["long-polling"] }]);
    let reply = http.post(&handshake).messages().remove(0);
    assert_eq!(reply["ext"], json!({ "ack": true }));
    let mut poller = Poller::of(reply["clientId"].as_str().expect("a session").to_owned(), http);
    poller.subscribe("/a");
    poller
}

pub fn poll(poller: &mut Poller, acknowledged: i64) -> Vec<Value> {
    poller.poll(json!({ "ext": { "ack": acknowledged }, "advice": { "timeout": 0 } }))
}

/// A WebSocket session that acknowledges, subscribed to `/a`.
pub fn websocket(server: &TestServer) -> Ws {
    let mut ws = server.websocket();
    ws.send_json(&json!([{ "channel": "/meta/handshake", "version": "1.0", "id": "1", "ext": { "ack": true },
        "supportedConnectionTypes": ["websocket"] }]));
    let reply = ws.next_json()[0].clone();
    assert_eq!(reply["ext"], json!({ "ack": true }));
    ws.id = reply["clientId"].as_str().expect("a session").to_owned();
    ws.subscribe("/a");
    ws
}

pub fn connect(ws: &mut Ws, acknowledged: i64) -> Vec<Value> {
    start_connect(ws, acknowledged, json!({ "timeout": 0 }));
    ws.next_json().as_array().expect("an array").clone()
}

pub fn start_connect(ws: &mut Ws, acknowledged: i64, advice: Value) {
    let connect = json!({ "channel": "/meta/connect", "id": "c", "connectionType": "websocket",
        "ext": { "ack": acknowledged }, "advice": advice });
    let message = ws.mine(connect);
    ws.send_json(&json!([message]));
}

/// Publishes a message, the one with this number of the server, and waits until a shard has it.
fn publish(server: &TestServer, data: &str, number: u64) {
    server.publish("/a", data);
    server.wait_for("encke_publications", number);
}

#[test]
fn unacknowledged_messages_are_sent_again_before_newer_ones() {
    let server = TestServer::start(settings());
    let mut poller = poller(&server);
    assert_eq!(batch(&poll(&mut poller, 0)), 1);
    publish(&server, "1", 1);
    let first = poll(&mut poller, 1);
    assert_eq!((data(&first), batch(&first)), (vec![1], 2));
    // The client reports that response as lost.
    let again = poll(&mut poller, 1);
    assert_eq!((data(&again), batch(&again)), (vec![1], 3));
    publish(&server, "2", 2);
    let both = poll(&mut poller, 1);
    assert_eq!((data(&both), batch(&both)), (vec![1, 2], 4));
    assert_eq!(data(&poll(&mut poller, 4)), [0; 0]);
    assert_eq!(server.metric("encke_messages_resent"), 2);
    assert_eq!(server.metric("encke_deliveries"), 2);
}

#[test]
fn a_batch_confirms_its_messages_even_if_they_were_sent_again_meanwhile() {
    let server = TestServer::start(settings());
    let mut poller = poller(&server);
    poll(&mut poller, 0);
    publish(&server, "1", 1);
    assert_eq!(batch(&poll(&mut poller, 1)), 2);
    // An older connect arrives late: its response is discarded.
    assert_eq!(data(&poll(&mut poller, 1)), [1]);
    assert_eq!(data(&poll(&mut poller, 2)), [0; 0], "the client had it with batch 2");
}

#[test]
fn messages_wait_for_a_connect_on_every_transport() {
    let server = TestServer::start(settings());
    let mut poller = poller(&server);
    poll(&mut poller, 0);
    let publication = json!([{ "channel": "/a", "clientId": poller.id, "id": "9", "data": 1 }]);
    let replies = poller.http.post(&publication).messages();
    assert_eq!((replies.len(), &replies[0]["successful"]), (1, &json!(true)));
    assert_eq!(data(&poll(&mut poller, 1)), [1]);

    let mut ws = websocket(&server);
    connect(&mut ws, 0);
    server.publish("/a", "2");
    assert_eq!(ws.call(json!({ "channel": "/service/none", "data": 1 }))["error"], "404::service_unknown");
    let messages = connect(&mut ws, 1);
    assert_eq!((data(&messages), batch(&messages)), (vec![2], 2));
}

#[test]
fn a_held_connect_on_a_websocket_delivers_messages_and_batch_number_in_one_frame() {
    let server = TestServer::start(settings());
    let mut ws = websocket(&server);
    connect(&mut ws, 0);
    start_connect(&mut ws, 1, json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
    server.publish("/a", "1");
    let messages = ws.next_json().as_array().expect("an array").clone();
    assert_eq!((data(&messages), batch(&messages)), (vec![1], 2));
}

#[test]
fn a_session_that_moves_gets_the_messages_of_its_broken_websocket_again() {
    let server = TestServer::start(Settings { trust_client_session: true, ..settings() });
    let mut ws = websocket(&server);
    connect(&mut ws, 0);
    server.publish("/a", "1");
    assert_eq!(data(&connect(&mut ws, 1)), [1]);
    let mut poller = Poller::of(ws.id.clone(), server.http());
    drop(ws);
    let messages = poll(&mut poller, 1);
    assert_eq!((data(&messages), batch(&messages)), (vec![1], 3));
    let mut ws = server.websocket();
    ws.id = poller.id.clone();
    assert_eq!(data(&connect(&mut ws, 3)), [0; 0]);
}

#[test]
fn many_messages_on_a_websocket_come_in_batches_that_clients_accept() {
    let server = TestServer::start(settings());
    let mut ws = websocket(&server);
    connect(&mut ws, 0);
    for number in 0..5_000 {
        server.publish("/a", &number.to_string());
    }
    let large = format!("\"{}\"", "x".repeat(100_000));
    server.publish("/a", &large);
    let (mut received, mut acknowledged, mut batches) = (Vec::new(), 1, 0);
    while received.len() < 5_000 {
        let messages = connect(&mut ws, acknowledged);
        assert!(serde_json::to_string(&messages).expect("JSON").len() < 64 * 1024);
        acknowledged = batch(&messages);
        received.extend(data(&messages));
        batches += 1;
    }
    assert!(batches > 2);
    assert_eq!(received, (0..5_000).collect::<Vec<_>>());
    let large = publications(&connect(&mut ws, acknowledged));
    assert_eq!(large[0]["data"].as_str().map(str::len), Some(100_000));
}

/// Row 26: numbers that were never issued, missing numbers, and values that are not numbers.
#[test]
fn false_acknowledgements_affect_only_their_sender() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let mut liar = poller(&server);
    poll(&mut liar, 0);
    for (number, lie) in [json!(-1), json!(i64::MIN), json!("1"), json!({}), json!(1.5), json!(true)].iter().enumerate()
    {
        publish(&server, &number.to_string(), number as u64 + 1);
        let messages = liar.poll(json!({ "ext": { "ack": lie }, "advice": { "timeout": 0 } }));
        assert_eq!(data(&messages), (0..=number as u64).collect::<Vec<_>>(), "{lie} confirms nothing");
    }
    let messages = liar.poll(json!({ "ext": { "ack": i64::MAX }, "advice": { "timeout": 0 } }));
    assert_eq!(data(&messages), [0; 0], "who says it has everything gets nothing again");
    neighbour.lives(&server);
}

#[test]
fn a_client_that_never_acknowledges_ends_as_a_slow_consumer() {
    let server = TestServer::start(Settings { outbox_messages_max: 10, ..settings() });
    let mut poller = poller(&server);
    poll(&mut poller, 0);
    for number in 0..10 {
        publish(&server, &number.to_string(), number + 1);
        assert_eq!(data(&poll(&mut poller, 1)).len() as u64, number + 1);
    }
    publish(&server, "10", 11);
    let reply = poll(&mut poller, 1).remove(0);
    assert_eq!(reply["error"], "402::session_unknown");
    assert_eq!(server.metric("encke_slow_consumers_disconnected"), 1);
}
