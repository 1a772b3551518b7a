//! The parts of attacks: sockets that act only on request, sessions on top, and the end of an attack.

mod backend;
mod http;
pub mod http2;
mod readers;
mod websocket;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::time::{Duration, Instant};

use encke_client::Trust;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

pub use backend::{POISON, SLOW, start as start_backend};
pub use http::{Http, Poller};
pub use readers::{Progress, Readers};
pub use websocket::{Session, Socket, batch, connect, handshake, publication, refresh, text_frame};

/// The target and the time of an attack.
#[derive(Clone, Copy, Debug)]
pub struct Arena {
    /// The server.
    pub address: SocketAddr,
    /// The server beside it that nobody attacks.
    pub unattacked: SocketAddr,
    /// Its number of shards.
    pub shards: usize,
    /// The time at which the attack ends.
    pub until: Instant,
}

/// The result of an attack.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its amount, in the unit of the attack; 0 if it did not take place, or did not reach the limit that it attacks.
    pub amount: u64,
    /// A description of it, for the progress line.
    pub did: String,
    /// Broken promises to others than the witnesses: healthy readers ended, newcomers refused.
    pub broken: Vec<String>,
    /// The times of others than the witnesses.
    pub others: Times,
}

/// The times of others. At the server under attack from their beginning to their end; at the one that nobody
/// attacks, how long they took.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// At the server under attack.
    pub attacked: Vec<(Instant, Instant)>,
    /// At the other one.
    pub unattacked: Vec<Duration>,
}

/// A running attack.
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

    /// The same time at the server that nobody attacks.
    pub fn beside(&self) -> Arena {
        Arena { address: self.unattacked, ..*self }
    }

    /// True if it is over.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// The time that is left.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Repeats an action of `bytes` each until the attack is over or the action fails. Returns the total number of
    /// bytes.
    pub async fn again(&self, bytes: usize, mut once: impl AsyncFnMut() -> io::Result<()>) -> u64 {
        let mut done = 0;
        while !self.is_over() && matches!(self.during(once()).await, Ok(Some(()))) {
            done += bytes as u64;
        }
        done
    }

    /// Runs a future until it ends, or the attack does.
    pub async fn during<T>(&self, what: impl Future<Output = io::Result<T>>) -> io::Result<Option<T>> {
        tokio::time::timeout(self.left(), what).await.map_or(Ok(None), |done| done.map(Some))
    }
}

/// Runs attackers on a separate thread with separate sockets, so that they do not wait for each other. The thread
/// ends soon after the attack.
pub fn elsewhere<T, W>(arena: Arena, work: impl FnOnce() -> W + Send + 'static) -> oneshot::Receiver<io::Result<T>>
where
    T: Send + 'static,
    W: Future<Output = io::Result<T>> + 'static,
{
    let (done, is_done) = oneshot::channel();
    let run = move || {
        // Remote attackers would take no processor time from the server; a low priority comes closest on one machine.
        let _ = rustix::process::nice(ATTACKERS_NICE);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let outcome = runtime.and_then(|runtime| {
            let worked = async { tokio::time::timeout(arena.left() + OVERTIME, work()).await };
            let late = || Err(io::Error::other("attackers gave up waiting"));
            LocalSet::new().block_on(&runtime, worked).unwrap_or_else(|_| late())
        });
        // The receiver may be gone.
        let _ = done.send(outcome);
    };
    // A thread that does not start drops `done`, which reports it.
    let _ = std::thread::Builder::new().name("attackers".into()).spawn(run);
    is_done
}

/// The result of attackers on another thread.
///
/// # Errors
/// The attackers failed or panicked.
pub async fn done<T>(work: oneshot::Receiver<io::Result<T>>) -> io::Result<T> {
    work.await.map_err(|_| io::Error::other("the attackers panicked"))?
}

/// The properties of a connecting peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer {
    /// The address that the server sees.
    pub address: Option<IpAddr>,
    /// The size of the kernel's receive buffer.
    pub receive_bytes: Option<u32>,
}

impl Outcome {
    /// The outcome of an attack that has broken nothing so far.
    pub fn did(amount: u64, what: impl Into<String>) -> Outcome {
        Outcome { amount, did: what.into(), ..Outcome::default() }
    }

    /// Records a broken promise, if there is one.
    pub fn broke(mut self, broken: Option<String>) -> Outcome {
        self.broken.extend(broken);
        self
    }
}

/// The shard that the first two characters of a session's id name.
pub fn shard_of(id: &str) -> Option<usize> {
    usize::from_str_radix(id.get(..2)?, 32).ok()
}

/// A client that accepts any certificate.
pub fn tls_config() -> io::Result<ClientConfig> {
    Trust { accepts_any: true, ..Trust::default() }.config().map_err(io::Error::other)
}

/// The name of the servers.
pub fn server_name() -> ServerName<'static> {
    ServerName::IpAddress(IpAddr::from(Ipv4Addr::LOCALHOST).into())
}

/// Mebibytes, for progress lines.
pub fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

/// The time after the end of an attack at which remaining attackers are stopped. On a busy machine their low priority lets them open
/// their sessions only slowly.
const OVERTIME: Duration = Duration::from_secs(90);
const ATTACKERS_NICE: i32 = 10;
