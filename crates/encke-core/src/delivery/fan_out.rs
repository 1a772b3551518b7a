//! The fan-out of publications: messages are encoded once, and each subscriber gets a range of bytes.

use std::sync::Arc;

use bayeux::ChannelName;
use bayeux::ext::PositionForm;

use crate::admission::account::MailboxAccount;
use crate::admission::budget::part_of;
use crate::channels::Subscriber;
use crate::delivery::backpressure::Backpressure;
use crate::delivery::outbox::Kind;
use crate::delivery::outbox::arena::Frames;
use crate::delivery::schedule::Schedule;
use crate::delivery::sessions::replay::{InRings, Replay};
use crate::delivery::sessions::session::Session;
use crate::delivery::sessions::table::Sessions;
use crate::delivery::{Delivery, GivenUp, Receives};
use crate::events::{EncodedPublications, PublishToken, SessionKey};
use crate::history::Position;
use crate::id::Id;
use crate::limits::Capacity;
use crate::now::Now;
use crate::settings::SlowConsumer;
use crate::side::Side;

/// Publications of one channel that are fanned out together.
#[derive(Clone, Copy)]
pub(crate) struct FanOut<'a> {
    pub(crate) channel: ChannelName<'a>,
    pub(crate) frames: &'a Frames,
    pub(crate) messages: u32,
    pub(crate) side: Side,
    /// True if the delivery may wait, whatever the rule says.
    pub(crate) is_lazy: bool,
    /// The index of the channel's rule.
    pub(crate) rule: Option<usize>,
    /// Their position in the history of the channel.
    pub(crate) position: Option<&'a Position>,
    /// The token for which the replies to the publisher wait.
    pub(crate) token: Option<PublishToken>,
}

/// The parameters of one fan-out: what the settings and the rule of its channel say.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    /// The index of the session that must not get it.
    pub(crate) except: Option<u32>,
    /// The time by which lazy messages must be sent, in milliseconds. None for messages that are sent at once.
    pub(crate) lazy_due_ms: Option<u64>,
    /// The time now, in milliseconds, if deliveries count as activity.
    pub(crate) active_ms: Option<u64>,
    /// The part of an outbox up to which the policy drops nothing.
    pub(crate) room: Capacity,
    /// The policy for sessions that are too slow.
    pub(crate) policy: SlowConsumer,
}

/// A list of subscribers. True if one of them asked for positions, and the publications have some.
pub(crate) type Receivers<'a> = (&'a [Subscriber], bool);

impl FanOut<'_> {
    /// Copies the delivery for another shard.
    pub(crate) fn to_publications(self, except: Option<Id>, account: &Arc<MailboxAccount>) -> EncodedPublications {
        let frames: Box<[u8]> = self.frames.chunk.slice(self.frames.start, self.frames.end)[..].into();
        EncodedPublications {
            charge: EncodedPublications::charge(account, self.channel.as_str(), &frames),
            channel: self.channel.as_str().into(),
            frames,
            messages: self.messages,
            side: self.side,
            is_lazy: self.is_lazy,
            except,
            position: self.position.cloned(),
            token: self.token,
            publisher: None,
        }
    }
}

impl Delivery {
    /// Pushes to the outbox of each session in these lists, once. Sessions that replay get the frames with positions.
    /// Returns the sessions that are too slow.
    pub(crate) fn fan_out<'s>(
        &mut self,
        fan_out: &FanOut<'_>,
        manner: &Manner,
        lists: impl Iterator<Item = Receivers<'s>>,
        has_positions: bool,
        receives: Receives<'_>,
    ) -> Vec<GivenUp> {
        self.fan_outs += 1;
        let frames = fan_out.frames;
        let position = fan_out.position.filter(|_| has_positions);
        let positioned = position.map(|position| (position, self.positioned(frames, position)));
        let (mut full, mut special, mut given_up) = (Vec::new(), Vec::new(), Vec::new());
        let Delivery { sessions, schedule, backpressure, capacity, now, fan_outs, .. } = self;
        let (stamp, lazy) = (*fan_outs, Vec::new());
        let mut push = Push { fan_out, manner, stamp, capacity, now: *now, sessions, schedule, backpressure, lazy };
        for (subscribers, wants_positions) in lists {
            match positioned.as_ref().filter(|_| wants_positions) {
                None => push.plain(subscribers, &mut full, frames),
                Some((_, positioned)) => push.positioned(subscribers, &mut special, frames, positioned),
            }
        }
        for key in push.lazy {
            self.wait_lazily(key, manner.lazy_due_ms);
        }
        if let Some((position, positioned)) = &positioned {
            let mut deliver =
                |key: &SessionKey| self.deliver_specially(*key, fan_out, position, positioned, manner, receives);
            given_up.extend(special.iter().filter_map(|key| deliver(key).err()));
        }
        if !full.is_empty() {
            self.overflow(&full, fan_out, manner, receives, &mut given_up);
        }
        given_up
    }

    /// Leaves a subscriber out of the next fan-out.
    pub(crate) fn pass_by(&mut self, session: u32) {
        self.sessions.at(session).stamp = self.fan_outs + 1;
    }

    /// Encodes publications once for each form of positions that a session uses.
    fn positioned(&mut self, frames: &Frames, position: &Position) -> Positioned {
        Positioned(PositionForm::ALL.map(|form| match self.forms[form as usize] {
            0 => frames.clone(),
            _ => self.encoder.with_positions(frames, position, form),
        }))
    }
}

/// Publications with the position of each, in all forms that sessions of the shard use.
pub(super) struct Positioned([Frames; PositionForm::ALL.len()]);

impl Positioned {
    /// The frames for a session with this state.
    #[inline]
    pub(super) fn for_replay(&self, replay: &Replay) -> &Frames {
        &self.0[replay.form as usize]
    }
}

/// A fan-out under way: what it pushes, and the parts of the delivery that it changes.
struct Push<'a> {
    fan_out: &'a FanOut<'a>,
    manner: &'a Manner,
    /// The number of the fan-out. Each session gets it once.
    stamp: u64,
    capacity: &'a Capacity,
    now: Now,
    sessions: &'a mut Sessions,
    schedule: &'a mut Schedule,
    backpressure: &'a mut Backpressure,
    /// The sessions that have got lazy messages, and must be armed.
    lazy: Vec<SessionKey>,
}

impl Push<'_> {
    /// Pushes the same frames to all.
    #[inline(never)]
    fn plain(&mut self, subscribers: &[Subscriber], others: &mut Vec<SessionKey>, frames: &Frames) {
        self.each(subscribers, others, |_| Some(frames), |_| {});
    }

    /// Pushes the frames with positions to the sessions that replay.
    #[inline(never)]
    fn positioned(
        &mut self,
        subscribers: &[Subscriber],
        others: &mut Vec<SessionKey>,
        frames: &Frames,
        positioned: &Positioned,
    ) {
        let frames_for = |session: &Session| match &session.replay {
            None => Some(frames),
            Some(replay) => replay.is_live().then_some(positioned.for_replay(replay)),
        };
        let may_be_in_rings = |session: &mut Session| {
            if let Some(replay) = &mut session.replay {
                replay.in_rings = InRings::Maybe;
            }
        };
        self.each(subscribers, others, frames_for, may_be_in_rings);
    }

    /// Pushes the frames that `frames_for` chooses to the outbox of each subscriber that has not got them yet. `others`
    /// gets the sessions for which a push does not do: those with a full outbox, and those for which `frames_for`
    /// returns None. `is_pushed` sees each session that has got them.
    #[inline(always)]
    fn each<'f>(
        &mut self,
        subscribers: &[Subscriber],
        others: &mut Vec<SessionKey>,
        frames_for: impl Fn(&Session) -> Option<&'f Frames>,
        is_pushed: impl Fn(&mut Session),
    ) {
        let FanOut { messages, position, .. } = *self.fan_out;
        let Manner { except, lazy_due_ms, active_ms, room, .. } = *self.manner;
        let (part, stamp) = (part_of(self.capacity), self.stamp);
        let free = Capacity { bytes_max: part.bytes_max.min(room.bytes_max), ..part };
        for subscriber in subscribers {
            let session = self.sessions.at(subscriber.session);
            if session.stamp == stamp || except == Some(subscriber.session) {
                continue;
            }
            session.stamp = stamp;
            let Some(frames) = frames_for(session) else {
                others.push(session.key(subscriber.session));
                continue;
            };
            if session.outbox.is_full(messages as usize, frames.bytes(), &free) {
                if session.outbox.is_full(messages as usize, frames.bytes(), &room) {
                    others.push(session.key(subscriber.session));
                    continue;
                }
                // A session that replays falls back on the history.
                let is_behind = session.outbox.is_full(messages as usize, frames.bytes(), &part);
                if is_behind && (position.is_none() || session.replay.is_none()) {
                    self.backpressure.is_behind(session, subscriber.session, self.now);
                }
            }
            session.outbox.push_many(frames, Kind::Messages, messages);
            is_pushed(session);
            session.active_ms = active_ms.unwrap_or(session.active_ms);
            if lazy_due_ms.is_some() {
                self.lazy.push(session.key(subscriber.session));
            } else {
                session.make_urgent(subscriber.session, self.schedule);
            }
        }
    }
}
