//! HTTP requests for the Bayeux endpoint: long-polling and callback-polling.

use std::sync::Arc;

use bayeux::{BayeuxError, RawJson};
use bytes::Bytes;

use super::batch::{Batch, Via, client_of};
use super::effect::{Effect, ExchangeId, HttpTransport, Mail, Now, Request, Response, SessionKey};
use super::ids::Id;
use super::replay::InRings;
use super::session::{Carrier, Ended};
use super::{Dirty, Shard, Shared, batch_error_body};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is answered, or held here.
    Here,
    /// It was sent on to the shard of its session, whose answer comes back as an effect.
    Elsewhere(usize),
}

impl Shard {
    /// A request has come. Its response follows as an [`Effect::Respond`], now or later.
    pub fn request(&mut self, now: Now, request: Request) -> Taken {
        self.now = now;
        let limits = self.limits.clone();
        let messages = match bayeux::parse_batch(&request.body, &limits) {
            Ok(messages) => messages,
            Err(error) => {
                self.metrics.batches_refused.add(1);
                let body = batch_error_body(BayeuxError::from(error)).into();
                self.respond(request.exchange, Response { body, ..Response::empty(error.status()) });
                return Taken::Here;
            }
        };
        let client = client_of(&messages);
        // A browser's sessions live on the shard that its cookie names, so that its windows are counted in one place.
        let home = client.or(request.browser).map_or(self.index, |id| id.shard());
        if home != self.index && home < self.shared.shards {
            drop(messages);
            self.forwarded.insert(request.exchange, home);
            self.effects.push(Effect::Mail(home, Mail::Request(Box::new(request))));
            return Taken::Elsewhere(home);
        }
        let session = client.and_then(|id| self.usable(&id, request.browser, false));
        if let Some(key) = session
            && messages.iter().any(|message| message.subscription.is_some() && self.is_torn(key, message.ext))
        {
            // It may name a place: the message that its WebSocket has only a part of would come out of the history and wait here, too.
            self.leave_socket(key);
        }
        let Request { exchange, transport, browser, peer, .. } = request;
        let via = Via::Http { exchange, transport: transport.clone(), browser, peer };
        let mut batch = Batch::new(via, &messages, session);
        self.process(&mut batch, &messages);
        self.spread();
        if !batch.held {
            self.finish_when_kept(batch, exchange, transport);
        }
        Taken::Here
    }

    /// The client has gone before it got its response.
    pub fn abandoned(&mut self, now: Now, exchange: ExchangeId) {
        self.now = now;
        self.spread();
        if let Some(home) = self.forwarded.remove(&exchange) {
            self.effects.push(Effect::Mail(home, Mail::Abandoned(exchange)));
            return;
        }
        let Some(key) = self.exchanges.get(&exchange).copied() else { return };
        // A response that is on its way already is reported as not delivered: the connect held now is another.
        if self.sessions.get(key).is_some_and(|session| session.is_held_on(exchange)) {
            // What waits stays in the outbox: the response was never made (CometD loses it here).
            self.take_held(key);
        }
    }

    /// The kernel has taken a response, or could not: its client was not silent until now.
    pub fn delivered(&mut self, now: Now, exchange: ExchangeId, taken: bool) {
        self.now = now;
        self.spread();
        let Some(key) = self.exchanges.remove(&exchange) else { return };
        let terms = self.terms;
        let Some(session) = self.sessions.get_mut(key) else { return };
        match session.in_flight.take_if(|in_flight| in_flight.0 == exchange) {
            None => session.responses = session.responses.saturating_sub(1),
            Some(in_flight) if taken => {
                self.metrics.deliveries.add(in_flight.1.messages());
                session.outbox.settle(&in_flight.1);
            }
            Some(in_flight) => {
                tracing::debug!(session = ?session.id, "a response did not arrive: its messages wait again");
                session.outbox.restore(in_flight.1);
                session.urgent = true;
                if let Some(replay) = &mut session.replay {
                    replay.in_rings = InRings::Maybe;
                }
            }
        }
        if !session.is_taking() {
            session.protocol.resume(now.ms, &terms);
        }
        let wanted = session.urgent || session.ledger.is_some() || matches!(session.carrier, Carrier::Socket(_));
        if wanted && session.is_due() && !session.dirty {
            session.dirty = true;
            self.dirty.push_back(Dirty::Session(key));
        }
        self.arm(key);
        self.catch_up_later(key);
    }

    /// Whether a session that replays, or is about to by this `ext`, has a message of which its WebSocket has taken a part.
    fn is_torn(&self, key: SessionKey, ext: Option<RawJson<'_>>) -> bool {
        let uses_replay = || ext.is_some_and(bayeux::ext::uses_replay);
        let session = self.sessions.get(key).filter(|session| session.replay.is_some() || uses_replay());
        session.is_some_and(|session| session.carrier != Carrier::Requests && session.outbox.is_mid_frame())
    }

    /// The session of an id, if whoever came with this cookie may use it: knowing a client id is not enough for a session
    /// that was opened by a browser (CometD 9: `402::session_unknown`). Only `programs`, on a WebSocket without any cookie, need no
    /// more: browsers always send theirs, and Faye's client shakes hands over HTTP and takes no cookie along to its WebSocket.
    pub(super) fn usable(&self, id: &Id, browser: Option<Id>, programs: bool) -> Option<SessionKey> {
        let key = self.sessions.find(id)?;
        let session = self.sessions.get(key)?;
        let own = session.browser.is_none() || session.browser == browser || (programs && browser.is_none());
        (own || self.settings.trust_client_session).then_some(key)
    }

    /// Answers a request whose batch has been worked through.
    pub(super) fn finish(&mut self, batch: Batch, exchange: ExchangeId, transport: &HttpTransport) {
        // Callback-polling delivers with connects only; long-polling with every response, unless settings say otherwise. Who acknowledges
        // or replays gets messages with connects only: what comes on two connections at once may overtake, and numbers are not to.
        let anytime = *transport == HttpTransport::LongPolling && !self.settings.connect_deliver_only;
        let session = batch.session.and_then(|key| self.sessions.get(key));
        let numbered = session.is_some_and(|session| session.ledger.is_some() || session.replay.is_some());
        let deliver = batch.connected || (anytime && !batch.handshake && !numbered);
        self.respond_with(exchange, transport, batch.session, deliver, &batch.replies, batch.set_browser);
        if batch.farewell
            && let Some(key) = batch.session
        {
            self.remove_session(key, Ended::Kicked);
        }
    }

    /// Makes a response of what waits for a session (if `deliver`), as far as there is room, and of replies.
    pub(super) fn respond_with(
        &mut self,
        exchange: ExchangeId,
        transport: &HttpTransport,
        session: Option<SessionKey>,
        deliver: bool,
        replies: &[u8],
        set_browser: Option<Id>,
    ) {
        let mut body = vec![b'['];
        let mut has_messages = false;
        if let Some(key) = session.filter(|_| deliver) {
            has_messages = self.write_messages(exchange, key, &mut body, replies.len() + 2);
        }
        if body.len() > 1 && !replies.is_empty() {
            body.push(b',');
        }
        body.extend_from_slice(replies);
        body.push(b']');
        let body = match transport {
            HttpTransport::LongPolling => body,
            HttpTransport::CallbackPolling(callback) => script(callback, &body),
        };
        // Small ones are gone as soon as they are made.
        let is_large = body.capacity() >= COUNTED_BYTES;
        let key = session.filter(|key| self.sessions.get(*key).is_some()).filter(|_| has_messages || is_large);
        if let Some(key) = key {
            self.exchanges.insert(exchange, key);
            self.note_response(exchange, key);
        }
        let body = if is_large { self.counted(body) } else { Bytes::from(body) };
        let confirm = key.map(|_| self.index as u16);
        self.respond(exchange, Response { status: 200, body, set_browser, confirm });
    }

    /// Writes what waits for a session into a response, as far as there is room; `behind` more bytes are to follow. True if anything was.
    fn write_messages(&mut self, exchange: ExchangeId, key: SessionKey, body: &mut Vec<u8>, behind: usize) -> bool {
        let bytes_max = self.response_room();
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let bytes_max = bytes_max.filter(|_| session.may_respond() && !session.awaits_withdrawal());
        if session.ledger.is_some() {
            body.reserve_exact(bytes_max.unwrap_or(0).min(session.outbox.bytes()) + behind);
            self.write_batch(key, bytes_max, body);
            return body.len() > 1;
        }
        // What a WebSocket carries may be half written: it goes on there.
        let Some(bytes_max) = bytes_max.filter(|_| session.carrier == Carrier::Requests && !session.outbox.is_empty())
        else {
            return false;
        };
        let in_flight = session.outbox.take_oldest(bytes_max, true);
        body.reserve_exact(in_flight.bytes() + behind);
        in_flight.write(body);
        if session.outbox.is_empty() {
            session.urgent = false;
            session.lazy_due_ms = u64::MAX;
        }
        session.in_flight = Some(Box::new((exchange, in_flight)));
        true
    }

    /// A response of a session is on its way.
    fn note_response(&mut self, exchange: ExchangeId, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.in_flight.as_ref().is_none_or(|in_flight| in_flight.0 != exchange) {
            session.responses += 1;
        }
    }

    /// How many bytes of messages a response may have now; one message it may have in any case. None while too much is on its way
    /// already: then connects wait. The last quarter is shared, so that it does not run out for those who come last.
    pub(super) fn response_room(&self) -> Option<usize> {
        let (bytes_max, left) = (self.settings.response_bytes_max, self.responses_left());
        let room = if self.is_short_of_responses() { bytes_max.min(left / LEFT_SHARE) } else { bytes_max };
        (left > 0).then_some(room)
    }

    /// Whether little is left for further responses: then a client that takes none of its own is given up soon.
    pub fn is_short_of_responses(&self) -> bool {
        self.responses_left() < self.settings.responses_bytes_max / 4
    }

    fn responses_left(&self) -> usize {
        self.settings.responses_bytes_max.saturating_sub(self.shared.memory.body_bytes())
    }

    /// A held connect that has something to bring waits until other responses are out of the way.
    pub(super) fn answer_when_there_is_room(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if !std::mem::replace(&mut session.awaits_room, true) {
            self.unanswered.push_back(key);
            self.metrics.responses_delayed.add(1);
        }
    }

    /// Lists those whose connects waited for room, as long as there is some.
    pub(super) fn look_for_room(&mut self) {
        while !self.unanswered.is_empty() && self.response_room().is_some() {
            let Some(key) = self.unanswered.pop_front() else { break };
            let Some(session) = self.sessions.get_mut(key) else { continue };
            session.awaits_room = false;
            if !std::mem::replace(&mut session.dirty, true) {
                self.dirty.push_back(Dirty::Session(key));
            }
        }
    }

    /// A body whose bytes count as long as somebody has them.
    fn counted(&self, bytes: Vec<u8>) -> Bytes {
        self.shared.memory.body_made(bytes.capacity());
        Bytes::from_owner(Body { bytes, shared: self.shared.clone() })
    }

    /// Hands a response to the shard whose connection wants it.
    pub(super) fn respond(&mut self, exchange: ExchangeId, response: Response) {
        let shard = usize::from(exchange.shard);
        self.effects.push(if shard == self.index {
            Effect::Respond(exchange, response)
        } else {
            Effect::Mail(shard, Mail::Response(exchange, response))
        });
    }
}

/// JSON as a call of a function. The comment before it keeps it from being read as anything but a script; `<` and the line separators
/// of JSON that old scripts cannot hold are escaped.
fn script(callback: &str, json: &[u8]) -> Vec<u8> {
    let mut script = Vec::with_capacity(json.len() + callback.len() + 16);
    script.extend_from_slice(b"/**/");
    script.extend_from_slice(callback.as_bytes());
    script.push(b'(');
    let mut rest = json;
    while let Some((byte, tail)) = rest.split_first() {
        match (byte, tail) {
            (b'<', _) => script.extend_from_slice(b"\\u003c"),
            (0xE2, [0x80, last @ (0xA8 | 0xA9), ..]) => {
                script.extend_from_slice(if *last == 0xA8 { b"\\u2028" } else { b"\\u2029" });
                rest = &tail[2..];
                continue;
            }
            _ => script.push(*byte),
        }
        rest = tail;
    }
    script.extend_from_slice(b");");
    script
}

/// The body of a response, counted in the memory of the server.
struct Body {
    bytes: Vec<u8>,
    shared: Arc<Shared>,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.shared.memory.body_dropped(self.bytes.capacity());
    }
}

/// Bodies of fewer bytes are not counted.
const COUNTED_BYTES: usize = 4096;
/// While little is left of `responses_bytes_max`, a response may have this part of it.
const LEFT_SHARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_cannot_break_out_of_its_element_or_its_string() {
        let json = "[{\"data\":\"</script>\u{2028}\u{2029}é\"}]";
        let expected = "/**/cb([{\"data\":\"\\u003c/script>\\u2028\\u2029é\"}]);";
        assert_eq!(script("cb", json.as_bytes()), expected.as_bytes());
    }
}
