//! Messages from other shards and from handles of the server. [`Shard::receive`] takes each [`Envelope`]: it processes
//! the message now, or queues it for [`Shard::flush`] if the budget is spent.

use bayeux::ChannelName;

use crate::connections::admission::{LIGHT_BYTES_MAX, Weight};
use crate::connections::arrivals::{LARGE_REQUESTS, SMALL_REQUESTS};
use crate::events::{Effect, Envelope, ExchangeId, ShardMessage};
use crate::now::Now;
use crate::protocol::batch::client_of;
use crate::sessions::id::Id;
use crate::settings::in_force::InForce;
use crate::shard::{Parts, Shard};

impl Shard {
    /// Takes a message from another shard, or from a handle of the server. Processes it now, or lets [`Shard::flush`]
    /// do so when its turn comes.
    pub fn receive(&mut self, now: Now, envelope: Envelope) {
        let parts = self.settle_burst_at(now);
        let (flow, is_light) = match &envelope.message {
            ShardMessage::Publication(publication) | ShardMessage::Record(publication) => {
                // The sender has checked the name: by the limits that held there, and not by those that hold now.
                let subscribers = parts.channels.reach(ChannelName::known(&publication.channel));
                (&*publication.channel, parts.is_light(publication.frames.len(), subscribers))
            }
            ShardMessage::Request(request) if request.body.len() <= LIGHT_BYTES_MAX => (SMALL_REQUESTS, true),
            ShardMessage::Request(_) => (LARGE_REQUESTS, false),
            ShardMessage::Abandoned(exchange)
                if let Some((flow, _)) = parts.connections.arrivals.requests.get(exchange) =>
            {
                let flow = *flow;
                return parts.connections.arrivals.push(flow, envelope);
            }
            _ => return self.open(envelope),
        };
        let weight = if parts.connections.arrivals.is_empty() && parts.has_budget(Weight::Heavy, (0, 0)) {
            Weight::Heavy
        } else if is_light && !parts.connections.arrivals.has(flow) && parts.has_budget(Weight::Light, (0, 0)) {
            Weight::Light
        } else {
            parts.metrics.arrivals_delayed.add(1);
            let flow = Box::<str>::from(flow);
            if let ShardMessage::Request(request) = &envelope.message {
                let name = if is_light { SMALL_REQUESTS } else { LARGE_REQUESTS };
                let client = parts.client_in(&request.body);
                parts.connections.arrivals.requests.insert(request.exchange, (name, client));
            }
            return parts.connections.arrivals.push(&flow, envelope);
        };
        parts.schedule.budget.count_as(weight);
        self.open(envelope);
    }

    /// Processes waiting envelopes as long as the budget lasts, or `all` of them.
    pub(super) fn take_arrivals(&mut self, all: bool) {
        if self.parts().connections.arrivals.is_empty() {
            return;
        }
        while let parts = self.settle_burst()
            && (all || parts.has_budget(Weight::Light, (0, 0)))
            && let Some(envelope) = parts.connections.arrivals.pop_small()
        {
            parts.schedule.budget.count_as(Weight::Light);
            self.open(envelope);
        }
        while let parts = self.settle_burst()
            && (all || parts.has_budget(Weight::Heavy, (0, 0)))
            && let Some((flow, envelope)) = parts.connections.arrivals.pop()
        {
            let before = parts.schedule.budget.work();
            parts.schedule.budget.count_as(Weight::Heavy);
            self.open(envelope);
            let parts = self.settle_burst();
            let work = parts.schedule.budget.work() - before;
            parts.connections.arrivals.done(flow, work + ARRIVAL_WORK);
        }
    }

    /// Processes a message and releases its charge.
    pub(super) fn open(&mut self, envelope: Envelope) {
        let Envelope { message, charge } = envelope;
        self.message(self.parts().now, message);
        drop(charge);
    }

    /// Processes all waiting envelopes, when the server has stopped writing.
    pub fn take_all_arrivals(&mut self, now: Now) {
        self.settle_burst_at(now);
        self.take_arrivals(true);
    }

    /// True if this request has arrived and waits.
    pub fn has_waiting(&self, exchange: ExchangeId) -> bool {
        self.parts().connections.arrivals.requests.contains_key(&exchange)
    }

    /// The session id of the client that sent a request, for [`Shard::request_waits`].
    pub fn client_of_request(&self, body: &str) -> Option<Id> {
        self.parts().client_in(body)
    }

    /// Processes a message of another shard, or of a handle of the server, at once. [`Shard::receive`] checks first
    /// whether it is its turn.
    pub fn message(&mut self, now: Now, message: ShardMessage) {
        let parts = self.settle_burst_at(now);
        parts.schedule.gauges_are_old |= !matches!(message, ShardMessage::Publication(_) | ShardMessage::Record(_));
        match message {
            ShardMessage::Publication(publication) => parts.publication_from_shard(&publication),
            ShardMessage::Record(publication) => parts.record_from_shard(&publication),
            ShardMessage::Persisted(stored) => stored.into_iter().for_each(|stored| parts.stored(stored)),
            ShardMessage::ClearHistory(channel, token) => parts.clear_history(&channel, token),
            ShardMessage::Subscribe(session, channel, token) => {
                let changed = parts.subscribe_for_handle(&session, &channel);
                parts.report_change(token, changed);
            }
            ShardMessage::Unsubscribe(session, channel, token) => {
                let changed = parts.unsubscribe_for_handle(&session, &channel);
                parts.report_change(token, changed);
            }
            // For handles, which the environment answers.
            ShardMessage::Report(_) => {}
            ShardMessage::Request(request) => {
                self.request(now, *request);
            }
            ShardMessage::Response(exchange, response) => {
                parts.requests.end_forwarded(&exchange);
                parts.effects.push(Effect::Respond(exchange, response));
            }
            ShardMessage::Abandoned(exchange) => self.abandoned(now, exchange),
            ShardMessage::Delivered(exchange, taken) => self.delivered(now, exchange, taken),
            ShardMessage::Alive(session) => parts.alive(&session),
            ShardMessage::Deliver(session, frame) => parts.deliver_here(&session, &frame),
            ShardMessage::Disconnect(session) => parts.kick_here(&session),
            ShardMessage::DeliverToUser(user, frame) => parts.deliver_to_user(&user, &frame),
            ShardMessage::DisconnectUser(user) => parts.disconnect_user(&user),
            ShardMessage::Revoke(token_id) => parts.revoke(&token_id),
            ShardMessage::Resolved(key, resolved) => self.resolved(now, key, resolved),
            ShardMessage::Settings(settings) => {
                let members = parts.memberships();
                parts.shared.mailbox.set_bytes_max(settings.mailbox_bytes_max);
                let before = std::mem::replace(&mut parts.settings, InForce::new(settings));
                parts.restate_presence(&members);
                parts.restate_counts(&before);
            }
            ShardMessage::MakeRoom => parts.make_room_for_others(),
            ShardMessage::Drain => parts.drain(),
        }
        self.settle_burst().update_old_gauges();
    }
}

impl Parts {
    fn client_in(&self, body: &str) -> Option<Id> {
        let messages = bayeux::parse_batch(body, self.settings.limits()).ok()?;
        client_of(&messages)
    }

    /// Keeps the sessions of waiting requests from expiring: their clients are not silent.
    pub(super) fn keep_arrivals_alive(&mut self) {
        let clients: Vec<Id> = self.connections.arrivals.requests.values().filter_map(|(_, client)| *client).collect();
        clients.iter().for_each(|client| self.alive(client));
    }
}

/// The cost of an envelope beside the work that it causes, in bytes.
const ARRIVAL_WORK: u64 = 256;
