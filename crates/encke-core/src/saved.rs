//! Sessions over a clean restart: what a stopping shard hands on, and how its next life takes it up.
//!
//! ```text
//!   outboxes, ledgers, tails ── save ──▶ Saved (plain data) ── restore ──▶ outboxes, ledgers, tails
//! ```
//!
//! A message that waits for many is there once; sessions name it by its number. The server reads and writes the file.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use bayeux::ChannelName;
use bayeux::session::{Stage as ProtocolStage, Wishes};
use serde::{Deserialize, Serialize};
use websocket::Opcode;

use super::Shard;
use super::ack::Ledger;
use super::arena::{Chunk, Frames};
use super::effect::{Now, SessionKey};
use super::history::Position;
use super::hub::Heard;
use super::ids::Id;
use super::outbox::{Kind, Outbox, payloads};
use super::replay::{Loss, Replay};
use super::session::Session;
use super::tails::{Tail, Tails};

/// The sessions of a shard, or of all, on their way to the next life of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Messages that wait for somebody: JSON objects.
    pub messages: Vec<Box<str>>,
    /// The sessions.
    pub sessions: Vec<SavedSession>,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSession {
    /// Its client id, which names its shard.
    pub id: Id,
    /// The browser it was opened from, if it has a cookie.
    pub browser: Option<Id>,
    /// How far it has come.
    pub stage: Stage,
    /// The pause its client asked for last, in milliseconds.
    pub interval_ms: Option<u32>,
    /// The grace its client asked for, in milliseconds.
    pub max_interval_ms: Option<u32>,
    /// Channels and patterns.
    pub subscriptions: Vec<Box<str>>,
    /// The messages it still gets, oldest first.
    pub waiting: Vec<Span>,
    /// What it has not confirmed, if it acknowledges.
    pub ack: Option<SavedLedger>,
    /// What it has to catch up with, if it replays.
    pub replay: Option<SavedReplay>,
}

/// Some of [`Saved::messages`] that follow each other: the number of the first, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span(pub u32, pub u32);

/// How far a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It has shaken hands and not connected yet.
    New,
    /// It has connected.
    Connected,
    /// The server has ended it, and its client does not know yet.
    Ending,
}

/// What a session was sent and has not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedLedger {
    /// The number of the last batch that was closed.
    pub closed: u64,
    /// Oldest first.
    pub batches: Vec<SavedBatch>,
}

/// Messages that were not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedBatch {
    /// The batches they were in: the number of the first, and of the first behind them in which they were not, if there is one.
    pub numbers: Vec<(u64, Option<u64>)>,
    /// The messages.
    pub messages: Vec<Span>,
}

/// What a session that replays has not heard live.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedReplay {
    /// Where it stands in which history.
    pub tails: Vec<SavedTail>,
    /// What it has lost with a whole history and was not told, or has not confirmed.
    pub losses: Vec<SavedLoss>,
}

/// A channel whose history a session was reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTail {
    /// The channel.
    pub channel: Box<str>,
    /// The epoch of the history.
    pub epoch: Box<str>,
    /// The number of the next message.
    pub next: u64,
    /// What it has lost before that: the numbers of the first and the last.
    pub lost: Option<(u64, u64)>,
}

/// Messages that are gone with their history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedLoss {
    /// The channel.
    pub channel: Box<str>,
    /// The epoch of the history.
    pub epoch: Box<str>,
    /// The number of the first.
    pub from: u64,
    /// The number of the last, if anybody knows.
    pub to: Option<u64>,
    /// The number of the first batch that told of it.
    pub told: Option<u64>,
}

/// The messages of a [`Saved`] while it is made, each once.
#[derive(Default)]
struct Pile {
    messages: Vec<Box<str>>,
    /// The number of the message whose frame begins there.
    known: HashMap<(*const Chunk, u32), u32>,
}

impl Saved {
    /// Adds the sessions of another shard.
    pub fn append(&mut self, other: Saved) {
        let by = self.messages.len() as u32;
        self.messages.extend(other.messages);
        self.sessions.extend(other.sessions.into_iter().map(|mut session| {
            session.spans_mut().for_each(|span| span.0 += by);
            session
        }));
    }

    /// Whether every number is one of a message.
    pub fn is_whole(&self) -> bool {
        let count = self.messages.len() as u64;
        let spans = || self.sessions.iter().flat_map(SavedSession::spans);
        spans().all(|Span(first, messages)| u64::from(*first) + u64::from(*messages) <= count)
    }
}

impl SavedSession {
    fn spans(&self) -> impl Iterator<Item = &Span> {
        let batches = self.ack.iter().flat_map(|ack| &ack.batches);
        batches.flat_map(|batch| &batch.messages).chain(&self.waiting)
    }

    fn spans_mut(&mut self) -> impl Iterator<Item = &mut Span> {
        let batches = self.ack.iter_mut().flat_map(|ack| &mut ack.batches);
        batches.flat_map(|batch| &mut batch.messages).chain(&mut self.waiting)
    }
}

impl Pile {
    /// Adds the messages of these ranges that are not there yet; where they all are.
    fn add<'a>(&mut self, ranges: impl Iterator<Item = &'a Frames>) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for range in ranges {
            let bytes = range.chunk.slice(range.start, range.end);
            let mut start = range.start;
            for payload in payloads(&bytes) {
                let number = *self.known.entry((std::rc::Rc::as_ptr(&range.chunk), start)).or_insert_with(|| {
                    // Each payload is an array of one message.
                    self.messages.push(str::from_utf8(&payload[1..payload.len() - 1]).unwrap_or_default().into());
                    self.messages.len() as u32 - 1
                });
                start += (websocket::frame::header_bytes(payload.len()) + payload.len()) as u32;
                match spans.last_mut() {
                    Some(Span(first, count)) if *first + *count == number => *count += 1,
                    _ => spans.push(Span(number, 1)),
                }
            }
        }
        spans
    }
}

impl Shard {
    /// What the sessions of this shard need to go on in the server's next life, where nothing happens to it any more. What was on
    /// its way in a response counts as not taken. Their clients are told nothing, and they have not ended.
    pub fn save(&mut self, now: Now) -> Saved {
        self.now = now;
        self.spread();
        let keys = self.sessions.keys();
        for key in &keys {
            self.take_held(*key);
            self.detach(*key);
            if let Some(session) = self.sessions.get_mut(*key)
                && let Some(in_flight) = session.in_flight.take()
            {
                session.outbox.restore(in_flight.1);
            }
            self.withdraw_now(*key);
        }
        let mut pile = Pile::default();
        let sessions = keys.iter().filter_map(|key| self.sessions.get(*key));
        let sessions = sessions.map(|session| self.save_session(session, &mut pile)).collect();
        Saved { messages: pile.messages, sessions }
    }

    fn save_session(&self, session: &Session, pile: &mut Pile) -> SavedSession {
        let Wishes { interval_ms, max_interval_ms } = session.protocol.wishes();
        let numbers = |batches: &[Range<u64>]| {
            let number = |batches: &Range<u64>| (batches.start, Some(batches.end).filter(|end| *end < u64::MAX));
            batches.iter().map(number).collect()
        };
        let ack = session.ledger.as_ref().map(|ledger| SavedLedger {
            closed: ledger.closed(),
            batches: ledger
                .unconfirmed()
                .map(|(batches, messages)| SavedBatch {
                    numbers: numbers(batches),
                    messages: pile.add(messages.ranges()),
                })
                .collect(),
        });
        SavedSession {
            id: session.id,
            browser: session.browser,
            stage: match session.protocol.stage() {
                ProtocolStage::New => Stage::New,
                ProtocolStage::Connected => Stage::Connected,
                ProtocolStage::Ending => Stage::Ending,
            },
            interval_ms,
            max_interval_ms,
            subscriptions: session.subscriptions.iter().map(|s| self.hub.name(s.channel).into()).collect(),
            ack,
            waiting: pile.add(session.outbox.message_ranges()),
            replay: session.replay.as_ref().map(|replay| replay.save()),
        }
    }

    /// Takes up the sessions that live here. Do so with all shards before anything else happens to one of them.
    pub fn restore(&mut self, now: Now, saved: &Saved) {
        self.now = now;
        let mut frames = vec![None; saved.messages.len()];
        let index = self.index;
        let mut lost = 0;
        for session in saved.sessions.iter().filter(|session| session.id.shard() == index) {
            if self.can_restore(session) {
                self.restore_session(session, &saved.messages, &mut frames);
            } else {
                lost += 1;
            }
        }
        if lost > 0 {
            self.metrics.unrestored.add(lost);
            tracing::warn!(
                lost,
                "sessions have subscriptions that the settings do not allow now: these clients shake hands anew"
            );
        }
        self.update_gauges();
    }

    /// A session without one of its subscriptions would miss messages, and nobody would tell its client.
    fn can_restore(&self, saved: &SavedSession) -> bool {
        saved.subscriptions.iter().all(|name| ChannelName::parse(name, &self.limits).is_ok())
    }

    fn restore_session(&mut self, saved: &SavedSession, texts: &[Box<str>], frames: &mut [Option<Frames>]) {
        let stage = match saved.stage {
            Stage::New => ProtocolStage::New,
            Stage::Connected => ProtocolStage::Connected,
            Stage::Ending => ProtocolStage::Ending,
        };
        let wishes = Wishes { interval_ms: saved.interval_ms, max_interval_ms: saved.max_interval_ms };
        // Its client may have been told to come back as late as that.
        let since_ms = self.now.ms + self.settings.drain_spread_ms;
        let protocol = bayeux::Session::restored(since_ms, &self.terms, stage, wishes);
        let key = self.sessions.insert(saved.id, saved.browser, protocol, self.now.ms);
        self.shared.sessions.fetch_add(1, Ordering::Relaxed);
        self.metrics.restored.add(1);
        if saved.stage == Stage::New {
            self.is_new(key, [0; 2]);
        }
        let mut outbox = Outbox::default();
        let mut push = |shard: &mut Shard, outbox: &mut Outbox, spans: &[Span]| {
            for number in spans.iter().flat_map(|Span(first, count)| *first..*first + *count) {
                let text = &texts[number as usize];
                let frames = frames[number as usize].get_or_insert_with(|| shard.frame_of(text));
                outbox.push(frames, Kind::Messages);
            }
        };
        let ledger = saved.ack.as_ref().map(|ack| {
            let batches = ack.batches.iter().map(|batch| {
                push(self, &mut outbox, &batch.messages);
                let numbers = batch.numbers.iter().map(|(first, end)| *first..end.unwrap_or(u64::MAX));
                (numbers.collect(), outbox.take_messages())
            });
            Box::new(Ledger::restored(ack.closed, batches))
        });
        push(self, &mut outbox, &saved.waiting);
        let replay = saved.replay.as_ref().map(|replay| Box::new(self.restore_replay(replay)));
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.urgent = !outbox.is_empty();
        session.with_connects = self.settings.connect_deliver_only;
        (session.outbox, session.ledger, session.replay) = (outbox, ledger, replay);
        for name in &saved.subscriptions {
            self.resubscribe(key, name);
        }
        self.arm(key);
    }

    fn frame_of(&mut self, text: &str) -> Frames {
        self.arena.frame(Opcode::Text, text.len() + 2, |bytes| {
            bytes.push(b'[');
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(b']');
        })
    }

    /// A subscription that the application has agreed to before the restart.
    fn resubscribe(&mut self, key: SessionKey, name: &str) {
        let limits = self.limits.clone();
        let Ok(channel) = ChannelName::parse(name, &limits) else { return };
        let Some(listed) = self.enlist(key, channel) else { return };
        // Everything that its history has was handed out before the restart: whom nothing waits for is that far.
        let end = self.shared.histories.find(name, 0).and_then(|position| {
            let next = self.shared.histories.with(position.ring, |ring| ring.next())?;
            Some(Heard { serial: position.ring.serial, epoch: position.epoch, id: next.checked_sub(1)? })
        });
        if let Some(end) = end {
            self.hub.set_heard(listed, end);
        }
    }

    fn restore_replay(&self, saved: &SavedReplay) -> Replay {
        let mut losses: Vec<Loss> = saved.losses.iter().map(SavedLoss::to_loss).collect();
        let mut tails = Tails::default();
        for tail in &saved.tails {
            let ring = self.shared.histories.find(&tail.channel, tail.next);
            match ring.filter(|ring| *ring.epoch == *tail.epoch) {
                // All that came live has been handed out: nothing below the cursor is on its way.
                Some(Position { ring, epoch, .. }) => {
                    tails.insert(&tail.channel, Tail { lost: tail.lost, ..Tail::new(ring, epoch, tail.next) });
                }
                None => {
                    self.metrics.positions_gone.add(1);
                    losses.push(tail.to_loss());
                }
            }
        }
        Replay::restored(tails, losses)
    }
}

impl Replay {
    /// A tail that has nothing to give any more is not worth a word: no live message is on its way.
    fn save(&self) -> SavedReplay {
        let losses = self.losses().iter().map(|loss| SavedLoss {
            channel: loss.name.clone(),
            epoch: (*loss.epoch).into(),
            from: loss.from,
            to: loss.to,
            told: loss.told,
        });
        let tails = self.tails.iter().filter(|(_, tail)| tail.open).map(|(name, tail)| SavedTail {
            channel: name.into(),
            epoch: (*tail.epoch).into(),
            next: tail.next,
            lost: tail.lost,
        });
        SavedReplay { tails: tails.collect(), losses: losses.collect() }
    }
}

impl SavedTail {
    /// Its history is gone with all that was in it.
    fn to_loss(&self) -> Loss {
        let from = self.lost.map_or(self.next, |lost| lost.0);
        Loss { name: self.channel.clone(), epoch: (*self.epoch).into(), from, to: None, told: None }
    }
}

impl SavedLoss {
    fn to_loss(&self) -> Loss {
        let SavedLoss { channel, epoch, from, to, told } = self;
        Loss { name: channel.clone(), epoch: (**epoch).into(), from: *from, to: *to, told: *told }
    }
}
