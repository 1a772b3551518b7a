//! Messages from other shards and from handles of the server. [`Shard::receive`] takes each [`Envelope`]: it processes
//! the message now, or queues it for [`Shard::flush`] if the budget is spent.

use bayeux::ChannelName;

use crate::admission::Turn;
use crate::admission::budget::Weight;
use crate::events::{AskedBy, Envelope, ExchangeId, Report, ShardMessage};
use crate::id::Id;
use crate::now::Now;
use crate::protocol::batch::client_of;
use crate::settings::in_force::InForce;
use crate::shard::{Machines, Shard};

impl Shard {
    /// Takes a message from another shard, or from a handle of the server. Processes it now, or lets [`Shard::flush`]
    /// do so when its turn comes.
    pub fn receive(&mut self, now: Now, envelope: Envelope) {
        let Machines { admission, channels, env, .. } = self.settle_burst_at(now);
        let reach = match &envelope.message {
            // The sender has checked the name: by the limits that held there, and not by those that hold now.
            ShardMessage::Publication(publication) | ShardMessage::Record(publication) => {
                channels.reach(ChannelName::known(&publication.channel))
            }
            ShardMessage::Gap(gap) => channels.reach(ChannelName::known(&gap.channel)),
            _ => 0,
        };
        let settings = &env.settings;
        match admission.arrive(envelope, reach, settings.capacity(), |body| client_in(body, settings)) {
            Turn::Now(envelope) => self.open(envelope),
            Turn::Later => env.metrics.arrivals_delayed.add(1),
            Turn::Behind => {}
        }
    }

    /// Processes waiting envelopes as long as the budget lasts, or `all` of them.
    pub(super) fn take_arrivals(&mut self, all: bool) {
        if self.machines.admission.waiting() == 0 {
            return;
        }
        while let Machines { admission, env, .. } = self.settle_burst()
            && let Some((envelope, served)) = admission.next(all, env.settings.capacity())
        {
            self.open(envelope);
            self.settle_burst().admission.served(served);
        }
    }

    /// Processes a message and releases its charge.
    pub(super) fn open(&mut self, envelope: Envelope) {
        let Envelope { message, charge } = envelope;
        self.message(self.machines.env.now, message);
        drop(charge);
    }

    /// Processes all waiting envelopes, when the server has stopped writing.
    pub fn take_all_arrivals(&mut self, now: Now) {
        self.settle_burst_at(now);
        self.take_arrivals(true);
    }

    /// True if this request has arrived and waits.
    pub fn has_waiting(&self, exchange: ExchangeId) -> bool {
        self.machines.admission.has_request(&exchange)
    }

    /// The session id of the client that sent a request, for [`Shard::request_waits`].
    pub fn client_of_request(&self, body: &str) -> Option<Id> {
        client_in(body, &self.machines.env.settings)
    }

    /// Processes a message of another shard, or of a handle of the server, at once. [`Shard::receive`] checks first
    /// whether it is its turn.
    pub fn message(&mut self, now: Now, message: ShardMessage) {
        let machines = self.settle_burst_at(now);
        machines.env.gauges_are_old |= !matches!(message, ShardMessage::Publication(_) | ShardMessage::Record(_));
        match message {
            ShardMessage::Publication(publication) => machines.publication_from_shard(&publication),
            ShardMessage::Record(publication) => machines.record_from_shard(&publication),
            ShardMessage::Gap(gap) => machines.lose(&gap),
            ShardMessage::Persisted(stored) => stored.into_iter().for_each(|stored| machines.stored(stored)),
            ShardMessage::InterestKnown(numbers) => machines.interest_known(&numbers),
            ShardMessage::ClearHistory(channel, token) => machines.clear_history(&channel, token),
            ShardMessage::Subscribe(session, channel, token) => {
                let changed = machines.subscribe_for_handle(&session, &channel);
                machines.report_change(token, changed);
            }
            ShardMessage::Unsubscribe(session, channel, token) => {
                let changed = machines.unsubscribe_for_handle(&session, &channel);
                machines.report_change(token, changed);
            }
            ShardMessage::SetTerms(session, terms, token) => {
                let changed = machines.set_terms(&session, *terms);
                machines.report_change(token, changed);
            }
            ShardMessage::ChangeAttribute(session, change, AskedBy::Hook(owner)) => {
                machines.change_attribute_here(&session, *change, owner);
            }
            ShardMessage::ChangeAttribute(session, change, AskedBy::Handle(token)) => {
                let changed = machines.change_attribute(&session, *change);
                machines.report_change(token, changed);
            }
            ShardMessage::Report(Report::Recorded(number, epoch, first)) => {
                machines.requests.owed.recorded(number, epoch, first);
            }
            // For handles, which the environment answers.
            ShardMessage::Report(_) => {}
            ShardMessage::Request(request) => {
                self.request(now, *request);
            }
            ShardMessage::Response(exchange, response) => {
                machines.requests.end_forwarded(&exchange);
                // It goes on to the shard of the connection, if another node has answered this one.
                machines.delivery.respond(exchange, response);
            }
            ShardMessage::Abandoned(exchange) => self.abandoned(now, exchange),
            ShardMessage::Delivered(exchange, taken) => self.delivered(now, exchange, taken),
            ShardMessage::Alive(session) => machines.delivery.aside().alive(&session),
            ShardMessage::Deliver(session, frame, owner) => machines.deliver_here(&session, &frame, owner),
            ShardMessage::Disconnect(session, owner) => machines.kick_here(&session, owner),
            ShardMessage::DeliverToUser(user, frame) => machines.deliver_to_user(&user, &frame),
            ShardMessage::DisconnectUser(user) => machines.disconnect_user(&user),
            ShardMessage::Revoke(token_id) => machines.revoke(&token_id),
            ShardMessage::Resolved(key, resolved) => self.resolved(now, key, resolved),
            ShardMessage::Settings(settings) => machines.take_settings(InForce::new(settings)),
            ShardMessage::Application => machines.take_application(),
            ShardMessage::MakeRoom => machines.make_room_for_others(),
            ShardMessage::Drain => machines.drain(),
            ShardMessage::FromNodes(message) => machines.take_from_nodes(message),
            // For the cluster, to which the environment passes it.
            ShardMessage::ForNodes(_) => {}
        }
        self.settle_burst();
    }

    /// True if a message of this weight may be processed now. Its fan-outs then count as that weight.
    pub fn admits(&mut self, now: Now, weight: Weight) -> bool {
        let is_other = self.machines.admission.weight() != weight && !self.burst.is_empty();
        if self.burst.bytes() > BURST_BYTES_MAX || is_other {
            self.settle_burst();
        }
        let pending = (self.burst.messages(), self.burst.bytes());
        let has_memory = weight == Weight::Light || !self.machines.is_memory_short();
        let beside = self.beside_burst_at(now);
        let (capacity, mailbox) = (beside.env.settings.capacity(), &beside.env.shared.mailbox);
        beside.admission.admits(weight, pending, capacity, has_memory, || mailbox.has_room(weight))
    }
}

impl Machines {
    /// Notes the settings that hold from now on. New settings of the application come with these.
    fn take_settings(&mut self, settings: InForce) {
        // Waiting messages go by the rules that they came by.
        self.end_intervals();
        let members = self.memberships();
        self.env.shared.mailbox.set_bytes_max(settings.given().mailbox_bytes_max);
        self.delivery.set_settings(&settings);
        let before = std::mem::replace(&mut self.env.settings, settings);
        self.restate_presence(&members);
        self.restate_counts(&before);
        self.end_conflated_replays();
        self.clients.are_admitted_by(self.env.shared.application.policy());
    }

    /// Notes that the application has changed: its policy admits the next sessions, and it learns which channels have subscribers here.
    fn take_application(&mut self) {
        let application = &self.env.shared.application;
        self.clients.are_admitted_by(application.policy());
        for (name, _) in (0..self.channels.slots()).filter_map(|slot| self.channels.in_slot(slot)) {
            application.has_subscribers(name, self.env.index);
        }
        self.env.count_steps(self.channels.slots());
    }
}

/// The session id of the client that sent a request with this body.
fn client_in(body: &str, settings: &InForce) -> Option<Id> {
    let messages = bayeux::parse_batch(body, settings.limits()).ok()?;
    client_of(&messages).1.and_then(Id::parse)
}

/// A burst of more bytes is fanned out before the budget is checked.
const BURST_BYTES_MAX: usize = 32 * 1024;
