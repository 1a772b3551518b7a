//! A server behind a proxy that holds back what a restarted server answers: the replies to publications until the load has
//! stopped sending, and the deliveries until some time later.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// A running proxy in front of a port on which a server starts, ends, and starts again.
pub struct LateReplies {
    /// The port for clients.
    pub port: u16,
    /// The port of the server.
    pub server_port: u16,
}

/// The knowledge that the connections of a proxy share.
struct Shared {
    server: SocketAddr,
    /// The server has listened, and later it has not.
    has_ended: AtomicBool,
    /// The first response to a connect since then. The one subscriber has returned; the publisher's connect is held.
    returned: OnceLock<Instant>,
}

impl LateReplies {
    /// Starts a proxy for a load with one subscriber.
    pub fn start() -> LateReplies {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let server = free.local_addr().expect("an address");
        let shared = Arc::new(Shared { server, has_ended: AtomicBool::new(false), returned: OnceLock::new() });
        let watched = Arc::clone(&shared);
        thread::spawn(move || watched.watch());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve(client));
            }
        });
        LateReplies { port, server_port: server.port() }
    }
}

impl Shared {
    fn serve(&self, mut client: TcpStream) {
        let Some(mut server) = self.connect() else { return };
        let is_new = self.has_ended.load(Ordering::Relaxed);
        let (mut from, mut to) = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
        let mut buffer = [0; 16 * 1024];
        while let Ok(read @ 1..) = server.read(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..read]);
            let (is_meta, is_publication) = (text.contains("/meta/"), text.contains("\"/avalanche/"));
            if is_new && text.contains("/meta/connect") && self.returned.set(Instant::now()).is_ok() {
                // It passes.
            } else if is_new && is_publication {
                self.wait(if is_meta { DELIVERIES_AFTER } else { REPLIES_AFTER });
            }
            if client.write_all(&buffer[..read]).is_err() {
                return;
            }
        }
        let _ = client.shutdown(std::net::Shutdown::Both);
    }

    /// Notes the end of the first server. The load starts the second one some time later.
    fn watch(&self) {
        if self.connect().is_some() {
            while TcpStream::connect(self.server).is_ok() {
                thread::sleep(TURN);
            }
            self.has_ended.store(true, Ordering::Relaxed);
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

    /// Waits until this time after the return of the subscriber; not for ever, as on a slow machine the second server may have been
    /// taken for the first.
    fn wait(&self, after: Duration) {
        let began = Instant::now();
        let is_due = || self.returned.get().is_some_and(|returned| returned.elapsed() >= after);
        while !is_due() && began.elapsed() < HELD_MAX {
            thread::sleep(TURN);
        }
    }
}

/// The load has sent its last publication 400 ms after all have returned, and lingered for 500 ms.
const REPLIES_AFTER: Duration = Duration::from_millis(650);
const DELIVERIES_AFTER: Duration = Duration::from_millis(1500);
const HELD_MAX: Duration = Duration::from_secs(4);
const START_TIMEOUT: Duration = Duration::from_secs(60);
const TURN: Duration = Duration::from_millis(5);
