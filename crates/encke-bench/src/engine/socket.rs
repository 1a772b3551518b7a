//! A TCP connection that never waits, with TLS or without.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::engine::poll::{Interest, Poll};
use crate::engine::target::Target;
use crate::engine::tls::{Tls, WIRE_BYTES};
use crate::problem::Problem;

/// A connection with its unsent bytes and the beginning of an incomplete message. An idle socket owns no heap.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    tls: Option<Box<Tls>>,
    connecting: bool,
    watched: Option<Interest>,
    unsent: Vec<u8>,
    /// The part of `unsent` that is already sent.
    sent: usize,
    buffered: Vec<u8>,
    /// The number of bytes still accepted, if the connection is to break in the middle of a message.
    last_bytes: Option<u16>,
}

/// The read buffers of a thread. The default is empty and replaces lent ones.
#[derive(Debug, Default)]
pub struct Scratch {
    bytes: Vec<u8>,
    /// Encrypted bytes.
    wire: Vec<u8>,
}

impl Socket {
    /// Begins a connection; [`Socket::connected`] is to be called when it becomes writable.
    ///
    /// # Errors
    /// The system refused at once.
    pub fn connect(target: &Target) -> io::Result<Socket> {
        let address = &target.address;
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match connect(&socket, address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = TcpStream::from(socket);
        Ok(Socket {
            stream,
            tls: target.open_tls()?.map(Box::new),
            connecting: true,
            watched: None,
            unsent: Vec::new(),
            sent: 0,
            buffered: Vec::new(),
            last_bytes: None,
        })
    }

    /// Completes the connect.
    ///
    /// # Errors
    /// The connect failed.
    pub fn connected(&mut self) -> io::Result<()> {
        self.connecting = false;
        self.stream.take_error()?.map_or(Ok(()), Err)
    }

    /// Returns true until the connection is established.
    pub fn is_connecting(&self) -> bool {
        self.connecting
    }

    /// Bytes to send are appended here; [`Socket::flush`] sends them.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.unsent
    }

    /// The number of unsent bytes.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Sends as much as the system accepts. Does nothing while connecting.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.connecting {
            return Ok(());
        }
        match self.send() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.forget_sent();
                return Ok(());
            }
            sent => sent?,
        }
        self.sent = 0;
        self.unsent.clear();
        // Thousands wait here for long: they should not hold buffers. Small ones are taken again and again by a publisher.
        if self.unsent.capacity() > RETAINED_BYTES_MAX {
            self.unsent = Vec::new();
        }
        Ok(())
    }

    /// Reads once. The result begins with the buffered bytes; `None` if there is nothing to read.
    ///
    /// # Errors
    /// [`ErrorKind::UnexpectedEof`] if the peer closed the connection, otherwise the connection is broken.
    pub fn receive<'a>(&mut self, scratch: &'a mut Scratch) -> io::Result<Option<&'a mut [u8]>> {
        let buffered = self.buffered.len();
        let room = match self.last_bytes {
            Some(0) => return Err(io::Error::new(ErrorKind::ConnectionAborted, "was cut off")),
            last => last.map_or(READ_BYTES, usize::from),
        };
        let read = loop {
            let Scratch { bytes, wire } = &mut *scratch;
            let bytes = &mut bytes[buffered..buffered + READ_BYTES];
            // More of a connection that is to break stays unread: so it is ready again, and breaks then.
            let read = match &mut self.tls {
                None => (&self.stream).read(&mut bytes[..room]),
                Some(tls) => tls.read(bytes, &mut wire[..room.min(WIRE_BYTES)], &self.stream),
            };
            match read {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "closed the connection")),
                Ok(read) => break read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // It breaks within a record.
                    self.last_bytes = self.last_bytes.map(|bytes| if self.tls.is_some() { 0 } else { bytes });
                    return Ok(None);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        if self.last_bytes.is_some() {
            self.last_bytes = Some(0);
        }
        if buffered > 0 {
            scratch.bytes[..buffered].copy_from_slice(&self.buffered);
        }
        Ok(Some(&mut scratch.bytes[..buffered + read]))
    }

    /// Makes the connection break after this many more bytes, at least one; `None` calls the break off.
    pub fn break_after(&mut self, bytes: Option<u16>) {
        self.last_bytes = bytes.map(|bytes| bytes.max(1));
    }

    /// Buffers an incomplete rest; the next [`Socket::receive`] begins with it.
    ///
    /// # Errors
    /// It is longer than [`MESSAGE_BYTES_MAX`].
    pub fn buffer(&mut self, rest: &[u8]) -> io::Result<()> {
        if rest.len() > MESSAGE_BYTES_MAX {
            return Err(io::Error::other(format!("sent a message over {MESSAGE_BYTES_MAX} bytes")));
        }
        self.buffered.clear();
        if rest.is_empty() && self.buffered.capacity() > 0 {
            self.buffered = Vec::new();
        }
        self.buffered.extend_from_slice(rest);
        Ok(())
    }

    /// Registers the events that this socket waits for; adds it to `poll` the first time.
    ///
    /// # Errors
    /// epoll fails.
    pub fn watch(&mut self, poll: &Poll, token: u64) -> Result<(), Problem> {
        let waits = self.connecting
            || match &self.tls {
                None => self.sent < self.unsent.len(),
                // In a handshake the server's answer comes first.
                Some(tls) => tls.has_unsent(),
            };
        let interest = if waits { Interest::ReadAndWrite } else { Interest::Read };
        match self.watched.replace(interest) {
            None => poll.add(&self.stream, token, interest),
            Some(before) if before != interest => poll.change(&self.stream, token, interest),
            Some(_) => Ok(()),
        }
    }

    /// The connection itself.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends everything.
    fn send(&mut self) -> io::Result<()> {
        while self.sent < self.unsent.len() {
            let bytes = &self.unsent[self.sent..];
            let sent = match &mut self.tls {
                None => (&self.stream).write(bytes),
                Some(tls) => tls.write(bytes, &self.stream),
            };
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.tls.as_mut().map_or(Ok(()), |tls| tls.flush(&self.stream))
    }

    /// Not on every write: that would move megabytes for each few kilobytes sent.
    fn forget_sent(&mut self) {
        if self.sent > self.unsent.len() / 2 {
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
    }
}

impl Scratch {
    /// One for a thread. Its pages come to be when they are written to.
    pub fn new() -> Scratch {
        Scratch { bytes: vec![0; MESSAGE_BYTES_MAX + READ_BYTES], wire: vec![0; WIRE_BYTES] }
    }
}

/// The size of one read in bytes: large enough that system calls are cheap, small enough for the core's cache.
pub const READ_BYTES: usize = 128 * 1024;
/// The longest message or HTTP response that is accepted, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A buffer up to this size is retained after all of it is sent.
const RETAINED_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    fn wait(poll: &mut Poll, socket: &mut Socket) {
        let mut ready = Vec::new();
        socket.watch(poll, 1).expect("watched");
        while ready.is_empty() {
            poll.wait(Duration::from_secs(1), &mut ready).expect("waited");
        }
    }

    /// A connected socket, and its peer.
    fn connected() -> (Poll, Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("port");
        let mut poll = Poll::new().expect("epoll");
        let mut socket = Socket::connect(&Target::plain(listener.local_addr().expect("address"))).expect("begun");
        let (peer, _) = listener.accept().expect("accepted");
        wait(&mut poll, &mut socket);
        socket.connected().expect("connected");
        (poll, socket, peer)
    }

    #[test]
    fn buffered_bytes_precede_the_next_read() {
        let (mut poll, mut socket, mut peer) = connected();
        let mut scratch = Scratch::new();
        assert!(socket.receive(&mut scratch).expect("open").is_none());
        for (sent, came) in [("one tw", &b"one tw"[..]), ("o", b"two")] {
            peer.write_all(sent.as_bytes()).expect("sent");
            wait(&mut poll, &mut socket);
            let bytes = socket.receive(&mut scratch).expect("open").expect("bytes");
            assert_eq!(bytes, came);
            let rest = bytes[came.len() - came.len() / 3..].to_vec();
            socket.buffer(&rest).expect("short");
        }
        drop(peer);
        wait(&mut poll, &mut socket);
        let error = socket.receive(&mut scratch).expect_err("closed");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_connection_that_is_to_break_gives_so_many_bytes_and_no_more() {
        let (mut poll, mut socket, mut peer) = connected();
        peer.write_all(b"a whole message").expect("sent");
        socket.break_after(Some(7));
        wait(&mut poll, &mut socket);
        let mut scratch = Scratch::new();
        assert_eq!(socket.receive(&mut scratch).expect("open").expect("bytes"), b"a whole");
        wait(&mut poll, &mut socket);
        assert_eq!(socket.receive(&mut scratch).expect_err("broken").kind(), ErrorKind::ConnectionAborted);
        socket.break_after(None);
        assert_eq!(socket.receive(&mut scratch).expect("open").expect("bytes"), b" message", "called off");
    }

    #[test]
    fn unsent_bytes_wait_and_are_sent_in_order() {
        let (mut poll, mut socket, mut peer) = connected();
        let all: Vec<u8> = (0..8_000_000_u32).map(|number| (number / 7) as u8).collect();
        socket.out().extend_from_slice(&all);
        socket.flush().expect("open");
        assert!(socket.unsent_bytes() > 0, "more than the system's buffers hold");
        let reading = std::thread::spawn(move || {
            let mut came = vec![0; 8_000_000];
            peer.read_exact(&mut came).map(|()| came)
        });
        while socket.unsent_bytes() > 0 {
            wait(&mut poll, &mut socket);
            socket.flush().expect("open");
        }
        assert!(reading.join().expect("no panic").expect("all read") == all);
    }

    #[test]
    fn a_closed_port_fails_the_connect() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("port");
        let target = Target::plain(listener.local_addr().expect("address"));
        drop(listener);
        let mut poll = Poll::new().expect("epoll");
        let Ok(mut socket) = Socket::connect(&target) else { return };
        wait(&mut poll, &mut socket);
        assert_eq!(socket.connected().expect_err("closed").kind(), ErrorKind::ConnectionRefused);
    }
}
