//! The lists of fields that requests and WebSockets over HTTP/2 need: the request, and the status of the response (RFC 7541).
//!
//! The client's settings forbid a table of fields that were sent before, so each list can be read without the others.

use crate::engine::target::Target;

/// Appends the request for a WebSocket (RFC 8441 §4), without compression.
pub(super) fn write_connect(target: &Target, out: &mut Vec<u8>) {
    write_named(METHOD, "CONNECT", out);
    out.push(INDEXED | if target.is_tls() { SCHEME_HTTPS } else { SCHEME_HTTP });
    write_named(PATH, &target.path, out);
    write_named(AUTHORITY, &target.authority, out);
    for (name, value) in [(":protocol", "websocket"), ("sec-websocket-version", "13")] {
        out.push(0);
        write_text(name, out);
        write_text(value, out);
    }
}

/// Appends a GET request.
pub(super) fn write_get(target: &Target, path: &str, out: &mut Vec<u8>) {
    out.push(INDEXED | METHOD_GET);
    out.push(INDEXED | if target.is_tls() { SCHEME_HTTPS } else { SCHEME_HTTP });
    write_named(PATH, path, out);
    write_named(AUTHORITY, &target.authority, out);
}

/// The status of a response, which is its first field (RFC 9113 §8.3.2).
///
/// # Errors
/// The list does not begin with a status. The text follows "the server".
pub(super) fn status(mut fields: &[u8]) -> Result<u16, String> {
    while let Some(first) = fields.first().filter(|first| **first & 0xE0 == TABLE_SIZE) {
        read_number(&mut fields, *first, 5).ok_or(NO_STATUS)?;
    }
    let first = *fields.first().ok_or(NO_STATUS)?;
    let prefix = match first {
        INDEXED.. => 7,
        0x40.. => 6,
        _ => 4,
    };
    let index = read_number(&mut fields, first, prefix).ok_or(NO_STATUS)?;
    let status = match index.checked_sub(STATUS) {
        Some(at) if at < STATUSES.len() && first >= INDEXED => Some(STATUSES[at]),
        Some(at) if at < STATUSES.len() => read_digits(&mut fields),
        _ => None,
    };
    status.ok_or_else(|| NO_STATUS.to_owned())
}

/// A field whose name is in the static table, and that no table gets (§6.2.2).
fn write_named(name: u8, value: &str, out: &mut Vec<u8>) {
    out.push(name);
    write_text(value, out);
}

/// A text without Huffman's code (§5.2).
fn write_text(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.len();
    if rest < LENGTH_MAX {
        out.push(rest as u8);
    } else {
        out.push(LENGTH_MAX as u8);
        rest -= LENGTH_MAX;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(text.as_bytes());
}

/// A number that begins in the low bits of `first` (§5.1). `fields` begin with `first`.
fn read_number(fields: &mut &[u8], first: u8, bits: u32) -> Option<usize> {
    fields.split_off_first()?;
    let max = (1 << bits) - 1;
    let mut number = usize::from(first) & max;
    if number < max {
        return Some(number);
    }
    for shift in (0..NUMBER_BITS_MAX).step_by(7) {
        let byte = *fields.split_off_first()?;
        number += usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// A text of three digits, in Huffman's code or without.
fn read_digits(fields: &mut &[u8]) -> Option<u16> {
    let first = *fields.first()?;
    let length = read_number(fields, first, 7)?;
    let text = fields.get(..length)?;
    if first & 0x80 == 0 {
        return std::str::from_utf8(text).ok().filter(|text| text.len() == 3)?.parse().ok();
    }
    let bits = text.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
    let mut left = u32::try_from(length).ok().filter(|length| *length <= 3)? * 8;
    let mut status = 0;
    for _ in 0..3 {
        // 0, 1 and 2 have five bits, the others six (RFC 7541, appendix B).
        let five = bits >> left.checked_sub(5)? & 0x1F;
        let (digit, taken) = match five {
            0..=2 => (five, 5),
            _ => ((bits >> left.checked_sub(6)? & 0x3F).checked_sub(0x16)?, 6),
        };
        left -= taken;
        status = status * 10 + Some(digit).filter(|digit| *digit < 10)? as u16;
    }
    Some(status)
}

/// A field of the static table, by its index (§6.1).
const INDEXED: u8 = 0x80;
/// A change of the table's size (§6.3), in the high three bits.
const TABLE_SIZE: u8 = 0x20;
const AUTHORITY: u8 = 1;
const METHOD: u8 = 2;
const METHOD_GET: u8 = 2;
const PATH: u8 = 4;
const SCHEME_HTTP: u8 = 6;
const SCHEME_HTTPS: u8 = 7;
/// The first field of the static table that is a status.
const STATUS: usize = 8;
/// The statuses of the static table.
const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
/// The length of a text that needs further bytes.
const LENGTH_MAX: usize = 0x7F;
/// The most bits of a number after its first byte.
const NUMBER_BITS_MAX: u32 = 28;
const NO_STATUS: &str = "sent a response that does not begin with its status";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_in_each_form() {
        for (fields, wanted) in [
            (&[0x88][..], 200),
            (&[0x20, 0x8D], 404),
            // A table of 4,096 bytes, then of none.
            (&[0x3F, 0xE1, 0x1F, 0x20, 0x8E], 500),
            (b"\x08\x03403", 403),
            (b"\x48\x03101", 101),
            // RFC 7541 §C.6.1: 302.
            (&[0x48, 0x82, 0x64, 0x02], 302),
            // 503 and 429.
            (&[0x08, 0x83, 0x6C, 0x0C, 0xFF], 503),
            (&[0x08, 0x83, 0x68, 0x4F, 0xFF], 429),
        ] {
            assert_eq!(status(fields), Ok(wanted), "{fields:x?}");
        }
        for fields in
            [&[][..], &[0x82], &[0x20], &[0x08], b"\x08\x0340", b"\x08\x05403", &[0x08, 0x81, 0xFF], &[0xFF; 9]]
        {
            assert!(status(fields).is_err(), "{fields:x?}");
        }
    }

    #[test]
    fn the_length_of_a_long_path_takes_several_bytes() {
        let length = |bytes: usize| {
            let mut out = Vec::new();
            write_text(&"x".repeat(bytes), &mut out);
            let mut fields = &out[..];
            let first = out[0];
            let read = read_number(&mut fields, first, 7);
            assert_eq!((read, fields.len()), (Some(bytes), bytes));
            out.len() - bytes
        };
        assert_eq!([0, 126, 127, 254, 255, 16_510, 16_511].map(length), [1, 1, 2, 2, 3, 3, 4]);
    }
}
