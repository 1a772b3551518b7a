//! A way to MongoDB that can be closed: connections end, and new ones are refused.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::mongodb_url;

/// The gate.
pub(crate) struct Gate {
    address: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_closed: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Gate {
    /// An open one, in front of the server of the tests.
    pub(crate) fn open() -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let state = Arc::<State>::default();
        let shared = state.clone();
        std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| serve(stream, &shared)));
        Gate { address, state }
    }

    /// The URL through the gate.
    pub(crate) fn url(&self) -> String {
        // The server would name its own address to a driver that asks for all of a set.
        format!("mongodb://{}/?directConnection=true", self.address)
    }

    /// Lets nothing pass.
    pub(crate) fn close(&self) {
        self.state.is_closed.store(true, Ordering::SeqCst);
        for stream in self.state.streams.lock().expect("the streams").drain(..) {
            // It may have ended.
            _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Lets all pass again.
    pub(crate) fn open_again(&self) {
        self.state.is_closed.store(false, Ordering::SeqCst);
    }
}

fn serve(client: TcpStream, state: &Arc<State>) {
    let url = mongodb_url();
    let server = url.trim_start_matches("mongodb://").trim_end_matches('/');
    if state.is_closed.load(Ordering::SeqCst) {
        return;
    }
    let Ok(server) = TcpStream::connect(server) else { return };
    let both = [&client, &server].map(|stream| stream.try_clone().expect("a second handle"));
    state.streams.lock().expect("the streams").extend(both);
    if state.is_closed.load(Ordering::SeqCst) {
        // It was closed meanwhile, and does not know these.
        _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
    }
    let (from, to) = (client.try_clone().expect("a handle"), server.try_clone().expect("a handle"));
    std::thread::spawn(move || copy(from, to));
    std::thread::spawn(move || copy(server, client));
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count) = from.read(&mut bytes)
        && count > 0
        && to.write_all(&bytes[..count]).is_ok()
    {}
    _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
