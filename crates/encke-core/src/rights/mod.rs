//! Rights: one function, [`Rights::may`], decides if a client may do something. It asks in this order:
//!
//! 1. the credentials of the client, which may have expired or been revoked,
//! 2. the patterns of its identity: the claims of a token,
//! 3. the rule for the channel: who may publish there,
//! 4. the application: authorizers and webhooks. It may answer later.
//!
//! It returns a [`Granted`], without which nothing is done. [`Entry`] lists all ways in.

pub(crate) mod policy;
pub(crate) mod table;

use std::borrow::Cow;

use bayeux::{BayeuxError, ChannelName};

use crate::application::{Answer, Application, Caller, Decision, Publishing, Replacement, Subscribing, Verdict};
use crate::clients::owners::Revoked;
use crate::decision::{Awaited, Resolved};
use crate::events::PRESENCE_CHANNEL;
use crate::identity::Identity;
use crate::rights::policy::Policy;
use crate::rights::table::{Entry, Granted, Right};
use crate::settings::Publishers;
use crate::settings::in_force::InForce;

/// Everything that decides about rights.
pub(crate) struct Rights<'a> {
    /// With the rules for channels.
    pub(crate) settings: &'a mut InForce,
    pub(crate) application: &'a dyn Application,
    pub(crate) revoked: &'a Revoked,
    /// The policy of this process.
    pub(crate) policy: Policy,
    /// The time, in milliseconds since 1970.
    pub(crate) wall_ms: u64,
}

/// The one who wants something.
#[derive(Clone, Copy, Debug)]
pub enum Client<'a> {
    /// A client without a session, and the identity that the application gave it.
    Newcomer(Option<&'a Identity>),
    /// A session, or a request without one, with its owner.
    Session(Caller<'a>),
    /// A session whose credentials have ended, or that the server has ended: it may only fetch what waits for it.
    Ended,
}

/// The wish of a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish<'a> {
    /// The channel or pattern, a valid name. Empty for a handshake.
    pub channel: &'a str,
    /// The `data` of the message, as raw JSON.
    pub data: Option<&'a str>,
    /// The `ext` of the message, as raw JSON.
    pub ext: Option<&'a str>,
    /// True if the session subscribes to exactly this channel or pattern.
    pub is_held: bool,
    /// The policy of the process that saved the session, if one did.
    pub saved: Option<Policy>,
}

impl<'a> Wish<'a> {
    /// A wish for a channel or pattern.
    pub fn of(channel: &'a str) -> Wish<'a> {
        Wish { channel, ..Wish::default() }
    }
}

/// The answer to a wish.
#[derive(Debug)]
#[must_use]
pub enum May {
    /// It may.
    Granted(Granted),
    /// It may not.
    Denied(Denial),
    /// The application decides later. Its decision goes into the next question about the same wish.
    Later(Awaited),
}

/// A refused wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The right that is missing.
    pub right: Right,
    /// The one who refuses.
    pub by: By,
}

/// The one who refuses a wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// The credentials have ended, for this reason.
    Credentials(&'static str),
    /// The patterns of the identity do not cover the channel.
    Patterns,
    /// The rule for the channel.
    Rule,
    /// The application, for this reason.
    Application(Cow<'static, str>),
    /// The application, which drops the publication.
    Deletion,
    /// Nobody could decide.
    Nobody,
    /// The policy, which is not the one by which the session was admitted.
    Policy,
}

impl Denial {
    /// The Bayeux error.
    pub fn error(&self) -> Cow<'static, str> {
        let error = match self.right {
            Right::Handshake => BayeuxError::HandshakeDenied,
            Right::Subscribe | Right::History | Right::Presence => BayeuxError::SubscribeDenied,
            Right::Publish | Right::Call => BayeuxError::PublishDenied,
        };
        match &self.by {
            By::Credentials(reason) if self.right == Right::Handshake => error.with_code(401, reason).into(),
            By::Credentials(reason) => error.because(reason).into(),
            By::Patterns => error.because("").into(),
            By::Rule | By::Policy => error.as_str().into(),
            By::Application(reason) => error.because(reason).into(),
            By::Deletion => BayeuxError::MessageDeleted.as_str().into(),
            By::Nobody => BayeuxError::DecisionFailed.as_str().into(),
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self.by {
            By::Credentials(_) => 401,
            By::Nobody => 503,
            _ => 403,
        }
    }
}

impl Rights<'_> {
    /// Decides if a client may do something. `decided` is the decision of the application, if that has come later: everything
    /// else is looked at again.
    #[inline]
    pub(crate) fn may(&mut self, entry: Entry, client: &Client<'_>, wish: &Wish<'_>, decided: Option<Resolved>) -> May {
        self.decide(entry, client, wish, decided).unwrap_or_else(|by| May::Denied(Denial { right: entry.right(), by }))
    }

    /// Grants the wish, or lets it wait. Otherwise returns the one who refuses it.
    #[inline]
    fn decide(
        &mut self,
        entry: Entry,
        client: &Client<'_>,
        wish: &Wish<'_>,
        decided: Option<Resolved>,
    ) -> Result<May, By> {
        let (identity, caller) = match client {
            Client::Newcomer(identity) => (*identity, Caller::new("", None)),
            Client::Session(caller) => (caller.identity.map(|identity| &**identity), *caller),
            Client::Ended => return Err(By::Credentials("session_ending")),
        };
        // The client of a restored session hears of the end of its credentials when it is back.
        if !matches!(entry, Entry::RestoredSession | Entry::RestoredSubscription)
            && let Some(reason) = identity.and_then(|identity| self.end_of(identity, entry.right()))
        {
            return Err(By::Credentials(reason));
        }
        match entry.right() {
            Right::Handshake if entry == Entry::RestoredSession => {
                let is_same = wish.saved.is_some_and(|saved| saved.authentication == self.policy.authentication);
                if is_same { Ok(May::Granted(Granted::new(entry))) } else { Err(By::Policy) }
            }
            Right::Handshake => Ok(May::Granted(Granted::new(entry))),
            Right::Subscribe | Right::History | Right::Presence => self.read(entry, caller, wish, decided),
            Right::Publish => self.publish(entry, caller, wish, decided),
            // It concerns the own session only.
            Right::Call if entry == Entry::RefreshCall => Ok(May::Granted(Granted::new(entry))),
            Right::Call => self.call(entry, caller, wish, decided),
        }
    }

    /// Decides if a client may get messages of a channel or pattern, or see who is there.
    fn read(&self, entry: Entry, caller: Caller<'_>, wish: &Wish<'_>, decided: Option<Resolved>) -> Result<May, By> {
        let granted = || Ok(May::Granted(Granted::new(entry)));
        // A subscriber may see the others.
        if entry.right() == Right::Presence && wish.is_held {
            return granted();
        }
        let Wish { channel, ext, is_held, .. } = *wish;
        let announced = announced_on(channel);
        let mut names = std::iter::once(channel).chain(announced);
        if caller.identity.is_some_and(|identity| names.any(|name| !identity.may_subscribe(name))) {
            return Err(By::Patterns);
        }
        let answer = match decided {
            None => self.ask(&Subscribing { caller, channel, ext, is_held }, announced),
            Some(Resolved::Subscribe(decision)) => Answer::Now(decision),
            Some(_) => return Err(By::Nobody),
        };
        match (answer, entry) {
            (Answer::Now(Decision::Allow), _) => granted(),
            (Answer::Now(Decision::Deny(reason)), _) => Err(By::Application(reason)),
            // It has agreed before, if it is the same application still.
            (Answer::Later(_), Entry::RefreshedSubscription) => granted(),
            (Answer::Later(_), Entry::RestoredSubscription) => {
                let is_same = wish.saved.is_some_and(|saved| saved.decisions == self.policy.decisions);
                if is_same { granted() } else { Err(By::Policy) }
            }
            (Answer::Later(later), _) => Ok(May::Later(Awaited::Subscribe(later))),
        }
    }

    /// Decides if a client may call a service.
    fn call(&self, entry: Entry, caller: Caller<'_>, wish: &Wish<'_>, decided: Option<Resolved>) -> Result<May, By> {
        let Wish { channel, data, ext, .. } = *wish;
        if caller.identity.is_some_and(|identity| !identity.may_publish(channel)) {
            return Err(By::Patterns);
        }
        let answer = match decided {
            None => self.application.call(&Publishing { caller, channel, data, ext }),
            Some(Resolved::Subscribe(decision)) => Answer::Now(decision),
            Some(_) => return Err(By::Nobody),
        };
        match answer {
            Answer::Now(Decision::Allow) => Ok(May::Granted(Granted::new(entry))),
            Answer::Now(Decision::Deny(reason)) => Err(By::Application(reason)),
            Answer::Later(later) => Ok(May::Later(Awaited::Subscribe(later))),
        }
    }

    /// Decides if a client may publish on a channel.
    #[inline]
    fn publish(
        &mut self,
        entry: Entry,
        caller: Caller<'_>,
        wish: &Wish<'_>,
        decided: Option<Resolved>,
    ) -> Result<May, By> {
        let Wish { channel, data, ext, .. } = *wish;
        if caller.identity.is_some_and(|identity| !identity.may_publish(channel)) {
            return Err(By::Patterns);
        }
        if !self.rule_allows(ChannelName::known(channel), caller.user()) {
            return Err(By::Rule);
        }
        let verdict = match decided {
            None => match self.application.publish(&Publishing { caller, channel, data, ext }) {
                Answer::Now(verdict) => verdict,
                Answer::Later(later) => return Ok(May::Later(Awaited::Publish(later))),
            },
            Some(Resolved::Publish(verdict)) => verdict,
            Some(_) => return Err(By::Nobody),
        };
        match verdict {
            Verdict::Forward => Ok(May::Granted(Granted::new(entry))),
            Verdict::Replace(data) => Ok(May::Granted(Granted::new(entry).with(Some(data), None))),
            Verdict::ReplaceMessage(replacement) => {
                let Replacement { data, ext } = *replacement;
                Ok(May::Granted(Granted::new(entry).with(data, ext)))
            }
            Verdict::Delete => Err(By::Deletion),
            Verdict::Deny(reason) => Err(By::Application(reason)),
        }
    }

    /// The reason why the credentials of an identity have ended. Shards end the sessions of a revoked token at once, so that
    /// a publication or a call needs no look at the table of all shards.
    fn end_of(&self, identity: &Identity, right: Right) -> Option<&'static str> {
        if identity.has_expired(self.wall_ms) {
            return Some("token_expired");
        }
        let is_revoked = !matches!(right, Right::Publish | Right::Call) && self.revoked.has(identity);
        is_revoked.then_some("token_revoked")
    }

    /// True if the rules for a channel or pattern let this user publish there, who may be nobody.
    #[inline]
    fn rule_allows(&mut self, channel: ChannelName<'_>, user: &str) -> bool {
        if self.settings.rules_have_presence() && announced_on(channel.as_str()).is_some() {
            return false;
        }
        if !self.settings.rules_have_publishers() {
            return true;
        }
        self.settings.publication_rules(channel).all(|rule| match rule.publishers {
            Publishers::Anyone => true,
            Publishers::Users => !user.is_empty(),
            Publishers::Server => false,
        })
    }

    /// Asks the application about a subscription. One to announcements concerns the channels that they are about, too.
    fn ask(&self, subscribing: &Subscribing<'_>, announced: Option<&str>) -> Answer<Decision> {
        let first = self.application.subscribe(subscribing);
        let Some(channel) = announced.filter(|_| !matches!(first, Answer::Now(Decision::Deny(_)))) else {
            return first;
        };
        let second = self.application.subscribe(&Subscribing { channel, ..*subscribing });
        match (first, second) {
            (Answer::Now(_), second) => second,
            (_, denied @ Answer::Now(Decision::Deny(_))) => denied,
            (first, Answer::Now(_)) => first,
            (Answer::Later(first), Answer::Later(second)) => Answer::Later(Box::pin(async {
                match first.await {
                    Decision::Allow => second.await,
                    denied => denied,
                }
            })),
        }
    }
}

/// The channel or pattern whose members are announced on this one. `/presence/chat` announces those of `/chat`.
pub(crate) fn announced_on(name: &str) -> Option<&str> {
    name.strip_prefix(PRESENCE_CHANNEL).filter(|rest| rest.starts_with('/'))
}
