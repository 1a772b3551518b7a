use super::*;
use crate::NoApplication;
use crate::settings::{ChannelRule, Settings, SlowConsumer};
use crate::shard::effect::Mail;
use crate::shard::tests::{NOW, Rig, member_of};

/// A session that acknowledges, on a WebSocket, and subscribes to `/a`.
fn acknowledging(settings: Settings) -> (Rig, SocketKey, String) {
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let socket = rig.shard.socket_opened(NOW, None);
    let text = r#"{"channel":"/meta/handshake","version":"1.0","ext":{"ack":true}}"#;
    rig.shard.socket_text(NOW, socket, text);
    let client = member_of(&rig.flushed(socket), "clientId");
    rig.subscribe(socket, &client);
    rig.flushed(socket);
    (rig, socket, client)
}

fn publish(rig: &mut Rig, count: usize, bytes: usize) {
    for number in 0..count {
        let data = format!("{{\"n\":{number},\"t\":\"{}\"}}", "x".repeat(bytes));
        rig.shard.mail(NOW, Mail::Publish("/a".into(), data.into()));
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
