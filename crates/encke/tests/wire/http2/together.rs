//! Messages of a WebSocket that arrive together.

use encke::Settings;
use serde_json::json;

use super::{Client, run, settings};
use crate::common::TestServer;

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
