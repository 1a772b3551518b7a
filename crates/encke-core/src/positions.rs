//! What a session that replays says and hears about positions: where a subscription begins, what it got of what it wanted, and
//! how far it is when nothing happens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayeux::ext::{self, Heartbeat, Lost, Position, Positions, Recovery, ReplayFrom};
use bayeux::{BayeuxError, ChannelName, Message};

use super::Shard;
use super::batch::Batch;
use super::effect::{Effect, Keep, SessionKey, SocketKey};
use super::history::{Birth, Ring, RingKey};
use super::hub::Heard;
use super::outbox::{InFlight, payloads};
use super::replay::Loss;
use super::session::Session;
use super::tails::Tail;
use super::withdrawals::Withdrawn;
use crate::HistoryTerms;
use crate::history::log_record;

/// What one subscribe wants of the past, and what becomes of it.
pub(super) struct Course<'a> {
    positions: Positions<'a>,
    /// Where it has begun with each channel, and what the reply says of that.
    answers: BTreeMap<Box<str>, (ReplayFrom<'a>, String)>,
    begun: Box<Begun>,
}

/// Where the subscribes of one batch begin.
#[derive(Default)]
pub(super) struct Begun {
    /// How often they began with a channel.
    channels: usize,
    /// What comes out of rings now or not at all.
    withdrawn: Withdrawn,
    /// The session uses replay since this batch: messages that wait for it have no number.
    is_first: bool,
}

/// The channels of which messages wait for a session.
enum Waiting {
    /// These.
    Of(BTreeSet<String>),
    /// Too many to look at all.
    Any,
}

/// Where a session begins with a channel.
struct Start {
    recovered: bool,
    epoch: Arc<str>,
    from: u64,
    /// The number of the next message.
    next: u64,
    lost: Option<(u64, u64)>,
}

impl<'a> Course<'a> {
    /// The member `replay` of the reply's `ext`.
    pub(super) fn end(self, batch: &mut Batch) -> Option<String> {
        batch.begun = Some(self.begun);
        let answers: Vec<_> = self.answers.iter().map(|(name, (_, answer))| format!("\"{name}\":{answer}")).collect();
        (!answers.is_empty()).then(|| format!("\"replay\":{{{}}}", answers.join(",")))
    }

    /// Whether it has begun with a channel just there: two of its names may bring the same one.
    fn has_begun(&self, name: &str, position: &ReplayFrom<'_>) -> bool {
        self.answers.get(name).is_some_and(|(begun, _)| begun == position)
    }

    fn answer(&mut self, name: &str, position: &ReplayFrom<'a>, start: Option<&Start>) {
        let recovery = Recovery {
            recovered: start.is_some_and(|start| start.recovered),
            from: start.map(|start| Position { epoch: (*start.epoch).into(), offset: start.from }),
            latest: start.map(|start| start.next - 1),
            lost: start.and_then(|start| start.lost).map(|(from, to)| Lost { from, to: Some(to) }),
        };
        self.answers.insert(name.into(), (position.clone(), recovery.to_json()));
    }
}

impl Start {
    fn new(ring: &Ring, position: &ReplayFrom<'_>) -> Start {
        let (oldest, next) = (ring.oldest(), ring.next());
        let (recovered, from, lost) = match position {
            ReplayFrom::Latest => (true, next, None),
            ReplayFrom::Earliest => (true, oldest, None),
            ReplayFrom::After { offset, epoch } => {
                let known = epoch.as_ref().is_none_or(|epoch| **epoch == **ring.epoch());
                if known && offset + 1 >= oldest && *offset < next {
                    (true, offset + 1, None)
                } else {
                    (false, oldest, (known && *offset < oldest).then(|| (offset + 1, oldest - 1)))
                }
            }
        };
        Start { recovered, epoch: ring.epoch().clone(), from, next, lost }
    }
}

impl Shard {
    /// What a subscribe wants of the past. None where its session does not replay. One that does so without an offer in its
    /// handshake makes the offer here, as Salesforce's clients do.
    pub(super) fn course<'m>(
        &mut self,
        batch: &mut Batch,
        key: SessionKey,
        message: &Message<'m>,
    ) -> Result<Option<Course<'m>>, BayeuxError> {
        let replays = self.sessions.get(key).is_some_and(|session| session.replay.is_some());
        if !replays && !message.ext.is_some_and(ext::uses_replay) {
            return Ok(None);
        }
        let positions = match Positions::read(message.ext, POSITIONS_MAX) {
            // Who has offered nothing may say there what it likes.
            Err(BayeuxError::ReplayInvalid) if !replays => return Ok(None),
            positions => positions?,
        };
        let mut begun = batch.begun.take().unwrap_or_default();
        if !replays {
            self.start_replaying(key);
            begun.is_first = true;
        }
        Ok(Some(Course { positions, answers: BTreeMap::new(), begun }))
    }

    /// A session uses replay from now on: what is published on any channel with a history that it subscribes to comes with a number.
    fn start_replaying(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.replay = Some(Box::default());
        for subscription in &session.subscriptions {
            self.hub.add_follower(subscription.channel);
        }
    }

    /// Lets a session begin where it wants to with a channel, or with those that a pattern matches. `new` is the subscription
    /// it is for; None for one that was there already: then only who names a position begins anew.
    pub(super) fn follow(
        &mut self,
        key: SessionKey,
        name: ChannelName<'_>,
        new: Option<u32>,
        course: &mut Course<'_>,
    ) -> Result<(), std::borrow::Cow<'static, str>> {
        let too_many = || Err(BayeuxError::ReplayChannelsMax.as_str().into());
        let position = course.positions.of(name.as_str()).clone();
        if !name.is_pattern() {
            return if self.begin(key, name.as_str(), &position, new, course) { Ok(()) } else { too_many() };
        }
        let matches = |channel: &&str| {
            let channel = ChannelName::parse(channel, &self.limits);
            channel.is_ok_and(|channel| !channel.is_pattern() && name.matches(channel))
        };
        let named: BTreeSet<String> = course.positions.below(name).filter(matches).map(String::from).collect();
        let others = if position == ReplayFrom::Latest {
            Vec::new()
        } else {
            self.shared.histories.matching(name, PATTERN_CHANNELS_MAX + 1, |channel| !named.contains(channel))
        };
        if others.len() > PATTERN_CHANNELS_MAX {
            return too_many();
        }
        for channel in &named {
            let own = course.positions.of(channel).clone();
            if !self.begin(key, channel, &own, new, course) {
                return too_many();
            }
        }
        for channel in &others {
            if !self.begin(key, channel, &position, new, course) {
                return too_many();
            }
        }
        Ok(())
    }

    /// The same for one channel. False if the session has as many to catch up with as it may.
    fn begin<'m>(
        &mut self,
        key: SessionKey,
        channel: &str,
        position: &ReplayFrom<'m>,
        new: Option<u32>,
        course: &mut Course<'m>,
    ) -> bool {
        if course.has_begun(channel, position) {
            return true;
        }
        if course.begun.channels >= BEGUN_MAX {
            return false;
        }
        course.begun.channels += 1;
        let Some(terms) = self.history_of(channel) else {
            if matches!(position, ReplayFrom::After { .. }) {
                course.answer(channel, position, None);
            }
            return true;
        };
        let Some(ring) = self.ring_of(channel, terms) else {
            course.answer(channel, position, None);
            return true;
        };
        let heard_before = self.hears(key, channel, new);
        if heard_before && *position == ReplayFrom::Latest {
            // It goes on as it was. To tell the latest number here would be to tell of what still waits for the client.
            return true;
        }
        let Some(start) = self.shared.histories.with(ring, |ring| Start::new(ring, position)) else { return true };
        self.metrics.positions_gone.add(usize::from(!start.recovered));
        course.answer(channel, position, Some(&start));
        let tails_max = self.tails_max();
        let owned_here = ring.owner() == self.index;
        // Who names a place has what is before it, or is told that it is lost: nothing below may come any more.
        let anew = matches!(position, ReplayFrom::After { .. });
        let goes_on = heard_before && !anew;
        let lower = if anew { 0 } else { start.from };
        let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut()) else { return true };
        if let Some(tail) = replay.tails.get_mut(channel, ring.serial) {
            let from = if goes_on { start.from.min(tail.next) } else { start.from };
            let below = if goes_on { tail.below.min(from) } else { 0 };
            // Who goes on is still told what it has lost.
            tail.lost = tail.lost.filter(|_| goes_on);
            tail.go_to(from);
            (tail.below, tail.open) = (below, true);
            replay.tails.list(channel);
        } else if start.from == start.next && owned_here {
            // Nothing is on its way: what comes is new.
            self.note_position(channel, ring, &start);
            course.begun.note(channel, &start, lower);
            return true;
        } else if !replay.tails.make_room(tails_max) {
            return false;
        } else {
            let below = if goes_on { start.from } else { 0 };
            let open = start.from < start.next;
            replay.tails.insert(channel, Tail { below, open, ..Tail::new(ring, start.epoch.clone(), start.from) });
        }
        course.begun.note(channel, &start, lower);
        self.catch_up_later(key);
        true
    }

    /// What waits for a session since an earlier subscription, or may come back from a broken connection, and comes out of the ring now
    /// must not come twice: it goes, before anything of a batch leaves.
    pub(super) fn unqueue(&mut self, batch: &mut Batch) {
        let Some(begun) = batch.begun.take().filter(|begun| begun.is_pending()) else { return };
        if let Some(key) = batch.session {
            self.withdraw(key, begun.withdrawn);
        }
    }

    fn note_position(&mut self, channel: &str, ring: RingKey, start: &Start) {
        if let Some(known) = self.hub.find(channel) {
            let heard = Heard { serial: ring.serial, epoch: start.epoch.clone(), id: start.next - 1 };
            self.hub.set_heard(known, heard);
        }
    }

    /// What is kept of a channel, if anything is.
    fn history_of(&mut self, channel: &str) -> Option<HistoryTerms> {
        let channel = ChannelName::parse(channel, &self.limits).ok()?;
        let rule = self.rule_of(channel)?;
        self.settings.channels[rule].history()
    }

    /// The ring of a channel: a new one, so that it has an epoch and a position from the first subscription on.
    fn ring_of(&mut self, channel: &str, terms: HistoryTerms) -> Option<RingKey> {
        let room = self.history_room();
        let shared = self.shared.clone();
        let birth = Birth { channel, terms, room, now: self.now, entropy: &mut self.entropy };
        let (ring, record) = shared.histories.open(birth, |ring| shared.is_durable.then(|| log_record::birth(ring)))?;
        // Its epoch is about to be told.
        let keep = record.flatten().map(|record| Effect::Keep(Keep { record, ticket: None }));
        self.effects.extend(keep);
        Some(ring)
    }

    /// Whether a session hears a channel, by another subscription than `but`.
    pub(super) fn hears(&mut self, key: SessionKey, channel: &str, but: Option<u32>) -> bool {
        let Ok(channel) = ChannelName::parse(channel, &self.limits) else { return false };
        let mut lists = std::mem::take(&mut self.lists);
        self.hub.route(channel, &mut lists);
        let hears = self.sessions.get(key).is_some_and(|session| {
            let mut lists = lists.iter().filter(|list| Some(**list) != but);
            lists.any(|list| session.subscriptions.iter().any(|subscription| subscription.channel == *list))
        });
        self.lists = lists;
        hears
    }

    /// A session is about to give up a subscription: what was published meanwhile comes by its others, though some be younger.
    pub(super) fn hand_over(&mut self, key: SessionKey, channel: u32) {
        let Shard { sessions, hub, .. } = self;
        for other in sessions.get(key).into_iter().flat_map(|session| &session.subscriptions) {
            hub.hand_over(channel, other.channel);
        }
    }

    /// A session has given up a subscription: it need not catch up with what it hears no more.
    pub(super) fn forget_tails(&mut self, key: SessionKey, name: &str) {
        let Some(replay) = self.sessions.get(key).and_then(|session| session.replay.as_ref()) else { return };
        let Ok(name) = ChannelName::parse(name, &self.limits) else { return };
        for channel in replay.tails.covered(name, &self.limits) {
            if !self.hears(key, &channel, None)
                && let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut())
            {
                replay.tails.close(&channel, self.index);
            }
        }
    }

    /// How far a client is in the history of each channel it subscribes to, and what it has lost: the member `replay` of the `ext` of a
    /// connect reply that goes out on this WebSocket, or as a response. A client takes the position for all that is before it, so no
    /// reply may overtake messages: how far it is is told only while nothing waits for it that has not gone out on this very
    /// connection, a loss only while nothing of its channel does, and nothing at all while a response is on its way, which may come back.
    /// So it does not matter how much of what waits goes with this reply.
    pub(super) fn heartbeat(&mut self, key: SessionKey, on: Option<SocketKey>) -> Option<String> {
        let session = self.sessions.get(key).filter(|session| session.is_given())?;
        let waiting = session.replay.as_ref().filter(|replay| replay.has_losses()).map(|_| Waiting::of(session, on));
        let is_owing = session.ledger.as_ref().is_some_and(|ledger| ledger.is_owing(on));
        let quiet = session.outbox.is_empty() && !is_owing;
        let session = self.sessions.get_mut(key)?;
        let replay = session.replay.as_mut()?;
        let batch = session.ledger.as_ref().map(|ledger| ledger.next_batch());
        let losses = waiting.map(|waiting| replay.tell_losses(batch, |name| waiting.has(name))).unwrap_or_default();
        let (count, first) = (session.subscriptions.len(), replay.beat);
        let lost: BTreeSet<&str> = losses.iter().map(|loss| &*loss.name).collect();
        let mut members = Vec::new();
        let mut looked_at = 0;
        while quiet && looked_at < count && members.len() < HEARTBEAT_CHANNELS_MAX {
            let channel = session.subscriptions[(first + looked_at) % count].channel;
            looked_at += 1;
            let name = self.hub.name(channel);
            let tail = replay.tails.of(name);
            let is_lost = lost.contains(name);
            let far = match (tail, self.hub.heard(channel)) {
                _ if name.ends_with('*') => None,
                (Some(tail), _) if tail.below > 0 => None,
                (Some(tail), Some(heard)) if !tail.open && heard.serial >= tail.ring.serial => {
                    Some((heard.epoch.clone(), heard.id.max(tail.next - 1)))
                }
                (Some(tail), _) => Some((tail.epoch.clone(), tail.next - 1)),
                (None, heard) => heard.map(|heard| (heard.epoch.clone(), heard.id)),
            };
            if let Some((epoch, id)) = far.filter(|_| !is_lost) {
                let heartbeat = Heartbeat { epoch: (*epoch).into(), offset: Some(id), lost: None };
                members.push(format!("\"{name}\":{}", heartbeat.to_json()));
            }
        }
        replay.beat = if count == 0 { 0 } else { (first + looked_at) % count };
        members.extend(losses.iter().map(Loss::to_member));
        (!members.is_empty()).then(|| format!("\"replay\":{{{}}}", members.join(",")))
    }
}

impl Begun {
    /// Whether something that waits may have to go before the rings give more.
    pub(super) fn is_pending(&self) -> bool {
        !self.withdrawn.is_empty()
    }

    /// What waits of a channel from this number on is not to come beside the ring.
    fn note(&mut self, channel: &str, start: &Start, lower: u64) {
        let numbers = lower..start.next;
        if numbers.is_empty() {
            return;
        }
        self.withdrawn.note(channel, &start.epoch, numbers, self.is_first);
    }
}

impl Waiting {
    /// What waits that a reply on this WebSocket, or in a response, may overtake.
    fn of(session: &Session, on: Option<SocketKey>) -> Waiting {
        let ledger = session.ledger.as_ref();
        if on.is_some() && ledger.is_none() {
            // It comes before the reply.
            return Waiting::Of(BTreeSet::new());
        }
        let owed = ledger.into_iter().flat_map(|ledger| ledger.owed(on));
        if session.outbox.waiting_bytes() + owed.clone().map(InFlight::bytes).sum::<usize>() > WAITING_BYTES_MAX {
            return Waiting::Any;
        }
        let mut channels = BTreeSet::new();
        for frames in owed.flat_map(InFlight::ranges).chain(session.outbox.message_ranges()) {
            let bytes = frames.chunk.slice(frames.start, frames.end);
            let names = payloads(&bytes).filter_map(ext::position_of).map(|(channel, ..)| channel.into_owned());
            channels.extend(names);
        }
        Waiting::Of(channels)
    }

    fn has(&self, channel: &str) -> bool {
        match self {
            Waiting::Of(channels) => channels.contains(channel),
            Waiting::Any => true,
        }
    }
}

impl Loss {
    fn to_member(&self) -> String {
        let Loss { name, epoch, from, to, .. } = self;
        let lost = Some(Lost { from: *from, to: *to });
        let heartbeat = Heartbeat { epoch: (**epoch).into(), offset: *to, lost };
        format!("\"{name}\":{}", heartbeat.to_json())
    }
}

/// Positions in one subscribe: as many as the subscriptions that a session may have by default.
const POSITIONS_MAX: usize = 1_000;
/// Channels that a pattern may begin with beside those that positions name.
const PATTERN_CHANNELS_MAX: usize = 256;
/// Channels that the subscribes of one batch may begin with: the replies name them all, in up to 400 bytes each.
const BEGUN_MAX: usize = 4_000;
/// What may wait, in bytes, if it is to be looked at before a loss is told: it is while each connect takes some of it.
const WAITING_BYTES_MAX: usize = 256 * 1024;
/// Channels whose position one connect reply tells; the others' follow with the next.
const HEARTBEAT_CHANNELS_MAX: usize = 64;
