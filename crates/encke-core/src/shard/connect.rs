//! `/meta/connect` (Bayeux 1.0 §4.2): confirms what the client has received, then answers the connect, holds it, or
//! ends the session.

use bayeux::advice::Advice;
use bayeux::session::Verdict;
use bayeux::{ChannelKind, Message, RawJson, Reply, ext};

use crate::application::EndReason;
use crate::delivery::{HeldConnect, ReplyTo};
use crate::events::SessionKey;
use crate::protocol::batch::{Batch, Outcome, Via};
use crate::shard::Machines;

impl Machines {
    pub(super) fn connect(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        let on = match batch.via {
            Via::Socket(socket) => Some(socket),
            Via::Http { .. } => None,
        };
        self.has_arrived(key);
        self.delivery.was_read(key);
        if self.delivery.acknowledges(key)
            && let Some(confirmed) = message.ext.and_then(ext::acknowledged)
        {
            self.delivery.confirm(key, confirmed);
        }
        self.refresh_by_connect(batch, message, key);
        if on.is_none() {
            self.leave_socket(key);
        }
        self.delivery.supersede(key);
        if batch.begun.as_ref().is_none_or(|begun| !begun.gives_again) {
            self.prime(key);
        }
        if self.delivery.is_inactive(key) {
            self.end_later(key, EndReason::Kicked);
        }
        let may_hold = !self.env.is_draining && (on.is_some() || batch.len == 1);
        let Some(connected) = self.delivery.connect(key, on, message.advice, may_hold) else {
            // The reply to its previous connect did not fit any more, which has ended the session.
            return self.beside().refuse_unknown(batch, message, ChannelKind::Connect);
        };
        // The first connect of a session gets the advice, too, if the next one could be held (CometD 9).
        let surplus = connected.could_be_held.then(|| self.surplus(batch, key)).flatten();
        let mut advice = None;
        let mut successful = true;
        match (connected.verdict, surplus) {
            (Verdict::Disconnect, _) if connected.is_last => {
                advice = Some(Advice::none());
                batch.comes_to(Outcome::EndsSession);
            }
            (_, Some(surplus)) => {
                self.env.metrics.surplus_connects.add(1);
                successful = surplus.interval_ms.is_some();
                advice = Some(surplus);
                self.delivery.release(key);
            }
            (Verdict::Hold { .. }, None) => return self.hold(batch, message, key),
            (Verdict::Disconnect | Verdict::Answer, None) => {}
        }
        self.delivery.arm(key);
        batch.comes_to(Outcome::Connected);
        let advice = advice.or_else(|| self.take_advice(key)).map(|advice| advice.to_json());
        let (ext, timestamp) = (self.connect_ext(key, on, self.env.timesync(message)), self.env.timestamp());
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
        let (browser, settings) = (self.delivery.session(key)?.browser()?, self.env.settings.given());
        let max = usize::try_from(settings.browser_sessions_max).ok()?;
        let is_surplus = self.delivery.held_by(&browser) >= max;
        is_surplus.then(|| Advice::multiple_clients(settings.browser_surplus_interval_ms))
    }

    fn hold(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        let on = match &batch.via {
            Via::Socket(socket) => ReplyTo::Socket(*socket),
            Via::Http { exchange, transport, .. } => {
                let on = ReplyTo::Request(*exchange, transport.clone());
                batch.comes_to(Outcome::Held);
                on
            }
        };
        let held =
            HeldConnect { id: message.id.clone().map(bayeux::Id::into_owned), timesync: self.env.timesync(message) };
        self.delivery.hold(key, on, held);
    }
}
