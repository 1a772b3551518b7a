//! Bodies of responses: whole, or a stream of publications.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use encke::{Hold, Release};
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use crate::instruct::KeepAlive;
use crate::item;
use crate::room::Taken;

/// The body of a response.
#[derive(Debug)]
pub struct ProxyBody(Kind);

#[derive(Debug)]
enum Kind {
    Whole(Bytes),
    Stream(Box<Stream>),
}

/// A response that goes on with each publication.
struct Stream {
    /// The first part, from the backend.
    first: Bytes,
    next: Pin<Box<dyn Future<Output = (Hold, Release)> + Send>>,
    keep_alive: Option<(KeepAlive, Pin<Box<Sleep>>)>,
    is_over: bool,
    _held: Taken,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stream")
    }
}

impl ProxyBody {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> ProxyBody {
        ProxyBody(Kind::Whole(bytes.into()))
    }

    pub(crate) fn stream(first: Bytes, hold: Hold, keep_alive: Option<KeepAlive>, held: Taken) -> ProxyBody {
        let keep_alive = keep_alive.map(|keep| {
            let timer = Box::pin(sleep(keep.every));
            (keep, timer)
        });
        let next = next(hold);
        ProxyBody(Kind::Stream(Box::new(Stream { first, next, keep_alive, is_over: false, _held: held })))
    }
}

fn next(mut hold: Hold) -> Pin<Box<dyn Future<Output = (Hold, Release)> + Send>> {
    Box::pin(async move {
        let release = hold.next().await;
        (hold, release)
    })
}

impl Stream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(std::mem::take(&mut self.first)));
        }
        loop {
            if self.is_over {
                return Poll::Ready(None);
            }
            if let Poll::Ready((hold, release)) = self.next.as_mut().poll(cx) {
                self.next = next(hold);
                match release {
                    Release::Message(message) => {
                        let part = item::part(message.data(), message.side());
                        self.is_over = part.closes;
                        if let Some((keep, timer)) = &mut self.keep_alive {
                            *timer = Box::pin(sleep(keep.every));
                        }
                        if !part.content.is_empty() {
                            return Poll::Ready(Some(part.content));
                        }
                    }
                    // Its client reads too slowly, or messages are gone: it must not miss any silently.
                    _ => self.is_over = true,
                }
                continue;
            }
            let Some((keep, timer)) = &mut self.keep_alive else { return Poll::Pending };
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            *timer = Box::pin(sleep(keep.every.max(Duration::from_millis(1))));
            if !keep.content.is_empty() {
                return Poll::Ready(Some(keep.content.clone()));
            }
        }
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match &mut self.0 {
            Kind::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Whole(bytes) => Poll::Ready(Some(std::mem::take(bytes))),
            Kind::Stream(stream) => stream.poll(cx),
        };
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Kind::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}
