//! Clients that replay: they keep the place they have reached in each channel with a history, and come back with it.
//!
//! Such a client gets what it has not seen and is kept, once and in order, over all its sessions, or is told what is gone. To see
//! whether it does, the world reads along in the histories themselves: see [`Records`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bayeux::json::{decode_string, integer, member, members};

use crate::checker::{Invariant, Wish, covers, number_of};
use crate::client::{Outgoing, Phase, What};
use crate::script::PAST;
use crate::world::World;

/// What a client knows of the past.
#[derive(Debug, Default)]
pub struct Follower {
    /// What it subscribes to again when it comes back.
    pub wanted: BTreeSet<String>,
    /// The epoch and the number of the last message of each channel that it has or was told of.
    pub last: BTreeMap<String, (String, u64)>,
    /// What it may expect of each channel in its session.
    pub footing: BTreeMap<String, Footing>,
    /// It goes on with its session, but has to name its places first.
    pub names_places: bool,
}

/// What a client may expect of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Footing {
    /// It has asked for the channel, after this message if it named one, and has heard this one first.
    Asked(Option<u64>, Option<u64>),
    /// The next message is the one after the last.
    Firm,
}

/// What the histories have been seen to hold: of each channel the number of the publication at each place.
#[derive(Debug, Default)]
pub struct Records {
    places: BTreeMap<&'static str, BTreeMap<u64, usize>>,
    /// Places whose messages were lost with a process.
    lost: BTreeSet<(&'static str, u64)>,
    next: BTreeMap<&'static str, u64>,
    oldest: BTreeMap<&'static str, u64>,
    /// The last place that each session has heard of, by channel.
    heard: BTreeMap<(usize, String), u64>,
}

impl Records {
    /// What histories hold in the next life of the server: where they begin, and the places that have a message. What is missing was
    /// lost, and is not promised to anybody.
    pub(crate) fn begin_anew(&mut self, there: &BTreeMap<&str, (u64, BTreeSet<u64>)>) -> u64 {
        let mut count = 0;
        for (channel, places) in &self.places {
            let ring = there.get(channel);
            let oldest = ring.map_or(0, |(oldest, _)| *oldest);
            let gone = places.range(oldest..).filter(|(id, _)| ring.is_none_or(|(_, ids)| !ids.contains(id)));
            let gone: Vec<u64> = gone.map(|(id, _)| *id).collect();
            count += gone.into_iter().filter(|id| self.lost.insert((*channel, *id))).count() as u64;
        }
        // All that is there is looked at again.
        self.next.clear();
        count
    }

    /// The places in a range that have a message which everybody is to get, or to be told of.
    fn owed<'a>(&'a self, channel: &'a str, range: Range<u64>) -> impl Iterator<Item = u64> + 'a {
        let places = self.places.get_key_value(channel).filter(|_| !range.is_empty());
        let ids =
            places.into_iter().flat_map(move |(name, places)| places.range(range.clone()).map(|(id, _)| (*name, *id)));
        ids.filter(|place| !self.lost.contains(place)).map(|(_, id)| id)
    }
}

/// A place told in a message or a reply.
struct Told {
    epoch: String,
    id: Option<u64>,
    lost: Option<(u64, Option<u64>)>,
}

impl Told {
    fn read(raw: &str) -> Told {
        let number = |raw: &str, name| member(raw, name).and_then(integer).and_then(|id| u64::try_from(id).ok());
        let lost = member(raw, "lost").and_then(|lost| Some((number(lost, "from")?, number(lost, "to"))));
        let epoch = member(raw, "epoch").and_then(decode_string).map(String::from).unwrap_or_default();
        Told { epoch, id: number(raw, "id"), lost }
    }
}

/// Whether a channel has a history.
pub fn is_past(channel: &str) -> bool {
    PAST.contains(&channel)
}

/// The data as they were published, and the number of the message, of data with a place.
pub fn unplaced(data: &str) -> Option<(String, u64)> {
    let event = member(data, "event")?;
    let id = member(event, "replayId").and_then(integer)?;
    let rest = data.strip_prefix("{\"event\":")?.strip_prefix(event)?.strip_prefix(',')?;
    Some((format!("{{{rest}"), u64::try_from(id).ok()?))
}

impl World {
    /// Reads along in the histories. After every event: what comes and goes within one is not seen.
    pub(crate) fn read_along(&mut self) {
        for channel in PAST {
            let histories = &self.shared.histories;
            let Some(ring) = histories.find(channel, 0) else { continue };
            let (places, next) = (self.records.places.entry(channel).or_default(), self.records.next.entry(channel));
            let next = next.or_default();
            let oldest = self.records.oldest.entry(channel).or_default();
            let mut given_twice = None;
            histories.with(ring.ring, |ring| {
                for entry in ring.from(*next) {
                    let Some(number) = member(&entry.text, "data").and_then(number_of) else { continue };
                    let before = places.insert(entry.number, number).filter(|before| *before != number);
                    given_twice = given_twice.or(before.map(|before| (entry.number, before, number)));
                }
                *next = ring.next();
                // What comes back with a restart may have been told to be lost before.
                *oldest = ring.oldest().max(*oldest);
            });
            if let Some((id, before, number)) = given_twice {
                let detail = format!("{id} of {channel} was message {before} and is message {number} now");
                self.checker.fail(Invariant::OneOrder, detail);
            }
        }
        for owner in 0..self.shards.len() {
            let settings = self.shards[owner].settings();
            let (bytes_max, shards) = (settings.history_bytes_max, self.shards.len());
            let holding = self.shared.histories.holding(owner);
            if holding.bytes > bytes_max / shards {
                let detail = format!("shard {owner} keeps {holding:?}, of {bytes_max} bytes for {shards} shards");
                self.checker.fail(Invariant::HistoryBounded, detail);
            }
        }
    }

    /// The `ext` of a subscribe of a client that replays: where it wants to begin. It names no place for what it hears already.
    pub(crate) fn positions(&mut self, client: usize, session: usize, names: &[String]) -> String {
        if !self.checker.sessions[session].follows {
            return String::new();
        }
        let mut members = Vec::new();
        for channel in PAST.iter().filter(|channel| names.iter().any(|name| covers(name, channel))) {
            let wishes = &self.checker.sessions[session].wishes;
            let heard = wishes.iter().any(|(name, wish)| !matches!(wish, Wish::Gone(_)) && covers(name, channel));
            if heard {
                let sure = |wish: &Wish| matches!(wish, Wish::Granted(_) | Wish::Asked);
                let sure = wishes.iter().any(|(name, wish)| sure(wish) && covers(name, channel));
                if let Some(follower) = self.clients[client].follower.as_mut().filter(|_| !sure) {
                    follower.footing.remove(*channel);
                }
                continue;
            }
            // What was to come by an earlier subscription may still be on its way: naming a place would have it come again.
            let before = wishes.keys().any(|name| covers(name, channel));
            let form = self.rng.below(4);
            let Some(follower) = &mut self.clients[client].follower else { continue };
            let last = follower.last.get(*channel).filter(|_| !before);
            follower.footing.insert((*channel).to_string(), Footing::Asked(last.map(|last| last.1), None));
            if before {
                follower.footing.remove(*channel);
            }
            match (last, form) {
                (Some((_, id)), 0) => members.push(format!("\"{channel}\":{id}")),
                (Some((_, id)), 1) => members.push(format!("\"{channel}\":\"{id}\"")),
                (Some((epoch, id)), _) => {
                    members.push(format!("\"{channel}\":{{\"id\":{id},\"epoch\":\"{epoch}\"}}"));
                }
                (None, _) if before => {}
                (None, 0) => members.push(format!("\"{channel}\":-1")),
                (None, 1 | 2) => members.push(format!("\"{channel}\":-2")),
                (None, _) => {}
            }
        }
        if let Some(follower) = &mut self.clients[client].follower {
            follower.wanted.extend(names.iter().filter(|name| PAST.iter().any(|past| covers(name, past))).cloned());
        }
        format!(",\"ext\":{{\"replay\":{{{}}}}}", members.join(","))
    }

    /// A client that has come back subscribes to what it wants. False if it has already.
    pub(crate) fn resume(&mut self, client: usize, session: usize) -> bool {
        if !self.checker.sessions[session].follows || !self.may_send(client, false) {
            return false;
        }
        let wishes = &self.checker.sessions[session].wishes;
        let missing = |name: &&String| matches!(wishes.get(*name), None | Some(Wish::Gone(_)));
        let wanted = self.clients[client].follower.as_ref().and_then(|follower| follower.wanted.iter().find(missing));
        let Some(name) = wanted.cloned() else { return false };
        let names = vec![name.clone()];
        let fields = format!(",\"subscription\":\"{name}\"{}", self.positions(client, session, &names));
        self.checker.sessions[session].wishes.insert(name, Wish::Asked);
        self.send(client, vec![Outgoing { channel: "/meta/subscribe".into(), fields, what: What::Subscribe(names) }])
    }

    /// A subscribe was refused. Of several names those before the one that is to blame stand.
    pub(crate) fn not_told(&mut self, client: usize, session: usize, names: &[String]) {
        for name in names {
            self.give_up(client, session, name);
            let wishes = &mut self.checker.sessions[session].wishes;
            if wishes.get(name) == Some(&Wish::Asked) && self.checker.sessions[session].follows {
                self.checker.sessions[session].wishes.insert(name.clone(), Wish::Unsure);
            }
        }
    }

    /// A client gives up a subscription permanently.
    pub(crate) fn give_up(&mut self, client: usize, session: usize, name: &str) {
        let wishes = &self.checker.sessions[session].wishes;
        let other = |channel: &str| {
            wishes
                .iter()
                .any(|(other, wish)| other != name && matches!(wish, Wish::Granted(_)) && covers(other, channel))
        };
        let gone: Vec<&str> = PAST.into_iter().filter(|channel| covers(name, channel) && !other(channel)).collect();
        if let Some(follower) = &mut self.clients[client].follower {
            follower.wanted.remove(name);
            follower.footing.retain(|channel, _| !gone.contains(&channel.as_str()));
        }
    }

    /// A message of a channel with a history has come. Its data as they were published.
    pub(crate) fn with_positions(
        &mut self,
        client: usize,
        session: usize,
        raw: &str,
        channel: &str,
        data: &str,
    ) -> Option<String> {
        if !is_past(channel) {
            return Some(data.to_owned());
        }
        if !self.checker.sessions[session].follows {
            self.in_one_order(session, channel, data);
            return Some(data.to_owned());
        }
        let told = member(raw, "ext").and_then(|ext| member(ext, "replay")).map(Told::read);
        let (Some((data, id)), Some(told)) = (unplaced(data), told) else {
            self.checker
                .fail(Invariant::PlacesHonest, format!("session {session} got a message without a place: {raw}"));
            return None;
        };
        let known = self.records.places.get(channel).and_then(|places| places.get(&id)).copied();
        if told.id != Some(id) || known != number_of(&data) {
            let detail = format!("session {session} got {data} at {id}, where message {known:?} stands: {raw}");
            self.checker.fail(Invariant::OneOrder, detail);
            return None;
        }
        self.place_reached(client, session, channel, id, &told);
        Some(data)
    }

    fn place_reached(&mut self, client: usize, session: usize, channel: &str, id: u64, told: &Told) {
        let current = self.clients[client].session() == Some(session);
        let Some(follower) = &mut self.clients[client].follower else { return };
        let last = follower.last.get(channel).map(|last| last.1);
        // Who named no place in a new session cannot complain about what it had in an old one.
        let heard = self.records.heard.insert((session, channel.to_owned()), id);
        let claimed = follower.footing.contains_key(channel) || heard.is_some_and(|heard| heard >= id);
        if last.is_some_and(|last| last >= id) && !claimed {
            return;
        }
        if let Some(last) = last.filter(|last| *last >= id) {
            let detail = format!("client {client} got message {id} of {channel} after {last}");
            return self.checker.fail(Invariant::PlacesGrow, detail);
        }
        follower.last.insert(channel.to_owned(), (told.epoch.clone(), id));
        let footing = follower.footing.get_mut(channel).filter(|_| current);
        let firm = matches!(footing, Some(Footing::Firm | Footing::Asked(_, Some(_))));
        if let Some(Footing::Asked(_, first @ None)) = footing {
            *first = Some(told.lost.map_or(id, |lost| lost.0.min(id)));
        }
        self.lost_for_good(session, channel, told);
        if firm && let Some(last) = last {
            self.nothing_between(session, channel, last + 1, id, told, "before a message");
        }
    }

    /// Between two places there is nothing that a session wanted, but what it was told to be lost.
    fn nothing_between(&mut self, session: usize, channel: &str, from: u64, to: u64, told: &Told, when: &str) {
        let lost = |id: u64| told.lost.is_some_and(|(first, last)| first <= id && last.is_none_or(|last| id <= last));
        let mut owed = self.records.owed(channel, from..to);
        if let Some(id) = owed.find(|id| !lost(*id) && !self.is_own(session, channel, *id)) {
            drop(owed);
            let detail = format!("session {session} never got {channel} {id} and was not told, {when} at {to}");
            self.checker.fail(Invariant::LossTold, detail);
        }
    }

    /// Whether a message is the session's own, and publishers do not get theirs.
    fn is_own(&self, session: usize, channel: &str, id: u64) -> bool {
        let number = self.records.places.get(channel).and_then(|places| places.get(&id));
        !self.checker.returns_to_publisher
            && number.is_some_and(|number| self.checker.publications[*number].from == session)
    }

    /// What is said to be lost is not kept any more, unless it is too large for the session.
    fn lost_for_good(&mut self, session: usize, channel: &str, told: &Told) {
        let oldest = self.records.oldest.get(channel).copied().unwrap_or(0);
        let tight = self.scenario.settings[0].outbox_bytes_max < 1 << 20;
        if let Some((from, Some(to))) = told.lost.filter(|(_, to)| !tight && to.is_some_and(|to| to >= oldest)) {
            let detail =
                format!("session {session} was told that {from} to {to} of {channel} are lost, {oldest} is kept");
            self.checker.fail(Invariant::PlacesHonest, detail);
        }
    }

    /// All subscribers of a channel with a history see one order, those without places, too.
    fn in_one_order(&mut self, session: usize, channel: &str, data: &str) {
        let number = number_of(data);
        let places = self.records.places.get(channel);
        let mut found = places.into_iter().flatten().filter(|(_, at)| Some(**at) == number).map(|(id, _)| *id);
        let (Some(id), None) = (found.next(), found.next()) else { return };
        let last = self.records.heard.insert((session, channel.to_owned()), id);
        if let Some(last) = last.filter(|last| *last > id) {
            let detail = format!("session {session} got {id} of {channel} after {last}");
            self.checker.fail(Invariant::OneOrder, detail);
        }
    }

    /// The reply to a subscribe says where channels begin.
    pub(crate) fn told_starts(&mut self, client: usize, session: usize, raw: &str) {
        let Some(answers) = member(raw, "ext").and_then(|ext| member(ext, "replay")) else { return };
        for (channel, answer) in members(answers) {
            let channel = channel.decode().unwrap_or_default().into_owned();
            self.told_start(client, session, &channel, answer);
        }
    }

    fn told_start(&mut self, client: usize, session: usize, channel: &str, answer: &str) {
        let (oldest, next) = (self.records.oldest.get(channel), self.records.next.get(channel));
        let (oldest, next) = (oldest.copied().unwrap_or(0), next.copied().unwrap_or(0));
        let Some(follower) = &mut self.clients[client].follower else { return };
        let Some(Footing::Asked(named, first)) = follower.footing.get(channel).copied() else { return };
        let from = member(answer, "from").and_then(integer).unwrap_or_default() as u64;
        let told = Told::read(answer);
        let recovered = member(answer, "recovered") == Some("true");
        follower.footing.insert(channel.to_owned(), Footing::Firm);
        let last = follower.last.get(channel).map(|last| last.1);
        // What comes of an earlier subscription may lie between.
        if last.is_none_or(|last| last < from) {
            follower.last.insert(channel.to_owned(), (told.epoch.clone(), from - 1));
        }
        let honest = match named {
            Some(id) if recovered => from == id + 1,
            Some(id) => (id + 1 < oldest || id >= next) && from > id,
            None => recovered,
        };
        if !honest || (first.is_none() && named.is_some() && last.is_some_and(|last| last >= from)) {
            let detail = format!("client {client} asked for {channel} after {named:?}, {oldest} is kept: {answer}");
            return self.checker.fail(Invariant::PlacesHonest, detail);
        }
        if let Some(first) = first {
            // The first message has come before this reply.
            self.nothing_between(session, channel, from, first, &told, "before the first message");
        }
        self.lost_for_good(session, channel, &told);
    }

    /// A connect reply says how far the client is.
    pub(crate) fn told_places(&mut self, client: usize, session: usize, raw: &str) {
        let Some(places) = member(raw, "ext").and_then(|ext| member(ext, "replay")) else { return };
        let mut names = BTreeSet::new();
        for (channel, place) in members(places) {
            let channel = channel.decode().unwrap_or_default().into_owned();
            if !names.insert(channel.clone()) {
                let detail = format!("a connect reply of session {session} tells two things of {channel}: {places}");
                return self.checker.fail(Invariant::PlacesHonest, detail);
            }
            let told = Told::read(place);
            self.checker.tally.heartbeats += 1;
            self.lost_for_good(session, &channel, &told);
            let Some(follower) = &mut self.clients[client].follower else { return };
            let firm = matches!(follower.footing.get(&channel), Some(Footing::Firm | Footing::Asked(_, Some(_))));
            let (Some(id), Some((_, last))) = (told.id, follower.last.get(&channel).cloned()) else { continue };
            if firm && id > last {
                follower.last.insert(channel.clone(), (told.epoch.clone(), id));
                self.nothing_between(session, &channel, last + 1, id + 1, &told, "with a connect reply");
            }
        }
    }

    /// What clients that replay still have to get.
    pub(crate) fn missing_places(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (number, client) in self.clients.iter().enumerate() {
            let (Some(follower), Phase::On(session)) = (&client.follower, client.phase) else { continue };
            if !self.checker.sessions[session].alive || self.checker.sessions[session].left {
                continue;
            }
            for (channel, footing) in &follower.footing {
                let next = self.records.next.get(channel.as_str()).copied().unwrap_or(0);
                let last = follower.last.get(channel).map_or(next, |last| last.1);
                let mut owed = self.records.owed(channel, last + 1..next.max(last + 1));
                let wanted = owed.find(|id| !self.is_own(session, channel, *id));
                if let Some(id) = wanted.filter(|_| *footing == Footing::Firm) {
                    missing.push(format!("client {number} has {channel} up to {last}, not {id}"));
                }
            }
        }
        missing
    }
}
