//! The body of a response with a file: in memory, or read while it is sent.

use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use encke_core::SessionsMemory;
use hyper::body::{Body, Frame, SizeHint};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tokio::task::{JoinHandle, spawn_blocking};

use super::account::OpenFile;

/// A body.
pub(crate) enum FileBody {
    /// In memory; empty at its end.
    Whole(Bytes),
    /// On the disk.
    Pieces(Pieces),
}

/// A part of a file that is read piece by piece, as the client takes it.
pub(crate) struct Pieces {
    file: Arc<OpenFile>,
    /// The offset of the next byte.
    at: u64,
    /// The offset behind the last byte.
    end: u64,
    /// The piece that another thread reads.
    reading: Option<JoinHandle<io::Result<Vec<u8>>>>,
    room: Room,
}

/// The memory of responses, which the pieces of files share with others.
#[derive(Clone)]
pub(crate) struct Room {
    /// Counts the bytes of responses.
    pub(crate) memory: Arc<SessionsMemory>,
    /// Bytes of responses from which on pieces are small.
    pub(crate) bytes_max: usize,
}

impl FileBody {
    /// The bytes of a file from `at` to `end`.
    pub(super) fn of_file(file: Arc<OpenFile>, at: u64, end: u64, room: &Room) -> FileBody {
        FileBody::Pieces(Pieces { file, at, end, reading: None, room: room.clone() })
    }

    fn remaining(&self) -> u64 {
        match self {
            FileBody::Whole(bytes) => bytes.len() as u64,
            FileBody::Pieces(pieces) => pieces.end - pieces.at,
        }
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.remaining() == 0 {
            return Poll::Ready(None);
        }
        match &mut *self {
            FileBody::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            FileBody::Pieces(pieces) => pieces.poll_next(cx).map(|piece| Some(piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.remaining() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining())
    }
}

impl Pieces {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let wanted = if self.room.memory.body_bytes() < self.room.bytes_max { PIECE_BYTES } else { SMALL_PIECE_BYTES };
        let wanted = wanted.min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        let read = match &mut self.reading {
            Some(reading) => ready!(Pin::new(reading).poll(cx)).map_err(io::Error::other).flatten(),
            None => match read_from_memory(&self.file, self.at, wanted) {
                Some(read) => read,
                None => {
                    let (file, at) = (self.file.clone(), self.at);
                    let reading = self.reading.insert(spawn_blocking(move || read(&file, at, wanted)));
                    ready!(Pin::new(reading).poll(cx)).map_err(io::Error::other).flatten()
                }
            },
        };
        self.reading = None;
        let piece = read?;
        if piece.is_empty() {
            // It has become shorter. The client sees that the end is missing.
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.at += piece.len() as u64;
        Poll::Ready(Ok(self.room.memory.counted_part(piece.into())))
    }
}

/// Reads what the system has in memory, without waiting for the disk. None if that is nothing, or the file system cannot tell.
fn read_from_memory(file: &OpenFile, at: u64, wanted: usize) -> Option<io::Result<Vec<u8>>> {
    let mut bytes = vec![0; wanted];
    match preadv2(&file.file, &mut [IoSliceMut::new(&mut bytes)], at, ReadWriteFlags::NOWAIT) {
        Ok(read) => {
            bytes.truncate(read);
            Some(Ok(bytes))
        }
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => None,
        Err(error) => Some(Err(error.into())),
    }
}

/// Reads, and waits for the disk.
fn read(file: &OpenFile, at: u64, wanted: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; wanted];
    let read = file.file.read_at(&mut bytes, at)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// A piece: as much as the system takes for a client at once.
const PIECE_BYTES: usize = 128 * 1024;
/// A piece while responses hold much memory.
const SMALL_PIECE_BYTES: usize = 16 * 1024;
