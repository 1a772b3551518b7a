//! One shard without threads and sockets: the core alone, for counts and curves.

use std::hint::black_box;
use std::io::{self, IoSlice};
use std::sync::Arc;

use encke_core::{Application, NoApplication, Now, Settings, Shard, Shared, SocketKey, Wire};

/// A shard, and sockets that accept everything.
pub struct LoneShard {
    shard: Shard,
    wire: Sink,
    /// True if sessions ask for positions.
    pub replays: bool,
}

/// A session on a WebSocket.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its socket.
    pub socket: SocketKey,
    /// Its client id.
    pub id: String,
}

#[derive(Default)]
struct Sink {
    written: usize,
    last: Vec<u8>,
}

impl LoneShard {
    /// A shard with these settings.
    pub fn new(settings: Settings) -> Self {
        LoneShard::with_application(settings, Box::new(NoApplication))
    }

    /// A shard that asks an application.
    pub fn with_application(settings: Settings, application: Box<dyn Application>) -> Self {
        let shared = Arc::new(Shared::new(1, application));
        // Fixed ids make every run do the same work.
        let mut state = 1_u64;
        let entropy = Box::new(move |bytes: &mut [u8]| {
            for byte in bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
        });
        let shard = Shard::new(0, shared, Arc::new(settings), entropy, NOW);
        LoneShard { shard, wire: Sink::default(), replays: false }
    }

    /// Opens a WebSocket with a session; none if the shard refuses it.
    pub fn open(&mut self) -> Option<Session> {
        self.open_with(if self.replays { r#"{"replay":{"positions":"ext"}}"# } else { "{}" })
    }

    /// Opens a WebSocket with a session whose handshake has this `ext`; none if the shard refuses it.
    pub fn open_with(&mut self, ext: &str) -> Option<Session> {
        let socket = self.shard.socket_opened(NOW, None);
        self.send(
            socket,
            &format!(
                r#"[{{"id":"1","channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["websocket"],"ext":{ext}}}]"#
            ),
        );
        self.turn();
        let id = self.last().split(r#""clientId":""#).nth(1)?.split('"').next()?.to_owned();
        self.send(
            socket,
            &format!(r#"[{{"id":"2","channel":"/meta/connect","clientId":"{id}","connectionType":"websocket"}}]"#),
        );
        self.turn();
        Some(Session { socket, id })
    }

    /// Subscribes a session; `ext` begins with a comma, or is empty. Returns the begin of the reply.
    pub fn subscribe(&mut self, session: &Session, channel: &str, ext: &str) -> String {
        self.send(session.socket, &subscription("subscribe", session, channel, ext));
        self.turn();
        self.last()
    }

    /// Receives a text message.
    pub fn send(&mut self, socket: SocketKey, text: &str) {
        black_box(self.shard.socket_text(NOW, socket, text));
    }

    /// Ends a session with its socket.
    pub fn close(&mut self, session: &Session) {
        let Session { socket, id } = session;
        self.send(*socket, &format!(r#"[{{"id":"9","channel":"/meta/disconnect","clientId":"{id}"}}]"#));
        self.turn();
        self.shard.socket_closed(NOW, *socket);
    }

    /// Ends a turn: what is ready is written.
    pub fn turn(&mut self) {
        self.shard.flush(NOW, &mut self.wire, &mut || false);
        black_box(self.shard.take_effects());
    }

    /// Returns the number of bytes written since the last call.
    pub fn take_written(&mut self) -> usize {
        std::mem::take(&mut self.wire.written)
    }

    fn last(&self) -> String {
        String::from_utf8_lossy(&self.wire.last).into_owned()
    }
}

/// A message to `/meta/subscribe` or `/meta/unsubscribe`.
pub fn subscription(what: &str, session: &Session, channel: &str, ext: &str) -> String {
    let id = &session.id;
    format!(r#"[{{"id":"3","channel":"/meta/{what}","clientId":"{id}","subscription":"{channel}"{ext}}}]"#)
}

impl Wire for Sink {
    fn write(&mut self, _socket: SocketKey, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.last.clear();
        if let Some(first) = slices.first() {
            self.last.extend_from_slice(first.get(..LAST_BYTES_MAX).unwrap_or(first));
        }
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        self.written += bytes;
        Ok(bytes)
    }
}

const NOW: Now = Now { ms: 1, wall_ms: 1_800_000_000_000 };
/// The bytes of a reply that are stored: enough to find the client id.
const LAST_BYTES_MAX: usize = 512;
