//! Frame encoding. All frames are whole messages: FIN set, never fragmented.

use crate::header::{COMPRESSED, FIN, LENGTH_IN_EIGHT, LENGTH_IN_TWO, MASKED};
use crate::{CONTROL_BYTES_MAX, Opcode, mask};

/// Appends the head of an unmasked frame, as servers send it. The payload must follow.
pub fn header(opcode: Opcode, payload_bytes: usize, out: &mut Vec<u8>) {
    write_header(FIN | opcode as u8, payload_bytes, 0, out);
}

/// Appends the head of an unmasked frame with a compressed message (RFC 7692 §6). The payload must follow.
pub fn compressed_header(opcode: Opcode, payload_bytes: usize, out: &mut Vec<u8>) {
    write_header(FIN | COMPRESSED | opcode as u8, payload_bytes, 0, out);
}

/// True if an encoded frame holds a compressed message.
pub fn is_compressed(frame: &[u8]) -> bool {
    frame.first().is_some_and(|first| first & COMPRESSED != 0)
}

/// The length of the head of an unmasked frame: 2, 4 or 10 bytes.
pub fn header_bytes(payload_bytes: usize) -> usize {
    match payload_bytes {
        0..126 => 2,
        126..65_536 => 4,
        _ => 10,
    }
}

/// Appends a whole unmasked frame, as servers send it.
pub fn message(opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
    out.reserve(header_bytes(payload.len()) + payload.len());
    header(opcode, payload.len(), out);
    out.extend_from_slice(payload);
}

/// Appends a whole masked frame, as clients send it. The key must be fresh and unpredictable (RFC 6455 §5.3).
pub fn masked(opcode: Opcode, payload: &[u8], key: [u8; 4], out: &mut Vec<u8>) {
    out.reserve(header_bytes(payload.len()) + key.len() + payload.len());
    write_header(FIN | opcode as u8, payload.len(), MASKED, out);
    out.extend_from_slice(&key);
    let from = out.len();
    out.extend_from_slice(payload);
    mask::apply(&mut out[from..], key, 0);
}

/// Appends an unmasked close frame. The reason is cut to 123 bytes at a character's boundary.
pub fn close(code: u16, reason: &str, out: &mut Vec<u8>) {
    let reason = fitting(reason);
    header(Opcode::Close, 2 + reason.len(), out);
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

/// Appends a masked close frame, as clients send it. The reason is cut to 123 bytes at a character's boundary.
pub fn masked_close(code: u16, reason: &str, key: [u8; 4], out: &mut Vec<u8>) {
    let reason = fitting(reason);
    let mut payload = [0; CONTROL_BYTES_MAX];
    payload[..2].copy_from_slice(&code.to_be_bytes());
    payload[2..2 + reason.len()].copy_from_slice(reason.as_bytes());
    masked(Opcode::Close, &payload[..2 + reason.len()], key, out);
}

/// Splits off the first of several whole unmasked frames: the lengths of its head and of its payload. `None` if
/// `frames` does not begin with a whole frame.
pub fn split(frames: &[u8]) -> Option<(usize, usize)> {
    let (head, payload_bytes) = match *frames.get(1)? {
        LENGTH_IN_TWO => (4, u64::from(u16::from_be_bytes(*frames.get(2..4)?.as_array()?))),
        LENGTH_IN_EIGHT => (10, u64::from_be_bytes(*frames.get(2..10)?.as_array()?)),
        masked if masked & MASKED != 0 => return None,
        short => (2, u64::from(short)),
    };
    let payload_bytes = usize::try_from(payload_bytes).ok()?;
    (frames.len() - head >= payload_bytes).then_some((head, payload_bytes))
}

fn write_header(first: u8, payload_bytes: usize, mask_bit: u8, out: &mut Vec<u8>) {
    match payload_bytes {
        0..126 => out.extend_from_slice(&[first, mask_bit | payload_bytes as u8]),
        126..65_536 => {
            let [a, b] = (payload_bytes as u16).to_be_bytes();
            out.extend_from_slice(&[first, mask_bit | LENGTH_IN_TWO, a, b]);
        }
        _ => {
            out.extend_from_slice(&[first, mask_bit | LENGTH_IN_EIGHT]);
            out.extend_from_slice(&(payload_bytes as u64).to_be_bytes());
        }
    }
}

/// The part of a close frame's reason that fits after the code.
fn fitting(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(CONTROL_BYTES_MAX - 2)]
}
