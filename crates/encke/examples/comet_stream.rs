//! Responses without an end, as the servlet of "Comet & Java: Threaded Vs Nonblocking I/O" (2008) had them: `Welcome! Your Id: 7`, then a
//! chunk for each event. Thousands of them stay open, and none has a thread.
//!
//! `cargo run -p encke --example comet_stream`, then `curl --no-buffer 'http://127.0.0.1:8080/comet?id=7'`. An event is a message on the
//! channel `/comet/events`: the program publishes one every ten seconds, and so does `encke publish /comet/events 1`. `encke bench flood
//! --connections 5000` opens many. Clients that know events or JSON lines get such streams without a program: docs/streams.md.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use encke::{Builder, ResponseBody, RouteReply, RouteRequest, Server, SubscribeError, Subscription};
use futures_core::Stream;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;

/// The server with its route.
pub fn server() -> Builder {
    Server::builder().route("/comet", stream)
}

/// The channel of the events.
pub const EVENTS: &str = "/comet/events";

/// Begins a response. It ends when its client leaves: then its body is dropped, and the subscription with it.
async fn stream(request: RouteRequest) -> Result<Response<ResponseBody>, SubscribeError> {
    let query = request.request().uri().query().unwrap_or_default();
    let Some(id) = query.strip_prefix("id=").and_then(|id| id.parse().ok()) else {
        return Ok((StatusCode::BAD_REQUEST, "an id, such as /comet?id=7\n").into_response());
    };
    let chunks = Chunks { id, number: 0, events: request.handle().subscribe(EVENTS)? };
    let mut response = Response::new(ResponseBody::new(StreamBody::new(chunks)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(response)
}

/// The chunks of one response.
struct Chunks {
    id: u64,
    /// The number of the next chunk. The welcome is the first one.
    number: u64,
    events: Subscription,
}

impl Stream for Chunks {
    type Item = Result<Frame<Bytes>, Box<dyn std::error::Error + Send + Sync>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let (id, number) = (self.id, self.number);
        let chunk = if number == 0 {
            format!("Welcome! Your Id: {id}\n")
        } else {
            // A client that is too slow misses events: a gap is one chunk, too.
            match ready!(Pin::new(&mut self.events).poll_next(cx)) {
                Some(_) => format!("Chunk {number} for Id: {id}\n"),
                None => return Poll::Ready(None),
            }
        };
        self.number += 1;
        Poll::Ready(Some(Ok(Frame::data(chunk.into()))))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let running = server().start()?;
    println!("curl --no-buffer 'http://{}/comet?id=7'", running.address());
    let handle = running.handle();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(10));
            if let Err(error) = handle.publish(EVENTS, "1") {
                eprintln!("no event: {error}");
            }
        }
    });
    running.join();
    Ok(())
}
