//! The body of a request over HTTP/2.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use hyper::body::{Body, Frame, SizeHint};

/// The body of a request over HTTP/2. The client may send more when its bytes are taken.
pub struct StreamBody {
    /// None if there is no body.
    stream: Option<RecvStream>,
    /// The length that the request declares. h2 resets the stream of a body that has another one.
    length: Option<u64>,
}

impl StreamBody {
    pub(crate) fn new(stream: Option<RecvStream>, length: Option<u64>) -> StreamBody {
        StreamBody { stream, length }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        if let Some(data) = ready!(stream.poll_data(cx)) {
            let data = data?;
            stream.flow_control().release_capacity(data.len())?;
            self.length = self.length.map(|length| length.saturating_sub(data.len() as u64));
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let trailers = ready!(stream.poll_trailers(cx))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.as_ref().is_none_or(RecvStream::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

opaque!(StreamBody);
