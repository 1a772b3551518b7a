//! The sockets at which clients arrive.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use tokio::net::{TcpListener, UnixListener};

use super::{ByteStream, Detached};

/// A socket that accepts connections, in the runtime of a thread.
pub(crate) struct Listener {
    socket: Socket,
    /// True if its connections speak TLS.
    speaks_tls: bool,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A new connection.
pub(crate) struct Accepted {
    pub(crate) stream: ByteStream,
    /// The address of the client. None on a Unix socket.
    pub(crate) peer: Option<IpAddr>,
    /// True if it speaks TLS.
    pub(crate) speaks_tls: bool,
}

impl Listener {
    /// A socket that listens and does not block.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn new(socket: OwnedFd, speaks_tls: bool) -> io::Result<Listener> {
        let is_unix = socket2::SockRef::from(&socket).local_addr()?.is_unix();
        let socket = match is_unix {
            true => Socket::Unix(UnixListener::from_std(socket.into())?),
            false => Socket::Tcp(TcpListener::from_std(socket.into())?),
        };
        Ok(Listener { socket, speaks_tls })
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        let (stream, peer) = match &self.socket {
            Socket::Tcp(listener) => {
                let (tcp, peer) = ready!(listener.poll_accept(cx))?;
                (ByteStream { tcp, tls: None }, Some(peer.ip()))
            }
            Socket::Unix(listener) => {
                let (unix, _) = ready!(listener.poll_accept(cx))?;
                (Detached::of_socket(unix.into_std()?.into()).attach()?, None)
            }
        };
        Poll::Ready(Ok(Accepted { stream, peer, speaks_tls: self.speaks_tls }))
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
