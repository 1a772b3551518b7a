//! Decompression: any payload becomes a message within the limit or an error, and the same again with the same inflater; what
//! was compressed in blocks comes out again.
//!
//! Input: one byte for the limit, one that seeds the cuts, then the payload.

#![no_main]

use libfuzzer_sys::fuzz_target;
use websocket::deflate::{self, Deflater, Inflater};

fuzz_target!(|input: &[u8]| {
    let [limit, seed, payload @ ..] = input else { return };
    let bytes_max = usize::from(*limit) * 64;
    let mut inflater = Inflater::default();
    let first = inflater.inflate(payload, bytes_max).map(<[u8]>::to_vec);
    if let Ok(text) = &first {
        assert!(text.len() <= bytes_max);
    }
    let again = inflater.inflate(payload, bytes_max).map(<[u8]>::to_vec);
    assert_eq!(first, again);

    let (mut deflater, mut packed) = (Deflater::default(), Vec::new());
    for (nth, part) in payload.chunks(usize::from(*seed) + 1).enumerate() {
        match nth % 2 {
            0 => deflater.block(part, &mut packed),
            _ => deflate::stored(part, &mut packed),
        }
    }
    packed.push(deflate::END);
    assert_eq!(inflater.inflate(&packed, payload.len()), Ok(payload));
});
