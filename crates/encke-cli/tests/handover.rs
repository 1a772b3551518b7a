//! One process takes over from another on the same listening socket: no connection is refused meanwhile, and sessions
//! continue.

mod handover_tls;
mod log;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};

use log::Log;

/// A server and its successors.
struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
    log: Log,
    address: SocketAddr,
    /// The process that serves now.
    serving: Pid,
}

impl Server {
    fn start(mut command: Command) -> Server {
        // In a new process group, so that successors end with the test, too.
        let command = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let log = Log::of(child.stderr.take().expect("piped"));
        let address = address_of(&mut out);
        let serving = Pid::from_child(&child);
        Server { child, out, log, address, serving }
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.serving, signal).expect("is there");
    }

    /// Starts a successor, and waits until it serves.
    fn hand_over(&mut self) {
        self.serving = self.begin_handover();
        assert_eq!(address_of(&mut self.out), self.address);
    }

    /// Starts a successor, and waits until it is ready.
    fn begin_handover(&mut self) -> Pid {
        self.signal(Signal::USR2);
        let log = self.log_until("another server takes over");
        let number = log.rsplit_once("process=").and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
        number.and_then(Pid::from_raw).expect("a process")
    }

    /// Reads the log up to a line that holds `text`, and returns what was read.
    fn log_until(&mut self, text: &str) -> String {
        self.log.until(text)
    }

    /// Waits for the end of the first process.
    fn end(&mut self) -> Option<i32> {
        let began = Instant::now();
        while began.elapsed() < TIMEOUT {
            if let Some(status) = self.child.try_wait().expect("waits") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The address in the line that a server prints when it is ready.
fn address_of(out: &mut impl BufRead) -> SocketAddr {
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    let (_, address) =
        line.trim().strip_prefix("encke listening on ").and_then(|url| url.split_once("://")).expect("a URL");
    address.parse().expect("an address")
}

/// A folder for each test, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("encke-handover-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A command in an environment without settings of the server.
fn clean(program: impl AsRef<Path>, args: &[&str]) -> Command {
    let mut command = Command::new(program.as_ref());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ENCKE_") {
            command.env_remove(name);
        }
    }
    command.args(args).current_dir(std::env::temp_dir());
    command
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_encke");
/// The time after which a test gives up.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Posts messages on a new connection. Returns the response with its head.
fn post(address: SocketAddr, cookie: &str, messages: &Value) -> String {
    let body = messages.to_string();
    let head = format!(
        "POST /cometd HTTP/1.1\r\nhost: {address}\r\ncookie: {cookie}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    ask(address, &(head + &body)).expect("an answer")
}

/// Sends one request on a new connection. Returns everything received.
fn ask(address: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

fn messages(response: &str) -> Value {
    let body = response.split_once("\r\n\r\n").expect("a body").1;
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
}

/// A long-polling session with a subscription.
struct Session {
    id: Value,
    cookie: String,
}

impl Session {
    fn open(address: SocketAddr, channel: &str) -> Session {
        let response = post(address, "", &json!([{"id": "1", "channel": "/meta/handshake", "version": "1.0"}]));
        let set = response.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
        let cookie = set.split(';').next().expect("a cookie").to_owned();
        let session = Session { id: messages(&response)[0]["clientId"].clone(), cookie };
        assert_eq!(session.connect(address)[0]["successful"], true);
        let subscribe =
            json!([{"id": "2", "channel": "/meta/subscribe", "clientId": session.id, "subscription": channel}]);
        assert_eq!(messages(&post(address, &session.cookie, &subscribe))[0]["successful"], true);
        session
    }

    fn connect(&self, address: SocketAddr) -> Value {
        let connect = json!([{"id": "3", "channel": "/meta/connect", "clientId": self.id,
            "connectionType": "long-polling", "advice": {"timeout": 0}}]);
        messages(&post(address, &self.cookie, &connect))
    }
}

/// Publishes from outside, as a program does.
fn publish(address: SocketAddr, channel: &str, data: &str) {
    let url = format!("http://{address}");
    let output = clean(PROGRAM, &["publish", channel, data, "--url", &url]).output().expect("runs");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_new_process_takes_over_and_refuses_no_connection_meanwhile() {
    let folder = Folder::new();
    let data = folder.path("data");
    let mut server = Server::start(clean(PROGRAM, &["serve", "--port", "0", "--data", &data]));
    let address = server.address;
    let session = Session::open(address, "/news");
    publish(address, "/news", "1");
    let (is_over, answered, began) = (AtomicBool::new(false), AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) && began.elapsed() < TIMEOUT {
                    let get = "GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
                    let response = ask(address, get).expect("neither refused nor reset");
                    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
                    answered.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        for _ in 0..2 {
            let before = answered.load(Ordering::Relaxed);
            server.hand_over();
            while answered.load(Ordering::Relaxed) < before + 20 {
                assert!(began.elapsed() < TIMEOUT, "nobody answers");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(server.end(), Some(0));
    let received = session.connect(address);
    assert_eq!((&received[0]["data"], &received[1]["successful"]), (&json!(1), &json!(true)), "{received}");
    publish(address, "/news", "2");
    assert_eq!(session.connect(address)[0]["data"], 2);
}

#[test]
fn further_addresses_pass_to_the_new_process_too() {
    let folder = Folder::new();
    let (file, socket) = (folder.path("encke.toml"), folder.path("encke.sock"));
    let listeners = format!("[[listeners]]\naddress = \"127.0.0.1:0\"\n[[listeners]]\naddress = \"unix:{socket}\"\n");
    std::fs::write(&file, listeners).expect("a file");
    let mut server = Server::start(clean(PROGRAM, &["serve", "--port", "0", "--config", &file]));
    for _ in 0..2 {
        let mut stream = UnixStream::connect(&socket).expect("connects");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("writes");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("text");
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        server.hand_over();
    }
}

#[test]
fn connections_during_the_drain_are_served_by_the_new_process() {
    let mut server =
        Server::start(clean(PROGRAM, &["serve", "--port", "0", "--shards", "1", "--drain-timeout-ms", "120000"]));
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
    let [mut idle, mut busy] = [(); 2].map(|()| {
        let mut stream = TcpStream::connect(server.address).expect("connects");
        stream.write_all(get("/readyz").as_bytes()).expect("writes");
        assert_ne!(stream.read(&mut [0; 1024]).expect("an answer"), 0);
        stream
    });
    // Half a request prolongs the drain of the old process.
    busy.write_all(b"GET /readyz HTTP/1.1\r\n").expect("writes");
    server.signal(Signal::USR2);
    assert_eq!(idle.read(&mut [0; 1024]).expect("its end"), 0, "it drains now");
    let mut late = TcpStream::connect(server.address).expect("connects");
    late.write_all(get("/readyz").as_bytes()).expect("writes");
    // Time enough for the old process to make the mistake.
    std::thread::sleep(Duration::from_millis(100));
    drop(busy);
    assert_eq!(address_of(&mut server.out), server.address);
    let mut answer = [0; 1024];
    let count = late.read(&mut answer).expect("an answer");
    assert!(answer[..count].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..count]));
}

#[test]
fn a_new_process_that_cannot_start_changes_nothing() {
    let folder = Folder::new();
    let file = folder.path("encke.toml");
    std::fs::write(&file, "timeout_ms = 5000\n").expect("a file");
    let mut server = Server::start(clean(PROGRAM, &["serve", "--port", "0", "--config", &file]));
    std::fs::write(&file, "timeout_ms = \"soon\"\n").expect("a file");
    server.signal(Signal::USR2);
    let log = server.log_until("the handover failed, this server continues");
    assert!(log.contains("ended before it was ready (exit status: 2)"), "{log}");
    publish(server.address, "/news", "1");
    std::fs::write(&file, "timeout_ms = 6000\n").expect("a file");
    server.hand_over();
    assert_eq!(server.end(), Some(0), "and later it can");
}

#[test]
fn a_new_process_that_could_not_use_the_data_directory_changes_nothing() {
    let folder = Folder::new();
    let data = folder.path("data");
    let mut server = Server::start(clean(PROGRAM, &["serve", "--port", "0", "--data", &data]));
    let strange = folder.0.join("data/history/00000000000000000099.journal");
    std::fs::write(&strange, "written by something else").expect("a file");
    server.signal(Signal::USR2);
    let log = server.log_until("the handover failed, this server continues");
    assert!(log.contains("00000000000000000099.journal is damaged at offset 0"), "{log}");
    publish(server.address, "/news", "1");
    std::fs::remove_file(&strange).expect("it is there");
    server.hand_over();
    assert_eq!(server.end(), Some(0), "and later it can");
}

/// The steps of systemd with a socket unit: it holds the socket, and passes it to each process it starts.
#[test]
fn a_socket_of_a_supervisor_is_served_by_one_process_after_another() {
    let folder = Folder::new();
    let data = folder.path("data");
    let socket = TcpListener::bind("127.0.0.1:0").expect("binds");
    let start = || {
        let given = OwnedFd::from(socket.try_clone().expect("a copy"));
        let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\" 3<&0 </dev/null";
        let mut command = clean("/bin/sh", &["-c", script, "sh", PROGRAM, "serve", "--data", &data]);
        command.stdin(Stdio::from(given));
        Server::start(command)
    };
    let mut first = start();
    let address = first.address;
    assert_eq!(address, socket.local_addr().expect("bound"));
    let session = Session::open(address, "/news");
    first.signal(Signal::TERM);
    assert_eq!(first.end(), Some(0));
    // No process serves: a client that connects waits.
    let early = std::thread::spawn(move || {
        ask(address, "GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
    });
    let second = start();
    assert_eq!(second.address, address);
    assert!(early.join().expect("no panic").expect("an answer").starts_with("HTTP/1.1 200"));
    assert_eq!(session.connect(address)[0]["successful"], true);
}

/// Connections that prolong the drain, each with half a request.
fn busy(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(TIMEOUT)).expect("it can be set");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n").expect("writes");
        stream
    };
    (0..count).map(open).collect()
}

/// The kernel closes the files of a process one by one: a closed end of the socket pair does not show that its lock
/// is free.
#[test]
fn a_process_killed_during_its_handover_is_still_replaced() {
    let folder = Folder::new();
    let data = folder.path("data");
    let args = ["serve", "--port", "0", "--shards", "1", "--drain-timeout-ms", "120000", "--data", &data];
    let mut server = Server::start(clean(PROGRAM, &args));
    for _ in 0..3 {
        let connections = busy(server.address, 300);
        // All connections are accepted, so that there is something to close.
        assert!(ask(server.address, "GET /healthz HTTP/1.0\r\n\r\n").expect("an answer").contains("200"));
        let successor = server.begin_handover();
        server.signal(Signal::KILL);
        assert_eq!(address_of(&mut server.out), server.address);
        server.serving = successor;
        publish(server.address, "/news", "1");
        drop(connections);
    }
}

/// A server that hands over, and drains for as long as a connection is busy.
struct Draining {
    server: Server,
    /// A session of it, which has missed one message on `/news`.
    session: Session,
    connections: Vec<TcpStream>,
    successor: Pid,
}

impl Draining {
    fn begin(folder: &Folder) -> Draining {
        let data = folder.path("data");
        let args = ["serve", "--port", "0", "--shards", "1", "--drain-timeout-ms", "120000", "--data", &data];
        let mut server = Server::start(clean(PROGRAM, &args));
        let session = Session::open(server.address, "/news");
        publish(server.address, "/news", "1");
        let connections = busy(server.address, 1);
        assert!(ask(server.address, "GET /healthz HTTP/1.0\r\n\r\n").expect("an answer").contains("200"));
        let successor = server.begin_handover();
        Draining { server, session, connections, successor }
    }
}

#[test]
fn a_new_process_killed_while_the_old_one_drains_is_replaced() {
    let folder = Folder::new();
    let Draining { mut server, session, connections, successor } = Draining::begin(&folder);
    kill_process(successor, Signal::KILL).expect("is there");
    drop(connections);
    server.log_until("ended before it served (signal: 9 (SIGKILL)); another one is started");
    assert_serves_on(server, &session);
}

#[test]
fn a_new_process_killed_after_the_old_one_has_ended_its_work_is_replaced() {
    let folder = Folder::new();
    let Draining { mut server, session, connections, successor } = Draining::begin(&folder);
    kill_process(successor, Signal::STOP).expect("is there");
    drop(connections);
    server.log_until("sessions are saved for the next start");
    // It waits for the new process, which does nothing.
    kill_process(successor, Signal::KILL).expect("is there");
    server.log_until("another one is started");
    assert_serves_on(server, &session);
}

#[test]
fn a_new_version_that_never_serves_is_replaced_by_the_old_one() {
    let folder = Folder::new();
    let (program, data) = (folder.path("encke"), folder.path("data"));
    std::fs::copy(PROGRAM, &program).expect("copied");
    let mut server = Server::start(clean(&program, &["serve", "--port", "0", "--shards", "1", "--data", &data]));
    let session = Session::open(server.address, "/news");
    publish(server.address, "/news", "1");
    // It says that it is ready, and ends when it may begin.
    let script = "#!/bin/sh\nprintf '\\001' >&0\nhead -c 2 >/dev/null\nexit 7\n";
    std::fs::write(folder.path("new"), script).expect("written");
    std::fs::set_permissions(folder.path("new"), std::fs::Permissions::from_mode(0o755)).expect("set");
    std::fs::rename(folder.path("new"), &program).expect("renamed");
    server.begin_handover();
    server.log_until("ended before it served (exit status: 7); another one is started");
    assert_serves_on(server, &session);
}

/// One more process serves at the address, with the session and its message, and the first one ends.
fn assert_serves_on(mut server: Server, session: &Session) {
    assert_eq!(address_of(&mut server.out), server.address);
    assert_eq!(server.end(), Some(0));
    let received = session.connect(server.address);
    assert_eq!((&received[0]["data"], &received[1]["successful"]), (&json!(1), &json!(true)), "{received}");
    publish(server.address, "/news", "2");
    assert_eq!(session.connect(server.address)[0]["data"], 2);
}

#[test]
fn a_signal_during_a_handover_counts_as_the_first() {
    let args = ["serve", "--port", "0", "--shards", "1", "--drain-timeout-ms", "120000"];
    let mut server = Server::start(clean(PROGRAM, &args));
    let mut connections = busy(server.address, 1);
    assert!(ask(server.address, "GET /healthz HTTP/1.0\r\n\r\n").expect("an answer").contains("200"));
    server.signal(Signal::USR2);
    server.log_until("another server takes over");
    server.signal(Signal::TERM);
    server.log_until("a second signal ends at once");
    connections[0].write_all(b"\r\n").expect("it drains still");
    let mut answer = String::new();
    connections[0].read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_signal_during_the_start_loses_no_session() {
    let folder = Folder::new();
    let data = folder.path("data");
    let args = ["serve", "--port", "0", "--shards", "1", "--drain-timeout-ms", "0", "--data", &data];
    let mut server = Server::start(clean(PROGRAM, &args));
    let session = Session::open(server.address, "/news");
    let file = folder.0.join("data/sessions");
    for round in 0..10 {
        server.signal(Signal::TERM);
        assert_eq!(server.end(), Some(0), "round {round}");
        assert!(file.exists(), "round {round}");
        let child = clean(PROGRAM, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let log = Log::of(child.stderr.take().expect("piped"));
        server.serving = Pid::from_child(&child);
        (server.child, server.out, server.log) = (child, out, log);
        // The earliest moment at which the sessions may be outside the file.
        let began = Instant::now();
        while file.exists() && began.elapsed() < TIMEOUT {
            std::hint::spin_loop();
        }
    }
    server.signal(Signal::TERM);
    server.end();
    let server = Server::start(clean(PROGRAM, &args));
    assert_eq!(session.connect(server.address)[0]["successful"], true);
}
