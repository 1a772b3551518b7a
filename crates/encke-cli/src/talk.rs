//! `encke publish` and `encke subscribe`: small clients for people and scripts.

use std::future::Future;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, value_parser};
use encke_client::{Client, ClientBuilder, Error, Gap, GapCause, Message, RawJson, ReplayFrom, Transport};
use tokio::signal::unix::{SignalKind, signal};

use crate::logs::{LogFormat, LogLevel};
use crate::{FAILED, UNREACHABLE, USAGE, complain};

/// Publish one message.
#[derive(Args)]
pub(crate) struct Publish {
    /// Such as /chat/demo.
    channel: String,
    /// The data.
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    data: String,
    #[command(flatten)]
    server: Server,
}

/// Print messages, one line of JSON each.
#[derive(Args)]
pub(crate) struct Subscribe {
    /// Such as /chat/demo or /chat/**.
    #[arg(value_name = "CHANNEL", required = true)]
    channels: Vec<String>,
    /// The position in the history of each channel: -1 now, -2 all stored messages, N after message N; continues there after a break.
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true, value_parser = value_parser!(i64).range(-2..))]
    replay: Option<i64>,
    /// Acknowledge messages, so that a break loses none while the server knows the session.
    #[arg(long)]
    ack: bool,
    /// Let the server compress messages on a WebSocket.
    #[arg(long)]
    compress: bool,
    /// Stop after so many messages.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    server: Server,
}

#[derive(Args)]
struct Server {
    /// The server, http://, https://, ws:// or wss://; /cometd where the URL has no path [env: ENCKE_URL].
    #[arg(long, value_name = "url", env = "ENCKE_URL", hide_env = true, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// A file of PEM certificates whose certificates are accepted, too.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// A file of PEM certificates: the client's own, for a server that asks for one.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The private key of --cert.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Accept every certificate, such as the one of --dev-tls.
    #[arg(long)]
    insecure: bool,
    /// The transport; auto: a WebSocket, or long-polling where none gets through.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    #[arg(value_parser = PossibleValuesParser::new(["auto", "websocket", "long-polling"]).map(transport))]
    transport: Transport,
}

impl Server {
    /// A client with these options.
    fn client(&self) -> ClientBuilder {
        let mut client = Client::builder().transport(self.transport).accept_any_certificate(self.insecure);
        if let Some(file) = &self.ca {
            client = client.ca_file(file);
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            client = client.tls_identity(cert, key);
        }
        client
    }
}

fn transport(name: String) -> Transport {
    match name.as_str() {
        "websocket" => Transport::WebSocket,
        "long-polling" => Transport::LongPolling,
        _ => Transport::Auto,
    }
}

/// Publishes one message and waits for the server's reply.
pub(crate) fn publish(Publish { channel, data, server }: Publish) -> ExitCode {
    let data = match RawJson::parse(&data) {
        Ok(data) => data,
        Err(error) => {
            complain(&format_args!("the data is not JSON: {error}; texts need quotes, such as '\"hello\"'"));
            return ExitCode::from(USAGE);
        }
    };
    run(async {
        let client = server.client().reconnect(false).connect(&server.url).await?;
        client.publish_raw(&channel, data).await?;
        // The message has arrived; a disconnect that gets lost changes nothing.
        let _ = client.disconnect().await;
        Ok(())
    })
}

/// Prints messages until their limit is reached, or until a signal.
pub(crate) fn subscribe(options: Subscribe) -> ExitCode {
    let count = options.count.unwrap_or(u64::MAX);
    LogLevel::start("warn", LogFormat::Text);
    run(async {
        let mut builder = options.server.client().ack(options.ack).compress(options.compress);
        if let Some(position) = options.replay {
            builder = builder.replay(replay_from(position));
        }
        let client = builder.connect(&options.server.url).await?;
        let mut subscription = client.subscribe_all(&options.channels).await?;
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
        Error::Url { .. } | Error::TlsFile { .. } => USAGE,
        Error::Unreachable { .. } => UNREACHABLE,
        _ => FAILED,
    })
}
