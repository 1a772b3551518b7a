//! The hot loop of a fan-out: one push for each subscriber.

use crate::admission::budget::part_of;
use crate::channels::Subscriber;
use crate::events::SessionKey;
use crate::fanout::backpressure::Backpressure;
use crate::fanout::delivery::{Delivery, Manner};
use crate::now::Now;
use crate::outbox::arena::Frames;
use crate::outbox::{Capacity, Kind};
use crate::schedule::Schedule;
use crate::sessions::session::Session;
use crate::sessions::table::Sessions;

/// A fan-out under way: what it pushes, and the parts that it changes.
pub(crate) struct Push<'a> {
    pub(crate) delivery: &'a Delivery<'a>,
    pub(crate) manner: &'a Manner,
    pub(crate) capacity: &'a Capacity,
    /// The part of it up to which the channel's policy drops nothing.
    pub(crate) room: Capacity,
    pub(crate) now: Now,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) schedule: &'a mut Schedule,
    pub(crate) backpressure: &'a mut Backpressure,
    /// The sessions that have got lazy messages, and must be armed.
    pub(crate) lazy: Vec<SessionKey>,
}

impl Push<'_> {
    /// Pushes the frames that `frames_for` chooses to the outbox of each subscriber that has not got them yet. `others`
    /// gets the sessions for which a push does not do: those with a full outbox, and those for which `frames_for`
    /// returns None. `is_pushed` sees each session that has got them.
    #[inline(always)]
    pub(crate) fn each<'f>(
        &mut self,
        subscribers: &[Subscriber],
        others: &mut Vec<SessionKey>,
        frames_for: impl Fn(&Session) -> Option<&'f Frames>,
        is_pushed: impl Fn(&mut Session),
    ) {
        let Delivery { messages, position, .. } = *self.delivery;
        let Manner { stamp, except, lazy_due_ms, active_ms } = *self.manner;
        let (part, room) = (part_of(self.capacity), self.room);
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
