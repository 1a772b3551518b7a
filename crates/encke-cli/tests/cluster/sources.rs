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
    let holders: Vec<usize> = (0..nodes.len()).filter(|index| holds(&nodes[*index])).collect();
    assert!(holders.len() <= 1, "{holders:?} run it");
    holders.first().copied()
}

#[test]
fn one_node_runs_a_source_and_another_one_goes_on_when_it_is_killed_or_stops() {
    run(async {
        let nats = Keeping::start("sources");
        let mut nodes = ["a", "b", "c", "d"].map(|name| {
            // The last one only listens.
            Some(Node::start(&nats.nats, name, if name == "d" { "" } else { SOURCE }))
        });
        let listener = nodes[3].as_ref().expect("it runs");
        let mut ticks = listener.subscribe("/command/ticks").await;
        // The programs in their order.
        let mut programs: Vec<Value> = Vec::new();
        for round in 1..=3 {
            let mut count = 0;
            while programs.len() < round || count < 20 {
                let program: Value = serde_json::from_str(&next(&mut ticks).await.1).expect("a number");
                if programs.last() != Some(&program) {
                    assert!(!programs.contains(&program), "two nodes run it at once");
                    programs.push(program);
                    count = 0;
                }
                count += 1;
            }
            assert_eq!(programs.len(), round);
            wait_until("its node says so", || holder(&nodes).is_some());
            let mut node = nodes[holder(&nodes).expect("a holder")].take().expect("it runs");
            if round == 2 {
                node.end();
            }
        }
    });
}
