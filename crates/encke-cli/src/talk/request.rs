//! `encke request`: a question to a service.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::value::RawValue;

use crate::logs::{LogFormat, LogLevel};
use crate::talk::server::Server;
use crate::talk::subscribe::in_one_line;
use crate::talk::{Failure, run};

/// Send data to a service, and print its answer.
#[derive(Args)]
pub(crate) struct Request {
    /// Such as /service/echo.
    channel: String,
    /// The data.
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    data: String,
    /// The longest time until the session is open, and until the answer, such as 500ms or 1m.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    server: Server,
}

/// Asks, and prints the data of the answer in one line.
pub(crate) fn request(Request { channel, data, timeout, server }: Request) -> ExitCode {
    LogLevel::start("warn", LogFormat::Text);
    run(async {
        let wrong = |error| format!("the data is not JSON: {error}; texts need quotes, such as '\"hello\"'");
        // As it is, with all its digits.
        let data: &RawValue = serde_json::from_str(&data).map_err(|error| Failure::usage(wrong(error)))?;
        let server = server.resolved()?;
        let client = server.connect_once(timeout).await?;
        let answer = client.request(&channel, data).await?;
        // If nobody reads it, nothing is left to do.
        let _ = writeln!(std::io::stdout().lock(), "{}", in_one_line(answer.data()));
        let _ = client.disconnect().await;
        Ok(())
    })
}
