//! A real server, and a way to it that can be cut, listened to, or closed to WebSockets.

// Each test file uses its part.
#![allow(dead_code)]

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use encke::{Handle, Running, Server, Settings};
use encke_client::{Client, Message, Options, RawValue, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// All that carries a session.
pub const TRANSPORTS: [Transport; 2] = [Transport::WebSocket, Transport::LongPolling];

/// Starts a server; it ends with [`end`].
pub fn start(settings: Settings) -> Running {
    Server::new(Settings { shards: 1, ..settings }).application(encke_demo::Demo::default()).start().expect("starts")
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

pub fn json(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.into()).expect("JSON")
}

/// A client that tries again soon.
pub fn quick(transport: Transport) -> Options {
    let (backoff_step, backoff_max) = (Duration::from_millis(10), Duration::from_millis(50));
    Options { transport, backoff_step, backoff_max, ..Options::default() }
}

/// Connects, and must.
pub async fn connected(address: SocketAddr, options: Options) -> Client {
    Client::connect_with(&url(address), options).await.expect("connects")
}

/// Runs a test, for a bounded time.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), test).await.expect("in time") })
}

/// Publishes until the client, on its way back, hears it.
pub async fn heard_again(client: &mut Client, handle: &Handle) -> Message {
    loop {
        handle.publish("/news", r#""again""#).expect("published");
        tokio::select! {
            message = client.next() => return message.expect("comes back"),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
}

/// Numbers published from now on come in order, each once.
pub async fn each_once(client: &mut Client, handle: &Handle) {
    for number in 0..20 {
        handle.publish("/news", &number.to_string()).expect("published");
    }
    let mut expected = 0;
    while expected < 20 {
        let message = client.next().await.expect("receives");
        // What was said while the client came back.
        if message.data.get() != r#""again""# {
            assert_eq!(message.data.get(), expected.to_string());
            expected += 1;
        }
    }
    let more = tokio::time::timeout(Duration::from_millis(50), client.next()).await;
    assert!(more.is_err(), "nothing comes twice: {more:?}");
}

/// Something between a client and the server.
pub struct Proxy {
    pub address: SocketAddr,
    /// Cuts all connections.
    pub cut: watch::Sender<()>,
    /// Whether what the server says gets lost on its way.
    pub loses: watch::Sender<bool>,
    /// How many bytes got lost so far.
    pub lost: Arc<AtomicUsize>,
    /// What clients sent.
    pub heard: Arc<Mutex<String>>,
}

/// What a proxy does to an upgrade.
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
        let hole = Hole { is_open: loses.subscribe(), swallowed: Arc::default() };
        let lost = hole.swallowed.clone();
        let heard = Arc::new(Mutex::new(String::new()));
        let ears = heard.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (mut cuts, ears, hole) = (cuts.clone(), ears.clone(), hole.clone());
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! {
                        () = pass(near, server, upgrades, &ears, hole) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Proxy { address, cut, loses, lost, heard }
    }
}

/// Where a proxy puts what it loses.
#[derive(Clone)]
struct Hole {
    is_open: watch::Receiver<bool>,
    swallowed: Arc<AtomicUsize>,
}

async fn pass(near: TcpStream, server: SocketAddr, upgrades: Upgrades, heard: &Mutex<String>, hole: Hole) {
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
            heard.lock().expect("whole").push_str(&text);
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
