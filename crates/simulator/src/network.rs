//! Connections in memory, and everything that can go wrong with them.
//!
//! Bytes that the "kernel" takes from the server wait, in order, in the inbox of their client until it reads them, or
//! they are lost with their connection. A client reads its connections in the order in which the kernel got the
//! bytes: no server could correct overtaking between two connections of one client.

use std::collections::VecDeque;
use std::io;
use std::io::IoSlice;

use encke_core::{ExchangeId, Format, Id, Response, SocketKey, Wire};
use websocket::deflate::Inflater;
use websocket::{Compression, Decoder, Event, Flow, Role, frame};

use crate::exchange::Exchange;
use crate::offers::Offers;
use crate::rng::Rng;
use crate::texts::read_stream;

/// All connections of a run.
#[derive(Debug)]
pub struct Network {
    /// The random numbers for faults.
    pub rng: Rng,
    /// WebSockets, by number; none is ever removed.
    pub conns: Vec<Conn>,
    /// HTTP exchanges, by number; none is ever removed.
    pub exchanges: Vec<Exchange>,
    /// The readable items of each client.
    pub inboxes: Vec<VecDeque<Item>>,
    /// Short writes per thousand.
    pub short_writes: usize,
    /// The compression that clients of new WebSockets offer.
    pub offers: Offers,
    /// Reads that began with a compressed message.
    pub compressed_reads: u64,
    /// Operations of shards on sockets that no server may do.
    pub breaches: Vec<String>,
    /// Decompresses for all clients.
    inflater: Inflater,
    /// For each shard, the connection at each index of its sockets.
    sockets: Vec<Vec<usize>>,
}

/// One WebSocket or stream.
#[derive(Debug)]
pub struct Conn {
    /// The client that owns it.
    pub client: usize,
    /// The session its client uses it for.
    pub session: Option<usize>,
    /// The shard that has it or will have it.
    pub shard: usize,
    /// The cookie of its upgrade request.
    pub browser: Option<Id>,
    /// The compression that its upgrade request offers.
    pub offer: Option<Compression>,
    /// Its key there; None on its way to another shard and after its end.
    pub key: Option<SocketKey>,
    /// The input that the client sent and the server has not read.
    pub up: VecDeque<Up>,
    /// The fate of the server's output.
    pub fate: Fate,
    /// True if the kernel took nothing at the last attempt.
    pub blocked: bool,
    /// True if the server has closed it.
    pub shut: bool,
    /// True if it is on its way to another shard.
    pub moving: bool,
    /// True while its last message waits for the application.
    pub suspended: bool,
    /// True if the server does not read it for now.
    pub waits: bool,
    /// True if the client still uses it.
    pub client_open: bool,
    /// Bytes that wait in the client's inbox.
    unread_bytes: usize,
    /// Bytes that may wait there.
    kernel_bytes: usize,
    decoder: Decoder,
    close_seen: bool,
    /// Its format, if it is a stream.
    pub stream: Option<Format>,
    /// The text of a stream that has no end yet.
    text: Vec<u8>,
}

/// The fate of the output that the server writes to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The client may read it.
    Healthy,
    /// Writing fails.
    Reset,
    /// The kernel takes it, but no client ever reads it.
    Void,
}

/// An input from a client on a WebSocket.
#[derive(Clone, Debug)]
pub enum Up {
    /// The upgrade request, with its cookie.
    Open(Option<Id>),
    /// The request for a stream of this session.
    Stream(Id),
    /// A text message, and the session whose client id is in it.
    Text(String, Option<usize>),
    /// A ping.
    Ping(Vec<u8>),
    /// An unsolicited pong.
    Pong,
    /// A violation for which the server has to fail the connection.
    Violation,
    /// The end of the connection.
    Gone,
}

/// An item that a client may read.
#[derive(Debug)]
pub enum Item {
    /// Bytes of a WebSocket.
    Bytes(usize, Vec<u8>),
    /// The end of a WebSocket.
    End(usize),
    /// The response to a request.
    Response(usize, Response),
    /// A request that will get no response.
    Failed(usize),
}

/// The result of decoding the bytes of a WebSocket.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A text message.
    Text(String),
    /// A pong with this payload.
    Pong(Vec<u8>),
    /// A close frame.
    Close(u16),
    /// A frame that no server may send.
    Breach(String),
}

impl Network {
    /// A network without connections.
    pub fn new(rng: Rng, shards: usize, clients: usize, short_writes: usize) -> Network {
        Network {
            offers: Offers::new(Rng::new(rng.clone().bits())),
            rng,
            conns: Vec::new(),
            exchanges: Vec::new(),
            inboxes: (0..clients).map(|_| VecDeque::new()).collect(),
            short_writes,
            compressed_reads: 0,
            breaches: Vec::new(),
            inflater: Inflater::default(),
            sockets: vec![Vec::new(); shards],
        }
    }

    /// A new WebSocket; the server does not know of it yet.
    pub fn open(&mut self, client: usize, shard: usize, kernel_bytes: usize, browser: Option<Id>) -> usize {
        let offer = self.offers.draw();
        self.conns.push(Conn {
            client,
            session: None,
            shard,
            browser,
            offer,
            key: None,
            up: VecDeque::from([Up::Open(browser)]),
            fate: Fate::Healthy,
            blocked: false,
            shut: false,
            moving: false,
            suspended: false,
            waits: false,
            client_open: true,
            unread_bytes: 0,
            kernel_bytes,
            decoder: Decoder::new(Role::Client, MESSAGE_BYTES_MAX),
            close_seen: false,
            stream: None,
            text: Vec::new(),
        });
        self.conns.len() - 1
    }

    /// A new stream of a session with this id; the server does not know of it yet.
    pub fn open_stream(
        &mut self,
        client: usize,
        id: Id,
        kernel_bytes: usize,
        browser: Option<Id>,
        format: Format,
    ) -> usize {
        let conn = self.open(client, id.shard(), kernel_bytes, browser);
        let state = &mut self.conns[conn];
        (state.up, state.stream) = (VecDeque::from([Up::Stream(id)]), Some(format));
        conn
    }

    /// Sets the kernel buffer of every connection to `kernel_bytes`.
    pub fn widen(&mut self, kernel_bytes: usize) {
        for conn in &mut self.conns {
            conn.kernel_bytes = kernel_bytes;
        }
    }

    /// The server accepts the offer of a client.
    pub fn accept(&mut self, conn: usize) {
        self.conns[conn].decoder.take_compressed();
    }

    /// True if the next bytes of a WebSocket begin a compressed message.
    pub fn begins_compressed(&self, conn: usize, bytes: &[u8]) -> bool {
        let conn = &self.conns[conn];
        conn.stream.is_none() && !conn.close_seen && !conn.decoder.is_partial() && frame::is_compressed(bytes)
    }

    /// Registers the key that a shard gives the connection.
    pub fn register(&mut self, conn: usize, shard: usize, key: SocketKey) {
        self.conns[conn].shard = shard;
        self.conns[conn].key = Some(key);
        let sockets = &mut self.sockets[shard];
        let index = key.index as usize;
        if sockets.len() <= index {
            sockets.resize(index + 1, usize::MAX);
        }
        sockets[index] = conn;
    }

    /// The connection with this key in a shard.
    pub fn find(&self, shard: usize, key: SocketKey) -> Option<usize> {
        let conn = *self.sockets[shard].get(key.index as usize)?;
        let named = self.conns.get(conn)?;
        (named.shard == shard && named.key == Some(key)).then_some(conn)
    }

    /// The server has closed a connection: the bytes in the kernel still reach the client.
    pub fn shut(&mut self, conn: usize) {
        if !std::mem::replace(&mut self.conns[conn].shut, true) {
            let client = self.conns[conn].client;
            self.inboxes[client].push_back(Item::End(conn));
            // The server waits for the client's close, for a limited time.
            self.conns[conn].up.push_back(Up::Gone);
        }
    }

    /// The server has reset a connection: unread bytes may be lost. Returns the lost texts.
    pub fn reset(&mut self, conn: usize) -> Vec<String> {
        let is_late = self.rng.chance(500);
        let lost = if is_late || !self.conns[conn].client_open { Vec::new() } else { self.lose_inbox(conn) };
        self.shut(conn);
        lost
    }

    /// The server's process is gone, and the connection with it: the client may read the bytes in the kernel.
    pub fn end(&mut self, conn: usize) {
        let state = &mut self.conns[conn];
        (state.key, state.moving, state.fate) = (None, false, Fate::Reset);
        state.up.clear();
        if !std::mem::replace(&mut state.shut, true) && state.client_open {
            self.inboxes[state.client].push_back(Item::End(conn));
        }
    }

    /// No shard has any connection.
    pub fn forget_sockets(&mut self) {
        self.sockets.iter_mut().for_each(Vec::clear);
    }

    /// The client drops a connection. Returns the texts that it never read, though the kernel had them completely.
    pub fn leave(&mut self, conn: usize) -> Vec<String> {
        self.conns[conn].client_open = false;
        self.conns[conn].up.push_back(Up::Gone);
        self.lose_inbox(conn)
    }

    /// The connection breaks. Returns the texts lost with it.
    pub fn break_off(&mut self, conn: usize) -> Vec<String> {
        let style = self.rng.below(3);
        let state = &mut self.conns[conn];
        state.fate = if style == 0 { Fate::Void } else { Fate::Reset };
        if style != 1 {
            state.up.clear();
        }
        state.up.push_back(Up::Gone);
        let client = state.client;
        // A reset that the client sees late: it may still read received bytes.
        let lost = if style == 2 { Vec::new() } else { self.lose_inbox(conn) };
        self.inboxes[client].push_back(Item::End(conn));
        lost
    }

    /// Drops the items that wait for the client on a connection.
    fn lose_inbox(&mut self, conn: usize) -> Vec<String> {
        let client = self.conns[conn].client;
        let mut lost = Vec::new();
        for item in std::mem::take(&mut self.inboxes[client]) {
            match item {
                Item::Bytes(of, bytes) if of == conn => lost.extend(self.decode_lost(conn, bytes)),
                other => self.inboxes[client].push_back(other),
            }
        }
        lost
    }

    /// Decodes bytes that the client reads.
    pub fn read(&mut self, conn: usize, bytes: Vec<u8>) -> Vec<Found> {
        let unread = &mut self.conns[conn].unread_bytes;
        *unread = unread.saturating_sub(bytes.len());
        self.compressed_reads += u64::from(self.begins_compressed(conn, &bytes));
        self.decode(conn, bytes)
    }

    /// The texts in bytes that no client will read.
    fn decode_lost(&mut self, conn: usize, bytes: Vec<u8>) -> Vec<String> {
        let mut texts = Vec::new();
        for found in self.decode(conn, bytes) {
            match found {
                Found::Text(text) => texts.push(text),
                Found::Breach(breach) => self.breaches.push(breach),
                Found::Pong(_) | Found::Close(_) => {}
            }
        }
        texts
    }

    /// Both the bytes read and the bytes lost pass through here, once and in order.
    fn decode(&mut self, conn: usize, mut bytes: Vec<u8>) -> Vec<Found> {
        let state = &mut self.conns[conn];
        let mut found = Vec::new();
        if let Some(format) = state.stream {
            state.text.append(&mut bytes);
            let batches = read_stream(&mut state.text, format).into_iter();
            return batches.map(|batch| batch.map_or_else(Found::Breach, Found::Text)).collect();
        }
        if state.close_seen {
            found.push(Found::Breach(format!("{} bytes after the close frame", bytes.len())));
            return found;
        }
        let result = state.decoder.feed_with(&mut bytes, &mut self.inflater, &mut |event| {
            let (what, flow) = match event {
                Event::Text(text) => (Found::Text(text.to_owned()), Flow::Continue),
                Event::Pong(payload) => (Found::Pong(payload.to_vec()), Flow::Continue),
                Event::Close(close) => (Found::Close(close.map_or(1005, |(code, _)| code)), Flow::Stop),
                Event::Binary(_) | Event::Ping(_) => {
                    (Found::Breach("a frame that nobody sends".into()), Flow::Continue)
                }
            };
            found.push(what);
            flow
        });
        state.close_seen = found.iter().any(|found| matches!(found, Found::Close(_)));
        match result {
            Err(error) => found.push(Found::Breach(format!("bytes that are no frames: {error}"))),
            Ok(taken) if taken < bytes.len() => {
                found.push(Found::Breach(format!("{} bytes after the close frame", bytes.len() - taken)));
            }
            Ok(_) => {}
        }
        found
    }

    /// A new request.
    pub fn request(&mut self, exchange: Exchange) -> usize {
        self.exchanges.push(exchange);
        self.exchanges.len() - 1
    }

    /// The id under which the shards know an exchange.
    pub fn id_of(&self, exchange: usize) -> ExchangeId {
        ExchangeId { shard: self.exchanges[exchange].shard as u16, number: exchange as u64 }
    }

    /// True if the kernel has room on a connection that was blocked.
    pub fn is_writable(&self, conn: usize) -> bool {
        let conn = &self.conns[conn];
        conn.blocked && conn.key.is_some() && (conn.unread_bytes < conn.kernel_bytes || conn.fate == Fate::Reset)
    }

    /// The part of `total` bytes that the kernel takes.
    fn room(&mut self, conn: usize, total: usize) -> usize {
        let conn = &self.conns[conn];
        let free = conn.kernel_bytes.saturating_sub(conn.unread_bytes).min(total);
        if free > 0 && self.rng.chance(self.short_writes) { self.rng.below(free + 1) } else { free }
    }

    fn take(&mut self, conn: usize, bytes: Vec<u8>) {
        let client = self.conns[conn].client;
        self.conns[conn].unread_bytes += bytes.len();
        self.inboxes[client].push_back(Item::Bytes(conn, bytes));
    }
}

impl Conn {
    /// True if it can break.
    pub fn is_up(&self) -> bool {
        self.client_open && self.fate == Fate::Healthy && !self.shut
    }
}

/// The sockets of one shard, for its flush.
#[derive(Debug)]
pub struct Kernel<'a> {
    /// All connections.
    pub network: &'a mut Network,
    /// The shard that writes.
    pub shard: usize,
    /// Texts that the kernel took completely and no client will ever read, with their clients.
    pub lost: Vec<(usize, String)>,
}

impl Wire for Kernel<'_> {
    fn write(&mut self, socket: SocketKey, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(conn) = self.network.find(self.shard, socket) else {
            self.network.breaches.push(format!("shard {} writes to {socket:?}, which is gone", self.shard));
            return Err(io::ErrorKind::NotConnected.into());
        };
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        if self.network.conns[conn].shut {
            self.network.breaches.push(format!("{total} bytes written to connection {conn}, which was shut"));
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if total == 0 {
            self.network.breaches.push(format!("an empty write to connection {conn}"));
        }
        if self.network.rng.chance(5) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let fate = self.network.conns[conn].fate;
        if fate == Fate::Reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let taken = self.network.room(conn, total);
        if taken == 0 {
            self.network.conns[conn].blocked = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(taken).collect();
        if fate == Fate::Void || !self.network.conns[conn].client_open {
            let client = self.network.conns[conn].client;
            let texts = self.network.decode_lost(conn, bytes);
            self.lost.extend(texts.into_iter().map(|text| (client, text)));
            // A connection that nobody reads fills up: then the kernel takes nothing more.
            self.network.conns[conn].unread_bytes += if fate == Fate::Void { taken } else { 0 };
        } else {
            self.network.take(conn, bytes);
        }
        Ok(taken)
    }
}

/// The longest message a client accepts.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
