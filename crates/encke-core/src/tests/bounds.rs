//! Limits on the work and memory that one client can cause, even with few bytes.

use std::fmt::Write;

use crate::application::NoApplication;
use crate::delivery::InRings;
use crate::events::{Effect, SocketKey};
use crate::id::Id;
use crate::now::Now;
use crate::settings::{ChannelRule, Settings, SlowConsumer};
use crate::shard::tests::{NOW, Rig, member_of, rig};

/// Settings with a history of `/h/**`.
fn history() -> Settings {
    let rule = ChannelRule { pattern: "/h/**".into(), history_messages: 1_000, ..ChannelRule::default() };
    Settings { channels: vec![rule], ..Settings::default() }
}

/// A WebSocket with a session that uses these extensions.
fn open(rig: &mut Rig, ext: &str) -> (SocketKey, String) {
    let key = rig.shard.socket_opened(NOW, None);
    let text = format!(r#"{{"channel":"/meta/handshake","version":"1.0","ext":{ext}}}"#);
    rig.shard.socket_text(NOW, key, &text);
    let client = member_of(&rig.flushed(key), "clientId");
    (key, client)
}

/// A shard with histories of this many channels, and a session that replays.
fn with_histories(channels: usize, settings: Settings) -> (Rig, SocketKey, String) {
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    for number in 0..channels {
        rig.shard.publish_now(&format!("/h/{number}"), "1");
    }
    let (key, client) = open(&mut rig, r#"{"replay":true}"#);
    (rig, key, client)
}

/// A batch of the same message, repeated.
fn batch(message: &str, times: usize) -> String {
    format!("[{}]", vec![message; times].join(","))
}

#[test]
fn a_channel_repeated_in_a_subscribe_is_answered_once() {
    let (mut rig, key, client) = with_histories(256, history());
    let names = vec![r#""/h/*","/h/**""#; 500].join(",");
    let text = format!(
        r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":[{names}],"ext":{{"replay":-2}}}}"#
    );
    rig.shard.socket_text(NOW, key, &text);
    let reply = rig.flushed(key);
    let reply = reply.split("\"successful\":true").nth(1).expect("a reply");
    assert_eq!(reply.matches("\"/h/7\":").count(), 1);
    assert!(reply.matches("\"recovered\"").count() == 256, "{} bytes", reply.len());
}

#[test]
fn the_subscribes_of_one_batch_begin_with_a_limited_number_of_channels() {
    let (mut rig, key, client) = with_histories(256, history());
    let subscribe = |name: &str| {
        format!(
            r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"{name}","ext":{{"replay":-2}}}}"#
        )
    };
    rig.shard.socket_text(NOW, key, &batch(&subscribe("/h/*"), 1_000));
    let replies = rig.flushed(key);
    assert!(replies.len() < 2_000_000, "{} bytes", replies.len());
    assert_eq!(replies.matches("413::replay_channels_max").count(), 1_000 - 4_000 / 256);
    // The next batch may replay some channels again.
    rig.shard.socket_text(NOW, key, &subscribe("/h/**"));
    assert!(rig.flushed(key).contains("\"successful\":true"));
}

#[test]
fn positions_for_all_channels_of_a_pattern_do_not_count_for_the_pattern_limit() {
    let (mut rig, key, client) = with_histories(900, Settings { subscriptions_max: 1, ..history() });
    let mut positions = String::new();
    (0..900).for_each(|number| _ = write!(positions, "\"/h/{number}\":-2,"));
    let text = format!(
        r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/h/*","ext":{{"replay":{{{positions}"/h/*":-2}}}}}}"#
    );
    rig.shard.socket_text(NOW, key, &text);
    let mut received = rig.flushed(key);
    assert_eq!((received.contains("\"successful\":true"), received.matches("\"recovered\":true").count()), (true, 900));
    (0..100).for_each(|_| received += &rig.flushed(key));
    assert_eq!(received.matches("\"replayId\"").count(), 900);
}

#[test]
fn replies_to_one_batch_are_limited_and_the_rest_is_refused() {
    let settings = Settings { outbox_bytes_max: 256 * 1024, ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let (key, client) = open(&mut rig, "{}");
    let names = format!("\"/{}\",", "n".repeat(250)).repeat(9);
    let subscribe = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":[{names}"/h"]}}"#);
    let text = batch(&subscribe, 100);
    rig.shard.socket_text(NOW, key, &text);
    let replies = rig.flushed(key);
    let exchange = rig.request(text);
    let response = rig.response(exchange).expect("a response");
    for replies in [replies, response] {
        let (taken, left) = (replies.matches("\"successful\":true").count(), replies.matches("413::replies_too_long"));
        let left = left.count();
        assert!(taken > 40 && left > 30 && taken + left == 100, "{taken} and {left}");
    }
}

#[test]
fn messages_replayed_from_the_ring_do_not_also_come_from_the_outbox() {
    let (mut rig, key, client) = with_histories(0, history());
    let subscribe = |ext: &str| {
        format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/h/a","ext":{ext}}}"#)
    };
    rig.shard.socket_text(NOW, key, &subscribe("{}"));
    rig.flushed(key);
    (1..=9).for_each(|data| rig.shard.publish_now("/h/a", &data.to_string()));
    rig.shard.socket_text(NOW, key, &batch(&subscribe(r#"{"replay":-2}"#), 3));
    let mut received = rig.flushed(key);
    (0..9).for_each(|_| received += &rig.flushed(key));
    assert_eq!(received.matches("\"replayId\"").count(), 9);
}

#[test]
fn an_acknowledging_client_that_never_reads_its_connect_replies_is_ended() {
    let settings = Settings { outbox_bytes_max: 256 * 1024, ..history() };
    let (mut rig, _, _) = with_histories(64, settings);
    let (key, client) = open(&mut rig, r#"{"ack":true,"replay":true}"#);
    let text = format!(
        r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/h/**","ext":{{"replay":-2}}}}"#
    );
    rig.shard.socket_text(NOW, key, &text);
    rig.flushed(key);
    rig.kernel.room = 0;
    // The number that it acknowledges does not matter.
    let connect = format!(
        r#"{{"channel":"/meta/connect","clientId":"{client}","advice":{{"timeout":0}},"ext":{{"ack":1000000}}}}"#
    );
    let mut most = 0;
    for _ in 0..3_000 {
        rig.shard.publish_now("/h/1", &format!("\"{}\"", "x".repeat(500)));
        rig.shard.socket_text(NOW, key, &connect);
        rig.flushed(key);
        most = most.max(rig.shard.machines.delivery.socket(key).expect("it is not closed yet").out_bytes());
    }
    assert!(most > 200 * 1024 && most < 520 * 1024, "{most}");
    assert_eq!(rig.shard.machines.env.metrics.slow_disconnected.get(), 1);
    assert!(rig.shard.take_effects().iter().any(|effect| matches!(effect, Effect::Reset(socket) if *socket == key)));
}

#[test]
fn an_acknowledging_client_may_be_slow_to_read_as_much_as_its_outbox_may_hold() {
    let settings = Settings { outbox_bytes_max: 256 * 1024, ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let (key, client) = open(&mut rig, r#"{"ack":true}"#);
    rig.subscribe(key, &client);
    rig.flushed(key);
    rig.kernel.room = 0;
    let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}","advice":{{"timeout":0}}}}"#);
    // The memory for each batch is charged, too.
    for _ in 0..200 {
        rig.shard.publish_now("/a", &format!("\"{}\"", "x".repeat(950)));
        rig.shard.socket_text(NOW, key, &connect);
        rig.flushed(key);
    }
    rig.shard.socket_ping(NOW, key, b"");
    assert_eq!(rig.shard.machines.env.metrics.slow_disconnected.get(), 0);
}

#[test]
fn a_reply_has_room_in_an_outbox_full_of_messages() {
    for slow_consumer in [SlowConsumer::DropOldest, SlowConsumer::KeepLatest] {
        let rule = ChannelRule { pattern: "/**".into(), slow_consumer, ..ChannelRule::default() };
        let settings = Settings { outbox_bytes_max: 2_000, channels: vec![rule], ..Settings::default() };
        let mut rig = Rig::new(1, settings, Box::new(NoApplication));
        let (key, client) = rig.socket();
        rig.kernel.room = 0;
        for number in 0..100 {
            rig.shard.publish_now("/a", &format!("\"{}\"", "x".repeat(900)));
            rig.flushed(key);
            if number % 10 == 0 {
                rig.shard.socket_text(NOW, key, "no JSON");
            }
        }
        let id = Id::parse(&client).expect("an id");
        assert!(rig.shard.waiting(&id).is_some_and(|(messages, ..)| messages > 0), "{slow_consumer:?}");
        // Unread replies have a limit, too.
        for _ in 0..100 {
            rig.shard.socket_text(NOW, key, "no JSON");
        }
        assert!(rig.shard.waiting(&id).is_none());
    }
}

#[test]
fn the_latest_ping_is_answered_when_nothing_was_read_and_not_within_a_frame() {
    let mut rig = Rig::new(1, Settings::default(), Box::new(NoApplication));
    let (key, _) = rig.socket();
    (1..=3).for_each(|data| rig.publish(data));
    rig.kernel.room = 40;
    let begun = rig.flushed(key);
    for number in 0..10_000 {
        rig.shard.socket_ping(NOW, key, format!("ping {number:4}").as_bytes());
        if number % 100 == 0 {
            rig.flushed(key);
        }
    }
    assert!(rig.shard.machines.delivery.socket(key).expect("open").out_bytes() < 100);
    rig.kernel.room = 1_000_000;
    rig.shard.socket_writable(NOW, key);
    let said = begun + &rig.flushed(key);
    let frame = |data: u32| format!("\u{fffd}\u{1b}[{{\"channel\":\"/a\",\"data\":{data}}}]");
    assert_eq!(said, [frame(1), frame(2), "\u{fffd}\u{9}ping 9999".into(), frame(3)].concat());
}

#[test]
fn pings_that_arrive_faster_than_writes_leave_few_pongs() {
    let mut rig = Rig::new(1, Settings::default(), Box::new(NoApplication));
    let key = rig.shard.socket_opened(NOW, None);
    for number in 0..100_000 {
        rig.shard.socket_ping(NOW, key, format!("{number}").as_bytes());
    }
    assert!(rig.shard.machines.delivery.socket(key).expect("open").out_bytes() < 20 * 1024);
    let said = rig.flushed(key);
    assert!(said.len() < 30 * 1024 && said.contains("99999"), "{} bytes", said.len());
}

#[test]
fn replies_that_a_socket_without_a_session_does_not_read_are_few() {
    let mut rig = Rig::new(1, Settings::default(), Box::new(NoApplication));
    let key = rig.shard.socket_opened(NOW, None);
    rig.kernel.room = 0;
    for _ in 0..100_000 {
        rig.shard.socket_text(NOW, key, "no JSON");
    }
    assert!(rig.shard.take_effects().iter().any(|effect| matches!(effect, Effect::Reset(socket) if *socket == key)));
    assert_eq!(rig.shard.machines.env.metrics.websocket_errors.get(), 1);
}

#[test]
fn replies_left_on_a_socket_count_for_its_next_session() {
    let mut rig = Rig::new(1, Settings::default(), Box::new(NoApplication));
    let key = rig.shard.socket_opened(NOW, None);
    rig.kernel.room = 0;
    let handshake = r#"{"channel":"/meta/handshake","version":"1.0"}"#;
    let is_cut_off = (0..200_000).any(|_| {
        rig.shard.socket_text(NOW, key, handshake);
        rig.shard.take_effects().iter().any(|effect| matches!(effect, Effect::Reset(socket) if *socket == key))
    });
    assert!(is_cut_off, "its replies take {} bytes", rig.shard.held_bytes());
}

#[test]
fn a_session_falls_back_on_a_limited_number_of_channels_and_ends_at_the_next() {
    let settings = Settings { subscriptions_max: 1, outbox_messages_max: 5_000, ..history() };
    let (mut rig, key, client) = with_histories(0, settings);
    let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/h/**"}}"#);
    rig.shard.socket_text(NOW, key, &text);
    rig.flushed(key);
    rig.kernel.room = 0;
    let id = Id::parse(&client).expect("an id");
    let cursors = |rig: &Rig| {
        let key = rig.shard.machines.delivery.find(&id)?;
        rig.shard.machines.delivery.session(key)?.cursors()
    };
    let publish = |rig: &mut Rig, number: usize| {
        rig.shard.publish_now(&format!("/h/{number}"), "1");
        rig.flushed(key);
    };
    (0..9_097).for_each(|number| publish(&mut rig, number));
    assert_eq!(cursors(&rig), Some(4_097));
    // A channel that it already fell back on does not count again.
    publish(&mut rig, 9_000);
    assert_eq!(cursors(&rig), Some(4_097));
    publish(&mut rig, 9_097);
    assert_eq!((cursors(&rig), rig.shard.machines.env.metrics.slow_disconnected.get()), (None, 1));
}

#[test]
fn a_session_that_fell_back_on_many_channels_gets_all_of_them() {
    let (mut rig, key, client) = with_histories(0, Settings { outbox_messages_max: 8, ..history() });
    let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/h/**"}}"#);
    rig.shard.socket_text(NOW, key, &text);
    rig.flushed(key);
    rig.kernel.room = 0;
    for number in 0..3_000 {
        rig.shard.publish_now(&format!("/h/{}", number % 1_000), &format!("{number}"));
        rig.flushed(key);
    }
    rig.kernel.room = usize::MAX / 2;
    rig.shard.socket_writable(NOW, key);
    let mut received = String::new();
    while !rig.shard.is_settled() {
        received += &rig.flushed(key);
    }
    for channel in 0..1_000 {
        let position = |round: usize| received.find(&format!("\"payload\":{}}}", channel + round * 1_000));
        assert!(position(0).is_some() && position(0) < position(1) && position(1) < position(2), "{channel}");
    }
    assert_eq!(received.matches("\"replayId\"").count(), 3_000);
}

/// A search for each message would cost more with each queued message.
#[test]
fn an_outbox_without_history_messages_is_searched_once() {
    let rule = ChannelRule { pattern: "/a".into(), slow_consumer: SlowConsumer::DropOldest, ..ChannelRule::default() };
    let settings = Settings { outbox_messages_max: 4, channels: vec![rule], ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let (key, client) = open(&mut rig, r#"{"replay":true}"#);
    rig.subscribe(key, &client);
    rig.flushed(key);
    rig.kernel.room = 0;
    let session = rig.shard.machines.delivery.find(&Id::parse(&client).expect("an id")).expect("a session");
    let in_rings = |rig: &Rig| rig.shard.machines.delivery.session(session).and_then(|s| s.in_rings());
    for data in 0..10 {
        rig.publish(data);
        rig.flushed(key);
        assert_eq!(in_rings(&rig), Some(InRings::None));
    }
    assert_eq!(rig.shard.waiting(&Id::parse(&client).expect("an id")).map(|waiting| waiting.0), Some(4));
}

#[test]
fn publishers_cannot_forge_positions() {
    for ext in [r#"{"replay":{"id":7,"epoch":"x"}}"#, r#"{"a":1,"\u0072eplay":{"id":7,"epoch":"x"},"b":2}"#] {
        let mut rig = rig();
        let (key, client) = rig.socket();
        let text = format!(r#"{{"channel":"/a","clientId":"{client}","data":1,"ext":{ext}}}"#);
        rig.shard.socket_text(NOW, key, &text);
        let received = rig.flushed(key);
        let rest = if ext.contains("\"a\"") { r#","ext":{"a":1,"b":2}}"# } else { "}" };
        assert!(received.contains(&format!(r#"[{{"channel":"/a","data":1{rest}]"#)), "{received}");
    }
}

/// Flushes remove superseded messages; if all messages come in one turn, that turn does.
#[test]
fn keep_latest_ends_a_session_that_waits_for_more_channels_than_its_outbox_may_hold_messages() {
    let rule =
        ChannelRule { pattern: "/k/**".into(), slow_consumer: SlowConsumer::KeepLatest, ..ChannelRule::default() };
    let settings = Settings { outbox_messages_max: 2_000, channels: vec![rule], ..Settings::default() };
    for (channels, lives, flushes) in
        [(2_001, false, true), (2_001, false, false), (2_000, true, true), (2_000, true, false)]
    {
        let mut rig = Rig::new(1, settings.clone(), Box::new(NoApplication));
        let (key, client) = open(&mut rig, "{}");
        let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/k/**"}}"#);
        rig.shard.socket_text(NOW, key, &text);
        rig.flushed(key);
        rig.kernel.room = 0;
        for number in 0..6_000 {
            rig.shard.publish_now(&format!("/k/{}", number % channels), &format!("[{number}]"));
            if flushes {
                rig.flushed(key);
            }
        }
        let id = Id::parse(&client).expect("an id");
        assert_eq!(rig.shard.waiting(&id).is_some(), lives, "{channels}");
        rig.kernel.room = usize::MAX / 2;
        rig.shard.socket_writable(NOW, key);
        let received = rig.flushed(key);
        let has_all = (4_000..6_000).all(|number| received.contains(&format!("\"data\":[{number}]")));
        assert_eq!(has_all, lives, "{channels}");
    }
}

/// A session that reads nothing holds little more than the latest message of each channel, long before its outbox is full.
#[test]
fn a_rule_with_bytes_drops_old_messages_of_an_outbox_that_is_not_full() {
    for slow_consumer in [SlowConsumer::DropOldest, SlowConsumer::KeepLatest] {
        let rule = ChannelRule {
            pattern: "/k/*".into(),
            slow_consumer,
            slow_consumer_bytes: 10_000,
            ..ChannelRule::default()
        };
        let settings = Settings { channels: vec![rule], ..Settings::default() };
        let mut rig = Rig::new(1, settings, Box::new(NoApplication));
        let (key, client) = open(&mut rig, "{}");
        let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/k/*"}}"#);
        rig.shard.socket_text(NOW, key, &text);
        rig.flushed(key);
        rig.kernel.room = 0;
        let id = Id::parse(&client).expect("an id");
        for number in 0..10_000 {
            rig.shard.publish_now(&format!("/k/{}", number % 200), &format!("[{number}]"));
            rig.flushed(key);
            let (messages, ..) = rig.shard.waiting(&id).expect("it lives");
            assert!(messages < 600, "{messages} messages wait after {number}");
        }
        rig.kernel.room = usize::MAX / 2;
        rig.shard.socket_writable(NOW, key);
        let received = rig.flushed(key);
        let latest = |number: usize| received.contains(&format!("\"data\":[{number}]"));
        assert!(latest(9_999));
        if slow_consumer == SlowConsumer::KeepLatest {
            assert!((9_800..10_000).all(latest));
        }
        assert_eq!(rig.shard.machines.env.metrics.slow_disconnected.get(), 0);
        assert!(rig.shard.machines.env.metrics.slow_dropped.get() > 9_000);
    }
}

#[test]
fn lazy_messages_that_a_rule_with_bytes_drops_are_still_lazy() {
    for slow_consumer in [SlowConsumer::DropOldest, SlowConsumer::KeepLatest] {
        let pattern = "/a".into();
        let rule = ChannelRule { slow_consumer, slow_consumer_bytes: 1, lazy: true, pattern, ..ChannelRule::default() };
        let mut rig = Rig::new(1, Settings { channels: vec![rule], ..Settings::default() }, Box::new(NoApplication));
        let (key, _) = rig.socket();
        (0..3).for_each(|data| rig.publish(data));
        assert_eq!(rig.flushed(key), "");
        let due = Now { ms: NOW.ms + Settings::default().lazy_timeout_max_ms + 100, ..NOW };
        rig.shard.advance(due);
        let text = rig.flushed(key);
        assert!(text.contains("\"data\":2") && !text.contains("\"data\":1"), "{text}");
    }
}

#[test]
fn bytes_of_a_connect_reply_count_until_the_kernel_has_them() {
    let settings = Settings { outbox_messages_max: 10, connect_deliver_only: true, ..Settings::default() };
    for goes_through in [false, true] {
        let mut rig = Rig::new(1, settings.clone(), Box::new(NoApplication));
        let (key, client) = rig.socket();
        let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#);
        (0..8).for_each(|data| rig.publish(data));
        rig.kernel.room = if goes_through { usize::MAX / 2 } else { 40 };
        rig.shard.socket_text(NOW, key, &connect);
        assert_eq!(rig.flushed(key).contains("\"data\":7"), goes_through);
        (0..3).for_each(|data| rig.publish(data));
        assert_eq!(rig.shard.sessions(), usize::from(goes_through), "11 wait, or 3");
    }
}
