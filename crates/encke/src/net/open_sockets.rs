//! The connections of a shard's WebSockets.

use std::cell::{Cell, Ref, RefCell};
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::Waker;

use encke_core::{NodeTag, SocketKey, Wire};

use crate::byte_stream::ByteStream;

/// The connection of a WebSocket, shared by the task that reads it and the flusher that writes it.
pub(crate) struct OpenSocket {
    /// The key of the socket in the shard. An index may be reused.
    pub(super) key: SocketKey,
    pub(super) connection: ByteStream,
    /// The task that reads.
    pub(super) reader: Cell<Option<Waker>>,
    /// True if the kernel took nothing at the last attempt.
    pub(super) blocked: Cell<bool>,
    /// Set when the shard has closed it.
    pub(super) closed: Cell<Option<Closed>>,
    /// True while its last message waits for the application: nothing more is read.
    pub(super) suspended: Cell<bool>,
    /// True if its incomplete message was given up.
    pub(super) given_up: Cell<bool>,
}

/// The way in which a shard closes a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Bytes already written are to arrive.
    Orderly,
    /// Its client does not read: it is reset.
    GivenUp,
    /// This node of the cluster serves it: only the shard is done with it.
    Relayed(NodeTag),
}

impl OpenSocket {
    pub(super) fn new(key: SocketKey, connection: ByteStream) -> OpenSocket {
        OpenSocket {
            key,
            connection,
            reader: Cell::default(),
            blocked: Cell::default(),
            closed: Cell::default(),
            suspended: Cell::default(),
            given_up: Cell::default(),
        }
    }

    fn wake(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// The connections, by the index that the shard gave each socket.
#[derive(Default)]
pub(crate) struct OpenSockets(RefCell<Vec<Option<Rc<OpenSocket>>>>);

impl OpenSockets {
    pub(super) fn add(&self, socket: Rc<OpenSocket>) {
        let mut sockets = self.0.borrow_mut();
        let index = socket.key.index as usize;
        if sockets.len() <= index {
            sockets.resize_with(index + 1, || None);
        }
        sockets[index] = Some(socket);
    }

    pub(super) fn remove(&self, key: SocketKey) {
        if let Some(socket) = self.0.borrow_mut().get_mut(key.index as usize) {
            *socket = None;
        }
    }

    /// Changes a socket, if it is still there, and wakes its task.
    fn change(&self, key: SocketKey, change: impl FnOnce(&OpenSocket)) {
        let socket = self.0.borrow().get(key.index as usize).cloned().flatten();
        if let Some(socket) = socket.filter(|socket| socket.key == key) {
            change(&socket);
            socket.wake();
        }
    }

    /// Closes a socket for the shard.
    pub(super) fn close(&self, key: SocketKey, how: Closed) {
        self.change(key, |socket| {
            socket.closed.set(Some(how));
            match how {
                Closed::Orderly => socket.connection.close_writing(),
                Closed::GivenUp => socket.connection.reset(),
                Closed::Relayed(_) => {}
            }
        });
    }

    /// Lets a socket read on whose last message has waited for the application.
    pub(super) fn read_on(&self, key: SocketKey) {
        self.change(key, |socket| socket.suspended.set(false));
    }

    /// Gives up the incomplete message of a socket.
    pub(super) fn give_up(&self, key: SocketKey) {
        self.change(key, |socket| socket.given_up.set(true));
    }

    /// The sockets, as the shard's flush writes to them.
    pub(crate) fn wire(&self) -> impl Wire + '_ {
        SocketsWire(self.0.borrow())
    }
}

struct SocketsWire<'a>(Ref<'a, Vec<Option<Rc<OpenSocket>>>>);

impl Wire for SocketsWire<'_> {
    fn write(&mut self, key: SocketKey, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(socket) = self.0.get(key.index as usize).and_then(Option::as_ref) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let result = socket.connection.try_write(slices);
        let is_blocked = matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        if is_blocked || socket.connection.has_unsent() {
            socket.blocked.set(true);
            socket.wake();
        }
        result
    }
}
