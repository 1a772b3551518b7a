//! TLS of the clients of tests. With `ENCKE_TEST_TLS=1` all servers and clients of the tests speak TLS: `scripts/cargo-tests.sh` runs
//! many of them a second time this way.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};

use super::http2::over_http2;
use super::way::way;
use encke_fetch::AnyCertificate;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned, SupportedProtocolVersion};

/// True if the tests run over TLS, or this one does.
pub fn over_tls() -> bool {
    static IS_SET: LazyLock<bool> = LazyLock::new(|| std::env::var_os("ENCKE_TEST_TLS").is_some());
    way().map_or(*IS_SET, |way| way.tls)
}

/// The scheme of the pages of servers.
pub fn scheme() -> &'static str {
    if over_tls() { "https" } else { "http" }
}

/// The socket of a client, with TLS or without.
pub enum Socket {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Socket {
    /// With TLS if all tests speak it, and no gateway does.
    pub fn of(tcp: TcpStream) -> Socket {
        if over_tls() && !over_http2() {
            Socket::tls(tcp, insecure(), "localhost").expect("a handshake")
        } else {
            Socket::Plain(tcp)
        }
    }

    /// With TLS, after its handshake.
    pub fn tls(mut tcp: TcpStream, config: Arc<ClientConfig>, name: &str) -> io::Result<Socket> {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let mut tls = ClientConnection::new(config, name).expect("a client");
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp)?;
        }
        Ok(Socket::Tls(Box::new(StreamOwned::new(tls, tcp))))
    }

    /// The socket under TLS.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Socket::Plain(tcp) => tcp,
            Socket::Tls(tls) => &tls.sock,
        }
    }

    /// The state of TLS.
    pub fn session(&self) -> &ClientConnection {
        match self {
            Socket::Plain(_) => panic!("no TLS"),
            Socket::Tls(tls) => &tls.conn,
        }
    }

    pub fn shutdown_write(&mut self) -> io::Result<()> {
        if let Socket::Tls(tls) = self {
            tls.conn.send_close_notify();
            tls.flush()?;
        }
        self.tcp().shutdown(Shutdown::Write)
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(tcp) => tcp.read(buffer),
            // Not the read of `StreamOwned`, which fails if something cannot be written.
            Socket::Tls(tls) => loop {
                match tls.conn.reader().read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // The server has ended the connection without `close_notify`, as after a crash.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                    read => return read,
                }
                tls.conn.read_tls(&mut tls.sock)?;
                tls.conn.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            },
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(tcp) => tcp.write(bytes),
            Socket::Tls(tls) => {
                let count = tls.write(bytes)?;
                tls.flush()?;
                Ok(count)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client that accepts every certificate.
pub fn insecure() -> Arc<ClientConfig> {
    static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| Arc::new(insecure_config(rustls::DEFAULT_VERSIONS)));
    CONFIG.clone()
}

/// The configuration of a client that accepts every certificate, and has no tickets yet.
pub fn insecure_config(versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions);
    let builder = builder.expect("versions").dangerous();
    builder.with_custom_certificate_verifier(AnyCertificate::verifier(&provider)).with_no_client_auth()
}

/// A connection with TLS to a server.
pub fn connect(address: SocketAddr, config: Arc<ClientConfig>, name: &str) -> io::Result<Socket> {
    Socket::tls(TcpStream::connect(address).expect("a connection"), config, name)
}
