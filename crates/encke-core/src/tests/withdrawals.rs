//! Messages that a replay withdraws, and what the search for them costs.

use crate::application::{Actions, Application, NoApplication, Pending, Service};
use crate::delivery::{RANGES_MAX, Unnumbered, Withdrawn};
use crate::events::SocketKey;
use crate::now::Now;
use crate::settings::{ChannelRule, Settings};
use crate::shard::tests::{NOW, Rig, member_of};

/// Settings with a history of `/h/**`.
fn history() -> Settings {
    let rule = ChannelRule { pattern: "/h/**".into(), history_messages: 10, ..ChannelRule::default() };
    Settings { channels: vec![rule], ..Settings::default() }
}

/// A WebSocket with a session that replays and subscribes to everything; it has connected.
fn open(rig: &mut Rig) -> (SocketKey, String) {
    let key = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, key, r#"{"channel":"/meta/handshake","version":"1.0","ext":{"replay":true}}"#);
    let client = member_of(&rig.flushed(key), "clientId");
    let subscribe = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/**"}}"#);
    rig.shard.socket_text(NOW, key, &format!(r#"[{{"channel":"/meta/connect","clientId":"{client}"}},{subscribe}]"#));
    rig.flushed(key);
    (key, client)
}

/// A subscribe to `/h/a` after message 2.
fn from_two(client: &str) -> String {
    format!(
        r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/h/a","ext":{{"replay":{{"/h/a":2}}}}}}"#
    )
}

fn searched(rig: &Rig) -> u64 {
    rig.shard.machines.env.metrics.withdrawals_searched.get()
}

const WAITING: u64 = 50_000;

/// A shard with a session for which this many messages are queued, and 9 of `/h/a` behind them.
fn with_backlog() -> (Rig, SocketKey, String) {
    let mut rig = Rig::new(1, history(), Box::new(NoApplication));
    let (key, client) = open(&mut rig);
    rig.kernel.room = 0;
    (0..WAITING).for_each(|data| rig.shard.publish_now("/a", &data.to_string()));
    (1..=9).for_each(|data| rig.shard.publish_now("/h/a", &data.to_string()));
    rig.flushed(key);
    (rig, key, client)
}

#[test]
fn queued_messages_are_searched_once_for_many_subscribes_with_positions() {
    let (mut rig, key, client) = with_backlog();
    for _ in 0..100 {
        rig.shard.socket_text(NOW, key, &from_two(&client));
        rig.flushed(key);
    }
    assert!(searched(&rig) <= 3 * WAITING, "{} messages", searched(&rig));
    assert_eq!(rig.shard.machines.env.metrics.withdrawals_delayed.get(), 1);
}

#[test]
fn a_waiting_search_runs_when_its_budget_is_renewed_and_nothing_comes_twice() {
    let (mut rig, key, client) = with_backlog();
    for _ in 0..5 {
        rig.shard.socket_text(NOW, key, &from_two(&client));
        rig.flushed(key);
    }
    // The kernel takes bytes again, and gets none before the search.
    rig.kernel.room = usize::MAX / 2;
    rig.shard.socket_writable(NOW, key);
    assert_eq!(rig.flushed(key), "");
    rig.shard.publish_now("/h/a", "10");
    rig.shard.publish_now("/b", "11");
    let later = Now { ms: NOW.ms + WAITING / 1_000 + 10, ..NOW };
    rig.shard.advance(later);
    let mut received = String::new();
    while !rig.shard.is_settled() {
        rig.shard.take_effects();
        received += &rig.flushed(key);
    }
    assert_eq!(received.matches("\"channel\":\"/a\"").count() as u64, WAITING);
    let data = |channel: &str| received.matches(&format!("\"channel\":\"{channel}\"")).count() as u64;
    assert_eq!((data("/a"), data("/b"), data("/h/a")), (WAITING, 1, 10));
    assert_eq!(received.matches("\"subscription\":\"/h/a\"").count(), 5);
}

/// The transport of the sessions in a test.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// A WebSocket, with connect replies only.
    Socket,
    /// Responses to requests.
    Requests,
}

#[test]
fn connects_deliver_no_messages_before_the_search_and_all_after_it() {
    for (way, ext) in [Way::Socket, Way::Requests]
        .into_iter()
        .zip(["", "\"ack\":true,"])
        .chain([(Way::Socket, "\"ack\":true,"), (Way::Requests, "")])
    {
        let settings = Settings { connect_deliver_only: true, ..history() };
        let mut rig = Rig::new(1, settings, Box::new(NoApplication));
        let socket = rig.shard.socket_opened(NOW, None);
        // The answer to a text.
        let say = |rig: &mut Rig, text: String| match way {
            Way::Socket => {
                rig.shard.socket_text(NOW, socket, &text);
                rig.flushed(socket)
            }
            Way::Requests => {
                let request = rig.request(text);
                rig.response(request).unwrap_or_default()
            }
        };
        let shake = format!(r#"{{"channel":"/meta/handshake","version":"1.0","ext":{{{ext}"replay":true}}}}"#);
        rig.shard.socket_text(NOW, socket, &shake);
        let client = member_of(&rig.flushed(socket), "clientId");
        let connect = |ack: usize| {
            format!(
                r#"{{"channel":"/meta/connect","clientId":"{client}","ext":{{"ack":{ack}}},"advice":{{"timeout":0}}}}"#
            )
        };
        say(&mut rig, connect(0));
        say(&mut rig, format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/**"}}"#));
        (0..400).for_each(|data| rig.shard.publish_now("/a", &data.to_string()));
        (1..=9).for_each(|data| rig.shard.publish_now("/h/a", &data.to_string()));
        for _ in 0..3 {
            say(&mut rig, from_two(&client));
        }
        assert_eq!(rig.shard.machines.delivery.sizes().searches, 1, "{way:?} {ext}");
        let early = say(&mut rig, connect(1));
        assert!(!early.contains("\"data\""), "{way:?} {ext}: {early}");
        rig.shard.advance(Now { ms: NOW.ms + 10, ..NOW });
        assert_eq!(rig.shard.machines.delivery.sizes().searches, 0);
        let mut received = String::new();
        for ack in 2..10 {
            received += &say(&mut rig, connect(ack));
        }
        let data = |channel: &str| received.matches(&format!("\"channel\":\"{channel}\"")).count();
        assert_eq!((data("/a"), data("/h/a")), (400, 9), "{way:?} {ext}");
    }
}

#[test]
fn searches_of_many_sessions_take_turns() {
    let mut rig = Rig::new(1, history(), Box::new(NoApplication));
    let clients: Vec<_> = (0..20).map(|_| open(&mut rig)).collect();
    rig.kernel.room = 0;
    (0..10_000).for_each(|data| rig.shard.publish_now("/a", &data.to_string()));
    (1..=9).for_each(|data| rig.shard.publish_now("/h/a", &data.to_string()));
    rig.flushed(clients[0].0);
    for (key, client) in &clients {
        rig.shard.socket_text(NOW, *key, &from_two(client));
    }
    let mut turns = Vec::new();
    let mut before = 0;
    while turns.len() < 30 {
        turns.push(searched(&rig) - before);
        before = searched(&rig);
        rig.flushed(clients[0].0);
    }
    assert!(turns.iter().all(|turn| *turn <= 10_009), "{turns:?}");
    assert_eq!(searched(&rig), 20 * 10_009);
}

#[test]
fn a_session_with_few_queued_messages_does_not_wait_for_other_searches() {
    let (mut rig, key, client) = with_backlog();
    for _ in 0..5 {
        rig.shard.socket_text(NOW, key, &from_two(&client));
        rig.flushed(key);
    }
    assert_eq!(rig.shard.machines.delivery.sizes().searches, 1);
    rig.kernel.room = usize::MAX / 2;
    let (other, client) = open(&mut rig);
    rig.kernel.room = 0;
    (0..50).for_each(|data| rig.shard.publish_now("/a", &data.to_string()));
    for _ in 0..3 {
        rig.shard.socket_text(NOW, other, &from_two(&client));
    }
    assert_eq!(rig.shard.machines.delivery.sizes().searches, 1);
}

/// Subscribes to `/h/a` at a position.
fn from(rig: &mut Rig, key: SocketKey, client: &str, position: &str) {
    let ext = format!(r#"{{"replay":{{"/h/a":{position}}}}}"#);
    let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/h/a","ext":{ext}}}"#);
    rig.shard.socket_text(NOW, key, &text);
    rig.flushed(key);
}

/// The data of the messages of `/h/a` that arrive when the kernel takes bytes again.
fn received(rig: &mut Rig, key: SocketKey) -> Vec<u64> {
    rig.kernel.room = usize::MAX / 2;
    rig.shard.socket_writable(NOW, key);
    rig.shard.advance(Now { ms: NOW.ms + WAITING / 1_000 + 10, ..NOW });
    let mut received = String::new();
    while !rig.shard.is_settled() {
        rig.shard.take_effects();
        received += &rig.flushed(key);
    }
    of_history(&received)
}

/// The data of the messages of `/h/a` in this text.
fn of_history(text: &str) -> Vec<u64> {
    let messages = text.split("\"channel\":\"/h/a\"").skip(1);
    let data = |rest: &str| {
        rest.split_once("\"payload\":")
            .or_else(|| rest.split_once("\"data\":"))?
            .1
            .split([',', '}'])
            .next()?
            .parse()
            .ok()
    };
    messages.filter_map(data).collect()
}

#[test]
fn stored_messages_come_once_beside_an_older_subscription_after_evicted_ones() {
    let mut rig = Rig::new(1, history(), Box::new(NoApplication));
    let (key, client) = open(&mut rig);
    rig.kernel.room = 0;
    (1..=30).for_each(|data| rig.shard.publish_now("/h/a", &data.to_string()));
    rig.flushed(key);
    (0..2).for_each(|_| from(&mut rig, key, &client, "-2"));
    assert_eq!(received(&mut rig, key), (1..=30).collect::<Vec<_>>());
}

#[test]
fn live_messages_between_two_subscribes_that_share_a_search_arrive_after_their_eviction() {
    let (mut rig, key, client) = with_backlog();
    let ring = rig.shard.machines.env.shared.histories.find("/h/a", 0).expect("a ring");
    let latest =
        rig.shard.machines.env.shared.histories.with(ring.ring, |ring| ring.next() - 1).expect("a ring").to_string();
    // The first searches run at once, the third waits.
    (0..3).for_each(|_| from(&mut rig, key, &client, &latest));
    assert_eq!(rig.shard.machines.delivery.sizes().searches, 1);
    (10..=25).for_each(|data| rig.shard.publish_now("/h/a", &data.to_string()));
    from(&mut rig, key, &client, "-2");
    assert_eq!(rig.shard.machines.delivery.sizes().searches, 1);
    assert_eq!(received(&mut rig, key), (10..=25).collect::<Vec<_>>());
}

#[test]
fn a_session_that_begins_to_replay_beside_an_older_subscription_loses_no_queued_message() {
    let mut rig = Rig::new(1, history(), Box::new(NoApplication));
    let key = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, key, r#"{"channel":"/meta/handshake","version":"1.0"}"#);
    let client = member_of(&rig.flushed(key), "clientId");
    let subscribe = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/**"}}"#);
    rig.shard.socket_text(NOW, key, &format!(r#"[{{"channel":"/meta/connect","clientId":"{client}"}},{subscribe}]"#));
    rig.flushed(key);
    rig.kernel.room = 0;
    (1..=30).for_each(|data| rig.shard.publish_now("/h/a", &data.to_string()));
    rig.flushed(key);
    from(&mut rig, key, &client, "-2");
    assert_eq!(received(&mut rig, key), (1..=30).collect::<Vec<_>>());
}

#[test]
fn one_search_looks_for_a_limited_number_of_channels() {
    let (mut rig, key, client) = with_backlog();
    for _ in 0..3 {
        rig.shard.socket_text(NOW, key, &from_two(&client));
        rig.flushed(key);
    }
    let before = searched(&rig);
    let session = rig.shard.machines.delivery.socket(key).and_then(|socket| socket.session()).expect("a session");
    let mut many = Withdrawn::default();
    (0..RANGES_MAX - 1).for_each(|number| many.note(&format!("/h/{number}"), &"e".into(), 1..2, Unnumbered::None));
    rig.shard.settle_burst().delivery.withdraw(session, many);
    assert_eq!((searched(&rig), rig.shard.machines.delivery.sizes().searches), (before, 1));
    // An earlier ring of a channel, and one channel more: each needs another search.
    for (channel, epoch) in [("/h/7", "f"), ("/h/more", "e")] {
        let before = searched(&rig);
        let mut more = Withdrawn::default();
        more.note(channel, &epoch.into(), 1..2, Unnumbered::None);
        if channel == "/h/more" {
            (0..RANGES_MAX).for_each(|number| more.note(&format!("/h/{number}"), &"f".into(), 1..2, Unnumbered::None));
        }
        rig.shard.settle_burst().delivery.withdraw(session, more);
        assert!(searched(&rig) - before >= WAITING, "{channel}");
        assert_eq!(rig.shard.machines.delivery.sizes().searches, 1);
    }
}

/// A session on a WebSocket that delivers with connects only, with a held connect and 9 messages of `/h/a` that it gets
/// with `subscription`.
fn with_a_held_connect(application: Box<dyn Application>, subscription: &str) -> (Rig, SocketKey, String) {
    let settings = Settings { connect_deliver_only: true, ..history() };
    let mut rig = Rig::new(1, settings, application);
    let (key, client) = rig.opened(r#"{"replay":true}"#);
    let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#);
    let subscribe = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"{subscription}"}}"#);
    for text in [&connect, &subscribe, &connect] {
        rig.shard.socket_text(NOW, key, text);
        rig.flushed(key);
    }
    (1..=9).for_each(|data| rig.shard.publish_now("/h/a", &data.to_string()));
    (rig, key, client)
}

#[test]
fn a_request_that_subscribes_at_a_position_and_connects_takes_everything_from_the_websocket() {
    let (mut rig, key, client) = with_a_held_connect(Box::new(NoApplication), "/other");
    let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#);
    let request = rig.request(format!("[{},{connect}]", from_two(&client)));
    let mut received = rig.response(request).expect("a response");
    assert_eq!(of_history(&rig.flushed(key)), [], "the WebSocket is left");
    let next = rig.request(connect);
    rig.shard.delivered(NOW, request, true);
    received += &rig.response(next).expect("a response");
    assert_eq!(of_history(&received), (1..=9).collect::<Vec<_>>());
}

#[test]
fn a_disconnect_behind_a_subscribe_at_a_position_gives_no_message_twice() {
    let (mut rig, key, client) = with_a_held_connect(Box::new(NoApplication), "/h/**");
    let disconnect = format!(r#"{{"channel":"/meta/disconnect","clientId":"{client}"}}"#);
    rig.shard.socket_text(NOW, key, &format!("[{},{disconnect}]", from_two(&client)));
    assert_eq!(of_history(&rig.flushed(key)), (1..=9).collect::<Vec<_>>());
}

/// Ends the session that calls it.
struct Bouncer;

impl Application for Bouncer {
    fn service(&self, message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
        actions.disconnect(message.caller.id);
        None
    }
}

#[test]
fn a_service_that_ends_the_session_behind_a_subscribe_at_a_position_gives_no_message_twice() {
    let (mut rig, key, client) = with_a_held_connect(Box::new(Bouncer), "/h/**");
    let call = format!(r#"{{"channel":"/service/door","clientId":"{client}"}}"#);
    rig.shard.socket_text(NOW, key, &format!("[{},{call}]", from_two(&client)));
    assert_eq!(of_history(&rig.flushed(key)), (1..=9).collect::<Vec<_>>());
}
