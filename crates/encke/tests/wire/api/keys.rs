//! Keys: who may use the API, and from where.

use encke::{ApiKeys, Scope, Settings};

use super::{KEY, keys, problem};
use crate::common::{Response, TestServer, settings};

const READER: &str = "reader-key-0123456789";

fn info(server: &TestServer, headers: &[(&str, &str)]) -> Response {
    server.http().request("GET", "/api/v1/info", headers, b"")
}

#[test]
fn a_key_is_needed_and_must_be_valid() {
    let server = TestServer::start(settings());
    let status = |headers: &[(&str, &str)]| info(&server, headers).status;
    assert_eq!(status(&[("x-api-key", KEY)]), 401, "there is no key at all");
    server.handle.set_api_keys(keys(&[("all", KEY, &Scope::ALL)]));
    let bearer = format!("Bearer {KEY}");
    assert_eq!((status(&[("x-api-key", KEY)]), status(&[("authorization", &bearer)])), (200, 200));
    let cut = &KEY[..KEY.len() - 1];
    for headers in [
        &[][..],
        &[("x-api-key", "")],
        &[("x-api-key", cut)],
        &[("x-api-key", "wrong-key-0123456789")],
        &[("authorization", KEY)],
        &[("authorization", "Basic dGVzdDp0ZXN0")],
        &[("x-api-key", KEY), ("authorization", &bearer)],
        &[("x-api-key", KEY), ("x-api-key", KEY)],
    ] {
        let response = info(&server, headers);
        assert_eq!((response.status, response.header("www-authenticate")), (401, Some("Bearer")), "{headers:?}");
        assert_eq!(problem(&response)["type"], "urn:encke:problem:unauthorized");
    }
    assert_eq!(server.metric("encke_api_keys_refused"), 9);
}

#[test]
fn a_key_may_do_what_its_scopes_allow_and_no_more() {
    let server = TestServer::start(settings());
    server.handle.set_api_keys(keys(&[("reader", READER, &[Scope::Read])]));
    let mut http = server.http();
    assert_eq!(info(&server, &[("x-api-key", READER)]).status, 200);
    let json = ("content-type", "application/json");
    for path in [
        "/publish",
        "/publish/batch",
        "/deliver",
        "/disconnect",
        "/subscribe",
        "/unsubscribe",
        "/revoke",
        "/session-store/scavenge",
        "/session-store/purge",
    ] {
        let path = format!("/api/v1{path}");
        let response = http.again().request("POST", &path, &[("x-api-key", READER), json], b"{}");
        assert_eq!(response.status, 403, "{path}");
        assert!(problem(&response)["detail"].as_str().is_some_and(|detail| detail.contains("lacks the scope")));
    }
    assert_eq!(http.request("DELETE", "/api/v1/history?channel=/a", &[("x-api-key", READER)], b"").status, 403);
}

#[test]
fn a_revoked_key_is_refused_at_once_also_on_an_open_connection() {
    let server = TestServer::start(settings());
    server.handle.set_api_keys(keys(&[("all", KEY, &Scope::ALL), ("reader", READER, &[Scope::Read])]));
    let mut http = server.http();
    let mut status = |key| http.request("GET", "/api/v1/info", &[("x-api-key", key)], b"").status;
    assert_eq!((status(KEY), status(READER)), (200, 200));
    server.handle.set_api_keys(keys(&[("reader", READER, &[Scope::Read])]));
    assert_eq!((status(KEY), status(READER)), (401, 200));
    server.handle.set_api_keys(ApiKeys::default());
    assert_eq!(status(READER), 401);
}

#[test]
fn programs_on_this_machine_need_no_key_only_if_the_settings_say_so() {
    let server = TestServer::start(settings());
    assert_eq!(info(&server, &[]).status, 401);
    let server = TestServer::start(Settings { api_loopback: true, ..settings() });
    assert_eq!(info(&server, &[]).status, 200);
    // A proxy, a foreign name, a page, and a wrong key are no program on this machine without a key.
    for header in [
        ("x-forwarded-for", "192.0.2.7"),
        ("via", "1.1 proxy"),
        ("host", "192.0.2.7"),
        ("origin", "http://evil.example"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "cors"),
        ("x-api-key", "wrong-key-0123456789"),
    ] {
        assert_eq!(info(&server, &[header]).status, 401, "{header:?}");
    }
    assert_eq!(named(&server, "/api/v1/info"), [401, 401, 200]);
}

/// The statuses of requests that name a foreign host in the field, in the target, and in neither.
fn named(server: &TestServer, path: &str) -> [u16; 3] {
    let here = server.address();
    [(here.to_string(), "192.0.2.7"), ("192.0.2.7".into(), "127.0.0.1"), (here.to_string(), "localhost")].map(
        |(target, host)| server.http().request("GET", &format!("http://{target}{path}"), &[("host", host)], b"").status,
    )
}

#[test]
fn metrics_are_for_this_machine_and_for_keys_with_their_scope() {
    let server = TestServer::start(settings());
    server.handle.set_api_keys(keys(&[("scraper", KEY, &[Scope::Metrics]), ("reader", READER, &[Scope::Read])]));
    let scrape = |headers: &[(&str, &str)]| server.http().request("GET", "/metrics", headers, b"").status;
    let proxied = ("x-forwarded-for", "192.0.2.7");
    assert_eq!((scrape(&[]), scrape(&[proxied])), (200, 403));
    assert_eq!(named(&server, "/metrics"), [403, 403, 200]);
    let closed = TestServer::start(Settings { metrics_loopback: false, ..settings() });
    assert_eq!(closed.http().request("GET", "/metrics", &[], b"").status, 403);
    let bearer = format!("Bearer {KEY}");
    assert_eq!((scrape(&[proxied, ("authorization", &bearer)]), scrape(&[proxied, ("x-api-key", READER)])), (200, 403));
}
