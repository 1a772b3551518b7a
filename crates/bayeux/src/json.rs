//! A validating JSON scanner that builds no tree.
//!
//! The server needs a few fields of a message and forwards the others. So the text is checked against RFC 8259 once, and
//! fields are returned as slices of the text. `12345678901234567890`, `1e400`, `-0` and `"\ud800"`, which parsers into
//! trees change, stay exact to the last byte.
//!
//! All functions take time linear in the text and stack space that does not depend on it.

mod raw;
mod scanner;
mod write;

use std::borrow::Cow;
use std::str::Chars;

pub use raw::RawJson;
pub use scanner::DEPTH_CAP;
pub(crate) use scanner::Scanner;
pub use write::escape_into;
pub(crate) use write::{ByteCount, Sink, escape, raw_field, text_field};

/// The reasons to refuse a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The text is not JSON (RFC 8259).
    #[error("not JSON")]
    Invalid,
    /// Arrays and objects are nested deeper than allowed.
    #[error("JSON nested too deep")]
    TooDeep,
}

/// Checks that `text` is one JSON value, with nothing but space around it, and returns that value without the space.
///
/// `depth_max` bounds the levels of arrays and objects; values above 128 act as 128.
pub fn validate(text: &str, depth_max: usize) -> Result<&str, JsonError> {
    let mut scanner = Scanner::new(text);
    scanner.space();
    let value = scanner.value(depth_max)?;
    scanner.space();
    if scanner.peek().is_some() {
        return Err(JsonError::Invalid);
    }
    Ok(value)
}

/// The raw value of the member `key` of a raw JSON object. If the key occurs twice, the last one counts, as in clients'
/// parsers. `None` if there is no such member or `raw_object` is not an object.
pub fn member<'a>(raw_object: &'a str, key: &str) -> Option<&'a str> {
    let mut found = None;
    for (name, value) in members(raw_object) {
        if name.is(key) {
            found = Some(value);
        }
    }
    found
}

/// The members of a raw JSON object in their order. Ends early if the text is invalid.
pub fn members(raw_object: &str) -> Members<'_> {
    Members(Inside::new(raw_object, b'{'))
}

/// The raw elements of a raw JSON array in their order. Ends early if the text is invalid.
pub fn elements(raw_array: &str) -> Elements<'_> {
    Elements(Inside::new(raw_array, b'['))
}

/// The text of a raw JSON string from [`members`] or a [`Message`](crate::Message). `None` if it is JSON of another type,
/// or contains half a surrogate pair, which a Rust text cannot contain.
#[inline]
pub fn decode_string(raw: &str) -> Option<Cow<'_, str>> {
    let quoted = raw.len() >= 2 && raw.starts_with('"') && raw.ends_with('"');
    if quoted { RawString(raw).decode() } else { None }
}

/// The whole part of a raw JSON number, clamped to `i64`. `None` if it is not a number.
pub fn integer(raw: &str) -> Option<i64> {
    let mut scanner = Scanner::new(raw);
    scanner.number().ok()?;
    if scanner.peek().is_some() {
        return None;
    }
    match raw.parse::<i64>() {
        Ok(integer) => Some(integer),
        // A fraction, an exponent, or too large: `as` cuts the fraction off and clamps the rest.
        Err(_) => raw.parse::<f64>().ok().map(|float| float as i64),
    }
}

/// A valid JSON string as in the text, with its quotes.
#[derive(Debug, Clone, Copy)]
pub struct RawString<'a>(&'a str);

impl<'a> RawString<'a> {
    /// The string with its quotes, byte for byte.
    #[inline]
    pub fn raw(self) -> &'a str {
        self.0
    }

    /// The text between the quotes, byte for byte.
    #[inline]
    pub(crate) fn inner(self) -> &'a str {
        &self.0[1..self.0.len() - 1]
    }

    /// The decoded text; `None` if it contains half a surrogate pair.
    #[inline]
    pub fn decode(self) -> Option<Cow<'a, str>> {
        if self.has_escapes() { self.unescape().map(Cow::Owned) } else { Some(Cow::Borrowed(self.inner())) }
    }

    /// True if its decoded text is `text`.
    pub fn is(self, text: &str) -> bool {
        if self.has_escapes() { Utf16Units::new(self.inner()).eq(text.encode_utf16()) } else { self.inner() == text }
    }

    #[inline]
    pub(crate) fn has_escapes(self) -> bool {
        memchr::memchr(b'\\', self.0.as_bytes()).is_some()
    }

    #[cold]
    fn unescape(self) -> Option<String> {
        char::decode_utf16(Utf16Units::new(self.inner())).collect::<Result<String, _>>().ok()
    }
}

/// True if two raw JSON strings decode to the same text, as `"a"` and `"\u0061"` do.
///
/// It stops at the first difference, so it never costs more than the shorter of the two. It compares bytes up to the first
/// escape, because an attacker may send long keys with the same beginning.
pub(crate) fn same_string(one: &str, other: &str) -> bool {
    let (one, other) = (RawString(one).inner(), RawString(other).inner());
    let pairs = one.bytes().zip(other.bytes());
    let alike = pairs.take_while(|(one, other)| one == other && *one != b'\\').count();
    let (one_rest, other_rest) = (&one.as_bytes()[alike..], &other.as_bytes()[alike..]);
    match (one_rest.first(), other_rest.first()) {
        (None, None) => true,
        (Some(b'\\'), _) | (_, Some(b'\\')) => Utf16Units::new(&one[alike..]).eq(Utf16Units::new(&other[alike..])),
        _ => false,
    }
}

/// The members of an object; see [`members`].
#[derive(Debug, Clone)]
pub struct Members<'a>(Inside<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = (RawString<'a>, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.advance(b'}', |scanner| {
            let key = scanner.key()?;
            Ok((key, scanner.value(DEPTH_CAP)?))
        })
    }
}

/// The elements of an array; see [`elements`].
#[derive(Debug, Clone)]
pub struct Elements<'a>(Inside<'a>);

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.advance(b']', |scanner| scanner.value(DEPTH_CAP))
    }
}

/// An iteration over the items of one array or object.
#[derive(Debug, Clone)]
struct Inside<'a> {
    scanner: Scanner<'a>,
    state: Walk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    First,
    Later,
    Ended,
}

impl<'a> Inside<'a> {
    fn new(raw: &'a str, open: u8) -> Self {
        let mut scanner = Scanner::new(raw);
        scanner.space();
        let state = if scanner.take(open) { Walk::First } else { Walk::Ended };
        Inside { scanner, state }
    }

    fn advance<T>(&mut self, close: u8, item: impl FnOnce(&mut Scanner<'a>) -> Result<T, JsonError>) -> Option<T> {
        if self.state == Walk::Ended {
            return None;
        }
        self.scanner.space();
        let ended = self.scanner.take(close) || (self.state == Walk::Later && !self.scanner.take(b','));
        self.state = if ended { Walk::Ended } else { Walk::Later };
        if ended {
            return None;
        }
        self.scanner.space();
        let found = item(&mut self.scanner).ok();
        if found.is_none() {
            self.state = Walk::Ended;
        }
        found
    }
}

/// The decoded content of a valid raw JSON string in UTF-16: the only form that can express halves of surrogate pairs.
/// JavaScript compares in this form, too.
#[derive(Debug, Clone)]
struct Utf16Units<'a> {
    chars: Chars<'a>,
    second_half: Option<u16>,
}

impl<'a> Utf16Units<'a> {
    fn new(inner: &'a str) -> Self {
        Utf16Units { chars: inner.chars(), second_half: None }
    }
}

impl Iterator for Utf16Units<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        if let Some(second) = self.second_half.take() {
            return Some(second);
        }
        let plain = match self.chars.next()? {
            '\\' => match self.chars.next()? {
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => {
                    let digits = self.chars.by_ref().take(4);
                    return Some(digits.fold(0, |unit, digit| unit << 4 | digit.to_digit(16).unwrap_or(0) as u16));
                }
                itself => itself,
            },
            plain => plain,
        };
        let mut pair = [0; 2];
        let units = plain.encode_utf16(&mut pair);
        self.second_half = units.get(1).copied();
        units.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_rfc_8259_allows_are_accepted_unchanged() {
        for text in [
            "0",
            "-0",
            "1e400",
            "1E+2",
            "-1.5e-3",
            "12345678901234567890",
            "true",
            "false",
            "null",
            "\"\"",
            "[]",
            "{}",
            "[[],{}]",
            r#""\ud800""#,
            r#""\"\\\/\b\f\n\r\t\u00e9""#,
            "\"\u{7f}\u{2028}é😀\"",
            r#"{"a":[1,{"b":null}],"c":""}"#,
            "[ 1 ,\t2\r\n]",
            r#"{ "a" : 1 , "b" : 2 }"#,
        ] {
            assert_eq!(validate(text, 8), Ok(text));
            assert_eq!(validate(&format!(" \t\r\n{text}\n "), 8), Ok(text));
        }
    }

    #[test]
    fn what_rfc_8259_forbids_is_refused() {
        for text in [
            "",
            " ",
            "01",
            "-",
            "+1",
            "1.",
            ".5",
            "1e",
            "1e+",
            "0x1",
            "NaN",
            "Infinity",
            "tru",
            "nulls",
            "\"",
            "\"\\\"",
            r#""\x""#,
            r#""\u12""#,
            r#""\u12g4""#,
            "\"\n\"",
            "\"\0\"",
            "\"12345678\u{1f}\"",
            "[",
            "]",
            "{",
            "[1,]",
            "[,]",
            "[1 2]",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            "{,}",
            "{1:2}",
            r#"{"a":1 "b":2}"#,
            "[1}",
            r#"{"a":1]"#,
            "1 1",
            "[]]",
            "\u{feff}[]",
            "\u{a0}1",
            "'a'",
            "// 1",
            "{a:1}",
        ] {
            assert_eq!(validate(text, 8), Err(JsonError::Invalid), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(validate(&nested(8), 8).is_ok());
        assert_eq!(validate(&nested(9), 8), Err(JsonError::TooDeep));
        assert_eq!(validate("1", 0), Ok("1"));
        assert_eq!(validate("[]", 0), Err(JsonError::TooDeep));
        assert!(validate(&nested(128), usize::MAX).is_ok());
        assert_eq!(validate(&nested(129), usize::MAX), Err(JsonError::TooDeep));
        assert_eq!(validate(&"[".repeat(1_000_000), usize::MAX), Err(JsonError::TooDeep));
    }

    #[test]
    fn a_member_is_found_by_what_its_key_stands_for_and_the_last_wins() {
        let raw = r#"{"a":1,"\u0061":{"b":[2]},"c":"x"}"#;
        assert_eq!(member(raw, "a"), Some(r#"{"b":[2]}"#));
        assert_eq!(member(raw, "c"), Some(r#""x""#));
        assert_eq!(member(raw, "b"), None);
        for not_an_object in ["[]", "1", "", "{", r#"{"a""#, r#"{"a":"#] {
            assert_eq!(member(not_an_object, "a"), None);
        }
    }

    #[test]
    fn elements_come_raw_and_in_order() {
        assert_eq!(elements(r#"[ 1 , "a", [2] ]"#).collect::<Vec<_>>(), ["1", r#""a""#, "[2]"]);
        assert_eq!(elements("[]").count(), 0);
        assert_eq!(elements("[1 2").count(), 1);
    }

    #[test]
    fn strings_are_decoded_where_rust_can_hold_them() {
        assert_eq!(decode_string(r#""a\/b\n\ud83d\ude00é""#).as_deref(), Some("a/b\n😀é"));
        for raw in [r#""\ud800""#, r#""\ude00\ud83d""#, "1", "[\"a\"]", "\"", ""] {
            assert_eq!(decode_string(raw), None, "{raw}");
        }
        assert!(same_string(r#""😀\u0061""#, r#""\ud83d\ude00a""#));
        assert!(same_string(r#""\ud800""#, r#""\uD800""#));
        assert!(same_string(r#""é\u00e9\n""#, r#""\u00e9é\n""#));
        for (one, other) in [("a", "ab"), ("ab", "a"), ("a", r"a\u0061"), ("é", "è"), (r"\n", "n"), ("", r"\u0000")] {
            assert!(!same_string(&format!("\"{one}\""), &format!("\"{other}\"")), "{one} {other}");
        }
    }

    #[test]
    fn integers_are_cut_and_held_at_the_ends() {
        for (raw, integer_is) in [
            ("0", Some(0)),
            ("-5", Some(-5)),
            ("1.9", Some(1)),
            ("-1.9", Some(-1)),
            ("1e3", Some(1000)),
            ("-0", Some(0)),
            ("1e400", Some(i64::MAX)),
            ("-1e400", Some(i64::MIN)),
            ("9223372036854775808", Some(i64::MAX)),
            ("true", None),
            ("\"1\"", None),
            ("-inf", None),
            ("1x", None),
            ("", None),
        ] {
            assert_eq!(integer(raw), integer_is, "{raw}");
        }
    }
}
