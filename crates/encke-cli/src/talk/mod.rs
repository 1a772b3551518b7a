//! The commands that speak to a server: small clients for people and scripts.

mod api;
mod context;
mod positions;
mod publish;
mod request;
mod server;
mod subscribe;

use std::fmt;
use std::future::Future;
use std::process::ExitCode;

use encke_client::Error;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use api::{Disconnect, History, Presence, Sessions, disconnect, history, presence, sessions};
pub(crate) use context::{ContextCommand, run as context};
pub(crate) use publish::{Publish, publish};
pub(crate) use request::{Request, request};
pub(crate) use subscribe::{Subscribe, subscribe};

use crate::{FAILED, INTERRUPTED, UNREACHABLE, USAGE, complain};

/// The exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 all is well, 1 refused or failed, 2 used or configured wrongly, 3 no server answers, 130 interrupted.";

/// The reason why a command failed, in one line, and its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    /// Refused, or failed on the way.
    pub(crate) fn new(text: String) -> Failure {
        Failure { text, code: FAILED }
    }

    /// Used or configured wrongly.
    pub(crate) fn usage(text: String) -> Failure {
        Failure { text, code: USAGE }
    }

    /// No server answers.
    pub(crate) fn unreachable(text: String) -> Failure {
        Failure { text, code: UNREACHABLE }
    }

    /// A signal has come before it was done.
    pub(crate) fn interrupted(text: &str) -> Failure {
        Failure { text: text.into(), code: INTERRUPTED }
    }

    /// Tells the user.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.text.is_empty() {
            complain(&self.text);
        }
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match error {
            Error::Url { .. } | Error::TlsFile { .. } => USAGE,
            Error::Unreachable { .. } => UNREACHABLE,
            _ => FAILED,
        };
        Failure { text: error.to_string(), code }
    }
}

/// Runs until it is done or a signal comes, and turns the outcome into an exit code.
fn run(work: impl Future<Output = Result<(), Failure>>) -> ExitCode {
    run_to_its_end(async {
        tokio::select! {
            outcome = work => outcome,
            () = stopped() => Err(Failure::interrupted("interrupted")),
        }
    })
}

/// Runs until it is done, and turns the outcome into an exit code.
fn run_to_its_end(work: impl Future<Output = Result<(), Failure>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::new(error.to_string()).report(),
    };
    runtime.block_on(work).map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

/// Ready when Ctrl-C or SIGTERM asks the program to stop.
async fn stopped() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
