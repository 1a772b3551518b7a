//! A node: events of the shards and of the engine in, commands for the engine and publications for the shards out.
//!
//! The engine is *away* until [`Node::connected`], and after [`Node::disconnected`]. Away, the node goes on alone: what it would
//! send waits within a bound, and replies to subscribes do not wait. When the engine is back it has its subscriptions again;
//! what has waited is sent [`NodeLimits::return_delay_ms`] later, because other nodes come back at that time, too.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bayeux::Limits;
use encke_core::{EncodedPublications, Interest, MailboxAccount, PublishToken, crosses_nodes};

use crate::command::Command;
use crate::envelope::{Envelope, EnvelopeError, Origin};
use crate::incoming::Incoming;
use crate::numbers::Numbers;
use crate::outgoing::Outgoing;
use crate::subject::Subjects;
use crate::wants::{Wants, WantsLimits};

/// The limits of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeLimits {
    /// Bytes of publications that wait for the engine.
    pub pending_bytes_max: usize,
    /// Bytes of envelopes that wait for room between shards.
    pub incoming_bytes_max: usize,
    /// Time for which a channel stays subscribed to after its last subscriber has left, in milliseconds.
    pub leave_delay_ms: u64,
    /// Channels with one parent that have their own subscriptions; more share one.
    pub shared_from: usize,
    /// Subscriptions at the engine; more give way to one for all channels.
    pub subscriptions_max: usize,
    /// Longest time that the reply to a subscribe waits for the engine, in milliseconds.
    pub reply_delay_max_ms: u64,
    /// Time from the return of the engine until what has waited is sent, in milliseconds.
    pub return_delay_ms: u64,
}

/// The counts of a node since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Envelopes sent.
    pub envelopes_out: u64,
    /// Messages in them.
    pub publications_out: u64,
    /// Envelopes that arrived and were passed to shards.
    pub envelopes_in: u64,
    /// Messages in them.
    pub publications_in: u64,
    /// Envelopes that arrived for channels that nobody wants.
    pub unwanted: u64,
    /// Envelopes that arrived a second time.
    pub doubled: u64,
    /// Bytes that arrived and are no valid envelope.
    pub rejected: u64,
    /// Messages that were not sent: no room, or too large.
    pub lost_out: u64,
    /// Messages that arrived and had no room. Of bytes that the engine itself drops it is not known how many they are: each counts as one.
    pub lost_in: u64,
    /// Replies to subscribes that left before the engine had confirmed.
    pub replies_unconfirmed: u64,
}

/// One node of a cluster.
pub struct Node {
    limits: NodeLimits,
    /// The limits of channel names.
    names: Limits,
    subjects: Subjects,
    origin: Origin,
    wants: Wants,
    outgoing: Outgoing,
    incoming: Incoming,
    numbers: Numbers,
    is_connected: bool,
    /// The time from which on envelopes are sent.
    sends_from_ms: u64,
    /// Bytes that the engine has and has not sent.
    in_flight: usize,
    /// The number of the last confirmation that was requested, and of the last one that has come.
    requested: u64,
    confirmed: u64,
    /// True if the engine was away: no name is known, nor in `unconfirmed`.
    knows_none: bool,
    /// Names that other nodes know of after the confirmation with this number.
    unconfirmed: BTreeMap<u64, Vec<Box<str>>>,
    /// Replies that have not been looked at yet.
    asked: Vec<(Vec<Box<str>>, PublishToken)>,
    /// Replies that wait, oldest first.
    waits: VecDeque<Wait>,
    /// Replies that leave.
    settled: Vec<PublishToken>,
    commands: Vec<Command>,
    /// Names with announcements of members that have come or gone.
    announced: Vec<(Box<str>, bool)>,
    counts: Counts,
}

/// A reply that waits for a confirmation.
struct Wait {
    confirmation: u64,
    token: PublishToken,
    until_ms: u64,
}

impl Node {
    /// A node whose engine is away. `origin` is random, and differs from that of every other node and start.
    pub fn new(subjects: Subjects, origin: u64, limits: NodeLimits, names: Limits) -> Node {
        let NodeLimits { leave_delay_ms, shared_from, subscriptions_max, .. } = limits;
        let origin = Origin(origin);
        Node {
            wants: Wants::new(WantsLimits { leave_delay_ms, shared_from, subscriptions_max }),
            outgoing: Outgoing::new(origin, limits.pending_bytes_max),
            incoming: Incoming::new(limits.incoming_bytes_max),
            limits,
            names,
            subjects,
            origin,
            numbers: Numbers::default(),
            is_connected: false,
            sends_from_ms: 0,
            in_flight: 0,
            requested: 0,
            confirmed: 0,
            knows_none: false,
            unconfirmed: BTreeMap::new(),
            asked: Vec::new(),
            waits: VecDeque::new(),
            settled: Vec::new(),
            commands: Vec::new(),
            announced: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Takes publications of this node.
    pub fn publish(&mut self, publications: &EncodedPublications) {
        let EncodedPublications { channel, frames, messages, side, is_lazy, .. } = publications;
        let lost = self.outgoing.add(channel, (*side, *is_lazy), *messages, frames);
        self.counts.lost_out += u64::from(lost);
    }

    /// A reply waits until publications on these names arrive.
    pub fn ask(&mut self, names: Vec<Box<str>>, token: PublishToken) {
        self.asked.push((names, token));
    }

    /// The engine is there, and takes envelopes of at most so many bytes. Subscriptions that it had before, it has again.
    pub fn connected(&mut self, now_ms: u64, envelope_bytes_max: usize) {
        self.outgoing.set_envelope_bytes_max(envelope_bytes_max);
        if self.is_connected {
            return;
        }
        self.is_connected = true;
        self.sends_from_ms = if self.outgoing.bytes() > 0 { now_ms + self.limits.return_delay_ms } else { now_ms };
        self.requested += 1;
        self.wants.confirm_again(self.requested);
        self.knows_none = true;
        self.commands.push(Command::Confirm(self.requested));
    }

    /// The engine is away.
    pub fn disconnected(&mut self, interest: &Interest) {
        self.is_connected = false;
        self.unconfirmed.clear();
        interest.forget_known();
        self.settled.extend(self.waits.drain(..).map(|wait| wait.token));
    }

    /// The engine has all subscriptions up to this [`Command::Confirm`].
    pub fn confirmed(&mut self, number: u64, interest: &Interest) {
        self.confirmed = self.confirmed.max(number);
        while let Some(first) = self.unconfirmed.first_entry().filter(|first| *first.key() <= number) {
            first.remove().iter().for_each(|name| _ = interest.set_known(name));
        }
        let waits = std::mem::take(&mut self.waits);
        let (settled, waits): (VecDeque<_>, _) = waits.into_iter().partition(|wait| wait.confirmation <= number);
        self.settled.extend(settled.iter().map(|wait| wait.token));
        self.waits = waits;
    }

    /// The engine has sent, or lost, envelopes of so many bytes.
    pub fn sent(&mut self, bytes: usize) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    /// The engine has dropped an envelope that had arrived.
    pub fn dropped(&mut self) {
        self.counts.lost_in += 1;
    }

    /// An envelope has arrived. Publications leave by [`Node::next_arrival`].
    ///
    /// # Errors
    /// When it is no valid envelope.
    pub fn received(&mut self, bytes: &[u8], interest: &Interest, scratch: &mut String) -> Result<(), EnvelopeError> {
        let checked = Envelope::read(bytes, &self.names).and_then(|envelope| {
            let is_wanted = interest.of(bayeux::ChannelName::known(envelope.channel), scratch) != 0;
            // Those that nobody wants cost no more than their heads.
            is_wanted.then(|| envelope.check().map(|()| envelope)).transpose()
        });
        match checked {
            Err(error) => {
                self.counts.rejected += 1;
                return Err(error);
            }
            Ok(None) => self.counts.unwanted += 1,
            Ok(Some(envelope)) if envelope.origin == self.origin => {}
            Ok(Some(envelope)) if !self.numbers.is_new(envelope.origin, envelope.number) => self.counts.doubled += 1,
            Ok(Some(envelope)) => {
                if !self.incoming.add(envelope.channel, bytes) {
                    self.counts.lost_in += messages_of(&envelope);
                }
            }
        }
        Ok(())
    }

    /// The next publications for the shards that want their channel, each part of an envelope on its own, if there is room for some.
    pub fn next_arrival(&mut self, account: &Arc<MailboxAccount>) -> Vec<EncodedPublications> {
        let next = self.incoming.next(|part| account.has_room_for_part(part));
        let Some(bytes) = next else { return Vec::new() };
        // It was valid when it arrived.
        let Ok(envelope) = Envelope::read(&bytes, &self.names) else { return Vec::new() };
        self.counts.envelopes_in += 1;
        self.counts.publications_in += messages_of(&envelope);
        let publications = envelope.parts().map(|part| EncodedPublications {
            charge: EncodedPublications::charge_of_nodes(account, envelope.channel, part.frames),
            channel: envelope.channel.into(),
            frames: part.frames.into(),
            messages: part.messages,
            side: part.side,
            is_lazy: envelope.is_lazy,
            except: None,
            position: None,
            token: None,
            publisher: None,
        });
        publications.collect()
    }

    /// True if publications wait for room between shards.
    pub fn has_arrivals(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Does what has to be done after events, or at a time. Call it after events, before [`Node::take_commands`] and
    /// [`Node::take_settled`].
    pub fn turn(&mut self, now_ms: u64, interest: &Interest) {
        // After what was asked: the interest in those names is noted already.
        let mut changes = interest.take_changes();
        // They come in any order; a simulation has to repeat.
        changes.sort_unstable();
        let mut added = Vec::new();
        for (name, is_wanted) in changes {
            if !crosses_nodes(&name) || &*name == "/**" {
                self.announced.push((name.clone(), is_wanted));
            }
            if !crosses_nodes(&name) {
                continue;
            }
            if is_wanted {
                self.wants.add(&name);
                added.push(name);
            } else {
                self.wants.remove(&name, now_ms);
            }
        }
        self.wants.expire(now_ms, |name| interest.has(name));
        if self.is_connected {
            self.change_subscriptions(now_ms);
            if std::mem::take(&mut self.knows_none) {
                added = self.wants.names().map(Box::from).collect();
            }
            added.into_iter().for_each(|name| self.note_when_known(name, interest));
        }
        self.look_at_asked(now_ms);
        self.end_waits(now_ms);
        if self.is_connected && now_ms >= self.sends_from_ms {
            self.send();
        }
    }

    /// The time at which [`Node::turn`] has something to do, if nothing happens before.
    pub fn next_ms(&self) -> Option<u64> {
        let waits = self.waits.front().map(|wait| wait.until_ms);
        let sends =
            (self.is_connected && self.outgoing.bytes() > 0 && self.has_flight_room()).then_some(self.sends_from_ms);
        [self.wants.next_ms(), waits, sends].into_iter().flatten().min()
    }

    /// Takes the commands for the engine.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// Takes the names with announcements of members that have come (true) or gone (false).
    pub fn take_announced(&mut self) -> Vec<(Box<str>, bool)> {
        std::mem::take(&mut self.announced)
    }

    /// Takes the tokens of replies that leave.
    pub fn take_settled(&mut self) -> Vec<PublishToken> {
        std::mem::take(&mut self.settled)
    }

    /// True if the engine is there and has something to send.
    pub fn has_unsent(&self) -> bool {
        self.is_connected && (self.outgoing.bytes() > 0 || self.in_flight > 0)
    }

    /// Its counts.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// True if the engine is there.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// The subscriptions at the engine, or soon there.
    pub fn subscriptions(&self) -> usize {
        self.wants.subscriptions()
    }

    /// The bytes of publications that wait for the engine, and those of envelopes that wait for the shards.
    pub fn waiting_bytes(&self) -> (usize, usize) {
        (self.outgoing.bytes(), self.incoming.bytes())
    }

    /// The number of nodes and starts of nodes from which envelopes have come.
    pub fn origins(&self) -> usize {
        self.numbers.origins()
    }

    fn change_subscriptions(&mut self, now_ms: u64) {
        let next = self.requested + 1;
        let new = self.wants.plan(self.requested, next);
        if !new.is_empty() {
            self.requested = next;
            for (key, cover) in new {
                self.commands.push(Command::Subscribe { key, subject: self.subjects.of_subscription(&cover) });
            }
            self.commands.push(Command::Confirm(next));
        }
        let ended = self.wants.ended(self.confirmed, now_ms);
        self.commands.extend(ended.into_iter().map(|key| Command::Unsubscribe { key }));
    }

    fn note_when_known(&mut self, name: Box<str>, interest: &Interest) {
        match self.wants.confirmation_of(&name) {
            Some(confirmation) if confirmation > self.confirmed => {
                self.unconfirmed.entry(confirmation).or_default().push(name);
            }
            Some(_) => _ = interest.set_known(&name),
            None => {}
        }
    }

    /// Lets replies wait that have to, and the others leave.
    fn look_at_asked(&mut self, now_ms: u64) {
        for (names, token) in std::mem::take(&mut self.asked) {
            let confirmations = names.iter().filter_map(|name| self.wants.confirmation_of(name));
            let confirmation = confirmations.max().unwrap_or_default();
            if self.is_connected && confirmation > self.confirmed {
                let until_ms = now_ms + self.limits.reply_delay_max_ms;
                self.waits.push_back(Wait { confirmation, token, until_ms });
            } else {
                self.settled.push(token);
            }
        }
    }

    fn end_waits(&mut self, now_ms: u64) {
        while let Some(wait) = self.waits.pop_front_if(|wait| wait.until_ms <= now_ms) {
            self.counts.replies_unconfirmed += 1;
            self.settled.push(wait.token);
        }
    }

    fn send(&mut self) {
        while self.has_flight_room()
            && let Some(next) = self.outgoing.next()
        {
            match next {
                Ok(sealed) => {
                    self.counts.envelopes_out += 1;
                    self.counts.publications_out += u64::from(sealed.messages);
                    self.in_flight += sealed.bytes.len();
                    let subject = self.subjects.of_channel(&sealed.channel);
                    self.commands.push(Command::Publish { subject, envelope: sealed.bytes });
                }
                Err(messages) => self.counts.lost_out += u64::from(messages),
            }
        }
    }

    fn has_flight_room(&self) -> bool {
        self.in_flight < IN_FLIGHT_BYTES
    }
}

fn messages_of(envelope: &Envelope<'_>) -> u64 {
    envelope.parts().map(|part| u64::from(part.messages)).sum()
}

/// Bytes that the engine may have and not have sent; above it envelopes wait in the node.
const IN_FLIGHT_BYTES: usize = 512 * 1024;

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
