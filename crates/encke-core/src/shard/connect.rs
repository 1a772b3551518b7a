//! `/meta/connect` (Bayeux 1.0 §4.2): confirms what the client has received, then answers the connect, holds it, or
//! ends the session. `batch` leads here for each connect.

use bayeux::advice::Advice;
use bayeux::session::{Circumstances, Verdict};
use bayeux::{ChannelKind, Message, RawJson, Reply};

use crate::application::EndReason;
use crate::events::SessionKey;
use crate::protocol::batch::{Batch, Outcome, Via};
use crate::sessions::session::{HeldConnect, Next, ReplyTo, Session};
use crate::shard::Parts;

impl Parts {
    pub(crate) fn connect(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        let on = match batch.via {
            Via::Socket(socket) => Some(socket),
            Via::Http { .. } => None,
        };
        let socket = on.is_some();
        self.has_arrived(key);
        self.sessions.get_mut(key).map(Session::was_read);
        self.confirm(key, message.ext);
        self.refresh_by_connect(batch, message, key);
        if !socket {
            self.leave_socket(key);
        }
        self.supersede(key);
        if batch.begun.as_ref().is_none_or(|begun| !begun.gives_again) {
            self.prime(key);
        }
        if self.is_inactive(key) {
            self.end_later(key, EndReason::Kicked);
        }
        let (now_ms, terms) = (self.now.ms, self.settings.terms());
        let room = self.response_room();
        let (has_room, response_bytes_max) = (socket || room.is_some(), room.unwrap_or(0));
        let Some(session) = self.sessions.get_mut(key) else {
            // The reply to its previous connect did not fit any more, which has ended the session.
            return self.refuse_unknown(batch, message, ChannelKind::Connect);
        };
        let circumstances = Circumstances {
            advice: message.advice,
            may_hold: !self.connections.draining && (socket || batch.len == 1),
            queued: session.next_on(on) == Next::Respond && has_room,
        };
        // Messages that do not fit into a response come with the next connect. The last connect gets the disconnect
        // advice.
        let is_last = session.fits(on, response_bytes_max);
        let verdict = session.protocol.connect(now_ms, &terms, &circumstances);
        if verdict == Verdict::Disconnect && socket {
            // Each connect takes some of the queue, so the client is not silent.
            session.protocol.end(now_ms, &terms);
        }
        // Counts a connect that could be held, even if not this one but the next: the first connect of a session gets
        // the advice, too (CometD 9).
        let surplus = (circumstances.may_hold && !circumstances.queued).then(|| self.surplus(batch, key)).flatten();
        let mut advice = None;
        let mut successful = true;
        match (verdict, surplus) {
            (Verdict::Disconnect, _) if is_last => {
                advice = Some(Advice::none());
                batch.comes_to(Outcome::EndsSession);
            }
            (_, Some(surplus)) => {
                self.metrics.surplus_connects.add(1);
                successful = surplus.interval_ms.is_some();
                advice = Some(surplus);
                self.release(key);
            }
            (Verdict::Hold { .. }, None) => return self.hold(batch, message, key),
            (Verdict::Disconnect | Verdict::Answer, None) => {}
        }
        self.arm(key);
        batch.comes_to(Outcome::Connected);
        let advice = advice.or_else(|| self.take_advice(key)).map(|advice| advice.to_json());
        let (ext, timestamp) = (self.connect_ext(key, on, self.timesync(message)), self.timestamp());
        batch.reply(&Reply {
            id: message.id.as_ref(),
            successful: Some(successful),
            advice: advice.as_deref().map(RawJson::trusted),
            ext: ext.as_deref().map(RawJson::trusted),
            timestamp: timestamp.as_deref(),
            ..Reply::new(bayeux::channel::META_CONNECT)
        });
    }

    /// The advice to poll, if the browser of this session holds as many connects as it may.
    fn surplus(&self, batch: &Batch, key: SessionKey) -> Option<Advice> {
        let Via::Http { .. } = batch.via else { return None };
        let browser = self.sessions.get(key)?.browser?;
        let max = usize::try_from(self.settings.given().browser_sessions_max).ok()?;
        let held = self.connections.exchanges.held_by(&browser);
        (held >= max).then(|| Advice::multiple_clients(self.settings.given().browser_surplus_interval_ms))
    }

    pub(crate) fn hold(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        let timesync = self.timesync(message);
        let on = match &batch.via {
            Via::Socket(socket) => ReplyTo::Socket(*socket),
            Via::Http { exchange, transport, .. } => ReplyTo::Request(*exchange, transport.clone()),
        };
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let ReplyTo::Request(exchange, _) = &on {
            self.connections.exchanges.hold(*exchange, key, session.browser);
            batch.comes_to(Outcome::Held);
        }
        session.hold(on, HeldConnect { id: message.id.clone().map(bayeux::Id::into_owned), timesync });
        self.metrics.held.set(self.metrics.held.get() as usize + 1);
        let waits_for_room = batch.is(Outcome::Held) && session.next() == Next::Respond;
        if waits_for_room && self.response_room().is_none() {
            self.answer_when_there_is_room(key);
        }
        self.arm(key);
    }
}
