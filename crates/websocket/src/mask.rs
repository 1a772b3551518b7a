//! Masking (RFC 6455 §5.3): byte i of the payload is xored with byte i mod 4 of the key.

/// Masks or unmasks `bytes`, which begin `offset` bytes into their frame's payload.
pub(crate) fn apply(bytes: &mut [u8], key: [u8; 4], offset: usize) {
    if key == [0; 4] {
        return;
    }
    // Little-endian, so that the key's next byte is always the lowest one.
    let turned = u32::from_le_bytes(key).rotate_right(8 * (offset % 4) as u32);
    // Eight bytes at a time; the compiler widens this further.
    let wide = u64::from(turned) << 32 | u64::from(turned);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_le_bytes(*word) ^ wide).to_le_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(wide.to_le_bytes()) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use super::apply;

    #[test]
    fn every_length_and_offset_equals_the_definition() {
        let key = [0x37, 0xfa, 0x21, 0x3d];
        for offset in 0..9 {
            for length in 0..70 {
                let plain: Vec<u8> = (0..length as u8).collect();
                let mut masked = plain.clone();
                apply(&mut masked, key, offset);
                let defined: Vec<u8> = plain.iter().enumerate().map(|(i, byte)| byte ^ key[(i + offset) % 4]).collect();
                assert_eq!(masked, defined, "offset {offset}, length {length}");
            }
        }
    }
}
