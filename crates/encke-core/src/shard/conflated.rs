//! Publications of channels with an interval, and of groups: at most one message in an interval, the latest. What does not go at once waits
//! in [`Conflation`](crate::conflation::Conflation), as bytes, and is fanned out as any other publication when its time comes.
//!
//! Such messages have no positions: a session that replays gets them as those of a channel without a history. The history itself has all.

use std::collections::{BTreeMap, BTreeSet};

use bayeux::{BayeuxError, ChannelName, Message, ext};

use crate::channels::{Channels, Subscribed};
use crate::conflation::{Conflation, Due, Group, Offer, Offered, Room, Waiting};
use crate::delivery::{FanOut, Frames, last_of};
use crate::events::{SessionKey, crosses_nodes};
use crate::interval::Interval;
use crate::shard::{Env, Machines};
use crate::side::Side;

impl Machines {
    /// Fans out publications to those that get all messages, and offers the last one to those that get it with an interval.
    #[inline(never)]
    pub(super) fn conflate(&mut self, fan_out: &FanOut<'_>, except: Option<SessionKey>) {
        let channel = fan_out.channel;
        let own_ms = self.env.min_interval_ms(channel, fan_out.rule);
        let groups = self.channels.groups(channel);
        if own_ms == 0 {
            // It may have waited by an older rule.
            self.conflation.drop_waiting(Conflation::EVERYBODY, channel.as_str());
            self.fan_out_to_all(fan_out, except);
        }
        if own_ms == 0 && groups.is_empty() {
            return;
        }
        self.conflation.number_next();
        let got = if self.may_have_got(fan_out) { self.have_got(fan_out) } else { Vec::new() };
        let last = last_of(fan_out.frames);
        let last = FanOut { frames: &last, messages: 1, position: None, token: None, ..*fan_out };
        // A waiting message must not outlive a later one that found nobody.
        let everybody = Conflation::EVERYBODY;
        let is_wanted =
            own_ms > 0 && (self.channels.reach(channel) > 0 || self.conflation.holds(everybody, channel.as_str()));
        if is_wanted && self.offer(everybody, own_ms, &last, except, &got) {
            let lists = self.channels.route(channel);
            self.fan_out_past(&got, &lists, &last, except);
            self.channels.reuse(lists);
        }
        for (group, interval) in groups {
            if !crosses_nodes(channel.as_str()) {
                // Announcements of members are all delivered.
                self.fan_out_to_group(group, &FanOut { position: None, ..*fan_out }, except, &[]);
            } else if self.offer(group, own_ms.max(interval.ms()), &last, except, &got) {
                self.fan_out_to_group(group, &last, except, &got);
            }
        }
        self.env.metrics.min_interval_channels.set(self.conflation.len());
    }

    /// Offers a message to a group. True if it goes now. `got`: the sessions that have it already.
    fn offer(
        &mut self,
        group: Group,
        interval_ms: u32,
        fan_out: &FanOut<'_>,
        except: Option<SessionKey>,
        got: &[u32],
    ) -> bool {
        let Env { settings, metrics, now, .. } = &self.env;
        let given = settings.given();
        let room = Room { channels_max: given.min_interval_channels_max, bytes_max: given.min_interval_bytes_max };
        let Frames { chunk, start, end } = fan_out.frames;
        let bytes = chunk.slice(*start, *end);
        let (channel, is_lazy) = (fan_out.channel.as_str(), fan_out.is_lazy);
        let offer = Offer { group, channel, interval_ms, frame: &bytes, except, is_lazy };
        let offered = self.conflation.offer(&offer, now.ms, room);
        self.env.count_steps(1 + got.len());
        if matches!(offered, Offered::Waits | Offered::Replaces) {
            // A session that has unsubscribed meanwhile gets no note: another one may take its slot.
            let got = got.iter().filter(|session| self.channels.count_of(**session) > 0);
            got.for_each(|session| self.conflation.note_had(group, *session, channel));
        }
        match offered {
            Offered::Goes => true,
            Offered::HasNoRoom => {
                metrics.min_interval_overflows.add(1);
                true
            }
            Offered::Waits => false,
            Offered::Replaces => {
                metrics.min_interval_replaced.add(1);
                false
            }
        }
    }

    /// Fans out a publication, which was offered last or has waited, to the members of a group. A member that gets the channel by another
    /// subscription, too, gets each message once: by that with the shortest interval.
    fn fan_out_to_group(&mut self, group: Group, fan_out: &FanOut<'_>, except: Option<SessionKey>, got: &[u32]) {
        let number = self.conflation.number();
        self.fan_out_numbered(group, fan_out, except, (number, got));
    }

    fn fan_out_numbered(
        &mut self,
        group: Group,
        fan_out: &FanOut<'_>,
        except: Option<SessionKey>,
        (number, got): (u64, &[u32]),
    ) {
        let Machines { env, conflation, channels, delivery, .. } = self;
        let mut before = None;
        for session in conflation.shared(group, number) {
            let before = before.get_or_insert_with(|| channels.lists_before(group, fan_out.channel));
            env.count_steps(channels.count_of(session));
            if channels.lists_of(session).any(|own| before.contains(&own)) {
                delivery.pass_by(session);
            }
        }
        self.fan_out_past(got, &[group], fan_out, except);
    }

    /// Fans out to all subscribers in these lists but those that have got it already.
    fn fan_out_past(&mut self, got: &[u32], lists: &[u32], fan_out: &FanOut<'_>, except: Option<SessionKey>) {
        // Without lists there is no fan-out, and they would be left out of the next one.
        got.iter().filter(|_| !lists.is_empty()).for_each(|session| self.delivery.pass_by(*session));
        self.fan_out_to(lists, fan_out, except);
    }

    /// Sends messages whose time has come, as many as one turn may.
    pub(super) fn send_due(&mut self) {
        let before = self.steps();
        while self.steps() - before < DUE_STEPS_PER_TURN
            && self.admission.has_room(self.admission.weight(), (0, 0), self.env.settings.capacity())
            && let Some(due) = self.conflation.take_due(self.env.now.ms)
        {
            self.env.count_steps(1);
            self.send_waiting(&due);
        }
        self.env.metrics.min_interval_channels.set(self.conflation.len());
    }

    /// Ends all intervals, because the rules change. What has no room in this turn goes in the next ones.
    pub(super) fn end_intervals(&mut self) {
        self.env.count_steps(self.conflation.len());
        self.conflation.end_intervals();
        self.send_due();
    }

    /// Sends all that waits, because the shard stops.
    pub(super) fn send_all_waiting(&mut self) {
        self.conflation.end_intervals();
        while let Some(due) = self.conflation.take_due(self.env.now.ms) {
            self.send_waiting(&due);
        }
    }

    fn send_waiting(&mut self, due: &Due) {
        let Due { group, channel, message } = due;
        let (group, number, channel) = (*group, message.number, ChannelName::known(channel));
        let (rule, compresses) = (self.env.settings.rule_of(channel), self.env.settings.compresses(channel));
        let frames = self.delivery.encoder().copy(&message.frame, compresses);
        let (side, is_lazy) = (Side::default(), message.is_lazy);
        let fan_out =
            FanOut { channel, frames: &frames, messages: 1, side, is_lazy, rule, position: None, token: None };
        // Its slot may be another one's meanwhile.
        let except = message.except.filter(|key| self.delivery.has(*key));
        let lists = match group {
            Conflation::EVERYBODY => self.channels.route(channel),
            group => vec![group],
        };
        if lists.iter().any(|list| !self.channels.subscribers(*list).is_empty()) {
            let (had, steps) = self.conflation.take_had(group, channel, number);
            self.env.count_steps(steps);
            had.into_iter().for_each(|session| self.delivery.pass_by(session));
            match group {
                Conflation::EVERYBODY => self.fan_out_to(&lists, &fan_out, except),
                group => self.fan_out_numbered(group, &fan_out, except, (number, &[])),
            }
        }
        if group == Conflation::EVERYBODY {
            self.channels.reuse(lists);
        }
    }

    /// Delivers to a session what waits for it, because it leaves this node.
    pub(super) fn send_waiting_to(&mut self, key: SessionKey) {
        if self.conflation.len() == 0 {
            return;
        }
        let lists = in_order(self.channels.lists_of(key.index));
        let waiting = self.waiting_for(key, &lists, None, |_, _, _| true);
        waiting.into_values().for_each(|frame| self.deliver_to(key, &frame));
    }

    /// Delivers to a session what waits for it on the channels of a subscription that ends, or that goes on with another interval
    /// (`goes_on`): no other list delivers that later.
    pub(super) fn settle_waiting(&mut self, key: SessionKey, slot: usize, goes_on: bool) {
        let Some((list, _)) = self.channels.list_at(key.index, slot).filter(|_| self.conflation.len() > 0) else {
            return;
        };
        self.env.count_steps(self.channels.count_of(key.index));
        let others = in_order(self.channels.overlapping_in_groups(key.index, list));
        if others.is_empty() && !goes_on {
            return;
        }
        let name = self.channels.name(list).to_owned();
        let lists = in_order(others.iter().copied().chain([list]));
        let waiting = self.waiting_for(key, &lists, Some(ChannelName::known(&name)), |_, channels, channel| {
            goes_on || channels.is_brought_by(&others, channel)
        });
        waiting.into_values().for_each(|frame| self.deliver_to(key, &frame));
        if !self.delivery.has(key) {
            return;
        }
        let groups: BTreeSet<Group> = others.iter().map(|other| self.group_of(*other)).collect();
        groups.into_iter().for_each(|group| self.conflation.note_had(group, key.index, &name));
    }

    /// Moves a subscription to the list with this interval. Returns that list. None if the session has no such subscription.
    pub(super) fn move_to(&mut self, key: SessionKey, name: &str, interval: Interval) -> Option<u32> {
        let slot = self.channels.slot_of(key.index, name)?;
        self.settle_waiting(key, slot, true);
        // The session may have ended, because it does not read.
        let follows = self.delivery.session(key)?.replays();
        let (before, had) = self.channels.list_at(key.index, slot)?;
        if follows && had.is_none() {
            self.channels.hand_over(key.index, slot);
        }
        let Subscribed { channel: list, begins, .. } =
            self.channels.change_interval(key.index, slot, interval, follows);
        if had.is_none() {
            self.forget_cursors(key, name);
        } else {
            self.has_left_group(key, before);
        }
        if begins && interval.is_none() {
            self.set_older(list);
        }
        let group = self.group_of(list);
        self.conflation.note_had(group, key.index, name);
        self.note_overlaps(key, list);
        self.note_subscriptions(key);
        Some(list)
    }

    /// Notes that a session gets from the histories what waits for it by the rules. It gets the rest now.
    pub(super) fn note_had_of_histories(&mut self, key: SessionKey) {
        if !self.env.settings.rules_have_intervals() || self.conflation.len() == 0 {
            return;
        }
        let lists = self.channels.lists_of(key.index).filter(|list| self.channels.interval(*list).is_none());
        let lists = in_order(lists);
        let waiting =
            self.waiting_for(key, &lists, None, |env, _, channel| env.settings.seen_history(channel).is_none());
        waiting.into_values().for_each(|frame| self.deliver_to(key, &frame));
        for list in lists.iter().filter(|_| self.delivery.has(key)) {
            self.conflation.note_had(Conflation::EVERYBODY, key.index, self.channels.name(*list));
        }
    }

    /// Notes that a session has left a group.
    pub(super) fn has_left_group(&mut self, key: SessionKey, group: Group) {
        let has_ended = self.channels.subscribers(group).is_empty();
        let steps = self.conflation.left(group, key.index, has_ended);
        self.env.count_steps(steps);
    }

    /// The messages that wait for a session in these lists, which are in ascending order, on the channels of a name if there is one: each
    /// once, in order. It walks what waits for each group once, however many of the lists are for everybody.
    fn waiting_for(
        &mut self,
        key: SessionKey,
        lists: &[u32],
        name: Option<ChannelName<'_>>,
        is_wanted: impl Fn(&Env, &mut Channels, ChannelName<'_>) -> bool,
    ) -> BTreeMap<u64, Vec<u8>> {
        let (groups, everybody): (Vec<u32>, Vec<u32>) = lists.iter().partition(|list| self.is_group(**list));
        let own_of = |list: &u32| ChannelName::known(self.channels.name(*list));
        // Within a pattern, only the channels of the name are searched.
        let within = |own: ChannelName<'_>| name.filter(|_| own.is_pattern()).unwrap_or(own).as_str().to_owned();
        let mut searches: Vec<_> = groups.iter().map(|list| (*list, Some(within(own_of(list))))).collect();
        if everybody.iter().any(|list| own_of(list).is_pattern()) {
            searches.push((Conflation::EVERYBODY, name.map(|name| name.as_str().to_owned())));
        } else {
            searches.extend(everybody.iter().map(|list| (Conflation::EVERYBODY, Some(within(own_of(list))))));
        }
        let own_lists = in_order(self.channels.lists_of(key.index));
        let Machines { env, conflation, channels, .. } = self;
        let mut frames = BTreeMap::new();
        for (group, by) in searches {
            let (waiting, steps) = conflation.waiting(group, by.as_deref().map(ChannelName::known));
            env.count_steps(steps + waiting.len());
            for (channel, Waiting { frame, except, number, .. }) in waiting {
                let channel = ChannelName::known(channel);
                let is_own = match group {
                    Conflation::EVERYBODY => channels.is_brought_by(&everybody, channel),
                    group => ChannelName::known(channels.name(group)).matches(channel),
                };
                let is_served = |channels: &mut Channels| {
                    let is_own = |list: &u32| own_lists.binary_search(list).is_ok();
                    conflation.is_shared(group, key.index, *number)
                        && channels.lists_before(group, channel).iter().any(is_own)
                };
                if is_own
                    && *except != Some(key)
                    && name.is_none_or(|name| name.matches(channel))
                    && is_wanted(env, channels, channel)
                    && !conflation.has_had(group, key.index, channel, *number)
                    && !is_served(channels)
                {
                    frames.insert(*number, frame.clone());
                }
            }
        }
        frames
    }

    /// True if the subscribers in a list have an interval.
    fn is_group(&self, list: u32) -> bool {
        !self.channels.interval(list).is_none()
    }

    /// The group that the subscribers in a list belong to.
    fn group_of(&self, list: u32) -> Group {
        if self.is_group(list) { list } else { Conflation::EVERYBODY }
    }

    /// Notes that a session has subscribed, and may get some channels by several subscriptions since.
    pub(super) fn note_overlaps(&mut self, key: SessionKey, list: u32) {
        if self.channels.has_no_groups() || self.channels.count_of(key.index) < 2 {
            return;
        }
        self.env.count_steps(self.channels.count_of(key.index));
        let is_in_group = self.is_group(list);
        for other in self.channels.overlapping_in_groups(key.index, list) {
            if is_in_group {
                self.conflation.overlaps(list, key.index, 0);
            }
            if self.is_group(other) {
                self.conflation.overlaps(other, key.index, self.conflation.number());
            }
        }
    }

    /// The interval that a subscribe asks for. None if it says nothing about it.
    pub(super) fn interval_of(&self, message: &Message<'_>) -> Result<Option<Interval>, BayeuxError> {
        let Some(ext) = message.ext else { return Ok(None) };
        let Some(ms) = ext::min_interval_ms(ext)? else { return Ok(None) };
        let interval = Interval::at_least(ms).ok_or(BayeuxError::MinIntervalInvalid)?;
        if !interval.is_none() && ext::uses_replay(ext) {
            return Err(BayeuxError::MinIntervalWithPositions);
        }
        Ok(Some(interval))
    }

    /// Ends the replays of channels whose rule has an interval since the settings have changed.
    pub(super) fn end_conflated_replays(&mut self) {
        if !self.env.settings.rules_have_intervals() {
            return;
        }
        let limits = self.env.settings.limits().clone();
        for key in self.delivery.keys() {
            for channel in self.delivery.replayed(key, ChannelName::known("/**"), &limits) {
                if self.env.is_conflated(&channel) {
                    self.delivery.end_replay(key, &channel);
                }
            }
        }
    }
}

impl Env {
    /// The least interval of a channel with this rule, in milliseconds; 0 for none. Announcements of members have none.
    fn min_interval_ms(&self, channel: ChannelName<'_>, rule: Option<usize>) -> u32 {
        if crosses_nodes(channel.as_str()) { self.settings.min_interval_ms(rule) } else { 0 }
    }

    /// True if the rule of a channel has an interval.
    pub(super) fn is_conflated(&mut self, channel: &str) -> bool {
        let channel = ChannelName::known(channel);
        let rule = self.settings.rule_of(channel);
        self.min_interval_ms(channel, rule) > 0
    }
}

/// These lists in ascending order.
fn in_order(lists: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut lists: Vec<u32> = lists.collect();
    lists.sort_unstable();
    lists
}

/// The steps after which messages whose time has come go in the next turn.
const DUE_STEPS_PER_TURN: u64 = 16_384;
