//! The sockets at which clients arrive.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use encke_core::TlsClient;
use tokio::net::{TcpListener, UnixListener};

use super::{ByteStream, Detached, Remote};

/// A socket that accepts connections, in the runtime of a thread.
pub(crate) struct Listener {
    socket: Socket,
    speaks: Speaks,
}

/// The protocols of a connection below HTTP, in their order on the wire.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Speaks {
    /// True if it begins with a PROXY head.
    pub(crate) proxy_protocol: bool,
    /// The certificates of its clients, if it speaks TLS.
    pub(crate) tls: Option<TlsClient>,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A new connection.
pub(crate) struct Accepted {
    pub(crate) stream: ByteStream,
    pub(crate) remote: Remote,
    pub(crate) speaks: Speaks,
}

impl Listener {
    /// A socket that listens and does not block.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn new(socket: OwnedFd, speaks: Speaks) -> io::Result<Listener> {
        let is_unix = socket2::SockRef::from(&socket).local_addr()?.is_unix();
        let socket = match is_unix {
            true => Socket::Unix(UnixListener::from_std(socket.into())?),
            false => Socket::Tcp(TcpListener::from_std(socket.into())?),
        };
        Ok(Listener { socket, speaks })
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        let (stream, remote) = match &self.socket {
            Socket::Tcp(listener) => {
                let (tcp, peer) = ready!(listener.poll_accept(cx))?;
                (ByteStream::plain(tcp), Remote::Tcp(peer.ip()))
            }
            Socket::Unix(listener) => {
                let (unix, _) = ready!(listener.poll_accept(cx))?;
                (Detached::of_socket(unix.into_std()?.into()).attach()?, Remote::Unix)
            }
        };
        Poll::Ready(Ok(Accepted { stream, remote, speaks: self.speaks }))
    }
}

/// Accepts the next connection. `turn` is the listener that is asked first, so that none waits for another.
pub(crate) async fn accept(listeners: &[Listener], turn: &mut usize) -> io::Result<Accepted> {
    poll_fn(|cx| {
        for _ in listeners {
            *turn = (*turn + 1) % listeners.len();
            if let Poll::Ready(accepted) = listeners[*turn].poll_accept(cx) {
                return Poll::Ready(accepted);
            }
        }
        Poll::Pending
    })
    .await
}
