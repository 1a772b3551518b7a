//! A session that acknowledges, by long-polling, whose node is killed: it goes on at another one with what it has missed of histories.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use encke_client::{Client, Subscription, Transport};
use serde_json::{Value, json};

use crate::histories::nodes;
use crate::nats::Keeping;
use crate::node::Node;
use crate::proxy::Proxy;
use crate::sessions::{Polling, handshake_with, post, subscribe, wait_for_records};
use crate::{EVENT_MAX, run, wait_until, wait_until_async};

/// A client that acknowledges, as a stock one does. It goes on at the next node when one does not answer.
struct Acknowledging<'a> {
    session: Polling,
    nodes: Vec<&'a Node>,
    /// The number of the last batch that it has received.
    batch: u64,
    /// The messages of each channel in the order in which they came.
    got: BTreeMap<String, Vec<usize>>,
}

impl<'a> Acknowledging<'a> {
    /// A client with a session on the first node.
    fn open(first: &'a Node, second: &'a Node) -> Acknowledging<'a> {
        let session = handshake_with(first, &json!({"ack": true}));
        let mut client = Acknowledging { session, nodes: vec![first, second], batch: 0, got: BTreeMap::new() };
        assert!(client.poll(0));
        ["/h/one", "/h/many/*"].into_iter().for_each(|name| subscribe(first, &client.session, name));
        client
    }

    /// Connects, and takes what comes. False if the node did not answer.
    fn poll(&mut self, node: usize) -> bool {
        let (id, ext) = (&self.session.id, json!({"ack": self.batch}));
        let connect = json!([{"channel": "/meta/connect", "clientId": id, "connectionType": "long-polling", "ext": ext, "advice": {"timeout": 0, "maxInterval": 120_000}}]);
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
}

/// Checks that channels have their messages in order, and from a point on once more at most.
pub(crate) fn check<'a>(channels: impl Iterator<Item = &'a Vec<usize>>, numbers: Range<usize>, doubled_from: usize) {
    let mut all = Vec::new();
    for got in channels {
        let begins_again = got.windows(2).filter(|pair| pair[0] >= pair[1]).count();
        assert!(begins_again <= 1, "out of order: {got:?}");
        all.extend(got);
    }
    all.sort_unstable();
    let doubled: Vec<usize> = all.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    all.dedup();
    assert!(all.iter().copied().eq(numbers.clone()), "lost: not {numbers:?}, but {all:?}");
    assert!(doubled.iter().all(|number| *number >= doubled_from), "doubled: {doubled:?}, not from {doubled_from} on");
}

fn number(message: &Value) -> usize {
    message["data"].as_u64().expect("a number") as usize
}

/// The channel of a message.
fn channel_of(number: usize) -> String {
    if number.is_multiple_of(3) { "/h/one".into() } else { format!("/h/many/{}", number % 5) }
}

fn publish(node: &Node, session: &Polling, numbers: Range<usize>) {
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
        let [a, b, c] = nodes(&nats.nats).await;
        let [mut client, mut late] = [(); 2].map(|()| Acknowledging::open(&a, &b));
        wait_for_records(&a, 2);
        let publisher = handshake_with(&c, &json!({}));
        publish(&c, &publisher, 0..BEFORE);
        for client in [&mut client, &mut late] {
            wait_until("it has the first messages", || client.poll(0) && client.count() == BEFORE);
            // It confirms the last of them.
            assert!(client.poll(0));
        }
        let marks = b.metric("encke_cluster_marks");
        wait_until("other nodes know that", || {
            client.poll(0) && late.poll(0) && b.metric("encke_cluster_marks") > marks + 8
        });
        let written = a.metric("encke_cluster_session_records_written");
        let is_half = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                publish(&c, &publisher, BEFORE..ALL / 2);
                is_half.store(true, Ordering::Relaxed);
                publish(&c, &publisher, ALL / 2..ALL);
            });
            // One of them confirms nothing more, and its record says so.
            wait_until("half of the messages are there", || {
                let has_record = a.metric("encke_cluster_session_records_written") > written;
                client.poll(0) && is_half.load(Ordering::Relaxed) && has_record
            });
            // Some messages wait for a client that is not there.
            std::thread::sleep(Duration::from_millis(30));
            a.signal("KILL");
            for client in [&mut client, &mut late] {
                wait_until("all messages have come", || client.poll(1) && client.count() == ALL);
            }
        });
        for client in [&client, &late] {
            check(client.got.values(), 0..ALL, BEFORE);
        }
        assert_eq!(b.metric("encke_cluster_sessions_taken_over"), 2);
        assert_eq!(b.metric("encke_sessions_unknown") + c.metric("encke_sessions_unknown"), 0);
        // The end of that node finds it again.
        wait_for_records(&b, 2);
        let marks = c.metric("encke_cluster_marks");
        wait_until("other nodes know that", || {
            client.poll(1) && late.poll(1) && c.metric("encke_cluster_marks") > marks + 8
        });
        client.nodes[0] = &c;
        publish(&c, &publisher, ALL..ALL + 20);
        b.signal("TERM");
        publish(&c, &publisher, ALL + 20..ALL + 40);
        wait_until("all messages have come", || client.poll(0) && client.count() == ALL + 40);
        client.got.retain(|_, numbers| {
            numbers.retain(|number| *number >= ALL);
            true
        });
        check(client.got.values(), ALL..ALL + 40, ALL);
    });
}

/// The numbers that come, up to this one.
async fn read(mut subscription: Subscription, last: usize) -> (Vec<usize>, Subscription) {
    let mut got = Vec::new();
    while got.last() != Some(&last) {
        let item = tokio::time::timeout(EVENT_MAX, subscription.next()).await;
        let message = item.expect("gave up waiting for a message").expect("the session is open").expect("no gap");
        got.push(message.json().expect("a number"));
    }
    (got, subscription)
}

#[test]
fn websockets_of_sessions_that_acknowledge_go_on_at_other_nodes_when_theirs_is_killed() {
    run(async {
        let nats = Keeping::start("websockets-acknowledging");
        let [a, b, c] = nodes(&nats.nats).await;
        let urls = [&a, &b, &c].map(|node| node.url.trim_start_matches("http://").to_owned());
        let proxy = Proxy::to(urls.into());
        let (mut clients, mut subscriptions) = (Vec::new(), Vec::new());
        for _ in 0..6 {
            let builder = Client::builder().transport(Transport::WebSocket).reply_timeout(EVENT_MAX).ack(true);
            let builder = builder.backoff(Duration::from_millis(20), Duration::from_millis(200));
            let client = builder.connect(&format!("http://{}", proxy.address())).await.expect("a session");
            subscriptions.push(client.subscribe("/h/*").await.expect("a subscription"));
            clients.push(client);
        }
        let ids = |clients: &[Client]| -> Vec<_> {
            clients.iter().map(|client| client.connected().map(|connected| connected.client_id)).collect()
        };
        let before = ids(&clients);
        wait_until_async("its sessions have records", || a.metric("encke_cluster_sessions_recorded") == 2).await;
        let publisher = c.client().await;
        let publish = async |numbers: Range<usize>| {
            for number in numbers {
                publisher.publish("/h/w", &number).await.expect("published");
            }
        };
        publish(0..BEFORE).await;
        let mut read_before = Vec::new();
        for subscription in subscriptions {
            read_before.push(read(subscription, BEFORE - 1).await);
        }
        let marks = b.metric("encke_cluster_marks");
        wait_until_async("other nodes know that", || b.metric("encke_cluster_marks") > marks + 8).await;
        let killing = async {
            publish(BEFORE..ALL / 2).await;
            a.signal("KILL");
            publish(ALL / 2..ALL).await;
        };
        let reading = async {
            let mut all = Vec::new();
            for (mut got, subscription) in read_before {
                let (more, subscription) = read(subscription, ALL - 1).await;
                got.extend(more);
                all.push((got, subscription));
            }
            all
        };
        let ((), all) = tokio::join!(killing, reading);
        for (got, _) in &all {
            check(std::iter::once(got), 0..ALL, BEFORE);
        }
        assert_eq!(ids(&clients), before, "each session has gone on");
        assert_eq!(b.metric("encke_cluster_sessions_taken_over") + c.metric("encke_cluster_sessions_taken_over"), 2);
    });
}
