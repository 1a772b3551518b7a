//! Identities of sessions: new credentials, the end of credentials, and what concerns all sessions of a user or of a
//! token.

use std::sync::Arc;

use bayeux::{BayeuxError, ChannelName, Message, json};

use crate::application::{Answer, EndReason, Refusal};
use crate::clients::Credentials;
use crate::decision::Awaited;
use crate::events::{Changed, SessionKey};
use crate::id::Id;
use crate::identity::Identity;
use crate::limits::rate::Rate;
use crate::limits::shares::Urgency;
use crate::protocol::batch::{Batch, failed_call_frame, message_frame};
use crate::requests::{Call, Payer};
use crate::rights::table::{Entry, Granted, Right};
use crate::rights::{By, Client, Denial, May, Wish};
use crate::session_terms::SessionTerms;
use crate::shard::beside::BesideBurst;
use crate::shard::{Env, Machines, Timer};

impl Machines {
    /// Looks at the credentials of a session whose timer has come: they may be about to end, or have ended.
    pub(super) fn credentials_due(&mut self, key: SessionKey) {
        let (now, notice_ms) = (self.env.now, self.env.settings.given().auth_expiry_notice_ms);
        match self.clients.due(key, notice_ms, now) {
            None => return,
            Some(Credentials::HaveEnded) => return self.kick(key, EndReason::TokenExpired),
            Some(Credentials::EndSoon(left_ms)) => {
                let data = format!("{{\"expires_in_ms\":{left_ms}}}");
                self.deliver_to(key, &message_frame(EXPIRING, &data, None, None));
            }
            Some(Credentials::Hold) => {}
        }
        self.arm_credentials(key);
    }

    /// Checks new credentials of a session that were admitted. `call` has the channel and the id of the message that gets the
    /// answer.
    pub(super) fn refresh(&mut self, call: Call, credentials: &str, granted: Granted) {
        granted.use_for(Right::Call);
        let Some(caller) = self.caller(call.session) else { return };
        match self.env.shared.application.refresh(&caller, credentials) {
            Answer::Now(result) => self.refreshed(&call, result),
            Answer::Later(later) => self.wait_for_answer(call, Awaited::Refresh(later)),
        }
    }

    /// The credentials in the `ext` of a connect: the member `auth`. They count like a message. A session lives by its
    /// connects, so an error concerns the refresh and not the connect.
    pub(super) fn refresh_by_connect(&mut self, batch: &Batch, message: &Message<'_>, key: SessionKey) {
        let has_owner = self.clients.identity(key).is_some();
        let Some(credentials) = message.ext.filter(|_| has_owner).and_then(|ext| json::member(ext.as_str(), "auth"))
        else {
            return;
        };
        let mut beside = self.beside();
        let May::Granted(granted) = beside.may(Entry::RefreshCall, key, &Wish::of(REFRESH), None) else { return };
        let call = beside.refresh_call(batch, key, None, credentials.len());
        let connect = ChannelName::known(bayeux::channel::META_CONNECT);
        let admitted = match beside.over_rate(batch, message, connect, key) {
            Some(error) => Err(error),
            None => beside.admit_refresh(&call),
        };
        match admitted {
            Ok(()) => self.refresh(call, credentials, granted),
            Err(error) => self.deliver_to(key, &failed_call_frame(REFRESH, None, &error)),
        }
    }

    /// Takes the result of a refresh: the session has a new identity of the same user, or the old one until it ends.
    pub(super) fn refreshed(&mut self, call: &Call, result: Result<Identity, Refusal>) {
        let key = call.session;
        if self.clients.has_lost_its_rights(key) || self.is_ending(key) {
            return;
        }
        let Some(own) = self.clients.identity(key) else { return };
        let refused = |code, reason: &str| Err(BayeuxError::RefreshDenied.with_code(code, reason));
        let result = match result.and_then(|identity| check_terms(&identity).map(|()| identity)) {
            Err(Refusal { code, reason, .. }) => refused(code, &reason),
            Ok(identity) if identity.user != own.user => refused(403, "another_user"),
            Ok(identity) => {
                match self.beside().may_as(Entry::Refresh, &Client::Newcomer(Some(&identity)), &Wish::default(), None) {
                    May::Denied(Denial { by: By::Credentials(reason), .. }) => refused(401, reason),
                    May::Granted(granted) => Ok((identity, granted)),
                    _ => refused(403, "denied"),
                }
            }
        };
        let frame = match result {
            Err(error) => failed_call_frame(&call.channel, call.id.as_ref(), &error),
            Ok((mut identity, granted)) => {
                granted.use_for(Right::Handshake);
                // There is no reply to a handshake.
                identity.reply = None;
                let left_ms = identity.expires_ms.map(|expires_ms| expires_ms.saturating_sub(self.env.now.wall_ms));
                self.set_owner(key, Arc::new(identity), false, call.authentication);
                let lost = self.drop_what_is_not_allowed(key);
                let names: Vec<String> = lost.iter().map(|name| format!("\"{name}\"")).collect();
                let left = left_ms.map_or("null".into(), |left_ms| left_ms.to_string());
                let data = format!("{{\"expires_in_ms\":{left},\"unsubscribed\":[{}]}}", names.join(","));
                message_frame(&call.channel, &data, call.id.as_ref(), Some(true))
            }
        };
        self.deliver_to(key, &frame);
    }

    /// Ends the subscriptions to which a session with a new identity has no right any more. Returns their names. The
    /// application is asked again, and its earlier decision holds if it does not answer at once: if it wants to withdraw
    /// more, the new identity has patterns.
    fn drop_what_is_not_allowed(&mut self, key: SessionKey) -> Vec<Box<str>> {
        let mut names: Vec<Box<str>> = self.channels.names_of(key.index).map(Box::from).collect();
        names.retain(|name| {
            let wish = Wish { is_held: true, ..Wish::of(name) };
            match self.beside().may(Entry::RefreshedSubscription, key, &wish, None) {
                May::Granted(granted) => {
                    granted.use_for(Right::Subscribe);
                    false
                }
                _ => true,
            }
        });
        for name in &names {
            let _valid = self.unsubscribe_from(key, name);
        }
        names
    }

    /// Gives a session of this shard terms above those of its identity.
    pub(super) fn set_terms(&mut self, session: &Id, terms: SessionTerms) -> Changed {
        let Some(key) = self.delivery.find(session) else { return Changed::SessionUnknown };
        self.delivery.set_terms(key, terms);
        self.note_change(key);
        Changed::Done
    }

    /// Delivers a frame to all sessions of a user on this shard.
    pub(super) fn deliver_to_user(&mut self, user: &str, frame: &[u8]) {
        let sessions = self.clients.owners.of_user(user);
        if sessions.is_empty() {
            return;
        }
        self.env.count_steps(sessions.len());
        let frames = self.frames_for_one(frame);
        for key in sessions {
            self.deliver_frames_to(key, &frames);
        }
    }

    /// Ends all sessions of a user on this shard.
    pub(super) fn disconnect_user(&mut self, user: &str) {
        for key in self.clients.owners.of_user(user) {
            self.kick(key, EndReason::Kicked);
        }
    }

    /// Ends all sessions of a revoked token on this shard. The token is in [`Revoked`](crate::Revoked) already, so none
    /// can be opened any more.
    pub(super) fn revoke(&mut self, token_id: &str) {
        for key in self.clients.owners.of_token(token_id) {
            self.kick(key, EndReason::Revoked);
        }
    }

    /// Gives a session its owner, or another one of the same user instead. `is_counted`: it counts among the sessions of
    /// its user. `authentication`: the fingerprint of the means that have admitted it.
    pub(super) fn set_owner(
        &mut self,
        key: SessionKey,
        identity: Arc<Identity>,
        is_counted: bool,
        authentication: u64,
    ) {
        self.delivery.grant_terms(key, identity.terms.as_deref().copied().unwrap_or_default());
        if let Some(armed_ms) = self.clients.set_owner(key, identity, is_counted, authentication) {
            self.disarm(armed_ms);
        }
        self.arm_credentials(key);
        self.note_change(key);
    }

    /// Sets the timer for the notice before the end of a session's credentials, or for their end.
    fn arm_credentials(&mut self, key: SessionKey) {
        let notice_ms = self.env.settings.given().auth_expiry_notice_ms;
        let Machines { clients, env: Env { timers, now, .. }, .. } = self;
        clients.arm(key, notice_ms, *now, |at_ms, armed_ms| timers.set(Timer::Credentials(key), at_ms, armed_ms));
    }
}

impl BesideBurst<'_> {
    /// The call that a refresh is. The policy of now admits it, even if its result comes later.
    pub(super) fn refresh_call(
        &self,
        batch: &Batch,
        key: SessionKey,
        id: Option<bayeux::Id<'static>>,
        bytes: usize,
    ) -> Call {
        let payer = self.payer(batch, Some(key));
        let (channel, authentication) = (REFRESH.into(), self.clients.policy().authentication);
        Call { session: key, channel, id, bytes, payer, urgency: Urgency::Urgent, authentication }
    }

    /// Counts a refresh of credentials. Otherwise returns the error: it is too large, comes too soon, or is the second at once.
    pub(super) fn admit_refresh(&mut self, call: &Call) -> Result<(), String> {
        if let Some(error) = self.env.over_credentials(call.bytes) {
            return Err(error.as_str().into());
        }
        let rate = Rate(self.env.settings.given().session_refreshes_per_s_max as u64);
        if !self.clients.take_refresh(call.session, rate, self.env.now) {
            self.env.metrics.session_rates_exceeded.add(1);
            return Err(BayeuxError::RateExceeded.because("session_refreshes_per_s_max"));
        }
        if self.requests.waits.has_urgent_call(call.session) {
            self.env.metrics.calls_refused.add(1);
            return Err(BayeuxError::RefreshDenied.with_code(429, "refresh_under_way"));
        }
        if self.may_call(call.session, call.payer, call.bytes, call.urgency) {
            Ok(())
        } else {
            Err(BayeuxError::CallsWaitingMax.as_str().into())
        }
    }

    /// True if a session may make one more call of so many bytes whose answer may come later.
    pub(super) fn may_call(&self, session: SessionKey, payer: Payer, bytes: usize, urgency: Urgency) -> bool {
        let Env { settings, metrics, .. } = &*self.env;
        let (budget, own_max) = (settings.calls_waiting(), settings.given().calls_waiting_per_session_max);
        let has_room = self.requests.waits.admits_call(&budget, own_max, (&payer, session), bytes, urgency);
        if !has_room {
            metrics.calls_refused.add(1);
        }
        has_room
    }
}

/// Refuses an identity with terms out of their ranges: a mistake of the application, which the log describes.
pub(super) fn check_terms(identity: &Identity) -> Result<(), Refusal> {
    identity.terms.as_ref().map_or(Ok(()), |terms| terms.check()).map_err(|error| {
        tracing::error!(user = &*identity.user, %error, "the application gives a session terms out of their ranges");
        Refusal::new(503, "session_terms_invalid")
    })
}

/// The service that takes new credentials.
pub(super) const REFRESH: &str = "/service/auth/refresh";

/// The channel of the notice before the end of credentials.
const EXPIRING: &str = "/service/auth/expiring";
