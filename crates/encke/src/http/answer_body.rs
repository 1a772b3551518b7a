//! The body of a response with messages. A held request has one answer, which is the whole body. A response that stays
//! open, such as an event stream, has a part for each answer.
//!
//! ```text
//!   shard ── answers (net::exchanges) ──▶ body ──▶ hyper takes the bytes ──▶ receipt (net::confirm) ──▶ shard
//! ```
//!
//! Each part has its own receipt, so the messages of a part that the client did not get are sent again.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Either;
use hyper::body::{Body as HttpBody, Frame};
use tokio::sync::oneshot;

use super::{Body, whole};
use crate::fallback::{BoxError, ResponseBody};
use crate::net::confirm::Receipt;
use crate::net::exchanges::Answers;
use crate::net::health::Health;
use encke_core::HttpTransport;

/// True if the response of a transport stays open after its first answer.
pub(super) fn stays_open(transport: &HttpTransport) -> bool {
    match transport {
        HttpTransport::LongPolling | HttpTransport::CallbackPolling(_) => false,
    }
}

/// The body that begins with this answer. A response that stays open drops what `on_end` returns with its body.
pub(super) fn of(
    first: (Bytes, Option<Receipt>),
    answers: Answers,
    health: &Arc<Health>,
    on_end: impl FnOnce() -> oneshot::Sender<()>,
) -> Body {
    let first = with_receipt(first, health);
    if answers.are_over() {
        return whole(first);
    }
    let parts = Parts { first: Some(first), answers, health: health.clone(), _on_end: on_end() };
    Either::Right(Either::Right(ResponseBody::new(parts)))
}

/// The bytes of an answer, which report when the connection has taken them.
fn with_receipt((bytes, receipt): (Bytes, Option<Receipt>), health: &Arc<Health>) -> Bytes {
    match receipt {
        Some(receipt) => receipt.attach(health.clone(), bytes),
        None => bytes,
    }
}

/// The parts of a response that stays open.
struct Parts {
    first: Option<Bytes>,
    answers: Answers,
    health: Arc<Health>,
    _on_end: oneshot::Sender<()>,
}

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let next = ready!(self.answers.poll_next(cx));
        Poll::Ready(next.map(|(answer, receipt)| Ok(Frame::data(with_receipt((answer.body, receipt), &self.health)))))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::future::poll_fn;

    use encke_core::{ExchangeId, Response as CoreResponse};
    use http::{Request, Response};
    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::net::confirm::Confirmations;
    use crate::net::exchanges::Exchanges;

    fn exchanges() -> (Exchanges, Arc<Confirmations>) {
        let confirmations = Arc::<Confirmations>::default();
        (Exchanges::new(0, confirmations.clone()), confirmations)
    }

    /// An answer with a message.
    fn answer(exchanges: &Exchanges, exchange: ExchangeId, text: &'static str) {
        let body = Bytes::from_static(text.as_bytes());
        exchanges.answer(
            exchange,
            CoreResponse { status: 200, body, set_browser: None, confirm: Some(0), compresses: false },
        );
    }

    /// The body of a response of the test transport.
    async fn body_of(mut answers: Answers, health: &Arc<Health>, on_end: oneshot::Sender<()>) -> Body {
        let (first, receipt) = poll_fn(|cx| answers.poll_next(cx)).await.expect("an answer");
        of((first.body, receipt), answers, health, || on_end)
    }

    async fn read_until(client: &mut DuplexStream, end: &str) {
        let mut text = Vec::new();
        while !text.ends_with(end.as_bytes()) {
            text.push(client.read_u8().await.expect("more of the response"));
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, test);
    }

    /// A test transport whose response stays open: its parts leave one by one, and each is confirmed when it has left.
    #[test]
    fn a_response_that_stays_open_delivers_and_confirms_each_part_by_itself() {
        run(async {
            let (exchanges, confirmations) = exchanges();
            let health = Arc::<Health>::default();
            let (exchange, answers) = exchanges.open(true);
            answer(&exchanges, exchange, "one;");
            let (on_end, end) = oneshot::channel();
            let body = body_of(answers, &health, on_end).await;
            let (mut client, server) = tokio::io::duplex(1_024);
            let body = Cell::new(Some(body));
            let service = service_fn(move |_: Request<Incoming>| {
                let body = body.take().expect("one request");
                async move { Ok::<_, Infallible>(Response::new(body)) }
            });
            let served =
                tokio::task::spawn_local(http1::Builder::new().serve_connection(TokioIo::new(server), service));
            client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("a connection");
            read_until(&mut client, "one;\r\n").await;
            for part in ["two;", "three;"] {
                answer(&exchanges, exchange, part);
                read_until(&mut client, &format!("{part}\r\n")).await;
            }
            assert_eq!(confirmations.take().iter().map(|confirmed| confirmed.taken).collect::<Vec<_>>(), [true; 3]);
            drop(client);
            let _broken = served.await.expect("no panic");
            end.await.expect_err("the body is gone");
            answer(&exchanges, exchange, "four;");
            assert_eq!(confirmations.take().iter().map(|confirmed| confirmed.taken).collect::<Vec<_>>(), [false]);
            assert!(exchanges.abandon(exchange) && !exchanges.abandon(exchange));
        });
    }

    #[test]
    fn a_held_request_has_one_answer() {
        run(async {
            let (exchanges, confirmations) = exchanges();
            let health = Arc::<Health>::default();
            let (exchange, answers) = exchanges.open(false);
            answer(&exchanges, exchange, "one");
            let (on_end, mut end) = oneshot::channel();
            let body = body_of(answers, &health, on_end).await;
            assert_eq!(body.size_hint().exact(), Some(3));
            assert_eq!(end.try_recv(), Err(oneshot::error::TryRecvError::Closed), "nobody waits for its end");
            drop(body);
            answer(&exchanges, exchange, "two");
            assert_eq!(confirmations.take().iter().map(|confirmed| confirmed.taken).collect::<Vec<_>>(), [true, false]);
            assert!(!exchanges.abandon(exchange));
        });
    }
}
