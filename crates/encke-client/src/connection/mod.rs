//! Connections to the server, each with one way to carry texts.

mod cookies;
mod http;
mod long_polling;
mod stream;
mod websocket;

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderName, HeaderValue};
use encke_fetch::rustls::ClientConfig;
use tokio::time::timeout;

use crate::endpoint::Endpoint;
use crate::error::{Error, NotBayeux};
use crate::session::{ConnectionType, Transmission};
pub(crate) use cookies::Cookies;
use http::HttpConnection;
use long_polling::LongPolling;
use websocket::WebSocket;

/// The server that connections lead to, and how.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) endpoint: Endpoint,
    /// Its TLS, if it speaks that.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// The program's own headers, sent with each request.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// The longest text that the server may send, in bytes.
    pub(crate) message_bytes_max: usize,
    /// True if a WebSocket offers compression.
    pub(crate) compress: bool,
    /// The time that connecting, and a handshake of the transport, may each take.
    pub(crate) connect_timeout: Duration,
}

/// An open connection to the server.
#[derive(Debug)]
pub(crate) enum Connection {
    /// One socket for both directions, and the cookies of its upgrade.
    WebSocket(Box<WebSocket>, Cookies),
    /// Requests, one of them held.
    LongPolling(Box<LongPolling>),
}

impl Connection {
    pub(crate) async fn open(
        connection_type: ConnectionType,
        target: Arc<Target>,
        mut cookies: Cookies,
    ) -> Result<Connection, Error> {
        let time = target.connect_timeout;
        let unreachable = |_| Error::Unreachable {
            address: target.endpoint.authority.clone(),
            source: Arc::new(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {time:?}"))),
        };
        let connection = timeout(time, HttpConnection::open(&target)).await.map_err(unreachable)??;
        Ok(match connection_type {
            ConnectionType::WebSocket => {
                let opening = WebSocket::open(connection, &target, &mut cookies);
                let silent =
                    |_| Error::NotBayeux { address: target.endpoint.address(), reason: NotBayeux::Silent(time) };
                let socket = timeout(time, opening).await.map_err(silent)??;
                Connection::WebSocket(Box::new(socket), cookies)
            }
            ConnectionType::LongPolling | ConnectionType::EventSource => {
                Connection::LongPolling(Box::new(LongPolling::new(connection, target, cookies)))
            }
        })
    }

    /// The cookies to return to the server on the next connection.
    pub(crate) fn cookies(&self) -> &Cookies {
        match self {
            Connection::WebSocket(_, cookies) => cookies,
            Connection::LongPolling(polling) => polling.cookies(),
        }
    }

    /// Takes a text to be sent; [`Connection::receive`] sends it.
    pub(crate) fn send(&mut self, transmission: Transmission) {
        match self {
            Connection::WebSocket(socket, _) => socket.send(&transmission.text),
            Connection::LongPolling(polling) => polling.send(transmission),
        }
    }

    /// As [`Connection::send`], for a text that the server has caused. A server that does not read it is not read, either.
    pub(crate) fn answer(&mut self, transmission: Transmission) {
        match self {
            Connection::WebSocket(socket, _) => socket.answer(&transmission.text),
            // A request has one response, which causes one connect at most.
            Connection::LongPolling(polling) => polling.send(transmission),
        }
    }

    /// The number of bytes that wait to be sent.
    pub(crate) fn unsent_bytes(&self) -> usize {
        match self {
            Connection::WebSocket(socket, _) => socket.unsent_bytes(),
            Connection::LongPolling(polling) => polling.unsent_bytes(),
        }
    }

    /// Sends waiting texts and returns the next text of JSON. Dropping the future loses nothing.
    pub(crate) async fn receive(&mut self) -> Result<String, Error> {
        match self {
            Connection::WebSocket(socket, _) => socket.receive().await,
            Connection::LongPolling(polling) => polling.receive().await,
        }
    }

    /// Sends waiting texts without reading, if the transport can. Never returns, and may be dropped at any point.
    pub(crate) async fn write(&mut self) {
        match self {
            Connection::WebSocket(socket, _) => socket.write().await,
            Connection::LongPolling(_) => pending().await,
        }
    }

    /// Sends waiting texts and closes the connection in order. Requests need no close.
    pub(crate) async fn close(&mut self) {
        match self {
            Connection::WebSocket(socket, _) => socket.close().await,
            Connection::LongPolling(_) => {}
        }
    }
}
