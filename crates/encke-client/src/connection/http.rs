//! HTTP/1.1 connections as client, on hyper, without tasks: the caller that waits for a response drives the connection.

use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE, HOST};
use http::request::Builder;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;

use super::Target;
use super::cookies::Cookies;
use super::stream::Stream;
use crate::error::{Error, LostReason, NotBayeux};

/// An open connection that carries one request after the other.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
    connection: Connection<TokioIo<Stream>, Full<Bytes>>,
}

/// The text of a response, and its headers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl HttpConnection {
    /// Connects.
    pub(crate) async fn open(target: &Target) -> Result<HttpConnection, Error> {
        let stream = Stream::connect(target).await?;
        let (sender, connection) =
            http1::Builder::new().handshake(TokioIo::new(stream)).await.map_err(|error| failed(target, error))?;
        Ok(HttpConnection { sender, connection })
    }

    /// True if a request may go over it: the server may have closed it while it was idle.
    pub(crate) async fn is_usable(&mut self) -> bool {
        let HttpConnection { sender, connection } = self;
        poll_fn(|context| {
            if Pin::new(&mut *connection).poll(context).is_ready() {
                return Poll::Ready(false);
            }
            sender.poll_ready(context).map(|ready| ready.is_ok())
        })
        .await
    }

    /// Posts a text and returns that of the response.
    pub(crate) async fn post(&mut self, target: &Target, cookies: &Cookies, text: String) -> Result<Answer, Error> {
        let request = head(target, cookies)
            .method(Method::POST)
            .header(CONTENT_TYPE, "application/json;charset=UTF-8")
            .body(Full::from(text))
            .map_err(|error| Error::from(LostReason::Http(Arc::new(error))))?;
        let sent = self.sender.send_request(request);
        let answer = async {
            let response = sent.await.map_err(|error| failed(target, error))?;
            read(target, response).await
        };
        drive(&mut self.connection, answer).await
    }

    /// Asks for another protocol on this connection. Returns the response's head, and with status 101 the bare connection with
    /// the bytes that the server has sent already.
    pub(crate) async fn upgrade(
        mut self,
        target: &Target,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Stream, Bytes), Error> {
        let sent = self.sender.send_request(request);
        let mut connection = self.connection;
        let answered = async { sent.await.map_err(|error| failed(target, error)) };
        let mut answered = pin!(answered);
        let mut bare = false;
        let response = poll_fn(|context| {
            // hyper releases the connection once the protocol is switched.
            bare = bare || connection.poll_without_shutdown(context).is_ready();
            answered.as_mut().poll(context)
        })
        .await?;
        if response.status() == http::StatusCode::SWITCHING_PROTOCOLS && !bare {
            let switched = poll_fn(|context| connection.poll_without_shutdown(context)).await;
            switched.map_err(|error| failed(target, error))?;
        }
        let parts = connection.into_parts();
        Ok((response, parts.io.into_inner(), parts.read_buf))
    }
}

/// The head of a request: the target, the program's own headers, and the cookies.
pub(crate) fn head(target: &Target, cookies: &Cookies) -> Builder {
    let mut head =
        Request::builder().uri(target.endpoint.path.as_str()).header(HOST, target.endpoint.authority.as_str());
    if let Some(cookies) = cookies.header() {
        head = head.header(COOKIE, cookies);
    }
    target.headers.iter().fold(head, |head, (name, value)| head.header(name, value))
}

/// Waits for a response while the connection is read and written.
async fn drive<T>(
    connection: &mut Connection<TokioIo<Stream>, Full<Bytes>>,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let mut answer = pin!(answer);
    let mut ended = false;
    poll_fn(|context| {
        // It ends before the response is taken where the server closes after it.
        ended = ended || Pin::new(&mut *connection).poll(context).is_ready();
        answer.as_mut().poll(context)
    })
    .await
}

async fn read(target: &Target, response: Response<Incoming>) -> Result<Answer, Error> {
    let not_bayeux = |reason| Error::NotBayeux { address: target.endpoint.address(), reason };
    let (head, body) = response.into_parts();
    if head.status != http::StatusCode::OK {
        return Err(not_bayeux(NotBayeux::Status(head.status.as_u16())));
    }
    let body =
        Limited::new(body, target.message_bytes_max).collect().await.map_err(|error| LostReason::Http(error.into()))?;
    let text = String::from_utf8(body.to_bytes().into()).map_err(|_| not_bayeux(NotBayeux::NotUtf8))?;
    Ok(Answer { headers: head.headers, text })
}

fn failed(target: &Target, error: hyper::Error) -> Error {
    if error.is_parse() {
        return Error::NotBayeux { address: target.endpoint.address(), reason: NotBayeux::NotHttp };
    }
    // In TLS 1.3 a server refuses a client's certificate when the handshake is over for the client.
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    if let Some(alert) = cause.filter(|cause| cause.kind() == io::ErrorKind::InvalidData) {
        let source = Arc::new(io::Error::new(alert.kind(), alert.to_string()));
        return Error::Tls { address: target.endpoint.authority.clone(), source };
    }
    LostReason::Http(Arc::new(error)).into()
}
