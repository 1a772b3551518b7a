//! Kill -9 at random moments: messages confirmed to their publisher are there afterwards, once and in order.
//!
//! `ENCKE_KILL_ROUNDS` is the number of rounds (10 by default). 200 rounds: `ENCKE_KILL_ROUNDS=200 cargo test -p
//! encke-cli --test kill`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use encke_client::{Client, Error, ReplayFrom, Transport};
use serde_json::{Value, json};

/// A server on the data directory. Dropping it kills it.
struct Server {
    child: Child,
    url: String,
}

/// The data directory and the configuration, removed with the test.
struct Folder(PathBuf);

/// The state of one publisher.
struct Publisher {
    number: usize,
    channel: &'static str,
    transport: Transport,
    /// The number of messages in a batch.
    batch: u64,
    /// The number of messages it has sent, whatever their result.
    sent: u64,
    confirmed: Vec<u64>,
}

/// Random numbers.
struct Chance(u64);

const CHANNELS: [&str; 2] = ["/stored/a", "/stored/b"];
/// The greatest number of messages stored of a channel.
const HISTORY_MESSAGES: usize = 20_000;
const PUBLISHERS: usize = 8;
/// The rounds until something is confirmed: at most so many times as many.
const ROUNDS_MORE: u64 = 10;
/// The time limit of a replay.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("encke-kill-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        let rule = format!(
            "[[channels]]\npattern = \"/stored/*\"\nhistory_messages = {HISTORY_MESSAGES}\nhistory_ms = 36000000\n"
        );
        std::fs::write(path.join("encke.toml"), rule).expect("a file");
        Folder(path)
    }

    fn start(&self) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_encke"));
        command.args(["serve", "--port", "0", "--shards", "2", "--history-commit", "always", "--no-demo", "--data"]);
        command.arg(self.0.join("data")).arg("--config").arg(self.0.join("encke.toml"));
        // A variable with this prefix would be a setting.
        let settings = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ENCKE_"));
        settings.for_each(|(name, _)| _ = command.env_remove(name));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let mut log = String::new();
        if line.is_empty() {
            let _ = child.stderr.take().expect("piped").read_to_string(&mut log);
        }
        let url = line.trim().strip_prefix("encke listening on ").unwrap_or_else(|| panic!("no start: {log}")).into();
        Server { child, url }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl Publisher {
    fn new(number: usize) -> Publisher {
        let transport = if number.is_multiple_of(4) { Transport::LongPolling } else { Transport::WebSocket };
        let (channel, batch) = (CHANNELS[number % 2], if number < 4 { 1 } else { 7 });
        Publisher { number, channel, transport, batch, sent: 0, confirmed: Vec::new() }
    }

    /// Publishes until the server is gone.
    async fn publish(&mut self, url: &str) -> Result<(), Error> {
        let client = Client::builder().reconnect(false).transport(self.transport).connect(url).await?;
        loop {
            let numbers: Vec<u64> = (self.sent..self.sent + self.batch).collect();
            self.sent += self.batch;
            let mut batch = client.batch();
            for number in &numbers {
                batch = batch.publish(self.channel, &json!({"from": self.number, "number": number}))?;
            }
            batch.send().await?;
            self.confirmed.extend(numbers);
        }
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// All stored messages: for each channel the publisher and number of each message, in order.
async fn replay(url: &str, round: u64) -> Result<BTreeMap<String, Vec<(usize, u64)>>, Error> {
    let mut stored = BTreeMap::new();
    for channel in CHANNELS {
        let client = Client::builder().reconnect(false).replay(ReplayFrom::Earliest).connect(url).await?;
        let mut subscription = client.subscribe(channel).await?;
        // It arrives last, and shows that everything has arrived.
        let end = client.start_publish(channel, &json!({"end": round})).await?;
        let messages: &mut Vec<_> = stored.entry(channel.to_string()).or_default();
        loop {
            let message = subscription.next().await.expect("the session is open").expect("no gap");
            let data: Value = message.json().expect("JSON");
            if data["end"] == round {
                end.await?;
                break;
            }
            if let (Some(from), Some(number)) = (data["from"].as_u64(), data["number"].as_u64()) {
                messages.push((from as usize, number));
            }
        }
    }
    Ok(stored)
}

/// Checks that confirmed messages are there, once and in order; unconfirmed ones may be missing.
fn check(publisher: &Publisher, stored: &[(usize, u64)], round: u64) {
    let mine: Vec<u64> =
        stored.iter().filter(|(from, _)| *from == publisher.number).map(|(_, number)| *number).collect();
    assert!(mine.is_sorted_by(|one, two| one < two), "round {round}: {} out of order: {mine:?}", publisher.number);
    // In a full history the oldest have been dropped.
    let is_full = stored.len() + 1_000 > HISTORY_MESSAGES;
    let first = if is_full { mine.first().copied().unwrap_or(u64::MAX) } else { 0 };
    let missing = |number: &&u64| **number >= first && mine.binary_search(number).is_err();
    let lost: Vec<&u64> = publisher.confirmed.iter().filter(missing).collect();
    assert!(
        lost.is_empty(),
        "round {round}: publisher {} got a confirmation for {lost:?}, which are lost",
        publisher.number
    );
}

#[test]
fn confirmed_messages_are_replayed_after_a_kill() {
    let rounds = std::env::var("ENCKE_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(10);
    let folder = Folder::new();
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut chance = Chance(clock.as_nanos() as u64);
    let mut publishers: Vec<Publisher> = (0..PUBLISHERS).map(Publisher::new).collect();
    for round in 0..rounds * ROUNDS_MORE {
        // On a slow machine each kill may come before the first confirmation.
        if round >= rounds && publishers.iter().any(|publisher| !publisher.confirmed.is_empty()) {
            break;
        }
        let server = folder.start();
        let url = server.url.clone();
        std::thread::scope(|scope| {
            for publisher in &mut publishers {
                scope.spawn(|| run(publisher.publish(&url)));
            }
            std::thread::sleep(Duration::from_micros(chance.below(150_000)));
            drop(server);
        });
        let server = folder.start();
        let stored = run(async { tokio::time::timeout(TIMEOUT, replay(&server.url, round)).await.expect("it ends") });
        let stored = stored.unwrap_or_else(|error| panic!("round {round}: {error}"));
        publishers.iter().for_each(|publisher| check(publisher, &stored[publisher.channel], round));
    }
    let confirmed: usize = publishers.iter().map(|publisher| publisher.confirmed.len()).sum();
    let sent: u64 = publishers.iter().map(|publisher| publisher.sent).sum();
    println!("{rounds} rounds: {sent} messages sent, {confirmed} confirmed, none of these lost");
    assert!(confirmed > 0, "nothing was confirmed");
}
