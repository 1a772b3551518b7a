//! Decisions of an application that come later: the connection waits, and nobody else does.

use std::sync::Arc;

use encke::{Server, Settings};
use encke_core::{Actions, Answer, Application, Handshake, Identity, Pending, Publishing, Refusal, Service, Verdict};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::common::{TestServer, settings};

/// Decides about everything that names the gate only when the test lets it pass.
#[derive(Clone)]
pub struct Gate(Arc<Semaphore>);

impl Gate {
    /// A gate that is closed.
    pub fn closed() -> Gate {
        Gate(Arc::new(Semaphore::new(0)))
    }

    /// A server whose decisions pass this gate.
    pub fn serve(&self, settings: Settings) -> TestServer {
        let gate = self.clone();
        TestServer::of(Server::builder().settings(settings).layer(|_| Box::new(gate)))
    }

    /// Lets this number of decisions pass.
    pub fn open(&self, decisions: usize) {
        self.0.add_permits(decisions);
    }

    fn later<T: Send + 'static>(&self, result: T) -> Pending<T> {
        let gate = self.0.clone();
        Box::pin(async move {
            gate.acquire().await.expect("it stays").forget();
            result
        })
    }
}

fn is_gated(text: Option<&str>) -> bool {
    text.is_some_and(|text| text.contains("gate"))
}

impl Application for Gate {
    fn handshake(&self, handshake: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        if handshake.head.is_some_and(|head| head.cookie("gate").is_some()) {
            let agent = handshake.head.and_then(|head| head.header("user-agent")).unwrap_or_default();
            return Answer::Later(self.later(Ok(Some(Identity::of_user(agent)))));
        }
        Answer::Now(Ok(None))
    }

    fn publish(&self, publishing: &Publishing<'_>) -> Answer<Verdict> {
        if publishing.data == Some("\"panic\"") {
            return Answer::Later(Box::pin(async { panic!("as planned") }));
        }
        if is_gated(publishing.data) {
            Answer::Later(self.later(Verdict::Forward))
        } else {
            Answer::Now(Verdict::Forward)
        }
    }

    fn service(&self, message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
        let mut reply = Actions::default();
        reply.reply(json!(message.caller.user()).to_string());
        if is_gated(message.data) {
            return Some(self.later(reply));
        }
        actions.reply("0");
        None
    }

    fn reads_heads(&self) -> bool {
        true
    }
}

fn gated(settings: Settings) -> (TestServer, Gate) {
    let gate = Gate::closed();
    (gate.serve(settings), gate)
}

#[test]
fn a_websocket_waits_for_a_decision_and_its_messages_stay_in_order() {
    let (server, gate) = gated(settings());
    let mut neighbour = server.neighbour();
    let (mut reader, mut ws) = (server.session(), server.session());
    reader.subscribe("/a");
    for number in 0..100 {
        let data = if number % 10 == 3 { json!({"gate": number}) } else { json!({"n": number}) };
        ws.send_json(&json!([ws.mine(json!({"id": number.to_string(), "channel": "/a", "data": data}))]));
    }
    server.wait_for_exactly("encke_decisions_waiting", 1);
    neighbour.lives(&server);
    gate.open(10);
    let number = |data: &Value| data["n"].as_u64().or(data["gate"].as_u64());
    for expected in 0..100 {
        assert_eq!(number(&reader.next_json()[0]["data"]), Some(expected));
    }
    for expected in 0..100_u32 {
        assert_eq!(ws.next_json()[0]["id"], expected.to_string());
    }
    assert_eq!(server.metric("encke_decisions_delayed"), 10);
}

#[test]
fn a_publisher_that_declines_replies_gets_none_after_a_decision_that_comes_later() {
    let (server, gate) = gated(settings());
    let (mut reader, mut ws) = (server.session(), server.session());
    reader.subscribe("/a");
    let mut publish = |id: &str, data: &str| {
        ws.send_json(&json!([ws.mine(json!({"id": id, "channel": "/a", "data": data, "ext": {"reply": false}}))]));
    };
    publish("1", "gate");
    publish("2", "panic");
    gate.open(1);
    assert_eq!(reader.next_json(), json!([{"channel": "/a", "data": "gate"}]));
    let refusal = ws.next_json()[0].clone();
    assert_eq!((&refusal["id"], &refusal["error"]), (&json!("2"), &json!("503::decision_failed")));
}

#[test]
fn a_request_waits_for_its_decision() {
    let (server, gate) = gated(settings());
    let mut http = server.http();
    let id = http.handshake();
    let publish = json!([{"id": "1", "clientId": id, "channel": "/a", "data": "gate"}]);
    http.send("POST", "/cometd", &[], publish.to_string().as_bytes());
    server.wait_for_exactly("encke_decisions_waiting", 1);
    gate.open(1);
    assert_eq!(http.receive().messages(), [json!({"id": "1", "channel": "/a", "successful": true})]);
}

/// A session's identity is decided later with the head of its upgrade request, and reaches a call.
#[test]
fn a_handshake_is_decided_later_with_the_head_of_its_connection() {
    let (server, gate) = gated(Settings { shards: 2, ..settings() });
    gate.open(1);
    let headers = [("cookie", "a=b; gate=1"), ("user-agent", "ann's browser")];
    let mut ws = crate::common::Ws::connect(server.address(), &headers);
    ws.handshake();
    gate.open(1);
    ws.send_json(&json!([ws.mine(json!({"id": "c", "channel": "/service/x", "data": "gate"}))]));
    let both = [ws.next_json()[0].clone(), ws.next_json()[0].clone()];
    assert!(both.contains(&json!({"id": "c", "channel": "/service/x", "data": "ann's browser", "successful": true})));
    assert!(both.contains(&json!({"id": "c", "channel": "/service/x", "successful": true})));
}

#[test]
fn a_decision_that_never_comes_is_refused_and_the_connection_goes_on() {
    let (server, _gate) = gated(Settings { decision_timeout_ms: 50, call_timeout_ms: 50, ..settings() });
    let mut ws = server.session();
    let reply = ws.call(json!({"id": "1", "channel": "/a", "data": "gate"}));
    assert_eq!(reply["error"], "503::decision_timeout");
    assert_eq!(ws.call(json!({"id": "2", "channel": "/a", "data": 1}))["successful"], true);
    ws.call(json!({"id": "3", "channel": "/service/x", "data": "gate"}));
    let failed = json!({"class": "call_timeout", "message": "503::call_timeout"});
    assert_eq!((&ws.next_json()[0]["data"], server.metric("encke_decisions_timed_out")), (&failed, 2));
}

#[test]
fn a_decision_that_panics_is_refused_and_the_next_one_is_made() {
    let (server, gate) = gated(settings());
    let mut ws = server.session();
    for _ in 0..5 {
        let reply = ws.call(json!({"id": "1", "channel": "/a", "data": "panic"}));
        assert_eq!(reply["error"], "503::decision_failed");
        gate.open(1);
        assert_eq!(ws.call(json!({"id": "2", "channel": "/a", "data": "gate"}))["successful"], true);
    }
    assert_eq!(server.metric("encke_decisions_failed"), 5);
}

#[test]
fn a_server_stops_while_decisions_wait() {
    let (server, gate) = gated(settings());
    let mut ws = server.session();
    ws.send_json(&json!([ws.mine(json!({"id": "1", "channel": "/a", "data": "gate"}))]));
    server.wait_for_exactly("encke_decisions_waiting", 1);
    server.stop();
    gate.open(1);
    assert_eq!(ws.closed().0, 1001);
}
