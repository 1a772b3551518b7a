//! The head of a frame from the peer (RFC 6455 §5.2), and its checks.

use crate::{CONTROL_BYTES_MAX, Opcode, ProtocolError, Role};

/// A frame's head, after all checks that need no payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) fin: bool,
    pub(crate) opcode: Opcode,
    /// True for the first frame of a compressed message (RFC 7692 §6).
    pub(crate) compressed: bool,
    /// All zero from a server, which does not mask.
    pub(crate) key: [u8; 4],
    pub(crate) payload_bytes: usize,
}

/// The rules that a head is checked against.
pub(crate) struct Rules {
    pub(crate) role: Role,
    /// True if both ends have agreed on compression.
    pub(crate) takes_compressed: bool,
    pub(crate) message_bytes_max: usize,
    /// The length of the open message that waits for its next fragment, if there is one.
    pub(crate) open_message_bytes: Option<usize>,
}

impl Header {
    /// Parses a head from the start of `bytes`, and returns it with its length; `None` if more bytes are needed.
    ///
    /// Each check depends only on the bytes up to the one it inspects, so a bad head fails in the same way however it
    /// was split, and as soon as the bad byte has arrived.
    pub(crate) fn parse(bytes: &[u8], rules: &Rules) -> Result<Option<(Header, usize)>, ProtocolError> {
        let Some(&first) = bytes.first() else {
            return Ok(None);
        };
        let (fin, compressed) = (first & FIN != 0, first & COMPRESSED != 0);
        let opcode = check_first(first, rules)?;
        let Some(&second) = bytes.get(1) else {
            return Ok(None);
        };
        let short = check_second(second, opcode, rules.role)?;
        let (payload_bytes, length_end) = match short {
            LENGTH_IN_TWO => {
                let Some(&[a, b]) = bytes.get(2..4).and_then(|b| b.as_array()) else {
                    return Ok(None);
                };
                (check_minimal(u64::from(u16::from_be_bytes([a, b])), 126)?, 4)
            }
            LENGTH_IN_EIGHT => {
                let Some(&long) = bytes.get(2..10).and_then(|b| b.as_array()) else {
                    return Ok(None);
                };
                let long = u64::from_be_bytes(long);
                if long >= 1 << 63 {
                    return Err(ProtocolError::LengthReserved);
                }
                (check_minimal(long, 65_536)?, 10)
            }
            short => (u64::from(short), 2),
        };
        let payload_bytes = check_size(payload_bytes, opcode, rules)?;
        if rules.role == Role::Client {
            return Ok(Some((Header { fin, opcode, compressed, key: [0; 4], payload_bytes }, length_end)));
        }
        let Some(&key) = bytes.get(length_end..length_end + 4).and_then(|b| b.as_array()) else {
            return Ok(None);
        };
        Ok(Some((Header { fin, opcode, compressed, key, payload_bytes }, length_end + 4)))
    }
}

fn check_first(first: u8, rules: &Rules) -> Result<Opcode, ProtocolError> {
    let opcode = Opcode::from_bits(first & OPCODE);
    let may_be_compressed = rules.takes_compressed && matches!(opcode, Some(Opcode::Text | Opcode::Binary));
    if first & RESERVED & !(if may_be_compressed { COMPRESSED } else { 0 }) != 0 {
        return Err(ProtocolError::ReservedBits);
    }
    let opcode = opcode.ok_or(ProtocolError::ReservedOpcode)?;
    match opcode {
        _ if opcode.is_control() => {
            if first & FIN == 0 {
                return Err(ProtocolError::FragmentedControl);
            }
        }
        Opcode::Continuation => {
            if rules.open_message_bytes.is_none() {
                return Err(ProtocolError::UnexpectedContinuation);
            }
        }
        _ => {
            if rules.open_message_bytes.is_some() {
                return Err(ProtocolError::ExpectedContinuation);
            }
        }
    }
    Ok(opcode)
}

fn check_second(second: u8, opcode: Opcode, role: Role) -> Result<u8, ProtocolError> {
    match (role, second & MASKED != 0) {
        (Role::Server, false) => return Err(ProtocolError::Unmasked),
        (Role::Client, true) => return Err(ProtocolError::Masked),
        _ => {}
    }
    let short = second & !MASKED;
    if opcode.is_control() && usize::from(short) > CONTROL_BYTES_MAX {
        return Err(ProtocolError::ControlTooLong);
    }
    Ok(short)
}

fn check_minimal(length: u64, at_least: u64) -> Result<u64, ProtocolError> {
    if length < at_least { Err(ProtocolError::LengthNotMinimal) } else { Ok(length) }
}

/// The limit applies to the message. Its next frame is refused from the head alone, before any of its bytes is
/// stored.
fn check_size(payload_bytes: u64, opcode: Opcode, rules: &Rules) -> Result<usize, ProtocolError> {
    let payload_bytes = usize::try_from(payload_bytes).map_err(|_| ProtocolError::MessageTooLong)?;
    if opcode.is_control() {
        return Ok(payload_bytes);
    }
    let left = rules.message_bytes_max - rules.open_message_bytes.unwrap_or(0).min(rules.message_bytes_max);
    if payload_bytes > left { Err(ProtocolError::MessageTooLong) } else { Ok(payload_bytes) }
}

/// The longest head: two bytes, a length of eight, a key of four.
pub(crate) const HEADER_BYTES_MAX: usize = 14;

pub(crate) const FIN: u8 = 0x80;
pub(crate) const MASKED: u8 = 0x80;
pub(crate) const LENGTH_IN_TWO: u8 = 126;
pub(crate) const LENGTH_IN_EIGHT: u8 = 127;
/// The reserved bit that permessage-deflate uses (RFC 7692 §6).
pub(crate) const COMPRESSED: u8 = 0x40;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
