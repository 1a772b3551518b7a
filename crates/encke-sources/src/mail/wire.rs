//! A connection to a mail server: lines and blocks of bytes, each with a limit.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use encke_fetch::rustls::pki_types::ServerName;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{MailSettings, Tls};
use crate::lines::{self, Line};
use crate::run::Failure;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection.
pub(super) struct Wire {
    stream: BufReader<Box<dyn Stream>>,
    timeout: Duration,
    line: Vec<u8>,
}

impl Wire {
    /// Connects, with TLS if it begins with the first byte.
    pub(super) async fn connect(settings: &MailSettings) -> Result<Wire, Failure> {
        let (host, port) = (settings.host.as_str(), settings.port());
        let limit = Duration::from_millis(settings.timeout_ms);
        let connecting = timeout(limit, TcpStream::connect((host, port))).await;
        let tcp = connecting.map_err(|_| late(limit))?.map_err(|error| format!("{host}:{port}: {error}"))?;
        let wire = Wire { stream: BufReader::new(Box::new(tcp)), timeout: limit, line: Vec::new() };
        if settings.tls == Tls::Implicit { wire.encrypted(settings).await } else { Ok(wire) }
    }

    /// Encrypts the connection.
    pub(super) async fn encrypted(self, settings: &MailSettings) -> Result<Wire, Failure> {
        // Bytes before the handshake could be anyone's.
        if !self.stream.buffer().is_empty() {
            return Err("the server sends more before TLS begins".into());
        }
        let ca_file = Some(Path::new(&settings.ca_file)).filter(|path| !path.as_os_str().is_empty());
        let connector = TlsConnector::from(Arc::new(encke_fetch::tls_config(ca_file)?));
        let name = ServerName::try_from(settings.host.clone())?;
        let handshake = timeout(self.timeout, connector.connect(name, self.stream.into_inner())).await;
        let stream = handshake.map_err(|_| late(self.timeout))?.map_err(|error| format!("TLS: {error}"))?;
        Ok(Wire { stream: BufReader::new(Box::new(stream)), timeout: self.timeout, line: Vec::new() })
    }

    /// Sends a line.
    pub(super) async fn send(&mut self, line: &str) -> Result<(), Failure> {
        let sending = async {
            self.stream.write_all(format!("{line}\r\n").as_bytes()).await?;
            self.stream.flush().await
        };
        Ok(timeout(self.timeout, sending).await.map_err(|_| late(self.timeout))??)
    }

    /// The next line, without its end.
    pub(super) async fn line(&mut self) -> Result<&[u8], Failure> {
        let limit = self.timeout;
        timeout(limit, self.line_at_any_time()).await.map_err(|_| late(limit))?
    }

    /// The next line, whenever it comes.
    pub(super) async fn line_at_any_time(&mut self) -> Result<&[u8], Failure> {
        match lines::next(&mut self.stream, &mut self.line, LINE_BYTES_MAX).await? {
            Line::Whole => Ok(self.line.strip_suffix(b"\r").unwrap_or(&self.line)),
            Line::TooLong => Err(format!("the server sends a line of more than {LINE_BYTES_MAX} bytes").into()),
            Line::End => Err(CLOSED.into()),
        }
    }

    /// The next line, or none if it is too long. It is read to its end.
    pub(super) async fn line_unless_long(&mut self) -> Result<Option<&[u8]>, Failure> {
        let reading = lines::next(&mut self.stream, &mut self.line, LINE_BYTES_MAX);
        match timeout(self.timeout, reading).await.map_err(|_| late(self.timeout))?? {
            Line::Whole => Ok(Some(self.line.strip_suffix(b"\r").unwrap_or(&self.line))),
            Line::TooLong => Ok(None),
            Line::End => Err(CLOSED.into()),
        }
    }

    /// Reads a block, and returns up to `bytes_max` bytes of it. The rest is read and discarded.
    pub(super) async fn block(&mut self, bytes: u64, bytes_max: usize) -> Result<Vec<u8>, Failure> {
        if bytes > HEADER_BYTES_MAX {
            return Err(TooLarge.into());
        }
        let returned = bytes.min(bytes_max as u64);
        let reading = async {
            let mut block = vec![0; returned as usize];
            self.stream.read_exact(&mut block).await?;
            let mut left = bytes - returned;
            while left > 0 {
                let there = self.stream.fill_buf().await?.len();
                if there == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
                let used = left.min(there as u64);
                self.stream.consume(used as usize);
                left -= used;
            }
            Ok(block)
        };
        Ok(timeout(self.timeout, reading).await.map_err(|_| late(self.timeout))??)
    }
}

/// The server refuses a command.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refused(String);

impl Refused {
    pub(super) fn new(answer: &str) -> Refused {
        Refused(beginning(answer))
    }
}

/// The header of a mail has more bytes than are read.
#[derive(Debug, thiserror::Error)]
#[error("the server sends more than {HEADER_BYTES_MAX} bytes for the header of a mail")]
pub(super) struct TooLarge;

/// The beginning of an answer, for an error.
pub(super) fn beginning(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(ERROR_CHARS_MAX).collect()
}

fn late(limit: Duration) -> Failure {
    format!("the server does not answer within {} ms (timeout_ms)", limit.as_millis()).into()
}

const CLOSED: &str = "the server has closed the connection";

/// Longest line of a server.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of a header that are read, of which only `header_bytes_max` are used.
pub(super) const HEADER_BYTES_MAX: u64 = 1024 * 1024;

/// Most characters of an answer in an error.
const ERROR_CHARS_MAX: usize = 200;
