//! From nothing to an open session: handshakes, and refusals.

use super::*;

#[test]
fn a_session_opens_with_a_handshake_and_keeps_one_connect_out() {
    let mut rig =
        Rig::with(SessionOptions { connection_type: ConnectionType::LongPolling, ..SessionOptions::default() });
    assert!(rig.sent().is_empty() && rig.session.wake_at().is_none(), "nothing happens before there is a connection");
    rig.connection_opened();
    let sent = rig.sent();
    assert_eq!(sent[0].0, RequestClass::Handshake);
    assert_eq!(
        sent[0].1,
        [
            json!({"channel": "/meta/handshake", "id": "1", "version": "1.0", "supportedConnectionTypes": ["long-polling"],
            "ext": {"limits": true}})
        ]
    );
    assert!(!rig.session.is_open());
    rig.receive(json!([{"channel": "/meta/handshake", "id": "1", "successful": true, "clientId": "abc"}]));
    assert!(rig.session.is_open() && rig.session.client_id() == Some("abc"));
    assert!(matches!(rig.events()[..], [Event::Opened { resumed: false }]));
    let sent = rig.sent();
    assert_eq!(sent[0].0, RequestClass::Connect);
    assert_eq!(
        sent[0].1,
        [json!({"channel": "/meta/connect", "id": "2", "clientId": "abc", "connectionType": "long-polling"})]
    );
    assert_eq!(sent.len(), 1);
}

/// A connect that checks if the session lives is answered in its response: there is no stream yet.
#[test]
fn connects_of_event_streams_name_long_polling_until_the_session_is_open() {
    let mut rig =
        Rig::with(SessionOptions { connection_type: ConnectionType::EventSource, ..SessionOptions::default() });
    rig.connection_opened();
    let handshake = rig.sent_one("/meta/handshake");
    assert_eq!(handshake["supportedConnectionTypes"], json!(["eventsource"]));
    rig.receive(json!([{"channel": "/meta/handshake", "id": "1", "successful": true, "clientId": "abc"}]));
    assert_eq!(rig.sent_one("/meta/connect")["connectionType"], "eventsource");
    rig.connection_lost();
    rig.connection_opened();
    let check = rig.sent_one("/meta/connect");
    assert_eq!(check["connectionType"], "long-polling");
    rig.answer_connect(&check["id"], json!({"successful": true}));
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.sent_one("/meta/connect")["connectionType"], "eventsource");
}

#[test]
fn a_refused_handshake_ends_it() {
    for advice in [json!({}), json!({"reconnect": "none"})] {
        let mut rig = Rig::new();
        rig.connection_opened();
        rig.sent_one("/meta/handshake");
        rig.receive(json!([{"channel": "/meta/handshake", "id": "1", "successful": false,
            "error": "403::handshake_denied", "advice": advice}]));
        assert_eq!(rig.ended(), ("/meta/handshake".into(), "403::handshake_denied".into()));
        assert!(rig.session.is_ended() && rig.session.wake_at().is_none());
        rig.connection_lost();
        rig.connection_opened();
        rig.pass(SECOND * 1000);
        assert!(rig.sent().is_empty() && rig.events().is_empty(), "over is over");
    }
}

#[test]
fn a_handshake_refused_for_now_is_tried_again_later_and_later() {
    let mut rig = Rig::new();
    rig.connection_opened();
    let mut last = Duration::ZERO;
    for attempt in 1..5 {
        let id = rig.sent_one("/meta/handshake")["id"].clone();
        rig.receive(json!([{"channel": "/meta/handshake", "id": id, "successful": false, "error": "503::busy",
            "advice": {"reconnect": "retry", "interval": 500}}]));
        let pause = rig.session.wake_at().expect("it tries again") - rig.now;
        let base = Duration::from_millis(500) + SECOND * attempt;
        assert!(base <= pause && pause < base + SECOND, "{attempt}: {pause:?}");
        assert!(pause > last / 2);
        last = pause;
        rig.pass(pause);
    }
    rig.reply_to_handshake("late");
    assert!(rig.session.is_open());
}

#[test]
fn a_handshake_without_a_client_id_is_not_bayeux() {
    for reply in [
        json!([{"channel": "/meta/handshake", "id": "1", "successful": true}]),
        json!({"channel": "/meta/handshake", "id": "1"}),
    ] {
        let mut rig = Rig::new();
        rig.connection_opened();
        let outcome = rig.session.received(&reply.to_string(), rig.now);
        assert!(matches!(outcome, Err(NotBayeux::NoClientId)), "{outcome:?}");
        assert!(!rig.session.is_open());
    }
}

#[test]
fn a_text_that_is_not_bayeux_is_an_error_and_changes_nothing() {
    let mut rig = Rig::open(json!({}));
    rig.sent_one("/meta/connect");
    for text in ["", "<html>", "7", r#"[{"channel":"/a","data":1},{"no":"channel"}]"#, r#"[{"channel":"/a""#] {
        assert!(matches!(rig.session.received(text, rig.now), Err(NotBayeux::Text(_))), "{text}");
    }
    assert!(rig.events().is_empty() && rig.session.is_open());
    rig.receive(json!([]));
    assert!(rig.events().is_empty());
}

#[test]
fn a_handshake_without_a_reply_is_given_up() {
    let mut rig = Rig::new();
    rig.connection_opened();
    rig.sent_one("/meta/handshake");
    rig.pass(SECOND * 9);
    assert!(rig.events().is_empty());
    rig.pass(SECOND);
    let pause = rig.lost();
    assert!(SECOND <= pause && pause < SECOND * 2, "{pause:?}");
    rig.connection_opened();
    rig.sent_one("/meta/handshake");
}

#[test]
fn a_subscribe_before_the_session_is_open_is_done_when_it_is() {
    let mut rig = Rig::new();
    let early = rig.session.subscribe(&["/a".into()]);
    rig.connection_opened();
    let between = rig.session.subscribe(&["/b".into()]);
    rig.reply_to_handshake("c1");
    let sent = rig.sent();
    let (class, messages) = &sent[0];
    assert_eq!((*class, messages.len()), (RequestClass::Other, 2), "one text for all");
    assert_eq!(messages[0]["id"], early.to_string());
    assert_eq!(messages[1]["id"], between.to_string());
    assert_eq!(messages[1]["clientId"], "c1");
    assert_eq!(sent[1].1[0]["channel"], "/meta/connect");
}

#[test]
fn nothing_is_published_before_the_session_is_open() {
    let mut rig = Rig::new();
    let id = rig.session.publish("/a", raw("1"));
    match &rig.events()[..] {
        [Event::Replied { id: answered, channel, outcome: Err(Error::Closed), .. }] => {
            assert_eq!((*answered, channel.as_str()), (id, "/a"));
        }
        other => panic!("{other:?}"),
    }
    rig.connection_opened();
    rig.sent_one("/meta/handshake");
}

#[test]
fn a_session_is_small() {
    let bytes = std::mem::size_of::<ClientSession>();
    assert!(bytes <= 448, "{bytes} bytes");
    let mut rig = Rig::open(json!({}));
    rig.sent_one("/meta/connect");
    rig.events();
    let idle = &rig.session;
    assert_eq!(
        (idle.out.capacity(), idle.events.capacity(), idle.pending_changes.capacity()),
        (0, 0, 0),
        "idle queues hold nothing"
    );
}
