//! HTTP requests for the Bayeux endpoint, by long-polling or callback-polling. The server calls [`Shard::request`] for
//! each request, [`Shard::abandoned`] when its client is gone before the response, and [`Shard::delivered`] when the
//! fate of a response with messages is known.

use bayeux::channel::META_CONNECT;
use bayeux::{BayeuxError, Message, ext};

use crate::decision::Resolved;
use crate::events::{Effect, ExchangeId, NOT_HERE, OTHER_NODES, Peer, Request, Response, Searched, ShardMessage};
use crate::id::Id;
use crate::now::Now;
use crate::opener::Opener;
use crate::protocol::batch::{Batch, Outcome, Via, batch_error_body, client_of};
use crate::requests::Answer;
use crate::rights::table::Entry;
use crate::rights::{Client, May, Wish};
use crate::shard::{Machines, Shard};

impl Shard {
    /// Processes a request. Its response follows as an [`Effect::Respond`], now or later.
    pub fn request(&mut self, now: Now, mut request: Request) -> Taken {
        let machines = self.settle_burst_at(now);
        if request.searched == Searched::All {
            // It comes back.
            machines.requests.end_forwarded(&request.exchange);
        }
        let messages = match bayeux::parse_batch(&request.body, machines.env.settings.limits()) {
            Ok(messages) => messages,
            Err(error) => {
                machines.env.metrics.batches_refused.add(1);
                let body = batch_error_body(BayeuxError::from(error)).into();
                machines.delivery.respond(request.exchange, Response { body, ..Response::with_status(error.status()) });
                return Taken::Here;
            }
        };
        let (handshake, client) = client_of(&messages);
        let client = client.and_then(Id::parse);
        if !handshake {
            request.head = None;
        }
        // A browser's sessions live on the shard that its cookie names, so that one shard counts its windows.
        let home = client.or(request.browser).map_or(machines.env.index, |id| machines.env.shared.shard_of(&id));
        if home != machines.env.index && home < machines.env.shared.shards {
            drop(messages);
            machines.requests.forward(request.exchange, home);
            machines.emit(Effect::SendToShard(home, ShardMessage::Request(Box::new(request))));
            return Taken::Elsewhere(home);
        }
        let session = client.and_then(|id| machines.delivery.find(&id));
        if session.is_none()
            && let Some(client) = client
            && machines.env.shared.is_clustered()
        {
            let is_connect = matches!(&messages[..], [message] if message.channel.as_deref() == Some(META_CONNECT));
            match request.searched {
                Searched::All => {}
                Searched::ByNode => {
                    machines.delivery.respond(request.exchange, Response::with_status(NOT_HERE));
                    return Taken::Here;
                }
                Searched::Nobody => {
                    drop(messages);
                    machines.search_for_request(client, request, is_connect);
                    return Taken::Elsewhere(OTHER_NODES.into());
                }
            }
        }
        let opener = request.browser.map_or(Opener::Page, Opener::Browser);
        let session = session.filter(|key| machines.delivery.aside().is_usable(*key, opener));
        let Request { exchange, transport, browser, peer, head, .. } = request;
        let via = Via::Http { exchange, transport, browser, peer, head };
        let mut batch = Batch::new(via, messages.len(), handshake, session, Vec::with_capacity(256));
        messages.iter().for_each(|message| machines.settle_torn(&batch, message));
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
        let machines = self.settle_burst_at(now);
        if let Some(home) = machines.requests.end_forwarded(&exchange) {
            machines.emit(Effect::SendToShard(home, ShardMessage::Abandoned(exchange)));
        } else if !machines.requests.waits.abandon(&exchange) {
            machines.delivery.abandon(exchange);
        }
    }

    /// Handles the report that the kernel has taken a response, or could not. Until now its client was not silent.
    pub fn delivered(&mut self, now: Now, exchange: ExchangeId, taken: bool) {
        self.settle_burst_at(now).delivery.delivered(exchange, taken);
    }

    /// Notes that a request of this session waits to be processed. Its client is not silent.
    pub fn request_waits(&mut self, now: Now, session: Id) {
        let mut beside = self.beside_burst_at(now);
        let home = beside.env.shared.shard_of(&session);
        if home == beside.env.index {
            beside.sessions.alive(&session);
        } else if home < beside.env.shared.shards {
            beside.emit(Effect::SendToShard(home, ShardMessage::Alive(session)));
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
        self.settle_burst_at(now).beside().may_as(entry, client, wish, decided)
    }

    /// The name of the rate of handshakes that a request exceeds which the application is to authenticate by its head. None
    /// if the application reads no heads.
    pub fn request_over_rate(&mut self, now: Now, peer: Peer) -> Option<&'static str> {
        let Machines { env, clients, .. } = self.settle_burst_at(now);
        let authenticates = env.shared.application.reads_heads();
        authenticates.then(|| env.authentication_over_rate(clients.newcomers.origins(peer))).flatten()
    }
}

impl Machines {
    /// Takes the session of a request off its WebSocket if a subscribe may name a position and the WebSocket has only a
    /// part of a message. That message would come out of the history and also wait here.
    pub(super) fn settle_torn(&mut self, batch: &Batch, message: &Message<'_>) {
        let replays = || message.ext.is_some_and(ext::uses_replay);
        if let (Via::Http { .. }, Some(key)) = (&batch.via, batch.session)
            && message.subscription.is_some()
            && let Some(session) = self.delivery.session(key)
            && session.is_torn()
            && (session.replays() || replays())
        {
            self.leave_socket(key);
        }
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
