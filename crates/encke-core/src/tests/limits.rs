//! Tests of limits on rates and numbers, and of the rules that say who may publish and subscribe.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::{NOW, Rig, member_of, post};
use crate::application::{Answer, Application, Handshake, NoApplication, Refusal};
use crate::events::{ExchangeId, Peer, Request, ShardMessage, SocketKey};
use crate::identity::{Identity, SessionLimits};
use crate::limits::users::{Elsewhere, UserKey, UserUse};
use crate::now::Now;
use crate::settings::{ChannelRule, Publishers, Settings};

/// The user is in the `ext` of the handshake. The user `vip` has separate limits.
struct Users;

impl Application for Users {
    fn handshake(&self, handshake: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        let user = handshake.ext.filter(|ext| ext.contains("user")).map(|ext| member_of(ext, "user"));
        let mut identity = user.map(|user| Identity::of_user(&user));
        if let Some(identity) = identity.as_mut().filter(|identity| &*identity.user == "vip") {
            identity.limits =
                SessionLimits { messages_per_s_max: Some(5), subscriptions_max: Some(1), ..SessionLimits::default() };
        }
        Answer::Now(Ok(identity))
    }
}

fn later(ms: u64) -> Now {
    Now { ms: NOW.ms + ms, wall_ms: NOW.wall_ms + ms }
}

fn rig(settings: Settings) -> Rig {
    Rig::new(1, settings, Box::new(Users))
}

impl Rig {
    /// Opens a session of this user (empty: anonymous) on a socket of this address.
    fn open_as(&mut self, user: &str, address: Option<IpAddr>) -> Result<(SocketKey, String), String> {
        let key = self.shard.socket_opened(NOW, None);
        self.shard.socket_is_of(key, Peer { address, ..Peer::default() }, false, None);
        let ext = if user.is_empty() { "{}".to_string() } else { format!(r#"{{"user":"{user}"}}"#) };
        let text = format!(r#"{{"channel":"/meta/handshake","version":"1.0","ext":{ext}}}"#);
        self.shard.socket_text(NOW, key, &text);
        let reply = self.flushed(key);
        if reply.contains("clientId") { Ok((key, member_of(&reply, "clientId"))) } else { Err(reply) }
    }

    fn user(&mut self, user: &str) -> (SocketKey, String) {
        self.open_as(user, None).expect("a session")
    }

    /// Sends a message and returns its error, or an empty text.
    fn sent(&mut self, now: Now, (key, client): &(SocketKey, String), channel: &str, more: &str) -> String {
        self.shard.socket_text(now, *key, &format!(r#"{{"channel":"{channel}","clientId":"{client}"{more}}}"#));
        let reply = self.flushed(*key);
        if reply.contains("\"error\"") { member_of(&reply, "error") } else { String::new() }
    }

    /// The number of messages out of 100 that are accepted, and the error of the others.
    fn accepted(&mut self, now: Now, session: &(SocketKey, String), channel: &str) -> (usize, String) {
        let errors: Vec<String> = (0..100).map(|_| self.sent(now, session, channel, r#","data":1"#)).collect();
        let accepted = errors.iter().filter(|error| error.is_empty()).count();
        (accepted, errors.into_iter().find(|error| !error.is_empty()).unwrap_or_default())
    }
}

fn reload(rigs: &mut [&mut Rig], settings: &Settings) {
    let settings = Arc::new(settings.clone());
    rigs.iter_mut().for_each(|rig| rig.shard.message(NOW, ShardMessage::Settings(settings.clone())));
}

fn error(limit: &str) -> String {
    format!("429:{limit}:rate_exceeded")
}

#[test]
fn a_session_gets_its_rate_is_answered_and_goes_on() {
    let mut rig = rig(Settings { session_messages_per_s_max: 10, ..Settings::default() });
    let (ann, bob) = (rig.user(""), rig.user(""));
    assert_eq!(rig.accepted(NOW, &ann, "/a"), (10, error("session_messages_per_s_max")));
    assert_eq!(rig.accepted(NOW, &bob, "/a").0, 10, "each session has its own");
    assert_eq!(rig.sent(NOW, &ann, "/meta/subscribe", r#","subscription":"/b""#), error("session_messages_per_s_max"));
    assert_eq!(rig.sent(NOW, &ann, "/service/x", ""), error("session_messages_per_s_max"));
    // A session lives by its connects.
    assert_eq!(rig.sent(NOW, &ann, "/meta/connect", ""), "");
    assert_eq!(rig.accepted(later(500), &ann, "/a").0, 5);
    assert_eq!(rig.shard.metrics().session_rates_exceeded.get(), 90 + 90 + 2 + 95);
    assert_eq!(rig.sent(NOW, &ann, "/meta/disconnect", ""), "");
}

#[test]
fn a_client_whose_messages_exceed_a_rate_is_not_silent() {
    let mut rig = rig(Settings { session_bytes_per_s_max: 10, max_interval_ms: 5_000, ..Settings::default() });
    let ann = rig.user("ann");
    // It leaves a debt of 100 s.
    let long = format!(r#","data":"{}""#, "x".repeat(1_000));
    assert_eq!(rig.sent(NOW, &ann, "/a", &long), "");
    for ms in (0..20_000).step_by(1_000) {
        rig.shard.advance(later(ms));
        assert_eq!(rig.sent(later(ms), &ann, "/a", r#","data":1"#), error("session_bytes_per_s_max"));
    }
}

#[test]
fn the_bytes_of_messages_have_a_rate() {
    let mut rig = rig(Settings { session_bytes_per_s_max: 1_000, ..Settings::default() });
    let ann = rig.user("");
    // 400 bytes with the client id.
    let data = format!(r#","data":"{}""#, "x".repeat(328));
    let errors: Vec<_> = (0..4).map(|_| rig.sent(NOW, &ann, "/a", &data)).collect();
    assert_eq!(errors[..2], ["", ""]);
    assert_eq!(errors[2..], [error("session_bytes_per_s_max"), error("session_bytes_per_s_max")]);
    assert_eq!(rig.sent(later(300), &ann, "/a", &data), "");
}

#[test]
fn space_and_replaced_values_of_a_message_count_as_bytes() {
    let mut rig = rig(Settings { session_bytes_per_s_max: 1_000, ..Settings::default() });
    let space = format!(r#","data":{}1"#, " ".repeat(300));
    let replaced = format!(r#","data":"{}","data":1"#, "x".repeat(300));
    let unused = format!(r#","timestamp":"{}","data":1"#, "x".repeat(300));
    for more in [space, replaced, unused] {
        let session = rig.user("");
        let errors: Vec<_> = (0..4).map(|_| rig.sent(NOW, &session, "/a", &more)).collect();
        assert_eq!(errors, ["", "", &error("session_bytes_per_s_max"), &error("session_bytes_per_s_max")], "{more}");
    }
    // The space between messages belongs to the next one, and that at the end to the last one.
    let (key, client) = rig.user("");
    let message = format!(r#"{{"channel":"/a","clientId":"{client}","data":1}}"#);
    let pad = " ".repeat(400);
    rig.shard.socket_text(NOW, key, &format!("[{message}{pad},{message}{pad}]"));
    let replies = rig.flushed(key);
    assert_eq!(replies.matches(&error("session_bytes_per_s_max")).count(), 0, "{replies}");
    rig.shard.socket_text(NOW, key, &message);
    assert!(rig.flushed(key).contains(&error("session_bytes_per_s_max")));
}

#[test]
fn an_identity_has_limits_of_its_own() {
    let mut rig = rig(Settings { session_messages_per_s_max: 2, ..Settings::default() });
    let vip = rig.user("vip");
    assert_eq!(rig.accepted(NOW, &vip, "/a"), (5, error("session_messages_per_s_max")));
    assert_eq!(rig.sent(later(1_000), &vip, "/meta/subscribe", r#","subscription":"/b""#), "");
    let second = rig.sent(later(1_000), &vip, "/meta/subscribe", r#","subscription":"/c""#);
    assert_eq!(second, "413::subscriptions_max");
    // The limits of an identity hold where the settings have none.
    let mut rig = self::rig(Settings::default());
    let (vip, ann) = (rig.user("vip"), rig.user("ann"));
    assert_eq!((rig.accepted(NOW, &vip, "/a").0, rig.accepted(NOW, &ann, "/a").0), (5, 100));
}

#[test]
fn the_sessions_of_a_user_share_its_rate_over_all_shards() {
    let settings = Settings { user_messages_per_s_max: 10, user_bytes_per_s_max: 100_000, ..Settings::default() };
    let mut first = Rig::new(2, settings.clone(), Box::new(Users));
    let mut second = first.beside(1, settings);
    let (ann, bob, none) = (first.user("ann"), first.user("bob"), first.user(""));
    let other = second.user("ann");
    assert_eq!(first.accepted(NOW, &ann, "/a"), (10, error("user_messages_per_s_max")));
    assert_eq!(second.accepted(NOW, &other, "/a"), (0, error("user_messages_per_s_max")));
    assert_eq!((first.accepted(NOW, &bob, "/a").0, first.accepted(NOW, &none, "/a").0), (10, 100));
    assert_eq!(second.accepted(later(1_000), &other, "/a").0, 10);
    assert_eq!(second.shard.metrics().user_rates_exceeded.get(), 190);
}

#[test]
fn the_clients_of_an_address_share_its_rate_on_all_transports_and_shards() {
    let settings = Settings { address_messages_per_s_max: 10, address_bytes_per_s_max: 1 << 20, ..Settings::default() };
    let mut first = Rig::new(2, settings.clone(), Box::new(NoApplication));
    let mut second = first.beside(1, settings);
    let of = |low: u16| Some(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, low, 0, 0, low)));
    let one = first.open_as("", of(1)).expect("a session");
    let neighbour = second.open_as("", of(2)).expect("a session");
    let far = first.open_as("", Some(IpAddr::V4(Ipv4Addr::LOCALHOST))).expect("a session");
    assert_eq!(first.accepted(NOW, &one, "/a"), (10, error("address_messages_per_s_max")));
    assert_eq!(second.accepted(NOW, &neighbour, "/a").0, 0, "the same network");
    assert_eq!(first.accepted(NOW, &far, "/a").0, 10);
    // Over HTTP.
    let peer = Peer { address: of(3), ..Peer::default() };
    let body = format!(r#"{{"channel":"/a","clientId":"{}","data":1}}"#, one.1);
    let exchange = ExchangeId { shard: 0, number: 77 };
    first.shard.request(NOW, Request { peer, ..post(exchange, body) });
    assert!(first.response(exchange).expect("a response").contains(&error("address_messages_per_s_max")));
    assert_eq!(first.shard.metrics().address_rates_exceeded.get(), 90 + 90 + 1);
}

#[test]
fn a_channel_has_a_rate_by_its_rule() {
    let rule = |pattern: &str, messages_per_s_max, bytes_per_s_max| ChannelRule {
        pattern: pattern.into(),
        messages_per_s_max,
        bytes_per_s_max,
        ..ChannelRule::default()
    };
    let mut rig =
        rig(Settings { channels: vec![rule("/slow/*", 3, 0), rule("/thin/*", 0, 380)], ..Settings::default() });
    let (ann, bob) = (rig.user(""), rig.user(""));
    assert_eq!(rig.accepted(NOW, &ann, "/slow/1"), (3, error("channel_messages_per_s_max")));
    assert_eq!((rig.accepted(NOW, &bob, "/slow/1").0, rig.accepted(NOW, &bob, "/slow/2").0), (0, 3));
    assert_eq!(rig.accepted(NOW, &bob, "/thin/1"), (5, error("channel_bytes_per_s_max")), "76 bytes each");
    assert_eq!(rig.accepted(NOW, &bob, "/free").0, 100);
    assert_eq!(rig.accepted(NOW, &bob, "/slow/**"), (3, error("channel_messages_per_s_max")), "so do its patterns");
    // The program itself has no limit.
    for number in 0..10 {
        rig.shard.publish_now("/slow/1", &number.to_string());
    }
    assert_eq!(rig.shard.metrics().channel_rates_exceeded.get(), 97 + 100 + 97 + 95 + 97);
}

#[test]
fn all_clients_share_the_rate_of_the_server_and_a_narrower_limit_comes_first() {
    let mut rig = rig(Settings {
        session_messages_per_s_max: 4,
        messages_per_s_max: 10,
        bytes_per_s_max: 1 << 20,
        ..Settings::default()
    });
    let sessions: Vec<_> = (0..4).map(|_| rig.user("")).collect();
    let accepted: Vec<_> = sessions.iter().map(|session| rig.accepted(NOW, session, "/a").0).collect();
    assert_eq!(accepted, [4, 4, 2, 0], "a session that sends too much does not use up what others may send");
    assert_eq!(rig.shard.metrics().server_rates_exceeded.get(), 2 + 4);
}

#[test]
fn handshakes_have_rates_with_advice_to_come_back() {
    let address = |last| Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
    let settings = Settings { address_handshakes_per_s_max: 3, handshakes_per_s_max: 5, ..Settings::default() };
    let mut rig = rig(settings);
    let opened = |rig: &mut Rig, last| (0..10).filter(|_| rig.open_as("", address(last)).is_ok()).count();
    assert_eq!((opened(&mut rig, 1), opened(&mut rig, 2), opened(&mut rig, 3)), (3, 2, 0));
    let refused = rig.open_as("", address(9)).expect_err("no more in this second");
    assert!(refused.contains(&error("handshakes_per_s_max")), "{refused}");
    assert!(refused.contains(r#""reconnect":"handshake""#) && refused.contains(r#""interval":"#), "{refused}");
    let refused = rig.open_as("", address(1)).expect_err("no more in this second");
    assert!(refused.contains(&error("address_handshakes_per_s_max")), "{refused}");
    let metrics = rig.shard.metrics();
    assert_eq!((metrics.address_rates_exceeded.get(), metrics.sessions.get()), (7 + 7 + 7 + 1, 5));
}

#[test]
fn a_user_has_rates_and_numbers_of_sessions() {
    let mut rig = rig(Settings { user_handshakes_per_s_max: 3, ..Settings::default() });
    let opened = |rig: &mut Rig, user| (0..10).filter(|_| rig.open_as(user, None).is_ok()).count();
    assert_eq!((opened(&mut rig, "ann"), opened(&mut rig, "bob"), opened(&mut rig, "")), (3, 3, 10));
    assert!(rig.open_as("ann", None).expect_err("too fast").contains(&error("user_handshakes_per_s_max")));

    let mut rig = self::rig(Settings { user_sessions_max: 2, ..Settings::default() });
    let (first, _second) = (rig.user("ann"), rig.user("ann"));
    let refused = rig.open_as("ann", None).expect_err("two of two");
    assert!(refused.contains("413:user_sessions_max:sessions_max"), "{refused}");
    assert!(rig.open_as("bob", None).is_ok());
    rig.sent(NOW, &first, "/meta/disconnect", "");
    assert!(rig.open_as("ann", None).is_ok() && rig.open_as("ann", None).is_err());
}

#[test]
fn subscriptions_of_a_user_and_of_all_are_limited_and_given_back() {
    let subscription = |name: &str| format!(r#","subscription":"{name}""#);
    let settings = Settings { user_subscriptions_max: 2, all_subscriptions_max: 4, ..Settings::default() };
    let mut rig = rig(settings);
    let (ann, again, bob) = (rig.user("ann"), rig.user("ann"), rig.user("bob"));
    let mut subscribe = |session: &_, name: &str| rig.sent(NOW, session, "/meta/subscribe", &subscription(name));
    assert_eq!((subscribe(&ann, "/1"), subscribe(&again, "/1")), (String::new(), String::new()));
    assert_eq!(subscribe(&ann, "/2"), "413:user_subscriptions_max:subscriptions_max");
    assert_eq!((subscribe(&bob, "/1"), subscribe(&bob, "/2")), (String::new(), String::new()));
    let none = rig.user("");
    let refused = rig.sent(NOW, &none, "/meta/subscribe", &subscription("/1"));
    assert_eq!(refused, "413:all_subscriptions_max:subscriptions_max");
    rig.sent(NOW, &again, "/meta/disconnect", "");
    assert_eq!(rig.sent(NOW, &ann, "/meta/subscribe", &subscription("/2")), "");
    rig.sent(NOW, &ann, "/meta/unsubscribe", &subscription("/1"));
    assert_eq!(rig.sent(NOW, &none, "/meta/subscribe", &subscription("/1")), "");
    assert_eq!(rig.shard.metrics().subscriptions_refused.get(), 2);
}

#[test]
fn a_channel_has_at_most_the_subscribers_of_its_rule_over_all_shards() {
    let rule = ChannelRule { pattern: "/game/*".into(), subscribers_max: 2, ..ChannelRule::default() };
    let settings = Settings { channels: vec![rule], ..Settings::default() };
    let mut first = Rig::new(2, settings.clone(), Box::new(NoApplication));
    let mut second = first.beside(1, settings);
    let (one, two, three) = (first.user(""), second.user(""), second.user(""));
    let game = r#","subscription":"/game/1""#;
    assert_eq!(first.sent(NOW, &one, "/meta/subscribe", game), "");
    assert_eq!(second.sent(NOW, &two, "/meta/subscribe", game), "");
    let full = "413:channel_subscribers_max:subscriptions_max";
    assert_eq!(second.sent(NOW, &three, "/meta/subscribe", game), full);
    assert_eq!(second.sent(NOW, &three, "/meta/subscribe", r#","subscription":"/game/2""#), "");
    assert_eq!(second.sent(NOW, &two, "/meta/subscribe", game), "", "it has the subscription already");
    first.sent(NOW, &one, "/meta/unsubscribe", game);
    assert_eq!(second.sent(NOW, &three, "/meta/subscribe", game), "");
    assert_eq!(first.sent(NOW, &one, "/meta/subscribe", game), full);
    assert_eq!(second.shard.metrics().subscriptions_refused.get(), 1);
}

/// Handshakes by `address` that the server accepts at this time, until it refuses one.
fn handshakes(rig: &mut Rig, now: Now, address: u8) -> usize {
    let peer = Peer { address: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, address))), ..Peer::default() };
    let mut accepted = || {
        let key = rig.shard.socket_opened(now, None);
        rig.shard.socket_is_of(key, peer, false, None);
        rig.shard.socket_text(now, key, r#"{"channel":"/meta/handshake"}"#);
        rig.flushed(key).contains("clientId")
    };
    (0..1_000).take_while(|_| accepted()).count()
}

#[test]
fn one_address_does_not_take_all_handshakes_of_the_server() {
    let mut rig = rig(Settings { handshakes_per_s_max: 100, ..Settings::default() });
    assert_eq!(handshakes(&mut rig, NOW, 1), 100, "nobody else asks");
    // The bucket is half full again: a quarter is for anybody, and half of the address's own quarter has come back.
    assert_eq!(handshakes(&mut rig, later(500), 1), 25 + 12);
    assert_eq!(handshakes(&mut rig, later(500), 2), 13, "the others have the rest");
    assert_eq!(handshakes(&mut rig, later(500), 3), 0);
}

#[test]
fn all_sessions_of_a_user_count_after_a_restart() {
    let settings = Settings { user_handshakes_per_s_max: 3, user_sessions_max: 6, ..Settings::default() };
    let mut before = rig(settings.clone());
    (0..3).for_each(|_| _ = before.user("ann"));
    let mut saved = before.shard.save(NOW);
    let mut more = rig(settings.clone());
    (0..3).for_each(|_| _ = more.user("ann"));
    saved.append(more.shard.save(NOW));
    let mut rig = rig(settings);
    rig.shard.restore(NOW, &saved);
    let refused = rig.open_as("ann", None).expect_err("six of six");
    assert!(refused.contains("413:user_sessions_max:sessions_max"), "{refused}");
    assert!(rig.open_as("bob", None).is_ok());
}

#[test]
fn limits_that_new_settings_bring_count_what_is_there() {
    let mut rig = rig(Settings::default());
    let game = r#","subscription":"/game/1""#;
    let (ann, again) = (rig.user("ann"), rig.user("ann"));
    rig.sent(NOW, &ann, "/meta/subscribe", game);
    let limited = Settings { user_sessions_max: 2, user_subscriptions_max: 1, ..Settings::default() };
    reload(&mut [&mut rig], &limited);
    assert!(rig.open_as("ann", None).is_err());
    let full = "413:user_subscriptions_max:subscriptions_max";
    assert_eq!(rig.sent(NOW, &again, "/meta/subscribe", game), full);
    // A session and a subscription that ended while there was no limit do not count either.
    reload(&mut [&mut rig], &Settings::default());
    rig.sent(NOW, &ann, "/meta/unsubscribe", game);
    rig.sent(NOW, &ann, "/meta/disconnect", "");
    reload(&mut [&mut rig], &limited);
    assert_eq!(rig.sent(NOW, &again, "/meta/subscribe", game), "");
    assert!(rig.open_as("ann", None).is_ok() && rig.open_as("ann", None).is_err());
}

#[test]
fn subscribers_that_left_while_their_channel_had_no_limit_do_not_count() {
    let rule = ChannelRule { pattern: "/game/*".into(), subscribers_max: 1, ..ChannelRule::default() };
    let other = ChannelRule { pattern: "/other".into(), subscribers_max: 1, ..ChannelRule::default() };
    let limited = Settings { channels: vec![rule], ..Settings::default() };
    let game = r#","subscription":"/game/1""#;
    for free in [Settings::default(), Settings { channels: vec![other], ..Settings::default() }] {
        let mut first = Rig::new(2, limited.clone(), Box::new(NoApplication));
        let mut second = first.beside(1, limited.clone());
        let (one, two) = (first.user(""), second.user(""));
        assert_eq!(first.sent(NOW, &one, "/meta/subscribe", game), "");
        reload(&mut [&mut first, &mut second], &free);
        reload(&mut [&mut first, &mut second], &limited);
        let full = "413:channel_subscribers_max:subscriptions_max";
        assert_eq!(second.sent(NOW, &two, "/meta/subscribe", game), full, "the other shard has one");
        reload(&mut [&mut first, &mut second], &free);
        first.sent(NOW, &one, "/meta/unsubscribe", game);
        reload(&mut [&mut first, &mut second], &limited);
        assert_eq!(second.sent(NOW, &two, "/meta/subscribe", game), "");
    }
}

#[test]
fn a_rule_says_who_may_publish() {
    let rule =
        |pattern: &str, publishers| ChannelRule { pattern: pattern.into(), publishers, ..ChannelRule::default() };
    let rules = vec![rule("/news/**", Publishers::Server), rule("/chat/*", Publishers::Users)];
    let mut rig = rig(Settings { channels: rules, ..Settings::default() });
    let (ann, none) = (rig.user("ann"), rig.user(""));
    let mut publish = |session: &_, channel: &str| rig.sent(NOW, session, channel, r#","data":1"#);
    let denied = "403:denied_by_security_policy:publish_denied";
    assert_eq!((publish(&ann, "/news/1"), publish(&none, "/news/1")), (denied.into(), denied.into()));
    assert_eq!((publish(&ann, "/chat/1"), publish(&none, "/chat/1")), (String::new(), denied.into()));
    assert_eq!((publish(&ann, "/free"), publish(&none, "/free")), (String::new(), String::new()));
    // On a pattern: by all rules that have a channel in common with it.
    for pattern in ["/news/*", "/news/**", "/news/a/*", "/**"] {
        assert_eq!(publish(&ann, pattern), denied, "{pattern}");
    }
    assert_eq!((publish(&ann, "/chat/**"), publish(&none, "/chat/**")), (String::new(), denied.into()));
    assert_eq!((publish(&none, "/*"), publish(&none, "/free/**")), (String::new(), String::new()));
    let published = rig.shard.metrics().publications.get();
    rig.shard.publish_now("/news/1", "1");
    assert_eq!(rig.shard.metrics().publications.get(), published + 1, "the program itself may");
}

#[test]
fn a_session_without_limits_touches_no_table() {
    let mut rig = rig(Settings::default());
    let ann = rig.user("");
    assert_eq!(rig.accepted(NOW, &ann, "/a").0, 100);
    let limits = &rig.shard.machines.env.shared.limits;
    assert!(!limits.buckets.is_used());
    assert_eq!(Arc::strong_count(&rig.shard.machines.env.shared), 1);
}

#[test]
fn what_a_user_has_and_uses_on_other_nodes_counts_and_is_reported_to_them() {
    let settings = Settings {
        user_sessions_max: 3,
        user_subscriptions_max: 2,
        user_messages_per_s_max: 10,
        user_handshakes_per_s_max: 5,
        ..Settings::default()
    };
    let mut rig = super::nodes::rig_with(settings, Box::new(Users));
    let (shared, ann) = (rig.shard.machines.env.shared.clone(), UserKey::of("ann"));
    let users = &shared.limits.users_of_nodes;
    let elsewhere =
        |has: UserUse| users.state(ann, Elsewhere { sum: has, nodes: has.used.map(|used| u16::from(used > 0)) });
    elsewhere(UserUse { sessions: 2, subscriptions: 1, used: [7, 0, 3] });
    let session = rig.user("ann");
    assert!(rig.open_as("ann", None).expect_err("three of three").contains("user_sessions_max"));
    let subscribe = |name: &str| format!(r#","subscription":"{name}""#);
    assert_eq!(rig.sent(NOW, &session, "/meta/subscribe", &subscribe("/1")), "");
    let refused = rig.sent(NOW, &session, "/meta/subscribe", &subscribe("/2"));
    assert_eq!(refused, "413:user_subscriptions_max:subscriptions_max");
    // Half of the rate is left, of which the subscribes have used two.
    assert_eq!(rig.accepted(NOW, &session, "/a"), (3, error("user_messages_per_s_max")));
    assert!(rig.open_as("ann", None).expect_err("two of two").contains("user_handshakes_per_s_max"));
    let mut taken = Vec::new();
    users.take(|key, has, is_changed| {
        taken.push((key, has.sessions, has.subscriptions, [has.used[0], has.used[2]], is_changed))
    });
    assert_eq!(taken, [(ann, 1, 1, [5, 2], true)]);
    elsewhere(UserUse::default());
    assert_eq!(rig.accepted(later(1_000), &session, "/a").0, 10);
    rig.sent(later(2_000), &session, "/meta/disconnect", "");
    users.take(|_, has, _| assert_eq!((has.sessions, has.subscriptions), (0, 0)));
    users.take(|_, _, _| ());
    assert_eq!(users.count(), 0, "nothing stays of it");
}
