//! The body of a request, which counts among the incomplete messages until it has arrived.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::incomplete::Sender;
use super::node::Node;
use crate::fallback::BoxError;

/// The body of a request, counted until it is complete.
pub(crate) struct Watched<'a, B> {
    /// The part that was read before.
    first: Option<Frame<Bytes>>,
    body: B,
    node: &'a Node,
    sender: Sender,
    bytes: usize,
}

/// The body was given up.
#[derive(Debug, thiserror::Error)]
#[error("too many incomplete messages")]
pub(crate) struct GivenUp;

impl<'a, B> Watched<'a, B> {
    pub(crate) fn new(node: &'a Node, first: Option<Frame<Bytes>>, body: B) -> Watched<'a, B> {
        Watched { first, body, node, sender: Sender::Request(node.connection_number()), bytes: 0 }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for Watched<'_, B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.bytes > 0 && !self.node.incomplete.borrow().has(self.sender) {
            return Poll::Ready(Some(Err(GivenUp.into())));
        }
        let polled = match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => Pin::new(&mut self.body).poll_frame(cx),
        };
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && !self.body.is_end_stream()
        {
            self.bytes += PIECE_BYTES + frame.data_ref().map_or(0, Bytes::len);
            self.node.note_incomplete(self.sender, self.bytes, Some(cx.waker()));
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Watched<'_, B> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.node.note_incomplete(self.sender, 0, None);
        }
    }
}

/// The cost of each piece of a body beside its bytes, in bytes.
const PIECE_BYTES: usize = 64;
