//! `/meta/handshake` and `/meta/disconnect`: how sessions come and go (Bayeux 1.0 §4.1, §4.4).

use std::borrow::Cow;
use std::sync::atomic::{AtomicIsize, Ordering};

use bayeux::advice::{Advice, Reconnect};
use bayeux::{BayeuxError, Message, RawJson, Reply};

use super::batch::{Batch, Via, error_reply, ext_of};
use super::effect::{Effect, Mail, SessionKey};
use super::ids::Id;
use super::newcomers::Origins;
use super::session::Ended;
use super::{Shard, newcomers};
use crate::Decision;
use crate::Settings;

/// The Bayeux version spoken here.
const VERSION: &str = "1.0";
/// When a client that was refused for want of room tries again, in milliseconds.
const RETRY_MS: u64 = 5_000;

impl Shard {
    pub(super) fn handshake(&mut self, batch: &mut Batch, message: &Message<'_>) {
        // Only the first handshake of a batch opens a session.
        if batch.session.is_some() {
            return self.refuse(batch, message, BayeuxError::SessionUnknown.as_str());
        }
        if let Err((error, advice)) = self.admit(message) {
            self.metrics.sessions_refused.add(1);
            let advice = advice.to_json();
            return batch.reply(&Reply { advice: Some(RawJson::trusted(&advice)), ..error_reply(message, &error) });
        }
        let id = Id::new(self.index, &mut self.entropy);
        let browser = self.browser_of(batch);
        let mut protocol = bayeux::Session::new(self.now.ms, &self.terms);
        // Who asks how long its session outlives silence is told what it gets.
        let asked_ms = message.advice.and_then(|advice| advice.max_interval_ms).filter(|ms| *ms > 0);
        let asked_ms = asked_ms.map(|ms| protocol.ask_max_interval(&self.terms, ms));
        let max_interval_ms = asked_ms.or(self.settings.handshake_reconnect.then_some(self.terms.max_interval_ms));
        let key = self.sessions.insert(id, browser, protocol, self.now.ms);
        let acknowledges = message.ext.is_some_and(bayeux::ext::offers_ack);
        let replays = message.ext.is_some_and(bayeux::ext::offers_replay);
        if let Some(session) = self.sessions.get_mut(key) {
            session.with_connects = self.settings.connect_deliver_only;
            session.ledger = acknowledges.then(Box::default);
            session.replay = replays.then(Box::default);
        }
        self.shared.sessions.fetch_add(1, Ordering::Relaxed);
        self.metrics.handshakes.add(1);
        batch.session = Some(key);
        self.is_new(key, self.origins_of(batch));
        if let Via::Socket(socket) = batch.via {
            self.attach(key, socket);
        }
        self.arm(key);
        tracing::debug!(session = ?id, "session opened");
        let advice = Advice { max_interval_ms, ..Advice::retry(self.terms.timeout_ms, self.terms.interval_ms) };
        let advice = advice.to_json();
        let ack = acknowledges.then(|| "\"ack\":true".to_string());
        let replay = replays.then(|| "\"replay\":true".to_string());
        let (timestamp, types) = (self.timestamp(), offered(&self.settings));
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

    /// Whether there is room and leave for one more session; if not, the error and what the client should do.
    fn admit(&mut self, message: &Message<'_>) -> Result<(), (Cow<'static, str>, Advice)> {
        let at = |interval_ms| Advice {
            interval_ms: Some(interval_ms),
            reconnect: Some(Reconnect::Handshake),
            ..Advice::none()
        };
        if self.draining {
            return Err((BayeuxError::ServerDraining.as_str().into(), at(RETRY_MS + self.jitter_ms())));
        }
        if let Decision::Deny(reason) = self.shared.application.handshake(message.ext.map(RawJson::as_str)) {
            return Err((BayeuxError::HandshakeDenied.because(reason).into(), Advice::none()));
        }
        // Last: room is made by ending somebody, and who is denied costs nobody a session.
        if self.shared.sessions.load(Ordering::Relaxed) >= self.settings.sessions_max && !self.make_room() {
            return Err((BayeuxError::SessionsMax.as_str().into(), at(RETRY_MS)));
        }
        Ok(())
    }

    /// The browser a new session belongs to; one without a cookie gets one over HTTP.
    fn browser_of(&mut self, batch: &mut Batch) -> Option<Id> {
        match &batch.via {
            Via::Socket(socket) => self.socket(*socket)?.browser,
            Via::Http { browser: Some(browser), .. } => Some(*browser),
            Via::Http { browser: None, .. } => {
                let browser = Id::new(self.index, &mut self.entropy);
                batch.set_browser = Some(browser);
                Some(browser)
            }
        }
    }

    fn origins_of(&self, batch: &Batch) -> Origins {
        match &batch.via {
            Via::Socket(socket) => self.socket(*socket).map_or([0; 2], |socket| socket.origins),
            Via::Http { peer, .. } => self.newcomers.origins(*peer),
        }
    }

    /// A session is there and has not connected yet. Of one connection, and of one address, there are only so many: the oldest go.
    pub(super) fn is_new(&mut self, key: SessionKey, origins: Origins) {
        let most = [self.settings.unconnected_per_connection_max, self.settings.unconnected_per_address_max];
        for (origin, most) in origins.into_iter().zip(most) {
            while origin > 0 && self.newcomers.of(origin) >= most {
                let Some(oldest) = self.newcomers.oldest_of(origin) else { break };
                self.remove_session(oldest, Ended::Unused);
            }
        }
        let place = self.newcomers.add(key, origins);
        if let Some(session) = self.sessions.get_mut(key) {
            session.newcomer = place;
        }
        self.shared.newcomers[self.index].fetch_add(1, Ordering::Relaxed);
    }

    /// A session has connected, or is about to go.
    pub(super) fn has_arrived(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let place = std::mem::replace(&mut session.newcomer, newcomers::NONE);
        if place != newcomers::NONE {
            self.newcomers.remove(place);
            self.shared.newcomers[self.index].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Ends the oldest session that has not connected yet, here or on another shard. False where there is none. That of another shard
    /// goes a moment later, so for that moment there is one more than there may be.
    fn make_room(&mut self) -> bool {
        if let Some(oldest) = self.newcomers.oldest() {
            self.remove_session(oldest, Ended::Unused);
            return true;
        }
        let others = &self.shared.newcomers;
        let claim = |count: &AtomicIsize| {
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count > 0).then(|| count - 1)).is_ok()
        };
        let shard = (0..others.len()).filter(|shard| *shard != self.index).find(|shard| claim(&others[*shard]));
        self.effects.extend(shard.map(|shard| Effect::Mail(shard, Mail::MakeRoom)));
        shard.is_some()
    }

    /// Another shard has let a session in for one that has not connected yet.
    pub(super) fn make_room_for_others(&mut self) {
        self.shared.newcomers[self.index].fetch_add(1, Ordering::Relaxed);
        if let Some(oldest) = self.newcomers.oldest() {
            self.remove_session(oldest, Ended::Unused);
        }
    }

    pub(super) fn disconnect(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        // The held connect comes first, and tells its client not to come back (CometD 9).
        self.farewell_to_held(key);
        let (ext, timestamp) = (self.reply_ext(message), self.timestamp());
        batch.reply(&Reply {
            id: message.id.as_ref(),
            successful: Some(true),
            ext: ext.as_deref().map(RawJson::trusted),
            timestamp: timestamp.as_deref(),
            ..Reply::new(bayeux::channel::META_DISCONNECT)
        });
        self.remove_session(key, Ended::Disconnected);
        batch.session = None;
        batch.parted = true;
    }
}

/// The transports as a JSON array.
fn offered(settings: &Settings) -> String {
    let names: Vec<String> = settings.transports.iter().map(|name| format!("\"{name}\"")).collect();
    format!("[{}]", names.join(","))
}
