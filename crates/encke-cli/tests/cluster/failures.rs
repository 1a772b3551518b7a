//! NATS that comes late, goes and comes back; nodes that die; what is no envelope; logins.

use std::io::Write;

use encke_client::Client;

use crate::nats::Nats;
use crate::node::Node;
use crate::{data, next, run, wait_until};

const ALONE: &str = "ready, but the engine of the cluster is away\n";

async fn publish(client: &Client, channel: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        client.publish(channel, &number).await.expect("published");
    }
}

fn numbers(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

#[test]
fn nodes_go_on_alone_without_nats_and_send_what_has_waited_when_it_is_back() {
    run(async {
        let mut nats = Nats::start(&[]);
        // Time enough for the slower node to come back.
        let nodes = ["a", "b"].map(|name| Node::start(&nats, name, "return_delay_ms = 5000"));
        let mut local = nodes[0].subscribe("/news").await;
        let mut remote = nodes[1].subscribe("/news").await;
        let publisher = nodes[0].client().await;
        publish(&publisher, "/news", 0..100).await;
        assert_eq!((data(&mut local, 100).await, data(&mut remote, 100).await), (numbers(0..100), numbers(0..100)));
        assert_eq!(nodes[0].get("/readyz"), "ready\n");
        nats.kill();
        for node in &nodes {
            node.wait_for("encke_cluster_connected", 0);
            assert_eq!(node.get("/readyz"), ALONE);
        }
        publish(&publisher, "/news", 100..300).await;
        assert_eq!(data(&mut local, 200).await, numbers(100..300), "subscribers of the same node get it at once");
        // A subscribe does not wait for NATS.
        let mut late = nodes[1].subscribe("/late").await;
        assert!(nodes[0].metric("encke_cluster_pending_bytes") > 0);
        nats.begin();
        for node in &nodes {
            node.wait_for("encke_cluster_connected", 1);
            assert_eq!(node.get("/readyz"), "ready\n");
        }
        publish(&publisher, "/news", 300..400).await;
        assert_eq!(data(&mut remote, 300).await, numbers(100..400), "lost, doubled or out of order");
        publish(&publisher, "/late", 0..1).await;
        assert_eq!(data(&mut late, 1).await, numbers(0..1));
        for node in &nodes {
            assert_eq!((node.metric("encke_cluster_lost_out"), node.metric("encke_cluster_lost_in")), (0, 0));
        }
    });
}

#[test]
fn what_waits_for_nats_has_a_bound_and_the_rest_is_counted() {
    run(async {
        let mut nats = Nats::start(&[]);
        let a = Node::start(&nats, "a", "return_delay_ms = 5000\npending_bytes_max = 20000");
        let b = Node::start(&nats, "b", "");
        let mut remote = b.subscribe("/news").await;
        nats.kill();
        a.wait_for("encke_cluster_connected", 0);
        let publisher = a.client().await;
        publish(&publisher, "/news", 0..1_000).await;
        nats.begin();
        [&a, &b].iter().for_each(|node| node.wait_for("encke_cluster_connected", 1));
        let counts =
            || ["publications_out", "lost_out"].map(|name| a.metric(&format!("encke_cluster_{name}")) as usize);
        wait_until("all are sent or counted", || counts().iter().sum::<usize>() == 1_000);
        let [sent, lost] = counts();
        assert!((1..1_000).contains(&lost) && sent * 30 <= 20_000, "{lost} of 1000");
        assert_eq!(data(&mut remote, 1_000 - lost).await, numbers(0..1_000 - lost), "the oldest wait");
        a.wait_for("encke_cluster_pending_bytes", 0);
        publish(&publisher, "/news", 2_000..2_001).await;
        assert_eq!(data(&mut remote, 1).await, numbers(2_000..2_001));
    });
}

#[test]
fn a_node_starts_without_nats_and_joins_later() {
    run(async {
        let mut nats = Nats::new(&[]);
        let nodes = ["a", "b"].map(|name| Node::begin(&nats, name, ""));
        let mut subscription = nodes[0].subscribe("/a").await;
        assert_eq!(nodes[0].get("/readyz"), ALONE);
        publish(&nodes[0].client().await, "/a", 0..1).await;
        assert_eq!(data(&mut subscription, 1).await, numbers(0..1));
        nats.begin();
        nodes.iter().for_each(|node| node.wait_for("encke_cluster_connected", 1));
        // Its subscription from before is confirmed when a reply on the same channel leaves.
        drop(nodes[0].subscribe("/a").await);
        publish(&nodes[1].client().await, "/a", 1..2).await;
        assert_eq!(data(&mut subscription, 1).await, numbers(1..2));
    });
}

#[test]
fn the_other_nodes_go_on_when_one_is_killed_and_its_successor_joins() {
    run(async {
        let nats = Nats::start(&[]);
        let (a, b, c) = (Node::start(&nats, "a", ""), Node::start(&nats, "b", ""), Node::start(&nats, "c", ""));
        let mut subscription = b.subscribe("/a/*").await;
        let doomed = c.client().await;
        publish(&doomed, "/a/c", 0..50).await;
        assert_eq!(data(&mut subscription, 50).await, numbers(0..50));
        drop(c);
        publish(&a.client().await, "/a/a", 0..50).await;
        assert_eq!(data(&mut subscription, 50).await, numbers(0..50));
        // Its numbers begin again, and are not taken for copies.
        let c = Node::start(&nats, "c", "");
        publish(&c.client().await, "/a/c", 0..50).await;
        assert_eq!(data(&mut subscription, 50).await, numbers(0..50));
        assert_eq!((b.metric("encke_cluster_doubled"), b.metric("encke_cluster_origins")), (0, 3));
    });
}

#[test]
fn a_node_with_a_copy_of_the_data_of_another_one_stays_alone_until_that_has_ended() {
    run(async {
        let nats = Nats::start(&[]);
        let folder = std::env::temp_dir().join(format!("encke-cluster-copied-{}", std::process::id()));
        let folders = ["first", "copy"].map(|name| folder.join(name));
        folders.iter().for_each(|folder| std::fs::create_dir_all(folder).expect("a folder"));
        let settings = folders.each_ref().map(|folder| format!("data = \"{}\"", folder.display()));
        let mut first = Node::start_with(&nats, "a", &settings[0], "");
        std::fs::copy(folders[0].join("node"), folders[1].join("node")).expect("its name");
        let copy = Node::begin_with(&nats, "b", &settings[1], "");
        wait_until("it knows", || copy.get("/readyz") == "another node of the cluster has the name of this one\n");
        assert_eq!(copy.metric("encke_cluster_connected"), 0);
        let other = Node::start(&nats, "c", "");
        let mut subscription = first.subscribe("/a").await;
        publish(&copy.client().await, "/a", 0..1).await;
        publish(&other.client().await, "/a", 1..2).await;
        assert_eq!(data(&mut subscription, 1).await, numbers(1..2), "what the copy publishes goes to its own clients");
        first.end();
        copy.wait_for("encke_cluster_connected", 1);
        assert_eq!(copy.get("/readyz"), "ready\n");
        let mut subscription = copy.subscribe("/a").await;
        publish(&other.client().await, "/a", 2..3).await;
        assert_eq!(data(&mut subscription, 1).await, numbers(2..3));
        std::fs::remove_dir_all(folder).expect("it is there");
    });
}

#[test]
fn what_is_no_envelope_is_counted_and_harms_nobody() {
    run(async {
        let nats = Nats::start(&[]);
        let nodes = ["a", "b"].map(|name| Node::start(&nats, name, ""));
        let mut subscription = nodes[0].subscribe("/a").await;
        let mut stranger = nats.connect();
        stranger.write_all(b"CONNECT {\"verbose\":false}\r\n").expect("it reads");
        for payload in ["", "nothing", "\u{1}", &"x".repeat(100_000)] {
            let publication = format!("PUB encke.main.c.a {}\r\n{payload}\r\n", payload.len());
            stranger.write_all(publication.as_bytes()).expect("it reads");
        }
        nodes[0].wait_for("encke_cluster_rejected", 4);
        publish(&nodes[1].client().await, "/a", 0..1).await;
        assert_eq!(next(&mut subscription).await, ("/a".to_owned(), "0".to_owned()));
        assert_eq!(nodes[1].metric("encke_cluster_rejected"), 0, "it does not want the channel");
    });
}

#[test]
fn nodes_log_in_over_tls() {
    run(async {
        let folder = std::env::temp_dir().join(format!("encke-cluster-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let names = vec!["127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let file = |name: &str| folder.join(name).display().to_string();
        std::fs::write(file("cert.pem"), made.cert.pem()).expect("a file");
        std::fs::write(file("key.pem"), made.signing_key.serialize_pem()).expect("a file");
        let (cert, key) = (file("cert.pem"), file("key.pem"));
        let nats =
            Nats::start(&["--user", "encke", "--pass", "hunter2", "--tls", "--tlscert", &cert, "--tlskey", &key]);
        let login = format!("ca_file = \"{cert}\"\nuser = \"encke\"\npassword_env = \"CLUSTER_PASSWORD\"");
        let nodes = ["a", "b"].map(|name| Node::start(&nats, name, &login));
        let mut subscription = nodes[0].subscribe("/a").await;
        publish(&nodes[1].client().await, "/a", 0..1).await;
        assert_eq!(data(&mut subscription, 1).await, numbers(0..1));
        let wrong = login.replace("password_env = \"CLUSTER_PASSWORD\"", "password = \"wrong\"");
        let wrong = Node::begin(&nats, "c", &wrong);
        let mut alone = wrong.subscribe("/a").await;
        publish(&wrong.client().await, "/a", 5..6).await;
        assert_eq!(data(&mut alone, 1).await, numbers(5..6));
        wait_until("it stays alone", || wrong.get("/readyz") == ALONE);
        std::fs::remove_dir_all(folder).expect("it is there");
    });
}
