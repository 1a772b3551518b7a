//! Plain requests to the Bayeux endpoint get what they would get from hyper, which reads the same requests behind an empty line.

use encke::Settings;

use crate::common::http2::over_http2;
use crate::common::{TestServer, settings};

/// The head of a POST with a body of this length.
fn post(fields: &str, length: usize) -> String {
    format!("POST /cometd HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {length}\r\n\r\n")
}

/// A POST of these messages.
fn messages(fields: &str, body: &str) -> String {
    post(fields, body.len()) + body
}

/// All that comes back on a connection that sends these parts, and its end when it has got so many responses, without what differs each
/// time.
fn exchanged(server: &TestServer, parts: &[&str], responses: usize) -> String {
    let mut tcp = server.tcp();
    for part in parts {
        tcp.send(part);
    }
    let shown = |tcp: &mut crate::common::Tcp| {
        let response = tcp.response()?;
        let same = response.headers.iter().filter(|(name, _)| name != "date").map(|(name, value)| {
            let value = if name == "set-cookie" { without(value, "BAYEUX_BROWSER=") } else { value.clone() };
            format!("{name}: {value}\n")
        });
        Some(format!(
            "{}\n{}\n{}",
            response.status,
            same.collect::<String>(),
            without(&response.text(), "\"clientId\":\"")
        ))
    };
    let mut all: Vec<_> = (0..responses).map(|_| shown(&mut tcp)).collect();
    tcp.shutdown_write();
    all.push(shown(&mut tcp));
    format!("{all:#?}")
}

/// A text without the client id or cookie behind these words.
fn without(line: &str, text: &str) -> String {
    let Some((before, rest)) = line.split_once(text) else { return line.into() };
    format!("{before}{text}{}", &rest[32.min(rest.len())..])
}

#[test]
fn hyper_would_answer_the_same() {
    if over_http2() {
        return;
    }
    let server = TestServer::start(Settings { message_bytes_max: 4_096, ..settings() });
    let unknown = r#"[{"channel":"/meta/connect","id":"1","clientId":"x","connectionType":"long-polling"}]"#;
    let handshake = r#"[{"channel":"/meta/handshake","version":"1.0","id":"1"}]"#;
    let form = "message=%5B%7B%22channel%22%3A%22/meta/handshake%22%2C%22id%22%3A%221%22%7D%5D";
    let jsonp = "GET /cometd?jsonp=cb&message=%5B%7B%22channel%22%3A%22/meta/connect%22%2C%22id%22%3A%221%22%7D%5D";
    let upgrade = "GET /cometd HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
    let cases = [
        (1, messages("", unknown)),
        (1, messages("", handshake)),
        (1, messages("Connection: keep-alive\r\n", handshake)),
        (1, messages("Origin: http://localhost\r\nContent-Type: application/json;charset=UTF-8\r\n", handshake)),
        (1, messages("Cookie: BAYEUX_BROWSER=00000000000000000000000000000000\r\n", unknown)),
        (1, messages("Content-Type: application/json; charset=utf-16\r\n", handshake)),
        (1, messages("Content-Encoding: gzip\r\n", handshake)),
        (1, messages("Accept-Encoding: gzip\r\n", handshake)),
        (1, messages("Origin: http://evil.example\r\n", handshake)),
        (1, messages("Sec-Fetch-Site: cross-site\r\n", handshake)),
        (1, messages("Host: other\r\n", handshake)),
        (1, messages("X: \u{e9}\r\n", unknown)),
        (1, messages("", "")),
        (1, messages("", "no JSON")),
        (1, messages("", form)),
        (1, messages("", &"[".repeat(4_096))),
        (1, post("", 4_097)),
        (1, post("", 99_999_999)),
        (0, post("", 10)),
        (0, post("", 10) + "[]"),
        (2, messages("", unknown) + &messages("", unknown)),
        (2, messages("", unknown) + "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (2, messages("", unknown) + "nonsense\r\n\r\n"),
        (1, messages("", unknown) + "POST /co"),
        (1, format!("{jsonp} HTTP/1.1\r\nHost: localhost\r\n\r\n")),
        (1, format!("{jsonp} HTTP/1.1\r\n\r\n")),
        (1, format!("{jsonp} HTTP/1.1\r\nHost: evil.example\r\n\r\n")),
        (1, "GET /cometd?jsonp=a%20b&message=[] HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        (1, "GET /cometd HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        (1, format!("{upgrade}\r\n")),
        (1, format!("{upgrade}Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEA==\r\n\r\n")),
        (1, format!("{upgrade}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEA==\r\n\r\n")),
    ];
    for (responses, case) in cases {
        let by_hyper = exchanged(&server, &["\r\n", &case], responses);
        assert_eq!(exchanged(&server, &[&case], responses), by_hyper, "{case}");
    }
}

#[test]
fn a_body_may_come_in_pieces_and_behind_its_head() {
    if over_http2() {
        return;
    }
    let server = TestServer::start(settings());
    let body = r#"[{"channel":"/meta/handshake","version":"1.0","id":"1"}]"#;
    let mut tcp = server.tcp();
    for _ in 0..3 {
        tcp.send(post("", body.len()));
        for piece in body.as_bytes().chunks(20) {
            std::thread::sleep(std::time::Duration::from_millis(5));
            tcp.send(piece);
        }
        let response = tcp.response().expect("a response");
        assert_eq!((response.status, response.text().contains("clientId")), (200, true));
    }
}

#[test]
fn a_connection_returns_from_hyper() {
    if over_http2() {
        return;
    }
    let server = TestServer::start(settings());
    let mut poller = server.poller();
    poller.subscribe("/a");
    for round in 0..3 {
        for http in [&mut poller.http, &mut poller.polls] {
            assert_eq!(http.get("/healthz").status, 200, "an answer by hyper");
        }
        let id = poller.start_poll(serde_json::json!({}));
        server.publish("/a", &round.to_string());
        let messages = poller.end_poll();
        assert_eq!((&messages[0]["data"], &messages[1]["id"]), (&serde_json::json!(round), &serde_json::json!(id)));
    }
}
