//! The relays of the cluster's thread: WebSockets and streams that are carried between this node and others.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use encke_cluster::{RelayId, RelayOutput, RelayRequest, Sessions, Visitor};
use encke_core::{ENVELOPE_BYTES, Peer, Shard, SocketOrigin, StreamOpener, StreamOpening};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use websocket::{Compression, Decoder, Role};

use crate::byte_stream::ByteStream;
use crate::cluster::link::Relayed;
use crate::cluster::relay::{self, FromRelay, ToRelay};
use crate::net::server_shared::ServerShared;
use crate::net::stream_request::StreamRequest;
use crate::net::thread_message::{Moving, MovingStream, ThreadMessage};

/// The ends of relays on this node.
pub(super) struct Relays {
    open: HashMap<RelayId, ToRelay>,
    done: UnboundedSender<FromRelay>,
    events: UnboundedReceiver<FromRelay>,
}

impl Default for Relays {
    fn default() -> Relays {
        let (done, events) = unbounded_channel();
        Relays { open: HashMap::new(), done, events }
    }
}

impl Relays {
    /// The next thing that a relay has done.
    pub(super) async fn next(&mut self) -> Option<FromRelay> {
        self.events.recv().await
    }

    /// Passes it to the sessions, and all others that are there.
    pub(super) fn take(&mut self, first: FromRelay, sessions: &mut Sessions) {
        let mut next = Some(first);
        while let Some(event) = next {
            self.take_one(event, sessions);
            next = self.events.try_recv().ok();
        }
    }

    fn take_one(&mut self, event: FromRelay, sessions: &mut Sessions) {
        match event {
            FromRelay::Read(relay, bytes) => sessions.carry(relay, bytes),
            FromRelay::Written(reply_to) => sessions.carried(reply_to),
            FromRelay::Looked(session, reply_to, refusal) => sessions.looked(&session, reply_to, refusal),
            FromRelay::Ended(relay) => {
                self.open.remove(&relay);
                sessions.end_relay(relay);
            }
        }
    }

    /// Lets another node serve a connection.
    pub(super) fn begin(&mut self, now_ms: u64, relayed: Relayed, sessions: &mut Sessions) {
        let Relayed { home, connection, request, counted, rest } = relayed;
        let connection = match connection.attach() {
            Ok(connection) => connection,
            Err(error) => return tracing::warn!(%error, "a connection was lost on its way to another node"),
        };
        let relay = sessions.open_relay(now_ms, home, request);
        self.open.insert(relay, relay::start(relay, connection, rest, counted, self.done.clone()));
    }

    /// Does what the sessions want.
    pub(super) fn run(&mut self, output: RelayOutput, server: &Arc<ServerShared>, message_bytes_max: usize) {
        match output {
            RelayOutput::Look(visitor, reply_to) => self.look(visitor, reply_to, server.clone()),
            RelayOutput::Open(relay, request) => match self.open_here(relay, request, server, message_bytes_max) {
                Ok(to_relay) => _ = self.open.insert(relay, to_relay),
                Err(error) => {
                    tracing::warn!(%error, "a connection of another node has no pair of sockets");
                    _ = self.done.send(FromRelay::Ended(relay));
                }
            },
            RelayOutput::Read(relay) => self.open.get(&relay).into_iter().for_each(ToRelay::read),
            RelayOutput::Write(relay, bytes, reply_to) => self.write(relay, bytes, reply_to),
            // The bytes that it has yet to write are written first.
            RelayOutput::End(relay) => _ = self.open.remove(&relay),
        }
    }

    fn write(&self, relay: RelayId, bytes: Bytes, reply_to: String) {
        if let Some(to_relay) = self.open.get(&relay) {
            to_relay.write(bytes, reply_to);
        }
    }

    /// Asks the shard of a session if it takes the stream of a client of another node.
    fn look(&self, visitor: Visitor, reply_to: String, server: Arc<ServerShared>) {
        let (session, done) = (visitor.session, self.done.clone());
        let look = move |shard: &Shard| shard.stream_refusal(session.as_str(), &opener_of(&visitor));
        tokio::spawn(async move {
            let refusal = server.inspect(server.shared().shard_of(&session), look).await;
            // The thread has ended with the server.
            _ = done.send(FromRelay::Looked(session, reply_to, refusal.unwrap_or(Some(StreamOpening::Draining))));
        });
    }

    /// Passes a connection of another node to a shard, over a pair of sockets.
    fn open_here(
        &self,
        relay: RelayId,
        request: RelayRequest,
        server: &ServerShared,
        message_bytes_max: usize,
    ) -> io::Result<ToRelay> {
        let (near, far) = ByteStream::pair()?;
        let (connection, mailboxes) = (near.detach()?, &server.mailboxes);
        let charge = |bytes: usize| mailboxes.account().charge(ENVELOPE_BYTES + bytes);
        match request {
            RelayRequest::WebSocket { opener, address, compression, text } => {
                let compression = Compression::from_byte(compression);
                let mut decoder = Decoder::new(Role::Server, message_bytes_max);
                if compression.is_some() {
                    decoder.take_compressed();
                }
                let peer = Peer { address, ..Peer::default() };
                let origin = SocketOrigin::of_node(opener, server.shared().origins_of(peer), compression);
                let (charge, rest) = (charge(text.len()), Vec::new());
                let moving = Moving { connection, decoder, origin, counted: None, text, rest, charge };
                // The shard of its session gets it from there.
                mailboxes.send(0, ThreadMessage::Socket(Box::new(moving)));
            }
            RelayRequest::Stream(visitor, format) => {
                let Visitor { session, .. } = visitor;
                let client = session.as_str().to_owned();
                let opener = opener_of(&visitor);
                // The node of its client has written what comes before the first message.
                let (introduction, head) = (String::new(), Vec::new());
                let request = StreamRequest { client, home: None, opener, format, introduction, reached: None };
                let charge = charge(0);
                let moving = MovingStream { connection, counted: None, request, head, charge };
                mailboxes.send(server.shared().shard_of(&session), ThreadMessage::Stream(Box::new(moving)));
            }
        }
        Ok(relay::start(relay, far, Vec::new(), (), self.done.clone()))
    }
}

/// A client of another node that wants a stream.
fn opener_of(visitor: &Visitor) -> StreamOpener {
    let Visitor { opener, address, is_multiplexed, .. } = *visitor;
    StreamOpener::of_node(opener, Peer { address, connection: 0, is_multiplexed })
}
