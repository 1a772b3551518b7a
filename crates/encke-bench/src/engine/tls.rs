//! TLS of one connection. Its socket is an argument of each call.
//!
//! Each connection has a full handshake, unless clients use the session tickets of earlier ones.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use encke_client::{Endpoint, Trust};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, ClientConnection, HandshakeKind};

use super::tls_tickets::TlsTickets;
use crate::problem::Problem;

/// TLS to one server.
#[derive(Clone, Debug)]
pub(crate) struct TlsTarget {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// The handshakes that have resumed a session.
    resumed: Arc<AtomicU64>,
}

/// TLS of one connection.
#[derive(Debug)]
pub(crate) struct Tls {
    connection: ClientConnection,
    /// Counts the handshake when it is complete.
    resumed: Option<Arc<AtomicU64>>,
}

impl TlsTarget {
    /// TLS to this server. With `tickets`, connections resume the sessions of earlier ones.
    ///
    /// # Errors
    /// [`Problem::Usage`]: the file of certificates cannot be used, or the host has no name that a certificate could have.
    pub(super) fn new(endpoint: &Endpoint, trust: &Trust, tickets: bool) -> Result<TlsTarget, Problem> {
        let mut config = trust.config().map_err(|error| Problem::Usage(error.to_string()))?;
        config.resumption = match tickets {
            true => Resumption::store(Arc::new(TlsTickets::default())),
            false => Resumption::disabled(),
        };
        let host = endpoint.host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host);
        let name = name.map_err(|error| Problem::Usage(format!("{}: {error}", endpoint.authority)))?;
        Ok(TlsTarget { config: Arc::new(config), name, resumed: Arc::default() })
    }

    /// Offers HTTP/2, and nothing else.
    pub(super) fn require_http2(&mut self) {
        Arc::make_mut(&mut self.config).alpn_protocols = vec![b"h2".to_vec()];
    }

    /// The number of handshakes that have resumed a session.
    pub(super) fn resumed(&self) -> u64 {
        self.resumed.load(Ordering::Relaxed)
    }

    /// TLS of a new connection.
    ///
    /// # Errors
    /// There are no random numbers.
    pub(crate) fn open(&self) -> io::Result<Tls> {
        let connection = ClientConnection::new(self.config.clone(), self.name.clone());
        let resumed = Some(self.resumed.clone());
        connection.map(|connection| Tls { connection, resumed }).map_err(io::Error::other)
    }
}

impl Tls {
    /// Returns true if encrypted bytes wait for room.
    pub(super) fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends the encrypted bytes that wait.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if there is no room, otherwise the connection is broken.
    pub(super) fn flush(&mut self, mut tcp: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut tcp) {
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
        match self.connection.writer().write(bytes)? {
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
        while !received.is_empty() && self.connection.read_tls(&mut received)? > 0 {
            let processed = self.connection.process_new_packets();
            // Answers of the handshake, or an alert.
            let flushed = self.flush(tcp);
            let state = processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, refusal(&error)))?;
            if let Err(error) = flushed
                && error.kind() != ErrorKind::WouldBlock
            {
                return Err(error);
            }
            if !self.connection.is_handshaking()
                && let Some(resumed) = self.resumed.take()
            {
                let is_resumed = self.connection.handshake_kind() == Some(HandshakeKind::Resumed);
                resumed.fetch_add(is_resumed.into(), Ordering::Relaxed);
            }
            let plain = state.plaintext_bytes_to_read();
            self.connection.reader().read_exact(&mut buffer[filled..filled + plain])?;
            filled += plain;
        }
        if count > 0 && filled == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(filled) }
    }

    /// The connection with a socket that waits, for a single request.
    pub(crate) fn over(self, tcp: TcpStream) -> rustls::StreamOwned<ClientConnection, TcpStream> {
        rustls::StreamOwned::new(self.connection, tcp)
    }
}

fn refusal(error: &rustls::Error) -> String {
    match error {
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => "offers no HTTP/2 over TLS".into(),
        error => format!("speaks no TLS that is accepted: {error}"),
    }
}

/// The bytes that one read receives with TLS: decrypted, they and the record before them fit into one read without TLS.
pub(super) const WIRE_BYTES: usize = 64 * 1024;
