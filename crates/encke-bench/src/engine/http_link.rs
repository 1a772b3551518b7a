//! One connection to a server over which requests go, one after the other.

use std::collections::VecDeque;

use crate::engine::error::ConnectionError;
use crate::engine::http::{self, Head};
use crate::engine::poll::Ready;
use crate::engine::shared::WorkerShared;
use crate::engine::socket::Socket;

/// A keep-alive connection. It is opened when there is something to send.
#[derive(Debug, Default)]
pub(super) struct HttpLink {
    socket: Option<Socket>,
    /// The tag of the request under way.
    tag: Option<RequestTag>,
    waiting: VecDeque<Request>,
    waiting_bytes: usize,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestTag {
    /// The session that sends it.
    pub(super) session: usize,
    /// The ids of its publications; none for `/meta` messages, on which the session depends.
    pub(super) publications: Option<Ids>,
}

/// The consecutive ids of a batch of publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ids {
    /// The first one.
    pub(super) first: u64,
    /// One above the last one.
    pub(super) end: u64,
}

/// A request as it is sent.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) tag: RequestTag,
    pub(super) bytes: Vec<u8>,
}

/// The result of a step.
#[derive(Debug)]
pub(super) enum Progress {
    /// Nothing to report.
    None,
    /// The connection is made.
    Connected,
    /// The response to a request has arrived, its body in [`WorkerShared::body`].
    Answered(RequestTag, Head),
    /// The server closed the idle connection, as it may.
    Closed,
}

impl HttpLink {
    /// Begins the connection unless there is one.
    pub(super) fn open(&mut self, token: u64, shared: &WorkerShared) -> Result<(), ConnectionError> {
        if self.socket.is_none() {
            let socket = Socket::connect(&shared.target).map_err(|error| ConnectionError::connecting(&error))?;
            self.socket.insert(socket).watch(&shared.poll, token)?;
        }
        Ok(())
    }

    /// Returns true if a request is under way or queued.
    pub(super) fn is_busy(&self) -> bool {
        self.tag.is_some() || !self.waiting.is_empty()
    }

    /// Sends a request when those before it are answered.
    pub(super) fn send(&mut self, request: Request, token: u64, shared: &WorkerShared) -> Result<(), ConnectionError> {
        self.waiting_bytes += request.bytes.len();
        self.waiting.push_back(request);
        self.pump(token, shared)
    }

    /// Reads and writes as `ready` allows.
    pub(super) fn step(&mut self, ready: &Ready, shared: &mut WorkerShared) -> Result<Progress, ConnectionError> {
        let Some(socket) = &mut self.socket else { return Ok(Progress::None) };
        if socket.is_connecting() {
            if !ready.writable {
                return Ok(Progress::None);
            }
            socket.connected().map_err(|error| ConnectionError::connecting(&error))?;
            return Ok(Progress::Connected);
        }
        if ready.writable {
            socket.flush().map_err(|error| ConnectionError::broken(&error))?;
        }
        if !ready.readable {
            return Ok(Progress::None);
        }
        let bytes = match socket.receive(&mut shared.scratch) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Progress::None),
            Err(_) if self.tag.is_none() => {
                self.socket = None;
                return Ok(Progress::Closed);
            }
            Err(error) => return Err(ConnectionError::broken(&error)),
        };
        shared.reader.arrived();
        let response = http::response(bytes, &mut shared.body).map_err(ConnectionError::NotSpoken)?;
        let used = response.as_ref().map_or(0, |(_, length)| *length);
        socket.buffer(&bytes[used..]).map_err(|error| ConnectionError::Lost(error.to_string()))?;
        let Some((response, _)) = response else { return Ok(Progress::None) };
        if !response.keep_alive {
            self.socket = None;
        }
        match self.tag.take() {
            Some(tag) => Ok(Progress::Answered(tag, response)),
            // Some servers send a final response, such as 408, on an idle connection.
            None => {
                self.socket = None;
                Ok(Progress::Closed)
            }
        }
    }

    /// Sends the next queued request if none is under way, and updates the epoll registration.
    pub(super) fn pump(&mut self, token: u64, shared: &WorkerShared) -> Result<(), ConnectionError> {
        if self.tag.is_none() && !self.waiting.is_empty() {
            self.open(token, shared)?;
            if let Some(socket) = self.socket.as_mut().filter(|socket| !socket.is_connecting())
                && let Some(Request { tag, bytes }) = self.waiting.pop_front()
            {
                self.waiting_bytes -= bytes.len();
                socket.out().extend_from_slice(&bytes);
                self.tag = Some(tag);
            }
            if self.waiting.is_empty() {
                self.waiting = VecDeque::new();
            }
        }
        let Some(socket) = &mut self.socket else { return Ok(()) };
        socket.flush().map_err(|error| ConnectionError::broken(&error))?;
        Ok(socket.watch(&shared.poll, token)?)
    }

    /// The length of the queued requests in bytes.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Gives up the requests of a session that are no publications. True if one was under way: that closes the connection.
    pub(super) fn give_up(&mut self, session: usize) -> bool {
        let is_given_up = |tag: &RequestTag| tag.session == session && tag.publications.is_none();
        self.waiting.retain(|request| !is_given_up(&request.tag));
        self.waiting_bytes = self.waiting.iter().map(|request| request.bytes.len()).sum();
        let is_under_way = self.tag.as_ref().is_some_and(is_given_up);
        if is_under_way {
            self.disconnect();
        }
        is_under_way
    }

    /// Closes the connection and keeps the queued requests for the next one. Returns the tag of the request under way.
    pub(super) fn disconnect(&mut self) -> Option<RequestTag> {
        self.socket = None;
        self.tag.take()
    }

    /// Closes the connection. Returns the tags of all requests under way or queued.
    pub(super) fn close(&mut self) -> Vec<RequestTag> {
        let HttpLink { tag, waiting, .. } = std::mem::take(self);
        tag.into_iter().chain(waiting.into_iter().map(|request| request.tag)).collect()
    }

    /// The connection, to change something about it, or to take it.
    pub(super) fn socket_mut(&mut self) -> &mut Option<Socket> {
        &mut self.socket
    }

    /// The connection, if it is open.
    pub(super) fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }
}
