//! A TCP connection as hyper reads and writes it: with deadlines for requests that do not come, and a note when it broke.

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::huge_length::HugeLength;
use super::node::Node;
use encke_core::Settings;

/// What is known of a connection by those who only see its requests.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// A write failed, or the connection ended: what it had not taken is lost.
    broken: AtomicBool,
    /// A request is being answered: silence is no fault.
    busy: AtomicBool,
    /// A request was taken since the connection looked last.
    served: AtomicBool,
    /// A request was taken ever.
    used: AtomicBool,
    /// The client took longer than it may.
    timed_out: AtomicBool,
}

impl Health {
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// What it has not taken by now is lost.
    pub(crate) fn set_broken(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Whether the connection ended because its client took too long.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.timed_out.load(Ordering::Relaxed)
    }

    /// A request is being answered from now on, or is not any more.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
        self.served.store(true, Ordering::Relaxed);
        self.used.store(true, Ordering::Relaxed);
    }

    /// Whether a request was taken ever.
    pub(crate) fn was_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }
}

/// How long to wait for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// For the rest of a request whose first byte is there.
    pub(crate) head: Duration,
    /// For the next request.
    pub(crate) idle: Duration,
    /// For the client to take anything of a response.
    pub(crate) write: Duration,
}

impl Timeouts {
    pub(crate) fn of(settings: &Settings) -> Timeouts {
        Timeouts {
            head: Duration::from_millis(settings.request_timeout_ms),
            idle: Duration::from_millis(settings.keep_alive_timeout_ms),
            write: Duration::from_millis(settings.response_timeout_ms),
        }
    }
}

/// The connection.
pub(crate) struct Io {
    tcp: TokioIo<TcpStream>,
    health: BrokenOnDrop,
    node: Rc<Node>,
    timeouts: Timeouts,
    /// Set while a request is awaited; allocated only then, so that held requests cost nothing.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Set while the kernel takes nothing of a response.
    stall: Option<Box<Stall>>,
    /// Whether bytes of the awaited request have come.
    begun: bool,
    huge_length: HugeLength,
}

/// A response that its client does not read.
struct Stall {
    since: Instant,
    /// When it is looked at next.
    look: Pin<Box<Sleep>>,
}

struct BrokenOnDrop(Arc<Health>);

impl Drop for BrokenOnDrop {
    fn drop(&mut self) {
        self.0.set_broken();
    }
}

impl Io {
    pub(crate) fn new(node: Rc<Node>, tcp: TcpStream, health: Arc<Health>, timeouts: Timeouts) -> Io {
        let (tcp, health, huge_length) = (TokioIo::new(tcp), BrokenOnDrop(health), HugeLength::default());
        Io { tcp, health, node, timeouts, deadline: None, stall: None, begun: false, huge_length }
    }

    /// The socket, after an upgrade.
    pub(crate) fn into_tcp(self) -> TcpStream {
        self.tcp.into_inner()
    }

    /// Ready when the client took too long, with sending or with reading.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.look_again();
        if self.health.0.busy.load(Ordering::Relaxed) || self.stall.is_some() {
            return Poll::Pending;
        }
        let wait = if self.begun { self.timeouts.head } else { self.timeouts.idle };
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
        deadline.as_mut().poll(cx).map(|()| self.time_out())
    }

    fn time_out(&self) -> io::Error {
        self.health.0.timed_out.store(true, Ordering::Relaxed);
        self.health.0.set_broken();
        io::ErrorKind::TimedOut.into()
    }

    /// Ready when the client has taken nothing for too long. Where responses have little room left that is soon.
    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let wait = self.timeouts.write;
        let look = || Box::pin(tokio::time::sleep(STALL_LOOK.min(wait)));
        let stall = self.stall.get_or_insert_with(|| Box::new(Stall { since: Instant::now(), look: look() }));
        while stall.look.as_mut().poll(cx).is_ready() {
            if stall.since.elapsed() >= wait || self.node.shard.borrow().is_short_of_responses() {
                reset(self.tcp.inner());
                return Poll::Ready(self.time_out());
            }
            stall.look = look();
        }
        Poll::Pending
    }

    /// The first bytes of a request are there: the rest has to follow soon.
    fn has_read(&mut self) {
        self.look_again();
        if !self.begun && !self.health.0.busy.load(Ordering::Relaxed) {
            self.begun = true;
            self.deadline = None;
        }
    }

    /// After a request the wait starts anew.
    fn look_again(&mut self) {
        if self.health.0.served.swap(false, Ordering::Relaxed) {
            self.deadline = None;
            self.begun = false;
            self.huge_length.forget();
        }
    }

    /// A client that reads is waited for anew; one that does not is given up after a while.
    fn wrote(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.deadline = None;
        if result.is_pending() {
            return self.poll_stall(cx).map(Err);
        }
        self.stall = None;
        // hyper does not read again by itself behind a response: the wait for the next request starts here.
        let _in_time = self.poll_deadline(cx);
        self.note(result)
    }

    /// Reads. Bytes that may be part of a head go through a buffer here, because hyper's buffer cannot be searched.
    fn poll_look(&mut self, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if self.health.0.busy.load(Ordering::Relaxed) {
            return Pin::new(&mut self.tcp).poll_read(cx, buf);
        }
        let mut bytes = [const { MaybeUninit::<u8>::uninit() }; LOOK_BYTES];
        let room = LOOK_BYTES.min(buf.remaining());
        let mut read = ReadBuf::uninit(&mut bytes[..room]);
        let result = Pin::new(&mut self.tcp).poll_read(cx, read.unfilled());
        self.huge_length.look(read.filled());
        buf.put_slice(read.filled());
        result
    }

    fn note<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = &result {
            self.health.0.set_broken();
        }
        result
    }
}

impl Read for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let result = self.poll_look(cx, buf);
        if result.is_ready() {
            self.has_read();
            return self.note(result);
        }
        match self.poll_deadline(cx) {
            Poll::Ready(error) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Write for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mended = self.huge_length.mended(buf);
        let result = Pin::new(&mut self.tcp).poll_write(cx, mended.as_deref().unwrap_or(buf));
        self.wrote(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.tcp).poll_flush(cx);
        self.note(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [first, ..] = bufs
            && let Some(mended) = self.huge_length.mended(first)
        {
            let result = Pin::new(&mut self.tcp).poll_write(cx, &mended);
            return self.wrote(cx, result);
        }
        let result = Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs);
        self.wrote(cx, result)
    }
}

/// Waits until the peer has closed, too, so that its last bytes do not reset the connection under what we said last
/// (RFC 6455 §7.1.1, RFC 9112 §9.6): for a moment, and for so many bytes.
pub(crate) async fn linger(tcp: &TcpStream) {
    let drain = async {
        let mut bytes = [0; 4096];
        let mut drained = 0;
        while drained < LINGER_BYTES_MAX && tcp.readable().await.is_ok() {
            match tcp.try_read(&mut bytes) {
                Ok(0) => return,
                Ok(count) => drained += count,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                Err(_) => {}
            }
            // A peer that floods must not keep the others of this thread waiting.
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(LINGER, drain).await.is_err() {
        release(tcp);
    }
}

/// Lets the kernel say the rest to a peer that may still read, but not hold it for one that does not.
pub(crate) fn release(tcp: &TcpStream) {
    #[cfg(target_os = "linux")]
    let _gone = socket2::SockRef::from(tcp).set_tcp_user_timeout(Some(UNREAD));
    #[cfg(not(target_os = "linux"))]
    let _elsewhere = tcp;
}

/// Makes the connection end with a reset when it is dropped: what the kernel still has for its client is of no use to anybody, and
/// it lets go of that at once.
pub(crate) fn reset(tcp: &TcpStream) {
    // One that is gone already has nothing left.
    let _gone = socket2::SockRef::from(tcp).set_linger(Some(Duration::ZERO));
}

/// How often a response of which nothing is taken is looked at, and how long it may stay so while other responses lack room.
const STALL_LOOK: Duration = Duration::from_secs(1);
/// Bytes of a head read at once: the size of hyper's first buffer.
const LOOK_BYTES: usize = 8 * 1024;
/// How long the kernel tries to say the rest on a connection that nobody has any more.
#[cfg(target_os = "linux")]
const UNREAD: Duration = Duration::from_secs(10);
/// How long a closed connection waits for its peer.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes that a closed connection still reads, and throws away: a few times what the kernel had taken already.
const LINGER_BYTES_MAX: usize = 16 * 1024 * 1024;
