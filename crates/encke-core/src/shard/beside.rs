//! The work that may be done while publications wait for their fan-out: rights, limits, replies to a batch. Nothing here
//! reaches an outbox or changes a subscription.

use bayeux::{BayeuxError, ChannelKind, ChannelName, Message, RawJson, Reply, ext};

use crate::admission::Admission;
use crate::application::Caller;
use crate::channels::Channels;
use crate::clients::Clients;
use crate::clients::newcomers::Origins;
use crate::decision::{Awaited, Resolved};
use crate::delivery::Aside;
use crate::events::{Effect, PersistRequest, PublishToken, SessionKey};
use crate::history::{Birth, RingKey, Room, log_record};
use crate::id::Id;
use crate::protocol::batch::{Batch, Outcome, Via, error_reply, success};
use crate::requests::{Payer, Requests};
use crate::rights::table::Entry;
use crate::rights::{Client, May, Rights, Wish};
use crate::settings::HistoryTerms;
use crate::shard::{Env, Shared};

/// The machines of a shard as far as they may be used while publications wait for their fan-out.
pub(super) struct BesideBurst<'a> {
    pub(super) env: &'a mut Env,
    pub(super) sessions: Aside<'a>,
    pub(super) channels: &'a Channels,
    pub(super) clients: &'a mut Clients,
    pub(super) requests: &'a mut Requests,
    pub(super) admission: &'a mut Admission,
}

impl BesideBurst<'_> {
    /// Adds an effect, behind those of the delivery.
    pub(super) fn emit(&mut self, effect: Effect) {
        self.sessions.move_effects(&mut self.env.effects);
        self.env.effects.push(effect);
    }

    /// The session of a message: the session of the batch, if the message names it.
    pub(super) fn sender(&self, batch: &Batch, message: &Message<'_>) -> Option<SessionKey> {
        let key = batch.session.filter(|_| !batch.handshake)?;
        let id = self.sessions.id_of(key)?;
        message.client_id.as_deref().is_some_and(|client_id| id.is(client_id)).then_some(key)
    }

    /// The bytes of replies after which the rest of a batch is refused.
    pub(super) fn replies_bytes_max(&self, batch: &Batch) -> usize {
        let is_short = matches!(batch.via, Via::Http { .. }) && self.sessions.is_short_of_responses();
        if is_short { 0 } else { self.env.settings.capacity().bytes_max / 2 }.max(REPLIES_BYTES_LEAST)
    }

    /// Decides if a client may do something.
    pub(super) fn may_as(
        &mut self,
        entry: Entry,
        client: &Client<'_>,
        wish: &Wish<'_>,
        decided: Option<Resolved>,
    ) -> May {
        self.env.rights().may(entry, client, wish, decided)
    }

    /// Decides if a session may do something. One that the server has ended may not, whatever the reason.
    #[inline]
    pub(super) fn may(&mut self, entry: Entry, key: SessionKey, wish: &Wish<'_>, decided: Option<Resolved>) -> May {
        let client = match (self.sessions.id_of_entitled(key), self.clients.entitled(key)) {
            (Some(id), Ok(identity)) => {
                let (attributes, owner) = (self.clients.attributes(key), self.clients.counted_for(key));
                Client::Session(Caller::new(id.as_str(), identity).with_attributes(attributes).with_owner(owner))
            }
            _ => Client::Ended,
        };
        self.env.rights().may(entry, &client, wish, decided)
    }

    /// Lets the current message of a batch wait for a decision, or refuses it if too many messages wait.
    pub(super) fn ask(&mut self, batch: &mut Batch, message: &Message<'_>, awaited: Awaited, name: usize) {
        if self.may_wait(batch) {
            batch.wait_for(awaited, name);
        } else {
            self.refuse(batch, message, BayeuxError::DecisionsWaitingMax.as_str());
        }
    }

    /// True if one more batch may wait for a decision. A session that ends does not wait.
    pub(super) fn may_wait(&self, batch: &Batch) -> bool {
        let payer = self.payer(batch, batch.session);
        let has_room = self.requests.waits.admits_batch(&self.env.settings.decisions_waiting(), &payer, batch);
        if !has_room {
            self.env.metrics.decisions_refused.add(1);
        }
        has_room && !batch.is(Outcome::EndsSession)
    }

    /// The origins of the client of a batch.
    pub(super) fn origins_of(&self, batch: &Batch) -> Origins {
        match &batch.via {
            Via::Socket(socket) => self.sessions.origins_of(*socket),
            Via::Http { peer, .. } => self.clients.newcomers.origins(*peer),
        }
    }

    /// The owner of what a batch waits for: the user of its session, or else the client's origin. A session is inside it.
    pub(super) fn payer(&self, batch: &Batch, session: Option<SessionKey>) -> Payer {
        let identity = session.and_then(|key| self.clients.identity(key));
        match (self.env.user_of(identity.map(|identity| &**identity)), self.origins_of(batch), session) {
            (Some(user), ..) => Payer::User(user),
            (_, [0, 0], Some(session)) => Payer::Session(session),
            (_, [connection, 0], _) => Payer::Origin(connection),
            (_, [_, address], _) => Payer::Origin(address),
        }
    }

    /// Refuses a message of a session that is unknown, or that its sender may not use.
    pub(super) fn refuse_unknown(&mut self, batch: &mut Batch, message: &Message<'_>, kind: ChannelKind) {
        self.env.metrics.sessions_unknown.add(1);
        // Clients recover by exactly this pair of error and advice (CometD 9).
        let advice = (kind == ChannelKind::Connect).then(|| bayeux::advice::Advice::handshake().to_json());
        let error = BayeuxError::SessionUnknown.as_str();
        batch.reply(&Reply { advice: advice.as_deref().map(RawJson::trusted), ..error_reply(message, error) });
    }

    /// Answers a message with an error.
    pub(super) fn refuse(&mut self, batch: &mut Batch, message: &Message<'_>, error: &str) {
        self.env.metrics.errors.add(1);
        let session: Option<&Id> = batch.session.and_then(|key| self.sessions.id_of(key));
        tracing::debug!(?session, channel = ?message.channel, error, "message refused");
        batch.reply(&error_reply(message, error));
    }

    /// Lets the reply to a publication, which has this index in its burst, wait for the token.
    pub(super) fn accept_later(
        &mut self,
        batch: &mut Batch,
        message: &Message<'_>,
        session: SessionKey,
        token: PublishToken,
        index: usize,
    ) {
        if let Via::Socket(socket) = batch.via {
            self.sessions.owe_reply(socket);
        }
        // A session that replays learns the position.
        let index = Some(index as u64).filter(|_| self.sessions.replays(session));
        self.requests.owed.owe(token.number, batch, message, session, index);
        self.env.metrics.replies_waiting.set(self.requests.pending().replies);
    }

    /// Lets this reply to a subscribe wait until publications of other nodes arrive on these channels and patterns.
    pub(super) fn accept_when_known(
        &mut self,
        batch: &mut Batch,
        message: &Message<'_>,
        session: SessionKey,
        names: Vec<Box<str>>,
        reply: Vec<u8>,
    ) -> u64 {
        let token = PublishToken { shard: self.env.index as u16, number: self.requests.owed.new_token() };
        if let Via::Socket(socket) = batch.via {
            self.sessions.owe_reply(socket);
        }
        self.requests.owed.owe_written(token.number, batch, message, session, reply);
        self.env.metrics.replies_waiting.set(self.requests.pending().replies);
        self.emit(Effect::AwaitInterest(names, token));
        token.number
    }

    /// True if the rule for a channel gives it a history, and no further channel can have one. Otherwise the channel has its
    /// ring, so the publication that follows finds it.
    pub(super) fn lacks_history(&mut self, channel: ChannelName<'_>) -> bool {
        if !self.env.shared.histories.are_scarce() {
            return false;
        }
        let rule = self.env.settings.rule_of(channel);
        let Some(terms) = self.env.settings.history(channel, rule) else { return false };
        let is_refused = self.ring_of(channel.as_str(), terms).is_none();
        if is_refused {
            self.env.count_refused_history(channel, 1);
        }
        is_refused
    }

    /// The ring of a channel. Creates an empty ring if needed, so that a channel has an epoch and a position from its
    /// first subscription on.
    pub(super) fn ring_of(&mut self, channel: &str, terms: HistoryTerms) -> Option<RingKey> {
        let shared = self.env.shared.clone();
        let rule = self.env.settings.rule_of(ChannelName::known(channel));
        let birth = self.env.birth(channel, rule, terms);
        let (ring, record) = shared.histories.open(birth, |ring| shared.is_durable.then(|| log_record::birth(ring)))?;
        if let Some(record) = record.flatten() {
            // The new epoch must be persisted, because clients are about to get it.
            self.emit(Effect::Persist(PersistRequest { record, token: None }));
        }
        Some(ring)
    }
}

impl Env {
    /// The one that decides about rights.
    #[inline]
    fn rights(&mut self) -> Rights<'_> {
        let Shared { application, revoked, policy, .. } = &*self.shared;
        let settings = &mut self.settings;
        Rights { settings, application: &**application, revoked, policy: *policy, wall_ms: self.now.wall_ms }
    }

    /// Accepts a publication. The reply has the channel, the id, and success. A publisher may decline it.
    pub(super) fn accept(&self, batch: &mut Batch, message: &Message<'_>) {
        if declines_reply(message) {
            return;
        }
        let timestamp = self.timestamp();
        let channel = message.channel.as_deref().unwrap_or_default();
        batch.reply(&success(channel, message.id.as_ref(), &None, &timestamp));
    }

    /// The member `timesync` of a reply's `ext`.
    pub(super) fn timesync(&self, message: &Message<'_>) -> Option<String> {
        let wall_ms = self.now.wall_ms as i64;
        let timesync = ext::Timesync::read(message.ext?)?.reply(wall_ms, wall_ms)?;
        Some(format!("\"timesync\":{timesync}"))
    }

    /// The time of day, if the settings ask for timestamps.
    pub(super) fn timestamp(&self) -> Option<String> {
        self.settings.given().timestamps.then(|| ext::timestamp(self.now.wall_ms as i64))
    }

    /// The same as raw JSON, for publications.
    pub(super) fn raw_timestamp(&self) -> Option<String> {
        self.timestamp().map(|timestamp| format!("\"{timestamp}\""))
    }

    /// A random delay within the time over which a draining server spreads its clients.
    pub(super) fn jitter_ms(&mut self) -> u64 {
        let mut random = [0; 4];
        (self.entropy)(&mut random);
        u64::from(u32::from_le_bytes(random)) % self.settings.given().drain_spread_ms.max(1)
    }

    /// The history settings of a channel that sessions replay. None if it has no history, or if its messages come with an interval: they
    /// have no positions.
    pub(super) fn replayed_history_of(&mut self, channel: &str) -> Option<HistoryTerms> {
        let channel = ChannelName::parse(channel, self.settings.limits()).ok()?;
        let rule = self.settings.rule_of(channel);
        self.settings.history(channel, rule).filter(|_| !self.is_conflated(channel.as_str()))
    }

    /// The beginning of a ring of this channel.
    pub(super) fn birth<'b>(&'b mut self, channel: &'b str, rule: Option<usize>, terms: HistoryTerms) -> Birth<'b> {
        let room = self.history_room();
        let rule = rule.map_or("", |rule| &self.settings.given().channels[rule].pattern);
        Birth { channel, rule, terms, room, now: self.now, entropy: &mut self.entropy }
    }

    /// The limits for the rings of this shard: its share of the server's limits.
    pub(super) fn history_room(&self) -> Room {
        Room::of(self.settings.given(), self.shared.shards)
    }

    /// Counts publications that no history took. The log has the first one.
    pub(super) fn count_refused_history(&self, channel: ChannelName<'_>, messages: usize) {
        if self.metrics.history_refused.get() == 0 {
            tracing::warn!(
                channel = channel.as_str(),
                "the channels of its rule have their part of history_channels_max: this one has no history"
            );
        }
        self.metrics.history_refused.add(messages);
    }
}

/// True if a publisher wants no reply to a publication that succeeds.
#[inline]
pub(super) fn declines_reply(message: &Message<'_>) -> bool {
    message.ext.is_some_and(ext::declines_reply)
}

/// The smallest limit on the replies to one batch, in bytes. The limit is half of the capacity of an outbox, if that is
/// more. Over HTTP it is this value while there is little room for responses. A batch whose replies exceed the limit
/// has the rest of its messages refused.
const REPLIES_BYTES_LEAST: usize = 64 * 1024;
