//! The tokens of a session: one for each handshake, and another one before it ends (docs/authentication.md).

use std::time::Instant;

use bayeux::channel::META_HANDSHAKE;
use bayeux::{RawJson, ServerMessage};
use serde_json::{Map, Value, json};

use crate::{Error, LostReason, Refusal};

use super::{ClientSession, Event, State};

impl ClientSession {
    /// Answers [`Event::TokenWanted`]: the next handshake shows this token, or the open session continues with it. A session that
    /// does not wait for one uses it for its next handshake.
    pub fn set_token(&mut self, token: &str, now: Instant) {
        if self.is_open() {
            let data = json!({ "token": token }).to_string();
            self.publish(REFRESH, RawJson::trusted(&data));
            return;
        }
        self.token = Some(token.into());
        if matches!(self.state, State::TokenDue) {
            self.send_handshake(now);
        }
    }

    /// Answers [`Event::TokenWanted`] if there is no token: a handshake is tried again after a pause. An open session goes on until
    /// its token ends.
    pub fn token_failed(&mut self, reason: LostReason) {
        if matches!(self.state, State::TokenDue) {
            self.lose(reason);
        }
    }

    /// True if the next handshake has to wait for a token, which is requested now.
    pub(super) fn lacks_token(&mut self) -> bool {
        let lacks = self.options.takes_tokens && self.token.is_none();
        if lacks {
            self.state = State::TokenDue;
            self.events.push_back(Event::TokenWanted);
        }
        lacks
    }

    /// Adds the token to the `ext` of a handshake. It is for one handshake.
    pub(super) fn add_token(&mut self, channel: &str, ext: &mut Map<String, Value>) {
        if channel == META_HANDSHAKE
            && let Some(token) = self.token.take()
        {
            ext.insert("auth".into(), json!({ "token": &*token }));
        }
    }

    /// Requests a token if this message announces the end of the one in use.
    pub(super) fn watch_tokens(&mut self, message: &ServerMessage<'_>) {
        match &*message.channel {
            EXPIRING if self.options.takes_tokens => self.events.push_back(Event::TokenWanted),
            REFRESH if message.successful == Some(false) => {
                let reason = message.data.map_or("", RawJson::as_str);
                tracing::warn!(reason, "the server refuses the new token");
            }
            _ => {}
        }
    }

    /// The server ends the session. One whose token has ended opens another session with a new one.
    pub(super) fn end(&mut self, refusal: Refusal, now: Instant) {
        let is_handshake = matches!(self.state, State::Handshaking(_));
        if self.options.takes_tokens && refusal.code() == Some(401) && !is_handshake {
            return self.renew(now);
        }
        self.finish(Error::Refused(refusal));
    }
}

/// The channel on which the server announces the end of a token.
const EXPIRING: &str = "/service/auth/expiring";
/// The service that takes a new token.
const REFRESH: &str = "/service/auth/refresh";
