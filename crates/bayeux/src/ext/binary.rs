//! Binary data, as CometD's extension `binary` sends it: Z85 (ZeroMQ RFC 32) in the `data`, and a member of the `ext`.

use crate::json::RawJson;

/// The `data` of a message with these bytes, as raw JSON: `{"data":"…","last":true}`. Its `ext` is [`BINARY_EXT`].
pub fn binary_data(bytes: &[u8]) -> String {
    // The alphabet needs no escapes.
    format!("{{\"data\":\"{}\",\"last\":true}}", encode(bytes))
}

/// The bytes in the `data` of a message with binary data; `None` if there are none.
pub fn binary_of(data: RawJson<'_>) -> Option<Vec<u8>> {
    decode(&data.member("data")?.text()?)
}

/// The `ext` of a message with binary data.
pub const BINARY_EXT: &str = r#"{"binary":{}}"#;

/// Each four bytes are five letters. Of the last group as many are left out as bytes are missing.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(4) * 5);
    for group in bytes.chunks(4) {
        let mut four = [0; 4];
        four[..group.len()].copy_from_slice(group);
        let mut value = u32::from_be_bytes(four);
        let mut five = [0; 5];
        for letter in five.iter_mut().rev() {
            *letter = ALPHABET[(value % 85) as usize];
            value /= 85;
        }
        text.extend(five[..=group.len()].iter().map(|letter| char::from(*letter)));
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len().div_ceil(5) * 4);
    for group in text.as_bytes().chunks(5) {
        let mut five = [ALPHABET[84]; 5];
        five[..group.len()].copy_from_slice(group);
        let digit = |letter: &u8| ALPHABET.iter().position(|known| known == letter);
        let value = five.iter().try_fold(0, |value: u64, letter| Some(value * 85 + digit(letter)? as u64))?;
        let four = u32::try_from(value).ok()?.to_be_bytes();
        bytes.extend_from_slice(&four[..group.len().checked_sub(1).filter(|count| *count > 0)?]);
    }
    Some(bytes)
}

const ALPHABET: &[u8; 85] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_is_written_as_there() {
        let bytes = [0x86, 0x4f, 0xd2, 0x6f, 0xb5, 0x59, 0xf7, 0x5b];
        assert_eq!(encode(&bytes), "HelloWorld");
        assert_eq!(binary_data(&bytes), r#"{"data":"HelloWorld","last":true}"#);
    }

    #[test]
    fn bytes_of_any_number_come_back() {
        for count in 0..20_u8 {
            for bytes in [vec![255; count.into()], (0..count).map(|byte| byte.wrapping_mul(37)).collect()] {
                let data = binary_data(&bytes);
                let data = RawJson::parse(&data).expect("JSON");
                assert_eq!(binary_of(data), Some(bytes));
            }
        }
    }

    #[test]
    fn other_texts_are_no_bytes() {
        for text in ["0", "00000a", "#####", "ab c", "\u{e9}\u{e9}"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
