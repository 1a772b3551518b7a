//! A client's connection as everything above it sees it: bytes in both directions, readiness, and ways to end it.
//!
//! The module is the only one that knows how the bytes travel: over TCP or another stream socket, with TLS or without.
//! Each call is one `match`: without TLS it allocates nothing, copies nothing, and a gathered write stays one system call.

mod listener;
mod proxy_head;
mod remote;
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

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::upgrade::downcast;
use rustls::ServerConfig;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

pub(crate) use listener::{Accepted, Listener, Speaks, accept};
use proxy_head::PROXY_HEAD_BYTES_MAX;
pub(crate) use proxy_head::ProxyHead;
pub(crate) use remote::Remote;
use tls::Session;
pub(crate) use upgraded::detach_upgraded;

/// The connection of a client. It reads and writes as any stream of tokio.
pub struct ByteStream {
    /// Any stream socket of the system: it is only read, written and closed.
    tcp: TcpStream,
    tls: Option<Box<Session>>,
}

/// A connection on its way to another thread: it belongs to no runtime.
pub(crate) struct Detached {
    tcp: std::net::TcpStream,
    tls: Option<Box<Session>>,
}

impl ByteStream {
    /// A new connection that speaks TLS from its first byte on. Nothing is read or written before [`ByteStream::handshake`].
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub(crate) fn with_tls(self, config: Arc<ServerConfig>) -> io::Result<ByteStream> {
        Ok(ByteStream { tls: Some(Box::new(Session::new(config)?)), ..self })
    }

    /// The plain socket of an upgraded request, and the bytes that were read from it.
    ///
    /// # Errors
    /// It is no plain socket.
    fn of_upgraded(upgraded: Upgraded) -> Result<(ByteStream, Vec<u8>), Upgraded> {
        let parts = downcast::<TokioIo<TcpStream>>(upgraded)?;
        Ok((ByteStream { tcp: parts.io.into_inner(), tls: None }, parts.read_buf.to_vec()))
    }

    /// True if it speaks TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Reads the PROXY head at the beginning of a connection, and nothing after it. None if the proxy only looked if the server is there.
    ///
    /// # Errors
    /// No valid head, or the system's error.
    pub(crate) async fn proxy_head(&self) -> io::Result<Option<ProxyHead>> {
        let mut bytes = vec![0; PROXY_HEAD_BYTES_MAX];
        let mut read = 0;
        loop {
            let arrived = read + self.tcp.peek(&mut bytes[read..]).await?;
            if arrived == read {
                return if read == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            let head = ProxyHead::parse(&bytes[..arrived]).map_err(io::Error::other)?;
            let end = head.map_or(arrived, |(_, length)| length);
            while read < end {
                // They are there.
                read += self.tcp.try_read(&mut bytes[read..end])?;
            }
            if let Some((head, _)) = head {
                return Ok(Some(head));
            }
        }
    }

    /// Completes the handshake of a connection that speaks TLS. Each step waits for its turn. Returns true if it resumed a session.
    ///
    /// # Errors
    /// The client does not speak TLS as the server does. It got an alert, or a response in plain HTTP if it speaks that.
    pub(crate) async fn handshake(&self, turns: &Semaphore) -> io::Result<bool> {
        let Some(session) = &self.tls else { return Ok(false) };
        while session.is_handshaking() {
            self.readable().await?;
            let turn = turns.acquire().await;
            match session.receive(&self.tcp) {
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
        let bytes = if self.is_tls() { REFUSED } else { text };
        let _gone = self.tcp.try_write(bytes);
    }

    /// Prepares a new connection: small messages leave at once, and the kernel buffers at most `send_buffer_bytes` for a
    /// client that does not read. 0: as many as it likes.
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) fn prepare(&self, send_buffer_bytes: usize) -> io::Result<()> {
        match self.tcp.set_nodelay(true) {
            // A Unix socket has no such option.
            Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput) => {}
            set => set?,
        }
        if send_buffer_bytes > 0 {
            let _as_it_is = self.socket().set_send_buffer_size(send_buffer_bytes);
        }
        Ok(())
    }

    /// The address of the client, or of the proxy in front of it. None if it has none.
    pub fn peer_address(&self) -> Option<IpAddr> {
        self.tcp.peer_addr().ok().map(|address| address.ip())
    }

    /// Reads what has arrived. 0: the client sends no more.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has arrived; otherwise the connection is broken.
    #[inline]
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.tcp.try_read(buffer),
            Some(session) => session.read(buffer, &self.tcp),
        }
    }

    /// Writes all slices in one call, as far as there is room. Of TLS a record counts when it is encrypted: see
    /// [`ByteStream::has_unsent`].
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; otherwise the connection is broken.
    #[inline]
    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (&self.tls, slices) {
            (None, [one]) => self.tcp.try_write(one),
            (None, many) => self.tcp.try_write_vectored(many),
            (Some(session), slices) => session.write(slices, &self.tcp),
        }
    }

    /// True if a part of a record waits for room. [`ByteStream::poll_read_ready`] and [`ByteStream::poll_write_ready`] send it.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.has_unsent())
    }

    /// Ready when there is something to read.
    #[inline]
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_unsent() {
            // An error shows when something is read.
            let _sent = self.poll_write_ready(cx);
        }
        match &self.tls {
            Some(session) if session.has_input() => Poll::Ready(Ok(())),
            _ => self.tcp.poll_read_ready(cx),
        }
    }

    /// Ready when there is room to write.
    #[inline]
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.tcp.poll_write_ready(cx))?;
            match &self.tls {
                Some(session) if !session.flush(&self.tcp)? => {}
                _ => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Writes no more: bytes already written arrive, then the end. What waits for room leaves in [`ByteStream::linger`].
    pub(crate) fn close_writing(&self) {
        // An error ends the connection, too.
        if self.tls.as_ref().is_none_or(|session| session.close(&self.tcp).unwrap_or(true)) {
            // The peer may have disconnected first.
            let _gone = self.socket().shutdown(Shutdown::Write);
        }
    }

    /// Makes the connection end with a reset when it is dropped. The bytes in the kernel's buffer are useless, and the
    /// kernel frees them at once.
    pub(crate) fn reset(&self) {
        // A socket that is already gone has no buffer.
        let _gone = self.socket().set_linger(Some(Duration::ZERO));
    }

    /// Lets the kernel deliver the remaining bytes to a peer that may still read, for a limited time.
    pub(crate) fn release(&self) {
        #[cfg(target_os = "linux")]
        let _gone = self.socket().set_tcp_user_timeout(Some(UNREAD));
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
            while drained < LINGER_BYTES_MAX && self.tcp.readable().await.is_ok() {
                match self.tcp.try_read(&mut bytes) {
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

    fn socket(&self) -> SockRef<'_> {
        SockRef::from(&self.tcp)
    }

    /// Takes the connection out of this thread's runtime.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn detach(self) -> io::Result<Detached> {
        Ok(Detached { tcp: self.tcp.into_std()?, tls: self.tls })
    }
}

impl Detached {
    /// A stream socket of any family, which does not block.
    fn of_socket(socket: OwnedFd) -> Detached {
        Detached { tcp: socket.into(), tls: None }
    }

    /// Puts the connection into this thread's runtime.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn attach(self) -> io::Result<ByteStream> {
        Ok(ByteStream { tcp: TcpStream::from_std(self.tcp)?, tls: self.tls })
    }
}

impl AsyncRead for ByteStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if stream.tls.is_none() {
            return Pin::new(&mut stream.tcp).poll_read(cx, buffer);
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
        if self.tls.is_none() {
            return Pin::new(&mut self.tcp).poll_write(cx, bytes);
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
        if stream.tls.is_none() {
            return Pin::new(&mut stream.tcp).poll_write_vectored(cx, slices);
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
