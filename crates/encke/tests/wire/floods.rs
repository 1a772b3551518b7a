//! Clients that send much, on two shards: they wait, and nobody else loses anything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use encke::{PublishError, Server, Settings};
use serde_json::{Value, json};

use crate::common::{TestServer, Ws, settings, wait_until};

fn two_shards() -> Settings {
    Settings { shards: 2, ..settings() }
}

/// The next number a subscriber gets: the first element of the data.
fn number(ws: &mut Ws) -> Value {
    ws.next_json()[0]["data"][0].take()
}

/// Waits until nothing is in transit any more.
fn is_at_rest(server: &TestServer) {
    server.wait_for_exactly("encke_mailbox_bytes", 0);
    server.wait_for_exactly("encke_arrivals", 0);
    assert_eq!(server.metric("encke_slow_consumers_disconnected"), 0);
}

#[test]
fn publishers_that_send_at_once_end_no_reader() {
    // All together exceed an outbox, and exceed the kernel's buffers only slightly.
    let server = TestServer::start(Settings { outbox_bytes_max: 1 << 20, ..two_shards() });
    let mut readers: Vec<Ws> = (0..6).map(|_| server.session()).collect();
    readers.iter_mut().for_each(|ws| ws.subscribe("/a"));
    let mut publishers: Vec<Ws> = (0..12).map(|_| server.session()).collect();
    let padding = "x".repeat(100_000);
    for (number, ws) in publishers.iter_mut().enumerate() {
        let message = ws.mine(json!({"id": "p", "channel": "/a", "data": [number, padding]}));
        ws.send_json(&json!([message]));
    }
    for ws in &mut readers {
        let mut numbers: Vec<u64> = (0..12).map(|_| number(ws).as_u64().expect("a number")).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..12).collect::<Vec<_>>());
    }
    is_at_rest(&server);
}

#[test]
fn a_publisher_by_requests_waits_for_other_shards_and_loses_nothing() {
    let server = TestServer::start(Settings { mailbox_bytes_max: 64 * 1024, ..two_shards() });
    let mut readers: Vec<Ws> = (0..4).map(|_| server.session()).collect();
    readers.iter_mut().for_each(|ws| ws.subscribe("/a"));
    let mut publishers: Vec<_> = (0..4).map(|_| server.poller()).collect();
    let padding = "x".repeat(50_000);
    for round in 0..10 {
        std::thread::scope(|scope| {
            for (at, poller) in publishers.iter_mut().enumerate() {
                let data = json!([round * 4 + at, padding]);
                scope.spawn(move || {
                    let message = json!({"id": "p", "channel": "/a", "clientId": poller.id, "data": data});
                    assert_eq!(poller.http.call(message)["successful"], true);
                });
            }
        });
    }
    for ws in &mut readers {
        let mut numbers: Vec<u64> = (0..40).map(|_| number(ws).as_u64().expect("a number")).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..40).collect::<Vec<_>>());
    }
    is_at_rest(&server);
}

#[test]
fn many_connections_make_progress_with_a_mailbox_of_one_byte() {
    let server = TestServer::start(Settings { mailbox_bytes_max: 1, ..two_shards() });
    let mut sockets: Vec<Ws> = (0..64).map(|_| server.session()).collect();
    for (at, ws) in sockets.iter_mut().enumerate() {
        ws.subscribe(&format!("/room/{}", at % 8));
    }
    for (at, ws) in sockets.iter_mut().enumerate() {
        let message = ws.mine(json!({"id": "p", "channel": format!("/room/{}", (at + 1) % 8), "data": [at]}));
        ws.send_json(&json!([message]));
    }
    for ws in &mut sockets {
        // Eight publications and the reply to its own.
        let frames: Vec<Value> = (0..9).map(|_| ws.next_json()[0].take()).collect();
        assert_eq!(frames.iter().filter(|frame| frame["successful"] == true).count(), 1);
    }
    is_at_rest(&server);
}

#[test]
fn a_handle_learns_that_the_server_is_busy_and_accepted_messages_arrive_in_order() {
    let server = TestServer::start(Settings { mailbox_bytes_max: 20_000, timestamps: true, ..two_shards() });
    let mut readers: Vec<Ws> = (0..2).map(|_| server.session()).collect();
    for ws in &mut readers {
        ws.subscribe("/a");
        ws.subscribe("/b");
    }
    let mut busy = 0;
    for number in 0..20_000 {
        let channel = if number % 2 == 0 { "/a" } else { "/b" };
        while let Err(error) = server.handle.publish(channel, &format!("[{number}]")) {
            assert_eq!(error, PublishError::Busy);
            busy += 1;
            std::thread::yield_now();
        }
    }
    assert!(busy > 0, "20,000 bytes are filled faster than they are worked through");
    for ws in &mut readers {
        let mut next = [0, 1];
        for _ in 0..20_000 {
            let message = ws.next_json()[0].take();
            assert!(message["timestamp"].is_string(), "{message}");
            let of = usize::from(message["channel"] == "/b");
            assert_eq!(message["data"][0], next[of]);
            next[of] += 2;
        }
    }
    assert_eq!(server.metric("encke_publications"), 20_000);
    is_at_rest(&server);
}

#[test]
fn new_settings_and_disconnects_arrive_under_any_load() {
    let server = TestServer::start(Settings { mailbox_bytes_max: 1, ..two_shards() });
    let sessions: Vec<Ws> = (0..4).map(|_| server.session()).collect();
    // Each message fills the account.
    for number in 0..100 {
        let _busy = server.handle.publish(&format!("/a/{number}"), "1");
        server.handle.reload(Settings { sessions_max: 1_000 + number, ..settings() }).expect("good settings");
    }
    server.handle.reload(Settings { sessions_max: 4, ..settings() }).expect("good settings");
    wait_until("all shards have them", || {
        let is_refused = || {
            let mut http = server.http();
            let reply = http.call(json!({"id": "1", "channel": "/meta/handshake", "version": "1.0"}));
            // One that is let in goes again: a session that has never connected makes room for the next.
            if reply["successful"] == true {
                http.call(json!({"id": "2", "channel": "/meta/disconnect", "clientId": reply["clientId"]}));
            }
            reply["error"] == "413::sessions_max"
        };
        (0..4).all(|_| is_refused())
    });
    for ws in &sessions {
        assert!(server.handle.disconnect(&ws.id));
    }
    wait_until("all have ended", || server.metric("encke_sessions_kicked") == 4);
    assert!(!server.handle.disconnect("nobody"));
}

/// Blocks the shard of a session that calls a service, until the gate opens.
#[derive(Clone, Default)]
struct StartSignal {
    closed: Arc<Mutex<()>>,
    stands: Arc<AtomicBool>,
}

impl StartSignal {
    /// A server with this gate.
    fn server(&self, settings: Settings) -> TestServer {
        let gate = self.clone();
        let server = Server::builder().settings(settings);
        TestServer::of(server.service("/service/stop", move || {
            gate.stands.store(true, Ordering::Relaxed);
            let _opened = gate.closed.lock();
            std::future::ready(())
        }))
    }

    /// Closes the gate, and returns when the shard of this session blocks at it.
    fn stop(&self, ws: &mut Ws) -> MutexGuard<'_, ()> {
        let closed = self.closed.lock().expect("not poisoned");
        let call = ws.mine(json!({"id": "stop", "channel": "/service/stop"}));
        ws.send_json(&json!([call]));
        wait_until("the shard stands still", || self.stands.load(Ordering::Relaxed));
        closed
    }
}

/// Sessions on each of two shards: an id begins with the number of its shard.
fn sessions_of_each(server: &TestServer, count: usize) -> [Vec<Ws>; 2] {
    let mut sessions = [Vec::new(), Vec::new()];
    while sessions.iter().any(|of_shard| of_shard.len() < count) {
        let ws = server.session();
        sessions[usize::from(!ws.id.starts_with("00"))].push(ws);
    }
    sessions
}

#[test]
fn sessions_that_wait_for_a_stalled_shard_do_not_expire_and_others_do() {
    let gate = StartSignal::default();
    let settings = Settings { mailbox_bytes_max: 1, max_interval_ms: 2_000, ..two_shards() };
    let server = gate.server(settings);
    let [mut far, mut near] = sessions_of_each(&server, 3);
    for ws in far.iter_mut().chain(&mut near[3..]) {
        ws.start_connect();
    }
    far[0].subscribe("/a");
    let count = server.handle.sessions();
    let closed = gate.stop(&mut far[0]);
    let [waits, silent, fills, ..] = &mut near[..] else { panic!("three sessions") };
    // Received in this order, so the waiting session would expire first.
    waits.subscribe("/w");
    silent.subscribe("/s");
    fills.publish("/a", json!("it fills the account"));
    let message = waits.mine(json!({"id": "p", "channel": "/a", "data": "it waits"}));
    waits.send_json(&json!([message]));
    assert!(server.handle.disconnect(&fills.id));
    wait_until("one was ended and another was silent", || server.handle.sessions() == count - 2);
    drop(closed);
    let reply = waits.next_json();
    assert_eq!((&reply[0]["id"], &reply[0]["successful"]), (&json!("p"), &json!(true)), "{reply}");
}

#[test]
fn publications_of_a_handle_pass_a_stalled_shard() {
    let gate = StartSignal::default();
    let server = gate.server(two_shards());
    let [mut far, mut near] = sessions_of_each(&server, 1);
    near[0].subscribe("/c/*");
    let closed = gate.stop(&mut far[0]);
    let mut channels: Vec<String> = (0..32).map(|number| format!("/c/{number}")).collect();
    for channel in &channels {
        server.handle.publish(channel, "1").expect("there is room");
    }
    let mut arrives = || {
        let message = near[0].next_json();
        channels.retain(|channel| message[0]["channel"] != **channel);
        channels.len()
    };
    arrives();
    drop(closed);
    while arrives() > 0 {}
}
