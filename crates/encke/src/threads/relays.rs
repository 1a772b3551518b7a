//! The relays of the cluster's thread: WebSockets that are carried between this node and others.

use std::collections::HashMap;
use std::io;

use bytes::Bytes;
use encke_cluster::{RelayId, RelayOutput, RelayRequest, Sessions};
use encke_core::{ENVELOPE_BYTES, Peer, SocketOrigin};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use websocket::{Compression, Decoder, Role};

use crate::byte_stream::ByteStream;
use crate::cluster::link::Relayed;
use crate::cluster::relay::{self, FromRelay, ToRelay};
use crate::net::server_shared::ServerShared;
use crate::net::thread_message::{Moving, ThreadMessage};

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
            FromRelay::Ended(relay) => {
                self.open.remove(&relay);
                sessions.end_relay(relay);
            }
        }
    }

    /// Lets another node serve a WebSocket.
    pub(super) fn begin(&mut self, now_ms: u64, relayed: Relayed, sessions: &mut Sessions) {
        let Relayed { home, connection, origin, counted, text, rest } = relayed;
        let connection = match connection.attach() {
            Ok(connection) => connection,
            Err(error) => return tracing::warn!(%error, "a websocket was lost on its way to another node"),
        };
        let address = connection.peer_address();
        let compression = origin.compression().map_or(0, Compression::to_byte);
        let request = RelayRequest { opener: origin.opener(), address, compression, text };
        let relay = sessions.open_relay(now_ms, home, request);
        self.open.insert(relay, relay::start(relay, connection, rest, counted, self.done.clone()));
    }

    /// Does what the sessions want.
    pub(super) fn run(&mut self, output: RelayOutput, server: &ServerShared, message_bytes_max: usize) {
        match output {
            RelayOutput::Open(relay, request) => match self.open_here(relay, request, server, message_bytes_max) {
                Ok(to_relay) => _ = self.open.insert(relay, to_relay),
                Err(error) => {
                    tracing::warn!(%error, "a websocket of another node has no pair of sockets");
                    _ = self.done.send(FromRelay::Ended(relay));
                }
            },
            RelayOutput::Read(relay) => self.open.get(&relay).into_iter().for_each(ToRelay::read),
            RelayOutput::Write(relay, bytes, reply_to) => self.write(relay, bytes, reply_to),
            // What it has yet to write is written first.
            RelayOutput::End(relay) => _ = self.open.remove(&relay),
        }
    }

    fn write(&self, relay: RelayId, bytes: Bytes, reply_to: String) {
        if let Some(to_relay) = self.open.get(&relay) {
            to_relay.write(bytes, reply_to);
        }
    }

    /// Passes a WebSocket of another node to a shard, over a pair of sockets.
    fn open_here(
        &self,
        relay: RelayId,
        request: RelayRequest,
        server: &ServerShared,
        message_bytes_max: usize,
    ) -> io::Result<ToRelay> {
        let RelayRequest { opener, address, compression, text } = request;
        let (near, far) = ByteStream::pair()?;
        let compression = Compression::from_byte(compression);
        let mut decoder = Decoder::new(Role::Server, message_bytes_max);
        if compression.is_some() {
            decoder.take_compressed();
        }
        let peer = Peer { address, ..Peer::default() };
        let origin = SocketOrigin::of_node(opener, server.shared().origins_of(peer), compression);
        let charge = server.mailboxes.account().charge(ENVELOPE_BYTES + text.len());
        let (connection, rest) = (near.detach()?, Vec::new());
        let moving = Moving { connection, decoder, origin, counted: None, text, rest, charge };
        // The shard of its session gets it from there.
        server.mailboxes.send(0, ThreadMessage::Socket(Box::new(moving)));
        Ok(relay::start(relay, far, Vec::new(), (), self.done.clone()))
    }
}
