//! The WebSocket protocol (RFC 6455) as a codec without I/O, for both roles.
//!
//! - [`Decoder`] takes bytes as they were read from a socket and calls back with whole messages. It unmasks in place and
//!   passes on a whole frame without a copy, so a read full of small messages costs neither a copy nor an allocation. It
//!   owns heap only while a frame or a message is incomplete.
//! - [`frame`] writes frames. A server's frames carry no mask, so one encoded frame may be sent to any number of peers.
//! - [`handshake`] checks and answers the opening handshake, given the parsed HTTP head.
//! - [`deflate`] compresses and decompresses messages (RFC 7692): the decoder does so where both ends have agreed on it.
//!
//! The decoder is strict: every violation for which RFC 6455 lets an endpoint fail the connection fails it, as early
//! as the bytes allow. It holds at most the message limit plus a small constant ([`Decoder::new`]), whatever the peer
//! sends.
//!
//! Closing handshakes, answers to pings and time-outs are not part of this crate: they belong to the caller, which
//! owns the socket. [`ProtocolError::close_code`] returns the code for the close frame.

mod decoder;
pub mod deflate;
mod error;
mod extension;
pub mod frame;
pub mod handshake;
mod header;
mod mask;
mod utf8;

pub use decoder::Decoder;
pub use error::ProtocolError;
pub use extension::Compression;

/// The endpoint's role in the connection.
///
/// It decides the peer's obligation: a server demands masked frames, a client refuses them (RFC 6455 §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The endpoint accepted the connection; the peer's frames are masked, its own are not.
    Server,
    /// The endpoint opened the connection; its own frames are masked, the peer's are not.
    Client,
}

/// The kind of a frame (RFC 6455 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// A further fragment of the open message.
    Continuation = 0,
    /// A message of UTF-8 text, or its first fragment.
    Text = 1,
    /// A message of bytes, or its first fragment.
    Binary = 2,
    /// The last frame a peer sends.
    Close = 8,
    /// A request for a pong with the same payload.
    Ping = 9,
    /// The answer to a ping, or an unsolicited sign of life.
    Pong = 10,
}

/// A decoded event, borrowed from the input or from the decoder while the callback runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole text message.
    Text(&'a str),
    /// A whole binary message.
    Binary(&'a [u8]),
    /// A ping and its payload, at most 125 bytes. The caller answers with a pong.
    Ping(&'a [u8]),
    /// A pong and its payload, at most 125 bytes.
    Pong(&'a [u8]),
    /// The peer closes, with a valid code and a reason of at most 123 bytes, or without either. The decoder ignores
    /// all further input (RFC 6455 §5.5.1).
    Close(Option<(u16, &'a str)>),
}

/// The caller's choice after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Continue with the input.
    Continue,
    /// Stop right after the frame that completed this event, and leave the rest of the input untouched.
    Stop,
}

impl Opcode {
    /// True for a close, ping or pong: never fragmented, at most 125 bytes (RFC 6455 §5.5).
    pub fn is_control(self) -> bool {
        self as u8 >= Opcode::Close as u8
    }

    /// The opcode of a frame's low four bits; none for the reserved ones (3–7, 11–15).
    pub(crate) fn from_bits(bits: u8) -> Option<Opcode> {
        Some(match bits {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return None,
        })
    }
}

/// The largest payload of a close, ping or pong in bytes (RFC 6455 §5.5).
pub const CONTROL_BYTES_MAX: usize = 125;

/// Compiles the program of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
