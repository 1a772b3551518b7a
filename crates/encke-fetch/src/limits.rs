//! All limits of requests.

/// The limits of each request, and of the connections of a [`Fetcher`](crate::Fetcher).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest time to open a connection: name look-up, TCP and TLS together, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Longest time of a request in all, in milliseconds: waiting for a free connection, connecting, redirects, and the whole body.
    pub total_timeout_ms: u64,
    /// Most bytes of a response's body. A longer one is an error as soon as its length is announced or exceeded.
    pub response_bytes_max: usize,
    /// Most redirects that one request follows. 0: a redirect is an error.
    pub redirects_max: usize,
    /// Most requests to one host at the same time; further ones wait. With HTTP/1.1 each of them has its own connection, with HTTP/2
    /// they share one.
    pub requests_per_host_max: usize,
    /// The time after which a connection without requests is closed, in milliseconds.
    pub idle_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connect_timeout_ms: 3_000,
            total_timeout_ms: 10_000,
            response_bytes_max: 1024 * 1024,
            redirects_max: 5,
            requests_per_host_max: 16,
            idle_timeout_ms: 60_000,
        }
    }
}

/// Most bytes of a response's status line and headers with HTTP/1.1.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of a response's headers with HTTP/2.
pub(crate) const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;
