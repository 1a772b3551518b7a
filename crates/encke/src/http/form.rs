//! Forms and queries: `name=value&name=value`, percent-encoded (URL standard §5.1). Decoding is strict about UTF-8:
//! nothing a client sent is replaced.

/// The fields in order; None for one that is not UTF-8.
pub(crate) fn fields(form: &[u8]) -> impl Iterator<Item = Option<(String, String)>> {
    form.split(|byte| *byte == b'&').filter(|field| !field.is_empty()).map(|field| {
        let end = field.iter().position(|byte| *byte == b'=').unwrap_or(field.len());
        Some((decode(&field[..end])?, decode(field.get(end + 1..).unwrap_or_default())?))
    })
}

/// A path, where `+` is itself. None if it is not UTF-8.
pub(crate) fn path(encoded: &[u8]) -> Option<String> {
    decode_with(encoded, b'+')
}

/// `+` is a space, `%41` is a byte; a percent sign before anything else is itself.
fn decode(encoded: &[u8]) -> Option<String> {
    decode_with(encoded, b' ')
}

fn decode_with(encoded: &[u8], plus: u8) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    while let Some((byte, after)) = rest.split_first() {
        let escaped = match (byte, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)),
            _ => None,
        };
        rest = if escaped.is_some() { &after[2..] } else { after };
        bytes.push(match escaped {
            Some((high, low)) => high * 16 + low,
            None if *byte == b'+' => plus,
            None => *byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(form: &str) -> Option<Vec<(String, String)>> {
        fields(form.as_bytes()).collect()
    }

    #[test]
    fn fields_are_decoded_once() {
        let pairs = |pairs: &[(&str, &str)]| Some(pairs.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect());
        assert_eq!(all(""), pairs(&[]));
        assert_eq!(all("a=1&&b&=c&a=2=3"), pairs(&[("a", "1"), ("b", ""), ("", "c"), ("a", "2=3")]));
        assert_eq!(all("%61=x+y%2By%252B"), pairs(&[("a", "x y+y%2B")]));
        assert_eq!(all("a=%e2%82%AC"), pairs(&[("a", "\u{20ac}")]));
        assert_eq!(all("a=%&b=%4&c=%zz%4"), pairs(&[("a", "%"), ("b", "%4"), ("c", "%zz%4")]));
    }

    #[test]
    fn a_value_that_is_not_utf_8_is_ignored() {
        for form in ["a=%ff", "%c3=1", "a=%ed%a0%80", "a=1&b=%f0%9f%98"] {
            assert_eq!(all(form), None, "{form}");
        }
    }
}
