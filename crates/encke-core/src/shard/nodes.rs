//! Sessions of a node of a cluster: searches for those that other nodes may have, their coming and going, and reports of those
//! that other nodes may have to go on with.

use bayeux::{ChannelName, Message, Reply};

use crate::channels::Channels;
use crate::clients::Clients;
use crate::delivery::{Incomplete, Received};
use crate::events::{
    Closing, Effect, OTHER_NODES, PublishToken, Request, Searched, SessionKey, ShardMessage, SocketKey, crosses_nodes,
};
use crate::history::MissedRange;
use crate::id::Id;
use crate::node_messages::{ForNodes, FromNodes, Given, Release, Restored, Searcher, Since};
use crate::opener::Opener;
use crate::protocol::batch::{Batch, Via};
use crate::saved::{Saved, SavedSession, Stage};
use crate::shard::changes::{Change, Changes};
use crate::shard::node_moves::{MOVE_BYTES, SUBSCRIPTION_BYTES};
use crate::shard::{Env, Machines};

/// The sessions that have changed since they were reported, and what waits to be asked.
#[derive(Debug, Default)]
pub(super) struct Unrecorded {
    changes: Changes,
    /// The time of the next reports, in milliseconds.
    due_ms: u64,
    /// The token of the reply that waits for the end which is reported next.
    awaited: Option<u64>,
    /// Sessions that ask again for the messages that they have missed, with the time until which they may, in milliseconds.
    late: Vec<(u64, SessionKey, Id)>,
}

impl Machines {
    /// Processes a message of the cluster.
    pub(super) fn take_from_nodes(&mut self, message: FromNodes) {
        match message {
            FromNodes::Restore(id, restored) => self.restore_from_node(id, *restored),
            FromNodes::Searched(socket) => {
                if self.delivery.is_open(socket) {
                    self.requests.searched.insert(socket);
                    self.delivery.aside().set_suspended(socket, false);
                }
            }
            FromNodes::Unsearched(socket) => {
                let Closing { code, reason } = TRY_AGAIN;
                self.delivery.close_socket(socket, code, reason);
                self.delivery.aside().set_suspended(socket, false);
            }
            FromNodes::Relay(socket, node) => {
                if self.delivery.is_open(socket) {
                    self.emit(Effect::Relay(socket, node));
                }
            }
            FromNodes::Release(id, release) => {
                let given = self.give_to_node(&id, &release);
                self.tell_nodes(ForNodes::Released(release.number, given));
            }
            FromNodes::Leave(id) => self.leave_to_node(&id),
            FromNodes::Report(id) => self.delivery.find(&id).into_iter().for_each(|key| self.note_change(key)),
            FromNodes::Tick(tick) => self.take_tick(tick),
            FromNodes::Missed(id, ranges) => self.take_missed(&id, ranges),
            FromNodes::Unsettled(id) => {
                // At its positions, the client gets what was in the response.
                if let Some(key) = self.delivery.find(&id).filter(|key| self.delivery.may_have_lost(*key)) {
                    self.begin_again(key, id, "it may have missed messages of histories with a node that is gone");
                }
            }
        }
    }

    /// Asks the other nodes for the session of a request, which comes back, or is answered by one of them.
    pub(super) fn search_for_request(&mut self, session: Id, request: Request, is_connect: bool) {
        let origins = self.clients.newcomers.origins(request.peer);
        self.requests.forward(request.exchange, OTHER_NODES.into());
        let waiting = Searcher::Request { request: Box::new(request), is_connect };
        self.tell_nodes(ForNodes::Search { session, origins, waiting });
    }

    /// Asks the other nodes for the session of a WebSocket, which is not read until then.
    pub(super) fn search_for_socket(&mut self, session: Id, socket: SocketKey) -> Received {
        if !self.delivery.may_move(socket) {
            return Received::Here;
        }
        let origins = self.beside().sessions.origins_of(socket);
        let opener = self.delivery.socket(socket).map_or(Opener::Page, |socket| socket.opener());
        self.delivery.aside().set_suspended(socket, true);
        self.tell_nodes(ForNodes::Search { session, origins, waiting: Searcher::Socket(socket, opener) });
        Received::Searches
    }

    /// Notes that the record of a session is out of date.
    #[inline]
    pub(super) fn note_change(&mut self, key: SessionKey) {
        if self.env.shared.is_clustered() {
            self.env.unrecorded.changes.note(key, || self.clients.counted_for(key));
        }
    }

    /// Notes that a subscription of a session has changed, which its client relies on.
    #[inline]
    pub(super) fn note_subscriptions(&mut self, key: SessionKey) {
        if self.env.shared.is_clustered() {
            self.env.unrecorded.changes.note(key, || self.clients.counted_for(key)).has_subscribed = true;
        }
    }

    /// Notes that a session has the subscriptions of its record.
    pub(super) fn note_restored(&mut self, key: SessionKey) {
        if self.env.shared.is_clustered() {
            self.env.unrecorded.changes.note(key, || self.clients.counted_for(key)).has_subscribed = false;
        }
    }

    /// Reports the end of a session. `binds`: see [`EndReason::binds`].
    pub(super) fn note_end(&mut self, session: Id, binds: bool) {
        if self.env.shared.is_clustered() {
            let reply = self.env.unrecorded.awaited.take();
            self.tell_nodes(ForNodes::Ended { session, binds, reply });
        }
    }

    /// Replies to a disconnect: now, or in a cluster when no other node can go on with the session, which ends next.
    pub(super) fn reply_to_disconnect(
        &mut self,
        batch: &mut Batch,
        message: &Message<'_>,
        key: SessionKey,
        reply: &Reply<'_>,
    ) {
        let follows_others = |socket: SocketKey| self.delivery.owes_replies(socket);
        let may_wait = self.env.shared.is_clustered()
            && !self.requests.owed.is_full()
            && !matches!(batch.via, Via::Socket(socket) if follows_others(socket));
        if !may_wait {
            return batch.reply(reply);
        }
        let mut text = Vec::new();
        reply.write(&mut text);
        let token = self.requests.owed.new_token();
        if let Via::Socket(socket) = batch.via {
            self.delivery.aside().owe_reply(socket);
        }
        self.requests.owed.owe_written(token, batch, message, key, text);
        self.env.unrecorded.awaited = Some(token);
    }

    /// Reports the sessions that have changed, as many at once as a turn has room for. Their owners take turns, so one with many large sessions
    /// delays no other. Those that have not connected yet are reported when they have.
    pub(super) fn report_changes(&mut self) {
        let Env { unrecorded, now, .. } = &mut self.env;
        if unrecorded.changes.is_empty() || now.ms < unrecorded.due_ms {
            return;
        }
        unrecorded.due_ms = now.ms + REPORT_EVERY_MS;
        let mut steps = 0;
        while steps < REPORT_STEPS_MAX
            && let Some((key, change)) =
                self.env.unrecorded.changes.next(|key| weight_of(key, &self.channels, &self.clients))
        {
            steps += weight_of(key, &self.channels, &self.clients);
            self.report_change_of(key, change);
        }
    }

    /// Reports all of a session that has to outlive its node, if it has connected, before its turn.
    pub(super) fn report_session(&mut self, key: SessionKey) {
        let change = self.env.unrecorded.changes.take(key);
        self.report_change_of(key, change);
    }

    fn report_change_of(&mut self, key: SessionKey, change: Change) {
        self.env.count_steps(1);
        // The end of one that the server has ended is reported already.
        let record = Some(key).filter(|key| !self.is_ending(*key)).and_then(|key| self.delivery.record(key));
        let record = record.filter(|record| record.stage != Stage::New);
        if let Some(record) = record {
            self.env.count_steps(self.channels.count_of(key.index));
            let (policy, since) = (self.clients.policy_of(key), self.env.confirmed.since(key));
            let (id, has_subscribed) = (record.id, change.has_subscribed);
            let session = SavedSession { policy: None, ..self.completed(key, record, policy) };
            let saved = Saved { policy, messages: Vec::new(), sessions: vec![session] };
            let owner = self.clients.counted_for(key).unwrap_or_default();
            self.tell_nodes(ForNodes::Changed { session: id, owner, saved: Box::new(saved), since, has_subscribed });
        }
    }

    /// Goes on with a session of another node, if the settings and the rights of this one admit it. Otherwise it has ended.
    fn restore_from_node(&mut self, id: Id, restored: Restored) {
        let Restored { saved: Saved { policy, messages, sessions }, is_whole, has_mark, origins } = restored;
        let Some(session) = sessions.into_iter().next().map(|session| SavedSession { id, ..session }) else { return };
        self.env.gauges_are_old = true;
        if self.delivery.find(&id).is_some() {
            return self.tell_nodes(ForNodes::Restored(id));
        }
        let has_missed = !is_whole && self.is_promised_messages(&session);
        // The client of a session that replays subscribes again, at its exact positions.
        let resumes = has_missed && has_mark && session.replay.is_none();
        let outcome = match has_missed && !resumes {
            true => Err("messages that it was promised are lost with its node".into()),
            false => self.may_restore(&session, session.policy.unwrap_or(policy)),
        };
        let counted_for = self.env.session_owner(session.identity.as_ref(), origins);
        let outcome = outcome.and_then(|admitted| match self.count_session(counted_for) {
            true => Ok(admitted),
            false => Err("sessions_max".into()),
        });
        match outcome {
            Ok(admitted) => {
                let mut frames = vec![None; messages.len()];
                let session = leapt(session, if is_whole { 0 } else { LEAP });
                self.restore_session(&session, admitted, (counted_for, origins), &messages, &mut frames);
                let key = self.delivery.find(&id);
                if let Some(key) = key {
                    self.follow_confirmations(key, resumes);
                    if is_whole {
                        self.env.node_moves.came(self.env.now.ms, key);
                        // Its record may be older.
                        self.note_subscriptions(key);
                    }
                }
                tracing::info!(session = ?id, is_whole, "session taken from another node");
                self.env.metrics.taken_from_nodes.add(1);
                let unknown = self.unknown_names(session.subscriptions.iter().map(|name| &**name));
                if !unknown.is_empty() {
                    let number = self.requests.owed.new_token();
                    self.requests.restored.insert(number, id);
                    let token = PublishToken { shard: self.env.index as u16, number };
                    return self.emit(Effect::AwaitInterest(unknown, token));
                }
            }
            Err(reason) => {
                self.refuse(id, &reason);
                return self.tell_nodes(ForNodes::Restored(id));
            }
        }
        self.is_restored(id);
    }

    /// A session of another node is not taken.
    fn refuse(&mut self, id: Id, reason: &str) {
        tracing::info!(session = ?id, reason, "session of another node not taken: its client must handshake again");
        self.env.metrics.unrestored.add(1);
        self.note_end(id, false);
    }

    /// Publications of other nodes arrive for a session. One that has missed messages of histories gets these first.
    fn is_restored(&mut self, id: Id) {
        let resumes = |key: &SessionKey| self.env.confirmed.since(*key) == Since::Taken;
        match self.delivery.find(&id).filter(resumes) {
            Some(key) => {
                // Those with an interval get the messages of now only.
                let own = self.channels.names_of(key.index).zip(self.channels.intervals_of(key.index));
                let names = own.filter(|(_, interval)| interval.is_none()).map(|(name, _)| Box::from(name)).collect();
                let (room, owner) = (self.delivery.outbox_room(), self.clients.counted_for(key).unwrap_or_default());
                self.tell_nodes(ForNodes::Resumes { session: id, owner, names, room });
            }
            None => self.tell_nodes(ForNodes::Restored(id)),
        }
    }

    /// Takes the ranges of the messages that a session has missed. It was subscribed before they were read, so no further one is missing.
    fn take_missed(&mut self, id: &Id, ranges: Option<Vec<MissedRange>>) {
        let Some(key) = self.delivery.find(id) else { return self.tell_nodes(ForNodes::Restored(*id)) };
        if !self.env.confirmed.awaits_missed(key) {
            // It has asked twice. The first answer holds.
            return;
        }
        let Some(ranges) = ranges else { return self.resumption_ended(key, *id, Err(Incomplete)) };
        if self.admission.waiting() > 0 {
            // Some of these messages may wait for their fan-out, and would come twice.
            let until_ms = self.env.confirmed.late_until_ms(key, self.env.now.ms);
            return self.env.unrecorded.late.push((until_ms, key, *id));
        }
        self.env.confirmed.has_begun(key);
        let (settings, channels) = (&mut self.env.settings, &self.channels);
        self.delivery.remove_read(key, &mut |name| {
            crosses_nodes(name)
                && channels.receives(key.index, name)
                && settings.seen_history(ChannelName::known(name)).is_some()
        });
        self.note_had_of_histories(key);
        self.delivery.begin_resumption(key, ranges);
    }

    /// Asks again for the messages that sessions have missed, if those before them are fanned out. Sessions that have waited for long end.
    pub(super) fn resume_late(&mut self) {
        if self.env.unrecorded.late.is_empty() {
            return;
        }
        let (is_behind, now_ms) = (self.admission.waiting() > 0, self.env.now.ms);
        self.env.count_steps(self.env.unrecorded.late.len());
        let mut late = std::mem::take(&mut self.env.unrecorded.late);
        // Another answer may have come.
        late.retain(|(_, key, _)| !self.delivery.has(*key) || self.env.confirmed.awaits_missed(*key));
        let (given_up, late): (Vec<_>, Vec<_>) = late.into_iter().partition(|(until_ms, ..)| now_ms >= *until_ms);
        given_up.into_iter().for_each(|(_, key, id)| self.resumption_ended(key, id, Err(Incomplete)));
        match is_behind {
            true => self.env.unrecorded.late = late,
            false => late.into_iter().for_each(|(_, _, id)| self.is_restored(id)),
        }
    }

    /// A session has all messages that it has missed, or cannot get all, or has ended before.
    pub(super) fn resumption_ended(&mut self, key: SessionKey, id: Id, outcome: Result<(), Incomplete>) {
        match outcome {
            Err(Incomplete) if self.delivery.has(key) => {
                self.begin_again(key, id, "messages that it was promised are lost with its node");
            }
            Ok(()) | Err(Incomplete) => self.env.confirmed.resumed(key),
        }
        self.tell_nodes(ForNodes::Restored(id));
    }

    /// Ends a session, so that its client begins again.
    fn begin_again(&mut self, key: SessionKey, id: Id, why: &str) {
        self.delivery.supersede(key);
        self.delivery.drop_queue(key);
        self.remove_session(key);
        self.refuse(id, why);
    }

    /// Publications of other nodes arrive for what waits for this token. False if no session of another node does.
    pub(super) fn restored_is_known(&mut self, number: u64) -> bool {
        let restored = self.requests.restored.remove(&number);
        restored.into_iter().for_each(|id| self.is_restored(id));
        restored.is_some()
    }

    /// True if a client was promised each message of its subscriptions. If its node is gone, it must learn that some are lost, and begins
    /// again.
    fn is_promised_messages(&self, session: &SavedSession) -> bool {
        let has_history = || {
            let rules = &self.env.settings.given().channels;
            rules.iter().any(|rule| rule.history().is_some())
        };
        let is_promised = session.ack.is_some() || (session.replay.is_some() && has_history());
        is_promised && !session.subscriptions.is_empty()
    }

    /// Takes a session and its messages for another node. The application hears nothing: the session goes on.
    fn give_to_node(&mut self, id: &Id, release: &Release) -> Given {
        let key = self.delivery.find(id);
        let Some(key) = key.filter(|key| self.delivery.session(*key).is_some_and(|session| !session.is_plain())) else {
            return Given::Unknown;
        };
        if !self.delivery.aside().is_usable(key, release.opener) {
            return Given::Refused;
        }
        if self.is_ending(key) {
            // The time for its client to fetch the rest would begin again there.
            return Given::Stays;
        }
        let policy = self.clients.policy_of(key);
        let record = self.delivery.record(key).map(|record| self.completed(key, record, policy));
        if record.is_some_and(|record| self.is_promised_messages(&record)) {
            return Given::Stays;
        }
        let (bytes, is_busy) = self.delivery.burden(key);
        if bytes > release.bytes_max {
            return Given::TooLarge;
        }
        if is_busy && !release.is_urgent {
            return Given::Busy;
        }
        if !self.may_move_again(key, bytes) {
            return Given::Stays;
        }
        self.send_waiting_to(key);
        let socket = self.delivery.session(key).and_then(|session| session.socket());
        let Some((messages, session)) = self.delivery.give(key) else { return Given::Unknown };
        let buckets_ms = self.clients.buckets_ms(key, self.env.now);
        let session = SavedSession { policy: None, buckets_ms, ..self.completed(key, session, policy) };
        self.remove_session(key);
        if let Some(socket) = socket {
            self.delivery.close_socket(socket, 1000, "session moved");
        }
        tracing::info!(session = ?id, "session given to another node");
        self.env.metrics.given_to_nodes.add(1);
        Given::Session(Box::new(Saved { policy, messages, sessions: vec![session] }))
    }

    /// True if neither the session nor what its owner has moved within this second holds it here. A node that is about to stop gives all.
    fn may_move_again(&mut self, key: SessionKey, bytes: usize) -> bool {
        let owner = self.clients.counted_for(key).unwrap_or_default();
        let bytes = bytes + MOVE_BYTES + self.channels.count_of(key.index) * SUBSCRIPTION_BYTES;
        let may_move = self.env.is_draining || self.env.node_moves.give(self.env.now.ms, key, owner, bytes);
        self.env.metrics.held_from_nodes.add(usize::from(!may_move));
        may_move
    }

    /// Ends the copy of a session that another node has.
    fn leave_to_node(&mut self, id: &Id) {
        let Some(key) = self.delivery.find(id) else { return };
        if self.env.unrecorded.changes.has_subscribed(key) {
            // The other node does not have these subscriptions.
            self.report_session(key);
        }
        let socket = self.delivery.session(key).and_then(|session| session.socket());
        self.delivery.supersede(key);
        self.delivery.drop_queue(key);
        self.remove_session(key);
        if let Some(socket) = socket {
            self.delivery.close_socket(socket, 1000, "session moved");
        }
        tracing::warn!(session = ?id, "another node has this session: the copy on this one ends");
        self.env.metrics.left_to_nodes.add(1);
    }

    pub(super) fn tell_nodes(&mut self, message: ForNodes) {
        self.emit(Effect::SendToShard(OTHER_NODES.into(), ShardMessage::ForNodes(message)));
    }
}

impl Env {
    /// The id of a new session, which names the node in a cluster.
    pub(super) fn new_session_id(&mut self) -> Id {
        match self.shared.node {
            Some(node) => Id::of_node(self.index, node, &mut self.entropy),
            None => Id::new(self.index, &mut self.entropy),
        }
    }
}

/// A session whose batches and attributes get higher numbers: its client may have confirmed batches that its record does not know, and
/// the program may have seen a later version of the attributes.
fn leapt(mut session: SavedSession, leap: u64) -> SavedSession {
    session.ack.iter_mut().for_each(|ack| ack.closed += leap);
    if leap > 0 {
        session.attributes.get_or_insert_default().leap(leap);
    }
    session
}

/// The steps that a report of a session costs.
fn weight_of(key: SessionKey, channels: &Channels, clients: &Clients) -> usize {
    let attributes = clients.attributes(key).map_or(0, |attributes| attributes.bytes());
    1 + channels.count_of(key.index) + attributes / BYTES_OF_STEP
}

impl Request {
    /// The request, to be processed here whether or not its session is found.
    #[must_use]
    pub fn searched(self) -> Request {
        Request { searched: Searched::All, ..self }
    }
}

/// The time between two reports of changes, in milliseconds.
const REPORT_EVERY_MS: u64 = 250;
/// The sessions of one report and their channels, but for those of the last session.
const REPORT_STEPS_MAX: usize = 16 * 1_024;
/// Bytes of attributes that cost as much as a channel.
const BYTES_OF_STEP: usize = 64;
/// The distance between the numbers of a record and those of its successor.
const LEAP: u64 = 1 << 32;
/// The close of a WebSocket whose session cannot be asked for now.
const TRY_AGAIN: Closing = Closing { code: 1013, reason: "its node cannot be asked" };
