//! What can go wrong, told by who is at fault.

/// Why something did not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller's fault: the URL is none that this client can use.
    #[error("{url} is not a URL for a Bayeux server: {wanted}")]
    Url {
        /// The URL as given.
        url: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// Nobody answers there.
    #[error("cannot reach {address}: {reason}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// The system's words.
        reason: String,
    },
    /// Somebody answers there, but no Bayeux server.
    #[error("no Bayeux server at {address}: {reason}")]
    NotBayeux {
        /// Host, port and path.
        address: String,
        /// What came in place of Bayeux.
        reason: String,
    },
    /// The server understood and said no.
    #[error("{channel} refused: {error}")]
    Refused {
        /// The channel of the refused message.
        channel: String,
        /// The Bayeux error (Bayeux 1.0 §3.14), such as `403::subscribe_denied`.
        error: String,
    },
    /// The connection broke. Whether a publication on its way arrived is not known.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The caller's fault: messages came in and nobody took them with `next`.
    #[error("more than {0} messages wait to be taken")]
    Overflow(usize),
}

impl Error {
    /// Whether trying again later makes sense: the network or the server is away.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Unreachable { .. } | Error::Lost(_))
    }
}
