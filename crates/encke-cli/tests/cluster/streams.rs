//! Streams that reach another node than that of their session, which stays there.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use crate::acknowledging::check;
use crate::histories::nodes;
use crate::nats::Keeping;
use crate::node::Node;
use crate::sessions::{Polling, handshake_with, post, subscribe, sum, wait_for_records, with_one_that_can_be_cut_off};
use crate::{EVENT_MAX, run, wait_until};

const EVENTS: &str = "text/event-stream";
const LINES: &str = "application/x-ndjson";

/// A stream of a session.
struct Stream {
    reader: BufReader<TcpStream>,
    status: u16,
}

impl Stream {
    fn open(node: &Node, session: &Polling, accept: &str) -> Stream {
        Stream::open_with(node, session, accept, &format!("Cookie: {}\r\n", session.cookie))
    }

    fn open_with(node: &Node, session: &Polling, accept: &str, fields: &str) -> Stream {
        let mut tcp = TcpStream::connect(node.address()).expect("the node listens");
        tcp.set_read_timeout(Some(EVENT_MAX)).expect("a time limit");
        let head =
            format!("GET /cometd/{} HTTP/1.1\r\nHost: localhost\r\n{fields}Accept: {accept}\r\n\r\n", session.id);
        tcp.write_all(head.as_bytes()).expect("it reads");
        let mut stream = Stream { reader: BufReader::new(tcp), status: 0 };
        let first = stream.line().unwrap_or_default();
        stream.status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        while stream.line().is_some_and(|line| !line.is_empty()) {}
        stream
    }

    /// The next line. None at the end.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
            // A time-out is none of the ends of a stream.
            Err(error) => {
                assert!(error.kind() != std::io::ErrorKind::WouldBlock, "gave up waiting for a stream");
                None
            }
        }
    }

    /// The messages of the next event or line. None at the end.
    fn messages(&mut self) -> Option<Vec<Value>> {
        let began = Instant::now();
        loop {
            let line = self.line()?;
            // A stream that is there has signs of life.
            assert!(began.elapsed() < EVENT_MAX, "gave up waiting for messages on a stream");
            let text = line.strip_prefix("data: ").unwrap_or(&line);
            if text.starts_with('[') {
                return Some(serde_json::from_str(text).expect("an array of messages"));
            }
        }
    }

    fn close(&self) {
        self.reader.get_ref().shutdown(Shutdown::Both).expect("it is open");
    }
}

/// A client that acknowledges. It sends each request to the next node.
struct Watcher<'a> {
    session: Polling,
    nodes: Vec<&'a Node>,
    /// The nodes that its requests have reached.
    requests: usize,
    /// The number of the last batch that it has received.
    batch: u64,
    got: Vec<usize>,
}

impl<'a> Watcher<'a> {
    /// Opens a session on the first node, and subscribes.
    fn open(nodes: &[&'a Node], channel: &str) -> Watcher<'a> {
        let session = handshake_with(nodes[0], &json!({"ack": true}));
        subscribe(nodes[0], &session, channel);
        Watcher { session, nodes: nodes.to_vec(), requests: 0, batch: 0, got: Vec::new() }
    }

    /// Sends a connect, whose reply comes on the stream. It confirms what has come before. False if no node takes it now.
    fn connect(&mut self, kind: &str) -> bool {
        self.requests += 1;
        let (id, ext) = (&self.session.id, json!({"ack": self.batch}));
        let connect = json!([{"channel": "/meta/connect", "clientId": id, "connectionType": kind, "ext": ext}]);
        let node = self.nodes[self.requests % self.nodes.len()];
        let (status, replies) = post(node, &self.session, &connect);
        assert!(status == 503 || replies == json!([]), "the reply comes on the stream: {status} {replies}");
        status == 200
    }

    /// Takes messages from a stream, with the reply to a connect. False at the end of the stream.
    fn take(&mut self, stream: &mut Stream) -> bool {
        let Some(messages) = stream.messages() else { return false };
        for message in messages {
            if message["channel"] == "/meta/connect" {
                assert_eq!(message["successful"], true, "the session has not gone on: {message}");
                self.batch = message["ext"]["ack"].as_u64().expect("a number");
            } else {
                self.got.push(message["data"].as_u64().expect("a number") as usize);
            }
        }
        true
    }
}

fn publish(node: &Node, channel: &str, numbers: impl Iterator<Item = usize>) {
    let session = handshake_with(node, &json!({}));
    for number in numbers {
        let publication = json!([{"channel": channel, "clientId": session.id, "data": number}]);
        let (status, replies) = post(node, &session, &publication);
        assert!(status == 200 && replies[0]["successful"] == true, "{status} {replies}");
    }
}

const ALL: usize = 240;
const PART: usize = 30;

#[test]
fn a_stream_at_another_node_than_that_of_its_session_gets_each_message_once_and_in_order() {
    run(async {
        let nats = Keeping::start("streams-relayed");
        let [a, b, c] = ["a", "b", "c"].map(|name| Node::start(&nats.nats, name, ""));
        let mut client = Watcher::open(&[&a, &b, &c], "/s");
        std::thread::scope(|scope| {
            // However slow the client is, no stream gets more than one part of all messages by itself.
            let (publishes, parts) = std::sync::mpsc::channel();
            scope.spawn(|| publish(&c, "/s", parts.into_iter().flatten().take(ALL)));
            let mut rounds = 0;
            while client.got.len() < ALL {
                // It has ended when all are published.
                _ = publishes.send(rounds * PART..(rounds + 1) * PART);
                rounds += 1;
                let (accept, kind) = if rounds % 2 == 0 { (EVENTS, "eventsource") } else { (LINES, "json-stream") };
                let mut stream = Stream::open([&b, &c, &a][rounds % 3], &client.session, accept);
                assert_eq!(stream.status, 200);
                // Each stream ends after some batches; the last connect is not answered before that.
                for _ in 0..5 {
                    assert!(client.connect(kind) && client.take(&mut stream), "the stream has ended");
                    if client.got.len() == ALL.min(rounds * PART) {
                        break;
                    }
                }
            }
        });
        assert_eq!(client.got, (0..ALL).collect::<Vec<_>>(), "lost, doubled or out of order");
        let all = [&a, &b, &c];
        assert!(sum(&all, "encke_cluster_connections_relayed") >= 2);
        assert_eq!((sum(&all, "encke_sessions_given"), sum(&all, "encke_sessions_unknown")), (0, 0));
    });
}

#[test]
fn a_stream_whose_session_stays_on_a_node_that_is_killed_goes_on_at_another_one() {
    assert!((0..3).any(|_| goes_on_at_another_node()), "nodes were behind each time");
}

/// False if the session has begun again, as it may where a node was behind and has read a history from another one.
fn goes_on_at_another_node() -> bool {
    let mut has_gone_on = true;
    run(async {
        let nats = Keeping::start("streams-killed");
        let [a, b, c] = nodes(&nats.nats).await;
        let mut client = Watcher::open(&[&a, &b], "/h/s");
        let mut stream = Stream::open(&b, &client.session, EVENTS);
        assert!(client.connect("eventsource") && client.take(&mut stream));
        wait_for_records(&a, 1);
        publish(&c, "/h/s", 0..ALL / 2);
        while client.got.len() < ALL / 2 {
            assert!(client.connect("eventsource") && client.take(&mut stream));
        }
        // It confirms the last of them, and gets the first of those that follow.
        assert!(client.connect("eventsource"));
        let marks = b.metric("encke_cluster_marks");
        wait_until("other nodes know that", || b.metric("encke_cluster_marks") > marks + 8);
        let reads = || sum(&[&b, &c], "encke_cluster_history_partitions_read");
        let before = reads();
        let is_half = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                publish(&c, "/h/s", ALL / 2..ALL * 3 / 4);
                is_half.store(true, Ordering::Relaxed);
                publish(&c, "/h/s", ALL * 3 / 4..ALL);
            });
            wait_until("half of the messages are there", || is_half.load(Ordering::Relaxed));
            a.signal("KILL");
            client.nodes = vec![&b, &c];
            // The messages on their way come first, then the end, which sends the client to another node.
            while client.take(&mut stream) {}
            wait_until("all messages have come", || {
                let mut stream = Stream::open(&c, &client.session, EVENTS);
                has_gone_on = stream.status == 200;
                if !has_gone_on {
                    assert!(reads() > before, "the session has not gone on: {}", stream.status);
                    return true;
                }
                while client.got.last() != Some(&(ALL - 1)) && client.connect("eventsource") {
                    if !client.take(&mut stream) {
                        break;
                    }
                }
                client.got.last() == Some(&(ALL - 1))
            });
        });
        if !has_gone_on {
            return;
        }
        // A session that was late gets again what its client had confirmed up to 5 s before.
        check(std::iter::once(&client.got), 0..ALL, 0);
        assert_eq!(sum(&[&b, &c], "encke_cluster_sessions_taken_over"), 1);
        assert_eq!(sum(&[&b, &c], "encke_sessions_unknown"), 0);
    });
    has_gone_on
}

/// The messages of a client that replays, and the position of the last one.
#[derive(Default)]
struct Replayed {
    got: Vec<usize>,
    position: Value,
}

impl Replayed {
    /// Reads until the stream ends, or this number has come. Connects go to a node.
    fn read(&mut self, node: &Node, session: &Polling, stream: &mut Stream, last: usize) {
        let connect = || {
            let connect =
                json!([{"channel": "/meta/connect", "clientId": session.id, "connectionType": "eventsource"}]);
            post(node, session, &connect);
        };
        connect();
        while self.got.last().is_none_or(|number| *number < last)
            && let Some(messages) = stream.messages()
        {
            for message in messages {
                if message["channel"] == "/meta/connect" {
                    connect();
                } else {
                    self.got.push(message["data"].as_u64().expect("a number") as usize);
                    self.position = message["ext"]["replay"].clone();
                }
            }
        }
    }
}

#[test]
fn a_client_that_replays_goes_on_at_its_position_when_the_node_of_its_session_is_killed() {
    run(async {
        let nats = Keeping::start("streams-replaying");
        let [a, b, c] = nodes(&nats.nats).await;
        let ext = json!({"replay": {"positions": "ext"}});
        let session = handshake_with(&a, &ext);
        subscribe(&a, &session, "/h/s");
        let mut stream = Stream::open(&b, &session, EVENTS);
        assert_eq!(stream.status, 200);
        let mut client = Replayed::default();
        std::thread::scope(|scope| {
            scope.spawn(|| publish(&c, "/h/s", 0..ALL));
            client.read(&b, &session, &mut stream, ALL / 4);
            a.signal("KILL");
            client.read(&b, &session, &mut stream, ALL);
            wait_until("its session is unknown", || Stream::open(&c, &session, EVENTS).status == 404);
            let session = handshake_with(&c, &ext);
            let ext = json!({"replay": {"/h/s": client.position}});
            let subscribe =
                json!([{"channel": "/meta/subscribe", "clientId": session.id, "subscription": "/h/s", "ext": ext}]);
            let (_, replies) = post(&c, &session, &subscribe);
            assert_eq!(replies[0]["ext"]["replay"]["/h/s"]["recovered"], true, "{replies}");
            let mut stream = Stream::open(&b, &session, EVENTS);
            client.read(&c, &session, &mut stream, ALL - 1);
        });
        assert_eq!(client.got, (0..ALL).collect::<Vec<_>>(), "lost, doubled or out of order");
        assert_eq!(b.metric("encke_cluster_connections_relayed"), 2);
    });
}

#[test]
fn the_node_of_a_session_learns_that_the_client_of_a_stream_or_its_node_is_gone() {
    run(async {
        let nats = Keeping::start("streams-gone");
        let [a, b, c] = ["a", "b", "c"].map(|name| Node::start(&nats.nats, name, ""));
        let client = Watcher::open(&[&a], "/s");
        let stream = Stream::open(&b, &client.session, EVENTS);
        assert_eq!(stream.status, 200);
        a.wait_for("encke_streams", 1);
        assert_eq!((a.metric("encke_cluster_relays"), b.metric("encke_cluster_relays")), (1, 1));
        stream.close();
        [&a, &b].iter().for_each(|node| node.wait_for("encke_cluster_relays", 0));
        a.wait_for("encke_streams", 0);
        let _stream = Stream::open(&c, &client.session, LINES);
        a.wait_for("encke_streams", 1);
        c.signal("KILL");
        a.wait_for("encke_streams", 0);
        a.wait_for("encke_cluster_relays", 0);
    });
}

#[test]
fn a_stream_ends_when_the_node_of_its_session_is_cut_off() {
    run(async {
        let (_nats, pipe, a, b) = with_one_that_can_be_cut_off("streams-cut");
        let client = Watcher::open(&[&a], "/s");
        let mut stream = Stream::open(&b, &client.session, EVENTS);
        assert_eq!(stream.status, 200);
        a.wait_for("encke_streams", 1);
        pipe.cut();
        while stream.messages().is_some() {}
        a.wait_for("encke_streams", 0);
        [&a, &b].iter().for_each(|node| node.wait_for("encke_cluster_relays", 0));
    });
}

#[test]
fn another_node_refuses_a_stream_for_the_same_reasons_as_that_of_its_session() {
    run(async {
        let nats = Keeping::start("streams-refused");
        let [a, b] = ["a", "b"].map(|name| Node::start(&nats.nats, name, ""));
        let first = handshake_with(&a, &json!({"ack": true}));
        subscribe(&a, &first, "/s");
        let second = second_of_browser(&a, &first);
        subscribe(&a, &second, "/s");
        let status = |session: &Polling, fields: &str| {
            let statuses = [&a, &b].map(|node| Stream::open_with(node, session, EVENTS, fields).status);
            assert_eq!(statuses[0], statuses[1], "{fields}");
            statuses[1]
        };
        let cookie = format!("Cookie: {}\r\n", first.cookie);
        assert_eq!(status(&first, "Origin: http://evil.example\r\n"), 403);
        assert_eq!(status(&first, &format!("Cookie: BAYEUX_BROWSER={}\r\n", "0".repeat(32))), 404);
        let of_nobody = Polling { id: format!("{}{}", &first.id[..8], "0".repeat(24)), cookie: first.cookie.clone() };
        assert_eq!(status(&of_nobody, &cookie), 404);
        let _stream = Stream::open(&b, &first, EVENTS);
        a.wait_for("encke_streams", 1);
        assert_eq!(status(&second, &cookie), 429);
    });
}

/// Another session of the same browser.
fn second_of_browser(node: &Node, first: &Polling) -> Polling {
    let shake = json!([{"channel": "/meta/handshake", "version": "1.0", "ext": {"ack": true}, "supportedConnectionTypes": ["eventsource"]}]);
    let (_, replies) = post(node, first, &shake);
    let id = replies[0]["clientId"].as_str().expect("an id").to_owned();
    Polling { id, cookie: first.cookie.clone() }
}
