//! At most one message of a channel in an interval, the latest: by a rule, and by what clients ask for.

mod groups;

use std::sync::Arc;

use crate::application::NoApplication;
use crate::events::{ShardMessage, SocketKey};
use crate::now::Now;
use crate::settings::{ChannelRule, Settings};
use crate::shard::tests::{NOW, Rig, rig};

const OFFERS_REPLAY: &str = r#"{"replay":{"positions":"ext"}}"#;
const HALF_A_SECOND: &str = r#"{"min_interval_ms":500}"#;

/// A time after the start.
fn after(ms: u64) -> Now {
    Now { ms: NOW.ms + ms, wall_ms: NOW.wall_ms + ms }
}

/// Settings with this rule.
fn with_rule(rule: ChannelRule) -> Settings {
    Settings { channels: vec![rule], ..Settings::default() }
}

/// Settings with an interval of half a second for the channels of this pattern, which have a history.
fn with_interval(pattern: &str) -> Settings {
    let pattern = pattern.into();
    with_rule(ChannelRule { pattern, min_interval_ms: 500, history_messages: 100, ..ChannelRule::default() })
}

impl Rig {
    fn of(settings: Settings) -> Rig {
        Rig::new(1, settings, Box::new(NoApplication))
    }

    /// A session on a WebSocket whose handshake had this `ext`.
    fn session(&mut self, ext: &str) -> (SocketKey, String) {
        let (key, client) = self.opened(ext);
        self.request_on(after(0), key, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
        (key, client)
    }

    /// Sends a text, and returns what comes until the next flush.
    fn request_on(&mut self, now: Now, key: SocketKey, text: &str) -> String {
        self.shard.socket_text(now, key, text);
        self.flushed(key)
    }

    /// Subscribes with this `ext`, and returns the reply.
    fn subscribe_with(&mut self, ms: u64, (key, client): &(SocketKey, String), names: &str, ext: &str) -> String {
        let text =
            format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":{names},"ext":{ext}}}"#);
        self.request_on(after(ms), *key, &text)
    }

    fn publish_at(&mut self, ms: u64, channel: &str, data: usize) {
        self.shard.settle_burst_at(after(ms));
        self.shard.publish_from_here(channel, &data.to_string(), None, None, false);
        self.shard.settle_burst();
    }

    /// The channels and the data of the messages that a session has got by this time.
    fn received(&mut self, ms: u64, (key, _): &(SocketKey, String)) -> Vec<String> {
        self.shard.advance(after(ms));
        let text = self.flushed(*key);
        let messages = text.split("{\"channel\":\"").skip(1);
        let show = |message: &str| {
            let (channel, rest) = message.split_once('"').expect("a channel");
            let data = rest.split("\"data\":").nth(1)?.split([',', '}']).next()?;
            Some(format!("{channel} {data}"))
        };
        messages.filter_map(show).collect()
    }
}

#[test]
fn a_subscriber_with_an_interval_gets_the_first_message_and_then_the_latest() {
    let mut rig = rig();
    let (paced, plain) = (rig.session("{}"), rig.session("{}"));
    assert!(rig.subscribe_with(0, &paced, r#"["/a","/b/*"]"#, HALF_A_SECOND).contains("\"successful\":true"));
    rig.subscribe_with(0, &plain, r#""/a""#, "{}");
    for data in 0..10 {
        rig.publish_at(data as u64, "/a", data);
        rig.publish_at(data as u64, "/b/x", data);
    }
    rig.publish_at(10, "/b/y", 7);
    assert_eq!(rig.received(10, &paced), ["/a 0", "/b/x 0", "/b/y 7"]);
    assert_eq!(rig.received(10, &plain).len(), 10, "others get all messages");
    assert_eq!(rig.received(499, &paced), [""; 0]);
    assert_eq!(rig.received(520, &paced), ["/a 9", "/b/x 9"]);
    assert_eq!(rig.received(2_000, &paced), [""; 0]);
    assert_eq!(rig.shard.machines.env.metrics.min_interval_channels.get(), 0, "nothing is left of quiet channels");
    assert_eq!(rig.shard.machines.env.metrics.min_interval_replaced.get(), 16);
}

#[test]
fn messages_of_one_turn_are_one_in_the_interval() {
    let mut rig = rig();
    let paced = rig.session("{}");
    rig.subscribe_with(0, &paced, r#""/a""#, HALF_A_SECOND);
    let (key, client) = rig.session("{}");
    let publish = |data: usize| format!(r#"{{"channel":"/a","data":{data},"clientId":"{client}"}}"#);
    let batch: Vec<String> = (0..5).map(publish).collect();
    rig.request_on(after(0), key, &format!("[{}]", batch.join(",")));
    let first = rig.received(0, &paced);
    let last = rig.received(600, &paced);
    assert!(first.len() == 1 && last.len() <= 1, "{first:?} {last:?}");
    assert_eq!(last.last().or(first.last()).map(String::as_str), Some("/a 4"), "the last one arrives");
}

#[test]
fn a_session_gets_each_message_once_whatever_its_subscriptions_are() {
    let mut rig = rig();
    let both = rig.session("{}");
    rig.subscribe_with(0, &both, r#""/a/*""#, HALF_A_SECOND);
    rig.subscribe_with(0, &both, r#""/a/b""#, "{}");
    rig.subscribe_with(0, &both, r#""/a/**""#, r#"{"min_interval_ms":1000}"#);
    for data in 0..3 {
        rig.publish_at(data as u64, "/a/b", data);
        rig.publish_at(data as u64, "/a/c", data);
    }
    let expected = ["/a/b 0", "/a/c 0", "/a/b 1", "/a/b 2"];
    assert_eq!(rig.received(10, &both), expected, "all of one channel, and the first of the other");
    assert_eq!(rig.received(600, &both), ["/a/c 2"], "by the shorter interval");
    assert_eq!(rig.received(5_000, &both), [""; 0]);
}

#[test]
fn a_subscription_that_begins_while_a_message_waits_does_not_swallow_it() {
    let mut rig = rig();
    let session = rig.session("{}");
    rig.subscribe_with(0, &session, r#""/a/*""#, HALF_A_SECOND);
    rig.publish_at(0, "/a/b", 1);
    rig.publish_at(10, "/a/b", 2);
    rig.subscribe_with(20, &session, r#""/a/b""#, "{}");
    rig.publish_at(30, "/a/c", 3);
    let mut received = rig.received(30, &session);
    received.extend(rig.received(600, &session));
    assert!(received.contains(&"/a/b 2".to_owned()), "{received:?}");
    rig.publish_at(700, "/a/b", 4);
    assert_eq!(rig.received(2_000, &session), ["/a/b 4"], "once");
}

#[test]
fn what_waited_for_others_is_not_delivered_after_a_later_message_that_nobody_wanted() {
    let mut rig = Rig::of(with_interval("/q"));
    let session = rig.session("{}");
    let unsubscribe = |rig: &mut Rig, ms: u64, (key, client): &(SocketKey, String), names: &str| {
        let text = format!(r#"{{"channel":"/meta/unsubscribe","clientId":"{client}","subscription":{names}}}"#);
        rig.request_on(after(ms), *key, &text);
    };
    for (name, ext) in [(r#""/q""#, "{}"), (r#""/a""#, HALF_A_SECOND)] {
        let channel = name.trim_matches('"');
        rig.subscribe_with(0, &session, name, ext);
        (0..2).for_each(|data| rig.publish_at(0, channel, data));
        assert_eq!(rig.received(0, &session), [format!("{channel} 0")]);
        unsubscribe(&mut rig, 10, &session, name);
        rig.publish_at(20, channel, 2);
        rig.subscribe_with(30, &session, name, ext);
        let received = rig.received(600, &session);
        assert!(!received.contains(&format!("{channel} 1")), "{received:?}");
        unsubscribe(&mut rig, 1_000, &session, name);
        rig.received(9_000, &session);
        rig.shard.advance(after(0));
    }
}

#[test]
fn a_rule_has_an_interval_for_everybody_and_the_history_has_all() {
    let mut rig = Rig::of(with_interval("/q/*"));
    let sessions = [rig.session("{}"), rig.session("{}"), rig.session(OFFERS_REPLAY)];
    rig.subscribe_with(0, &sessions[0], r#""/q/a""#, "{}");
    // A client that always names a position.
    let reply = rig.subscribe_with(0, &sessions[2], r#""/q/*""#, r#"{"replay":{"/q/*":-2}}"#);
    assert!(reply.contains("\"successful\":true"), "{reply}");
    rig.subscribe_with(0, &sessions[1], r#"["/q/a","/q/*"]"#, r#"{"min_interval_ms":1000}"#);
    (0..4).for_each(|data| rig.publish_at(data as u64, "/q/a", data));
    for session in &sessions {
        assert_eq!(rig.received(10, session), ["/q/a 0"]);
    }
    rig.shard.advance(after(520));
    assert_eq!(rig.received(520, &sessions[0]), ["/q/a 3"]);
    let text = rig.flushed(sessions[2].0);
    assert!(text.contains("\"data\":3") && !text.contains("\"replay\""), "no position: {text}");
    assert_eq!(rig.received(520, &sessions[1]), [""; 0], "the interval that it asked for is longer");
    assert_eq!(rig.received(1_040, &sessions[1]), ["/q/a 3"]);
    let histories = &rig.shard.machines.env.shared.histories;
    let ring = histories.find("/q/a", 0).expect("a history").ring;
    assert_eq!(histories.with(ring, |ring| ring.next() - ring.oldest()), Some(4), "the history has all");
}

#[test]
fn the_publisher_does_not_get_its_own_message_later_either() {
    let mut rig = Rig::of(Settings { broadcast_to_publisher: false, ..Settings::default() });
    let (own, other) = (rig.session("{}"), rig.session("{}"));
    for session in [&own, &other] {
        rig.subscribe_with(0, session, r#""/a""#, HALF_A_SECOND);
    }
    for data in 0..3 {
        let text = format!(r#"{{"channel":"/a","data":{data},"clientId":"{}"}}"#, own.1);
        rig.request_on(after(data), own.0, &text);
    }
    assert_eq!(rig.received(10, &other), ["/a 0"]);
    assert_eq!(rig.received(600, &other), ["/a 2"]);
    assert_eq!(rig.received(600, &own), [""; 0]);
}

#[test]
fn a_subscription_with_an_interval_has_no_positions() {
    let mut rig =
        Rig::of(with_rule(ChannelRule { pattern: "/h/*".into(), history_messages: 100, ..ChannelRule::default() }));
    let session = rig.session(OFFERS_REPLAY);
    let error = "400::min_interval_with_positions";
    let both = r#"{"replay":{"/h/a":-2},"min_interval_ms":500}"#;
    assert!(rig.subscribe_with(0, &session, r#""/h/a""#, both).contains(error));
    rig.subscribe_with(0, &session, r#""/h/a""#, HALF_A_SECOND);
    (0..3).for_each(|data| rig.publish_at(data as u64, "/h/a", data));
    assert_eq!(rig.received(10, &session), ["/h/a 0"]);
    assert!(rig.subscribe_with(20, &session, r#""/h/a""#, r#"{"replay":{"/h/a":-2}}"#).contains(error));
    assert_eq!(rig.received(600, &session), ["/h/a 2"]);
    // Without an interval it begins again at a position.
    let text = rig.subscribe_with(700, &session, r#""/h/a""#, r#"{"min_interval_ms":0,"replay":{"/h/a":-2}}"#);
    assert!(text.contains("\"successful\":true") && !text.contains("error"), "{text}");
    rig.publish_at(700, "/h/a", 3);
    assert_eq!(rig.received(700, &session).last().map(String::as_str), Some("/h/a 3"));
    for ext in [r#"{"min_interval_ms":-1}"#, r#"{"min_interval_ms":60001}"#, r#"{"min_interval_ms":"1s"}"#] {
        let reply = rig.subscribe_with(700, &session, r#""/h/b""#, ext);
        assert!(reply.contains("400::min_interval_invalid"), "{ext}: {reply}");
    }
}

#[test]
fn a_subscribe_with_another_interval_replaces_the_subscription() {
    let settings = Settings { subscriptions_max: 1, ..Settings::default() };
    let mut rig = Rig::of(settings);
    let session = rig.session("{}");
    let wanted = [(HALF_A_SECOND, 1), ("{}", 1), (r#"{"min_interval_ms":0}"#, 3), (HALF_A_SECOND, 1)];
    for (at, (ext, messages)) in wanted.into_iter().enumerate() {
        let ms = 10_000 * at as u64;
        let reply = rig.subscribe_with(ms, &session, r#""/a""#, ext);
        assert!(reply.contains("\"successful\":true"), "{ext}: {reply}");
        (0..3).for_each(|data| rig.publish_at(ms, "/a", data));
        assert_eq!(rig.received(ms, &session).len(), messages, "{ext}");
        rig.received(ms + 600, &session);
        rig.received(ms + 1_200, &session);
    }
    let text = format!(r#"{{"channel":"/meta/unsubscribe","clientId":"{}","subscription":"/a"}}"#, session.1);
    assert!(rig.request_on(after(50_000), session.0, &text).contains("\"successful\":true"));
    rig.publish_at(50_000, "/a", 9);
    assert_eq!(rig.received(59_000, &session), [""; 0]);
    assert_eq!(rig.shard.machines.channels.len(), 0);
}

#[test]
fn the_groups_of_a_channel_are_one_channel_in_lists() {
    let mut rig = rig();
    let sessions = [rig.session("{}"), rig.session("{}"), rig.session("{}")];
    rig.subscribe_with(0, &sessions[0], r#""/a""#, HALF_A_SECOND);
    rig.subscribe_with(0, &sessions[1], r#""/a""#, r#"{"min_interval_ms":100}"#);
    rig.subscribe_with(0, &sessions[2], r#""/a""#, "{}");
    let page = rig.shard.channels_from(0, 10, |_| true);
    let listed: Vec<_> = page.items.iter().map(|view| (&*view.name, view.subscribers)).collect();
    assert_eq!((listed, rig.shard.subscribers_of("/a")), (vec![("/a", 3)], 3));
}

#[test]
fn intervals_and_what_waits_survive_a_restart() {
    let mut rig = rig();
    let session = rig.session("{}");
    rig.subscribe_with(0, &session, r#"["/b","/a"]"#, HALF_A_SECOND);
    rig.subscribe_with(0, &session, r#""/c""#, "{}");
    (0..3).for_each(|data| rig.publish_at(0, "/a", data));
    assert_eq!(rig.received(0, &session), ["/a 0"]);
    let saved = rig.shard.save(after(0));
    assert!(saved.messages.iter().any(|message| message.contains("\"data\":2")), "{:?}", saved.messages);
    let mut next = self::rig();
    next.shard.restore(after(0), &saved);
    let key = next.shard.socket_opened(after(0), None);
    next.request_on(after(0), key, &format!(r#"{{"channel":"/meta/connect","clientId":"{}"}}"#, session.1));
    let session = (key, session.1);
    for data in 3..6 {
        next.publish_at(0, "/a", data);
        next.publish_at(0, "/c", data);
    }
    assert_eq!(next.received(0, &session), ["/a 3", "/c 3", "/c 4", "/c 5"]);
    assert_eq!(next.received(600, &session), ["/a 5"]);
}

#[test]
fn a_reload_sends_what_waits_and_takes_the_interval_away() {
    let mut rig = Rig::of(with_interval("/q"));
    let session = rig.session("{}");
    rig.subscribe_with(0, &session, r#""/q""#, "{}");
    (0..3).for_each(|data| rig.publish_at(0, "/q", data));
    rig.shard.message(after(10), ShardMessage::Settings(Arc::new(Settings::default())));
    rig.publish_at(10, "/q", 3);
    rig.publish_at(10, "/q", 4);
    assert_eq!(rig.received(10, &session), ["/q 0", "/q 2", "/q 3", "/q 4"]);
    assert_eq!(rig.received(1_000, &session), [""; 0]);
}

#[test]
fn a_replay_ends_when_the_rule_gets_an_interval() {
    let rule = ChannelRule { pattern: "/q".into(), history_messages: 100, ..ChannelRule::default() };
    let mut rig = Rig::of(with_rule(rule));
    let session = rig.session(OFFERS_REPLAY);
    rig.publish_at(0, "/q", 1);
    rig.shard.socket_text(
        after(0),
        session.0,
        &format!(
            r#"{{"channel":"/meta/subscribe","clientId":"{}","subscription":"/q","ext":{{"replay":-2}}}}"#,
            session.1
        ),
    );
    rig.shard.message(after(0), ShardMessage::Settings(Arc::new(with_interval("/q"))));
    rig.publish_at(0, "/q", 2);
    let received = rig.received(600, &session);
    assert_eq!(received.iter().filter(|message| *message == "/q 2").count(), 1, "{received:?}");
}

#[test]
fn min_interval_channels_max_and_bytes_max_let_further_messages_go_at_once() {
    let mut rig = Rig::of(Settings { min_interval_channels_max: 10, ..Settings::default() });
    let session = rig.session("{}");
    rig.subscribe_with(0, &session, r#""/a/*""#, HALF_A_SECOND);
    for data in 0..2 {
        (0..100).for_each(|channel| rig.publish_at(data as u64, &format!("/a/{channel}"), data));
    }
    assert_eq!(rig.received(10, &session).len(), 10 + 90 * 2);
    let metrics = rig.shard.machines.env.metrics.clone();
    assert_eq!((metrics.min_interval_channels.get(), metrics.min_interval_overflows.get()), (10, 180));
    let (counted, walked) = rig.shard.memory();
    assert_eq!(counted, walked);
    assert_eq!(rig.received(600, &session).len(), 10);

    let mut rig = Rig::of(Settings { min_interval_bytes_max: 1, ..Settings::default() });
    let session = rig.session("{}");
    rig.subscribe_with(0, &session, r#""/a""#, HALF_A_SECOND);
    (0..3).for_each(|data| rig.publish_at(0, "/a", data));
    assert_eq!(rig.received(10, &session), ["/a 0", "/a 1", "/a 2"]);
    assert_eq!(rig.received(1_000, &session), [""; 0]);
}

/// Sessions with several subscriptions of different intervals, and publications at random times.
#[test]
fn the_last_message_of_each_channel_arrives_in_order_and_once() {
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let subscriptions: [&[(&str, u64)]; 6] = [
        &[("/q/a", 100)],
        &[("/q/*", 500)],
        &[("/q/*", 100), ("/q/a", 0)],
        &[("/q/*", 200), ("/q/a", 500), ("/**", 1_000)],
        &[("/q/a", 200), ("/q/*", 200)],
        &[("/q/a", 0), ("/q/b", 0)],
    ];
    for round in 0..60 {
        let min_interval_ms = if round % 2 == 0 { 0 } else { 300 };
        let mut rig = Rig::of(with_rule(ChannelRule {
            pattern: "/q/b".into(),
            min_interval_ms,
            history_messages: 10,
            ..ChannelRule::default()
        }));
        let sessions = subscriptions.map(|names| {
            let session = rig.session(if round % 3 == 0 { OFFERS_REPLAY } else { "{}" });
            for (name, ms) in names {
                rig.subscribe_with(0, &session, &format!("\"{name}\""), &format!(r#"{{"min_interval_ms":{ms}}}"#));
            }
            session
        });
        let mut received: Vec<Vec<(u64, String)>> = vec![Vec::new(); sessions.len()];
        let (mut now_ms, mut last) = (0, [0; 2]);
        for number in 1..200 {
            now_ms += random(60);
            let channel = random(2) as usize;
            rig.publish_at(now_ms, ["/q/a", "/q/b"][channel], number);
            last[channel] = number;
            if random(3) > 0 {
                for (session, received) in sessions.iter().zip(&mut received) {
                    received.extend(rig.received(now_ms, session).into_iter().map(|message| (now_ms, message)));
                }
            }
        }
        for wait_ms in [0, 1_000, 2_000, 3_000] {
            for (session, received) in sessions.iter().zip(&mut received) {
                received.extend(rig.received(now_ms + wait_ms, session).into_iter().map(|it| (now_ms + wait_ms, it)));
            }
        }
        for (at, received) in received.iter().enumerate() {
            for (channel, last) in ["/q/a", "/q/b"].iter().zip(last) {
                let interval = subscriptions[at].iter().filter(|(name, _)| *name == *channel || name.ends_with('*'));
                let Some(least_ms) = interval.map(|(_, ms)| *ms).min() else { continue };
                let least_ms = if *channel == "/q/b" { least_ms.max(min_interval_ms.into()) } else { least_ms };
                let of_channel = received.iter().filter_map(|(ms, message)| {
                    let (name, number) = message.split_once(' ')?;
                    (name == *channel).then(|| (*ms, number.parse::<usize>().expect("a number")))
                });
                let of_channel: Vec<_> = of_channel.collect();
                let what = format!("round {round}, session {at}, {channel}: {of_channel:?}");
                assert!(of_channel.is_sorted_by(|one, next| one.1 < next.1), "in order and once: {what}");
                assert_eq!(of_channel.last().map(|(_, number)| *number), Some(last), "{what}");
                let first_to_last = of_channel.last().map_or(0, |(ms, _)| *ms) - of_channel[0].0;
                // They were looked at some time after they came.
                let most = (first_to_last + 1_000).checked_div(least_ms).map_or(usize::MAX, |most| most as usize + 2);
                assert!(of_channel.len() <= most, "at most one in {least_ms} ms: {what}");
            }
        }
    }
}
