//! The limits of messages that wait for the interval of their channel.

use encke::Settings;
use serde_json::json;

use crate::common::{TestServer, settings};

#[test]
fn min_interval_channels_max_and_bytes_max_let_further_messages_go_at_once() {
    let few = Settings { min_interval_channels_max: 1, shards: 1, ..settings() };
    let small = Settings { min_interval_bytes_max: 1, shards: 1, ..settings() };
    for (limits, channels) in [(few, ["/a", "/b"]), (small, ["/a", "/a"])] {
        let server = TestServer::start(limits);
        let mut ws = server.session();
        let subscribe = json!({"id": "s", "channel": "/meta/subscribe", "subscription": ["/a", "/b"],
            "ext": {"min_interval_ms": 60_000}});
        assert_eq!(ws.call(subscribe)["successful"], true);
        for (number, channel) in [channels[0], channels[1], channels[1]].into_iter().enumerate() {
            server.publish(channel, &number.to_string());
            assert_eq!(ws.next_json(), json!([{"channel": channel, "data": number}]));
        }
        assert!(server.metric("encke_min_interval_overflows") >= 2);
    }
}
