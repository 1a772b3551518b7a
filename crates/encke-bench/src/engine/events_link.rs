//! The stream of one session: a response that stays open, with its messages as server-sent events (HTML Standard §9.2). Its requests go over
//! the pool.

use crate::engine::begun::Begun;
use crate::engine::error::ConnectionError;
use crate::engine::http::{Piece, Responses};
use crate::engine::poll::Ready;
use crate::engine::protocol::Protocol;
use crate::engine::shared::WorkerShared;
use crate::engine::socket::Socket;

/// A stream.
///
/// ```text
/// None ── open ──▶ opening ── 200 ──▶ open
/// ```
#[derive(Debug, Default)]
pub(super) struct EventsLink {
    pub(super) socket: Option<Socket>,
    is_open: bool,
    /// Its response. A proxy may have divided that into chunks, with no regard to events.
    response: Responses,
    /// The beginning of an event.
    begun: Begun,
    /// The connect to be sent when it is open: the server would hold an earlier one with its request.
    connect: Option<String>,
}

/// The result of a step.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing for the session.
    Nothing,
    /// The session received something.
    Received,
    /// The stream is open. The connect that has waited is to be sent.
    Opened(Option<String>),
}

impl EventsLink {
    /// Begins the connection for this request.
    pub(super) fn open(&mut self, request: &str, shared: &WorkerShared) -> Result<(), ConnectionError> {
        let mut socket = Socket::connect(&shared.target).map_err(|error| ConnectionError::connecting(&error))?;
        socket.out().extend_from_slice(request.as_bytes());
        *self = EventsLink { socket: Some(socket), ..EventsLink::default() };
        Ok(())
    }

    /// Returns true if it is open.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns true if it has begun and is not open yet.
    pub(super) fn is_opening(&self) -> bool {
        self.socket.is_some() && !self.is_open
    }

    /// Keeps a connect until it is open.
    pub(super) fn wait(&mut self, connect: &str) {
        self.connect = Some(connect.into());
    }

    /// Reads and writes as `ready` allows.
    pub(super) fn step(
        &mut self,
        ready: &Ready,
        session: usize,
        protocol: &mut Protocol,
        shared: &mut WorkerShared,
    ) -> Result<Step, ConnectionError> {
        let EventsLink { socket: Some(socket), is_open, response, begun, connect } = self else {
            return Ok(Step::Nothing);
        };
        if socket.is_connecting() {
            if !ready.writable {
                return Ok(Step::Nothing);
            }
            socket.connected().map_err(|error| ConnectionError::connecting(&error))?;
        }
        if ready.writable {
            socket.flush().map_err(|error| ConnectionError::broken(&error))?;
        }
        if !ready.readable {
            return Ok(Step::Nothing);
        }
        let step = shared.receive(socket, |bytes, _, shared| {
            let (mut used, mut step) = (0, Step::Nothing);
            while let Some((piece, length)) = response.next(&bytes[used..]).map_err(ConnectionError::NotSpoken)? {
                used += length;
                match piece {
                    Piece::Head(head) if head.status < 200 => {}
                    Piece::Head(head) if head.status != 200 => {
                        let text = format!("answered {} instead of a stream", head.reason);
                        return Err(ConnectionError::NotSpoken(text));
                    }
                    Piece::Head(_) => {
                        *is_open = true;
                        step = Step::Opened(connect.take());
                    }
                    Piece::Body(part) => {
                        let for_session = begun.take(part, |bytes| take_events(bytes, session, protocol, shared))?;
                        if for_session && matches!(step, Step::Nothing) {
                            step = Step::Received;
                        }
                    }
                    // A proxy may leave the connection open.
                    Piece::End if *is_open => return Err(ConnectionError::Lost("ended the stream".into())),
                    Piece::End => {}
                }
            }
            Ok((used, step))
        })?;
        Ok(step.unwrap_or(Step::Nothing))
    }
}

/// Takes the complete events. Returns their length in bytes, and true if the session received any of them.
fn take_events(
    bytes: &[u8],
    session: usize,
    protocol: &mut Protocol,
    shared: &mut WorkerShared,
) -> Result<(usize, bool), ConnectionError> {
    let (mut used, mut for_session) = (0, false);
    while let Some(length) = memchr::memmem::find(&bytes[used..], END) {
        // Other fields are times and signs of life.
        if let Some(text) = bytes[used..used + length].strip_prefix(DATA) {
            for_session |= shared.take_bayeux(text, session, protocol)?;
        }
        used += length + END.len();
    }
    Ok((used, for_session))
}

const DATA: &[u8] = b"data: ";
/// The end of an event.
const END: &[u8] = b"\n\n";
