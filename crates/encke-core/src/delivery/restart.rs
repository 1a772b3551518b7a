//! Saves sessions for the next process, and restores them.

use std::collections::HashMap;
use std::ops::Range;

use bayeux::ext::{PositionForm, ReplayFrom};
use bayeux::session::{RequestedTiming, Stage as ProtocolStage};

use crate::delivery::Delivery;
use crate::delivery::outbox::arena::{Chunk, Frames};
use crate::delivery::outbox::{InFlight, Kind, Outbox, payloads};
use crate::delivery::sessions::cursors::{ReplayCursor, ReplayCursors};
use crate::delivery::sessions::loss::Loss;
use crate::delivery::sessions::patterns::PatternReplay;
use crate::delivery::sessions::replay::Replay;
use crate::delivery::sessions::session::{Confirmation, Session};
use crate::delivery::sessions::unacked::Unacked;
use crate::events::SessionKey;
use crate::history::Position;
use crate::rights::table::Granted;
use crate::saved::{
    SavedBatch, SavedCursor, SavedLoss, SavedPattern, SavedReplay, SavedSession, SavedUnacked, Span, Stage,
};

impl Delivery {
    /// Saves all sessions, without what others know of them, and the messages that they refer to. Messages in a response
    /// that is on its way count as not delivered.
    pub(crate) fn save(&mut self) -> (Vec<Box<str>>, Vec<(SessionKey, SavedSession)>) {
        for key in self.sessions.keys() {
            self.take_held(key);
            self.detach(key);
            self.settle_response(key, false);
        }
        let mut pile = Pile::default();
        // A client without Bayeux goes on with another session.
        let sessions = self.sessions.with_keys().filter(|(_, session)| !session.is_plain());
        let sessions = sessions.map(|(key, session)| {
            let terms = self.set_terms_of(key);
            (key, SavedSession { terms, ..save_session(session, &mut pile) })
        });
        let sessions = sessions.collect();
        (pile.messages, sessions)
    }

    /// Ends the wait for the outcome of a response that is on its way.
    fn settle_response(&mut self, key: SessionKey, is_taken: bool) {
        if let Some(session) = self.sessions.get_mut(key)
            && let Some(exchange) = session.response_in_flight()
        {
            session.response_ends(exchange, is_taken);
        }
        self.withdraw_now(key);
    }

    /// Takes all messages out of a session, which is about to leave this node, off its connection. A request whose connect it
    /// holds gets a status. Messages in a response that is on its way count as delivered.
    pub(crate) fn give(&mut self, key: SessionKey) -> Option<(Vec<Box<str>>, SavedSession)> {
        self.supersede(key);
        self.detach(key);
        self.settle_response(key, true);
        let mut pile = Pile::default();
        let terms = self.set_terms_of(key);
        let saved = SavedSession { terms, ..save_session(self.sessions.get(key)?, &mut pile) };
        self.drop_queue(key);
        Some((pile.messages, saved))
    }

    /// A session without its messages: what another node needs to go on with it if this one is gone.
    pub(crate) fn record(&self, key: SessionKey) -> Option<SavedSession> {
        let session = self.sessions.get(key).filter(|session| !session.is_plain())?;
        let ack = session.unacked().map(|unacked| SavedUnacked { closed: unacked.closed(), batches: Vec::new() });
        let replay = session.replay.as_ref().map(|replay| SavedReplay {
            is_mixed: replay.form == PositionForm::Mixed,
            cursors: Vec::new(),
            patterns: Vec::new(),
            losses: Vec::new(),
        });
        let terms = self.set_terms_of(key);
        Some(SavedSession { terms, ..saved(session, Vec::new(), ack, replay) })
    }

    /// The bytes that wait for a session or that it has not confirmed, and true if a response with messages is on its way.
    pub(crate) fn burden(&self, key: SessionKey) -> (usize, bool) {
        let Some(session) = self.sessions.get(key) else { return (0, false) };
        let handed_out: usize = session.handed_out().map(InFlight::bytes).sum();
        (session.outbox.bytes() + handed_out, session.response_in_flight().is_some())
    }

    /// Restores a session. `frames` has the frames of the messages that were needed before. `compresses`: the channel of a
    /// message does.
    pub(crate) fn restore(
        &mut self,
        saved: &SavedSession,
        granted: Granted,
        messages: &[Box<str>],
        frames: &mut [Option<Frames>],
        compresses: &mut dyn FnMut(&[u8]) -> bool,
    ) -> SessionKey {
        let stage = match saved.stage {
            Stage::New => ProtocolStage::New,
            Stage::Connected => ProtocolStage::Connected,
            Stage::Ending => ProtocolStage::Ending,
        };
        let requested = RequestedTiming { interval_ms: saved.interval_ms, max_interval_ms: saved.max_interval_ms };
        // A draining server may have advised the client to come back as late as that.
        let since_ms = self.now.ms + self.settings.drain_spread_ms;
        let granted_terms = saved.identity.as_ref().and_then(|identity| identity.terms.as_deref().copied());
        let set_terms = saved.terms.unwrap_or_default();
        let terms = set_terms.or(granted_terms.unwrap_or_default()).applied_to(self.terms);
        let protocol = bayeux::Session::restored(since_ms, &terms, stage, requested);
        let mut outbox = Outbox::default();
        let mut push = |delivery: &mut Delivery, outbox: &mut Outbox, spans: &[Span]| {
            for message in spans.iter().flat_map(|Span(first, count)| *first..*first + *count) {
                let text = messages[message as usize].as_bytes();
                let frames = frames[message as usize].get_or_insert_with(|| {
                    delivery.encoder.publication(text.len(), compresses(text), |bytes| bytes.extend_from_slice(text))
                });
                outbox.push(frames, Kind::Messages);
            }
        };
        let unacked = saved.ack.as_ref().map(|ack| {
            let batches = ack.batches.iter().map(|batch| {
                push(self, &mut outbox, &batch.messages);
                let numbers = batch.numbers.iter().map(|(first, end)| *first..end.unwrap_or(u64::MAX));
                (numbers.collect(), outbox.take_messages())
            });
            Unacked::restored(ack.closed, batches)
        });
        push(self, &mut outbox, &saved.waiting);
        let replay = saved.replay.as_ref().map(|replay| self.restore_replay(replay));
        let confirmation = Confirmation::new(unacked, self.settings.connect_deliver_only);
        let key = self.sessions.insert(granted, saved.id, saved.browser, protocol, confirmation, self.now.ms);
        let session = self.sessions.at(key.index);
        session.urgent = !outbox.is_empty();
        session.outbox = outbox;
        self.restore_terms(key, granted_terms.unwrap_or_default(), set_terms);
        if let Some(replay) = replay {
            self.set_replay(key, replay);
        }
        key
    }

    fn restore_replay(&self, saved: &SavedReplay) -> Replay {
        let mut losses: Vec<Loss> = saved.losses.iter().map(SavedLoss::to_loss).collect();
        let mut cursors = ReplayCursors::default();
        for cursor in &saved.cursors {
            let ring = self.histories.find(&cursor.channel, cursor.next);
            match ring.filter(|ring| *ring.epoch == *cursor.epoch) {
                // All live messages were fanned out before the restart: nothing below the cursor is on its way.
                Some(Position { ring, epoch, .. }) => {
                    let continued = ReplayCursor { lost: cursor.lost, ..ReplayCursor::new(ring, epoch, cursor.next) };
                    cursors.insert(&cursor.channel, continued);
                }
                None => {
                    self.metrics.positions_gone.add(1);
                    losses.push(cursor.to_loss());
                }
            }
        }
        let form = if saved.is_mixed { PositionForm::Mixed } else { PositionForm::Ext };
        let patterns = saved.patterns.iter().map(|saved| saved.to_pattern(self.now.ms)).collect();
        Replay { patterns, ..Replay::restored(form, cursors, losses) }
    }
}

/// The owner of the machine fills in the identity, the policy and the subscriptions.
fn save_session(session: &Session, pile: &mut Pile) -> SavedSession {
    let numbers = |batches: &[Range<u64>]| {
        let number = |batches: &Range<u64>| (batches.start, Some(batches.end).filter(|end| *end < u64::MAX));
        batches.iter().map(number).collect()
    };
    let mut save_batch = |(batches, messages): (&[Range<u64>], &InFlight)| SavedBatch {
        numbers: numbers(batches),
        messages: pile.add(messages.ranges()),
    };
    let ack = session.unacked().map(|unacked| SavedUnacked {
        closed: unacked.closed(),
        batches: unacked.unconfirmed().map(&mut save_batch).collect(),
    });
    let waiting = pile.add(session.outbox.message_ranges());
    saved(session, waiting, ack, session.replay.as_ref().map(|replay| save_replay(replay)))
}

fn saved(
    session: &Session,
    waiting: Vec<Span>,
    ack: Option<SavedUnacked>,
    replay: Option<SavedReplay>,
) -> SavedSession {
    let RequestedTiming { interval_ms, max_interval_ms } = session.protocol.requested();
    SavedSession {
        id: session.id,
        browser: session.browser,
        identity: None,
        policy: None,
        terms: None,
        attributes: None,
        buckets_ms: [0; 3],
        stage: match session.protocol.stage() {
            ProtocolStage::New => Stage::New,
            ProtocolStage::Connected => Stage::Connected,
            ProtocolStage::Ending => Stage::Ending,
        },
        interval_ms,
        max_interval_ms,
        subscriptions: Vec::new(),
        intervals: Vec::new(),
        by_server: Vec::new(),
        ack,
        waiting,
        replay,
    }
}

/// Collects the messages of a [`Saved`], each once.
#[derive(Default)]
struct Pile {
    messages: Vec<Box<str>>,
    /// The index of the message whose frame begins at this byte of this chunk.
    known: HashMap<(*const Chunk, u32), u32>,
}

impl Pile {
    /// Adds the messages of these ranges that are not in the pile yet. Returns the indexes of all of them.
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

/// Closed cursors are not saved: after a restart no live message is on its way.
fn save_replay(replay: &Replay) -> SavedReplay {
    let losses = replay.losses.iter().map(|loss| SavedLoss {
        channel: loss.name.clone(),
        epoch: (*loss.epoch).into(),
        from: loss.from,
        to: loss.to,
        reported: loss.reported,
    });
    let cursors = replay.cursors.iter().filter(|(_, cursor)| cursor.open).map(|(name, cursor)| SavedCursor {
        channel: name.into(),
        epoch: (*cursor.epoch).into(),
        next: cursor.next,
        lost: cursor.lost,
    });
    let is_mixed = replay.form == PositionForm::Mixed;
    let patterns = replay.patterns.iter().map(SavedPattern::of).collect();
    SavedReplay { is_mixed, cursors: cursors.collect(), patterns, losses: losses.collect() }
}

impl SavedPattern {
    fn of(own: &PatternReplay) -> SavedPattern {
        // Those of the last time begin with all: more than was asked for, and nothing less.
        let messages = |from: &ReplayFrom<'_>| if let ReplayFrom::Last(messages) = from { *messages } else { u64::MAX };
        SavedPattern {
            pattern: own.pattern.clone(),
            messages: own.from.as_ref().map(messages),
            behind: own.behind.clone(),
            names: own.named.iter().map(|digest| ((digest >> 64) as u64, *digest as u64)).collect(),
            beside: own.beside.clone(),
        }
    }

    fn to_pattern(&self, now_ms: u64) -> PatternReplay {
        let from = |messages| if messages == u64::MAX { ReplayFrom::Earliest } else { ReplayFrom::Last(messages) };
        PatternReplay {
            from: self.messages.map(from),
            behind: self.behind.clone(),
            named: self.names.iter().map(|(high, low)| u128::from(*high) << 64 | u128::from(*low)).collect(),
            beside: self.beside.clone(),
            ..PatternReplay::new(&self.pattern, None, now_ms)
        }
    }
}

impl SavedCursor {
    /// The loss of the whole history.
    pub(crate) fn to_loss(&self) -> Loss {
        let from = self.lost.map_or(self.next, |lost| lost.0);
        Loss { name: self.channel.clone(), epoch: (*self.epoch).into(), from, to: None, reported: None }
    }
}

impl SavedLoss {
    pub(crate) fn to_loss(&self) -> Loss {
        let SavedLoss { channel, epoch, from, to, reported } = self;
        Loss { name: channel.clone(), epoch: (**epoch).into(), from: *from, to: *to, reported: *reported }
    }
}
