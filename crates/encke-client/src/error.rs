//! Errors, by the side at fault.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bayeux::ErrorField;
use websocket::ProtocolError;

/// The reason why an operation failed, or why a session ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's fault: this client cannot use the URL.
    #[error("{url} is not a URL for a Bayeux server: {reason}")]
    #[non_exhaustive]
    Url {
        /// The URL as given.
        url: String,
        /// The rule that it breaks.
        reason: UrlError,
    },
    /// The caller's fault: a header of [`ClientBuilder::header`](crate::ClientBuilder::header) is not one that HTTP allows.
    #[error("{name} is not an HTTP header, or its value is not allowed")]
    #[non_exhaustive]
    Header {
        /// Its name.
        name: String,
    },
    /// The caller's fault: the data cannot be written as JSON.
    #[error("the data cannot be written as JSON: {0}")]
    Data(Arc<serde_json::Error>),
    /// The caller's fault: this client has a subscription to the channel, so it cannot begin at another position. End the
    /// other one first, or use another client.
    #[error("{0} is subscribed to already and cannot begin at a position")]
    AlreadySubscribed(String),
    /// The caller's fault: [`ClientBuilder::connect_any`](crate::ClientBuilder::connect_any) got no URL.
    #[error("no URL of a server")]
    NoUrl,
    /// The program's function for tokens ([`ClientBuilder::token`](crate::ClientBuilder::token)) has failed, for this reason.
    #[error("no token: {0}")]
    Token(String),
    /// No server answers at the address.
    #[error("cannot reach {address}: {source}")]
    #[non_exhaustive]
    Unreachable {
        /// Host and port.
        address: String,
        /// The system's error; [`io::ErrorKind::TimedOut`] if nothing answered in time.
        source: Arc<io::Error>,
    },
    /// TLS with the server fails, for example because its certificate is not accepted.
    #[error("no TLS with {address}: {source}")]
    #[non_exhaustive]
    Tls {
        /// Host and port.
        address: String,
        /// The reason.
        source: Arc<io::Error>,
    },
    /// The caller's fault: a file of [`ClientBuilder::ca_file`](crate::ClientBuilder::ca_file) or
    /// [`ClientBuilder::tls_identity`](crate::ClientBuilder::tls_identity) cannot be used.
    #[error("cannot use {} for TLS: {reason}", path.display())]
    #[non_exhaustive]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The server at the address is not a Bayeux server.
    #[error("no Bayeux server at {address}: {reason}")]
    #[non_exhaustive]
    NotBayeux {
        /// Host, port and path.
        address: String,
        /// The answer that is not Bayeux.
        reason: NotBayeux,
    },
    /// The server refused a message. The session continues, unless the server refused the session itself.
    #[error("{0}")]
    Refused(Refusal),
    /// The connection broke. It is not known whether a publication on its way has arrived; it is not sent again.
    #[error("connection lost: {0}")]
    ConnectionLost(LostReason),
    /// A service did not answer a [request](crate::Client::request) within
    /// [`ClientBuilder::reply_timeout`](crate::ClientBuilder::reply_timeout).
    #[error("no reply within {0:?}")]
    ReplyTimeout(Duration),
    /// A session that acknowledges got more messages than
    /// [`ClientBuilder::unacknowledged_messages_max`](crate::ClientBuilder::unacknowledged_messages_max) before the reply that
    /// confirms them.
    #[error("more than {0} messages came before the reply that confirms them")]
    TooManyUnacknowledged(usize),
    /// The same for [`ClientBuilder::unacknowledged_bytes_max`](crate::ClientBuilder::unacknowledged_bytes_max).
    #[error("more than {0} bytes came before the reply that confirms them")]
    TooManyUnacknowledgedBytes(usize),
    /// The message is longer than the server takes. It was not sent.
    #[error("a message of {bytes} bytes; the server takes {bytes_max}")]
    #[non_exhaustive]
    TooLarge {
        /// The bytes of the message.
        bytes: usize,
        /// The most that the server takes.
        bytes_max: u64,
    },
    /// The session has ended: by [`Client::disconnect`](crate::Client::disconnect), or for the reason in
    /// [`State::Closed`](crate::State::Closed).
    #[error("the session is closed")]
    Closed,
}

/// The rule that a URL breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It does not begin with a scheme that this client knows.
    #[error("it begins with http://, https://, ws:// or wss://")]
    Scheme,
    /// It is not a URL (RFC 3986): for example, it contains a space.
    #[error("it is not a URL")]
    Malformed,
    /// It contains a user name.
    #[error("it has no user name")]
    User,
    /// Its port is not a number from 1 to 65535.
    #[error("the port is a number from 1 to 65535")]
    Port,
    /// It has no host.
    #[error("it names a host")]
    Host,
}

/// An answer that is not Bayeux.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotBayeux {
    /// An unexpected HTTP status.
    #[error("it answered HTTP status {0}")]
    Status(u16),
    /// Bytes that are not HTTP.
    #[error("its answer is not HTTP")]
    NotHttp,
    /// A response that is not UTF-8.
    #[error("its answer is not UTF-8")]
    NotUtf8,
    /// An answer to the WebSocket handshake that breaks RFC 6455.
    #[error("it does not speak WebSocket: {0}")]
    Handshake(websocket::handshake::ResponseError),
    /// A text that is not a batch of Bayeux messages.
    #[error("it sent {0}")]
    Text(#[from] bayeux::server_message::ServerBatchError),
    /// A reply to the Bayeux handshake without a `clientId`.
    #[error("its handshake reply has no clientId")]
    NoClientId,
    /// A reply to the Bayeux handshake with a `clientId` of so many bytes, which each message would repeat.
    #[error("its handshake reply has a clientId of {0} bytes")]
    LongClientId(usize),
    /// No answer at all.
    #[error("no answer within {0:?}")]
    Silent(Duration),
    /// The connection broke before the server had answered in Bayeux.
    #[error("{0}")]
    Lost(LostReason),
}

/// The reason why a connection has ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// The system reported an error.
    #[error("{0}")]
    Io(Arc<io::Error>),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server closed the WebSocket with a close frame.
    #[error("the server closed the WebSocket with {code} {reason}")]
    #[non_exhaustive]
    CloseFrame {
        /// The status code (RFC 6455 §7.4).
        code: u16,
        /// The server's explanation.
        reason: String,
    },
    /// The server broke the WebSocket protocol.
    #[error("the server broke the WebSocket protocol: {0}")]
    Protocol(ProtocolError),
    /// An HTTP request failed half-way.
    #[error("{0}")]
    Http(Arc<dyn std::error::Error + Send + Sync>),
    /// The server did not reply in time.
    #[error("the server does not reply")]
    NoReply,
    /// The server refused to resume the session for now.
    #[error("{0}")]
    Refused(Refusal),
    /// An answer that is not Bayeux, from a server that spoke it before: often from a proxy while the server restarts.
    #[error("{0}")]
    NotBayeux(Box<NotBayeux>),
    /// The server cannot be reached.
    #[error("cannot reach the server: {0}")]
    Unreachable(Arc<io::Error>),
    /// The program's function for tokens has failed, for this reason.
    #[error("no token: {0}")]
    Token(String),
    /// A reason given by the program that drives a [`ClientSession`](crate::session::ClientSession) itself.
    #[error("{0}")]
    Other(String),
}

/// The refusal of one message by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The channel of the refused message.
    pub channel: String,
    /// The `error` field of the reply (Bayeux 1.0, "error"), such as `403::subscribe_denied`; empty if it had none.
    pub error: String,
}

impl Refusal {
    pub(crate) fn new(channel: impl Into<String>, error: impl Into<String>) -> Refusal {
        Refusal { channel: channel.into(), error: error.into() }
    }

    /// The number at the beginning of the error: `403`. `None` if it has none.
    pub fn code(&self) -> Option<u16> {
        ErrorField::parse(&self.error).code
    }

    /// The name of the error at its end: `subscribe_denied`.
    pub fn name(&self) -> &str {
        ErrorField::parse(&self.error).text
    }

    /// The arguments between code and name, often none.
    pub fn args(&self) -> &str {
        ErrorField::parse(&self.error).args
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = if self.error.is_empty() { "without a reason" } else { &self.error };
        write!(f, "{} refused: {error}", self.channel)
    }
}

impl std::error::Error for Refusal {}

impl Error {
    /// True if a later attempt may succeed: the network, the server or the source of tokens is away.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Unreachable { .. } | Error::ConnectionLost(_) | Error::ReplyTimeout(_) | Error::Token(_) => true,
            Error::NotBayeux { reason, .. } => reason.is_transient(),
            _ => false,
        }
    }

    /// The same as the reason why a connection broke, for a session that existed before.
    pub(crate) fn into_lost(self) -> LostReason {
        match self {
            Error::ConnectionLost(reason) => reason,
            Error::NotBayeux { reason, .. } => LostReason::NotBayeux(Box::new(reason)),
            Error::Unreachable { source, .. } => LostReason::Unreachable(source),
            Error::Refused(refusal) => LostReason::Refused(refusal),
            Error::Token(reason) => LostReason::Token(reason),
            error => LostReason::Other(error.to_string()),
        }
    }
}

impl NotBayeux {
    /// True if a Bayeux server may answer later: nothing has answered, or a proxy whose server is away.
    fn is_transient(&self) -> bool {
        matches!(self, NotBayeux::Silent(_) | NotBayeux::Lost(_) | NotBayeux::Status(429 | 500..=599))
    }
}

impl From<LostReason> for Error {
    fn from(reason: LostReason) -> Error {
        match reason {
            LostReason::Token(reason) => Error::Token(reason),
            reason => Error::ConnectionLost(reason),
        }
    }
}

impl From<io::Error> for LostReason {
    fn from(error: io::Error) -> LostReason {
        LostReason::Io(Arc::new(error))
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Error {
        Error::Data(Arc::new(error))
    }
}
