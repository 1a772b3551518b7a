//! Tests of identities: their way from a handshake into every later decision.

use std::sync::{Arc, Mutex};

use super::{NOW, Rig, member_of, post};
use crate::application::{
    Actions, Answer, Application, Caller, Decision, EndReason, Handshake, Publishing, Refusal, Subscribing, Verdict,
};
use crate::events::{ExchangeId, HttpTransport, Peer, Request, ShardMessage, SocketKey};
use crate::id::Id;
use crate::identity::{Head, Identity, Patterns};
use crate::now::Now;
use crate::protocol::batch::message_frame;
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
        let named = handshake
            .ext
            .filter(|ext| ext.contains("user"))
            .map(|ext| member_of(ext, "user"))
            .filter(|user| !user.is_empty());
        let cookie = || handshake.head.and_then(|head| head.cookie("user")).map(String::from);
        self.note(format!("handshake by {}", handshake.transport));
        Answer::Now(match named.or_else(cookie).as_deref() {
            None => Ok(None),
            Some("nobody") => Err(Refusal::new(401, "unknown user")),
            Some("late") => Err(Refusal::new(503, "busy").retry_after_ms(7_000)),
            Some(user) => Ok(Some(Identity {
                subscribe: Patterns::new([format!("/{user}/**")]).ok(),
                publish: Patterns::new(["/open/*"]).ok(),
                ..identity_of(user, handshake.ext.unwrap_or_default())
            })),
        })
    }

    fn refresh(&self, _: &Caller<'_>, credentials: &str) -> Answer<Result<Identity, Refusal>> {
        let only = credentials.contains("only").then(|| member_of(credentials, "only"));
        Answer::Now(match member_of(credentials, "user").as_str() {
            "nobody" => Err(Refusal::new(401, "unknown user")),
            user => Ok(Identity {
                subscribe: only.and_then(|only| Patterns::new([only]).ok()),
                ..identity_of(user, credentials)
            }),
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

/// The identity of a user, with the end (in seconds after the start of the test) and the token that a text names.
fn identity_of(user: &str, text: &str) -> Identity {
    let of = |name: &str| text.contains(&format!("\"{name}\":")).then(|| member_of(text, name));
    let ends = of("ends").and_then(|ends| ends.parse::<u64>().ok());
    Identity {
        token_id: of("token").map(String::into),
        expires_ms: ends.map(|seconds| NOW.wall_ms + seconds * 1_000),
        ..Identity::of_user(user)
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

/// A session of a user, whose credentials end at this time.
fn opened(rig: &mut Rig, ext: &str) -> (SocketKey, String) {
    let (socket, client) = rig.opened(ext);
    let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}","advice":{{"timeout":0}}}}"#);
    rig.shard.socket_text(NOW, socket, &connect);
    rig.flushed(socket);
    (socket, client)
}

fn later(ms: u64) -> Now {
    Now { ms: NOW.ms + ms, wall_ms: NOW.wall_ms + ms }
}

/// Lets time pass in steps in which no client is silent. Returns what each client gets.
fn pass(rig: &mut Rig, from_ms: u64, to_ms: u64, clients: &[(SocketKey, String)]) -> Vec<String> {
    let mut texts = vec![String::new(); clients.len()];
    for ms in (from_ms..=to_ms).step_by(5_000) {
        for (socket, client) in clients {
            let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}","advice":{{"timeout":0}}}}"#);
            rig.shard.socket_text(later(ms), *socket, &connect);
        }
        rig.shard.advance(later(ms));
        for (text, (socket, _)) in texts.iter_mut().zip(clients) {
            text.push_str(&rig.flushed(*socket));
        }
    }
    texts
}

#[test]
fn a_session_ends_with_its_credentials_unless_they_are_refreshed() {
    let (mut rig, doorman) = rig(Settings::default());
    let clients =
        [opened(&mut rig, r#"{"user":"ann","ends":"200"}"#), opened(&mut rig, r#"{"user":"bob","ends":"200"}"#)];
    let [_, (bob, client)] = &clients;
    let texts = pass(&mut rig, 0, 130_000, &clients);
    assert!(!texts.iter().any(|text| text.contains("expiring") || text.contains("/meta/disconnect")), "{texts:?}");
    let texts = pass(&mut rig, 135_000, 150_000, &clients);
    assert!(texts.iter().all(|text| text.matches("/service/auth/expiring").count() == 1), "{texts:?}");
    assert!(texts[0].contains(r#""data":{"expires_in_ms":"#), "{texts:?}");
    let refresh = |data: &str, id: &str| {
        format!(r#"{{"channel":"/service/auth/refresh","clientId":"{client}","data":{{"user":"{data}"}},"id":"{id}"}}"#)
    };
    for (user, error) in [("carl", "403:another_user:refresh_denied"), ("nobody", "401:unknown user:refresh_denied")] {
        rig.shard.socket_text(later(150_000), *bob, &refresh(user, "1"));
        let text = rig.flushed(*bob);
        assert!(text.contains(error), "{text}");
    }
    rig.shard.socket_text(later(150_000), *bob, &refresh("bob", "2"));
    let text = rig.flushed(*bob);
    assert!(text.contains(r#""data":{"expires_in_ms":null,"unsubscribed":[]}"#), "{text}");
    doorman.taken();
    let texts = pass(&mut rig, 155_000, 300_000, &clients);
    assert!(texts[0].contains(r#""error":"401::token_expired""#), "{texts:?}");
    assert!(doorman.taken().contains(&"ann ended: token_expired".into()));
    assert_eq!(rig.shard.sessions(), 1, "only bob is left");
}

#[test]
fn a_connect_may_carry_new_credentials() {
    let (mut rig, _) = rig(Settings::default());
    let (socket, client) = opened(&mut rig, r#"{"user":"ann","ends":"20"}"#);
    let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}","ext":{{"auth":{{"user":"ann"}}}}}}"#);
    rig.shard.socket_text(NOW, socket, &connect);
    assert!(rig.flushed(socket).contains(r#""data":{"expires_in_ms":null"#));
    pass(&mut rig, 0, 60_000, &[(socket, client)]);
    assert_eq!(rig.shard.sessions(), 1);
}

#[test]
fn rights_that_a_refresh_takes_away_end_subscriptions() {
    let (mut rig, doorman) = rig(Settings::default());
    let (socket, client) = opened(&mut rig, r#"{"user":"ann"}"#);
    let send = |rig: &mut Rig, fields: &str| {
        rig.shard.socket_text(NOW, socket, &format!(r#"{{"clientId":"{client}",{fields}}}"#));
        rig.flushed(socket)
    };
    send(&mut rig, r#""channel":"/meta/subscribe","subscription":["/ann/1","/ann/more/2"]"#);
    doorman.taken();
    let text = send(&mut rig, r#""channel":"/service/auth/refresh","data":{"user":"ann","only":"/ann/*"},"id":"1""#);
    assert!(text.contains(r#""unsubscribed":["/ann/more/2"]"#), "{text}");
    assert_eq!(doorman.taken(), ["ann subscribes to /ann/1", "ann has no more /ann/more/2"], "it is asked again");
}

#[test]
fn a_revoked_token_ends_its_sessions_and_opens_none() {
    let (mut rig, doorman) = rig(Settings::default());
    let handshake = r#"{"user":"ann","token":"t1"}"#;
    let (socket, client) = opened(&mut rig, handshake);
    let (away, _) = opened(&mut rig, handshake);
    let _other = opened(&mut rig, r#"{"user":"ann","token":"t2"}"#);
    rig.shard.socket_closed(NOW, away);
    let wall_ms = NOW.wall_ms;
    assert!(rig.shard.machines.env.shared.revoked.add("t1", wall_ms + 1_000_000, wall_ms, 10));
    rig.shard.message(NOW, ShardMessage::Revoke("t1".into()));
    let text = rig.flushed(socket);
    assert!(text.contains(r#""error":"401::token_revoked""#), "{text}");
    assert!(doorman.taken().contains(&"ann ended: revoked".into()));
    // The client that is away may only fetch its end.
    assert_eq!(rig.shard.sessions(), 2);
    pass(&mut rig, 0, 100_000, &[]);
    let mut taken = doorman.taken();
    taken.sort();
    assert_eq!(taken, ["ann ended: expired", "ann ended: revoked"], "the first is of the other token");
    let socket = rig.shard.socket_opened(NOW, None);
    let text = format!(r#"{{"channel":"/meta/handshake","ext":{handshake},"id":"{client}"}}"#);
    rig.shard.socket_text(NOW, socket, &text);
    let text = rig.flushed(socket);
    assert!(text.contains(r#""error":"401:token_revoked:handshake_denied""#), "{text}");
}

#[test]
fn a_session_whose_token_is_revoked_gets_no_message_any_more() {
    let (mut rig, _) = rig(Settings::default());
    let (away, client) = opened(&mut rig, r#"{"user":"ann","token":"t1"}"#);
    rig.shard.socket_closed(NOW, away);
    let frame = |data: &str| message_frame("/x", data, None, None);
    let id = Id::parse(&client).expect("an id");
    rig.shard.message(NOW, ShardMessage::DeliverToUser("ann".into(), frame("1").into()));
    rig.shard.message(NOW, ShardMessage::Revoke("t1".into()));
    rig.shard.message(NOW, ShardMessage::DeliverToUser("ann".into(), frame("2").into()));
    rig.shard.message(NOW, ShardMessage::Deliver(id, frame("3").into(), None));
    let socket = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
    let text = rig.flushed(socket);
    let has = |data: &str| text.contains(&format!(r#""data":{data}"#));
    assert!(has("1") && text.contains("401::token_revoked"), "{text}");
    assert!(!has("2") && !has("3"), "{text}");
}

#[test]
fn a_message_for_a_user_reaches_all_sessions_of_that_user() {
    let (mut rig, _) = rig(Settings::default());
    let anns = [opened(&mut rig, r#"{"user":"ann"}"#), opened(&mut rig, r#"{"user":"ann"}"#)];
    let (bob, _) = opened(&mut rig, r#"{"user":"bob"}"#);
    let (nobody, _) = opened(&mut rig, "{}");
    let frame = message_frame("/x", "7", None, None);
    rig.shard.message(NOW, ShardMessage::DeliverToUser("ann".into(), frame.clone().into()));
    rig.shard.message(NOW, ShardMessage::DeliverToUser("".into(), frame.into()));
    for (socket, _) in &anns {
        assert!(rig.flushed(*socket).contains(r#""data":7"#));
    }
    assert_eq!((rig.flushed(bob), rig.flushed(nobody)), (String::new(), String::new()));
    rig.shard.message(NOW, ShardMessage::DisconnectUser("ann".into()));
    assert_eq!(rig.shard.sessions(), 2);
}

#[test]
fn a_session_whose_token_expired_gets_no_message_after_a_restart() {
    let (mut rig, _) = rig(Settings { max_interval_ms: 200_000, ..Settings::default() });
    let (away, client) = opened(&mut rig, r#"{"user":"ann","ends":"100"}"#);
    rig.shard.socket_closed(NOW, away);
    pass(&mut rig, 0, 101_000, &[]);
    let saved = rig.shard.save(later(101_000));
    let (mut next, _) = self::rig(Settings { max_interval_ms: 200_000, ..Settings::default() });
    next.shard.restore(later(102_000), &saved);
    let frame = message_frame("/x", "7", None, None);
    next.shard.message(later(102_000), ShardMessage::DeliverToUser("ann".into(), frame.into()));
    let socket = next.shard.socket_opened(later(102_000), None);
    next.shard.socket_text(later(102_000), socket, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
    let text = next.flushed(socket);
    assert_eq!(text.matches("401::token_expired").count(), 1, "{text}");
    assert!(!text.contains(r#""data":7"#), "{text}");
}

#[test]
fn an_identity_survives_a_restart_with_its_end() {
    let (mut rig, _) = rig(Settings::default());
    let (_, client) = opened(&mut rig, r#"{"user":"ann","ends":"100"}"#);
    let saved = rig.shard.save(NOW);
    let (mut next, doorman) = self::rig(Settings::default());
    next.shard.restore(NOW, &saved);
    next.shard.message(NOW, ShardMessage::DisconnectUser("bob".into()));
    let socket = next.shard.socket_opened(NOW, None);
    pass(&mut next, 0, 200_000, &[(socket, client)]);
    assert!(doorman.taken().contains(&"ann ended: token_expired".into()));
    assert_eq!(next.shard.sessions(), 0);
}

#[test]
fn a_handshake_sees_the_head_of_its_request_on_every_transport() {
    let (mut rig, doorman) = rig(Settings::default());
    let head = |user: &str| {
        let cookie = format!("user={user}");
        Some(Arc::new(Head::new("/cometd", [("cookie", cookie.as_bytes())], None)))
    };
    let socket = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_is_of(socket, Peer::default(), false, head("ann"));
    rig.shard.socket_text(NOW, socket, r#"{"channel":"/meta/handshake"}"#);
    assert!(rig.flushed(socket).contains("/service/welcome"), "an action of a new session");
    assert_eq!(doorman.taken(), ["handshake by websocket", "ann opened"]);
    let transports = [HttpTransport::LongPolling, HttpTransport::CallbackPolling("f".into())];
    for (number, transport) in transports.into_iter().enumerate() {
        let exchange = ExchangeId { shard: 0, number: number as u64 };
        let name = if number == 0 { TransportName::LongPolling } else { TransportName::CallbackPolling };
        let body = r#"{"channel":"/meta/handshake"}"#.into();
        let request = Request { transport, head: head("bob"), ..post(exchange, body) };
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
