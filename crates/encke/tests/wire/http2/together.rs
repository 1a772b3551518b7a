//! Messages of a WebSocket that arrive together.

use encke::Settings;
use serde_json::json;

use super::{Client, Ws, run, server_metric, settings};
use crate::common::TestServer;
use crate::decisions::Gate;

/// Each message is a frame of HTTP/2, and causes so much work that other tasks would get a turn after it. As from a socket, all that have come
/// are read at once, and the deliveries to a client leave in one write.
#[test]
fn messages_that_came_together_are_read_at_once_and_their_deliveries_gather() {
    let server = TestServer::start(Settings { shards: 1, ..settings() });
    run(async {
        let client = Client::open(&server).await;
        let (mut publisher, mut subscriber) = (client.websocket().await, client.websocket().await);
        for _ in 0..SESSIONS {
            client.handshake().await;
        }
        let id = client.handshake().await;
        subscriber.send(
            &json!([{"channel": "/meta/connect", "clientId": id, "connectionType": "websocket", "advice": {"timeout": 0}}]),
        );
        assert_eq!(subscriber.next().await[0]["successful"], true);
        let id = client.handshake().await;
        for number in 0..MESSAGES {
            let data = json!([number, "x".repeat(100)]);
            publisher.send(&json!([{"channel": "/a", "clientId": id, "data": data}]));
        }
        let (mut reads, mut received) = (0, Vec::new());
        while received.len() < MESSAGES {
            if subscriber.texts.is_empty() {
                reads += 1;
            }
            let texts = subscriber.next().await;
            let messages = texts.as_array().expect("messages").iter();
            received.extend(messages.filter_map(|message| message["data"][0].as_u64()));
        }
        assert_eq!(received, (0..MESSAGES as u64).collect::<Vec<_>>());
        assert!(reads < MESSAGES / 3, "{reads} writes for {MESSAGES} messages");
    });
}

/// A message to so many takes more than the work after which others get a turn.
const SESSIONS: usize = 500;
const MESSAGES: usize = 30;

/// The client fills its window with small messages while the server reads nothing. h2 takes so many small frames for a flood, unless
/// it is allowed to have them.
#[test]
fn a_window_of_small_messages_waits_for_the_application_and_none_is_lost() {
    let gate = Gate::closed();
    let server = gate.serve(Settings { shards: 1, ..settings() });
    run(async {
        let client = Client::open(&server).await;
        let mut publishers = Vec::new();
        for _ in 0..PUBLISHERS {
            let (id, mut ws) = (client.handshake().await, client.websocket().await);
            ws.send(&json!([{"channel": "/gated", "clientId": id, "data": "gate"}]));
            publishers.push((id, ws));
        }
        while server_metric(&client, "encke_messages_total").await < 4 * PUBLISHERS as u64 {}
        for (id, ws) in &mut publishers {
            (0..SMALL).for_each(|_| ws.send(&json!([{"channel": "/s", "clientId": id, "data": 1}])));
        }
        // All of them have arrived.
        assert_eq!(client.get("/healthz").await.status(), 200);
        gate.open(PUBLISHERS);
        // At the same time: the replies to all of them share the window of the connection.
        let read = |(_, mut ws): (String, Ws)| async move {
            for _ in 0..=SMALL {
                assert_eq!(ws.next().await[0]["successful"], true);
            }
        };
        let readers: Vec<_> = publishers.into_iter().map(|publisher| tokio::spawn(read(publisher))).collect();
        for reader in readers {
            reader.await.expect("all replies");
        }
    });
}

/// As many as the window of a connection takes.
const PUBLISHERS: usize = 4;
/// Together they fill the window of a stream.
const SMALL: usize = 800;
