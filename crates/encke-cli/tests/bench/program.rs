//! The program, as a server and as a load.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A running server that ends with the test.
pub(crate) struct Server {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::with(&[])
    }

    /// Starts it with these additional arguments.
    pub(crate) fn with(args: &[&str]) -> Server {
        let mut command = encke(&[&["serve", "--port", "0", "--shards", "1"], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("encke listening on ").expect("the address").to_string();
        Server { child, url }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program in an environment without its settings, in a folder without a configuration.
pub(crate) fn encke(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_encke"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ENCKE_") {
            command.env_remove(name);
        }
    }
    command.args(args).current_dir(std::env::temp_dir());
    command
}

/// `encke bench` with the words of `line`, against `url`.
pub(crate) fn bench(url: &str, line: &str) -> Command {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut command = encke(&[&["bench"], &words[..]].concat());
    command.env("ENCKE_URL", url);
    command
}

/// Runs it. It runs again if the load or the server could not keep up, as happens on a busy machine.
fn output(url: &str, line: &str) -> Output {
    keeping_up(|| (bench(url, line).output().expect("runs"), ())).0
}

/// Runs the load, again if it or the server could not keep up. A run with another fault is final.
pub(crate) fn keeping_up<T>(mut run: impl FnMut() -> (Output, T)) -> (Output, T) {
    let mut last = run();
    for _ in 1..RUNS_MAX {
        let printed = text(&last.0.stdout) + " " + &text(&last.0.stderr);
        // A sentence may go on in the next line.
        let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ").replace(FAULTLESS, "");
        let says = |reasons: &[&str]| reasons.iter().any(|reason| printed.contains(reason));
        if !says(&BEHIND) || says(&FINAL) {
            break;
        }
        last = run();
    }
    last
}

/// Runs it, and parses the report of `--json` on stdout; the run must hold.
pub(crate) fn report(url: &str, line: &str) -> Value {
    let output = output(url, &format!("{line} --quiet --json"));
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{line}: {printed}");
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}: {printed}"));
    assert_eq!(report["holds"], true, "{line}: {report}");
    for trial in report["trials"].as_array().expect("trials") {
        assert_eq!(trial["faults"]["lost"], 0, "{line}: {trial}");
    }
    report
}

/// Runs it. Returns the exit code, stdout and stderr.
pub(crate) fn run(url: &str, line: &str) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = output(url, line);
    (status.code(), text(&stdout), text(&stderr))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Runs these cases side by side: each waits most of its time.
pub(crate) fn each<T: Copy + Send>(cases: &[T], check: impl Fn(T) + Sync) {
    let check = &check;
    std::thread::scope(|scope| {
        for case in cases {
            let case = *case;
            scope.spawn(move || check(case));
        }
    });
}

/// Waits for the end, for a bounded time.
pub(crate) fn wait(child: &mut Child) -> Option<i32> {
    let began = Instant::now();
    while began.elapsed() < TIMEOUT {
        if let Some(status) = child.try_wait().expect("waits") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    panic!("it does not end");
}

/// The time after which a test gives up.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// The number of runs after which the machine counts as too slow.
pub(crate) const RUNS_MAX: usize = 20;

/// The texts of a trial in which the load or the server could not keep up.
const BEHIND: [&str; 2] = ["the load itself stayed behind", "did not keep up"];

/// The text of a report without faults.
const FAULTLESS: &str = "Nothing lost, doubled, out of order, misdelivered or late; no session dropped.";

/// The texts of a trial with a fault that no second run excuses.
const FINAL: [&str; 4] = ["never arrived", "more than once", "out of order", "had not subscribed"];
