//! The rings of a node of a cluster, as its partitions see them: the histories of the server, and the way to the shards with
//! subscribers.

use std::sync::Arc;

use bayeux::ChannelName;
use bytes::Bytes;
use encke_cluster::{Content, Copied, Cursor, Entry as ClusterEntry, Rings};
use encke_core::history::log_record::{self, LoggedMessage, Record};
use encke_core::history::{
    Appended, Birth, Histories, Lineage, Missed, MissedRange, Position, Room, Stamp, partition_of,
};
use encke_core::{
    EncodedPublications, Entropy, Envelope, HistoryTerms, Now, PublishToken, Report, Rules, Settings, ShardMessage,
    Weight,
};
use websocket::{Opcode, frame};

use crate::net::server_shared::ServerShared;

/// The rings of a node, while its partitions change them.
pub(super) struct NodeRings<'a> {
    pub(super) server: &'a Arc<ServerShared>,
    pub(super) terms: &'a mut Terms,
    pub(super) now: Now,
}

/// The rules for channels in force.
pub(super) struct Terms {
    settings: Arc<Settings>,
    rules: Rules,
    scratch: String,
}

/// Messages of one channel, as shards exchange them.
struct Burst<'a> {
    channel: &'a str,
    frames: &'a [u8],
    messages: u32,
    stamp: Stamp,
}

impl Terms {
    pub(super) fn new(settings: Arc<Settings>) -> Terms {
        Terms { rules: Rules::new(&settings.channels), settings, scratch: String::new() }
    }

    /// True if some channels have a history.
    pub(super) fn have_histories(&self) -> bool {
        self.settings.channels.iter().any(|rule| rule.history().is_some())
    }

    /// The index of the rule of a channel, and the terms of its history. None if it has none.
    fn of(&mut self, channel: &str) -> Option<(usize, HistoryTerms)> {
        let Terms { settings, rules, scratch } = self;
        let rule = rules.first(&settings.channels, ChannelName::known(channel), scratch)?;
        Some((rule, settings.channels[rule].history()?))
    }
}

impl NodeRings<'_> {
    fn histories(&self) -> Arc<Histories> {
        self.server.shared().histories.clone()
    }

    /// Calls `with` with the data for a ring of a channel. None if the channel has no history on this node.
    fn with_birth<T>(&mut self, channel: &str, with: impl FnOnce(Birth<'_>) -> T) -> Option<T> {
        let (rule, terms) = self.terms.of(channel)?;
        let settings = &self.terms.settings;
        let room = Room::of(settings, self.server.mailboxes.shards());
        // Epochs follow from the lineage.
        let mut entropy: Entropy = Box::new(|_| {});
        let rule = &settings.channels[rule].pattern;
        Some(with(Birth { channel, rule, terms, room, now: self.now, entropy: &mut entropy }))
    }

    /// Appends messages with their offsets. They are passed to subscribers, if they are new and `is_live`. Returns their epoch.
    fn append(&mut self, lineage: Lineage, first: u64, burst: &Burst<'_>, is_live: bool) -> Option<Arc<str>> {
        let (texts, ends) = texts_of(burst.frames);
        let histories = self.histories();
        let appended = self.with_birth(burst.channel, |birth| {
            histories.append_at(birth, lineage, first, &burst.stamp, texts.iter().copied())
        });
        let (position, skipped) = match appended {
            Some(Appended::Known) => return None,
            Some(Appended::At(position, skipped)) => (Some(position), skipped),
            Some(Appended::NoRoom) => (None, 0),
            None => {
                histories.note_unknown(burst.channel, first + texts.len() as u64);
                (None, 0)
            }
        };
        let epoch = position.as_ref().map(|position| position.epoch.clone());
        if is_live {
            let from = skipped.checked_sub(1).and_then(|last| ends.get(last)).copied().unwrap_or_default();
            let (frames, messages) = (&burst.frames[from..], burst.messages - skipped as u32);
            self.deliver(&Burst { frames, messages, ..*burst }, position);
        }
        epoch
    }

    fn deliver(&mut self, burst: &Burst<'_>, position: Option<Position>) {
        let Stamp { side, except, .. } = burst.stamp;
        let account = self.server.mailboxes.account();
        let publications = EncodedPublications {
            charge: EncodedPublications::charge(account, burst.channel, burst.frames),
            channel: burst.channel.into(),
            frames: burst.frames.into(),
            messages: burst.messages,
            side,
            is_lazy: false,
            except,
            position,
            token: None,
            publisher: None,
        };
        send_to_wanting(self.server, publications, &mut self.terms.scratch);
    }

    /// The messages that a session has missed on these channels and patterns. Nothing comes to a ring meanwhile.
    pub(super) fn missed(&mut self, names: &[Box<str>], missed: &Missed<'_>) -> Option<Vec<MissedRange>> {
        let names = names.iter().map(|name| ChannelName::known(name));
        let terms = &mut self.terms;
        let recorded = names.filter(|name| name.is_pattern() || terms.of(name.as_str()).is_some());
        self.server.shared().histories.missed(recorded, missed)
    }

    fn clear(&mut self, channel: &str, offset: u64, token: Option<PublishToken>) {
        let removed = self.histories().clear_below(channel, offset, self.now.ms);
        if let Some(token) = token {
            self.server.answer(token.shard, ShardMessage::Report(Report::Cleared(token.number, removed)));
        }
    }
}

impl Rings for NodeRings<'_> {
    fn begin(&mut self, partition: usize, lineage: Lineage) {
        self.histories().begin_partition(partition, lineage);
    }

    fn next_of(&mut self, channel: &str) -> u64 {
        self.histories().next_of(channel, self.now.wall_ms)
    }

    fn commit(&mut self, entry: &ClusterEntry, token: Option<PublishToken>) {
        let channel = &*entry.submission.channel;
        match &entry.submission.content {
            Content::Clear => self.clear(channel, entry.first, token),
            Content::Publications { side, except, messages, frames } => {
                let Some(lineage) = self.histories().lineage_of(channel) else { return };
                let except = *except;
                let now = Now { wall_ms: entry.wall_ms, ..self.now };
                let stamp = Stamp { now, side: *side, except };
                let burst = Burst { channel, frames, messages: *messages, stamp };
                let epoch = self.append(lineage, entry.first, &burst, true);
                if let (Some(token), Some(epoch)) = (token, epoch) {
                    let report = ShardMessage::Report(Report::Recorded(token.number, epoch, entry.first));
                    self.server.answer(token.shard, report);
                }
            }
        }
    }

    fn copy(&mut self, partition: usize, from: Option<Cursor>, bytes_max: usize) -> Copied {
        let histories = self.histories();
        let mut copied = Copied { floor: histories.floor(), ..Copied::default() };
        let mut bytes = 0;
        let mut at = from.unwrap_or_default();
        while (at.owner as usize) < histories.owners() {
            let copy = histories.visit_from(at.owner as usize, at.slot as usize, |slot, ring| {
                let offset = if slot as u64 == at.slot { at.offset } else { 0 };
                let is_of_partition = partition_of(ring.name()) == partition;
                let copy = || log_record::state_from(ring, offset, bytes_max.saturating_sub(bytes), usize::MAX);
                (slot as u64, is_of_partition.then(copy))
            });
            match copy {
                None => at = Cursor { owner: at.owner + 1, ..Cursor::default() },
                Some((slot, None)) => at = Cursor { slot: slot + 1, offset: 0, ..at },
                Some((slot, Some((record, _)))) if !copied.records.is_empty() && bytes + record.len() > bytes_max => {
                    // The whole of it is in the next part.
                    let offset = if slot == at.slot { at.offset } else { 0 };
                    copied.next = Some(Cursor { slot, offset, ..at });
                    return copied;
                }
                Some((slot, Some((record, next)))) => {
                    bytes += record.len();
                    copied.records.push(record.into());
                    at = match next {
                        Some(offset) => Cursor { slot, offset, ..at },
                        None => Cursor { slot: slot + 1, offset: 0, ..at },
                    };
                    if bytes >= bytes_max || next.is_some() {
                        copied.next = Some(at);
                        return copied;
                    }
                }
            }
        }
        copied
    }

    fn restore(&mut self, lineage: Lineage, record: &Bytes, is_live: bool) {
        // Nodes write no other records.
        let Some(Record::State(part)) = log_record::decode(record) else { return };
        let (channel, histories) = (part.channel, self.histories());
        let is_begun = self.with_birth(channel, |birth| histories.begin_restore(birth, lineage, &part));
        if is_begun != Some(true) {
            return histories.note_unknown(channel, part.next);
        }
        for message in &part.messages {
            let LoggedMessage { offset, text, .. } = *message;
            let mut frames = Vec::new();
            frame::message(Opcode::Text, format!("[{text}]").as_bytes(), &mut frames);
            let burst = Burst { channel, frames: &frames, messages: 1, stamp: message.stamp(self.now) };
            self.append(lineage, offset, &burst, is_live);
        }
        histories.end_restore(channel, part.next);
    }

    fn raise_floor(&mut self, floor: u64) {
        self.histories().raise_floor(floor);
    }

    fn has_room(&self) -> bool {
        self.server.mailboxes.account().has_room(Weight::Heavy)
    }
}

/// Sends publications to the shards that want their channel.
pub(super) fn send_to_wanting(server: &ServerShared, publications: EncodedPublications, scratch: &mut String) {
    let mailboxes = &server.mailboxes;
    let mut shards = server.shared().interest.of(ChannelName::known(&publications.channel), scratch);
    let publications = Arc::new(publications);
    while shards != 0 {
        let shard = shards.trailing_zeros() as usize;
        shards &= shards - 1;
        let message = ShardMessage::Publication(publications.clone());
        if shard == mailboxes.shards() {
            server.local.send(Envelope::new(mailboxes.account(), message));
        } else {
            // A shard that has ended has no subscribers.
            let _ended = mailboxes.send_to_shard(shard, message);
        }
    }
}

/// The message of each frame, without the array around it, and the end of each frame.
fn texts_of(frames: &[u8]) -> (Vec<&str>, Vec<usize>) {
    let (mut texts, mut ends, mut from) = (Vec::new(), Vec::new(), 0);
    while let Some((head, payload)) = frame::split(&frames[from..]) {
        let end = from + head + payload;
        let Some(array) = frames.get(from + head..end).filter(|array| array.len() >= 2) else { break };
        texts.push(str::from_utf8(&array[1..array.len() - 1]).unwrap_or_default());
        ends.push(end);
        from = end;
    }
    (texts, ends)
}
