//! The session that a decision is about.

use std::borrow::Cow;
use std::sync::Arc;

use encke_core::Identity;

/// A session, and the identity it has since its handshake.
#[derive(Clone, Debug)]
pub struct Caller<'a> {
    session: Cow<'a, str>,
    identity: Option<Cow<'a, Arc<Identity>>>,
}

impl<'a> Caller<'a> {
    /// An anonymous session, for tests of an application.
    pub fn anonymous(session: &'a str) -> Caller<'a> {
        Caller { session: session.into(), identity: None }
    }

    /// The session of a user, for tests of an application.
    pub fn of(session: &'a str, identity: &'a Arc<Identity>) -> Caller<'a> {
        Caller { session: session.into(), identity: Some(Cow::Borrowed(identity)) }
    }

    /// The id of the session: its client id.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// The identity that the handshake gave it, if any.
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.identity.as_deref()
    }

    /// The user, empty for an anonymous session.
    pub fn user(&self) -> &str {
        self.identity().map_or("", |identity| &identity.user)
    }

    /// The same, without references.
    pub fn into_owned(self) -> Caller<'static> {
        let identity = self.identity.map(|identity| Cow::Owned(identity.into_owned()));
        Caller { session: Cow::Owned(self.session.into_owned()), identity }
    }
}

impl<'a> From<&encke_core::Caller<'a>> for Caller<'a> {
    fn from(caller: &encke_core::Caller<'a>) -> Caller<'a> {
        Caller { session: caller.id.into(), identity: caller.identity.map(Cow::Borrowed) }
    }
}
