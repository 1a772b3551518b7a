//! Tokens of handshakes and their refresh.

use super::*;

fn rig() -> Rig {
    let mut rig = Rig::with(SessionOptions { takes_tokens: true, ..SessionOptions::default() });
    rig.connection_opened();
    rig
}

fn open() -> Rig {
    let mut rig = rig();
    assert!(rig.wants_token());
    rig.session.set_token("one", rig.now);
    assert_eq!(rig.session.client_id(), None);
    let handshake = rig.sent_one("/meta/handshake");
    assert_eq!(handshake["ext"]["auth"], json!({"token": "one"}));
    rig.receive(json!([{"channel": "/meta/handshake", "id": handshake["id"], "successful": true, "clientId": "c1"}]));
    assert!(matches!(rig.events()[..], [Event::Opened { resumed: false }]));
    let connect = rig.sent_one("/meta/connect");
    rig.answer_connect(&connect["id"], json!({"successful": true}));
    rig.sent_one("/meta/connect");
    rig
}

impl Rig {
    /// True if the session's one event is the request for a token.
    fn wants_token(&mut self) -> bool {
        matches!(self.events()[..], [Event::TokenWanted])
    }
}

#[test]
fn a_handshake_waits_for_its_token() {
    let mut rig = rig();
    assert!(rig.sent().is_empty() && rig.session.wake_at().is_none());
    open();
}

#[test]
fn an_open_session_refreshes_its_token_when_the_server_announces_its_end() {
    let mut rig = open();
    rig.receive(json!([{"channel": "/service/auth/expiring", "data": {"expires_in_ms": 1000}}]));
    assert!(matches!(rig.events()[..], [Event::TokenWanted, Event::Message(_)]));
    rig.session.set_token("two", rig.now);
    assert_eq!(rig.sent_one("/service/auth/refresh")["data"], json!({"token": "two"}));
    assert!(rig.session.is_open());
}

#[test]
fn a_session_that_ends_with_its_token_is_followed_by_one_with_another_token() {
    for by_connect in [false, true] {
        let mut rig = open();
        rig.subscribe("/a");
        let (channel, id) = if by_connect { ("/meta/connect", json!("3")) } else { ("/meta/disconnect", json!(null)) };
        let advice = json!({"reconnect": "none"});
        rig.receive(json!([{"channel": channel, "id": id, "successful": false, "error": "401::token_expired",
            "advice": advice}]));
        rig.pass(2 * SECOND);
        assert!(rig.wants_token(), "{by_connect}");
        rig.session.set_token("two", rig.now);
        assert_eq!(rig.sent_one("/meta/handshake")["ext"]["auth"]["token"], "two");
    }
}

#[test]
fn a_handshake_that_is_refused_with_its_token_ends_the_session() {
    let mut rig = rig();
    assert!(rig.wants_token());
    rig.session.set_token("bad", rig.now);
    let id = rig.sent_one("/meta/handshake")["id"].clone();
    let error = "401:token_revoked:handshake_denied";
    rig.receive(json!([{"channel": "/meta/handshake", "id": id, "successful": false, "error": error,
        "advice": {"reconnect": "none"}}]));
    assert_eq!(rig.ended(), ("/meta/handshake".into(), error.into()));
}

#[test]
fn without_a_token_the_connection_is_tried_again_later() {
    let mut rig = rig();
    assert!(rig.wants_token());
    rig.session.token_failed(LostReason::Token("login is away".into()));
    assert!(rig.lost() > Duration::ZERO);
    rig.connection_opened();
    assert!(rig.wants_token());
}

#[test]
fn without_tokens_an_expired_session_ends() {
    let mut rig = Rig::open(json!({}));
    rig.sent();
    rig.receive(json!([{"channel": "/meta/disconnect", "successful": true, "error": "401::token_expired"}]));
    assert_eq!(rig.ended().1, "401::token_expired");
}
