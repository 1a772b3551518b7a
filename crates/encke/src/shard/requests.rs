//! HTTP requests for the Bayeux endpoint: long-polling and callback-polling.

use bayeux::BayeuxError;
use bytes::Bytes;

use super::batch::{Batch, Via, client_of};
use super::effect::{Effect, ExchangeId, HttpTransport, Mail, Now, Request, Response, SessionKey};
use super::ids::Id;
use super::replay::InRings;
use super::session::{Carrier, Ended};
use super::{Dirty, Shard, batch_error_body};

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
        let Request { exchange, transport, browser, .. } = request;
        let via = Via::Http { exchange, transport: transport.clone(), browser };
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

    /// The kernel has taken a response with messages, or could not.
    pub fn delivered(&mut self, now: Now, exchange: ExchangeId, taken: bool) {
        self.now = now;
        self.spread();
        let Some(key) = self.exchanges.remove(&exchange) else { return };
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(in_flight) = session.in_flight.take_if(|in_flight| in_flight.0 == exchange) else { return };
        if taken {
            self.metrics.deliveries.add(in_flight.1.messages());
            session.outbox.settle(&in_flight.1);
        } else {
            tracing::debug!(session = ?session.id, "a response did not arrive: its messages wait again");
            session.outbox.restore(in_flight.1);
            session.urgent = true;
            if let Some(replay) = &mut session.replay {
                replay.in_rings = InRings::Maybe;
            }
        }
        let wanted = session.urgent || matches!(session.carrier, Carrier::Socket(_));
        if !session.outbox.is_empty() && wanted && session.is_reachable() && !session.dirty {
            session.dirty = true;
            self.dirty.push_back(Dirty::Session(key));
        }
        self.catch_up_later(key);
    }

    /// Whether a session that replays, or is about to by this `ext`, has a message of which its WebSocket has taken a part.
    fn is_torn(&self, key: SessionKey, raw_ext: Option<&str>) -> bool {
        let uses_replay = || raw_ext.is_some_and(bayeux::ext::uses_replay);
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

    /// Makes a response of what waits for a session (if `deliver`) and of replies.
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
        let mut confirm = None;
        if let Some(key) = session.filter(|key| deliver && self.acknowledges(*key)) {
            self.write_batch(key, &mut body);
        } else if deliver
            && let Some(key) = session
            && let Some(session) = self.sessions.get_mut(key)
            // What a WebSocket carries may be half written: it goes on there.
            && session.carrier == Carrier::Requests
            && session.in_flight.is_none()
            && !session.outbox.is_empty()
        {
            let in_flight = session.outbox.take_messages();
            in_flight.write(&mut body);
            session.urgent = false;
            session.lazy_due_ms = u64::MAX;
            session.in_flight = Some(Box::new((exchange, in_flight)));
            self.exchanges.insert(exchange, key);
            confirm = Some(self.index as u16);
        }
        if body.len() > 1 && !replies.is_empty() {
            body.push(b',');
        }
        body.extend_from_slice(replies);
        body.push(b']');
        let body = match transport {
            HttpTransport::LongPolling => Bytes::from(body),
            HttpTransport::CallbackPolling(callback) => script(callback, &body),
        };
        self.respond(exchange, Response { status: 200, body, set_browser, confirm });
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
fn script(callback: &str, json: &[u8]) -> Bytes {
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
    Bytes::from(script)
}

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
