//! A server behind a proxy that holds back the subscribes of clients that come back, until publications have been confirmed
//! without them. So these clients miss messages for certain, however slow or busy the machine is.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A running proxy in front of a port on which a server starts, ends, and starts again.
pub struct LateSubscribes {
    /// The port for clients.
    pub port: u16,
    /// The port of the server.
    pub server_port: u16,
}

/// The state that the connections of a proxy share.
struct Shared {
    server: SocketAddr,
    /// The subscribes that pass at once.
    passed_max: usize,
    /// Subscribes so far.
    subscribes: AtomicUsize,
    /// Confirmed publications since the first subscribe was held.
    confirmed: AtomicUsize,
}

impl LateSubscribes {
    /// Starts a proxy for a load over long-polling, in which each client subscribes once. Subscribes after the first `passed_max`
    /// are held.
    pub fn start(passed_max: usize) -> LateSubscribes {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let server = free.local_addr().expect("an address");
        let (subscribes, confirmed) = Default::default();
        let shared = Arc::new(Shared { server, passed_max, subscribes, confirmed });
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve(client));
            }
        });
        LateSubscribes { port, server_port: server.port() }
    }
}

impl Shared {
    fn serve(self: Arc<Self>, client: TcpStream) {
        let Some(server) = self.connect() else { return };
        let (from, to) = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
        let shared = Arc::clone(&self);
        thread::spawn(move || copy(from, to, |text| shared.request(text)));
        copy(server, client, |text| self.response(text));
    }

    /// Waits if this is the subscribe of a client that is to miss messages.
    fn request(&self, text: &str) {
        if text.contains("/meta/subscribe") && self.subscribes.fetch_add(1, Ordering::Relaxed) >= self.passed_max {
            let began = Instant::now();
            while self.confirmed.load(Ordering::Relaxed) < CONFIRMED_FIRST && began.elapsed() < HELD_MAX {
                thread::sleep(TURN);
            }
        }
    }

    /// Counts the confirmed publications.
    fn response(&self, text: &str) {
        if self.subscribes.load(Ordering::Relaxed) > self.passed_max
            && text.contains("\"/avalanche/")
            && text.contains("\"successful\":true")
            && !text.contains("/meta/")
        {
            self.confirmed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Connects to the server as soon as it listens.
    fn connect(&self) -> Option<TcpStream> {
        let began = Instant::now();
        while began.elapsed() < START_TIMEOUT {
            if let Ok(server) = TcpStream::connect(self.server) {
                return Some(server);
            }
            thread::sleep(TURN);
        }
        None
    }
}

/// Passes bytes on until one side ends. `look` sees each part before it is passed.
fn copy(mut from: TcpStream, mut to: TcpStream, look: impl Fn(&str)) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        look(&String::from_utf8_lossy(&buffer[..read]));
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// The publications that are confirmed before the held subscribes pass.
const CONFIRMED_FIRST: usize = 5;
/// Longer than the load waits for its clients.
const HELD_MAX: Duration = Duration::from_secs(120);
const START_TIMEOUT: Duration = Duration::from_secs(60);
const TURN: Duration = Duration::from_millis(5);
