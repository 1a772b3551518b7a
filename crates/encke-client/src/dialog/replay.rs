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
    places: Vec<(Box<str>, Place)>,
    /// Whether the server of this session can do it.
    pub(super) is_spoken: bool,
    /// The id of the subscribe that named all places again, until it is answered: what comes before that comes again.
    pub(super) naming: Option<u64>,
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
        Replay { start, starts: Vec::new(), places: Vec::new(), is_spoken: false, naming: None }
    }

    /// Lets a channel or pattern begin there, in place of where all others do.
    pub(super) fn begin(&mut self, name: &str, start: Start) {
        self.starts.retain(|(other, _)| **other != *name);
        self.starts.push((name.into(), start));
        if let Ok(at) = self.find(name) {
            self.places.remove(at);
        }
    }

    /// Forgets what is known only because of this subscription.
    pub(super) fn forget(&mut self, name: &str, others: &[String]) {
        self.starts.retain(|(other, _)| **other != *name);
        self.places.retain(|(channel, _)| others.iter().any(|other| covers(other, channel)));
    }

    /// The member `replay` of the `ext` of a subscribe.
    pub(super) fn positions(&self, names: &[String]) -> Value {
        let mut positions = Map::new();
        for name in names {
            let own = self.starts.iter().find(|(of, _)| **of == **name).map_or(&self.start, |(_, start)| start);
            positions.insert(name.clone(), own.to_value());
        }
        for (channel, place) in &self.places {
            if names.iter().any(|name| covers(name, channel)) {
                positions.insert(channel.to_string(), json!({"id": place.id, "epoch": place.epoch}));
            }
        }
        positions.into()
    }

    /// Where the session stands in a channel's history.
    pub(super) fn place(&self, channel: &str) -> Option<&Place> {
        self.find(channel).ok().map(|at| &self.places[at].1)
    }

    /// Whether a subscription goes on from a place.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.places.iter().any(|(channel, _)| covers(name, channel))
    }

    /// A message came that stands there. `None` if the session has it, or will get it once more.
    pub(super) fn pass(&mut self, channel: &str, told: Told) -> Option<(Place, Option<Gap>)> {
        if let Some(place) = self.place(channel)
            && (self.naming.is_some() || (place.epoch == told.epoch && told.id <= place.id))
        {
            return None;
        }
        let gap = told.lost.and_then(|lost| self.gap(channel, &told.epoch, lost));
        let place = Place { epoch: told.epoch, id: told.id };
        self.set(channel, Some(place.clone()));
        Some((place, gap))
    }

    /// A subscribe was granted: where its channels begin, and what of it is gone.
    pub(super) fn answered(&mut self, raw: &RawValue) -> Vec<Gap> {
        let answers: BTreeMap<String, Answer> = serde_json::from_str(raw.get()).unwrap_or_default();
        let mut gaps = Vec::new();
        for (channel, Answer { recovered, epoch, from, lost }) in answers {
            let place = epoch.zip(from).map(|(epoch, from)| Place { epoch, id: from.saturating_sub(1) });
            // A history that is no more has no place, and all subscriptions without one are told of together.
            let is_told = place.is_none() && self.place(&channel).is_some();
            self.set(&channel, place);
            if !recovered && !is_told {
                gaps.push(Gap { channel, lost: lost.and_then(Lost::range) });
            }
        }
        gaps
    }

    /// A connect reply tells how far the session is, or what is gone.
    pub(super) fn heard_beat(&mut self, raw: &RawValue) -> Vec<Gap> {
        let beats: BTreeMap<String, Beat> = serde_json::from_str(raw.get()).unwrap_or_default();
        if self.naming.is_some() {
            return Vec::new();
        }
        let mut gaps = Vec::new();
        for (channel, Beat { id, epoch, lost }) in beats {
            gaps.extend(lost.and_then(|lost| self.gap(&channel, &epoch, lost)));
            let known = self.place(&channel).filter(|place| place.epoch == epoch).map(|place| place.id);
            if id.is_none() || id > known {
                self.set(&channel, id.map(|id| Place { epoch, id }));
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

    fn set(&mut self, channel: &str, place: Option<Place>) {
        match (self.find(channel), place) {
            (Ok(at), Some(place)) => self.places[at].1 = place,
            (Ok(at), None) => drop(self.places.remove(at)),
            (Err(at), Some(place)) if self.places.len() < PLACES_MAX => self.places.insert(at, (channel.into(), place)),
            (Err(_), _) => {}
        }
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

/// How many places a session remembers: as many as a server takes in one subscribe. Channels beyond that begin anew.
const PLACES_MAX: usize = 1_000;

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
        assert!(replay.pass("/0", Told { epoch: "e".into(), id: 1, lost: None }).is_none());
        assert!(
            replay.pass("/1009", Told { epoch: "e".into(), id: 1, lost: None }).is_some(),
            "what is not known comes"
        );
    }
}
