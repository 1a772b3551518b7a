//! Messages from other shards and from handles of the server. [`Shard::receive`] takes each [`Envelope`]: it processes
//! the message now, or queues it for [`Shard::flush`] if the budget is spent.

use bayeux::ChannelName;

use crate::admission::Turn;
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
        let reach = match &envelope.message {
            // The sender has checked the name: by the limits that held there, and not by those that hold now.
            ShardMessage::Publication(publication) | ShardMessage::Record(publication) => {
                parts.channels.reach(ChannelName::known(&publication.channel))
            }
            _ => 0,
        };
        let Parts { admission, settings, metrics, .. } = parts;
        match admission.arrive(envelope, reach, settings.capacity(), |body| client_in(body, settings)) {
            Turn::Now(envelope) => self.open(envelope),
            Turn::Later => metrics.arrivals_delayed.add(1),
            Turn::Behind => {}
        }
    }

    /// Processes waiting envelopes as long as the budget lasts, or `all` of them.
    pub(super) fn take_arrivals(&mut self, all: bool) {
        if self.parts().admission.waiting() == 0 {
            return;
        }
        while let parts = self.settle_burst()
            && let Some((envelope, served)) = parts.admission.next(all, parts.settings.capacity())
        {
            self.open(envelope);
            self.settle_burst().admission.served(served);
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
        self.parts().admission.has_request(&exchange)
    }

    /// The session id of the client that sent a request, for [`Shard::request_waits`].
    pub fn client_of_request(&self, body: &str) -> Option<Id> {
        client_in(body, &self.parts().settings)
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
                // New settings of the application come with these.
                let policy = parts.shared.application.policy();
                parts.sessions.are_admitted_by(policy);
            }
            ShardMessage::MakeRoom => parts.make_room_for_others(),
            ShardMessage::Drain => parts.drain(),
        }
        self.settle_burst().update_old_gauges();
    }
}

impl Parts {
    /// Keeps the sessions of waiting requests from expiring: their clients are not silent.
    pub(super) fn keep_arrivals_alive(&mut self) {
        self.admission.clients().iter().for_each(|client| self.alive(client));
    }
}

/// The session id of the client that sent a request with this body.
fn client_in(body: &str, settings: &InForce) -> Option<Id> {
    let messages = bayeux::parse_batch(body, settings.limits()).ok()?;
    client_of(&messages).1.and_then(Id::parse)
}
