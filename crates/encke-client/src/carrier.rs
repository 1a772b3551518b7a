//! What carries messages to the server and back: a WebSocket now; long-polling finds its place beside it.

use crate::Error;
use crate::endpoint::Endpoint;
use crate::socket::Socket;

/// An open way to the server.
#[derive(Debug)]
pub(crate) enum Carrier {
    /// One socket for both directions.
    WebSocket(Box<Socket>),
}

impl Carrier {
    /// Opens the way.
    pub(crate) async fn open(endpoint: &Endpoint, message_bytes_max: usize) -> Result<Carrier, Error> {
        Ok(Carrier::WebSocket(Box::new(Socket::open(endpoint, message_bytes_max).await?)))
    }

    /// The Bayeux name of the transport (`connectionType`).
    pub(crate) fn connection_type(&self) -> &'static str {
        match self {
            Carrier::WebSocket(_) => "websocket",
        }
    }

    /// Takes one text of JSON to be sent; [`Carrier::receive`] sends it.
    pub(crate) fn send(&mut self, json: &str) {
        match self {
            Carrier::WebSocket(socket) => socket.send(json),
        }
    }

    /// Sends what waits and returns the next text of JSON. Nothing is lost when it is dropped half-way.
    pub(crate) async fn receive(&mut self) -> Result<String, Error> {
        match self {
            Carrier::WebSocket(socket) => socket.receive().await,
        }
    }

    /// Sends what waits and says goodbye.
    pub(crate) async fn close(&mut self) {
        match self {
            Carrier::WebSocket(socket) => socket.close().await,
        }
    }
}
