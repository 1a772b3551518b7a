//! The task of one HTTP connection, until it ends or becomes a WebSocket.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use http::StatusCode;
use http::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::net::TcpStream;

use super::{Body, routes};
use crate::net::io::{Health, Io, Timeouts, linger, release};
use crate::net::node::{Counted, Node};
use crate::net::socket;
use encke_core::{Head, Id, Peer, Usage};

/// A connection, as the handlers of its requests see it.
pub(crate) struct Connection {
    pub(crate) node: Rc<Node>,
    pub(crate) health: Arc<Health>,
    /// The address of the client, or of the proxy in front of it.
    pub(crate) peer: Option<IpAddr>,
    /// Set by a response that accepts a WebSocket.
    pub(crate) upgrade: RefCell<Option<Upgrade>>,
    /// The work that its requests have caused lately.
    pub(crate) usage: Cell<Usage>,
    /// Its number among the connections of the server.
    number: u64,
}

/// The parts of an upgrade request that its WebSocket needs.
pub(crate) struct Upgrade {
    /// The browser's cookie.
    pub(crate) browser: Option<Id>,
    /// The head, if the application reads heads.
    pub(crate) head: Option<Arc<Head>>,
}

impl Connection {
    /// The head of a request, if the application reads heads.
    pub(crate) fn head<B>(&self, request: &http::Request<B>) -> Option<Arc<Head>> {
        if !self.node.shard.borrow().reads_heads() {
            return None;
        }
        let target = request.uri().path_and_query().map_or("", |target| target.as_str());
        let headers = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        Some(Arc::new(Head::new(target, headers, self.peer)))
    }

    /// The origin of its requests: address and connection.
    pub(crate) fn peer(&self) -> Peer {
        Peer { address: self.peer, connection: self.number }
    }
}

/// Serves a connection.
pub(crate) fn open(node: &Rc<Node>, tcp: TcpStream) {
    // Messages are small and urgent.
    if let Err(error) = tcp.set_nodelay(true) {
        return tracing::debug!(%error, "a connection was gone before it was served");
    }
    let send_buffer_bytes = node.shard.borrow().settings().socket_send_buffer_bytes;
    if send_buffer_bytes > 0 {
        // The kernel would let the buffer grow to megabytes for a client that does not read.
        let _as_it_is = socket2::SockRef::from(&tcp).set_send_buffer_size(send_buffer_bytes);
    }
    let counted = Counted::new(&node.server_shared);
    tokio::task::spawn_local(serve(node.clone(), tcp, counted));
}

async fn serve(node: Rc<Node>, tcp: TcpStream, counted: Counted) {
    let settings = node.shard.borrow().settings().clone();
    let timeouts = Timeouts::of(&settings);
    let health = Arc::new(Health::default());
    let peer = tcp.peer_addr().ok().map(|address| address.ip());
    let connection = Rc::new(Connection {
        node: node.clone(),
        health: health.clone(),
        peer,
        number: node.connection_number(),
        upgrade: RefCell::default(),
        usage: Cell::default(),
    });
    let io = Io::new(node.clone(), tcp, health.clone(), timeouts);
    let service = service_fn(|request| {
        let connection = connection.clone();
        // Boxed: an idle connection reserves no room for a request, and hyper returns the socket only from an `Unpin`
        // service.
        Box::pin(async move {
            connection.health.set_busy(true);
            let mut response = routes::answer(&connection, request).await;
            connection.health.set_busy(false);
            if connection.node.shard.borrow().is_draining() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<http::Response<Body>, Infallible>(response)
        })
    });
    let mut served = http1::Builder::new()
        .max_buf_size(settings.header_bytes_max)
        .max_headers(HEADERS_MAX)
        .serve_connection(io, service);
    // Polled to its end, not only to its last response: only then has hyper flushed its buffers.
    let ended = {
        let mut leaving = pin!(node.leaving.notified());
        tokio::select! {
            biased;
            ended = &mut served => ended,
            () = leaving.as_mut() => {
                // A connection without a request so far is about to send one: it is closed after the response.
                if health.was_used() {
                    std::pin::Pin::new(&mut served).graceful_shutdown();
                }
                (&mut served).await
            }
        }
    };
    if ended.is_err() {
        // Set before hyper's buffers are dropped with the bytes that the client did not take.
        health.set_broken();
    }
    let agreed = connection.upgrade.borrow_mut().take();
    let parts = served.into_parts();
    let metrics = node.shard.borrow().metrics().clone();
    metrics.timeouts.add(usize::from(health.has_timed_out()));
    match (ended, agreed) {
        (Ok(()), Some(Upgrade { browser, head })) => {
            let from = socket::From { browser, peer: connection.peer(), head };
            socket::open(&node, parts.io.into_tcp(), counted, from, parts.read_buf.to_vec());
        }
        (Ok(()), None) => Box::pin(linger(&parts.io.into_tcp())).await,
        (Err(error), _) => {
            tracing::debug!(%error, "a connection ended");
            let tcp = parts.io.into_tcp();
            if error.is_parse() {
                // hyper has answered these requests itself: 400, 414 or 431.
                metrics.requests_refused.add(1);
                Box::pin(linger(&tcp)).await;
            } else {
                release(&tcp);
            }
        }
    }
}

/// The most header lines of one request.
const HEADERS_MAX: usize = 100;
