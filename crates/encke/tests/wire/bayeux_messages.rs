//! Malformed batches and messages (Bayeux 1.0 "Message fields"; rows 17, 18, 25, 31 and 39 of `docs/contributing/bad-input.md`).
//! On every transport the faulty one gets its error, and the session goes on.

use serde_json::{Value, json};

use crate::common::{TestServer, publications, reply, settings};

/// The reply to a batch that cannot be read at all.
fn refused(error: &str) -> Value {
    json!([{"successful": false, "error": error}])
}

#[test]
fn an_invalid_batch_gets_400_or_413_and_the_same_error_on_every_transport() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let deep = |levels: usize| format!("[{{\"data\":{}{}}}]", "[".repeat(levels), "]".repeat(levels));
    let cases = [
        (String::new(), 400, "400::json_invalid"),
        ("[]".into(), 400, "400::batch_empty"),
        (" [ ] ".into(), 400, "400::batch_empty"),
        ("[[]]".into(), 400, "400::message_not_object"),
        ("[null]".into(), 400, "400::message_not_object"),
        ("null".into(), 400, "400::message_not_object"),
        ("42".into(), 400, "400::message_not_object"),
        ("1e400".into(), 400, "400::message_not_object"),
        ("\"x\"".into(), 400, "400::message_not_object"),
        ("[{},7]".into(), 400, "400::message_not_object"),
        ("[{}".into(), 400, "400::json_invalid"),
        ("[{}]]".into(), 400, "400::json_invalid"),
        ("[{}]x".into(), 400, "400::json_invalid"),
        ("[{},]".into(), 400, "400::json_invalid"),
        ("{\"channel\":\"/a\",}".into(), 400, "400::json_invalid"),
        ("{'channel':'/a'}".into(), 400, "400::json_invalid"),
        ("{\"data\":NaN}".into(), 400, "400::json_invalid"),
        ("{\"data\":01}".into(), 400, "400::json_invalid"),
        ("{\"data\":\"\u{1}\"}".into(), 400, "400::json_invalid"),
        ("{\"data\":\"\\x\"}".into(), 400, "400::json_invalid"),
        ("\u{feff}[{}]".into(), 400, "400::json_invalid"),
        ("{}\n{}\n{}\n".into(), 400, "400::json_invalid"),
        ("{}\n".repeat(200_000), 400, "400::json_invalid"),
        ("\n".repeat(1_000_000), 400, "400::json_invalid"),
        ("[".repeat(1_000_000), 400, "400::json_too_deep"),
        (deep(65), 400, "400::json_too_deep"),
        (deep(500_000), 400, "400::json_too_deep"),
        (format!("[{}]", vec!["{}"; 1_001].join(",")), 413, "413::batch_too_long"),
        (format!("[{}]", vec!["{}"; 100_000].join(",")), 413, "413::batch_too_long"),
    ];
    let mut http = server.http();
    let mut ws = server.session();
    for (text, status, error) in &cases {
        let start = &text[..text.floor_char_boundary(40)];
        let response = http.post_raw(text);
        assert_eq!((response.status, json!(response.messages())), (*status, refused(error)), "{start}");
        ws.send_text(text);
        assert_eq!(ws.next_json(), refused(error), "{start}");
    }
    assert_eq!(server.metric("encke_batches_refused"), 2 * cases.len() as u64);
    ws.subscribe("/still/here");
    http.handshake();
    neighbour.lives(&server);
}

/// Row 31: bodies of only newlines or brackets.
#[test]
fn endless_bodies_get_413_before_they_are_read() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    for byte in ["\n", "["] {
        let mut tcp = server.tcp();
        tcp.send(format!("POST /cometd HTTP/1.1\r\nhost: {}\r\ncontent-length: 8000000\r\n\r\n", server.address()));
        let _cut = tcp.try_send(byte.repeat(8_000_000));
        assert_eq!(tcp.response().map(|response| response.status), Some(413), "{byte:?}");
    }
    // A string of 10 MB in chunks, without a declared length.
    let mut tcp = server.tcp();
    tcp.send(format!("POST /cometd HTTP/1.1\r\nhost: {}\r\ntransfer-encoding: chunked\r\n\r\n", server.address()));
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(65_536));
    let _cut = tcp.try_send(chunk.repeat(160));
    assert_eq!(tcp.response().map(|response| response.status), Some(413));
    neighbour.lives(&server);
}

#[test]
fn a_faulty_message_is_refused_alone_and_the_others_are_processed() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    ws.subscribe("/a");
    let id = ws.id.clone();
    let publish = |fields: &str| format!("{{\"clientId\":\"{id}\",{fields}}}");
    let long = "9".repeat(129);
    let custom: Vec<String> = (0..17).map(|number| format!("\"x{number}\":0")).collect();
    let cases = [
        (publish(r#""id":"1""#), "400::channel_missing"),
        (publish(r#""id":"1","channel":null"#), "400::channel_missing"),
        (publish(r#""id":"1","channel":7"#), "405::channel_invalid"),
        (publish(r#""id":"1","channel":["/a"]"#), "405::channel_invalid"),
        (publish(r#""id":"1","channel":"/\ud800""#), "405::channel_invalid"),
        (publish(r#""id":"1","channel":"a""#), "405::channel_invalid"),
        (publish(r#""id":"1","channel":"/a","ext":7"#), "400::ext_invalid"),
        (publish(r#""id":"1","channel":"/a","ext":[]"#), "400::ext_invalid"),
        (publish(r#""id":"a/b","channel":"/a""#), "405::message_id_invalid"),
        (publish(&format!(r#""id":"1","channel":"/a",{}"#, custom.join(","))), "413::custom_fields_max"),
        (publish(r#""id":{"a":1},"channel":"/a""#), "405::message_id_invalid"),
        (publish(r#""id":[],"channel":"/a""#), "405::message_id_invalid"),
        (publish(&format!(r#""id":"{long}","channel":"/a""#)), "405::message_id_invalid"),
    ];
    for (faulty, error) in &cases {
        let good = publish(r#""id":"2","channel":"/a","data":1"#);
        ws.send_text(&format!("[{faulty},{good}]"));
        assert_eq!(ws.next_json(), json!([{"channel": "/a", "data": 1}]), "{faulty}");
        let replies = ws.next_json();
        assert_eq!((&replies[0]["successful"], &replies[0]["error"]), (&json!(false), &json!(error)), "{faulty}");
        assert_eq!(replies[1], json!({"channel": "/a", "id": "2", "successful": true}));
    }
    assert_eq!(server.metric("encke_error_replies"), cases.len() as u64);
}

#[test]
fn a_lone_empty_object_is_a_message_without_a_channel() {
    let server = TestServer::start(settings());
    let response = server.http().post_raw("{}");
    assert_eq!((response.status, response.error().as_str()), (200, "400::channel_missing"));
}

/// The data of a publication reaches its subscribers byte for byte: nothing is parsed into numbers, strings or maps
/// on the way.
#[test]
fn strange_data_arrives_as_it_was_sent() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    ws.subscribe("/odd");
    for data in [
        "1e400",
        "-0",
        "12345678901234567890123456789",
        r#""\ud800""#,
        r#""\u0000""#,
        r#"{"a":1,"a":2}"#,
        r#"{"__proto__":{"x":1},"constructor":{"prototype":1},"toString":null}"#,
        "\"</script>\u{2028}\u{2029}\u{202e}\"",
        "null",
    ] {
        ws.send_text(&format!(r#"[{{"id":"1","channel":"/odd","clientId":"{}","data":{data}}}]"#, ws.id));
        let expected = format!(r#"[{{"channel":"/odd","data":{data}}}]"#);
        assert_eq!(ws.next_frame(), crate::common::Frame::Text(expected));
        assert_eq!(ws.next_json()[0]["successful"], true);
    }
}

#[test]
fn the_last_of_duplicate_keys_counts() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    ws.subscribe("/second");
    ws.send_text(&format!(
        r#"[{{"id":"1","channel":"/meta/disconnect","chann\u0065l":"/second","clientId":"x","clientId":"{}","data":1,"data":2}}]"#,
        ws.id
    ));
    assert_eq!(ws.next_json(), json!([{"channel": "/second", "data": 2}]));
    assert_eq!(ws.next_json()[0]["successful"], true);
}

/// Row 18.
#[test]
fn a_batch_belongs_to_one_session() {
    let server = TestServer::start(settings());
    let mut one = server.session();
    let mut other = server.session();
    other.subscribe("/b");
    let batch = json!([
        {"id": "1", "channel": "/meta/subscribe", "clientId": one.id, "subscription": "/a"},
        {"id": "2", "channel": "/b", "clientId": other.id, "data": 1},
        {"id": "3", "channel": "/meta/disconnect", "clientId": other.id},
        {"id": "4", "channel": "/b", "clientId": one.id, "data": 2},
    ]);
    one.send_json(&batch);
    let replies = one.next_json();
    let errors: Vec<_> = replies.as_array().expect("replies").iter().map(|reply| reply["error"].as_str()).collect();
    assert_eq!(errors, [None, Some("402::session_unknown"), Some("402::session_unknown"), None]);
    assert_eq!(other.next_json(), json!([{"channel": "/b", "data": 2}]), "the other session lives, and received one");
}

#[test]
fn messages_beside_a_handshake_are_refused_and_two_handshakes_open_one_session() {
    let server = TestServer::start(settings());
    let batch = json!([
        {"id": "1", "channel": "/meta/handshake", "version": "1.0"},
        {"id": "2", "channel": "/a", "data": 1},
        {"id": "3", "channel": "/meta/handshake", "version": "1.0"},
        {"id": "4", "channel": "/meta/connect", "connectionType": "long-polling"},
    ]);
    let replies = server.http().post(&batch).messages();
    assert_eq!(reply(&replies, "1")["successful"], true);
    for id in ["2", "3", "4"] {
        assert_eq!(reply(&replies, id)["error"], "402::session_unknown", "{id}");
    }
    let mut ws = server.websocket();
    ws.send_json(&batch);
    assert_eq!(ws.next_json().as_array().map(Vec::len), Some(4));
    assert_eq!(server.metric("encke_sessions"), 2);
}

/// Row 25: fields reserved for the server are not forwarded to other clients (CometD forwards all of them).
#[test]
fn clients_cannot_publish_in_the_servers_name() {
    let server = TestServer::start(settings());
    let mut listener = server.session();
    listener.subscribe("/a");
    let mut publisher = server.poller();
    let spoofed = json!({
        "id": "1", "channel": "/a", "data": 1, "ext": {"mine": true}, "foo": "bar", "__proto__": 1, "timestamp": "now",
        "advice": {"reconnect": "none"}, "successful": false, "error": "402::session_unknown",
        "subscription": "/x", "connectionType": "websocket", "version": "0", "minimumVersion": "9",
        "supportedConnectionTypes": [], "connectionId": "x", "authSuccessful": true,
    });
    let reply = publisher.call(spoofed);
    assert_eq!(reply, json!({"channel": "/a", "id": "1", "successful": true}));
    let received = listener.next_json();
    let expected =
        json!([{"channel": "/a", "data": 1, "ext": {"mine": true}, "foo": "bar", "__proto__": 1, "timestamp": "now"}]);
    assert_eq!(received, expected);
}

#[test]
fn a_reply_reflects_only_required_fields() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    let reply = ws
        .call(json!({"id": "constructor", "channel": "/meta/subscribe", "subscription": "/toString/__proto__",
        "ext": {"admin": true}, "advice": {"reconnect": "none"}, "error": "x", "foo": "bar", "successful": false}));
    let expected = json!({"id": "constructor", "channel": "/meta/subscribe", "subscription": "/toString/__proto__", "successful": true});
    assert_eq!(reply, expected);
}

/// Row 39: characters that could break a log are refused in names or logged escaped.
#[test]
fn line_breaks_and_escapes_in_names_are_refused() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    for name in ["/a\nERROR all is lost", "/a\r\n", "/a\u{1b}[31m", "/a\u{85}"] {
        let reply = ws.call(json!({"id": "1", "channel": "/meta/subscribe", "subscription": name}));
        assert_eq!(reply["error"], "405::channel_invalid", "{name:?}");
        let reply = ws.call(json!({"id": "2", "channel": name, "data": 1}));
        assert_eq!(reply["error"], "405::channel_invalid", "{name:?}");
    }
}

#[test]
fn advice_of_the_wrong_kind_is_no_advice() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    for advice in [json!(7), json!("x"), json!([1]), json!(null), json!({"timeout": "0"}), json!({"timeout": {}})] {
        let held = ws.mine(json!({"id": "c", "channel": "/meta/connect", "advice": advice}));
        ws.send_json(&json!([held]));
        // The connect is held like any other: the next message is the reply to something else.
        let reply = ws.call(json!({"id": "s", "channel": "/meta/subscribe", "subscription": "/a"}));
        assert_eq!(reply["successful"], true, "{advice}");
    }
}

#[test]
fn a_publication_without_data_is_delivered_without_data() {
    let server = TestServer::start(settings());
    let mut poller = server.poller();
    poller.subscribe("/a");
    let mut messages = poller.http.post(&json!([{"id": "1", "channel": "/a", "clientId": poller.id}])).messages();
    messages.extend(poller.poll(json!({"advice": {"timeout": 0}})));
    assert_eq!(publications(&messages), [json!({"channel": "/a"})]);
}
