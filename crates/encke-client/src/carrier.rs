//! What carries messages to the server and back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::Error;
use crate::cookies::Cookies;
use crate::dialog::{ConnectionType, Transmission};
use crate::endpoint::Endpoint;
use crate::http::Link;
use crate::polling::Polling;
use crate::socket::Socket;

/// An open way to the server.
#[derive(Debug)]
pub(crate) enum Carrier {
    /// One socket for both directions, and the cookies of its upgrade.
    WebSocket(Box<Socket>, Cookies),
    /// Requests, one of them held.
    LongPolling(Box<Polling>),
}

impl Carrier {
    /// Opens the way; reaching the server and its answer may each take as long as said.
    pub(crate) async fn open(
        connection_type: ConnectionType,
        endpoint: Arc<Endpoint>,
        mut cookies: Cookies,
        message_bytes_max: usize,
        delay_max: Duration,
    ) -> Result<Carrier, Error> {
        let late = |_| format!("no answer within {delay_max:?}");
        let unreachable = |reason| Error::Unreachable { address: endpoint.authority.clone(), reason };
        let link = timeout(delay_max, Link::open(&endpoint)).await.map_err(|after| unreachable(late(after)))??;
        Ok(match connection_type {
            ConnectionType::WebSocket => {
                let opening = Socket::open(link, &endpoint, &mut cookies, message_bytes_max);
                let silent = |after| Error::NotBayeux { address: endpoint.place(), reason: late(after) };
                let socket = timeout(delay_max, opening).await.map_err(silent)??;
                Carrier::WebSocket(Box::new(socket), cookies)
            }
            ConnectionType::LongPolling => {
                Carrier::LongPolling(Box::new(Polling::new(link, endpoint, cookies, message_bytes_max)))
            }
        })
    }

    /// What the server wants to have back on the next way.
    pub(crate) fn cookies(&self) -> &Cookies {
        match self {
            Carrier::WebSocket(_, cookies) => cookies,
            Carrier::LongPolling(polling) => polling.cookies(),
        }
    }

    /// Takes a text to be sent; [`Carrier::receive`] sends it.
    pub(crate) fn send(&mut self, transmission: Transmission) {
        match self {
            Carrier::WebSocket(socket, _) => socket.send(&transmission.text),
            Carrier::LongPolling(polling) => polling.send(transmission),
        }
    }

    /// How many bytes wait to be sent.
    pub(crate) fn unsent_bytes(&self) -> usize {
        match self {
            Carrier::WebSocket(socket, _) => socket.unsent_bytes(),
            Carrier::LongPolling(polling) => polling.unsent_bytes(),
        }
    }

    /// Sends what waits and returns the next text of JSON. Nothing is lost when it is dropped half-way.
    pub(crate) async fn receive(&mut self) -> Result<String, Error> {
        match self {
            Carrier::WebSocket(socket, _) => socket.receive().await,
            Carrier::LongPolling(polling) => polling.receive().await,
        }
    }

    /// Sends what waits and says goodbye. Requests need none.
    pub(crate) async fn close(&mut self) {
        match self {
            Carrier::WebSocket(socket, _) => socket.close().await,
            Carrier::LongPolling(_) => {}
        }
    }
}
