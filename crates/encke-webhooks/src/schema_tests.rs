//! Compares the bodies that are written and read with `docs/webhooks.schema.json`.

use std::sync::Arc;

use encke_core::{Attributes, Caller, Head, Identity};
use serde_json::Value;

use crate::answer::Answered;
use crate::event::{Event, Writer};
use crate::settings::EventKind;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../docs/webhooks.schema.json")).expect("JSON")
}

/// Checks an object against the part of JSON Schema that describes bodies: members, required ones, their types, enums.
fn check(schema: &Value, value: &Value, path: &str) {
    let object = value.as_object().unwrap_or_else(|| panic!("{path} is no object"));
    for name in schema["required"].as_array().expect("a list") {
        assert!(object.contains_key(name.as_str().expect("a name")), "{path} lacks {name}");
    }
    for (name, value) in object {
        let property = &schema["properties"][name];
        assert!(property.is_object(), "{path} has {name}, which is not in the schema");
        let is_right = match property["type"].as_str() {
            Some("string") => value.is_string(),
            Some("object") => value.is_object(),
            Some(other) => panic!("{path}.{name}: {other}"),
            None => property["enum"].as_array().is_none_or(|values| values.contains(value)),
        };
        assert!(is_right, "{path}.{name} = {value}");
    }
}

/// An event of each kind, with every member that it can have.
fn events() -> Vec<Event> {
    let identity = Arc::new(Identity { claims: r#"{"role":"x"}"#.into(), ..Identity::of_user("ann \"the\" first") });
    let head = Head::new("/cometd?a=b", [("cookie", b"a=1".as_slice()), ("cookie", b"b=2"), ("accept", b"*/*")], None);
    let attributes = Arc::new(Attributes::of([("cart", r#"["tea"]"#)]));
    let caller = Caller::new("s1", Some(&identity)).with_attributes(Some(&attributes));
    let begin = |kind| Writer::new(kind, "msg_1".into(), 1_700_000_000_123);
    let about = |kind| begin(kind).caller(&caller);
    let (data, ext) = (Some(r#"{"big":12345678901234567890}"#), Some(r#"{"a":[1]}"#));
    let all = [
        begin(EventKind::Handshake)
            .text("transport", "websocket")
            .text("peer", "::1")
            .head(&head)
            .raw("ext", ext)
            .raw("fields", ext),
        about(EventKind::Refresh).raw("credentials", Some("\"token\"")),
        about(EventKind::Opened),
        about(EventKind::Ended).text("reason", "expired"),
        about(EventKind::Subscribe).text("channel", "/a/*").raw("ext", ext),
        about(EventKind::Publish).text("channel", "/a").raw("data", data).raw("ext", ext),
        about(EventKind::Service)
            .text("channel", "/service/a")
            .text("message_id", "7")
            .raw("data", data)
            .raw("ext", ext),
        about(EventKind::Subscribed).text("channel", "/a/*"),
        about(EventKind::Unsubscribed).text("channel", "/a/*"),
    ];
    all.map(Writer::finish).into()
}

#[test]
fn each_event_is_as_the_schema_says_and_has_every_member_of_it() {
    let schema = schema();
    let events = events();
    assert_eq!(events.iter().map(|event| event.kind).collect::<Vec<_>>(), EventKind::ALL);
    for event in events {
        let body: Value = serde_json::from_slice(&event.body).expect("JSON");
        check(&schema, &body, "the event");
        assert_eq!((&body["type"], &body["id"]), (&event.kind.as_str().into(), &"msg_1".into()));
        assert_eq!(body["timestamp"], "2023-11-14T22:13:20.123Z");
        let described = &schema["$defs"]["events"][event.kind.as_str()];
        check(described, &body["data"], event.kind.as_str());
        let members = described["properties"].as_object().expect("members").len();
        assert_eq!(body["data"].as_object().expect("members").len(), members, "{}", event.kind.as_str());
    }
}

#[test]
fn raw_json_of_clients_stays_as_it_is_and_headers_are_joined() {
    let events = events();
    let text = |index: usize| std::str::from_utf8(&events[index].body).expect("UTF-8").to_string();
    assert!(text(5).contains(r#""data":{"big":12345678901234567890}"#), "{}", text(5));
    assert!(text(0).contains(r#""headers":{"accept":"*/*","cookie":"a=1; b=2"}"#), "{}", text(0));
    assert!(
        text(2).contains(r#""user":"ann \"the\" first","claims":{"role":"x"},"attributes":{"cart":["tea"]}"#),
        "{}",
        text(2)
    );
}

#[test]
fn every_example_of_an_answer_in_the_schema_can_be_used_and_they_have_every_member() {
    let schema = schema();
    for (name, kinds) in [
        ("handshake", &[EventKind::Handshake, EventKind::Refresh][..]),
        ("subscribe", &[EventKind::Subscribe]),
        ("publish", &[EventKind::Publish]),
        ("service", &[EventKind::Service]),
        ("notification", &[EventKind::Opened, EventKind::Ended, EventKind::Subscribed, EventKind::Unsubscribed]),
    ] {
        let described = &schema["$defs"]["answers"][name];
        let examples = described["examples"].as_array().expect("examples");
        for (example, kind) in examples.iter().flat_map(|example| kinds.iter().map(move |kind| (example, *kind))) {
            let read = Answered::read(kind, example.to_string().as_bytes(), 0);
            assert!(read.is_ok(), "{name}: {example}: {read:?}");
        }
        for member in described["properties"].as_object().expect("members").keys().filter(|name| *name != "actions") {
            assert!(examples.iter().any(|example| example.get(member).is_some()), "{name} has no example of {member}");
        }
    }
}
