//! HTTP/2: WebSockets on streams, as browsers open them, and frames that are written by hand.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper::ext::Protocol;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Arena, Peer, Socket, server_name, tls_config};

/// Bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection that speaks HTTP/2, over TLS if `has_tls`.
pub async fn dial(tcp: TcpStream, has_tls: bool) -> io::Result<Box<dyn Stream>> {
    if !has_tls {
        return Ok(Box::new(tcp));
    }
    let mut config = tls_config()?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(server_name(), tcp).await?))
}

/// Opens a WebSocket on a stream (RFC 8441) of a new connection.
pub async fn websocket(arena: Arena, has_tls: bool) -> io::Result<Socket> {
    let stream = dial(arena.connect_as(Peer::default()).await?, has_tls).await?;
    let connected = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(io::Error::other)?;
    tokio::spawn(connection);
    let url = format!("{}://{}", if has_tls { "https" } else { "http" }, arena.address);
    let request = |path: &str| Request::builder().uri(format!("{url}{path}"));
    // The first response comes after the settings, which allow WebSockets.
    let first = request("/healthz").body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
    sender.send_request(first).await.map_err(io::Error::other)?;
    let upgrade = request("/cometd").method(Method::CONNECT).header("sec-websocket-version", "13");
    let upgrade = upgrade.extension(Protocol::from_static("websocket")).body(Empty::new()).map_err(io::Error::other)?;
    let response = sender.send_request(upgrade).await.map_err(io::Error::other)?;
    if response.status() != StatusCode::OK {
        return Err(io::Error::other(response.status().to_string()));
    }
    let stream = hyper::upgrade::on(response).await.map_err(io::Error::other)?;
    Ok(Socket::over(TokioIo::new(stream)))
}

/// A connection whose frames are written by hand (RFC 9113 §4).
pub struct Frames(Box<dyn Stream>);

impl Frames {
    /// Connects. `settings` are the client's, as bytes.
    pub async fn open(arena: Arena, peer: Peer, has_tls: bool, settings: &[u8]) -> io::Result<Frames> {
        let mut frames = Frames(dial(arena.connect_as(peer).await?, has_tls).await?);
        let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, settings)];
        frames.send(&preface.concat()).await?;
        Ok(frames)
    }

    /// Sends bytes unchanged.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await?;
        self.0.flush().await
    }
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The list of headers of a request, as HPACK writes it without tables (RFC 7541 §6.2.2).
pub fn head(arena: Arena, has_tls: bool, method: &str, path: &str) -> Vec<u8> {
    let scheme = if has_tls { "https" } else { "http" };
    let host = arena.address.to_string();
    let fields = [(":method", method), (":path", path), (":scheme", scheme), (":authority", &host)];
    let of = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], of(name), of(value)].concat()).collect()
}

/// Kinds and flags of frames (RFC 9113 §6).
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
