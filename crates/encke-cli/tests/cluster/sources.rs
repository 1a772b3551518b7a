//! Sources that several nodes have, and one of them runs.

use serde_json::Value;

use crate::nats::Keeping;
use crate::node::Node;
use crate::{next, run, wait_until};

/// A source whose program shows its number with each line.
const SOURCE: &str = r#"[[source]]
kind = "command"
name = "ticks"
command = ["sh", "-c", "while echo $$; do sleep 0.05; done"]
"#;

/// The node that runs the source.
fn holder(nodes: &[Option<Node>]) -> Option<usize> {
    let holds = |node: &Option<Node>| node.as_ref().is_some_and(|node| node.metric("encke_cluster_leases_held") == 1);
    nodes.iter().position(holds)
}

#[test]
fn one_node_runs_a_source_and_another_one_goes_on_when_it_is_killed_or_stops() {
    run(async {
        let nats = Keeping::start("sources");
        let listener = Node::start(&nats.nats, "d", "");
        let mut ticks = listener.subscribe("/command/ticks").await;
        let mut nodes = ["a", "b", "c"].map(|name| Some(Node::start(&nats.nats, name, SOURCE)));
        // The programs in their order.
        let mut programs: Vec<Value> = Vec::new();
        for round in 1..=3 {
            // On a busy machine a node may lose its lease, and another program follows.
            let (before, mut count) = (programs.len(), 0);
            while programs.len() == before || count < 20 {
                let program: Value = serde_json::from_str(&next(&mut ticks).await.1).expect("a number");
                if programs.last() != Some(&program) {
                    assert!(!programs.contains(&program), "two nodes run it at once");
                    programs.push(program);
                    count = 0;
                }
                count += 1;
            }
            let mut found = None;
            wait_until("its node says so", || {
                found = holder(&nodes);
                found.is_some()
            });
            let mut node = nodes[found.expect("a holder")].take().expect("it runs");
            if round == 2 {
                node.end();
            }
        }
    });
}

#[test]
fn a_source_that_has_finished_does_not_begin_on_another_node() {
    run(async {
        let once = SOURCE.replace("while echo $$; do sleep 0.05; done", "echo 7") + "restart = \"never\"\n";
        let nats = Keeping::start("finished");
        let listener = Node::start(&nats.nats, "c", "");
        let mut ticks = listener.subscribe("/command/ticks").await;
        let _nodes = ["a", "b"].map(|name| Node::start(&nats.nats, name, &once));
        assert_eq!(next(&mut ticks).await.1, "7");
        // Time enough for another node to take a lease that is given up.
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let second = tokio::time::timeout(std::time::Duration::from_millis(1), ticks.next()).await;
        assert!(second.is_err(), "it has begun again");
    });
}
