//! Subscribers in the process of the server: they get what clients and the program publish, in order, once, and learn
//! of each gap.

use encke::{ChannelRule, Gap, Message, Position, Settings, Side, Start, SubscribeError};
use serde_json::json;

use crate::common::{TestServer, data, is_silent, next, settings, wait};

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// Settings with histories below `/stored`.
fn with_history(shards: usize) -> Settings {
    let rule = ChannelRule { pattern: "/stored/**".into(), history_messages: 1_000, ..ChannelRule::default() };
    Settings { shards, channels: vec![rule], ..settings() }
}

#[test]
fn the_program_gets_what_clients_and_the_program_publish() {
    for shards in [1, 3] {
        let server = TestServer::start(Settings { shards, ..settings() });
        let mut one = server.handle.subscribe("/news/today").expect("a channel");
        let mut all = server.handle.subscribe("/news/**").expect("a pattern");
        server.publish("/news/today", "1");
        server.publish("/other", "2");
        // There is no order between the program and clients, which publish on other shards.
        for subscription in [&mut one, &mut all] {
            let first = next(subscription).expect("a message");
            assert_eq!((first.channel(), first.data(), first.position()), ("/news/today", "1", None));
        }
        for _ in 0..3 {
            let mut ws = server.session();
            let publish = ws.mine(json!({"id": "p", "channel": "/news/today", "data": {"from": "a client"}}));
            ws.send_json(&json!([publish]));
        }
        for subscription in [&mut one, &mut all] {
            assert_eq!(data(subscription, 3), vec![r#"{"from":"a client"}"#; 3]);
        }
        server.publish("/news/sport", "[3]");
        let sport = next(&mut all).expect("a message");
        assert_eq!((sport.channel(), sport.json()), ("/news/sport", r#"{"channel":"/news/sport","data":[3]}"#));
        assert!(is_silent(&mut one));
        assert_eq!(server.metric("encke_in_process_subscriptions"), 2);
        drop((one, all));
        assert_eq!(server.metric("encke_in_process_subscriptions"), 0);
    }
}

#[test]
fn a_message_says_which_side_has_made_it() {
    for shards in [1, 3] {
        let server = TestServer::start(with_history(shards));
        for channel in ["/plain/a", "/stored/a"] {
            let mut live = server.handle.subscribe(channel).expect("a channel");
            server.publish(channel, "1");
            assert_eq!(next(&mut live).expect("a message").side(), Side::Server, "{channel}");
            // Sessions on several shards.
            for _ in 0..3 {
                server.session().publish(channel, json!(2));
                assert_eq!(next(&mut live).expect("a message").side(), Side::Client, "{channel}");
            }
        }
        let mut past = server.handle.subscribe_from("/stored/a", &Start::Earliest).expect("a channel");
        let sides = [(); 4].map(|()| next(&mut past).expect("a message").side());
        assert_eq!(sides, [Side::Server, Side::Client, Side::Client, Side::Client]);
    }
}

#[test]
fn messages_of_one_channel_arrive_in_order_from_every_shard() {
    let server = TestServer::start(Settings { shards: 3, ..settings() });
    let channels: Vec<String> = (0..10).map(|number| format!("/a/{number}")).collect();
    let mut all = server.handle.subscribe("/a/*").expect("a pattern");
    for number in 0..100 {
        channels.iter().for_each(|name| server.publish(name, &number.to_string()));
    }
    let mut counts = vec![0; channels.len()];
    for _ in 0..1_000 {
        let message = next(&mut all).expect("a message");
        let at = channels.iter().position(|name| name == message.channel()).expect("a channel");
        assert_eq!(message.data(), counts[at].to_string());
        counts[at] += 1;
    }
}

#[test]
fn names_that_nobody_publishes_to_are_refused() {
    let server = TestServer::start(settings());
    for name in ["", "a", "/a/", "/meta/connect", "/service/x", "/a/*/b", "/é"] {
        let error = server.handle.subscribe(name).expect_err(name);
        assert_eq!(error, SubscribeError::Channel(name.into()));
    }
    for (name, start) in [("/a/*", "e-1"), ("/a", "/b:e-1"), ("/a/*", "/a/b/c:e-1"), ("/a/**", "/a/*:e-1")] {
        let start: Start = start.parse().expect("positions");
        assert_eq!(server.handle.subscribe_from(name, &start).err(), Some(SubscribeError::Positions), "{name}");
    }
    assert_eq!(server.metric("encke_in_process_subscriptions"), 0);
}

/// A reader that begins in the past while a publisher goes on gets each message once, in order, from two shards.
#[test]
fn a_history_continues_with_new_messages_without_gap_or_double() {
    for shards in [1, 2] {
        let server = TestServer::start(with_history(shards));
        let handle = server.handle.clone();
        let publisher = std::thread::spawn(move || {
            for number in 0..900 {
                handle.publish("/stored/a", &number.to_string()).expect("taken");
                if number % 10 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        for _ in 0..20 {
            let mut whole = server.handle.subscribe_from("/stored/a", &Start::Earliest).expect("a channel");
            let first = data(&mut whole, 1)[0].parse::<u32>().expect("a number");
            assert_eq!(first, 0);
            assert_eq!(data(&mut whole, 30), numbers(1..31));
            let after = whole.positions().expect("one channel");
            drop(whole);
            let mut rest = server.handle.subscribe_from("/stored/**", &after.into()).expect("a pattern");
            assert_eq!(data(&mut rest, 869), numbers(31..900));
            assert!(is_silent(&mut rest));
        }
        publisher.join().expect("it publishes");
    }
}

#[test]
fn a_history_that_is_newer_than_the_positions_reports_what_it_does_not_retain() {
    let few = ChannelRule { pattern: "/stored/*".into(), history_messages: 2, ..ChannelRule::default() };
    let server = TestServer::start(Settings { channels: vec![few], ..settings() });
    let positions = server.handle.subscribe("/stored/*").expect("a pattern").positions().expect("no channels");
    let mut live = server.handle.subscribe("/stored/*").expect("a pattern");
    for number in 0..5 {
        server.publish("/stored/new", &number.to_string());
        next(&mut live).expect("a message");
    }
    let mut after = server.handle.subscribe_from("/stored/*", &positions.into()).expect("a pattern");
    let gone = Gap::Gone { channel: "/stored/new".into() };
    assert_eq!(next(&mut after).map(|message| message.data().to_owned()), Err(gone));
    assert_eq!(data(&mut after, 2), ["3", "4"]);
}

#[test]
fn a_subscription_begins_after_a_position_or_reports_that_it_is_gone() {
    let server = TestServer::start(with_history(2));
    let publish = |channel: &str, data: u32| server.publish(channel, &data.to_string());
    let mut live = server.handle.subscribe("/stored/**").expect("a pattern");
    (0..5).for_each(|number| publish("/stored/a", number));
    let messages: Vec<Message> = (0..5).map(|_| next(&mut live).expect("a message")).collect();
    let at = |index: usize| messages[index].position().expect("a position").clone();
    let mut after = server.handle.subscribe_from("/stored/a", &at(2).into()).expect("a channel");
    assert_eq!(data(&mut after, 2), numbers(3..5));
    // The text of a position is one.
    let text: Start = at(3).to_string().parse().expect("a position");
    assert_eq!(data(&mut server.handle.subscribe_from("/stored/a", &text).expect("a channel"), 1), ["4"]);
    // A channel whose history begins after the positions were taken comes from its beginning.
    let positions = live.positions().expect("few channels");
    publish("/stored/new", 7);
    let mut both = server.handle.subscribe_from("/stored/*", &positions.into()).expect("a pattern");
    assert_eq!(data(&mut both, 1), ["7"]);
    assert!(is_silent(&mut both));
    for (name, position) in [
        ("/stored/a", Position { epoch: "other".into(), offset: at(4).offset }),
        ("/stored/a", Position { offset: 1, ..at(0) }),
        ("/stored/a", Position { offset: u64::MAX, ..at(0) }),
    ] {
        let mut gone = server.handle.subscribe_from(name, &position.clone().into()).expect("a channel");
        assert_eq!(next(&mut gone).map(|message| message.data().to_owned()), Err(Gap::Gone { channel: name.into() }));
        assert_eq!(data(&mut gone, 5), numbers(0..5), "{position}");
    }
    let mut gone = server.handle.subscribe_from("/stored/none", &at(0).into()).expect("a channel");
    assert!(matches!(next(&mut gone), Err(Gap::Gone { .. })));
}

#[test]
fn subscriptions_end_with_the_server() {
    let server = TestServer::start(settings());
    let mut subscription = server.handle.subscribe("/a").expect("a channel");
    let handle = server.handle.clone();
    server.publish("/a", "1");
    assert_eq!(data(&mut subscription, 1), ["1"]);
    drop(server);
    handle.drain();
    assert!(wait(subscription.next()).is_none());
    let mut late = handle.subscribe("/a").expect("a channel");
    assert!(wait(late.next()).is_none());
}
