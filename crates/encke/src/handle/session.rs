//! A living session: its terms.

use super::Handle;
use crate::cluster::commands::{NodeCommand, NodeReply};
use crate::error::SessionTermsChangeError;
use encke_core::SessionTerms;

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
}
