//! An HTTP/2 connection for h2: it limits what is read in one turn, counts frames that bring nothing, gives up a client that does not
//! read, and records when the connection breaks.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use encke_core::Settings;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::{Frames, RST_STREAM, Rates};
use crate::byte_stream::ByteStream;
use crate::http::connection::Connection;
use crate::net::stall::Stall;
use crate::net::turn::yield_turn;

/// The connection.
pub(super) struct Io {
    /// None after the end of this value.
    stream: Option<ByteStream>,
    /// Bytes to read before those of the connection.
    front: Bytes,
    received: Frames,
    sent: Frames,
    rates: Rates,
    stall: Stall,
    /// The time for the client to take any byte.
    write_timeout: Duration,
    settings: Arc<Settings>,
    shared: Rc<Shared>,
}

/// The part that the task of the connection sees.
pub(super) struct Shared {
    connection: Rc<Connection>,
    /// The bytes that may still be read in this turn.
    turn_bytes: Cell<usize>,
    /// True if the client has sent too many frames that bring nothing. Nothing more is read.
    pub(super) is_flooded: Cell<bool>,
    /// True if a frame or a list of headers has arrived in part.
    pub(super) is_within: Cell<bool>,
    /// The connection, after h2 has dropped its I/O.
    pub(super) returned: Cell<Option<ByteStream>>,
}

impl Shared {
    pub(super) fn new(connection: &Rc<Connection>) -> Rc<Shared> {
        Rc::new(Shared {
            connection: connection.clone(),
            turn_bytes: Cell::new(TURN_BYTES),
            is_flooded: Cell::new(false),
            is_within: Cell::new(true),
            returned: Cell::new(None),
        })
    }

    /// Begins a turn of the connection's task.
    pub(super) fn begin_turn(&self) {
        self.turn_bytes.set(TURN_BYTES);
    }
}

impl Io {
    /// `front` was read before.
    pub(super) fn new(stream: ByteStream, front: Bytes, settings: &Arc<Settings>, shared: &Rc<Shared>) -> Io {
        Io {
            stream: Some(stream),
            front,
            received: Frames::of_client(),
            sent: Frames::default(),
            rates: Rates::default(),
            stall: Stall::default(),
            write_timeout: Duration::from_millis(settings.response_timeout_ms),
            settings: settings.clone(),
            shared: shared.clone(),
        }
    }

    fn poll_stream<T>(
        &mut self,
        call: impl FnOnce(Pin<&mut ByteStream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        let result = call(Pin::new(stream));
        if matches!(result, Poll::Ready(Err(_))) {
            self.shared.connection.health.broken.set(true);
        }
        result
    }

    /// Looks at what was read. False if the client sends too many frames that bring nothing.
    fn look(&mut self, read: &[u8]) -> bool {
        let now_ms = self.shared.connection.node.now().ms;
        self.received.look(read, |head| self.rates.count(head, now_ms));
        self.shared.is_within.set(self.received.is_within());
        self.shared.is_flooded.set(self.rates.are_exceeded(&self.settings));
        !self.shared.is_flooded.get()
    }

    /// Looks at what was written. A client that takes nothing for too long is given up.
    fn wrote(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let Connection { node, health, .. } = &*self.shared.connection;
        let Poll::Ready(result) = result else {
            ready!(self.stall.poll(node, self.write_timeout, cx));
            self.stream.iter().for_each(ByteStream::reset);
            health.timed_out.set(true);
            health.broken.set(true);
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        };
        self.stall.end();
        let (mut left, mut resets) = (result.as_ref().map_or(0, |count| *count), 0);
        for slice in slices {
            let part = &slice[..slice.len().min(left)];
            left -= part.len();
            self.sent.look(part, |head| resets += usize::from(head.kind == RST_STREAM));
        }
        node.shard().metrics().http2_resets.add(resets);
        Poll::Ready(result)
    }
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let turn_bytes = self.shared.turn_bytes.get();
        if self.shared.is_flooded.get() {
            return Poll::Pending;
        }
        if turn_bytes == 0 {
            return yield_turn(cx);
        }
        // On the stack: h2's buffer is larger, and TLS would write zeros into all of it, which an idle connection then holds.
        let mut bytes = [const { MaybeUninit::<u8>::uninit() }; READ_BYTES];
        let room = READ_BYTES.min(buffer.remaining());
        let mut read = ReadBuf::uninit(&mut bytes[..room]);
        if self.front.is_empty() {
            ready!(self.poll_stream(|stream| stream.poll_read(cx, &mut read)))?;
        } else {
            let count = self.front.len().min(room);
            read.put_slice(&self.front[..count]);
            self.front.advance(count);
        }
        let read = read.filled();
        if read.is_empty() {
            // The bytes that have not left are lost.
            self.shared.connection.health.broken.set(true);
        }
        self.shared.turn_bytes.set(turn_bytes.saturating_sub(read.len()));
        buffer.put_slice(read);
        if self.look(read) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = self.poll_stream(|stream| stream.poll_write(cx, bytes));
        self.wrote(cx, &[IoSlice::new(bytes)], result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_stream(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_stream(|stream| stream.poll_shutdown(cx))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = self.poll_stream(|stream| stream.poll_write_vectored(cx, slices));
        self.wrote(cx, slices, result)
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        self.shared.returned.set(self.stream.take());
    }
}

/// The bytes that one turn reads: less than a millisecond of work, however small the frames are.
const TURN_BYTES: usize = 16 * 1024;
/// The bytes read at once.
const READ_BYTES: usize = 4 * 1024;
