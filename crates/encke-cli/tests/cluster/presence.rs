//! Members of channels on all nodes: lists, announcements, and the ends of nodes and of NATS.

use encke_client::{Client, Subscription, Transport};
use serde_json::{Value, json};

use crate::commands::{api, open_at, start_with};
use crate::nats::{Keeping, Nats};
use crate::node::Node;
use crate::proxy::Proxy;
use crate::{next, run, wait_until, wait_until_async};

const RULE: &str = "[[channels]]\npattern = \"/room/*\"\npresence = true\n";

/// A session of a user on `/room/1`.
async fn enter(url: &str, user: &str) -> (Client, Subscription) {
    let client = open_at(url, user, user, Transport::WebSocket).await;
    let subscription = client.subscribe("/room/1").await.expect("a subscription");
    (client, subscription)
}

/// The page of the members of `/room/1` at a node. On a busy machine some of the nodes that it asks may be too slow at first.
fn members(node: &Node, query: &str) -> Value {
    let mut page = Value::Null;
    wait_until("all nodes answer", || {
        let (status, found) = api(node, "GET", &format!("/api/v1/presence?channel=/room/1{query}"), None);
        assert_eq!(status, 200, "{found}");
        page = found;
        page["answered"] == page["nodes"]
    });
    page
}

fn users(page: &Value) -> Vec<&str> {
    let members = page["members"].as_array().expect("a list").iter();
    members.map(|member| member["user"].as_str().expect("a name")).collect()
}

/// Those who have joined and left by the next announcement.
async fn news(announcements: &mut Subscription) -> (Value, Value) {
    let (channel, data) = next(announcements).await;
    assert_eq!(channel, "/presence/room/1");
    let data: Value = serde_json::from_str(&data).expect("JSON");
    (data["joined"].clone(), data["left"].clone())
}

#[test]
fn members_of_all_nodes_are_listed_and_announced_on_each() {
    run(async {
        let nats = Nats::start(&[]);
        let [a, b, c] = start_with(&nats, ["a", "b", "c"], RULE);
        let (ann, _in_room) = enter(&a.url, "ann").await;
        let eve = open_at(&c.url, "eve", "eve", Transport::WebSocket).await;
        let mut announcements = eve.subscribe("/presence/room/1").await.expect("a subscription");
        let list = eve.request("/service/presence", &json!({"channel": "/room/1"})).await;
        let list: Value = serde_json::from_str(list.expect("an answer").data().as_str()).expect("JSON");
        assert_eq!((users(&list), &list["users"], &list["sessions"]), (vec!["ann"], &json!(1), &json!(1)));
        for node in [&a, &b, &c] {
            let page = members(node, "");
            assert_eq!((users(&page), &page["nodes"], &page["answered"]), (vec!["ann"], &json!(3), &json!(3)));
        }
        assert_eq!(users(&members(&c, "&cluster=false")), [""; 0]);
        let (_bob, _in_room) = enter(&b.url, "bob").await;
        assert_eq!(news(&mut announcements).await, (json!(["bob"]), json!([])));
        // A user of two nodes leaves one of them, which is not announced.
        let (_ann_at_b, _in_room) = enter(&b.url, "ann").await;
        wait_until("the second session is known", || members(&c, "")["members"][0]["sessions"] == 2);
        ann.disconnect().await.expect("it ends");
        wait_until("its grace time is over", || members(&a, "&cluster=false")["users"] == 0);
        let (_cid, _in_room) = enter(&a.url, "cid").await;
        assert_eq!(news(&mut announcements).await, (json!(["cid"]), json!([])));
        // The node was asked before, so it gathers by itself, as the other one does.
        wait_until("all are listed there, too", || users(&members(&b, "")) == ["ann", "bob", "cid"]);
    });
}

#[test]
fn a_killed_node_takes_those_with_it_who_do_not_go_on_elsewhere() {
    run(async {
        let nats = Keeping::start("presence");
        let [a, b, c] = start_with(&nats.nats, ["a", "b", "c"], RULE);
        let targets = [&a, &b].map(|node| node.url.trim_start_matches("http://").to_owned());
        let proxy = Proxy::balancer(targets.to_vec());
        let eve = open_at(&c.url, "eve", "eve", Transport::WebSocket).await;
        let mut announcements = eve.subscribe("/presence/room/1").await.expect("a subscription");
        let ann = enter(&format!("http://{}", proxy.address()), "ann").await;
        let on_a = members(&a, "&cluster=false")["users"] == 1;
        let (killed, other) = if on_a { (a, b) } else { (b, a) };
        assert_eq!(news(&mut announcements).await, (json!(["ann"]), json!([])));
        let bob = enter(&killed.url, "bob").await;
        assert_eq!(news(&mut announcements).await, (json!(["bob"]), json!([])));
        // Records are written in the order of the changes.
        let _marker = open_at(&killed.url, "marker", "marker", Transport::WebSocket).await;
        killed.wait_for("encke_cluster_sessions_recorded", 3);
        killed.wait_for("encke_cluster_session_records_waiting", 0);
        drop(killed);
        let other_has_ann = || other.metric("encke_cluster_sessions_taken_over") == 1;
        wait_until_async("her session goes on at the other node", other_has_ann).await;
        assert_eq!(news(&mut announcements).await, (json!([]), json!(["bob"])), "nobody says that ann has left");
        assert_eq!(users(&members(&c, "")), ["ann"]);
        drop((ann, bob));
    });
}

#[test]
fn members_are_known_again_after_nats_was_away() {
    run(async {
        let mut nats = Nats::start(&[]);
        let [a, b] = start_with(&nats, ["a", "b"], RULE);
        let eve = open_at(&b.url, "eve", "eve", Transport::WebSocket).await;
        let mut announcements = eve.subscribe("/presence/room/1").await.expect("a subscription");
        let _ann = enter(&a.url, "ann").await;
        assert_eq!(news(&mut announcements).await, (json!(["ann"]), json!([])));
        nats.kill();
        [&a, &b].iter().for_each(|node| node.wait_for("encke_cluster_connected", 0));
        let _bob = enter(&b.url, "bob").await;
        assert_eq!(news(&mut announcements).await, (json!(["bob"]), json!([])), "a node announces its own");
        let _cid = enter(&a.url, "cid").await;
        nats.begin();
        let (mut joined, mut left) = (Vec::new(), Vec::new());
        while !joined.contains(&json!("cid")) {
            let (came, went) = news(&mut announcements).await;
            joined.extend(came.as_array().expect("a list").iter().cloned());
            left.extend(went.as_array().expect("a list").iter().cloned());
        }
        // A busy machine may need so long that the others are given up meanwhile; then they come again.
        assert!(left.iter().all(|user| joined.contains(user)), "{joined:?} {left:?}");
        wait_until("all are listed", || users(&members(&a, "")) == ["ann", "bob", "cid"]);
    });
}
