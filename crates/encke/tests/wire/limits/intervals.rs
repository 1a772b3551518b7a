//! The limits of messages that wait for the interval of their channel.

use encke::Settings;
use serde_json::json;

use crate::common::{TestServer, settings};

/// Publishes on the first channel, and twice on the second one, to a subscriber with an interval of a minute, who gets all.
fn all_go_at_once(limits: Settings, channels: [&str; 2]) {
    let server = TestServer::start(Settings { shards: 1, ..limits });
    let mut ws = server.session();
    let subscribe = json!({"id": "s", "channel": "/meta/subscribe", "subscription": ["/a", "/b"],
        "ext": {"min_interval_ms": 60_000}});
    assert_eq!(ws.call(subscribe)["successful"], true);
    for (number, channel) in [channels[0], channels[1], channels[1]].into_iter().enumerate() {
        server.publish(channel, &number.to_string());
        assert_eq!(ws.next_json(), json!([{"channel": channel, "data": number}]));
    }
    assert_eq!(server.metric("encke_min_interval_overflows"), 2);
}

#[test]
fn min_interval_channels_max_lets_messages_of_further_channels_go_at_once() {
    all_go_at_once(Settings { min_interval_channels_max: 1, ..settings() }, ["/a", "/b"]);
}

#[test]
fn min_interval_bytes_max_lets_messages_without_room_go_at_once() {
    all_go_at_once(Settings { min_interval_bytes_max: 1, ..settings() }, ["/a", "/a"]);
}
