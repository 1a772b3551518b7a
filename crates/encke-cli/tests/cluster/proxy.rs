//! A proxy that passes each connection to the next of several addresses, and that can be cut.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::nats::get;

/// A balancer that knows no sessions.
pub(crate) struct Proxy {
    address: String,
    state: Arc<State>,
}

struct State {
    targets: Vec<String>,
    /// True if it is a balancer of HTTP.
    balances: bool,
    next: AtomicUsize,
    is_cut: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// A proxy in front of these addresses.
    pub(crate) fn to(targets: Vec<String>) -> Proxy {
        Proxy::start(targets, false)
    }

    /// A balancer of HTTP: each request, and each WebSocket, goes to the next of these nodes that is ready.
    pub(crate) fn balancer(targets: Vec<String>) -> Proxy {
        Proxy::start(targets, true)
    }

    fn start(targets: Vec<String>, balances: bool) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (next, is_cut, open) = Default::default();
        let state = Arc::new(State { targets, balances, next, is_cut, open });
        let of_thread = state.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let of_connection = of_thread.clone();
                // A target that is gone is passed over by the next connection.
                std::thread::spawn(move || _ = of_connection.pass_on(near));
            }
        });
        Proxy { address, state }
    }

    /// The address on which it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Ends all connections. Later ones are passed on.
    pub(crate) fn cut_once(&self) {
        for stream in self.state.open.lock().expect("no panic").drain(..) {
            _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Ends all connections, and takes none until it is mended.
    pub(crate) fn cut(&self) {
        self.state.is_cut.store(true, Ordering::SeqCst);
        self.cut_once();
    }

    /// Takes connections again.
    pub(crate) fn mend(&self) {
        self.state.is_cut.store(false, Ordering::SeqCst);
    }
}

impl State {
    fn pass_on(&self, mut near: TcpStream) -> io::Result<()> {
        let request = if self.balances { one_request(&mut near)? } else { Vec::new() };
        let count = self.targets.len();
        let mut far = Err(io::ErrorKind::NotConnected.into());
        // Passes over those that are gone, as a balancer does that asks them for their health.
        let first = self.next.fetch_add(1, Ordering::SeqCst);
        for offset in 0..count {
            let target = &self.targets[(first + offset) % count];
            if self.balances && !get(target, "/readyz").starts_with("ready") {
                continue;
            }
            far = TcpStream::connect(target);
            if far.is_ok() {
                break;
            }
        }
        let mut far = far?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        far.write_all(&request)?;
        let mut open = self.open.lock().expect("no panic");
        if self.is_cut.load(Ordering::SeqCst) {
            return Ok(());
        }
        open.extend([near.try_clone()?, far.try_clone()?]);
        drop(open);
        for (mut from, mut to) in [(near.try_clone()?, far.try_clone()?), (far, near)] {
            std::thread::spawn(move || {
                _ = io::copy(&mut from, &mut to);
                _ = to.shutdown(Shutdown::Write);
            });
        }
        Ok(())
    }
}

/// Reads the head of a request and what has come of its body. The next request comes on another connection, unless it is an upgrade.
fn one_request(near: &mut TcpStream) -> io::Result<Vec<u8>> {
    const END: &[u8] = b"\r\n\r\n";
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    let length = loop {
        if let Some(at) = request.windows(END.len()).position(|window| window == END) {
            break at;
        }
        match near.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => request.extend_from_slice(&buffer[..count]),
        }
    };
    let (head, rest) = request.split_at(length);
    let head = String::from_utf8_lossy(head);
    let is = |line: &str, name: &str| line.to_ascii_lowercase().starts_with(name);
    if head.lines().any(|line| is(line, "upgrade:")) {
        return Ok(request);
    }
    let lines = head.lines().filter(|line| !is(line, "connection:"));
    let head: Vec<&str> = lines.chain(["Connection: close"]).collect();
    Ok([head.join("\r\n").as_bytes(), rest].concat())
}
