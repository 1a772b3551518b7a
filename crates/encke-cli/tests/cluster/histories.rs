//! Histories that all nodes have: one order and one sequence of positions, whoever is killed, cut off or restarted.

use std::collections::BTreeSet;
use std::time::Duration;

use encke_client::{Client, HistoryQuery, ReplayFrom, Subscription, Transport};
use serde_json::{Value, json};

use crate::nats::{Keeping, Nats, post};
use crate::node::Node;
use crate::{EVENT_MAX, run, wait_until_async};

const RULE: &str = "\n[[channels]]\npattern = \"/h/**\"\nhistory_messages = 100000\nhistory_bytes = 100000000";
const PARTITIONS: u64 = 64;

/// The epoch, the offset and the number of a message.
pub(crate) type Read = (String, u64, usize);

/// A node whose channels have histories.
fn start(nats: &Nats, name: &str) -> Node {
    Node::start(nats, name, RULE)
}

/// Waits until nodes may own all histories.
pub(crate) async fn wait_until_in_sync(nodes: &[&Node]) {
    for node in nodes {
        let in_sync = || node.metric("encke_cluster_history_partitions_in_sync") == PARTITIONS;
        wait_until_async("a node is in sync", in_sync).await;
    }
}

/// Three nodes in sync. The first one owns all.
pub(crate) async fn nodes(nats: &Nats) -> [Node; 3] {
    let first = start(nats, "a");
    wait_until_in_sync(&[&first]).await;
    let nodes = [first, start(nats, "b"), start(nats, "c")];
    wait_until_in_sync(&[&nodes[0], &nodes[1], &nodes[2]]).await;
    nodes
}

/// A client that replays all messages of a channel.
pub(crate) async fn replay(node: &Node, channel: &str) -> Subscription {
    let builder = Client::builder().transport(Transport::WebSocket).reply_timeout(EVENT_MAX).ack(true);
    let client = builder.replay(ReplayFrom::Earliest).connect(&node.url).await.expect("a session");
    client.subscribe(channel).await.expect("a subscription")
}

/// The epochs, offsets and data of the next messages.
pub(crate) async fn read(subscription: &mut Subscription, count: usize) -> Vec<Read> {
    let mut all = Vec::new();
    for _ in 0..count {
        let item = tokio::time::timeout(EVENT_MAX, subscription.next()).await;
        let message = item.expect("gave up waiting for a message").expect("the session is open").expect("no gap");
        let position = message.position.as_ref().expect("a position");
        all.push((position.epoch.to_string(), position.offset, message.json().expect("a number")));
    }
    all
}

pub(crate) async fn publish(client: &Client, channel: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        client.publish(channel, &number).await.expect("published");
    }
}

/// Checks that the messages are these numbers, each once and in order, in one epoch.
pub(crate) fn check(messages: &[Read], numbers: std::ops::Range<usize>) {
    let data: Vec<usize> = messages.iter().map(|(_, _, number)| *number).collect();
    assert!(data.iter().copied().eq(numbers.clone()), "lost, doubled or out of order: not {numbers:?}, but {data:?}");
    assert!(
        messages.windows(2).all(|pair| pair[0].0 == pair[1].0 && pair[0].1 < pair[1].1),
        "positions are out of order"
    );
}

#[test]
fn publications_of_all_nodes_have_one_order_and_the_same_positions_everywhere() {
    run(async {
        let nats = Keeping::start("order");
        let nodes = nodes(&nats.nats).await;
        let mut live = Vec::new();
        for node in &nodes {
            live.push(replay(node, "/h/order").await);
        }
        let clients = [nodes[0].client().await, nodes[1].client().await, nodes[2].client().await];
        let all = clients.iter().enumerate().map(|(node, client)| async move {
            publish(client, "/h/order", node * 1_000..node * 1_000 + 200).await;
        });
        let [one, two, three] = <[_; 3]>::try_from(all.collect::<Vec<_>>()).unwrap_or_else(|_| panic!("three"));
        tokio::join!(one, two, three);
        let first = read(&mut live[0], 600).await;
        assert_eq!(first.iter().map(|(_, offset, _)| offset).collect::<BTreeSet<_>>().len(), 600);
        for (index, node) in nodes.iter().enumerate() {
            if index > 0 {
                assert!(read(&mut live[index], 600).await == first, "live on {index}");
            }
            assert!(read(&mut replay(node, "/h/order").await, 600).await == first, "replayed by {index}");
            let of_publisher = first.iter().filter(|(_, _, number)| number / 1_000 == index);
            let of_publisher: Vec<_> = of_publisher.cloned().collect();
            check(&of_publisher, index * 1_000..index * 1_000 + 200);
        }
    });
}

#[test]
fn a_new_subscription_begins_with_the_latest_message_on_any_node() {
    run(async {
        let nats = Keeping::start("retained");
        let rule = "\n[[channels]]\npattern = \"/h/**\"\nretain_last = true";
        let first = Node::start(&nats.nats, "a", rule);
        wait_until_in_sync(&[&first]).await;
        let other = Node::start(&nats.nats, "b", rule);
        wait_until_in_sync(&[&first, &other]).await;
        let publisher = first.client().await;
        publish(&publisher, "/h/b", 0..20).await;
        publish(&publisher, "/h/a", 100..101).await;
        let mut last = 100;
        for node in [&first, &other] {
            for (ack, replay) in [(false, false), (true, false), (false, true)] {
                // The reply to the publisher does not wait until the other node has the message.
                for (channel, last) in [("a", last), ("b", 19)] {
                    let (path, data) = (format!("/history/h/{channel}?limit=1"), format!("\"data\":{last}"));
                    wait_until_async("it has the latest one", || node.get(&path).contains(&data)).await;
                }
                let builder = Client::builder().transport(Transport::WebSocket).reply_timeout(EVENT_MAX).ack(ack);
                let builder = if replay { builder.replay(ReplayFrom::Latest) } else { builder };
                let client = builder.connect(&node.url).await.expect("a session");
                let mut subscription = client.subscribe("/h/*").await.expect("a subscription");
                let mut next = async || {
                    let item = tokio::time::timeout(EVENT_MAX, subscription.next()).await;
                    let message =
                        item.expect("gave up waiting for a message").expect("an open session").expect("no gap");
                    message.json::<usize>().expect("a number")
                };
                let latest = BTreeSet::from([next().await, next().await]);
                assert_eq!(latest, BTreeSet::from([19, last]), "{ack} {replay}");
                last += 1;
                publish(&publisher, "/h/a", last..last + 1).await;
                assert_eq!(next().await, last, "{ack} {replay}: doubled");
            }
        }
    });
}

#[test]
fn a_killed_owner_loses_and_doubles_nothing() {
    run(async {
        let nats = Keeping::start("killed");
        let [owner, other, third] = nodes(&nats.nats).await;
        assert_eq!(owner.metric("encke_cluster_history_partitions_owned"), PARTITIONS);
        let mut live = replay(&third, "/h/killed").await;
        let publisher = other.client().await;
        let publishing = publish(&publisher, "/h/killed", 0..2_000);
        let killing = async {
            let before = read(&mut live, 500).await;
            drop(owner);
            let after = read(&mut live, 1_500).await;
            [before, after].concat()
        };
        let ((), messages) = tokio::join!(publishing, killing);
        check(&messages, 0..2_000);
        for node in [&other, &third] {
            assert!(read(&mut replay(node, "/h/killed").await, 2_000).await == messages, "replayed otherwise");
        }
        // Both have new owners together.
        let owned = || [&other, &third].map(|node| node.metric("encke_cluster_history_partitions_owned")).iter().sum();
        let is_owned = || -> bool {
            let sum: u64 = owned();
            sum == PARTITIONS
        };
        wait_until_async("all partitions have an owner", is_owned).await;
    });
}

#[test]
fn a_node_that_joins_late_has_all_messages() {
    run(async {
        let nats = Keeping::start("late");
        let first = start(&nats.nats, "a");
        wait_until_in_sync(&[&first]).await;
        let publisher = first.client().await;
        publish(&publisher, "/h/late", 0..500).await;
        let late = start(&nats.nats, "b");
        // A balancer sends nobody to it before.
        wait_until_async("it is ready", || late.get("/readyz") == "ready\n").await;
        let mut subscription = replay(&late, "/h/late").await;
        check(&read(&mut subscription, 500).await, 0..500);
        publish(&publisher, "/h/late", 500..600).await;
        check(&read(&mut subscription, 100).await, 500..600);
    });
}

#[test]
fn a_node_that_starts_again_serves_no_client_before_it_has_the_histories() {
    run(async {
        let nats = Keeping::start("early");
        let mut first = Node::lasting(&nats.nats, "a", RULE);
        wait_until_in_sync(&[&first]).await;
        let others = [start(&nats.nats, "b"), start(&nats.nats, "c")];
        wait_until_in_sync(&[&others[0], &others[1]]).await;
        let publisher = others[0].client().await;
        publish(&publisher, "/h/early", 0..100).await;
        let mut subscription = replay(&others[1], "/h/early").await;
        let before = read(&mut subscription, 100).await;
        let (epoch, offset, _) = before[99].clone();
        // The first one has owned all, so the next messages are committed when others do.
        first.restart();
        let publishing = publish(&publisher, "/h/early", 100..200);
        let coming = async {
            let client = loop {
                let builder = Client::builder().transport(Transport::WebSocket).reply_timeout(EVENT_MAX).ack(true);
                match builder.replay(ReplayFrom::Latest).connect(&first.url).await {
                    Ok(client) => break client,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            };
            let from = ReplayFrom::After { offset, epoch: Some(epoch.into()) };
            let mut subscription = client.subscribe_from("/h/early", from).await.expect("a subscription");
            read(&mut subscription, 100).await
        };
        let ((), after) = tokio::join!(publishing, coming);
        check(&[before, after].concat(), 0..200);
    });
}

#[test]
fn publications_wait_while_nats_is_away_and_epochs_go_on() {
    run(async {
        let mut nats = Keeping::start("away");
        let nodes = nodes(&nats.nats).await;
        let mut live = replay(&nodes[2], "/h/away").await;
        let publisher = nodes[1].client().await;
        publish(&publisher, "/h/away", 0..100).await;
        let before = read(&mut live, 100).await;
        nats.nats.kill();
        for node in &nodes {
            node.wait_for("encke_cluster_connected", 0);
        }
        // Messages that are there are replayed without NATS.
        assert!(read(&mut replay(&nodes[0], "/h/away").await, 100).await == before, "replayed otherwise");
        let publishing = publish(&publisher, "/h/away", 100..200);
        let beginning = async {
            let waits = || nodes[1].metric("encke_cluster_history_pending_bytes") > 0;
            wait_until_async("a publication waits", waits).await;
            nats.nats.begin();
        };
        tokio::join!(publishing, beginning);
        let after = read(&mut live, 100).await;
        check(&[before, after].concat(), 0..200);
    });
}

#[test]
fn a_node_that_stops_for_a_while_has_missed_nothing_when_it_goes_on() {
    run(async {
        let nats = Keeping::start("paused");
        let [owner, other, third] = nodes(&nats.nats).await;
        let mut live = replay(&owner, "/h/paused").await;
        let mut beside = replay(&third, "/h/paused").await;
        let publisher = other.client().await;
        publish(&publisher, "/h/paused", 0..100).await;
        check(&read(&mut live, 100).await, 0..100);
        owner.signal("STOP");
        publish(&publisher, "/h/paused", 100..200).await;
        check(&read(&mut beside, 200).await, 0..200);
        owner.signal("CONT");
        check(&read(&mut live, 100).await, 100..200);
        wait_until_in_sync(&[&owner]).await;
        publish(&owner.client().await, "/h/paused", 200..300).await;
        for subscription in [&mut live, &mut beside] {
            check(&read(subscription, 100).await, 200..300);
        }
    });
}

#[test]
fn a_rolling_restart_loses_nothing() {
    run(async {
        let nats = Keeping::start("rolling");
        let mut nodes: Vec<Node> = nodes(&nats.nats).await.into();
        let mut published = 0;
        for round in 0..3 {
            let publisher = nodes[1].client().await;
            publish(&publisher, "/h/rolling", published..published + 100).await;
            published += 100;
            nodes[0].end();
            nodes.remove(0);
            let next = start(&nats.nats, ["d", "e", "f"][round]);
            wait_until_in_sync(&[&next]).await;
            nodes.push(next);
        }
        let first = read(&mut replay(&nodes[0], "/h/rolling").await, published).await;
        check(&first, 0..published);
        for node in &nodes {
            assert!(read(&mut replay(node, "/h/rolling").await, published).await == first, "replayed otherwise");
        }
    });
}

#[test]
fn the_api_says_what_a_history_of_the_cluster_does_not_take() {
    run(async {
        let nats = Keeping::taking("refused", 100_000);
        let key = "publishing-key-0123456789";
        let keys = format!("[[api_keys]]\nname = \"p\"\nkey = \"{key}\"\nscopes = [\"publish\"]");
        let node = Node::start(&nats.nats, "a", &format!("{RULE}\n{keys}"));
        wait_until_in_sync(&[&node]).await;
        let publish = |operation: &str, body: Value| {
            post(node.url.trim_start_matches("http://"), &format!("/api/v1/{operation}"), key, &body.to_string())
        };
        let large = "x".repeat(150_000);
        for _ in 0..2 {
            // The second request is no repetition of the first, of which nothing was published.
            let answer = publish("publish", json!({"channel": "/h/a", "data": large, "idempotency_key": "large"}));
            assert!(answer.contains("urn:encke:problem:busy") && answer.contains("\"status\":503"), "{answer}");
        }
        assert_eq!(node.metric("encke_cluster_history_refused"), 2);
        let both = json!([{"channels": ["/h/a"], "data": 1}, {"channels": ["/h/b"], "data": large}]);
        let answer = publish("publish/batch", json!({ "messages": both }));
        assert!(answer.contains("urn:encke:problem:partly-published"), "{answer}");
        let answer = publish("publish", json!({"channel": "/h/a", "data": 1}));
        assert!(answer.contains("\"positions\""), "{answer}");
        let page = node.client().await.read_history("/h/a", &HistoryQuery::default()).await.expect("a page");
        assert_eq!(page.messages.len(), 2);
    });
}

#[test]
fn a_history_on_disk_is_refused_in_a_cluster() {
    let folder = std::env::temp_dir().join(format!("encke-cluster-disk-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("encke.toml");
    let text = format!("data = \"{}\"\n[cluster]\nservers = [\"nats://127.0.0.1:1\"]\n{RULE}\n", folder.display());
    std::fs::write(&file, text).expect("a file");
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_encke"));
    let output = program.args(["serve", "--config"]).arg(&file).output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("channels[0].history_messages"), "{error}");
    std::fs::remove_dir_all(folder).expect("it is there");
}
