//! A client's connection as everything above it sees it: bytes in both directions, readiness, and ways to end it.
//!
//! The module is the only one that knows how the bytes travel: over TCP or another stream socket, with TLS or without, or as a stream of
//! an HTTP/2 connection. Each call is one `match`: without TLS it allocates nothing, copies nothing, and a gathered write is one call.

mod listener;
mod proxy_head;
mod remote;
mod stream;
mod tls;
mod upgraded;

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Shutdown};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use encke_core::SessionsMemory;
use h2::{RecvStream, SendStream};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::upgrade::downcast;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;

pub(crate) use listener::{Accepted, Listener, Speaks, accept};
use proxy_head::PROXY_HEAD_BYTES_MAX;
pub(crate) use proxy_head::ProxyHead;
pub(crate) use remote::Remote;
use stream::Stream;
use tls::Session;
pub(crate) use upgraded::detach_upgraded;

/// The connection of a client. It reads and writes as any stream of tokio.
pub struct ByteStream(Transport<TcpStream>);

/// A connection on its way to another thread: it belongs to no runtime.
pub(crate) struct Detached(Transport<std::net::TcpStream>);

enum Transport<T> {
    /// Any stream socket of the system: it is only read, written and closed.
    Socket { tcp: T, tls: Option<Box<Session>> },
    /// A stream of an HTTP/2 connection.
    Stream(Box<Stream>),
}

impl ByteStream {
    /// A new connection that speaks TLS from its first byte on. Nothing is read or written before [`ByteStream::handshake`].
    /// Encrypted bytes that wait for the kernel count in `memory`.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub(crate) fn with_tls(mut self, config: Arc<ServerConfig>, memory: Arc<SessionsMemory>) -> io::Result<ByteStream> {
        if let Transport::Socket { tls, .. } = &mut self.0 {
            *tls = Some(Box::new(Session::new(config, memory)?));
        }
        Ok(self)
    }

    /// A plain socket.
    fn plain(tcp: TcpStream) -> ByteStream {
        ByteStream(Transport::Socket { tcp, tls: None })
    }

    /// A stream of an HTTP/2 connection, whose client has this address.
    pub(crate) fn of_stream(send: SendStream<Bytes>, receive: RecvStream, peer: Option<IpAddr>) -> ByteStream {
        ByteStream(Transport::Stream(Box::new(Stream::new(send, receive, peer))))
    }

    /// The plain socket of an upgraded request, and the bytes that were read from it.
    ///
    /// # Errors
    /// It is no plain socket.
    fn of_upgraded(upgraded: Upgraded) -> Result<(ByteStream, Vec<u8>), Upgraded> {
        let parts = downcast::<TokioIo<TcpStream>>(upgraded)?;
        Ok((ByteStream::plain(parts.io.into_inner()), parts.read_buf.to_vec()))
    }

    /// Two connected sockets of this process.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn pair() -> io::Result<(ByteStream, UnixStream)> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        Ok((Detached::of_socket(near.into()).attach()?, UnixStream::from_std(far)?))
    }

    /// True if it speaks TLS.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.0, Transport::Socket { tls: Some(_), .. })
    }

    /// True if client and server have agreed to speak HTTP/2 (ALPN).
    pub(crate) fn agreed_on_http2(&self) -> bool {
        matches!(&self.0, Transport::Socket { tls: Some(session), .. } if session.agreed_on(b"h2"))
    }

    /// Reads the PROXY head at the beginning of a connection, and nothing after it. None if the proxy only looked if the server is there.
    ///
    /// # Errors
    /// No valid head, or the system's error.
    pub(crate) async fn proxy_head(&self) -> io::Result<Option<ProxyHead>> {
        let Transport::Socket { tcp, .. } = &self.0 else { return Ok(None) };
        let mut bytes = vec![0; PROXY_HEAD_BYTES_MAX];
        let mut read = 0;
        loop {
            let arrived = read + tcp.peek(&mut bytes[read..]).await?;
            if arrived == read {
                return if read == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            let head = ProxyHead::parse(&bytes[..arrived]).map_err(io::Error::other)?;
            let end = head.map_or(arrived, |(_, length)| length);
            while read < end {
                // They are there.
                read += tcp.try_read(&mut bytes[read..end])?;
            }
            if let Some((head, _)) = head {
                return Ok(Some(head));
            }
        }
    }

    /// The certificate that the client has shown in the handshake.
    pub(crate) fn client_certificate(&self) -> Option<CertificateDer<'static>> {
        match &self.0 {
            Transport::Socket { tls, .. } => tls.as_ref()?.client_certificate(),
            Transport::Stream(_) => None,
        }
    }

    /// Completes the handshake of a connection that speaks TLS. Each step waits for its turn. Returns true if it resumed a session.
    ///
    /// # Errors
    /// The client does not speak TLS as the server does. It got an alert, or a response in plain HTTP if it speaks that.
    pub(crate) async fn handshake(&self, turns: &Semaphore) -> io::Result<bool> {
        let Transport::Socket { tcp, tls: Some(session) } = &self.0 else { return Ok(false) };
        while session.is_handshaking() {
            self.readable().await?;
            let turn = turns.acquire().await;
            match session.receive(tcp) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ if session.has_input() && session.is_handshaking() => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
            // All tasks that are ready run before the turn ends.
            tokio::task::yield_now().await;
            drop(turn);
        }
        Ok(session.is_resumed())
    }

    /// Answers a connection that is not served. One that speaks TLS gets an alert: the text would cost a handshake.
    pub(crate) fn refuse(&self, text: &'static [u8]) {
        if let Transport::Socket { tcp, tls } = &self.0 {
            let _gone = tcp.try_write(if tls.is_some() { REFUSED } else { text });
        }
    }

    /// Prepares a new connection: small messages leave at once, and the kernel buffers at most `send_buffer_bytes` for a
    /// client that does not read. 0: as many as it likes.
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) fn prepare(&self, send_buffer_bytes: usize) -> io::Result<()> {
        let Transport::Socket { tcp, .. } = &self.0 else { return Ok(()) };
        match tcp.set_nodelay(true) {
            // A Unix socket has no such option.
            Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput) => {}
            set => set?,
        }
        if send_buffer_bytes > 0 {
            let _as_it_is = SockRef::from(tcp).set_send_buffer_size(send_buffer_bytes);
        }
        Ok(())
    }

    /// The address of the client, or of the proxy in front of it. None if it has none.
    pub fn peer_address(&self) -> Option<IpAddr> {
        match &self.0 {
            Transport::Socket { tcp, .. } => tcp.peer_addr().ok().map(|address| address.ip()),
            Transport::Stream(stream) => stream.peer,
        }
    }

    /// Reads what has arrived. 0: the client sends no more.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has arrived; otherwise the connection is broken.
    #[inline]
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            Transport::Socket { tcp, tls: None } => read(tcp, buffer),
            Transport::Socket { tcp, tls: Some(session) } => session.read(buffer, tcp),
            Transport::Stream(stream) => stream.read(buffer),
        }
    }

    /// Writes all slices in one call, as far as there is room. Of TLS a record counts when it is encrypted: see
    /// [`ByteStream::has_unsent`]. A stream has as much room as its window.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; otherwise the connection is broken.
    #[inline]
    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (&self.0, slices) {
            (Transport::Socket { tcp, tls: None }, [one]) => tcp.try_write(one),
            (Transport::Socket { tcp, tls: None }, many) => tcp.try_write_vectored(many),
            (Transport::Socket { tcp, tls: Some(session) }, slices) => session.write(slices, tcp),
            (Transport::Stream(stream), slices) => stream.write(slices),
        }
    }

    /// True if a part of a record waits for room. [`ByteStream::poll_read_ready`] and [`ByteStream::poll_write_ready`] send it.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(&self.0, Transport::Socket { tls: Some(session), .. } if session.has_unsent())
    }

    /// Ready when there is something to read.
    #[inline]
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_unsent() {
            // An error shows when something is read.
            let _sent = self.poll_write_ready(cx);
        }
        match &self.0 {
            Transport::Socket { tls: Some(session), .. } if session.has_input() => Poll::Ready(Ok(())),
            Transport::Socket { tcp, .. } => tcp.poll_read_ready(cx),
            Transport::Stream(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Ready when there is room to write.
    #[inline]
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (tcp, tls) = match &self.0 {
            Transport::Socket { tcp, tls } => (tcp, tls),
            Transport::Stream(stream) => return stream.poll_write_ready(cx),
        };
        loop {
            ready!(tcp.poll_write_ready(cx))?;
            match tls {
                Some(session) if !session.flush(tcp)? => {}
                _ => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Writes no more: bytes already written arrive, then the end. What waits for room leaves in [`ByteStream::linger`].
    pub(crate) fn close_writing(&self) {
        match &self.0 {
            // An error ends the connection, too.
            Transport::Socket { tcp, tls } if tls.as_ref().is_none_or(|tls| tls.close(tcp).unwrap_or(true)) => {
                // The peer may have disconnected first.
                let _gone = SockRef::from(tcp).shutdown(Shutdown::Write);
            }
            Transport::Socket { .. } => {}
            Transport::Stream(stream) => stream.close(),
        }
    }

    /// Makes the connection end with a reset when it is dropped. The bytes in the kernel's buffer are useless, and the
    /// kernel frees them at once.
    pub(crate) fn reset(&self) {
        match &self.0 {
            // A socket that is already gone has no buffer.
            Transport::Socket { tcp, .. } => _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO)),
            Transport::Stream(stream) => stream.reset(),
        }
    }

    /// Lets the kernel deliver the remaining bytes to a peer that may still read, for a limited time.
    pub(crate) fn release(&self) {
        self.limit_silence(UNREAD);
    }

    /// Ends the connection if the peer acknowledges nothing for this long while bytes are on their way to it.
    pub(crate) fn limit_silence(&self, timeout: Duration) {
        #[cfg(target_os = "linux")]
        if let Transport::Socket { tcp, .. } = &self.0 {
            let _gone = SockRef::from(tcp).set_tcp_user_timeout(Some(timeout));
        }
    }

    /// Waits until the peer has closed, too, so that bytes it still sends do not reset the connection under the last
    /// response (RFC 6455 §7.1.1, RFC 9112 §9.6). The wait is limited in time and in bytes.
    pub(crate) async fn linger(&self) {
        if self.is_tls() {
            let _late = tokio::time::timeout(UNREAD, poll_fn(|cx| self.poll_write_ready(cx))).await;
            self.close_writing();
        }
        let drain = async {
            let mut bytes = [0; 4096];
            let mut drained = 0;
            while drained < LINGER_BYTES_MAX && poll_fn(|cx| self.poll_raw_ready(cx)).await.is_ok() {
                match self.try_read_raw(&mut bytes) {
                    Ok(0) => return,
                    Ok(count) => drained += count,
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                    Err(_) => {}
                }
                // A peer that floods must not block other tasks of this thread.
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(LINGER, drain).await.is_err() {
            self.release();
        }
    }

    async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_read_ready(cx)).await
    }

    /// Ready when something has arrived that [`ByteStream::try_read_raw`] reads.
    fn poll_raw_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.0 {
            Transport::Socket { tcp, .. } => tcp.poll_read_ready(cx),
            Transport::Stream(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Reads bytes to discard them: of TLS they are not decrypted.
    fn try_read_raw(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            Transport::Socket { tcp, .. } => tcp.try_read(buffer),
            Transport::Stream(stream) => stream.read(buffer),
        }
    }

    /// Takes the connection out of this thread's runtime.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn detach(self) -> io::Result<Detached> {
        Ok(Detached(match self.0 {
            Transport::Socket { tcp, tls } => Transport::Socket { tcp: tcp.into_std()?, tls },
            Transport::Stream(stream) => Transport::Stream(stream),
        }))
    }
}

/// Reads what has arrived. If there was no more, the socket is ready again when something arrives: another read would only hear that.
fn read(tcp: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let count = tcp.try_read(buffer)?;
    if count > 0 && count < buffer.len() {
        let _empty = tcp.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }
    Ok(count)
}

impl Detached {
    /// A stream socket of any family, which does not block.
    fn of_socket(socket: OwnedFd) -> Detached {
        Detached(Transport::Socket { tcp: socket.into(), tls: None })
    }

    /// Puts the connection into this thread's runtime.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn attach(self) -> io::Result<ByteStream> {
        Ok(ByteStream(match self.0 {
            Transport::Socket { tcp, tls } => Transport::Socket { tcp: TcpStream::from_std(tcp)?, tls },
            Transport::Stream(stream) => Transport::Stream(stream),
        }))
    }
}

impl AsyncRead for ByteStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if let Transport::Socket { tcp, tls: None } = &mut stream.0 {
            return Pin::new(tcp).poll_read(cx, buffer);
        }
        loop {
            match stream.try_read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(stream.poll_read_ready(cx))?,
                read => return Poll::Ready(read.map(|count| buffer.advance(count))),
            }
        }
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Transport::Socket { tcp, tls: None } = &mut self.0 {
            return Pin::new(tcp).poll_write(cx, bytes);
        }
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has nothing to flush.
        if self.has_unsent() { self.poll_write_ready(cx) } else { Poll::Ready(Ok(())) }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        self.close_writing();
        self.poll_flush(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        if let Transport::Socket { tcp, tls: None } = &mut stream.0 {
            return Pin::new(tcp).poll_write_vectored(cx, slices);
        }
        loop {
            match stream.try_write(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(stream.poll_write_ready(cx))?,
                written => return Poll::Ready(written),
            }
        }
    }
}

impl fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteStream").field("peer_address", &self.peer_address()).finish_non_exhaustive()
    }
}

/// The time for which a closed connection tries to deliver its remaining bytes.
const UNREAD: Duration = Duration::from_secs(10);
/// The time for which a closed connection waits for its peer.
const LINGER: Duration = Duration::from_secs(1);
/// The bytes that a closed connection still reads and discards: a few times what the kernel had already buffered.
const LINGER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A fatal alert of TLS, `internal_error` (RFC 8446 §6), as a whole record.
const REFUSED: &[u8] = &[21, 3, 3, 0, 2, 2, 80];

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of a connection; the second one is the client's.
    async fn pair() -> (ByteStream, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        listener.set_nonblocking(true).expect("a mode");
        let client = std::net::TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
        let listeners = [Listener::new(listener.into(), Speaks::default()).expect("a listener")];
        let Accepted { stream, remote, .. } = accept(&listeners, &mut 0).await.expect("a connection");
        assert_eq!(stream.peer_address(), remote.address());
        (stream, client)
    }

    #[test]
    fn a_gathered_write_arrives_in_order_after_a_move_and_before_the_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (stream, mut client) = pair().await;
            stream.prepare(4_096).expect("a connection that lives");
            let moved = stream.detach().and_then(Detached::attach).expect("the same connection");
            poll_fn(|cx| moved.poll_write_ready(cx)).await.expect("room");
            assert_eq!(moved.try_write(&[IoSlice::new(b"one "), IoSlice::new(b"two")]).expect("room"), 7);
            assert_eq!(moved.try_read(&mut [0; 8]).expect_err("nothing").kind(), io::ErrorKind::WouldBlock);
            moved.close_writing();
            let mut text = String::new();
            io::Read::read_to_string(&mut client, &mut text).expect("text and its end");
            assert_eq!(text, "one two");
            io::Write::write_all(&mut client, b"late").expect("half of the connection is open");
            drop(client);
            moved.linger().await;
            assert_eq!(moved.try_read(&mut [0; 8]).expect("the end"), 0);
        });
    }

    #[test]
    fn a_reset_connection_ends_with_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (stream, mut client) = pair().await;
            stream.reset();
            drop(stream);
            let error = io::Read::read(&mut client, &mut [0; 8]).expect_err("a reset");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        });
    }
}
