//! Saves the sessions of a stopping server and restores them in the next process. The server calls [`Shard::save`] when
//! all shards are at rest, and [`Shard::restore`] before it accepts any connection.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bayeux::ChannelName;
use bayeux::session::{RequestedTiming, Stage as ProtocolStage};

use crate::application::{Caller, EndReason};
use crate::events::SessionKey;
use crate::history::Position;
use crate::identity::Identity;
use crate::now::Now;
use crate::outbox::arena::{Chunk, Frames};
use crate::outbox::{Kind, Outbox, payloads};
use crate::rights::policy::Policy;
use crate::rights::table::{Entry, Granted};
use crate::rights::{By, Client, Denial, May, Wish};
use crate::sessions::cursors::{ReplayCursor, ReplayCursors};
use crate::sessions::loss::Loss;
use crate::sessions::replay::Replay;
use crate::sessions::saved::{Saved, SavedBatch, SavedLoss, SavedReplay, SavedSession, SavedUnacked, Span, Stage};
use crate::sessions::session::{Confirmation, Session};
use crate::sessions::unacked::Unacked;
use crate::shard::{Parts, Shard};

impl Shard {
    /// Returns everything that the sessions of this shard need to continue in the next process. Nothing may happen to
    /// the shard afterwards. Messages in a response that is on its way count as not delivered. Clients are not
    /// notified, and the sessions have not ended.
    pub fn save(&mut self, now: Now) -> Saved {
        self.settle_burst_at(now).save_all()
    }

    /// Restores the sessions of this shard. Call it on all shards before anything else happens to one of them.
    pub fn restore(&mut self, now: Now, saved: &Saved) {
        self.settle_burst_at(now).restore_all(saved);
    }
}

impl Parts {
    fn save_all(&mut self) -> Saved {
        let keys = self.sessions.keys();
        for key in &keys {
            self.take_held(*key);
            self.detach(*key);
            if let Some(session) = self.sessions.get_mut(*key)
                && let Some(exchange) = session.response_in_flight()
            {
                session.response_ends(exchange, false);
            }
            self.withdraw_now(*key);
        }
        let mut pile = Pile::default();
        let sessions = keys.iter().filter_map(|key| Some((*key, self.sessions.get(*key)?)));
        let sessions = sessions.map(|(key, session)| self.save_session(key, session, &mut pile)).collect();
        Saved { policy: self.sessions.policy(), messages: pile.messages, sessions }
    }

    fn save_session(&self, key: SessionKey, session: &Session, pile: &mut Pile) -> SavedSession {
        let RequestedTiming { interval_ms, max_interval_ms } = session.protocol.requested();
        let numbers = |batches: &[Range<u64>]| {
            let number = |batches: &Range<u64>| (batches.start, Some(batches.end).filter(|end| *end < u64::MAX));
            batches.iter().map(number).collect()
        };
        let ack = session.unacked().map(|unacked| SavedUnacked {
            closed: unacked.closed(),
            batches: unacked
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
            identity: self.clients.identity(key).map(|identity| Identity::clone(identity)),
            policy: Some(self.sessions.policy_of(session)).filter(|own| *own != self.sessions.policy()),
            stage: match session.protocol.stage() {
                ProtocolStage::New => Stage::New,
                ProtocolStage::Connected => Stage::Connected,
                ProtocolStage::Ending => Stage::Ending,
            },
            interval_ms,
            max_interval_ms,
            subscriptions: self.channels.names_of(key.index).map(Box::from).collect(),
            ack,
            waiting: pile.add(session.outbox.message_ranges()),
            replay: session.replay.as_ref().map(|replay| replay.save()),
        }
    }

    fn restore_all(&mut self, saved: &Saved) {
        let mut frames = vec![None; saved.messages.len()];
        let index = self.index;
        let mut lost = 0;
        for session in saved.sessions.iter().filter(|session| session.id.shard() == index) {
            match self.may_restore(session, session.policy.unwrap_or(saved.policy)) {
                Ok(admitted) => self.restore_session(session, admitted, &saved.messages, &mut frames),
                Err(reason) => {
                    tracing::info!(session = ?session.id, reason, "session not restored");
                    lost += 1;
                }
            }
        }
        if lost > 0 {
            self.metrics.unrestored.add(lost);
            tracing::warn!(
                lost,
                "sessions not restored: the settings or the rights of today do not admit them; their clients must handshake again"
            );
        }
        self.update_gauges();
    }

    /// Asks for the rights of a session that another process has admitted, and for those to all its subscriptions. Otherwise
    /// returns the reason why it cannot be restored: without one of them it would miss messages, and its client would not
    /// be notified.
    fn may_restore(&mut self, session: &SavedSession, saved: Policy) -> Result<Admitted, String> {
        let identity = session.identity.clone().map(Arc::new);
        let wish = Wish { saved: Some(saved), is_held: true, ..Wish::default() };
        let granted = |may, name: &str| match may {
            May::Granted(granted) => Ok(granted),
            May::Denied(Denial { by: By::Policy, .. }) if name.is_empty() => Err("other authentication".into()),
            May::Denied(denial) => Err(format!("{name}: {}", denial.error())),
            May::Later(_) => Err(format!("{name}: no decision")),
        };
        let client = Client::Newcomer(identity.as_deref());
        let own = granted(self.may_as(Entry::RestoredSession, &client, &wish, None), "")?;
        let client = Client::Session(Caller::new(session.id.as_str(), identity.as_ref()));
        let mut subscriptions = Vec::with_capacity(session.subscriptions.len());
        for name in &session.subscriptions {
            if let Err(error) = ChannelName::parse(name, self.settings.limits()) {
                return Err(format!("{name}: {}", error.error()));
            }
            let wish = Wish { channel: name, ..wish };
            subscriptions.push(granted(self.may_as(Entry::RestoredSubscription, &client, &wish, None), name)?);
        }
        Ok(Admitted { granted: own, identity, subscriptions })
    }

    fn restore_session(
        &mut self,
        saved: &SavedSession,
        admitted: Admitted,
        texts: &[Box<str>],
        frames: &mut [Option<Frames>],
    ) {
        let stage = match saved.stage {
            Stage::New => ProtocolStage::New,
            Stage::Connected => ProtocolStage::Connected,
            Stage::Ending => ProtocolStage::Ending,
        };
        let requested = RequestedTiming { interval_ms: saved.interval_ms, max_interval_ms: saved.max_interval_ms };
        // A draining server may have advised the client to come back as late as that.
        let since_ms = self.now.ms + self.settings.given().drain_spread_ms;
        let protocol = bayeux::Session::restored(since_ms, &self.settings.terms(), stage, requested);
        let mut outbox = Outbox::default();
        let mut push = |shard: &mut Parts, outbox: &mut Outbox, spans: &[Span]| {
            for number in spans.iter().flat_map(|Span(first, count)| *first..*first + *count) {
                let text = &texts[number as usize];
                let frames = frames[number as usize].get_or_insert_with(|| shard.frame_of(text));
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
        let replay = saved.replay.as_ref().map(|replay| Box::new(self.restore_replay(replay)));
        let confirmation = Confirmation::new(unacked, self.settings.given().connect_deliver_only);
        let Admitted { granted, identity, subscriptions } = admitted;
        // The address of its client is not known yet: without a user, all restored sessions have one owner.
        let counted_for = self.session_owner(identity.as_deref(), [0; 2]);
        self.shared.sessions.add(counted_for);
        let key = self.sessions.insert(granted, saved.id, saved.browser, protocol, confirmation, self.now.ms);
        self.clients.open(key, counted_for);
        self.metrics.restored.add(1);
        if saved.stage == Stage::New {
            self.is_new(key, [0; 2]);
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.urgent = !outbox.is_empty();
        (session.outbox, session.replay) = (outbox, replay);
        if let Some(identity) = identity {
            // It was within the limits before the restart.
            let is_counted = self.count_session_of(&identity);
            self.set_owner(key, identity, is_counted);
        }
        for (name, granted) in saved.subscriptions.iter().zip(subscriptions) {
            self.resubscribe(key, name, granted);
        }
        self.arm(key);
        // Its rights may have ended before it was saved, too.
        match &saved.identity {
            Some(identity) if self.shared.revoked.has(identity) => self.kick(key, EndReason::Revoked),
            Some(identity) if identity.has_expired(self.now.wall_ms) => self.kick(key, EndReason::TokenExpired),
            _ => {}
        }
    }

    fn frame_of(&mut self, text: &str) -> Frames {
        self.fanout.encoder.publication(text.len(), |bytes| bytes.extend_from_slice(text.as_bytes()))
    }

    fn restore_replay(&self, saved: &SavedReplay) -> Replay {
        let mut losses: Vec<Loss> = saved.losses.iter().map(SavedLoss::to_loss).collect();
        let mut cursors = ReplayCursors::default();
        for cursor in &saved.cursors {
            let ring = self.shared.histories.find(&cursor.channel, cursor.next);
            match ring.filter(|ring| *ring.epoch == *cursor.epoch) {
                // All live messages were fanned out before the restart: nothing below the cursor is on its way.
                Some(Position { ring, epoch, .. }) => {
                    cursors.insert(
                        &cursor.channel,
                        ReplayCursor { lost: cursor.lost, ..ReplayCursor::new(ring, epoch, cursor.next) },
                    );
                }
                None => {
                    self.metrics.positions_gone.add(1);
                    losses.push(cursor.to_loss());
                }
            }
        }
        Replay::restored(cursors, losses)
    }
}

/// The rights of a session that is restored.
struct Admitted {
    granted: Granted,
    identity: Option<Arc<Identity>>,
    /// In the order of its subscriptions.
    subscriptions: Vec<Granted>,
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
