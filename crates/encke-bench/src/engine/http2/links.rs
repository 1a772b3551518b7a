//! The HTTP/2 connections of a worker, and the sessions that share each.

use super::connection::{Event, Http2};
use crate::engine::error::ConnectionError;
use crate::engine::poll::Ready;
use crate::engine::session::{Connection, Session};
use crate::engine::shared::WorkerShared;
use crate::engine::socket::Socket;
use crate::engine::stream_link::StreamLink;
use crate::engine::websocket::write_text;

/// The connections. Subscribers and publishers share none, so that the breaks of subscribers reach no publisher.
#[derive(Debug)]
pub(in crate::engine) struct Links {
    links: Vec<Link>,
    /// The first token: link `n` has the token `first_token + n`.
    first_token: u64,
    sessions_per_link: usize,
    subscribers: usize,
}

/// One connection.
///
/// ```text
/// None ── open ──▶ connecting ──▶ begun ──▶ ready ── the last session leaves ──▶ None
/// ```
#[derive(Debug, Default)]
struct Link {
    socket: Option<Socket>,
    /// None until the socket is connected.
    http2: Option<Http2>,
    /// Sessions that wait until streams can be opened.
    waiting: Vec<usize>,
}

/// The sessions that something has happened to.
#[derive(Debug, Default)]
pub(in crate::engine) struct Served {
    /// Those that have received something.
    pub(in crate::engine) received: Vec<usize>,
    /// Those that have lost their stream, and why.
    pub(in crate::engine) lost: Vec<(usize, ConnectionError)>,
}

impl Links {
    /// Connections for `sessions`, of which the first are subscribers.
    pub(in crate::engine) fn new(
        sessions: usize,
        subscribers: usize,
        sessions_per_link: usize,
        first_token: u64,
    ) -> Links {
        let number = subscribers.div_ceil(sessions_per_link) + (sessions - subscribers).div_ceil(sessions_per_link);
        let links = (0..number).map(|_| Link::default()).collect();
        Links { links, first_token, sessions_per_link, subscribers }
    }

    /// The number of connections that all sessions need.
    pub(in crate::engine) fn len(&self) -> usize {
        self.links.len()
    }

    /// The most sessions of a connection.
    pub(in crate::engine) fn sessions_per_link(&self) -> usize {
        self.sessions_per_link
    }

    /// Requests a stream for a session, and begins the connection if there is none.
    pub(in crate::engine) fn open(
        &mut self,
        index: usize,
        stream: &mut StreamLink,
        shared: &WorkerShared,
    ) -> Result<(), ConnectionError> {
        let at = self.link_of(index);
        let (link, token) = (&mut self.links[at], self.first_token + at as u64);
        match (&mut link.socket, &mut link.http2) {
            (Some(socket), Some(http2)) if http2.is_ready() => {
                stream.stream = Some(http2.open(index, &shared.target, socket.out())?);
            }
            (Some(_), _) => link.waiting.push(index),
            (None, _) => {
                let socket = Socket::connect(&shared.target).map_err(|error| ConnectionError::connecting(&error))?;
                link.waiting.push(index);
                link.socket.insert(socket).watch(&shared.poll, token)?;
            }
        }
        Ok(())
    }

    /// Serves the connection with this number.
    pub(in crate::engine) fn step(
        &mut self,
        at: usize,
        ready: &Ready,
        sessions: &mut [Session],
        shared: &mut WorkerShared,
    ) -> Served {
        let mut served = Served::default();
        let Some(link) = self.links.get_mut(at) else { return served };
        let stepped = link.step(ready, sessions, shared, &mut served).and_then(|()| link.flush(ready.token, shared));
        if let Err(error) = stepped {
            link.lose(&error, &mut served);
        }
        served
    }

    /// Sends a text message of a session as soon as its connection is flushed and the windows have room.
    pub(in crate::engine) fn send(
        &mut self,
        index: usize,
        stream: &StreamLink,
        text: &[u8],
        shared: &mut WorkerShared,
    ) -> Result<(), ConnectionError> {
        let at = self.link_of(index);
        let Link { socket: Some(socket), http2: Some(http2), .. } = &mut self.links[at] else {
            return Err(ConnectionError::Lost("is not connected".into()));
        };
        let Some(stream) = stream.stream else { return Err(ConnectionError::Lost("has no stream".into())) };
        shared.frames.clear();
        write_text(text, &mut shared.frames);
        http2.send(stream, &shared.frames, socket.out());
        Ok(())
    }

    /// Sends what waits on the connection of a session, and updates its epoll registration.
    pub(in crate::engine) fn flush(&mut self, index: usize, shared: &WorkerShared) -> Served {
        let (at, mut served) = (self.link_of(index), Served::default());
        if let Err(error) = self.links[at].flush(self.first_token + at as u64, shared) {
            self.links[at].lose(&error, &mut served);
        }
        served
    }

    /// A session gives up its stream. The connection ends with its last stream.
    pub(in crate::engine) fn leave(&mut self, index: usize, stream: &StreamLink) {
        let at = self.link_of(index);
        let link = &mut self.links[at];
        link.waiting.retain(|waiting| *waiting != index);
        if let (Some(socket), Some(http2), Some(stream)) = (&mut link.socket, &mut link.http2, stream.stream) {
            http2.reset(stream, index, socket.out());
        }
        if link.waiting.is_empty() && !link.http2.as_ref().is_some_and(Http2::is_used) {
            *link = Link::default();
        }
    }

    /// Gives up the connection of a session, and closes it unless its socket was taken. All its sessions are lost.
    pub(in crate::engine) fn lose(&mut self, index: usize, error: &ConnectionError) -> Served {
        let (at, mut served) = (self.link_of(index), Served::default());
        self.links[at].lose(error, &mut served);
        served
    }

    /// The unsent bytes of a session, and of its connection.
    pub(in crate::engine) fn unsent_bytes(&self, index: usize, stream: &StreamLink) -> usize {
        let Link { socket, http2, .. } = &self.links[self.link_of(index)];
        let of_stream = http2.as_ref().zip(stream.stream).map_or(0, |(http2, stream)| http2.unsent_bytes(stream));
        of_stream + socket.as_ref().map_or(0, Socket::unsent_bytes)
    }

    /// The connection of a session.
    pub(in crate::engine) fn socket_mut(&mut self, index: usize) -> &mut Option<Socket> {
        let at = self.link_of(index);
        &mut self.links[at].socket
    }

    /// The connections that are open.
    pub(in crate::engine) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.links.iter().filter_map(|link| link.socket.as_ref())
    }

    fn link_of(&self, index: usize) -> usize {
        match index.checked_sub(self.subscribers) {
            None => index / self.sessions_per_link,
            Some(publisher) => self.subscribers.div_ceil(self.sessions_per_link) + publisher / self.sessions_per_link,
        }
    }
}

impl Link {
    /// Reads and writes as `ready` allows.
    fn step(
        &mut self,
        ready: &Ready,
        sessions: &mut [Session],
        shared: &mut WorkerShared,
        served: &mut Served,
    ) -> Result<(), ConnectionError> {
        let Link { socket: Some(socket), http2, waiting } = self else { return Ok(()) };
        if socket.is_connecting() {
            if ready.writable {
                socket.connected().map_err(|error| ConnectionError::connecting(&error))?;
                *http2 = Some(Http2::begin(socket.out()));
            }
            return Ok(());
        }
        let Some(http2) = http2.as_mut().filter(|_| ready.readable) else { return Ok(()) };
        let received = shared.receive(socket, |bytes, out, shared| {
            let mut used = 0;
            while let Some((event, length)) = http2.next(&bytes[used..], out)? {
                used += length;
                take(event, http2, waiting, out, sessions, shared, served)?;
            }
            Ok((used, ()))
        });
        match received {
            Err(ConnectionError::Lost(reason)) if !http2.is_ready() => {
                Err(ConnectionError::NotSpoken(format!("{reason} before it spoke HTTP/2")))
            }
            received => received.map(|_| ()),
        }
    }

    fn flush(&mut self, token: u64, shared: &WorkerShared) -> Result<(), ConnectionError> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        socket.flush().map_err(|error| ConnectionError::broken(&error))?;
        Ok(socket.watch(&shared.poll, token)?)
    }

    fn lose(&mut self, error: &ConnectionError, served: &mut Served) {
        let Link { http2, waiting, .. } = std::mem::take(self);
        let sessions = http2.iter().flat_map(Http2::sessions).chain(waiting);
        served.lost.extend(sessions.map(|session| (session, error.clone())));
    }
}

/// Passes an event on to its session.
fn take(
    event: Event<'_>,
    http2: &mut Http2,
    waiting: &mut Vec<usize>,
    out: &mut Vec<u8>,
    sessions: &mut [Session],
    shared: &mut WorkerShared,
    served: &mut Served,
) -> Result<(), ConnectionError> {
    match event {
        Event::Nothing => {}
        Event::Ready => {
            for index in std::mem::take(waiting) {
                let opened = http2.open(index, &shared.target, out);
                match (opened, &mut sessions[index].connection) {
                    (Ok(stream), Connection::Stream(link)) => link.stream = Some(stream),
                    (Err(error), _) => served.lost.push((index, error)),
                    (Ok(stream), _) => http2.reset(stream, index, out),
                }
            }
        }
        Event::Answered { session: index, stream, status } => {
            let Session { connection: Connection::Stream(link), protocol, .. } = &mut sessions[index] else {
                return Ok(());
            };
            match link.answered(status, protocol) {
                Ok(()) => served.received.push(index),
                Err(error) => {
                    http2.reset(stream, index, out);
                    served.lost.push((index, error));
                }
            }
        }
        Event::Data { session: index, stream, bytes } => {
            let Session { connection: Connection::Stream(link), protocol, .. } = &mut sessions[index] else {
                return Ok(());
            };
            let mut frames = std::mem::take(&mut shared.frames);
            frames.clear();
            match link.take(bytes, &mut frames, index, protocol, shared) {
                Ok(false) => {}
                Ok(true) if served.received.last() == Some(&index) => {}
                Ok(true) => served.received.push(index),
                Err(error) => {
                    http2.reset(stream, index, out);
                    served.lost.push((index, error));
                }
            }
            if !frames.is_empty() {
                http2.send(stream, &frames, out);
            }
            shared.frames = frames;
        }
        Event::Ended { session, reason } => served.lost.push((session, ConnectionError::Lost(reason))),
    }
    Ok(())
}
