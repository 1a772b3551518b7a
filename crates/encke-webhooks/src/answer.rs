//! The answers of backends, as `docs/webhooks.schema.json` describes them.
//!
//! An unknown member makes an answer unusable: a misspelt limit must not be no limit.

use std::borrow::Cow;
use std::collections::BTreeMap;

use encke_core::{
    AttributeChange, Decision, EXT_BYTES_MAX, HandshakeReply, Identity, Patterns, Refusal, Replacement, SessionLimits,
    SessionTerms, Verdict,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::settings::EventKind;

/// The answer to an event, and the actions that the backend requests with it.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    pub(crate) actions: Vec<Action>,
}

/// The answer to an event.
#[derive(Debug)]
pub(crate) enum Answer {
    /// To a handshake or a refresh.
    Identity(Result<Identity, Refusal>),
    /// To a subscribe.
    Decision(Decision),
    /// To a publish.
    Verdict(Verdict),
    /// To a service call.
    Call(Option<Reply>),
    /// To a notification.
    Noted,
}

/// The answer to a service call.
#[derive(Debug)]
pub(crate) struct Reply {
    /// JSON.
    pub(crate) data: String,
    pub(crate) successful: bool,
}

/// An action that a backend requests.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Action {
    /// Broadcast a message.
    Publish(Publish),
    /// Send a message to a session, or to all sessions of a user.
    Deliver(Deliver),
    /// End a session, or all sessions of a user.
    Disconnect(Target),
    /// Change attributes of a session.
    SetAttributes(SetAttributes),
}

/// A message to broadcast.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Publish {
    pub(crate) channel: String,
    pub(crate) data: Box<RawValue>,
    /// An object.
    pub(crate) ext: Option<Box<RawValue>>,
    /// True: subscribers get it with their next other message.
    #[serde(default)]
    pub(crate) lazy: bool,
}

/// A message for one receiver.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Deliver {
    pub(crate) session: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) channel: String,
    pub(crate) data: Box<RawValue>,
    /// An object.
    pub(crate) ext: Option<Box<RawValue>>,
    /// The id of the call that it answers.
    pub(crate) id: Option<String>,
}

/// New values of attributes of a session. One without a value is removed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetAttributes {
    pub(crate) session: String,
    attributes: BTreeMap<String, Option<Box<RawValue>>>,
}

impl SetAttributes {
    /// The changes, in the order of the names.
    pub(crate) fn changes(&self) -> impl Iterator<Item = AttributeChange> {
        self.attributes.iter().map(|(name, value)| match value {
            Some(value) => AttributeChange::set(name, value.get()),
            None => AttributeChange::remove(name),
        })
    }
}

/// The sessions of an action: one of the members.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    pub(crate) session: Option<String>,
    pub(crate) user: Option<String>,
}

/// An answer that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an answer that cannot be used: {0}")]
pub(crate) struct Unusable(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityAnswer {
    allow: bool,
    reason: Option<String>,
    code: Option<u16>,
    retry_after_ms: Option<u64>,
    #[serde(default)]
    user: Box<str>,
    claims: Option<Box<RawValue>>,
    token_id: Option<Box<str>>,
    expires_in_ms: Option<u64>,
    subscribe: Option<Vec<Box<str>>>,
    publish: Option<Vec<Box<str>>>,
    #[serde(default)]
    limits: SessionLimits,
    terms: Option<SessionTerms>,
    ext: Option<Box<RawValue>>,
    fields: Option<Box<RawValue>>,
    #[serde(default)]
    actions: Vec<Action>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionAnswer {
    allow: bool,
    reason: Option<String>,
    #[serde(default)]
    actions: Vec<Action>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VerdictAnswer {
    allow: bool,
    reason: Option<String>,
    data: Option<Box<RawValue>>,
    ext: Option<Box<RawValue>>,
    #[serde(default)]
    drop: bool,
    #[serde(default)]
    actions: Vec<Action>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CallAnswer {
    reply: Option<Box<RawValue>>,
    failure: Option<Box<RawValue>>,
    actions: Vec<Action>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NotedAnswer {
    actions: Vec<Action>,
}

impl Answered {
    /// Reads the body of a response that arrived at this time, in milliseconds since 1970. A decision needs a body; other events
    /// need none.
    pub(crate) fn read(kind: EventKind, body: &[u8], wall_ms: u64) -> Result<Answered, Unusable> {
        let answered = match kind {
            EventKind::Handshake | EventKind::Refresh => parse::<IdentityAnswer>(body)?.finish(wall_ms)?,
            EventKind::Subscribe => {
                let DecisionAnswer { allow, reason, actions } = parse(body)?;
                let answer = if allow { Decision::Allow } else { Decision::Deny(reason_of(reason)) };
                Answered { answer: Answer::Decision(answer), actions }
            }
            EventKind::Publish => parse::<VerdictAnswer>(body)?.finish()?,
            EventKind::Service if body.is_empty() => Answered { answer: Answer::Call(None), actions: Vec::new() },
            EventKind::Service => parse::<CallAnswer>(body)?.finish()?,
            EventKind::Opened | EventKind::Ended | EventKind::Subscribed | EventKind::Unsubscribed => {
                let NotedAnswer { actions } = if body.is_empty() { NotedAnswer::default() } else { parse(body)? };
                Answered { answer: Answer::Noted, actions }
            }
        };
        answered.actions.iter().try_for_each(Action::check)?;
        Ok(answered)
    }
}

impl Action {
    fn check(&self) -> Result<(), Unusable> {
        if let Action::Publish(Publish { data, ext, .. }) | Action::Deliver(Deliver { data, ext, .. }) = self {
            text_of(data)?;
            ext.as_deref().map(ext_of).transpose()?;
        }
        match self {
            Action::Deliver(Deliver { session, user, .. }) | Action::Disconnect(Target { session, user })
                if session.is_some() == user.is_some() =>
            {
                Err(Unusable("an action names a session or a user".into()))
            }
            Action::SetAttributes(set) => set.changes().try_for_each(|change| {
                let checked = change.check(bayeux::Limits::default().json_depth_max);
                checked.map_err(|wrong| Unusable(format!("set_attributes: {wrong}")))
            }),
            _ => Ok(()),
        }
    }
}

impl IdentityAnswer {
    fn finish(self, wall_ms: u64) -> Result<Answered, Unusable> {
        let patterns = |names: Option<Vec<Box<str>>>| {
            names.map(Patterns::new).transpose().map_err(|wrong| Unusable(wrong.to_string()))
        };
        let raw = |value: &Option<Box<RawValue>>| value.as_ref().map(|value| value.get().to_owned());
        let (ext, fields) = (raw(&self.ext), raw(&self.fields));
        let reply = HandshakeReply::of(ext.as_deref(), fields.as_deref());
        let reply = reply.map_err(|error| Unusable(format!("ext or fields of the reply: {error}")))?;
        let reply = (reply != HandshakeReply::default()).then(|| Box::new(reply));
        if !self.allow {
            let code = self.code.unwrap_or(403);
            if ![401, 403, 429, 503].contains(&code) {
                return Err(Unusable(format!("code {code}: 401, 403, 429 or 503")));
            }
            let mut refusal = Refusal::new(code, reason_of(self.reason));
            (refusal.retry_ms, refusal.reply) = (self.retry_after_ms, reply);
            return Ok(Answered { answer: Answer::Identity(Err(refusal)), actions: self.actions });
        }
        let claims: Box<str> = self.claims.as_deref().map_or(Ok(""), text_of)?.into();
        if !claims.is_empty() && !claims.starts_with('{') {
            return Err(Unusable("claims are an object".into()));
        }
        self.terms.map_or(Ok(()), |terms| terms.check()).map_err(|wrong| Unusable(format!("terms: {wrong}")))?;
        let identity = Identity {
            user: self.user,
            claims,
            token_id: self.token_id,
            expires_ms: self.expires_in_ms.map(|in_ms| wall_ms.saturating_add(in_ms)),
            subscribe: patterns(self.subscribe)?,
            publish: patterns(self.publish)?,
            limits: self.limits,
            terms: self.terms.map(Box::new),
            reply,
        };
        Ok(Answered { answer: Answer::Identity(Ok(identity)), actions: self.actions })
    }
}

impl VerdictAnswer {
    fn finish(self) -> Result<Answered, Unusable> {
        let text = |raw: Option<Box<RawValue>>| raw.map(|raw| text_of(&raw).map(String::from)).transpose();
        let ext = self.ext.as_deref().map(|ext| ext_of(ext).map(String::from)).transpose()?;
        let verdict = match (self.allow, self.drop, text(self.data)?, ext) {
            (false, false, None, None) => Verdict::Deny(reason_of(self.reason)),
            (true, false, None, None) => Verdict::Forward,
            (true, false, Some(data), None) => Verdict::Replace(data),
            (true, false, data, ext) => Verdict::ReplaceMessage(Box::new(Replacement { data, ext })),
            (true, true, None, None) => Verdict::Delete,
            _ => return Err(Unusable("data and ext, or drop, and only with allow".into())),
        };
        Ok(Answered { answer: Answer::Verdict(verdict), actions: self.actions })
    }
}

impl CallAnswer {
    fn finish(self) -> Result<Answered, Unusable> {
        let reply = match (self.reply, self.failure) {
            (None, None) => None,
            (Some(data), None) => Some(Reply { data: text_of(&data)?.into(), successful: true }),
            (None, Some(data)) => Some(Reply { data: text_of(&data)?.into(), successful: false }),
            (Some(_), Some(_)) => return Err(Unusable("reply or failure".into())),
        };
        Ok(Answered { answer: Answer::Call(reply), actions: self.actions })
    }
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Unusable> {
    // The text of the error repeats names of members, never values of the body.
    serde_json::from_slice(body).map_err(|error| Unusable(error.to_string()))
}

/// The text of JSON that clients can read: it is not nested too deeply.
fn text_of(data: &RawValue) -> Result<&str, Unusable> {
    bayeux::json::validate(data.get(), bayeux::Limits::default().json_depth_max)
        .map_err(|error| Unusable(error.to_string()))
}

/// The same of the `ext` of a message, which is an object.
fn ext_of(ext: &RawValue) -> Result<&str, Unusable> {
    let text = text_of(ext)?;
    match text.starts_with('{') && text.len() <= EXT_BYTES_MAX {
        true => Ok(text),
        false => Err(Unusable(format!("ext is an object of at most {EXT_BYTES_MAX} bytes"))),
    }
}

fn reason_of(reason: Option<String>) -> Cow<'static, str> {
    reason.map_or(Cow::Borrowed("denied"), |mut reason| {
        reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
        Cow::Owned(reason)
    })
}

/// The longest reason that a client gets, in bytes.
const REASON_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: EventKind, body: &str) -> Result<Answered, Unusable> {
        Answered::read(kind, body.as_bytes(), 1_000)
    }

    #[test]
    fn a_handshake_is_answered_with_an_identity_or_a_refusal() {
        let body = r#"{"allow":true,"user":"ann","claims":{"role":"x"},"token_id":"t1","expires_in_ms":500,
            "subscribe":["/a/**"],"publish":[],"limits":{"subscriptions_max":3},"terms":{"timeout_ms":9}}"#;
        let Answer::Identity(Ok(identity)) = read(EventKind::Handshake, body).expect("usable").answer else {
            panic!("not allowed")
        };
        assert_eq!((&*identity.user, &*identity.claims), ("ann", r#"{"role":"x"}"#));
        assert_eq!((identity.token_id.as_deref(), identity.expires_ms), (Some("t1"), Some(1_500)));
        assert!(identity.subscribe.is_some_and(|patterns| patterns.allow("/a/b") && !patterns.allow("/b")));
        assert!(identity.publish.is_some_and(|patterns| !patterns.allow("/a/b")));
        assert_eq!(identity.limits.subscriptions_max, Some(3));
        assert_eq!(identity.terms.and_then(|terms| terms.timeout_ms), Some(9));

        let refused = read(EventKind::Refresh, r#"{"allow":false,"code":401,"reason":"who","retry_after_ms":9}"#);
        let Answer::Identity(Err(refusal)) = refused.expect("usable").answer else { panic!("allowed") };
        assert_eq!((refusal.code, &*refusal.reason, refusal.retry_ms), (401, "who", Some(9)));
    }

    #[test]
    fn a_publish_is_forwarded_replaced_dropped_or_denied() {
        for (body, expected) in [
            (r#"{"allow":true}"#, Verdict::Forward),
            (
                r#"{"allow":true,"data":{"big":12345678901234567890}}"#,
                Verdict::Replace(r#"{"big":12345678901234567890}"#.into()),
            ),
            (r#"{"allow":true,"data":null}"#, Verdict::Forward),
            (r#"{"allow":true,"drop":true}"#, Verdict::Delete),
            (r#"{"allow":false,"reason":"no"}"#, Verdict::Deny("no".into())),
        ] {
            let Answer::Verdict(verdict) = read(EventKind::Publish, body).expect("usable").answer else { panic!() };
            assert_eq!(verdict, expected, "{body}");
        }
    }

    #[test]
    fn a_call_is_answered_with_a_reply_a_failure_or_nothing_and_actions() {
        let body = r#"{"reply":[1],"actions":[{"publish":{"channel":"/a","data":1}},{"deliver":{"user":"ann",
            "channel":"/b","data":{}}},{"disconnect":{"session":"s"}}]}"#;
        let answered = read(EventKind::Service, body).expect("usable");
        assert_eq!(answered.actions.len(), 3);
        let Answer::Call(Some(reply)) = answered.answer else { panic!("no reply") };
        assert!(reply.successful && reply.data == "[1]");
        let Answer::Call(Some(reply)) = read(EventKind::Service, r#"{"failure":"no"}"#).expect("usable").answer else {
            panic!("no reply")
        };
        assert!(!reply.successful);
        for body in ["", "{}"] {
            assert!(matches!(read(EventKind::Service, body).expect("usable").answer, Answer::Call(None)));
        }
    }

    #[test]
    fn an_answer_that_is_misspelt_or_ambiguous_cannot_be_used() {
        for (kind, body) in [
            (EventKind::Handshake, ""),
            (EventKind::Handshake, "{}"),
            (EventKind::Handshake, r#"{"allow":"yes"}"#),
            (EventKind::Handshake, r#"{"allow":true,"limts":{}}"#),
            (EventKind::Handshake, r#"{"allow":true,"limits":{"subscription_max":1}}"#),
            (EventKind::Handshake, r#"{"allow":true,"terms":{"timeout":1}}"#),
            (EventKind::Handshake, r#"{"allow":true,"terms":{"timeout_ms":0}}"#),
            (EventKind::Handshake, r#"{"allow":true,"subscribe":["no slash"]}"#),
            (EventKind::Handshake, r#"{"allow":true,"claims":[1]}"#),
            (EventKind::Handshake, r#"{"allow":false,"code":200}"#),
            (EventKind::Subscribe, "<html>"),
            (EventKind::Subscribe, "true"),
            (EventKind::Subscribe, r#"{"allow":true}{"allow":true}"#),
            (EventKind::Publish, r#"{"allow":false,"data":1}"#),
            (EventKind::Publish, r#"{"allow":true,"data":1,"drop":true}"#),
            (EventKind::Publish, "{\"allow\":true,\"data\":\"\u{0}\"}"),
            (EventKind::Service, r#"{"reply":1,"failure":2}"#),
            (EventKind::Service, r#"{"actions":[{"disconnect":{}}]}"#),
            (EventKind::Service, r#"{"actions":[{"disconnect":{"session":"s","user":"u"}}]}"#),
            (EventKind::Service, r#"{"actions":[{"explode":{}}]}"#),
            (EventKind::Service, r#"{"actions":[{"set_attributes":{"attributes":{}}}]}"#),
            (EventKind::Service, r#"{"actions":[{"set_attributes":{"session":"s","attributes":{"":1}}}]}"#),
            (EventKind::Ended, "OK"),
        ] {
            assert!(read(kind, body).is_err(), "{body}");
        }
        let deep = format!(r#"{{"allow":true,"data":{}1{}}}"#, "[".repeat(1_000), "]".repeat(1_000));
        assert!(read(EventKind::Publish, &deep).is_err());
    }

    #[test]
    fn a_long_reason_is_cut() {
        let body = format!(r#"{{"allow":false,"reason":"{}"}}"#, "ä".repeat(1_000));
        let Answer::Decision(Decision::Deny(reason)) = read(EventKind::Subscribe, &body).expect("usable").answer else {
            panic!("allowed")
        };
        assert_eq!(reason, "ä".repeat(64));
    }
}
