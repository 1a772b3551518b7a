//! The session that a decision is about.

use std::borrow::Cow;
use std::sync::Arc;

use encke_core::{Attributes, Identity};
use serde::de::DeserializeOwned;

/// A session, and the identity it has since its handshake.
#[derive(Clone, Debug)]
pub struct Caller<'a> {
    session: Cow<'a, str>,
    identity: Option<Cow<'a, Arc<Identity>>>,
    attributes: Option<Cow<'a, Arc<Attributes>>>,
}

impl<'a> Caller<'a> {
    /// An anonymous session, for tests of an application.
    pub fn anonymous(session: &'a str) -> Caller<'a> {
        Caller { session: session.into(), identity: None, attributes: None }
    }

    /// The session of a user, for tests of an application.
    pub fn of(session: &'a str, identity: &'a Arc<Identity>) -> Caller<'a> {
        Caller { session: session.into(), identity: Some(Cow::Borrowed(identity)), attributes: None }
    }

    /// The same with these attributes, for tests of an application.
    #[must_use]
    pub fn with_attributes(self, attributes: &'a Arc<Attributes>) -> Caller<'a> {
        Caller { attributes: Some(Cow::Borrowed(attributes)), ..self }
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

    /// The attributes of the session, as they were when the hook was called. None if none was ever set.
    pub fn attributes(&self) -> Option<&Arc<Attributes>> {
        self.attributes.as_deref()
    }

    /// An attribute of the session, as raw JSON.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes()?.get(name)
    }

    /// The same as a value of this type. None if there is no such attribute.
    ///
    /// ```
    /// use encke::{Actions, Call, Data};
    ///
    /// /// Adds an item to the cart of the session that calls, and answers with all of it.
    /// async fn add(call: Call, Data(item): Data<String>) -> (Data<Vec<String>>, Actions) {
    ///     let mut cart: Vec<String> = call.caller().attribute_json("cart").ok().flatten().unwrap_or_default();
    ///     cart.push(item);
    ///     let mut actions = Actions::default();
    ///     actions.set_attribute(call.session(), "cart", &serde_json::to_string(&cart).expect("texts have a JSON form"));
    ///     (Data(cart), actions)
    /// }
    ///
    /// encke::Server::builder().service("/service/cart/add", add);
    /// ```
    ///
    /// # Errors
    /// When it is a value of another type.
    pub fn attribute_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, serde_json::Error> {
        self.attribute(name).map(serde_json::from_str).transpose()
    }

    /// The same as the core has it.
    pub(crate) fn to_core(&self) -> encke_core::Caller<'_> {
        encke_core::Caller::new(self.session(), self.identity()).with_attributes(self.attributes())
    }

    /// The same, without references.
    pub fn into_owned(self) -> Caller<'static> {
        let identity = self.identity.map(|identity| Cow::Owned(identity.into_owned()));
        let attributes = self.attributes.map(|attributes| Cow::Owned(attributes.into_owned()));
        Caller { session: Cow::Owned(self.session.into_owned()), identity, attributes }
    }
}

impl<'a> From<&encke_core::Caller<'a>> for Caller<'a> {
    fn from(caller: &encke_core::Caller<'a>) -> Caller<'a> {
        let (identity, attributes) = (caller.identity.map(Cow::Borrowed), caller.attributes.map(Cow::Borrowed));
        Caller { session: caller.id.into(), identity, attributes }
    }
}
