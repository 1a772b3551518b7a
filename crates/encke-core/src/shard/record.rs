//! Publications of channels with a history. The shard that owns the channel assigns their positions and fans them out.
//! `publish` leads here for publications of this shard, [`ShardMessage::Record`] for those of others.
//!
//! ```text
//!   publisher's shard ── ShardMessage::Record ──▶ owner: ring, positions ── ShardMessage::Publication ──▶ shards with subscribers
//!        ▲                                          │
//!        └── ShardMessage::Persisted ── store ◀─────┘ Effect::Persist, if histories survive the process
//! ```
//!
//! So all subscribers see one order, whichever shards the publishers are on. Delivery does not wait for the disk; the
//! reply to the publisher does ([`super::pending_replies`]).

use bayeux::ChannelName;

use crate::events::{Effect, PersistRequest, Publication, PublishToken, Report, SessionKey, ShardMessage};
use crate::fanout::delivery::Delivery;
use crate::history::{Birth, Ring, RingKey, Room, log_record};
use crate::outbox::payloads;
use crate::rights::table::{Granted, Right};
use crate::sessions::id::Id;
use crate::settings::HistoryTerms;
use crate::shard::{Parts, Shared};

impl Parts {
    /// The history settings of a channel. None if it has no history.
    pub(super) fn history_of(&mut self, channel: &str) -> Option<HistoryTerms> {
        let channel = ChannelName::parse(channel, self.settings.limits()).ok()?;
        let rule = self.settings.rule_of(channel);
        self.settings.history(channel, rule)
    }

    /// The ring of a channel. Creates an empty ring if needed, so that a channel has an epoch and a position from its
    /// first subscription on.
    pub(super) fn ring_of(&mut self, channel: &str, terms: HistoryTerms) -> Option<RingKey> {
        let room = self.history_room();
        let shared = self.shared.clone();
        let rule = self.settings.rule_of(ChannelName::known(channel));
        let rule = rule.map_or("", |rule| &self.settings.given().channels[rule].pattern);
        let birth = Birth { channel, rule, terms, room, now: self.now, entropy: &mut self.entropy };
        let (ring, record) = shared.histories.open(birth, |ring| shared.is_durable.then(|| log_record::birth(ring)))?;
        // The new epoch must be persisted, because clients are about to get it.
        let keep = record.flatten().map(|record| Effect::Persist(PersistRequest { record, token: None }));
        self.effects.extend(keep);
        Some(ring)
    }

    /// True if the rule for a channel gives it a history, and no further channel can have one. Otherwise the channel has its
    /// ring, so the publication that follows finds it.
    pub(super) fn lacks_history(&mut self, channel: ChannelName<'_>) -> bool {
        if !self.shared.histories.are_scarce() {
            return false;
        }
        let rule = self.settings.rule_of(channel);
        let Some(terms) = self.settings.history(channel, rule) else { return false };
        let is_refused = self.ring_of(channel.as_str(), terms).is_none();
        if is_refused {
            self.count_refused_history(channel, 1);
        }
        is_refused
    }

    /// Counts publications that no history took. The log has the first one.
    fn count_refused_history(&self, channel: ChannelName<'_>, messages: usize) {
        if self.metrics.history_refused.get() == 0 {
            tracing::warn!(
                channel = channel.as_str(),
                "the channels of its rule have their part of history_channels_max: this one has no history"
            );
        }
        self.metrics.history_refused.add(messages);
    }

    /// Appends publications to their history, or sends them to the shard that owns it.
    pub(super) fn record(&mut self, delivery: &Delivery<'_>, terms: HistoryTerms, except: Option<SessionKey>) {
        let owner = self.shared.histories.owner(delivery.channel.as_str());
        if self.shared.is_durable {
            self.admission.record(delivery.frames.bytes());
        }
        let except_id = self.id_of_session(except);
        if owner == self.index {
            return self.append_to_history(delivery, terms, except, except_id);
        }
        let publication = delivery.to_publication(except_id, &self.shared.mailbox);
        self.admission.add_work(publication.frames.len() as u64);
        self.effects.push(Effect::SendToShard(owner, ShardMessage::Record(publication.into())));
    }

    /// Appends publications of another shard, or of a handle, to a history that this shard owns.
    pub(super) fn record_from_shard(&mut self, publication: &Publication) {
        let Publication { messages, side, token, .. } = *publication;
        let channel = ChannelName::known(&publication.channel);
        let frames = self.fanout.encoder.copy(&publication.frames);
        let rule = self.settings.rule_of(channel);
        let except = publication.except.and_then(|id| self.sessions.find(&id));
        let delivery = Delivery { channel, frames: &frames, messages, side, rule, position: None, token };
        match self.settings.history(channel, rule) {
            Some(terms) => self.append_to_history(&delivery, terms, except, publication.except),
            // The channel has no history: the settings have changed meanwhile, or the application has published.
            None => {
                self.deliver_everywhere(&Delivery { token: None, ..delivery }, except, |_| publication.except);
                self.settle_token(token, true);
            }
        }
    }

    fn append_to_history(
        &mut self,
        delivery: &Delivery<'_>,
        terms: HistoryTerms,
        except: Option<SessionKey>,
        except_id: Option<Id>,
    ) {
        let (frames, side) = (delivery.frames, delivery.side);
        let (shared, room) = (self.shared.clone(), self.history_room());
        let (channel, rule) = (delivery.channel.as_str(), delivery.rule);
        let rule = rule.map_or("", |rule| &self.settings.given().channels[rule].pattern);
        let birth = Birth { channel, rule, terms, room, now: self.now, entropy: &mut self.entropy };
        let (position, keep) = {
            let bytes = frames.chunk.slice(frames.start, frames.end);
            // Each payload is an array of one message.
            let message = |payload| str::from_utf8(payload).unwrap_or_default();
            let messages = || payloads(&bytes).map(|payload| message(&payload[1..payload.len() - 1]));
            let position = shared.histories.append(birth, side, except_id, messages());
            let stored = position.as_ref().filter(|_| shared.is_durable);
            let record = stored.map(|at| log_record::burst(delivery.channel.as_str(), at, side, except_id, messages()));
            (position, record.map(|record| PersistRequest { record, token: delivery.token }))
        };
        let token = delivery.token.filter(PublishToken::is_of_handle);
        if let (Some(token), Some(at)) = (token, &position) {
            self.report(Report::Recorded(token.number, at.epoch.clone(), at.first));
            if !shared.is_durable {
                self.settle_token(Some(token), true);
            }
        }
        let is_refused = position.is_none();
        if is_refused {
            self.count_refused_history(delivery.channel, delivery.messages as usize);
        }
        self.effects.extend(keep.map(Effect::Persist));
        self.deliver_everywhere(&Delivery { position: position.as_ref(), token: None, ..*delivery }, except, |_| {
            except_id
        });
        if is_refused {
            self.settle_token(delivery.token, false);
        }
        self.update_history_gauges();
    }

    /// Removes all messages from a history that this shard owns.
    pub(super) fn clear_history(&mut self, channel: &str, token: PublishToken) {
        let shared = self.shared.clone();
        let cleared = shared.histories.clear(channel, self.now.ms, log_record::cleared);
        let (removed, record) = cleared.unzip();
        self.report(Report::Cleared(token.number, removed));
        match record.filter(|_| shared.is_durable) {
            Some(record) => self.effects.push(Effect::Persist(PersistRequest { record, token: Some(token) })),
            None => self.settle_token(Some(token), true),
        }
        self.update_history_gauges();
    }

    /// Reports to a handle.
    pub(super) fn report(&mut self, report: Report) {
        self.effects.push(Effect::SendToShard(usize::from(PublishToken::HANDLES), ShardMessage::Report(report)));
    }

    /// The limits for the rings of this shard: its share of the server's limits.
    pub(crate) fn history_room(&self) -> Room {
        Room::of(self.settings.given(), self.shared.shards)
    }

    /// Removes messages that are too old.
    pub(super) fn sweep_history(&mut self) {
        self.shared.histories.sweep(self.index, self.history_room(), self.now.ms);
        self.update_history_gauges();
    }

    fn update_history_gauges(&self) {
        let holding = self.shared.histories.holding(self.index);
        self.metrics.history_messages.set(holding.messages);
        self.metrics.history_bytes.set(holding.bytes);
        self.metrics.history_channels.set(holding.channels);
        self.metrics.history_evicted.set(holding.evicted);
    }
}

impl Shared {
    /// Reads the history of a channel, on any shard. None if it has none.
    pub fn read_history<T>(&self, channel: &str, granted: Granted, read: impl FnOnce(&Ring) -> T) -> Option<T> {
        granted.use_for(Right::History);
        self.histories.with(self.histories.find(channel, 0)?.ring, read)
    }
}
