//! The body of a request over HTTP/2.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use hyper::body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::time::timeout;

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

impl Drop for StreamBody {
    /// A body that nobody has read to its end, as that of a refused request. h2 resets its stream as soon as nothing holds it, and some
    /// clients then miss the response: so the rest is read and discarded for a limited time, as on HTTP/1.1.
    fn drop(&mut self) {
        let rest = self.stream.take().filter(|stream| !stream.is_end_stream());
        if let (Some(mut rest), Ok(runtime)) = (rest, Handle::try_current()) {
            let discard = async move {
                let mut bytes = 0;
                while bytes < REST_BYTES_MAX
                    && let Some(Ok(data)) = rest.data().await
                    && rest.flow_control().release_capacity(data.len()).is_ok()
                {
                    bytes += data.len();
                }
            };
            drop(runtime.spawn(timeout(REST_TIMEOUT, discard)));
        }
    }
}

/// The bytes that are discarded behind a response.
const REST_BYTES_MAX: usize = 1024 * 1024;
/// The time in which they arrive.
const REST_TIMEOUT: Duration = Duration::from_secs(1);

opaque!(StreamBody);
