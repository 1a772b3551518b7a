//! A NATS server, and what it counts.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::wait_until;

/// A NATS server. Dropping it kills it.
pub(crate) struct Nats {
    child: Option<Child>,
    port: u16,
    monitor: u16,
    arguments: Vec<String>,
}

/// A NATS server that keeps keys. Dropping it removes them.
pub(crate) struct Keeping {
    pub(crate) nats: Nats,
    folder: PathBuf,
}

impl Keeping {
    pub(crate) fn start(name: &str) -> Keeping {
        Keeping::taking(name, 1024 * 1024)
    }

    /// One that takes messages of so many bytes.
    pub(crate) fn taking(name: &str, payload_bytes_max: usize) -> Keeping {
        let folder = std::env::temp_dir().join(format!("encke-cluster-js-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("nats.conf");
        std::fs::write(&file, format!("max_payload: {payload_bytes_max}\n")).expect("a file");
        let [data, file] = [&folder, &file].map(|path| path.display().to_string());
        let nats = Nats::start(&["-js", "-sd", &data, "-c", &file]);
        Keeping { nats, folder }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.nats.kill();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Nats {
    /// Starts one.
    pub(crate) fn start(arguments: &[&str]) -> Nats {
        let mut nats = Nats::new(arguments);
        nats.begin();
        nats
    }

    /// One that does not run yet.
    pub(crate) fn new(arguments: &[&str]) -> Nats {
        let arguments = arguments.iter().map(|argument| argument.to_string()).collect();
        Nats { child: None, port: free_port(), monitor: free_port(), arguments }
    }

    /// Starts it, or starts it again on the same port.
    pub(crate) fn begin(&mut self) {
        let program = std::env::var("NATS_SERVER").expect("NATS_SERVER names nats-server: scripts/cluster.sh");
        let (port, monitor) = (self.port.to_string(), self.monitor.to_string());
        let child = Command::new(program)
            .args(["-a", "127.0.0.1", "-p", &port, "-m", &monitor])
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("nats-server starts"));
        wait_until("NATS listens", || {
            [self.port, self.monitor].iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok())
        });
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// A connection of the protocol, with nothing sent.
    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).expect("it listens")
    }

    /// The connection of a node as NATS sees it: `out_msgs` are those that it has sent to the node.
    pub(crate) fn connection(&self, node: &str) -> Value {
        // With HTTP/1.0 no response comes in chunks.
        let all = body(&respond(&format!("127.0.0.1:{}", self.monitor), "GET /connz?subs=1 HTTP/1.0\r\n\r\n"));
        let all: Value = serde_json::from_str(&all).expect("JSON");
        let connections = all["connections"].as_array().expect("a list");
        // The connection for keys has the same name, and other subscriptions.
        let is_of_node = |connection: &&Value| {
            let subjects = connection["subscriptions_list"].as_array().into_iter().flatten();
            let mut subjects = subjects.filter_map(Value::as_str);
            connection["name"] == node && subjects.any(|subject| subject.starts_with("encke.main.n."))
        };
        connections.iter().find(is_of_node).cloned().unwrap_or_default()
    }

    /// The subjects of channels that a node subscribes to.
    pub(crate) fn subjects(&self, node: &str) -> Vec<String> {
        let connection = self.connection(node);
        let subjects = connection["subscriptions_list"].as_array().into_iter().flatten();
        let subjects = subjects.filter_map(|subject| subject.as_str()?.strip_prefix("encke.main.c."));
        let mut subjects: Vec<String> = subjects.map(str::to_owned).collect();
        subjects.sort();
        subjects
    }

    /// The number of messages that it has sent to a node.
    pub(crate) fn sent_to(&self, node: &str) -> u64 {
        self.connection(node)["out_msgs"].as_u64().expect("a number")
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The body of a response. Empty if nobody listens.
pub(crate) fn get(address: &str, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    body(&respond(address, &request))
}

/// The body of the response to a POST of JSON with a key of the HTTP API.
pub(crate) fn post(address: &str, path: &str, key: &str, json: &str) -> String {
    body(&whole_post(address, path, key, json))
}

/// The whole response to it.
pub(crate) fn whole_post(address: &str, path: &str, key: &str, json: &str) -> String {
    let head = format!("Host: {address}\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\nConnection: close");
    respond(address, &format!("POST {path} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{json}", json.len()))
}

/// The response to a request. Empty if nobody listens.
fn respond(address: &str, request: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return String::new() };
    let mut response = String::new();
    let read = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut response));
    read.map(|_| response).unwrap_or_default()
}

fn body(response: &str) -> String {
    response.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}

/// A port of loopback that is free now, and that no other test gets. The system gives it to no outgoing connection while its process starts again.
pub(crate) fn free_port() -> u16 {
    // Those of tests that have not begun to listen, too.
    static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let random = RandomState::new().build_hasher().finish();
        let port = 20_000 + (random % 12_000) as u16;
        let is_new = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port);
        if is_new && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
