//! Streams as transports: `GET MOUNT/CLIENT_ID` (Faye's `eventsource`, and JSON lines).

use encke::{Access, ChannelRule, Grant, Handshake, Identity, Refusal, Server, Settings, TransportName};
use serde_json::{Value, json};

use crate::common::http2::over_http2;
use crate::common::{Http, Stream, TestServer, publications, settings};

/// A session over HTTP, subscribed to a channel.
fn session(server: &TestServer, channel: &str) -> (Http, String) {
    let mut http = server.http();
    let id = http.handshake();
    let subscribe = json!({"id": "s", "channel": "/meta/subscribe", "subscription": channel, "clientId": id});
    assert_eq!(http.call(subscribe)["successful"], true);
    (http, id)
}

fn events(server: &TestServer, http: &Http, id: &str) -> Stream {
    open(server, http, id, "text/event-stream")
}

fn open(server: &TestServer, http: &Http, id: &str, accept: &str) -> Stream {
    let cookie = format!("BAYEUX_BROWSER={}", http.cookie.clone().unwrap_or_default());
    Stream::open(server.address(), &format!("/bayeux/{id}"), &[("accept", accept), ("cookie", &cookie)])
}

fn connect(http: &mut Http, id: &str, fields: &Value) -> Vec<Value> {
    let mut connect = json!({"id": "c", "channel": "/meta/connect", "connectionType": "eventsource", "clientId": id});
    fields.as_object().into_iter().flatten().for_each(|(key, value)| connect[key] = value.clone());
    http.post(&json!([connect])).messages()
}

#[test]
fn an_event_stream_carries_publications_and_the_replies_to_connects() {
    let server = TestServer::start(Settings { timeout_ms: 400, ..settings() });
    let (mut http, id) = session(&server, "/a");
    let mut stream = events(&server, &http, &id);
    assert_eq!(stream.head.status, 200);
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-store, no-transform"),
        ("x-accel-buffering", "no"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(stream.head.header(name), Some(value));
    }
    assert!(over_http2() || stream.head.header("connection") == Some("close"));
    assert!(stream.head.header("date").is_some_and(|date| date.ends_with(" GMT")));
    assert_eq!(stream.event().as_deref(), Some("retry: 1000"));
    assert_eq!(connect(&mut http, &id, &json!({})), [json!({})][..0], "the reply comes on the stream");
    assert_eq!(stream.messages()[0], json!({"id": "c", "channel": "/meta/connect", "successful": true}));
    let mut publisher = server.session();
    for data in 0..3 {
        publisher.publish("/a", json!({"data": data}));
        assert_eq!(stream.messages(), [json!({"channel": "/a", "data": {"data": data}})]);
    }
    connect(&mut http, &id, &json!({}));
    assert_eq!(stream.messages()[0]["successful"], true, "after its time");
    let own = http.call(json!({"id": "p", "channel": "/a", "data": 7, "clientId": id}));
    assert_eq!(own["successful"], true);
    assert_eq!(stream.messages()[0]["data"], 7);
}

#[test]
fn json_lines_carry_the_same() {
    let server = TestServer::start(settings());
    let (http, id) = session(&server, "/a");
    let mut stream = open(&server, &http, &id, "application/x-ndjson");
    assert_eq!(stream.head.header("content-type"), Some("application/x-ndjson"));
    server.session().publish("/a", json!("line\nbreak"));
    assert_eq!(stream.line(), [json!({"channel": "/a", "data": "line\nbreak"})]);
}

#[test]
fn a_client_of_http_1_0_gets_the_same_bytes() {
    let server = TestServer::start(settings());
    let (http, id) = session(&server, "/a");
    let mut tcp = server.tcp();
    let cookie = http.cookie.expect("a cookie");
    tcp.send(format!(
        "GET /bayeux/{id} HTTP/1.0\r\naccept: text/event-stream\r\ncookie: BAYEUX_BROWSER={cookie}\r\n\r\n"
    ));
    let mut text = String::new();
    while !text.ends_with("retry: 1000\n\n") {
        text += str::from_utf8(&tcp.read_some()).expect("ASCII");
    }
    assert!(!text.contains("chunked") && !text.contains("content-length"), "{text}");
    server.session().publish("/a", json!(1));
    assert_eq!(tcp.read_some(), b"data: [{\"channel\":\"/a\",\"data\":1}]\n\n");
}

#[test]
fn messages_wait_while_the_stream_is_broken_and_a_second_stream_replaces_the_first() {
    let server = TestServer::start(settings());
    let (http, id) = session(&server, "/a");
    let mut publisher = server.session();
    drop(events(&server, &http, &id));
    server.wait_for_exactly("encke_streams", 0);
    publisher.publish("/a", json!(1));
    let mut first = events(&server, &http, &id);
    assert_eq!(first.messages()[0]["data"], 1);
    let mut second = events(&server, &http, &id);
    assert_eq!(first.event().as_deref(), None, "the first ends");
    publisher.publish("/a", json!(2));
    assert_eq!(second.messages()[0]["data"], 2);
    assert_eq!(server.metric("encke_streams"), 1);
}

#[test]
fn a_session_moves_between_a_stream_a_held_connect_and_a_websocket() {
    let server = TestServer::start(settings());
    let mut poller = server.poller();
    poller.subscribe("/a");
    let mut publisher = server.session();
    poller.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
    let mut stream = events(&server, &poller.http, &poller.id);
    assert_eq!(poller.end_poll()[0]["successful"], true, "the held connect is answered");
    publisher.publish("/a", json!(1));
    assert_eq!(stream.messages()[0]["data"], 1);
    // A connect of long-polling that wants no messages changes nothing, unlike one that waits for some.
    assert_eq!(poller.poll(json!({"advice": {"timeout": 0}}))[0]["successful"], true);
    publisher.publish("/a", json!(1.5));
    assert_eq!(stream.messages()[0]["data"], 1.5);
    poller.start_poll(json!({}));
    assert_eq!(stream.event(), None);
    publisher.publish("/a", json!(2));
    assert_eq!(publications(&poller.end_poll())[0]["data"], 2);
}

#[test]
fn acknowledged_messages_come_again_on_the_next_stream() {
    let server = TestServer::start(settings());
    let mut http = server.http();
    let shake = json!([{"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["eventsource"],
        "ext": {"ack": true}}]);
    let id = http.post(&shake).messages()[0]["clientId"].as_str().expect("an id").to_owned();
    http.call(json!({"channel": "/meta/subscribe", "subscription": "/a", "clientId": id}));
    let mut stream = events(&server, &http, &id);
    connect(&mut http, &id, &json!({"ext": {"ack": 0}}));
    let first = stream.messages()[0]["ext"]["ack"].clone();
    connect(&mut http, &id, &json!({"ext": {"ack": first}}));
    server.session().publish("/a", json!(1));
    let batch = stream.messages();
    assert_eq!(batch.len(), 2, "message and reply are one event: {batch:?}");
    drop(stream);
    server.wait_for_exactly("encke_streams", 0);
    let mut stream = events(&server, &http, &id);
    connect(&mut http, &id, &json!({"ext": {"ack": first}}));
    let again = stream.messages();
    assert_eq!(again[0], batch[0]);
    connect(&mut http, &id, &json!({"ext": {"ack": again[1]["ext"]["ack"]}}));
    server.wait_for_exactly("encke_held_connects", 1);
}

#[test]
fn a_stream_reaches_its_session_on_every_shard() {
    let server = TestServer::start(Settings { shards: 4, ..settings() });
    let mut publisher = server.session();
    let mut streams: Vec<_> = (0..16)
        .map(|_| {
            let (http, id) = session(&server, "/a");
            events(&server, &http, &id)
        })
        .collect();
    server.wait_for_exactly("encke_streams", 16);
    publisher.publish("/a", json!("all"));
    streams.iter_mut().for_each(|stream| assert_eq!(stream.messages()[0]["data"], "all"));
}

#[test]
fn a_stranger_gets_no_stream() {
    let server = TestServer::start(settings());
    let (_, id) = session(&server, "/a");
    let status = |target: &str, fields: &[(&str, &str)]| {
        let accept = ("accept", "text/event-stream");
        Stream::open(server.address(), target, &[&[accept], fields].concat()).head.status
    };
    let own = format!("/bayeux/{id}");
    for target in ["/bayeux", "/bayeux/", "/bayeux/x", &format!("/bayeux/{}", "0".repeat(32)), &own.to_uppercase()] {
        assert_eq!(status(target, &[]), 404, "{target}");
    }
    // The session belongs to a browser.
    assert_eq!(status(&own, &[("cookie", &format!("BAYEUX_BROWSER={}", "0".repeat(32)))]), 404);
    assert_eq!(status(&own, &[("sec-fetch-site", "same-origin")]), 404);
    assert_eq!(status(&own, &[("origin", "http://evil.example")]), 403);
    assert_eq!(status(&own, &[("sec-fetch-site", "cross-site")]), 403);
    assert_eq!(status(&own, &[]), 200);
    let off = TestServer::start(Settings { transports: vec![TransportName::LongPolling], ..settings() });
    assert_eq!(Stream::open(off.address(), &own, &[("accept", "text/event-stream")]).head.status, 400);
}

#[test]
fn a_second_window_of_a_browser_gets_no_stream_and_polls() {
    let server = TestServer::start(settings());
    let (mut http, id) = session(&server, "/a");
    let second = http.handshake();
    let first = events(&server, &http, &id);
    server.wait_for_exactly("encke_streams", 1);
    assert_eq!(events(&server, &http, &second).head.status, 429);
    connect(&mut http, &second, &json!({}));
    let advice = connect(&mut http, &second, &json!({}))[0]["advice"].clone();
    assert_eq!(advice["multiple-clients"], true);
    drop(first);
    server.wait_for_exactly("encke_streams", 0);
    assert_eq!(events(&server, &http, &second).head.status, 200);
}

/// Bytes behind the request are no further requests: they are dropped, up to a limit.
#[test]
fn a_client_that_floods_its_stream_loses_it() {
    let server = TestServer::start(settings());
    let (http, id) = session(&server, "/a");
    let mut stream = events(&server, &http, &id);
    stream.tcp.flood(&[b'x'; 4_096]);
    server.wait_for_exactly("encke_streams", 0);
    let mut neighbour = server.neighbour();
    neighbour.lives(&server);
}

#[test]
fn a_stream_that_nobody_reads_costs_its_session_and_no_more() {
    let settings = Settings { outbox_bytes_max: 100_000, socket_send_buffer_bytes: 4_096, ..settings() };
    let server = TestServer::start(settings);
    let (http, id) = session(&server, "/a");
    let cookie = format!("BAYEUX_BROWSER={}", http.cookie.clone().unwrap_or_default());
    let fields = [("accept", "text/event-stream"), ("cookie", &*cookie)];
    let tcp = crate::common::Tcp::narrow(server.address());
    let _stream = Stream::on(tcp, server.address(), &format!("/bayeux/{id}"), &fields);
    let mut publisher = server.session();
    let text = "x".repeat(10_000);
    while server.metric("encke_slow_consumers_disconnected") == 0 {
        publisher.publish("/a", json!(text));
    }
    assert_eq!(server.metric("encke_streams"), 0);
}

/// A server on which `/stock/**` has a history.
fn market(settings: Settings) -> TestServer {
    let rule = ChannelRule { pattern: "/stock/**".into(), history_messages: 4, ..ChannelRule::default() };
    TestServer::start(Settings { channels: vec![rule], ..settings })
}

fn subscription(server: &TestServer, target: &str, fields: &[(&str, &str)]) -> Stream {
    Stream::open(server.address(), target, fields)
}

/// The id and the message of the next event that has data.
fn message(stream: &mut Stream) -> (String, Value) {
    let event = stream.event().expect("an event");
    match event.split_once("data: ") {
        Some((fields, data)) if !event.starts_with("event:") => {
            let id = fields.strip_prefix("id: ").unwrap_or_default().trim().to_owned();
            (id, serde_json::from_str(data).expect("a message"))
        }
        _ => message(stream),
    }
}

#[test]
fn a_get_is_a_subscription_that_goes_on_at_its_last_event() {
    let server = market(settings());
    let mut publisher = server.session();
    let mut stream = subscription(&server, "/stream/stock/GOOG", &[]);
    assert_eq!(stream.head.header("content-type"), Some("text/event-stream"));
    server.wait_for_exactly("encke_streams", 1);
    publisher.publish("/stock/GOOG", json!({"price": 1}));
    let (id, first) = message(&mut stream);
    assert_eq!(first, json!({"channel": "/stock/GOOG", "data": {"price": 1}, "position": id}));
    drop(stream);
    server.wait_for_exactly("encke_sessions", 1);
    publisher.publish("/stock/GOOG", json!({"price": 2}));
    let last = [("last-event-id", &*id)];
    let mut stream = subscription(&server, "/stream/stock/GOOG?after=earliest", &last);
    let (second_id, second) = message(&mut stream);
    assert_eq!(second["data"], json!({"price": 2}));
    publisher.publish("/stock/GOOG", json!({"price": 3}));
    assert_eq!(message(&mut stream).1["data"], json!({"price": 3}));
    let mut again = subscription(&server, &format!("/stream/stock/GOOG?after={second_id}"), &[]);
    assert_eq!(message(&mut again).1["data"], json!({"price": 3}));
    // A break before the first message loses nothing, either.
    let mut silent = subscription(&server, "/stream/stock/GOOG", &[]);
    silent.event();
    let id = silent.event().expect("the position at which it begins").replace("id: ", "");
    drop(silent);
    publisher.publish("/stock/GOOG", json!({"price": 4}));
    let mut stream = subscription(&server, "/stream/stock/GOOG", &[("last-event-id", &id)]);
    assert_eq!(message(&mut stream).1["data"], json!({"price": 4}));
}

#[test]
fn a_stream_with_an_interval_has_the_first_and_the_last_message() {
    for name in ["/stock/GOOG", "/stock/*"] {
        let server = market(settings());
        let mut publisher = server.session();
        let mut stream = subscription(&server, &format!("/stream{name}?min_interval_ms=200"), &[]);
        server.wait_for_exactly("encke_streams", 1);
        for price in 0..20 {
            publisher.publish("/stock/GOOG", json!({ "price": price }));
        }
        let mut prices = Vec::new();
        while prices.last() != Some(&json!(19)) {
            let Some(event) = stream.event() else { break };
            if let Some((_, data)) = event.split_once("data: ") {
                assert!(!event.contains("id: ") && !event.contains("position"), "{event}");
                let message: Value = serde_json::from_str(data).expect("JSON");
                prices.push(message["data"]["price"].clone());
            }
        }
        assert!(prices.len() < 20 && prices.first() == Some(&json!(0)), "{prices:?}");
    }
}

#[test]
fn a_gap_is_reported_before_the_messages_that_are_left() {
    let server = market(settings());
    let mut publisher = server.session();
    let mut stream = subscription(&server, "/stream/stock/GOOG", &[]);
    server.wait_for_exactly("encke_streams", 1);
    publisher.publish("/stock/GOOG", json!(0));
    let (id, _) = message(&mut stream);
    drop(stream);
    (1..10).for_each(|data| publisher.publish("/stock/GOOG", json!(data)));
    let mut stream = subscription(&server, "/stream/stock/GOOG", &[("last-event-id", &id)]);
    assert_eq!(stream.event().as_deref(), Some("retry: 1000"));
    let gap = stream.event().expect("a gap");
    assert_eq!(gap, "event: gap\ndata: {\"gap\":\"gone\",\"channel\":\"/stock/GOOG\"}");
    let data: Vec<_> = (0..4).map(|_| message(&mut stream).1["data"].clone()).collect();
    assert_eq!(data, [json!(6), json!(7), json!(8), json!(9)]);
    let mut lines = subscription(&server, &format!("/stream/stock/GOOG?format=ndjson&after={id}"), &[]);
    assert_eq!(lines.until("\n").as_deref(), Some("{\"gap\":\"gone\",\"channel\":\"/stock/GOOG\"}"));
    assert!(
        lines.until("\n").is_some_and(|line| line.starts_with("{\"channel\":\"/stock/GOOG\",\"data\":6,\"position\":"))
    );
}

#[test]
fn the_ids_of_several_channels_name_all_their_positions() {
    let server = market(settings());
    let mut publisher = server.session();
    publisher.publish("/stock/C", json!("before"));
    let mut stream = subscription(&server, "/stream/stock/*,/news", &[]);
    server.wait_for_exactly("encke_streams", 1);
    for (channel, data) in [("/stock/A", 1), ("/news", 2), ("/stock/B", 3)] {
        publisher.publish(channel, json!(data));
    }
    let got = [message(&mut stream), message(&mut stream), message(&mut stream)];
    assert_eq!(got.clone().map(|(_, message)| message["data"].clone()), [json!(1), json!(2), json!(3)]);
    let id = &got[2].0;
    assert_eq!(id.matches("/stock/").count(), 3, "{id}");
    // The first event was the last that arrived.
    let mut stream = subscription(&server, "/stream/stock/*,/news", &[("last-event-id", &got[0].0)]);
    assert_eq!(message(&mut stream).1["data"], 3);
    drop(stream);
    for channel in ["/stock/A", "/stock/C", "/stock/D"] {
        publisher.publish(channel, json!(channel));
    }
    let mut stream = subscription(&server, "/stream/stock/*,/news", &[("last-event-id", id)]);
    let mut data = [0; 3].map(|_| message(&mut stream).1["data"].to_string());
    data.sort();
    assert_eq!(data, ["\"/stock/A\"", "\"/stock/C\"", "\"/stock/D\""]);
}

#[test]
fn too_many_positions_to_name_are_a_gap_after_a_break() {
    let server = market(settings());
    (0..65).for_each(|channel| server.publish(&format!("/stock/{channel}"), "0"));
    let mut stream = subscription(&server, "/stream/stock/*", &[]);
    server.wait_for_exactly("encke_streams", 1);
    server.publish("/stock/7", "1");
    let (id, last) = message(&mut stream);
    assert_eq!((&*id, &last["data"]), ("unknown", &json!(1)));
    let mut stream = subscription(&server, "/stream/stock/*", &[("last-event-id", &id)]);
    assert_eq!(
        [stream.event(), stream.event()].map(Option::unwrap_or_default).concat(),
        "retry: 1000event: gap\ndata: {\"gap\":\"gone\"}"
    );
    server.wait_for("encke_streams", 1);
    server.publish("/stock/8", "2");
    assert_eq!(message(&mut stream).1["data"], 2);
}

/// The beginning of a stream may be longer than the buffer of the kernel.
#[test]
fn a_long_padding_arrives_whole_through_a_small_buffer() {
    let server = market(Settings { socket_send_buffer_bytes: 4_096, ..settings() });
    let mut stream = subscription(&server, "/stream/news?padding=65536", &[]);
    assert_eq!(stream.until("\n\n").as_deref(), Some("retry: 1000"));
    assert_eq!(stream.until("\n\n").map(|padding| padding.len()), Some(65_537));
    server.wait_for_exactly("encke_streams", 1);
    server.publish("/news", "1");
    assert_eq!(message(&mut stream).1["data"], 1);
}

#[test]
fn lines_and_padding_are_as_the_client_asks() {
    let server = market(settings());
    let mut lines = subscription(&server, "/stream/news?padding=3000", &[("accept", "application/x-ndjson")]);
    assert_eq!(lines.head.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(lines.until("\n").map(|line| line.len()), Some(3_000));
    server.wait_for_exactly("encke_streams", 1);
    server.session().publish("/news", json!("x"));
    assert_eq!(lines.until("\n").as_deref(), Some("{\"channel\":\"/news\",\"data\":\"x\"}"));
    let mut events = subscription(&server, "/stream/news?padding=10", &[("accept", "text/event-stream")]);
    assert_eq!(
        [events.until("\n\n"), events.until("\n\n")],
        [Some("retry: 1000".into()), Some(format!(":{}", " ".repeat(10)))]
    );
}

#[test]
fn a_request_for_no_stream_is_refused() {
    let server = market(settings());
    for (target, fields) in [
        ("/stream/", &[][..]),
        ("/stream/a//b", &[]),
        ("/stream/%ff", &[]),
        ("/stream/a?after=x", &[]),
        ("/stream/a?padding=65537", &[]),
        ("/stream/a?padding=-1", &[]),
        ("/stream/a?format=xml", &[]),
        ("/stream/a?min_interval_ms=60001", &[]),
        ("/stream/a?min_interval_ms=x", &[]),
        ("/stream/a?min_interval_ms=500&after=earliest", &[]),
        ("/stream/a,/b?after=e-1", &[]),
        ("/stream/a", &[("last-event-id", "e-1\u{b}x")]),
        ("/stream/a", &[("last-event-id", &"9".repeat(6_000))]),
        ("/stream/a", &[("content-length", "1")]),
        (&*format!("/stream{}", ",/a".repeat(65).split_off(1)), &[]),
    ] {
        assert_eq!(subscription(&server, target, fields).head.status, 400, "{target} {fields:?}");
    }
    assert_eq!(subscription(&server, "/stream/a", &[("origin", "http://evil.example")]).head.status, 403);
    assert_eq!(subscription(&server, "/stream/meta/connect", &[]).head.status, 403);
    let preflight = server.http().request("OPTIONS", "/stream/a", &[("origin", "http://evil.example")], b"");
    assert_eq!(preflight.status, 403);
    assert_eq!(server.http().request("HEAD", "/stream/a", &[], b"").status, 405);
    assert_eq!(server.metric("encke_sessions"), 0);
    let off = TestServer::start(Settings { stream_path: String::new(), ..settings() });
    assert_eq!(subscription(&off, "/stream/a", &[]).head.status, 404);
}

#[test]
fn a_drain_ends_streams_and_an_event_source_learns_when_to_come_back() {
    let server = market(Settings { drain_timeout_ms: 2_000, ..settings() });
    let mut stream = subscription(&server, "/stream/stock/GOOG", &[]);
    server.wait_for_exactly("encke_streams", 1);
    let handle = server.handle.clone();
    let stopping = std::thread::spawn(move || server.stop());
    let last = std::iter::from_fn(|| stream.event()).last();
    assert!(last.is_some_and(|event| event.starts_with("retry: ")), "when to come back");
    drop(handle);
    stopping.join().expect("a clean end");
}

#[test]
fn the_application_decides_about_a_stream_like_about_a_session() {
    let server = Server::builder()
        .settings(settings())
        .authenticate(async |handshake: Handshake| {
            tokio::task::yield_now().await;
            let user = handshake.header("authorization").ok_or(Refusal::new(401, "who"))?;
            Ok(Identity { token_id: Some(user.into()), ..Identity::of_user(user) })
        })
        .authorize_async("/**", async |access: Access| {
            tokio::task::yield_now().await;
            let is_own = access.channel().starts_with(&format!("/own/{}/", access.user()));
            if is_own { Grant::Grant } else { Grant::deny("not_yours") }
        });
    let server = TestServer::of(server);
    for (user, channels, status) in
        [(None, "/own/a/x", 401), (Some("a"), "/own/b/x", 403), (Some("a"), "/own/a/x,/own/b/x", 403)]
    {
        let fields: Vec<_> = user.map(|user| ("authorization", user)).into_iter().collect();
        assert_eq!(subscription(&server, &format!("/stream{channels}"), &fields).head.status, status, "{channels}");
    }
    assert_eq!(server.metric("encke_sessions"), 0, "nothing stays of what was refused");
    let mut stream = subscription(&server, "/stream/own/a/x,/own/a/y", &[("authorization", "a")]);
    assert_eq!(stream.head.status, 200);
    server.wait_for_exactly("encke_streams", 1);
    server.publish("/own/a/y", "1");
    assert_eq!(message(&mut stream).1["data"], 1);
    assert!(server.revoke("a", u64::MAX));
    let last = std::iter::from_fn(|| stream.event()).last().expect("an event");
    assert!(last.starts_with("event: end\ndata: ") && last.contains("401::token_revoked"), "{last}");
}
