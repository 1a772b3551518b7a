//! The keys of sessions and connections, and HTTP requests with their responses, as shards pass them on.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::id::Id;
use crate::identity::Head;

/// Names a WebSocket of this shard. The generation detects late events for a reused index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketKey {
    /// The index in the shard.
    pub index: u32,
    /// Increases with each socket.
    pub generation: u32,
}

/// Names a session of this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The index in the shard.
    pub index: u32,
    /// Increases with each session.
    pub generation: u32,
}

/// Names an HTTP request that waits for its response. It is unique in the whole server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExchangeId {
    /// The shard that owns the request's connection.
    pub shard: u16,
    /// Increases with each request.
    pub number: u64,
}

/// The shard that stands for all other nodes of a cluster: the environment takes the messages for it, and requests of other
/// nodes have it in [`ExchangeId::shard`].
pub const OTHER_NODES: u16 = u16::MAX - 1;

/// The origin of a request or a WebSocket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The address of the client, or of the proxy in front of it.
    pub address: Option<IpAddr>,
    /// The number of the connection, unique in the whole server. 0 if it is not known.
    pub connection: u64,
    /// True if the connection carries several requests at the same time (HTTP/2).
    pub is_multiplexed: bool,
}

/// The Bayeux transport of an HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpTransport {
    /// A POST whose response is JSON.
    LongPolling,
    /// A GET whose response is a script that calls the function of this name.
    CallbackPolling(Box<str>),
    /// A GET of a client without Bayeux, for whom the server shakes hands and subscribes. The response is for the server.
    Subscription,
}

/// An HTTP request for the Bayeux endpoint.
#[derive(Clone, Debug)]
pub struct Request {
    /// Identifies the response.
    pub exchange: ExchangeId,
    /// The transport of the request.
    pub transport: HttpTransport,
    /// The browser id in the request's cookie, if it has one of ours.
    pub browser: Option<Id>,
    /// The origin of the request.
    pub peer: Peer,
    /// The head of the request, if the application reads heads. The shard drops it if no message is a handshake.
    pub head: Option<Arc<Head>>,
    /// One batch of messages, checked to be UTF-8.
    pub body: String,
    /// The nodes that have been asked for its session.
    pub searched: Searched,
}

/// The nodes of a cluster that have been asked for the session of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Searched {
    /// None: if this one does not have the session, another one may.
    #[default]
    Nobody,
    /// Another node asks this one, which answers with [`NOT_HERE`] if it does not have the session.
    ByNode,
    /// All that may have it. Without the session the client gets an error.
    All,
}

/// The status by which a node tells another one that it does not have the session (RFC 9110 §15.5.20).
pub const NOT_HERE: u16 = 421;

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// JSON or script. Empty with some errors.
    pub body: Bytes,
    /// A new browser id to set as a cookie.
    pub set_browser: Option<Id>,
    /// The shard that must learn if the kernel took the response, because the response carries messages.
    pub confirm: Option<u16>,
    /// True if it carries messages of channels that compress.
    pub compresses: bool,
}

impl Response {
    /// A response of this status without a body.
    pub fn with_status(status: u16) -> Response {
        Response { status, body: Bytes::new(), set_browser: None, confirm: None, compresses: false }
    }
}
