//! Messages from other shards and from handles of the server. [`Shard::receive`] takes each [`Envelope`]: it processes
//! the message now, or queues it for [`Shard::flush`] if the budget is spent.

use crate::channels::rules::Rules;
use crate::connections::admission::{LIGHT_BYTES_MAX, Weight};
use crate::connections::arrivals::{LARGE_REQUESTS, SMALL_REQUESTS};
use crate::events::{Effect, Envelope, ExchangeId, ShardMessage};
use crate::now::Now;
use crate::protocol::batch::client_of;
use crate::sessions::id::Id;
use crate::shard::{Shard, capacity, terms};

impl Shard {
    /// The session id of the client that sent a request, for [`Shard::request_waits`].
    pub fn client_of_request(&self, body: &str) -> Option<Id> {
        let messages = bayeux::parse_batch(body, &self.limits).ok()?;
        client_of(&messages)
    }

    /// Takes a message from another shard, or from a handle of the server. Processes it now, or lets [`Shard::flush`]
    /// do so when its turn comes.
    pub fn receive(&mut self, now: Now, envelope: Envelope) {
        self.now = now;
        self.fan_out_pending();
        let (flow, is_light) = match &envelope.message {
            ShardMessage::Publication(publication) | ShardMessage::Record(publication) => {
                let subscribers = self.subscribers(&publication.channel);
                (&*publication.channel, self.is_light(publication.frames.len(), subscribers))
            }
            ShardMessage::Request(request) if request.body.len() <= LIGHT_BYTES_MAX => (SMALL_REQUESTS, true),
            ShardMessage::Request(_) => (LARGE_REQUESTS, false),
            ShardMessage::Abandoned(exchange) if let Some((flow, _)) = self.arrivals.requests.get(exchange) => {
                return self.arrivals.push(flow, envelope);
            }
            _ => return self.open(envelope),
        };
        let weight = if self.arrivals.is_empty() && self.has_budget(Weight::Heavy) {
            Weight::Heavy
        } else if is_light && !self.arrivals.has(flow) && self.has_budget(Weight::Light) {
            Weight::Light
        } else {
            self.metrics.arrivals_delayed.add(1);
            let flow = Box::<str>::from(flow);
            if let ShardMessage::Request(request) = &envelope.message {
                let name = if is_light { SMALL_REQUESTS } else { LARGE_REQUESTS };
                let client = self.client_of_request(&request.body);
                self.arrivals.requests.insert(request.exchange, (name, client));
            }
            return self.arrivals.push(&flow, envelope);
        };
        self.count_as(weight);
        self.open(envelope);
    }

    /// Processes waiting envelopes as long as the budget lasts, or `all` of them.
    pub(super) fn take_arrivals(&mut self, all: bool) {
        if self.arrivals.is_empty() {
            return;
        }
        while (all || self.has_budget(Weight::Light))
            && let Some(envelope) = self.arrivals.pop_small()
        {
            self.count_as(Weight::Light);
            self.open(envelope);
        }
        while (all || self.has_budget(Weight::Heavy))
            && let Some((flow, envelope)) = self.arrivals.pop()
        {
            let before = self.work;
            self.count_as(Weight::Heavy);
            self.open(envelope);
            self.arrivals.done(flow, self.work - before + ARRIVAL_WORK);
        }
    }

    /// Processes a message and releases its charge.
    pub(super) fn open(&mut self, envelope: Envelope) {
        let Envelope { message, charge } = envelope;
        self.message(self.now, message);
        drop(charge);
    }

    /// Processes all waiting envelopes, when the server has stopped writing.
    pub fn take_all_arrivals(&mut self, now: Now) {
        self.now = now;
        self.take_arrivals(true);
    }

    /// True if this request has arrived and waits.
    pub fn has_waiting(&self, exchange: ExchangeId) -> bool {
        self.arrivals.requests.contains_key(&exchange)
    }

    /// Keeps the sessions of waiting requests from expiring: their clients are not silent.
    pub(super) fn keep_arrivals_alive(&mut self) {
        let clients: Vec<Id> = self.arrivals.requests.values().filter_map(|(_, client)| *client).collect();
        clients.iter().for_each(|client| self.alive(self.now, client));
    }

    /// Processes a message of another shard, or of a handle of the server, at once. [`Shard::receive`] checks first
    /// whether it is its turn.
    pub fn message(&mut self, now: Now, message: ShardMessage) {
        self.now = now;
        self.fan_out_pending();
        self.gauges_are_old |= !matches!(message, ShardMessage::Publication(_) | ShardMessage::Record(_));
        match message {
            ShardMessage::Publication(publication) => self.publication_from_shard(&publication),
            ShardMessage::Record(publication) => self.record_from_shard(&publication),
            ShardMessage::Persisted(stored) => stored.into_iter().for_each(|stored| self.stored(stored)),
            ShardMessage::Request(request) => {
                self.request(now, *request);
            }
            ShardMessage::Response(exchange, response) => {
                self.forwarded.remove(&exchange);
                self.effects.push(Effect::Respond(exchange, response));
            }
            ShardMessage::Abandoned(exchange) => self.abandoned(now, exchange),
            ShardMessage::Delivered(exchange, taken) => self.delivered(now, exchange, taken),
            ShardMessage::Alive(session) => self.alive(now, &session),
            ShardMessage::Deliver(session, frame) => self.deliver_here(&session, &frame),
            ShardMessage::Disconnect(session) => self.kick_here(&session),
            ShardMessage::Settings(settings) => {
                self.shared.mailbox.set_bytes_max(settings.mailbox_bytes_max);
                self.limits = settings.bayeux_limits();
                self.terms = terms(&settings);
                self.capacity = capacity(&settings);
                self.rules = Rules::new(&settings.channels);
                self.settings = settings;
            }
            ShardMessage::MakeRoom => self.make_room_for_others(),
            ShardMessage::Drain => self.drain(),
        }
        self.fan_out_pending();
        self.update_old_gauges();
    }
}

/// The cost of an envelope beside the work that it causes, in bytes.
const ARRIVAL_WORK: u64 = 256;
