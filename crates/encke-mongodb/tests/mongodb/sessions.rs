//! Sessions that go on at another node, and writes that meet.

use mongodb::bson::{Document, doc};
use serde_json::{Value, json};

use crate::nats::Keeping;
use crate::node::Node;
use crate::{Documents, mongodb_url, wait_until};

#[test]
fn a_session_goes_on_at_another_node_with_its_attributes_after_a_kill() {
    let (nats, documents) = (Keeping::start("mongodb-kill"), Documents::of("kill"));
    let start = || Node::start(&nats, &mongodb_url(), "kill", &[]);
    let (mut first, second, third) = (start(), start(), start());
    let session = first.open(&Value::Null);
    let subscribe = json!({"channel": "/meta/subscribe", "subscription": "/news"});
    assert_eq!(first.send(&session, subscribe)[0]["successful"], true);
    first.set_attribute(&session, "cart", 7);
    documents.wait_for_attribute("cart", 7);
    let before = documents.one(doc! { "valid": true }).expect("a document");
    assert!(!before.to_string().contains(&session.id), "the id is a secret: {before}");

    first.kill();
    // Two nodes want it, and one gets it.
    let (second, third) = (&second, &third);
    wait_until("the session goes on", || second.poll(&session).0 && third.poll(&session).0);
    let sum = |metric: &str| second.metric(metric) + third.metric(metric);
    assert_eq!(sum("encke_cluster_sessions_taken_over"), 1);
    let attributes = third.api("GET", &format!("/sessions/{}/attributes", session.id), &Value::Null).1;
    assert_eq!(attributes["attributes"]["cart"], 7, "{attributes}");
    // Its subscription, too.
    let (status, _) = second.api("POST", "/publish", &json!({"channel": "/news", "data": "hello"}));
    assert_eq!(status, 200);
    wait_until("its message arrives", || third.poll(&session).1.to_string().contains("hello"));
    let after = documents.one(doc! { "valid": true }).expect("a document");
    assert_eq!(after.get("_id"), before.get("_id"));
    assert_ne!(after.get("node"), before.get("node"));
    let version = |document: &Document| document.get_i64("version").expect("a version");
    assert!(version(&after) > version(&before), "{after}");
    assert_eq!(documents.count(doc! {}), 1);
}

#[test]
fn a_write_that_another_one_has_overtaken_loses_nothing() {
    let (nats, documents) = (Keeping::start("mongodb-conflict"), Documents::of("conflict"));
    let node = Node::start(&nats, &mongodb_url(), "conflict", &[]);
    let session = node.open(&Value::Null);
    node.set_attribute(&session, "number", 0);
    documents.wait_for_attribute("number", 0);
    for number in 1..=5 {
        // Somebody else has written the document, with the same state.
        documents.change(doc! { "valid": true }, doc! { "$inc": { "version": 3_i64 } });
        node.set_attribute(&session, "number", number);
        documents.wait_for_attribute("number", number);
    }
    assert!(node.metric("encke_session_store_conflicts") >= 5);
    assert!(node.poll(&session).0, "the session is this node's all the time");
    assert_eq!(documents.count(doc! {}), 1);
}

#[test]
fn a_session_that_another_node_has_taken_ends_here() {
    let (nats, documents) = (Keeping::start("mongodb-taken"), Documents::of("taken"));
    let node = Node::start(&nats, &mongodb_url(), "taken", &[]);
    let session = node.open(&Value::Null);
    node.set_attribute(&session, "number", 0);
    documents.wait_for_attribute("number", 0);
    // As a node does that has found the session and ended it: the record says so.
    let ended = mongodb::bson::Binary { subtype: mongodb::bson::spec::BinarySubtype::Generic, bytes: vec![1, 0] };
    documents.change(doc! {}, doc! { "$inc": { "version": 1_i64 }, "$set": { "valid": false, "record": ended } });
    node.set_attribute(&session, "number", 1);
    wait_until("the copy here ends", || !node.poll(&session).0);
    assert_eq!(documents.count(doc! { "valid": true }), 0, "it does not write its copy over the end");
}
