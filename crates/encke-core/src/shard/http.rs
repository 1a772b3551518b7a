//! HTTP requests for the Bayeux endpoint, by long-polling or callback-polling. The server calls [`Shard::request`] for
//! each request, [`Shard::abandoned`] when its client is gone before the response, and [`Shard::delivered`] when the
//! fate of a response with messages is known.

use bayeux::{BayeuxError, Message, RawJson};

use crate::connections::socket::Opener;
use crate::decision::Resolved;
use crate::events::{Effect, ExchangeId, Peer, Request, Response, SessionKey, ShardMessage};
use crate::now::Now;
use crate::protocol::batch::{Batch, Outcome, Via, batch_error_body, client_of};
use crate::requests::Answer;
use crate::rights::table::Entry;
use crate::rights::{Client, May, Wish};
use crate::sessions::id::Id;
use crate::sessions::session::Next;
use crate::shard::{Parts, Shard};

impl Shard {
    /// Processes a request. Its response follows as an [`Effect::Respond`], now or later.
    pub fn request(&mut self, now: Now, mut request: Request) -> Taken {
        let parts = self.settle_burst_at(now);
        let messages = match bayeux::parse_batch(&request.body, parts.settings.limits()) {
            Ok(messages) => messages,
            Err(error) => {
                parts.metrics.batches_refused.add(1);
                let body = batch_error_body(BayeuxError::from(error)).into();
                parts.respond(request.exchange, Response { body, ..Response::empty(error.status()) });
                return Taken::Here;
            }
        };
        let (handshake, client) = client_of(&messages);
        let client = client.and_then(Id::parse);
        if !handshake {
            request.head = None;
        }
        // A browser's sessions live on the shard that its cookie names, so that one shard counts its windows.
        let home = client.or(request.browser).map_or(parts.index, |id| id.shard());
        if home != parts.index && home < parts.shared.shards {
            drop(messages);
            parts.requests.forward(request.exchange, home);
            parts.effects.push(Effect::SendToShard(home, ShardMessage::Request(Box::new(request))));
            return Taken::Elsewhere(home);
        }
        let session = client.and_then(|id| parts.sessions.find(&id));
        let session =
            session.filter(|key| parts.is_usable(*key, request.browser.map_or(Opener::Page, Opener::Browser)));
        let Request { exchange, transport, browser, peer, head, .. } = request;
        let via = Via::Http { exchange, transport, browser, peer, head };
        let mut batch = Batch::new(via, messages.len(), handshake, session, Vec::with_capacity(256));
        messages.iter().for_each(|message| parts.settle_torn(&batch, message));
        self.process(&mut batch, &messages);
        self.answer_request(batch);
        Taken::Here
    }

    /// Answers a request as far as its batch has been processed, or suspends the batch.
    pub(super) fn answer_request(&mut self, batch: Batch) {
        if batch.waits() {
            return self.settle_burst().suspend(batch);
        }
        if let Via::Http { exchange, transport, .. } = &batch.via
            && !batch.is(Outcome::Held)
        {
            let (exchange, transport) = (*exchange, transport.clone());
            let answer = Answer { batch, exchange, transport };
            self.settle_burst().finish_when_persisted(answer);
        }
    }

    /// Handles a client that has gone before it got its response.
    pub fn abandoned(&mut self, now: Now, exchange: ExchangeId) {
        let parts = self.settle_burst_at(now);
        if let Some(home) = parts.requests.end_forwarded(&exchange) {
            parts.effects.push(Effect::SendToShard(home, ShardMessage::Abandoned(exchange)));
            return;
        }
        if parts.requests.abandon(&exchange) {
            return;
        }
        let Some(key) = parts.connections.exchanges.session(&exchange) else { return };
        // A response that is already on its way is reported by [`Shard::delivered`]. The connect held now is another
        // one.
        if parts.sessions.get(key).is_some_and(|session| session.held_request() == Some(exchange)) {
            // Waiting messages stay in the outbox, because the response was never made (CometD loses them here).
            parts.take_held(key);
        }
    }

    /// Handles the report that the kernel has taken a response, or could not. Until now its client was not silent.
    pub fn delivered(&mut self, now: Now, exchange: ExchangeId, taken: bool) {
        let parts = self.settle_burst_at(now);
        let Some(key) = parts.connections.exchanges.end(&exchange) else { return };
        let terms = parts.settings.terms();
        let Some(session) = parts.sessions.get_mut(key) else { return };
        parts.metrics.deliveries.add(session.response_ends(exchange, taken));
        if !session.is_taking() {
            session.protocol.resume(now.ms, &terms);
        }
        let wanted = session.urgent || session.unacked().is_some() || session.socket().is_some();
        if wanted && session.next() != Next::Wait {
            parts.schedule.write_session(key, &mut session.marks);
        }
        parts.arm(key);
        parts.replay_later(key);
    }

    /// Notes that a request of this session waits to be processed. Its client is not silent.
    pub fn request_waits(&mut self, now: Now, session: Id) {
        let parts = self.beside_burst();
        parts.now = now;
        if session.shard() == parts.index {
            parts.alive(&session);
        } else if session.shard() < parts.shared.shards {
            parts.effects.push(Effect::SendToShard(session.shard(), ShardMessage::Alive(session)));
        }
    }

    /// Decides if a client without a session may do something.
    pub fn may_without_session(
        &mut self,
        now: Now,
        entry: Entry,
        client: &Client<'_>,
        wish: &Wish<'_>,
        decided: Option<Resolved>,
    ) -> May {
        self.settle_burst_at(now).may_as(entry, client, wish, decided)
    }

    /// The name of the rate of handshakes that a request exceeds which the application is to authenticate by its head. None
    /// if the application reads no heads.
    pub fn request_over_rate(&mut self, now: Now, peer: Peer) -> Option<&'static str> {
        let parts = self.settle_burst_at(now);
        let authenticates = parts.shared.application.reads_heads();
        authenticates.then(|| parts.authentication_over_rate(parts.clients.origins(peer))).flatten()
    }
}

impl Parts {
    /// Takes the session of a request off its WebSocket if a subscribe may name a position and the WebSocket has only a
    /// part of a message. That message would come out of the history and also wait here.
    pub(super) fn settle_torn(&mut self, batch: &Batch, message: &Message<'_>) {
        if let (Via::Http { .. }, Some(key)) = (&batch.via, batch.session)
            && message.subscription.is_some()
            && self.is_torn(key, message.ext)
        {
            self.leave_socket(key);
        }
    }

    /// True if a session that uses replay, or is about to by this `ext`, has a message of which its WebSocket has taken
    /// a part.
    fn is_torn(&self, key: SessionKey, ext: Option<RawJson<'_>>) -> bool {
        let uses_replay = || ext.is_some_and(bayeux::ext::uses_replay);
        let session = self.sessions.get(key).filter(|session| session.replay.is_some() || uses_replay());
        session.is_some_and(|session| session.socket().is_some() && session.outbox.is_mid_frame())
    }
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is answered or held here.
    Here,
    /// It was forwarded to the shard of its session. The response comes back as an effect.
    Elsewhere(usize),
}
