//! The bytes of a connection, with TLS or without.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use encke_fetch::rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Target;
use crate::error::Error;

/// An open connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Connects, and shakes hands if the server speaks TLS.
    pub(crate) async fn connect(target: &Target) -> Result<Stream, Error> {
        let endpoint = &target.endpoint;
        let unreachable = |error| Error::Unreachable { address: endpoint.authority.clone(), source: Arc::new(error) };
        let tcp = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await.map_err(unreachable)?;
        tcp.set_nodelay(true).map_err(unreachable)?;
        let Some(tls) = &target.tls else { return Ok(Stream::Plain(tcp)) };
        let refused = |source| Error::Tls { address: endpoint.authority.clone(), source: Arc::new(source) };
        let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| refused(io::Error::other(error)))?;
        let stream = TlsConnector::from(tls.clone()).connect(name, tcp).await.map_err(|error| {
            // Other errors are those of the network.
            if error.kind() == io::ErrorKind::InvalidData { refused(error) } else { unreachable(error) }
        })?;
        Ok(Stream::Tls(Box::new(stream)))
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Stream::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Stream::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
