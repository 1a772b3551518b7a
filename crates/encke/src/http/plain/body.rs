//! The body of a plain request: the bytes that came with its head, and the rest from its connection.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::byte_stream::ByteStream;
use crate::net::node::Node;

/// The body of a plain request.
pub(super) struct PlainBody<'a> {
    node: &'a Node,
    stream: &'a ByteStream,
    /// Bytes that have arrived.
    arrived: Bytes,
    /// The number of those that have not.
    rest: &'a Cell<usize>,
}

impl<'a> PlainBody<'a> {
    pub(super) fn new(node: &'a Node, stream: &'a ByteStream, arrived: Bytes, rest: &'a Cell<usize>) -> PlainBody<'a> {
        PlainBody { node, stream, arrived, rest }
    }
}

impl Body for PlainBody<'_> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.arrived.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.arrived)))));
        }
        let rest = self.rest.get();
        if rest == 0 {
            return Poll::Ready(None);
        }
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let mut buffer = self.node.read_buffer();
            let most = buffer.len().min(rest);
            match self.stream.try_read(&mut buffer[..most]) {
                Ok(0) => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
                Ok(count) => {
                    self.rest.set(rest - count);
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(&buffer[..count])))));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.arrived.is_empty() && self.rest.get() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.arrived.len() + self.rest.get()) as u64)
    }
}
