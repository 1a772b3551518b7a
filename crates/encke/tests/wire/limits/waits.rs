//! Limits of messages that wait for the application.

use std::time::{Duration, SystemTime};

use encke::{ChannelRule, Settings, SlowConsumer};
use serde_json::json;

use crate::common::{TestServer, settings, wait_until};
use crate::decisions::Gate;

/// Lets two batches of one address wait. Returns the reply to a third one: it has its part.
fn third(settings: Settings) -> serde_json::Value {
    let server = Gate::closed().serve(settings);
    let mut neighbour = server.neighbour();
    let mut sessions: Vec<_> = (0..2).map(|_| server.session()).collect();
    for ws in &mut sessions {
        let data = format!("gate{}", "x".repeat(2_000));
        ws.send_json(&json!([ws.mine(json!({"id": "1", "channel": "/a", "data": data}))]));
    }
    server.wait_for_exactly("encke_decisions_waiting", 2);
    let reply = server.session().call(json!({"id": "2", "channel": "/a", "data": "gate"}));
    assert_eq!(server.metric("encke_decisions_refused"), 1);
    neighbour.lives(&server);
    reply
}

#[test]
fn decisions_waiting_max_refuses_one_more_message() {
    let reply = third(Settings { decisions_waiting_max: 3, ..settings() });
    assert_eq!(reply["error"], "503::decisions_waiting_max");
}

#[test]
fn decisions_waiting_bytes_max_refuses_one_more_message() {
    let reply = third(Settings { decisions_waiting_bytes_max: 5_000, ..settings() });
    assert_eq!(reply["error"], "503::decisions_waiting_max");
}

/// Makes two calls from each of two sessions, which wait, and a last one from each. Returns the errors of the last.
fn last(settings: Settings) -> Vec<Option<String>> {
    let server = Gate::closed().serve(settings);
    let mut sessions: Vec<_> = (0..2).map(|_| server.session()).collect();
    let call = |ws: &mut crate::common::Ws, id: &str| {
        ws.call(json!({"id": id, "channel": "/service/x", "data": "gate"}))["error"].as_str().map(String::from)
    };
    let ids = ["1", "2", "3"];
    let errors: Vec<_> = sessions.iter_mut().map(|ws| ids.map(|id| call(ws, id))).collect();
    let refused = errors.iter().flatten().filter(|error| error.is_some()).count() as u64;
    assert_eq!(server.metric("encke_calls_refused"), refused);
    errors.into_iter().flatten().collect()
}

#[test]
fn calls_waiting_max_refuses_one_more_call() {
    let refused = Some("503::calls_waiting_max".to_owned());
    let errors = last(Settings { calls_waiting_max: 4, ..settings() });
    // All come from one address: it leaves one call to other addresses, and its first session one to the second.
    assert_eq!(errors, [None, None, refused.clone(), None, refused.clone(), refused]);
}

#[test]
fn calls_waiting_per_session_max_refuses_one_more_call_of_a_session() {
    let refused = Some("503::calls_waiting_max".to_owned());
    let errors = last(Settings { calls_waiting_per_session_max: 2, ..settings() });
    assert_eq!(errors, [None, None, refused.clone(), None, None, refused]);
}

/// A session has most of them when it is alone, and leaves room for small calls of others.
#[test]
fn calls_waiting_bytes_max_refuses_one_more_call() {
    let server = Gate::closed().serve(Settings { calls_waiting_bytes_max: 64_000, ..settings() });
    let mut neighbour = server.neighbour();
    let long = |bytes: usize| json!({"id": "1", "channel": "/service/x", "data": format!("gate{}", "x".repeat(bytes))});
    let mut sessions: Vec<_> = (0..2).map(|_| server.session()).collect();
    let errors: Vec<_> = (0..16).map(|_| sessions[0].call(long(4_000))["error"].clone()).collect();
    let accepted = errors.iter().take_while(|error| error.is_null()).count();
    assert!((8..12).contains(&accepted), "{errors:?}");
    assert!(errors[accepted..].iter().all(|error| error == "503::calls_waiting_max"), "{errors:?}");
    assert_eq!(sessions[1].call(long(300))["error"], json!(null));
    assert_eq!(server.metric("encke_calls_refused"), 16 - accepted as u64);
    neighbour.lives(&server);
}

/// Tokens that have expired make room.
#[test]
fn revoked_tokens_max_refuses_one_more_token() {
    let server = TestServer::start(Settings { revoked_tokens_max: 2, ..settings() });
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let ms = |time: Duration| u64::try_from(time.as_millis()).expect("a near time");
    let (before, later) = (ms(now - Duration::from_secs(9)), ms(now + Duration::from_secs(3_600)));
    assert!(server.revoke("a", later) && server.revoke("b", before));
    assert!(server.revoke("c", later), "b has expired");
    assert!(!server.revoke("d", later) && server.revoke("a", later));
    server.wait_for_exactly("encke_tokens_revoked", 2);
}

/// Requests wait while the account of bytes between shards is full. Whether some wait at the same time depends on the shards, so they come
/// until they have.
#[test]
fn waiting_requests_bytes_max_refuses_one_more_request() {
    let rule = ChannelRule { pattern: "/a".into(), slow_consumer: SlowConsumer::DropOldest, ..ChannelRule::default() };
    let server = TestServer::start(Settings {
        mailbox_bytes_max: 1,
        waiting_requests_bytes_max: 1,
        channels: vec![rule],
        shards: 2,
        ..settings()
    });
    let mut ears: Vec<_> = (0..4).map(|_| server.session()).collect();
    ears.iter_mut().for_each(|ws| ws.subscribe("/a"));
    let mut publisher = server.session();
    let body = super::message_of(60_000);
    let head = format!("POST /cometd HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n\r\n", server.address(), body.len());
    let mut https: Vec<_> = (0..8).map(|_| server.tcp()).collect();
    let mut refusal = None;
    wait_until("a request is refused", || {
        for _ in 0..10 {
            let message = |data| publisher.mine(json!({"channel": "/a", "data": data, "ext": {"reply": false}}));
            publisher.send_json(&json!((0..500).map(message).collect::<Vec<_>>()));
        }
        https.iter_mut().for_each(|http| http.send([&*head, &*body].concat()));
        let responses = https.iter_mut().map(|http| http.response().expect("an answer"));
        refusal = responses.filter(|response| response.status == 503).last();
        refusal.is_some()
    });
    assert_eq!(refusal.expect("refused").header("retry-after"), Some("5"));
    assert!(server.metric("encke_waiting_requests_refused") > 0);
    server.wait_for_exactly("encke_waiting_requests_bytes", 0);
}
