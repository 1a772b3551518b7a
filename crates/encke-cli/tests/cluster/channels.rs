//! Publications between nodes: channels and patterns, order, and the first one after a subscribe.

use std::cell::Cell;

use encke_client::Transport;

use crate::nats::Nats;
use crate::node::Node;
use crate::{connect, data, next, run};

#[test]
fn channels_and_patterns_get_the_publications_of_all_nodes_once() {
    run(async {
        let nats = Nats::start(&[]);
        let nodes = ["a", "b", "c"].map(|name| Node::start(&nats, name, ""));
        let mut exact = nodes[0].subscribe("/x/1").await;
        let mut children = nodes[1].subscribe("/x/*").await;
        // Both patterns reach `/x/1`, which the client gets once.
        let both = nodes[2].client().await;
        let mut both = both.subscribe_all(&["/**", "/x/*"]).await.expect("subscriptions");
        let mut publishers = Vec::new();
        for node in &nodes {
            publishers.push(node.client().await);
        }
        for round in 0..50 {
            for (index, publisher) in publishers.iter().enumerate() {
                for channel in ["/x/1", "/x/2", "/x/1/deep"] {
                    publisher.publish(channel, &format!("{index} {round}")).await.expect("published");
                }
            }
        }
        for (subscription, channels) in [
            (&mut exact, &["/x/1"][..]),
            (&mut children, &["/x/1", "/x/2"]),
            (&mut both, &["/x/1", "/x/2", "/x/1/deep"]),
        ] {
            let mut got = Vec::new();
            for _ in 0..50 * 3 * channels.len() {
                got.push(next(subscription).await);
            }
            for index in 0..3 {
                for channel in channels {
                    let of =
                        |(name, text): &&(String, String)| name == channel && text.starts_with(&format!("\"{index} "));
                    let texts: Vec<&str> = got.iter().filter(of).map(|(_, text)| text.as_str()).collect();
                    let expected: Vec<String> = (0..50).map(|round| format!("\"{index} {round}\"")).collect();
                    assert_eq!(texts, expected, "{channel} of {index} is in order, not lost and not doubled");
                }
            }
        }
    });
}

#[test]
fn names_with_any_character_cross_nodes() {
    run(async {
        let nats = Nats::start(&[]);
        let nodes = ["a", "b"].map(|name| Node::start(&nats, name, ""));
        let publisher = nodes[0].client().await;
        let long = format!("/{}", ".".repeat(255));
        let deep = "/a".repeat(16);
        let names = ["/a b", "/a b/c.d", "/x!#$()+-.@_{~}", "/UPPER/lower", "/./_", &long, &deep];
        for name in names {
            let mut exact = nodes[1].subscribe(name).await;
            let parent = name.rsplit_once('/').expect("a slash").0;
            let mut pattern = nodes[1].subscribe(&format!("{parent}/*")).await;
            publisher.publish(name, name).await.expect("published");
            for subscription in [&mut exact, &mut pattern] {
                assert_eq!(next(subscription).await, (name.to_owned(), format!("\"{name}\"")));
            }
        }
        // A publication on a pattern is for those who subscribe to exactly it.
        let mut pattern = nodes[1].subscribe("/star/*").await;
        let mut deep = nodes[1].subscribe("/star/**").await;
        publisher.publish("/star/*", &1).await.expect("published");
        publisher.publish("/star/end", &2).await.expect("published");
        assert_eq!(
            (data(&mut pattern, 2).await, data(&mut deep, 1).await),
            (vec!["1".into(), "2".into()], vec!["2".to_string()])
        );
    });
}

#[test]
fn after_the_reply_to_a_subscribe_publications_of_other_nodes_arrive() {
    run(async {
        let nats = Nats::start(&[]);
        // Nodes of one, two and three shards.
        let nodes = ["a", "b", "c"].map(|name| Node::start(&nats, name, ""));
        for transport in [Transport::WebSocket, Transport::LongPolling] {
            for (from, to) in [(0, 1), (1, 2), (2, 0)] {
                let publisher = nodes[from].client().await;
                // Several sessions: on different shards, and the second one on a channel whose first subscribe may not be confirmed yet.
                let subscribers = [connect(&nodes[to].url, transport).await, connect(&nodes[to].url, transport).await];
                for round in 0..40 {
                    let channel = format!("/round/{transport:?}/{from}/{round}");
                    let name =
                        if round % 4 == 3 { channel.replace(&format!("/{round}"), "/*") } else { channel.clone() };
                    let (one, two) = tokio::join!(subscribers[0].subscribe(&name), async {
                        let subscription = subscribers[1].subscribe(&name).await.expect("a subscription");
                        publisher.publish(&channel, &round).await.expect("published");
                        subscription
                    });
                    drop(one);
                    let mut two = two;
                    assert_eq!(next(&mut two).await, (channel, round.to_string()));
                }
            }
        }
        for node in &nodes {
            assert_eq!(node.metric("encke_cluster_replies_unconfirmed"), 0);
        }
    });
}

#[test]
fn one_publisher_stays_in_order_while_the_subscriptions_of_a_node_change() {
    const CHANGES: usize = 1_000;
    run(async {
        let nats = Nats::start(&[]);
        let nodes = ["a", "b"].map(|name| Node::start(&nats, name, "leave_delay_ms = 5\nshared_from = 2"));
        let mut subscription = nodes[1].subscribe("/o/1").await;
        let publisher = nodes[0].client().await;
        // The number of changes, and that of all messages when it is known: before the last ones are published.
        let (changes, total) = (Cell::new(0), Cell::new(None));
        let publishing = async {
            let mut published = 0;
            while total.get().is_none() {
                let mut batch = publisher.batch();
                for _ in 0..20 {
                    batch = batch.publish("/o/1", &published).expect("JSON");
                    published += 1;
                }
                total.set((changes.get() >= CHANGES).then_some(published));
                batch.send().await.expect("published");
            }
        };
        let other = nodes[1].client().await;
        let changing = async {
            while changes.get() < CHANGES {
                for name in ["/o/*", "/o/**", "/**", "/o/2", "/o/3"] {
                    let subscription = other.subscribe(name).await.expect("a subscription");
                    subscription.unsubscribe().await.expect("it ends");
                    changes.set(changes.get() + 1);
                }
            }
        };
        let reading = async {
            let mut number = 0;
            while total.get() != Some(number) {
                assert_eq!(next(&mut subscription).await.1, number.to_string(), "out of order, lost or doubled");
                number += 1;
            }
        };
        tokio::join!(publishing, changing, reading);
        println!("{:?} messages, {} second copies", total.get(), nodes[1].metric("encke_cluster_doubled"));
    });
}
