//! Positions in histories: their moves, their limits, and gaps where none is known.

use super::recovery::{positioned, replaying};
use super::*;
use crate::ReplayFrom;

#[test]
fn a_reply_that_comes_after_the_messages_does_not_move_the_position_back() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Earliest));
    rig.sent();
    rig.session.subscribe(&["/a".into()]);
    let subscribe = rig.sent_one("/meta/subscribe");
    // Over long-polling they come on the other connection.
    rig.receive(json!([positioned("/a", "e", 5), positioned("/a", "e", 6)]));
    rig.receive(granted(&subscribe, json!({"/a": begins("e", 5, 6)})));
    assert_eq!(rig.received(), ["5", "6"]);
    assert_eq!(rig.requested_again(), json!({"/a": {"id": 6, "epoch": "e"}}));
}

#[test]
fn a_reply_that_comes_after_the_messages_of_another_history_does_not_move_the_position_back() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
    rig.sent();
    rig.session.subscribe_from("/a", ReplayFrom::After { offset: 10, epoch: Some("e".into()) });
    let subscribe = rig.sent_one("/meta/subscribe");
    rig.receive(json!([positioned("/a", "f", 3), positioned("/a", "f", 4)]));
    let answer = json!({"recovered": false, "epoch": "f", "from": 3, "latest": 3, "lost": null});
    rig.receive(granted(&subscribe, json!({"/a": answer})));
    assert_eq!(rig.received(), ["3", "4", "gap in /a: None"]);
    assert_eq!(rig.requested_again(), json!({"/a": {"id": 4, "epoch": "f"}}));
}

#[test]
fn subscriptions_with_an_interval_name_no_position_and_ask_for_it_again_in_a_new_session() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
    rig.sent();
    rig.session.subscribe_with_interval("/q/*", 500);
    let subscribe = rig.sent_one("/meta/subscribe");
    assert_eq!(subscribe["ext"], json!({"min_interval_ms": 500}));
    rig.receive(granted(&subscribe, json!({})));
    rig.events();
    for channel in ["/a", "/b"] {
        rig.subscribe_at(channel, 10);
    }
    rig.lose_session();
    let sent: Vec<Value> = rig.sent().into_iter().flat_map(|(_, messages)| messages).collect();
    let asked = |message: &Value| (message["subscription"].clone(), message["ext"]["min_interval_ms"].clone());
    assert_eq!(
        sent.iter().map(asked).collect::<Vec<_>>(),
        [(json!(["/a", "/b"]), json!(null)), (json!(["/q/*"]), json!(500))]
    );
    assert!(sent[0]["ext"]["replay"].is_object() && sent[1]["ext"]["replay"].is_null(), "{sent:?}");
}

#[test]
fn a_reply_moves_the_position_back_where_the_server_has_another_history_or_less_of_it() {
    for (answer, next) in [
        (json!({"recovered": false, "epoch": "f", "from": 3, "latest": 4, "lost": null}), positioned("/a", "f", 3)),
        (json!({"recovered": false, "epoch": "e", "from": 3, "latest": 4, "lost": null}), positioned("/a", "e", 3)),
    ] {
        let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
        rig.subscribe_at("/a", 10);
        rig.receive(json!([positioned("/a", "e", 10)]));
        assert_eq!(rig.received(), ["10"]);
        rig.lose_session();
        let subscribe = rig.sent_one("/meta/subscribe");
        rig.receive(granted(&subscribe, json!({"/a": answer})));
        rig.receive(json!([next]));
        assert_eq!(rig.received(), ["gap in /a: None", "open", "3"]);
    }
}

#[test]
fn a_subscription_that_restarts_gets_again_what_the_session_has() {
    // The messages before the reply, as over long-polling, and behind it.
    for messages_first in [true, false] {
        let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
        rig.subscribe_at("/a", 10);
        rig.receive(json!([positioned("/a", "e", 10)]));
        rig.sent();
        rig.session.subscribe_from("/a", ReplayFrom::Earliest);
        let subscribe = rig.sent_one("/meta/subscribe");
        assert_eq!(subscribe["ext"]["replay"], json!({"/a": -2}));
        rig.receive(json!([positioned("/a", "e", 11)]));
        let again = json!([positioned("/a", "e", 3), positioned("/a", "e", 4)]);
        let answer = granted(&subscribe, json!({"/a": begins("e", 3, 11)}));
        let (first, second) = if messages_first { (again, answer) } else { (answer, again) };
        rig.receive(first);
        rig.receive(second);
        assert_eq!(rig.received(), ["10", "11", "3", "4"]);
        assert_eq!(rig.requested_again(), json!({"/a": {"id": 4, "epoch": "e"}}));
    }
}

#[test]
fn messages_that_newer_ones_overtook_on_the_other_connection_are_delivered_once() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
    rig.subscribe_at("/a", 10);
    rig.receive(json!([positioned("/a", "e", 10), positioned("/a", "e", 14)]));
    rig.receive(json!([positioned("/a", "e", 11), positioned("/a", "e", 13)]));
    rig.receive(json!([
        positioned("/a", "e", 11),
        positioned("/a", "e", 13),
        positioned("/a", "e", 14),
        positioned("/a", "e", 15)
    ]));
    assert_eq!(rig.received(), ["10", "14", "11", "13", "15"]);
}

#[test]
fn a_message_that_a_pattern_will_bring_again_is_not_delivered_before() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Earliest));
    rig.sent();
    rig.subscribe("/p/*");
    rig.connection_lost();
    rig.lost();
    rig.connection_opened();
    let messages = rig.sent().remove(0).1;
    // It is not known that the old connection took 1 and 2 along.
    rig.receive(json!([positioned("/p/x", "e", 3)]));
    rig.receive(granted(&messages[0], json!({"/p/x": begins("e", 1, 3)})));
    rig.answer_connect(&messages[1]["id"], json!({"successful": true}));
    rig.receive(json!([positioned("/p/x", "e", 1), positioned("/p/x", "e", 2), positioned("/p/x", "e", 3)]));
    assert_eq!(rig.received(), ["open", "1", "2", "3"]);
}

#[test]
fn more_positions_than_a_subscribe_takes_go_into_several() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Earliest));
    rig.sent();
    let names: Vec<String> = (0..700).map(|number| format!("/n/{number}")).collect();
    let id = rig.session.subscribe(&[&names[..], &["/p/*".into(), "/q/*".into()]].concat());
    rig.sent_one("/meta/subscribe");
    rig.receive(json!([{"channel": "/meta/subscribe", "id": id.to_string(), "successful": true}]));
    let messages = (0..700).map(|number| positioned(&format!("/p/{number}"), "e", 7));
    rig.receive(messages.collect());
    rig.events();
    rig.connection_lost();
    rig.lost();
    rig.connection_opened();
    let mut messages = rig.sent().remove(0).1;
    let connect = messages.pop().expect("a connect");
    assert_eq!(connect["channel"], "/meta/connect");
    let named: Vec<usize> = messages.iter().map(|subscribe| positions(subscribe).len()).collect();
    assert!(named.iter().all(|named| *named <= 1000), "{named:?}");
    assert_eq!(named.iter().sum::<usize>(), 1402);
    rig.answer_connect(&connect["id"], json!({"successful": true}));
    rig.receive(granted(&messages[0], json!({})));
    assert!(!rig.session.is_open(), "one of two is answered");
    // The channels of the second one still come again.
    rig.receive(json!([positioned("/p/1", "e", 9)]));
    rig.receive(granted(&messages[1], json!({"/p/1": begins("e", 8, 9)})));
    rig.receive(json!([positioned("/p/1", "e", 8), positioned("/p/1", "e", 9)]));
    assert!(rig.session.is_open());
    assert_eq!(rig.received()[..4], ["open", "gap in /n/0: None", "gap in /n/1: None", "gap in /n/2: None"]);
}

#[test]
fn a_pattern_with_as_many_channels_as_there_are_positions_fits_into_one_subscribe() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
    rig.sent();
    rig.subscribe("/p/*");
    rig.receive((0..1100).map(|number| positioned(&format!("/p/{number}"), "e", 7)).collect());
    rig.events();
    rig.connection_lost();
    rig.lost();
    rig.connection_opened();
    let messages = rig.sent().remove(0).1;
    assert_eq!((messages.len(), positions(&messages[0]).len()), (2, 1000));
}

#[test]
fn a_server_that_takes_fewer_positions_gets_fewer_and_the_rest_is_a_gap() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Earliest));
    rig.sent();
    rig.subscribe("/p/*");
    rig.receive((0..4).map(|number| positioned(&format!("/p/{number}"), "e", 7)).collect());
    rig.events();
    rig.connection_lost();
    rig.lost();
    rig.connection_opened();
    let mut messages = rig.sent().remove(0).1;
    rig.answer_connect(&messages[1]["id"], json!({"successful": true}));
    let mut tries = Vec::new();
    while tries.len() < 3 {
        tries.push((positions(&messages[0])["/p/*"].clone(), positions(&messages[0]).len()));
        rig.receive(json!([{"channel": "/meta/subscribe", "id": messages[0]["id"], "successful": false,
            "error": "413::replay_channels_max"}]));
        messages = rig.sent().remove(0).1;
    }
    // At first the pattern begins with new messages only, for its channels may be too many; then positions are left out.
    assert_eq!(tries, [(json!(-2), 5), (json!(-1), 5), (json!(-1), 3)]);
    rig.receive(granted(&messages[0], json!({"/p/0": begins("e", 8, 7)})));
    assert_eq!(rig.received(), ["open", "gap in /p/*: None"]);
    // Nor is all asked for the next time: what is known no more would come again.
    assert_eq!(rig.requested_again(), json!({"/p/*": -1, "/p/0": {"id": 7, "epoch": "e"}}));
}

#[test]
fn a_server_that_takes_no_position_at_all_ends_the_session() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Earliest));
    rig.subscribe_earliest("/a");
    rig.receive(json!([positioned("/a", "e", 7)]));
    rig.lose_session();
    rig.events();
    for _ in 0..3 {
        let subscribe = rig.sent_one("/meta/subscribe");
        rig.receive(json!([{"channel": "/meta/subscribe", "id": subscribe["id"], "successful": false,
            "error": "413::replay_channels_max"}]));
    }
    assert_eq!(rig.ended(), ("/meta/subscribe".into(), "413::replay_channels_max".into()));
}

#[test]
fn a_pattern_from_the_latest_reports_a_gap_after_a_break_as_there_may_be_unknown_channels() {
    for (from, expected) in
        [(ReplayFrom::Latest, &["open", "gap in /p/*: None"][..]), (ReplayFrom::Earliest, &["open"])]
    {
        let mut rig = Rig::recovering(replaying(from));
        rig.sent();
        rig.subscribe("/p/*");
        rig.receive(json!([positioned("/p/x", "e", 7)]));
        assert_eq!(rig.received(), ["7"]);
        rig.lose_session();
        let subscribe = rig.sent_one("/meta/subscribe");
        rig.receive(granted(&subscribe, json!({"/p/x": begins("e", 8, 7)})));
        assert_eq!(rig.received(), expected);
    }
}

#[test]
fn channels_beyond_the_known_positions_are_a_gap_and_do_not_come_twice() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Earliest));
    rig.sent();
    rig.subscribe("/p/*");
    rig.receive((0..1100).map(|number| positioned(&format!("/p/{number}"), "e", 7)).collect());
    rig.events();
    rig.lose_session();
    let subscribe = rig.sent_one("/meta/subscribe");
    assert_eq!(positions(&subscribe)["/p/*"], -1);
    rig.receive(granted(&subscribe, json!({})));
    assert_eq!(rig.received(), ["open", "gap in /p/*: None"]);
}

#[test]
fn a_subscription_whose_reply_got_lost_resumes_at_its_position() {
    let mut rig = Rig::recovering(replaying(ReplayFrom::Latest));
    rig.sent();
    let id = rig.session.subscribe(&["/a".into()]);
    rig.sent_one("/meta/subscribe");
    rig.receive(json!([positioned("/a", "e", 7)]));
    assert_eq!(rig.received(), ["7"]);
    assert_eq!(rig.requested_again(), json!({"/a": {"id": 7, "epoch": "e"}}));
    assert!(rig.session.pending_changes.iter().any(|asked| asked.id == id), "its reply is still to come");
}

impl Rig {
    /// Subscribes to a channel that begins with all retained messages; the reply has no positions.
    fn subscribe_earliest(&mut self, channel: &str) {
        self.sent();
        self.subscribe(channel);
    }

    /// The connection breaks; what the old session names on the new one.
    fn requested_again(&mut self) -> Value {
        self.connection_lost();
        self.lost();
        self.connection_opened();
        self.sent().remove(0).1.remove(0)["ext"]["replay"].take()
    }
}

fn positions(subscribe: &Value) -> &serde_json::Map<String, Value> {
    subscribe["ext"]["replay"].as_object().expect("positions")
}

fn granted(subscribe: &Value, positions: Value) -> Value {
    json!([{"channel": "/meta/subscribe", "id": subscribe["id"], "successful": true, "ext": {"replay": positions}}])
}

fn begins(epoch: &str, from: u64, latest: u64) -> Value {
    json!({"recovered": true, "epoch": epoch, "from": from, "latest": latest, "lost": null})
}
