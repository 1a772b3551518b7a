//! `encke publish` and `encke subscribe`: small clients for people and scripts.

use std::future::Future;
use std::io::Write;
use std::process::ExitCode;

use clap::ArgMatches;
use encke_client::{Client, Error, Gap, GapCause, Message, RawJson, ReplayFrom, Transport};
use tokio::signal::unix::{SignalKind, signal};

use crate::logs::{LogFormat, LogLevel};
use crate::{FAILED, UNREACHABLE, USAGE, complain};

/// Publishes one message and waits for the server's reply.
pub(crate) fn publish(matches: &ArgMatches) -> ExitCode {
    let (url, channel, data) = (text(matches, "url"), text(matches, "channel"), text(matches, "data"));
    let data = match RawJson::parse(&data) {
        Ok(data) => data,
        Err(error) => {
            complain(&format_args!("the data is not JSON: {error}; texts need quotes, such as '\"hello\"'"));
            return ExitCode::from(USAGE);
        }
    };
    run(async {
        let client = Client::builder().reconnect(false).transport(transport(matches)).connect(&url).await?;
        client.publish_raw(&channel, data).await?;
        // The message has arrived; a disconnect that gets lost changes nothing.
        let _ = client.disconnect().await;
        Ok(())
    })
}

/// Prints messages until their limit is reached, or until a signal.
pub(crate) fn subscribe(matches: &ArgMatches) -> ExitCode {
    let url = text(matches, "url");
    let channels: Vec<&String> = matches.get_many("channel").into_iter().flatten().collect();
    let count: u64 = matches.get_one("count").copied().unwrap_or(u64::MAX);
    LogLevel::start("warn", LogFormat::Text);
    run(async {
        let mut builder = Client::builder().transport(transport(matches)).ack(matches.get_flag("ack"));
        if let Some(position) = matches.get_one("replay").copied() {
            builder = builder.replay(replay_from(position));
        }
        let client = builder.connect(&url).await?;
        let mut subscription = client.subscribe_all(&channels).await?;
        let mut printed = 0;
        while printed < count {
            match subscription.next().await {
                Some(Ok(message)) if print(&message) => printed += 1,
                Some(Ok(_)) => break,
                Some(Err(gap)) => complain(&gap_text(&gap)),
                None => return client.closed().await,
            }
        }
        let _ = client.disconnect().await;
        Ok(())
    })
}

/// Prints one line. False if the reader of the output is gone.
fn print(message: &Message) -> bool {
    let mut out = std::io::stdout().lock();
    // JSON allows line breaks only between its parts. There a space has the same meaning.
    let data = message.data().as_str().replace(['\n', '\r'], " ");
    let channel = serde_json::Value::from(&*message.channel);
    writeln!(out, r#"{{"channel":{channel},"data":{data}}}"#).and_then(|()| out.flush()).is_ok()
}

/// The line for a gap.
fn gap_text(gap: &Gap) -> String {
    let channel = &gap.channel;
    match gap.cause {
        GapCause::NotRetained { first, last, .. } => format!("{channel}: messages {first} to {last} are gone"),
        GapCause::Unknown => format!("{channel}: messages may be missing here: the server cannot tell"),
        _ => gap.to_string(),
    }
}

/// The point at which `--replay` begins.
fn replay_from(position: i64) -> ReplayFrom {
    match position {
        -1 => ReplayFrom::Latest,
        -2 => ReplayFrom::Earliest,
        offset => ReplayFrom::After { offset: offset.unsigned_abs(), epoch: None },
    }
}

/// Runs until it is done or a signal comes, and turns the outcome into an exit code.
fn run(work: impl Future<Output = Result<(), Error>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&error);
            return ExitCode::from(FAILED);
        }
    };
    let outcome = runtime.block_on(async {
        let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            return work.await;
        };
        tokio::select! {
            outcome = work => outcome,
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    });
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    complain(&error);
    ExitCode::from(match error {
        Error::Url { .. } => USAGE,
        Error::Unreachable { .. } => UNREACHABLE,
        _ => FAILED,
    })
}

fn transport(matches: &ArgMatches) -> Transport {
    match text(matches, "transport").as_str() {
        "websocket" => Transport::WebSocket,
        "long-polling" => Transport::LongPolling,
        _ => Transport::Auto,
    }
}

fn text(matches: &ArgMatches, id: &str) -> String {
    matches.get_one::<String>(id).cloned().unwrap_or_default()
}
