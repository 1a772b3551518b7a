//! The histories of a node with the rules of its server. A node whose channels have no history has none, and sends nothing for them.

use std::sync::Arc;

use bytes::Bytes;
use encke_core::history::Missed;
use encke_core::{EncodedPublications, FromNodes, Now, PublishToken, SessionOwner, Settings, ShardMessage, Weight};

use crate::event::Event;
use crate::histories::{Content, Histories, HistoriesSettings, HistoryOutput, Submission};
use crate::node_rings::{NodeRings, Shards, Terms};
use crate::resumptions::Resumptions;
use crate::sessions::Resumption;

/// The histories of a node.
pub(crate) struct MemberHistories {
    settings: HistoriesSettings,
    terms: Terms,
    /// None until a rule has a history.
    machine: Option<Histories>,
    /// The most bytes of a message, if the engine is there.
    bytes_max: Option<usize>,
    /// Sessions that are taken here, and wait for the messages that they have missed.
    resumptions: Resumptions,
}

impl MemberHistories {
    /// The histories of a node whose engine is away.
    pub(crate) fn new(settings: HistoriesSettings, of_server: Arc<Settings>) -> MemberHistories {
        let terms = Terms::new(of_server);
        let mut histories =
            MemberHistories { settings, terms, machine: None, bytes_max: None, resumptions: Resumptions::default() };
        histories.begin();
        histories
    }

    /// Begins if a rule has a history.
    fn begin(&mut self) {
        if self.machine.is_none() && self.terms.have_histories() {
            let machine = self.machine.insert(Histories::new(self.settings.clone()));
            self.bytes_max.into_iter().for_each(|bytes_max| machine.connected(bytes_max));
        }
    }

    pub(crate) fn machine(&self) -> Option<&Histories> {
        self.machine.as_ref()
    }

    /// Takes new settings.
    pub(crate) fn set_settings(&mut self, settings: Arc<Settings>) {
        self.terms = Terms::new(settings);
        self.begin();
    }

    /// Takes a message of a shard about a history. Returns any other.
    pub(crate) fn take_message(&mut self, message: ShardMessage) -> Option<ShardMessage> {
        match message {
            ShardMessage::Record(publications) => {
                let EncodedPublications { channel, frames, messages, side, except, token, publisher, .. } =
                    &*publications;
                let frames = Bytes::copy_from_slice(frames);
                let content = Content::Publications { side: *side, except: *except, messages: *messages, frames };
                self.publish(Submission { channel: channel.clone(), content }, *token, *publisher);
            }
            ShardMessage::ClearHistory(channel, token) => {
                self.publish(Submission { channel, content: Content::Clear }, Some(token), None);
            }
            other => return Some(other),
        }
        None
    }

    fn publish(&mut self, submission: Submission, token: Option<PublishToken>, publisher: Option<SessionOwner>) {
        // New settings come before what they bring.
        self.machine.iter_mut().for_each(|machine| machine.publish(submission.clone(), token, publisher));
    }

    /// Takes an event of the engine, if it concerns histories.
    pub(crate) fn take(&mut self, event: &Event, now_ms: u64) {
        match event {
            Event::Connected { envelope_bytes_max } => self.bytes_max = Some(*envelope_bytes_max),
            Event::Disconnected => self.bytes_max = None,
            _ => {}
        }
        let Some(machine) = &mut self.machine else { return };
        match event {
            Event::Connected { envelope_bytes_max } => machine.connected(*envelope_bytes_max),
            Event::Disconnected => machine.disconnected(),
            Event::Notified { key, body } if Histories::LISTENS_BY.contains(key) => machine.received(body),
            Event::KeyAnswer { number, answer } if Histories::has_sent(*number) => {
                machine.key_answered(now_ms, *number, answer);
            }
            Event::WatchBegins { bucket, .. } if bucket == machine.bucket() => machine.watch_begins(),
            Event::WatchComplete { bucket, .. } if bucket == machine.bucket() => machine.watch_is_complete(now_ms),
            Event::KeyChanged { bucket, key, revision, value } if bucket == machine.bucket() => {
                machine.key_changed(now_ms, key, *revision, value.as_ref());
            }
            _ => {}
        }
    }

    /// Does what has to be done, and returns what others have to do, in order.
    /// `unrecorded`: the sessions that other nodes must not go on with.
    pub(crate) fn turn(
        &mut self,
        now: Now,
        shards: &dyn Shards,
        unrecorded: &mut dyn FnMut() -> Bytes,
    ) -> Vec<HistoryOutput> {
        let Some(machine) = &mut self.machine else { return Vec::new() };
        machine.turn(now, &mut NodeRings { shards, terms: &mut self.terms, now }, unrecorded);
        machine.take_outputs()
    }

    /// The sessions of this node have confirmed a tick, but for those whose record says otherwise. `has_late`: there are some.
    pub(crate) fn confirmed(&mut self, tick: u64, has_late: bool) {
        self.machine.iter_mut().for_each(|machine| machine.confirmed(tick, has_late));
    }

    /// A session that is taken here needs the messages that it has missed.
    pub(crate) fn resume(&mut self, resumption: Resumption) {
        self.resumptions.add(resumption);
    }

    /// Finds the messages that sessions have missed which are taken here, as ranges of rings, for as many as a turn has time for. Their shards get
    /// them behind all that was committed before.
    pub(crate) fn go_on_with_resumptions(&mut self, now: Now, shards: &dyn Shards) {
        let MemberHistories { resumptions, machine, terms, .. } = self;
        let find = |Resumption { session, shard, names, mark, room, .. }: Resumption| {
            // Without these times they cannot be known.
            let since_ms = machine.as_ref().and_then(|machine| machine.since(&mark));
            let (missed, steps) = since_ms.map_or((None, 0), |since_ms| {
                let missed = Missed { session: &session, since_ms: &since_ms, messages_max: room.0, bytes_max: room.1 };
                NodeRings { shards, terms: &mut *terms, now }.missed(&names, &missed)
            });
            shards.send(shard, ShardMessage::FromNodes(FromNodes::Missed(session, missed)));
            steps
        };
        resumptions.go_on(|| shards.shared().mailbox.has_room(Weight::Light), find);
    }

    /// The time of the next turn, if nothing happens before, in milliseconds.
    pub(crate) fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let machine = self.machine.as_ref().and_then(|machine| machine.next_ms(now_ms));
        machine.into_iter().chain(self.resumptions.next_ms(now_ms)).min()
    }

    /// The engine has ended.
    pub(crate) fn disconnected(&mut self) {
        self.machine.iter_mut().for_each(Histories::disconnected);
    }

    /// Passes all partitions on, because the server stops. True when that is done.
    pub(crate) fn end(&mut self) -> bool {
        let Some(machine) = &mut self.machine else { return true };
        machine.end();
        machine.has_ended()
    }
}
