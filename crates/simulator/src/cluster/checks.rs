//! The checks of a run: of each message as it arrives, of sessions each second, and of all at the end.

use std::collections::{BTreeMap, BTreeSet};

use bayeux::ChannelName;
use bayeux::json::member;
use encke_core::Id;

use super::checker::{Promise, Published};
use super::client::{PAST, Track, has_history};
use super::plan::Kind;
use super::reading::Position;
use super::{Cluster, LOOK_EVERY_MS, What};
use crate::texts::number_of;

/// The history of a channel on a node: its epoch, and the publication at each offset.
type Ring = (String, BTreeMap<u64, usize>);

impl Cluster {
    /// True if nothing has gone wrong for so long.
    pub(super) fn is_calm(&self, ms: u64) -> bool {
        self.now_ms >= self.calm_ms + ms
    }

    /// True if a request of a client has failed within this time.
    pub(super) fn has_broken(&self, client: usize, ms: u64) -> bool {
        self.clients[client].broken_ms > 0 && self.now_ms < self.clients[client].broken_ms + ms
    }

    /// The history of a channel on a node. None if it has none yet.
    fn ring(&self, node: usize, channel: &str) -> Option<Ring> {
        let machine = self.nodes[node].machine.as_ref()?;
        let key = machine.shared.histories.find(channel, 0)?.ring;
        machine.shared.histories.with(key, |ring| {
            let number = |text: &str| member(text, "data").and_then(number_of).unwrap_or(usize::MAX);
            let entries = ring.from(0).map(|entry| (entry.offset, number(&entry.text)));
            (ring.epoch().to_string(), entries.collect())
        })
    }

    /// The epochs of a channel on all nodes.
    pub(super) fn epochs_of(&self, channel: &str) -> BTreeSet<String> {
        let epoch = |node: &super::node::Node| {
            let machine = node.machine.as_ref()?;
            machine.shared.histories.lineage_of(channel).map(|lineage| lineage.epoch_of(channel))
        };
        self.nodes.iter().filter_map(epoch).collect()
    }

    /// A client that replays has got a message of a history.
    pub(super) fn followed(&mut self, client: usize, channel: &str, number: usize, at: Option<&Position>) {
        let Some((at, id)) = at.and_then(|at| Some((at, at.id?))) else {
            let detail = format!("client {client} got message {number} of {channel} without a position");
            return self.checker.fail(Promise::LossIsReported, detail);
        };
        self.checker.note_offset(channel, &at.epoch, id, number);
        if !self.clients[client].granted.contains_key(channel) {
            let detail = format!("client {client} got message {number} of {channel} before the reply to its subscribe");
            return self.checker.fail(Promise::ReplyFirst, detail);
        }
        let is_behind = |track: &Track| track.epoch == at.epoch && id < track.next;
        let is_again = self.clients[client].tracks.get(channel).is_some_and(is_behind);
        let goes_back = is_again && self.clients[client].goes_back(channel, id);
        let Some(track) = self.clients[client].tracks.get_mut(channel) else { return };
        if track.epoch != at.epoch {
            // The epoch itself says that another history begins.
            let old = std::mem::take(track);
            (track.epoch, track.begin) = (at.epoch.clone(), id);
            self.checker.old_tracks.push((client, channel.into(), old));
        } else if id < track.next && !goes_back {
            let detail = format!("client {client} got {channel} {id} after {}", track.next - 1);
            return self.checker.fail(Promise::NotTwice, detail);
        }
        let track = self.clients[client].tracks.entry(channel.into()).or_default();
        track.next = id + 1;
        track.seen.insert(id);
        track.lost.extend(at.lost);
    }

    /// A session has got a message.
    pub(super) fn seen(&mut self, client: usize, channel: &str, number: usize) {
        let (now_ms, kind) = (self.now_ms, self.clients[client].kind);
        let Some(id) = self.clients[client].session else { return };
        let Published { stream, sent_ms, .. } = self.checker.publications[number];
        let Some(session) = self.checker.sessions.get_mut(&id) else { return };
        let seen = session.seen.entry(number).or_default();
        seen.count += 1;
        let (count, confirmed_ms, opened_ms) = (seen.count, seen.confirmed_ms, session.opened_ms);
        self.clients[client].unconfirmed.push(number);
        if count == 1 {
            if !has_history(channel) {
                let last = session.last.insert((stream.0, stream.1, channel.into()), number);
                // For a while after a break two nodes may have the session of the publisher, and each publishes for it.
                let from_ms = opened_ms.min(sent_ms.saturating_sub(TWO_MS));
                if let Some(last) = last.filter(|last| *last > number && !self.checker.was_disturbed(from_ms, now_ms)) {
                    let detail = format!("client {client} got message {number} of {channel} after {last}");
                    self.checker.fail(Promise::InOrder, detail);
                }
            }
            return;
        }
        self.tally.doubled += 1;
        // Positions tell.
        if kind.replays() && has_history(channel) {
            return;
        }
        // A node whose answers are lost counts as gone.
        let is_gone = self.plan.engine.loses_requests > 0;
        // A session may go on from its record, or on two nodes for a while.
        let may_be = |at_ms: &u64| {
            let is_recent = confirmed_ms.is_none_or(|confirmed_ms| confirmed_ms + DOUBLES_MS >= *at_ms);
            (opened_ms..=now_ms).contains(at_ms) && (kind != Kind::Ack || is_recent)
        };
        if !is_gone && !self.checker.disturbed_ms.iter().any(may_be) {
            let detail = format!("client {client} got message {number} of {channel} {count} times, as {kind:?}");
            self.checker.fail(Promise::NotTwice, detail);
        }
    }

    /// A publication must have arrived, if nothing has gone wrong.
    pub(super) fn check_in_time(&mut self, client: usize, session: Id, publication: usize) {
        let published = &self.checker.publications[publication];
        let state = &self.clients[client];
        let covers = |name: &&&str| ChannelName::known(name).matches(ChannelName::known(published.channel));
        let wants = |(name, from_ms): (&&'static str, &Option<u64>)| {
            covers(&name) && !state.unsure.contains(*name) && from_ms.is_some_and(|from_ms| from_ms < published.sent_ms)
        };
        // A client whose request is lost waits for long.
        let is_promised = state.session == Some(session)
            && self.plan.engine.loses_requests == 0
            && state.granted.iter().any(|(name, from_ms)| wants((name, from_ms)))
            && self.calm_ms + STEADY_MS <= published.sent_ms
            && (state.broken_ms == 0 || state.broken_ms + STEADY_MS <= published.sent_ms);
        if !is_promised {
            return;
        }
        let has = self.checker.sessions.get(&session).is_some_and(|session| session.seen.contains_key(&publication));
        // Messages come with the replies to connects, and publishes that wait for a slow engine may leave no time for one.
        let arrives_ms = published.confirmed_ms.unwrap_or(published.sent_ms) + ARRIVES_MS;
        if !has && state.polled_ms < arrives_ms {
            return self.at(self.now_ms + LOOK_EVERY_MS, What::Check { client, session, publication });
        }
        if !has {
            let detail = format!("client {client} has not got message {publication} of {}", published.channel);
            return self.checker.fail(Promise::InTime, detail);
        }
        self.tally.in_time += 1;
    }

    /// Looks at all sessions: no two nodes that are there have one.
    pub(super) fn look(&mut self) {
        self.at(self.now_ms + LOOK_EVERY_MS, What::Look);
        let now_ms = self.now_ms;
        let is_there = |node: &super::node::Node| {
            node.link.is_connected && node.paused_ms <= now_ms && now_ms >= node.steady_ms + TWO_MS
        };
        let there: Vec<usize> = (0..self.nodes.len()).filter(|node| is_there(&self.nodes[*node])).collect();
        for client in 0..self.clients.len() {
            let Some(id) = self.clients[client].session else { continue };
            let on: Vec<usize> = there.iter().copied().filter(|node| self.nodes[*node].has(&id)).collect();
            if on.len() < 2 {
                self.checker.on_two.remove(&id);
                continue;
            }
            let since_ms = *self.checker.on_two.entry(id).or_insert(now_ms);
            if now_ms >= since_ms + TWO_MS {
                let detail = format!("the session of client {client} is on the nodes {on:?}");
                return self.checker.fail(Promise::OneNode, detail);
            }
        }
    }

    /// With journals an epoch ends only when the engine loses its keys.
    fn check_epochs(&mut self, channel: &str) {
        let of_channel = self.checker.truth.keys().filter(|(of, _)| of == channel);
        let epochs: Vec<&String> = of_channel.map(|(_, epoch)| epoch).collect();
        if self.plan.has_journal && self.tally.keys_lost == 0 && epochs.len() > 1 {
            let detail = format!("{channel} has had the epochs {epochs:?}, and its journal had all");
            self.checker.fail(Promise::ConfirmedStays, detail);
        }
    }

    /// Checks all at the end.
    pub(super) fn check_all(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.count_machine(node));
        let mut rings = BTreeMap::new();
        for channel in PAST {
            let all: Vec<Option<Ring>> = (0..self.nodes.len()).map(|node| self.ring(node, channel)).collect();
            let ring = all.iter().flatten().max_by_key(|ring| ring.1.len()).cloned();
            let has_other = |of: &Option<Ring>| {
                let is_empty = of.as_ref().is_none_or(|of| of.1.is_empty());
                if is_empty { ring.as_ref().is_some_and(|ring| !ring.1.is_empty()) } else { *of != ring }
            };
            if let Some(node) = all.iter().position(has_other) {
                let detail = format!("{channel} on node {node}: {:?}, and elsewhere {ring:?}", all[node]);
                return self.checker.fail(Promise::OneHistory, detail);
            }
            let Some((epoch, entries)) = ring else { continue };
            entries.iter().for_each(|(id, number)| self.checker.note_offset(channel, &epoch, *id, *number));
            self.check_ring(channel, &epoch, &entries);
            rings.insert(channel, (epoch, entries));
            self.check_epochs(channel);
        }
        self.check_tracks(&rings);
        self.check_acknowledging(&rings);
        self.check_sessions();
    }

    /// A history has what was confirmed, once, and in an order that its publishers may see.
    fn check_ring(&mut self, channel: &str, epoch: &str, entries: &BTreeMap<u64, usize>) {
        let numbers: BTreeSet<usize> = entries.values().copied().collect();
        if numbers.len() < entries.len() {
            return self.checker.fail(Promise::ConfirmedStays, format!("{channel} has a message twice: {entries:?}"));
        }
        let publications = &self.checker.publications;
        let mut latest_ms = 0;
        for number in entries.values() {
            let of = &publications[*number];
            if of.confirmed_ms.is_some_and(|confirmed_ms| confirmed_ms < latest_ms) {
                let detail = format!("{channel}: message {number} was confirmed before one ahead of it was sent");
                return self.checker.fail(Promise::InOrder, detail);
            }
            latest_ms = latest_ms.max(of.sent_ms);
        }
        // An engine that loses its keys loses the journals, too: a node that reads one then has the latest messages.
        if self.plan.history_messages < MANY || (self.plan.has_journal && self.tally.keys_lost > 0) {
            return;
        }
        let is_missing = |(number, of): &(usize, &super::checker::Published)| {
            let is_here = of.epochs.len() == 1 && of.epochs.contains(epoch);
            of.channel == channel && of.confirmed_ms.is_some() && is_here && !numbers.contains(number)
        };
        if let Some((number, of)) = publications.iter().enumerate().find(is_missing) {
            let detail = format!("{channel} {epoch}: message {number} was confirmed and is missing: {of:?}");
            self.checker.fail(Promise::ConfirmedStays, detail);
        }
    }

    /// Clients that replay have all, or had reports of losses.
    fn check_tracks(&mut self, rings: &BTreeMap<&str, Ring>) {
        for (client, state) in self.clients.iter().enumerate() {
            let is_promised = |channel: &String| state.granted.get(channel.as_str()).is_some_and(Option::is_some);
            for (channel, track) in state.tracks.iter().filter(|(channel, _)| is_promised(channel)) {
                let Some((epoch, entries)) = rings.get(channel.as_str()) else { continue };
                let known = self.checker.truth.get(&(channel.clone(), track.epoch.clone()));
                let upto = if *epoch == track.epoch { u64::MAX } else { track.next };
                let of_ring = entries.keys().copied().filter(|_| *epoch == track.epoch);
                let of_truth =
                    known.into_iter().flat_map(|known| known.range(..upto.min(track.next)).map(|(id, _)| *id));
                if let Some(id) = track.missing(of_ring.chain(of_truth)) {
                    let detail = format!("client {client} has not got {channel} {} {id}: {track:?}", track.epoch);
                    return self.checker.fail(Promise::NothingLost, detail);
                }
                // Wherever the server says that it has begun.
                let from_ms = state.granted.get(channel.as_str()).copied().flatten();
                let is_later = |number: &usize| {
                    from_ms.is_some_and(|from_ms| self.checker.publications[*number].sent_ms > from_ms)
                };
                let mut early = entries.range(..track.begin).filter(|_| *epoch == track.epoch);
                if let Some((id, _)) = early.find(|(_, number)| is_later(number)) {
                    let detail = format!("client {client} begins behind {channel} {} {id}: {track:?}", track.epoch);
                    return self.checker.fail(Promise::NothingLost, detail);
                }
            }
        }
        for (client, channel, track) in &self.checker.old_tracks {
            let known = self.checker.truth.get(&(channel.clone(), track.epoch.clone()));
            let known = known.into_iter().flat_map(|known| known.range(..track.next).map(|(id, _)| *id));
            if let Some(id) = track.missing(known) {
                let detail = format!("client {client} never got {channel} {} {id}: {track:?}", track.epoch);
                return self.checker.fail(Promise::NothingLost, detail);
            }
        }
    }

    /// Sessions with `ack` alone have all that was published on channels with a history since they have subscribed.
    fn check_acknowledging(&mut self, rings: &BTreeMap<&str, Ring>) {
        if self.plan.history_messages < MANY {
            return;
        }
        for (client, state) in self.clients.iter().enumerate().filter(|(_, state)| state.kind == Kind::Ack) {
            let Some(session) = state.session.and_then(|id| self.checker.sessions.get(&id)) else { continue };
            for (channel, (epoch, entries)) in rings {
                let covers = |name: &&'static str| ChannelName::known(name).matches(ChannelName::known(channel));
                let is_promised = |name: &&'static str| covers(name) && !state.unsure.contains(*name);
                let granted = state.granted.iter().filter(|(name, _)| is_promised(name));
                let granted = granted.filter_map(|(_, from_ms)| *from_ms).min();
                let Some(from_ms) = granted else { continue };
                let is_missing = |number: &&usize| {
                    self.checker.publications[**number].sent_ms > from_ms && !session.seen.contains_key(*number)
                };
                if let Some(number) = entries.values().find(is_missing) {
                    let detail = format!("client {client} has never got message {number} of {channel} {epoch}");
                    return self.checker.fail(Promise::NothingLost, detail);
                }
            }
        }
    }

    /// Each session is on one node at most, and one that has ended on none.
    fn check_sessions(&mut self) {
        for (id, session) in &self.checker.sessions {
            let on: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].has(id)).collect();
            if on.len() > 1 {
                let detail = format!("a session of client {} is on the nodes {on:?}", session.client);
                return self.checker.fail(Promise::OneNode, detail);
            }
            let is_calm = |ended_ms: &u64| !self.checker.was_disturbed(ended_ms.saturating_sub(STEADY_MS), *ended_ms);
            if session.ended_ms.filter(is_calm).is_some() && !on.is_empty() {
                let detail = format!("a session of client {} that has ended is on node {on:?}", session.client);
                return self.checker.fail(Promise::EndedStays, detail);
            }
        }
    }
}

/// The time before a disruption in which what was confirmed may come again, in milliseconds.
const DOUBLES_MS: u64 = 10_000;
/// A connect that is sent so long after a confirmation gets the message, in milliseconds.
const ARRIVES_MS: u64 = 4_000;
/// After so long without a disruption messages arrive in time, in milliseconds.
const STEADY_MS: u64 = 10_000;
/// The time for which two nodes may have a session after one has come back, in milliseconds.
const TWO_MS: u64 = 8_000;
/// Histories with fewer messages drop some.
const MANY: usize = 100;
