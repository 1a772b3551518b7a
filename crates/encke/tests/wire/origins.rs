//! Pages that may use the server (RFC 6454, Fetch §3.2; rows 1, 2, 29 and 30 of `docs/contributing/bad-input.md`).

use encke::Settings;
use serde_json::json;

use crate::common::tls::scheme;
use crate::common::{TestServer, Ws, settings};

/// Origins that resemble the server's, or are malformed; `{}` is the server's host and port.
const FOREIGN: [&str; 14] = [
    "null",
    "http://evil.example",
    "http://evil-{}",
    "http://{}.evil.example",
    "http://{}.",
    "http://{}/",
    "http://{}@evil.example",
    "http://evil.example#{}",
    "ftp://{}",
    "file://",
    "http://127.0.0.1:1",
    "http://xn--lcalhost-n4a",
    "http://l\u{f6}calhost",
    "http://*",
];

/// Sends a request of a page. Returns the status and whether a cookie was set.
fn post(server: &TestServer, headers: &[(&str, &str)]) -> (u16, bool) {
    let mut http = server.http();
    let handshake = br#"[{"channel":"/meta/handshake","version":"1.0"}]"#;
    let response = http.request("POST", "/cometd", headers, handshake);
    (response.status, response.header("set-cookie").is_some())
}

fn upgrade(server: &TestServer, headers: &[(&str, &str)]) -> u16 {
    let mut tcp = server.tcp();
    tcp.send(Ws::request(server.address(), headers));
    tcp.response().expect("a response").status
}

#[test]
fn pages_of_other_origins_get_403_on_every_transport() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let host = server.address().to_string();
    for origin in FOREIGN.map(|origin| origin.replace("{}", &host)) {
        let headers = [("origin", origin.as_str())];
        assert_eq!(post(&server, &headers), (403, false), "{origin}");
        assert_eq!(upgrade(&server, &headers), 403, "{origin}");
        let script = server.http().request("GET", "/cometd?jsonp=f&message=%5B%7B%7D%5D", &headers, b"");
        assert_eq!(script.status, 403, "{origin}");
        assert_eq!(server.http().request("OPTIONS", "/cometd", &headers, b"").status, 403, "{origin}");
        assert_eq!(script.header("access-control-allow-origin"), None);
    }
    assert_eq!(server.metric("encke_origins_refused"), 4 * FOREIGN.len() as u64);
    neighbour.lives(&server);
}

#[test]
fn repeated_and_very_long_origins_are_foreign() {
    let server = TestServer::start(settings());
    let own = format!("http://{}", server.address());
    let double = [("origin", own.as_str()), ("origin", own.as_str())];
    assert_eq!(post(&server, &double), (403, false));
    assert_eq!(upgrade(&server, &double), 403);
    let long = format!("http://{}", "a".repeat(8_000));
    assert_eq!(post(&server, &[("origin", &long)]), (403, false));
    let mut tcp = server.tcp();
    let _cut = tcp.try_send(Ws::request(server.address(), &[("origin", &"a".repeat(65_536))]));
    assert_eq!(tcp.response().map(|response| response.status), Some(431));
}

#[test]
fn own_pages_and_programs_are_allowed() {
    let server = TestServer::start(settings());
    let port = server.address().port();
    let origin = format!("{}://127.0.0.1:{port}", scheme());
    for origin in [origin.clone(), origin.to_uppercase().to_lowercase()] {
        assert_eq!(post(&server, &[("origin", &origin)]), (200, true));
        assert_eq!(upgrade(&server, &[("origin", &origin)]), 101);
    }
    let named = format!("localhost:{port}");
    let origin = format!("{}://LOCALHOST:{port}", scheme());
    assert_eq!(post(&server, &[("host", &named), ("origin", &origin)]), (200, true));
    assert_eq!(post(&server, &[]), (200, true), "a program names no origin");
    assert_eq!(upgrade(&server, &[]), 101);
}

/// DNS rebinding: a page of evil.example, whose name now points to this machine.
#[test]
fn a_foreign_name_that_resolves_to_loopback_is_foreign() {
    let server = TestServer::start(settings());
    let host = format!("evil.example:{}", server.address().port());
    let origin = format!("http://{host}");
    assert_eq!(post(&server, &[("host", &host), ("origin", &origin)]), (421, false));
}

/// Cross-site WebSocket hijacking: the browser adds the victim's cookie to every connection that a foreign page
/// opens.
#[test]
fn a_foreign_page_cannot_use_a_victims_cookie() {
    let server = TestServer::start(settings());
    let mut victim = server.poller();
    victim.subscribe("/private");
    let cookie = format!("BAYEUX_BROWSER={}", victim.http.cookie.clone().expect("a cookie"));
    let headers = [("origin", "http://evil.example"), ("cookie", cookie.as_str())];
    assert_eq!(upgrade(&server, &headers), 403);
    let disconnect = json!([{"channel": "/meta/disconnect", "clientId": victim.id}]).to_string();
    let response = server.http().request("POST", "/cometd", &headers, disconnect.as_bytes());
    assert_eq!(response.status, 403);
    server.publish("/private", "1");
    assert_eq!(victim.poll(json!({}))[0], json!({"channel": "/private", "data": 1}), "the session lives");
}

#[test]
fn an_allowed_origin_gets_exact_cors_headers() {
    let allowed_origins = vec!["https://app.example".into()];
    let server = TestServer::start(Settings { allowed_origins, ..settings() });
    let headers = [("origin", "https://app.example")];
    let handshake = br#"[{"channel":"/meta/handshake"}]"#;
    let response = server.http().request("POST", "/cometd", &headers, handshake);
    assert_eq!(response.status, 200);
    assert_eq!(response.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(response.header("access-control-allow-credentials"), Some("true"));
    // A cache must not serve this response to a page of another origin.
    assert_eq!(response.header("vary"), Some("origin"));
    assert_eq!(upgrade(&server, &headers), 101);
    for origin in
        ["https://app.example.evil.io", "https://evil-app.example", "http://app.example", "https://app.example:8443"]
    {
        assert_eq!(post(&server, &[("origin", origin)]), (403, false), "{origin}");
    }
}

#[test]
fn a_preflight_is_answered_for_that_origin_only() {
    let allowed_origins = vec!["https://app.example".into()];
    let server = TestServer::start(Settings { allowed_origins, ..settings() });
    let ask = |origin: &str| {
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "content-type, x-evil"),
        ];
        server.http().request("OPTIONS", "/cometd", &headers, b"")
    };
    let answer = ask("https://app.example");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(answer.header("access-control-allow-methods"), Some("POST, GET, OPTIONS"));
    assert!(!answer.header("access-control-allow-headers").expect("headers").contains("x-evil"), "nothing is echoed");
    assert_eq!(answer.header("vary"), Some("origin"));
    assert_eq!(ask("https://evil.example").status, 403);
}

#[test]
fn a_wildcard_origin_gets_no_credentials() {
    let server = TestServer::start(Settings { allowed_origins: vec!["*".into()], ..settings() });
    let handshake = br#"[{"channel":"/meta/handshake"}]"#;
    let response = server.http().request("POST", "/cometd", &[("origin", "https://any.example")], handshake);
    assert_eq!(response.header("access-control-allow-origin"), Some("*"));
    assert_eq!(response.header("access-control-allow-credentials"), None);
}

/// A script element sends no origin; other fields of the browser decide.
#[test]
fn a_script_element_of_another_site_gets_nothing() {
    let server = TestServer::start(settings());
    let target = "/cometd?jsonp=f&message=%5B%7B%22channel%22%3A%22%2Fmeta%2Fhandshake%22%7D%5D";
    for headers in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("sec-fetch-site", "same-site")],
        &[("referer", "http://evil.example/page")],
        &[("sec-fetch-site", "cross-site"), ("referer", "http://127.0.0.1/")],
    ] {
        let response = server.http().request("GET", target, headers, b"");
        assert_eq!((response.status, response.header("set-cookie")), (403, None), "{headers:?}");
    }
    assert_eq!(server.http().request("GET", target, &[("sec-fetch-site", "same-origin")], b"").status, 200);
    assert_eq!(server.http().get(target).status, 200);
}

/// A script element cannot read an array: the response is either a call of the named function or no script.
#[test]
fn a_plain_get_never_returns_an_array() {
    let server = TestServer::start(settings());
    for target in ["/cometd", "/cometd?message=%5B%7B%7D%5D", "/cometd/handshake"] {
        let response = server.http().get(target);
        assert_eq!((response.status, response.header("content-type")), (400, Some("text/plain; charset=utf-8")));
    }
}
