//! Clients that replay: their positions, and the checks of those that the server reports.

use std::collections::BTreeSet;

use bayeux::ext::PositionForm;
use bayeux::json::{decode_string, integer, member, members};

use crate::channels::{HISTORY_CHANNELS, covers, has_history};
use crate::checker::{Invariant, Subscription};
use crate::client::{Outgoing, Phase, What};
use crate::follower::Footing;
use crate::texts::{form_of, number_of, split_position};
use crate::world::World;

/// A position in a message or a reply.
struct Reported {
    epoch: String,
    id: Option<u64>,
    lost: Option<(u64, Option<u64>)>,
}

impl Reported {
    fn read(raw: &str) -> Reported {
        let number = |raw: &str, name| member(raw, name).and_then(integer).and_then(|id| u64::try_from(id).ok());
        let lost = member(raw, "lost").and_then(|lost| Some((number(lost, "from")?, number(lost, "to"))));
        let epoch = member(raw, "epoch").and_then(decode_string).map(String::from).unwrap_or_default();
        Reported { epoch, id: number(raw, "id"), lost }
    }
}

impl World {
    /// The `ext` of a subscribe of a client that replays: the requested positions. It names none for channels it
    /// already receives.
    pub(super) fn positions(&mut self, client: usize, session: usize, names: &[String]) -> String {
        if !self.checker.sessions[session].follows {
            return String::new();
        }
        let mut members = Vec::new();
        for channel in HISTORY_CHANNELS.iter().filter(|channel| names.iter().any(|name| covers(name, channel))) {
            let subscriptions = &self.checker.sessions[session].subscriptions;
            let received = subscriptions
                .iter()
                .any(|(name, subscription)| !matches!(subscription, Subscription::Gone(_)) && covers(name, channel));
            if received {
                let sure = |subscription: &Subscription| {
                    matches!(subscription, Subscription::Granted(_) | Subscription::Requested)
                };
                let sure = subscriptions.iter().any(|(name, subscription)| sure(subscription) && covers(name, channel));
                if let Some(follower) = self.clients[client].follower.as_mut().filter(|_| !sure) {
                    follower.footing.remove(*channel);
                }
                continue;
            }
            // Messages of an earlier subscription may still be on their way: with a position they would come again.
            let before = subscriptions.keys().any(|name| covers(name, channel));
            let form = self.rng.below(4);
            let Some(follower) = &mut self.clients[client].follower else { continue };
            let last = follower.last.get(*channel).filter(|_| !before);
            follower.footing.insert((*channel).to_string(), Footing::Requested(last.map(|last| last.1), None));
            follower.early_losses.remove(*channel);
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
            follower
                .wanted
                .extend(names.iter().filter(|name| HISTORY_CHANNELS.iter().any(|past| covers(name, past))).cloned());
        }
        format!(",\"ext\":{{\"replay\":{{{}}}}}", members.join(","))
    }

    /// A returning client resubscribes to its channels. False if it has already.
    pub(super) fn resume(&mut self, client: usize, session: usize) -> bool {
        if !self.checker.sessions[session].follows || !self.may_send(client, false) {
            return false;
        }
        let subscriptions = &self.checker.sessions[session].subscriptions;
        let missing = |name: &&String| matches!(subscriptions.get(*name), None | Some(Subscription::Gone(_)));
        let wanted = self.clients[client].follower.as_ref().and_then(|follower| follower.wanted.iter().find(missing));
        let Some(name) = wanted.cloned() else { return false };
        let names = vec![name.clone()];
        let fields = format!(",\"subscription\":\"{name}\"{}", self.positions(client, session, &names));
        self.checker.sessions[session].subscriptions.insert(name, Subscription::Requested);
        self.send(client, vec![Outgoing { channel: "/meta/subscribe".into(), fields, what: What::Subscribe(names) }])
    }

    /// Handles a refused subscribe. Of several names, those before the refused one are subscribed.
    pub(super) fn not_reported(&mut self, client: usize, session: usize, names: &[String]) {
        for name in names {
            self.give_up(client, session, name);
            let subscriptions = &mut self.checker.sessions[session].subscriptions;
            if subscriptions.get(name) == Some(&Subscription::Requested) && self.checker.sessions[session].follows {
                self.checker.sessions[session].subscriptions.insert(name.clone(), Subscription::Uncertain);
            }
        }
    }

    /// A client gives up a subscription permanently.
    pub(super) fn give_up(&mut self, client: usize, session: usize, name: &str) {
        let subscriptions = &self.checker.sessions[session].subscriptions;
        let other = |channel: &str| {
            subscriptions.iter().any(|(other, subscription)| {
                other != name && matches!(subscription, Subscription::Granted(_)) && covers(other, channel)
            })
        };
        let gone: Vec<&str> =
            HISTORY_CHANNELS.into_iter().filter(|channel| covers(name, channel) && !other(channel)).collect();
        if let Some(follower) = &mut self.clients[client].follower {
            follower.wanted.remove(name);
            follower.footing.retain(|channel, _| !gone.contains(&channel.as_str()));
        }
    }

    /// Handles a message of a channel with a history. Returns its data as they were published.
    pub(super) fn with_positions(
        &mut self,
        client: usize,
        session: usize,
        raw: &str,
        channel: &str,
        data: &str,
    ) -> Option<String> {
        if !has_history(channel) {
            return Some(data.to_owned());
        }
        if !self.checker.sessions[session].follows {
            self.check_one_order(session, channel, data);
            return Some(data.to_owned());
        }
        let reported = member(raw, "ext").and_then(|ext| member(ext, "replay")).map(Reported::read);
        let found = match form_of(client) {
            PositionForm::Mixed => split_position(data),
            _ => reported.as_ref().and_then(|reported| Some((data.to_owned(), reported.id?))),
        };
        let (Some((data, id)), Some(reported)) = (found, reported) else {
            self.checker
                .fail(Invariant::PositionsHonest, format!("session {session} got a message without a position: {raw}"));
            return None;
        };
        let known =
            self.records.seen_positions.get(channel).and_then(|seen_positions| seen_positions.get(&id)).copied();
        if reported.id != Some(id) || known != number_of(&data) {
            let detail = format!("session {session} got {data} at {id}, the position of message {known:?}: {raw}");
            self.checker.fail(Invariant::OneOrder, detail);
            return None;
        }
        self.check_position(client, session, channel, id, &reported);
        Some(data)
    }

    fn check_position(&mut self, client: usize, session: usize, channel: &str, id: u64, reported: &Reported) {
        let current = self.clients[client].session() == Some(session);
        let Some(follower) = &mut self.clients[client].follower else { return };
        let last = follower.last.get(channel).map(|last| last.1);
        // A new session without a position makes no promise about messages of an old one.
        let received = self.records.received.insert((session, channel.to_owned()), id);
        let claimed = follower.footing.contains_key(channel) || received.is_some_and(|received| received >= id);
        if last.is_some_and(|last| last >= id) && !claimed {
            return;
        }
        if let Some(last) = last.filter(|last| *last >= id) {
            let detail = format!("client {client} got message {id} of {channel} after {last}");
            return self.checker.fail(Invariant::PositionsGrow, detail);
        }
        follower.last.insert(channel.to_owned(), (reported.epoch.clone(), id));
        let footing = follower.footing.get_mut(channel).filter(|_| current);
        let firm = matches!(footing, Some(Footing::Firm | Footing::Requested(_, Some(_))));
        if let Some(Footing::Requested(_, first @ None)) = footing {
            *first = Some(reported.lost.map_or(id, |lost| lost.0.min(id)));
        }
        self.check_reported_loss(session, channel, reported);
        if firm && let Some(last) = last {
            self.check_no_gap(session, channel, last + 1, id, reported, "before a message");
        }
    }

    /// Checks that no message the session should get lies between two offsets, except reported losses.
    fn check_no_gap(&mut self, session: usize, channel: &str, from: u64, to: u64, reported: &Reported, when: &str) {
        let lost =
            |id: u64| reported.lost.is_some_and(|(first, last)| first <= id && last.is_none_or(|last| id <= last));
        let mut required = self.records.required(channel, from..to);
        if let Some(id) = required.find(|id| !lost(*id) && !self.is_own(session, channel, *id)) {
            drop(required);
            let detail = format!("session {session} never got {channel} {id} and no loss report, {when} at {to}");
            self.checker.fail(Invariant::LossReported, detail);
        }
    }

    /// True if a message is the session's own, and publishers do not get theirs.
    fn is_own(&self, session: usize, channel: &str, id: u64) -> bool {
        let number = self.records.seen_positions.get(channel).and_then(|seen_positions| seen_positions.get(&id));
        !self.checker.returns_to_publisher
            && number.is_some_and(|number| self.checker.publications[*number].from == session)
    }

    /// Checks that a message reported as lost is no longer retained, unless it is too large for the session.
    fn check_reported_loss(&mut self, session: usize, channel: &str, reported: &Reported) {
        let oldest = self.records.oldest.get(channel).copied().unwrap_or(0);
        let tight = self.scenario.settings[0].outbox_bytes_max < 1 << 20;
        if let Some((from, Some(to))) = reported.lost.filter(|(_, to)| !tight && to.is_some_and(|to| to >= oldest)) {
            let detail =
                format!("session {session} got {from} to {to} of {channel} reported as lost, {oldest} is retained");
            self.checker.fail(Invariant::PositionsHonest, detail);
        }
    }

    /// Checks that all subscribers of a channel with a history see one order, including those without positions.
    fn check_one_order(&mut self, session: usize, channel: &str, data: &str) {
        let number = number_of(data);
        let seen_positions = self.records.seen_positions.get(channel);
        let mut found = seen_positions.into_iter().flatten().filter(|(_, at)| Some(**at) == number).map(|(id, _)| *id);
        let (Some(id), None) = (found.next(), found.next()) else { return };
        let last = self.records.received.insert((session, channel.to_owned()), id);
        if let Some(last) = last.filter(|last| *last > id) {
            let detail = format!("session {session} got {id} of {channel} after {last}");
            self.checker.fail(Invariant::OneOrder, detail);
        }
    }

    /// Handles the starting positions in the reply to a subscribe.
    pub(super) fn reported_starts(&mut self, client: usize, session: usize, raw: &str) {
        let Some(answers) = member(raw, "ext").and_then(|ext| member(ext, "replay")) else { return };
        for (channel, answer) in members(answers) {
            let channel = channel.decode().unwrap_or_default().into_owned();
            self.reported_start(client, session, &channel, answer);
        }
    }

    fn reported_start(&mut self, client: usize, session: usize, channel: &str, answer: &str) {
        let (oldest, next) = (self.records.oldest.get(channel), self.records.next.get(channel));
        let (oldest, next) = (oldest.copied().unwrap_or(0), next.copied().unwrap_or(0));
        let Some(follower) = &mut self.clients[client].follower else { return };
        let Some(Footing::Requested(named, first)) = follower.footing.get(channel).copied() else { return };
        let from = member(answer, "from").and_then(integer).unwrap_or_default() as u64;
        let reported = Reported::read(answer);
        let recovered = member(answer, "recovered") == Some("true");
        follower.footing.insert(channel.to_owned(), Footing::Firm);
        let last = follower.last.get(channel).map(|last| last.1);
        // Messages of an earlier subscription may lie between.
        if last.is_none_or(|last| last < from) {
            follower.last.insert(channel.to_owned(), (reported.epoch.clone(), from - 1));
        }
        let honest = match named {
            Some(id) if recovered => from == id + 1,
            Some(id) => (id + 1 < oldest || id >= next) && from > id,
            None => recovered,
        };
        if !honest || (first.is_none() && named.is_some() && last.is_some_and(|last| last >= from)) {
            let detail = format!("client {client} asked for {channel} after {named:?}, {oldest} is retained: {answer}");
            return self.checker.fail(Invariant::PositionsHonest, detail);
        }
        let early = follower.early_losses.remove(channel).filter(|(first, last)| *first <= from && *last >= from);
        if let (Some((_, last)), None) = (early, first) {
            follower.last.insert(channel.to_owned(), (reported.epoch.clone(), last));
        }
        if let Some(first) = first {
            // The first message arrived before this reply.
            self.check_no_gap(session, channel, from, first, &reported, "before the first message");
        }
        self.check_reported_loss(session, channel, &reported);
    }

    /// Handles the positions in a connect reply.
    pub(super) fn reported_positions(&mut self, client: usize, session: usize, raw: &str) {
        let Some(seen_positions) = member(raw, "ext").and_then(|ext| member(ext, "replay")) else { return };
        let mut names = BTreeSet::new();
        for (channel, position) in members(seen_positions) {
            let channel = channel.decode().unwrap_or_default().into_owned();
            if !names.insert(channel.clone()) {
                let detail =
                    format!("a connect reply of session {session} has two entries for {channel}: {seen_positions}");
                return self.checker.fail(Invariant::PositionsHonest, detail);
            }
            let reported = Reported::read(position);
            self.checker.tally.heartbeats += 1;
            self.check_reported_loss(session, &channel, &reported);
            let Some(follower) = &mut self.clients[client].follower else { return };
            let firm = matches!(follower.footing.get(&channel), Some(Footing::Firm | Footing::Requested(_, Some(_))));
            if let (Some((first, Some(last))), Some(Footing::Requested(_, None))) =
                (reported.lost, follower.footing.get(&channel))
            {
                follower.early_losses.insert(channel.clone(), (first, last));
            }
            let (Some(id), Some((_, last))) = (reported.id, follower.last.get(&channel).cloned()) else { continue };
            if firm && id > last {
                follower.last.insert(channel.clone(), (reported.epoch.clone(), id));
                self.check_no_gap(session, &channel, last + 1, id + 1, &reported, "with a connect reply");
            }
        }
    }

    /// The messages that clients that replay still have to get.
    pub(super) fn missing_positions(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (number, client) in self.clients.iter().enumerate() {
            let (Some(follower), Phase::On(session)) = (&client.follower, client.phase) else { continue };
            if !self.checker.sessions[session].alive || self.checker.sessions[session].left {
                continue;
            }
            for (channel, footing) in &follower.footing {
                let next = self.records.next.get(channel.as_str()).copied().unwrap_or(0);
                let last = follower.last.get(channel).map_or(next, |last| last.1);
                let mut required = self.records.required(channel, last + 1..next.max(last + 1));
                let wanted = required.find(|id| !self.is_own(session, channel, *id));
                if let Some(id) = wanted.filter(|_| *footing == Footing::Firm) {
                    missing.push(format!("client {number} has {channel} up to {last}, not {id}"));
                }
            }
        }
        missing
    }
}
