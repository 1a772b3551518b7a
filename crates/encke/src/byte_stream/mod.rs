//! A client's connection as everything above it sees it: bytes in both directions, readiness, and ways to end it.
//!
//! The module is the only one that knows how the bytes travel. Another way, such as TLS, is another variant of [`Kind`].
//! Each call is one `match`: it allocates nothing, copies nothing, and a gathered write stays one system call.

mod upgraded;

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

pub(crate) use upgraded::detach_upgraded;

/// The connection of a client. It reads and writes as any stream of tokio.
pub struct ByteStream(Kind);

/// The way in which the bytes travel.
enum Kind {
    /// TCP without TLS, or another stream socket of the system: it is only read, written and closed.
    Tcp(TcpStream),
}

/// A connection on its way to another thread: it belongs to no runtime.
pub(crate) struct Detached(DetachedKind);

enum DetachedKind {
    Tcp(std::net::TcpStream),
}

impl ByteStream {
    /// Accepts a connection.
    pub(crate) async fn accept(listener: &TcpListener) -> io::Result<(ByteStream, SocketAddr)> {
        let (tcp, peer) = listener.accept().await?;
        Ok((ByteStream(Kind::Tcp(tcp)), peer))
    }

    /// Prepares a new connection: small messages leave at once, and the kernel buffers at most `send_buffer_bytes` for a
    /// client that does not read. 0: as many as it likes.
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) fn prepare(&self, send_buffer_bytes: usize) -> io::Result<()> {
        let Kind::Tcp(tcp) = &self.0;
        tcp.set_nodelay(true)?;
        if send_buffer_bytes > 0 {
            let _as_it_is = SockRef::from(tcp).set_send_buffer_size(send_buffer_bytes);
        }
        Ok(())
    }

    /// The address of the client, or of the proxy in front of it. None if it has none.
    pub fn peer_address(&self) -> Option<IpAddr> {
        match &self.0 {
            Kind::Tcp(tcp) => tcp.peer_addr().ok().map(|address| address.ip()),
        }
    }

    /// Reads what has arrived. 0: the client sends no more.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has arrived; otherwise the connection is broken.
    #[inline]
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            Kind::Tcp(tcp) => tcp.try_read(buffer),
        }
    }

    /// Writes all slices in one call, as far as there is room.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; otherwise the connection is broken.
    #[inline]
    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (&self.0, slices) {
            (Kind::Tcp(tcp), [one]) => tcp.try_write(one),
            (Kind::Tcp(tcp), many) => tcp.try_write_vectored(many),
        }
    }

    /// Ready when there is something to read.
    #[inline]
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.0 {
            Kind::Tcp(tcp) => tcp.poll_read_ready(cx),
        }
    }

    /// Ready when there is room to write.
    #[inline]
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.0 {
            Kind::Tcp(tcp) => tcp.poll_write_ready(cx),
        }
    }

    /// Writes no more: bytes already written arrive, then the end.
    pub(crate) fn close_writing(&self) {
        // The peer may have disconnected first.
        let _gone = self.socket().shutdown(Shutdown::Write);
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
        let drain = async {
            let mut bytes = [0; 4096];
            let mut drained = 0;
            while drained < LINGER_BYTES_MAX && self.readable().await.is_ok() {
                match self.try_read(&mut bytes) {
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
        match &self.0 {
            Kind::Tcp(tcp) => tcp.readable().await,
        }
    }

    fn socket(&self) -> SockRef<'_> {
        match &self.0 {
            Kind::Tcp(tcp) => SockRef::from(tcp),
        }
    }

    /// Takes the connection out of this thread's runtime.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn detach(self) -> io::Result<Detached> {
        match self.0 {
            Kind::Tcp(tcp) => Ok(Detached(DetachedKind::Tcp(tcp.into_std()?))),
        }
    }
}

impl Detached {
    /// A stream socket of any family, which does not block.
    fn of_socket(socket: OwnedFd) -> Detached {
        Detached(DetachedKind::Tcp(socket.into()))
    }

    /// Puts the connection into this thread's runtime.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn attach(self) -> io::Result<ByteStream> {
        match self.0 {
            DetachedKind::Tcp(tcp) => Ok(ByteStream(Kind::Tcp(TcpStream::from_std(tcp)?))),
        }
    }
}

impl AsyncRead for ByteStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Kind::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Kind::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Kind::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Kind::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.0 {
            Kind::Tcp(tcp) => tcp.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Kind::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
        }
    }
}

impl fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteStream").field("peer_address", &self.peer_address()).finish_non_exhaustive()
    }
}

/// The time for which the kernel tries to deliver the remaining bytes of a dropped connection.
#[cfg(target_os = "linux")]
const UNREAD: Duration = Duration::from_secs(10);
/// The time for which a closed connection waits for its peer.
const LINGER: Duration = Duration::from_secs(1);
/// The bytes that a closed connection still reads and discards: a few times what the kernel had already buffered.
const LINGER_BYTES_MAX: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Both ends of a connection; the second one is the client's.
    async fn pair() -> (ByteStream, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let client = std::net::TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
        let (stream, peer) = ByteStream::accept(&listener).await.expect("a connection");
        assert_eq!(stream.peer_address(), Some(peer.ip()));
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
