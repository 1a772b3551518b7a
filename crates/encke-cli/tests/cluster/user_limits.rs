//! Limits of users hold for all nodes together.

use encke_client::Transport;
use serde_json::{Value, json};

use crate::commands::{open_at, refusal, settings, token};
use crate::nats::{Keeping, Nats};
use crate::node::Node;
use crate::sessions::{Polling, handshake_with, post};
use crate::{run, wait_until, wait_until_async};

/// A node with a limit of users.
fn start(nats: &Nats, name: &str, limit: &str) -> Node {
    Node::start_with(nats, name, limit, &settings())
}

#[test]
fn a_user_has_as_many_sessions_on_all_nodes_as_the_limit_says() {
    run(async {
        let nats = Keeping::start("user-limits");
        let limited = |name: &str| start(&nats.nats, name, "user_sessions_max = 2");
        let [a, b, c] = ["a", "b", "c"].map(limited);
        let at_a = open_at(&a.url, "ann", "1", Transport::WebSocket).await;
        let at_b = open_at(&b.url, "ann", "2", Transport::WebSocket).await;
        c.wait_for("encke_cluster_users_known", 2);
        let refused = json!("413:user_sessions_max:sessions_max");
        assert_eq!(refusal(&c, &token("ann", "3")), refused);
        assert_eq!(refusal(&c, &token("bob", "1")), Value::Null, "each user has a separate limit");
        // A node that starts later asks the others.
        let late = limited("late");
        wait_until("it has learned of them", || late.metric("encke_cluster_users_known") >= 3);
        assert_eq!(refusal(&late, &token("ann", "3")), refused);
        at_a.disconnect().await.expect("it ends");
        wait_until("there is room again", || refusal(&c, &token("ann", "3")) == Value::Null);
        // That of a killed node counts until the node is missed.
        drop(b);
        wait_until_async("its session counts no more", || refusal(&a, &token("ann", "4")) == Value::Null).await;
        drop(at_b);
    });
}

/// Sends so many messages at once. Returns the number of those that were accepted.
fn publish(node: &Node, session: &Polling, count: usize) -> usize {
    let message = json!({"channel": "/a", "clientId": session.id, "data": 1});
    let (_, replies) = post(node, session, &Value::Array(vec![message; count]));
    replies.as_array().expect("a batch").iter().filter(|reply| reply["successful"] == true).count()
}

#[test]
fn what_a_user_sends_to_one_node_counts_on_another() {
    let nats = Nats::start(&[]);
    let [a, b] = ["a", "b"].map(|name| start(&nats, name, "user_messages_per_s_max = 20"));
    let session = |node: &Node, user: &str| handshake_with(node, &json!({"token": token(user, user)}));
    let (at_a, at_b, of_bob) = (session(&a, "ann"), session(&b, "ann"), session(&b, "bob"));
    assert!(publish(&b, &of_bob, 30) >= 20);
    let mut both = 0;
    // On one node it may send 20 at once. On two that it uses all the time it has half of that on each.
    wait_until("the other node has its part", || {
        let until = std::time::Instant::now() + std::time::Duration::from_millis(1_100);
        while std::time::Instant::now() < until {
            both += publish(&a, &at_a, 5);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let sent = publish(&b, &at_b, 30);
        assert!(sent >= 10, "an equal part is left: {sent}");
        sent < 20
    });
    assert!(both > 0);
}
