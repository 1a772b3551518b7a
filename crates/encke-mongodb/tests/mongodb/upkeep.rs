//! Scavenges and purges, by time and by request.

use mongodb::bson::{DateTime, doc};
use serde_json::{Value, json};

use crate::nats::Keeping;
use crate::node::Node;
use crate::{Documents, mongodb_url, wait_until};

#[test]
fn sessions_of_a_node_that_is_gone_end_and_go_when_they_are_old() {
    let (nats, documents) = (Keeping::start("mongodb-upkeep"), Documents::of("upkeep"));
    let settings = ["scavenge_delay_ms=0", "scavenge_period_ms=50", "purge_delay_ms=100", "purge_invalid_age_ms=300"];
    // It does nothing by itself.
    let idle = ["timeout_ms=1000", "scavenge_period_ms=0", "purge=0"];
    let mut first = Node::start(&nats, &mongodb_url(), "upkeep", &idle);
    let second = Node::start(&nats, &mongodb_url(), "upkeep", &settings);
    let short = first.open(&Value::Null);
    first.set_attribute(&short, "short", 1);
    documents.wait_for_attribute("short", 1);
    let idle_max_ms = documents.one(doc! {}).expect("a document").get_i64("idle_max_ms").expect("a number");
    assert_eq!(idle_max_ms, 3_601_000);
    documents.change(doc! {}, doc! { "$set": { "idle_max_ms": 200_i64 } });
    let long = first.open(&Value::Null);
    first.set_attribute(&long, "long", 1);
    documents.wait_for_attribute("long", 1);
    let scavenges = second.metric("encke_session_store_scavenges");
    wait_until("some scavenges", || second.metric("encke_session_store_scavenges") > scavenges + 5);
    assert_eq!(second.metric("encke_session_store_scavenged"), 0, "their node is there");

    first.kill();
    wait_until("the session has ended", || second.metric("encke_session_store_scavenged") == 1);
    wait_until("it is deleted", || second.metric("encke_session_store_purged") == 1);
    let left = documents.one(doc! {}).expect("the other one");
    assert_eq!(left.get("attributes"), Some(&doc! { "long": 1_i64 }.into()), "its client may stay away for longer");
    assert_eq!(documents.count(doc! {}), 1);
    assert!(!second.poll(&short).0, "nobody goes on with it");
    wait_until("the other one goes on", || second.poll(&long).0);
}

#[test]
fn a_request_scavenges_and_purges_and_shows_the_numbers() {
    let (nats, documents) = (Keeping::start("mongodb-request"), Documents::of("request"));
    let settings = ["scavenge_period_ms=0", "purge=0", "purge_invalid_age_ms=0"];
    let mut first = Node::start(&nats, &mongodb_url(), "request", &settings);
    let second = Node::start(&nats, &mongodb_url(), "request", &settings);
    for number in 0..3 {
        let session = first.open(&Value::Null);
        first.set_attribute(&session, "number", number);
        documents.wait_for_attribute("number", number);
    }
    documents.change(doc! {}, doc! { "$set": { "idle_max_ms": 1_i64 } });
    let sessions = |path: &str| second.api("POST", path, &Value::Null).1["sessions"].as_u64().expect("a number");
    assert_eq!((sessions("/session-store/scavenge"), sessions("/session-store/purge")), (0, 0));
    first.kill();
    let mut ended = 0;
    wait_until("3 sessions have ended", || {
        ended += sessions("/session-store/scavenge");
        ended == 3
    });
    let info = second.api("GET", "/session-store", &Value::Null).1;
    assert_eq!(
        (&info["valid"], &info["invalid"], &info["scavenged"]),
        (&json!(0), &json!(ended), &json!(ended)),
        "{info}"
    );
    assert!(info["store"].as_str().expect("a name").starts_with("MongoDB (127.0.0.1:"), "{info}");
    assert_eq!(sessions("/session-store/purge"), ended);
    // A document that nobody has written for long, of a node that nobody knows.
    let old = DateTime::from_millis(DateTime::now().timestamp_millis() - 8 * 24 * 3_600_000);
    let document = doc! { "_id": "old", "version": 1_i64, "valid": true, "accessed": old, "node": "zzzz" };
    documents.runtime.block_on(async { documents.sessions.insert_one(document).await }).expect("inserted");
    assert_eq!(sessions("/session-store/purge"), 1);
    assert_eq!(documents.count(doc! {}), 0);
}
