//! A living session: its terms and its attributes.

use std::sync::Arc;

use serde::Serialize;

use super::Handle;
use crate::cluster::commands::{NodeCommand, NodeReply};
use crate::error::{AttributeChangeError, SessionTermsChangeError};
use encke_core::{AskedBy, AttributeChange, AttributeError, Attributes, Id, SessionTerms, ShardMessage};

impl Handle {
    /// Gives a session terms above those of its identity, in place of those that an earlier call gave it. It has them until its end: a
    /// refresh of its credentials, a restart, and a move to another node of the cluster leave them. Without any
    /// (`SessionTerms::default()`) those of its identity and the settings hold again.
    ///
    /// A connect that is held is answered when it was to be. The client learns of other times with the next connect reply, and
    /// [`connect_deliver_only`](SessionTerms::connect_deliver_only) holds from its next connection on.
    ///
    /// ```
    /// # use encke::{Handle, SessionTerms, SessionTermsChangeError};
    /// /// The page is in the background: its browser may put it to sleep.
    /// async fn hidden(handle: &Handle, session: &str) -> Result<(), SessionTermsChangeError> {
    ///     let terms = SessionTerms { max_interval_ms: Some(600_000), ..SessionTerms::default() };
    ///     handle.set_session_terms(session, terms).await
    /// }
    /// ```
    ///
    /// # Errors
    /// When a number is out of its range, there is no such session, or the server has stopped.
    pub async fn set_session_terms(&self, client_id: &str, terms: SessionTerms) -> Result<(), SessionTermsChangeError> {
        terms.check()?;
        let command = |session| NodeCommand::Terms { session, terms };
        let changed = self.0.server_shared.at_session(client_id, command).await;
        match changed.ok_or(SessionTermsChangeError::Stopped)?.of_session() {
            Ok(NodeReply::Count(_)) => Ok(()),
            Ok(_) => Err(SessionTermsChangeError::Stopped),
            Err(_) => Err(SessionTermsChangeError::SessionUnknown),
        }
    }

    /// The attributes of a session, on whatever node of a cluster. None if there is no such session, or the server has stopped.
    pub async fn session_attributes(&self, client_id: &str) -> Option<Arc<Attributes>> {
        let command = |session| NodeCommand::Attributes { session };
        match self.0.server_shared.at_session(client_id, command).await?.of_session() {
            Ok(NodeReply::Attributes(attributes)) => Some(attributes.into()),
            _ => None,
        }
    }

    /// Sets an attribute of a session to a value (raw JSON). Returns the version of its attributes.
    ///
    /// # Errors
    /// The same as of [`Handle::change_session_attribute`].
    pub async fn set_session_attribute(
        &self,
        client_id: &str,
        name: &str,
        value: &str,
    ) -> Result<u64, AttributeChangeError> {
        self.change_session_attribute(client_id, AttributeChange::set(name, value)).await
    }

    /// The same with any value that serde writes as JSON.
    ///
    /// # Errors
    /// The same as of [`Handle::change_session_attribute`]; a value without a JSON form is none.
    pub async fn set_session_attribute_json<T: Serialize + ?Sized>(
        &self,
        client_id: &str,
        name: &str,
        value: &T,
    ) -> Result<u64, AttributeChangeError> {
        let value = serde_json::to_string(value).map_err(|_| AttributeError::Value)?;
        self.set_session_attribute(client_id, name, &value).await
    }

    /// Removes an attribute of a session, if there is one with this name. Returns the version of its attributes.
    ///
    /// # Errors
    /// The same as of [`Handle::change_session_attribute`].
    pub async fn remove_session_attribute(&self, client_id: &str, name: &str) -> Result<u64, AttributeChangeError> {
        self.change_session_attribute(client_id, AttributeChange::remove(name)).await
    }

    /// Changes an attribute of a session, on whatever node of a cluster. Returns the version of its attributes after the change.
    ///
    /// A change that names a version does nothing if another one came first:
    ///
    /// ```
    /// use encke::{AttributeChange, AttributeChangeError, Handle};
    ///
    /// /// Adds an item to the cart of a session, whoever else does so at the same time.
    /// async fn add(handle: &Handle, session: &str, item: &str) -> Result<(), AttributeChangeError> {
    ///     loop {
    ///         let known = handle.session_attributes(session).await.ok_or(AttributeChangeError::SessionUnknown)?;
    ///         let mut cart: Vec<String> = known.get("cart").and_then(|cart| serde_json::from_str(cart).ok()).unwrap_or_default();
    ///         cart.push(item.into());
    ///         let cart = serde_json::to_string(&cart).expect("texts have a JSON form");
    ///         let change = AttributeChange::set("cart", &cart).if_version(known.version());
    ///         match handle.change_session_attribute(session, change).await {
    ///             Err(AttributeChangeError::Conflict(_)) => {}
    ///             changed => return changed.map(|_version| ()),
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// When the name or the value is not valid, the attributes have another version, the session has as many as it may, there is no such
    /// session, or the server has stopped.
    pub async fn change_session_attribute(
        &self,
        client_id: &str,
        change: AttributeChange,
    ) -> Result<u64, AttributeChangeError> {
        let settings = self.settings();
        change.check(settings.json_depth_max)?;
        if change.bytes() > settings.session_attributes_bytes_max {
            return Err(AttributeChangeError::Full);
        }
        let command = |session| NodeCommand::ChangeAttribute { session, change: change.clone() };
        let changed = self.0.server_shared.at_session(client_id, command).await;
        match changed.ok_or(AttributeChangeError::Stopped)?.of_session() {
            Ok(NodeReply::Version(version)) => Ok(version),
            Ok(NodeReply::Conflict(version)) => Err(AttributeChangeError::Conflict(version)),
            Ok(NodeReply::Full) => Err(AttributeChangeError::Full),
            Ok(_) => Err(AttributeChangeError::Stopped),
            Err(_) => Err(AttributeChangeError::SessionUnknown),
        }
    }

    /// Changes an attribute for a hook, which does not wait.
    pub(super) fn act_on_attribute(&self, session: &str, change: &AttributeChange) {
        if let Err(error) = change.check(self.settings().json_depth_max) {
            return tracing::error!(name = &*change.name, %error, "a hook sets an attribute that cannot be");
        }
        let message = |id| ShardMessage::ChangeAttribute(id, Box::new(change.clone()), AskedBy::Hook(None));
        _ = Id::parse(session).is_some_and(|id| self.send_to_shard_of(&id, message(id)));
    }
}
