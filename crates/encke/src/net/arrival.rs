//! The arrival of a connection: who is at its other end, and the count of its address.

use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::connections::Counted;
use super::node::Node;
use crate::byte_stream::{ByteStream, ProxyHead, Remote};

/// Counts a connection. One that its address has too much gets status 429.
pub(crate) fn count(node: &Node, stream: &ByteStream, remote: Remote) -> Option<Counted> {
    let settings = node.shard().settings().clone();
    let connections = &node.server().connections;
    let Some(address) = remote.address().filter(|_| !remote.is_trusted(&settings)) else {
        // It is nobody's, or those of a proxy are many clients'.
        return Some(connections.count_elsewhere());
    };
    let counted = connections.count(address, settings.address_connections_max);
    if counted.is_none() {
        node.shard().metrics().address_connections_refused.add(1);
        tracing::debug!(%address, "connection refused: address_connections_max reached");
        stream.refuse(FULL_FOR_ADDRESS);
    }
    counted
}

/// Reads the PROXY head. Returns the client that it names, counted for its address. None if the connection is refused.
pub(crate) async fn read_proxy_head(node: &Rc<Node>, stream: &ByteStream, proxy: Remote) -> Option<(Remote, Counted)> {
    let settings = node.shard().settings().clone();
    let head = match proxy.is_trusted(&settings) {
        true => {
            let limit = Duration::from_millis(settings.request_timeout_ms);
            let head = tokio::time::timeout(limit, stream.proxy_head()).await;
            head.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
        false => Err(io::Error::other("it comes from nobody in trusted_proxies")),
    };
    match head {
        Ok(head) => {
            let ProxyHead { source, is_tls } = head?;
            let unnamed = Remote::Unnamed(proxy.address());
            let remote = source.map_or(unnamed, |address| Remote::Named { address, is_tls });
            count(node, stream, remote).map(|counted| (remote, counted))
        }
        Err(error) => {
            node.shard().metrics().proxy_heads_refused.add(1);
            static IS_LOGGED: AtomicBool = AtomicBool::new(false);
            let from = proxy.address().map(|address| address.to_string());
            if IS_LOGGED.swap(true, Ordering::Relaxed) {
                tracing::debug!(from, %error, "a connection without a valid PROXY head was closed");
            } else {
                let text = "a connection without a valid PROXY head was closed (further ones: log level debug)";
                tracing::warn!(from, %error, "{text}");
            }
            None
        }
    }
}

/// The response to a connection of an address that has too many.
const FULL_FOR_ADDRESS: &[u8] =
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nretry-after: 5\r\nconnection: close\r\n\r\n";
