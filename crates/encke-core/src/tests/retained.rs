//! The latest message of a channel whose rule retains it, for new subscriptions.

use std::cell::Cell;

use crate::application::NoApplication;
use crate::events::{PublishToken, ShardMessage, SocketKey};
use crate::id::Id;
use crate::settings::{ChannelRule, Settings};
use crate::shard::tests::{NOW, Rig};

const REPLAYS: &str = r#"{"replay":{"positions":"ext"}}"#;
/// Sessions of all kinds.
const KINDS: [&str; 4] = ["{}", r#"{"ack":true}"#, REPLAYS, r#"{"ack":true,"replay":{"positions":"ext"}}"#];

fn settings() -> Settings {
    let rule = |pattern: &str| ChannelRule { pattern: pattern.into(), ..ChannelRule::default() };
    let channels = vec![
        ChannelRule { retain_last: true, ..rule("/q/**") },
        ChannelRule { retain_last: true, min_interval_ms: 500, ..rule("/paced/*") },
        ChannelRule { retain_last: true, broadcast_to_publisher: Some(false), ..rule("/own/*") },
        ChannelRule { history_messages: 100, ..rule("/past/**") },
    ];
    Settings { channels, trust_client_session: true, ..Settings::default() }
}

fn rig(shards: usize) -> Rig {
    Rig::new(shards, settings(), Box::new(NoApplication))
}

/// A session on a WebSocket.
struct Session {
    key: SocketKey,
    client: String,
    /// The last batch that it has got, if it acknowledges.
    batch: Option<Cell<u64>>,
}

impl Rig {
    fn open(&mut self, ext: &str) -> Session {
        let (key, client) = self.opened(ext);
        let session = Session { key, client, batch: ext.contains("ack").then(Cell::default) };
        self.send_meta(&session, "connect", r#""ext":{"ack":0}"#);
        session
    }

    /// Sends a message, and returns the messages that come then.
    fn send_meta(&mut self, session: &Session, channel: &str, fields: &str) -> Vec<String> {
        self.say_meta(session, channel, fields);
        self.data_of(session)
    }

    fn say_meta(&mut self, Session { key, client, .. }: &Session, channel: &str, fields: &str) {
        let text = format!(r#"{{"channel":"/meta/{channel}","clientId":"{client}",{fields}}}"#);
        self.shard.socket_text(NOW, *key, &text);
    }

    fn subscribe_by(&mut self, session: &Session, names: &str, ext: &str) -> Vec<String> {
        self.send_meta(session, "subscribe", &format!(r#""subscription":{names},"ext":{ext}"#))
    }

    /// The messages that have come, each as its channel and its data.
    fn data_of(&mut self, session: &Session) -> Vec<String> {
        let mut text = String::new();
        loop {
            if let Some(batch) = &session.batch {
                let fields = format!(r#""ext":{{"ack":{}}},"advice":{{"timeout":0}}"#, batch.get());
                self.say_meta(session, "connect", &fields);
            }
            let more = self.flushed(session.key);
            if let (Some(batch), Some((_, rest))) = (&session.batch, more.rsplit_once("\"ack\":")) {
                batch.set(rest.split('}').next().and_then(|batch| batch.parse().ok()).unwrap_or_default());
            }
            let is_end = if session.batch.is_some() { !more.contains("\"data\":") } else { more.is_empty() };
            text += &more;
            if is_end {
                break;
            }
        }
        let show = |message: &str| {
            let (channel, rest) = message.split_once('"')?;
            let data = rest.split("\"data\":").nth(1)?.split([',', '}']).next()?;
            Some(format!("{channel} {data}"))
        };
        text.split("{\"channel\":\"").skip(1).filter_map(show).collect()
    }
}

#[test]
fn a_new_subscription_gets_the_latest_message_once_and_then_live_ones() {
    for ext in KINDS {
        let mut rig = rig(1);
        rig.shard.publish_now("/q/a", "1");
        rig.shard.publish_now("/q/a", "2");
        rig.shard.publish_now("/q/b/c", "3");
        rig.shard.publish_now("/past/a", "4");
        let session = rig.open(ext);
        assert_eq!(rig.subscribe_by(&session, r#"["/q/a","/q/none","/past/a"]"#, "{}"), ["/q/a 2"], "{ext}");
        // It has the first one by the other subscription.
        assert_eq!(rig.subscribe_by(&session, r#"["/q/**","/**"]"#, "{}"), ["/q/b/c 3"], "{ext}");
        assert_eq!(rig.subscribe_by(&session, r#""/q/a""#, "{}"), [""; 0], "{ext}: it is held");
        rig.shard.publish_now("/q/a", "5");
        rig.shard.publish_now("/past/a", "6");
        assert_eq!(rig.data_of(&session), ["/q/a 5", "/past/a 6"], "{ext}");
        rig.send_meta(&session, "unsubscribe", r#""subscription":["/q/a","/q/**","/**"]"#);
        assert_eq!(rig.subscribe_by(&session, r#""/q/*""#, "{}"), ["/q/a 5"], "{ext}: a new subscription");
    }
}

#[test]
fn who_names_a_position_gets_what_it_names() {
    let mut rig = rig(1);
    rig.shard.publish_now("/q/a", "1");
    let session = rig.open(REPLAYS);
    assert_eq!(rig.subscribe_by(&session, r#""/q/a""#, r#"{"replay":-1}"#), [""; 0]);
    assert_eq!(rig.subscribe_by(&session, r#""/q/*""#, r#"{"replay":{"/q/a":-1}}"#), [""; 0]);
    rig.shard.publish_now("/q/a", "2");
    assert_eq!(rig.data_of(&session), ["/q/a 2"]);
}

#[test]
fn a_message_on_its_way_from_another_shard_comes_once() {
    for ext in KINDS {
        for pattern in [false, true] {
            let mut rig = rig(2);
            let names = ["/q/a", "/q/b", "/q/c", "/q/d", "/q/e", "/q/f"];
            let owner = |name: &str| rig.shard.machines.env.shared.histories.owner(name);
            let channel = names.into_iter().find(|name| owner(name) == 1).expect("one");
            let on_its_way = [1, 2].map(|data| rig.on_its_way(channel, data));
            let (earlier, session) = (rig.open("{}"), rig.open(ext));
            rig.subscribe_by(&earlier, r#""/**""#, "{}");
            let name = if pattern { "\"/q/*\"".into() } else { format!("\"{channel}\"") };
            assert_eq!(rig.subscribe_by(&session, &name, "{}"), [format!("{channel} 2")], "{ext}");
            for publication in on_its_way {
                rig.shard.message(NOW, ShardMessage::Publication(publication.into()));
            }
            assert_eq!(rig.data_of(&session), [""; 0], "{ext}");
            let live = rig.on_its_way(channel, 3);
            rig.shard.message(NOW, ShardMessage::Publication(live.into()));
            assert_eq!(rig.data_of(&session), [format!("{channel} 3")], "{ext}");
            // The other session had the latest one from the ring, too.
            assert_eq!(rig.data_of(&earlier).last(), Some(&format!("{channel} 3")), "{ext}");
        }
    }
}

#[test]
fn a_restored_session_gets_no_second_one() {
    for ext in KINDS {
        let mut rig = rig(1);
        rig.shard.publish_now("/q/a", "1");
        let session = rig.open(ext);
        assert_eq!(rig.subscribe_by(&session, r#"["/q/a","/q/*"]"#, "{}"), ["/q/a 1"]);
        let saved = rig.shard.save(NOW);
        let mut next = self::rig(1);
        next.shard.publish_now("/q/a", "1");
        next.shard.restore(NOW, &saved);
        let socket = next.shard.socket_opened(NOW, None);
        let again = Session { key: socket, ..session };
        let batch = again.batch.as_ref().map_or(0, Cell::get);
        assert_eq!(next.send_meta(&again, "connect", &format!(r#""ext":{{"ack":{batch}}}"#)), [""; 0], "{ext}");
        next.shard.publish_now("/q/a", "2");
        assert_eq!(next.data_of(&again), ["/q/a 2"], "{ext}");
    }
}

#[test]
fn a_subscription_by_a_handle_gets_it() {
    for ext in KINDS {
        let mut rig = rig(1);
        rig.shard.publish_now("/q/a", "1");
        let session = rig.open(ext);
        let id = Id::parse(&session.client).expect("an id");
        let token = PublishToken { shard: PublishToken::HANDLES, number: 1 };
        rig.shard.message(NOW, ShardMessage::Subscribe(id, "/q/*".into(), token));
        assert_eq!(rig.data_of(&session), ["/q/a 1"], "{ext}");
    }
}

#[test]
fn a_board_of_quotes_gets_the_latest_value_at_once() {
    for ext in KINDS {
        let mut rig = rig(1);
        rig.shard.publish_now("/q/a", "1");
        rig.shard.publish_now("/paced/a", "2");
        let session = rig.open(ext);
        let interval = r#"{"min_interval_ms":500}"#;
        assert_eq!(rig.subscribe_by(&session, r#"["/q/*"]"#, interval), ["/q/a 1"], "{ext}");
        assert_eq!(rig.subscribe_by(&session, r#"["/paced/*"]"#, "{}"), ["/paced/a 2"], "{ext}");
    }
}

#[test]
fn the_own_message_of_a_session_does_not_come_back_where_it_would_not_live() {
    for ext in KINDS {
        let mut rig = rig(1);
        let (session, other) = (rig.open(ext), rig.open(ext));
        let text = format!(r#"{{"channel":"/own/a","clientId":"{}","data":1}}"#, session.client);
        rig.shard.socket_text(NOW, session.key, &text);
        assert_eq!(rig.subscribe_by(&session, r#""/own/a""#, "{}"), [""; 0], "{ext}");
        assert_eq!(rig.subscribe_by(&other, r#""/own/a""#, "{}"), ["/own/a 1"], "{ext}");
    }
}

#[test]
fn a_pattern_over_many_channels_brings_all_to_sessions_that_replay_and_none_to_others() {
    for ext in KINDS {
        let mut rig = rig(1);
        for number in 0..600 {
            rig.shard.publish_now(&format!("/q/{number:03}"), "1");
            rig.shard.publish_now(&format!("/past/{number:03}"), "1");
        }
        let session = rig.open(ext);
        let replays = ext.contains("replay");
        let mut received = rig.subscribe_by(&session, r#"["/q/*"]"#, "{}");
        rig.shard.publish_now("/q/599", "2");
        received.extend(rig.data_of(&session));
        let expected = if replays { 601 } else { 1 };
        assert_eq!((received.len(), received.last().map(String::as_str)), (expected, Some("/q/599 2")), "{ext}");
        let left_out = rig.shard.metrics().retained_left_out.get();
        assert_eq!(left_out, u64::from(!replays), "{ext}");
    }
}

#[test]
fn messages_left_to_a_later_page_all_come() {
    let mut rig = rig(1);
    for number in 0..600 {
        rig.shard.publish_now(&format!("/q/{number:03}"), "1");
    }
    let session = rig.open(REPLAYS);
    let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{}","subscription":"/**"}}"#, session.client);
    rig.shard.socket_text(NOW, session.key, &text);
    for data in ["2", "3"] {
        rig.shard.publish_now("/q/599", data);
        rig.shard.publish_now("/past/a", data);
    }
    let received = rig.data_of(&session);
    let of = |channel: &str| received.iter().filter(|message| message.starts_with(channel)).count();
    // The ring has one message only.
    assert_eq!((of("/past/a"), of("/q/")), (2, 600));
    assert_eq!(received.iter().filter(|message| **message == "/q/599 3").count(), 1);
}

#[test]
fn a_subscriber_without_room_is_left_out_and_does_not_end() {
    let mut rig = Rig::new(1, Settings { outbox_messages_max: 16, ..settings() }, Box::new(NoApplication));
    for number in 0..40 {
        rig.shard.publish_now(&format!("/q/{number}"), "1");
    }
    let session = rig.open("{}");
    assert_eq!(rig.subscribe_by(&session, r#""/q/*""#, "{}").len(), 16);
    assert_eq!(rig.shard.metrics().retained_left_out.get(), 24);
    rig.shard.publish_now("/q/1", "2");
    assert_eq!(rig.data_of(&session), ["/q/1 2"]);
}
