//! `encke subscribe`: prints messages.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use clap::{Args, value_parser};
use encke_client::{Gap, GapCause, Message, Position, RawJson, ReplayFrom, Subscription};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::complain;
use crate::logs::{LogFormat, LogLevel};
use crate::talk::positions::Positions;
use crate::talk::server::Server;
use crate::talk::{Failure, run_to_its_end, stopped};

/// Print messages, one line of JSON each.
#[derive(Args)]
pub(crate) struct Subscribe {
    /// Such as /chat/demo or /chat/**.
    #[arg(value_name = "CHANNEL", required = true)]
    channels: Vec<String>,
    /// The position in the history of each channel: -1 now, -2 all stored messages, N or EPOCH-N after message N; continues there after
    /// a break.
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true, value_parser = parse_position)]
    replay: Option<ReplayFrom>,
    /// Begin with the latest N stored messages of each channel.
    #[arg(long, value_name = "N", conflicts_with_all = ["replay", "since"])]
    last: Option<u64>,
    /// Begin with the stored messages of the last time: a number and s, m, h or d.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, conflicts_with = "replay")]
    since: Option<Duration>,
    /// Keep the positions in this file, and go on there the next time. The first time begins now, or as --replay, --last or --since
    /// say. Channels of a pattern of which nothing came begin with their oldest stored message the next time.
    #[arg(long, value_name = "FILE")]
    positions: Option<PathBuf>,
    /// Acknowledge messages, so that a break loses none while the server knows the session.
    #[arg(long)]
    ack: bool,
    /// Let the server compress messages on a WebSocket.
    #[arg(long)]
    compress: bool,
    /// Stop after so many messages.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print the data alone.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    server: Server,
}

/// Prints messages until their limit is reached, or until a signal.
pub(crate) fn subscribe(options: Subscribe) -> ExitCode {
    LogLevel::start("warn", LogFormat::Text);
    // It ends by itself at a signal, when the positions are stored.
    run_to_its_end(async {
        let from = options.from();
        let server = options.server.resolved()?;
        let mut positions = options.positions.as_deref().map(Positions::read).transpose()?;
        let mut builder = server.client()?.ack(options.ack).compress(options.compress);
        let asks_for_stored = matches!(from, Some(ReplayFrom::Earliest | ReplayFrom::Last(_) | ReplayFrom::LastMs(_)));
        if let Some(from) = begin(from, positions.as_ref()) {
            builder = builder.replay(from);
        }
        if let Some(positions) = &positions {
            builder = builder.resume_at(positions.all());
        }
        let subscribed = async {
            let client = builder.connect(server.url()).await?;
            let subscription = client.subscribe_all(&options.channels).await?;
            Ok::<_, Failure>((client, subscription))
        };
        let (client, subscription) = tokio::select! {
            subscribed = subscribed => subscribed?,
            () = stopped() => return Ok(()),
        };
        if asks_for_stored {
            warn_of_missing(&options.channels, &subscription.positions().await?);
        }
        let left = options.count.unwrap_or(u64::MAX);
        let mut printer = Printer { subscription, left, is_raw: options.raw };
        printer.print_all(positions.as_mut()).await?;
        let _ = client.disconnect().await;
        Ok(())
    })
}

impl Subscribe {
    /// The point at which channels are to begin.
    fn from(&self) -> Option<ReplayFrom> {
        let since = self.since.map(|since| ReplayFrom::LastMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)));
        self.replay.clone().or(self.last.map(ReplayFrom::Last)).or(since)
    }
}

/// The point at which channels without a position begin. After an earlier run these are channels of a pattern of which nothing came: what
/// is stored there has not been printed.
fn begin(from: Option<ReplayFrom>, positions: Option<&Positions>) -> Option<ReplayFrom> {
    match (from, positions) {
        (_, Some(positions)) if positions.is_resumed() => Some(ReplayFrom::Earliest),
        (Some(from), _) => Some(from),
        (None, Some(_)) => Some(ReplayFrom::Latest),
        (None, None) => None,
    }
}

/// Names the channels that have no history. Of a pattern nobody knows the channels.
fn warn_of_missing(channels: &[String], positions: &[(String, Position)]) {
    let is_missing = |channel: &&String| {
        !channel.ends_with('*') && !positions.iter().any(|(with_history, _)| with_history == *channel)
    };
    for channel in channels.iter().filter(is_missing) {
        complain(&format_args!("{channel} has no history: no stored messages come first"));
    }
}

/// Prints the items of a subscription.
struct Printer {
    subscription: Subscription,
    /// The messages that may still be printed.
    left: u64,
    is_raw: bool,
}

impl Printer {
    /// Prints until the limit is reached, the reader of the output is gone, or a signal comes. Stores positions now and then, and at the
    /// end.
    async fn print_all(&mut self, mut positions: Option<&mut Positions>) -> Result<(), Failure> {
        let mut stop = Box::pin(stopped());
        let mut store = interval(STORE_EVERY);
        store.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut goes_on = self.left > 0;
        if let Some(positions) = &mut positions {
            // Silent channels have positions, too.
            goes_on = goes_on && self.note(positions).await?;
        }
        while goes_on {
            tokio::select! {
                item = self.subscription.next() => match item {
                    Some(item) => goes_on = self.print(item, positions.as_deref_mut()),
                    None => return Ok(self.subscription.client().closed().await?),
                },
                _ = store.tick(), if positions.is_some() => {
                    if let Some(positions) = &mut positions {
                        goes_on = self.note(positions).await?;
                    }
                }
                () = &mut stop => {
                    if let Some(positions) = &mut positions {
                        self.note(positions).await?;
                    }
                    goes_on = false;
                }
            }
        }
        positions.map_or(Ok(()), Positions::store)
    }

    /// Prints an item. False if it was the last one.
    fn print(&mut self, item: Result<Message, Gap>, positions: Option<&mut Positions>) -> bool {
        match item {
            Ok(message) => {
                let is_printed = self.print_message(&message);
                if let (true, Some(positions), Some(position)) = (is_printed, positions, message.position) {
                    positions.set(vec![(message.channel.into(), position)]);
                }
                self.left -= u64::from(is_printed);
                is_printed && self.left > 0
            }
            Err(gap) => {
                complain(&gap_text(&gap));
                true
            }
        }
    }

    /// Prints what waits, and stores where the session is then. False if a message was the last one.
    async fn note(&mut self, positions: &mut Positions) -> Result<bool, Failure> {
        for _ in 0..NOTE_TRIES_MAX {
            let mut reached = self.subscription.positions().await?;
            let (mut printed, until) = (BTreeSet::new(), Instant::now() + STORE_EVERY);
            let mut items = 0;
            while Instant::now() < until
                && let Some(item) = self.ready().await
            {
                printed.extend(item.as_ref().map(|message| message.channel.to_string()));
                if !self.print(item, Some(positions)) {
                    positions.store()?;
                    return Ok(false);
                }
                items += 1;
            }
            // With more of them, some may have waited outside of the buffer.
            if items < NOTE_MESSAGES_MAX {
                // Those of messages printed since then are ahead.
                reached.retain(|(channel, _)| !printed.contains(channel));
                positions.set(reached);
                break;
            }
        }
        positions.store()?;
        Ok(true)
    }

    /// An item that is there already.
    async fn ready(&mut self) -> Option<Result<Message, Gap>> {
        let mut next = Box::pin(self.subscription.next());
        poll_fn(|context| match next.as_mut().poll(context) {
            Poll::Ready(item) => Poll::Ready(item),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    /// Prints one line. False if the reader of the output is gone.
    fn print_message(&self, message: &Message) -> bool {
        let mut out = std::io::stdout().lock();
        let written = if self.is_raw {
            writeln!(out, "{}", in_one_line(message.data()))
        } else {
            let channel = serde_json::Value::from(&*message.channel);
            let position = message.position.as_ref().map(|at| format!(r#","position":"{}-{}""#, at.epoch, at.offset));
            let position = position.unwrap_or_default();
            writeln!(out, r#"{{"channel":{channel},"data":{}{position}}}"#, in_one_line(message.data()))
        };
        written.and_then(|()| out.flush()).is_ok()
    }
}

/// JSON allows line breaks only between its parts. There a space has the same meaning.
pub(crate) fn in_one_line(data: RawJson<'_>) -> String {
    data.as_str().replace(['\n', '\r'], " ")
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

/// Reads the position of `--replay`.
fn parse_position(text: &str) -> Result<ReplayFrom, String> {
    let wrong = || "-1, -2, a number, or a position such as k3jd9a2f-17".to_owned();
    match text {
        "-1" => return Ok(ReplayFrom::Latest),
        "-2" => return Ok(ReplayFrom::Earliest),
        _ => {}
    }
    let (epoch, offset) = match text.rsplit_once('-') {
        Some(("", _)) => return Err(wrong()),
        Some((epoch, offset)) => (Some(epoch.to_owned().into()), offset),
        None => (None, text),
    };
    Ok(ReplayFrom::After { offset: offset.parse().map_err(|_| wrong())?, epoch })
}

/// The time between two stores of the positions. After a kill the messages of this time are printed again.
const STORE_EVERY: Duration = Duration::from_secs(1);
/// Messages that wait in the buffer at most when a position is taken over: half of its room.
const NOTE_MESSAGES_MAX: usize = 5_000;
/// Tries to find the buffer with room.
const NOTE_TRIES_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_a_number_or_what_messages_have() {
        let after =
            |offset, epoch: Option<&'static str>| Ok(ReplayFrom::After { offset, epoch: epoch.map(Into::into) });
        for (text, position) in [
            ("-1", Ok(ReplayFrom::Latest)),
            ("-2", Ok(ReplayFrom::Earliest)),
            ("7", after(7, None)),
            ("k3jd-7", after(7, Some("k3jd"))),
        ] {
            assert_eq!(parse_position(text), position, "{text}");
        }
        assert!(["", "-3", "x", "k-", "-"].iter().all(|text| parse_position(text).is_err()));
    }
}
