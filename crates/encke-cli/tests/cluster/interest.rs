//! Interest that comes and goes, by what NATS counts.

use crate::nats::Nats;
use crate::node::Node;
use crate::{data, run, wait_until};

/// More messages than nodes send within this test to say that they are there, every two seconds.
const PRESENCE_MAX: u64 = 90;

#[test]
fn a_channel_that_nobody_wants_on_a_node_costs_it_nothing() {
    run(async {
        let nats = Nats::start(&[]);
        let nodes = ["a", "b", "c"].map(|name| Node::start(&nats, name, "leave_delay_ms = 50"));
        let mut wanted = nodes[1].subscribe("/q/1").await;
        let other = nodes[2].subscribe("/q/2").await;
        let publisher = nodes[0].client().await;
        let before = ["a", "b", "c"].map(|name| nats.sent_to(name));
        for number in 0..500 {
            publisher.publish("/q/1", &number).await.expect("published");
        }
        assert_eq!(data(&mut wanted, 500).await.len(), 500);
        let after = ["a", "b", "c"].map(|name| nats.sent_to(name));
        let costs = [0, 2].map(|node| after[node] - before[node]);
        assert!(costs.iter().all(|cost| *cost < PRESENCE_MAX), "{costs:?}: neither the publisher nor who wants others");
        // A busy node packs many messages into one envelope.
        assert!(after[1] > before[1], "the node that wants them gets them");
        wanted.unsubscribe().await.expect("it ends");
        wait_until("b gives up the channel", || nats.subjects("b").is_empty());
        let before = nats.sent_to("b");
        for number in 0..200 {
            publisher.publish("/q/1", &number).await.expect("published");
        }
        nodes[0].wait_for("encke_cluster_publications_out", 700);
        assert!(nats.sent_to("b") - before < PRESENCE_MAX);
        drop(other);
    });
}

#[test]
fn subscribers_that_come_and_go_cost_one_subscription() {
    run(async {
        let nats = Nats::start(&[]);
        let node = Node::start(&nats, "a", "leave_delay_ms = 600000");
        for _ in 0..20 {
            let subscription = node.subscribe("/flap").await;
            subscription.unsubscribe().await.expect("it ends");
        }
        assert_eq!(nats.subjects("a"), ["flap"]);
        // Each new subscription at NATS is confirmed by one message to the node.
        let sent = nats.sent_to("a");
        let subscription = node.subscribe("/flap").await;
        assert_eq!((nats.sent_to("a"), node.metric("encke_cluster_subscriptions")), (sent, 1));
        drop(subscription);
    });
}

#[test]
fn a_pattern_covers_what_it_reaches_and_many_channels_share_a_subscription() {
    run(async {
        let nats = Nats::start(&[]);
        let node = Node::start(&nats, "a", "leave_delay_ms = 50\nshared_from = 10");
        let client = node.client().await;
        let mut subscriptions = Vec::new();
        for number in 0..10 {
            subscriptions.push(client.subscribe(&format!("/user/{number}")).await.expect("a subscription"));
        }
        assert_eq!(nats.subjects("a").len(), 10);
        subscriptions.push(client.subscribe("/user/10").await.expect("a subscription"));
        wait_until("they share one", || nats.subjects("a") == ["user.*"]);
        let all = client.subscribe("/**").await.expect("a subscription");
        wait_until("one for all", || nats.subjects("a") == [">"]);
        all.unsubscribe().await.expect("it ends");
        wait_until("without it", || nats.subjects("a") == ["user.*"]);
        for subscription in subscriptions.drain(3..) {
            subscription.unsubscribe().await.expect("it ends");
        }
        wait_until("each has its own", || nats.subjects("a") == ["user.0", "user.1", "user.2"]);
    });
}
