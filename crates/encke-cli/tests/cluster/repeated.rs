//! Requests of the HTTP API with an idempotency key, repeated at other nodes.

use serde_json::json;

use crate::nats::{Nats, whole_post};
use crate::node::Node;
use crate::{data, run};

const KEY: &str = "publishing-key-0123456789";
/// So many that each node keeps some.
const REQUESTS: usize = 24;

/// Three nodes with a key of the API that know of each other.
fn nodes(nats: &Nats) -> [Node; 3] {
    let keys = format!("[[api_keys]]\nname = \"p\"\nkey = \"{KEY}\"\nscopes = [\"publish\"]");
    let nodes = ["a", "b", "c"].map(|name| Node::start(nats, name, &keys));
    nodes.iter().for_each(|node| node.wait_for("encke_cluster_nodes", 3));
    nodes
}

/// Publishes a number under a key, and returns the response.
fn publish(node: &Node, key: usize, number: usize) -> String {
    let body = json!({"channel": "/a", "data": number, "idempotency_key": format!("key-{key}")});
    whole_post(node.url.trim_start_matches("http://"), "/api/v1/publish", KEY, &body.to_string())
}

fn is_repeated(response: &str) -> bool {
    response.starts_with("HTTP/1.1 200") && response.to_ascii_lowercase().contains("idempotency-replayed: true")
}

#[test]
fn a_request_repeated_at_another_node_gets_the_first_answer_and_publishes_nothing_also_after_a_node_was_killed() {
    run(async {
        let nats = Nats::start(&[]);
        let [a, b, c] = nodes(&nats);
        let mut on_c = c.subscribe("/a").await;
        for key in 0..REQUESTS {
            let first = publish(&a, key, key);
            assert!(first.starts_with("HTTP/1.1 200") && !is_repeated(&first), "{first}");
        }
        for key in 0..REQUESTS {
            // Of the others only the replicas have the answer.
            if key % 2 == 0 {
                let response = publish(&b, key, key);
                assert!(is_repeated(&response), "{response}");
            }
            let response = publish(&c, key, 1_000);
            assert!(response.contains("urn:encke:problem:idempotency-key-reused"), "{response}");
        }
        drop(a);
        for key in 0..REQUESTS {
            assert!(is_repeated(&publish(&c, key, key)), "the key is forgotten");
        }
        assert!(!is_repeated(&publish(&b, REQUESTS, REQUESTS)));
        let mut expected: Vec<String> = (0..=REQUESTS).map(|number| number.to_string()).collect();
        expected.sort();
        let mut got = data(&mut on_c, REQUESTS + 1).await;
        got.sort();
        assert_eq!(got, expected, "doubled or lost");
    });
}

#[test]
fn of_equal_requests_that_meet_at_two_nodes_one_publishes() {
    run(async {
        let nats = Nats::start(&[]);
        let [a, b, c] = nodes(&nats);
        let mut on_c = c.subscribe("/a").await;
        for key in 0..REQUESTS {
            let responses = std::thread::scope(|scope| {
                [&a, &b]
                    .map(|node| scope.spawn(move || publish(node, key, key)))
                    .map(|thread| thread.join().expect("a response"))
            });
            let first = |response: &&String| response.starts_with("HTTP/1.1 200") && !is_repeated(response);
            assert!(responses.iter().filter(first).count() <= 1, "doubled: {responses:?}");
            let is_good = |response: &String| {
                response.starts_with("HTTP/1.1 200") || response.contains("urn:encke:problem:in-progress")
            };
            assert!(responses.iter().all(is_good), "{responses:?}");
            // Both may have found the other one in progress: then nothing is published yet.
            while !publish(&c, key, key).starts_with("HTTP/1.1 200") {}
        }
        publish(&c, REQUESTS, REQUESTS);
        let mut got = data(&mut on_c, REQUESTS + 1).await;
        got.sort_by_key(|text| text.parse::<usize>().expect("a number"));
        let expected: Vec<String> = (0..=REQUESTS).map(|number| number.to_string()).collect();
        assert_eq!(got, expected, "doubled or lost");
    });
}
