//! A real server, and a proxy in front of it that can cut connections, record them, or block WebSockets.

// Each test file uses its part.
#![allow(dead_code)]

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use encke::{Handle, Running, Server, Settings};
use encke_client::{Client, ClientBuilder, Message, Subscription, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// All transports.
pub const TRANSPORTS: [Transport; 2] = [Transport::WebSocket, Transport::LongPolling];

/// Starts a server; it ends with [`end`].
pub fn start(settings: Settings) -> Running {
    let server = Server::builder().settings(Settings { shards: 1, ..settings });
    encke_demo::Demo::default().install(server).start().expect("starts")
}

pub fn any_port() -> Settings {
    Settings { listen: ([127, 0, 0, 1], 0).into(), drain_timeout_ms: 100, drain_spread_ms: 20, ..Settings::default() }
}

pub fn end(running: Running) {
    running.handle().drain();
    running.join();
}

pub fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// A client that tries again soon.
pub fn quick(transport: Transport) -> ClientBuilder {
    Client::builder().transport(transport).backoff(Duration::from_millis(10), Duration::from_millis(50))
}

/// Connects, and must.
pub async fn connected(address: SocketAddr, builder: ClientBuilder) -> Client {
    builder.connect(&url(address)).await.expect("connects")
}

/// The next message, which no gap comes before.
pub async fn next(subscription: &mut Subscription) -> Message {
    subscription.next().await.expect("the session is open").expect("no gap")
}

/// Waits until a metric of a server is so. Counters are named without `_total`.
pub async fn metric(server: SocketAddr, name: &str, is_so: impl Fn(u64) -> bool) {
    loop {
        let mut stream = TcpStream::connect(server).await.expect("connects");
        let get = "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
        stream.write_all(get.as_bytes()).await.expect("written");
        let mut page = String::new();
        stream.read_to_string(&mut page).await.expect("metrics");
        let of = |line: &str| {
            let (found, value) = line.split_once(' ')?;
            (found.strip_suffix("_total").unwrap_or(found) == name).then(|| value.parse().expect("a number"))
        };
        if is_so(page.lines().find_map(of).expect("a metric of this name")) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Nothing comes for a while.
pub async fn silent(subscription: &mut Subscription) {
    let more = tokio::time::timeout(Duration::from_millis(60), subscription.next()).await;
    assert!(more.is_err(), "{more:?}");
}

/// Runs a test, for a bounded time.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), test).await.expect("in time") })
}

/// Publishes until the client, which reconnects, receives it.
pub async fn received_again(subscription: &mut Subscription, handle: &Handle) -> Message {
    loop {
        handle.publish("/news", r#""again""#).expect("published");
        tokio::select! {
            message = next(subscription) => return message,
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
}

/// Numbers published from now on come in order, each once.
pub async fn each_once(subscription: &mut Subscription, handle: &Handle) {
    for number in 0..20 {
        handle.publish("/news", &number.to_string()).expect("published");
    }
    let mut expected = 0;
    while expected < 20 {
        let message = next(subscription).await;
        // Those that were published while the client reconnected.
        if message.data().as_str() != r#""again""# {
            assert_eq!(message.data().as_str(), expected.to_string());
            expected += 1;
        }
    }
    silent(subscription).await;
}

/// A proxy between a client and the server.
pub struct Proxy {
    pub address: SocketAddr,
    server: SocketAddr,
    /// Cuts all connections.
    pub cut: watch::Sender<()>,
    /// True while new connections are closed at once.
    pub blocks: watch::Sender<bool>,
    /// True while bytes from the server get lost.
    pub loses: watch::Sender<bool>,
    /// The number of bytes that got lost so far.
    pub lost: Arc<AtomicUsize>,
    /// The bytes of clients.
    pub recorded: Arc<Mutex<String>>,
}

/// The treatment of WebSocket upgrades by a proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Upgrades {
    Pass,
    /// It closes the connection.
    Close,
    /// It never answers.
    Swallow,
}

impl Proxy {
    pub async fn open(server: SocketAddr, upgrades: Upgrades) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("bound");
        let (cut, cuts) = watch::channel(());
        let loses = watch::Sender::new(false);
        let blocks = watch::Sender::new(false);
        let is_blocked = blocks.subscribe();
        let hole = Hole { is_open: loses.subscribe(), swallowed: Arc::default() };
        let lost = hole.swallowed.clone();
        let recorded = Arc::new(Mutex::new(String::new()));
        let record = recorded.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                if *is_blocked.borrow() {
                    continue;
                }
                let (mut cuts, record, hole) = (cuts.clone(), record.clone(), hole.clone());
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! {
                        () = pass(near, server, upgrades, &record, hole) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Proxy { address, server, cut, blocks, loses, lost, recorded }
    }

    /// Waits until the server holds the connect of the only client.
    pub async fn held(&self) {
        metric(self.server, "encke_held_connects", |held| held == 1).await;
    }
}

/// The bytes that a proxy loses.
#[derive(Clone)]
struct Hole {
    is_open: watch::Receiver<bool>,
    swallowed: Arc<AtomicUsize>,
}

async fn pass(near: TcpStream, server: SocketAddr, upgrades: Upgrades, record: &Mutex<String>, hole: Hole) {
    let (mut near_in, mut near_out) = near.into_split();
    let Ok(far) = TcpStream::connect(server).await else { return };
    let (mut far_in, mut far_out) = far.into_split();
    let upwards = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(bytes @ 1..) = near_in.read(&mut buffer).await {
            let text = String::from_utf8_lossy(&buffer[..bytes]);
            if text.contains("websocket\r\n") && upgrades != Upgrades::Pass {
                if upgrades == Upgrades::Swallow {
                    std::future::pending::<()>().await;
                }
                return;
            }
            record.lock().expect("whole").push_str(&text);
            if far_out.write_all(&buffer[..bytes]).await.is_err() {
                return;
            }
        }
    };
    let downwards = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(bytes @ 1..) = far_in.read(&mut buffer).await {
            if *hole.is_open.borrow() {
                hole.swallowed.fetch_add(bytes, Ordering::Relaxed);
            } else if near_out.write_all(&buffer[..bytes]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = upwards => {}
        () = downwards => {}
    }
}
