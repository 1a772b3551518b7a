//! The reasons why a request has no response.

use std::error::Error;
use std::io;
use std::path::PathBuf;

/// A request that has no response. Each variant that is a limit names it and its value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The file of extra certificates cannot be used.
    #[error("{}: {reason}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The URL is not one of HTTP or HTTPS.
    #[error("{url}: {reason}")]
    Url {
        /// The URL, without user information and query.
        url: String,
        /// The reason.
        reason: &'static str,
    },
    /// No connection was made: the name is unknown, nobody listens, or the certificate is not trusted.
    #[error("no connection: {0}")]
    Connect(String),
    /// The connection was not open in time.
    #[error("no connection within {connect_timeout_ms} ms (connect_timeout_ms)")]
    ConnectTimeout {
        /// The limit.
        connect_timeout_ms: u64,
    },
    /// The response was not complete in time.
    #[error("no complete response within {total_timeout_ms} ms (total_timeout_ms)")]
    TotalTimeout {
        /// The limit.
        total_timeout_ms: u64,
    },
    /// Other requests to the host did not end in time.
    #[error("{requests_per_host_max} requests to the host are under way (requests_per_host_max)")]
    HostBusy {
        /// The limit.
        requests_per_host_max: usize,
    },
    /// The body of the response is too long.
    #[error("the response has more than {response_bytes_max} bytes (response_bytes_max)")]
    ResponseTooLarge {
        /// The limit.
        response_bytes_max: usize,
    },
    /// The caller has no room for the body of the response.
    #[error("there is no room for the response")]
    NoRoom,
    /// The server redirects too often.
    #[error("more than {redirects_max} redirects (redirects_max)")]
    TooManyRedirects {
        /// The limit.
        redirects_max: usize,
    },
    /// The server redirects to a URL that was asked before.
    #[error("redirects in a loop, to {url}")]
    RedirectLoop {
        /// The URL, without user information and query.
        url: String,
    },
    /// The server redirects to an address that is not followed.
    #[error("a redirect that is not followed: {reason}")]
    RedirectRefused {
        /// The reason.
        reason: &'static str,
    },
    /// The connection broke, or the server does not speak HTTP.
    #[error("broken response: {0}")]
    Broken(String),
}

impl FetchError {
    /// True if the request met a limit of time.
    pub fn is_timeout(&self) -> bool {
        matches!(
            self,
            FetchError::ConnectTimeout { .. } | FetchError::TotalTimeout { .. } | FetchError::HostBusy { .. }
        )
    }
}

/// The connector's own limit, as a cause inside the client's error.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {0} ms")]
pub(crate) struct ConnectTimedOut(pub(crate) u64);

/// The error of a request that the client could not make.
pub(crate) fn of_client(error: &hyper_util::client::legacy::Error) -> FetchError {
    let timed_out = causes(error).find_map(|cause| cause.downcast_ref::<ConnectTimedOut>());
    match timed_out {
        Some(ConnectTimedOut(connect_timeout_ms)) => {
            FetchError::ConnectTimeout { connect_timeout_ms: *connect_timeout_ms }
        }
        None if error.is_connect() => FetchError::Connect(last_cause(error)),
        None => FetchError::Broken(last_cause(error)),
    }
}

/// The error of a body that broke.
pub(crate) fn of_body(error: &hyper::Error) -> FetchError {
    FetchError::Broken(last_cause(error))
}

/// An error and its causes. Unlike `io::Error::source`, this does not leave out the error inside an I/O error.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner as &(dyn Error + 'static)),
        None => error.source(),
    })
}

/// The text of the innermost cause, which is the exact one.
fn last_cause(error: &(dyn Error + 'static)) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}
