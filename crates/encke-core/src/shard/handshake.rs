//! `/meta/handshake` and `/meta/disconnect`: opens and ends sessions at the client's request (Bayeux 1.0 §4.1, §4.4).
//! `batch` leads here.

use std::borrow::Cow;
use std::sync::Arc;

use bayeux::advice::{Advice, Reconnect};
use bayeux::{BayeuxError, Message, RawJson, Reply};

use crate::application::{Actions, Answer, EndReason, Handshake, Refusal};
use crate::decision::{Awaited, Resolved};
use crate::events::{HttpTransport, SessionKey};
use crate::identity::Identity;
use crate::limits::sessions::SessionOwner;
use crate::protocol::batch::{Batch, Outcome, Via, error_reply, ext_of};
use crate::rights::table::{Entry, Granted};
use crate::rights::{Client, May, Wish};
use crate::sessions::id::Id;
use crate::sessions::session::Confirmation;
use crate::sessions::unacked::Unacked;
use crate::settings::{Settings, TransportName};
use crate::shard::Parts;

impl Parts {
    pub(super) fn handshake(&mut self, batch: &mut Batch, message: &Message<'_>) {
        // Only the first handshake of a batch opens a session.
        if batch.session.is_some() {
            return self.refuse(batch, message, BayeuxError::SessionUnknown.as_str());
        }
        let (identity, granted, counted_for) = match self.admit(batch, message) {
            Admission::Admitted(identity, granted, counted_for) => (identity, granted, counted_for),
            Admission::Refused(error, advice) => return self.refuse_handshake(batch, message, &error, &advice),
            Admission::Waits => return,
        };
        let id = Id::new(self.index, &mut self.entropy);
        let browser = self.browser_of(batch);
        let mut protocol = bayeux::Session::new(self.now.ms, &self.settings.terms());
        // A client that asks for a grace period gets the granted value in the reply.
        let asked_ms = message.advice.and_then(|advice| advice.max_interval_ms).filter(|ms| *ms > 0);
        let asked_ms = asked_ms.map(|ms| protocol.ask_max_interval(&self.settings.terms(), ms));
        let max_interval_ms =
            asked_ms.or(self.settings.given().handshake_reconnect.then_some(self.settings.terms().max_interval_ms));
        let acknowledges = message.ext.is_some_and(bayeux::ext::offers_ack);
        let replays = message.ext.is_some_and(bayeux::ext::offers_replay);
        let unacked = acknowledges.then(Unacked::default);
        let confirmation = Confirmation::new(unacked, self.settings.given().connect_deliver_only);
        let is_counted = identity.as_ref().is_some_and(|identity| self.counts_sessions_of(identity));
        let key = self.sessions.insert(granted, id, browser, protocol, confirmation, self.now.ms);
        self.clients.open(key, counted_for);
        if let Some(session) = self.sessions.get_mut(key) {
            session.replay = replays.then(Box::default);
        }
        if let Some(identity) = identity {
            self.set_owner(key, Arc::new(identity), is_counted);
        }
        self.metrics.handshakes.add(1);
        batch.session = Some(key);
        self.is_new(key, self.origins_of(batch));
        if let Via::Socket(socket) = batch.via {
            self.attach(key, socket);
        }
        self.arm(key);
        self.has_opened(key);
        let advice = Advice {
            max_interval_ms,
            ..Advice::retry(self.settings.terms().timeout_ms, self.settings.terms().interval_ms)
        };
        let advice = advice.to_json();
        let ack = acknowledges.then(|| "\"ack\":true".to_string());
        let replay = replays.then(|| "\"replay\":true".to_string());
        let (timestamp, types) = (self.timestamp(), offered(self.settings.given()));
        let ext = ext_of([ack, replay, self.timesync(message)]);
        batch.reply(&Reply {
            id: message.id.as_ref(),
            client_id: Some(id.as_str()),
            successful: Some(true),
            version: Some(VERSION),
            minimum_version: Some(VERSION),
            supported_connection_types: Some(RawJson::trusted(&types)),
            advice: Some(RawJson::trusted(&advice)),
            ext: ext.as_deref().map(RawJson::trusted),
            timestamp: timestamp.as_deref(),
            ..Reply::new(bayeux::channel::META_HANDSHAKE)
        });
    }

    fn refuse_handshake(&mut self, batch: &mut Batch, message: &Message<'_>, error: &str, advice: &Advice) {
        self.metrics.sessions_refused.add(1);
        let advice = advice.to_json();
        batch.reply(&Reply { advice: Some(RawJson::trusted(&advice)), ..error_reply(message, error) });
    }

    /// Refuses a handshake, and advises its client to try again soon.
    pub(super) fn refuse_handshake_for_now(&mut self, batch: &mut Batch, message: &Message<'_>, error: BayeuxError) {
        self.refuse_handshake(batch, message, error.as_str(), &handshake_after(RETRY_MS));
    }

    /// Checks that the application allows one more session and that there is room for it.
    fn admit(&mut self, batch: &mut Batch, message: &Message<'_>) -> Admission {
        if self.connections.draining {
            let advice = handshake_after(RETRY_MS + self.jitter_ms());
            return Admission::Refused(BayeuxError::ServerDraining.as_str().into(), advice);
        }
        let answer = match batch.decided() {
            None => {
                if let Some(limit) = self.handshake_over_rate(batch) {
                    let advice = handshake_after(RETRY_MS + self.jitter_ms());
                    return Admission::Refused(BayeuxError::RateExceeded.because(limit).into(), advice);
                }
                if let Some(error) = self.over_credentials(message.ext.map_or(0, |ext| ext.as_str().len())) {
                    return Admission::Refused(error.as_str().into(), Advice::none());
                }
                let handshake = self.handshake_of(&batch.via, message.ext.map(RawJson::as_str));
                self.shared.application.handshake(&handshake)
            }
            Some(Resolved::Handshake(result)) => Answer::Now(result),
            Some(_) => Answer::Now(Err(Refusal::new(503, "decision_failed"))),
        };
        let identity = match answer {
            Answer::Now(Ok(identity)) => identity,
            Answer::Now(Err(Refusal { code, reason, retry_ms })) => {
                let error = BayeuxError::HandshakeDenied.with_code(code, &reason);
                return Admission::Refused(error.into(), retry_ms.map_or(Advice::none(), handshake_after));
            }
            Answer::Later(_) if !self.may_wait(batch) => {
                let error = BayeuxError::DecisionsWaitingMax.as_str();
                return Admission::Refused(error.into(), handshake_after(RETRY_MS));
            }
            Answer::Later(later) => {
                batch.wait_for(Awaited::Handshake(later), 0);
                return Admission::Waits;
            }
        };
        let client = Client::Newcomer(identity.as_ref());
        let granted = match self.may_as(Entry::Handshake, &client, &Wish::default(), None) {
            May::Granted(granted) => granted,
            May::Denied(denial) => return Admission::Refused(denial.error(), Advice::none()),
            May::Later(_) => return Admission::Refused(BayeuxError::DecisionFailed.as_str().into(), Advice::none()),
        };
        if let Err(error) = self.admit_user(identity.as_ref()) {
            return Admission::Refused(error.into(), handshake_after(RETRY_MS + self.jitter_ms()));
        }
        // This check comes last, because it makes room by ending another session. A client that is denied must not cost
        // anybody a session.
        let counted_for = self.session_owner(identity.as_ref(), self.origins_of(batch));
        if !self.count_session(counted_for) {
            if let Some(identity) = identity.filter(|identity| self.counts_sessions_of(identity)) {
                self.release_user(&identity);
            }
            return Admission::Refused(BayeuxError::SessionsMax.as_str().into(), handshake_after(RETRY_MS));
        }
        Admission::Admitted(identity, granted, counted_for)
    }

    /// The handshake as the application sees it.
    fn handshake_of<'a>(&'a self, via: &'a Via, ext: Option<&'a str>) -> Handshake<'a> {
        let (head, peer, transport) = match via {
            Via::Socket(socket) => {
                let head = self.socket(*socket).and_then(|socket| Some(&socket.head.as_ref()?.head));
                (head, head.and_then(|head| head.peer()), TransportName::Websocket)
            }
            Via::Http { transport, peer, head, .. } => {
                let transport = match transport {
                    HttpTransport::LongPolling => TransportName::LongPolling,
                    HttpTransport::CallbackPolling(_) => TransportName::CallbackPolling,
                };
                (head.as_ref(), peer.address, transport)
            }
        };
        Handshake { ext, head, peer, transport }
    }

    /// Notifies the application of a new session.
    fn has_opened(&mut self, key: SessionKey) {
        let Some(caller) = self.caller(key) else { return };
        tracing::debug!(session = ?self.id_of_session(Some(key)), "session opened");
        let mut actions = Actions::default();
        self.shared.application.opened(&caller, &mut actions);
        self.act_later(actions);
    }

    /// The browser of a new session. A browser without a cookie gets one over HTTP.
    fn browser_of(&mut self, batch: &mut Batch) -> Option<Id> {
        match &batch.via {
            Via::Socket(socket) => self.socket(*socket)?.opener.browser(),
            Via::Http { browser: Some(browser), .. } => Some(*browser),
            Via::Http { browser: None, .. } => {
                let browser = Id::new(self.index, &mut self.entropy);
                batch.set_browser = Some(browser);
                Some(browser)
            }
        }
    }

    pub(super) fn disconnect(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        // The held connect is answered first. Its advice says not to reconnect (CometD 9).
        self.disconnect_held(key);
        let (ext, timestamp) = (self.reply_ext(message), self.timestamp());
        batch.reply(&Reply {
            id: message.id.as_ref(),
            successful: Some(true),
            ext: ext.as_deref().map(RawJson::trusted),
            timestamp: timestamp.as_deref(),
            ..Reply::new(bayeux::channel::META_DISCONNECT)
        });
        self.remove_session(key, EndReason::Disconnected);
        batch.session = None;
        batch.comes_to(Outcome::Disconnected);
    }
}

/// The result of the checks of a handshake.
enum Admission {
    /// A session may be opened, with this identity. It is counted already, for this owner.
    Admitted(Option<Identity>, Granted, SessionOwner),
    /// The error and the advice for the client.
    Refused(Cow<'static, str>, Advice),
    /// The application decides later.
    Waits,
}

/// The advice to shake hands again after this time, in milliseconds.
fn handshake_after(interval_ms: u64) -> Advice {
    Advice { interval_ms: Some(interval_ms), reconnect: Some(Reconnect::Handshake), ..Advice::none() }
}

/// The Bayeux version of this server.
const VERSION: &str = "1.0";

/// The time after which a client that was refused for lack of room tries again, in milliseconds.
const RETRY_MS: u64 = 5_000;

/// The transports as a JSON array.
fn offered(settings: &Settings) -> String {
    let names: Vec<String> = settings.transports.iter().map(|name| format!("\"{name}\"")).collect();
    format!("[{}]", names.join(","))
}
