//! Where a session stands in the histories of its channels, so that it can go on from there in another session (extension
//! `replay`).
//!
//! The server tells a place with each message of a channel that it keeps, in the replies to subscribes, and, while nothing
//! happens, in connect replies. It is named when the session subscribes again. What came before is not shown to the program a
//! second time, and what is gone it is told of as a [`Gap`].

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Where a message stands in the history of its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which history: another one after the channel's was lost.
    pub epoch: Box<str>,
    /// The message's number in it. Numbers rise, but may leave some out.
    pub id: u64,
}

/// From where on a subscription wants the messages of a channel, or of those that its pattern matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// What is published from now on.
    #[default]
    Now,
    /// All that the server keeps.
    Kept,
    /// What comes after the message with this number.
    After {
        /// The number.
        id: u64,
        /// The epoch it was heard in, if that is known, too.
        epoch: Option<Box<str>>,
    },
}

/// Messages that were published and do not come any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The channel or pattern they were published on.
    pub channel: String,
    /// The first and the last of their numbers. `None` where nobody knows which, and whether any: the channel has no history, or its
    /// history is gone.
    pub lost: Option<(u64, u64)>,
}

/// What a session knows of its places.
#[derive(Debug)]
pub(super) struct Replay {
    /// Where subscriptions begin.
    start: Start,
    /// Those that begin elsewhere.
    starts: Vec<(Box<str>, Start)>,
    /// By channel.
    places: Vec<(Box<str>, Known)>,
    /// Channels that are to begin anew though messages of them come: what was heard may come again, until the server has answered.
    begun: Vec<Box<str>>,
    /// Patterns that take in channels without a history.
    bare: Vec<Box<str>>,
    /// Whether channels were heard of which there is no place here: what subscriptions bring again would be shown twice.
    is_partial: bool,
    /// Whether the server of this session can do it.
    pub(super) is_spoken: bool,
}

/// How far a session is with a channel.
#[derive(Debug)]
struct Known {
    place: Place,
    /// The first and the last number of those below that did not come, the last time that some were left out: over long-polling a
    /// message may overtake those that were sent before it on the other connection.
    late: Option<(u64, u64)>,
    /// Whether a subscribe has named the place, and no message came since.
    is_named: bool,
}

/// What the server says of a message's place.
#[derive(Debug, Deserialize)]
pub(super) struct Told {
    epoch: Box<str>,
    id: u64,
    lost: Option<Lost>,
}

/// A range of numbers that are gone.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Lost {
    from: u64,
    /// None if nobody knows how many.
    to: Option<u64>,
}

/// What the reply to a subscribe says of one channel; all but the first is null where the channel has no history.
#[derive(Deserialize)]
struct Answer {
    recovered: bool,
    epoch: Option<Box<str>>,
    from: Option<u64>,
    lost: Option<Lost>,
}

/// What a connect reply says of one channel.
#[derive(Deserialize)]
struct Beat {
    id: Option<u64>,
    epoch: Box<str>,
    lost: Option<Lost>,
}

impl Replay {
    pub(super) fn new(start: Start) -> Replay {
        let (starts, places, begun, bare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Replay { start, starts, places, begun, bare, is_partial: false, is_spoken: false }
    }

    /// Lets a channel or pattern begin there, in place of where all others do. The others may bring messages of it already.
    pub(super) fn begin(&mut self, name: &str, start: Start, others: &[String]) {
        self.starts.retain(|(other, _)| **other != *name);
        self.starts.push((name.into(), start));
        if !is_pattern(name) && others.iter().any(|other| covers(other, name)) {
            self.begun.push(name.into());
        }
    }

    /// A subscribe was answered: these names begin anew no more.
    pub(super) fn has_begun(&mut self, names: &[String]) {
        self.begun.retain(|begun| !names.iter().any(|name| **name == **begun));
    }

    /// Forgets what is known only because of this subscription.
    pub(super) fn forget(&mut self, name: &str, others: &[String]) {
        self.starts.retain(|(other, _)| **other != *name);
        self.bare.retain(|other| **other != *name);
        self.places.retain(|(channel, _)| others.iter().any(|other| covers(other, channel)));
        self.is_partial &= !others.is_empty();
    }

    /// The member `replay` of the `ext` of a subscribe, to names that the session has `again` or for the first time.
    pub(super) fn positions(&mut self, names: &[String], again: bool) -> Value {
        let mut positions = Map::new();
        for name in names {
            let start = if again { self.start_again(name) } else { self.start_of(name) };
            positions.insert(name.clone(), start.to_value());
        }
        for (channel, Known { place, is_named, .. }) in &mut self.places {
            let is_wanted = names.iter().any(|name| covers(name, channel)) && !self.begun.contains(channel);
            if is_wanted && (positions.len() < POSITIONS_MAX || positions.contains_key(&**channel)) {
                positions.insert(channel.to_string(), json!({"id": place.id, "epoch": place.epoch}));
                *is_named = true;
            }
        }
        positions.into()
    }

    /// How many positions a subscribe to this name has.
    pub(super) fn positions_of(&self, name: &str) -> usize {
        let others = if is_pattern(name) { &self.places[..] } else { &[] };
        1 + others.iter().filter(|(channel, _)| covers(name, channel)).count()
    }

    /// Where the session stands in a channel's history.
    pub(super) fn place(&self, channel: &str) -> Option<&Place> {
        self.known(channel).map(|known| &known.place)
    }

    /// Whether messages came by this subscription whose places are known.
    pub(super) fn has_heard(&self, name: &str) -> bool {
        if is_pattern(name) {
            return self.places.iter().any(|(channel, _)| covers(name, channel));
        }
        self.place(name).is_some()
    }

    /// Whether all that a subscription has missed comes, or is told channel by channel, when it is there again. Of a pattern that
    /// begins with what is new nobody knows what channels there were meanwhile.
    pub(super) fn knows(&self, name: &str) -> bool {
        let begins_before = *self.start_again(name) != Start::Now && !self.bare.iter().any(|bare| **bare == *name);
        self.has_heard(name) && (!is_pattern(name) || begins_before)
    }

    /// Whether this name, which the session has subscribed to again, brings what comes on the channel before the server's answer
    /// once more behind it.
    pub(super) fn brings_again(&self, name: &str, channel: &str) -> bool {
        covers(name, channel) && (self.place(channel).is_some() || *self.start_again(name) != Start::Now)
    }

    /// The server does not take all these positions: the next subscribe has fewer. False if there is nothing left to leave out.
    pub(super) fn give_way(&mut self) -> bool {
        // At first it may be a pattern of which too many channels are not known here.
        if std::mem::replace(&mut self.is_partial, true) {
            let are_there = !self.places.is_empty();
            self.places.truncate(self.places.len() / 2);
            return are_there;
        }
        true
    }

    /// A message came on a channel without a history.
    pub(super) fn heard_bare(&mut self, channel: &str, subscriptions: &[String]) {
        for name in subscriptions.iter().filter(|name| is_pattern(name) && covers(name, channel)) {
            if !self.bare.iter().any(|bare| **bare == **name) {
                self.bare.push(name.as_str().into());
            }
        }
    }

    /// A message came that stands there. `None` if the session has it.
    pub(super) fn pass(&mut self, channel: &str, told: Told) -> Option<(Place, Option<Gap>)> {
        let Told { epoch, id, lost } = told;
        let place = Place { epoch, id };
        let at = self.find(channel).ok();
        let known = at.map(|at| &mut self.places[at].1).filter(|known| known.place.epoch == place.epoch);
        let (mut late, mut is_again) = (None, false);
        if let Some(known) = known {
            if id > known.place.id {
                late = (lost.is_none() && id > known.place.id + 1).then_some((known.place.id + 1, id - 1));
            } else if let Some((from, to)) = known.late
                && (from..=to).contains(&id)
            {
                known.late = (id < to).then_some((id + 1, to));
                return Some((place, None));
            } else {
                is_again = true;
            }
        }
        if is_again {
            // Only what begins anew comes again.
            let begun = self.begun.iter().position(|begun| **begun == *channel)?;
            self.begun.remove(begun);
        }
        let gap = lost.and_then(|lost| self.gap(channel, &place.epoch, lost));
        self.set(channel, Some(Known { late, ..Known::from(place.clone()) }));
        Some((place, gap))
    }

    /// A subscribe was granted: where its channels begin, and what of it is gone.
    pub(super) fn answered(&mut self, raw: &RawValue) -> Vec<Gap> {
        let answers: BTreeMap<String, Answer> = serde_json::from_str(raw.get()).unwrap_or_default();
        let mut gaps = Vec::new();
        for (channel, Answer { recovered, epoch, from, lost }) in answers {
            let place = epoch.zip(from).map(|(epoch, from)| Place { epoch, id: from.saturating_sub(1) });
            let known = self.known(&channel);
            // A history that is no more has no place, and all subscriptions without one are told of together.
            let is_told = place.is_none() && known.is_some();
            // Messages may have come before the answer. Only where the server has less than the session named it begins before them.
            let begun = self.begun.iter().position(|begun| **begun == *channel);
            let is_ahead = known.zip(place.as_ref()).is_some_and(|(known, place)| {
                let Known { place: Place { epoch, id }, is_named, .. } = known;
                *epoch == place.epoch && *id >= place.id && (recovered || lost.is_some() || !is_named)
            });
            if begun.is_some() || !is_ahead {
                self.set(&channel, place.map(Known::from));
            }
            if let Some(begun) = begun {
                self.begun.remove(begun);
            }
            if !recovered && !is_told {
                gaps.push(Gap { channel, lost: lost.and_then(Lost::range) });
            }
        }
        gaps
    }

    /// A connect reply tells how far the session is, or what is gone.
    pub(super) fn heard_beat(&mut self, raw: &RawValue) -> Vec<Gap> {
        let beats: BTreeMap<String, Beat> = serde_json::from_str(raw.get()).unwrap_or_default();
        let mut gaps = Vec::new();
        for (channel, Beat { id, epoch, lost }) in beats {
            gaps.extend(lost.and_then(|lost| self.gap(&channel, &epoch, lost)));
            let known = self.place(&channel).filter(|place| place.epoch == epoch).map(|place| place.id);
            if id.is_none() || id > known {
                self.set(&channel, id.map(|id| Known::from(Place { epoch, id })));
            }
        }
        gaps
    }

    /// What of these lost messages the session did not have, and was not told of before: servers say it more than once.
    fn gap(&self, channel: &str, epoch: &str, lost: Lost) -> Option<Gap> {
        let place = self.place(channel);
        let known = place.filter(|place| *place.epoch == *epoch).map(|place| place.id);
        let is_news = match lost.to {
            Some(to) => known.is_none_or(|known| known < to),
            // Where it is told that a history is gone, its place goes, too.
            None => place.is_some(),
        };
        let after = known.map_or(lost.from, |known| lost.from.max(known + 1));
        is_news.then(|| Gap { channel: channel.into(), lost: Lost { from: after, ..lost }.range() })
    }

    fn set(&mut self, channel: &str, known: Option<Known>) {
        match (self.find(channel), known) {
            (Ok(at), Some(known)) => self.places[at].1 = known,
            (Ok(at), None) => drop(self.places.remove(at)),
            (Err(at), Some(known)) if self.places.len() < PLACES_MAX => self.places.insert(at, (channel.into(), known)),
            (Err(_), Some(_)) => self.is_partial = true,
            (Err(_), None) => {}
        }
    }

    /// Where a subscription begins for the first time.
    fn start_of(&self, name: &str) -> &Start {
        self.starts.iter().find(|(of, _)| **of == *name).map_or(&self.start, |(_, start)| start)
    }

    /// Where it begins again with channels of which there is no place here.
    fn start_again(&self, name: &str) -> &Start {
        if self.is_partial { &Start::Now } else { self.start_of(name) }
    }

    fn known(&self, channel: &str) -> Option<&Known> {
        self.find(channel).ok().map(|at| &self.places[at].1)
    }

    fn find(&self, channel: &str) -> Result<usize, usize> {
        self.places.binary_search_by(|(other, _)| (**other).cmp(channel))
    }
}

impl Start {
    fn to_value(&self) -> Value {
        match self {
            Start::Now => json!(-1),
            Start::Kept => json!(-2),
            Start::After { id, epoch: None } => json!(id),
            Start::After { id, epoch } => json!({"id": id, "epoch": epoch}),
        }
    }
}

impl From<Place> for Known {
    fn from(place: Place) -> Known {
        Known { place, late: None, is_named: false }
    }
}

impl From<Place> for Start {
    /// After the message that stands there.
    fn from(place: Place) -> Start {
        Start::After { id: place.id, epoch: Some(place.epoch) }
    }
}

impl Lost {
    fn range(self) -> Option<(u64, u64)> {
        Some((self.from, self.to?))
    }
}

/// Whether a channel or pattern takes in this channel: `*` is one segment, `**` one or more (Bayeux 1.0 §2.2).
fn covers(name: &str, channel: &str) -> bool {
    let below = |base: &str| channel.strip_prefix(base).and_then(|rest| rest.strip_prefix('/'));
    if let Some(base) = name.strip_suffix("/**") {
        return below(base).is_some();
    }
    match name.strip_suffix("/*") {
        Some(base) => below(base).is_some_and(|rest| !rest.contains('/')),
        None => name == channel,
    }
}

fn is_pattern(name: &str) -> bool {
    name.ends_with('*')
}

/// How many positions one subscribe may name: as many as Encke takes.
pub(super) const POSITIONS_MAX: usize = 1_000;

/// How many places a session remembers: as many as one subscribe takes beside the pattern that they belong to. Channels beyond that
/// begin with what is new after a break, and their patterns are told of as gaps.
const PLACES_MAX: usize = POSITIONS_MAX - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_take_in_what_bayeux_says() {
        for (name, channel, expected) in [
            ("/a", "/a", true),
            ("/a", "/a/b", false),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a/b/c", false),
            ("/a/*", "/ab/c", false),
            ("/a/**", "/a/b/c", true),
            ("/a/**", "/a", false),
            ("/**", "/a", true),
        ] {
            assert_eq!(covers(name, channel), expected, "{name} {channel}");
        }
    }

    #[test]
    fn places_have_a_limit() {
        let mut replay = Replay::new(Start::Now);
        for number in 0..PLACES_MAX + 10 {
            replay.pass(&format!("/{number}"), Told { epoch: "e".into(), id: 1, lost: None });
        }
        assert_eq!(replay.places.len(), PLACES_MAX);
        assert!(replay.is_partial);
        assert!(replay.pass("/0", Told { epoch: "e".into(), id: 1, lost: None }).is_none());
        assert!(
            replay.pass("/999", Told { epoch: "e".into(), id: 1, lost: None }).is_some(),
            "what is not known comes"
        );
    }
}
