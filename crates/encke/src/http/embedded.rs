//! Requests that another HTTP server has read: a shard answers them like those of its connections.

use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Either;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{mpsc, oneshot};

use super::connection::{Connection, Upgrade};
use super::{Body, bayeux, guard, routes, whole};
use crate::byte_stream::{Detached, Remote};
use crate::fallback::{BoxError, OtherBody, ResponseBody};
use crate::net::health::Health;
use crate::net::node::Node;
use crate::net::socket;

/// A request, or a connection, of another HTTP server for a shard.
pub(crate) enum Visit {
    /// A request, the address of its client, and the way of its response.
    Request(Box<Request<ResponseBody>>, Option<IpAddr>, Paths, oneshot::Sender<Answered>),
    /// A connection that the other server has upgraded, and the bytes that it read after the request.
    Upgraded(Detached, socket::Opener, Vec<u8>),
}

/// The paths that another HTTP server passes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Paths {
    /// Each request is for the Bayeux endpoint, whatever its path.
    Endpoint,
    /// The path decides, as on the sockets of the server.
    All,
}

/// The response on the way back.
pub(crate) struct Answered {
    pub(crate) response: Response<ServiceBody>,
    /// The origin of the WebSocket that the connection becomes.
    pub(crate) upgraded: Option<socket::Opener>,
}

/// Takes what other HTTP servers have for a shard, until the shard ends.
pub(crate) async fn receive(node: Rc<Node>, mut visits: mpsc::UnboundedReceiver<Visit>) {
    while let Some(visit) = visits.recv().await {
        match visit {
            Visit::Request(request, peer, paths, answered) => answer(&node, *request, peer, paths, answered),
            Visit::Upgraded(stream, from, rest) => match stream.attach() {
                Ok(stream) => {
                    socket::open(&node, stream, Some(node.server().connections.count_elsewhere()), from, rest)
                }
                Err(error) => tracing::warn!(%error, "a websocket was lost on its way to its shard"),
            },
        }
        node.settle();
    }
}

/// Answers a request. It is abandoned when the other server drops it: its client has left.
fn answer(
    node: &Rc<Node>,
    request: Request<ResponseBody>,
    peer: Option<IpAddr>,
    paths: Paths,
    mut answered: oneshot::Sender<Answered>,
) {
    let counted = node.server().connections.count_elsewhere();
    let node = node.clone();
    tokio::task::spawn_local(async move {
        let _counted = counted;
        let connection = Rc::new(Connection::new(&node, Remote::Elsewhere(peer), false));
        let settings = node.shard().settings().clone();
        let metrics = node.shard().metrics().clone();
        let response = match paths {
            Paths::All => tokio::select! {
                response = routes::answer(&connection, request.map(|body| Either::Right(Either::Right(OtherBody(body))))) => response,
                () = answered.closed() => return,
            },
            Paths::Endpoint => {
                let response = match guard::refuse_host(&connection, &settings, &request) {
                    Some(refusal) => refusal,
                    None => tokio::select! {
                        response = bayeux::answer(&connection, &settings, Box::new(request)) => response.into_response(),
                        () = answered.closed() => return,
                    },
                };
                if response.status().as_u16() >= 400 {
                    metrics.requests_refused.add(1);
                }
                response
            }
        };
        let upgraded = match connection.upgrade.borrow_mut().take() {
            Some(Upgrade::WebSocket(from)) => Some(*from),
            // Only a fallback takes a connection over, and it gets no requests here. A stream is the body of a response.
            Some(Upgrade::Stream(_) | Upgrade::TakenOver(_)) | None => None,
        };
        let health = connection.health.clone();
        let response = response.map(|body| ServiceBody { body, health, is_taken: false });
        // If nobody waits, the body reports its messages as lost.
        let _gone = answered.send(Answered { response, upgraded });
    });
}

/// The body of a response of [`EnckeService`](crate::EnckeService).
pub struct ServiceBody {
    body: Body,
    health: Arc<Health>,
    /// True if the other server has taken all of it.
    is_taken: bool,
}

impl ServiceBody {
    pub(crate) fn of(text: &'static str) -> ServiceBody {
        ServiceBody { body: whole(text), health: Arc::default(), is_taken: false }
    }
}

impl HttpBody for ServiceBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.is_taken = self.body.is_end_stream();
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ServiceBody {
    fn drop(&mut self) {
        if !self.is_taken {
            self.health.broken.set(true);
        }
    }
}

opaque!(ServiceBody);

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn body() -> (ServiceBody, Arc<Health>) {
        let body = ServiceBody::of("text");
        let health = body.health.clone();
        (body, health)
    }

    #[test]
    fn a_response_that_the_other_server_drops_counts_as_lost() {
        let (unread, health) = body();
        drop(unread);
        assert!(health.broken.is_set());
        let (taken, health) = body();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(taken.collect()).expect("the text");
        assert!(!health.broken.is_set());
    }
}
