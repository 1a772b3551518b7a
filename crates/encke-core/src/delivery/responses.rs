//! HTTP responses: the messages and replies in them, the room for them, and their outcome.

use bytes::Bytes;

use crate::delivery::Delivery;
use crate::delivery::outbox::InFlight;
use crate::delivery::schedule::Queue;
use crate::delivery::sessions::session::Next;
use crate::events::{Effect, ExchangeId, HttpTransport, Response, SessionKey, ShardMessage, SocketKey};
use crate::id::Id;
use crate::memory::COUNTED_BYTES;

impl Delivery {
    /// Sends the messages of the last closed batch: up to `bytes_max`, but at least one, or none if there is no room.
    pub(super) fn send_messages(
        &mut self,
        key: SessionKey,
        socket: Option<SocketKey>,
        bytes_max: Option<usize>,
        send: impl FnMut(&InFlight),
    ) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let again = session.send_batch(socket, bytes_max, send);
        if again > 0 {
            tracing::debug!(session = ?session.id, messages = again, "sent again: not acknowledged");
            self.metrics.resent.add(again);
        }
    }

    /// Makes a response of the session's waiting messages (if `deliver`), as far as there is room, and of replies.
    pub(crate) fn respond_with(
        &mut self,
        exchange: ExchangeId,
        transport: &HttpTransport,
        session: Option<SessionKey>,
        deliver: bool,
        replies: &[u8],
        set_browser: Option<Id>,
    ) {
        let mut body = vec![b'['];
        let mut written = None;
        if let Some(key) = session.filter(|_| deliver) {
            written = self.write_messages(exchange, key, &mut body, replies.len() + 2);
        }
        if body.len() > 1 && !replies.is_empty() {
            body.push(b',');
        }
        body.extend_from_slice(replies);
        body.push(b']');
        let body = match transport {
            HttpTransport::LongPolling | HttpTransport::Subscription => body,
            HttpTransport::CallbackPolling(callback) => script(callback, &body),
        };
        // Small bodies are freed as soon as they are made.
        let is_large = body.capacity() >= COUNTED_BYTES;
        let mut confirm = None;
        let terms = session.map_or(self.terms, |key| self.terms_of(key));
        if (written.is_some() || is_large)
            && let Some(key) = session
            && let Some(session) = self.sessions.get_mut(key)
        {
            session.response_begins();
            session.has_to_read(body.len(), self.now.ms, &terms);
            self.exchanges.respond(exchange, key);
            confirm = Some(self.index as u16);
        }
        let bytes = body.capacity();
        let body = if is_large { self.memory.counted(body, bytes) } else { Bytes::from(body) };
        let compresses = written == Some(Compresses(true));
        self.respond(exchange, Response { status: 200, body, set_browser, confirm, compresses });
    }

    /// Writes the waiting messages of a session into a response, as far as there is room. `behind` is the number of
    /// bytes that follow. None if it wrote none.
    fn write_messages(
        &mut self,
        exchange: ExchangeId,
        key: SessionKey,
        body: &mut Vec<u8>,
        behind: usize,
    ) -> Option<Compresses> {
        let bytes_max = self.response_room();
        let session = self.sessions.get_mut(key)?;
        let bytes_max = bytes_max.filter(|_| session.may_send(None));
        if session.unacked().is_some() {
            body.reserve_exact(bytes_max.unwrap_or(0).min(session.outbox.bytes()) + behind);
            let mut compresses = false;
            self.send_messages(key, None, bytes_max, |messages| {
                messages.write(body);
                compresses |= messages.compresses();
            });
            return (body.len() > 1).then_some(Compresses(compresses));
        }
        let messages = session.take_for_response(exchange, bytes_max?)?;
        body.reserve_exact(messages.bytes() + behind);
        messages.write(body);
        Some(Compresses(messages.compresses()))
    }

    /// The bytes of messages that a response may have now. One message is always allowed. None while too many bytes are
    /// on their way: connects then wait. Responses share the last quarter, so that later ones still get some of it.
    pub(crate) fn response_room(&self) -> Option<usize> {
        let left = self.responses_left();
        let room = if self.is_short_of_responses() { left / LEFT_SHARE } else { usize::MAX };
        (left > 0).then_some(self.settings.response_bytes_max.min(room))
    }

    /// True if there is room for a body of a response that has nothing to do with sessions.
    pub(crate) fn has_room_for(&self, body_bytes: usize) -> bool {
        body_bytes < COUNTED_BYTES || !self.is_short_of_responses() || body_bytes <= self.responses_left() / LEFT_SHARE
    }

    /// True if little room is left for further responses. A client that does not take its own is then given up soon.
    pub(crate) fn is_short_of_responses(&self) -> bool {
        self.responses_left() < self.settings.responses_bytes_max / 4
    }

    fn responses_left(&self) -> usize {
        self.settings.responses_bytes_max.saturating_sub(self.memory.body_bytes())
    }

    /// Lets a held connect with messages wait until earlier responses are delivered.
    pub(super) fn answer_when_there_is_room(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if self.schedule.await_room(key, &mut session.marks) {
            self.metrics.responses_delayed.add(1);
        }
    }

    /// Schedules the sessions whose connects waited for room, as long as there is room.
    pub(crate) fn look_for_room(&mut self) {
        while self.response_room().is_some()
            && let Some(key) = self.schedule.next_connect()
        {
            let Some(session) = self.sessions.get_mut(key) else { continue };
            session.marks.leave(Queue::Connects);
            self.schedule.write_session(key, &mut session.marks);
        }
    }

    /// The number of connects and streams that a browser holds.
    pub(crate) fn held_by(&self, browser: &Id) -> usize {
        self.exchanges.held_by(browser)
    }

    /// Ends a held connect whose client has gone before it got its response.
    pub(crate) fn abandon(&mut self, exchange: ExchangeId) {
        let Some(key) = self.exchanges.session(&exchange) else { return };
        // A response that is already on its way is reported later. The connect held now is another one.
        if self.sessions.get(key).is_some_and(|session| session.held_request() == Some(exchange)) {
            // Waiting messages stay in the outbox, because the response was never made (CometD loses them here).
            self.take_held(key);
        }
    }

    /// Notes that the kernel has taken a response, or could not: its messages then wait again. Until now its client was
    /// not silent.
    pub(crate) fn delivered(&mut self, exchange: ExchangeId, is_taken: bool) {
        let Some(key) = self.exchanges.end(&exchange) else { return };
        let terms = self.terms_of(key);
        let Some(session) = self.sessions.get_mut(key) else { return };
        self.metrics.deliveries.add(session.response_ends(exchange, is_taken));
        if !session.is_taking() {
            session.protocol.resume(self.now.ms, &terms);
        }
        let wanted = session.urgent || session.unacked().is_some() || session.socket().is_some();
        if wanted && session.next() != Next::Wait {
            self.schedule.write_session(key, &mut session.marks);
        }
        self.arm(key);
        self.replay_later(key);
    }

    /// Passes a response to the shard of its connection.
    pub(crate) fn respond(&mut self, exchange: ExchangeId, response: Response) {
        let shard = usize::from(exchange.shard);
        self.effects.push(if shard == self.index {
            Effect::Respond(exchange, response)
        } else {
            Effect::SendToShard(shard, ShardMessage::Response(exchange, response))
        });
    }
}

/// True if one of the written messages is of a channel that compresses.
#[derive(PartialEq, Eq)]
struct Compresses(bool);

/// Encodes JSON as a function call. The comment at the start keeps it from being read as anything but a script. `<` is
/// escaped, and so are the line separators of JSON that old scripts cannot contain.
fn script(callback: &str, json: &[u8]) -> Vec<u8> {
    let mut script = Vec::with_capacity(json.len() + callback.len() + 16);
    script.extend_from_slice(b"/**/");
    script.extend_from_slice(callback.as_bytes());
    script.push(b'(');
    let mut rest = json;
    while let Some((byte, cursor)) = rest.split_first() {
        match (byte, cursor) {
            (b'<', _) => script.extend_from_slice(b"\\u003c"),
            (0xE2, [0x80, last @ (0xA8 | 0xA9), ..]) => {
                script.extend_from_slice(if *last == 0xA8 { b"\\u2028" } else { b"\\u2029" });
                rest = &cursor[2..];
                continue;
            }
            _ => script.push(*byte),
        }
        rest = cursor;
    }
    script.extend_from_slice(b");");
    script
}

/// The part of the room left in `responses_bytes_max` that one response may take while little is left.
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
