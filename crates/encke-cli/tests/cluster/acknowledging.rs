//! A session that acknowledges, by long-polling, whose node is killed: it goes on at another one with what it has missed of histories.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::histories::{start, wait_until_in_sync};
use crate::nats::Keeping;
use crate::node::Node;
use crate::sessions::{Polling, handshake_with, post, subscribe, wait_for_records};
use crate::{run, wait_until};

/// A client that acknowledges, as a stock one does. It goes on at the next node when one does not answer.
struct Acknowledging<'a> {
    session: Polling,
    nodes: Vec<&'a Node>,
    /// The number of the last batch that it has received.
    batch: u64,
    /// The messages of each channel in the order in which they came.
    got: BTreeMap<String, Vec<usize>>,
}

impl Acknowledging<'_> {
    /// Connects, and takes what comes. False if the node did not answer.
    fn poll(&mut self, node: usize) -> bool {
        let (id, ext) = (&self.session.id, json!({"ack": self.batch}));
        let connect = json!([{"channel": "/meta/connect", "clientId": id, "connectionType": "long-polling", "ext": ext, "advice": {"timeout": 0}}]);
        let (status, replies) = post(self.nodes[node], &self.session, &connect);
        if status != 200 {
            return false;
        }
        for message in replies.as_array().expect("a batch") {
            let channel = message["channel"].as_str().expect("a channel");
            if channel == "/meta/connect" {
                assert_eq!(message["successful"], true, "the session has not gone on: {replies}");
                self.batch = message["ext"]["ack"].as_u64().expect("a number");
            } else {
                self.got.entry(channel.into()).or_default().push(number(message));
            }
        }
        true
    }

    /// The different messages so far.
    fn count(&self) -> usize {
        let all: BTreeSet<&usize> = self.got.values().flatten().collect();
        all.len()
    }

    /// Checks that each channel has its messages in order, and from a point on once more at most.
    fn check(&self, numbers: std::ops::Range<usize>, doubled_from: usize) {
        let mut all: Vec<usize> = self.got.values().flatten().copied().collect();
        all.sort_unstable();
        let doubled: Vec<usize> = all.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        all.dedup();
        assert!(all.iter().copied().eq(numbers.clone()), "lost: not {numbers:?}, but {all:?}");
        assert!(
            doubled.iter().all(|number| *number >= doubled_from),
            "doubled: {doubled:?}, not from {doubled_from} on"
        );
        for (channel, got) in &self.got {
            let begins_again = got.windows(2).filter(|pair| pair[0] >= pair[1]).count();
            assert!(begins_again <= 1, "{channel} is out of order: {got:?}");
        }
    }
}

fn number(message: &Value) -> usize {
    message["data"].as_u64().expect("a number") as usize
}

/// The channel of a message.
fn channel_of(number: usize) -> String {
    if number % 3 == 0 { "/h/one".into() } else { format!("/h/many/{}", number % 5) }
}

fn publish(node: &Node, session: &Polling, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let publication = json!([{"channel": channel_of(number), "clientId": session.id, "data": number}]);
        let (status, replies) = post(node, session, &publication);
        assert!(status == 200 && replies[0]["successful"] == true, "{status} {replies}");
    }
}

const BEFORE: usize = 150;
const ALL: usize = 900;

#[test]
fn a_session_that_acknowledges_loses_nothing_of_a_history_when_its_node_is_killed() {
    run(async {
        let nats = Keeping::start("acknowledging");
        // The first one owns all histories, and has the session.
        let a = start(&nats.nats, "a");
        wait_until_in_sync(&[&a]).await;
        let [b, c] = ["b", "c"].map(|name| start(&nats.nats, name));
        wait_until_in_sync(&[&a, &b, &c]).await;
        let session = handshake_with(&a, &json!({"ack": true}));
        let mut client = Acknowledging { session, nodes: vec![&a, &b], batch: 0, got: BTreeMap::new() };
        assert!(client.poll(0));
        subscribe(&a, &client.session, "/h/one");
        subscribe(&a, &client.session, "/h/many/*");
        wait_for_records(&a, 1);
        let publisher = handshake_with(&c, &json!({}));
        publish(&c, &publisher, 0..BEFORE);
        wait_until("it has the first messages", || client.poll(0) && client.count() == BEFORE);
        // It confirms the last of them.
        assert!(client.poll(0));
        let marks = b.metric("encke_cluster_marks");
        wait_until("other nodes know that", || client.poll(0) && b.metric("encke_cluster_marks") > marks + 8);
        let is_half = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                publish(&c, &publisher, BEFORE..ALL / 2);
                is_half.store(true, Ordering::Relaxed);
                publish(&c, &publisher, ALL / 2..ALL);
            });
            wait_until("half of the messages are there", || client.poll(0) && is_half.load(Ordering::Relaxed));
            // Some messages wait for a client that is not there.
            std::thread::sleep(std::time::Duration::from_millis(30));
            a.signal("KILL");
            wait_until("all messages have come", || client.poll(1) && client.count() == ALL);
        });
        client.check(0..ALL, BEFORE);
        assert_eq!(b.metric("encke_cluster_sessions_taken_over"), 1);
        assert_eq!(b.metric("encke_sessions_unknown") + c.metric("encke_sessions_unknown"), 0);
        // The next kill finds it again.
        wait_for_records(&b, 1);
        let marks = c.metric("encke_cluster_marks");
        wait_until("other nodes know that", || client.poll(1) && c.metric("encke_cluster_marks") > marks + 8);
        client.nodes[0] = &c;
        publish(&c, &publisher, ALL..ALL + 20);
        b.signal("KILL");
        publish(&c, &publisher, ALL + 20..ALL + 40);
        wait_until("all messages have come", || client.poll(0) && client.count() == ALL + 40);
        client.got.retain(|_, numbers| {
            numbers.retain(|number| *number >= ALL);
            true
        });
        client.check(ALL..ALL + 40, ALL);
    });
}
