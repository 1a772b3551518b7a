//! `[[source]]` in the configuration of the program: start, reload, stop, errors.

mod log;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use log::Log;

fn encke(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_encke"));
    command.args(args).env_clear();
    // The scripts of the sources find their programs by it.
    command.env("PATH", std::env::var("PATH").unwrap_or_default());
    command
}

fn run(args: &[&str]) -> Output {
    encke(args).output().expect("runs")
}

/// A configuration file, removed with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let file = File(std::env::temp_dir().join(format!("encke-{name}-{}.toml", std::process::id())));
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).expect("written");
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// A running server that ends with the test.
struct Server {
    child: Child,
    log: Log,
    url: String,
}

impl Server {
    fn start(file: &File) -> Server {
        let mut command = encke(&["serve", "--port", "0", "--config", file.path()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let log = Log::of(child.stderr.take().expect("piped"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("encke listening on ").expect("the address").to_string();
        Server { child, log, url }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("is there");
    }

    /// The data of the next message on a channel.
    fn next(&self, channel: &str) -> String {
        let output = run(&["subscribe", "--url", &self.url, "--count", "1", channel]).stdout;
        let message: serde_json::Value = serde_json::from_slice(&output).expect("a message");
        message["data"].to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A source that prints a text and the number of its process again and again.
fn ticker(name: &str, text: &str) -> String {
    format!(
        "[[source]]\nkind = \"command\"\nname = \"{name}\"\nchannel = \"/{name}\"\ncommand = [\"sh\", \"-c\", \
         \"while :; do echo '{{\\\"text\\\":\\\"{text}\\\",\\\"process\\\":'$$'}}'; sleep 0.02; done\"]\n"
    )
}

#[test]
fn sources_start_with_the_server_change_on_a_hangup_and_stop_with_it() {
    let file = File::new("sources", &(ticker("stays", "one") + &ticker("goes", "two")));
    let mut server = Server::start(&file);
    let first = server.next("/stays");
    assert!(first.contains("one"), "{first}");
    let gone = process_of(&server.next("/goes"));
    file.write(&(ticker("stays", "three") + &ticker("comes", "four")));
    server.signal(Signal::HUP);
    let log = server.log.until("settings reloaded");
    for line in ["starts source=\"comes\"", "stops source=\"goes\"", "has other settings source=\"stays\""] {
        assert!(log.contains(line), "no {line} in {log}");
    }
    // A message of the old program may still be under way.
    while !server.next("/stays").contains("three") {}
    let comes = process_of(&server.next("/comes"));
    assert!(!is_running(gone));
    // An error changes nothing.
    file.write("[[source]]\nkind = \"mial\"\n");
    server.signal(Signal::HUP);
    let log = server.log.until("the old settings stay in force");
    assert!(log.contains(":1: source 1: kind = \"mial\": one of mail, quotes, command, file"), "{log}");
    assert_eq!(process_of(&server.next("/comes")), comes);
    server.signal(Signal::TERM);
    server.log.until("ended");
    assert_eq!(server.child.wait().expect("ended").code(), Some(0));
    assert!(!is_running(comes));
}

#[test]
fn the_configuration_of_a_source_is_checked_and_its_password_is_never_shown() {
    let mail = "[[source]]\nkind = \"mail\"\nname = \"home\"\nhost = \"mail.example.org\"\nuser = \"ann\"\n";
    let file = File::new("secrets", &format!("{mail}password = \"hunter2\"\n"));
    let shown = run(&["config", "show", "--config", file.path()]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(text.contains("[[source]] home: mail publishes to /mail/home"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    for (wrong, expected) in [
        ("password = 7", "source \"home\": a text is expected in `password`"),
        ("pasword = \"hunter2\"", "source \"home\": pasword is no setting of a mail; there are: kind, name,"),
        ("", "source \"home\": password: one of password, password_file and password_env"),
        ("password = \"hunter2\"\nport = 70000", "in `port`"),
        ("password = \"hunter2\"\nidle_ms = 3600000", "source \"home\": idle_ms = 3600000: from 100 to 1740000"),
    ] {
        file.write(&format!("{mail}{wrong}\n"));
        let checked = run(&["config", "check", file.path()]);
        let text = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert_eq!(checked.status.code(), Some(2), "{wrong}");
        assert!(text.contains(expected) && !text.contains("hunter2"), "{text}");
    }
}

fn process_of(data: &str) -> i32 {
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    data["process"].as_i64().and_then(|process| process.try_into().ok()).expect("a process")
}

fn is_running(process: i32) -> bool {
    Pid::from_raw(process).is_some_and(|process| test_kill_process(process).is_ok())
}
