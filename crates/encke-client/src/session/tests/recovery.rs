//! Breaks that lose nothing: acknowledgement and replay.

use super::*;
use crate::ReplayFrom;

#[test]
fn messages_are_delivered_when_their_batch_is_closed_and_not_if_it_breaks_off() {
    let mut rig = Rig::recovering(acknowledging());
    let connect = rig.sent_one("/meta/connect");
    assert_eq!(connect["ext"], json!({"ack": 0}));
    rig.receive(json!([{"channel": "/a", "data": 1}]));
    assert!(rig.events().is_empty(), "the batch is open");
    rig.answer_connect(&connect["id"], json!({"successful": true, "ext": {"ack": 1}}));
    assert_eq!(rig.received(), ["1"]);
    assert_eq!(rig.sent_one("/meta/connect")["ext"], json!({"ack": 1}));
    // Messages that come in a separate frame, as CometD sends them, and then the connection breaks.
    rig.receive(json!([{"channel": "/a", "data": 2}]));
    rig.connection_lost();
    rig.lost();
    rig.connection_opened();
    let connect = rig.sent_one("/meta/connect");
    assert_eq!((&connect["ext"], &connect["clientId"]), (&json!({"ack": 1}), &json!("c1")));
    rig.receive(json!([{"channel": "/a", "data": 2}, {"channel": "/a", "data": 3},
        {"channel": "/meta/connect", "id": connect["id"], "successful": true, "ext": {"ack": 3}}]));
    assert_eq!(rig.received(), ["2", "3", "open"]);
    assert_eq!(rig.session.repeats(), 0, "nobody had seen what broke off");
    // The same batch once more.
    let id = rig.sent_one("/meta/connect")["id"].clone();
    rig.receive(json!([{"channel": "/a", "data": 3},
        {"channel": "/meta/connect", "id": id, "successful": true, "ext": {"ack": 3}}]));
    assert!(rig.events().is_empty());
    assert_eq!(rig.session.repeats(), 1);
    assert_eq!(rig.sent_one("/meta/connect")["ext"], json!({"ack": 3}));
}

/// Callers with several connections get responses of those that the session has given up.
#[test]
fn a_late_reply_to_an_earlier_connect_brings_nothing() {
    for options in [acknowledging(), replaying(ReplayFrom::Latest)] {
        let replays = options.replay.is_some();
        let mut rig = Rig::recovering(options);
        if replays {
            rig.subscribe_at("/a", 10);
        }
        let id = rig.sent_one("/meta/connect")["id"].clone();
        let response = |id: &Value| {
            json!([positioned("/a", "e", 10), {"channel": "/meta/connect", "id": id, "successful": true,
                "ext": {"ack": 1, "replay": {"/a": {"id": 10, "epoch": "e"}}}}])
        };
        rig.connection_lost();
        rig.lost();
        rig.receive(response(&id));
        rig.connection_opened();
        rig.receive(response(&id));
        assert!(rig.events().is_empty());
        let mut messages = rig.sent().remove(0).1;
        let connect = messages.pop().expect("a connect");
        if replays {
            let subscribe = messages.remove(0);
            assert_eq!(subscribe["ext"]["replay"], json!({"/a": {"id": 9, "epoch": "e"}}));
            rig.receive(json!([{"channel": "/meta/subscribe", "id": subscribe["id"], "successful": true,
                "ext": {"replay": {"/a": {"recovered": true, "epoch": "e", "from": 10, "latest": 10, "lost": null}}}}]));
        } else {
            assert_eq!(connect["ext"], json!({"ack": 0}));
        }
        rig.receive(response(&connect["id"]));
        assert_eq!(rig.received().into_iter().filter(|event| event != "open").collect::<Vec<_>>(), ["10"]);
        assert_eq!(rig.session.repeats(), 0);
    }
}

#[test]
fn a_server_that_does_not_acknowledge_gets_no_batch_numbers() {
    let mut rig = Rig::with(acknowledging());
    rig.connection_opened();
    assert_eq!(rig.sent_one("/meta/handshake")["ext"], json!({"ack": true, "limits": true}));
    rig.receive(json!([{"channel": "/meta/handshake", "id": "1", "successful": true, "clientId": "c1"}]));
    assert!(rig.sent_one("/meta/connect").get("ext").is_none() && !rig.session.acknowledges());
    rig.receive(json!([{"channel": "/a", "data": 1}]));
    assert_eq!(rig.received(), ["open", "1"]);
}

#[test]
fn a_new_session_counts_batches_from_zero_and_reports_a_gap() {
    let mut rig = Rig::recovering(acknowledging());
    rig.sent();
    rig.subscribe("/a");
    rig.forget_session();
    rig.reply_to_handshake_with("c2", json!({"ack": true}));
    let id = rig.sent_one("/meta/subscribe")["id"].clone();
    rig.receive(json!([{"channel": "/meta/subscribe", "id": id, "successful": true}]));
    assert_eq!(rig.received(), ["open", "gap in /a: None"]);
    assert_eq!(rig.sent_one("/meta/connect")["ext"], json!({"ack": 0}));
}

#[test]
fn a_batch_without_an_end_ends_the_session() {
    let mut rig = Rig::recovering(SessionOptions { unacknowledged_messages_max: 10, ..acknowledging() });
    rig.receive(Value::from(vec![json!({"channel": "/a", "data": 1}); 11]));
    // Not lost: the next attempt would bring the same.
    assert!(matches!(rig.events()[..], [Event::Ended(Error::TooManyUnacknowledged(10))]));
}

#[test]
fn a_resumed_session_sends_its_positions_first_and_delivers_nothing_twice() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
    rig.subscribe_at("/a", 10);
    rig.receive(json!([positioned("/a", "e", 10), positioned("/a", "e", 12)]));
    assert_eq!(rig.received(), ["10", "12"]);
    rig.connection_lost();
    rig.lost();
    rig.connection_opened();
    let (class, messages) = rig.sent().remove(0);
    assert_eq!(
        (class, &messages[0]["channel"], &messages[1]["channel"]),
        (RequestClass::Connect, &json!("/meta/subscribe"), &json!("/meta/connect"))
    );
    assert_eq!(messages[0]["ext"]["replay"], json!({"/a": {"id": 12, "epoch": "e"}}));
    // Waiting messages leave before the server has read that: they come again.
    rig.receive(json!([positioned("/a", "e", 14), {"channel": "/b", "data": "no history"}]));
    rig.receive(json!([{"channel": "/meta/subscribe", "id": messages[0]["id"], "successful": true,
        "ext": {"replay": {"/a": {"recovered": true, "epoch": "e", "from": 13, "latest": 14, "lost": null}}}},
        {"channel": "/meta/connect", "id": messages[1]["id"], "successful": true}, positioned("/a", "e", 13), positioned("/a", "e", 14)]));
    assert_eq!(rig.received(), ["no history", "open", "13", "14"]);
    assert_eq!(rig.session.repeats(), 0, "what was left aside was not seen");
    rig.receive(json!([positioned("/a", "e", 14), positioned("/a", "e", 15)]));
    assert_eq!(rig.received(), ["15"]);
    assert_eq!(rig.session.repeats(), 1);
}

#[test]
fn messages_before_the_reply_in_one_response_are_delivered() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
    rig.subscribe_at("/a", 10);
    rig.connection_lost();
    rig.lost();
    rig.connection_opened();
    let messages = rig.sent().remove(0).1;
    rig.receive(
        json!([positioned("/a", "e", 10), {"channel": "/meta/subscribe", "id": messages[0]["id"], "successful": true,
        "ext": {"replay": {"/a": {"recovered": true, "epoch": "e", "from": 10, "latest": 10, "lost": null}}}},
        {"channel": "/meta/connect", "id": messages[1]["id"], "successful": true}]),
    );
    assert_eq!(rig.received(), ["10", "open"]);
}

#[test]
fn a_reply_to_the_positions_that_comes_last_opens_the_session() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
    rig.subscribe_at("/a", 10);
    rig.connection_lost();
    rig.lost();
    rig.connection_opened();
    let messages = rig.sent().remove(0).1;
    rig.answer_connect(&messages[1]["id"], json!({"successful": true}));
    assert!(!rig.session.is_open());
    rig.receive(json!([{"channel": "/meta/subscribe", "id": messages[0]["id"], "successful": true,
        "ext": {"replay": {"/a": {"recovered": true, "epoch": "e", "from": 10, "latest": 9, "lost": null}}}}]));
    assert!(matches!(rig.events()[..], [Event::Opened { resumed: true }]));
}

#[test]
fn refused_positions_end_the_session_rather_than_lose_messages_silently() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
    rig.subscribe_at("/a", 10);
    rig.connection_lost();
    rig.lost();
    rig.connection_opened();
    let id = rig.sent()[0].1[0]["id"].clone();
    rig.receive(json!([{"channel": "/meta/subscribe", "id": id, "successful": false, "error": "403::no"}]));
    assert_eq!(rig.ended(), ("/meta/subscribe".into(), "403::no".into()));
}

#[test]
fn a_new_session_resumes_at_the_positions_of_the_old_one() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Earliest));
    rig.sent();
    rig.session.subscribe(&["/a".into(), "/p/*".into()]);
    let subscribe = rig.sent_one("/meta/subscribe");
    assert_eq!(subscribe["ext"]["replay"], json!({"/a": -2, "/p/*": -2}));
    rig.receive(json!([{"channel": "/meta/subscribe", "id": subscribe["id"], "successful": true,
        "ext": {"replay": {"/a": {"recovered": true, "epoch": "e", "from": 5, "latest": 4, "lost": null}}}}]));
    rig.receive(json!([positioned("/p/x", "f", 7)]));
    rig.events();
    rig.lose_session();
    let subscribe = rig.sent_one("/meta/subscribe");
    let positions = json!({"/a": {"id": 4, "epoch": "e"}, "/p/*": -2, "/p/x": {"id": 7, "epoch": "f"}});
    assert_eq!(subscribe["ext"]["replay"], positions);
    rig.receive(json!([{"channel": "/meta/subscribe", "id": subscribe["id"], "successful": true, "ext": {"replay": {
        "/a": {"recovered": true, "epoch": "e", "from": 5, "latest": 9, "lost": null},
        "/p/x": {"recovered": false, "epoch": "g", "from": 1, "latest": 1, "lost": null}}}}]));
    assert_eq!(rig.received(), ["gap in /p/x: None", "open"]);
}

#[test]
fn a_new_session_whose_subscribe_may_be_lost_is_not_resumed_without_its_subscriptions() {
    for options in [SessionOptions::default(), acknowledging(), replaying(ReplayFrom::Latest)] {
        let mut rig = Rig::recovering(options);
        rig.sent();
        rig.subscribe("/a");
        rig.lose_session();
        rig.sent_one("/meta/subscribe");
        rig.connection_lost();
        rig.connection_opened();
        rig.reply_to_handshake_with("c3", json!({"ack": true, "replay": {"positions": "ext"}}));
        let subscribe = rig.sent_one("/meta/subscribe");
        assert_eq!((&subscribe["clientId"], &subscribe["subscription"]), (&json!("c3"), &json!(["/a"])));
        rig.events();
        rig.receive(json!([{"channel": "/meta/subscribe", "id": subscribe["id"], "successful": true}]));
        assert!(matches!(rig.events()[0], Event::Opened { resumed: false }));
    }
}

#[test]
fn a_gap_is_reported_once_and_where_messages_are_missing() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
    rig.subscribe_at("/a", 10);
    let mut late = positioned("/a", "e", 20);
    late["ext"]["replay"]["lost"] = json!({"from": 10, "to": 19});
    let heartbeat = json!({"replay": {"/a": {"id": 19, "epoch": "e", "lost": {"from": 10, "to": 19}}}});
    for _ in 0..2 {
        let id = rig.sent_one("/meta/connect")["id"].clone();
        rig.answer_connect(&id, json!({"successful": true, "ext": heartbeat}));
    }
    rig.receive(json!([late]));
    assert_eq!(rig.received(), ["gap in /a: Some((10, 19))", "20"]);
    // A part of it is known.
    let mut late = positioned("/a", "e", 30);
    late["ext"]["replay"]["lost"] = json!({"from": 15, "to": 29});
    rig.receive(json!([late]));
    assert_eq!(rig.received(), ["gap in /a: Some((21, 29))", "30"]);
    // The whole history is gone.
    for _ in 0..2 {
        let id = rig.sent_one("/meta/connect")["id"].clone();
        let heartbeat = json!({"replay": {"/a": {"id": null, "epoch": "e", "lost": {"from": 31, "to": null}}}});
        rig.answer_connect(&id, json!({"successful": true, "ext": heartbeat}));
    }
    assert_eq!(rig.received(), ["gap in /a: None"]);
}

#[test]
fn a_heartbeat_moves_the_position_forward_and_never_back() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
    rig.subscribe_at("/a", 10);
    for (offset, known) in [(15, 15), (12, 15)] {
        let id = rig.sent_one("/meta/connect")["id"].clone();
        let heartbeat = json!({"replay": {"/a": {"id": offset, "epoch": "e"}}});
        rig.answer_connect(&id, json!({"successful": true, "ext": heartbeat}));
        assert_eq!(rig.session.position("/a").map(|position| position.offset), Some(known));
    }
}

#[test]
fn a_gap_is_reported_for_a_channel_without_a_history_after_each_break() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
    rig.sent();
    rig.subscribe("/a");
    rig.connection_lost();
    rig.lost();
    rig.connection_opened();
    let messages = rig.sent().remove(0).1;
    rig.receive(json!([{"channel": "/meta/subscribe", "id": messages[0]["id"], "successful": true},
        {"channel": "/meta/connect", "id": messages[1]["id"], "successful": true}]));
    assert_eq!(rig.received(), ["open", "gap in /a: None"]);
}

#[test]
fn with_both_a_break_needs_a_connect_only_and_positions_count_when_their_batch_does() {
    let mut rig = Rig::recovering(SessionOptions { ack: true, ..replaying(ReplayFrom::Latest) });
    rig.subscribe_at("/a", 10);
    rig.sent();
    rig.receive(json!([positioned("/a", "e", 10)]));
    rig.connection_lost();
    rig.lost();
    rig.connection_opened();
    let connect = rig.sent_one("/meta/connect");
    assert_eq!(connect["ext"], json!({"ack": 0}));
    rig.receive(json!([positioned("/a", "e", 10),
        {"channel": "/meta/connect", "id": connect["id"], "successful": true, "ext": {"ack": 1}}]));
    assert_eq!(rig.received(), ["10", "open"]);
    rig.receive(json!([positioned("/a", "e", 11)]));
    rig.lose_session();
    assert_eq!(rig.sent_one("/meta/subscribe")["ext"]["replay"], json!({"/a": {"id": 10, "epoch": "e"}}));
}

#[test]
fn a_subscription_may_begin_elsewhere_and_is_forgotten_when_it_ends() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
    rig.sent();
    rig.session.subscribe_from("/a", ReplayFrom::After { offset: 7, epoch: None });
    let subscribe = rig.sent_one("/meta/subscribe");
    assert_eq!(subscribe["ext"]["replay"], json!({"/a": 7}));
    rig.receive(json!([{"channel": "/meta/subscribe", "id": subscribe["id"], "successful": true,
        "ext": {"replay": {"/a": {"recovered": false, "epoch": "e", "from": 20, "latest": 30, "lost": {"from": 8, "to": 19}}}}}]));
    assert_eq!(rig.received(), ["gap in /a: Some((8, 19))"]);
    rig.session.unsubscribe(&["/a".into()]);
    let id = rig.sent_one("/meta/unsubscribe")["id"].clone();
    rig.receive(json!([{"channel": "/meta/unsubscribe", "id": id, "successful": true}]));
    rig.session.subscribe(&["/a".into()]);
    assert_eq!(rig.sent_one("/meta/subscribe")["ext"]["replay"], json!({}), "the server chooses");
}

impl Rig {
    /// With an open session on a server that can do both, the first connect held.
    pub(super) fn recovering(options: SessionOptions) -> Rig {
        let mut rig = Rig::with(options);
        rig.connection_opened();
        rig.reply_to_handshake_with("c1", json!({"ack": true, "replay": {"positions": "ext"}}));
        assert!(matches!(rig.events()[..], [Event::Opened { resumed: false }]));
        rig
    }

    fn reply_to_handshake_with(&mut self, client_id: &str, ext: Value) {
        let id = self.sent_one("/meta/handshake")["id"].clone();
        self.receive(
            json!([{"channel": "/meta/handshake", "id": id, "successful": true, "clientId": client_id, "ext": ext}]),
        );
    }

    /// Subscribes to a channel whose next message has this number, in the epoch `e`; the connect that was sent stays unanswered.
    pub(super) fn subscribe_at(&mut self, channel: &str, next: u64) {
        self.session.subscribe(&[channel.into()]);
        let mut sent = self.sent();
        let subscribe = sent.pop().expect("a subscribe").1.remove(0);
        assert_eq!(subscribe["ext"]["replay"], json!({}));
        self.receive(json!([{"channel": "/meta/subscribe", "id": subscribe["id"], "successful": true,
            "ext": {"replay": {channel: {"recovered": true, "epoch": "e", "from": next, "latest": next - 1, "lost": null}}}}]));
        assert!(matches!(self.events()[..], [Event::Replied { .. }]));
        // The connect, for tests that answer it.
        if let Some((class, messages)) = sent.pop() {
            self.session
                .out
                .push_front(crate::session::Transmission { class, text: Value::from(messages).to_string() });
        }
    }

    /// The connection breaks, the server has forgotten the session, and a new one begins.
    pub(super) fn lose_session(&mut self) {
        self.forget_session();
        self.reply_to_handshake_with("c2", json!({"ack": true, "replay": {"positions": "ext"}}));
    }

    /// The events that the program gets, in short.
    pub(super) fn received(&mut self) -> Vec<String> {
        let short = |event| match event {
            Event::Message(message) => Some(match serde_json::from_str(message.data().as_str()).expect("JSON") {
                Value::String(text) => text,
                data => data.to_string(),
            }),
            Event::Gap(gap) => {
                assert!(!matches!(gap.cause, GapCause::SlowReader { .. }), "{gap}");
                Some(format!("gap in {}: {:?}", gap.channel, gap.offsets()))
            }
            Event::Opened { .. } => Some("open".into()),
            Event::Replied { .. } => None,
            other => panic!("{other:?}"),
        };
        self.events().into_iter().filter_map(short).collect()
    }
}

fn acknowledging() -> SessionOptions {
    SessionOptions { ack: true, ..SessionOptions::default() }
}

pub(super) fn replaying(start: ReplayFrom) -> SessionOptions {
    SessionOptions { replay: Some(start), ..SessionOptions::default() }
}

/// A message as a server delivers it that keeps a history.
pub(super) fn positioned(channel: &str, epoch: &str, id: u64) -> Value {
    json!({"channel": channel, "data": id, "ext": {"replay": {"epoch": epoch, "id": id}}})
}
