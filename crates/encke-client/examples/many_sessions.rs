//! Opens many sessions in one thread, sends them all one message, and prints the memory of each.
//!
//! ```text
//! encke serve &
//! cargo run --release -p encke-client --example many_sessions -- http://127.0.0.1:8080 15000 [long-polling]
//! ```

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use encke_client::{Client, ClientBuilder, Subscription, Transport};
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
    runtime.block_on(async { tokio::time::timeout(TIME_MAX, open_all(url, sessions, transport)).await? })
}

async fn open_all(url: String, sessions: usize, transport: Transport) -> Outcome<()> {
    let builder = move || Client::builder().transport(transport);
    let publisher = builder().connect(&url).await?;
    let (before, start) = (rss_bytes(), Instant::now());
    let opening = Arc::new(Semaphore::new(OPENING_MAX));
    let (is_open, mut opened) = tokio::sync::mpsc::channel(sessions.max(1));
    let mut members = JoinSet::new();
    for _ in 0..sessions {
        let (url, opening, is_open) = (url.clone(), opening.clone(), is_open.clone());
        members.spawn(async move {
            let permit = opening.acquire_owned().await?;
            // Opening takes more room than waiting: it is boxed, and gone afterwards.
            let mut subscription = Box::pin(open(url, builder())).await?;
            drop(permit);
            is_open.send(()).await?;
            subscription.next().await.ok_or("the session is closed")??;
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
    // The memory that served to open them is freed soon.
    tokio::time::sleep(REST).await;
    let each = rss_bytes().saturating_sub(before) / sessions.max(1) as u64;
    println!("{each} bytes of memory each");
    let start = Instant::now();
    publisher.publish(CHANNEL, "to all").await?;
    while let Some(received) = members.join_next().await {
        received??;
    }
    println!("one message to all in {:.2?}", start.elapsed());
    Ok(())
}

async fn open(url: String, builder: ClientBuilder) -> Outcome<Subscription> {
    let client = builder.connect(&url).await?;
    // The subscription keeps the session open.
    Ok(client.subscribe(CHANNEL).await?)
}

/// Raises the limit of open files as far as the system lets, which must be enough.
fn allow_files(wanted: u64) -> Outcome<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < wanted) {
        return Err(format!("{wanted} open files are needed, the system allows {:?}", limit.maximum).into());
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}

/// This process's resident memory in bytes, as Linux reports it.
fn rss_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

/// The number of sessions by default.
const SESSIONS: usize = 1000;

/// The number that is opened at once: more would overrun the server's backlog.
const OPENING_MAX: usize = 100;

/// The pause before their memory is measured.
const REST: Duration = Duration::from_secs(6);

/// The time that everything may take.
const TIME_MAX: Duration = Duration::from_secs(120);

const CHANNEL: &str = "/many";
