//! Every limit is reached: input within it is accepted, the next gets the error that names the limit, and a metric
//! counts it.
//!
//! The tests are named after the settings; the last one checks that none is missing.

mod clients;
mod files;
mod held;
mod intervals;
mod owners;
mod rates;
mod waits;

use encke::{Server, Settings};
use serde_json::json;

use crate::common::{Http, Poller, TestServer, Ws, publications, settings, wait_until};

fn errors(replies: &serde_json::Value) -> Vec<Option<&str>> {
    replies.as_array().expect("replies").iter().map(|reply| reply["error"].as_str()).collect()
}

/// The error of a subscribe, or None.
fn subscribe(ws: &mut Ws, subscription: impl serde::Serialize) -> Option<String> {
    let subscription = json!(subscription);
    let reply = ws.call(json!({"id": "s", "channel": "/meta/subscribe", "subscription": subscription}));
    reply["error"].as_str().map(String::from)
}

#[test]
fn sessions_max_refuses_one_more_handshake() {
    let server = TestServer::start(Settings { sessions_max: 8, shards: 2, ..settings() });
    let mut neighbour = server.neighbour();
    // All come from one address, which may have six of eight.
    let mut sessions: Vec<_> = (0..5).map(|_| server.session()).collect();
    for _ in 0..2 {
        let reply = server.http().call(json!({"id": "1", "channel": "/meta/handshake", "version": "1.0"}));
        assert_eq!((&reply["successful"], &reply["error"]), (&json!(false), &json!("413::sessions_max")));
        assert_eq!(reply["advice"], json!({"interval": 5_000, "reconnect": "handshake"}));
        assert_eq!(reply.get("clientId"), None);
    }
    assert_eq!(server.metric("encke_sessions_refused"), 2);
    sessions[0].call(json!({"id": "d", "channel": "/meta/disconnect"}));
    server.http().handshake();
    neighbour.lives(&server);
}

/// A single publish of exactly `bytes` bytes.
fn message_of(bytes: usize) -> String {
    let short = r#"[{"id":"1","channel":"/a","data":""}]"#;
    short.replace("\"\"", &format!("\"{}\"", "x".repeat(bytes - short.len())))
}

#[test]
fn message_bytes_max_is_the_largest_body_and_websocket_message() {
    let server = TestServer::start(Settings { message_bytes_max: 2_048, ..settings() });
    let mut neighbour = server.neighbour();
    let mut http = server.http();
    assert_eq!(http.post_raw(message_of(2_048)).status, 200);
    let refused = server.metric("encke_requests_refused");
    assert_eq!(http.post_raw(message_of(2_049)).status, 413);
    assert_eq!(server.metric("encke_requests_refused"), refused + 1);
    let mut ws = server.websocket();
    ws.send_text(&message_of(2_048));
    assert_eq!(ws.next_json()[0]["error"], "402::session_unknown");
    ws.send_text(&message_of(2_049));
    assert_eq!(ws.closed(), (1009, "message too big".into()));
    // Fragments count together.
    let mut ws = server.websocket();
    let half = [b'x'; 1_025];
    let _cut = ws.tcp.try_send([crate::common::raw_frame(0x01, &half), crate::common::raw_frame(0x80, &half)].concat());
    assert_eq!(ws.closed().0, 1009);
    assert_eq!(server.metric("encke_websocket_errors"), 2);
    neighbour.lives(&server);
}

#[test]
fn header_bytes_max_is_the_largest_head() {
    let server = TestServer::start(Settings { header_bytes_max: 8_192, ..settings() });
    let ask = |bytes: usize| {
        let mut tcp = server.tcp();
        let _cut = tcp.try_send(format!("GET /healthz HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(bytes)));
        tcp.response().expect("an answer").status
    };
    assert_eq!(ask(8_000), 200);
    assert_eq!(ask(8_400), 431);
    assert_eq!(server.metric("encke_requests_refused"), 1);
}

/// 100 header lines, fixed.
#[test]
fn the_number_of_header_lines_is_limited() {
    let server = TestServer::start(settings());
    let ask = |lines: usize| {
        let mut tcp = server.tcp();
        tcp.send(format!("GET /healthz HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(lines - 1)));
        tcp.response().expect("an answer").status
    };
    assert_eq!((ask(100), ask(101)), (200, 431));
    assert_eq!(server.metric("encke_requests_refused"), 1);
}

#[test]
fn batch_messages_max_refuses_the_whole_batch() {
    let server = TestServer::start(Settings { batch_messages_max: 3, ..settings() });
    let mut ws = server.session();
    let publish = ws.mine(json!({"id": "1", "channel": "/a", "data": 1}));
    ws.send_json(&json!(vec![&publish; 3]));
    assert_eq!(errors(&ws.next_json()), [None; 3]);
    ws.send_json(&json!(vec![&publish; 4]));
    assert_eq!(errors(&ws.next_json()), [Some("413::batch_too_long")]);
    let response = server.http().post(&json!(vec![&publish; 4]));
    assert_eq!((response.status, response.error().as_str()), (413, "413::batch_too_long"));
    assert_eq!(server.metric("encke_batches_refused"), 2);
    assert_eq!(server.metric("encke_publications"), 3);
}

#[test]
fn json_depth_max_bounds_the_value_of_a_field() {
    let server = TestServer::start(Settings { json_depth_max: 3, ..settings() });
    let mut ws = server.session();
    assert_eq!(ws.call(json!({"id": "1", "channel": "/a", "data": [[[1]]]}))["successful"], true);
    let deep = ws.mine(json!({"id": "2", "channel": "/a", "data": [[[[1]]]]}));
    ws.send_json(&json!([deep]));
    assert_eq!(errors(&ws.next_json()), [Some("400::json_too_deep")]);
    assert_eq!(server.metric("encke_batches_refused"), 1);
}

#[test]
fn channel_bytes_max_bounds_names_and_patterns() {
    let server = TestServer::start(Settings { channel_bytes_max: 16, ..settings() });
    let mut ws = server.session();
    let (fits, long) = (format!("/{}", "a".repeat(15)), format!("/{}", "a".repeat(16)));
    assert_eq!(subscribe(&mut ws, &fits), None);
    assert_eq!(subscribe(&mut ws, &long).as_deref(), Some("413::channel_too_long"));
    let reply = ws.call(json!({"id": "p", "channel": long, "data": 1}));
    assert_eq!(reply["error"], "413::channel_too_long");
    let reply = ws.call(json!({"id": "p", "channel": format!("/{}", "a".repeat(65_536)), "data": 1}));
    assert_eq!(reply["error"], "413::channel_too_long");
    assert_eq!(server.metric("encke_error_replies"), 3);
}

#[test]
fn channel_segments_max_bounds_the_depth_of_names() {
    let server = TestServer::start(Settings { channel_segments_max: 3, channel_bytes_max: 100_000, ..settings() });
    let mut ws = server.session();
    assert_eq!(subscribe(&mut ws, "/a/b/**"), None);
    for name in ["/a/b/c/d".to_owned(), "/a/b/c/**".to_owned(), "/a".repeat(10_000)] {
        assert_eq!(subscribe(&mut ws, &name).as_deref(), Some("413::channel_too_deep"), "{name:.20}");
    }
    assert_eq!(ws.call(json!({"id": "p", "channel": "/a/b/c/d", "data": 1}))["error"], "413::channel_too_deep");
    assert_eq!(server.metric("encke_error_replies"), 4);
}

#[test]
fn channels_max_refuses_new_names_and_accepts_known_ones() {
    let server = TestServer::start(Settings { channels_max: 2, ..settings() });
    let mut neighbour = server.neighbour();
    let (mut one, mut two) = (server.session(), server.session());
    assert_eq!(subscribe(&mut one, "/a"), None);
    assert_eq!(subscribe(&mut two, "/b").as_deref(), Some("413::channels_max"));
    assert_eq!(subscribe(&mut two, "/a"), None);
    assert_eq!(server.metric("encke_subscriptions_refused"), 1);
    for ws in [&mut one, &mut two] {
        ws.call(json!({"id": "u", "channel": "/meta/unsubscribe", "subscription": "/a"}));
    }
    assert_eq!(subscribe(&mut two, "/b"), None);
    neighbour.lives(&server);
}

#[test]
fn subscriptions_max_bounds_one_session() {
    let server = TestServer::start(Settings { subscriptions_max: 2, ..settings() });
    let mut ws = server.session();
    assert_eq!(subscribe(&mut ws, ["/a", "/b"]), None);
    assert_eq!(subscribe(&mut ws, "/c").as_deref(), Some("413::subscriptions_max"));
    assert_eq!(subscribe(&mut ws, "/a"), None, "it has that one");
    assert_eq!(subscribe(&mut server.session(), "/c"), None, "another session");
    assert_eq!(server.metric("encke_subscriptions_refused"), 1);
}

/// Row 21: an array with more names than one message may hold (1,000, fixed).
#[test]
fn the_names_of_one_subscribe_are_limited() {
    let server = TestServer::start(Settings { subscriptions_max: 10_000, ..settings() });
    let mut neighbour = server.neighbour();
    let mut ws = server.session();
    let names = |count: usize| (0..count).map(|number| format!("/n/{number}")).collect::<Vec<_>>();
    assert_eq!(subscribe(&mut ws, names(1_000)), None);
    assert_eq!(subscribe(&mut ws, names(1_001)).as_deref(), Some("413::subscription_names_max"));
    // The reply repeats the names, whatever their number.
    assert_eq!(subscribe(&mut ws, vec!["/a"; 100_000]).as_deref(), Some("413::subscription_names_max"));
    assert_eq!(server.metric("encke_subscriptions"), 1 + 1_000);
    assert_eq!(server.metric("encke_error_replies"), 2);
    neighbour.lives(&server);
}

/// 128 bytes of id and 16 fields that Bayeux does not know, fixed.
#[test]
fn ids_and_custom_fields_are_limited() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    assert_eq!(ws.call(json!({"id": "9".repeat(128), "channel": "/a", "data": 1}))["successful"], true);
    let mut message = ws.mine(json!({"id": "1", "channel": "/a", "data": 1}));
    for number in 0..16 {
        message[format!("x{number}")] = json!(number);
    }
    assert_eq!(ws.call(message.clone())["successful"], true);
    message["x16"] = json!(16);
    assert_eq!(ws.call(message)["error"], "413::custom_fields_max");
    let long = ws.mine(json!({"id": "9".repeat(129), "channel": "/a", "data": 1}));
    ws.send_json(&json!([long]));
    let reply = ws.next_json();
    assert_eq!((reply[0]["error"].as_str(), reply[0].get("id")), (Some("405::message_id_invalid"), None));
    assert_eq!(server.metric("encke_error_replies"), 2);
}

/// Fills the outbox of a session that does not poll with `fits` messages, then adds one.
fn overflow(server: &TestServer, fits: usize, data: &str) {
    let mut neighbour = server.neighbour();
    let (mut full, mut over) = (server.poller(), server.poller());
    full.subscribe("/full");
    over.subscribe("/over");
    for _ in 0..fits {
        server.publish("/full", data);
        server.publish("/over", data);
    }
    server.publish("/over", data);
    server.wait_for("encke_slow_consumers_disconnected", 1);
    assert_eq!(over.poll(json!({}))[0]["error"], "402::session_unknown");
    assert_eq!(publications(&full.poll(json!({}))).len(), fits);
    assert_eq!(server.metric("encke_slow_consumers_disconnected"), 1);
    neighbour.lives(server);
}

#[test]
fn outbox_messages_max_ends_a_session_that_does_not_fetch_them() {
    let server = TestServer::start(Settings { outbox_messages_max: 10, ..settings() });
    overflow(&server, 10, "1");
}

#[test]
fn outbox_bytes_max_ends_a_session_that_does_not_fetch_them() {
    let server = TestServer::start(Settings { outbox_bytes_max: 10_000, ..settings() });
    overflow(&server, 9, &format!("\"{}\"", "x".repeat(1_000)));
}

/// Settings with a history of `/h/**`.
fn history() -> Settings {
    let rule = encke::ChannelRule { pattern: "/h/**".into(), history_messages: 100, ..encke::ChannelRule::default() };
    Settings { channels: vec![rule], ..settings() }
}

#[test]
fn sessions_bytes_max_ends_the_largest_sessions() {
    let server = TestServer::start(Settings { sessions_bytes_max: 1024 * 1024, ..settings() });
    let mut neighbour = server.neighbour();
    let (mut little, mut much) = (server.poller(), server.poller());
    little.subscribe("/little");
    much.subscribe("/much");
    server.publish("/little", "1");
    for _ in 0..30 {
        server.publish("/much", &format!("\"{}\"", "x".repeat(40_000)));
    }
    server.wait_for("encke_sessions_ended_for_memory", 1);
    assert_eq!(much.poll(json!({}))[0]["error"], "402::session_unknown");
    assert_eq!(publications(&little.poll(json!({}))).len(), 1);
    assert!(server.metric("encke_sessions_bytes") < 1024 * 1024);
    neighbour.lives(&server);
}

#[test]
fn history_bytes_max_removes_the_oldest_messages_of_all_channels() {
    let server = TestServer::start(Settings { history_bytes_max: 10_000, ..history() });
    for number in 0..30 {
        let data = format!("\"{}\"", "x".repeat(900));
        server.publish(&format!("/h/{}", number % 3), &data);
    }
    server.wait_for("encke_publications", 30);
    assert!(server.metric("encke_history_bytes") <= 10_000);
    let stored = server.metric("encke_history_messages");
    assert!((6..=10).contains(&stored), "{stored}");
    assert_eq!(server.metric("encke_history_messages_evicted"), 30 - stored);
}

#[test]
fn history_channels_max_stores_nothing_of_further_channels_and_delivers_their_messages() {
    // A rule that is alone has two of three.
    let server = TestServer::start(Settings { history_channels_max: 3, ..history() });
    let mut ws = server.session();
    ws.subscribe("/h/*");
    for channel in ["/h/a", "/h/b", "/h/c"] {
        server.publish(channel, "1");
        assert_eq!(ws.next_json(), json!([{"channel": channel, "data": 1}]));
    }
    assert_eq!((server.metric("encke_history_channels"), server.metric("encke_history_refused")), (2, 1));
    // A client gets an error, and nobody gets its message.
    let publish = |channel: &str| json!({"id": "p", "channel": channel, "data": 2});
    assert_eq!(server.session().call(publish("/h/d"))["error"], "413::history_channels_max");
    assert_eq!(server.session().call(publish("/h/a"))["successful"], true);
    assert_eq!(ws.next_json(), json!([{"channel": "/h/a", "data": 2}]));
}

/// The number of positions in one subscribe, and in all subscribes of one pattern (fixed); an offset for many channels.
#[test]
fn the_positions_and_the_channels_of_one_replay_are_limited() {
    let server = TestServer::start(history());
    for number in 0..=256 {
        server.publish(&format!("/h/many/{number}"), "1");
    }
    server.wait_for("encke_history_channels", 257);
    let mut ws = server.websocket();
    ws.send_json(&json!([{"channel": "/meta/handshake", "version": "1.0", "id": "h", "ext": {"replay": true}}]));
    ws.id = ws.next_json()[0]["clientId"].as_str().expect("an id").to_owned();
    let positions = |count: usize| -> serde_json::Map<String, serde_json::Value> {
        (0..count).map(|number| (format!("/x/{number}"), json!(-1))).collect()
    };
    let mut error = |name: &str, replay: serde_json::Value| {
        let message = json!({"id": "s", "channel": "/meta/subscribe", "subscription": name, "ext": {"replay": replay}});
        ws.call(message)["error"].clone()
    };
    assert_eq!(error("/h/a", json!(positions(1_000))), json!(null));
    assert_eq!(error("/h/b", json!(positions(1_001))), "413::replay_channels_max");
    assert_eq!(error("/h/many/*", json!(7)), "413::replay_channels_max");
    for thousand in 0..21 {
        let mut part: serde_json::Map<_, _> = (0..999).map(|n| (format!("/x/{thousand}/{n}"), json!(-1))).collect();
        part.insert("/x/**".into(), json!({ "more": true }));
        let wanted = if thousand < 20 { json!(null) } else { json!("413::replay_channels_max") };
        assert_eq!(error("/x/**", json!(part)), wanted, "{thousand}");
    }
    assert_eq!(error("/h/many/*", json!(-2)), json!(null));
}

#[test]
fn callback_bytes_max_bounds_the_name_of_a_callback() {
    let server = TestServer::start(Settings { callback_bytes_max: 5, ..settings() });
    let mut http = server.http();
    assert_eq!(http.get("/cometd?jsonp=abcde&message=%5B%7B%7D%5D").status, 200);
    assert_eq!(http.get("/cometd?jsonp=abcdef&message=%5B%7B%7D%5D").status, 400);
    let long = format!("/cometd?jsonp={}&message=%5B%7B%7D%5D", "a".repeat(10_000));
    assert_eq!(http.get(&long).status, 400);
    assert_eq!(server.metric("encke_requests_refused"), 2);
}

/// A sender has to wait while the account of bytes between shards is full; nothing is dropped and nothing overtakes. It does not wait
/// where the other shard is faster, so it sends until it has waited.
#[test]
fn mailbox_bytes_max_makes_the_sender_wait() {
    let server = TestServer::start(Settings { mailbox_bytes_max: 1, shards: 2, ..settings() });
    let mut ears: Vec<Ws> = (0..4).map(|_| server.session()).collect();
    ears.iter_mut().for_each(|ws| ws.subscribe("/a"));
    let mut publisher = server.session();
    let mut sent = 0;
    wait_until("the publisher has waited", || {
        let numbers = sent..sent + 10_000;
        for batch in numbers.clone().step_by(500) {
            let message = |data| publisher.mine(json!({"id": "p", "channel": "/a", "data": data}));
            let messages: Vec<_> = (batch..batch + 500).map(message).collect();
            publisher.send_json(&json!(messages));
        }
        for ws in &mut ears {
            numbers.clone().for_each(|expected| assert_eq!(ws.next_json()[0]["data"], expected));
        }
        while sent < numbers.end {
            sent += publisher.next_json().as_array().map_or(0, Vec::len);
        }
        server.metric("encke_mailbox_waits") > 0
    });
}

/// A browser opens few connections to one host: windows beyond that number are advised to poll.
#[test]
fn browser_sessions_max_advises_further_windows_to_poll() {
    let server = TestServer::start(Settings { browser_sessions_max: 2, ..settings() });
    let first = server.poller();
    let mut windows = [Poller::open(first.http.again()), Poller::open(first.http.again()), first];
    for (held, window) in windows.iter_mut().take(2).enumerate() {
        window.start_poll(json!({}));
        server.wait_for_exactly("encke_held_connects", held as u64 + 1);
    }
    let advice = windows[2].poll(json!({}))[0]["advice"].clone();
    assert_eq!(advice, json!({"multiple-clients": true, "interval": 2_000, "reconnect": "retry"}));
    assert_eq!(server.metric("encke_surplus_connects"), 1);
    assert_eq!(server.metric("encke_held_connects"), 2);
}

#[test]
fn client_interval_max_ms_bounds_requested_intervals() {
    let server = TestServer::start(Settings { client_interval_max_ms: 200, ..settings() });
    let mut poller = server.poller();
    let messages = poller.poll(json!({"advice": {"timeout": 3_600_000, "interval": 3_600_000}}));
    assert_eq!(messages[0]["advice"], json!({"interval": 200, "timeout": 120_000, "reconnect": "retry"}));
}

#[test]
fn max_interval_ms_is_the_lifetime_of_a_silent_session() {
    let server = TestServer::start(Settings { max_interval_ms: 1_000, ..settings() });
    let mut silent = server.poller();
    let mut held = server.poller();
    held.subscribe("/a");
    held.start_poll(json!({}));
    server.wait_for("encke_sessions_expired", 1);
    assert_eq!(silent.poll(json!({}))[0]["error"], "402::session_unknown");
    server.publish("/a", "1");
    assert_eq!(held.end_poll()[0]["data"], 1, "who waits is not silent");
}

#[test]
fn lazy_timeout_max_ms_bounds_the_wait_of_lazy_messages() {
    let rule = encke::ChannelRule {
        pattern: "/lazy".into(),
        slow_consumer: encke::SlowConsumer::Disconnect,
        lazy: true,
        lazy_timeout_ms: 3_600_000,
        ..encke::ChannelRule::default()
    };
    let server = TestServer::start(Settings { lazy_timeout_max_ms: 200, channels: vec![rule], ..settings() });
    let mut ws = server.session();
    ws.subscribe("/lazy");
    server.publish("/lazy", "1");
    assert_eq!(ws.next_json(), json!([{"channel": "/lazy", "data": 1}]));
}

/// A connection above the rate waits in the system's backlog and is served later.
#[test]
fn connections_per_second_max_delays_simultaneous_connections() {
    let server = TestServer::start(Settings { connections_per_second_max: 50, ..settings() });
    let mut neighbour = server.neighbour();
    let mut connections: Vec<Http> = (0..10).map(|_| server.http()).collect();
    neighbour.lives(&server);
    for http in &mut connections {
        assert_eq!(http.get("/healthz").status, 200);
    }
    assert!(server.metric("encke_accepts_delayed") >= 9);
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    for (settings, name) in [
        (Settings { shards: 64, ..settings() }, "shards"),
        (Settings { sessions_max: 0, ..settings() }, "sessions_max"),
        (Settings { message_bytes_max: 10, ..settings() }, "message_bytes_max"),
        (Settings { header_bytes_max: 100, ..settings() }, "header_bytes_max"),
        (Settings { mailbox_bytes_max: 0, ..settings() }, "mailbox_bytes_max"),
        (Settings { duplicate_connect_status: 200, ..settings() }, "duplicate_connect_status"),
        (Settings { mounts: vec!["cometd".into()], ..settings() }, "mounts"),
        (Settings { allowed_origins: vec!["example.com".into()], ..settings() }, "allowed_origins"),
    ] {
        let error = Server::builder().settings(settings).start().expect_err("an error").to_string();
        assert!(error.starts_with(name), "{error}");
    }
}

#[test]
fn every_limit_has_its_test() {
    let settings = serde_json::to_value(Settings::default()).expect("JSON");
    let names = settings.as_object().expect("settings").keys();
    // The age of a cookie limits no input.
    for name in names.filter(|name| name.contains("max") && *name != "cookie_max_age_s") {
        let test = format!("\nfn {name}_");
        let files = [
            include_str!("api/publish.rs"),
            include_str!("http2.rs"),
            include_str!("http2/limits.rs"),
            include_str!("limits.rs"),
            include_str!("limits/clients.rs"),
            include_str!("limits/files.rs"),
            include_str!("limits/held.rs"),
            include_str!("limits/intervals.rs"),
            include_str!("limits/rates.rs"),
            include_str!("limits/waits.rs"),
            include_str!("session_attributes.rs"),
        ];
        assert!(files.iter().any(|file| file.contains(&test)), "no test is named after {name}");
    }
}

/// A closed connection no longer counts.
#[test]
fn limits_are_released_when_sessions_end() {
    let server =
        TestServer::start(Settings { sessions_max: 3, connections_max: 30, subscriptions_max: 3, ..settings() });
    for _ in 0..50 {
        let mut http: Http = server.http();
        let id = http.handshake();
        let names = ["/a", "/b/**", "/c/*"];
        http.call(json!({"id": "1", "channel": "/meta/subscribe", "clientId": id, "subscription": names}));
        assert_eq!(http.call(json!({"id": "2", "channel": "/meta/disconnect", "clientId": id}))["successful"], true);
    }
    assert_eq!(server.metric("encke_subscriptions"), 0);
    assert_eq!(server.metric("encke_channels"), 0);
    assert_eq!(server.handle.sessions(), 0);
}
