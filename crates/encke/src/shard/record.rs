//! Publications of channels with a history: the shard that owns the channel gives them their places, and hands them out.
//!
//! ```text
//!   publisher's shard ── Mail::Record ──▶ owner: ring, places ── Mail::Publication ──▶ shards with subscribers
//! ```
//!
//! So all subscribers see one order, whoever publishes where.

use super::Shard;
use super::deliver::{Delivery, rule_index};
use super::effect::{Effect, Mail, Publication, SessionKey};
use super::history::{Birth, Room};
use super::ids::Id;
use super::outbox::payloads;
use crate::settings::HistoryTerms;

impl Shard {
    /// Takes publications down, or has their owner do so.
    pub(super) fn record(&mut self, delivery: &Delivery<'_>, terms: HistoryTerms, except: Option<SessionKey>) {
        let owner = self.shared.histories.owner(delivery.channel.as_str());
        let except_id = self.id_of_session(except);
        if owner == self.index {
            return self.take_down(delivery, terms, except, except_id);
        }
        let publication = delivery.to_publication(except_id);
        self.effects.push(Effect::Mail(owner, Mail::Record(publication.into())));
    }

    /// Publications of another shard for a channel of this one.
    pub(super) fn record_from_afar(&mut self, publication: &Publication) {
        let limits = self.limits.clone();
        let Ok(channel) = bayeux::ChannelName::parse(&publication.channel, &limits) else { return };
        let frames = self.arena.encoded(&publication.frames);
        let rule = rule_index(&self.settings.channels, channel);
        let except = publication.except.and_then(|id| self.sessions.find(&id));
        let delivery = Delivery { channel, frames: &frames, messages: publication.messages, rule, position: None };
        match rule.and_then(|rule| self.settings.channels[rule].history()) {
            Some(terms) => self.take_down(&delivery, terms, except, publication.except),
            // The settings have changed on the way.
            None => self.hand_out(&delivery, except, publication.except),
        }
    }

    fn take_down(
        &mut self,
        delivery: &Delivery<'_>,
        terms: HistoryTerms,
        except: Option<SessionKey>,
        except_id: Option<Id>,
    ) {
        let frames = delivery.frames;
        let (shared, room) = (self.shared.clone(), self.history_room());
        let birth =
            Birth { channel: delivery.channel.as_str(), terms, room, now: self.now, entropy: &mut self.entropy };
        let position = {
            let bytes = frames.chunk.slice(frames.start, frames.end);
            // Each payload is an array of one message.
            let message = |payload| str::from_utf8(payload).unwrap_or_default();
            let messages = payloads(&bytes).map(|payload| message(&payload[1..payload.len() - 1]));
            shared.histories.append(birth, except_id, messages)
        };
        if position.is_none() {
            self.metrics.history_refused.add(delivery.messages as usize);
        }
        self.hand_out(&Delivery { position: position.as_ref(), ..*delivery }, except, except_id);
        self.update_history_gauges();
    }

    /// How much this shard's rings may hold: its share of what the server may.
    pub(super) fn history_room(&self) -> Room {
        let share = |all: usize| (all / self.shared.shards).max(1);
        Room {
            bytes_max: share(self.settings.history_bytes_max),
            channels_max: share(self.settings.history_channels_max),
        }
    }

    /// Lets go of what is too old.
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
