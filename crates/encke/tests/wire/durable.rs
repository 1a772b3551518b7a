//! Histories that survive the server: recovery, the meaning of a publisher's reply, and the errors for an unusable
//! directory.

use std::fs;
use std::path::{Path, PathBuf};

use encke::{ChannelRule, HistoryCommit, Server, Settings};
use serde_json::{Value, json};

use crate::common::{Folder, Poller, TestServer, reply, settings};
use crate::replay::client::{Client, OPEN, publish, stored, wait_stored, with};

impl Folder {
    /// A copy of the directory, as if the process ended now.
    fn image(&self) -> Folder {
        let copy = Folder::new();
        let history = copy.path().join("history");
        fs::create_dir_all(&history).expect("a folder");
        for entry in fs::read_dir(self.path().join("history")).expect("a folder") {
            let path = entry.expect("an entry").path();
            fs::copy(&path, history.join(path.file_name().expect("a name"))).expect("a copy");
        }
        copy
    }

    /// The files of the log, oldest first.
    fn segments(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path().join("history")).expect("a folder");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "journal"));
        paths.sort();
        paths
    }

    fn settings(&self, rule: ChannelRule) -> Settings {
        Settings { data: self.name(), history_commit: HistoryCommit::Always, ..with(rule) }
    }

    fn start(&self) -> TestServer {
        TestServer::start(self.settings(stored(1_000)))
    }
}

/// The error with which a server does not start.
fn refusal(settings: Settings) -> String {
    match Server::builder().settings(settings).start() {
        Ok(_) => panic!("it starts"),
        Err(error) => error.to_string(),
    }
}

fn message(id: &str, channel: &str, data: Value) -> Value {
    json!({ "id": id, "channel": channel, "data": data })
}

/// Publishes as a client does, and waits for the reply.
fn confirm(client: &mut Client, channel: &str, data: Value) {
    let reply = client.call(message("p", channel, data));
    assert_eq!(reply["successful"], true, "{reply}");
}

#[test]
fn after_a_restart_a_replay_continues_at_its_position_with_the_same_epoch() {
    for (open, shards) in [(OPEN[0], [1, 3]), (OPEN[1], [3, 2])] {
        let folder = Folder::new();
        let [before, after] = shards.map(|shards| Settings { shards, ..folder.settings(stored(1_000)) });
        let server = TestServer::start(before);
        let mut client = open(&server);
        let first = client.subscribe("/h/a", Value::Null);
        for number in 0..5 {
            confirm(&mut Client::poller(&server), "/h/a", json!(number));
        }
        let last = client.ids(5)[4];
        server.stop();

        let server = TestServer::start(after);
        let mut publisher = Client::websocket(&server);
        confirm(&mut publisher, "/h/a", json!(5));
        let mut client = open(&server);
        let answer = client.subscribe("/h/a", json!({ "/h/a": { "id": last - 2, "epoch": first["epoch"] } }));
        assert_eq!(answer["recovered"], true, "{answer}");
        assert_eq!(client.numbers(3), [3, 4, 5]);
        assert_eq!(answer["latest"], last + 1, "numbers follow on after a clean end");
        confirm(&mut publisher, "/h/a", json!(6));
        assert_eq!(client.ids(1), [last + 2]);
    }
}

#[test]
fn confirmed_messages_are_on_disk_for_every_kind_of_publisher_and_offsets_leap_after_a_kill() {
    let folder = Folder::new();
    let server = folder.start();
    let mut live = Client::websocket(&server);
    let first = live.subscribe("/h/a", Value::Null);
    let mut publishers = [Client::websocket(&server), Client::poller(&server)];
    for number in 0..20 {
        confirm(&mut publishers[number % 2], "/h/a", json!(number));
        if number % 5 == 0 {
            let image = folder.image();
            let later = image.start();
            let mut client = Client::poller(&later);
            client.subscribe("/h/a", json!(-2));
            assert_eq!(client.numbers(number + 1), (0..=number as u64).collect::<Vec<_>>());
        }
    }
    let last = live.ids(20)[19];
    let image = folder.image();
    let later = image.start();
    let mut client = Client::websocket(&later);
    let answer = client.subscribe("/h/a", json!({ "/h/a": { "id": last, "epoch": first["epoch"] } }));
    assert_eq!((&answer["recovered"], &answer["lost"]), (&json!(true), &Value::Null));
    publish(&later, "/h/a", 20);
    let next = client.ids(1)[0];
    assert!(next >= last + (1 << 20), "{last} {next}");
    // A client that knows only offsets from before the leap misses nothing and gets no loss report.
    let mut client = Client::poller(&later);
    let answer = client.subscribe("/h/a", json!({ "/h/a": { "id": last - 1, "epoch": first["epoch"] } }));
    assert_eq!((&answer["recovered"], &answer["lost"]), (&json!(true), &Value::Null));
    assert_eq!(client.ids(2), [last, next]);
}

#[test]
fn every_policy_restores_everything_after_a_clean_end() {
    for history_commit in [HistoryCommit::Os, HistoryCommit::Interval, HistoryCommit::Always] {
        let folder = Folder::new();
        let settings = Settings { history_commit, ..folder.settings(stored(1_000)) };
        let server = TestServer::start(settings.clone());
        let mut client = Client::websocket(&server);
        for number in 0..10 {
            confirm(&mut client, "/h/a", json!(number));
        }
        server.stop();
        let server = TestServer::start(settings);
        let mut client = Client::websocket(&server);
        client.subscribe("/h/a", json!(-2));
        assert_eq!(client.numbers(10), (0..10).collect::<Vec<_>>(), "{history_commit:?}");
    }
}

#[test]
fn the_current_rules_decide_what_is_restored() {
    let folder = Folder::new();
    let server = folder.start();
    let mut publisher = Client::websocket(&server);
    for number in 0..10 {
        confirm(&mut publisher, "/h/a", json!(number));
    }
    server.stop();
    let server = TestServer::start(folder.settings(stored(3)));
    let mut client = Client::websocket(&server);
    let answer = client.subscribe("/h/a", json!(-2));
    assert_eq!(client.numbers(3), [7, 8, 9]);
    // The loss of expired messages is reported as usual.
    let from = answer["from"].as_u64().expect("a number");
    let answer =
        Client::websocket(&server).subscribe("/h/a", json!({ "/h/a": { "id": from - 4, "epoch": answer["epoch"] } }));
    assert_eq!((&answer["recovered"], &answer["lost"]), (&json!(false), &json!({ "from": from - 3, "to": from - 1 })));
    server.stop();
    let without = Settings { channels: Vec::new(), ..folder.settings(stored(0)) };
    let server = TestServer::start(without);
    assert_eq!(server.metric("encke_history_channels"), 0);
}

#[test]
fn a_publisher_without_its_own_messages_does_not_get_them_after_a_restart() {
    let folder = Folder::new();
    let settings = Settings { broadcast_to_publisher: false, ..folder.settings(stored(1_000)) };
    let server = TestServer::start(settings.clone());
    let (mut publisher, mut other) = (Client::poller(&server), Client::websocket(&server));
    publisher.subscribe("/h/a", Value::Null);
    confirm(&mut publisher, "/h/a", json!(1));
    confirm(&mut other, "/h/a", json!(2));
    let Client::Http(poller) = publisher else { panic!("a poller") };
    server.stop();
    let server = TestServer::start(settings);
    let mut http = server.http();
    http.cookie.clone_from(&poller.http.cookie);
    let mut publisher = Client::of(Poller::of(poller.id, http));
    publisher.subscribe("/h/a", json!(-2));
    confirm(&mut Client::websocket(&server), "/h/a", json!(3));
    assert_eq!(publisher.numbers(2), [2, 3]);
}

#[test]
fn publications_of_one_request_are_confirmed_by_one_response() {
    let folder = Folder::new();
    let server = TestServer::start(Settings { shards: 3, ..folder.settings(stored(1_000)) });
    let mut poller = server.poller();
    let channels = ["/h/a", "/h/b", "/h/c", "/other", "/h/a"];
    let messages: Vec<Value> = channels
        .iter()
        .enumerate()
        .map(|(at, channel)| json!({ "id": at.to_string(), "channel": channel, "clientId": poller.id, "data": at }))
        .collect();
    let replies = poller.http.post(&json!(messages)).messages();
    let ids: Vec<_> = replies.iter().map(|reply| reply["id"].as_str().expect("an id").to_owned()).collect();
    assert_eq!(ids, ["0", "1", "2", "3", "4"]);
    assert!(replies.iter().all(|reply| reply["successful"] == true), "{replies:?}");
    let image = folder.image();
    wait_stored(&image.start(), 4);
}

#[test]
fn a_connect_in_the_same_request_does_not_wait_and_the_reply_follows() {
    let folder = Folder::new();
    let server = folder.start();
    let mut poller = server.poller();
    let connect = poller.connect_message("c", json!({ "advice": { "timeout": 0 } }))[0].clone();
    let publication = json!({ "id": "p", "channel": "/h/a", "clientId": poller.id, "data": 1 });
    let mut messages = poller.http.post(&json!([publication, connect])).messages();
    assert_eq!(reply(&messages, "c")["successful"], true);
    while !messages.iter().any(|message| message["id"] == "p") {
        messages = poller.poll(json!({}));
    }
    assert_eq!(reply(&messages, "p")["successful"], true);
}

#[test]
fn a_new_data_directory_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let path = folder.path().join("new");
    let _server = TestServer::start(Settings { data: path.display().to_string(), ..folder.settings(stored(10)) });
    for made in [path.clone(), path.join("history")] {
        let mode = std::fs::metadata(&made).expect("it was made").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", made.display());
    }
}

#[test]
fn a_data_directory_is_used_by_one_server_only() {
    let folder = Folder::new();
    let server = folder.start();
    let error = refusal(folder.settings(stored(10)));
    let lock = folder.path().join("history/lock");
    let expected = format!("{} is held by another process: a journal has one writer", lock.display());
    assert_eq!(error, format!("cannot recover histories: {expected}"));
    server.stop();
    folder.start();
}

#[test]
fn an_unusable_data_directory_is_refused_with_one_line() {
    let folder = Folder::new();
    let file = folder.path().join("file");
    fs::write(&file, "not a directory").expect("a file");
    for path in [&file, Path::new("/proc/encke")] {
        let error = refusal(Settings { data: path.display().to_string(), ..settings() });
        let start = format!("cannot use {} as the data directory: ", path.display());
        assert!(error.starts_with(&start) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn a_file_instead_of_the_histories_is_named() {
    let folder = Folder::new();
    let history = folder.path().join("history");
    fs::write(&history, "not a directory").expect("a file");
    let error = refusal(folder.settings(stored(10)));
    assert!(error.starts_with(&format!("cannot use {} as the data directory: ", history.display())), "{error}");
}

/// A log of a few messages, and the path of its file.
fn log_of_a_few() -> (Folder, PathBuf) {
    let folder = Folder::new();
    let server = folder.start();
    let mut client = Client::websocket(&server);
    for number in 0..10 {
        confirm(&mut client, "/h/a", json!(number));
    }
    let image = folder.image();
    let segment = image.segments()[0].clone();
    (image, segment)
}

#[test]
fn damage_is_named_with_file_and_offset_and_nothing_is_changed() {
    let (folder, segment) = log_of_a_few();
    let mut bytes = fs::read(&segment).expect("a segment");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&segment, &bytes).expect("written");
    let error = refusal(folder.settings(stored(10)));
    let start = format!("cannot recover histories: {} is damaged at offset ", segment.display());
    assert!(error.starts_with(&start) && error.lines().count() == 1, "{error}");
    assert_eq!(fs::read(&segment).expect("a segment"), bytes);
}

#[test]
fn a_torn_end_is_cut_and_earlier_records_are_restored() {
    let (folder, segment) = log_of_a_few();
    let bytes = fs::read(&segment).expect("a segment");
    fs::write(&segment, &bytes[..bytes.len() - 7]).expect("written");
    let server = folder.start();
    let mut client = Client::websocket(&server);
    client.subscribe("/h/a", json!(-2));
    assert_eq!(client.numbers(9), (0..9).collect::<Vec<_>>());
    confirm(&mut client, "/h/b", json!(1));
}

#[test]
fn the_epoch_of_a_channel_without_publications_is_stored() {
    let folder = Folder::new();
    let server = folder.start();
    let first = Client::websocket(&server).subscribe("/h/quiet", Value::Null);
    // Its record reached the disk before this one.
    confirm(&mut Client::websocket(&server), "/h/a", json!(1));
    let image = folder.image();
    let later = image.start();
    let answer = Client::websocket(&later)
        .subscribe("/h/quiet", json!({ "/h/quiet": { "id": first["latest"], "epoch": first["epoch"] } }));
    assert_eq!((&answer["recovered"], &answer["epoch"]), (&json!(true), &first["epoch"]));
}

#[test]
fn stored_bytes_and_files_are_counted() {
    let folder = Folder::new();
    let server = TestServer::start(Settings { shards: 2, ..folder.settings(stored(1_000)) });
    for number in 0..10 {
        publish(&server, "/h/a", number);
    }
    wait_stored(&server, 10);
    confirm(&mut Client::of(server.poller()), "/h/a", json!(10));
    server.wait_for("encke_history_store_records_persisted", 2);
    assert!(server.metric("encke_journal_bytes") > 500 && server.metric("encke_journal_segments") == 1);
    assert!(server.metric("encke_history_store_commits") > 0);
    assert_eq!(server.metric("encke_history_store_records_refused"), 0);
    server.wait_for_exactly("encke_history_store_backlog_bytes", 0);
    server.wait_for_exactly("encke_history_replies_waiting", 0);
}

impl Client {
    fn of(poller: Poller) -> Client {
        Client::Http(Box::new(poller))
    }
}
