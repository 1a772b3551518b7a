//! TLS of one connection. Its socket is an argument of each call.
//!
//! Records are decrypted and encrypted in buffers that all connections of a thread share. A connection keeps only what it has to: a
//! record that has arrived in part, decrypted bytes that its reader had no room for, and encrypted bytes that the kernel did not take.
//!
//! A record cannot be taken back: the next one has the next number. So its bytes count as written when it is encrypted. One record
//! at most is encrypted before the kernel has taken all of the one before it, so at most [`RECORD_BYTES`] wait here as they would in the
//! kernel's send buffer.

use std::cell::RefCell;
use std::error::Error;
use std::io::{self, ErrorKind, IoSlice};
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use encke_core::SessionsMemory;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{HandshakeKind, ServerConfig};
use tokio::net::TcpStream;

/// TLS of one connection.
pub(super) struct Session(RefCell<State>);

struct State {
    tls: UnbufferedServerConnection,
    /// The beginning of a record, or of a message of a handshake.
    partial: Vec<u8>,
    /// Decrypted bytes that wait for their reader.
    plain: Bytes,
    unsent: Unsent,
    input: Input,
    /// True if nothing more is encrypted: `close_notify` or a fatal alert was the last.
    is_closed: bool,
}

/// Encrypted bytes that the kernel has not taken yet. They count in the memory of all sessions.
struct Unsent {
    bytes: Vec<u8>,
    memory: Arc<SessionsMemory>,
}

/// The state of what the client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// Nothing has arrived.
    Fresh,
    Open,
    /// The client sends no more.
    Ended,
    /// The client has broken the rules of TLS.
    Broken,
}

/// The wish to write.
enum Wish<'a> {
    Nothing,
    Encrypt(&'a [u8]),
    Close,
}

/// The buffers of a thread.
#[derive(Default)]
struct Buffers {
    /// Received records.
    incoming: Vec<u8>,
    /// Slices of a gathered write, copied together.
    flat: Vec<u8>,
    /// Encrypted records.
    outgoing: Outgoing,
}

/// A buffer that keeps its length, and how much of it is used.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    used: usize,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

impl Session {
    /// A connection before its handshake.
    pub(super) fn new(config: Arc<ServerConfig>, memory: Arc<SessionsMemory>) -> io::Result<Session> {
        Ok(Session(RefCell::new(State {
            tls: UnbufferedServerConnection::new(config).map_err(io::Error::other)?,
            partial: Vec::new(),
            plain: Bytes::new(),
            unsent: Unsent { bytes: Vec::new(), memory },
            input: Input::Fresh,
            is_closed: false,
        })))
    }

    /// True until the handshake is complete.
    pub(super) fn is_handshaking(&self) -> bool {
        self.0.borrow().tls.is_handshaking()
    }

    /// True if the handshake resumed an earlier session.
    pub(super) fn is_resumed(&self) -> bool {
        self.0.borrow().tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// True if the handshake has agreed on this protocol.
    pub(super) fn agreed_on(&self, protocol: &[u8]) -> bool {
        self.0.borrow().tls.alpn_protocol() == Some(protocol)
    }

    /// The certificate that the client has shown.
    pub(super) fn client_certificate(&self) -> Option<CertificateDer<'static>> {
        self.0.borrow().tls.peer_certificates()?.first().cloned()
    }

    /// True if a read has something to return without receiving.
    pub(super) fn has_input(&self) -> bool {
        let state = self.0.borrow();
        !state.plain.is_empty() || !matches!(state.input, Input::Fresh | Input::Open)
    }

    /// True if encrypted bytes wait for the kernel.
    pub(super) fn has_unsent(&self) -> bool {
        !self.0.borrow().unsent.bytes.is_empty()
    }

    /// Receives once, and keeps what it decrypts for the next read.
    pub(super) fn receive(&self, tcp: &TcpStream) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        BUFFERS.with_borrow_mut(|buffers| state.receive(&mut [], buffers, tcp)).map(|_| ())
    }

    /// Reads what has arrived. 0: the client sends no more.
    pub(super) fn read(&self, buffer: &mut [u8], tcp: &TcpStream) -> io::Result<usize> {
        let state = &mut *self.0.borrow_mut();
        loop {
            if !state.plain.is_empty() {
                let read = state.plain.split_to(state.plain.len().min(buffer.len()));
                buffer[..read.len()].copy_from_slice(&read);
                return Ok(read.len());
            }
            match state.input {
                Input::Ended => return Ok(0),
                Input::Broken => return Err(ErrorKind::InvalidData.into()),
                Input::Fresh | Input::Open => {}
            }
            let read = BUFFERS.with_borrow_mut(|buffers| state.receive(buffer, buffers, tcp))?;
            if read > 0 {
                return Ok(read);
            }
        }
    }

    /// Encrypts as much as the kernel takes, and one record at most beyond it. Returns the number of bytes that are encrypted.
    pub(super) fn write(&self, slices: &[IoSlice<'_>], tcp: &TcpStream) -> io::Result<usize> {
        let state = &mut *self.0.borrow_mut();
        if state.is_closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if !state.send_unsent(tcp)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        BUFFERS.with_borrow_mut(|Buffers { flat, outgoing, .. }| {
            let (mut slices, mut written) = (Slices { slices, taken: 0 }, 0);
            loop {
                let record = slices.next(flat);
                if record.is_empty() {
                    return Ok(written);
                }
                outgoing.used = 0;
                state.process(&mut [], Wish::Encrypt(record), outgoing, |_| {})?;
                written += record.len();
                if !state.send(outgoing.filled(), tcp)? {
                    return Ok(written);
                }
            }
        })
    }

    /// Sends what waits. True if nothing waits any more.
    pub(super) fn flush(&self, tcp: &TcpStream) -> io::Result<bool> {
        self.0.borrow_mut().send_unsent(tcp)
    }

    /// Tells the client that nothing more follows (RFC 8446 §6.1). True if nothing waits to be sent.
    pub(super) fn close(&self, tcp: &TcpStream) -> io::Result<bool> {
        let state = &mut *self.0.borrow_mut();
        if !mem::replace(&mut state.is_closed, true) {
            BUFFERS.with_borrow_mut(|Buffers { outgoing, .. }| {
                outgoing.used = 0;
                state.process(&mut [], Wish::Close, outgoing, |_| {})?;
                state.unsent.push(outgoing.filled());
                Ok::<_, io::Error>(())
            })?;
        }
        state.send_unsent(tcp)
    }
}

impl State {
    /// Receives once, and puts what it decrypts into `buffer`, and the rest of it into `plain`. Returns the bytes in `buffer`.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        Buffers { incoming, outgoing, .. }: &mut Buffers,
        tcp: &TcpStream,
    ) -> io::Result<usize> {
        incoming.resize(PARTIAL_BYTES_MAX + INCOMING_BYTES, 0);
        let before = self.partial.len();
        // At most one record does not fit into the reader's buffer.
        let free = &mut incoming[before..before + buffer.len().clamp(WIRE_BYTES_MAX, INCOMING_BYTES)];
        let count = super::read(tcp, free)?;
        if count == 0 {
            self.input = Input::Ended;
            return Ok(0);
        }
        if self.input == Input::Fresh {
            self.input = Input::Open;
            if free[0].is_ascii_uppercase() {
                (self.input, self.is_closed) = (Input::Broken, true);
                self.send(PLAIN_HTTP, tcp)?;
                return Err(ErrorKind::InvalidData.into());
            }
            if is_fallback(&free[..count]) {
                (self.input, self.is_closed) = (Input::Broken, true);
                self.send(INAPPROPRIATE_FALLBACK, tcp)?;
                return Err(ErrorKind::InvalidData.into());
            }
        }
        incoming[..before].copy_from_slice(&self.partial);
        let (mut filled, mut rest) = (0, Vec::new());
        outgoing.used = 0;
        let received = &mut incoming[..before + count];
        let processed = self.process(received, Wish::Nothing, outgoing, |plain| {
            let fits = plain.len().min(buffer.len() - filled);
            buffer[filled..filled + fits].copy_from_slice(&plain[..fits]);
            filled += fits;
            rest.extend_from_slice(&plain[fits..]);
        });
        // After an error an alert is sent.
        self.unsent.push(outgoing.filled());
        let sent = self.send_unsent(tcp);
        let used = processed?;
        sent?;
        self.partial = incoming[used..before + count].to_vec();
        if self.partial.len() > PARTIAL_BYTES_MAX {
            (self.input, self.is_closed) = (Input::Broken, true);
        }
        self.plain = rest.into();
        Ok(filled)
    }

    /// Decrypts what was received, answers it, and encrypts what is wished. Returns the number of received bytes that are of no more use.
    fn process(
        &mut self,
        received: &mut [u8],
        mut wish: Wish<'_>,
        outgoing: &mut Outgoing,
        mut plain: impl FnMut(&[u8]),
    ) -> io::Result<usize> {
        // A wish alone finds the same input as before, without a record that is whole.
        let mut partial = if received.is_empty() { self.partial.clone() } else { Vec::new() };
        let input = if received.is_empty() { &mut partial[..] } else { received };
        let mut used = 0;
        loop {
            let UnbufferedStatus { mut discard, state } = self.tls.process_tls_records(&mut input[used..]);
            let mut is_done = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        discard += record.discard;
                        plain(record.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => outgoing.put(|room| data.encode(room))?,
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => {
                    self.input = Input::Ended;
                    discard = input.len() - used;
                }
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    match mem::replace(&mut wish, Wish::Nothing) {
                        Wish::Nothing => {}
                        Wish::Encrypt(bytes) => outgoing.put(|room| traffic.encrypt(bytes, room))?,
                        Wish::Close => outgoing.put(|room| traffic.queue_close_notify(room))?,
                    }
                    is_done = true;
                }
                // Early data is never accepted; other states have nothing more to do.
                Ok(_) => is_done = true,
                Err(error) => {
                    (self.input, self.is_closed) = (Input::Broken, true);
                    // The alert; what was received is not looked at again.
                    while self.tls.wants_write()
                        && let Ok(ConnectionState::EncodeTlsData(mut data)) =
                            self.tls.process_tls_records(&mut []).state
                    {
                        outgoing.put(|room| data.encode(room))?;
                    }
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            }
            used += discard;
            if is_done {
                return match wish {
                    Wish::Encrypt(_) => Err(ErrorKind::NotConnected.into()),
                    Wish::Nothing | Wish::Close => Ok(used),
                };
            }
        }
    }

    /// Sends encrypted bytes, and keeps those that the kernel does not take. True if it takes all.
    fn send(&mut self, bytes: &[u8], tcp: &TcpStream) -> io::Result<bool> {
        let mut sent = 0;
        while sent < bytes.len() {
            match tcp.try_write(&bytes[sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.unsent.push(&bytes[sent..]);
        Ok(sent == bytes.len())
    }

    fn send_unsent(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        let unsent = self.unsent.take();
        self.send(&unsent, tcp)
    }
}

impl Unsent {
    fn push(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.memory.unsent_changed(0, bytes.len());
            self.bytes.extend_from_slice(bytes);
        }
    }

    fn take(&mut self) -> Vec<u8> {
        if !self.bytes.is_empty() {
            self.memory.unsent_changed(self.bytes.len(), 0);
        }
        mem::take(&mut self.bytes)
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.take();
    }
}

impl Outgoing {
    fn filled(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// Lets a function fill the rest of the buffer, with one record at most.
    fn put<E: Error + Send + Sync + 'static>(
        &mut self,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> io::Result<()> {
        self.bytes.resize(self.bytes.len().max(self.used + WIRE_BYTES_MAX), 0);
        self.used += fill(&mut self.bytes[self.used..]).map_err(io::Error::other)?;
        Ok(())
    }
}

/// True if a ClientHello marks a fallback to a version below TLS 1.3: somebody may have broken an attempt with 1.3 (RFC 7507 §3), which
/// this server speaks. rustls does not look at the mark.
fn is_fallback(hello: &[u8]) -> bool {
    let suites = || {
        // The types of the record and of the message; before the session's id are their lengths, a version and a random number.
        let after_random = hello.get(43..).filter(|_| hello[0] == 22 && hello[5] == 1)?;
        let (id_bytes, rest) = after_random.split_first()?;
        let (length, rest) = rest.get(usize::from(*id_bytes)..)?.split_first_chunk()?;
        rest.get(..usize::from(u16::from_be_bytes(*length)))
    };
    let suites = suites().unwrap_or_default().chunks_exact(2);
    suites.clone().any(|suite| suite == FALLBACK_SCSV) && !suites.into_iter().any(|suite| suite[0] == TLS13_SUITES)
}

/// The slices of a gathered write, cut into records.
struct Slices<'a> {
    slices: &'a [IoSlice<'a>],
    /// The bytes taken of the first slice.
    taken: usize,
}

impl<'a> Slices<'a> {
    /// The bytes of the next record; none at the end. Those of several slices are copied together.
    fn next<'b>(&mut self, flat: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        flat.clear();
        while let Some((first, others)) = self.slices.split_first() {
            let rest = &first[self.taken..];
            let count = rest.len().min(RECORD_BYTES - flat.len());
            let is_last = count == rest.len();
            (self.slices, self.taken) = if is_last { (others, 0) } else { (self.slices, self.taken + count) };
            if flat.is_empty() && (count == RECORD_BYTES || is_last && others.is_empty()) {
                return &rest[..count];
            }
            flat.extend_from_slice(&rest[..count]);
            if flat.len() == RECORD_BYTES {
                break;
            }
        }
        flat
    }
}

/// The greatest number of bytes in one record (RFC 8446 §5.1).
const RECORD_BYTES: usize = 16 * 1024;
/// The greatest length of a record of TLS 1.2 with its header (RFC 5246 §6.2.3); those of TLS 1.3 are shorter.
const WIRE_BYTES_MAX: usize = RECORD_BYTES + 2048 + 5;
/// The most bytes that one read receives.
const INCOMING_BYTES: usize = 64 * 1024;
/// The longest beginning of a record, or of a message of a handshake that has several records. Only chains of client certificates
/// come near.
const PARTIAL_BYTES_MAX: usize = 32 * 1024;
/// The response to plain HTTP where TLS is spoken.
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 45\r\nconnection: close\r\n\r\n\
    this port speaks TLS: use https:// or wss://\n";
/// The cipher suite that marks a fallback (RFC 7507 §2).
const FALLBACK_SCSV: [u8; 2] = [0x56, 0x00];
/// The first byte of the cipher suites of TLS 1.3 (RFC 8446 §B.4).
const TLS13_SUITES: u8 = 0x13;
/// The alert for it, `inappropriate_fallback`, as a whole record.
const INAPPROPRIATE_FALLBACK: &[u8] = &[21, 3, 3, 0, 2, 2, 86];
