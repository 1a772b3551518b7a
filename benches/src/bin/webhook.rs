//! Measures the time that a webhook adds to a publication and to a handshake, when its backend answers at once.
//!
//! ```text
//! webhook ENCKE --messages 2000 --into docs/benchmarks/webhook.md
//! ```
//!
//! One client sends one message at a time and waits for its reply, in turns on a channel that a backend decides about and on one that
//! nobody decides about. The backend is a thread of this program.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use encke_client::Client;

#[derive(Parser)]
struct Args {
    /// The program to measure.
    encke: PathBuf,
    /// Messages of each kind.
    #[arg(long, default_value_t = 2_000)]
    messages: usize,
    /// The page to write.
    #[arg(long)]
    into: Option<PathBuf>,
}

/// The time that a webhook may add, in the median.
const PROMISED: Duration = Duration::from_millis(1);
/// Messages before the measurement.
const WARM_UP: usize = 200;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("webhook: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool, Failure> {
    let server = Server::start(&args.encke, backend()?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let [plain, hooked, called] = runtime.block_on(measure(&server.url, args.messages))?;
    let added = median(&hooked).saturating_sub(median(&plain));
    let page = page(
        &[("publish without a webhook", &plain), ("publish with a webhook", &hooked), ("service call", &called)],
        added,
    );
    print!("{page}");
    if let Some(path) = &args.into {
        std::fs::write(path, page)?;
    }
    Ok(added <= PROMISED)
}

async fn measure(url: &str, messages: usize) -> Result<[Vec<Duration>; 3], Failure> {
    let client = Client::connect(url).await?;
    let data = serde_json::json!({ "bid": 42.25, "ask": 42.5, "last": 42.375 });
    let mut times = [const { Vec::new() }; 3];
    for round in 0..WARM_UP + messages {
        for (kind, times) in times.iter_mut().enumerate() {
            let began = Instant::now();
            match kind {
                0 => drop(client.publish("/plain/a", &data).await?),
                1 => drop(client.publish("/hooked/a", &data).await?),
                _ => drop(client.request("/service/hooked", &data).await?),
            }
            if round >= WARM_UP {
                times.push(began.elapsed());
            }
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    Ok(times)
}

fn median(sorted: &[Duration]) -> Duration {
    percentile(sorted, 50)
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

fn page(rows: &[(&str, &Vec<Duration>)], added: Duration) -> String {
    let mut page = String::from(
        "# The delay of a webhook

Made by `make bench-webhook`. One client sends one message at a time over a WebSocket and waits for its reply: in turns on a channel that
nobody decides about, on one that a backend decides about, and to a service of the backend. The backend is on the same machine and answers
at once.

| round trip, in µs | median | 90 % | 99 % |
| --- | ---: | ---: | ---: |
",
    );
    for (name, times) in rows {
        let [median, ninety, ninety_nine] = [50, 90, 99].map(|percent| percentile(times, percent).as_micros());
        let _ = writeln!(page, "| {name} | {median} | {ninety} | {ninety_nine} |");
    }
    let (added, promised) = (added.as_micros(), PROMISED.as_micros());
    let _ = writeln!(
        page,
        "\nA webhook adds {added} µs to a publication, in the median. Encke promises {promised} µs at most."
    );
    page
}

/// A running server, ended on drop.
struct Server {
    process: Child,
    url: String,
    config: PathBuf,
}

impl Server {
    fn start(encke: &Path, backend: SocketAddr) -> io::Result<Server> {
        let config = std::env::temp_dir().join(format!("encke-bench-webhook-{}.toml", std::process::id()));
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let webhook = format!(
            "listen = \"127.0.0.1:0\"\nshards = 1\ndemo = false\nlog = \"warn\"\n[[webhooks]]\nurl = \"http://{backend}/\"\n\
             secret = \"{secret}\"\nevents = [\"publish\", \"service\"]\nchannels = [\"/hooked/**\", \"/service/**\"]\n"
        );
        std::fs::write(&config, webhook)?;
        let mut process =
            Command::new(encke).args(["serve", "--config"]).arg(&config).stdout(Stdio::piped()).spawn()?;
        let out = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let url = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        Ok(Server { process, url, config })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
        let _gone = std::fs::remove_file(&self.config);
    }
}

/// Starts a backend that allows everything and answers every call.
fn backend() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(socket));
        }
    });
    Ok(address)
}

fn answer(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut reader = BufReader::new(socket.try_clone()?);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let is_call = body.starts_with(br#"{"type":"service""#);
        let text = if is_call { r#"{"reply":true}"# } else { r#"{"allow":true}"# };
        socket.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len()).as_bytes())?;
    }
}
