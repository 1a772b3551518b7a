//! Connects of a session: held, answered, or the last ones before its end; and the beginning and the end of the session.

use std::collections::BTreeSet;

use bayeux::ChannelName;
use bayeux::advice::Advice;
use bayeux::ext;
use bayeux::ext::{Heartbeat, PositionForm};
use bayeux::session::{Circumstances, Verdict};

use crate::channels::LastReceived;
use crate::delivery::Delivery;
use crate::delivery::outbox::{InFlight, Kind, payloads};
use crate::delivery::sessions::loss::Loss;
use crate::delivery::sessions::session::{Confirmation, HeldConnect, Next, ReplyTo, Session};
use crate::delivery::sessions::unacked::Unacked;
use crate::events::{SessionKey, SocketKey};
use crate::id::Id;
use crate::rights::table::Granted;

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// Bayeux, with these extensions.
    Bayeux { acknowledges: bool, replays: Option<PositionForm> },
    /// Nothing: it only gets the messages of its subscriptions.
    Plain,
}

/// The decision about a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connected {
    pub(crate) verdict: Verdict,
    /// True if its reply takes along all that waits: it may be the last one of a session that ends.
    pub(crate) is_last: bool,
    /// True if it could be held, even if not this one but the next.
    pub(crate) could_be_held: bool,
    /// True if it is the first one of its session.
    pub(crate) is_first: bool,
}

impl Delivery {
    /// Adds a session that may be opened.
    pub(crate) fn open(
        &mut self,
        granted: Granted,
        id: Id,
        browser: Option<Id>,
        protocol: bayeux::Session,
        speaks: Speaks,
    ) -> SessionKey {
        let is_plain = speaks == Speaks::Plain;
        let (acknowledges, replays) = match speaks {
            Speaks::Bayeux { acknowledges, replays } => (acknowledges, replays),
            Speaks::Plain => (false, Some(PositionForm::Plain)),
        };
        let unacked = acknowledges.then(Unacked::default);
        let confirmation = Confirmation::new(unacked, self.settings.connect_deliver_only && !is_plain);
        let key = self.sessions.insert(granted, id, browser, protocol, confirmation, self.now.ms);
        if let Some(form) = replays {
            self.start_replaying(key, form);
        }
        key
    }

    /// Notes that the client of a session connects: it has read earlier responses.
    pub(crate) fn was_read(&mut self, key: SessionKey) -> u32 {
        self.sessions.get_mut(key).map_or(0, Session::was_read)
    }

    /// Notes that the client of a session that acknowledges has got this batch and all before it.
    pub(crate) fn confirm(&mut self, key: SessionKey, batch: i64) {
        let session = self.sessions.get_mut(key);
        self.metrics.deliveries.add(session.map_or(0, |session| session.confirm(batch)));
    }

    /// Decides about a connect that comes on this WebSocket, or by a request. None if the session is gone.
    pub(crate) fn connect(
        &mut self,
        key: SessionKey,
        on: Option<SocketKey>,
        advice: Option<bayeux::ClientAdvice>,
        may_hold: bool,
    ) -> Option<Connected> {
        let room = self.response_room();
        let has_room = on.is_some() || room.is_some();
        let terms = self.terms_of(key);
        let session = self.sessions.get_mut(key)?;
        let queued = session.next_on(on) == Next::Respond && has_room;
        // Messages that do not fit into a response come with the next connect. The last connect gets the disconnect
        // advice.
        let is_last = session.fits(on, room.unwrap_or(0));
        let circumstances = Circumstances { advice, may_hold, queued };
        let is_first = session.protocol.is_new();
        let verdict = session.protocol.connect(self.now.ms, &terms, &circumstances);
        if verdict == Verdict::Disconnect && on.is_some() {
            // Each connect takes some of the queue, so the client is not silent.
            session.protocol.end(self.now.ms, &terms);
        }
        Some(Connected { verdict, is_last, could_be_held: may_hold && !queued, is_first })
    }

    /// Holds a connect. It is returned by [`Delivery::write`] or [`Delivery::session_due`] when it has to be answered.
    pub(crate) fn hold(&mut self, key: SessionKey, on: ReplyTo, held: HeldConnect) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let by_request = match &on {
            ReplyTo::Request(exchange, _) => Some(*exchange),
            ReplyTo::Socket(_) => None,
        };
        by_request.into_iter().for_each(|exchange| self.exchanges.hold(exchange, key, session.browser));
        session.hold(on, held);
        self.metrics.held.set(self.metrics.held.get() as usize + 1);
        let has_pages = session.replay.as_ref().is_some_and(|replay| replay.has_pages());
        if by_request.is_some() && session.next() == Next::Respond && self.response_room().is_none() {
            self.answer_when_there_is_room(key);
        } else if has_pages {
            self.replay_later(key);
        }
        self.arm(key);
    }

    /// The advice for a connect reply, if its client needs any.
    pub(crate) fn take_advice(&mut self, key: SessionKey) -> Option<Advice> {
        let (terms, advises_grace) = (self.terms_of(key), self.settings.handshake_reconnect);
        let protocol = &mut self.sessions.get_mut(key)?.protocol;
        let max_interval_ms = advises_grace.then(|| protocol.grace_ms(&terms));
        protocol.take_advice(&terms).map(|advice| Advice { max_interval_ms, ..advice })
    }

    /// Closes a batch of a session that acknowledges, and returns its number.
    pub(crate) fn close_batch(&mut self, key: SessionKey) -> Option<u64> {
        self.sessions.get_mut(key).and_then(Session::close_batch)
    }

    /// True if all that waits for a session goes out before one more reply on its connection.
    pub(crate) fn takes_all(&self, key: SessionKey) -> bool {
        self.sessions.get(key).is_some_and(|session| {
            let socket = session.socket();
            // On a WebSocket only a session that acknowledges gets its queue in batches.
            let is_pushed = socket.is_some() && session.unacked().is_none();
            !session.is_away() && (is_pushed || session.fits(socket, self.response_room().unwrap_or(0)))
        })
    }

    /// Queues the last message of a session that ends with one of its next connects. Returns false if it ends already.
    pub(crate) fn end_later(&mut self, key: SessionKey, last: &[u8]) -> bool {
        let terms = self.terms_of(key);
        let Some(session) = self.sessions.get_mut(key).filter(|session| !session.protocol.is_ending()) else {
            return false;
        };
        if !session.protocol.is_held() {
            session.protocol.end(self.now.ms, &terms);
        }
        let write = |bytes: &mut Vec<u8>| bytes.extend_from_slice(last);
        let frames = self.encoder.single(websocket::Opcode::Text, last.len(), write);
        session.outbox.push(&frames, Kind::Messages);
        session.urgent = true;
        self.arm(key);
        true
    }

    /// Lets a session whose held connect was answered end with its next connects.
    pub(crate) fn end_with_next_connects(&mut self, key: SessionKey) {
        let (now_ms, terms) = (self.now.ms, self.terms_of(key));
        self.sessions.get_mut(key).into_iter().for_each(|session| session.protocol.end(now_ms, &terms));
        self.arm(key);
    }

    /// Gives up the queue of a session that is too slow, before its owner ends it. Returns its WebSocket.
    pub(crate) fn drop_queue(&mut self, key: SessionKey) -> Option<SocketKey> {
        let session = self.sessions.get_mut(key)?;
        let (queue, socket) = (std::mem::take(&mut session.outbox), session.socket());
        self.discard(queue);
        socket
    }

    /// Removes a session. Its request gets an error, its WebSocket stays open and gets what is left in its queue. Returns
    /// its id.
    pub(crate) fn close(&mut self, key: SessionKey) -> Option<Id> {
        self.withdraw_now(key);
        // Its HTTP request must not wait forever.
        self.end_held(key, 503);
        let mut session = self.sessions.remove(key)?;
        self.own_terms.forget(key.index);
        session.replay.iter().for_each(|replay| self.forms[replay.form as usize] -= 1);
        self.disarm(session.armed_ms);
        if let Some(exchange) = session.response_in_flight() {
            self.exchanges.end(&exchange);
            // Older messages are on their way in a response. These would overtake them.
            session.outbox.drop_messages();
        }
        if let Some(socket) = session.socket() {
            if self.is_stream(socket) {
                self.has_left_stream(session.browser);
            }
            if session.must_resend(Some(socket)) {
                // Messages sent on an earlier connection may still arrive. Newer ones must not come before them, and
                // the client must not come back with the positions of newer ones. Only the disconnect message stays.
                session.outbox.filter(|_, payload| payload.starts_with(b"[{\"channel\":\"/meta/"));
            }
            self.inherit(socket, std::mem::take(&mut session.outbox));
        }
        let id = session.id;
        let steps = session.discard(&mut self.waste);
        self.schedule.count_steps(steps);
        Some(id)
    }

    /// The member `replay` of the `ext` of a connect reply on this WebSocket, or in a response: the client's position
    /// in the history of each channel it subscribes to, and what it has lost. `at` returns one of its `count`
    /// subscriptions, and how far the channel has been fanned out.
    ///
    /// A client takes a position as received up to there, so no reply may overtake messages. A position is reported
    /// only if no message waits for the client that has not gone out on this very connection. A loss is reported only
    /// if no message of its channel waits. Nothing is reported while a response is on its way, because its messages may
    /// come back. So it does not matter how many of the waiting messages go with this reply.
    pub(crate) fn heartbeat<'c>(
        &mut self,
        key: SessionKey,
        on: Option<SocketKey>,
        count: usize,
        at: impl Fn(usize) -> (&'c str, Option<&'c LastReceived>),
    ) -> Option<String> {
        let session = self.sessions.get(key).filter(|session| session.may_send(on))?;
        let waiting = session.replay.as_ref().filter(|replay| replay.has_losses()).map(|_| Waiting::of(session, on));
        self.metrics.losses_delayed.add(usize::from(matches!(waiting, Some(Waiting::Any))));
        let quiet = session.outbox.is_empty() && !session.must_resend(on);
        let batch = session.unacked().map(Unacked::next_batch);
        let replay = self.sessions.get_mut(key)?.replay.as_mut()?;
        let losses = waiting.map(|waiting| replay.report_losses(batch, |name| waiting.has(name))).unwrap_or_default();
        let first = replay.beat;
        let lost: BTreeSet<&str> = losses.iter().map(|loss| &*loss.name).collect();
        let mut members = Vec::new();
        let mut looked_at = 0;
        while quiet && looked_at < count && members.len() < HEARTBEAT_CHANNELS_MAX {
            let (name, received) = at((first + looked_at) % count);
            looked_at += 1;
            let cursor = replay.cursors.of(name);
            let is_lost = lost.contains(name);
            let far = match (cursor, received) {
                _ if name.ends_with('*') || replay.withholds(ChannelName::known(name)) => None,
                (Some(cursor), _) if cursor.below > 0 => None,
                (Some(cursor), Some(received)) if !cursor.open && received.serial >= cursor.ring.serial => {
                    // Offsets of an epoch that is over say nothing.
                    let own = if received.epoch == cursor.epoch { cursor.next - 1 } else { 0 };
                    Some((received.epoch.clone(), received.offset.max(own)))
                }
                (Some(cursor), _) => Some((cursor.epoch.clone(), cursor.next - 1)),
                (None, received) => received.map(|received| (received.epoch.clone(), received.offset)),
            };
            if let Some((epoch, offset)) = far.filter(|_| !is_lost) {
                let heartbeat = Heartbeat { epoch: (*epoch).into(), offset: Some(offset), lost: None };
                members.push(format!("\"{name}\":{}", heartbeat.to_json()));
            }
        }
        replay.beat = if count == 0 { 0 } else { (first + looked_at) % count };
        members.extend(losses.iter().map(Loss::to_member));
        (!members.is_empty()).then(|| format!("\"replay\":{{{}}}", members.join(",")))
    }
}

/// The channels of the messages that wait for a session.
enum Waiting {
    /// These channels.
    Of(BTreeSet<String>),
    /// Unknown: there are too many messages to look at.
    Any,
}

impl Waiting {
    /// The waiting messages that a reply on this WebSocket, or in a response, may overtake.
    fn of(session: &Session, on: Option<SocketKey>) -> Waiting {
        let unacked = session.unacked();
        if on.is_some() && unacked.is_none() && !session.is_pushed_to() {
            // They go out before the reply, and nothing removes them any more. On a WebSocket that pushes, a full queue
            // leaves its messages to the histories, also those before a reply.
            return Waiting::Of(BTreeSet::new());
        }
        let to_resend = unacked.into_iter().flat_map(|unacked| unacked.to_resend(on));
        if session.outbox.waiting_bytes() + to_resend.clone().map(InFlight::bytes).sum::<usize>() > WAITING_BYTES_MAX {
            return Waiting::Any;
        }
        let mut channels = BTreeSet::new();
        for frames in to_resend.flat_map(InFlight::ranges).chain(session.outbox.message_ranges()) {
            let bytes = frames.chunk.slice(frames.start, frames.end);
            let names = payloads(&bytes).filter_map(ext::position_of).map(|(channel, ..)| channel.into_owned());
            channels.extend(names);
        }
        Waiting::Of(channels)
    }

    fn has(&self, channel: &str) -> bool {
        match self {
            Waiting::Of(channels) => channels.contains(channel),
            Waiting::Any => true,
        }
    }
}

/// The most waiting bytes that are searched before a loss is reported. With more, the loss waits for a later connect:
/// each one takes some.
const WAITING_BYTES_MAX: usize = 256 * 1024;

/// The most channels whose position one connect reply reports. The next replies report the others.
const HEARTBEAT_CHANNELS_MAX: usize = 64;
