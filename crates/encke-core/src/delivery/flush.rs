//! Writes outboxes to the kernel: one gathered write for each session and turn.

use std::borrow::Borrow;
use std::io;
use std::io::IoSlice;

use websocket::{Compression, Opcode};

use crate::delivery::connections::socket::{OwnFrames, Phase, Socket};
use crate::delivery::encoder::Encoder;
use crate::delivery::outbox::arena::Frames;
use crate::delivery::outbox::{Kind, Outbox, Wrote};
use crate::delivery::schedule::{Holder, Queue};
use crate::delivery::sessions::session::{Next, Session};
use crate::delivery::stream::write_stream;
use crate::delivery::wire::{COPY_BYTES_MAX, Progress, RUN_BYTES_MAX, SLICES_MAX, Wire};
use crate::delivery::{CaughtUp, Delivery};
use crate::events::{Effect, SessionKey, SocketKey};
use crate::metrics::Metrics;

impl Delivery {
    /// Writes outboxes until it meets a session whose held connect must be answered, and returns that. None if everything
    /// is written, or `out_of_time` has returned true. `writes` counts those of one flush.
    pub(crate) fn write(
        &mut self,
        wire: &mut dyn Wire,
        out_of_time: &mut dyn FnMut() -> bool,
        writes: &mut Writes,
    ) -> Option<SessionKey> {
        if writes.are_over {
            return None;
        }
        let (mut count, mut due) = (writes.count, None);
        while let Some(next) = self.schedule.next_write() {
            count += 1;
            match next {
                Holder::Session(key) if self.flush_session(key, wire) => due = Some(key),
                Holder::Session(_) => {}
                Holder::Socket(key) => {
                    self.sockets.get_mut(key).into_iter().for_each(|socket| socket.marks.leave_writes());
                    self.flush_socket(key, wire);
                }
            }
            if count.is_multiple_of(BUDGET_CHECK_EVERY) && out_of_time() {
                writes.are_over = true;
                break;
            }
            if due.is_some() {
                break;
            }
        }
        self.schedule.count_steps(count - writes.count);
        writes.count = count;
        due
    }

    /// True if a queue waits for a pass, and nothing to be written.
    #[inline]
    pub(crate) fn may_pass_over(&self) -> bool {
        self.schedule.is_written() && !self.schedule.is_complete()
    }

    /// True if nothing waits to be written, and no queue waits for a pass.
    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.schedule.is_complete()
    }

    /// True if a flush has nothing to do.
    pub(crate) fn is_settled(&self) -> bool {
        self.schedule.is_settled(self.now.ms) && self.resuming() == 0 && self.effects.is_empty()
    }

    /// Writes the queue of a session, if it has a connection. Returns true if its held connect must be answered.
    fn flush_session(&mut self, key: SessionKey, wire: &mut dyn Wire) -> bool {
        let Delivery { sockets, sessions, encoder, metrics, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return false };
        session.marks.leave_writes();
        if let Some(on) = session.pushing_socket() {
            // The path of nearly all messages: each look-up is made once.
            let Some(socket) = sockets.get_mut(on) else { return false };
            if !socket.may_write() {
                session.marks.block();
                return false;
            }
            let replaying = session.may_replay().then_some(key);
            let progress = write_both(on, socket, Some(session), wire, encoder, metrics);
            self.written(on, progress, replaying);
            return false;
        }
        let (socket, needs_response) = (session.socket(), session.held_request().is_some());
        if session.next() == Next::Respond {
            let has_room = !needs_response || self.response_room().is_some();
            if !has_room {
                self.answer_when_there_is_room(key);
            }
            return has_room;
        }
        socket.into_iter().for_each(|socket| self.flush_socket(socket, wire));
        false
    }

    /// Writes the socket's own frames, then those of its session.
    fn flush_socket(&mut self, key: SocketKey, wire: &mut dyn Wire) {
        let Delivery { sockets, sessions, encoder, metrics, .. } = self;
        let Some(socket) = sockets.get_mut(key) else { return };
        if socket.may_write() {
            let session = socket.session.and_then(|session| sessions.get_mut(session));
            if session.as_ref().is_some_and(|s| s.awaits_withdrawal() && s.socket_with_messages() == Some(key)) {
                return;
            }
            let replays = session.as_ref().is_some_and(|session| session.replay.is_some());
            let replaying = socket.session.filter(|_| replays);
            // A session that gets messages with connects only is put on the list when a connect is held.
            let session = session.filter(|session| session.is_pushed_to() && !session.is_withheld());
            let progress = write_both(key, socket, session, wire, encoder, metrics);
            if let Some(own) = &mut socket.own
                && own.handed.0 > 0
                && own.out.messages() == 0
                && let Some(session) = socket.session.and_then(|session| sessions.get_mut(session))
            {
                session.outbox.settle_charge(std::mem::take(&mut own.handed));
                socket.free_own();
            }
            self.written(key, progress, replaying);
        }
    }

    /// Acts on the result of a write.
    #[inline(always)]
    fn written(&mut self, key: SocketKey, progress: Progress, replaying: Option<SessionKey>) {
        match progress {
            Progress::Empty => replaying.into_iter().for_each(|session| self.replay_later(session)),
            Progress::Blocked => {
                let Some(socket) = self.sockets.get_mut(key) else { return };
                socket.marks.block();
                if !socket.marks.is_blocked() {
                    // It is still queued. Its turn tries again, for the session, too.
                    return;
                }
                let key = socket.session;
                let session = key.and_then(|session| self.sessions.get_mut(session));
                session.filter(|s| s.is_pushed_to()).into_iter().for_each(|session| session.marks.block());
                key.into_iter().for_each(|session| self.is_blocked_behind(session));
            }
            Progress::Lost => self.reset_socket(key),
            Progress::Closed => {
                self.sockets.get_mut(key).into_iter().for_each(|socket| socket.phase = Phase::Closed);
                self.effects.push(Effect::Close(key));
            }
        }
    }

    /// The next session that may replay more. None while anything waits to be written.
    #[inline]
    pub(crate) fn next_replay(&mut self) -> Option<SessionKey> {
        self.schedule.next_replay()
    }

    /// Continues the replay of one session. A session that cannot take more now is listed again by the event that
    /// changes that. Returns the channels whose live messages it gets now, and true if its held connect must be answered.
    pub(crate) fn replay_more(&mut self, key: SessionKey, wire: &mut dyn Wire) -> (Vec<CaughtUp>, bool) {
        let Some(session) = self.sessions.get_mut(key) else { return (Vec::new(), false) };
        // Urgent messages are already being sent. Lazy ones may wait for more.
        let idle = session.outbox.is_empty() || !session.urgent;
        let (ready, holds) = (session.taker() != Next::Wait && idle, session.is_held());
        session.marks.leave(Queue::Replays);
        if !ready || session.replay.is_none() {
            return (Vec::new(), false);
        }
        let caught_up = self.refill(key);
        let Some(session) = self.sessions.get_mut(key) else { return (caught_up, false) };
        let has_news = holds && session.replay.as_ref().is_some_and(|replay| replay.has_news());
        let has_messages = session.urgent && !session.outbox.is_empty();
        (caught_up, if has_messages { self.flush_session(key, wire) } else { has_news })
    }
}

/// The writes of one flush.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    count: usize,
    /// True if there is no time for more.
    are_over: bool,
}

/// The number of sessions between two checks of the time budget.
const BUDGET_CHECK_EVERY: usize = 16;

/// Writes a socket's own frames, then those of its session if that gets messages as they come.
#[inline(always)]
fn write_both(
    key: SocketKey,
    socket: &mut Socket,
    mut session: Option<&mut Session>,
    wire: &mut dyn Wire,
    encoder: &mut Encoder,
    metrics: &Metrics,
) -> Progress {
    let mut written = 0;
    let mut progress = Progress::Empty;
    if let Some(own) = &mut socket.own {
        if let Some(stream) = &mut own.stream {
            let messages = session.as_deref_mut().filter(|session| session.may_send(Some(key)));
            let outboxes = [Some(&mut own.out), messages.map(|session| &mut session.outbox)];
            progress = write_stream(key, stream, outboxes, wire, &mut encoder.scratch, &mut written);
            session.into_iter().for_each(Session::was_sent);
            metrics.deliveries.add(written);
            return progress;
        }
        let messages = session.as_deref_mut().map(|session| &mut session.outbox);
        progress = write_own((key, socket.compression), own, messages, wire, encoder, &mut written);
        socket.free_own();
    }
    if let Some(session) = session {
        if progress == Progress::Empty && session.may_send(Some(key)) {
            progress = write_queue(&mut session.outbox, (key, socket.compression), wire, encoder, &mut written);
        }
        session.was_sent();
    }
    metrics.deliveries.add(written);
    progress
}

/// Writes a socket's own frames, and answers the latest ping. `messages`: the queue of its session, if that gets
/// messages as they come.
#[inline(never)]
fn write_own(
    to: (SocketKey, Option<Compression>),
    own: &mut OwnFrames,
    messages: Option<&mut Outbox>,
    wire: &mut dyn Wire,
    encoder: &mut Encoder,
    written: &mut usize,
) -> Progress {
    let mut progress = write_queue(&mut own.out, to, wire, encoder, written);
    own.pong_bytes = 0;
    if progress == Progress::Empty
        && let Some(payload) = own.pong.take()
    {
        // The pong goes before waiting messages, but not into the middle of a frame.
        progress = messages.map_or(progress, |outbox| write_rest_of_frame(outbox, to.0, wire, written));
        if progress == Progress::Empty {
            let pong = encoder.single(Opcode::Pong, payload.len(), |bytes| bytes.extend_from_slice(&payload));
            own.out.push(&pong, Kind::Replies);
            progress = write_queue(&mut own.out, to, wire, encoder, written);
        } else {
            own.pong = Some(payload);
        }
    }
    progress
}

/// Writes an outbox in the form that the client takes: see [`write_outbox`].
#[inline(always)]
fn write_queue(
    outbox: &mut Outbox,
    (socket, compression): (SocketKey, Option<Compression>),
    wire: &mut dyn Wire,
    encoder: &mut Encoder,
    messages: &mut usize,
) -> Progress {
    match compression {
        None => write_outbox(outbox, socket, wire, &mut encoder.scratch, messages),
        Some(compression) => write_compressed(outbox, socket, compression, wire, encoder, messages),
    }
}

/// Writes until the outbox is empty, the close frame is written, or the kernel takes no more. Adds the number of
/// completely written messages to `messages`.
#[inline(always)]
fn write_outbox(
    outbox: &mut Outbox,
    socket: SocketKey,
    wire: &mut dyn Wire,
    scratch: &mut Vec<u8>,
    messages: &mut usize,
) -> Progress {
    while !outbox.is_empty() {
        let copied_max = || COPY_BYTES_MAX.min(outbox.runs() * RUN_BYTES_MAX);
        let result = match outbox.only_run() {
            Some((chunk, start, end)) => wire.write(socket, &[IoSlice::new(&chunk.slice(start, end))]),
            None if outbox.bytes() <= copied_max() => write_copied(outbox.unwritten(), socket, wire, scratch),
            None => write_gathered(&outbox.unwritten().take(SLICES_MAX).collect::<Vec<_>>(), socket, wire),
        };
        if let Some(progress) = take_note(result, messages, |bytes| outbox.wrote(bytes)) {
            return progress;
        }
    }
    Progress::Empty
}

/// The same for a client that takes compressed messages.
#[inline(never)]
fn write_compressed(
    outbox: &mut Outbox,
    socket: SocketKey,
    compression: Compression,
    wire: &mut dyn Wire,
    encoder: &mut Encoder,
    messages: &mut usize,
) -> Progress {
    let Encoder { compressor, scratch, .. } = encoder;
    let mut parts = std::mem::take(&mut compressor.parts);
    let mut progress = None;
    while progress.is_none() && !outbox.is_empty() {
        outbox.compress(compressor, compression, (COPY_BYTES_MAX, SLICES_MAX), &mut parts);
        let result = match &parts.frames[..] {
            [only] => wire.write(socket, &[IoSlice::new(&only.chunk.slice(only.start, only.end))]),
            several => {
                let bytes: usize = several.iter().map(Frames::bytes).sum();
                if bytes <= COPY_BYTES_MAX.min(several.len() * RUN_BYTES_MAX) {
                    write_copied(several.iter(), socket, wire, scratch)
                } else {
                    write_gathered(several, socket, wire)
                }
            }
        };
        progress = take_note(result, messages, |bytes| outbox.wrote_compressed(bytes, &parts));
        parts.clear();
    }
    compressor.parts = parts;
    progress.unwrap_or(Progress::Empty)
}

/// Notes the result of one write, of which `wrote` tells the outbox. None if there may be more to write.
#[inline(always)]
fn take_note(result: io::Result<usize>, messages: &mut usize, wrote: impl FnOnce(usize) -> Wrote) -> Option<Progress> {
    match result {
        Ok(0) => Some(Progress::Lost),
        Ok(bytes) => {
            let wrote = wrote(bytes);
            *messages += wrote.messages;
            wrote.close.then_some(Progress::Closed)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(Progress::Blocked),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
        Err(_) => Some(Progress::Lost),
    }
}

/// Writes the rest of a frame of which the kernel has a part.
fn write_rest_of_frame(outbox: &mut Outbox, socket: SocketKey, wire: &mut dyn Wire, messages: &mut usize) -> Progress {
    while let Some(rest) = outbox.rest_of_frame() {
        let result = wire.write(socket, &[IoSlice::new(&rest.chunk.slice(rest.start, rest.end))]);
        if let Some(progress) = take_note(result, messages, |bytes| outbox.wrote(bytes)) {
            return progress;
        }
    }
    Progress::Empty
}

fn write_copied(
    ranges: impl Iterator<Item = impl Borrow<Frames>>,
    socket: SocketKey,
    wire: &mut dyn Wire,
    scratch: &mut Vec<u8>,
) -> io::Result<usize> {
    scratch.clear();
    for frames in ranges {
        let frames = frames.borrow();
        scratch.extend_from_slice(&frames.chunk.slice(frames.start, frames.end));
    }
    wire.write(socket, &[IoSlice::new(scratch)])
}

fn write_gathered(ranges: &[Frames], socket: SocketKey, wire: &mut dyn Wire) -> io::Result<usize> {
    let bytes: Vec<_> = ranges.iter().map(|frames| frames.chunk.slice(frames.start, frames.end)).collect();
    let slices: Vec<_> = bytes.iter().map(|bytes| IoSlice::new(bytes)).collect();
    wire.write(socket, &slices)
}
