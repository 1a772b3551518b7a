//! The program as a process: servers, other commands, and folders for their files.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::log::Log;

/// A running server that ends with the test.
pub struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
    log: Log,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
}

impl Server {
    pub fn start(args: &[&str]) -> Server {
        Server::spawn(encke(&[&["serve", "--port", "0"], args].concat()))
    }

    pub fn spawn(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let log = Log::of(child.stderr.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("encke listening on ").expect("the address").to_string();
        Server { child, out, log, url }
    }

    pub fn signal(&self, signal: Signal) {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).expect("is there");
    }

    /// Reads the log up to a line that holds `text`, and returns what was read.
    pub fn log_until(&mut self, text: &str) -> String {
        self.log.until(text)
    }

    /// The exit code, and the rest of stdout.
    pub fn end(mut self) -> (Option<i32>, String) {
        let code = wait(&mut self.child);
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("text");
        (code, rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder for each call, removed with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("encke-program-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    /// Writes a file, and returns its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    /// The program in this folder.
    pub fn encke(&self, args: &[&str]) -> Command {
        let mut command = encke(args);
        command.current_dir(&self.0);
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn encke(args: &[&str]) -> Command {
    alone(Command::new(env!("CARGO_BIN_EXE_encke")), args)
}

/// The program in an environment without its settings, in a folder without a configuration.
pub fn alone(mut command: Command, args: &[&str]) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ENCKE_") {
            command.env_remove(name);
        }
    }
    command.args(args).current_dir(std::env::temp_dir());
    command
}

pub fn run(args: &[&str]) -> Output {
    encke(args).output().expect("runs")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Waits for the end, for a bounded time.
pub fn wait(child: &mut Child) -> Option<i32> {
    let began = Instant::now();
    while began.elapsed() < TIMEOUT {
        if let Some(status) = child.try_wait().expect("waits") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it does not end");
}

/// The time after which a test gives up.
pub const TIMEOUT: Duration = Duration::from_secs(120);
