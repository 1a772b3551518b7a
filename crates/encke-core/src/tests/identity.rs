//! Tests of identities: their way from a handshake into every later decision.

use std::sync::{Arc, Mutex};

use super::{NOW, Rig, member_of};
use crate::application::{
    Actions, Answer, Application, Caller, Decision, EndReason, Handshake, Publishing, Refusal, Subscribing, Verdict,
};
use crate::events::{ExchangeId, HttpTransport, Peer, Request};
use crate::identity::{Head, Identity, Patterns};
use crate::settings::{Settings, TransportName};

/// Takes the user from the `ext` of a handshake or from the cookie `user`, and records what it is asked.
#[derive(Clone, Default)]
pub(super) struct Doorman {
    pub(super) asked: Arc<Mutex<Vec<String>>>,
}

impl Doorman {
    fn note(&self, what: String) {
        self.asked.lock().expect("no panic").push(what);
    }

    pub(super) fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().expect("no panic"))
    }
}

impl Application for Doorman {
    fn handshake(&self, handshake: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        let named = handshake.ext.map(|ext| member_of(ext, "user")).filter(|user| !user.is_empty());
        let cookie = || handshake.head.and_then(|head| head.cookie("user")).map(String::from);
        self.note(format!("handshake by {}", handshake.transport));
        Answer::Now(match named.or_else(cookie).as_deref() {
            None => Ok(None),
            Some("nobody") => Err(Refusal::new(401, "unknown user")),
            Some("late") => Err(Refusal::new(503, "busy").retry_after_ms(7_000)),
            Some(user) => Ok(Some(Identity {
                subscribe: Patterns::new([format!("/{user}/**")]).ok(),
                publish: Patterns::new(["/open/*"]).ok(),
                ..Identity::of_user(user)
            })),
        })
    }

    fn subscribe(&self, subscribing: &Subscribing<'_>) -> Answer<Decision> {
        self.note(format!("{} subscribes to {}", subscribing.caller.user(), subscribing.channel));
        Answer::Now(Decision::Allow)
    }

    fn publish(&self, publishing: &Publishing<'_>) -> Answer<Verdict> {
        self.note(format!("{} publishes on {}", publishing.caller.user(), publishing.channel));
        Answer::Now(Verdict::Forward)
    }

    fn opened(&self, caller: &Caller<'_>, actions: &mut Actions) {
        self.note(format!("{} opened", caller.user()));
        actions.deliver(caller.id, "/service/welcome", "1", None);
    }

    fn ended(&self, caller: &Caller<'_>, reason: EndReason, _: &mut Actions) {
        self.note(format!("{} ended: {}", caller.user(), reason.as_str()));
    }

    fn subscribed(&self, caller: &Caller<'_>, channel: &str) {
        self.note(format!("{} has {channel}", caller.user()));
    }

    fn unsubscribed(&self, caller: &Caller<'_>, channel: &str) {
        self.note(format!("{} has no more {channel}", caller.user()));
    }

    fn reads_heads(&self) -> bool {
        true
    }
}

pub(super) fn rig(settings: Settings) -> (Rig, Doorman) {
    let doorman = Doorman::default();
    (Rig::new(1, settings, Box::new(doorman.clone())), doorman)
}

#[test]
fn the_identity_of_a_handshake_goes_into_every_later_decision() {
    let (mut rig, doorman) = rig(Settings::default());
    let (socket, client) = rig.opened(r#"{"user":"ann"}"#);
    let mut send = |fields: &str| {
        rig.shard.socket_text(NOW, socket, &format!(r#"{{"clientId":"{client}",{fields}}}"#));
        rig.flushed(socket)
    };
    send(r#""channel":"/meta/connect","advice":{"timeout":0}"#);
    assert!(send(r#""channel":"/meta/subscribe","subscription":"/ann/*""#).contains(r#""successful":true"#));
    let denied = send(r#""channel":"/meta/subscribe","subscription":"/bob/x""#);
    assert!(denied.contains(r#""error":"403::subscribe_denied""#), "{denied}");
    assert!(send(r#""channel":"/open/x","data":1"#).contains(r#""successful":true"#));
    let denied = send(r#""channel":"/ann/x","data":1"#);
    assert!(denied.contains(r#""error":"403::publish_denied""#), "{denied}");
    send(r#""channel":"/meta/disconnect""#);
    let expected = [
        "handshake by websocket",
        "ann opened",
        "ann subscribes to /ann/*",
        "ann has /ann/*",
        "ann publishes on /open/x",
        "ann has no more /ann/*",
        "ann ended: disconnected",
    ];
    assert_eq!(doorman.taken(), expected);
}

#[test]
fn a_handshake_sees_the_head_of_its_request_on_every_transport() {
    let (mut rig, doorman) = rig(Settings::default());
    let head = |user: &str| {
        let cookie = format!("user={user}");
        Some(Arc::new(Head::new("/cometd", [("cookie", cookie.as_bytes())], None)))
    };
    let socket = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_is_of(socket, Peer::default(), head("ann"));
    rig.shard.socket_text(NOW, socket, r#"{"channel":"/meta/handshake"}"#);
    assert!(rig.flushed(socket).contains("/service/welcome"), "an action of a new session");
    assert_eq!(doorman.taken(), ["handshake by websocket", "ann opened"]);
    let transports = [HttpTransport::LongPolling, HttpTransport::CallbackPolling("f".into())];
    for (number, transport) in transports.into_iter().enumerate() {
        let exchange = ExchangeId { shard: 0, number: number as u64 };
        let name = if number == 0 { TransportName::LongPolling } else { TransportName::CallbackPolling };
        let body = r#"{"channel":"/meta/handshake"}"#.into();
        let request = Request { exchange, transport, browser: None, peer: Peer::default(), head: head("bob"), body };
        rig.shard.request(NOW, request);
        assert_eq!(doorman.taken(), [format!("handshake by {name}"), "bob opened".into()]);
    }
}

#[test]
fn a_refused_handshake_gets_the_code_the_reason_and_the_advice() {
    let (mut rig, _) = rig(Settings::default());
    let mut refused = |user: &str| {
        let socket = rig.shard.socket_opened(NOW, None);
        let text = format!(r#"{{"channel":"/meta/handshake","ext":{{"user":"{user}"}}}}"#);
        rig.shard.socket_text(NOW, socket, &text);
        rig.flushed(socket)
    };
    let unknown = refused("nobody");
    assert!(unknown.contains(r#""error":"401:unknown user:handshake_denied""#), "{unknown}");
    assert!(unknown.contains(r#""advice":{"reconnect":"none"}"#), "{unknown}");
    let busy = refused("late");
    assert!(busy.contains(r#""error":"503:busy:handshake_denied""#), "{busy}");
    assert!(busy.contains(r#""reconnect":"handshake""#) && busy.contains(r#""interval":7000"#), "{busy}");
    assert_eq!(rig.shard.sessions(), 0);
}
