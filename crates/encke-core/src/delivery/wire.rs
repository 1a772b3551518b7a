//! The way from outboxes to the kernel: the sockets, the result of a write, and when bytes are copied rather than gathered.

use std::io;
use std::io::IoSlice;

use crate::events::SocketKey;

/// The sockets, as the shard writes to them.
pub trait Wire {
    /// Writes as much of `slices` as possible without waiting, like `writev`. Returns the number of bytes written.
    ///
    /// # Errors
    /// `WouldBlock` if the kernel takes nothing now. Any other error means that the socket is lost.
    fn write(&mut self, socket: SocketKey, slices: &[IoSlice<'_>]) -> io::Result<usize>;
}

/// The result of writing an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Empty,
    /// The close frame is written.
    Closed,
    Blocked,
    Lost,
}

/// An outbox of up to this many bytes in several runs is copied into one buffer: a segment of a gathered write costs
/// the kernel several times the 10 ns that it takes to copy a small frame.
pub(super) const COPY_BYTES_MAX: usize = 64 * 1024;

/// Runs that are longer than this on average are gathered, not copied.
pub(super) const RUN_BYTES_MAX: usize = 2048;

/// The number of segments of one gathered write.
pub(super) const SLICES_MAX: usize = 64;
