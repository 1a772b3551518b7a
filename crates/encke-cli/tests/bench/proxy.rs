//! A server behind a proxy that holds back a part of what passes, over long-polling.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A running proxy in front of a port on which a server starts, ends, and starts again.
pub struct Proxy {
    /// The port for clients.
    pub port: u16,
    /// The port of the server.
    pub server_port: u16,
}

/// The part that is held back. Each function returns when the messages may pass.
pub trait Rule: Send + Sync + 'static {
    /// Holds messages of a client.
    fn request(&self, _messages: &Messages) {}

    /// Holds messages of the server; `has_restarted` is true for the second one.
    fn response(&self, messages: &Messages, has_restarted: bool);
}

/// The Bayeux messages of one HTTP message.
pub struct Messages(Vec<Value>);

/// Holds back the subscribes of clients that come back, until publications have been confirmed without them. So these clients miss
/// messages for certain, however slow or busy the machine is. Each client subscribes once.
pub struct LateSubscribes {
    /// The subscribes that pass at once.
    passed_max: usize,
    /// Subscribes so far.
    subscribes: AtomicUsize,
    /// Confirmed publications since the first subscribe was held.
    confirmed: AtomicUsize,
}

/// Holds back the answers of a restarted server: the replies to publications until the load has stopped sending, and the deliveries
/// until some time later. The load has one subscriber.
#[derive(Default)]
pub struct LateReplies {
    /// The first response to a connect after the restart. The one subscriber has returned; the publisher's connect is held.
    returned: OnceLock<Instant>,
}

impl Proxy {
    /// Starts a proxy.
    pub fn start(rule: impl Rule) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let server = free.local_addr().expect("an address");
        let (rule, has_ended) = (Arc::new(rule), Arc::new(AtomicBool::new(false)));
        let ended = Arc::clone(&has_ended);
        thread::spawn(move || watch(server, &ended));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (rule, has_ended) = (Arc::clone(&rule), Arc::clone(&has_ended));
                thread::spawn(move || serve(client, server, &rule, &has_ended));
            }
        });
        Proxy { port, server_port: server.port() }
    }
}

/// Notes the end of the first server. The load starts the second one some time later.
fn watch(server: SocketAddr, has_ended: &AtomicBool) {
    if connect(server).is_some() {
        while TcpStream::connect(server).is_ok() {
            thread::sleep(TURN);
        }
        has_ended.store(true, Ordering::Relaxed);
    }
}

fn serve(client: TcpStream, server: SocketAddr, rule: &Arc<impl Rule>, has_ended: &AtomicBool) {
    let Some(server) = connect(server) else { return };
    let has_restarted = has_ended.load(Ordering::Relaxed);
    let (from, to) = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
    let requests = Arc::clone(rule);
    thread::spawn(move || pass(from, to, |messages| requests.request(messages)));
    pass(server, client, |messages| rule.response(messages, has_restarted));
}

/// Connects to the server as soon as it listens.
fn connect(server: SocketAddr) -> Option<TcpStream> {
    let began = Instant::now();
    while began.elapsed() < START_TIMEOUT {
        if let Ok(server) = TcpStream::connect(server) {
            return Some(server);
        }
        thread::sleep(TURN);
    }
    None
}

/// Passes HTTP messages until one side ends; `hold` sees each before it is passed.
fn pass(from: TcpStream, mut to: TcpStream, hold: impl Fn(&Messages)) {
    let mut from = BufReader::new(from);
    while let Ok((head, body)) = http_message(&mut from) {
        hold(&Messages(serde_json::from_slice(&body).unwrap_or_default()));
        if to.write_all(&[head, body].concat()).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// The head and the body of the next request or response.
fn http_message(from: &mut impl BufRead) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let begin = head.len();
        from.read_until(b'\n', &mut head)?;
        let line = String::from_utf8_lossy(&head[begin..]);
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            _ if line.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ if line == "\r\n" => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok((head, body))
}

impl Messages {
    /// True if one of them has a channel that begins so.
    fn any(&self, channel: &str) -> bool {
        self.0.iter().any(|message| message["channel"].as_str().is_some_and(|name| name.starts_with(channel)))
    }
}

impl LateSubscribes {
    /// Subscribes after the first `passed_max` are held.
    pub fn after(passed_max: usize) -> LateSubscribes {
        LateSubscribes { passed_max, subscribes: AtomicUsize::new(0), confirmed: AtomicUsize::new(0) }
    }
}

impl Rule for LateSubscribes {
    fn request(&self, messages: &Messages) {
        if messages.any("/meta/subscribe") && self.subscribes.fetch_add(1, Ordering::Relaxed) >= self.passed_max {
            wait(SUBSCRIBES_HELD_MAX, || self.confirmed.load(Ordering::Relaxed) >= CONFIRMED_FIRST);
        }
    }

    fn response(&self, messages: &Messages, _has_restarted: bool) {
        let is_confirmed = |message: &Value| message["successful"] == true;
        if self.subscribes.load(Ordering::Relaxed) > self.passed_max
            && messages.any("/avalanche/")
            && messages.0.iter().all(is_confirmed)
            && !messages.any("/meta/")
        {
            self.confirmed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Rule for LateReplies {
    fn response(&self, messages: &Messages, has_restarted: bool) {
        if !has_restarted || messages.any("/meta/connect") && self.returned.set(Instant::now()).is_ok() {
            return;
        }
        if messages.any("/avalanche/") {
            let after = if messages.any("/meta/") { DELIVERIES_AFTER } else { REPLIES_AFTER };
            // Not for ever: on a slow machine the second server may have been taken for the first.
            wait(REPLIES_HELD_MAX, || self.returned.get().is_some_and(|returned| returned.elapsed() >= after));
        }
    }
}

/// Waits until something is so, and no longer than `limit`.
fn wait(limit: Duration, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() && began.elapsed() < limit {
        thread::sleep(TURN);
    }
}

/// The publications that are confirmed before the held subscribes pass.
const CONFIRMED_FIRST: usize = 5;
/// Longer than the load waits for its clients.
const SUBSCRIBES_HELD_MAX: Duration = Duration::from_secs(120);
/// The load has sent its last publication 400 ms after all have returned, and lingered for 500 ms.
const REPLIES_AFTER: Duration = Duration::from_millis(650);
const DELIVERIES_AFTER: Duration = Duration::from_millis(1500);
const REPLIES_HELD_MAX: Duration = Duration::from_secs(4);
const START_TIMEOUT: Duration = Duration::from_secs(60);
const TURN: Duration = Duration::from_millis(5);
