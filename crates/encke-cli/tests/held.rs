//! 15,000 requests held at once by one process, each in less than 8 KiB; one message releases them all.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time after which the test gives up.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The requests. Both processes may open 20,000 files at least where the test runs in full.
const REQUESTS: usize = 15_000;
/// The most memory of each, with its connection.
const BYTES_MAX: u64 = 8 * 1024;

/// A running server. Dropping it kills it.
struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn start(flags: &[&str]) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_encke"));
    command.args(["serve", "--port", "0", "--no-demo", "--shards", "1"]).args(flags);
    let settings = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ENCKE_"));
    settings.for_each(|(name, _)| _ = command.env_remove(name));
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("encke listening on http://").expect("the address").to_string();
    Server { child, address }
}

impl Server {
    /// The bytes of the process in memory.
    fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("Linux");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a size");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        stream
    }

    fn send(&self, mut stream: &TcpStream, line: &str, headers: &str, body: &str) {
        let (host, length) = (&self.address, body.len());
        let request = format!("{line} HTTP/1.1\r\nhost: {host}\r\n{headers}content-length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).expect("the server reads");
    }

    /// Sends a batch of messages. Returns the head and the body of the response.
    fn post(&self, cookie: &str, messages: &str) -> (String, String) {
        let stream = self.connect();
        self.send(&stream, "POST /cometd", &format!("cookie: {cookie}\r\n"), messages);
        response(&stream)
    }

    /// Publishes as a client.
    fn publish(&self, channels: &[String], data: &str) {
        let handshake =
            r#"[{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["long-polling"]}]"#;
        let (head, hello) = self.post("", handshake);
        let cookie = field(&head, "set-cookie: ").split(';').next().expect("a cookie");
        let id = hello.split(r#""clientId":""#).nth(1).and_then(|rest| rest.split('"').next()).expect("an id");
        let message = |channel| format!(r#"{{"channel":"{channel}","clientId":"{id}","data":{data}}}"#);
        let messages: Vec<String> = channels.iter().map(message).collect();
        let (_, reply) = self.post(cookie, &format!("[{}]", messages.join(",")));
        assert_eq!(reply.matches(r#""successful":true"#).count(), channels.len(), "{reply}");
    }

    /// Holds requests, and returns them with the bytes of each.
    fn hold(&self, target: &str, requests: usize) -> (Vec<TcpStream>, u64) {
        let hold = |_| {
            let stream = self.connect();
            self.send(&stream, &format!("GET {target}"), "", "");
            stream
        };
        let wait = |count: usize| {
            let started = Instant::now();
            while self.metric("encke_held_requests") != count {
                assert!(started.elapsed() < TIMEOUT, "{count} requests are not held");
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        // The first ones need tables and code that all of them share.
        let mut held: Vec<TcpStream> = (0..100).map(hold).collect();
        wait(100);
        let before = self.resident_bytes();
        held.extend((100..requests).map(hold));
        wait(requests);
        let each = self.resident_bytes().saturating_sub(before) / (requests as u64 - 100);
        println!("{requests} held requests, {each} bytes each");
        (held, each)
    }

    fn metric(&self, name: &str) -> usize {
        let stream = self.connect();
        self.send(&stream, "GET /metrics", "", "");
        let (_, page) = response(&stream);
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("no metric {name} in {page}"))
    }
}

/// Reads a response. Returns its head and its body.
fn response(stream: &TcpStream) -> (String, String) {
    let mut reader = BufReader::with_capacity(512, stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).expect("a head") > 0, "no response");
    }
    let mut body = vec![0; field(&head, "content-length: ").parse().expect("a length")];
    reader.read_exact(&mut body).expect("a body");
    (head, String::from_utf8(body).expect("text"))
}

/// The value of a header.
fn field<'a>(head: &'a str, name: &str) -> &'a str {
    head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {head}"))
}

/// The most requests that a test may hold, as far as the system allows both processes to open files.
fn requests() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let files = limit.maximum.map_or(usize::MAX, |files| files as usize);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).expect("more files");
    REQUESTS.min(files.saturating_sub(1_000))
}

#[test]
fn requests_held_at_once_take_little_memory_and_one_message_releases_them() {
    let server = start(&[]);
    let (held, each) = server.hold("/hold/orders/ready?timeout=120", requests());
    assert!(each <= BYTES_MAX, "{each} bytes for a held request");
    server.publish(&["/orders/ready".into()], "\"tea\"");
    for stream in &held {
        assert_eq!(response(stream).1, r#"[{"channel":"/orders/ready","data":"tea"}]"#);
    }
    assert_eq!((server.metric("encke_held_requests"), server.metric("encke_in_process_subscriptions")), (0, 0));
}

/// The answer to each request names the positions of 200 channels, which all of them share while they wait.
#[test]
fn requests_held_on_a_pattern_of_many_histories_take_little_memory() {
    let config = std::env::temp_dir().join(format!("encke-held-{}.toml", std::process::id()));
    std::fs::write(&config, "[[channels]]\npattern = \"/orders/*\"\nhistory_messages = 10\n").expect("a file");
    let server = start(&["--config", config.to_str().expect("a path")]);
    let channels: Vec<String> = (0..200).map(|number| format!("/orders/of-the-customer-{number}")).collect();
    server.publish(&channels, "1");
    let (held, each) = server.hold("/hold/orders/*?timeout=120", requests().min(1_000));
    assert!(each <= BYTES_MAX, "{each} bytes for a held request");
    server.publish(&channels[..1], "2");
    for stream in &held {
        assert!(response(stream).0.contains("/orders/of-the-customer-199:"), "a link with all positions");
    }
    let _gone = std::fs::remove_file(config);
}

/// The program answers its own paths itself, and passes all others to the backend of its configuration.
#[test]
fn a_backend_behind_the_program_holds_its_responses() {
    let backend = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = backend.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in backend.incoming().flatten() {
            let mut line = String::new();
            let _gone = BufReader::new(&stream).read_line(&mut line);
            let hold = if line.contains("/wait") { "grip-hold: response\r\ngrip-channel: orders\r\n" } else { "" };
            let head = format!("HTTP/1.1 200 OK\r\n{hold}content-length: 7\r\nconnection: close\r\n\r\nbackend");
            let _gone = stream.write_all(head.as_bytes());
        }
    });
    let config = std::env::temp_dir().join(format!("encke-proxy-{}.toml", std::process::id()));
    std::fs::write(&config, format!("[proxy]\nbackend = \"http://{address}\"\n")).expect("a file");
    let server = start(&["--config", config.to_str().expect("a path")]);
    let get = |path: &str| {
        let stream = server.connect();
        server.send(&stream, &format!("GET {path}"), "", "");
        stream
    };
    assert_eq!(response(&get("/healthz")).1, "ok\n");
    assert_eq!(response(&get("/anything")).1, "backend");
    let held = get("/wait");
    let started = Instant::now();
    while server.metric("encke_proxy_held") != 1 || server.metric("encke_held_requests") != 1 {
        assert!(started.elapsed() < TIMEOUT, "the response is not held");
        std::thread::sleep(Duration::from_millis(10));
    }
    server.publish(&["/orders".into()], "[1]");
    assert_eq!(response(&held).1, "[1]");
    let _gone = std::fs::remove_file(config);
}
