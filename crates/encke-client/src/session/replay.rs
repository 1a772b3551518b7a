//! The positions of a session in the histories of its channels, so that it can resume there in another session (extension
//! `replay`).
//!
//! The server sends a position with each message of a channel that has a history, in the replies to subscribes, and, while nothing
//! happens, in connect replies. The session repeats it when it resubscribes. The program does not get earlier messages a second
//! time, and messages that are gone are reported as a [`Gap`].

use std::collections::BTreeMap;

use bayeux::RawJson;
use bayeux::channel::{covers, is_pattern};
use bayeux::ext::{Heartbeat, Lost, Recovery, Stamped};
use bayeux::limits::REPLAY_POSITIONS_MAX;

use crate::message::{Gap, Position, ReplayFrom};

/// The replay state of a session.
#[derive(Debug)]
pub(super) struct Replay {
    /// The point at which subscriptions begin.
    from: ReplayFrom,
    /// Subscriptions that begin elsewhere.
    begins: Vec<(Box<str>, ReplayFrom)>,
    /// The positions, sorted by channel.
    channels: Vec<(Box<str>, Known)>,
    /// Channels that restart though messages of them come: earlier messages may come again, until the server has replied.
    restarting: Vec<Box<str>>,
    /// Patterns that match channels without a history.
    without_history: Vec<Box<str>>,
    /// True if messages came of channels whose positions are not stored here: if subscriptions brought those again, the program
    /// would get them twice.
    is_partial: bool,
    /// True if the server of this session supports it.
    pub(super) is_supported: bool,
}

/// The position of a session in one channel.
#[derive(Debug)]
struct Known {
    position: Position,
    /// The first and the last offset below it that did not come, the last time that some were left out: over long-polling a
    /// message may overtake those that were sent before it on the other connection.
    late: Option<(u64, u64)>,
    /// True if a subscribe has sent the position, and no message came since.
    is_requested: bool,
}

/// The position of a message as it stands on the wire.
#[derive(Debug)]
pub(super) struct WirePosition {
    position: Position,
    lost: Option<Lost>,
}

impl Replay {
    /// Begins at the positions of an earlier session, and with other channels at `from`.
    pub(super) fn new(from: ReplayFrom, positions: Vec<(String, Position)>) -> Replay {
        let (begins, channels, restarting, without_history) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut replay =
            Replay { from, begins, channels, restarting, without_history, is_partial: false, is_supported: false };
        positions.into_iter().for_each(|(channel, position)| replay.set(&channel, Some(position.into())));
        replay
    }

    /// Lets a channel or pattern begin at another point than the others, which may bring messages of it already.
    pub(super) fn begin(&mut self, name: &str, from: ReplayFrom, others: &[String]) {
        self.begins.retain(|(other, _)| **other != *name);
        self.begins.push((name.into(), from));
        if !is_pattern(name) && others.iter().any(|other| covers(other, name)) {
            self.restarting.push(name.into());
        }
    }

    /// Begins with a channel after this position, if none of its messages has come.
    pub(super) fn begin_at(&mut self, channel: &str, position: Position) {
        if self.known(channel).is_none() {
            self.set(channel, Some(position.into()));
        }
    }

    /// A subscribe has its reply: these names do not restart any more.
    pub(super) fn has_restarted(&mut self, names: &[String]) {
        self.restarting.retain(|restarting| !names.iter().any(|name| **name == **restarting));
    }

    /// Forgets all that is known only because of this subscription.
    pub(super) fn forget(&mut self, name: &str, others: &[String]) {
        self.begins.retain(|(other, _)| **other != *name);
        self.without_history.retain(|other| **other != *name);
        self.channels.retain(|(channel, _)| others.iter().any(|other| covers(other, channel)));
        self.is_partial &= !others.is_empty();
    }

    /// The positions in a subscribe to these names, which the session has `again` or for the first time. Where nobody has chosen one, the
    /// server begins with new messages, or with the latest one of a channel that retains it.
    pub(super) fn positions(&mut self, names: &[String], again: bool) -> BTreeMap<String, ReplayFrom> {
        let mut positions = BTreeMap::new();
        for name in names {
            let from = if again { self.begins_again(name) } else { self.begins_first(name) };
            if *from != ReplayFrom::Latest || self.is_partial || self.begins.iter().any(|(of, _)| **of == **name) {
                positions.insert(name.clone(), from.clone());
            }
        }
        for (channel, Known { position, is_requested, .. }) in &mut self.channels {
            let is_wanted = names.iter().any(|name| covers(name, channel)) && !self.restarting.contains(channel);
            if is_wanted && (positions.len() < REPLAY_POSITIONS_MAX || positions.contains_key(&**channel)) {
                positions.insert(channel.to_string(), position.clone().into());
                *is_requested = true;
            }
        }
        positions
    }

    /// The number of positions in a subscribe to this name.
    pub(super) fn positions_of(&self, name: &str) -> usize {
        let others = if is_pattern(name) { &self.channels[..] } else { &[] };
        1 + others.iter().filter(|(channel, _)| covers(name, channel)).count()
    }

    /// The session's position in a channel's history.
    pub(super) fn position(&self, channel: &str) -> Option<&Position> {
        self.known(channel).map(|known| &known.position)
    }

    /// The positions in the histories of the channels that these names cover.
    pub(super) fn known_of<N: AsRef<str>>(&self, names: &[N]) -> Vec<(String, Position)> {
        let is_of = |channel: &str| names.iter().any(|name| covers(name.as_ref(), channel));
        let channels = self.channels.iter().filter(|(channel, _)| is_of(channel));
        channels.map(|(channel, known)| (channel.to_string(), known.position.clone())).collect()
    }

    /// True if messages with known positions came by this subscription.
    pub(super) fn has_received(&self, name: &str) -> bool {
        if is_pattern(name) {
            return self.channels.iter().any(|(channel, _)| covers(name, channel));
        }
        self.position(name).is_some()
    }

    /// True if a repeated subscription brings all messages that it has missed, or reports them channel by channel. It is not so for a
    /// pattern that begins with new messages: nobody knows what channels there were meanwhile.
    pub(super) fn covers_breaks(&self, name: &str) -> bool {
        let has_history = !self.without_history.iter().any(|without| **without == *name);
        let begins_earlier = *self.begins_again(name) != ReplayFrom::Latest && has_history;
        self.has_received(name) && (!is_pattern(name) || begins_earlier)
    }

    /// True if this name, which the session has subscribed to again, brings the messages that come on the channel before the
    /// server's reply once more after it.
    pub(super) fn comes_again(&self, name: &str, channel: &str) -> bool {
        covers(name, channel) && (self.position(channel).is_some() || *self.begins_again(name) != ReplayFrom::Latest)
    }

    /// The server does not take all these positions: the next subscribe has fewer. False if there is nothing left to leave out.
    pub(super) fn reduce_positions(&mut self) -> bool {
        // At first it may be a pattern of which too many channels are not known here.
        if std::mem::replace(&mut self.is_partial, true) {
            let has_positions = !self.channels.is_empty();
            self.channels.truncate(self.channels.len() / 2);
            return has_positions;
        }
        true
    }

    /// A message came on a channel without a history.
    pub(super) fn received_without_history(&mut self, channel: &str, subscriptions: &[String]) {
        for name in subscriptions.iter().filter(|name| is_pattern(name) && covers(name, channel)) {
            if !self.without_history.iter().any(|without| **without == **name) {
                self.without_history.push(name.as_str().into());
            }
        }
    }

    /// A message came: moves the session's position to it. `None` if the program has it.
    pub(super) fn advance(&mut self, channel: &str, wire: WirePosition) -> Option<(Position, Option<Gap>)> {
        let WirePosition { position, lost } = wire;
        let offset = position.offset;
        let at = self.find(channel).ok();
        let known = at.map(|at| &mut self.channels[at].1).filter(|known| known.position.epoch == position.epoch);
        let (mut late, mut is_again) = (None, false);
        if let Some(known) = known {
            let last = known.position.offset;
            if offset > last {
                late = (lost.is_none() && offset > last + 1).then_some((last + 1, offset - 1));
            } else if let Some((from, to)) = known.late
                && (from..=to).contains(&offset)
            {
                known.late = (offset < to).then_some((offset + 1, to));
                return Some((position, None));
            } else {
                is_again = true;
            }
        }
        if is_again {
            // Only a channel that restarts brings messages again.
            let restarting = self.restarting.iter().position(|restarting| **restarting == *channel)?;
            self.restarting.remove(restarting);
        }
        let gap = lost.and_then(|lost| self.gap(channel, &position.epoch, lost));
        self.set(channel, Some(Known { late, ..Known::from(position.clone()) }));
        Some((position, gap))
    }

    /// A subscribe was granted: takes over the positions at which its channels begin, and returns the gaps before them.
    pub(super) fn recovered(&mut self, recoveries: RawJson<'_>) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for (channel, raw) in recoveries.members() {
            let (Some(channel), Some(recovery)) = (channel.decode(), Recovery::read(raw)) else { continue };
            let Recovery { recovered, from, lost, .. } = recovery;
            let position = from.map(|from| from.into_owned());
            let position =
                position.map(|Position { epoch, offset }| Position { epoch, offset: offset.saturating_sub(1) });
            let known = self.known(&channel);
            // A history that is gone has no position, and all subscriptions without one are reported together.
            let is_reported = position.is_none() && known.is_some();
            // Messages may have come before the reply. It begins before them only where the server has less than the session
            // requested.
            let restarting = self.restarting.iter().position(|restarting| **restarting == *channel);
            let is_ahead = known.zip(position.as_ref()).is_some_and(|(known, begin)| {
                let Known { position, is_requested, .. } = known;
                position.epoch == begin.epoch
                    && position.offset >= begin.offset
                    && (recovered || lost.is_some() || !is_requested)
            });
            if restarting.is_some() || !is_ahead {
                self.set(&channel, position.map(Known::from));
            }
            if let Some(restarting) = restarting {
                self.restarting.remove(restarting);
            }
            if !recovered && !is_reported {
                gaps.push(Gap::lost(&channel, lost.and_then(Lost::range)));
            }
        }
        gaps
    }

    /// A connect reply has the positions of silent channels, and reports messages that are gone.
    pub(super) fn heartbeats(&mut self, heartbeats: RawJson<'_>) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for (channel, raw) in heartbeats.members() {
            let (Some(channel), Some(Heartbeat { epoch, offset, lost })) = (channel.decode(), Heartbeat::read(raw))
            else {
                continue;
            };
            gaps.extend(lost.and_then(|lost| self.gap(&channel, &epoch, lost)));
            let known = self.position(&channel).filter(|position| position.epoch == epoch);
            let known = known.map(|position| position.offset);
            if offset.is_none() || offset > known {
                let position = offset.map(|offset| Position { epoch: epoch.into_owned().into(), offset });
                self.set(&channel, position.map(Known::from));
            }
        }
        gaps
    }

    /// The part of these lost messages that the session did not have, and that was not reported before: servers report a loss more
    /// than once.
    fn gap(&self, channel: &str, epoch: &str, lost: Lost) -> Option<Gap> {
        let position = self.position(channel);
        let known = position.filter(|position| *position.epoch == *epoch).map(|position| position.offset);
        let is_news = match lost.to {
            Some(to) => known.is_none_or(|known| known < to),
            // When the loss of a history is reported, its position goes, too.
            None => position.is_some(),
        };
        let from = known.map_or(lost.from, |known| lost.from.max(known + 1));
        is_news.then(|| Gap::lost(channel, Lost { from, ..lost }.range()))
    }

    fn set(&mut self, channel: &str, known: Option<Known>) {
        match (self.find(channel), known) {
            (Ok(at), Some(known)) if is_short(channel, &known) => self.channels[at].1 = known,
            (Ok(at), None) => drop(self.channels.remove(at)),
            (Ok(at), Some(_)) => {
                self.channels.remove(at);
                self.is_partial = true;
            }
            (Err(at), Some(known)) if self.channels.len() < POSITIONS_MAX && is_short(channel, &known) => {
                self.channels.insert(at, (channel.into(), known));
            }
            (Err(_), Some(_)) => self.is_partial = true,
            (Err(_), None) => {}
        }
    }

    /// The point at which a subscription begins for the first time.
    fn begins_first(&self, name: &str) -> &ReplayFrom {
        self.begins.iter().find(|(of, _)| **of == *name).map_or(&self.from, |(_, from)| from)
    }

    /// The point at which it begins again with channels whose positions are not known.
    fn begins_again(&self, name: &str) -> &ReplayFrom {
        if self.is_partial { &ReplayFrom::Latest } else { self.begins_first(name) }
    }

    fn known(&self, channel: &str) -> Option<&Known> {
        self.find(channel).ok().map(|at| &self.channels[at].1)
    }

    fn find(&self, channel: &str) -> Result<usize, usize> {
        self.channels.binary_search_by(|(other, _)| (**other).cmp(channel))
    }
}

impl From<Position> for Known {
    fn from(position: Position) -> Known {
        Known { position, late: None, is_requested: false }
    }
}

impl From<Stamped<'_>> for WirePosition {
    fn from(Stamped { position, lost }: Stamped<'_>) -> WirePosition {
        WirePosition { position: position.into_owned(), lost }
    }
}

/// True if a session may remember a position: it repeats all that it remembers with each subscribe after a break.
fn is_short(channel: &str, known: &Known) -> bool {
    channel.len() + known.position.epoch.len() <= POSITION_BYTES_MAX
}

/// The longest name of a channel, with the epoch of its history, that a session remembers, in bytes. Longer ones count as beyond the
/// limit of positions.
const POSITION_BYTES_MAX: usize = 1024;

/// The limit of positions that a session remembers: as many as one subscribe takes beside the pattern that they belong to. Channels
/// beyond it begin with new messages after a break, and gaps are reported for their patterns.
const POSITIONS_MAX: usize = REPLAY_POSITIONS_MAX - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_that_is_too_long_is_not_remembered() {
        let at = |bytes: usize, offset| WirePosition {
            position: Position { epoch: "e".repeat(bytes).into(), offset },
            lost: None,
        };
        let mut replay = Replay::new(ReplayFrom::Latest, Vec::new());
        assert!(replay.advance("/a", at(POSITION_BYTES_MAX, 1)).is_some(), "the message is delivered");
        assert!(replay.channels.is_empty() && replay.is_partial);
        assert!(replay.advance("/a", at(10, 1)).is_some() && replay.position("/a").is_some());
        assert!(replay.advance("/a", at(POSITION_BYTES_MAX, 2)).is_some() && replay.position("/a").is_none());
        assert!(replay.advance(&format!("/{}", "a".repeat(POSITION_BYTES_MAX)), at(1, 1)).is_some());
        assert!(replay.channels.is_empty());
    }

    #[test]
    fn positions_have_a_limit() {
        let at = || WirePosition { position: Position { epoch: "e".into(), offset: 1 }, lost: None };
        let mut replay = Replay::new(ReplayFrom::Latest, Vec::new());
        for number in 0..POSITIONS_MAX + 10 {
            replay.advance(&format!("/{number}"), at());
        }
        assert_eq!(replay.channels.len(), POSITIONS_MAX);
        assert!(replay.is_partial);
        assert!(replay.advance("/0", at()).is_none());
        assert!(replay.advance("/999", at()).is_some(), "a message of a channel without a known position is delivered");
    }
}
