//! HTTP/1.1 connections as client, on hyper, without tasks: whoever waits for an answer drives the connection.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE, HOST};
use http::request::Builder;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::Error;
use crate::cookies::Cookies;
use crate::endpoint::Endpoint;

/// An open connection that carries one request after the other.
#[derive(Debug)]
pub(crate) struct Link {
    sender: SendRequest<Full<Bytes>>,
    connection: Connection<TokioIo<TcpStream>, Full<Bytes>>,
}

/// A text with the headers that came with it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Link {
    /// Connects.
    pub(crate) async fn open(endpoint: &Endpoint) -> Result<Link, Error> {
        let stream = connect(endpoint).await?;
        let (sender, connection) =
            http1::Builder::new().handshake(TokioIo::new(stream)).await.map_err(|error| failed(endpoint, &error))?;
        Ok(Link { sender, connection })
    }

    /// Whether a request may go over it: the server may have closed it while nothing was going on.
    pub(crate) async fn is_usable(&mut self) -> bool {
        let Link { sender, connection } = self;
        poll_fn(|context| {
            if Pin::new(&mut *connection).poll(context).is_ready() {
                return Poll::Ready(false);
            }
            sender.poll_ready(context).map(|ready| ready.is_ok())
        })
        .await
    }

    /// Posts a text and returns the answer's, of at most so many bytes.
    pub(crate) async fn post(
        &mut self,
        endpoint: &Endpoint,
        cookies: &Cookies,
        text: String,
        bytes_max: usize,
    ) -> Result<Answer, Error> {
        let request = head(endpoint, cookies)
            .method(Method::POST)
            .header(CONTENT_TYPE, "application/json;charset=UTF-8")
            .body(Full::from(text))
            .map_err(|error| Error::NotBayeux { address: endpoint.place(), reason: error.to_string() })?;
        let sent = self.sender.send_request(request);
        let answer = async {
            let response = sent.await.map_err(|error| failed(endpoint, &error))?;
            read(endpoint, response, bytes_max).await
        };
        drive(&mut self.connection, answer).await
    }

    /// Asks for another protocol on this connection. The answer's headers, and with status 101 the bare connection with what
    /// the server sent already.
    pub(crate) async fn upgrade(
        mut self,
        endpoint: &Endpoint,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, TcpStream, Bytes), Error> {
        let sent = self.sender.send_request(request);
        let mut connection = self.connection;
        let answered = async { sent.await.map_err(|error| failed(endpoint, &error)) };
        let mut answered = pin!(answered);
        let mut bare = false;
        let response = poll_fn(|context| {
            // hyper lets go of the connection once the protocol is switched.
            bare = bare || connection.poll_without_shutdown(context).is_ready();
            answered.as_mut().poll(context)
        })
        .await?;
        if response.status() == http::StatusCode::SWITCHING_PROTOCOLS && !bare {
            let switched = poll_fn(|context| connection.poll_without_shutdown(context)).await;
            switched.map_err(|error| failed(endpoint, &error))?;
        }
        let parts = connection.into_parts();
        Ok((response, parts.io.into_inner(), parts.read_buf))
    }
}

/// The beginning of a request: where to, and who we are.
pub(crate) fn head(endpoint: &Endpoint, cookies: &Cookies) -> Builder {
    let head = Request::builder().uri(endpoint.path.as_str()).header(HOST, endpoint.authority.as_str());
    match cookies.header() {
        Some(cookies) => head.header(COOKIE, cookies),
        None => head,
    }
}

async fn connect(endpoint: &Endpoint) -> Result<TcpStream, Error> {
    let unreachable =
        |error: std::io::Error| Error::Unreachable { address: endpoint.authority.clone(), reason: error.to_string() };
    let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    Ok(stream)
}

/// Waits for an answer while the connection is read and written.
async fn drive<T>(
    connection: &mut Connection<TokioIo<TcpStream>, Full<Bytes>>,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let mut answer = pin!(answer);
    let mut ended = false;
    poll_fn(|context| {
        // It ends before the answer is taken where the server closes behind it.
        ended = ended || Pin::new(&mut *connection).poll(context).is_ready();
        answer.as_mut().poll(context)
    })
    .await
}

async fn read(endpoint: &Endpoint, response: Response<Incoming>, bytes_max: usize) -> Result<Answer, Error> {
    let not_bayeux = |reason| Error::NotBayeux { address: endpoint.place(), reason };
    let (head, body) = response.into_parts();
    if head.status != http::StatusCode::OK {
        return Err(not_bayeux(format!("it answered HTTP status {}", head.status)));
    }
    let body = Limited::new(body, bytes_max).collect().await.map_err(|error| Error::Lost(error.to_string()))?;
    let text = String::from_utf8(body.to_bytes().into()).map_err(|_| not_bayeux("its answer is not UTF-8".into()))?;
    Ok(Answer { headers: head.headers, text })
}

fn failed(endpoint: &Endpoint, error: &hyper::Error) -> Error {
    if error.is_parse() {
        return Error::NotBayeux { address: endpoint.place(), reason: "its answer is not HTTP".into() };
    }
    Error::Lost(match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    })
}
