//! The task of one stream: a response that stays open. It only notices that the client has left; the flusher writes.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::AsyncWriteExt;

use super::connections::Counted;
use super::node::Node;
use super::open_sockets::{Closed, OpenSocket};
use super::stream_request::{Served, StreamRequest};
use super::thread_message::{MovingStream, ThreadMessage};
use crate::byte_stream::ByteStream;
use encke_core::{ENVELOPE_BYTES, StreamOpening};

/// Opens a stream on a connection that has no other use any more. The head of its response is written before all else.
pub(crate) fn open(
    node: &Rc<Node>,
    connection: ByteStream,
    counted: Option<Counted>,
    request: StreamRequest,
    head: Vec<u8>,
) {
    if !matches!(request.served, Served::ByNode(_))
        && let Some(StreamOpening::Elsewhere(shard)) = node.shard().stream_refusal(&request.client, &request.opener)
    {
        return leave(node, shard, connection, counted, request, head);
    }
    if matches!(request.served, Served::ForNode(_)) {
        // Nothing comes before its first message.
        return begin(node, connection, counted, request);
    }
    tokio::task::spawn_local(write_head(node.clone(), connection, counted, request, head));
}

/// Writes the head, then lets the shard write, or another node.
async fn write_head(
    node: Rc<Node>,
    mut connection: ByteStream,
    counted: Option<Counted>,
    mut request: StreamRequest,
    mut head: Vec<u8>,
) {
    let heartbeat_ms = node.shard().settings().stream_heartbeat_ms;
    connection.limit_silence(Duration::from_millis(heartbeat_ms.saturating_mul(2)));
    head.extend_from_slice(request.introduction.as_bytes());
    if connection.write_all(&head).await.is_err() {
        return;
    }
    match std::mem::replace(&mut request.served, Served::Here) {
        Served::ByNode(seat) => {
            if let Ok(connection) = connection.detach() {
                // The stream may have ended meanwhile.
                _ = seat.send((connection, Box::new(counted)));
            }
        }
        Served::Here | Served::ForNode(_) => begin(&node, connection, counted, request),
    }
}

/// Lets the shard write. If the session has ended since the request was answered, the client finds the end of the stream, and asks again.
fn begin(node: &Rc<Node>, connection: ByteStream, counted: Option<Counted>, request: StreamRequest) {
    let StreamRequest { client, opener, format, reached, served, .. } = request;
    let opening = node.shard_mut().open_stream(node.now(), &client, &opener, format, reached);
    if let StreamOpening::Here(key) = opening {
        let stream = Rc::new(OpenSocket::new(key, connection));
        node.sockets().add(stream.clone());
        let stream = Stream { node: node.clone(), stream, _counted: counted, read_bytes: 0 };
        tokio::task::spawn_local(Task(Some(stream)));
    }
    if let Served::ForNode(outcome) = served {
        let refusal = (!matches!(opening, StreamOpening::Here(_))).then_some(opening);
        // The thread of the cluster may have ended.
        _ = outcome.send(refusal);
    }
    node.settle();
}

/// Continues a stream that another shard passed on.
pub(crate) fn go_on(node: &Rc<Node>, moving: MovingStream) {
    let MovingStream { connection, counted, request, head, charge: _released } = moving;
    match connection.attach() {
        Ok(connection) => open(node, connection, counted, request, head),
        Err(error) => tracing::warn!(%error, "a stream was lost on its way to its shard"),
    }
}

/// Moves the connection to the shard of its session.
fn leave(
    node: &Node,
    shard: usize,
    connection: ByteStream,
    counted: Option<Counted>,
    request: StreamRequest,
    head: Vec<u8>,
) {
    let Ok(connection) = connection.detach() else { return };
    let charge = node.server().mailboxes.account().charge(ENVELOPE_BYTES + head.len() + request.introduction.len());
    let moving = MovingStream { connection, counted, request, head, charge };
    node.send(shard, ThreadMessage::Stream(Box::new(moving)));
}

struct Stream {
    node: Rc<Node>,
    stream: Rc<OpenSocket>,
    _counted: Option<Counted>,
    /// The bytes that the client has sent behind its request.
    read_bytes: usize,
}

/// The task of a stream, until it ends.
struct Task(Option<Stream>);

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = &mut self.0 else { return Poll::Ready(()) };
        let is_orderly = ready!(stream.poll(cx));
        match self.0.take() {
            // A separate task: the wait for the client's end is rare and large.
            Some(stream) if is_orderly => _ = tokio::task::spawn_local(stream.linger()),
            Some(stream) => stream.node.forget_socket(stream.stream.key),
            None => {}
        }
        Poll::Ready(())
    }
}

impl Stream {
    /// Ready when the stream ends. True if bytes already written are to arrive.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if let Some(closed) = self.stream.closed.get() {
            return Poll::Ready(closed == Closed::Orderly);
        }
        self.stream.reader.set(Some(cx.waker().clone()));
        self.node.write_when_ready(&self.stream, cx);
        loop {
            if ready!(self.stream.connection.poll_read_ready(cx)).is_err() {
                return Poll::Ready(false);
            }
            match self.stream.connection.try_read(&mut [0; READ_AT_ONCE_BYTES]) {
                Ok(0) => return Poll::Ready(false),
                // Further requests get no answer.
                Ok(bytes) if self.read_bytes + bytes > READ_BYTES_MAX => return Poll::Ready(false),
                Ok(bytes) => self.read_bytes += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(false),
            }
        }
    }

    async fn linger(self) {
        self.stream.connection.linger().await;
        self.node.forget_socket(self.stream.key);
    }
}

/// The bytes that a client may send while its stream is open. More end the stream.
const READ_BYTES_MAX: usize = 16 * 1024;
const READ_AT_ONCE_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_stream_needs_a_small_task() {
        assert!(size_of::<Task>() <= 64, "{}", size_of::<Task>());
    }
}
