//! TLS of one connection. Its socket is an argument of each call.
//!
//! Each connection has a full handshake: tickets of earlier ones are not used.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use encke_client::{Endpoint, Trust};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::problem::Problem;

/// TLS to one server.
#[derive(Clone, Debug)]
pub(crate) struct TlsTarget {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// TLS of one connection.
#[derive(Debug)]
pub(crate) struct Tls(ClientConnection);

impl TlsTarget {
    /// TLS to this server.
    ///
    /// # Errors
    /// [`Problem::Usage`]: the file of certificates cannot be used, or the host has no name that a certificate could have.
    pub(super) fn new(endpoint: &Endpoint, trust: &Trust) -> Result<TlsTarget, Problem> {
        let mut config = trust.config().map_err(|error| Problem::Usage(error.to_string()))?;
        config.resumption = Resumption::disabled();
        let host = endpoint.host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host);
        let name = name.map_err(|error| Problem::Usage(format!("{}: {error}", endpoint.authority)))?;
        Ok(TlsTarget { config: Arc::new(config), name })
    }

    /// Offers HTTP/2, and nothing else.
    pub(super) fn require_http2(&mut self) {
        Arc::make_mut(&mut self.config).alpn_protocols = vec![b"h2".to_vec()];
    }

    /// TLS of a new connection.
    ///
    /// # Errors
    /// There are no random numbers.
    pub(crate) fn open(&self) -> io::Result<Tls> {
        let connection = ClientConnection::new(self.config.clone(), self.name.clone());
        connection.map(Tls).map_err(io::Error::other)
    }
}

impl Tls {
    /// Returns true if encrypted bytes wait for room.
    pub(super) fn has_unsent(&self) -> bool {
        self.0.wants_write()
    }

    /// Sends the encrypted bytes that wait.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if there is no room, otherwise the connection is broken.
    pub(super) fn flush(&mut self, mut tcp: &TcpStream) -> io::Result<()> {
        while self.0.wants_write() {
            match self.0.write_tls(&mut tcp) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Encrypts bytes, and sends them as far as there is room. Returns the number of bytes that are encrypted, or wait for the end of
    /// the handshake.
    ///
    /// # Errors
    /// As those of [`Tls::flush`].
    pub(super) fn write(&mut self, bytes: &[u8], tcp: &TcpStream) -> io::Result<usize> {
        self.flush(tcp)?;
        match self.0.writer().write(bytes)? {
            // The handshake has to go on.
            0 => Err(ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    /// Receives once, at most `wire`, and decrypts into `buffer`, which is at least a record longer. 0: the server has closed the
    /// connection.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if no data has arrived, otherwise the connection is broken.
    pub(super) fn read(&mut self, buffer: &mut [u8], wire: &mut [u8], mut tcp: &TcpStream) -> io::Result<usize> {
        let count = tcp.read(wire)?;
        let (mut received, mut filled) = (&wire[..count], 0);
        while !received.is_empty() && self.0.read_tls(&mut received)? > 0 {
            let processed = self.0.process_new_packets();
            // Answers of the handshake, or an alert.
            let flushed = self.flush(tcp);
            let state = processed.map_err(|error| {
                io::Error::new(ErrorKind::InvalidData, format!("speaks no TLS that is accepted: {error}"))
            })?;
            if let Err(error) = flushed
                && error.kind() != ErrorKind::WouldBlock
            {
                return Err(error);
            }
            let plain = state.plaintext_bytes_to_read();
            self.0.reader().read_exact(&mut buffer[filled..filled + plain])?;
            filled += plain;
        }
        if count > 0 && filled == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(filled) }
    }

    /// The connection with a socket that waits, for a single request.
    pub(crate) fn over(self, tcp: TcpStream) -> rustls::StreamOwned<ClientConnection, TcpStream> {
        rustls::StreamOwned::new(self.0, tcp)
    }
}

/// The bytes that one read receives with TLS: decrypted, they and the record before them fit into one read without TLS.
pub(super) const WIRE_BYTES: usize = 64 * 1024;
