//! `kind = "command"`: each line that a program prints is a message.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use encke::Secret;
use serde::Deserialize;
use tokio::io::{AsyncRead, BufReader};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::check::Check;
use crate::lines::{self, Line, too_long};
use crate::program::Program;
use crate::publisher::Publisher;
use crate::run::{End, Failure, Stop};

encke::settings! {
    /// The settings of a source of this kind.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[non_exhaustive]
    pub struct CommandSettings;

    "The program" {
        /// The program and its arguments. No shell is involved.
        command: Vec<String> = Vec::new();
        /// The folder it runs in. Empty: that of the server.
        folder: String = String::new();
        /// Variables of its environment. Of the server's it has only the usual ones, such as `PATH`, `HOME` and `LANG`.
        environment: BTreeMap<String, Secret> = BTreeMap::new();
        /// The names of further variables that it gets from the server's environment.
        pass: Vec<String> = Vec::new();
        /// When it runs again.
        restart: Restart = Restart::Always;
        /// Longest line, in bytes. A longer one is not published.
        line_bytes_max: usize = 65_536;
        /// Time that it has to end when the source stops, in milliseconds. Then it is killed.
        stop_ms: u64 = 1_000;
    }
}

/// The ends of a program after which it runs again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// All.
    #[default]
    Always,
    /// Ends with another exit code than 0, or by a signal.
    Failure,
    /// None.
    Never,
}

impl CommandSettings {
    /// The environment of the program.
    fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let passed = BASICS.iter().copied().chain(self.pass.iter().map(String::as_str));
        let passed = passed.filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
        passed.chain(self.environment.iter().map(|(name, value)| (name.into(), value.reveal().into())))
    }

    pub(crate) fn check(&self, check: &mut Check<'_>) {
        let is_named = self.command.first().is_some_and(|program| !program.is_empty());
        check.that(is_named, format_args!("command = {:?}: a program and its arguments", self.command));
        for name in self.environment.keys().chain(&self.pass) {
            let is_name = !name.is_empty() && !name.contains(['=', '\0']);
            check.that(is_name, format_args!("environment: {name:?} is no name of a variable"));
            let is_once = !(self.environment.contains_key(name) && self.pass.contains(name));
            check.that(is_once, format_args!("environment: {name:?} is in pass, too"));
        }
        let is_text = |value: &Secret| !value.reveal().contains('\0');
        check.that(self.environment.values().all(is_text), "environment: a value has a zero byte");
        check.range("line_bytes_max", self.line_bytes_max as u64, 1..=16 * 1024 * 1024);
        check.range("stop_ms", self.stop_ms, 0..=2_000);
    }
}

/// Runs the program once.
pub(crate) async fn run(
    settings: &CommandSettings,
    channel: &str,
    publisher: &Publisher,
    mut stop: Stop,
) -> Result<End, Failure> {
    let name = settings.command.first().map_or("", String::as_str);
    let mut program = Program::start(&settings.command, &settings.folder, settings.environment())
        .map_err(|error| format!("{name}: {error}"))?;
    let (output, errors) = (program.child.stdout.take(), program.child.stderr.take());
    let (ended, has_ended) = watch::channel(false);
    let output = async {
        if let Some(output) = output {
            publish(output, settings.line_bytes_max, channel, publisher, has_ended.clone()).await;
        }
    };
    let errors = async {
        if let Some(errors) = errors {
            log(errors, publisher.name(), has_ended.clone()).await;
        }
    };
    let end = async {
        let status = tokio::select! {
            status = program.child.wait() => Some(status),
            () = stop.ordered() => None,
        };
        if status.is_none() {
            program.terminate();
            // The order came first, so the status means nothing.
            drop(timeout(Duration::from_millis(settings.stop_ms), program.child.wait()).await);
        }
        // Processes that it has left behind would hold its output open.
        program.kill();
        ended.send_replace(true);
        status
    };
    let (status, (), ()) = tokio::join!(end, output, errors);
    let status = match status {
        Some(status) => status?,
        None => return Ok(End::Finished),
    };
    match (settings.restart, status.success()) {
        (Restart::Always, true) => Ok(End::Again),
        (Restart::Always | Restart::Failure, false) => Err(format!("{name}: {status}").into()),
        (Restart::Never, false) => {
            publisher.fault(format_args!("{name}: {status}"));
            Ok(End::Finished)
        }
        (Restart::Failure | Restart::Never, true) => Ok(End::Finished),
    }
}

/// Publishes each line.
async fn publish(
    output: impl AsyncRead + Unpin,
    line_bytes_max: usize,
    channel: &str,
    publisher: &Publisher,
    has_ended: watch::Receiver<bool>,
) {
    let (mut output, mut line) = (BufReader::new(output), Vec::new());
    loop {
        let read = tokio::select! {
            biased;
            read = lines::next(&mut output, &mut line, line_bytes_max) => read,
            () = leftover_time(has_ended.clone()) => return,
        };
        match read {
            Ok(Line::Whole) => {
                publisher.works();
                publisher.publish_line(channel, &line).await;
            }
            Ok(Line::TooLong) => publisher.fault(too_long(line_bytes_max)),
            Ok(Line::End) | Err(_) => return,
        }
    }
}

/// Logs each line, up to a number per minute.
async fn log(errors: impl AsyncRead + Unpin, source: &str, has_ended: watch::Receiver<bool>) {
    let (mut errors, mut line) = (BufReader::new(errors), Vec::new());
    let (mut minute, mut logged) = (Instant::now(), 0);
    loop {
        let read = tokio::select! {
            biased;
            read = lines::next(&mut errors, &mut line, ERROR_LINE_BYTES_MAX) => read,
            () = leftover_time(has_ended.clone()) => return,
        };
        if matches!(read, Ok(Line::End) | Err(_)) {
            return;
        }
        if minute.elapsed() >= MINUTE {
            (minute, logged) = (Instant::now(), 0);
        }
        logged += 1;
        if logged <= ERROR_LINES_PER_MINUTE_MAX {
            let text = String::from_utf8_lossy(line.trim_ascii_end());
            tracing::info!(source, "stderr: {text}");
        } else if logged == ERROR_LINES_PER_MINUTE_MAX + 1 {
            tracing::warn!(
                source,
                "stderr has more than {ERROR_LINES_PER_MINUTE_MAX} lines a minute; the others are not logged"
            );
        }
    }
}

/// Waits until the program has ended, and then for what is still in its pipes: a process outside of its group may hold them open.
async fn leftover_time(mut has_ended: watch::Receiver<bool>) {
    drop(has_ended.wait_for(|ended| *ended).await);
    sleep(LEFTOVER_TIME).await;
}

/// The time in which a pipe of an ended program must have something to read.
const LEFTOVER_TIME: Duration = Duration::from_millis(200);

const MINUTE: Duration = Duration::from_secs(60);

/// The variables that every program gets from the server's environment. Others may be secrets, such as those that `secret_env` names.
const BASICS: [&str; 12] =
    ["HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];

/// Most bytes of a line of stderr that are logged.
const ERROR_LINE_BYTES_MAX: usize = 1_000;

/// Most lines of stderr that are logged in a minute.
const ERROR_LINES_PER_MINUTE_MAX: u32 = 100;
