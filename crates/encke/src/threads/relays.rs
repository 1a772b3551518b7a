//! The relays of the cluster's thread: WebSockets and streams that are carried between this node and others.

use std::collections::HashMap;
use std::future::ready;
use std::io;

use bytes::Bytes;
use encke_cluster::{RelayId, RelayOutput, RelayRequest, Sessions, Visitor};
use encke_core::{ENVELOPE_BYTES, Peer, SocketOrigin, StreamOpener, StreamOpening};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use websocket::{Compression, Decoder, Role};

use crate::byte_stream::ByteStream;
use crate::cluster::link::Relayed;
use crate::cluster::relay::{self, FromRelay, ToRelay};
use crate::net::server_shared::ServerShared;
use crate::net::stream_request::{Served, StreamRequest};
use crate::net::thread_message::{Moving, MovingStream, ThreadMessage};

/// The ends of relays on this node.
pub(super) struct Relays {
    open: HashMap<RelayId, ToRelay>,
    /// Those of them whose other node has yet to open, with the party that waits for that.
    opening: HashMap<RelayId, oneshot::Sender<Option<StreamOpening>>>,
    done: UnboundedSender<FromRelay>,
    events: UnboundedReceiver<FromRelay>,
}

impl Default for Relays {
    fn default() -> Relays {
        let (done, events) = unbounded_channel();
        Relays { open: HashMap::new(), opening: HashMap::new(), done, events }
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
            FromRelay::Opened(relay, reply_to, refusal) => sessions.opened(relay, reply_to, refusal),
            FromRelay::Ended(relay) => {
                self.end(relay, StreamOpening::Draining);
                sessions.end_relay(relay);
            }
        }
    }

    /// Lets another node serve a connection.
    pub(super) fn begin(&mut self, now_ms: u64, relayed: Relayed, sessions: &mut Sessions) {
        let Relayed { home, request, connection, rest, opened } = relayed;
        let connection = async {
            // Its client may leave before it is there.
            let (connection, counted) = connection.await.ok()?;
            let attached = connection.attach();
            attached
                .inspect_err(|error| tracing::warn!(%error, "a connection was lost on its way to another node"))
                .ok()
                .map(|connection| (connection, counted))
        };
        let relay = sessions.open_relay(now_ms, home, request);
        self.open.insert(relay, relay::start(relay, connection, rest, self.done.clone()));
        opened.into_iter().for_each(|opened| _ = self.opening.insert(relay, opened));
    }

    /// Does what the sessions want.
    pub(super) fn run(&mut self, output: RelayOutput, server: &ServerShared, message_bytes_max: usize) {
        match output {
            RelayOutput::Open(relay, request, reply_to) => {
                match self.open_here((relay, reply_to), request, server, message_bytes_max) {
                    Ok(to_relay) => _ = self.open.insert(relay, to_relay),
                    Err(error) => tracing::warn!(%error, "a connection of another node has no pair of sockets"),
                }
            }
            RelayOutput::Read(relay) => {
                self.tell_opened(relay, None);
                self.open.get(&relay).into_iter().for_each(ToRelay::read);
            }
            RelayOutput::Write(relay, bytes, reply_to) => self.write(relay, bytes, reply_to),
            // The bytes that it has yet to write are written first.
            RelayOutput::End(relay) => self.end(relay, StreamOpening::Draining),
            RelayOutput::Refuse(relay, refusal) => self.end(relay, refusal),
        }
    }

    fn write(&self, relay: RelayId, bytes: Bytes, reply_to: String) {
        if let Some(to_relay) = self.open.get(&relay) {
            to_relay.write(bytes, reply_to);
        }
    }

    /// Ends a relay. If it is about to open, it does not, for this reason.
    fn end(&mut self, relay: RelayId, refusal: StreamOpening) {
        self.tell_opened(relay, Some(refusal));
        self.open.remove(&relay);
    }

    fn tell_opened(&mut self, relay: RelayId, refusal: Option<StreamOpening>) {
        // Its client may have left.
        self.opening.remove(&relay).into_iter().for_each(|opened| _ = opened.send(refusal));
    }

    /// Passes a connection of another node to a shard, over a pair of sockets.
    fn open_here(
        &self,
        (relay, reply_to): (RelayId, String),
        request: RelayRequest,
        server: &ServerShared,
        message_bytes_max: usize,
    ) -> io::Result<ToRelay> {
        let pair = ByteStream::pair().and_then(|(near, far)| Ok((near.detach()?, far)));
        let (connection, far) = match pair {
            Ok(pair) => pair,
            Err(error) => {
                self.report(FromRelay::Opened(relay, reply_to, Some(StreamOpening::Draining)));
                return Err(error);
            }
        };
        let mailboxes = &server.mailboxes;
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
                self.report(FromRelay::Opened(relay, reply_to, None));
            }
            RelayRequest::Stream(visitor, format) => {
                let (opened, refusal) = oneshot::channel();
                let request = StreamRequest {
                    client: visitor.session.as_str().to_owned(),
                    opener: opener_of(&visitor),
                    format,
                    // The node of its client writes it.
                    introduction: String::new(),
                    reached: None,
                    served: Served::ForNode(opened),
                };
                let (head, charge) = (Vec::new(), charge(0));
                let moving = MovingStream { connection, counted: None, request, head, charge };
                mailboxes.send(server.shared().shard_of(&visitor.session), ThreadMessage::Stream(Box::new(moving)));
                let done = self.done.clone();
                tokio::spawn(async move {
                    // A shard that has ended says nothing.
                    let refusal = refusal.await.unwrap_or(Some(StreamOpening::Draining));
                    _ = done.send(FromRelay::Opened(relay, reply_to, refusal));
                });
            }
        }
        Ok(relay::start(relay, ready(Some((far, ()))), Vec::new(), self.done.clone()))
    }

    fn report(&self, event: FromRelay) {
        // This thread reads it.
        _ = self.done.send(event);
    }
}

/// A client of another node that wants a stream.
fn opener_of(visitor: &Visitor) -> StreamOpener {
    let Visitor { opener, address, is_multiplexed, .. } = *visitor;
    StreamOpener::of_node(opener, Peer { address, connection: 0, is_multiplexed })
}
