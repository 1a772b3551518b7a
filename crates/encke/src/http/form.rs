//! Forms and queries: `name=value&name=value`, percent-encoded (URL standard §5.1). Decoding is strict about UTF-8:
//! nothing a client sent is replaced.

use percent_encoding::percent_decode;

/// The fields in order; None for one that is not UTF-8.
pub(crate) fn fields(form: &[u8]) -> impl Iterator<Item = Option<(String, String)>> {
    form.split(|byte| *byte == b'&').filter(|field| !field.is_empty()).map(|field| {
        let field: Vec<u8> = field.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        let (name, value) = field.split_at(field.iter().position(|byte| *byte == b'=').unwrap_or(field.len()));
        Some((decode(name)?, decode(value.get(1..).unwrap_or_default())?))
    })
}

/// A path, or a part of a query without `+`. None if it is not UTF-8.
pub(crate) fn decode(encoded: &[u8]) -> Option<String> {
    percent_decode(encoded).decode_utf8().ok().map(String::from)
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
