//! Authentication: who may open a session, and as whom.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use encke_core::{Head, Identity, Refusal, TransportName};

use super::caller::Caller;

/// Decides about handshakes.
///
/// An async function or closure from a [`Handshake`] to the [`Identity`] of the new session or a [`Refusal`] is one.
/// [`Server::builder`](crate::Server::builder) takes it.
pub trait Authenticate: Send + Sync + 'static {
    /// Decides if a client may open a session, and gives it an identity. An identity with an empty user is that of nobody.
    fn authenticate(&self, handshake: Handshake) -> impl Future<Output = Result<Identity, Refusal>> + Send + '_;

    /// Decides about a fresh token that a live session sends, on `/service/auth/refresh` or with a connect, before its
    /// identity expires. Without this, the session cannot be refreshed.
    fn refresh(
        &self,
        caller: Caller<'static>,
        token: String,
    ) -> impl Future<Output = Result<Identity, Refusal>> + Send + '_ {
        let _ = (caller, token);
        async { Err(Refusal::new(403, "refresh_unsupported")) }
    }

    /// A text that changes with the way in which it authenticates: the issuers that it trusts, for example, and no secret. A
    /// server restores only sessions that were saved under the same.
    fn policy(&self) -> String {
        std::any::type_name::<Self>().to_string()
    }
}

impl<F, Fut> Authenticate for F
where
    F: Fn(Handshake) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Identity, Refusal>> + Send + 'static,
{
    fn authenticate(&self, handshake: Handshake) -> impl Future<Output = Result<Identity, Refusal>> + Send + '_ {
        self(handshake)
    }
}

/// A client's handshake.
#[derive(Clone, Debug)]
pub struct Handshake {
    pub(crate) ext: Option<Box<str>>,
    pub(crate) fields: Option<Box<str>>,
    pub(crate) head: Option<Arc<Head>>,
    pub(crate) peer: Option<IpAddr>,
    pub(crate) transport: TransportName,
}

impl Handshake {
    /// The `ext` of the message, as raw JSON. Credentials are in it, by Bayeux's own habit.
    pub fn ext(&self) -> Option<&str> {
        self.ext.as_deref()
    }

    /// The fields of the message that Bayeux does not define, as a raw JSON object. `None` if it has none.
    pub fn fields(&self) -> Option<&str> {
        self.fields.as_deref()
    }

    /// A header of the HTTP request that opened the connection, such as `authorization`. A browser cannot set one on a
    /// WebSocket.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.as_ref()?.header(name)
    }

    /// The head of that request.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_deref()
    }

    /// A cookie of that request.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        self.head.as_ref()?.cookie(name)
    }

    /// The user that the client's certificate names: see [`Head::certificate`].
    pub fn certificate(&self) -> Option<&str> {
        self.head.as_ref()?.certificate()
    }

    /// The origin of the page that sent the request. Browsers report it, programs may not.
    pub fn origin(&self) -> Option<&str> {
        self.header("origin")
    }

    /// The address of the client, or of the proxy in front of it.
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// The transport of the handshake. The session may continue on another.
    pub fn transport(&self) -> TransportName {
        self.transport
    }
}

impl From<&encke_core::Handshake<'_>> for Handshake {
    fn from(handshake: &encke_core::Handshake<'_>) -> Handshake {
        Handshake {
            ext: handshake.ext.map(Box::from),
            fields: handshake.fields.map(Box::from),
            head: handshake.head.cloned(),
            peer: handshake.peer,
            transport: handshake.transport,
        }
    }
}
