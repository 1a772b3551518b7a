//! The Bayeux endpoint as a service inside another HTTP server, such as an axum router.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use hyper::upgrade::OnUpgrade;
use tokio::sync::oneshot;
use tower_service::Service;

use crate::byte_stream::detach_upgraded;
use crate::fallback::{BoxError, ResponseBody};
use crate::handle::Handle;
use crate::http::embedded::{Answered, Paths, ServiceBody, Visit};
use crate::http::of_status;

/// The Bayeux endpoint of a server as a tower service: `router.nest_service("/cometd", running.service())` puts it into
/// an axum router. Clones serve the same server.
///
/// That of [`service`] answers every request that it gets, whatever its path, as the endpoint does: long-polling, callback-polling, and the
/// upgrade to a WebSocket, for which the outer server must support upgrades of HTTP/1.1 (axum does). The socket of a WebSocket
/// moves to the thread of a shard. If the outer server speaks TLS, its bytes are copied between the two.
#[derive(Clone)]
pub struct EnckeService {
    handle: Handle,
    next: Arc<AtomicUsize>,
    peer: fn(&Parts) -> Option<IpAddr>,
    paths: Paths,
}

/// A service that answers requests with the Bayeux endpoint of a running server.
pub fn service(handle: &Handle) -> EnckeService {
    EnckeService { handle: handle.clone(), next: Arc::default(), peer: |_| None, paths: Paths::Endpoint }
}

/// A service that answers all paths of a running server as its sockets do: the Bayeux endpoint, `/api/v1/`, `/hold`, `/stream`,
/// `/healthz`, `/readyz`, `/metrics`, routes and files. `router.fallback_service(encke::all_paths(&handle))` puts it behind the routes of an
/// axum router. Metrics and the HTTP API need an [`ApiKey`](crate::ApiKey), also on this machine: only the outer
/// server knows who asks.
pub fn all_paths(handle: &Handle) -> EnckeService {
    EnckeService { paths: Paths::All, ..service(handle) }
}

impl EnckeService {
    /// Reads the address of a client from its request: with axum, from the extension `ConnectInfo`. Without this, the server
    /// does not know it, and limits for each address do not apply.
    pub fn with_peer(mut self, peer: fn(&Parts) -> Option<IpAddr>) -> EnckeService {
        self.peer = peer;
        self
    }

    async fn answer(self, request: Request<ResponseBody>) -> Response<ServiceBody> {
        let (mut parts, body) = request.into_parts();
        let peer = (self.peer)(&parts);
        let upgrade = parts.extensions.remove::<OnUpgrade>();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let request = Box::new(Request::from_parts(parts, body));
        self.handle.visit(number, Visit::Request(request, peer, self.paths, answer));
        let Ok(Answered { response, upgraded }) = answered.await else {
            let response = Response::new(ServiceBody::of("the server has stopped\n"));
            return of_status(StatusCode::SERVICE_UNAVAILABLE, response);
        };
        if let (Some(from), Some(upgrade)) = (upgraded, upgrade) {
            tokio::spawn(async move {
                let moved = async {
                    let (stream, rest) = detach_upgraded(upgrade.await?).await?;
                    self.handle.visit(number, Visit::Upgraded(stream, from, rest));
                    Ok::<_, BoxError>(())
                };
                if let Err(error) = moved.await {
                    tracing::debug!(%error, "an upgraded connection was lost");
                }
            });
        }
        response
    }
}

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static> Service<Request<B>> for EnckeService {
    type Response = Response<ServiceBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ServiceBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

opaque!(EnckeService);
