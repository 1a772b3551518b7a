//! Held requests: each waits for messages of a channel or a pattern, and the next one continues at the positions that the
//! answer names. Over such a chain no message of a history is lost or doubled, or a gap is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bayeux::json::{elements, integer, member};
use encke_core::{Caller, Client, Entry, Granted, Identity, May, Patterns, Wish};
use encke_local::{Gap, Hold, Message, Position, Positions, Start, Subscription, held_body};

use crate::chain::{Chain, Held};
use crate::channels::{HISTORY_CHANNELS, covers, has_history, include, needed_for};
use crate::checker::Invariant;
use crate::local::next;
use crate::sabotage::Sabotage;
use crate::texts::{field, number_of};
use crate::world::World;

impl World {
    /// The chains of held requests of a run.
    pub(super) fn begin_chains(&mut self) {
        let count = self.scenario.chains;
        for at in 0..count {
            let name = self.rng.pick(&HELD);
            // Half of them have one address.
            let last = if at < count / 2 { 0 } else { 1 + at as u8 % OTHERS };
            let address = IpAddr::from([10, 0, 0, last]);
            let lateness = if self.sabotage == Sabotage::BoundlessQueue { 950 } else { self.rng.pick(&[0, 0, 900]) };
            let (after, held) = (LATEST.to_owned(), None);
            let (reached, gaps) = (BTreeMap::new(), BTreeSet::new());
            self.chains.push(Chain { name, address, lateness, after, held, reached, gaps });
        }
    }

    /// No request is held any more: the process ends, or its clients leave.
    pub(super) fn drop_held(&mut self) {
        for at in 0..self.chains.len() {
            self.release(at);
        }
    }

    /// The request of a chain is held no longer.
    fn release(&mut self, at: usize) {
        if let Some(held) = self.chains[at].held.take() {
            self.gives_back(held.hold);
        }
    }

    /// A request is counted no longer.
    fn gives_back(&mut self, hold: Hold) {
        if self.sabotage == Sabotage::ForgottenShare {
            std::mem::forget(hold);
        }
    }

    /// One of the chains goes on.
    pub(super) fn some_held(&mut self) {
        if !self.chains.is_empty() {
            self.goes_on();
            self.check_held_shares();
        }
    }

    fn goes_on(&mut self) {
        let at = self.rng.below(self.chains.len());
        if self.chains[at].held.is_none() {
            return self.hold(at);
        }
        match self.rng.below(100) {
            0..5 => self.release(at),
            // Its token is revoked.
            5..8 => {
                let Some(held) = &mut self.chains[at].held else { return };
                held.is_revoked = true;
                let token_id = held.identity.token_id.clone();
                let wall_ms = self.now.wall_ms;
                self.shared.revoked.add(&token_id.unwrap_or_default(), u64::MAX, wall_ms, usize::MAX);
            }
            _ if self.rng.chance(self.chains[at].lateness) => {}
            _ => _ = self.answer(at),
        }
    }

    /// All chains go on until no message waits for them. False if none did.
    pub(super) fn drain_held(&mut self) -> bool {
        let mut has_moved = false;
        for at in 0..self.chains.len() {
            if self.chains[at].held.is_none() {
                self.hold(at);
            }
            // Where only a few are held, each leaves its share to the next.
            if let Some(held) = self.chains[at].held.as_mut().filter(|_| self.scenario.rush) {
                held.until_ms = self.now.ms;
            }
            has_moved |= self.answer(at);
        }
        self.check_held_shares();
        has_moved
    }

    /// A request arrives and is held.
    fn hold(&mut self, at: usize) {
        if self.drained {
            return;
        }
        let which = self.rng.below(2);
        let mut settings = self.scenario.settings[which].clone();
        let messages_max = settings.in_process_messages_max;
        if self.sabotage == Sabotage::BoundlessQueue {
            settings.in_process_messages_max = usize::MAX;
        }
        let (name, after) = (self.chains[at].name, self.chains[at].after.clone());
        self.note(|_| format!("chain {at} waits for {name} after {after}"));
        let identity = self.identity_of_request(name);
        let Some(granted) = self.may_hold(&identity, name, after == LATEST) else { return };
        let Some(hold) = self.begin_hold(self.chains[at].address, &settings) else { return };
        let start: Option<Start> = after.parse().ok();
        let begun = start.and_then(|start| self.local.registry.subscribe(&settings, name, &start, granted).ok());
        let Some(subscription) = begun else {
            let detail = format!("chain {at} cannot wait for {name} after {after}");
            return self.checker.fail(Invariant::PositionsHonest, detail);
        };
        if after == LATEST {
            let histories = &self.shared.histories;
            let latest = |channel: &&str| {
                let ring = histories.find(channel, 0).filter(|_| covers(name, channel))?;
                histories.with(ring.ring, |ring| ((*channel).to_owned(), ring.next() - 1))
            };
            self.chains[at].reached = HISTORY_CHANNELS.iter().filter_map(latest).collect();
            self.chains[at].gaps.clear();
        }
        let until_ms = self.now.ms + self.rng.between(10, 1_000);
        self.chains[at].held = Some(Held { subscription, until_ms, identity, messages_max, is_revoked: false, hold });
    }

    /// The identity that the application gives a request. Some may not subscribe to its channel.
    fn identity_of_request(&mut self, name: &str) -> Arc<Identity> {
        self.message_ids += 1;
        let (is_strange, ends) = match self.healing {
            true => (false, false),
            false => (self.rng.chance(100), !self.scenario.users.is_empty() && self.rng.chance(200)),
        };
        let needed: Vec<&str> = needed_for(name).collect();
        // Of two rights, one is not enough.
        let lacking = if needed.len() > 1 { self.rng.pick(&needed) } else { ELSEWHERE };
        let patterns = if is_strange { vec![lacking] } else { needed };
        Arc::new(Identity {
            token_id: Some(format!("held{}", self.message_ids).into()),
            expires_ms: ends.then(|| self.now.wall_ms + self.rng.between(0, 500)),
            subscribe: Patterns::new(patterns).ok(),
            ..Identity::default()
        })
    }

    /// The right of a request to wait for a channel or pattern, as a shard decides about it. None if it is refused.
    fn may_hold(&mut self, identity: &Arc<Identity>, name: &str, is_first: bool) -> Option<Granted> {
        if !self.has_credentials(identity) {
            return None;
        }
        let shard = self.rng.below(self.shards.len());
        let before = self.ends(shard);
        let entry = if is_first { Entry::Hold } else { Entry::HoldAfter };
        let (client, wish) = (Client::Session(Caller::new("", Some(identity))), Wish::of(name));
        let mut may = self.shards[shard].may_without_session(self.now, entry, &client, &wish, None);
        if let May::Later(mut awaited) = may {
            let Poll::Ready(resolved) = Pin::new(&mut awaited).poll(&mut Context::from_waker(Waker::noop())) else {
                return None;
            };
            may = self.shards[shard].may_without_session(self.now, entry, &client, &wish, Some(resolved));
        }
        self.after(shard, before, false);
        let rights: Vec<String> = identity.subscribe.iter().flat_map(Patterns::names).collect();
        let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
        let is_strange = !needed_for(name).all(|name| include(&rights, name));
        match may {
            May::Granted(_) if is_strange => {
                self.checker.fail(Invariant::RightsHold, format!("a request waits for {name} with {identity:?}"));
                None
            }
            May::Granted(granted) => Some(granted),
            _ => {
                self.checker.tally.held_refused += 1;
                None
            }
        }
    }

    /// True if the credentials of a request have neither ended nor been revoked.
    fn has_credentials(&mut self, identity: &Arc<Identity>) -> bool {
        let shard = self.rng.below(self.shards.len());
        let before = self.ends(shard);
        let client = Client::Newcomer(Some(identity));
        let entry = Entry::HoldHandshake;
        let may = self.shards[shard].may_without_session(self.now, entry, &client, &Wish::default(), None);
        self.after(shard, before, false);
        matches!(may, May::Granted(_))
    }

    /// Answers a request for which there is a message, or whose time is over. False if it waits on.
    fn answer(&mut self, at: usize) -> bool {
        let now = self.now;
        let Some(held) = &mut self.chains[at].held else { return false };
        let was_behind = held.subscription.is_behind();
        let first = match next(&mut held.subscription) {
            Poll::Ready(Some(item)) => Some(item),
            Poll::Ready(None) => {
                self.release(at);
                return true;
            }
            Poll::Pending if now.ms >= held.until_ms || self.drained => None,
            Poll::Pending => return false,
        };
        let Some(mut held) = self.chains[at].held.take() else { return false };
        self.gives_back(held.hold);
        let is_over = held.identity.expires_ms.is_some_and(|end_ms| end_ms <= now.wall_ms) || held.is_revoked;
        if self.sabotage != Sabotage::HeldBeyondRights && !self.has_credentials(&held.identity) {
            self.checker.tally.held_refused += 1;
            self.note(|_| format!("chain {at} gets 401"));
            return true;
        }
        let has_items = first.is_some();
        let body = self.body_of(first, &mut held.subscription);
        let Some(positions) = held.subscription.positions() else {
            self.checker.fail(Invariant::PositionsHonest, format!("chain {at} gets no positions"));
            return true;
        };
        // The response never arrives: the next request is the same again.
        if !self.healing && self.rng.chance(self.scenario.faults * 3) {
            return has_items;
        }
        self.note(|_| format!("chain {at} gets {body}, and continues after {positions}"));
        if is_over && body.contains("\"channel\"") {
            self.checker
                .fail(Invariant::NothingAfterRights, format!("chain {at} got {body}, and its rights had ended"));
        }
        let count = elements(&body).filter(|raw| member(raw, "gap").is_none()).count();
        // The latest burst stays.
        if !was_behind && count > held.messages_max.max(self.local.burst_max) {
            let detail = format!("chain {at} got {count} messages, and {} may wait", held.messages_max);
            self.checker.fail(Invariant::QueueBounded, detail);
        }
        self.checker.tally.held_answers += u64::from(has_items);
        self.takes_answer(at, &body, &positions);
        has_items
    }

    /// The body of an answer, after the faults of the wire.
    fn body_of(&mut self, first: Option<Result<Message, Gap>>, subscription: &mut Subscription) -> String {
        let bytes_max = self.scenario.settings[0].response_bytes_max;
        let body = held_body(first, subscription, |bytes| bytes < bytes_max);
        let body = String::from_utf8_lossy(&body).into_owned();
        if self.sabotage == Sabotage::HushedGap {
            let rest: Vec<&str> = elements(&body).filter(|raw| member(raw, "gap").is_none()).collect();
            return format!("[{}]", rest.join(","));
        }
        body
    }

    /// A client takes an answer, and continues at its positions.
    fn takes_answer(&mut self, at: usize, body: &str, positions: &Positions) {
        if bayeux::json::validate(body, usize::MAX).is_err() {
            return self.checker.fail(Invariant::CleanMessages, format!("chain {at} got {body}"));
        }
        let mut seen = BTreeMap::new();
        for raw in elements(body) {
            match member(raw, "gap") {
                Some(_) => self.takes_gap(at, raw),
                None => self.takes_message(at, raw, &mut seen),
            }
        }
        for channel in HISTORY_CHANNELS {
            let Some(Position { offset, .. }) = positions.of(channel).cloned() else { continue };
            self.reaches(at, channel, offset + 1, "before the next request");
            let reached = self.chains[at].reached.entry(channel.into()).or_insert(offset);
            if *reached > offset {
                let detail = format!("chain {at} continues {channel} after {offset}, and has {reached}");
                self.checker.fail(Invariant::PositionsGrow, detail);
            } else {
                *reached = offset;
            }
        }
        let before = std::mem::replace(&mut self.chains[at].after, positions.to_string());
        if self.sabotage_once(Sabotage::RepeatedHold) {
            self.chains[at].after = before;
        } else if self.sabotage == Sabotage::SkippingHold {
            self.chains[at].after = one_further(positions);
        }
    }

    fn takes_gap(&mut self, at: usize, raw: &str) {
        self.checker.tally.held_gaps += 1;
        let Chain { name, gaps, .. } = &mut self.chains[at];
        match &*field(raw, "gap") {
            "slow" if member(raw, "messages").and_then(integer).is_some_and(|messages| messages > 0) => {
                gaps.extend(HISTORY_CHANNELS.iter().filter(|channel| covers(name, channel)).map(ToString::to_string));
            }
            "gone" => _ = gaps.insert(field(raw, "channel")),
            _ => self.checker.fail(Invariant::CleanMessages, format!("chain {at} got {raw}")),
        }
    }

    fn takes_message(&mut self, at: usize, raw: &str, seen: &mut BTreeMap<usize, u32>) {
        let (channel, data) = (field(raw, "channel"), member(raw, "data").unwrap_or_default());
        let name = self.chains[at].name;
        if !covers(name, &channel) {
            let detail = format!("chain {at} waits for {name} and got {raw}");
            return self.checker.fail(Invariant::OnlySubscribers, detail);
        }
        // The server's own messages have no numbers.
        let Some(number) = number_of(data) else { return };
        let publication = self.checker.publications.get(number);
        let Some(publication) = publication.filter(|known| known.data == data && known.channel == channel) else {
            return self.checker.fail(Invariant::ExactData, format!("chain {at} got {raw}, which nobody sent"));
        };
        let count = seen.entry(number).or_default();
        *count += 1;
        if *count > publication.copies.max(1) {
            return self.checker.fail(Invariant::NotTwice, format!("chain {at} got {raw} {count} times"));
        }
        if !has_history(&channel) {
            return;
        }
        let Ok(Position { offset, .. }) = field(raw, "position").parse() else {
            let detail = format!("chain {at} got a message without a position: {raw}");
            return self.checker.fail(Invariant::PositionsHonest, detail);
        };
        let known = self.records.number_at(&channel, offset);
        if known != Some(number) {
            let detail = format!("chain {at} got {raw} at the position of message {known:?}");
            return self.checker.fail(Invariant::OneOrder, detail);
        }
        if let Some(reached) = self.chains[at].reached.get(&channel).filter(|reached| **reached >= offset) {
            let detail = format!("chain {at} got {offset} of {channel} after {reached}");
            return self.checker.fail(Invariant::PositionsGrow, detail);
        }
        self.reaches(at, &channel, offset, "before a message");
        self.chains[at].gaps.remove(&channel);
        self.chains[at].reached.insert(channel, offset);
    }

    /// Checks that a chain has all messages below an offset, or a gap was reported.
    fn reaches(&mut self, at: usize, channel: &str, end: u64, when: &str) {
        let Chain { reached, gaps, .. } = &self.chains[at];
        let from = reached.get(channel).map_or(0, |reached| reached + 1);
        let missing = self.records.required(channel, from..end.max(from)).next();
        if let Some(missing) = missing.filter(|_| !gaps.contains(channel)) {
            let detail = format!("chain {at} never got {missing} of {channel} and no gap, {when}, at {end}");
            self.checker.fail(Invariant::LossReported, detail);
        }
    }

    /// Checks, when no message waits any more, that all chains are at the ends of their histories.
    pub(super) fn check_chains(&mut self) {
        // A server that drains answers, and holds nothing.
        let count = if self.drained { 0 } else { self.chains.len() };
        for at in 0..count {
            let name = self.chains[at].name;
            for channel in HISTORY_CHANNELS.into_iter().filter(|channel| covers(name, channel)) {
                let end = self.records.end_of(channel);
                self.reaches(at, channel, end, "in the end");
            }
        }
    }
}

/// Positions that leave out a message of each history.
fn one_further(positions: &Positions) -> String {
    let mut further = Positions::default();
    for channel in HISTORY_CHANNELS {
        if let Some(Position { epoch, offset }) = positions.of(channel).cloned() {
            further.insert(channel, Position { epoch, offset: offset + 1 });
        }
    }
    further.to_string()
}

/// Channels and patterns for which requests wait.
const HELD: [&str; 9] =
    ["/past/a", "/past/b", "/past/*", "/past/**", "/past/*", "/**", "/a/*", "/a/b", "/presence/a/**"];
/// A pattern that covers none of them.
const ELSEWHERE: &str = "/elsewhere/*";
/// The addresses of the other half of the requests.
const OTHERS: u8 = 4;
/// The `after` of the first request.
const LATEST: &str = "latest";
