//! A node: a process of the program.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use encke_client::{Client, Subscription, Transport};

use crate::nats::{Nats, free_port, get};
use crate::{connect, wait_until};

/// The shards of a node at most.
pub(crate) const SHARDS_MAX: u64 = 3;

/// A node. Dropping it kills it.
pub(crate) struct Node {
    child: Child,
    folder: PathBuf,
    pub(crate) url: String,
}

impl Node {
    /// Starts a node and waits until it is connected and takes clients. `more`: lines of its section `[cluster]`.
    pub(crate) fn start(nats: &Nats, name: &str, more: &str) -> Node {
        let node = Node::begin(nats, name, more);
        node.wait_for_ready();
        node
    }

    /// Starts a node with these lines before all sections, and waits until it takes clients.
    pub(crate) fn start_with(nats: &Nats, name: &str, settings: &str, more: &str) -> Node {
        let node = Node::begin_with(nats, name, settings, more);
        node.wait_for_ready();
        node
    }

    /// Starts a node with these lines before all sections.
    pub(crate) fn begin_with(nats: &Nats, name: &str, settings: &str, more: &str) -> Node {
        Node::listening(0, &nats.url(), name, (settings, more))
    }

    /// Starts a node.
    pub(crate) fn begin(nats: &Nats, name: &str, more: &str) -> Node {
        Node::begin_at(&nats.url(), name, more)
    }

    /// Starts a node that knows NATS by this URL.
    pub(crate) fn begin_at(servers: &str, name: &str, more: &str) -> Node {
        Node::listening(0, servers, name, ("", more))
    }

    /// Starts a node that can start again, and waits as [`Node::start`] does.
    pub(crate) fn lasting(nats: &Nats, name: &str, more: &str) -> Node {
        let node = Node::listening(free_port(), &nats.url(), name, ("", more));
        node.wait_for_ready();
        node
    }

    fn listening(port: u16, servers: &str, name: &str, (settings, more): (&str, &str)) -> Node {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("encke-cluster-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        // Nodes of one shard and of several have different ways.
        let shards = 1 + number % SHARDS_MAX;
        let text = format!(
            "listen = \"127.0.0.1:{port}\"\nshards = {shards}\n{settings}\n[cluster]\nservers = [\"{servers}\"]\nnode = \"{name}\"\nreconnect_delay_max_ms = 200\n{more}\n"
        );
        std::fs::write(folder.join("encke.toml"), text).expect("a file");
        let (child, url) = spawn(&folder);
        Node { child, folder, url }
    }

    /// Kills the node, and starts it again on its port.
    pub(crate) fn restart(&mut self) {
        self.signal("KILL");
        self.child.wait().expect("it ends");
        (self.child, self.url) = spawn(&self.folder);
    }

    /// Its host and port.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Opens a session by WebSocket.
    pub(crate) async fn client(&self) -> Client {
        connect(&self.url, Transport::WebSocket).await
    }

    /// Opens a session and subscribes.
    pub(crate) async fn subscribe(&self, name: &str) -> Subscription {
        self.client().await.subscribe(name).await.expect("a subscription")
    }

    /// Sends a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let killed = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(killed.expect("kill runs").success(), "the node runs");
    }

    /// Ends the node as an operator does, and waits until it has.
    pub(crate) fn end(&mut self) {
        self.signal("TERM");
        self.child.wait().expect("it ends");
    }

    /// The value of a metric.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let metrics = self.get("/metrics");
        let is_it = |line: &&str| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ') || rest.starts_with("_total "))
        };
        let line = metrics.lines().find(is_it);
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
    }

    /// Waits until a metric has a value.
    pub(crate) fn wait_for(&self, name: &str, value: u64) {
        wait_until(&format!("{name} is {value}"), || self.metric(name) == value);
    }

    fn wait_for_ready(&self) {
        self.wait_for("encke_cluster_connected", 1);
        wait_until("it takes clients", || self.get("/readyz") == "ready\n");
    }

    /// The body of the response to a request.
    pub(crate) fn get(&self, path: &str) -> String {
        get(self.address(), path)
    }
}

/// The program of the next node: every second one runs that of another build, if `OTHER_BUILD` names one.
fn program() -> OsString {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let other = std::env::var_os("OTHER_BUILD").filter(|_| STARTED.fetch_add(1, Ordering::Relaxed) % 2 == 1);
    other.unwrap_or_else(|| env!("CARGO_BIN_EXE_encke").into())
}

/// Starts the program with the configuration in a folder. Its process, and its address.
fn spawn(folder: &Path) -> (Child, String) {
    let mut child = Command::new(program())
        .args(["serve", "--config"])
        .arg(folder.join("encke.toml"))
        .env("CLUSTER_PASSWORD", "hunter2")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    let url = line.trim().strip_prefix("encke listening on ").expect("its address").to_owned();
    (child, url)
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended.
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}
