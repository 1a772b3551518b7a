//! The requests and responses of a connection, over HTTP/1.1 or HTTP/2.

use crate::engine::Target;
use crate::engine::http::{Piece, Responses};
use crate::engine::http2::{Http2Requests, get};

/// One connection.
#[derive(Debug)]
pub(crate) enum Exchange {
    Http1(Responses),
    Http2(Http2Requests),
}

impl Exchange {
    pub(super) fn new(http2: bool) -> Exchange {
        if http2 { Exchange::Http2(Http2Requests::default()) } else { Exchange::Http1(Responses::default()) }
    }

    /// The bytes of a GET request, for [`Exchange::ask`].
    pub(super) fn request(&self, target: &Target, path: &str) -> Vec<u8> {
        match self {
            Exchange::Http1(_) => request(target, path),
            Exchange::Http2(_) => get(target, path),
        }
    }

    /// Appends what a client says first.
    pub(super) fn begin(&self, out: &mut Vec<u8>) {
        if let Exchange::Http2(requests) = self {
            requests.begin(out);
        }
    }

    /// Sends a request.
    pub(super) fn ask(&mut self, request: &[u8], out: &mut Vec<u8>) {
        match self {
            Exchange::Http1(_) => out.extend_from_slice(request),
            Exchange::Http2(requests) => requests.ask(request, out),
        }
    }

    /// Reads the next piece of a response, as [`Responses::next`].
    pub(super) fn next<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<(Piece<'a>, usize)>, String> {
        match self {
            Exchange::Http1(responses) => responses.next(bytes),
            Exchange::Http2(requests) => requests.next(bytes, out),
        }
    }

    /// True if the end of the connection is that of the response.
    pub(super) fn ends_with_connection(&self) -> bool {
        matches!(self, Exchange::Http1(responses) if responses.ends_with_connection())
    }
}

/// A GET request over HTTP/1.1.
pub(crate) fn request(target: &Target, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: keep-alive\r\n\r\n", target.authority).into_bytes()
}
