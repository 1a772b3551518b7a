//! The 50 bytes that are published: a mark, a sequence number, the planned time, filler.
//!
//! `~SSSSSSSSTTTTTTTTTTTT.....` Numbers are written four bits a character, `@` to `O`, so that eight characters are
//! read with a handful of instructions and no character needs an escape in JSON.

/// Length of the published data.
pub const DATA_BYTES: usize = 50;
/// First byte of the data.
pub const MARK: u8 = b'~';

/// Appends the data of publication `sequence`, planned for `planned_us` microseconds after the load's start.
pub fn write(sequence: u32, planned_us: u64, out: &mut Vec<u8>) {
    out.push(MARK);
    write_nibbles(u64::from(sequence), SEQUENCE_NIBBLES, out);
    write_nibbles(planned_us, PLANNED_NIBBLES, out);
    out.resize(out.len() + DATA_BYTES - 1 - SEQUENCE_NIBBLES - PLANNED_NIBBLES, b'.');
}

/// The sequence number in `data`, or `None` if these are not bytes written by [`write()`].
#[inline]
pub fn sequence(data: &[u8]) -> Option<u32> {
    let (&mark, rest) = data.split_first()?;
    let digits = u64::from_be_bytes(*rest.first_chunk::<8>()?);
    if mark != MARK || digits & 0xF0F0_F0F0_F0F0_F0F0 != 0x4040_4040_4040_4040 {
        return None;
    }
    Some(pack(digits))
}

/// The planned time in `data`, in microseconds after the load's start; 0 where there is none.
pub fn planned_us(data: &[u8]) -> u64 {
    let start = 1 + SEQUENCE_NIBBLES;
    let digits = data.get(start..start + PLANNED_NIBBLES).unwrap_or_default();
    digits.iter().fold(0, |value, digit| value << 4 | u64::from(digit & 0x0F))
}

fn write_nibbles(value: u64, nibbles: usize, out: &mut Vec<u8>) {
    for place in (0..nibbles).rev() {
        out.push(0x40 | (value >> (4 * place) & 0x0F) as u8);
    }
}

/// Squeezes the low four bits of eight bytes into 32 bits, the first byte highest.
#[inline]
fn pack(digits: u64) -> u32 {
    let digits = digits & 0x0F0F_0F0F_0F0F_0F0F;
    let digits = (digits | digits >> 4) & 0x00FF_00FF_00FF_00FF;
    let digits = (digits | digits >> 8) & 0x0000_FFFF_0000_FFFF;
    (digits | digits >> 16) as u32
}

const SEQUENCE_NIBBLES: usize = 8;
/// 48 bits of microseconds: nine years.
const PLANNED_NIBBLES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for (number, time) in [(0, 0), (1, 15), (0xDEAD_BEEF, 0x0000_1234_5678_9ABC), (u32::MAX, (1 << 48) - 1)] {
            let mut data = Vec::new();
            write(number, time, &mut data);
            assert_eq!(data.len(), DATA_BYTES);
            assert_eq!(sequence(&data), Some(number));
            assert_eq!(planned_us(&data), time);
        }
    }

    #[test]
    fn foreign_bytes_have_no_sequence() {
        assert_eq!(sequence(b""), None);
        assert_eq!(sequence(b"~@@@"), None);
        assert_eq!(sequence(b"hello, world, hello, world"), None);
        assert_eq!(sequence(b"~@@@@@@@a....."), None);
    }

    #[test]
    fn data_needs_no_escape_in_json() {
        let mut data = Vec::new();
        write(0x0123_4567, 0x89AB_CDEF, &mut data);
        assert!(data.iter().all(|byte| byte.is_ascii_graphic() && !b"\"\\<>&'/".contains(byte)));
    }
}
