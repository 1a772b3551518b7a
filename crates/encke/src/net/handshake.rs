//! The TLS handshake of a new connection, on the thread of its shard.

use std::rc::Rc;
use std::time::Duration;

use super::node::Node;
use crate::byte_stream::ByteStream;

/// Completes the handshake of a connection that speaks TLS. False if it failed or took too long.
pub(crate) async fn complete(node: &Rc<Node>, stream: &ByteStream) -> bool {
    if !stream.is_tls() {
        return true;
    }
    let count = |by: i64| {
        let shard = node.shard();
        let open = &shard.metrics().tls_handshakes_open;
        open.set(open.get().saturating_add_signed(by) as usize);
    };
    let limit = Duration::from_millis(node.shard().settings().tls_handshake_timeout_ms);
    count(1);
    let handshake = tokio::time::timeout(limit, stream.handshake(&node.handshake_turns)).await;
    count(-1);
    let shard = node.shard();
    match handshake.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
        Ok(is_resumed) => {
            shard.metrics().tls_handshakes.add(1);
            shard.metrics().tls_resumed.add(usize::from(is_resumed));
            true
        }
        Err(error) => {
            shard.metrics().tls_failed.add(1);
            tracing::debug!(%error, address = ?stream.peer_address(), "a TLS handshake failed");
            false
        }
    }
}
