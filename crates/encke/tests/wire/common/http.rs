//! A hand-written HTTP/1.1 client: raw bytes, requests with a cookie jar, and a long-polling session on top.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use super::TIMEOUT;
use super::http2::entry;
use super::tls::Socket;

/// A TCP connection that sends and reads whatever a test needs.
pub struct Tcp {
    pub stream: Socket,
    /// Bytes that are read and not used yet.
    buffer: Vec<u8>,
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// A keep-alive connection that retains the browser's cookie.
pub struct Http {
    pub tcp: Tcp,
    pub cookie: Option<String>,
    address: SocketAddr,
}

/// A long-polling session with one connection for its connects and one for everything else.
pub struct Poller {
    pub id: String,
    pub http: Http,
    pub polls: Http,
    connects: u64,
}

impl Tcp {
    pub fn connect(address: SocketAddr) -> Tcp {
        Tcp::of(Socket::of(TcpStream::connect(entry(address)).expect("a connection")))
    }

    /// Connects with a receive buffer of a few kilobytes, so that a client that does not read is noticed soon.
    pub fn narrow(address: SocketAddr) -> Tcp {
        let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None);
        let socket = socket.expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small buffer");
        socket.connect(&entry(address).into()).expect("a connection");
        Tcp::of(Socket::of(socket.into()))
    }

    pub fn of(stream: Socket) -> Tcp {
        stream.tcp().set_nodelay(true).expect("no delay");
        stream.tcp().set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        stream.tcp().set_write_timeout(Some(TIMEOUT)).expect("a timeout");
        Tcp { stream, buffer: Vec::new() }
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Sends where the server may have closed already.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends the same bytes repeatedly until the server ends the connection. The server may read on for a moment, so
    /// that a reset does not destroy its last response, but not for long.
    #[track_caller]
    pub fn flood(&mut self, bytes: &[u8]) {
        let mut sent = 0;
        while self.try_send(bytes).is_ok() {
            sent += bytes.len();
            assert!(sent < 64 * 1024 * 1024, "the server reads and reads");
        }
    }

    /// Ends the connection with a reset instead of an orderly close.
    pub fn reset(self) {
        let socket = socket2::SockRef::from(self.stream.tcp());
        socket.set_linger(Some(std::time::Duration::ZERO)).expect("a reset on close");
    }

    pub fn shutdown_write(&mut self) {
        self.stream.shutdown_write().expect("a half-closed connection");
    }

    /// The next bytes; none at the end of the stream or after a reset.
    #[track_caller]
    pub fn read_some(&mut self) -> Vec<u8> {
        if self.buffer.is_empty() {
            self.fill();
        }
        std::mem::take(&mut self.buffer)
    }

    /// Reads `bytes` bytes, and keeps them for the response.
    pub fn read_ahead(&mut self, bytes: usize) {
        let before = self.buffer.len();
        self.buffer.resize(before + bytes, 0);
        self.stream.read_exact(&mut self.buffer[before..]).expect("as much as that");
    }

    /// Reads a response; None if the connection ends without one.
    #[track_caller]
    pub fn response(&mut self) -> Option<Response> {
        let mut response = self.head()?;
        let length = response.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        let length = if response.status == 101 { 0 } else { length };
        while self.buffer.len() < length {
            assert!(self.fill(), "the body was cut");
        }
        response.body = self.buffer.drain(..length).collect();
        Some(response)
    }

    /// Reads the head of a response; None if the connection ends without one.
    #[track_caller]
    pub fn head(&mut self) -> Option<Response> {
        let end = loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            if !self.fill() {
                return None;
            }
        };
        let head: Vec<u8> = self.buffer.drain(..end).collect();
        let head = String::from_utf8(head).expect("a head in ASCII");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status line");
        let headers: Vec<_> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Some(Response { status, headers, body: Vec::new() })
    }

    /// True if the server has ended the connection; earlier responses are skipped.
    #[track_caller]
    pub fn ends(&mut self) -> bool {
        self.buffer.clear();
        while self.fill() {
            self.buffer.clear();
        }
        true
    }

    #[track_caller]
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 65_536];
        match self.stream.read(&mut chunk) {
            Ok(0) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.fill(),
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => false,
            Err(error) => panic!("nothing came: {error}"),
        }
    }
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    /// The messages in the body.
    #[track_caller]
    pub fn messages(&self) -> Vec<Value> {
        match serde_json::from_slice(&self.body) {
            Ok(Value::Array(messages)) => messages,
            _ => panic!("no messages: {} {}", self.status, String::from_utf8_lossy(&self.body)),
        }
    }

    /// The error of the first message.
    #[track_caller]
    pub fn error(&self) -> String {
        self.messages()[0]["error"].as_str().expect("an error").to_owned()
    }
}

impl Http {
    pub fn connect(address: SocketAddr) -> Http {
        Http::on(Tcp::connect(address), address)
    }

    /// A client on an existing connection.
    pub fn on(tcp: Tcp, address: SocketAddr) -> Http {
        Http { tcp, cookie: None, address }
    }

    /// Another connection of the same browser.
    pub fn again(&self) -> Http {
        Http { cookie: self.cookie.clone(), ..Http::connect(self.address) }
    }

    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, &[], b"")
    }

    /// Posts messages to the Bayeux endpoint.
    #[track_caller]
    pub fn post(&mut self, messages: &Value) -> Response {
        self.post_raw(messages.to_string())
    }

    #[track_caller]
    pub fn post_raw(&mut self, body: impl AsRef<[u8]>) -> Response {
        self.request("POST", "/cometd", &[("content-type", "application/json")], body.as_ref())
    }

    #[track_caller]
    pub fn request(&mut self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        self.send(method, target, headers, body);
        if method == "HEAD" { self.tcp.head().expect("a response") } else { self.receive() }
    }

    /// Sends a request without waiting for its response.
    #[track_caller]
    pub fn send(&mut self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut request = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request.extend_from_slice(format!("host: {}\r\n", self.address).as_bytes());
        }
        if let Some(cookie) = &self.cookie {
            request.extend_from_slice(format!("cookie: BAYEUX_BROWSER={cookie}\r\n").as_bytes());
        }
        for (name, value) in headers {
            request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if !body.is_empty() || method == "POST" {
            request.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body);
        self.tcp.send(request);
    }

    #[track_caller]
    pub fn receive(&mut self) -> Response {
        let response = self.tcp.response().expect("a response");
        if let Some(cookie) = response.header("set-cookie").and_then(|line| line.strip_prefix("BAYEUX_BROWSER=")) {
            self.cookie = cookie.split(';').next().map(String::from);
        }
        response
    }

    /// Opens a session. Returns its id.
    #[track_caller]
    pub fn handshake(&mut self) -> String {
        let handshake = json!([{"id": "h", "channel": "/meta/handshake", "version": "1.0",
            "supportedConnectionTypes": ["long-polling"]}]);
        let messages = self.post(&handshake).messages();
        assert_eq!(messages[0]["successful"], true, "{messages:?}");
        messages[0]["clientId"].as_str().expect("an id").to_owned()
    }

    /// Posts one message of a session. Returns its reply.
    #[track_caller]
    pub fn call(&mut self, message: Value) -> Value {
        let messages = self.post(&json!([message])).messages();
        messages.iter().find(|reply| reply.get("successful").is_some()).expect("a reply").clone()
    }
}

impl Poller {
    #[track_caller]
    pub fn open(mut http: Http) -> Poller {
        let id = http.handshake();
        let mut poller = Poller::of(id, http);
        assert_eq!(poller.poll(json!({}))[0]["successful"], true);
        poller
    }

    /// A poller for an existing session.
    pub fn of(id: String, http: Http) -> Poller {
        let polls = http.again();
        Poller { id, http, polls, connects: 0 }
    }

    /// Sends a connect with further fields, without waiting for its response. Returns its id.
    #[track_caller]
    pub fn start_poll(&mut self, fields: Value) -> String {
        self.connects += 1;
        let id = format!("c{}", self.connects);
        let body = self.connect_message(&id, fields).to_string();
        self.polls.send("POST", "/cometd", &[], body.as_bytes());
        id
    }

    /// The response to the pending connect.
    #[track_caller]
    pub fn end_poll(&mut self) -> Vec<Value> {
        let response = self.polls.receive();
        assert_eq!(response.status, 200);
        response.messages()
    }

    #[track_caller]
    pub fn poll(&mut self, fields: Value) -> Vec<Value> {
        self.start_poll(fields);
        self.end_poll()
    }

    /// A connect of this session.
    pub fn connect_message(&self, id: &str, fields: Value) -> Value {
        let mut message = json!({"id": id, "channel": "/meta/connect", "clientId": self.id,
            "connectionType": "long-polling"});
        for (key, value) in fields.as_object().expect("fields") {
            message[key] = value.clone();
        }
        json!([message])
    }

    /// The reply to one message of this session, sent beside its connects.
    #[track_caller]
    pub fn call(&mut self, mut message: Value) -> Value {
        message["clientId"] = json!(self.id);
        self.http.call(message)
    }

    #[track_caller]
    pub fn subscribe(&mut self, channel: &str) {
        let reply = self.call(json!({"id": "s", "channel": "/meta/subscribe", "subscription": channel}));
        assert_eq!(reply["successful"], true, "{reply}");
    }
}
