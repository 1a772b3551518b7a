//! Callback-polling: the functions a script may call, and the injections it must resist (rows 28 and 29 of
//! `docs/contributing/bad-input.md`).

use encke::Settings;
use serde_json::{Value, json};

use crate::common::{Http, Response, TestServer, publications, settings};

/// As a query component.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn call(http: &mut Http, callback: &str, messages: &Value) -> Response {
    http.get(&format!("/cometd?jsonp={}&message={}", encoded(callback), encoded(&messages.to_string())))
}

/// The messages in a script.
#[track_caller]
fn unwrapped(response: &Response, callback: &str) -> Vec<Value> {
    let text = response.text();
    let json = text.strip_prefix(&format!("/**/{callback}(")).and_then(|text| text.strip_suffix(");"));
    serde_json::from_str(json.unwrap_or_else(|| panic!("no call of {callback}: {text}"))).expect("JSON")
}

fn handshake() -> Value {
    json!([{"id": "1", "channel": "/meta/handshake", "version": "1.0"}])
}

#[test]
fn an_invalid_callback_name_gets_400() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let refused = server.metric("encke_requests_refused");
    let names = [
        "",
        "<script>alert(1)</script>",
        "a</script>",
        "a\n",
        "a\r\nset-cookie: x=1",
        "a\u{2028}",
        "a\u{2029}b",
        "a\0",
        "alert(1);//",
        "a[0]",
        "a['b']",
        "a;b",
        "a=b",
        "a b",
        "a..b",
        ".a",
        "a.",
        "1a",
        "\u{e9}",
        "a/*",
        "-->",
        "a`b`",
        "a\u{ff0e}b",
    ];
    for name in names {
        let response = call(&mut server.http(), name, &handshake());
        assert_eq!(response.status, 400, "{name:?}");
        assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
        assert!(!response.text().contains(['<', '(']), "nothing is reflected");
    }
    assert_eq!(server.metric("encke_requests_refused"), refused + names.len() as u64);
    assert_eq!(server.metric("encke_sessions"), 1, "only the neighbour's");
    neighbour.lives(&server);
}

#[test]
fn names_of_real_clients_are_called() {
    let server = TestServer::start(settings());
    for name in ["_cometd_jsonp_42", "__jsonp12__", "jsonpcallback", "dojo.io.script.jsonp_1", "$"] {
        let response = call(&mut server.http(), name, &handshake());
        assert_eq!(unwrapped(&response, name)[0]["successful"], true, "{name}");
    }
}

/// CVE-2014-4671: a callback name that is a Flash film in letters and digits does not begin the response, and the
/// response is a download.
#[test]
fn a_script_has_the_headers_and_form_of_a_script() {
    let server = TestServer::start(settings());
    let film = "CWSMIKI0hCD0Up0IZUnnnnnnnnnnnnnnnnnnnUU5nnnnnn3Snn7iiudIbEAt333w";
    let response = call(&mut server.http(), film, &handshake());
    assert!(response.text().starts_with("/**/CWS"));
    for (name, value) in [
        ("content-type", "text/javascript; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
        ("content-disposition", "attachment; filename=f.txt"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(response.header(name), Some(value));
    }
}

#[test]
fn data_cannot_break_out_of_the_script() {
    let server = TestServer::start(settings());
    let mut poller = server.poller();
    poller.subscribe("/a");
    let data = "</script><!--\u{2028}\u{2029}]]>";
    server.publish("/a", &json!(data).to_string());
    let connect = poller.connect_message("2", json!({"connectionType": "callback-polling"}));
    let response = call(&mut poller.http, "cb", &connect);
    let text = response.text();
    assert!(!text.contains(['<', '\u{2028}', '\u{2029}']), "{text}");
    assert_eq!(publications(&unwrapped(&response, "cb")), [json!({"channel": "/a", "data": data})]);
}

#[test]
fn requests_without_a_valid_call_get_400() {
    let server = TestServer::start(settings());
    let mut http = server.http();
    let message = encoded(&handshake().to_string());
    for target in [
        format!("/cometd?message={message}"),
        "/cometd?jsonp=cb".into(),
        format!("/cometd?jsonp=a&jsonp=b&message={message}"),
        format!("/cometd?JSONP=cb&message={message}"),
        "/cometd?jsonp=cb&message=".into(),
        "/cometd?jsonp=cb&message=%5B".into(),
        "/cometd?jsonp=cb&message=%ff%fe".into(),
        format!("/cometd?jsonp=cb&x=%ff&message={message}"),
        format!("/cometd?jsonp=cb%ff&message={message}"),
    ] {
        let response = http.get(&target);
        assert_eq!(response.status, 400, "{target}");
        assert_ne!(response.header("content-type"), Some("text/javascript; charset=utf-8"));
    }
}

#[test]
fn a_message_longer_than_a_request_line_may_be_gets_431_or_414() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    for bytes in [20_000, 70_000] {
        let mut tcp = server.tcp();
        let target = format!("/cometd?jsonp=cb&message=%5B%22{}%22%5D", "x".repeat(bytes));
        let _cut = tcp.try_send(format!("GET {target} HTTP/1.1\r\nhost: {}\r\n\r\n", server.address()));
        assert!(matches!(tcp.response().map(|response| response.status), Some(431 | 414)), "{bytes}");
    }
    neighbour.lives(&server);
}

#[test]
fn callback_polling_can_be_switched_off() {
    let transports = vec![encke::TransportName::Websocket, encke::TransportName::LongPolling];
    let server = TestServer::start(Settings { transports, ..settings() });
    assert_eq!(call(&mut server.http(), "cb", &handshake()).status, 400);
    let reply = server.http().post(&handshake()).messages();
    assert_eq!(reply[0]["supportedConnectionTypes"], json!(["websocket", "long-polling"]));
}

/// A session over scripts: its own messages wait for the connect (CometD 9 §2.4).
#[test]
fn messages_come_with_connects_only() {
    let server = TestServer::start(settings());
    let mut http = server.http();
    let reply = call(&mut http, "cb", &handshake());
    http.cookie = reply.header("set-cookie").and_then(|line| line.split(['=', ';']).nth(1)).map(String::from);
    let id = unwrapped(&reply, "cb")[0]["clientId"].clone();
    let connect =
        json!([{"id": "2", "channel": "/meta/connect", "connectionType": "callback-polling", "clientId": id}]);
    call(&mut http, "cb", &connect);
    let subscribe = json!([{"id": "3", "channel": "/meta/subscribe", "subscription": "/a", "clientId": id}]);
    call(&mut http, "cb", &subscribe);
    let publish = json!([{"id": "4", "channel": "/a", "data": 1, "clientId": id}]);
    let published = unwrapped(&call(&mut http, "cb", &publish), "cb");
    assert_eq!(published, [json!({"channel": "/a", "id": "4", "successful": true})]);
    let connected = unwrapped(&call(&mut http, "cb2", &connect), "cb2");
    assert_eq!(connected[0], json!({"channel": "/a", "data": 1}));
    assert_eq!(connected[1]["channel"], "/meta/connect");
}
