//! The content coding of bodies that are made for one request: gzip.

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_ENCODING, HeaderMap, VARY};
use tokio::task::spawn_blocking;

use super::connection::Connection;
use super::{Body, with};
use crate::accept_encoding::preferred;
use crate::gzip::Gzip;

/// The form of a body of a channel that compresses, for a client that takes gzip; true if it is gzip. The client's connection pays
/// for the work. A long body is compressed aside, so that the other clients of the shard do not wait for it.
pub(super) async fn form(connection: &Connection, body: Bytes) -> (Bytes, bool) {
    let node = &connection.node;
    if body.len() < node.shard().settings().compress_bytes_min {
        return (body, false);
    }
    let mut usage = connection.usage().get();
    usage.add(node.now(), body.len() as u64);
    connection.usage().set(usage);
    let form = if body.len() <= AT_ONCE_BYTES_MAX {
        node.gzip().compressed(&body)
    } else {
        let body = body.clone();
        spawn_blocking(move || Gzip::default().compressed(&body)).await.ok().flatten()
    };
    match form {
        Some(form) => (connection.counted(form.into()), true),
        None => (body, false),
    }
}

/// The same response with the fields of a body that has several forms. `is_gzip`: this is the gzip form.
pub(super) fn with_fields(response: Response<Body>, is_gzip: bool) -> Response<Body> {
    let fields = [(VARY, "accept-encoding"), (CONTENT_ENCODING, "gzip")];
    with(response, &fields[..1 + usize::from(is_gzip)])
}

/// True if a client prefers gzip to a body as it is.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    preferred(&["gzip"], |coding| coding, headers).is_some()
}

/// A body up to this size is compressed at once, in some 30 to 300 µs.
const AT_ONCE_BYTES_MAX: usize = 32 * 1024;
