//! The sockets of a floor: a listener and connections on one epoll.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use encke_bench::engine::allow_sockets;
use encke_bench::problem::Problem;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

/// A listener on loopback, and an epoll that watches it and the connections of a floor.
#[derive(Debug)]
pub struct EventLoop {
    listener: TcpListener,
    epoll: OwnedFd,
}

impl EventLoop {
    /// Listens on a port of 127.0.0.1, 0 for any free one, and prints the address.
    ///
    /// # Errors
    /// The port cannot be used, or the limit of open files is too low.
    pub fn listen(port: u16) -> Result<EventLoop, Problem> {
        allow_sockets(SOCKETS_WANTED)?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        listen(&socket, BACKLOG)?;
        let listener = TcpListener::from(socket);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        println!("listening on {}", listener.local_addr()?);
        Ok(EventLoop { listener, epoll })
    }

    /// Waits for events and replaces `events` with them. Their data is [`LISTENER`], or the index of a connection.
    ///
    /// # Errors
    /// Those of the system.
    pub fn wait(&self, events: &mut Vec<Event>) -> Result<(), Problem> {
        events.clear();
        events.reserve(EVENTS_PER_TURN);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The next new connection, without a delay for small writes; none if there is none now.
    ///
    /// # Errors
    /// Those of the system.
    pub fn accept(&self) -> Result<Option<TcpStream>, Problem> {
        let (stream, _) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Some(stream))
    }

    /// Watches a connection for input. Its events have this index.
    ///
    /// # Errors
    /// Those of the system.
    pub fn watch(&self, stream: &TcpStream, index: usize) -> Result<(), Problem> {
        Ok(epoll::add(&self.epoll, stream, EventData::new_u64(index as u64), EventFlags::IN)?)
    }

    /// Watches a connection for room to write as well, or no longer.
    ///
    /// # Errors
    /// Those of the system.
    pub fn watch_for_room(&self, stream: &TcpStream, index: usize, is_wanted: bool) -> Result<(), Problem> {
        let flags = if is_wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.epoll, stream, EventData::new_u64(index as u64), flags)?)
    }
}

/// The data of the listener's events.
pub const LISTENER: u64 = u64::MAX;
const BACKLOG: i32 = 4096;
const EVENTS_PER_TURN: usize = 1024;
/// The sockets of the largest run and some.
const SOCKETS_WANTED: u64 = 10_000;
