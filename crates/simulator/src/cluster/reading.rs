//! Responses, as clients read them.

use bayeux::json::{decode_string, elements, integer, member, members};
use encke_core::{Id, Response};

use super::checker::{Promise, Session};
use super::client::{Asked, Purpose, Track, has_history};
use super::plan::Kind;
use super::sabotage::ClusterSabotage;
use super::{Cluster, What};
use crate::texts::{field, number_of};

/// A position in a message or a reply.
#[derive(Debug)]
pub(super) struct Position {
    pub(super) epoch: String,
    pub(super) id: Option<u64>,
    /// The first and the last offset that are lost.
    pub(super) lost: Option<(u64, u64)>,
    pub(super) recovered: Option<bool>,
    pub(super) from: Option<u64>,
}

impl Position {
    fn read(raw: &str) -> Position {
        let number = |raw: &str, name| member(raw, name).and_then(integer).and_then(|id| u64::try_from(id).ok());
        let lost = member(raw, "lost").and_then(|lost| {
            let from = number(lost, "from")?;
            Some((from, number(lost, "to").unwrap_or(u64::MAX)))
        });
        let epoch = member(raw, "epoch").and_then(decode_string).map(String::from).unwrap_or_default();
        let recovered = member(raw, "recovered").map(|value| value == "true");
        Position { epoch, id: number(raw, "id"), lost, recovered, from: number(raw, "from") }
    }
}

impl Cluster {
    /// A client has a response, or its connection is gone.
    pub(super) fn response(&mut self, client: usize, exchange: u64, response: Option<Response>) {
        let Some(asked) = self.clients[client].asked.clone().filter(|asked| asked.exchange == exchange) else { return };
        let Some(response) = response else {
            self.tally.breaks += 1;
            self.abandon(&asked);
            return self.failed(client, &asked.purpose);
        };
        if response.status != 200 {
            self.note(|_| format!("client {client} gets status {}", response.status));
            self.tally.sent_back += 1;
            return self.failed(client, &asked.purpose);
        }
        self.clients[client].asked = None;
        self.clients[client].browser = response.set_browser.or(self.clients[client].browser);
        let text = String::from_utf8_lossy(&response.body).into_owned();
        self.note(|_| format!("client {client} gets {text}"));
        let mut all: Vec<&str> = elements(&text).collect();
        self.tamper(client, &mut all);
        for raw in all {
            match member(raw, "data").and_then(number_of) {
                Some(number) => self.message(client, raw, number),
                None => self.reply(client, &asked, raw),
            }
        }
        self.act_later(client, 10);
    }

    /// Changes a response, where a sabotage wants that.
    fn tamper(&mut self, client: usize, all: &mut Vec<&str>) {
        let of_history = |raw: &&str| member(raw, "data").is_some() && has_history(&field(raw, "channel"));
        let has_promise = self.clients[client].kind.acknowledges() && self.clients[client].kind.replays();
        let at = all.iter().position(of_history).filter(|_| has_promise);
        match (self.sabotage, at) {
            (ClusterSabotage::DroppedMessage, Some(at)) if self.rng.chance(100) => _ = all.remove(at),
            (ClusterSabotage::DoubledMessage, Some(at)) if self.rng.chance(100) => all.insert(at, all[at]),
            _ => {}
        }
    }

    /// A request has failed: it may have been processed.
    pub(super) fn failed(&mut self, client: usize, purpose: &Purpose) {
        self.checker.streams[client] += 1;
        let now_ms = self.now_ms;
        let state = &mut self.clients[client];
        (state.asked, state.broken_ms) = (None, now_ms);
        match purpose {
            Purpose::Publish(_) => self.tally.uncertain += 1,
            Purpose::Disconnect => self.leave(client),
            _ => {}
        }
        let state = &mut self.clients[client];
        if state.kind.replays() && !state.kind.acknowledges() {
            // Neither side knows which messages are lost: it subscribes again at its positions.
            state.granted.retain(|name, _| !has_history(name));
        }
        if let Purpose::Subscribe(names) = purpose {
            let next = |name: &&'static str| Some((*name, state.tracks.get(*name)?.next));
            state.given_up.extend(names.iter().filter_map(next));
        }
        if let Purpose::Unsubscribe(name) = purpose {
            state.granted.remove(name);
            state.wanted.insert(name);
        }
        self.act_later(client, 500);
    }

    /// A client leaves its session.
    fn leave(&mut self, client: usize) {
        let now_ms = self.now_ms;
        self.checker.streams[client] += 1;
        let state = &mut self.clients[client];
        let Some(id) = state.session.take() else { return };
        (state.ack, state.broken_ms) = (None, now_ms);
        state.granted.clear();
        state.given_up.clear();
        state.unsure.clear();
        state.unconfirmed.clear();
        if let Some(session) = self.checker.sessions.get_mut(&id) {
            session.is_over = true;
        }
    }

    fn reply(&mut self, client: usize, asked: &Asked, raw: &str) {
        let purpose = &asked.purpose;
        let (is_successful, error) = (member(raw, "successful") == Some("true"), field(raw, "error"));
        if error.starts_with("402") {
            self.tally.unknown += 1;
            // Nobody knows what it has, if the fate of a response is lost.
            let may_begin_again = self.clients[client].kind == Kind::Replay && self.plan.engine.loses_requests > 0;
            let is_calm = self.is_calm(CALM_MS) && !self.has_broken(client, CALM_MS);
            if !matches!(purpose, Purpose::Handshake) && is_calm && !may_begin_again {
                let detail = format!("the session of client {client} is unknown, though nothing has gone wrong: {raw}");
                self.checker.fail(Promise::SessionsGoOn, detail);
            }
            if let Purpose::Publish(number) = purpose {
                self.checker.publications[*number].is_refused = true;
            }
            return self.leave(client);
        }
        match (field(raw, "channel").as_str(), purpose) {
            ("/meta/handshake", Purpose::Handshake) => self.welcomed(client, raw, is_successful),
            ("/meta/subscribe", Purpose::Subscribe(names)) if is_successful => {
                self.subscribed(client, names, raw);
            }
            ("/meta/subscribe", Purpose::Subscribe(_)) => self.note(|_| format!("client {client} was refused: {raw}")),
            ("/meta/unsubscribe", Purpose::Unsubscribe(name)) => {
                self.clients[client].granted.remove(name);
                if let Some(id) = self.clients[client].session {
                    let now_ms = self.now_ms;
                    self.checker.sessions.entry(id).and_modify(|session| session.ends(name, now_ms));
                }
                if self.is_sabotaged(ClusterSabotage::EarlyUnsubscribe) {
                    let subject = super::node::subjects().of_channel(name);
                    self.engine.forget_subject(&subject);
                }
            }
            ("/meta/connect", _) => {
                self.clients[client].polled_ms = asked.sent_ms;
                self.connected(client, raw, is_successful);
            }
            ("/meta/disconnect", _) => {
                self.tally.disconnects += 1;
                let id = self.clients[client].session;
                self.leave(client);
                if let Some(session) = id.and_then(|id| self.checker.sessions.get_mut(&id)) {
                    session.ended_ms = Some(self.now_ms);
                }
            }
            (_, Purpose::Publish(number)) if is_successful => self.confirmed(*number),
            (_, Purpose::Publish(number)) => {
                self.tally.refused += 1;
                self.checker.publications[*number].is_refused = true;
            }
            _ => self.checker.fail(Promise::OneReply, format!("client {client} got a reply to nothing: {raw}")),
        }
    }

    fn welcomed(&mut self, client: usize, raw: &str, is_successful: bool) {
        let Some(id) = Id::parse(&field(raw, "clientId")).filter(|_| is_successful) else {
            return self.checker.fail(Promise::SessionsGoOn, format!("client {client} was refused: {raw}"));
        };
        self.tally.sessions += 1;
        let state = &mut self.clients[client];
        state.session = Some(id);
        state.ack = state.kind.acknowledges().then_some(0);
        let session = Session { client, opened_ms: self.now_ms, ..Session::default() };
        self.checker.sessions.insert(id, session);
    }

    fn subscribed(&mut self, client: usize, names: &[&'static str], raw: &str) {
        let now_ms = self.now_ms;
        let Some(id) = self.clients[client].session else { return };
        for name in names {
            self.clients[client].granted.insert(name, Some(now_ms));
            self.checker.sessions.entry(id).and_modify(|session| session.begins(name, now_ms));
        }
        let positions = member(raw, "ext").and_then(|ext| member(ext, "replay"));
        for (channel, position) in positions.into_iter().flat_map(members) {
            let channel = channel.decode().unwrap_or_default().into_owned();
            self.resumed(client, channel, &Position::read(position));
        }
    }

    /// A subscribe of a client that replays begins at a position.
    fn resumed(&mut self, client: usize, channel: String, at: &Position) {
        let (Some(from), Some(is_recovered)) = (at.from, at.recovered) else {
            // The channel has no history yet, so nothing goes on.
            self.clients[client].granted.remove(channel.as_str());
            return;
        };
        let is_hushed = self.is_sabotaged(ClusterSabotage::HushedLoss);
        let track = self.clients[client].tracks.get_mut(&channel);
        let Some(track) = track else {
            let track = Track { epoch: at.epoch.clone(), begin: from, next: from, ..Track::default() };
            self.clients[client].tracks.insert(channel, track);
            return;
        };
        match is_recovered {
            true => self.tally.recovered += 1,
            false => self.tally.not_recovered += 1,
        }
        let is_same = track.epoch == at.epoch;
        if is_recovered && !is_same {
            let detail = format!("client {client} goes on in epoch {} of {channel}, not in {}", at.epoch, track.epoch);
            return self.checker.fail(Promise::LossIsReported, detail);
        }
        if !is_recovered && !is_same && !is_hushed {
            let old = std::mem::take(track);
            *track = Track { epoch: at.epoch.clone(), begin: from, next: from, ..Track::default() };
            return self.checker.old_tracks.push((client, channel, old));
        }
        if is_same && !is_recovered && from < track.next {
            let detail =
                format!("client {client} has all of {channel} below {}, and gets it from {from} on", track.next);
            return self.checker.fail(Promise::NotTwice, detail);
        }
        if !is_recovered && !is_hushed && from > track.next {
            track.lost.push(at.lost.unwrap_or((track.next, from - 1)));
            track.next = from;
            self.tally.losses += 1;
        }
    }

    fn connected(&mut self, client: usize, raw: &str, is_successful: bool) {
        if !is_successful {
            let advice = member(raw, "advice").map(|advice| field(advice, "reconnect"));
            if advice.as_deref() != Some("retry") {
                self.leave(client);
            }
            return;
        }
        let now_ms = self.now_ms;
        let state = &mut self.clients[client];
        let confirmed = std::mem::take(&mut state.unconfirmed);
        if let Some(session) = state.session.and_then(|id| self.checker.sessions.get_mut(&id)) {
            let (before, now): (Vec<usize>, Vec<usize>) =
                confirmed.into_iter().partition(|number| session.is_confirmable(*number));
            before.into_iter().for_each(|number| session.confirm(number, now_ms));
            now.iter().for_each(|number| session.arm(*number));
            state.unconfirmed = now;
        }
        let ext = member(raw, "ext");
        let batch = ext.and_then(|ext| member(ext, "ack")).and_then(integer);
        if state.ack.is_some() {
            state.ack = batch.or(state.ack);
        }
        let positions = ext.and_then(|ext| member(ext, "replay"));
        for (channel, position) in positions.into_iter().flat_map(members) {
            let channel = channel.decode().unwrap_or_default().into_owned();
            self.moved_on(client, &channel, &Position::read(position));
        }
    }

    /// A connect reply reports the position of a channel.
    fn moved_on(&mut self, client: usize, channel: &str, at: &Position) {
        let Some(track) = self.clients[client].tracks.get_mut(channel) else { return };
        let Some(id) = at.id.filter(|_| track.epoch == at.epoch) else { return };
        if let Some(lost) = at.lost.filter(|_| self.sabotage != ClusterSabotage::HushedLoss) {
            self.tally.losses += 1;
            track.lost.push(lost);
        }
        track.next = track.next.max(id + 1);
    }

    /// A publication is confirmed to its publisher.
    fn confirmed(&mut self, number: usize) {
        self.tally.confirmed += 1;
        let now_ms = self.now_ms;
        let epochs = self.epochs_of(self.checker.publications[number].channel);
        let publication = &mut self.checker.publications[number];
        (publication.confirmed_ms, publication.epochs) = (Some(now_ms), epochs);
        for client in 0..self.clients.len() {
            if let Some(session) = self.clients[client].session {
                self.at(now_ms + IN_TIME_MS, What::Check { client, session, publication: number });
            }
        }
    }

    /// A message arrives.
    fn message(&mut self, client: usize, raw: &str, number: usize) {
        self.tally.arrived += 1;
        let channel = field(raw, "channel");
        let Some(publication) = self.checker.publications.get(number).filter(|of| of.channel == channel) else {
            return self.checker.fail(Promise::ExactData, format!("client {client} got what nobody has sent: {raw}"));
        };
        let is_refused = publication.is_refused && !has_history(&channel);
        if is_refused {
            return self.checker.fail(Promise::ExactData, format!("client {client} got what was refused: {raw}"));
        }
        let position = member(raw, "ext").and_then(|ext| member(ext, "replay")).map(Position::read);
        if self.clients[client].kind.replays() && has_history(&channel) {
            self.followed(client, &channel, number, position.as_ref());
        }
        self.seen(client, &channel, number);
    }
}

/// After so long without a disruption no session is unknown, in milliseconds.
const CALM_MS: u64 = 40_000;
/// The time in which a publication arrives if nothing goes wrong, in milliseconds.
const IN_TIME_MS: u64 = 8_000;
