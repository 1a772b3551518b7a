//! State that the connections of a worker share.

use std::ops::Range;
use std::time::Instant;

use websocket::deflate::Inflater;

use crate::engine::error::ConnectionError;
use crate::engine::poll::Poll;
use crate::engine::protocol::Protocol;
use crate::engine::reader::Reader;
use crate::engine::socket::{Scratch, Socket};
use crate::engine::target::Target;
use crate::order::Transport;

/// See the module.
#[derive(Debug)]
pub(super) struct WorkerShared {
    pub(super) target: Target,
    /// The target of the sessions from this number on, if it is another one.
    pub(super) publishers_at: Option<(usize, Target)>,
    pub(super) transport: Transport,
    pub(super) poll: Poll,
    pub(super) scratch: Scratch,
    pub(super) reader: Reader,
    /// Decompresses messages, if the WebSockets are compressed.
    pub(super) inflater: Option<Inflater>,
    /// The number of sessions, from the first, that parse their deliveries themselves, since their recovery depends on
    /// each.
    pub(super) parsing_sessions: usize,
    /// Frames of a WebSocket, before they are sent on a stream.
    pub(super) frames: Vec<u8>,
    /// The body of the response at hand.
    pub(super) body: Vec<u8>,
    rest: Vec<Range<usize>>,
}

impl WorkerShared {
    pub(super) fn new(target: Target, transport: Transport, poll: Poll, reader: Reader) -> WorkerShared {
        let (frames, body, rest) = (Vec::new(), Vec::new(), Vec::new());
        let scratch = Scratch::new();
        WorkerShared {
            target,
            publishers_at: None,
            transport,
            poll,
            scratch,
            reader,
            inflater: None,
            parsing_sessions: 0,
            frames,
            body,
            rest,
        }
    }

    /// The target of a session.
    pub(super) fn target_of(&self, session: usize) -> &Target {
        match &self.publishers_at {
            Some((first, target)) if session >= *first => target,
            _ => &self.target,
        }
    }

    /// Reads once from a connection, and passes the bytes that have come to `take`. That may append bytes to send to its second argument, and
    /// returns the number of bytes that it used, and its result. The rest comes again with more behind it. None if nothing has come.
    pub(super) fn receive<T>(
        &mut self,
        socket: &mut Socket,
        take: impl FnOnce(&[u8], &mut Vec<u8>, &mut WorkerShared) -> Result<(usize, T), ConnectionError>,
    ) -> Result<Option<T>, ConnectionError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let taken = match socket.receive(&mut scratch) {
            Ok(None) => Ok(None),
            Ok(Some(bytes)) => {
                self.reader.arrived();
                take(bytes, socket.out(), self).and_then(|(used, result)| {
                    let buffered = socket.buffer(&bytes[used..]);
                    buffered.map_err(|error| ConnectionError::Lost(error.to_string()))?;
                    Ok(Some(result))
                })
            }
            Err(error) => Err(ConnectionError::broken(&error)),
        };
        self.scratch = scratch;
        taken
    }

    /// Takes a Bayeux text: counts its deliveries and passes the other messages to the session. Returns true if the
    /// session received something.
    #[inline]
    pub(super) fn take_bayeux(
        &mut self,
        text: &[u8],
        session: usize,
        protocol: &mut Protocol,
    ) -> Result<bool, ConnectionError> {
        if session < self.parsing_sessions {
            self.reader.note_batch(text);
            protocol.received(text, Instant::now()).map_err(ConnectionError::NotSpoken)?;
            return Ok(true);
        }
        self.reader.take_bayeux(text, session, &mut self.rest).map_err(ConnectionError::NotSpoken)?;
        if self.rest.is_empty() {
            return Ok(false);
        }
        let now = Instant::now();
        for range in self.rest.drain(..) {
            protocol.received(&text[range], now).map_err(ConnectionError::NotSpoken)?;
        }
        Ok(true)
    }
}
