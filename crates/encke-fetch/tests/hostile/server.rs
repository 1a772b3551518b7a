//! Servers on loopback that misbehave as a test wants.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A server whose connections are each handled by a function on its own thread.
pub struct Hostile {
    pub url: String,
    connections: Arc<AtomicUsize>,
}

impl Hostile {
    pub fn serve(behave: impl Fn(Connection) + Send + Sync + 'static) -> Hostile {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (connections, behave) = (Arc::new(AtomicUsize::new(0)), Arc::new(behave));
        let count = connections.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                let behave = behave.clone();
                thread::spawn(move || behave(Connection::new(stream)));
            }
        });
        Hostile { url, connections }
    }

    /// A server that answers each request with this text.
    pub fn answering(response: impl Into<String>) -> Hostile {
        let response = response.into();
        Hostile::serve(
            move |mut connection| {
                while connection.request().is_some() && connection.write(response.as_bytes()) {}
            },
        )
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// The server's end of one connection.
pub struct Connection {
    reader: BufReader<TcpStream>,
    written: usize,
}

impl Connection {
    fn new(stream: TcpStream) -> Connection {
        Connection { reader: BufReader::new(stream), written: 0 }
    }

    /// Reads the head of a request. `None` when the client has closed the connection.
    pub fn request(&mut self) -> Option<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        Some(head)
    }

    /// Writes bytes. False when the client has closed the connection.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        let is_written = self.reader.get_mut().write_all(bytes).is_ok();
        self.written += if is_written { bytes.len() } else { 0 };
        is_written
    }

    /// Writes the same bytes again and again until the client closes the connection. Returns the number of bytes in all.
    pub fn flood(&mut self, bytes: &[u8]) -> usize {
        while self.write(bytes) {}
        self.written
    }

    /// Waits until the client closes the connection.
    pub fn wait(mut self) {
        let _ = io::copy(&mut self.reader, &mut io::sink());
    }
}
