//! A server behind a proxy that holds back what a restarted server answers: the replies to publications until the load has
//! stopped sending, and the deliveries until some time later.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
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
    sessions: usize,
    /// The server has closed a connection that its client had not.
    has_ended: AtomicBool,
    /// The first response to a connect of each session since then.
    returned: Mutex<Vec<Instant>>,
}

impl LateReplies {
    /// Starts a proxy. All `sessions` have returned when so many connections have received a response to a connect.
    pub fn start(sessions: usize) -> LateReplies {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let server = free.local_addr().expect("an address");
        let (has_ended, returned) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        let shared = Arc::new(Shared { server, sessions, has_ended, returned });
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
        let client_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&client_ended);
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            ended.store(true, Ordering::Relaxed);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
        let (mut buffer, mut has_returned) = ([0; 16 * 1024], false);
        while let Ok(read @ 1..) = server.read(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..read]);
            let (is_meta, is_publication) = (text.contains("/meta/"), text.contains("\"/avalanche/"));
            if is_new && text.contains("/meta/connect") && !has_returned {
                has_returned = true;
                self.returned.lock().expect("not poisoned").push(Instant::now());
            } else if is_new && is_publication {
                self.wait(if is_meta { DELIVERIES_AFTER } else { REPLIES_AFTER });
            }
            if client.write_all(&buffer[..read]).is_err() {
                return;
            }
        }
        if !client_ended.load(Ordering::Relaxed) {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        let _ = client.shutdown(std::net::Shutdown::Both);
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

    /// Waits until this time after the return of all sessions.
    fn wait(&self, after: Duration) {
        let is_due = || {
            let returned = self.returned.lock().expect("not poisoned");
            returned.get(self.sessions - 1).is_some_and(|last| last.elapsed() >= after)
        };
        while !is_due() {
            thread::sleep(TURN);
        }
    }
}

/// The load has sent its last publication 400 ms after all have returned, and lingered for 500 ms.
const REPLIES_AFTER: Duration = Duration::from_millis(650);
const DELIVERIES_AFTER: Duration = Duration::from_millis(1500);
const START_TIMEOUT: Duration = Duration::from_secs(60);
const TURN: Duration = Duration::from_millis(5);
