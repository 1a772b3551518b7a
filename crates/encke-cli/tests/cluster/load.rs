//! `encke bench` over three nodes of which one is killed.

use std::process::Command;

use serde_json::Value;

use crate::histories::wait_until_in_sync;
use crate::nats::{Keeping, free_port};
use crate::node::Node;
use crate::proxy::Proxy;
use crate::run;

const RULE: &str = "\n[[channels]]\npattern = \"/avalanche/**\"\nhistory_messages = 10000";

#[test]
fn confirmed_messages_arrive_once_at_all_clients_when_one_of_three_nodes_is_killed() {
    let nats = Keeping::start("load");
    let nodes = ["a", "b"].map(|name| Node::start(&nats.nats, name, RULE));
    run(wait_until_in_sync(&[&nodes[0], &nodes[1]]));
    let port = free_port();
    let file = std::env::temp_dir().join(format!("encke-cluster-load-{port}.toml"));
    let servers = nats.nats.url();
    let text = format!("listen = \"127.0.0.1:{port}\"\n[cluster]\nservers = [\"{servers}\"]\nnode = \"c\"{RULE}\n");
    std::fs::write(&file, text).expect("a file");
    let mut targets: Vec<String> = nodes.iter().map(|node| node.url.trim_start_matches("http://").to_owned()).collect();
    targets.push(format!("127.0.0.1:{port}"));
    let through = format!("http://{}", Proxy::balancer(targets).address());
    let program = env!("CARGO_BIN_EXE_encke");
    let server = format!("{program} serve --log warn --config {}", file.display());
    for more in ["--transport websocket", "--transport long-polling --ack"] {
        let line = format!(
            "bench avalanche --kill kill --replay --clients 30 --rate 20 --around 2s --back-within 60s --quiet {more}"
        );
        let output = Command::new(program)
            .args(line.split(' '))
            .args(["--json", "--port", &port.to_string(), "--through", &through, "--server", &server])
            .output()
            .expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
        assert!(report["holds"] == true, "{more}: {report}");
    }
    std::fs::remove_file(file).expect("it is there");
}
