//! Violations of the protocol by a peer.

/// A violation by the peer. The caller must fail the connection: send a close frame with
/// [`close_code`](Self::close_code), then close (RFC 6455 §7.1.7). In every variant the peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.reason())]
#[non_exhaustive]
pub enum ProtocolError {
    /// A reserved bit is set without a negotiated extension (§5.2).
    ReservedBits,
    /// A reserved opcode (§5.2).
    ReservedOpcode,
    /// A close, ping or pong without the FIN bit (§5.5).
    FragmentedControl,
    /// A close, ping or pong of more than 125 bytes (§5.5).
    ControlTooLong,
    /// A continuation without an open message (§5.4).
    UnexpectedContinuation,
    /// A new message before the end of the last one (§5.4).
    ExpectedContinuation,
    /// A client's frame without a mask (§5.1).
    Unmasked,
    /// A server's frame with a mask (§5.1).
    Masked,
    /// A length in more bytes than it needs (§5.2).
    LengthNotMinimal,
    /// A length of 2^63 or more (§5.2).
    LengthReserved,
    /// A close frame of one byte (§5.5.1).
    CloseTooShort,
    /// A close code that may not be sent (§7.4).
    CloseCode,
    /// Text, or the reason of a close, that is not UTF-8 (§8.1).
    InvalidUtf8,
    /// A message of more bytes than the decoder accepts, compressed or not (§10.4).
    MessageTooLong,
    /// A compressed message that is no deflate data, or ends within it (RFC 7692 §7.2.2).
    InvalidDeflate,
}

impl ProtocolError {
    /// The code for the endpoint's close frame: 1002 (protocol error), 1007 (invalid data) or 1009 (message too big)
    /// (RFC 6455 §7.4.1).
    pub fn close_code(&self) -> u16 {
        match self {
            ProtocolError::InvalidUtf8 | ProtocolError::InvalidDeflate => 1007,
            ProtocolError::MessageTooLong => 1009,
            _ => 1002,
        }
    }

    /// A short reason for the endpoint's close frame and for logs.
    pub fn reason(&self) -> &'static str {
        match self {
            ProtocolError::ReservedBits => "reserved bit set",
            ProtocolError::ReservedOpcode => "reserved opcode",
            ProtocolError::FragmentedControl => "fragmented control frame",
            ProtocolError::ControlTooLong => "control frame too long",
            ProtocolError::UnexpectedContinuation => "continuation without a message",
            ProtocolError::ExpectedContinuation => "new message inside a message",
            ProtocolError::Unmasked => "frame without a mask",
            ProtocolError::Masked => "frame with a mask",
            ProtocolError::LengthNotMinimal => "length not minimal",
            ProtocolError::LengthReserved => "length out of range",
            ProtocolError::CloseTooShort => "close frame too short",
            ProtocolError::CloseCode => "invalid close code",
            ProtocolError::InvalidUtf8 => "invalid UTF-8",
            ProtocolError::MessageTooLong => "message too big",
            ProtocolError::InvalidDeflate => "invalid compressed data",
        }
    }
}
