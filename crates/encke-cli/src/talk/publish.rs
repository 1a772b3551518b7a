//! `encke publish`: one message, or one for each line of the input.

use std::collections::VecDeque;
use std::io::BufRead as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, value_parser};
use encke_client::{Client, Error, PendingPublish, RawJson};
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::complain;
use crate::logs::{LogFormat, LogLevel};
use crate::talk::server::Server;
use crate::talk::{Failure, run_to_its_end, stopped};

/// Publish messages: one, or one for each line of the input.
#[derive(Args)]
pub(crate) struct Publish {
    /// Such as /chat/demo; - for lines such as {"channel":"/a","data":1}.
    channel: String,
    /// The data; - for one message for each line of the input.
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    data: Option<String>,
    /// The data, or each line, is a text and no JSON.
    #[arg(long)]
    text: bool,
    /// Publish the message so many times.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    count: u64,
    /// The longest time until the session is open, and until each reply, such as 500ms or 1m.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    server: Server,
}

/// A line that names its channel.
#[derive(Deserialize)]
struct Line<'a> {
    channel: String,
    #[serde(borrow)]
    data: &'a serde_json::value::RawValue,
}

/// A message to publish, and the number of its line.
struct Item {
    line: u64,
    channel: String,
    /// JSON.
    data: String,
}

/// Publishes, and waits for the server's replies.
pub(crate) fn publish(options: Publish) -> ExitCode {
    LogLevel::start("warn", LogFormat::Text);
    run_to_its_end(async {
        let (client, outcome) = tokio::select! {
            published = publish_all(options) => published?,
            () = stopped() => return Err(Failure::interrupted("interrupted: not all messages are confirmed")),
        };
        // The messages have arrived; a disconnect that gets lost changes nothing.
        tokio::select! {
            _ = client.disconnect() => {}
            () = stopped() => {}
        }
        outcome
    })
}

/// Publishes everything, and waits until it is confirmed or refused.
async fn publish_all(options: Publish) -> Result<(Client, Result<(), Failure>), Failure> {
    let Publish { channel, data, text, count, timeout, server } = options;
    let is_each = channel == "-";
    let given = match data {
        Some(data) if !is_each => data,
        None if is_each => "-".into(),
        Some(_) => return Err(Failure::usage("the channel - takes channel and data from each line".into())),
        None => return Err(Failure::usage("the data is missing; - takes it from the input".into())),
    };
    let lines = Lines { channel: (!is_each).then_some(channel), is_text: text };
    // A mistake in the message is reported before a server is asked.
    let single = (given != "-").then(|| lines.item(0, &given)).transpose().map_err(Failure::usage)?;
    let client = server.resolved()?.connect_once(timeout).await?;
    let outcome = match single {
        Some(item) => {
            let mut sender = Sender::new(client.clone());
            for _ in 0..count {
                sender.send(&item).await?;
            }
            sender.finish().await
        }
        None => publish_lines(client.clone(), lines).await,
    };
    Ok((client, outcome))
}

async fn publish_lines(client: Client, lines: Lines) -> Result<(), Failure> {
    let (to_sender, mut items) = mpsc::channel(LINES_WAITING_MAX);
    // A thread, because a read of the input cannot be given up.
    std::thread::spawn(move || {
        for (line, text) in (1..).zip(std::io::stdin().lock().lines()) {
            let item = match text {
                Ok(text) if text.trim().is_empty() => continue,
                Ok(text) => lines.item(line, &text),
                Err(error) => Err(format!("line {line}: {error}")),
            };
            let is_end = item.is_err();
            if to_sender.blocking_send(item).is_err() || is_end {
                return;
            }
        }
    });
    let mut sender = Sender::new(client);
    while let Some(item) = items.recv().await {
        match item {
            Ok(item) => sender.send(&item).await?,
            Err(mistake) => {
                // Those before it are published.
                sender.finish().await?;
                return Err(Failure::usage(mistake));
            }
        }
    }
    sender.finish().await
}

/// Reads what is to be published.
struct Lines {
    /// The channel, unless each line names its own.
    channel: Option<String>,
    /// The data is a text and no JSON.
    is_text: bool,
}

impl Lines {
    fn item(&self, line: u64, text: &str) -> Result<Item, String> {
        let prefix = if line == 0 { String::new() } else { format!("line {line}: ") };
        match &self.channel {
            Some(channel) if self.is_text => {
                Ok(Item { line, channel: channel.clone(), data: serde_json::Value::from(text).to_string() })
            }
            Some(channel) => {
                let wrong = |error| format!("{prefix}the data is not JSON: {error}; --text takes texts");
                let data = RawJson::parse(text).map_err(wrong)?.as_str().into();
                Ok(Item { line, channel: channel.clone(), data })
            }
            None => {
                let wrong = |error| format!("{prefix}a line is such as {{\"channel\":\"/a\",\"data\":1}}: {error}");
                let parsed: Line<'_> = serde_json::from_str(text).map_err(wrong)?;
                Ok(Item { line, channel: parsed.channel, data: parsed.data.get().into() })
            }
        }
    }
}

/// Publishes without waiting for each reply.
struct Sender {
    client: Client,
    waiting: VecDeque<(u64, PendingPublish)>,
    refused: u64,
}

impl Sender {
    fn new(client: Client) -> Sender {
        Sender { client, waiting: VecDeque::new(), refused: 0 }
    }

    async fn send(&mut self, item: &Item) -> Result<(), Failure> {
        let data = RawJson::parse(&item.data).map_err(|error| Failure::usage(error.to_string()))?;
        let pending = self.client.start_publish_raw(&item.channel, data).await?;
        self.waiting.push_back((item.line, pending));
        while self.waiting.len() >= REPLIES_WAITING_MAX {
            self.reply().await?;
        }
        Ok(())
    }

    /// Waits for the oldest reply. A refusal is reported and counted; what breaks the session ends the command.
    async fn reply(&mut self) -> Result<(), Failure> {
        let Some((line, pending)) = self.waiting.pop_front() else { return Ok(()) };
        match pending.await {
            Err(error @ Error::Refused(_)) if line > 0 => {
                self.refused += 1;
                complain(&format_args!("line {line}: {error}"));
                Ok(())
            }
            outcome => {
                outcome?;
                Ok(())
            }
        }
    }

    async fn finish(mut self) -> Result<(), Failure> {
        while !self.waiting.is_empty() {
            self.reply().await?;
        }
        if self.refused == 0 { Ok(()) } else { Err(Failure::new(format!("{} messages were refused", self.refused))) }
    }
}

/// Lines that are read before they are sent.
const LINES_WAITING_MAX: usize = 64;
/// Messages whose replies have not come.
const REPLIES_WAITING_MAX: usize = 1_000;
