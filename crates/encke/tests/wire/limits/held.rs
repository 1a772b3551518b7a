//! Limits of subscriptions in the process, and of held requests.

use encke::{ChannelRule, Gap, Settings};

use crate::common::{Http, Stream, TestServer, data, is_silent, next, settings};

/// A reader that is too slow gets a gap with the number of messages, then the latest ones. Another one misses nothing.
#[test]
fn in_process_messages_max_discards_the_oldest_with_a_gap() {
    let server = TestServer::start(Settings { in_process_messages_max: 10, ..settings() });
    let mut slow = server.handle.subscribe("/a").expect("a channel");
    let mut fast = server.handle.subscribe("/a").expect("a channel");
    for number in 0..100 {
        server.publish("/a", &number.to_string());
        // So each message is a burst.
        assert_eq!(data(&mut fast, 1), [number.to_string()]);
    }
    // The other subscription may get a message a little later.
    server.wait_for("encke_in_process_messages_discarded", 90);
    assert_eq!(next(&mut slow).map(|message| message.data().to_owned()), Err(Gap::Slow { messages: 90 }));
    assert_eq!(data(&mut slow, 10), (90..100).map(|number| number.to_string()).collect::<Vec<_>>());
    assert!(is_silent(&mut slow));
    assert_eq!(server.metric("encke_in_process_messages_discarded"), 90);
}

/// The latest message is there even if it alone exceeds the limit.
#[test]
fn in_process_bytes_max_discards_the_oldest_with_a_gap() {
    let server = TestServer::start(Settings { in_process_bytes_max: 1_000, ..settings() });
    let mut slow = server.handle.subscribe("/a").expect("a channel");
    let mut fast = server.handle.subscribe("/a").expect("a channel");
    let long = format!("\"{}\"", "x".repeat(2_000));
    for text in ["1", "2", &long] {
        server.publish("/a", text);
        assert_eq!(data(&mut fast, 1), [text]);
    }
    server.wait_for("encke_in_process_messages_discarded", 2);
    assert_eq!(next(&mut slow).map(|message| message.data().to_owned()), Err(Gap::Slow { messages: 2 }));
    assert_eq!(data(&mut slow, 1), [long]);
}

/// All subscriptions together hold 16 times as much as one. A large message beyond that is a gap, and a small one is not.
#[test]
fn in_process_bytes_max_bounds_all_subscriptions_together() {
    let server = TestServer::start(Settings { in_process_bytes_max: 100_000, ..settings() });
    let subscribe = |number: usize| server.handle.subscribe(&format!("/a/{number}")).expect("a channel");
    let mut unread: Vec<_> = (0..40).map(subscribe).collect();
    let long = format!("\"{}\"", "x".repeat(90_000));
    for number in 0..40 {
        server.publish(&format!("/a/{number}"), &long);
    }
    let mut small = server.handle.subscribe("/small").expect("a channel");
    server.publish("/small", "1");
    assert_eq!(data(&mut small, 1), ["1"]);
    server.wait_for("encke_in_process_messages_discarded", 22);
    let received: usize = unread.iter_mut().map(|one| next(one).is_ok()).filter(|received| *received).count();
    assert!((10..=18).contains(&received), "{received}");
}

/// An address that has its part gets 429; its others go on, and what is left is for another address.
#[test]
fn held_requests_max_leaves_room_for_other_addresses() {
    let server = TestServer::start(Settings { held_requests_max: 3, ..settings() });
    let mut held: Vec<Http> = (0..2).map(|_| server.http()).collect();
    for (number, http) in held.iter_mut().enumerate() {
        http.send("GET", "/hold/a", &[], b"");
        server.wait_for("encke_in_process_subscriptions", number as u64 + 1);
    }
    let refused = server.http().get("/hold/a");
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("5")));
    server.publish("/a", "1");
    for http in &mut held {
        assert_eq!(http.receive().text(), r#"[{"channel":"/a","data":1}]"#);
    }
    assert_eq!(server.http().get("/hold/a?timeout=0").status, 200, "there is room again");
    assert_eq!(server.metric("encke_holds_refused"), 1);
}

#[test]
fn held_requests_per_address_max_answers_one_more_with_429() {
    let server = TestServer::start(Settings { held_requests_per_address_max: 1, ..settings() });
    let mut http = server.http();
    http.send("GET", "/hold/a", &[], b"");
    server.wait_for("encke_in_process_subscriptions", 1);
    assert_eq!(server.http().get("/hold/a").status, 429);
    assert_eq!(server.metric("encke_holds_refused"), 1);
}

/// A longer time than the limit is the limit.
#[test]
fn hold_timeout_max_ms_bounds_the_time_that_a_client_asks_for() {
    let server = TestServer::start(Settings { hold_timeout_max_ms: 100, ..settings() });
    for timeout in ["", "?timeout=60", "?timeout=18446744073709551615"] {
        assert_eq!(server.http().get(&format!("/hold/a{timeout}")).text(), "[]");
    }
}

/// A client without Bayeux goes on with another stream, at its last position.
#[test]
fn stream_max_ms_ends_a_stream_after_its_time() {
    let rule = ChannelRule { pattern: "/a".into(), history_messages: 9, ..ChannelRule::default() };
    let server = TestServer::start(Settings { stream_max_ms: 50, channels: vec![rule], ..settings() });
    let mut stream = Stream::open(server.address(), "/stream/a", &[]);
    let last = std::iter::from_fn(|| stream.event()).last().expect("an event");
    let id = last.strip_prefix("id: ").expect("the position at which it began");
    server.wait_for_exactly("encke_sessions", 0);
    server.publish("/a", "1");
    let mut next = Stream::open(server.address(), "/stream/a", &[("last-event-id", id)]);
    assert!(std::iter::from_fn(|| next.event()).any(|event| event.contains("\"data\":1")));
}
