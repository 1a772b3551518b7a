//! The histories of a node of a cluster, on its thread. A node whose channels have no history has none, and sends nothing for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use encke_cluster::{Content, Histories, HistoriesSettings, HistoryCounts, HistoryOutput, Sessions, Submission};
use encke_core::history::{Missed, MissedRange, PARTITIONS};
use encke_core::{EncodedPublications, Id, Now, Persisted, PublishToken, SessionOwner, Settings, ShardMessage};
use tokio::sync::mpsc;

use crate::cluster::engine::{EngineCommand, EngineEvent};
use crate::net::server_shared::ServerShared;
use crate::threads::rings::{NodeRings, Terms};

/// The histories of a node.
pub(crate) struct NodeHistories {
    settings: HistoriesSettings,
    terms: Terms,
    /// None until a rule has a history.
    machine: Option<Histories>,
    /// The most bytes of a message, if the engine is there.
    bytes_max: Option<usize>,
    reading: Reading,
}

/// The state of a node that begins.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// It has not begun.
    Not,
    /// It reads what other nodes have, since this time in milliseconds.
    Since(u64),
    /// It had all, or it took too long.
    Done,
}

impl NodeHistories {
    /// The histories of a node whose engine is away.
    pub(crate) fn new(settings: HistoriesSettings, of_server: Arc<Settings>) -> NodeHistories {
        let terms = Terms::new(of_server);
        let mut histories = NodeHistories { settings, terms, machine: None, bytes_max: None, reading: Reading::Not };
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

    /// Takes new settings.
    pub(super) fn set_settings(&mut self, settings: Arc<Settings>) {
        self.terms = Terms::new(settings);
        self.begin();
    }

    /// Takes a message of a shard about a history. Returns any other.
    pub(super) fn take_message(&mut self, message: ShardMessage) -> Option<ShardMessage> {
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
    pub(super) fn take(&mut self, event: &EngineEvent, now_ms: u64) {
        match event {
            EngineEvent::Connected { envelope_bytes_max } => self.bytes_max = Some(*envelope_bytes_max),
            EngineEvent::Disconnected => self.bytes_max = None,
            _ => {}
        }
        let Some(machine) = &mut self.machine else { return };
        match event {
            EngineEvent::Connected { envelope_bytes_max } => machine.connected(*envelope_bytes_max),
            EngineEvent::Disconnected => machine.disconnected(),
            EngineEvent::Notified { key, body } if Histories::LISTENS_BY.contains(key) => machine.received(body),
            EngineEvent::KeyAnswer { number, answer } if Histories::has_sent(*number) => {
                machine.key_answered(now_ms, *number, answer);
            }
            EngineEvent::WatchBegins { bucket, .. } if bucket == machine.bucket() => machine.watch_begins(),
            EngineEvent::WatchComplete { bucket, .. } if bucket == machine.bucket() => {
                machine.watch_is_complete(now_ms)
            }
            EngineEvent::KeyChanged { bucket, key, revision, value } if bucket == machine.bucket() => {
                machine.key_changed(now_ms, key, *revision, value.as_ref());
            }
            _ => {}
        }
    }

    /// Does what has to be done, and passes it on.
    pub(super) fn turn(
        &mut self,
        now: Now,
        server: &Arc<ServerShared>,
        commands: &mpsc::UnboundedSender<EngineCommand>,
        sessions: &mut Sessions,
    ) {
        let Some(machine) = &mut self.machine else { return };
        machine.turn(now, &mut NodeRings { server, terms: &mut self.terms, now });
        let mut settled = BTreeMap::<u16, Vec<Persisted>>::new();
        for output in machine.take_outputs() {
            match output {
                // An engine that has ended takes nothing.
                HistoryOutput::Engine(command) => _ = commands.send(command),
                HistoryOutput::Settled(PublishToken { shard, number }, is_persisted) => {
                    settled.entry(shard).or_default().push(Persisted { number, is_persisted });
                }
                HistoryOutput::Tick(tick, mark) => sessions.ticked(tick, mark),
                HistoryOutput::Mark(node, mark) => sessions.note_mark(node, mark),
            }
        }
        for (shard, persisted) in settled {
            server.answer(shard, ShardMessage::Persisted(persisted));
        }
    }

    /// The sessions of this node have confirmed a tick, but for those whose record says otherwise. `has_late`: there are some.
    pub(super) fn confirmed(&mut self, tick: u64, has_late: bool) {
        self.machine.iter_mut().for_each(|machine| machine.confirmed(tick, has_late));
    }

    /// The messages behind a mark that a session has missed on these channels and patterns, as ranges of rings. None if that cannot be
    /// known, or if they are too many.
    pub(super) fn missed(
        &mut self,
        now: Now,
        server: &Arc<ServerShared>,
        (session, names, mark): (&Id, &[Box<str>], &[u8]),
        room: (usize, usize),
    ) -> Option<Vec<MissedRange>> {
        let since_ms = self.machine.as_ref()?.since(mark)?;
        let missed = Missed { session, since_ms: &since_ms, messages_max: room.0, bytes_max: room.1 };
        NodeRings { server, terms: &mut self.terms, now }.missed(names, &missed)
    }

    /// The time of the next turn, if nothing happens before, in milliseconds.
    pub(super) fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let reading = (!matches!(self.reading, Reading::Done)).then_some(now_ms + READING_LOOK_MS);
        [self.machine.as_ref()?.next_ms(now_ms), reading].into_iter().flatten().min()
    }

    /// The engine has ended.
    pub(super) fn disconnected(&mut self) {
        self.machine.iter_mut().for_each(Histories::disconnected);
    }

    /// Passes all partitions on, because the server stops. True when that is done.
    pub(super) fn end(&mut self) -> bool {
        let Some(machine) = &mut self.machine else { return true };
        machine.end();
        machine.has_ended()
    }

    /// The partitions whose messages it has (`level`), while it reads those of other nodes for the first time. None at any other time.
    pub(super) fn progress(&mut self, now_ms: u64, level: usize) -> Option<usize> {
        self.machine.as_ref()?;
        let max_ms = if self.bytes_max.is_some() { READING_MAX_MS } else { ENGINE_MAX_MS };
        self.reading = match self.reading {
            Reading::Not => Reading::Since(now_ms),
            Reading::Since(_) if level == PARTITIONS => Reading::Done,
            Reading::Since(since_ms) if now_ms >= since_ms + max_ms => {
                tracing::warn!(level, "this node has not read all histories of the cluster, and takes clients now");
                Reading::Done
            }
            as_before => as_before,
        };
        matches!(self.reading, Reading::Since(_)).then_some(level)
    }

    /// Its counts and sizes.
    pub(super) fn counts(&self) -> HistoryCounts {
        self.machine.as_ref().map(Histories::counts).unwrap_or_default()
    }
}

/// The time after which a node takes clients even without all histories, in milliseconds. A whole cluster that starts has none for 10 s.
const READING_MAX_MS: u64 = 60_000;
/// The same while the engine is not there, in milliseconds.
const ENGINE_MAX_MS: u64 = 5_000;
/// The time between two looks at it, in milliseconds.
const READING_LOOK_MS: u64 = 1_000;
