//! The task of one WebSocket: it reads, decodes, and passes messages to the shard.
//!
//! The flusher writes, so there is no queue, channel or buffer per socket here. An idle socket costs this small
//! future, its [`OpenSocket`], and its entry in the shard.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use encke_cluster::RelayRequest;
use tokio::sync::oneshot;
use websocket::{Compression, Decoder, Event, Flow, Opcode, Role};

use super::connections::Counted;
use super::incomplete::Sender;
use super::node::Node;
use super::open_sockets::{Closed, OpenSocket};
use super::queues::{QueuePosition, Reader};
use super::thread_message::{Moving, ThreadMessage};
use super::turn::yield_turn;
use crate::byte_stream::ByteStream;
use crate::cluster::link::{Relayed, ToCluster};
use encke_core::{
    Closing, ENVELOPE_BYTES, Head, Id, NodeTag, Now, Peer, Received, SocketKey, SocketOrigin, Usage, Weight,
};

/// The reason for which a socket's task ends.
enum End {
    /// The connection is gone.
    Lost,
    /// The shard closed it.
    Closed,
    /// Its session lives on another shard.
    Move(usize, String),
    /// Its session stays on this node of the cluster.
    Relay(NodeTag),
}

/// The client that opened a WebSocket.
pub(crate) struct Opener {
    /// The browser id in the cookie of the upgrade request.
    pub(crate) browser: Option<Id>,
    /// True if a page of a browser opened it, even if the browser sent no valid cookie.
    pub(crate) is_of_page: bool,
    pub(crate) peer: Peer,
    /// The head of the upgrade request, if the application reads heads.
    pub(crate) head: Option<Arc<Head>>,
    /// The compression on which it and the server have agreed, if they have.
    pub(crate) compression: Option<Compression>,
}

/// Runs a WebSocket on a connection that was just upgraded; `rest` are the bytes read after the upgrade request. A stream of an HTTP/2
/// connection is not counted.
pub(crate) fn open(node: &Rc<Node>, connection: ByteStream, counted: Option<Counted>, opener: Opener, rest: Vec<u8>) {
    let mut shard = node.shard_mut();
    let key = shard.socket_opened(node.now(), opener.browser);
    shard.socket_is_of(key, opener.peer, opener.is_of_page, opener.head);
    let mut decoder = Decoder::new(Role::Server, shard.settings().message_bytes_max);
    if let Some(compression) = opener.compression {
        decoder.take_compressed();
        shard.socket_compresses(key, compression);
    }
    drop(shard);
    start(node, connection, key, decoder, counted, Unread { text: None, rest });
}

/// Continues a WebSocket that another shard passed on.
pub(crate) fn go_on(node: &Rc<Node>, moving: Moving) {
    let Moving { connection, decoder, origin, counted, text, rest, charge: _released } = moving;
    match connection.attach() {
        Ok(connection) => {
            let key = node.shard_mut().socket_moved_here(node.now(), origin);
            start(node, connection, key, decoder, counted, Unread { text: Some(text), rest });
        }
        Err(error) => tracing::warn!(%error, "a websocket was lost on its way to its shard"),
    }
}

fn start(
    node: &Rc<Node>,
    connection: ByteStream,
    key: SocketKey,
    decoder: Decoder,
    counted: Option<Counted>,
    unread: Unread,
) {
    let stream = Rc::new(OpenSocket::new(key, connection));
    node.sockets().add(stream.clone());
    // Bytes read before the task started are decoded before anything else is read.
    let has_unread = unread.text.is_some() || !unread.rest.is_empty();
    let socket = Socket {
        node: node.clone(),
        stream,
        decoder,
        counted,
        unread: has_unread.then(|| Box::new(unread)),
        position: None,
        admitted: None,
        usage: Usage::default(),
        for_histories: false,
        shakes_hands: true,
    };
    tokio::task::spawn_local(Task(Some(socket)));
}

/// Input that is read and not processed yet.
struct Unread {
    /// A message that is already decoded.
    text: Option<String>,
    rest: Vec<u8>,
}

struct Socket {
    node: Rc<Node>,
    stream: Rc<OpenSocket>,
    decoder: Decoder,
    counted: Option<Counted>,
    /// Input that must wait. While there is any, nothing else is read.
    unread: Option<Box<Unread>>,
    /// Its position in the queue in which it waits.
    position: Option<QueuePosition>,
    /// The weight that its turn admitted: messages of that weight need not queue again.
    admitted: Option<Weight>,
    /// The work it has caused lately.
    usage: Usage,
    /// True if its last messages were for histories.
    for_histories: bool,
    /// True if nothing was read yet, or the last read ended with a handshake. Each handshake takes a turn, and what was read behind it
    /// waits here, so the next read is small.
    shakes_hands: bool,
}

/// The task of a WebSocket, until it ends. An `async fn` would store the socket twice, as its argument and as its variable.
struct Task(Option<Socket>);

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(socket) = &mut self.0 else { return Poll::Ready(()) };
        let (end, rest) = ready!(socket.poll(cx));
        socket.node.leave_queue(&mut socket.position);
        let Some(socket) = self.0.take() else { return Poll::Ready(()) };
        match end {
            End::Move(shard, text) => socket.leave(shard, text, rest),
            End::Relay(node) => socket.leave_to_node(node),
            // A separate task: the wait for the peer's end of the close handshake is rare and large.
            End::Closed => _ = tokio::task::spawn_local(socket.linger()),
            End::Lost => socket.forget(),
        }
        Poll::Ready(())
    }
}

impl Socket {
    /// Reads while there is input. Ready when the socket's task ends, with the bytes that were not decoded.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(End, Vec<u8>)> {
        if let Some(end) = self.closed() {
            return Poll::Ready((end, Vec::new()));
        }
        if self.stream.given_up.take() {
            self.decoder.end();
            self.close(self.node.now(), 1013, "too many incomplete messages");
            self.node.settle();
        }
        self.stream.reader.set(Some(cx.waker().clone()));
        self.node.write_when_ready(&self.stream, cx);
        loop {
            if self.stream.suspended.get() {
                self.node.wait_for_decision(&mut self.position, Reader::Socket(self.stream.key), cx.waker());
                return Poll::Pending;
            }
            if self.unread.is_none() {
                match self.stream.connection.poll_read_ready(cx) {
                    Poll::Pending => {
                        // It need not wait: it leaves its line.
                        self.node.leave_queue(&mut self.position);
                        return Poll::Pending;
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready((End::Lost, Vec::new())),
                    Poll::Ready(Ok(())) => {}
                }
            }
            // One time for all that is read at once: asking for it costs as much as reading a small message.
            let now = self.node.now();
            if !self.is_admitted(now, cx) {
                return Poll::Pending;
            }
            let node = self.node.clone();
            let before = counts(&node);
            let (ended, is_full) = match self.unread.take() {
                Some(unread) => (self.resume(now, *unread), true),
                None => {
                    let mut buffer = node.read_buffer();
                    let most = if std::mem::take(&mut self.shakes_hands) { HANDSHAKES_BYTES } else { buffer.len() };
                    let buffer = &mut buffer[..most];
                    match self.stream.connection.try_read(buffer) {
                        Ok(0) => return Poll::Ready((End::Lost, Vec::new())),
                        Ok(count) => (self.take(now, &mut buffer[..count]), count == buffer.len()),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                        Err(_) => return Poll::Ready((End::Lost, Vec::new())),
                    }
                }
            };
            self.node.settle();
            let after = counts(&node);
            self.usage.add(now, after.0 - before.0);
            self.for_histories = after.1 > before.1;
            self.admitted = None;
            if let Some(ended) = ended {
                return Poll::Ready(ended);
            }
            if let Some(end) = self.closed() {
                return Poll::Ready((end, Vec::new()));
            }
            // There may be more input; other tasks get a turn first.
            let is_cut = self.unread.as_ref().is_some_and(|unread| unread.text.is_none());
            if is_full || is_cut || after.0 - before.0 > WORK_AT_ONCE || self.for_histories {
                return yield_turn(cx);
            }
        }
    }

    /// True if the next message may be processed. If not, the task is woken when it may.
    fn is_admitted(&mut self, now: Now, cx: &mut Context<'_>) -> bool {
        let reader = Reader::Socket(self.stream.key);
        if self.for_histories && !self.node.may_publish_to_disk(&mut self.position, reader, cx.waker()) {
            return false;
        }
        let text = self.unread.as_ref().and_then(|unread| unread.text.as_ref());
        // A large message waits before the rest of it is read, not after.
        let bytes = text.map_or_else(|| self.decoder.held_bytes(), String::len);
        let weight = self.usage.weigh(now, bytes);
        let is_admitted = self.node.admit(now, &mut self.position, weight, bytes, reader, cx.waker());
        self.admitted = is_admitted.then_some(weight);
        is_admitted
    }

    /// Continues with the input that had to wait.
    fn resume(&mut self, now: Now, unread: Unread) -> Option<(End, Vec<u8>)> {
        let Unread { text, mut rest } = unread;
        if let Some(text) = text {
            match self.text(now, &text) {
                Received::Elsewhere(shard) => return Some((End::Move(shard, text), rest)),
                Received::Searches => {
                    self.unread = Some(Box::new(Unread { text: Some(text), rest }));
                    return None;
                }
                Received::Waits | Received::Handshake => {
                    self.unread = (!rest.is_empty()).then(|| Box::new(Unread { text: None, rest }));
                    return None;
                }
                Received::Here => {}
            }
        }
        if rest.is_empty() { None } else { self.take(now, &mut rest) }
    }

    /// Processes bytes as they were read, and retains input that must wait. Returns how the task ends, if it does,
    /// and the bytes not decoded.
    fn take(&mut self, now: Now, bytes: &mut [u8]) -> Option<(End, Vec<u8>)> {
        let (end, taken) = self.feed(now, bytes);
        if let Some(end) = end {
            return Some((end, bytes[taken..].to_vec()));
        }
        if let Some(unread) = &mut self.unread {
            unread.rest = bytes[taken..].to_vec();
        }
        self.unread.take_if(|unread| unread.text.is_none() && unread.rest.is_empty());
        None
    }

    /// The end, if the shard has closed the socket.
    fn closed(&self) -> Option<End> {
        self.stream.closed.get().map(|how| match how {
            Closed::Orderly => End::Closed,
            Closed::GivenUp => End::Lost,
            Closed::Relayed(node) => End::Relay(node),
        })
    }

    /// Decodes bytes and passes the events to the shard. Returns how the task ends, if it does, and the number of bytes taken.
    fn feed(&mut self, now: Now, bytes: &mut [u8]) -> (Option<End>, usize) {
        let mut end = None;
        let was_partial = self.decoder.is_partial();
        let mut decoder = std::mem::replace(&mut self.decoder, Decoder::new(Role::Server, 0));
        // Compressed messages are more work than the bytes that were read.
        let (read, mut texts) = (if decoder.takes_compressed() { bytes.len() } else { usize::MAX / 2 }, 0);
        let node = self.node.clone();
        let mut inflater = node.inflater();
        let result = decoder.feed_with(bytes, &mut inflater, &mut |event| {
            texts += if let Event::Text(text) = event { text.len() } else { 0 };
            end = self.event(now, event);
            if self.unread.is_none() && texts > read + WORK_AT_ONCE as usize {
                // The rest waits for the next turn.
                self.unread = Some(Box::new(Unread { text: None, rest: Vec::new() }));
            }
            if end.is_some() || self.unread.is_some() { Flow::Stop } else { Flow::Continue }
        });
        inflater.give_room_back();
        drop(inflater);
        self.usage.add(now, texts.saturating_sub(read) as u64);
        self.decoder = decoder;
        if was_partial || self.decoder.is_partial() {
            self.node.note_incomplete(Sender::Socket(self.stream.key), self.decoder.held_bytes(), None);
        }
        match result {
            Err(error) => {
                tracing::debug!(code = error.close_code(), reason = error.reason(), "websocket closed");
                self.node.shard().metrics().websocket_errors.add(1);
                self.close(now, error.close_code(), error.reason());
                (None, bytes.len())
            }
            Ok(taken) => (end, taken),
        }
    }

    fn event(&mut self, now: Now, event: Event<'_>) -> Option<End> {
        match event {
            // Its turn is over, or admitted only smaller messages.
            Event::Text(text) if !self.node.admits_next(now, self.usage.weigh(now, text.len()), self.admitted) => {
                self.unread = Some(Box::new(Unread { text: Some(text.to_owned()), rest: Vec::new() }));
            }
            Event::Text(text) => {
                match self.text(now, text) {
                    Received::Elsewhere(shard) => return Some(End::Move(shard, text.to_owned())),
                    // It comes again.
                    Received::Searches => {
                        self.unread = Some(Box::new(Unread { text: Some(text.to_owned()), rest: Vec::new() }));
                    }
                    // The bytes behind it wait, too.
                    Received::Waits | Received::Handshake => {
                        self.unread = Some(Box::new(Unread { text: None, rest: Vec::new() }))
                    }
                    Received::Here => {}
                }
            }
            Event::Binary(bytes) if self.node.server().echo => self.echo(now, Opcode::Binary, bytes),
            Event::Binary(_) => self.close(now, 1003, "text messages only"),
            Event::Ping(payload) => self.node.shard_mut().socket_ping(now, self.stream.key, payload),
            Event::Pong(_) => self.node.shard_mut().socket_pong(now, self.stream.key),
            // The peer's code is sent back (RFC 6455 §5.5.1).
            Event::Close(code) => self.close(now, code.map_or(1000, |(code, _)| code), ""),
        }
        None
    }

    fn text(&mut self, now: Now, text: &str) -> Received {
        if self.node.server().echo {
            self.echo(now, Opcode::Text, text.as_bytes());
            return Received::Here;
        }
        let received = self.node.shard_mut().socket_text(now, self.stream.key, text);
        self.stream.suspended.set(matches!(received, Received::Waits | Received::Searches));
        self.shakes_hands = received == Received::Handshake;
        received
    }

    fn echo(&mut self, now: Now, opcode: Opcode, payload: &[u8]) {
        self.node.shard_mut().socket_send(now, self.stream.key, opcode, payload);
    }

    fn close(&mut self, now: Now, code: u16, reason: &'static str) {
        self.node.shard_mut().socket_close(now, self.stream.key, Closing { code, reason });
    }

    async fn linger(self) {
        self.stream.connection.linger().await;
        self.forget();
    }

    fn forget(&self) {
        if self.decoder.is_partial() {
            self.node.note_incomplete(Sender::Socket(self.stream.key), 0, None);
        }
        self.node.forget_socket(self.stream.key);
    }

    /// Moves the connection to the shard of its session.
    fn leave(self, shard: usize, text: String, rest: Vec<u8>) {
        let origin = self.node.shard().socket_origin(self.stream.key);
        self.forget();
        let Socket { node, stream, decoder, counted, .. } = self;
        let connection = Rc::into_inner(stream).and_then(|stream| stream.connection.detach().ok());
        match (connection, origin) {
            (Some(connection), Some(origin)) => {
                let charge = node.server().mailboxes.account().charge(ENVELOPE_BYTES + text.len() + rest.len());
                let moving = Moving { connection, decoder, origin, counted, text, rest, charge };
                node.send(shard, ThreadMessage::Socket(Box::new(moving)));
            }
            _ => tracing::warn!("a websocket could not move to its shard"),
        }
    }

    /// Lets another node serve the connection.
    fn leave_to_node(self, home: NodeTag) {
        let origin = self.node.shard().socket_origin(self.stream.key);
        self.forget();
        let Socket { node, stream, unread, counted, .. } = self;
        let of_connection = stream.connection.peer_address();
        let connection = Rc::into_inner(stream).and_then(|stream| stream.connection.detach().ok());
        let text = unread.and_then(|unread| Some((unread.text?, unread.rest)));
        match (connection, origin, text, &node.server().cluster) {
            (Some(connection), Some(origin), Some((text, rest)), Some(cluster)) => {
                let (opener, compression) = (origin.opener(), origin.compression().map_or(0, Compression::to_byte));
                let address = client_address(&node, &origin, of_connection);
                let request = RelayRequest::WebSocket { opener, address, compression, text };
                let (seat, taken) = oneshot::channel();
                _ = seat.send((connection, Box::new(counted) as Box<dyn Send>));
                let relayed = Relayed { home, request, connection: taken, rest, opened: None };
                cluster.send(ToCluster::Relay(Box::new(relayed)));
            }
            _ => tracing::warn!("a websocket could not be passed to the node of its session"),
        }
    }
}

/// The address of a WebSocket's client, for another node. That of one behind a proxy is known here by its hash only: an address of
/// fd00::/8 (RFC 4193) with this hash stands for it.
fn client_address(node: &Node, origin: &SocketOrigin, of_connection: Option<IpAddr>) -> Option<IpAddr> {
    let [_, address] = origin.origins();
    let [_, own] = node.server().shared().origins_of(Peer { address: of_connection, ..Peer::default() });
    if address == 0 || address == own {
        return of_connection;
    }
    let bits = (0xfd << 120) | (u128::from(address) << 64 & ((1 << 120) - 1));
    Some(IpAddr::V6(Ipv6Addr::from_bits(bits)))
}

/// Work and bytes for histories since the start.
fn counts(node: &Node) -> (u64, u64) {
    let shard = node.shard();
    (shard.work(), shard.recorded_bytes())
}

/// The work caused by one read, in bytes, after which other tasks get a turn.
const WORK_AT_ONCE: u64 = 64 * 1024;
/// The bytes that are read at once while a client shakes hands.
const HANDSHAKES_BYTES: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// tokio adds some 100 bytes and rounds up to a multiple of 128: the task of an idle WebSocket takes 256 bytes.
    #[test]
    fn an_idle_websocket_needs_a_small_task() {
        assert!(size_of::<Task>() <= 128, "{}", size_of::<Task>());
        assert!(size_of::<OpenSocket>() <= 80, "{}", size_of::<OpenSocket>());
    }
}
