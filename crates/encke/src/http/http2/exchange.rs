//! The task of one request over HTTP/2.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Body as _;

use super::{SEND_BYTES, translate};
use crate::byte_stream::ByteStream;
use crate::http::connection::{Connection, Upgrade};
use crate::http::held::Held;
use crate::http::{Body, routes, serve};
use crate::net::socket;
use crate::net::stall::Stall;

/// Answers a request of a connection.
pub(super) fn begin(parent: &Rc<Connection>, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
    let connection = Rc::new(Connection::of_stream(parent));
    tokio::task::spawn_local(async move {
        if answer(&connection, request, respond).await.is_none() {
            tracing::debug!(address = ?connection.remote.address(), "an HTTP/2 stream ended before its response");
        }
    });
}

/// None if the client did not get the whole response. A request is abandoned when its client resets the stream.
async fn answer(
    connection: &Rc<Connection>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Option<()> {
    let (request, stream) = translate::request(request);
    let is_head = *request.method() == Method::HEAD;
    let response = {
        let (node, health) = (&connection.node, &connection.health);
        health.begin_request();
        health.set_busy(true);
        let mut answer = Box::pin(routes::answer(connection, request));
        let (mut is_noted, mut held) = (false, None);
        let answered = poll_fn(|cx| {
            let polled = answer.as_mut().poll(cx);
            if let Some(links) = connection.take_hints() {
                // If the stream is reset, the response finds out.
                let _reset = respond.send_informational(translate::early_hints(links));
            }
            if let Poll::Ready(response) = polled {
                return Poll::Ready(Some(response));
            }
            if !std::mem::replace(&mut is_noted, true) {
                node.young().note(health, cx.waker());
            }
            if health.waits_long.is_set() {
                held.get_or_insert_with(|| Held::new(node));
            }
            respond.poll_reset(cx).map(|_| None)
        });
        answered.await?
    };
    let (mut head, body) = response.into_parts();
    let (body, mut rest) = (pin!(body), Bytes::new());
    // Dropped before both, whose messages are then reported as lost.
    let mut lost = LostOnDrop(Some(connection));
    let is_switch = head.status == StatusCode::SWITCHING_PROTOCOLS;
    translate::response(&mut head, body.size_hint().exact());
    if is_switch {
        let Some(stream) = stream else {
            respond.send_reset(Reason::INTERNAL_ERROR);
            return None;
        };
        let send = respond.send_response(Response::from_parts(head, ()), false).ok()?;
        let stream = ByteStream::of_stream(send, stream, connection.remote.address());
        match connection.upgrade.take()? {
            Upgrade::WebSocket(opener) => socket::open(&connection.node, stream, None, *opener, Vec::new()),
            Upgrade::TakenOver(task) => serve::taken_over(&connection.node, task, stream, Vec::new()).await,
            // Streams of messages are bodies of responses here.
            Upgrade::Stream(_) => return None,
        }
        return Some(());
    }
    let is_over = is_head || body.is_end_stream();
    let mut send = respond.send_response(Response::from_parts(head, ()), is_over).ok()?;
    if !is_over {
        send_body(connection, body, &mut rest, &mut send).await?;
    }
    lost.0 = None;
    Some(())
}

/// Marks the bytes of a stream as lost that have not left when it is dropped.
struct LostOnDrop<'a>(Option<&'a Connection>);

impl Drop for LostOnDrop<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|connection| connection.health.broken.set(true));
    }
}

/// Sends a body as the windows of the stream and of the connection have room. `rest` are bytes that have had none yet. None if the client
/// leaves or reads nothing for too long, or the body breaks: the stream is reset when it is dropped.
async fn send_body(
    connection: &Connection,
    mut body: Pin<&mut Body>,
    rest: &mut Bytes,
    send: &mut SendStream<Bytes>,
) -> Option<()> {
    loop {
        let frame = poll_fn(|cx| match body.as_mut().poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Some(frame)),
            Poll::Pending => send.poll_reset(cx).map(|_| None),
        });
        let Some(frame) = frame.await? else { return send.send_data(Bytes::new(), true).ok() };
        match frame.ok()?.into_data() {
            Ok(data) => *rest = data,
            Err(frame) => return send.send_trailers(frame.into_trailers().ok()?).ok(),
        }
        while !rest.is_empty() {
            let room = room(connection, send, rest.len().min(SEND_BYTES)).await?;
            let piece = rest.split_to(room.min(rest.len()));
            let is_over = rest.is_empty() && body.is_end_stream();
            send.send_data(piece, is_over).ok()?;
            if is_over {
                return Some(());
            }
        }
    }
}

/// Waits for room for some of these bytes. None if the client leaves, or reads nothing for too long.
async fn room(connection: &Connection, send: &mut SendStream<Bytes>, wanted: usize) -> Option<usize> {
    let node = &connection.node;
    let wait = Duration::from_millis(node.shard().settings().response_timeout_ms);
    let mut stall = Stall::default();
    send.reserve_capacity(wanted);
    poll_fn(|cx| {
        if send.capacity() > 0 {
            return Poll::Ready(Some(send.capacity()));
        }
        match send.poll_capacity(cx) {
            Poll::Ready(room) => Poll::Ready(room.and_then(Result::ok)),
            Poll::Pending => stall.poll(node, wait, cx).map(|()| {
                node.shard().metrics().timeouts.add(1);
                None
            }),
        }
    })
    .await
}
