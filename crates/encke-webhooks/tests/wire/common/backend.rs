//! A backend on loopback that answers as a test wants, also with things that are no answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use encke_webhooks::signature::Secret;
use serde_json::Value;

/// A request that the backend got.
#[derive(Clone, Debug)]
pub struct Seen {
    pub id: String,
    /// The `type` of the event.
    pub kind: String,
    /// The `data` of the event.
    pub data: Value,
    /// True if the signature is right.
    pub is_signed: bool,
}

/// The behaviour of the backend towards one request.
pub enum Answer {
    /// 200 with this body.
    Json(Value),
    /// This status, without a body.
    Status(u16),
    /// These bytes, then the end of the connection.
    Raw(Vec<u8>),
    /// The same, but the connection stays open.
    RawOpen(Vec<u8>),
    /// A body that announces and sends more than a gigabyte, until the client leaves.
    Endless,
    /// No answer before the gate opens; then 200 with this body.
    After(Gate, Value),
}

/// Holds answers back until it is opened.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

/// A running backend.
pub struct Backend {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    answer: Box<dyn Fn(&Seen) -> Answer + Send + Sync>,
    seen: Mutex<Vec<Seen>>,
    sockets: Mutex<Vec<TcpStream>>,
    is_stopped: AtomicBool,
    busy: AtomicUsize,
    busy_max: AtomicUsize,
}

impl Gate {
    pub fn open(&self) {
        *self.0.0.lock().expect("unpoisoned") = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let opened = self.0.0.lock().expect("unpoisoned");
        drop(self.0.1.wait_timeout_while(opened, Duration::from_secs(60), |opened| !*opened).expect("unpoisoned"));
    }
}

impl Backend {
    pub fn start(answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Backend {
        Backend::listen("127.0.0.1:0".parse().expect("an address"), answer)
    }

    /// On the address of a backend that has stopped.
    pub fn listen(address: SocketAddr, answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Backend {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            seen: Mutex::default(),
            sockets: Mutex::default(),
            is_stopped: AtomicBool::default(),
            busy: AtomicUsize::default(),
            busy_max: AtomicUsize::default(),
        });
        let accepting = shared.clone();
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                if accepting.is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                accepting.sockets.lock().expect("unpoisoned").push(socket.try_clone().expect("a clone"));
                let shared = accepting.clone();
                thread::spawn(move || shared.serve(socket));
            }
        });
        Backend { address, shared }
    }

    /// An address where nobody listens.
    pub fn nowhere() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
    }

    /// Closes the port and all connections.
    pub fn stop(self) -> SocketAddr {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        for socket in self.shared.sockets.lock().expect("unpoisoned").drain(..) {
            // It may have ended.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        self.address
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().expect("unpoisoned").clone()
    }

    /// The types of the events so far.
    pub fn kinds(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.kind).collect()
    }

    /// Waits until it has got this number of requests.
    pub async fn wait_for(&self, count: usize) -> Vec<Seen> {
        for _ in 0..6_000 {
            if self.seen().len() >= count {
                return self.seen();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} of {count} requests came: {:?}", self.seen().len(), self.kinds());
    }

    /// The largest number of requests at the same time.
    pub fn busy_max(&self) -> usize {
        self.shared.busy_max.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn serve(&self, mut socket: TcpStream) {
        let mut reader = BufReader::new(socket.try_clone().expect("a clone"));
        while let Some(seen) = read(&mut reader) {
            let busy = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
            self.busy_max.fetch_max(busy, Ordering::SeqCst);
            self.seen.lock().expect("unpoisoned").push(seen.clone());
            let goes_on = reply(&mut socket, (self.answer)(&seen));
            self.busy.fetch_sub(1, Ordering::SeqCst);
            if !goes_on {
                return;
            }
        }
    }
}

/// Answers one request. False if the connection ends.
fn reply(socket: &mut TcpStream, answer: Answer) -> bool {
    let (bytes, stays) = match answer {
        Answer::Json(body) => (ok(&body), true),
        Answer::Status(status) => (format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").into_bytes(), true),
        Answer::Raw(bytes) => (bytes, false),
        Answer::RawOpen(bytes) => (bytes, true),
        Answer::After(gate, body) => {
            gate.pass();
            (ok(&body), true)
        }
        Answer::Endless => {
            // Without a length, so that only counting can end it.
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
            let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
            let mut sent = socket.write_all(&head);
            for _ in 0..(1 << 30) / 0x10000 {
                sent = sent.and_then(|()| socket.write_all(&chunk));
            }
            assert!(sent.is_err(), "somebody has read a gigabyte");
            return false;
        }
    };
    let sent = socket.write_all(&bytes).is_ok();
    if !stays {
        // The other side may have closed before.
        let _ = socket.shutdown(std::net::Shutdown::Both);
    }
    sent && stays
}

fn ok(body: &Value) -> Vec<u8> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Seen> {
    let (mut id, mut seconds, mut signatures, mut length) = (String::new(), 0, String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            if line.trim_end().is_empty() {
                break;
            }
            assert!(line.starts_with("POST /encke "), "{line}");
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "webhook-id" => id = value.into(),
            "webhook-timestamp" => seconds = value.parse().expect("a number"),
            "webhook-signature" => signatures = value.into(),
            "content-length" => length = value.parse().expect("a number"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let secret = Secret::parse(super::SECRET).expect("valid");
    let is_signed = secret.verifies(&signatures, &id, seconds, &body);
    let event: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(event["id"], id);
    let kind = event["type"].as_str().expect("a type").into();
    Some(Seen { id, kind, data: event["data"].clone(), is_signed })
}
