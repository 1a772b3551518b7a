//! A node, and sessions by long-polling.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::nats::{Keeping, get};
use crate::{EVENT_MAX, wait_until};

/// A node. Dropping it kills it.
pub(crate) struct Node {
    child: Child,
    pub(crate) address: String,
}

impl Node {
    /// Starts a node of a cluster and waits until it is connected. No session ends by itself. `settings`: such as `timeout_ms=7`.
    pub(crate) fn start(nats: &Keeping, url: &str, cluster: &str, settings: &[&str]) -> Node {
        let program = std::env::var("MONGODB_NODE").expect("MONGODB_NODE names the example: scripts/mongodb.sh");
        let mut command = Command::new(program);
        command.args([&nats.nats.url(), url, cluster, "max_interval_ms=3600000"]).args(settings).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the example starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on ").expect("its address").to_owned();
        let node = Node { child, address };
        node.wait_for("encke_cluster_connected", 1);
        node.wait_for("encke_session_store_connected", 1);
        node
    }

    /// Kills it without notice.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// The value of a metric.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let metrics = get(&self.address, "/metrics");
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

    /// A request of the HTTP API: the status, and the answer.
    pub(crate) fn api(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, _, answer) = self.request(method, &format!("/api/v1{path}"), "application/json", "", &body);
        (status, serde_json::from_str(&answer).unwrap_or_default())
    }

    /// Sets an attribute of a session.
    pub(crate) fn set_attribute(&self, session: &Session, name: &str, value: i64) {
        let path = format!("/sessions/{}/attributes", session.id);
        let (status, answer) = self.api("POST", &path, &json!({"name": name, "value": value}));
        assert_eq!(status, 200, "{answer}");
    }

    /// Opens a session, and connects it.
    pub(crate) fn open(&self, advice: &Value) -> Session {
        let types = ["long-polling"];
        let mut shake = json!({"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": types});
        shake["advice"] = advice.clone();
        let (status, head, body) = self.request("POST", "/cometd", "application/json", "", &json!([shake]).to_string());
        assert_eq!(status, 200, "{body}");
        let replies: Value = serde_json::from_str(&body).expect("JSON");
        let cookie = head.lines().find_map(|line| line.to_lowercase().starts_with("set-cookie: ").then(|| &line[12..]));
        let cookie = cookie.expect("a cookie").split(';').next().expect("its value").to_owned();
        let session = Session { id: replies[0]["clientId"].as_str().expect("an id").to_owned(), cookie };
        assert!(self.poll(&session).0, "its first connect");
        session
    }

    /// A connect that is not held: true if it succeeds, and all messages.
    pub(crate) fn poll(&self, session: &Session) -> (bool, Value) {
        let connect = json!({"channel": "/meta/connect", "connectionType": "long-polling", "advice": {"timeout": 0}});
        let replies = self.send(session, connect);
        let connects = |message: &Value| message["channel"] == "/meta/connect" && message["successful"] == true;
        (replies.as_array().is_some_and(|replies| replies.iter().any(connects)), replies)
    }

    /// Sends a message of a session. The replies.
    pub(crate) fn send(&self, session: &Session, mut message: Value) -> Value {
        message["clientId"] = session.id.as_str().into();
        let body = json!([message]).to_string();
        let (_, _, replies) = self.request("POST", "/cometd", "application/json", &session.cookie, &body);
        serde_json::from_str(&replies).unwrap_or_default()
    }

    /// The status, the head and the body of the response to a request.
    fn request(&self, method: &str, path: &str, kind: &str, cookie: &str, body: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("the node listens");
        stream.set_read_timeout(Some(EVENT_MAX)).expect("a time limit");
        let (host, length) = (&self.address, body.len());
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n");
        if length > 0 {
            head += &format!("Content-Type: {kind}\r\n");
        }
        if !cookie.is_empty() {
            head += &format!("Cookie: {cookie}\r\n");
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        let status = response.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        (status, head.to_owned(), body.to_owned())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A session by long-polling, with the cookie of its browser.
pub(crate) struct Session {
    pub(crate) id: String,
    cookie: String,
}
