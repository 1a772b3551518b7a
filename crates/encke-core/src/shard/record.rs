//! Publications of channels with a history. The shard that owns the channel assigns their positions and fans them out.
//!
//! ```text
//!   publisher's shard ── ShardMessage::Record ──▶ owner: ring, positions ── ShardMessage::Publication ──▶ shards with subscribers
//!        ▲                                          │
//!        └── ShardMessage::Persisted ── store ◀─────┘ Effect::Persist, if histories survive the process
//! ```
//!
//! So all subscribers see one order, whichever shards the publishers are on. Delivery does not wait for the disk; the
//! reply to the publisher does ([`super::pending_replies`]).
//!
//! In a cluster the cluster itself owns the histories. It takes publications, and delivers them with their positions to the shards of all
//! nodes.

use std::sync::Arc;

use bayeux::ChannelName;

use crate::delivery::{FanOut, GivenUp, payloads};
use crate::events::{
    Effect, EncodedPublications, OTHER_NODES, PersistRequest, PublishToken, Report, SessionKey, ShardMessage,
    crosses_nodes,
};
use crate::history::{Gap, Position, Ring, log_record};
use crate::id::Id;
use crate::limits::sessions::SessionOwner;
use crate::rights::table::{Granted, Right};
use crate::settings::HistoryTerms;
use crate::shard::{Machines, Shared};

impl Machines {
    /// Appends publications to their history, or sends them to the shard that owns it, or to the cluster.
    /// The sessions are the one that has published, and the one that must not get it. `payer`: the owner, if no session has published.
    pub(super) fn record(
        &mut self,
        fan_out: &FanOut<'_>,
        terms: HistoryTerms,
        (from, except): (Option<SessionKey>, Option<SessionKey>),
        payer: Option<SessionOwner>,
    ) {
        if self.env.shared.is_clustered() {
            if !crosses_nodes(fan_out.channel.as_str()) {
                self.deliver_everywhere(&FanOut { token: None, ..*fan_out }, except, |machines| {
                    machines.delivery.id_of(except)
                });
                return self.settle_token(fan_out.token, true);
            }
            let mut publications = fan_out.to_publications(self.delivery.id_of(except), &self.env.shared.mailbox);
            publications.publisher = from.and_then(|from| self.clients.counted_for(from)).or(payer);
            self.admission.add_work(publications.frames.len() as u64);
            return self.record_in_cluster(ShardMessage::Record(publications.into()));
        }
        let owner = self.env.shared.histories.owner(fan_out.channel.as_str());
        if self.env.shared.is_durable {
            self.admission.record(fan_out.frames.bytes());
        }
        let except_id = self.delivery.id_of(except);
        if owner == self.env.index {
            return self.append_to_history(fan_out, terms, except, except_id);
        }
        let publications = fan_out.to_publications(except_id, &self.env.shared.mailbox);
        self.admission.add_work(publications.frames.len() as u64);
        self.emit(Effect::SendToShard(owner, ShardMessage::Record(publications.into())));
    }

    /// Appends publications of another shard, or of a handle, to a history that this shard owns.
    pub(super) fn record_from_shard(&mut self, publications: &Arc<EncodedPublications>) {
        let EncodedPublications { messages, side, is_lazy, token, .. } = **publications;
        let channel = ChannelName::known(&publications.channel);
        let rule = self.env.settings.rule_of(channel);
        let mut terms = self.env.settings.history(channel, rule);
        if self.env.shared.is_clustered() && terms.take().is_some() && crosses_nodes(&publications.channel) {
            return self.record_in_cluster(ShardMessage::Record(publications.clone()));
        }
        let compresses = self.env.settings.compresses(channel);
        let frames = self.delivery.encoder().copy(&publications.frames, compresses);
        let except = publications.except.and_then(|id| self.delivery.find(&id));
        let fan_out = FanOut { channel, frames: &frames, messages, side, is_lazy, rule, position: None, token };
        match terms {
            Some(terms) => self.append_to_history(&fan_out, terms, except, publications.except),
            // The channel has no history: the settings have changed meanwhile, or the application has published.
            None => {
                self.deliver_everywhere(&FanOut { token: None, ..fan_out }, except, |_| publications.except);
                self.settle_token(token, true);
            }
        }
    }

    fn record_in_cluster(&mut self, message: ShardMessage) {
        self.emit(Effect::SendToShard(OTHER_NODES.into(), message));
    }

    fn append_to_history(
        &mut self,
        fan_out: &FanOut<'_>,
        terms: HistoryTerms,
        except: Option<SessionKey>,
        except_id: Option<Id>,
    ) {
        let (frames, side) = (fan_out.frames, fan_out.side);
        let shared = self.env.shared.clone();
        let birth = self.env.birth(fan_out.channel.as_str(), fan_out.rule, terms);
        let (position, keep) = {
            let bytes = frames.chunk.slice(frames.start, frames.end);
            // Each payload is an array of one message.
            let message = |payload| str::from_utf8(payload).unwrap_or_default();
            let messages = || payloads(&bytes).map(|payload| message(&payload[1..payload.len() - 1]));
            let position = shared.histories.append(birth, side, except_id, messages());
            let stored = position.as_ref().filter(|_| shared.is_durable);
            let record = stored.map(|at| log_record::burst(fan_out.channel.as_str(), at, side, except_id, messages()));
            (position, record.map(|record| PersistRequest { record, token: fan_out.token }))
        };
        if let (Some(token), Some(at)) = (fan_out.token, &position) {
            self.report_position(token, at.epoch.clone(), at.first);
            if !shared.is_durable {
                self.settle_token(Some(token), true);
            }
        }
        let is_refused = position.is_none();
        if is_refused {
            self.env.count_refused_history(fan_out.channel, fan_out.messages as usize);
        }
        keep.into_iter().for_each(|keep| self.emit(Effect::Persist(keep)));
        self.deliver_everywhere(&FanOut { position: position.as_ref(), token: None, ..*fan_out }, except, |_| {
            except_id
        });
        if is_refused {
            // A client's publication counts as accepted where nothing is persisted.
            let is_accepted = |token: &PublishToken| !shared.is_durable && !token.is_of_handle();
            self.settle_token(fan_out.token, fan_out.token.as_ref().is_some_and(is_accepted));
        }
        self.update_history_gauges();
    }

    /// Lets the sessions that follow a channel read on behind messages that are lost, as they find out there.
    pub(super) fn lose(&mut self, gap: &Gap) {
        let Machines { delivery, channels, .. } = self;
        let lists = channels.route(ChannelName::known(&gap.channel));
        let Position { ring, burst, .. } = &gap.position;
        let follow =
            |list: &&u32| channels.wants_positions(**list) && !channels.began_after(**list, ring.owner(), *burst);
        let following: Vec<u32> =
            lists.iter().filter(follow).flat_map(|list| channels.subscribers(*list)).map(|one| one.session).collect();
        let given_up: Vec<GivenUp> = following.into_iter().filter_map(|one| delivery.lose(one, gap).err()).collect();
        self.channels.reuse(lists);
        given_up.into_iter().for_each(|given_up| self.end_given_up(Err(given_up)));
    }

    /// Removes all messages from a history that this shard owns.
    pub(super) fn clear_history(&mut self, channel: &str, token: PublishToken) {
        if self.env.shared.is_clustered() {
            return self.record_in_cluster(ShardMessage::ClearHistory(channel.into(), token));
        }
        let shared = self.env.shared.clone();
        let cleared = shared.histories.clear(channel, self.env.now.ms, log_record::cleared);
        let (removed, record) = cleared.unzip();
        self.report(Report::Cleared(token.number, removed));
        match record.filter(|_| shared.is_durable) {
            Some(record) => self.emit(Effect::Persist(PersistRequest { record, token: Some(token) })),
            None => self.settle_token(Some(token), true),
        }
        self.update_history_gauges();
    }

    /// Reports the epoch of publications and the offset of the first one to those who wait for their token.
    fn report_position(&mut self, token: PublishToken, epoch: Arc<str>, first: u64) {
        if usize::from(token.shard) == self.env.index {
            return self.requests.owed.recorded(token.number, epoch, first);
        }
        let report = Report::Recorded(token.number, epoch, first);
        self.emit(Effect::SendToShard(usize::from(token.shard), ShardMessage::Report(report)));
    }

    /// Reports to a handle.
    pub(super) fn report(&mut self, report: Report) {
        self.emit(Effect::SendToShard(usize::from(PublishToken::HANDLES), ShardMessage::Report(report)));
    }

    /// Removes messages that are too old.
    pub(super) fn sweep_history(&mut self) {
        self.env.shared.histories.sweep(self.env.index, self.env.history_room(), self.env.now.ms);
        self.update_history_gauges();
    }

    fn update_history_gauges(&self) {
        let holding = self.env.shared.histories.holding(self.env.index);
        self.env.metrics.history_messages.set(holding.messages);
        self.env.metrics.history_bytes.set(holding.bytes);
        self.env.metrics.history_channels.set(holding.channels);
        self.env.metrics.history_evicted.set(holding.evicted);
    }
}

impl Shared {
    /// Reads the history of a channel, on any shard. None if it has none.
    pub fn read_history<T>(&self, channel: &str, granted: Granted, read: impl FnOnce(&Ring) -> T) -> Option<T> {
        granted.use_for(Right::History);
        self.histories.with(self.histories.find(channel, 0)?.ring, read)
    }
}
