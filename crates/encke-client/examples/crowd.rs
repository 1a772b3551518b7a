//! Opens many sessions in one thread, sends them all one message, and tells what they cost.
//!
//! ```text
//! encke serve &
//! cargo run --release -p encke-client --example crowd -- http://127.0.0.1:8080 15000 [long-polling]
//! ```

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use encke_client::{Client, Options, RawValue, Transport};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "http://127.0.0.1:8080".into());
    let sessions: usize = args.next().map_or(Ok(SESSIONS), |text| text.parse())?;
    let transport = match args.next().as_deref() {
        None | Some("websocket") => Transport::WebSocket,
        Some("long-polling") => Transport::LongPolling,
        Some(other) => return Err(format!("{other} is neither websocket nor long-polling").into()),
    };
    let files_each = if transport == Transport::LongPolling { 2 } else { 1 };
    allow_files(sessions as u64 * files_each + 64)?;
    // One thread for all of them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(TIME_MAX, crowd(url, sessions, transport)).await? })
}

async fn crowd(url: String, sessions: usize, transport: Transport) -> Outcome<()> {
    let options = Options { transport, ..Options::default() };
    let mut publisher = Client::connect_with(&url, options.clone()).await?;
    let (before, start) = (rss_bytes(), Instant::now());
    let opening = Arc::new(Semaphore::new(OPENING_MAX));
    let (is_open, mut opened) = tokio::sync::mpsc::channel(sessions.max(1));
    let mut members = JoinSet::new();
    for _ in 0..sessions {
        let (url, options, opening, is_open) = (url.clone(), options.clone(), opening.clone(), is_open.clone());
        members.spawn(async move {
            let permit = opening.acquire_owned().await?;
            // Opening takes more room than waiting: it is boxed, and gone afterwards.
            let mut client = Box::pin(open(url, options)).await?;
            drop(permit);
            is_open.send(()).await?;
            client.next().await?;
            Outcome::Ok(())
        });
    }
    for _ in 0..sessions {
        tokio::select! {
            _ = opened.recv() => {}
            Some(failed) = members.join_next() => failed??,
        }
    }
    println!("{sessions} sessions opened and subscribed in {:.2?}", start.elapsed());
    // What served to open them is let go of soon.
    tokio::time::sleep(REST).await;
    let each = rss_bytes().saturating_sub(before) / sessions.max(1) as u64;
    println!("{each} bytes of memory each");
    let start = Instant::now();
    publisher.publish(CHANNEL, &RawValue::from_string(r#""to all""#.into())?).await?;
    while let Some(received) = members.join_next().await {
        received??;
    }
    println!("one message to all in {:.2?}", start.elapsed());
    Ok(())
}

async fn open(url: String, options: Options) -> Outcome<Client> {
    let mut client = Client::connect_with(&url, options).await?;
    client.subscribe(CHANNEL).await?;
    Ok(client)
}

/// Raises the limit of open files as far as the system lets, which must be enough.
fn allow_files(wanted: u64) -> Outcome<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < wanted) {
        return Err(format!("{wanted} open files are needed, the system allows {:?}", limit.maximum).into());
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}

/// This process's resident memory in bytes, as Linux tells it.
fn rss_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

/// How many sessions there are if nobody says.
const SESSIONS: usize = 1000;

/// How many are opened at once: more would overrun the server's backlog.
const OPENING_MAX: usize = 100;

/// How long they rest before they are weighed.
const REST: Duration = Duration::from_secs(6);

/// How long it may all take.
const TIME_MAX: Duration = Duration::from_secs(120);

const CHANNEL: &str = "/crowd";
