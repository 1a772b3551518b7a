//! Sessions over a clean restart: what a stopping shard hands on, and how its next life takes it up.
//!
//! ```text
//!   outboxes, ledgers, tails ── save ──▶ Saved (plain data) ── restore ──▶ outboxes, ledgers, tails
//! ```
//!
//! A message that waits for many is there once; sessions name it by its number. The server reads and writes the file.

use serde::{Deserialize, Serialize};

use crate::sessions::id::Id;
use crate::sessions::loss::Loss;
use crate::sessions::replay::Replay;

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
    pub ack: Option<SavedUnacked>,
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
pub struct SavedUnacked {
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
    pub cursors: Vec<SavedCursor>,
    /// What it has lost with a whole history and was not told, or has not confirmed.
    pub losses: Vec<SavedLoss>,
}

/// A channel whose history a session was reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedCursor {
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

impl Replay {
    /// A tail that has nothing to give any more is not worth a word: no live message is on its way.
    pub(crate) fn save(&self) -> SavedReplay {
        let losses = self.losses().iter().map(|loss| SavedLoss {
            channel: loss.name.clone(),
            epoch: (*loss.epoch).into(),
            from: loss.from,
            to: loss.to,
            told: loss.told,
        });
        let cursors = self.cursors.iter().filter(|(_, cursor)| cursor.open).map(|(name, cursor)| SavedCursor {
            channel: name.into(),
            epoch: (*cursor.epoch).into(),
            next: cursor.next,
            lost: cursor.lost,
        });
        SavedReplay { cursors: cursors.collect(), losses: losses.collect() }
    }
}

impl SavedCursor {
    /// Its history is gone with all that was in it.
    pub(crate) fn to_loss(&self) -> Loss {
        let from = self.lost.map_or(self.next, |lost| lost.0);
        Loss { name: self.channel.clone(), epoch: (*self.epoch).into(), from, to: None, told: None }
    }
}

impl SavedLoss {
    pub(crate) fn to_loss(&self) -> Loss {
        let SavedLoss { channel, epoch, from, to, told } = self;
        Loss { name: channel.clone(), epoch: (**epoch).into(), from: *from, to: *to, told: *told }
    }
}
