//! A server with sources, and a client that sees what they publish.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use encke::{Running, Server, Settings};
use encke_client::{Client, Subscription};
use encke_sources::{SourceSettings, Sources, SourcesSettings};
use serde_json::Value;

/// A server with sources, which ends with the test.
pub struct TestServer {
    running: Option<Running>,
    pub sources: Sources,
    pub client: Client,
}

impl TestServer {
    /// A server without sources: a test subscribes before it starts them.
    pub async fn start(data: Option<PathBuf>) -> TestServer {
        let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), drain_timeout_ms: 100, ..Settings::default() };
        let running = Server::builder().settings(settings).start().expect("the server starts");
        let sources =
            Sources::start(SourcesSettings { sources: Vec::new(), data }, running.handle()).expect("they start");
        let client = Client::connect(&format!("http://{}", running.address())).await.expect("a session");
        TestServer { running: Some(running), sources, client }
    }

    /// Subscribes, and then starts sources.
    pub async fn with(channel: &str, sources: &str) -> (TestServer, Messages) {
        let server = TestServer::start(None).await;
        let messages = server.messages(channel).await;
        server.reload(sources);
        (server, messages)
    }

    pub async fn messages(&self, channel: &str) -> Messages {
        Messages(self.client.subscribe(channel).await.expect("subscribed"))
    }

    pub fn reload(&self, sources: &str) {
        self.sources.reload(parsed(sources));
    }

    /// The page of metrics.
    pub fn metrics(&self) -> String {
        let address = self.running.as_ref().expect("it runs").address();
        let mut tcp = TcpStream::connect(address).expect("connects");
        write!(tcp, "GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").expect("sent");
        let mut page = String::new();
        tcp.read_to_string(&mut page).expect("a page");
        page
    }

    /// The value of a metric of a source; 0 before its first start.
    pub fn metric(&self, name: &str, source: &str) -> u64 {
        let name = if name == "running" { name.to_string() } else { format!("{name}_total") };
        let begins = format!("encke_source_{name}{{source=\"{source}\",");
        let page = self.metrics();
        let line = page.lines().find(|line| line.starts_with(&begins));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
    }

    /// Waits until a metric has at least this value. A source counts a message after it has published it, so a client may
    /// have the message earlier.
    pub async fn wait_for(&self, name: &str, source: &str, least: u64) {
        wait_until(&format!("{name} of {source}"), || self.metric(name, source) >= least).await;
    }

    /// Stops the sources, and waits for their end.
    pub fn stop(&self) {
        self.sources.stop();
        self.sources.join();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
        if let Some(running) = self.running.take() {
            running.handle().drain();
            running.join();
        }
    }
}

/// The messages of a subscription.
pub struct Messages(Subscription);

impl Messages {
    /// The next message: its channel and its data.
    pub async fn next(&mut self) -> (String, Value) {
        let next = tokio::time::timeout(WAIT_MAX, self.0.next()).await.expect("a message in time");
        let message = next.expect("the session goes on").expect("no gap");
        (message.channel.to_string(), message.json().expect("JSON"))
    }

    /// The data of the next message.
    pub async fn data(&mut self) -> Value {
        self.next().await.1
    }
}

pub fn parsed(sources: &str) -> Vec<SourceSettings> {
    let table: toml::Table = toml::from_str(sources).expect("TOML");
    table.get("source").map(|list| encke_sources::parse(list).expect("valid")).unwrap_or_default()
}

/// Waits for an event, whatever the machine is doing.
pub async fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    for _ in 0..WAIT_MAX.as_millis() / 5 {
        if is_true() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not happen: {what}");
}

/// A folder for each call, removed with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("encke-sources-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).expect("written");
        self.path(name)
    }

    pub fn append(&self, name: &str, text: impl AsRef<[u8]>) {
        let file = fs::OpenOptions::new().append(true).create(true).open(self.0.join(name));
        file.expect("opened").write_all(text.as_ref()).expect("written");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// The time that an event may take. A busy machine is no reason to fail.
const WAIT_MAX: Duration = Duration::from_secs(60);
