//! The steps of a relay: see [`super::relays`].

use bytes::Bytes;
use encke_core::{NodeTag, StreamOpening};

use super::message::{Question, Reply};
use super::relays::{RelayId, RelayOutput, RelayRequest};
use super::{Output, Sent, Sessions};
use crate::command::RequestFailure;

impl Sessions {
    /// The most bytes of one message of a client.
    pub fn message_bytes_max(&self) -> usize {
        self.settings.message_bytes_max
    }

    /// Lets another node serve a connection of this one. Nothing is read from it before [`RelayOutput::Read`].
    pub fn open_relay(&mut self, now_ms: u64, home: NodeTag, request: RelayRequest) -> RelayId {
        let relay = RelayId { node: self.settings.node, number: self.relays.number() };
        if !self.is_connected || !self.relays.add(relay, home, request.address()) {
            self.counts.refused += 1;
            self.relay_output(RelayOutput::End(relay));
            return relay;
        }
        self.counts.relayed += 1;
        self.wait_for(now_ms, home);
        self.ask(Sent::Relay(relay), home, &Question::Open(relay, request), OPEN_MS);
        relay
    }

    /// Carries bytes to the other end of a relay.
    pub fn carry(&mut self, relay: RelayId, bytes: Vec<u8>) {
        if let Some(peer) = self.relays.peer(&relay) {
            self.ask(Sent::Relay(relay), peer, &Question::Carry(relay, bytes.into()), CARRY_MS);
        }
    }

    /// Bytes of another node are written.
    pub fn carried(&mut self, reply_to: String) {
        self.reply(reply_to, &Reply::Done);
    }

    /// This end of a relay has ended.
    pub fn end_relay(&mut self, relay: RelayId) {
        if let Some(peer) = self.forget_relay(&relay)
            && self.is_connected
        {
            self.ask(Sent::Notice, peer, &Question::Close(relay), OPEN_MS);
        }
    }

    /// The other end has opened, or has written the last piece; or it has failed.
    pub(super) fn relay_answered(&mut self, relay: RelayId, answer: Result<Option<Reply>, RequestFailure>) {
        if !self.relays.has(&relay) {
            return;
        }
        let output = match answer {
            Ok(Some(Reply::Done)) => return self.relay_output(RelayOutput::Read(relay)),
            Ok(Some(Reply::TooMany)) => RelayOutput::Refuse(relay, StreamOpening::TooMany),
            // Full; gone; or a node of an older build, which does not know streams.
            Ok(_) | Err(_) => RelayOutput::End(relay),
        };
        self.forget_relay(&relay);
        self.relay_output(output);
    }

    /// Another node wants a connection of its client to be served here.
    pub(super) fn relay_opened(&mut self, now_ms: u64, reply_to: String, relay: RelayId, request: RelayRequest) {
        let is_too_large = match &request {
            RelayRequest::WebSocket { text, .. } => text.len() > self.settings.message_bytes_max,
            RelayRequest::Stream(..) => false,
        };
        if is_too_large || !self.relays.add(relay, relay.node, request.address()) {
            self.counts.refused += 1;
            return self.reply(reply_to, &Reply::Full);
        }
        self.wait_for(now_ms, relay.node);
        self.relay_output(RelayOutput::Open(relay, request, reply_to));
    }

    /// A shard has the connection of another node, or refuses it for this reason.
    pub fn opened(&mut self, relay: RelayId, reply_to: String, refusal: Option<StreamOpening>) {
        let reply = match refusal {
            None if self.relays.has(&relay) => {
                self.relay_output(RelayOutput::Read(relay));
                return self.reply(reply_to, &Reply::Done);
            }
            Some(StreamOpening::TooMany) => Reply::TooMany,
            Some(StreamOpening::Draining) => Reply::Full,
            _ => Reply::Unknown,
        };
        self.relay_closed(relay);
        self.reply(reply_to, &reply);
    }

    /// Bytes have come from the other end of a relay.
    pub(super) fn relay_bytes(&mut self, reply_to: String, relay: RelayId, bytes: Bytes) {
        if self.relays.has(&relay) {
            self.relay_output(RelayOutput::Write(relay, bytes, reply_to));
        } else {
            self.reply(reply_to, &Reply::Unknown);
        }
    }

    /// The other end of a relay has ended.
    pub(super) fn relay_closed(&mut self, relay: RelayId) {
        if self.forget_relay(&relay).is_some() {
            self.relay_output(RelayOutput::End(relay));
        }
    }

    /// A node is gone, or all are: none is named.
    pub(super) fn end_relays_with(&mut self, node: Option<NodeTag>) {
        for relay in self.relays.with(node) {
            self.forget_relay(&relay);
            self.relay_output(RelayOutput::End(relay));
        }
    }

    fn forget_relay(&mut self, relay: &RelayId) -> Option<NodeTag> {
        let peer = self.relays.remove(relay)?;
        self.no_longer_waits(peer);
        Some(peer)
    }

    fn relay_output(&mut self, output: RelayOutput) {
        self.outputs.push(Output::Relay(output));
    }
}

/// The time for the answer to the opening of a relay, in milliseconds.
const OPEN_MS: u64 = 2_000;
/// The time in which the client at the other end has to take a piece, in milliseconds.
const CARRY_MS: u64 = 120_000;
