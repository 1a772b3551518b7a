//! An open session: connects, subscriptions, publications, batches, disconnects.

use super::*;
use crate::{Extension, Filter, Outgoing, ServerMessage};

#[test]
fn connects_follow_each_other_at_the_advised_interval() {
    let mut rig = Rig::open(json!({"interval": 2000, "timeout": 30000}));
    assert!(rig.sent().is_empty(), "not before the interval is over");
    rig.pass(SECOND * 2 - Duration::from_millis(1));
    assert!(rig.sent().is_empty());
    rig.pass(Duration::from_millis(1));
    let id = rig.sent_one("/meta/connect")["id"].clone();
    // A field that the advice lacks stays as it was.
    rig.answer_connect(&id, json!({"successful": true, "advice": {"reconnect": "retry"}}));
    assert_eq!(rig.session.wake_at(), Some(rig.now + SECOND * 2));
    rig.pass(SECOND * 2);
    let id = rig.sent_one("/meta/connect")["id"].clone();
    rig.answer_connect(&id, json!({"successful": true, "advice": {"interval": 0}}));
    rig.sent_one("/meta/connect");
}

#[test]
fn a_connect_that_is_held_too_long_means_that_the_server_is_gone() {
    let mut rig = Rig::open(json!({"timeout": 30000}));
    rig.sent_one("/meta/connect");
    rig.pass(SECOND * 40 - Duration::from_millis(1));
    assert!(rig.events().is_empty());
    rig.pass(Duration::from_millis(1));
    assert!(rig.lost() < SECOND, "the first time it comes back soon");
    assert!(!rig.session.is_open());
}

#[test]
fn several_sessions_of_one_browser_poll_as_advised() {
    let mut rig = Rig::open(json!({"timeout": 30000}));
    let id = rig.sent_one("/meta/connect")["id"].clone();
    let advice = json!({"multiple-clients": true, "interval": 2000, "reconnect": "retry"});
    rig.answer_connect(&id, json!({"successful": true, "advice": advice}));
    assert_eq!(rig.session.wake_at(), Some(rig.now + SECOND * 2));
    rig.pass(SECOND * 2);
    let id = rig.sent_one("/meta/connect")["id"].clone();
    let advice = json!({"multiple-clients": true, "reconnect": "none"});
    rig.answer_connect(&id, json!({"successful": false, "advice": advice}));
    assert_eq!(rig.ended().0, "/meta/connect");
}

#[test]
fn subscriptions_are_asked_for_and_answered_by_id() {
    let mut rig = Rig::open(json!({}));
    rig.sent();
    let id = rig.session.subscribe(&["/a".into(), "/b/*".into()]);
    let message = rig.sent_one("/meta/subscribe");
    assert_eq!(
        message,
        json!({"channel": "/meta/subscribe", "id": id.to_string(), "clientId": "c1", "subscription": ["/a", "/b/*"]})
    );
    // Numbers as ids, as some servers answer.
    rig.receive(json!([{"channel": "/meta/subscribe", "id": id, "successful": false,
        "error": "403::subscribe_denied", "subscription": ["/a", "/b/*"]}]));
    match &rig.events()[..] {
        [Event::Replied { id: answered, channel, outcome, .. }] => {
            let refused = (*answered, channel.as_str(), error_of(outcome));
            assert_eq!(refused, (id, "/meta/subscribe", "403::subscribe_denied"));
        }
        other => panic!("{other:?}"),
    }
    assert!(rig.session.is_open());
}

#[test]
fn replies_to_other_messages_are_events_or_ignored() {
    let mut rig = Rig::open(json!({}));
    rig.sent();
    let own = rig.session.next_id();
    rig.receive(json!([
        {"channel": "/a", "id": own.to_string(), "successful": true},
        {"channel": "/a", "id": "not-ours", "successful": true},
        {"channel": "/a", "successful": true},
        {"channel": "/meta/connect", "id": "1", "successful": false, "advice": {"interval": 5}},
        {"channel": "/meta/ping", "successful": true}
    ]));
    match &rig.events()[..] {
        [Event::Replied { id, outcome: Ok(()), .. }] => assert_eq!(*id, own),
        other => panic!("{other:?}"),
    }
    assert!(rig.session.is_open());
}

#[test]
fn deliveries_come_out_in_order_and_unchanged() {
    let mut rig = Rig::open(json!({}));
    let text = r#"[{"channel":"/a","data":{"n":12345678901234567890}},{"channel":"/a"},
        {"channel":"/service/echo","id":"9","data":[1, 2],"successful":true}]"#;
    rig.session.received(text, rig.now).expect("Bayeux");
    let events = rig.events();
    let [Event::Message(first), Event::Message(second), Event::Message(third)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((first.data().as_str(), first.id), (r#"{"n":12345678901234567890}"#, None));
    assert_eq!((&*second.channel, second.data().as_str()), ("/a", "null"));
    assert_eq!((third.data().as_str(), third.id), ("[1, 2]", Some(9)));
}

#[test]
fn publications_go_out_one_by_one_and_in_a_batch_as_one() {
    let mut rig = Rig::open(json!({}));
    rig.sent();
    let first = rig.session.publish("/a", raw(r#"{"x": 1.50}"#));
    rig.session.publish("/a", raw("2"));
    let text = rig.session.transmit().expect("the first").text;
    assert_eq!(text, format!(r#"[{{"channel":"/a","id":"{first}","clientId":"c1","data":{{"x": 1.50}}}}]"#));
    assert_eq!(rig.sent().len(), 1);

    rig.session.batch(|session| {
        session.publish("/a", raw("3"));
        session.batch(|session| {
            session.subscribe(&["/b".into()]);
        });
        session.publish("/b", raw("4"));
    });
    rig.session.publish("/a", raw("5"));
    let sent = rig.sent();
    let channels: Vec<&str> = sent[0].1.iter().filter_map(|message| message["channel"].as_str()).collect();
    assert_eq!(channels, ["/a", "/meta/subscribe", "/b"]);
    assert_eq!((sent.len(), sent[1].1.len()), (2, 1), "what comes after the batch is on its own");
    rig.session.batch(|_| {});
    assert!(rig.sent().is_empty());
}

#[test]
fn a_publication_declines_its_reply_and_a_refusal_comes_all_the_same() {
    let mut rig = Rig::open(json!({}));
    let id = rig.session.publish_without_reply("/a", raw("1"));
    assert_eq!(rig.sent().last().expect("a text").1[0]["ext"], json!({"reply": false}));
    rig.receive(json!([{"channel": "/a", "id": id.to_string(), "successful": false, "error": "403::publish_denied"}]));
    assert!(matches!(&rig.events()[..], [Event::Replied { id: refused, outcome: Err(_), .. }] if *refused == id));
}

#[test]
fn disconnect_ends_the_session_with_its_reply() {
    let mut rig = Rig::open(json!({}));
    let held = rig.sent_one("/meta/connect")["id"].clone();
    let id = rig.session.disconnect();
    assert_eq!(rig.sent_one("/meta/disconnect")["clientId"], "c1");
    // The held connect comes back first.
    rig.answer_connect(&held, json!({"successful": true, "advice": {"reconnect": "none"}}));
    assert!(rig.events().is_empty() && !rig.session.is_ended());
    rig.receive(json!([{"channel": "/meta/disconnect", "id": id.to_string(), "successful": true}]));
    assert!(matches!(&rig.events()[..], [Event::Replied { id: answered, outcome: Ok(()), .. }] if *answered == id));
    assert!(rig.session.is_ended());
}

#[test]
fn a_disconnect_that_a_break_overtakes_fails() {
    let mut rig = Rig::open(json!({}));
    let id = rig.session.disconnect();
    rig.connection_lost();
    assert!(matches!(&rig.events()[..], [Event::Replied { id: answered, outcome: Err(_), .. }] if *answered == id));
    assert!(rig.session.is_ended());
    let late = rig.session.subscribe(&["/a".into()]);
    assert!(matches!(&rig.events()[..], [Event::Replied { id: answered, outcome: Err(_), .. }] if *answered == late));
}

#[test]
fn a_server_that_ends_the_session_ends_it() {
    let mut rig = Rig::open(json!({}));
    rig.receive(json!([{"channel": "/a", "data": 1}, {"channel": "/meta/disconnect", "successful": true}]));
    let events = rig.events();
    assert!(matches!(&events[..], [Event::Message(_), Event::Ended(Error::Refused(_))]), "{events:?}");

    let mut rig = Rig::open(json!({}));
    let id = rig.sent_one("/meta/connect")["id"].clone();
    rig.answer_connect(&id, json!({"successful": true, "advice": {"reconnect": "none"}}));
    assert_eq!(rig.ended().1, "the server ended the session");

    let mut rig = Rig::open(json!({}));
    rig.receive(json!([{"channel": "/meta/disconnect", "successful": true, "error": "401::token_expired"}]));
    assert_eq!(rig.ended().1, "401::token_expired");
}

#[test]
fn extensions_write_ext_and_see_what_comes() {
    let mut rig = Rig::new();
    rig.session.add_extension(Box::new(Login::default()));
    rig.connection_opened();
    let handshake = rig.sent_one("/meta/handshake");
    assert_eq!(handshake["ext"], json!({"limits": true, "token": "secret"}));
    rig.receive(json!([{"channel": "/meta/handshake", "id": "1", "successful": true, "clientId": "c1"}]));
    assert_eq!(rig.sent_one("/meta/connect").get("ext"), None, "no ext where nothing was written");
    rig.events();
    rig.receive(json!([{"channel": "/noise", "data": 1}, {"channel": "/a", "data": 2}]));
    assert!(matches!(&rig.events()[..], [Event::Message(message)] if *message.channel == *"/a"));
    rig.session.subscribe(&["/a".into()]);
    assert_eq!(rig.sent_one("/meta/subscribe")["ext"], json!({"replay": {"/a": 3}}));
}

/// Writes a token and a position, and drops noise; it tries to drop replies, too.
#[derive(Default)]
struct Login {
    seen: u64,
}

impl Extension for Login {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        match message.channel {
            "/meta/handshake" => message.ext.insert("token".into(), "secret".into()),
            "/meta/subscribe" => message.ext.insert("replay".into(), json!({&message.subscription[0]: self.seen})),
            _ => None,
        };
    }

    fn incoming(&mut self, message: &ServerMessage<'_>) -> Filter {
        self.seen += 1;
        if message.channel == "/a" { Filter::Pass } else { Filter::Drop }
    }
}

#[test]
fn a_message_above_the_limit_of_the_server_is_refused_permanently_and_not_sent() {
    let mut rig = Rig::new();
    rig.connection_opened();
    let id = rig.sent_one("/meta/handshake")["id"].clone();
    let limits = json!({"message_bytes": 1_000, "batch_messages": 9, "channel_bytes": 99, "subscriptions": 9, "positions": 9,
        "messages_per_s": null});
    rig.receive(json!([{"channel": "/meta/handshake", "id": id, "successful": true, "clientId": "c1", "ext": {"limits": limits}}]));
    rig.sent();
    rig.events();
    let data = format!("\"{}\"", "x".repeat(1_000));
    rig.session.publish("/a", RawJson::trusted(&data));
    let events = rig.events();
    let [Event::Replied { outcome: Err(error @ Error::TooLarge { bytes_max: 1_000, .. }), .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(!error.is_transient() && rig.sent().is_empty());
    rig.session.publish("/a", RawJson::trusted("1"));
    rig.sent_one("/a");
}
