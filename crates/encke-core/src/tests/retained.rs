//! The latest message of a channel whose rule retains it, for new subscriptions.

use std::cell::Cell;

use crate::application::NoApplication;
use crate::events::{PublishToken, ShardMessage, SocketKey};
use crate::id::Id;
use crate::now::Now;
use crate::settings::{ChannelRule, Settings};
use crate::shard::tests::{NOW, Rig};

const REPLAYS: &str = r#"{"replay":{"positions":"ext"}}"#;
/// Sessions of all kinds.
const KINDS: [&str; 4] = ["{}", r#"{"ack":true}"#, REPLAYS, r#"{"ack":true,"replay":{"positions":"ext"}}"#];

/// A subscribe with an interval.
const INTERVAL: &str = r#"{"min_interval_ms":500}"#;
/// A channel whose rule has an interval, and one whose subscribers ask for one.
const PACED: [(&str, &str); 2] = [("/paced/a", "{}"), ("/q/a", INTERVAL)];

/// A time after the start.
fn after(ms: u64) -> Now {
    Now { ms: NOW.ms + ms, wall_ms: NOW.wall_ms + ms }
}

fn settings() -> Settings {
    let rule = |pattern: &str| ChannelRule { pattern: pattern.into(), ..ChannelRule::default() };
    let channels = vec![
        ChannelRule { retain_last: true, ..rule("/q/**") },
        ChannelRule { retain_last: true, min_interval_ms: 500, ..rule("/paced/*") },
        ChannelRule { retain_last: true, broadcast_to_publisher: Some(false), ..rule("/own/*") },
        ChannelRule { history_messages: 100, ..rule("/past/**") },
        ChannelRule { min_interval_ms: 500, ..rule("/slow/*") },
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
    fn advance(&mut self, ms: u64) {
        self.shard.advance(after(ms));
    }

    fn publish_after(&mut self, ms: u64, channel: &str, data: &str) {
        self.shard.settle_burst_at(after(ms));
        self.shard.publish_from_here(channel, data, None, None, false);
        self.shard.settle_burst();
    }

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
        let (mut text, mut turns_without) = (String::new(), 0);
        loop {
            if let Some(batch) = &session.batch {
                let fields = format!(r#""ext":{{"ack":{}}},"advice":{{"timeout":0}}"#, batch.get());
                self.say_meta(session, "connect", &fields);
            }
            let more = self.flushed(session.key);
            if let (Some(batch), Some((_, rest))) = (&session.batch, more.rsplit_once("\"ack\":")) {
                batch.set(rest.split('}').next().and_then(|batch| batch.parse().ok()).unwrap_or_default());
            }
            // A page may have nothing for the session, and a search for what waits already takes its time.
            turns_without = if more.contains("\"data\":") { 0 } else { turns_without + 1 };
            text += &more;
            if turns_without == 4 {
                break;
            }
            self.advance(20 * turns_without);
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
fn a_session_that_is_restored_between_two_pages_gets_the_others_once() {
    for names in [r#"["/q/*","/**"]"#, r#"["/q/599","/q/*"]"#] {
        let mut rig = with_many_channels();
        let session = rig.open(REPLAYS);
        rig.say_meta(&session, "subscribe", &format!(r#""subscription":{names}"#));
        let mut received = rig.flushed(session.key).matches("/q/599\",\"data\"").count();
        let saved = rig.shard.save(NOW);
        let mut next = self::rig(1);
        for number in 0..600 {
            next.shard.publish_now(&format!("/q/{number:03}"), "1");
        }
        next.shard.restore(NOW, &saved);
        let socket = next.shard.socket_opened(NOW, None);
        let again = Session { key: socket, ..session };
        let after = next.send_meta(&again, "connect", r#""ext":{}"#);
        received += after.iter().filter(|message| *message == "/q/599 1").count();
        assert_eq!(received, 1, "{names}");
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
        assert_eq!(rig.subscribe_by(&session, r#"["/q/*"]"#, INTERVAL), ["/q/a 1"], "{ext}");
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

/// The latest messages of 600 channels `/q/000` to `/q/599`.
fn with_many_channels() -> Rig {
    let mut rig = rig(1);
    for number in 0..600 {
        rig.shard.publish_now(&format!("/q/{number:03}"), "1");
        rig.shard.publish_now(&format!("/past/{number:03}"), "1");
    }
    rig
}

#[test]
fn a_pattern_over_many_channels_brings_all() {
    for ext in KINDS {
        let mut rig = with_many_channels();
        let session = rig.open(ext);
        let mut received = rig.subscribe_by(&session, r#"["/q/*"]"#, "{}");
        rig.shard.publish_now("/q/599", "2");
        received.extend(rig.data_of(&session));
        assert_eq!((received.len(), received.last().map(String::as_str)), (601, Some("/q/599 2")), "{ext}");
        assert_eq!(rig.shard.metrics().retained_incomplete.get(), 0, "{ext}");
    }
}

#[test]
fn subscriptions_that_overlap_bring_each_latest_message_once_in_any_order() {
    let names = [r#"["/q/*","/q/599"]"#, r#"["/q/599","/q/*"]"#, r#"["/q/*","/q/**"]"#, r#"["/**","/q/*","/q/300"]"#];
    for (ext, names) in KINDS.into_iter().flat_map(|ext| names.map(|names| (ext, names))) {
        let mut rig = with_many_channels();
        let session = rig.open(ext);
        let mut received = rig.subscribe_by(&session, names, "{}");
        // Pages also bring what the other channels have got in the millisecond of the subscribe.
        received.retain(|message| message.starts_with("/q/"));
        let all = received.len();
        received.sort();
        received.dedup();
        assert_eq!((all, received.len()), (600, 600), "{ext} {names}");
    }
}

#[test]
fn a_pattern_that_ends_before_its_pages_leaves_them_to_those_that_overlap() {
    for names in [r#"["/q/*","/q/**"]"#, r#"["/q/*","/q/599"]"#] {
        let mut rig = with_many_channels();
        let session = rig.open(REPLAYS);
        let batch = ["subscribe", "unsubscribe"].map(|channel| {
            let names = if channel == "subscribe" { names } else { "\"/q/*\"" };
            format!(r#"{{"channel":"/meta/{channel}","clientId":"{}","subscription":{names}}}"#, session.client)
        });
        rig.shard.socket_text(NOW, session.key, &format!("[{}]", batch.join(",")));
        let received = rig.data_of(&session);
        assert_eq!(received.iter().filter(|message| *message == "/q/599 1").count(), 1, "{names}");
    }
}

#[test]
fn a_session_without_replay_gets_the_first_channels_of_a_pattern_over_more_than_it_may() {
    let mut rig = rig(1);
    for number in 0..16 * 256 + 10 {
        rig.shard.publish_now(&format!("/q/{number}"), "1");
    }
    for (ext, expected, incomplete) in [("{}", 16 * 256, 1), (REPLAYS, 16 * 256 + 10, 1)] {
        let session = rig.open(ext);
        assert_eq!(rig.subscribe_by(&session, r#""/q/*""#, "{}").len(), expected, "{ext}");
        assert_eq!(rig.shard.metrics().retained_incomplete.get(), incomplete, "{ext}");
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
    assert_eq!(rig.shard.metrics().retained_incomplete.get(), 1);
    rig.shard.publish_now("/q/1", "2");
    assert_eq!(rig.data_of(&session), ["/q/1 2"]);
}

#[test]
fn another_interval_is_no_new_subscription() {
    for ext in KINDS {
        let mut rig = rig(1);
        rig.shard.publish_now("/q/a", "1");
        let session = rig.open(ext);
        assert_eq!(rig.subscribe_by(&session, r#""/q/a""#, "{}"), ["/q/a 1"], "{ext}");
        for interval in ["500", "1000", "0"] {
            let interval = format!(r#"{{"min_interval_ms":{interval}}}"#);
            assert_eq!(rig.subscribe_by(&session, r#""/q/a""#, &interval), [""; 0], "{ext} {interval}");
        }
        // It gets the channel with an interval.
        rig.subscribe_by(&session, r#""/q/a""#, INTERVAL);
        assert_eq!(rig.subscribe_by(&session, r#""/q/*""#, "{}"), [""; 0], "{ext}");
    }
}

#[test]
fn the_latest_value_begins_no_interval() {
    for (ext, (channel, interval)) in KINDS.into_iter().flat_map(|ext| PACED.map(|paced| (ext, paced))) {
        let mut rig = rig(1);
        rig.shard.publish_now(channel, "1");
        rig.advance(5_000);
        let session = rig.open(ext);
        let name = format!("\"{channel}\"");
        assert_eq!(rig.subscribe_by(&session, &name, interval), [format!("{channel} 1")], "{ext}");
        rig.publish_after(5_001, channel, "2");
        assert_eq!(rig.data_of(&session), [format!("{channel} 2")], "{ext}: the first one of the interval");
        rig.publish_after(5_002, channel, "3");
        assert_eq!(rig.data_of(&session), [""; 0], "{ext}");
        rig.advance(6_000);
        assert_eq!(rig.data_of(&session), [format!("{channel} 3")], "{ext}");
    }
}

#[test]
fn a_message_that_waits_for_its_interval_does_not_come_after_it_was_given() {
    for (ext, (channel, interval)) in KINDS.into_iter().flat_map(|ext| PACED.map(|paced| (ext, paced))) {
        for name in [channel, "/**"] {
            let mut rig = rig(1);
            let (earlier, session) = (rig.open(ext), rig.open(ext));
            rig.subscribe_by(&earlier, &format!("\"{channel}\""), interval);
            rig.shard.publish_now(channel, "1");
            // Its latest message is not given: what waits is.
            rig.shard.publish_now("/slow/a", "1");
            for data in ["2", "3"] {
                rig.shard.publish_now(channel, data);
                rig.shard.publish_now("/slow/a", data);
            }
            let received = rig.subscribe_by(&session, &format!("\"{name}\""), interval);
            assert_eq!(received, [format!("{channel} 3")], "{ext} {name}");
            rig.advance(600);
            let received = rig.data_of(&session);
            let again = received.iter().filter(|message| message.starts_with(channel)).count();
            assert_eq!(again, 0, "{ext} {name} {received:?}");
            assert_eq!(rig.data_of(&earlier).last(), Some(&format!("{channel} 3")), "{ext} {name}");
            rig.publish_after(2_000, channel, "4");
            assert_eq!(rig.data_of(&session), [format!("{channel} 4")], "{ext} {name}");
        }
    }
}

#[test]
fn an_older_message_on_its_way_from_another_shard_does_not_follow_the_latest_one_with_an_interval() {
    for (ext, (channel, interval)) in KINDS.into_iter().flat_map(|ext| PACED.map(|paced| (ext, paced))) {
        for name in [channel.to_owned(), format!("{}/*", channel.rsplit_once('/').expect("a parent").0)] {
            let mut rig = rig(2);
            let owner = |name: &str| rig.shard.machines.env.shared.histories.owner(name);
            let channel =
                ["a", "b", "c", "d", "e", "f", "g", "h"].map(|end| format!("{}{end}", &channel[..channel.len() - 1]));
            let channel = channel.into_iter().find(|name| owner(name) == 1).expect("one");
            let name = if name.ends_with('*') { name } else { channel.clone() };
            let session = rig.open(ext);
            let on_its_way = [1, 2, 3].map(|data| rig.on_its_way(&channel, data));
            let received = rig.subscribe_by(&session, &format!("\"{name}\""), interval);
            assert_eq!(received, [format!("{channel} 3")], "{ext} {name}");
            for publication in on_its_way {
                rig.shard.message(NOW, ShardMessage::Publication(publication.into()));
            }
            rig.advance(600);
            assert_eq!(rig.data_of(&session), [""; 0], "{ext} {name}");
            rig.advance(5_000);
            let live = rig.on_its_way(&channel, 4);
            rig.shard.message(after(5_000), ShardMessage::Publication(live.into()));
            assert_eq!(rig.data_of(&session), [format!("{channel} 4")], "{ext} {name}");
        }
    }
}

#[test]
fn a_message_is_due_in_steps_of_its_own_channel_however_many_others_have_subscribers() {
    let mut rig = rig(1);
    let channel = |number: usize| format!("/paced/{number}");
    (0..200).for_each(|number| rig.shard.publish_now(&channel(number), "1"));
    let nothing_waits = rig.shard.machines.conflation.bytes();
    let sessions: Vec<_> = (0..400).map(|_| rig.open("{}")).collect();
    let subscribe = |rig: &mut Rig, number: usize, data: usize| {
        let received = rig.subscribe_by(&sessions[number], &format!("\"{}\"", channel(number % 200)), "{}");
        assert_eq!(received, [format!("{} {data}", channel(number % 200))]);
    };
    (0..200).for_each(|number| subscribe(&mut rig, number, 1));
    assert_eq!(rig.shard.machines.conflation.bytes(), nothing_waits, "nothing is noted");
    (0..200).for_each(|number| rig.shard.publish_now(&channel(number), "2"));
    (200..400).for_each(|number| subscribe(&mut rig, number, 2));
    let before = rig.shard.steps();
    rig.shard.machines.end_intervals();
    let steps = rig.shard.steps() - before;
    assert!(steps < 10 * 400, "{steps} steps for 200 messages to 2 sessions each");
    assert_eq!(rig.data_of(&sessions[0]), ["/paced/0 2"]);
    assert_eq!(rig.data_of(&sessions[200]), [""; 0], "it had it");
}

#[test]
fn a_pattern_brings_its_latest_messages_in_steps_of_its_channels_whatever_the_session_subscribes_to() {
    let mut rig = Rig::new(1, Settings { subscriptions_max: 1_000, ..settings() }, Box::new(NoApplication));
    (0..1_000).for_each(|number| rig.shard.publish_now(&format!("/q/a{number}/x"), "1"));
    let session = rig.open("{}");
    for number in 0..300 {
        assert_eq!(rig.subscribe_by(&session, &format!("\"/q/a{number}/*\""), "{}").len(), 1);
    }
    let before = rig.shard.steps();
    rig.say_meta(&session, "subscribe", r#""subscription":"/q/**""#);
    let steps = rig.shard.steps() - before;
    assert!(steps < 10 * (1_000 + 300), "{steps} steps for 1,000 channels and 300 subscriptions");
    assert_eq!(rig.data_of(&session).len(), 700, "it had the others");
}
