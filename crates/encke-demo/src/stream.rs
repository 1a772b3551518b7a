//! `GET /demo/stream/comet?id=7`: the endless response of "Comet & Java: Threaded Vs Nonblocking I/O" (2008), a welcome and
//! then a chunk every ten seconds, or every `every_ms` milliseconds.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use encke::{Fallback, FallbackResponse, Metric, RequestBody, RequestClient, ResponseBody};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// The streams of a server. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Streams(Arc<OpenStreams>);

#[derive(Debug, Default)]
struct OpenStreams {
    /// Streams that are open.
    open: AtomicUsize,
    /// True when all streams end.
    stopped: watch::Sender<bool>,
}

/// The streams in front of another fallback.
struct InFront {
    streams: Streams,
    next: Option<Arc<dyn Fallback>>,
}

impl Streams {
    /// A fallback that answers requests for streams, and passes all others on.
    pub fn in_front_of(&self, next: Option<Arc<dyn Fallback>>) -> Arc<dyn Fallback> {
        Arc::new(InFront { streams: self.clone(), next })
    }

    /// Ends all streams, because the server stops.
    pub fn stop(&self) {
        self.0.stopped.send_replace(true);
    }

    /// The number of open streams.
    pub fn metrics(&self) -> Vec<Metric> {
        let open = self.0.open.load(Ordering::Relaxed) as u64;
        vec![Metric::gauge("encke_demo_streams", "Open streams of the demo page stream.").with(&[], open)]
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<ResponseBody> {
        if request.method() != Method::GET {
            return refused(StatusCode::METHOD_NOT_ALLOWED, "a stream is a GET request\n", Some((ALLOW, "GET")));
        }
        let Some((id, every)) = asked_for(request.uri().query().unwrap_or_default()) else {
            return refused(
                StatusCode::BAD_REQUEST,
                "id is letters, digits and dashes; every_ms is 100 to 60000\n",
                None,
            );
        };
        let counted = OpenStream(self.0.clone());
        if self.0.open.fetch_add(1, Ordering::Relaxed) >= STREAMS_MAX {
            let busy = "too many streams are open\n";
            return refused(StatusCode::SERVICE_UNAVAILABLE, busy, Some((RETRY_AFTER, "10")));
        }
        let mut ticks = interval_at(Instant::now() + every, every);
        // A client that reads slowly gets fewer chunks.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopped = self.0.stopped.subscribe();
        let stopped = Box::pin(async move { _ = stopped.wait_for(|stopped| *stopped).await });
        let stream = Stream { id, sent: None, ticks, stopped, _counted: counted };
        let mut response = Response::new(stream.boxed_unsync());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

impl Fallback for InFront {
    fn takes(&self, path: &str) -> bool {
        path == PATH || self.next.as_ref().is_some_and(|next| next.takes(path))
    }

    fn answer(&self, request: Request<RequestBody>, client: RequestClient) -> FallbackResponse {
        match &self.next {
            Some(next) if request.uri().path() != PATH => next.answer(request, client),
            _ => Box::pin(std::future::ready(self.streams.answer(&request))),
        }
    }
}

/// The id of a stream and the time between its chunks.
fn asked_for(query: &str) -> Option<(String, Duration)> {
    let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let is_plain = |id: &&str| {
        (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let id = value("id").filter(is_plain)?;
    let every_ms = value("every_ms").map_or(Ok(EVERY_MS), str::parse).ok()?;
    (EVERY_MS_MIN..=EVERY_MS_MAX).contains(&every_ms).then(|| (id.to_owned(), Duration::from_millis(every_ms)))
}

fn refused(
    status: StatusCode,
    why: &'static str,
    header: Option<(HeaderName, &'static str)>,
) -> Response<ResponseBody> {
    let mut response = Response::new(Full::from(why).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if let Some((name, value)) = header {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The body of an endless response.
struct Stream {
    id: String,
    /// The number of the last chunk. None: the welcome comes first.
    sent: Option<u64>,
    ticks: Interval,
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    _counted: OpenStream,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let text = match self.sent {
            None => {
                self.sent = Some(0);
                format!("Welcome! Your Id: {}\n", self.id)
            }
            Some(sent) => {
                if self.stopped.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                ready!(self.ticks.poll_tick(cx));
                self.sent = Some(sent + 1);
                format!("Chunk {} for Id: {}\n", sent + 1, self.id)
            }
        };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(text)))))
    }
}

/// A stream that is counted until it ends.
struct OpenStream(Arc<OpenStreams>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The path of all streams.
const PATH: &str = "/demo/stream/comet";
/// Streams that are open at the same time.
const STREAMS_MAX: usize = 1_000;
/// Length of an id, in bytes.
const ID_BYTES_MAX: usize = 64;
/// The time between chunks, as in the post.
const EVERY_MS: u64 = 10_000;
const EVERY_MS_MIN: u64 = 100;
const EVERY_MS_MAX: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn get(streams: &Streams, query: &str) -> Response<ResponseBody> {
        streams.answer(&Request::get(format!("{PATH}{query}")).body(()).expect("a request"))
    }

    async fn next(response: &mut Response<ResponseBody>) -> Option<String> {
        let bytes = response.body_mut().frame().await?.expect("a frame").into_data().expect("data");
        Some(String::from_utf8(bytes.to_vec()).expect("a text"))
    }

    fn run(future: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future);
    }

    #[test]
    fn a_stream_has_the_texts_of_the_post_until_the_server_stops() {
        run(async {
            let streams = Streams::default();
            let mut response = get(&streams, "?id=7&every_ms=100");
            assert_eq!(response.status(), StatusCode::OK);
            for text in ["Welcome! Your Id: 7\n", "Chunk 1 for Id: 7\n", "Chunk 2 for Id: 7\n"] {
                assert_eq!(next(&mut response).await.as_deref(), Some(text));
            }
            streams.stop();
            assert_eq!(next(&mut response).await, None);
        });
    }

    #[test]
    fn a_request_that_is_wrong_is_refused() {
        let streams = Streams::default();
        for query in ["", "?id=", "?id=a%20b", "?id=7&every_ms=99", "?id=7&every_ms=60001", "?id=7&every_ms=x"] {
            assert_eq!(get(&streams, query).status(), StatusCode::BAD_REQUEST, "{query}");
        }
        assert_eq!(get(&streams, &format!("?id={}", "a".repeat(65))).status(), StatusCode::BAD_REQUEST);
        let post = Request::post(format!("{PATH}?id=7")).body(()).expect("a request");
        assert_eq!(streams.answer(&post).status(), StatusCode::METHOD_NOT_ALLOWED);
    }

    #[test]
    fn one_stream_more_than_the_limit_is_refused_until_another_ends() {
        run(async {
            let streams = Streams::default();
            let mut open: Vec<_> = (0..STREAMS_MAX).map(|_| get(&streams, "?id=7")).collect();
            assert!(open.iter().all(|response| response.status() == StatusCode::OK));
            let refused = get(&streams, "?id=7");
            assert_eq!(
                (refused.status(), refused.headers().contains_key(RETRY_AFTER)),
                (StatusCode::SERVICE_UNAVAILABLE, true)
            );
            assert!(format!("{:?}", streams.metrics()).contains("1000"), "{:?}", streams.metrics());
            open.pop();
            assert_eq!(get(&streams, "?id=7").status(), StatusCode::OK);
        });
    }

    #[test]
    fn other_paths_go_to_the_next_fallback() {
        struct Other;
        impl Fallback for Other {
            fn takes(&self, path: &str) -> bool {
                path == "/other"
            }
            fn answer(&self, _: Request<RequestBody>, _: RequestClient) -> FallbackResponse {
                Box::pin(std::future::ready(refused(StatusCode::IM_A_TEAPOT, "", None)))
            }
        }
        let alone = Streams::default().in_front_of(None);
        let both = Streams::default().in_front_of(Some(Arc::new(Other)));
        let takes = |fallback: &Arc<dyn Fallback>| [PATH, "/other", "/demo/stream"].map(|path| fallback.takes(path));
        assert_eq!((takes(&alone), takes(&both)), ([true, false, false], [true, true, false]));
    }
}
