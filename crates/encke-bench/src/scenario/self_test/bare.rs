//! The reader to compare the load with: the same sockets on the same core, read with little more than system calls.
//! Both share the delays of the machine and of the sender.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use websocket::{Decoder, Event, Opcode, Role, frame, handshake};

use super::reads::Reads;
use crate::engine::poll::{Interest, Poll, Ready};
use crate::engine::stamp::Stamped;
use crate::engine::timing::Timing;
use crate::engine::{Clients, Target};
use crate::latencies::Latencies;
use crate::problem::Problem;
use crate::report::Flow;

/// Sockets whose frames are only counted.
pub(super) struct Bare {
    poll: Poll,
    ready: Vec<Ready>,
    sockets: Vec<(TcpStream, Decoder)>,
    buffer: Vec<u8>,
    timing: Timing,
    received: Flow,
}

impl Bare {
    /// Opens the sockets, and has each join its room.
    pub(super) fn open(address: SocketAddr, clients: u32) -> Result<Bare, Problem> {
        let poll = Poll::new()?;
        let mut sockets = Vec::new();
        for token in 0..clients {
            let stream = join(address)?;
            poll.add(&stream, token.into(), Interest::Read)?;
            sockets.push((stream, Decoder::new(Role::Client, READ_BYTES)));
        }
        let (buffer, timing) = (vec![0; READ_BYTES], Timing::new(u64::MAX, 1, u64::MAX));
        Ok(Bare { poll, ready: Vec::new(), sockets, buffer, timing, received: Flow::default() })
    }
}

impl Reads for Bare {
    fn turn(&mut self, timeout: Duration) -> Result<(), Problem> {
        let Bare { poll, ready, sockets, buffer, timing, received } = self;
        poll.wait(timeout, ready)?;
        for Ready { token, .. } in &*ready {
            let (stream, decoder) = &mut sockets[*token as usize];
            let read = match stream.read(buffer) {
                Ok(0) => return Err(left("closed a socket")),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            };
            received.bytes += read as u64;
            let now_us = Clients::clock_us();
            let fed = decoder.feed(&mut buffer[..read], &mut |event| {
                if let Event::Text(text) = event
                    && let Some(stamped) = Stamped::find(text.as_bytes())
                {
                    received.messages += 1;
                    let planned_us = stamped.planned_us(now_us);
                    if planned_us >= timing.from_us {
                        timing.take(now_us.saturating_sub(planned_us), 0);
                    }
                }
                websocket::Flow::Continue
            });
            fed.map_err(|_| left("sent no frames"))?;
        }
        Ok(())
    }

    fn time_from_now(&mut self) {
        self.timing = Timing::new(Clients::clock_us(), 1, u64::MAX);
    }

    fn received(&self) -> Flow {
        Flow { batches: self.received.messages, ..self.received }
    }

    fn latencies(&self) -> &Latencies {
        &self.timing.latencies
    }
}

/// A socket that is upgraded and confirmed.
fn join(address: SocketAddr) -> Result<TcpStream, Problem> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(JOIN_TIMEOUT))?;
    let target = Target::plain(address);
    stream.write_all(target.upgrade_request(&handshake::client_key([0; 16]), false).as_bytes())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let mut joining = Vec::new();
    frame::masked(Opcode::Text, JOIN.as_bytes(), [0; 4], &mut joining);
    stream.write_all(&joining)?;
    let mut joined = vec![0; frame::header_bytes(JOIN.len()) + JOIN.len()];
    stream.read_exact(&mut joined)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn left(what: &str) -> Problem {
    Problem::Machine(format!("the self-test's own sender {what}"))
}

/// Room 0, as sessions of a load join it.
const JOIN: &str = "+00000";
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 64 * 1024;
