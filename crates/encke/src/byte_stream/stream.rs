//! A stream of an HTTP/2 connection that carries another protocol (RFC 8441): bytes in both directions.
//!
//! The task of the HTTP/2 connection reads and writes the socket. The stream may live on another thread: h2 locks what both use, and
//! wakes the tasks of both. Bytes count as written when h2 has them: as many as the windows of the stream and of the connection have room
//! for, and at most the send buffer of a stream.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice};
use std::net::IpAddr;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream, SendStream};

/// The stream.
pub(super) struct Stream {
    state: RefCell<State>,
    /// The address of the client, or of the proxy in front of it.
    pub(super) peer: Option<IpAddr>,
}

struct State {
    send: SendStream<Bytes>,
    receive: RecvStream,
    /// Bytes that wait for their reader.
    input: Bytes,
    /// True if the client sends no more.
    is_ended: bool,
}

impl State {
    /// Ready when there is input, or the client sends no more.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let State { receive, input, is_ended, .. } = self;
        while input.is_empty() && !*is_ended {
            match ready!(receive.poll_data(cx)) {
                Some(Ok(bytes)) => *input = bytes,
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => *is_ended = true,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Stream {
    pub(super) fn new(send: SendStream<Bytes>, receive: RecvStream, peer: Option<IpAddr>) -> Stream {
        Stream { state: RefCell::new(State { send, receive, input: Bytes::new(), is_ended: false }), peer }
    }

    /// Reads bytes that have arrived, of which [`Stream::poll_read_ready`] has seen the first. 0: the client sends no more.
    ///
    /// A client sends each message as a frame of HTTP/2. All that have arrived are read at once, as from a socket, so that their deliveries
    /// gather.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let state = &mut *self.state.borrow_mut();
        let mut count = 0;
        while count < buffer.len() {
            if state.input.is_empty() {
                // Before it waits, the reader calls `poll_read_ready` again, which wakes it.
                match state.poll_input(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(Ok(())) if !state.input.is_empty() => {}
                    // The next read reports it.
                    _ if count > 0 => break,
                    Poll::Ready(Ok(())) => return Ok(0),
                    Poll::Ready(Err(error)) => return Err(error),
                    Poll::Pending => return Err(ErrorKind::WouldBlock.into()),
                }
            }
            let State { input, .. } = state;
            let part = input.len().min(buffer.len() - count);
            input.copy_to_slice(&mut buffer[count..count + part]);
            count += part;
        }
        // A stream that has ended needs no window.
        let _ended = state.receive.flow_control().release_capacity(count);
        Ok(count)
    }

    /// Writes as many bytes as there is room for.
    pub(super) fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let send = &mut self.state.borrow_mut().send;
        let wanted = slices.iter().map(|slice| slice.len()).sum();
        send.reserve_capacity(wanted);
        let room = send.capacity().min(wanted);
        if room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut bytes = Vec::with_capacity(room);
        for slice in slices {
            bytes.extend_from_slice(&slice[..slice.len().min(room - bytes.len())]);
        }
        send.send_data(bytes.into(), false).map_err(io::Error::other)?;
        Ok(room)
    }

    /// Ready when there is something to read.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state.borrow_mut().poll_input(cx)
    }

    /// Ready when there is room to write.
    pub(super) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let send = &mut self.state.borrow_mut().send;
        send.reserve_capacity(1);
        if send.capacity() > 0 {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(match ready!(send.poll_capacity(cx)) {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(io::Error::other(error)),
            None => Err(ErrorKind::BrokenPipe.into()),
        })
    }

    /// Writes no more. What was written arrives first.
    pub(super) fn close(&self) {
        // The client may have ended it first.
        let _ended = self.state.borrow_mut().send.send_data(Bytes::new(), true);
    }

    /// Ends the stream at once. What was written and has not left is dropped.
    pub(super) fn reset(&self) {
        self.state.borrow_mut().send.send_reset(Reason::CANCEL);
    }
}
