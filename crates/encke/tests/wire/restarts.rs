//! Sessions over a clean restart with a `data` directory: clients resume with a connect, and nothing is lost or
//! delivered twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use encke::{Actions, HistoryCommit, Server, SessionEvent, Settings};
use serde_json::{Value, json};

use crate::ack;
use crate::common::{Folder, Frame, Poller, TestServer, Ws, publications, settings, wait_until};
use crate::replay::client::{self, Client};

/// Settings with a data directory.
fn keeping(folder: &Folder) -> Settings {
    Settings { data: folder.name(), ..settings() }
}

/// The same session over new connections to another server.
fn moved(poller: &Poller, server: &TestServer) -> Poller {
    let mut http = server.http();
    http.cookie.clone_from(&poller.http.cookie);
    Poller::of(poller.id.clone(), http)
}

/// The same session on a new WebSocket to another server.
fn moved_ws(id: &str, server: &TestServer) -> Ws {
    let mut ws = server.websocket();
    ws.id = id.to_owned();
    ws
}

fn publish(server: &TestServer, channel: &str, data: u64) {
    client::publish(server, channel, data);
}

#[test]
fn unacknowledged_messages_are_sent_after_a_restart_in_order_and_once() {
    for (confirmed, expected) in [(1, vec![1, 2, 3, 4, 5]), (2, vec![4, 5])] {
        let folder = Folder::new();
        let server = TestServer::start(Settings { shards: 2, ..keeping(&folder) });
        let mut poller = ack::poller(&server);
        ack::poll(&mut poller, 0);
        (1..4).for_each(|number| publish(&server, "/a", number));
        server.wait_for_queued([&poller.id], 3);
        assert_eq!(ack::data(&ack::poll(&mut poller, 1)), [1, 2, 3]);
        (4..6).for_each(|number| publish(&server, "/a", number));
        server.wait_for("encke_publications", 5);
        server.stop();

        let server = TestServer::start(Settings { shards: 2, ..keeping(&folder) });
        assert_eq!(server.metric("encke_sessions_restored"), 1);
        let mut poller = moved(&poller, &server);
        let messages = ack::poll(&mut poller, confirmed);
        assert_eq!((ack::data(&messages), ack::batch(&messages)), (expected.clone(), 3));
        publish(&server, "/a", 6);
        server.wait_for_queued([&poller.id], expected.len() + 1);
        let messages = ack::poll(&mut poller, 3);
        assert_eq!((ack::data(&messages), ack::batch(&messages)), (vec![6], 4));
        assert_eq!(ack::data(&ack::poll(&mut poller, 4)), [0; 0]);
    }
}

#[test]
fn an_acknowledging_websocket_client_continues_with_a_connect() {
    let folder = Folder::new();
    let server = TestServer::start(keeping(&folder));
    let mut ws = ack::websocket(&server);
    ack::connect(&mut ws, 0);
    publish(&server, "/a", 1);
    server.wait_for("encke_publications", 1);
    assert_eq!(ack::data(&ack::connect(&mut ws, 1)), [1]);
    publish(&server, "/a", 2);
    server.wait_for("encke_publications", 1);
    server.stop();

    let server = TestServer::start(keeping(&folder));
    let mut ws = moved_ws(&ws.id, &server);
    let messages = ack::connect(&mut ws, 2);
    assert_eq!((ack::data(&messages), ack::batch(&messages)), (vec![2], 3));
    assert_eq!(ack::data(&ack::connect(&mut ws, 3)), [0; 0]);
}

#[test]
fn queued_messages_and_subscriptions_survive_a_restart() {
    for shards in [1, 3] {
        let folder = Folder::new();
        let server = TestServer::start(Settings { shards, ..keeping(&folder) });
        let mut pollers: Vec<Poller> = (0..4).map(|_| server.poller()).collect();
        let mut sockets: Vec<Ws> = (0..4).map(|_| server.session()).collect();
        pollers.iter_mut().for_each(|poller| poller.subscribe("/a/**"));
        for ws in &mut sockets {
            ws.subscribe("/a/b");
            ws.subscribe("/a/*");
        }
        let ids: Vec<String> = sockets.drain(..).map(|ws| ws.id.clone()).collect();
        server.wait_for_exactly("encke_websockets", 0);
        (0..20).for_each(|number| publish(&server, "/a/b", number));
        server.wait_for("encke_publications", 20);
        server.stop();
        let file = std::fs::read_to_string(folder.path().join("sessions")).expect("a file");
        let messages = file.lines().filter(|line| line.starts_with("{\"message\"")).count();
        assert!(messages <= 20 * shards, "a message for many is there once: {messages}");

        let server = TestServer::start(Settings { shards, ..keeping(&folder) });
        assert_eq!((server.metric("encke_sessions"), server.handle.sessions()), (8, 8));
        // Delivered from every shard.
        publish(&server, "/a/b", 20);
        server.wait_for_queued(pollers.iter().map(|poller| &poller.id).chain(&ids), 21);
        let expected: Vec<u64> = (0..21).collect();
        for poller in &pollers {
            let mut poller = moved(poller, &server);
            let messages = poller.poll(json!({}));
            assert_eq!(ack::data(&messages), expected);
            let advice = &messages.last().expect("a reply")["advice"];
            assert_eq!(advice["interval"], 0, "the pause of the drain is over: {messages:?}");
        }
        for id in &ids {
            let mut ws = moved_ws(id, &server);
            ws.start_connect();
            let received: Vec<Value> = (0..21).map(|_| ws.next_json()[0]["data"].take()).collect();
            assert_eq!(json!(received), json!(expected));
            ws.subscribe("/nothing/comes/twice");
        }
        server.stop();
        assert!(folder.path().join("sessions").exists(), "and again");
    }
}

#[test]
fn messages_published_during_a_drain_are_stored() {
    let folder = Folder::new();
    let server = TestServer::start(Settings { drain_timeout_ms: 60_000, ..keeping(&folder) });
    let (mut poller, mut ws) = (server.poller(), server.session());
    poller.subscribe("/a");
    ws.subscribe("/a");
    ws.start_connect();
    poller.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 2);
    // Half a request prolongs the drain.
    let mut half = server.tcp();
    half.send("POST /cometd HTTP/1.1\r\n");
    server.handle.drain();
    assert_eq!(poller.end_poll()[0]["advice"]["reconnect"], "retry");
    assert_eq!(ws.next_json()[0]["advice"]["reconnect"], "retry");
    assert_eq!(ws.next_frame(), Frame::Close(1001, "server going away".into()));
    publish(&server, "/a", 1);
    // A connect that comes now is answered at once with the messages that wait; later messages wait for the next
    // server.
    let early = moved(&poller, &server).poll(json!({}));
    assert_eq!((ack::data(&early), &early[1]["advice"]["reconnect"]), (vec![1], &json!("retry")));
    publish(&server, "/a", 2);
    half.reset();
    server.stop();

    let server = TestServer::start(keeping(&folder));
    assert_eq!(ack::data(&moved(&poller, &server).poll(json!({}))), [2]);
    let mut ws = moved_ws(&ws.id, &server);
    ws.start_connect();
    assert_eq!([ws.next_json()[0]["data"].take(), ws.next_json()[0]["data"].take()], [json!(1), json!(2)]);
}

/// Publications between two shards or in a mailbox when the server stops survive.
#[test]
fn every_publication_accepted_before_the_stop_is_stored() {
    let folder = Folder::new();
    let server = TestServer::start(Settings { shards: 3, ..keeping(&folder) });
    let mut pollers: Vec<Poller> = (0..6).map(|_| server.poller()).collect();
    pollers.iter_mut().for_each(|poller| poller.subscribe("/a"));
    let (handle, is_over) = (server.handle.clone(), AtomicBool::new(false));
    let taken = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            let mut taken = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                // No more than outboxes can hold.
                for _ in 0..if taken < 50_000 { 10 } else { 0 } {
                    taken += u64::from(handle.publish("/a", &taken.to_string()).is_ok());
                }
                std::thread::sleep(Duration::from_micros(20));
            }
            taken
        });
        server.wait_for("encke_publications", 100);
        server.stop();
        is_over.store(true, Ordering::Relaxed);
        publisher.join().expect("no panic")
    });
    let server = TestServer::start(Settings { shards: 3, ..keeping(&folder) });
    for poller in &pollers {
        let mut poller = moved(poller, &server);
        let mut received = Vec::new();
        // They may be more than one response holds.
        loop {
            let more = ack::data(&poller.poll(json!({ "advice": { "timeout": 0 } })));
            if more.is_empty() {
                break;
            }
            received.extend(more);
        }
        let wrong = received.iter().copied().enumerate().find(|(at, number)| *at as u64 != *number);
        assert_eq!((received.len() as u64, wrong), (taken, None));
    }
}

#[test]
fn a_response_interrupted_by_the_stop_is_sent_again() {
    let folder = Folder::new();
    let large = Settings { outbox_bytes_max: 64 << 20, response_bytes_max: 64 << 20, shards: 2, ..keeping(&folder) };
    let server = TestServer::start(large.clone());
    let mut poller = server.poller();
    poller.subscribe("/a");
    let padding = "x".repeat(900_000);
    for number in 0..30 {
        client::publish(&server, "/a", json!([number, padding]));
    }
    server.wait_for("encke_publications", 30);
    // The client reads nothing; the kernel buffers some megabytes at most.
    let mut narrow = crate::common::Tcp::narrow(server.address());
    let body = poller.connect_message("c", json!({})).to_string();
    let cookie = poller.http.cookie.clone().expect("a cookie");
    narrow.send(format!(
        "POST /cometd HTTP/1.1\r\nhost: {}\r\ncookie: BAYEUX_BROWSER={cookie}\r\ncontent-length: {}\r\n\r\n{body}",
        server.address(),
        body.len()
    ));
    narrow.read_ahead(1_000);
    server.stop();

    let server = TestServer::start(large);
    let messages = publications(&moved(&poller, &server).poll(json!({})));
    let numbers: Vec<Value> = messages.iter().map(|message| message["data"][0].clone()).collect();
    assert_eq!(json!(numbers), json!((0..30).collect::<Vec<_>>()));
}

#[test]
fn clients_of_removed_shards_handshake_again_and_the_others_continue() {
    let folder = Folder::new();
    let server = TestServer::start(Settings { shards: 4, ..keeping(&folder) });
    let ids: Vec<String> = (0..8).map(|_| server.session().id.clone()).collect();
    server.stop();
    let server = TestServer::start(Settings { shards: 2, ..keeping(&folder) });
    assert_eq!(server.metric("encke_sessions_restored"), 4);
    let mut ends = 0;
    for id in &ids {
        let mut ws = moved_ws(id, &server);
        let reply = ws.call(json!({"id": "c", "channel": "/meta/connect", "advice": {"timeout": 0}}));
        if reply["successful"] == false {
            assert_eq!(
                (&reply["error"], &reply["advice"]["reconnect"]),
                (&json!("402::session_unknown"), &json!("handshake"))
            );
            ends += 1;
        }
    }
    assert_eq!(ends, 4);
}

#[test]
fn no_more_sessions_are_restored_than_sessions_max() {
    let folder = Folder::new();
    let server = TestServer::start(keeping(&folder));
    let _sockets: Vec<Ws> = (0..4).map(|_| server.session()).collect();
    server.stop();
    let server = TestServer::start(Settings { sessions_max: 3, ..keeping(&folder) });
    assert_eq!((server.metric("encke_sessions_restored"), server.handle.sessions()), (3, 3));
}

#[test]
fn a_session_that_would_lose_a_subscription_is_not_restored() {
    let folder = Folder::new();
    let server = TestServer::start(keeping(&folder));
    let (mut deep, mut flat) = (server.session(), server.session());
    ["/a", "/a/b/c"].into_iter().for_each(|channel| deep.subscribe(channel));
    flat.subscribe("/a");
    server.stop();
    let server = TestServer::start(Settings { channel_segments_max: 2, ..keeping(&folder) });
    let found = ["encke_sessions_restored", "encke_sessions_not_restored"].map(|name| server.metric(name));
    assert_eq!((found, server.handle.sessions()), ([1, 1], 1));
    let connect = json!({"id": "c", "channel": "/meta/connect", "advice": {"timeout": 0}});
    assert_eq!(moved_ws(&deep.id, &server).call(connect.clone())["error"], "402::session_unknown");
    assert_eq!(moved_ws(&flat.id, &server).call(connect)["successful"], true);
}

#[test]
fn an_unreadable_sessions_file_is_named() {
    let folder = Folder::new();
    let file = folder.path().join("sessions");
    std::fs::create_dir_all(&file).expect("a directory where the file should be");
    let started = Server::builder().settings(keeping(&folder)).start();
    let error = started.expect_err("refused").to_string();
    assert!(error.starts_with(&format!("cannot restore the sessions in {}: ", file.display())), "{error}");
}

#[test]
fn a_damaged_sessions_file_loses_only_the_sessions() {
    let folder = Folder::new();
    let server = TestServer::start(keeping(&folder));
    let poller = server.poller();
    server.stop();
    let file = folder.path().join("sessions");
    let whole = std::fs::read(&file).expect("a file");
    std::fs::write(&file, &whole[..whole.len() - 10]).expect("torn");
    let server = TestServer::start(keeping(&folder));
    assert_eq!(moved(&poller, &server).poll(json!({}))[0]["error"], "402::session_unknown");
    assert!(folder.path().join("sessions.damaged").exists());
    server.neighbour().lives(&server);
}

/// A poller in the middle of a replay of 100 messages; the server stops and starts again. `before` runs between, for
/// example to change the directory. Returns the numbers received so far and the number of the first message.
fn in_the_middle_of_a_replay(folder: &Folder, before: impl FnOnce()) -> (TestServer, Client, Vec<u64>, u64) {
    let stored = Settings { outbox_messages_max: 12, data: folder.name(), ..client::with(client::stored(1_000)) };
    let server = TestServer::start(stored.clone());
    (0..100).for_each(|number| publish(&server, "/h/a", number));
    client::wait_stored(&server, 100);
    let mut client = Client::poller(&server);
    let answer = client.subscribe("/h/a", json!({ "/h/a": -2 }));
    let first = answer["from"].as_u64().expect("a number");
    let received = client.numbers(4);
    assert!(received.len() < 50, "the rest is still in the history");
    server.stop();
    before();
    let server = TestServer::start(stored);
    let Client::Http(poller) = client else { unreachable!("a poller") };
    let client = Client::Http(Box::new(moved(&poller, &server)));
    (server, client, received, first)
}

#[test]
fn a_replay_continues_at_its_position_after_a_restart() {
    let folder = Folder::new();
    let (server, mut client, mut received, _) = in_the_middle_of_a_replay(&folder, || ());
    publish(&server, "/h/a", 100);
    while received.len() < 101 {
        received.extend(client.numbers(1));
    }
    assert_eq!(received, (0..101).collect::<Vec<_>>());
}

#[test]
fn a_session_gets_a_report_of_a_lost_history_and_then_positions_again() {
    let folder = Folder::new();
    let remove = || std::fs::remove_dir_all(folder.path().join("history")).expect("removed");
    let (server, mut client, received, first) = in_the_middle_of_a_replay(&folder, remove);
    let mut replies = Vec::new();
    wait_until("the loss is reported", || {
        replies.extend(client.next());
        replies.iter().any(|reply| !reply["ext"]["replay"]["/h/a"]["lost"].is_null())
    });
    let reported = replies.iter().find(|reply| !reply["ext"]["replay"]["/h/a"]["lost"].is_null()).expect("a report");
    let lost = &reported["ext"]["replay"]["/h/a"]["lost"];
    let least = first + received.len() as u64;
    assert!(lost["from"].as_u64().is_some_and(|from| from >= least && from < first + 100), "{reported}");
    assert_eq!(lost["to"], Value::Null);
    publish(&server, "/h/a", 100);
    let messages = client.receive(1);
    assert_eq!(messages[0].data, 100, "and live messages come with their positions");
}

/// Records the sessions that have ended.
#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<String>>>);

impl Ends {
    fn server(&self, settings: Settings) -> TestServer {
        let ends = self.0.clone();
        TestServer::of(Server::builder().settings(settings).on_session(move |event: &SessionEvent, _: &mut Actions| {
            if let SessionEvent::Ended { caller, .. } = event {
                ends.lock().expect("no panic").push(caller.session().into());
            }
        }))
    }
}

#[test]
fn a_session_that_is_stored_has_not_ended_for_the_application() {
    let folder = Folder::new();
    let ends = Ends::default();
    let server = ends.server(keeping(&folder));
    let ws = server.session();
    server.stop();
    assert!(ends.0.lock().expect("no panic").is_empty());
    let server = ends.server(keeping(&folder));
    let mut again = moved_ws(&ws.id, &server);
    assert_eq!(again.call(json!({"id": "d", "channel": "/meta/disconnect"}))["successful"], true);
    assert_eq!(*ends.0.lock().expect("no panic"), [ws.id]);
}

#[test]
fn a_session_ended_before_the_restart_gets_the_disconnect_from_the_next_server() {
    let folder = Folder::new();
    let server = TestServer::start(keeping(&folder));
    let poller = server.poller();
    server.handle.disconnect(&poller.id);
    server.stop();
    let server = TestServer::start(keeping(&folder));
    let messages = moved(&poller, &server).poll(json!({}));
    assert_eq!(
        (&messages[0]["channel"], &messages[1]["advice"]),
        (&json!("/meta/disconnect"), &json!({"reconnect": "none"}))
    );
}

#[test]
fn without_a_directory_nothing_is_stored() {
    let server = TestServer::start(settings());
    let poller = server.poller();
    server.stop();
    let server = TestServer::start(settings());
    assert_eq!(moved(&poller, &server).poll(json!({}))[0]["error"], "402::session_unknown");
}

/// A draining server advises each client to come back at a different time.
#[test]
fn the_reconnects_of_a_drain_are_spread() {
    let server = TestServer::start(Settings { drain_timeout_ms: 20_000, drain_spread_ms: 5_000, ..settings() });
    let mut sockets: Vec<Ws> = (0..50).map(|_| server.session()).collect();
    sockets.iter_mut().for_each(|ws| {
        ws.start_connect();
    });
    server.wait_for_exactly("encke_held_connects", 50);
    server.handle.drain();
    let intervals: Vec<u64> =
        sockets.iter_mut().map(|ws| ws.next_json()[0]["advice"]["interval"].as_u64().expect("an interval")).collect();
    assert!(intervals.iter().all(|ms| *ms < 5_000), "{intervals:?}");
    // Each of the five seconds gets some clients.
    let seconds: std::collections::HashSet<u64> = intervals.iter().map(|ms| ms / 1_000).collect();
    assert!(seconds.len() >= 4, "{intervals:?}");
}

#[test]
fn settings_that_need_a_restart_are_reported_until_they_apply() {
    let server = TestServer::start(settings());
    let always = HistoryCommit::Always;
    let later = Settings { history_commit: always, shards: 2, ..settings() };
    for _ in 0..2 {
        let reported = server.handle.reload(later.clone()).expect("good settings");
        assert_eq!(reported, ["shards", "history_commit"]);
    }
    assert_eq!(server.handle.reload(settings()).expect("good settings"), [""; 0]);
}
