//! Breaks, and what follows them.

use super::*;

#[test]
fn after_a_break_the_old_session_is_resumed() {
    let mut rig = Rig::open(json!({}));
    rig.subscribe_quietly("/a");
    rig.connection_lost();
    assert!(rig.lost() < SECOND);
    rig.connection_lost();
    assert!(rig.events().is_empty(), "it is reported once");
    rig.connection_opened();
    let connect = rig.sent_one("/meta/connect");
    assert_eq!((&connect["clientId"], &connect["advice"]), (&json!("c1"), &json!({"timeout": 0})));
    assert!(!rig.session.is_open());
    rig.answer_connect(&connect["id"], json!({"successful": true}));
    assert!(matches!(rig.events()[..], [Event::Opened { resumed: true }]));
    assert_eq!(rig.sent_one("/meta/connect").get("advice"), None, "and the next one is held");
}

#[test]
fn a_session_that_the_server_forgot_is_replaced_with_all_subscriptions() {
    for error in ["402::session_unknown", "401:c1:Unknown client"] {
        let mut rig = Rig::open(json!({}));
        rig.subscribe_quietly("/a");
        rig.subscribe_quietly("/b");
        rig.subscribe_quietly("/a");
        rig.connection_lost();
        rig.connection_opened();
        rig.events();
        let id = rig.sent_one("/meta/connect")["id"].clone();
        rig.answer_connect(&id, json!({"successful": false, "error": error}));
        rig.reply_to_handshake("c2");
        assert!(!rig.session.is_open(), "not before the subscriptions are there");
        let message = rig.sent_one("/meta/subscribe");
        assert_eq!((&message["clientId"], &message["subscription"]), (&json!("c2"), &json!(["/a", "/b"])));
        rig.receive(json!([{"channel": "/meta/subscribe", "id": message["id"], "successful": true}]));
        assert!(matches!(rig.events()[..], [Event::Opened { resumed: false }]));
        assert_eq!(rig.sent_one("/meta/connect")["clientId"], "c2");
    }
}

#[test]
fn a_session_forgotten_while_connected_is_replaced_on_the_same_connection() {
    let mut rig = Rig::open(json!({}));
    let id = rig.sent_one("/meta/connect")["id"].clone();
    let advice = json!({"reconnect": "handshake", "interval": 0});
    rig.answer_connect(&id, json!({"successful": false, "error": "402::session_unknown", "advice": advice}));
    rig.reply_to_handshake("c2");
    assert!(matches!(rig.events()[..], [Event::Opened { resumed: false }]));
    // Again, without a connect that went well in between: a server that forgets all sessions is not to be hammered.
    let id = rig.sent_one("/meta/connect")["id"].clone();
    rig.answer_connect(&id, json!({"successful": false, "error": "402::session_unknown", "advice": advice}));
    assert!(rig.sent().is_empty());
    assert!(rig.session.wake_at().expect("later") - rig.now >= SECOND);
}

#[test]
fn a_new_handshake_waits_as_long_as_the_server_advises() {
    let mut rig = Rig::open(json!({}));
    let id = rig.sent_one("/meta/connect")["id"].clone();
    let advice = json!({"reconnect": "handshake", "interval": 3000});
    rig.answer_connect(&id, json!({"successful": false, "error": "402::session_unknown", "advice": advice}));
    assert!(rig.sent().is_empty());
    assert_eq!(rig.session.wake_at(), Some(rig.now + SECOND * 3));
    rig.pass(SECOND * 3);
    rig.reply_to_handshake("c2");
}

#[test]
fn a_reply_that_advises_a_handshake_is_obeyed_whatever_it_answers() {
    // Faye advises so on any message of a session that it does not know.
    let mut rig = Rig::open(json!({}));
    rig.sent();
    let published = rig.session.publish("/a", raw("1"));
    let subscribed = rig.session.subscribe(&["/a".into()]);
    rig.sent();
    let advice = json!({"reconnect": "handshake", "interval": 0, "timeout": 45000});
    rig.receive(json!([{"channel": "/a", "id": published.to_string(), "successful": false,
        "error": "401:c1:Unknown client", "advice": advice, "clientId": "c1"}]));
    assert!(matches!(&rig.events()[..], [Event::Replied { id, outcome: Err(_), .. }] if *id == published));
    rig.receive(json!([{"channel": "/meta/subscribe", "id": subscribed.to_string(), "successful": false,
        "error": "402::session_unknown"}]));
    assert!(rig.events().is_empty(), "the subscription is for the next session");
    rig.receive(json!([{"channel": "/meta/handshake", "id": "6", "successful": true, "clientId": "c2"}]));
    let sent = rig.sent();
    let subscribe =
        sent.iter().flat_map(|(_, messages)| messages).find(|message| message["channel"] == "/meta/subscribe");
    assert_eq!(subscribe.expect("asked again")["clientId"], "c2");
}

#[test]
fn a_connect_refused_for_now_is_tried_again_with_back_off() {
    let mut rig = Rig::open(json!({}));
    for failures in 1..4 {
        let id = rig.sent_one("/meta/connect")["id"].clone();
        rig.answer_connect(&id, json!({"successful": false, "error": "500::busy", "advice": {"reconnect": "retry"}}));
        let pause = rig.session.wake_at().expect("again") - rig.now;
        assert!(SECOND * failures <= pause && pause < SECOND * (failures + 1), "{failures}: {pause:?}");
        rig.pass(pause);
    }
    assert!(rig.session.is_open() && rig.events().is_empty());
}

#[test]
fn attempts_that_fail_come_less_often_up_to_the_longest_pause() {
    let mut rig = Rig::open(json!({}));
    rig.connection_lost();
    rig.events();
    for failures in 1..100 {
        rig.session.connection_failed(LostReason::Other("connection refused".into()), rig.now);
        let (pause, base) = (rig.lost(), SECOND * failures.min(60));
        assert!(base <= pause && pause < base + SECOND, "{failures}: {pause:?}");
    }
    // A connect that goes well ends it.
    rig.connection_opened();
    let id = rig.sent_one("/meta/connect")["id"].clone();
    rig.answer_connect(&id, json!({"successful": true}));
    rig.connection_lost();
    assert!(matches!(rig.events()[1], Event::Lost { reopen_in, .. } if reopen_in < SECOND));
}

#[test]
fn a_connection_that_breaks_before_the_session_is_open_counts_as_failed() {
    let mut rig = Rig::new();
    for failures in 1..4 {
        rig.connection_opened();
        rig.connection_lost();
        let pause = rig.lost();
        assert!(SECOND * failures <= pause && pause < SECOND * (failures + 1), "{failures}: {pause:?}");
    }
}

#[test]
fn pending_changes_are_sent_again_after_a_break_and_answered_once() {
    let mut rig = Rig::open(json!({}));
    rig.subscribe_quietly("/old");
    rig.sent();
    let subscribed = rig.session.subscribe(&["/new".into()]);
    let unsubscribed = rig.session.unsubscribe(&["/old".into()]);
    rig.connection_lost();
    assert!(rig.sent().is_empty(), "nothing old goes over a new connection");
    rig.events();
    rig.connection_opened();
    let id = rig.sent_one("/meta/connect")["id"].clone();
    rig.answer_connect(&id, json!({"successful": true}));
    let sent = rig.sent();
    let ids: Vec<&Value> = sent[0].1.iter().map(|message| &message["id"]).collect();
    assert_eq!(ids, [&json!(subscribed.to_string()), &json!(unsubscribed.to_string())]);
    rig.events();
    rig.receive(json!([{"channel": "/meta/subscribe", "id": ids[0], "successful": true},
        {"channel": "/meta/unsubscribe", "id": ids[1], "successful": true}]));
    assert_eq!(rig.events().len(), 2);
    assert_eq!(rig.session.subscriptions, ["/new"]);
}

#[test]
fn a_new_session_that_may_not_have_its_subscriptions_ends() {
    let mut rig = Rig::open(json!({}));
    rig.subscribe_quietly("/a");
    rig.forget_session();
    rig.reply_to_handshake("c2");
    let id = rig.sent_one("/meta/subscribe")["id"].clone();
    rig.receive(
        json!([{"channel": "/meta/subscribe", "id": id, "successful": false, "error": "403::subscribe_denied"}]),
    );
    assert_eq!(rig.ended(), ("/meta/subscribe".into(), "403::subscribe_denied".into()));
}

#[test]
fn a_refused_subscription_is_not_repeated() {
    let mut rig = Rig::open(json!({}));
    rig.sent();
    let id = rig.session.subscribe(&["/secret".into()]);
    rig.receive(json!([{"channel": "/meta/subscribe", "id": id.to_string(), "successful": false, "error": "403::no"}]));
    rig.sent();
    rig.forget_session();
    rig.reply_to_handshake("c2");
    rig.sent_one("/meta/connect");
}

#[test]
fn a_session_whose_resumption_is_refused_permanently_ends() {
    let mut rig = Rig::open(json!({}));
    rig.connection_lost();
    rig.connection_opened();
    rig.events();
    let id = rig.sent_one("/meta/connect")["id"].clone();
    rig.answer_connect(&id, json!({"successful": false, "error": "403::banned", "advice": {"reconnect": "none"}}));
    assert_eq!(rig.ended(), ("/meta/connect".into(), "403::banned".into()));
}

#[test]
fn another_connection_type_is_named_in_the_next_connect() {
    let mut rig = Rig::open(json!({}));
    rig.connection_lost();
    rig.session.switch_connection_type(ConnectionType::LongPolling);
    rig.connection_opened();
    assert_eq!(rig.sent_one("/meta/connect")["connectionType"], "long-polling");
}

impl Rig {
    fn subscribe_quietly(&mut self, channel: &str) {
        self.sent();
        self.subscribe(channel);
    }

    /// The connection breaks, and the server does not know the session any more.
    pub(super) fn forget_session(&mut self) {
        self.sent();
        self.connection_lost();
        self.connection_opened();
        let replies = self.sent().remove(0).1.into_iter().map(|message| {
            json!({"channel": message["channel"], "id": message["id"], "successful": false,
                "error": "402::session_unknown"})
        });
        self.receive(replies.collect());
        self.events();
    }
}
