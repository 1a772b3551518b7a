//! A connection, as the handlers of its requests see it.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::held::Current;
use crate::byte_stream::Remote;
use crate::fallback::TakeOver;
use crate::net::health::Health;
use crate::net::node::Node;
use crate::net::socket;
use crate::net::stream_request::StreamRequest;
use crate::request_client::RequestClient;
use encke_core::{Head, Peer, Settings, Usage};

/// A connection, as the handlers of its requests see it.
pub(crate) struct Connection {
    pub(crate) node: Rc<Node>,
    pub(crate) health: Arc<Health>,
    /// The client, or the proxy in front of it. [`Connection::client`] tells whose requests it sends.
    pub(crate) remote: Remote,
    /// True if it speaks TLS.
    is_tls: bool,
    /// The user that the client's certificate names.
    pub(super) certificate: OnceCell<String>,
    /// Set by a response that ends HTTP on this connection.
    pub(crate) upgrade: RefCell<Option<Upgrade>>,
    /// The work that its requests have caused lately.
    usage: Cell<Usage>,
    /// Its number among the connections of the server.
    number: u64,
    pub(super) current: Rc<Current>,
    /// Links that leave before the response.
    hints: Cell<Option<HeaderValue>>,
    /// The HTTP/2 connection, if this is one of its streams: a stream has one request.
    parent: Option<Rc<Connection>>,
}

/// The further use of a connection after HTTP.
pub(crate) enum Upgrade {
    /// A WebSocket of the Bayeux endpoint.
    WebSocket(Box<socket::Opener>),
    /// A stream of the Bayeux endpoint.
    Stream(Box<StreamRequest>),
    /// The fallback has it.
    TakenOver(TakeOver),
}

impl Connection {
    /// A connection with this other end.
    pub(crate) fn new(node: &Rc<Node>, remote: Remote, is_tls: bool) -> Connection {
        Connection {
            node: node.clone(),
            health: Arc::default(),
            remote,
            is_tls,
            certificate: OnceCell::new(),
            number: node.connection_number(),
            upgrade: RefCell::default(),
            usage: Cell::default(),
            current: Rc::default(),
            hints: Cell::default(),
            parent: None,
        }
    }

    /// A stream of an HTTP/2 connection.
    pub(super) fn of_stream(parent: &Rc<Connection>) -> Connection {
        Connection {
            node: parent.node.clone(),
            health: Arc::new(Health::of_stream(&parent.health)),
            remote: parent.remote,
            is_tls: parent.is_tls,
            certificate: OnceCell::new(),
            number: parent.number,
            upgrade: RefCell::default(),
            usage: Cell::default(),
            current: parent.current.clone(),
            hints: Cell::default(),
            parent: Some(parent.clone()),
        }
    }

    /// The work that the requests of the connection have caused lately.
    pub(crate) fn usage(&self) -> &Cell<Usage> {
        self.parent.as_ref().map_or(&self.usage, |parent| &parent.usage)
    }

    /// Sends links before the response (RFC 8297). Over HTTP/1.1 they come with it only: there, some clients take the first status for
    /// that of the response, and browsers ignore hints.
    pub(super) fn hint(&self, links: &HeaderValue) {
        if self.parent.is_some() {
            self.hints.set(Some(links.clone()));
        }
    }

    /// The links that have not left so far.
    pub(super) fn take_hints(&self) -> Option<HeaderValue> {
        self.hints.take()
    }

    /// The client of a request with these headers.
    pub(crate) fn client(&self, headers: &HeaderMap) -> RequestClient {
        RequestClient::of(self.remote, self.is_tls, headers, self.node.shard().settings())
    }

    /// The head of a request, if the application reads heads.
    pub(crate) fn head<B>(&self, request: &http::Request<B>, client: &RequestClient) -> Option<Arc<Head>> {
        if !self.node.shard().reads_heads() {
            return None;
        }
        let target = request.uri().path_and_query().map_or("", |target| target.as_str());
        let headers = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let certificate = self.parent.as_ref().map_or(&self.certificate, |parent| &parent.certificate);
        let head = Head::new(target, headers, client.address);
        Some(Arc::new(head.with_certificate(certificate.get().map(String::as_str))))
    }

    /// Its number among the connections of the server.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The origin of a request: address and connection. The connection of a proxy has requests of many clients.
    pub(crate) fn peer(&self, client: &RequestClient) -> Peer {
        let is_shared = client.is_behind_proxy && client.address.is_some();
        Peer {
            address: client.address,
            connection: if is_shared { 0 } else { self.number },
            is_multiplexed: self.parent.is_some() && !is_shared,
        }
    }

    /// A part of a response, whose bytes count until the client has read it.
    pub(super) fn counted(&self, part: Bytes) -> Bytes {
        self.node.shard().shared().memory.counted_part(part)
    }

    /// Waits until there is room for a large response. False if the clients of other responses leave none.
    pub(super) async fn room_for_response(&self, settings: &Settings) -> bool {
        let looks = settings.response_timeout_ms / ROOM_PAUSE.as_millis() as u64;
        for _ in 0..=looks {
            let (is_short, is_draining) = {
                let shard = self.node.shard();
                (shard.is_short_of_responses(), shard.is_draining())
            };
            if !is_short || is_draining {
                return !is_short;
            }
            self.health.waits_long.set(true);
            tokio::time::sleep(ROOM_PAUSE).await;
        }
        false
    }
}

/// The time between two looks for room for a response.
const ROOM_PAUSE: Duration = Duration::from_millis(250);
