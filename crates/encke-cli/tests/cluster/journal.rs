//! Histories that are there again when all nodes have been killed: `history_commit = "replicated"`.

use std::time::Duration;

use encke_client::{Client, ReplayFrom, Transport};

use crate::histories::{check, publish, read, replay, wait_until_in_sync};
use crate::nats::{Keeping, Nats};
use crate::node::Node;
use crate::{EVENT_MAX, run};

const SETTINGS: &str = "history_commit = \"replicated\"";
const RULE: &str = "\n[[channels]]\npattern = \"/h/**\"\nhistory_messages = 100000\nhistory_bytes = 100000000";

fn start(nats: &Nats, name: &str, more: &str) -> Node {
    Node::start_with(nats, name, SETTINGS, &format!("{more}{RULE}"))
}

/// Nodes in sync.
async fn nodes(nats: &Nats, names: &[&str], more: &str) -> Vec<Node> {
    let mut nodes = Vec::new();
    for name in names {
        nodes.push(start(nats, name, more));
        wait_until_in_sync(&nodes.iter().collect::<Vec<_>>()).await;
    }
    nodes
}

#[test]
fn what_was_confirmed_is_there_again_when_all_nodes_and_nats_have_been_killed() {
    run(async {
        let mut nats = Keeping::start("journal");
        let nodes_before = nodes(&nats.nats, &["a", "b", "c"], "").await;
        let mut live = replay(&nodes_before[2], "/h/1").await;
        let clients = [nodes_before[0].client().await, nodes_before[1].client().await];
        tokio::join!(publish(&clients[0], "/h/1", 0..300), publish(&clients[1], "/h/2", 0..300));
        let before = read(&mut live, 300).await;
        check(&before, 0..300);
        drop((live, clients, nodes_before));
        nats.nats.kill();
        nats.nats.begin();
        let again = nodes(&nats.nats, &["a", "b"], "").await;
        assert!(again.iter().all(|node| node.metric("encke_cluster_history_journal_failures") < 100), "it has waited");
        for node in &again {
            assert!(read(&mut replay(node, "/h/1").await, 300).await == before, "lost, doubled or out of order");
        }
        publish(&again[1].client().await, "/h/1", 300..310).await;
        publish(&again[0].client().await, "/h/2", 300..310).await;
        for channel in ["/h/1", "/h/2"] {
            check(&read(&mut replay(&again[0], channel).await, 310).await, 0..310);
        }
    });
}

#[test]
fn publications_wait_for_the_journal_and_a_journal_that_dropped_messages_says_so() {
    run(async {
        let nats = Keeping::start("journal-bounds");
        let all = nodes(&nats.nats, &["a"], "journal_bytes_max = 100_000").await;
        let client = all[0].client().await;
        publish(&client, "/h/1", 0..2_000).await;
        let writes = all[0].metric("encke_cluster_history_journal_writes");
        assert!(writes >= 64, "{writes}: each partition has one, and each turn another one");
        drop((client, all));
        let again = nodes(&nats.nats, &["a"], "journal_bytes_max = 100_000").await;
        let client =
            Client::builder().transport(Transport::WebSocket).reply_timeout(EVENT_MAX).replay(ReplayFrom::Earliest);
        let mut subscription =
            client.connect(&again[0].url).await.expect("a session").subscribe("/h/1").await.expect("it");
        let mut numbers = Vec::new();
        while let Ok(Some(Ok(message))) = tokio::time::timeout(Duration::from_secs(2), subscription.next()).await {
            numbers.push(message.json::<usize>().expect("a number"));
        }
        assert!(numbers.len() < 2_000 && numbers.last() == Some(&1_999), "{} of 2,000", numbers.len());
        assert!(numbers.is_sorted() && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "the latest are there");
    });
}
