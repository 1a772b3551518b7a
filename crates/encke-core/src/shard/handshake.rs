//! `/meta/handshake` and `/meta/disconnect`: opens and ends sessions at the client's request (Bayeux 1.0 §4.1, §4.4).
//!

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use bayeux::advice::{Advice, Reconnect};
use bayeux::ext::ClientLimits;
use bayeux::{BayeuxError, Message, RawJson, Reply};

use crate::application::{Actions, Answer, Caller, EndReason, Handshake, Refusal};
use crate::clients::newcomers::Origins;
use crate::decision::{Awaited, Resolved};
use crate::delivery::{Socket, Speaks};
use crate::events::{Effect, HttpTransport, SessionKey, ShardMessage};
use crate::id::Id;
use crate::identity::Identity;
use crate::limits::sessions::SessionOwner;
use crate::protocol::batch::{Batch, Outcome, Via, error_reply, ext_of, success};
use crate::rights::table::{Entry, Granted};
use crate::rights::{Client, May, Wish};
use crate::settings::{Settings, TransportName};
use crate::shard::Machines;
use crate::shard::owners::check_terms;

impl Machines {
    pub(super) fn handshake(&mut self, batch: &mut Batch, message: &Message<'_>) {
        // Only the first handshake of a batch opens a session.
        if batch.session.is_some() {
            return self.beside().refuse(batch, message, BayeuxError::SessionUnknown.as_str());
        }
        let (mut identity, granted, counted_for) = match self.admit(batch, message) {
            Admission::Admitted(identity, granted, counted_for) => (identity, granted, counted_for),
            Admission::Refused(error, advice) => return self.refuse_handshake(batch, message, &error, &advice),
            Admission::RefusedBy(refusal) => return self.refuse_as_decided(batch, message, refusal),
            Admission::Waits => return,
        };
        let id = self.env.new_session_id();
        let browser = self.browser_of(batch);
        let own_terms = identity.as_ref().and_then(|identity| identity.terms.as_deref().copied());
        let terms = own_terms.unwrap_or_default().applied_to(self.env.settings.terms());
        let mut protocol = bayeux::Session::new(self.env.now.ms, &terms);
        // A client that asks for a grace period gets the granted value in the reply.
        let asked_ms = message.advice.and_then(|advice| advice.max_interval_ms).filter(|ms| *ms > 0);
        let asked_ms = asked_ms.map(|ms| protocol.ask_max_interval(&terms, ms));
        let is_granted = self.env.settings.given().handshake_reconnect;
        let max_interval_ms = asked_ms.or(is_granted.then_some(terms.max_interval_ms));
        let is_plain = batch.via.is_subscription();
        let acknowledges = message.ext.is_some_and(bayeux::ext::offers_ack);
        let replays = message.ext.and_then(bayeux::ext::offers_replay);
        let speaks = if is_plain { Speaks::Plain } else { Speaks::Bayeux { acknowledges, replays } };
        let added = identity.as_mut().and_then(|identity| identity.reply.take()).unwrap_or_default();
        let is_counted = identity.as_ref().is_some_and(|identity| self.env.counts_sessions_of(identity));
        let key = self.delivery.open(granted, id, browser, protocol, speaks);
        self.clients.open(key, counted_for);
        if let Some(identity) = identity {
            self.set_owner(key, Arc::new(identity), is_counted, self.clients.policy().authentication);
        }
        self.env.metrics.handshakes.add(1);
        batch.session = Some(key);
        let origins = self.beside().origins_of(batch);
        self.is_new(key, origins);
        self.follow_confirmations(key, false);
        if let Via::Socket(socket) = batch.via {
            self.delivery.attach(key, socket);
        }
        self.delivery.arm(key);
        self.has_opened(key);
        let advice = Advice { max_interval_ms, ..Advice::retry(terms.timeout_ms, terms.interval_ms) }.to_json();
        let ack = acknowledges.then(|| "\"ack\":true".to_string());
        let replay = replays.map(|form| format!("\"replay\":{}", form.offer()));
        let (timestamp, types) = (self.env.timestamp(), offered(self.env.settings.given()));
        let asks_limits = message.ext.is_some_and(bayeux::ext::asks_limits);
        let limits = asks_limits.then(|| format!("\"limits\":{}", self.client_limits(key).to_json()));
        let ext = ext_of([added.ext_members(), ack, replay, limits, self.env.timesync(message)]);
        batch.reply(&Reply {
            client_id: Some(id.as_str()),
            version: Some(VERSION),
            minimum_version: Some(VERSION),
            supported_connection_types: Some(RawJson::trusted(&types)),
            advice: Some(RawJson::trusted(&advice)),
            custom: added.fields(),
            ..success(bayeux::channel::META_HANDSHAKE, message.id.as_ref(), &ext, &timestamp)
        });
    }

    /// The limits that the client of a session must respect.
    fn client_limits(&self, key: SessionKey) -> ClientLimits {
        let (given, limits) = (self.env.settings.given(), self.env.settings.limits());
        let own = self.clients.identity(key).and_then(|identity| identity.limits.messages_per_s_max);
        let per_s = own.map_or(given.session_messages_per_s_max as u64, u64::from);
        ClientLimits {
            message_bytes: given.message_bytes_max as u64,
            batch_messages: given.batch_messages_max as u64,
            channel_bytes: limits.channel_bytes_max as u64,
            subscriptions: self.subscriptions_max(key) as u64,
            positions: bayeux::limits::REPLAY_POSITIONS_MAX as u64,
            messages_per_s: Some(per_s).filter(|per_s| *per_s > 0),
        }
    }

    fn refuse_handshake(&mut self, batch: &mut Batch, message: &Message<'_>, error: &str, advice: &Advice) {
        self.env.metrics.sessions_refused.add(1);
        let advice = advice.to_json();
        batch.reply(&Reply { advice: Some(RawJson::trusted(&advice)), ..error_reply(message, error) });
    }

    /// Refuses a handshake as the application has decided.
    fn refuse_as_decided(&mut self, batch: &mut Batch, message: &Message<'_>, refusal: Refusal) {
        self.env.metrics.sessions_refused.add(1);
        let Refusal { code, reason, retry_ms, reply } = refusal;
        let error = BayeuxError::HandshakeDenied.with_code(code, &reason);
        let advice = retry_ms.map_or(Advice::none(), handshake_after).to_json();
        let added = reply.unwrap_or_default();
        let ext = ext_of([added.ext_members()]);
        batch.reply(&Reply {
            advice: Some(RawJson::trusted(&advice)),
            ext: ext.as_deref().map(RawJson::trusted),
            custom: added.fields(),
            ..error_reply(message, &error)
        });
    }

    /// Refuses a handshake, and advises its client to try again soon.
    pub(super) fn refuse_handshake_for_now(&mut self, batch: &mut Batch, message: &Message<'_>, error: BayeuxError) {
        self.refuse_handshake(batch, message, error.as_str(), &handshake_after(RETRY_MS));
    }

    /// Checks that the application allows one more session and that there is room for it.
    fn admit(&mut self, batch: &mut Batch, message: &Message<'_>) -> Admission {
        if self.env.is_draining {
            let advice = handshake_after(RETRY_MS + self.env.jitter_ms());
            return Admission::Refused(BayeuxError::ServerDraining.as_str().into(), advice);
        }
        let answer = match batch.decided() {
            None => {
                if let Some(limit) = self.beside().handshake_over_rate(batch) {
                    let advice = handshake_after(RETRY_MS + self.env.jitter_ms());
                    return Admission::Refused(BayeuxError::RateExceeded.because(limit).into(), advice);
                }
                let fields = fields_of(message);
                let bytes = message.ext.map_or(0, |ext| ext.as_str().len()) + fields.as_ref().map_or(0, String::len);
                if let Some(error) = self.env.over_credentials(bytes) {
                    return Admission::Refused(error.as_str().into(), Advice::none());
                }
                let (ext, fields) = (message.ext.map(RawJson::as_str), fields.as_deref());
                let handshake = Handshake { fields, ..self.handshake_of(&batch.via, ext) };
                self.env.shared.application.handshake(&handshake)
            }
            Some(Resolved::Handshake(result)) => Answer::Now(result),
            Some(_) => Answer::Now(Err(Refusal::new(503, "decision_failed"))),
        };
        let identity = match answer {
            Answer::Now(Ok(identity)) => match identity.as_ref().map_or(Ok(()), check_terms) {
                Ok(()) => identity,
                Err(refusal) => return Admission::RefusedBy(refusal),
            },
            Answer::Now(Err(refusal)) => return Admission::RefusedBy(refusal),
            Answer::Later(_) if !self.beside().may_wait(batch) => {
                let error = BayeuxError::DecisionsWaitingMax.as_str();
                return Admission::Refused(error.into(), handshake_after(RETRY_MS));
            }
            Answer::Later(later) => {
                batch.wait_for(Awaited::Handshake(later), 0);
                return Admission::Waits;
            }
        };
        let client = Client::Newcomer(identity.as_ref());
        let entry = if batch.via.is_subscription() { Entry::StreamHandshake } else { Entry::Handshake };
        let granted = match self.beside().may_as(entry, &client, &Wish::default(), None) {
            May::Granted(granted) => granted,
            May::Denied(denial) => return Admission::Refused(denial.error(), Advice::none()),
            May::Later(_) => return Admission::Refused(BayeuxError::DecisionFailed.as_str().into(), Advice::none()),
        };
        if let Err(error) = self.env.admit_user(identity.as_ref()) {
            return Admission::Refused(error.into(), handshake_after(RETRY_MS + self.env.jitter_ms()));
        }
        // This check comes last, because it makes room by ending another session. A client that is denied must not cost
        // anybody a session.
        let origins = self.beside().origins_of(batch);
        let counted_for = self.env.session_owner(identity.as_ref(), origins);
        if !self.count_session(counted_for) {
            if let Some(identity) = identity.filter(|identity| self.env.counts_sessions_of(identity)) {
                self.env.release_user(&identity);
            }
            return Admission::Refused(BayeuxError::SessionsMax.as_str().into(), handshake_after(RETRY_MS));
        }
        Admission::Admitted(identity, granted, counted_for)
    }

    /// The handshake as the application sees it.
    fn handshake_of<'a>(&'a self, via: &'a Via, ext: Option<&'a str>) -> Handshake<'a> {
        let (head, peer, transport) = match via {
            Via::Socket(socket) => {
                let head = self.delivery.socket(*socket).and_then(Socket::head);
                (head, head.and_then(|head| head.peer()), TransportName::Websocket)
            }
            Via::Http { transport, peer, head, .. } => {
                let transport = match transport {
                    HttpTransport::LongPolling => TransportName::LongPolling,
                    HttpTransport::CallbackPolling(_) => TransportName::CallbackPolling,
                    HttpTransport::Subscription => TransportName::Eventsource,
                };
                (head.as_ref(), peer.address, transport)
            }
        };
        Handshake { ext, fields: None, head, peer, transport }
    }

    /// Notifies the application of a new session.
    fn has_opened(&mut self, key: SessionKey) {
        let Some(caller) = self.caller(key) else { return };
        tracing::debug!(session = ?self.delivery.id_of(Some(key)), "session opened");
        let mut actions = Actions::default();
        self.env.shared.application.opened(&caller, &mut actions);
        self.act_later(actions, self.clients.counted_for(key));
    }

    /// The browser of a new session. A browser without a cookie gets one over HTTP.
    fn browser_of(&mut self, batch: &mut Batch) -> Option<Id> {
        match &batch.via {
            Via::Socket(socket) => self.delivery.socket(*socket)?.browser(),
            Via::Http { transport: HttpTransport::Subscription, .. } => None,
            Via::Http { browser: Some(browser), .. } => Some(*browser),
            Via::Http { browser: None, .. } => {
                let browser = Id::new(self.env.index, &mut self.env.entropy);
                batch.set_browser = Some(browser);
                Some(browser)
            }
        }
    }

    /// Registers a session that has not connected yet. Each connection and each address has a limit; beyond it the
    /// oldest are ended.
    pub(super) fn is_new(&mut self, key: SessionKey, origins: Origins) {
        let settings = self.env.settings.given();
        let most = [settings.unconnected_per_connection_max, settings.unconnected_per_address_max];
        for (origin, most) in origins.into_iter().zip(most) {
            while origin > 0 && self.clients.newcomers.of(origin) >= most {
                let Some(oldest) = self.clients.newcomers.oldest(Some(origin)) else { break };
                self.end_session(oldest, EndReason::Unused);
            }
        }
        self.clients.is_new(key, origins);
        self.env.shared.newcomers[self.env.index].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one more session on all shards. False: its owner has its part of `sessions_max`, or all have connected and
    /// there is no room.
    pub(super) fn count_session(&mut self, owner: SessionOwner) -> bool {
        let newcomers: isize = self.env.shared.newcomers.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        let (max, newcomers) = (self.env.settings.given().sessions_max, newcomers.max(0).unsigned_abs());
        let Some(count) = self.env.shared.sessions.take(owner, max, newcomers) else { return false };
        let has_room = count <= max || self.make_room();
        if !has_room {
            self.env.shared.sessions.give_back(owner);
        }
        has_room
    }

    /// Ends the oldest session that has not connected yet, here or on another shard. Returns false if there is none. On
    /// another shard it ends a moment later, and until then there is one session more than allowed.
    fn make_room(&mut self) -> bool {
        if let Some(oldest) = self.clients.newcomers.oldest(None) {
            self.end_session(oldest, EndReason::Unused);
            return true;
        }
        let others = &self.env.shared.newcomers;
        let claim = |count: &AtomicIsize| {
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count > 0).then(|| count - 1)).is_ok()
        };
        let shard = (0..others.len()).filter(|shard| *shard != self.env.index).find(|shard| claim(&others[*shard]));
        shard.into_iter().for_each(|shard| self.emit(Effect::SendToShard(shard, ShardMessage::MakeRoom)));
        shard.is_some()
    }

    /// Ends the oldest session that has not connected yet, because another shard has admitted a session in its place.
    pub(super) fn make_room_for_others(&mut self) {
        self.env.shared.newcomers[self.env.index].fetch_add(1, Ordering::Relaxed);
        if let Some(oldest) = self.clients.newcomers.oldest(None) {
            self.end_session(oldest, EndReason::Unused);
        }
    }

    /// Removes a session from the newcomers, as it has connected or is about to end.
    pub(super) fn has_arrived(&mut self, key: SessionKey) {
        if self.clients.has_connected(key) {
            self.env.shared.newcomers[self.env.index].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A session as the application's hooks see it.
    pub(super) fn caller(&self, key: SessionKey) -> Option<Caller<'_>> {
        let caller = Caller::new(self.delivery.session(key)?.id().as_str(), self.clients.identity(key));
        Some(caller.with_attributes(self.clients.attributes(key)).with_owner(self.clients.counted_for(key)))
    }

    pub(super) fn disconnect(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        // The held connect is answered first. Its advice says not to reconnect (CometD 9).
        self.disconnect_held(key);
        let (ext, timestamp) = (ext_of([self.env.timesync(message)]), self.env.timestamp());
        let reply = success(bayeux::channel::META_DISCONNECT, message.id.as_ref(), &ext, &timestamp);
        self.reply_to_disconnect(batch, message, key, &reply);
        self.end_session(key, EndReason::Disconnected);
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
    /// The application refuses it.
    RefusedBy(Refusal),
    /// The application decides later.
    Waits,
}

/// The fields of a message that Bayeux does not define, as a JSON object.
fn fields_of(message: &Message<'_>) -> Option<String> {
    let fields = message.custom.iter().map(|(name, value)| format!("{}:{}", name.as_str(), value.as_str()));
    let fields: Vec<String> = fields.collect();
    (!fields.is_empty()).then(|| format!("{{{}}}", fields.join(",")))
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
