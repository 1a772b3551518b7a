//! Many connections on one thread, for any protocol. Scenarios without Bayeux use them.
//!
//! ```text
//! open ─→ Handler::connected ─→ Handler::received … ─→ Handler::ended
//!     └───────────(no answer)────────────────────────↗
//! ```

use std::io;
use std::time::Duration;

use crate::engine::poll::{Poll, Ready};
use crate::engine::socket::{Scratch, Socket};
use crate::engine::target::Target;
use crate::problem::Problem;

/// The protocol of one connection. It appends bytes to `out`, which are sent as the socket accepts them.
pub trait Handler {
    /// State that all handlers share, such as counters.
    type State;

    /// The connection is established.
    ///
    /// # Errors
    /// The reason to close this connection.
    fn connected(&mut self, out: &mut Vec<u8>, shared: &mut Self::State) -> Result<(), String>;

    /// Receives bytes. Returns the number of bytes used; the rest is passed again with more data behind it.
    ///
    /// # Errors
    /// The reason to close this connection, such as an invalid answer.
    fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>, shared: &mut Self::State) -> Result<usize, String>;

    /// The connection is over: could not be made, was closed by the server, is broken, or the client itself stopped.
    /// Nothing is called any more.
    fn ended(&mut self, end: End, shared: &mut Self::State);
}

/// The end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It could not be made; the system's words.
    Unreachable(String),
    /// The server closed it in good order.
    Closed,
    /// It broke, or the client gave up; why.
    Broken(String),
}

/// The connections of a thread. A handler keeps its number, even after its connection has ended.
#[derive(Debug)]
pub struct Connections<C: Handler> {
    /// State that all handlers share.
    pub shared: C::State,
    poll: Poll,
    slots: Vec<Slot<C>>,
    alive: usize,
    ready: Vec<Ready>,
    scratch: Scratch,
}

#[derive(Debug)]
struct Slot<C> {
    handler: C,
    socket: Option<Socket>,
}

impl<C: Handler> Connections<C> {
    /// Creates an empty set. [`allow_sockets`](crate::engine::allow_sockets) raises the limit of open files.
    ///
    /// # Errors
    /// The system has no epoll instance left.
    pub fn new(shared: C::State) -> Result<Self, Problem> {
        let (poll, scratch) = (Poll::new()?, Scratch::new());
        Ok(Connections { shared, poll, slots: Vec::new(), alive: 0, ready: Vec::new(), scratch })
    }

    /// Begins a connection and returns its number. One that the system refuses ends at once.
    ///
    /// # Errors
    /// The machine's.
    pub fn open(&mut self, target: &Target, mut handler: C) -> Result<usize, Problem> {
        let index = self.slots.len();
        let socket = match Socket::connect(target) {
            Ok(mut socket) => {
                socket.watch(&self.poll, index as u64)?;
                self.alive += 1;
                Some(socket)
            }
            Err(error) => {
                handler.ended(End::Unreachable(os_message(&error)), &mut self.shared);
                None
            }
        };
        self.slots.push(Slot { handler, socket });
        Ok(index)
    }

    /// Waits for sockets for at most `timeout` and serves those that are ready, at most
    /// [`EVENTS_PER_TURN`](crate::engine::poll::EVENTS_PER_TURN) of them.
    ///
    /// # Errors
    /// The machine's, never a single client's.
    pub fn turn(&mut self, timeout: Duration) -> Result<(), Problem> {
        let mut ready = std::mem::take(&mut self.ready);
        self.poll.wait(timeout, &mut ready)?;
        for ready in &ready {
            self.serve(ready)?;
        }
        self.ready = ready;
        Ok(())
    }

    /// Lets the caller act on a handler at any time, such as to send its next request. Returns `None` if its connection
    /// has ended.
    ///
    /// # Errors
    /// epoll fails.
    pub fn with<T>(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut C, &mut Vec<u8>, &mut C::State) -> T,
    ) -> Result<Option<T>, Problem> {
        let Slot { handler, socket: Some(socket) } = &mut self.slots[index] else { return Ok(None) };
        let result = act(handler, socket.out(), &mut self.shared);
        let flushed = socket.flush();
        self.settle(index, flushed.map_err(|error| broken(&error)))?;
        Ok(Some(result))
    }

    /// Closes a connection without calling its handler.
    pub fn close(&mut self, index: usize) {
        if self.slots[index].socket.take().is_some() {
            self.alive -= 1;
        }
    }

    /// A client, ended or not.
    pub fn handler(&self, index: usize) -> &C {
        &self.slots[index].handler
    }

    /// The number of connections begun.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns true if no connection was begun.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The number of connections that have not ended.
    pub fn alive(&self) -> usize {
        self.alive
    }

    fn serve(&mut self, ready: &Ready) -> Result<(), Problem> {
        let index = ready.token as usize;
        let Slot { handler, socket: Some(socket) } = &mut self.slots[index] else { return Ok(()) };
        let served = step(handler, socket, ready, &mut self.scratch, &mut self.shared);
        self.settle(index, served)
    }

    /// Updates the registration of a connection after work on it, or ends it.
    fn settle(&mut self, index: usize, served: Result<(), End>) -> Result<(), Problem> {
        let Slot { handler, socket: open_socket @ Some(_) } = &mut self.slots[index] else { return Ok(()) };
        match (served, open_socket.as_mut()) {
            (Ok(()), Some(socket)) => socket.watch(&self.poll, index as u64),
            (Ok(()), None) => Ok(()),
            (Err(end), _) => {
                *open_socket = None;
                self.alive -= 1;
                handler.ended(end, &mut self.shared);
                Ok(())
            }
        }
    }
}

fn step<C: Handler>(
    handler: &mut C,
    socket: &mut Socket,
    ready: &Ready,
    scratch: &mut Scratch,
    shared: &mut C::State,
) -> Result<(), End> {
    if socket.is_connecting() {
        if !ready.writable {
            return Ok(());
        }
        socket.connected().map_err(|error| End::Unreachable(os_message(&error)))?;
        handler.connected(socket.out(), shared).map_err(End::Broken)?;
    }
    if ready.readable
        && let Some(bytes) = socket.receive(scratch).map_err(|error| broken(&error))?
    {
        let used = handler.received(bytes, socket.out(), shared).map_err(End::Broken)?;
        socket.buffer(&bytes[used..]).map_err(|error| broken(&error))?;
    }
    socket.flush().map_err(|error| broken(&error))
}

fn broken(error: &io::Error) -> End {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => End::Closed,
        _ => End::Broken(os_message(error)),
    }
}

/// The system's words without its number: "Connection refused" rather than "Connection refused (os error 111)".
pub fn os_message(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Sends a line and takes lines.
    struct Lines;

    #[derive(Default)]
    struct Observed {
        lines: Vec<String>,
        ends: Vec<End>,
    }

    impl Handler for Lines {
        type State = Observed;

        fn connected(&mut self, out: &mut Vec<u8>, _: &mut Observed) -> Result<(), String> {
            out.extend_from_slice(b"hello\n");
            Ok(())
        }

        fn received(&mut self, bytes: &[u8], _: &mut Vec<u8>, seen: &mut Observed) -> Result<usize, String> {
            let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            let text = String::from_utf8_lossy(&bytes[..whole]);
            if text.contains("nonsense") {
                return Err("nonsense came".into());
            }
            seen.lines.extend(text.lines().map(str::to_owned));
            Ok(whole)
        }

        fn ended(&mut self, end: End, seen: &mut Observed) {
            seen.ends.push(end);
        }
    }

    fn turn_until(connections: &mut Connections<Lines>, done: impl Fn(&Connections<Lines>) -> bool) {
        while !done(connections) {
            connections.turn(Duration::from_millis(50)).expect("turned");
        }
    }

    #[test]
    fn lines_arrive_whole_and_the_end_is_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("port");
        let mut connections = Connections::new(Observed::default()).expect("epoll");
        connections.open(&Target::plain(listener.local_addr().expect("address")), Lines).expect("begun");
        let (mut peer, _) = listener.accept().expect("accepted");
        connections.turn(Duration::from_secs(1)).expect("turned");
        let mut greeting = [0; 6];
        peer.read_exact(&mut greeting).expect("greeted");
        peer.write_all(b"one\ntw").expect("sent");
        turn_until(&mut connections, |connections| connections.shared.lines.len() == 1);
        peer.write_all(b"o\n").expect("sent");
        turn_until(&mut connections, |connections| connections.shared.lines.len() == 2);
        assert_eq!(connections.shared.lines, ["one", "two"]);
        assert_eq!(connections.with(0, |_, out, _| out.extend_from_slice(b"more\n")).expect("turned"), Some(()));
        peer.read_exact(&mut greeting[..5]).expect("more");
        drop(peer);
        turn_until(&mut connections, |connections| connections.alive() == 0);
        assert_eq!(connections.shared.ends, [End::Closed]);
        assert_eq!(connections.with(0, |_, _, _| ()).expect("turned"), None);
    }

    #[test]
    fn a_handler_error_and_a_closed_port_are_distinguished() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("port");
        let target = Target::plain(listener.local_addr().expect("address"));
        let mut connections = Connections::new(Observed::default()).expect("epoll");
        connections.open(&target, Lines).expect("begun");
        let (mut peer, _) = listener.accept().expect("accepted");
        peer.write_all(b"nonsense\n").expect("sent");
        turn_until(&mut connections, |connections| connections.alive() == 0);
        drop(listener);
        connections.open(&target, Lines).expect("begun");
        turn_until(&mut connections, |connections| connections.alive() == 0);
        let ends = [End::Broken("nonsense came".into()), End::Unreachable("Connection refused".into())];
        assert_eq!(connections.shared.ends, ends);
    }
}
