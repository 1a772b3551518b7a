//! What attacks are made of: sockets that do as they are told, sessions on top, and the end of it all.

mod http;
mod readers;
mod websocket;

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

pub use http::{Http, Poller};
pub use readers::{Progress, Readers};
pub use websocket::{Session, Socket, batch, connect, handshake, publication, text_frame};

/// Where an attack takes place.
#[derive(Clone, Copy, Debug)]
pub struct Arena {
    /// The server.
    pub address: SocketAddr,
    /// How many shards it has.
    pub shards: usize,
    /// When the attack is to end.
    pub until: Instant,
}

/// What came of an attack.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How much it was, for the progress line.
    pub did: String,
    /// Promises to others than the witnesses that were broken: healthy readers ended, newcomers refused.
    pub broken: Vec<String>,
}

/// An attack that goes on.
pub type Attack = Pin<Box<dyn Future<Output = io::Result<Outcome>>>>;

impl Arena {
    /// A connection from another address, or with a small buffer.
    pub async fn connect_as(&self, peer: Peer) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = peer.receive_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(address) = peer.address {
            socket.bind(SocketAddr::new(address, 0))?;
        }
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// The time that is left.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Does the same over and over, `bytes` at a time, until the attack is over or it fails; tells how many bytes it was.
    pub async fn again(&self, bytes: usize, mut once: impl AsyncFnMut() -> io::Result<()>) -> u64 {
        let mut done = 0;
        while !self.is_over() && matches!(self.during(once()).await, Ok(Some(()))) {
            done += bytes as u64;
        }
        done
    }

    /// Lets something go on until it ends, or the attack does.
    pub async fn during<T>(&self, what: impl Future<Output = io::Result<T>>) -> io::Result<Option<T>> {
        tokio::time::timeout(self.left(), what).await.map_or(Ok(None), |done| done.map(Some))
    }
}

/// Lets attackers work on a thread of their own, with sockets of their own, so that they do not wait for each other. It ends soon after
/// the attack.
pub fn elsewhere<T, W>(arena: Arena, work: impl FnOnce() -> W + Send + 'static) -> oneshot::Receiver<io::Result<T>>
where
    T: Send + 'static,
    W: Future<Output = io::Result<T>> + 'static,
{
    let (done, is_done) = oneshot::channel();
    let run = move || {
        // Who attacks from elsewhere takes no processor from the server; to give way is as near as one machine comes to it.
        let _ = rustix::process::nice(ATTACKERS_NICE);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let outcome = runtime.and_then(|runtime| {
            let worked = async { tokio::time::timeout(arena.left() + OVERTIME, work()).await };
            let late = || Err(io::Error::other("attackers gave up waiting"));
            LocalSet::new().block_on(&runtime, worked).unwrap_or_else(|_| late())
        });
        // Who started it may not want to know any more.
        let _ = done.send(outcome);
    };
    // A thread that does not start lets go of `done`, which tells it.
    let _ = std::thread::Builder::new().name("attackers".into()).spawn(run);
    is_done
}

/// What attackers elsewhere have done.
///
/// # Errors
/// They failed, or panicked.
pub async fn done<T>(work: oneshot::Receiver<io::Result<T>>) -> io::Result<T> {
    work.await.map_err(|_| io::Error::other("the attackers panicked"))?
}

/// Who connects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer {
    /// The address that the server sees.
    pub address: Option<IpAddr>,
    /// The size of the kernel's buffer for what is not read.
    pub receive_bytes: Option<u32>,
}

impl Outcome {
    /// An attack that broke nothing so far.
    pub fn did(what: impl Into<String>) -> Outcome {
        Outcome { did: what.into(), broken: Vec::new() }
    }

    /// Notes a promise that was broken, if it was.
    pub fn broke(mut self, broken: Option<String>) -> Outcome {
        self.broken.extend(broken);
        self
    }
}

/// The shard that a session's id names with its first two characters.
pub fn shard_of(id: &str) -> Option<usize> {
    usize::from_str_radix(id.get(..2)?, 32).ok()
}

/// Mebibytes, for progress lines.
pub fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

/// Attackers that have not ended so long after their time are stopped.
const OVERTIME: Duration = Duration::from_secs(10);
const ATTACKERS_NICE: i32 = 10;
