//! Replay requests: chooses the offset at which a session begins in the history of each channel. Before the replies of a
//! batch leave, messages that wait and that the histories give again are withdrawn.

use std::collections::BTreeSet;

use bayeux::ext::{Positions, ReplayFrom};
use bayeux::{BayeuxError, ChannelName, Message, ext};

use crate::channels::LastReceived;
use crate::delivery::{Beginning, Begun, Given, PAGE, PatternReplay, Unnumbered};
use crate::events::SessionKey;
use crate::history::{Ring, RingKey, digest_of};
use crate::protocol::batch::Batch;
use crate::protocol::replay_request::{ReplayRequest, Start};
use crate::shard::Machines;

impl Machines {
    /// The replay request of a subscribe. None if the session does not use replay. A subscribe with a position turns
    /// replay on, even if the handshake did not offer it, as Salesforce's clients do.
    pub(super) fn replay_request<'m>(
        &mut self,
        batch: &mut Batch,
        key: SessionKey,
        message: &Message<'m>,
    ) -> Result<Option<ReplayRequest<'m>>, BayeuxError> {
        let replays = self.delivery.session(key).is_some_and(|session| session.replays());
        if !replays && !message.ext.is_some_and(ext::uses_replay) {
            return Ok(None);
        }
        let positions = match Positions::read(message.ext, bayeux::limits::REPLAY_POSITIONS_MAX) {
            // A client that has not offered replay may put anything there.
            Err(BayeuxError::ReplayInvalid) if !replays => return Ok(None),
            positions => positions?,
        };
        let mut begun = batch.begun.take().unwrap_or_default();
        if !replays {
            self.start_replaying(key);
            begun.is_first = true;
        }
        Ok(Some(ReplayRequest::new(positions, begun)))
    }

    /// Begins at a channel, or at all channels that a pattern matches, at the requested positions. `new` is the index
    /// of the new subscription's channel. It is None for an existing subscription: then only a channel with a position
    /// begins again.
    pub(super) fn follow(
        &mut self,
        key: SessionKey,
        name: ChannelName<'_>,
        new: Option<u32>,
        replay_request: &mut ReplayRequest<'_>,
    ) -> Result<(), std::borrow::Cow<'static, str>> {
        let too_many = || Err(BayeuxError::ReplayChannelsMax.as_str().into());
        let requested = replay_request.positions.requested(name.as_str()).map(ReplayFrom::to_owned);
        let is_new = requested.is_none() && replay_request.is_of_new && self.env.settings.may_retain(name, false);
        let beside = new.filter(|_| is_new).map(|new| self.subscriptions_beside(key, new));
        let mut position = requested.unwrap_or_default();
        if !name.is_pattern() {
            if beside.is_some_and(|beside| self.starts_retained(name.as_str(), &beside)) {
                position = ReplayFrom::Last(1);
            }
            return if self.begin(key, name.as_str(), &position, new, replay_request) { Ok(()) } else { too_many() };
        }
        let matches = |channel: &&str| {
            let channel = ChannelName::parse(channel, self.env.settings.limits());
            channel.is_ok_and(|channel| !channel.is_pattern() && name.matches(channel))
        };
        let named: BTreeSet<String> = replay_request.positions.below(name).filter(matches).map(String::from).collect();
        if position == ReplayFrom::More {
            let channels = named.iter().map(String::as_str);
            if !self.delivery.await_positions(key, name.as_str(), new, channels) {
                return too_many();
            }
        }
        let mut rest = PatternReplay::new(name.as_str(), new, self.env.now.ms);
        let mut others = Vec::new();
        let starts_over = position != ReplayFrom::Latest;
        if position != ReplayFrom::More {
            // Without a position, what was left to earlier pages for another subscription still comes.
            rest.named = self.delivery.take_named(key, name.as_str(), starts_over);
        }
        let names_beside = beside.iter().flatten().map(|list| self.channels.name(*list));
        let with_retained = beside.is_some() && rest.begin_retained(names_beside);
        if with_retained {
            // In pages, others get what was left to these.
            position = ReplayFrom::LastMs(0);
        }
        if !matches!(position, ReplayFrom::Latest | ReplayFrom::More) {
            rest.named.extend(named.iter().map(|channel| digest_of(channel)));
            others = self.env.shared.histories.matching(name, None, PAGE + 1, |channel| !rest.names(channel));
        }
        let (is_long, is_first) = (others.len() > PAGE, replay_request.begun.is_first);
        if is_long && !with_retained && (is_first || matches!(position, ReplayFrom::After { .. })) {
            // An offset means nothing to so many channels, and what waits without positions can be searched for once.
            return too_many();
        }
        others.truncate(PAGE);
        for channel in &named {
            let own = replay_request.positions.of(channel).clone();
            if !self.begin(key, channel, &own, new, replay_request) {
                return too_many();
            }
        }
        replay_request.is_of_pattern = true;
        let have_begun = others.iter().all(|channel| {
            let is_retained = with_retained && self.env.settings.retains(ChannelName::known(channel));
            let own = if is_retained { &ReplayFrom::Last(1) } else { &position };
            with_retained && !is_retained || self.begin(key, channel, own, new, replay_request)
        });
        replay_request.is_of_pattern = false;
        (rest.from, rest.behind) = (Some(position), others.pop());
        let may_page = !is_first || self.delivery.waiting_bytes(key) == 0;
        let is_done = have_begun && (!is_long || may_page && self.delivery.replay_pattern(key, rest));
        // A client that asks for no position subscribes in any case.
        self.env.metrics.retained_incomplete.add(usize::from(beside.is_some() && !(with_retained && is_done)));
        if is_done || with_retained { Ok(()) } else { too_many() }
    }

    /// Begins at a single channel. Returns false if the session already has as many cursors as it may.
    pub(super) fn begin<'m>(
        &mut self,
        key: SessionKey,
        channel: &str,
        position: &ReplayFrom<'m>,
        new: Option<u32>,
        replay_request: &mut ReplayRequest<'m>,
    ) -> bool {
        if replay_request.has_begun(channel, position) {
            return true;
        }
        if replay_request.begun.channels >= BEGUN_MAX {
            return false;
        }
        replay_request.begun.channels += 1;
        let Some(terms) = self.env.replayed_history_of(channel) else {
            if matches!(position, ReplayFrom::After { .. }) {
                replay_request.answer(channel, position, None);
            }
            return true;
        };
        let Some(ring) = self.beside().ring_of(channel, terms) else {
            replay_request.answer(channel, position, None);
            return true;
        };
        let received_before = self.channels.receives_beside(key.index, channel, new);
        if received_before && *position == ReplayFrom::Latest {
            // The subscription continues unchanged. The latest offset must not be reported, because messages up to it
            // may still wait for the client.
            return true;
        }
        let since_ms = replay_request.since_ms;
        let asked_ms = since_ms.unwrap_or(self.env.now.ms);
        let is_mirrored = self.env.shared.histories.is_mirrored();
        let look = |ring: &Ring| {
            let mut start = Start::new(ring, position, asked_ms, is_mirrored);
            if let (Some(ms), ReplayFrom::Last(_)) = (since_ms, position) {
                // The fan-out has left those that came since to this page.
                start.from = start.from.min(ring.first_since(ms));
            }
            let has_dropped = start.from == ring.oldest() && since_ms.is_some_and(|ms| ring.has_dropped_since(ms));
            (start, has_dropped)
        };
        let Some((start, has_dropped)) = self.env.shared.histories.with(ring, look) else { return true };
        self.env.metrics.positions_gone.add(usize::from(!start.recovered || has_dropped));
        replay_request.answer(channel, position, Some(&start));
        // A client that names a position has everything before it, or gets it reported as lost. Nothing below that
        // position may come any more.
        let at_position = matches!(position, ReplayFrom::After { .. });
        let continues = received_before && !at_position;
        let lower = if at_position { 0 } else { start.from };
        let unnumbered =
            match replay_request.begun.is_first && !replay_request.begun.withdrawn.knows_unnumbered(channel) {
                true if at_position => Unnumbered::All,
                true => Unnumbered::Given(self.given(key, ring, &start)),
                false => Unnumbered::None,
            };
        // At least the message before has gone since the pattern was requested.
        let lost = start
            .from
            .checked_sub(1)
            .filter(|_| has_dropped && matches!(position, ReplayFrom::Earliest | ReplayFrom::LastMs(_)));
        let lost = lost.map(|offset| (offset, offset));
        let (epoch, from, next) = (start.epoch.clone(), start.from, start.next);
        let beginning = Beginning { ring, epoch, from, next, continues, lost };
        match self.delivery.begin_replay(key, channel, &beginning) {
            Begun::Gone => return true,
            Begun::TooMany => return false,
            Begun::Cursor => {}
            Begun::AtEnd => {
                let (serial, epoch, offset) = (ring.serial, start.epoch.clone(), start.next - 1);
                self.channels.note_received(channel, LastReceived { serial, epoch, offset });
            }
        }
        match since_ms {
            None => self.delivery.has_begun(key, channel),
            // The fan-out has left its messages to this page.
            Some(_) if !received_before => return true,
            Some(_) => {}
        }
        replay_request.begun.note(channel, &start, lower, unnumbered);
        true
    }

    /// The texts that the ring gives from `start` on and that may also wait for the session without a position. These
    /// are the latest texts, up to the number of bytes that wait for the session or are in transit between shards.
    fn given(&self, key: SessionKey, ring: RingKey, start: &Start) -> Given {
        let mut given = Given::default();
        let (waiting, id) = (self.delivery.waiting_bytes(key), self.delivery.id_of(Some(key)));
        if waiting == 0 {
            return given;
        }
        let mut left = waiting + self.env.shared.mailbox.bytes();
        self.env.shared.histories.with(ring, |ring| {
            let there = ring.from(start.from).rev().skip_while(|entry| entry.offset >= start.next);
            for entry in there.filter(|entry| entry.except.as_deref() != id.as_ref()) {
                let Some(less) = left.checked_sub(entry.text.len()) else { break };
                left = less;
                given.add(entry.text.as_bytes());
            }
        });
        given
    }

    /// Withdraws messages that wait for the session since an earlier subscription, or may come back from a broken
    /// connection, and that the ring gives now. It does so before anything of the batch leaves, and before a message of
    /// the batch that may answer a held connect, so that no message comes twice.
    pub(super) fn unqueue(&mut self, batch: &mut Batch) {
        let withdrawn = batch.begun.as_mut().and_then(|begun| begun.take_withdrawn());
        if let (Some(key), Some(withdrawn)) = (batch.session, withdrawn) {
            self.delivery.withdraw(key, withdrawn);
        }
    }

    /// Does this at the end of a batch, or when it is suspended.
    pub(super) fn unqueue_at_end(&mut self, batch: &mut Batch) {
        self.unqueue(batch);
        batch.begun = None;
    }
}

/// The number of channels at which the subscribes of one batch may begin: the replies name all of them, in up to 400
/// bytes each.
const BEGUN_MAX: usize = 4_000;
