//! A server that is gone and comes back.

use mongodb::bson::doc;
use serde_json::Value;

use crate::gate::Gate;
use crate::nats::{Keeping, get};
use crate::node::Node;
use crate::{Documents, wait_until};

#[test]
fn sessions_go_on_without_the_server_and_it_gets_all_that_has_changed() {
    let (nats, documents, gate) = (Keeping::start("mongodb-away"), Documents::of("away"), Gate::open());
    let node = Node::start(&nats, &gate.url(), "away", &[]);
    wait_until("it is ready", || get(&node.address, "/readyz") == "ready\n");
    let (changed, unchanged) = (node.open(&Value::Null), node.open(&Value::Null));
    node.set_attribute(&changed, "changed", 0);
    node.set_attribute(&unchanged, "unchanged", 0);
    documents.wait_for_attribute("changed", 0);
    documents.wait_for_attribute("unchanged", 0);

    gate.close();
    for number in 1..=50 {
        node.set_attribute(&changed, "changed", number);
        assert!(node.poll(&changed).0, "the session goes on");
    }
    let new = node.open(&Value::Null);
    node.set_attribute(&new, "new", 1);
    wait_until("a write has failed", || node.metric("encke_session_store_failed") > 0);
    node.wait_for("encke_session_store_connected", 0);
    assert_eq!(get(&node.address, "/readyz"), "ready, but the store of sessions is away\n");
    assert!(node.metric("encke_cluster_session_records_waiting") <= 3, "one state of each session waits");
    assert_eq!(documents.count(doc! { "attributes.changed": 0 }), 1);
    // The server comes back without its data.
    documents.clear();

    gate.open_again();
    documents.wait_for_attribute("changed", 50);
    documents.wait_for_attribute("new", 1);
    documents.wait_for_attribute("unchanged", 0);
    node.wait_for("encke_session_store_connected", 1);
    assert_eq!(get(&node.address, "/readyz"), "ready\n");
    for session in [&changed, &unchanged, &new] {
        assert!(node.poll(session).0);
    }
}
