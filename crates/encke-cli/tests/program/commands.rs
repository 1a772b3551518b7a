//! Commands, exit codes, output lines, signals.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Folder, Server, TIMEOUT, alone, encke, run, text, wait};

/// True if a response is complete according to its length.
fn is_whole(response: &str) -> bool {
    let Some((head, body)) = response.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.is_none_or(|length| length.parse().is_ok_and(|length: usize| body.len() >= length))
}

#[test]
fn a_subscriber_prints_published_data_byte_for_byte() {
    let server = Server::start(&[]);
    let args = ["subscribe", "/chat/**", "/news", "--count", "2", "--url", &server.url];
    let mut subscriber = encke(&args).stdout(Stdio::piped()).spawn().expect("starts");
    let mut out = BufReader::new(subscriber.stdout.take().expect("piped"));
    let data = r#"{"n":12345678901234567890, "text":"ümlaut \u0041"}"#;
    // The subscriber has no signal of readiness, so the first message is repeated until it is received.
    let (mut line, is_received) = (String::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_received.load(Ordering::Relaxed) {
                let args = ["publish", "/chat/demo", data, "--url", &server.url, "--transport", "long-polling"];
                assert_eq!(run(&args).status.code(), Some(0));
            }
        });
        out.read_line(&mut line).expect("a line");
        is_received.store(true, Ordering::Relaxed);
    });
    assert_eq!(line.trim_end(), format!(r#"{{"channel":"/chat/demo","data":{data}}}"#));
    let _ = subscriber.kill();
    let _ = subscriber.wait();
}

#[test]
fn a_subscriber_begins_at_the_requested_position() {
    let server = Server::start(&["--set", r#"channels=[{pattern="/stored/**",history_messages=10,compress=true}]"#]);
    for number in 0..3 {
        let args = ["publish", "/stored/a", &format!(r#"{{"n":{number}}}"#), "--url", &server.url];
        assert_eq!(run(&args).status.code(), Some(0));
    }
    let printed = |more: &[&str]| {
        let output = run(&[&["subscribe", "/stored/a", "--url", &server.url], more].concat());
        let lines = text(&output.stdout);
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<serde_json::Value>>()
    };
    let all = printed(&["--replay", "-2", "--count", "3"]);
    let numbers: Vec<_> = all.iter().map(|message| message["data"]["n"].as_u64()).collect();
    assert_eq!(numbers, [Some(0), Some(1), Some(2)]);
    let (_, second) = all[1]["position"].as_str().and_then(|position| position.split_once('-')).expect("a position");
    assert_eq!(printed(&["--replay", second, "--ack", "--compress", "--count", "1"]), all[2..]);
    let args = ["subscribe", "/stored/a", "--replay", "1", "--count", "1", "--url", &server.url];
    assert!(text(&run(&args).stderr).starts_with("encke: /stored/a: messages 2 to "), "lost messages are reported");
}

#[test]
fn a_subscriber_stops_after_its_count_and_on_a_signal() {
    let server = Server::start(&[]);
    for is_counting in [true, false] {
        let count = if is_counting { "1" } else { "1000000" };
        let args = ["subscribe", "/news", "--count", count, "--url", &server.url];
        let mut subscriber = encke(&args).stdout(Stdio::piped()).spawn().expect("starts");
        let began = Instant::now();
        while subscriber.try_wait().expect("waits").is_none() && began.elapsed() < TIMEOUT {
            assert_eq!(run(&["publish", "/news", "1", "--url", &server.url]).status.code(), Some(0));
            if !is_counting {
                // A signal that arrives while the handler is being installed may get lost.
                kill_process(Pid::from_child(&subscriber), Signal::INT).expect("is there");
            }
        }
        let code = wait(&mut subscriber);
        // A signal before the handler is installed kills the program: then there is no exit code.
        assert!(code == Some(0) || (!is_counting && code.is_none()), "{code:?}");
    }
}

#[test]
fn a_refused_message_is_reported_with_the_bayeux_error() {
    let server = Server::start(&[]);
    let output = run(&["publish", "/chat//x", "1", "--url", &server.url]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "encke: /chat//x refused: 405::channel_invalid\n");
}

#[test]
fn the_demo_runs_unless_it_is_switched_off() {
    let bad = |channel| ["publish", channel, r#"{"user":"a","chat":"dang"}"#, "--url"];
    for (flags, own, cometds) in [(&[][..], 1, 0), (&["--no-demo"][..], 0, 0), (&["--demo-cometd-channels"][..], 1, 1)]
    {
        let server = Server::start(flags);
        for (channel, code) in [("/demo/chat/lobby", own), ("/chat/demo", cometds)] {
            let output = run(&[&bad(channel)[..], &[&server.url]].concat());
            assert_eq!(output.status.code(), Some(code), "{flags:?} {channel}: {}", text(&output.stderr));
        }
    }
}

#[test]
fn an_error_is_one_line_and_an_exit_code() {
    // A listener that never answers with HTTP, and a port without a listener.
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = other.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in other.incoming().flatten() {
            let _ = (&stream).write_all(b"SSH-2.0-something\r\n\r\n");
        }
    });
    let other = format!("http://{address}");
    let cases: &[(&[&str], i32, &str)] = &[
        (&["publish", "/a", "1", "--url", "http://127.0.0.1:1"], 3, "encke: cannot reach 127.0.0.1:1: "),
        (&["publish", "/a", "1", "--url", &other], 1, "encke: no Bayeux server at 127.0.0.1:"),
        (&["publish", "/a", "1", "--url", "ftp://a"], 2, "encke: ftp://a is not a URL for a Bayeux server: "),
        (&["publish", "/a", "hello"], 2, "encke: the data is not JSON: "),
        (&["publish", "/a"], 2, "encke: "),
        (&["publish", "/a", "1", "--transport", "pigeon"], 2, "encke: "),
        (&["serve", "--timout-ms", "5"], 2, "encke: --timout-ms: there is no such flag; did you mean --timeout-ms?"),
        (&["serve", "--timeout-ms", "soon"], 2, "encke: --timeout-ms: timeout_ms = \"soon\": a whole number"),
        (&["serve", "--set", "seti.x=7"], 2, "encke: --set seti.x: CometD's option has no equivalent: "),
        (&["serve", "--config", "/nowhere.toml"], 2, "encke: /nowhere.toml: "),
        (&["serve", "--listen", "192.0.2.1:8080"], 1, "encke: "),
        (&["serve", "--port", "0", "--data", "/proc/a"], 1, "encke: cannot use /proc/a as the data directory: "),
        (&["serve", "--port", "0", "--data", "/dev/null"], 1, "encke: cannot use /dev/null as the data directory: "),
    ];
    for (args, code, start) in cases {
        let output = run(args);
        let stderr = text(&output.stderr);
        let complaints: Vec<&str> = stderr.lines().filter(|line| line.starts_with("encke: ")).collect();
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {stderr}");
        assert!(complaints.len() == 1 && complaints[0].starts_with(start), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_variable_with_a_wrong_name_is_refused() {
    let output = encke(&["config", "check"]).env("ENCKE_TIMOUT_MS", "5").output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean ENCKE_TIMEOUT_MS?"));
}

#[test]
fn a_file_is_written_once_and_passes_its_check() {
    let folder = Folder::new();
    let init = || encke(&["config", "init"]).current_dir(&folder.0).output().expect("runs");
    assert_eq!(init().status.code(), Some(0));
    let again = init();
    assert_eq!(again.status.code(), Some(1), "it must not be overwritten");
    assert_eq!(text(&again.stderr), "encke: encke.toml is there already and stays as it is\n");
    let check = encke(&["config", "check"]).current_dir(&folder.0).output().expect("runs");
    assert_eq!((check.status.code(), text(&check.stdout)), (Some(0), "encke.toml: good\n".into()));
}

#[test]
fn show_prints_the_source_of_each_setting() {
    let folder = Folder::new();
    folder.write("encke.toml", "timeout_ms = 5000\n");
    let mut command = encke(&["config", "show", "--set", "maxInterval=7000"]);
    let output = command.current_dir(&folder.0).env("ENCKE_SHARDS", "2").output().expect("runs");
    let shown = text(&output.stdout);
    for line in [
        "timeout_ms = 5000  # encke.toml:1",
        "shards = 2  # ENCKE_SHARDS",
        "max_interval_ms = 7000  # --set",
        "interval_ms = 0",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} is missing in\n{shown}");
    }
    let again = folder.write("encke.toml", &shown);
    assert_eq!(run(&["config", "check", &again]).status.code(), Some(0), "what is shown is a file itself");
}

#[test]
fn a_signal_drains_and_ends_cleanly() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(&[]);
        server.signal(signal);
        server.log_until("draining");
        assert_eq!(server.end(), (Some(0), String::new()), "stdout has one line only");
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut server = Server::start(&["--drain-timeout-ms", "600000", "--request-timeout-ms", "600000"]);
    // An endless request prolongs the drain; the one before it shows that the connection was accepted.
    let address = server.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("connects");
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("writes");
    assert_ne!(stream.read(&mut [0; 1024]).expect("an answer"), 0);
    stream.write_all(b"GET /healthz HTTP/1.1\r\n").expect("writes");
    server.signal(Signal::TERM);
    server.log_until("draining");
    server.signal(Signal::INT);
    assert_eq!(server.end().0, Some(130));
}

#[test]
fn a_hangup_applies_changes_and_a_bad_file_changes_nothing() {
    let folder = Folder::new();
    let path = folder.write("encke.toml", "log = \"info\"\nmax_interval_ms = 9000\nshards = 1\n");
    let mut server = Server::start(&["--config", &path]);
    folder.write("encke.toml", "log = \"info\"\nmax_interval_ms = 8000\nshards = 2\n");
    server.signal(Signal::HUP);
    let log = server.log_until("settings reloaded");
    assert!(log.contains("max_interval_ms: 9000 is now 8000"), "{log}");
    assert!(log.contains("shards: 1 stays until a restart, then 2"), "{log}");
    folder.write("encke.toml", "max_interval_ms = \"soon\"\n");
    server.signal(Signal::HUP);
    let log = server.log_until("the old settings stay in force");
    assert!(log.contains(":1: max_interval_ms = \"soon\": a whole number"), "{log}");
    assert_eq!(run(&["publish", "/a", "1", "--url", &server.url]).status.code(), Some(0));
}

/// The log names the number of connections that the limit of open files allows, and that many are served.
#[test]
fn as_many_connections_are_served_as_the_log_reports() {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"ulimit -n 256; exec "$0" "$@""#, env!("CARGO_BIN_EXE_encke")]);
    let mut server = Server::spawn(alone(shell, &["serve", "--port", "0", "--shards", "2"]));
    let log = server.log_until("limit of open files");
    let room = log.rsplit_once("room=").and_then(|(_, room)| room.trim().parse().ok()).expect("a number");
    assert!((200..256).contains(&room), "{log}");
    let address = server.url.trim_start_matches("http://");
    let get = |mut stream: &TcpStream, path: &str| {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("writes");
        let (mut read, mut some) = (String::new(), [0; 8192]);
        while !is_whole(&read) {
            let length = stream.read(&mut some).expect("an answer");
            assert_ne!(length, 0, "the end in {read}");
            read += &text(&some[..length]);
        }
        read
    };
    let connect = || TcpStream::connect(address).expect("connects");
    let served: Vec<TcpStream> = (0..room).map(|_| connect()).collect();
    for stream in &served {
        assert!(get(stream, "/healthz").starts_with("HTTP/1.1 200"));
    }
    // And not many more.
    let _waiting: Vec<TcpStream> = (0..8).map(|_| connect()).collect();
    let began = Instant::now();
    while get(&served[0], "/metrics").contains("encke_accept_failures_total 0\n") {
        assert!(began.elapsed() < TIMEOUT, "there was more room than the log says");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn logs_may_be_json() {
    let mut server = Server::start(&["--log-format", "json"]);
    server.signal(Signal::TERM);
    let log = server.log_until("draining");
    let line = log.lines().last().expect("a line");
    let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(value["level"], "INFO");
}
