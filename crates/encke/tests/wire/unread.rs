//! Large responses whose clients do not read, or read slowly.

use axum::Router;
use axum::routing::get;
use encke::{ApiKey, ApiKeys, ChannelRule, Scope, Server, Settings};
use serde_json::json;

use crate::common::{Http, Tcp, TestServer, publications, settings, wait_until};

const KEY: &str = "test-key-0123456789";

/// A server whose responses together have room for one large one, with three kinds of them.
fn serve() -> TestServer {
    let rule = ChannelRule { pattern: "/stored/**".into(), history_messages: 10, ..ChannelRule::default() };
    let (channels, response_timeout_ms) = (vec![rule], 600_000);
    let settings = Settings { responses_bytes_max: 1 << 20, response_timeout_ms, channels, ..settings() };
    let router = Router::new().route("/page", get(async || "x".repeat(1_000_000)));
    let server = TestServer::of(Server::builder().settings(settings).fallback(router));
    let key = ApiKey { name: "all".into(), key: KEY.into(), scopes: Scope::ALL.to_vec(), ..ApiKey::default() };
    server.handle.set_api_keys(ApiKeys::new(&[key]).expect("a valid key"));
    server.publish("/stored/a", &json!("x".repeat(900_000)).to_string());
    server.wait_for("encke_history_messages", 1);
    server
}

/// Clients that ask and do not read lose their connections long before `response_timeout_ms`, because there is no room.
/// Another one gets its response then.
fn unread_responses_are_given_up(target: &str) {
    let server = serve();
    let mut neighbour = server.neighbour();
    let clients: Vec<Tcp> = (0..6)
        .map(|_| {
            let mut tcp = Tcp::narrow(server.address());
            tcp.send(format!("GET {target} HTTP/1.1\r\nhost: {}\r\nx-api-key: {KEY}\r\n\r\n", server.address()));
            tcp
        })
        .collect();
    server.wait_for("encke_timeouts", 1);
    neighbour.lives(&server);
    wait_until("there is room", || {
        let mut http: Http = server.http();
        http.request("GET", target, &[("x-api-key", KEY)], b"").status == 200
    });
    drop(clients);
}

#[test]
fn held_requests_whose_answers_nobody_reads_are_given_up() {
    unread_responses_are_given_up("/hold/stored/a?after=earliest");
}

#[test]
fn histories_that_nobody_reads_are_given_up() {
    unread_responses_are_given_up("/api/v1/history?channel=/stored/a");
}

#[test]
fn responses_of_a_fallback_that_nobody_reads_are_given_up() {
    unread_responses_are_given_up("/page");
}

/// The kernels of both sides have taken the whole response, and its client reads on for longer than a session may be
/// silent.
#[test]
fn a_client_that_reads_a_response_steadily_does_not_expire() {
    let server = TestServer::start(Settings { max_interval_ms: 1_000, ..settings() });
    let mut poller = server.poller();
    poller.subscribe("/a");
    server.publish("/a", &json!("x".repeat(200_000)).to_string());
    let delivered = server.metric("encke_deliveries") + 1;
    poller.start_poll(json!({}));
    server.wait_for("encke_deliveries", delivered);
    poller.polls.tcp.read_ahead(50_000);
    // A session of which nothing comes ends meanwhile.
    server.http().handshake();
    server.wait_for("encke_sessions_expired", 1);
    poller.polls.tcp.read_ahead(50_000);
    assert_eq!(publications(&poller.end_poll()).len(), 1);
    assert_eq!(poller.poll(json!({"advice": {"timeout": 0}}))[0]["successful"], true);
    assert_eq!(server.metric("encke_sessions"), 1);
}
