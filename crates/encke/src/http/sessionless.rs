//! The rights of requests without a session: the application authenticates them by their head, and the one decision about
//! rights says what they may read.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};

use super::connection::Connection;
use encke_core::{Answer, Caller, Client, Entry, Granted, Handshake, Identity, May, Right, TransportName, Wish};

/// Authenticates a request by its head, and decides about its channel as about a subscribe. Returns the owner of the request, and
/// its right.
pub(super) async fn decide<B>(
    connection: &Connection,
    request: &Request<B>,
    entry: Entry,
    channel: &str,
) -> Result<(Option<Arc<Identity>>, Granted), StatusCode> {
    let node = &connection.node;
    let client = connection.client(request.headers());
    if node.shard_mut().request_over_rate(node.now(), connection.peer(&client)).is_some() {
        return Err(StatusCode::TOO_MANY_REQUESTS);
    }
    let application = &node.server().shared().application;
    let head = connection.head(request, &client);
    let mut handshake = Handshake::new(None);
    (handshake.head, handshake.peer) = (head.as_ref(), client.address);
    handshake.transport = TransportName::LongPolling;
    let authenticated = match application.handshake(&handshake) {
        Answer::Now(authenticated) => authenticated,
        Answer::Later(later) => in_time(connection, later).await?,
    };
    let identity = match authenticated {
        Ok(identity) => identity.map(Arc::new),
        Err(refusal) => return Err(StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::FORBIDDEN)),
    };
    check_credentials(connection, identity.as_deref())?;
    let (client, wish) = (Client::Session(Caller::new("", identity.as_ref())), Wish::of(channel));
    let may = |decided| node.shard_mut().may_without_session(node.now(), entry, &client, &wish, decided);
    let may = match may(None) {
        May::Later(later) => may(Some(in_time(connection, later).await?)),
        may => may,
    };
    Ok((identity, granted_by(may)?))
}

/// Checks that the credentials of a request have neither ended nor been revoked.
pub(super) fn check_credentials(connection: &Connection, identity: Option<&Identity>) -> Result<(), StatusCode> {
    let (node, wish, client) = (&connection.node, Wish::default(), Client::Newcomer(identity));
    let may = node.shard_mut().may_without_session(node.now(), Entry::HoldHandshake, &client, &wish, None);
    granted_by(may).map(|granted| granted.use_for(Right::Handshake))
}

/// The right of a request, or the status of its refusal.
fn granted_by(may: May) -> Result<Granted, StatusCode> {
    match may {
        May::Granted(granted) => Ok(granted),
        May::Denied(denial) => Err(StatusCode::from_u16(denial.status()).unwrap_or(StatusCode::FORBIDDEN)),
        May::Later(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// The result of a decision that waits. It does so on the threads of the application; if it does not come in time, or
/// panics, the request is refused with 503.
async fn in_time<T: Send + 'static>(
    connection: &Connection,
    pending: impl Future<Output = T> + Send + 'static,
) -> Result<T, StatusCode> {
    let timeout = Duration::from_millis(connection.node.shard().settings().decision_timeout_ms);
    let task = connection.node.server().application.spawn(tokio::time::timeout(timeout, pending));
    task.await.ok().and_then(Result::ok).ok_or(StatusCode::SERVICE_UNAVAILABLE)
}
