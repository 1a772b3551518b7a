//! Sessions whose terms differ from the settings: from their authenticator, by a handle, by the HTTP API, over a restart.

use encke::{
    ApiKey, ApiKeys, Handshake, Identity, Refusal, Scope, Server, SessionTerms, SessionTermsChangeError, Settings,
};
use serde_json::{Value, json};

use crate::common::{Folder, Poller, Response, TestServer, publications, reply, settings, wait};
use crate::restarts::moved;

const KEY: &str = "test-key-0123456789";

/// Gives sessions of kiosks a long time to sleep.
async fn authenticate(handshake: Handshake) -> Result<Identity, Refusal> {
    let user = handshake.header("x-user").unwrap_or_default().to_owned();
    let terms = SessionTerms { interval_ms: Some(250), max_interval_ms: Some(3_600_000), ..SessionTerms::default() };
    let identity = Identity::of_user(&user);
    Ok(if user == "kiosk" { identity.with_terms(terms) } else { identity })
}

fn serve(settings: Settings) -> TestServer {
    let server = TestServer::of(Server::builder().settings(settings).authenticate(authenticate));
    let key = ApiKey { name: "all".into(), key: KEY.into(), scopes: Scope::ALL.to_vec(), ..ApiKey::default() };
    server.handle.set_api_keys(ApiKeys::new(&[key]).expect("valid keys"));
    server
}

fn kiosk(server: &TestServer) -> (Poller, Value) {
    let mut http = server.http();
    let handshake = json!([{"id": "h", "channel": "/meta/handshake", "version": "1.0",
        "supportedConnectionTypes": ["long-polling"]}]);
    let headers = [("content-type", "application/json"), ("x-user", "kiosk")];
    let response = http.request("POST", "/cometd", &headers, handshake.to_string().as_bytes());
    let reply = reply(&response.messages(), "h");
    (Poller::of(reply["clientId"].as_str().expect("an id").into(), http), reply)
}

fn post_terms(server: &TestServer, session: &str, terms: &Value) -> Response {
    let body = json!({"session": session, "terms": terms}).to_string();
    let headers = [("content-type", "application/json"), ("x-api-key", KEY)];
    server.http().request("POST", "/api/v1/terms", &headers, body.as_bytes())
}

/// The advice of the next connect, which is answered at once.
fn advised(poller: &mut Poller) -> Value {
    let messages = poller.poll(json!({"advice": {"timeout": 0}}));
    let connected = messages.iter().find(|message| message["channel"] == "/meta/connect");
    connected.expect("a reply")["advice"].clone()
}

#[test]
fn terms_come_from_the_authenticator_a_handle_and_the_api_and_survive_a_restart() {
    let folder = Folder::new();
    let keeping = Settings { data: folder.name(), shards: 2, ..settings() };
    let server = serve(keeping.clone());
    let (mut poller, handshake) = kiosk(&server);
    assert_eq!(handshake["advice"]["interval"], 250);
    advised(&mut poller);
    let terms = SessionTerms { timeout_ms: Some(7_000), ..SessionTerms::default() };
    wait(server.handle.set_session_terms(&poller.id, terms)).expect("it lives");
    assert_eq!(advised(&mut poller)["timeout"], 7_000);
    server.stop();

    let server = serve(keeping);
    let mut poller = moved(&poller, &server);
    assert_eq!(advised(&mut poller), json!({"reconnect": "retry", "interval": 250, "timeout": 7_000}));
    assert_eq!(post_terms(&server, &poller.id, &json!({"interval_ms": 0})).status, 200);
    assert_eq!(advised(&mut poller)["interval"], 0);
    assert_eq!(post_terms(&server, &poller.id, &json!({})).status, 200);
    assert_eq!(advised(&mut poller)["interval"], 250, "those of its identity hold again");
}

#[test]
fn a_session_that_does_not_want_its_own_messages_gets_those_of_others() {
    let server = serve(settings());
    let mut poller = server.poller();
    poller.subscribe("/a");
    assert_eq!(post_terms(&server, &poller.id, &json!({"broadcast_to_publisher": false})).status, 200);
    poller.call(json!({"id": "p", "channel": "/a", "data": "own"}));
    server.publish("/a", "\"other\"");
    server.wait_for_queued([&poller.id], 1);
    assert_eq!(publications(&poller.poll(json!({}))), [json!({"channel": "/a", "data": "other"})]);
}

#[test]
fn terms_out_of_range_and_sessions_that_are_not_there_are_refused() {
    let server = serve(settings());
    let poller = server.poller();
    for (terms, pointer) in [
        (json!({"timeout_ms": 0}), "#/terms/timeout_ms"),
        (json!({"interval_ms": 2_000_000_000_000_u64}), "#/terms/interval_ms"),
        (json!({"interval_ms": -1}), "#/terms/interval_ms"),
        (json!({"timeout": 1}), "#/terms/timeout"),
    ] {
        let response = post_terms(&server, &poller.id, &terms);
        let problem: Value = serde_json::from_slice(&response.body).expect("JSON");
        assert_eq!((response.status, &problem["errors"][0]["pointer"]), (400, &json!(pointer)), "{problem}");
    }
    assert_eq!(post_terms(&server, "unknown", &json!({})).status, 404);
    let handle = &server.handle;
    let set = |session: &str, terms| wait(handle.set_session_terms(session, terms));
    assert_eq!(set("unknown", SessionTerms::default()), Err(SessionTermsChangeError::SessionUnknown));
    let nonsense = SessionTerms { max_interval_ms: Some(0), ..SessionTerms::default() };
    assert!(matches!(set(&poller.id, nonsense), Err(SessionTermsChangeError::Terms(_))));
}
