//! Places in histories: how they move, how many are named, and what is told where none is known.

use super::super::Start;
use super::recovery::{placed, replaying};
use super::*;

#[test]
fn an_answer_that_comes_after_the_messages_does_not_set_the_place_back() {
    let mut rig = Rig::recovering(replaying(Start::Kept));
    rig.sent();
    rig.dialog.subscribe(&["/a".into()]);
    let subscribe = rig.sent_one("/meta/subscribe");
    // Over long-polling they come on the other connection.
    rig.receive(json!([placed("/a", "e", 5), placed("/a", "e", 6)]));
    rig.receive(granted(&subscribe, json!({"/a": begins("e", 5, 6)})));
    assert_eq!(rig.heard(), ["5", "6"]);
    assert_eq!(rig.renamed(), json!({"/a": {"id": 6, "epoch": "e"}}));
}

#[test]
fn an_answer_that_comes_after_the_messages_of_another_history_does_not_set_the_place_back() {
    let mut rig = Rig::recovering(replaying(Start::Now));
    rig.sent();
    rig.dialog.subscribe_from("/a", Start::After { id: 10, epoch: Some("e".into()) });
    let subscribe = rig.sent_one("/meta/subscribe");
    rig.receive(json!([placed("/a", "f", 3), placed("/a", "f", 4)]));
    let answer = json!({"recovered": false, "epoch": "f", "from": 3, "latest": 3, "lost": null});
    rig.receive(granted(&subscribe, json!({"/a": answer})));
    assert_eq!(rig.heard(), ["3", "4", "gap in /a: None"]);
    assert_eq!(rig.renamed(), json!({"/a": {"id": 4, "epoch": "f"}}));
}

#[test]
fn an_answer_sets_the_place_back_where_the_server_has_another_history_or_less_of_it() {
    for (answer, next) in [
        (json!({"recovered": false, "epoch": "f", "from": 3, "latest": 4, "lost": null}), placed("/a", "f", 3)),
        (json!({"recovered": false, "epoch": "e", "from": 3, "latest": 4, "lost": null}), placed("/a", "e", 3)),
    ] {
        let mut rig = Rig::recovering(replaying(Start::Now));
        rig.subscribe_at("/a", 10);
        rig.receive(json!([placed("/a", "e", 10)]));
        assert_eq!(rig.heard(), ["10"]);
        rig.lose_session();
        let subscribe = rig.sent_one("/meta/subscribe");
        rig.receive(granted(&subscribe, json!({"/a": answer})));
        rig.receive(json!([next]));
        assert_eq!(rig.heard(), ["gap in /a: None", "open", "3"]);
    }
}

#[test]
fn a_subscription_that_begins_anew_gets_again_what_the_session_has() {
    // The messages before the reply, as over long-polling, and behind it.
    for messages_first in [true, false] {
        let mut rig = Rig::recovering(replaying(Start::Now));
        rig.subscribe_at("/a", 10);
        rig.receive(json!([placed("/a", "e", 10)]));
        rig.sent();
        rig.dialog.subscribe_from("/a", Start::Kept);
        let subscribe = rig.sent_one("/meta/subscribe");
        assert_eq!(subscribe["ext"]["replay"], json!({"/a": -2}));
        rig.receive(json!([placed("/a", "e", 11)]));
        let again = json!([placed("/a", "e", 3), placed("/a", "e", 4)]);
        let answer = granted(&subscribe, json!({"/a": begins("e", 3, 11)}));
        let (first, second) = if messages_first { (again, answer) } else { (answer, again) };
        rig.receive(first);
        rig.receive(second);
        assert_eq!(rig.heard(), ["10", "11", "3", "4"]);
        assert_eq!(rig.renamed(), json!({"/a": {"id": 4, "epoch": "e"}}));
    }
}

#[test]
fn messages_that_newer_ones_overtook_on_the_other_connection_are_shown_once() {
    let mut rig = Rig::recovering(replaying(Start::Now));
    rig.subscribe_at("/a", 10);
    rig.receive(json!([placed("/a", "e", 10), placed("/a", "e", 14)]));
    rig.receive(json!([placed("/a", "e", 11), placed("/a", "e", 13)]));
    rig.receive(json!([placed("/a", "e", 11), placed("/a", "e", 13), placed("/a", "e", 14), placed("/a", "e", 15)]));
    assert_eq!(rig.heard(), ["10", "14", "11", "13", "15"]);
}

#[test]
fn a_message_that_a_pattern_will_bring_again_is_not_shown_before() {
    let mut rig = Rig::recovering(replaying(Start::Kept));
    rig.sent();
    rig.subscribe("/p/*");
    rig.carrier_lost();
    rig.lost();
    rig.carrier_opened();
    let messages = rig.sent().remove(0).1;
    // It is not known that the old connection took 1 and 2 along.
    rig.receive(json!([placed("/p/x", "e", 3)]));
    rig.receive(granted(&messages[0], json!({"/p/x": begins("e", 1, 3)})));
    rig.answer_connect(&messages[1]["id"], json!({"successful": true}));
    rig.receive(json!([placed("/p/x", "e", 1), placed("/p/x", "e", 2), placed("/p/x", "e", 3)]));
    assert_eq!(rig.heard(), ["open", "1", "2", "3"]);
}

#[test]
fn more_places_than_a_subscribe_takes_are_named_in_several() {
    let mut rig = Rig::recovering(replaying(Start::Kept));
    rig.sent();
    let names: Vec<String> = (0..700).map(|number| format!("/n/{number}")).collect();
    let id = rig.dialog.subscribe(&[&names[..], &["/p/*".into(), "/q/*".into()]].concat());
    rig.sent_one("/meta/subscribe");
    rig.receive(json!([{"channel": "/meta/subscribe", "id": id.to_string(), "successful": true}]));
    let messages = (0..700).map(|number| placed(&format!("/p/{number}"), "e", 7));
    rig.receive(messages.collect());
    rig.events();
    rig.carrier_lost();
    rig.lost();
    rig.carrier_opened();
    let mut messages = rig.sent().remove(0).1;
    let connect = messages.pop().expect("a connect");
    assert_eq!(connect["channel"], "/meta/connect");
    let named: Vec<usize> = messages.iter().map(|subscribe| positions(subscribe).len()).collect();
    assert!(named.iter().all(|named| *named <= 1000), "{named:?}");
    assert_eq!(named.iter().sum::<usize>(), 1402);
    rig.answer_connect(&connect["id"], json!({"successful": true}));
    rig.receive(granted(&messages[0], json!({})));
    assert!(!rig.dialog.is_open(), "one of two is answered");
    // What the second one is about comes again still.
    rig.receive(json!([placed("/p/1", "e", 9)]));
    rig.receive(granted(&messages[1], json!({"/p/1": begins("e", 8, 9)})));
    rig.receive(json!([placed("/p/1", "e", 8), placed("/p/1", "e", 9)]));
    assert!(rig.dialog.is_open());
    assert_eq!(rig.heard()[..4], ["open", "gap in /n/0: None", "gap in /n/1: None", "gap in /n/2: None"]);
}

#[test]
fn a_pattern_with_as_many_channels_as_there_are_places_fits_into_one_subscribe() {
    let mut rig = Rig::recovering(replaying(Start::Now));
    rig.sent();
    rig.subscribe("/p/*");
    rig.receive((0..1100).map(|number| placed(&format!("/p/{number}"), "e", 7)).collect());
    rig.events();
    rig.carrier_lost();
    rig.lost();
    rig.carrier_opened();
    let messages = rig.sent().remove(0).1;
    assert_eq!((messages.len(), positions(&messages[0]).len()), (2, 1000));
}

#[test]
fn where_the_server_takes_fewer_places_fewer_are_named_and_the_rest_is_told() {
    let mut rig = Rig::recovering(replaying(Start::Kept));
    rig.sent();
    rig.subscribe("/p/*");
    rig.receive((0..4).map(|number| placed(&format!("/p/{number}"), "e", 7)).collect());
    rig.events();
    rig.carrier_lost();
    rig.lost();
    rig.carrier_opened();
    let mut messages = rig.sent().remove(0).1;
    rig.answer_connect(&messages[1]["id"], json!({"successful": true}));
    let mut tries = Vec::new();
    while tries.len() < 3 {
        tries.push((positions(&messages[0])["/p/*"].clone(), positions(&messages[0]).len()));
        rig.receive(json!([{"channel": "/meta/subscribe", "id": messages[0]["id"], "successful": false,
            "error": "413::replay_channels_max"}]));
        messages = rig.sent().remove(0).1;
    }
    // At first the pattern is to begin with what is new only, for its channels may be too many; then places go.
    assert_eq!(tries, [(json!(-2), 5), (json!(-1), 5), (json!(-1), 3)]);
    rig.receive(granted(&messages[0], json!({"/p/0": begins("e", 8, 7)})));
    assert_eq!(rig.heard(), ["open", "gap in /p/*: None"]);
    // Nor is all asked for the next time: what is known no more would come again.
    assert_eq!(rig.renamed(), json!({"/p/*": -1, "/p/0": {"id": 7, "epoch": "e"}}));
}

#[test]
fn a_server_that_takes_no_place_at_all_ends_the_session() {
    let mut rig = Rig::recovering(replaying(Start::Kept));
    rig.subscribe_at_kept("/a");
    rig.receive(json!([placed("/a", "e", 7)]));
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
fn a_pattern_that_began_at_now_tells_after_a_break_that_unknown_channels_may_miss_something() {
    for (start, told) in [(Start::Now, &["open", "gap in /p/*: None"][..]), (Start::Kept, &["open"])] {
        let mut rig = Rig::recovering(replaying(start));
        rig.sent();
        rig.subscribe("/p/*");
        rig.receive(json!([placed("/p/x", "e", 7)]));
        assert_eq!(rig.heard(), ["7"]);
        rig.lose_session();
        let subscribe = rig.sent_one("/meta/subscribe");
        rig.receive(granted(&subscribe, json!({"/p/x": begins("e", 8, 7)})));
        assert_eq!(rig.heard(), told);
    }
}

#[test]
fn channels_beyond_those_that_have_places_are_told_of_and_do_not_come_twice() {
    let mut rig = Rig::recovering(replaying(Start::Kept));
    rig.sent();
    rig.subscribe("/p/*");
    rig.receive((0..1100).map(|number| placed(&format!("/p/{number}"), "e", 7)).collect());
    rig.events();
    rig.lose_session();
    let subscribe = rig.sent_one("/meta/subscribe");
    assert_eq!(positions(&subscribe)["/p/*"], -1);
    rig.receive(granted(&subscribe, json!({})));
    assert_eq!(rig.heard(), ["open", "gap in /p/*: None"]);
}

#[test]
fn a_subscription_whose_reply_got_lost_goes_on_at_its_places() {
    let mut rig = Rig::recovering(replaying(Start::Now));
    rig.sent();
    let id = rig.dialog.subscribe(&["/a".into()]);
    rig.sent_one("/meta/subscribe");
    rig.receive(json!([placed("/a", "e", 7)]));
    assert_eq!(rig.heard(), ["7"]);
    assert_eq!(rig.renamed(), json!({"/a": {"id": 7, "epoch": "e"}}));
    assert!(rig.dialog.asked.iter().any(|asked| asked.id == id), "its reply is still to come");
}

impl Rig {
    /// Subscribes to a channel that begins with all that is kept; the server says nothing of places.
    fn subscribe_at_kept(&mut self, channel: &str) {
        self.sent();
        self.subscribe(channel);
    }

    /// The connection breaks; what the old session names on the new one.
    fn renamed(&mut self) -> Value {
        self.carrier_lost();
        self.lost();
        self.carrier_opened();
        self.sent().remove(0).1.remove(0)["ext"]["replay"].take()
    }
}

fn positions(subscribe: &Value) -> &serde_json::Map<String, Value> {
    subscribe["ext"]["replay"].as_object().expect("positions")
}

fn granted(subscribe: &Value, places: Value) -> Value {
    json!([{"channel": "/meta/subscribe", "id": subscribe["id"], "successful": true, "ext": {"replay": places}}])
}

fn begins(epoch: &str, from: u64, latest: u64) -> Value {
    json!({"recovered": true, "epoch": epoch, "from": from, "latest": latest, "lost": null})
}
