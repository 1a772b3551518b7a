//! Publications of channels with an interval, and of groups: at most one message in an interval, the latest. What does not go at once waits
//! in [`Conflation`](crate::conflation::Conflation), as bytes, and is fanned out as any other publication when its time comes.
//!
//! Such messages have no positions: a session that replays gets them as those of a channel without a history. The history itself has all.

use bayeux::{BayeuxError, ChannelName, Message, ext};

use crate::conflation::{Conflation, Due, Group, Offer, Offered, Room};
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
            self.fan_out_to_all(fan_out, except);
        }
        if own_ms == 0 && groups.is_empty() {
            return;
        }
        self.conflation.number_next();
        let last = last_of(fan_out.frames);
        let last = FanOut { frames: &last, messages: 1, position: None, token: None, ..*fan_out };
        // A waiting message must not outlive a later one that found nobody.
        let everybody = Conflation::EVERYBODY;
        let is_wanted =
            own_ms > 0 && (self.channels.reach(channel) > 0 || self.conflation.holds(everybody, channel.as_str()));
        if is_wanted && self.offer(everybody, own_ms, &last, except) {
            self.fan_out_to_all(&last, except);
        }
        for (group, interval) in groups {
            if !crosses_nodes(channel.as_str()) {
                // Announcements of members are all delivered.
                self.fan_out_to_group(group, &FanOut { position: None, ..*fan_out }, except);
            } else if self.offer(group, own_ms.max(interval.ms()), &last, except) {
                self.fan_out_to_group(group, &last, except);
            }
        }
        self.env.metrics.min_interval_channels.set(self.conflation.len());
    }

    /// Offers a message to a group. True if it goes now.
    fn offer(&mut self, group: Group, interval_ms: u32, fan_out: &FanOut<'_>, except: Option<SessionKey>) -> bool {
        let Env { settings, metrics, now, .. } = &self.env;
        let given = settings.given();
        let room = Room { channels_max: given.min_interval_channels_max, bytes_max: given.min_interval_bytes_max };
        let Frames { chunk, start, end } = fan_out.frames;
        let bytes = chunk.slice(*start, *end);
        let (channel, is_lazy) = (fan_out.channel.as_str(), fan_out.is_lazy);
        let offer = Offer { group, channel, interval_ms, frame: &bytes, except, is_lazy };
        let offered = self.conflation.offer(&offer, now.ms, room);
        self.env.count_steps(1);
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
    fn fan_out_to_group(&mut self, group: Group, fan_out: &FanOut<'_>, except: Option<SessionKey>) {
        let number = self.conflation.number();
        self.fan_out_numbered(group, fan_out, except, number);
    }

    fn fan_out_numbered(&mut self, group: Group, fan_out: &FanOut<'_>, except: Option<SessionKey>, number: u64) {
        for session in self.conflation.shared(group, number) {
            self.env.count_steps(self.channels.count_of(session));
            if self.channels.is_served_before(session, group, fan_out.channel) {
                self.delivery.pass_by(session);
            }
        }
        self.fan_out_to(&[group], fan_out, except);
    }

    /// Sends messages whose time has come.
    pub(super) fn send_due(&mut self) {
        for _ in 0..DUE_PER_TURN {
            let Some(due) = self.conflation.take_due(self.env.now.ms) else { break };
            self.send_waiting(&due);
        }
        self.env.metrics.min_interval_channels.set(self.conflation.len());
    }

    /// Sends all that waits, because the rules change or the shard stops.
    pub(super) fn send_all_waiting(&mut self) {
        for due in self.conflation.take_all() {
            self.send_waiting(&due);
        }
    }

    fn send_waiting(&mut self, due: &Due) {
        let channel = ChannelName::known(&due.channel);
        let (rule, compresses) = (self.env.settings.rule_of(channel), self.env.settings.compresses(channel));
        let frames = self.delivery.encoder().copy(&due.message.frame, compresses);
        let (side, is_lazy) = (Side::default(), due.message.is_lazy);
        let fan_out =
            FanOut { channel, frames: &frames, messages: 1, side, is_lazy, rule, position: None, token: None };
        // Its slot may be another one's meanwhile.
        let except = due.message.except.filter(|key| self.delivery.has(*key));
        if due.group == Conflation::EVERYBODY {
            self.fan_out_to_all(&fan_out, except);
        } else if self.conflation.was_offered(due.group, due.message.number) {
            self.fan_out_numbered(due.group, &fan_out, except, due.message.number);
        }
    }

    /// Delivers to a session what waits for it, because it leaves this node.
    pub(super) fn send_waiting_to(&mut self, key: SessionKey) {
        let Machines { conflation, channels, .. } = self;
        let is_member = |group: Group, channel: &str| match group {
            Conflation::EVERYBODY => channels.receives(key.index, channel),
            group => channels.is_member(key.index, group),
        };
        let waiting = conflation.waiting().filter(|(group, channel, _)| is_member(*group, channel));
        let own = waiting.map(|(.., waiting)| waiting).filter(|waiting| waiting.except != Some(key));
        let frames: Vec<Vec<u8>> = own.map(|waiting| waiting.frame.clone()).collect();
        frames.into_iter().for_each(|frame| self.deliver_to(key, &frame));
    }

    /// Notes that a session has subscribed, and may get some channels by several subscriptions since.
    pub(super) fn note_overlaps(&mut self, key: SessionKey, list: u32) {
        if self.channels.has_no_groups() || self.channels.count_of(key.index) < 2 {
            return;
        }
        self.env.count_steps(self.channels.count_of(key.index));
        let is_in_group = !self.channels.interval(list).is_none();
        for other in self.channels.overlapping(key.index, list) {
            if is_in_group {
                self.conflation.overlaps(list, key.index, 0);
            }
            if !self.channels.interval(other).is_none() {
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

/// The messages that go in one turn because their time has come.
const DUE_PER_TURN: usize = 2_048;
