//! Writing and sending publications.

use std::fmt::Write as _;

use bayeux::escape_into;
use bayeux::ext::NO_REPLY;

use crate::engine::clients::{Clients, PlannedMessage};
use crate::engine::http_link::{Ids, RequestTag};
use crate::engine::session::{Connection, SessionState};
use crate::engine::stamp::{CALL_ROOM, Stamp};
use crate::order::Transport;
use crate::problem::Problem;

impl Clients {
    /// Writes a batch into `payload` and numbers it.
    pub(super) fn write_batch(&mut self, session: usize, batch: &[PlannedMessage], data_bytes: usize) {
        let mut out = std::mem::take(&mut self.payload);
        out.clear();
        for (index, message) in batch.iter().enumerate() {
            let PlannedMessage { room, planned_us } = *message;
            let next = &mut self.published.next[room as usize];
            let stamp = Stamp { sequence: *next, room, worker: self.worker, publisher: session as u32, planned_us };
            *next += 1;
            let first = index == 0;
            match self.shared.transport {
                Transport::Raw => {
                    out.extend_from_slice(if first { b"=" } else { b"\n=" });
                    write_room(room, &mut out);
                    out.push(b' ');
                    stamp.write(data_bytes, &mut out);
                }
                Transport::Websocket | Transport::LongPolling | Transport::Eventsource => {
                    out.extend_from_slice(if first { b"[{\"channel\":" } else { b",{\"channel\":" });
                    let channel = out.len();
                    escape_into(&self.membership.channel, &mut out);
                    // The room belongs inside the quotes.
                    out.pop();
                    debug_assert!(out.len() > channel);
                    out.push(b'/');
                    write_room(self.membership.first + room, &mut out);
                    out.push(b'"');
                    self.write_rest(session, stamp, data_bytes, &mut out);
                }
            }
        }
        if self.shared.transport != Transport::Raw {
            out.push(b']');
        }
        self.payload = out;
    }

    /// Writes a call into `payload` and numbers it.
    pub(super) fn write_call(&mut self, session: usize, channel: &str, planned_us: u64, data_bytes: usize) {
        let sequence = self.shared.reader.tally.next_call(session);
        let stamp = Stamp { sequence, room: CALL_ROOM, worker: self.worker, publisher: session as u32, planned_us };
        let mut out = std::mem::take(&mut self.payload);
        out.clear();
        if self.shared.transport == Transport::Raw {
            out.push(b'?');
            stamp.write(data_bytes, &mut out);
        } else {
            out.extend_from_slice(b"[{\"channel\":");
            escape_into(channel, &mut out);
            self.write_rest(session, stamp, data_bytes, &mut out);
            out.push(b']');
        }
        self.payload = out;
    }

    /// Sends `payload`, which holds `count` publications.
    pub(super) fn send_payload(&mut self, session: usize, count: usize) -> Result<(), Problem> {
        let payload = std::mem::take(&mut self.payload);
        self.sent += count as u64;
        self.sent_batches += 1;
        self.sent_bytes += payload.len() as u64;
        // Bare lines have no ids.
        let ids = Ids { first: self.next_id.saturating_sub(count as u64), end: self.next_id };
        self.note_sent(ids);
        let mut sent = Ok(());
        match &mut self.sessions[session].connection {
            Connection::WebSocket(link) => sent = link.send(&payload),
            Connection::Stream(link) => sent = self.http2.send(session, link, &payload, &mut self.shared),
            _ => self.send_pooled(RequestTag { session, publications: Some(ids) }, &payload),
        }
        self.payload = payload;
        match sent {
            Ok(()) => {
                self.watch(session);
                Ok(())
            }
            Err(error) => {
                let problem = Problem::Server(error.reason().to_owned());
                self.error(session, error);
                Err(problem)
            }
        }
    }

    /// Checks that a session can take a publication.
    ///
    /// # Errors
    /// The session is not open, or its queue is full.
    pub(super) fn check_sending(&self, session: usize) -> Result<(), Problem> {
        let open = self.sessions.get(session).filter(|session| session.state == SessionState::Open);
        let Some(session_state) = open else {
            return Err(Problem::Server("has not got this session, or not now".into()));
        };
        let takes = match &session_state.connection {
            Connection::WebSocket(_) => {
                session_state.socket().is_some_and(|socket| socket.unsent_bytes() <= UNSENT_BYTES_MAX)
            }
            Connection::Stream(link) => self.http2.unsent_bytes(session, link) <= UNSENT_BYTES_MAX,
            Connection::Http { .. } | Connection::Events { .. } => self.pool.has_room(session),
        };
        if takes { Ok(()) } else { Err(Problem::Server("takes no publications: too many wait for it".into())) }
    }

    fn write_rest(&mut self, session: usize, stamp: Stamp, data_bytes: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"clientId\":");
        escape_into(self.sessions[session].protocol.client_id(), out);
        // A fixed length: some servers send the id along, and deliveries are read at fixed offsets.
        let mut id = String::new();
        let _ = write!(id, ",\"id\":\"p{:010}\",\"data\":\"", self.next_id);
        self.next_id += 1;
        out.extend_from_slice(id.as_bytes());
        stamp.write(data_bytes, out);
        out.push(b'"');
        if self.no_reply {
            out.extend_from_slice(b",\"ext\":");
            out.extend_from_slice(NO_REPLY.as_bytes());
        }
        out.push(b'}');
    }
}

/// A room's number with five digits, or more if it has more.
fn write_room(room: u32, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 10];
    let (mut rest, mut from) = (room, digits.len());
    while rest > 0 || from > digits.len() - 5 {
        from -= 1;
        digits[from] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits[from..]);
}

/// The most unsent bytes of a session's WebSocket, and of the connection that it is on.
const UNSENT_BYTES_MAX: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_written_as_in_their_channels() {
        for room in [0, 7, 99_999, 100_000, 1_048_574] {
            let mut out = Vec::new();
            write_room(room, &mut out);
            assert_eq!(String::from_utf8(out).expect("digits"), format!("{room:05}"));
        }
    }
}
